//! Lines for the log of the host.

use std::sync::Arc;

/// The severity of a line in the owner's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// A notice that needs no action.
    Notice,
    /// An error that an operator should look at.
    Error,
}

/// The function that writes the owner's log lines, given by the daemon or the host.
pub type LogFunction = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;
