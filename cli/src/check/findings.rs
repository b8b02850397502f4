//! Findings of `sszip check`.

use std::fmt;
use std::rc::Rc;

use serde_json::{json, Value};
use sszip_core::log::escape_log_text;

/// A position in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The path, as it was passed or included.
    pub file: Rc<str>,
    /// The line, from 1 on.
    pub line: u32,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingLevel {
    /// The configuration is rejected, or exposes clients or the cache.
    Error,
    /// The configuration is accepted, with an effect that is seldom intended.
    Warning,
}

/// A problem of a configuration.
#[derive(Debug)]
pub struct Finding {
    /// The rule that has found it, by its name in docs/checking.md.
    pub rule: &'static str,
    /// The severity.
    pub level: FindingLevel,
    /// The position of the directive or setting.
    pub at: Position,
    /// The problem.
    pub text: String,
    /// The change that solves it; empty if the text contains it.
    pub remedy: &'static str,
}

impl FindingLevel {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

impl Finding {
    /// Creates an error.
    pub fn error(
        rule: &'static str,
        at: &Position,
        text: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        Self {
            rule,
            level: FindingLevel::Error,
            at: at.clone(),
            text: text.into(),
            remedy,
        }
    }

    /// Creates a warning.
    pub fn warning(
        rule: &'static str,
        at: &Position,
        text: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        Self {
            level: FindingLevel::Warning,
            ..Self::error(rule, at, text, remedy)
        }
    }

    /// Returns the finding as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "rule": self.rule,
            "level": self.level.name(),
            "file": &*self.at.file,
            "line": self.at.line,
            "text": self.text,
            "remedy": self.remedy,
        })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", escape_log_text(&self.file), self.line)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, text) = (self.level.name(), escape_log_text(&self.text));
        write!(f, "{}: {level}[{}]: {text}", self.at, self.rule)?;
        match self.remedy {
            "" => Ok(()),
            remedy => write!(f, "; {remedy}"),
        }
    }
}
