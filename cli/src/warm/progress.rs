//! The progress of `warm` on standard error: a bar, or without a terminal a line now and then.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two updates.
pub const UPDATE_INTERVAL: Duration = Duration::from_millis(250);

/// Number of updates between two lines without a terminal.
const UPDATES_PER_LINE: u32 = 40;

/// The progress on standard error. A bar is removed when it is dropped.
pub struct Progress {
    bar: Option<ProgressBar>,
    total: Option<u64>,
    updates: u32,
}

impl Progress {
    /// Shows that `count` requests are done, of `total` if that is known.
    pub fn start(total: Option<u64>, count: u64) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let template = match total {
                Some(_) => "{bar:16} {pos}/{len} {per_sec} {eta} {msg}",
                None => "{spinner} {pos} {per_sec} {msg}",
            };
            let bar = match total {
                Some(total) => ProgressBar::new(total),
                None => ProgressBar::new_spinner(),
            };
            bar.set_position(count);
            bar.reset_eta();
            match ProgressStyle::with_template(template) {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        Self {
            bar,
            total,
            updates: 0,
        }
    }

    /// Updates the number of requests that are done, and the numbers of their outcomes.
    pub fn update(&mut self, count: u64, outcomes: String) {
        self.updates += 1;
        if let Some(bar) = &self.bar {
            bar.set_position(count);
            bar.set_message(outcomes);
        } else if self.updates.is_multiple_of(UPDATES_PER_LINE) {
            self.report(&match self.total {
                Some(total) => format!("sszip: {count} of {total} requests: {outcomes}"),
                None => format!("sszip: {count} requests: {outcomes}"),
            });
        }
    }

    /// Writes a line above the bar.
    pub fn report(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| write_to_stderr(&format!("{line}\n"))),
            None => write_to_stderr(&format!("{line}\n")),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Writes a text to standard error, which may be closed.
pub fn write_to_stderr(text: &str) {
    // there is no other place for a message
    let _ = io::stderr().write_all(text.as_bytes());
}
