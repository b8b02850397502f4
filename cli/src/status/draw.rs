//! The live view on a terminal. It has no colours: bold and reversed text only.

use std::time::Instant;

use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline};
use ratatui::Frame;

use super::snapshot::History;
use super::units::format_count;
use super::view_state::ViewState;
use super::views::{summary_lines, title_line, View};

/// Minimum size of the terminal.
const MIN_WIDTH: u16 = 80;
const MIN_HEIGHT: u16 = 16;

/// Height of the sparkline with its label.
const HISTORY_HEIGHT: u16 = 3;

const HELP: [&str; 9] = [
    "Keys",
    "1 ... 5, Tab    select a view",
    "s               sort methods by the next column",
    "Up, Down, PgUp, PgDn, Home    scroll",
    "p               pause and continue",
    "?               show or hide this help",
    "q, Esc          quit",
    "",
    "Rates are those since the last query; counts, those since the start of counting.",
];

/// Draws the view as it is at `now`.
pub fn draw(frame: &mut Frame<'_>, state: &mut ViewState, now: Instant) {
    let area = frame.area();
    let (width, height) = (area.width, area.height);
    if width < MIN_WIDTH || height < MIN_HEIGHT {
        let text = format!(
            "the terminal is too small ({width}x{height}); at least {MIN_WIDTH}x{MIN_HEIGHT}"
        );
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let (title, columns) = (title_line(&state.snapshot), usize::from(width));
    let title = format!("{title:<columns$}");
    let mut head = vec![Line::styled(title, reversed)];
    let state_line = state.state_line(now);
    head.push(match state.failure.is_some() || state.is_paused {
        true => Line::styled(state_line, bold),
        false => Line::raw(state_line),
    });
    let summary = summary_lines(&state.snapshot, state.rates.as_ref());
    head.extend(summary.into_iter().map(Line::raw));
    let mut at = draw_lines(frame, head, 0);
    if let Some(history) = &state.snapshot.history {
        draw_history(frame, history, Rect::new(0, at, width, HISTORY_HEIGHT));
        at += HISTORY_HEIGHT;
    }
    at = draw_lines(frame, vec![Line::styled(view_titles(state), bold)], at);
    let room = usize::from(height.saturating_sub(at + 1));
    let mut lines: Vec<Line<'_>> = match state.shows_help {
        true => HELP.into_iter().map(Line::raw).collect(),
        false => state.view_lines(room).into_iter().map(Line::raw).collect(),
    };
    lines.truncate(room);
    draw_lines(frame, lines, at);
    let keys = "q quit  1-5 Tab view  s sort  p pause  Up Down scroll  ? help";
    draw_lines(frame, vec![Line::styled(keys, reversed)], height - 1);
}

/// Draws lines from a row on, and returns the row after them.
fn draw_lines(frame: &mut Frame<'_>, lines: Vec<Line<'_>>, row: u16) -> u16 {
    let area = frame.area();
    let number = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let number = number.min(area.height.saturating_sub(row));
    frame.render_widget(Paragraph::new(lines), Rect::new(0, row, area.width, number));
    row + number
}

/// Draws the requests of the last 15 minutes.
fn draw_history(frame: &mut Frame<'_>, history: &History, area: Rect) {
    let most = history
        .requests
        .iter()
        .flatten()
        .max()
        .copied()
        .unwrap_or(0);
    let label = format!(
        "Requests, last 15 minutes in intervals of 15 s (max. {})",
        format_count(most)
    );
    frame.render_widget(Paragraph::new(label), Rect { height: 1, ..area });
    let bars = Rect {
        y: area.y + 1,
        height: area.height - 1,
        ..area
    };
    frame.render_widget(Sparkline::default().data(&history.requests), bars);
}

/// Returns the titles of the views, the present one in brackets.
fn view_titles(state: &ViewState) -> String {
    let titles = View::ALL.iter().enumerate().map(|(at, view)| {
        let title = format!("{} {}", at + 1, view.title());
        match *view == state.view {
            true => format!("[{title}]"),
            false => format!(" {title} "),
        }
    });
    let titles = titles.collect::<Vec<_>>().join(" ");
    match state.view {
        View::Methods => {
            let sort = format!("{:?}", state.sort).to_lowercase();
            format!("{titles}  by {sort}")
        }
        _ => titles,
    }
}
