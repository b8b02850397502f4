//! The terminal of the live view.

use std::env;
use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;

use super::draw::draw;
use super::poll::PollEvent;
use super::view_state::ViewState;
use crate::CommandError;

/// Maximum time for which the view waits for a key before it handles the events of the queries.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// Whether standard input and output are a terminal that can show the live view.
pub fn has_live_terminal() -> bool {
    let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    !is_dumb && io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Restores the terminal, also after a panic.
struct TerminalGuard;

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        // a terminal that is gone needs no restoration
        let _ = execute!(io::stdout(), Show);
        let _ = ratatui::try_restore();
    }
}

/// Shows the live view until a key or a signal ends it.
///
/// # Errors
/// The signal, or the terminal cannot be read or written. The terminal is restored.
pub fn run_live_view(
    events: &mpsc::Receiver<PollEvent>,
    mut state: ViewState,
) -> Result<(), CommandError> {
    let _guard = TerminalGuard;
    let broken = |error: io::Error| {
        CommandError::Data(format!(
            "cannot use the terminal: {error}; --once prints a report"
        ))
    };
    // when the terminal is gone, the destructor of ratatui's object panics: it prints an error there
    let mut terminal = ManuallyDrop::new(ratatui::try_init().map_err(broken)?);
    loop {
        for event in events.try_iter() {
            state.apply_event(event)?;
        }
        let drawn = terminal.draw(|frame| draw(frame, &mut state, Instant::now()));
        drawn.map_err(broken)?;
        if !event::poll(KEY_WAIT).map_err(broken)? {
            continue;
        }
        if let Event::Key(key) = event::read().map_err(broken)? {
            if key.kind != KeyEventKind::Release && state.handle_key(key)? {
                return Ok(());
            }
        }
    }
}
