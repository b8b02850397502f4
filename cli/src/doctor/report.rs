//! The rows of the report of `sszip doctor`.

use std::fmt;

use serde_json::{json, Value};

use crate::server_text::printable;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowStatus {
    /// The checked value is right.
    Ok,
    /// Works, with a loss.
    Warning,
    /// Does not work.
    Failure,
    /// Could not be examined.
    Skipped,
}

/// A row of the report.
#[derive(Debug)]
pub struct Row {
    /// The result.
    pub status: RowStatus,
    /// The check, by its name in docs/checking.md.
    pub name: &'static str,
    /// The observation, without control characters.
    pub text: String,
    /// The change that solves the problem, or makes the check possible; may be empty.
    pub remedy: &'static str,
}

impl RowStatus {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warn",
            Self::Failure => "FAIL",
            Self::Skipped => "skip",
        }
    }
}

impl Row {
    /// Creates a row about something that is as it should be.
    pub fn ok(name: &'static str, text: impl Into<String>) -> Self {
        Self::new(RowStatus::Ok, name, text, "")
    }

    /// Creates a row about a loss.
    pub fn warning(name: &'static str, text: impl Into<String>, remedy: &'static str) -> Self {
        Self::new(RowStatus::Warning, name, text, remedy)
    }

    /// Creates a row about a failure.
    pub fn failure(name: &'static str, text: impl Into<String>, remedy: &'static str) -> Self {
        Self::new(RowStatus::Failure, name, text, remedy)
    }

    /// Creates a row about something that could not be examined.
    pub fn skipped(name: &'static str, text: impl Into<String>, remedy: &'static str) -> Self {
        Self::new(RowStatus::Skipped, name, text, remedy)
    }

    fn new(
        status: RowStatus,
        name: &'static str,
        text: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        let text: String = text.into();
        Self {
            status,
            name,
            text: printable(&text),
            remedy,
        }
    }

    /// Returns the row as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "status": self.status.name().to_ascii_lowercase(),
            "name": self.name,
            "text": self.text,
            "remedy": self.remedy,
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, text) = (self.status.name(), &self.text);
        write!(f, "{status:<5} {:<9} {text}", self.name)?;
        match self.remedy {
            "" => Ok(()),
            remedy => write!(f, "; {remedy}"),
        }
    }
}
