//! The signals that end a command: INT (Ctrl-C), TERM, HUP.

use std::fs;
use std::future::pending;
use std::io;

use tokio::signal::unix::{signal, Signal, SignalKind};

/// The signals that end a command. While it exists, they do not end the process by themselves.
pub struct StopSignals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl StopSignals {
    /// Starts to listen, within a runtime. A signal that is ignored stays so: HUP under nohup, and
    /// INT of a command that a script has started in the background.
    ///
    /// # Errors
    /// The error of the system.
    pub fn listen() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = ignored_signals(&status);
        let listen = |number: i32| match (ignored >> (number - 1)) & 1 {
            0 => signal(SignalKind::from_raw(number)).map(Some),
            _ => Ok(None),
        };
        Ok(Self {
            interrupt: listen(libc::SIGINT)?,
            terminate: listen(libc::SIGTERM)?,
            hangup: listen(libc::SIGHUP)?,
        })
    }

    /// Waits for the next of these signals, and returns its number.
    pub async fn next(&mut self) -> i32 {
        tokio::select! {
            () = receive(&mut self.interrupt) => libc::SIGINT,
            () = receive(&mut self.terminate) => libc::SIGTERM,
            () = receive(&mut self.hangup) => libc::SIGHUP,
        }
    }
}

async fn receive(signal: &mut Option<Signal>) {
    let received = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if received.is_none() {
        pending::<()>().await;
    }
}

/// Returns the signals that a process ignores, from its /proc/PID/status: bit 0 is signal 1.
fn ignored_signals(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = line.map(|mask| u64::from_str_radix(mask.trim(), 16));
    mask.and_then(Result::ok).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let status = "Name:\tsszip\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n";
        let ignored = ignored_signals(status);
        assert_eq!(ignored & 1, 1);
        assert_eq!((ignored >> (libc::SIGINT - 1)) & 1, 0);
        assert_eq!(ignored_signals("Name:\tsszip\n"), 0);
    }

    #[test]
    fn received_signal_is_returned() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let number = runtime.block_on(async {
            let mut signals = StopSignals::listen().unwrap();
            let kill = format!("kill -TERM {}", std::process::id());
            let kill = std::process::Command::new("sh")
                .args(["-c", &kill])
                .status();
            assert!(kill.unwrap().success());
            signals.next().await
        });
        assert_eq!(number, libc::SIGTERM);
    }
}
