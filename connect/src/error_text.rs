//! Errors as text for operators.

use std::error::Error;
use std::fmt::Write;

/// Formats an error with its causes on one line.
pub fn format_error_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            // a write to a String does not fail
            let _ = write!(text, ": {more}");
        }
        cause = error.source();
    }
    text
}
