//! Lines for the log of the host.

use std::sync::Arc;

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A notice that needs no action.
    Notice,
    /// An error that an operator should look at.
    Error,
}

/// The receiver of log lines.
pub type Log = Arc<dyn Fn(Level, &str) + Send + Sync>;
