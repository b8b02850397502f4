//! `sszip-cached`: the owner as a daemon. `configs/cached.toml` documents its configuration.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use sszip_core::log::escape_log_text;
use sszip_owner::config::OwnerConfig;
use sszip_owner::log::{LogFunction, LogLevel};
use sszip_owner::open_store::create_store_opener;
use sszip_owner::owner_lifecycle::RunningOwnerHandle;
use sszip_owner::status_client;

/// Stores a machine's cache entries, and serves them over a Unix socket. QUIT, TERM and INT stop
/// it without a loss of entries.
#[derive(Debug, Parser)]
#[command(name = "sszip-cached", version)]
struct DaemonArguments {
    /// The configuration file (TOML)
    #[arg(value_name = "FILE", default_value = "/etc/sszip/cached.toml")]
    config: PathBuf,

    /// Check the configuration, and exit
    #[arg(long)]
    check: bool,

    /// Query the status of the daemon that runs with this configuration, print it (JSON), and exit:
    /// with 0 if the daemon responds
    #[arg(long, conflicts_with = "check")]
    status: bool,
}

fn main() -> ExitCode {
    let args = DaemonArguments::parse();
    let config = match OwnerConfig::read_owner_config(&args.config) {
        Ok(config) => config,
        Err(error) => {
            log_line(&error.to_string());
            return ExitCode::from(2);
        }
    };
    if !args.status {
        for warning in config.config_warnings() {
            log_line(&format!("warning: {warning}"));
        }
    }
    if args.check {
        log_line(&format!(
            "{}: the configuration is valid",
            args.config.display()
        ));
        return ExitCode::SUCCESS;
    }
    if args.status {
        return match status_client::query_owner_status(&config.socket) {
            Ok(status) => {
                // the reader may be gone
                let _ = writeln!(std::io::stdout(), "{status}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                log_line(&format!("{}: {error}", config.socket.display()));
                ExitCode::FAILURE
            }
        };
    }
    match run_owner(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log_line(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn run_owner(config: &OwnerConfig) -> Result<(), Box<dyn std::error::Error>> {
    // all threads inherit the mask: only this thread receives the signals
    let signals: SigSet = [Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGINT]
        .into_iter()
        .collect();
    signals.thread_block()?;
    let log: LogFunction = Arc::new(|level, line| {
        let line = escape_log_text(line);
        log_line(&match level {
            LogLevel::Notice => line.into_owned(),
            LogLevel::Error => format!("error: {line}"),
        });
    });
    let open = create_store_opener(&config.path, config.max_size, Arc::clone(&log));
    let mut owner = RunningOwnerHandle::start_owner_threads(config.clone(), open, log)?;
    let stop = owner.create_owner_stop_function();
    let stopping = Arc::new(AtomicBool::new(false));
    let is_stopping = Arc::clone(&stopping);
    std::thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            if !is_stopping.swap(true, Ordering::Relaxed) {
                log_line(&format!("{signal}: stopping"));
            }
            stop();
        }
    });
    owner.wait_until_owner_ended();
    if !stopping.load(Ordering::Relaxed) {
        return Err("stopped because of the error above".into());
    }
    log_line("stopped");
    Ok(())
}

/// Writes a line to the log.
fn log_line(line: &str) {
    let pid = std::process::id();
    // the reader may be gone
    let _ = writeln!(std::io::stderr().lock(), "sszip-cached[{pid}]: {line}");
}
