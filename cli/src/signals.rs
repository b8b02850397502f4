//! The signals that end a command: INT (Ctrl-C), TERM, HUP.

use std::io;

use tokio::signal::unix::{signal, Signal, SignalKind};

/// The signals that end a command. While it exists, they do not end the process by themselves.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl StopSignals {
    /// Starts to listen, within a runtime.
    ///
    /// # Errors
    /// The error of the system.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next of these signals, and returns its number.
    pub async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => libc::SIGINT,
            _ = self.terminate.recv() => libc::SIGTERM,
            _ = self.hangup.recv() => libc::SIGHUP,
        }
    }
}
