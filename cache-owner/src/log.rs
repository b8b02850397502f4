//! Lines for the host's log.

use std::sync::Arc;

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something that is to be expected.
    Notice,
    /// Somebody should look at it.
    Error,
}

/// Where lines of the log go.
pub type Log = Arc<dyn Fn(Level, &str) + Send + Sync>;
