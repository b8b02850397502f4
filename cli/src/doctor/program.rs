//! Runs other programs, limited in time and output.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time for which a program runs.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Time for which its output may stay open after its end: another process may have it.
const MAX_OUTPUT_TIME: Duration = Duration::from_secs(1);

/// Maximum length of each of its outputs; the rest is dropped.
const MAX_OUTPUT: u64 = 64 << 10;

/// Interval at which the end of a program is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The result of a program.
#[derive(Debug)]
pub struct ProgramResult {
    /// Whether its exit code is 0.
    pub is_success: bool,
    /// Standard error, and after it standard output.
    pub output: String,
}

/// Runs a program to its end.
///
/// # Errors
/// It can't be started, or does not end in time.
pub fn run_program(program: &Path, arguments: &[&str]) -> io::Result<ProgramResult> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let errors = child.stderr.take().map(read_in_background);
    let output = child.stdout.take().map(read_in_background);
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > MAX_TIME {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no end within {} s", MAX_TIME.as_secs()),
            ));
        }
        thread::sleep(POLL_INTERVAL);
    };
    let parts = [errors, output].into_iter().flatten();
    let parts = parts.filter_map(|part| part.recv_timeout(MAX_OUTPUT_TIME).ok());
    Ok(ProgramResult {
        is_success: status.success(),
        output: parts.collect(),
    })
}

fn read_in_background(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // what has been read before an error is the output
        let _ = pipe.by_ref().take(MAX_OUTPUT).read_to_end(&mut bytes);
        let _ = io::copy(&mut pipe, &mut io::sink());
        // the receiver may have stopped waiting
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::run_program;

    #[test]
    fn output_is_cut_and_the_program_runs_to_its_end() {
        let script = "echo error >&2; head -c 1000000 /dev/zero | tr '\\0' a; exit 3";
        let result = run_program(Path::new("/bin/sh"), &["-c", script]).unwrap();
        assert!(!result.is_success);
        assert!(result.output.starts_with("error\na"));
        assert_eq!(result.output.len(), 6 + (64 << 10));
        let result = run_program(Path::new("/bin/sh"), &["-c", "exit 0"]).unwrap();
        assert!(result.is_success && result.output.is_empty());
        assert!(run_program(Path::new("/no/program"), &[]).is_err());
    }
}
