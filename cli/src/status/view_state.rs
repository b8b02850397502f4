//! The state of the live view, and its changes by events and keys.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::poll::PollEvent;
use super::rates::{rates_between, Rates};
use super::snapshot::StatusSnapshot;
use super::views::View;
use crate::args::MethodSort;
use crate::CommandError;

/// Number of lines by which a page key scrolls.
const PAGE_LINES: usize = 10;

/// The state of the live view.
#[derive(Debug)]
pub struct ViewState {
    /// The target as the user has written it.
    pub target: String,
    /// Time between two queries.
    pub interval: Duration,
    /// The view.
    pub view: View,
    /// The column by which methods are sorted.
    pub sort: MethodSort,
    /// Whether new values are ignored.
    pub is_paused: bool,
    /// Whether the keys are explained in place of the view.
    pub shows_help: bool,
    /// Number of lines that are scrolled out of the view.
    pub offset: usize,
    /// The last values.
    pub snapshot: StatusSnapshot,
    /// Rates between the last two values; `None`: the first values, or the counters were reset.
    pub rates: Option<Rates>,
    /// Whether the counters were reset before the last values.
    pub is_reset: bool,
    /// The reason of the last query's failure.
    pub failure: Option<String>,
}

impl ViewState {
    /// Creates the state from the first values.
    pub fn new(target: String, interval: Duration, view: View, snapshot: StatusSnapshot) -> Self {
        Self {
            target,
            interval,
            view,
            sort: MethodSort::Calls,
            is_paused: false,
            shows_help: false,
            offset: 0,
            snapshot,
            rates: None,
            is_reset: false,
            failure: None,
        }
    }

    /// Changes the state by an event of the queries.
    ///
    /// # Errors
    /// The queries have ended, for the reason that ends the command.
    pub fn apply_event(&mut self, event: PollEvent) -> Result<(), CommandError> {
        match event {
            PollEvent::End(error) => return Err(error),
            PollEvent::Failure(reason) => self.failure = Some(reason),
            PollEvent::Snapshot(snapshot) => {
                self.failure = None;
                if !self.is_paused {
                    self.rates = rates_between(&self.snapshot, &snapshot);
                    self.is_reset = self.rates.is_none();
                    self.snapshot = *snapshot;
                }
            }
        }
        Ok(())
    }

    /// Changes the state by a key. Returns whether the view ends.
    ///
    /// # Errors
    /// The key is Ctrl-C, which ends the command as its signal does.
    pub fn handle_key(&mut self, key: KeyEvent) -> Result<bool, CommandError> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => {
                return Err(CommandError::Interrupted(libc::SIGINT));
            }
            KeyCode::Char('q') => return Ok(true),
            KeyCode::Esc if !self.shows_help => return Ok(true),
            KeyCode::Esc => self.shows_help = false,
            KeyCode::Char('?' | 'h') => self.shows_help = !self.shows_help,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => self.sort = next_sort(self.sort),
            KeyCode::Char(digit @ '1'..='5') => {
                let at = digit as usize - '1' as usize;
                self.open_view(View::ALL[at]);
            }
            KeyCode::Tab | KeyCode::Right => self.open_view(self.view.next()),
            KeyCode::Up => self.offset = self.offset.saturating_sub(1),
            KeyCode::Down => self.offset += 1,
            KeyCode::PageUp => self.offset = self.offset.saturating_sub(PAGE_LINES),
            KeyCode::PageDown => self.offset += PAGE_LINES,
            KeyCode::Home => self.offset = 0,
            _ => {}
        }
        Ok(false)
    }

    /// Returns the second line: the state of the queries at `now`.
    pub fn state_line(&self, now: Instant) -> String {
        let seconds = now.saturating_duration_since(self.snapshot.at).as_secs();
        match &self.failure {
            Some(reason) => format!("NO RESPONSE FOR {seconds} s: {reason}"),
            None if self.is_paused => format!("PAUSED for {seconds} s"),
            None if self.is_reset => "counters were reset: the server has been restarted".into(),
            None => format!("{}  every {:?}", self.target, self.interval),
        }
    }

    /// Returns the lines of the view without those that are scrolled out, and the header of its
    /// table first. `height`: the number of lines that the terminal has for it, which limits how
    /// far the view is scrolled.
    pub fn view_lines(&mut self, height: usize) -> Vec<String> {
        let mut lines = self
            .view
            .lines(&self.snapshot, self.rates.as_ref(), self.sort);
        let most = lines.len().saturating_sub(height.max(1));
        self.offset = self.offset.min(most);
        if self.offset > 0 {
            lines.drain(1..=self.offset);
        }
        lines
    }

    fn open_view(&mut self, view: View) {
        self.view = view;
        self.offset = 0;
        self.shows_help = false;
    }
}

fn next_sort(sort: MethodSort) -> MethodSort {
    match sort {
        MethodSort::Calls => MethodSort::Rate,
        MethodSort::Rate => MethodSort::Hits,
        MethodSort::Hits => MethodSort::Misses,
        MethodSort::Misses => MethodSort::Latency,
        MethodSort::Latency => MethodSort::Calls,
    }
}
