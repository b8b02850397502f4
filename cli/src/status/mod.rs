//! `sszip status` and `sszip top`: the state of proxies and owners, live or as a report.
//!
//! | module             | concern                                         |
//! |--------------------|-------------------------------------------------|
//! | [`poll`]           | queries                                         |
//! | [`snapshot`]       | the values of a status                          |
//! | [`owner_snapshot`] | the values of an owner                          |
//! | [`envoy_stats`]    | Envoy's statistics                              |
//! | [`json_members`]   | members of JSON                                 |
//! | [`rates`]          | values per second                               |
//! | [`views`]          | the contents of the views as lines              |
//! | [`owner_views`]    | the views of owners: chains, store, fleet       |
//! | [`table`]          | tables of text                                  |
//! | [`units`]          | numbers with units                              |
//! | [`view_state`]     | the state of the live view                      |
//! | [`draw`]           | the live view                                   |
//! | [`terminal`]       | the terminal: initialization, keys, restoration |

mod draw;
mod envoy_stats;
mod json_members;
mod owner_snapshot;
mod owner_views;
mod poll;
mod rates;
mod snapshot;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod units;
mod view_state;
mod views;

use serde_json::{json, Value};

use self::poll::{poll_status, spawn_poller, status_target, PollEvent};
use self::rates::{rates_between, Rates};
use self::snapshot::{StatusSnapshot, StatusSource};
use self::terminal::{has_live_terminal, run_live_view};
use self::view_state::ViewState;
use self::views::{method_rate, sorted_methods, summary_lines, title_line, View, NO_KEYS};
use crate::args::{MethodSort, StatusArguments, TopArguments};
use crate::http_client::{run_blocking, HttpClient};
use crate::output::print_text;
use crate::CommandError;

/// Number of methods in the report of `status`.
const REPORTED_METHODS: usize = 10;

/// Runs `sszip status`.
///
/// # Errors
/// The server does not respond, its response is no status, or a signal has ended the command.
pub fn run_status(arguments: &StatusArguments) -> Result<(), CommandError> {
    if arguments.json {
        let line = arguments.interval.is_some();
        return print_reports(arguments, false, |json, _, _| {
            Ok(match line {
                true => format!("{json}\n"),
                false => format!("{json:#}\n"),
            })
        });
    }
    match !arguments.once && has_live_terminal() {
        true => show_live_view(arguments, View::Overview, MethodSort::Calls),
        false => print_reports(arguments, true, |_, snapshot, rates| {
            Ok(format_status_report(snapshot, rates))
        }),
    }
}

/// Runs `sszip top`.
///
/// # Errors
/// The server does not respond, its status has no methods or keys, or a signal has ended the command.
pub fn run_top(arguments: &TopArguments) -> Result<(), CommandError> {
    let status = &arguments.status;
    if !status.json && !status.once && has_live_terminal() {
        let view = match arguments.keys {
            true => View::Keys,
            false => View::Methods,
        };
        return show_live_view(status, view, arguments.sort);
    }
    print_reports(status, !arguments.keys, |_, snapshot, rates| {
        format_top_report(arguments, snapshot, rates)
    })
}

/// Shows the live view.
fn show_live_view(
    arguments: &StatusArguments,
    view: View,
    sort: MethodSort,
) -> Result<(), CommandError> {
    let target = status_target(&arguments.target);
    let client = HttpClient::new(&target, &arguments.connection.options(1))?;
    let events = spawn_poller(client, target, arguments.interval());
    // before the terminal is changed, an error ends the command, and signals are handled
    let snapshot = match events.recv() {
        Ok(PollEvent::Snapshot(snapshot)) => *snapshot,
        Ok(PollEvent::Failure(reason)) => return Err(CommandError::Data(reason)),
        Ok(PollEvent::End(error)) => return Err(error),
        Err(_) => return Err(CommandError::Data("cannot query the status".into())),
    };
    let text = arguments.target.text.clone();
    let mut state = ViewState::new(text, arguments.interval(), view, snapshot);
    state.sort = sort;
    run_live_view(&events, state)
}

/// Prints a report, or with `--json --interval` one at each interval. `has_rates`: the report
/// follows the second query, and has the rates between both.
fn print_reports(
    arguments: &StatusArguments,
    has_rates: bool,
    format: impl Fn(&Value, &StatusSnapshot, Option<&Rates>) -> Result<String, CommandError>,
) -> Result<(), CommandError> {
    let target = status_target(&arguments.target);
    let client = HttpClient::new(&target, &arguments.connection.options(1))?;
    let is_repeated = arguments.json && arguments.interval.is_some() && !arguments.once;
    let mut previous: Option<StatusSnapshot> = None;
    run_blocking(poll_status(
        &client,
        &target,
        arguments.interval(),
        |status| {
            let (json, snapshot) = status?;
            let is_first = previous.is_none();
            let rates = previous
                .as_ref()
                .and_then(|previous| rates_between(previous, &snapshot));
            if !(is_first && has_rates) {
                print_text(&format(&json, &snapshot, rates.as_ref())?)?;
            }
            previous = Some(snapshot);
            Ok(is_repeated || (is_first && has_rates))
        },
    ))
}

/// Returns the report of `status` as text.
fn format_status_report(snapshot: &StatusSnapshot, rates: Option<&Rates>) -> String {
    let mut lines = vec![title_line(snapshot), String::new()];
    let summary = summary_lines(snapshot, rates);
    lines.extend(summary.into_iter().map(|line| line.trim_end().to_owned()));
    let views = match snapshot.source {
        StatusSource::Owner => vec![View::Overview, View::Store],
        _ => vec![View::Overview, View::Methods, View::Reasons, View::Store],
    };
    for view in views {
        let mut section = view.lines(snapshot, rates, MethodSort::Calls);
        if view == View::Methods {
            section.truncate(1 + REPORTED_METHODS);
        }
        if !section.is_empty() {
            lines.push(String::new());
            lines.push(view.title().to_uppercase());
            lines.extend(section);
        }
    }
    lines.join("\n") + "\n"
}

/// Returns the report of `top` as text or JSON.
fn format_top_report(
    arguments: &TopArguments,
    snapshot: &StatusSnapshot,
    rates: Option<&Rates>,
) -> Result<String, CommandError> {
    let count = usize::from(arguments.count);
    let target = &arguments.status.target;
    let absent = |text: &str| CommandError::Data(format!("{target}: {text}"));
    let json = match (arguments.keys, &snapshot.keys) {
        (true, None) => return Err(absent(NO_KEYS)),
        (false, _) if snapshot.source == StatusSource::Owner => {
            return Err(absent(
                "an owner has no counters of methods; use the status page of a proxy",
            ));
        }
        (true, Some(keys)) => json!({
            "sampled": keys.interval,
            "samples": keys.samples,
            "top": keys.top.iter().take(count).map(|row| json!({
                "key": row.key,
                "method": row.method,
                "samples": row.samples,
                "hits": row.hits,
            })).collect::<Vec<_>>(),
        }),
        (false, _) => sorted_methods(snapshot, rates, arguments.sort)
            .into_iter()
            .take(count)
            .map(|row| {
                json!({
                    "name": row.name,
                    "calls_per_second": method_rate(row, rates),
                    "calls": row.calls,
                    "hits": row.hits,
                    "node_microseconds": row.node_latency,
                })
            })
            .collect(),
    };
    if arguments.status.json {
        return Ok(match arguments.status.interval {
            Some(_) => format!("{json}\n"),
            None => format!("{json:#}\n"),
        });
    }
    let view = match arguments.keys {
        true => View::Keys,
        false => View::Methods,
    };
    let mut lines = view.lines(snapshot, rates, arguments.sort);
    if lines.len() > 1 + count {
        lines.drain(1 + count..lines.len() - usize::from(arguments.keys));
    }
    Ok(lines.join("\n") + "\n")
}
