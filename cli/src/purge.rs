//! `sszip purge`: removes entries by a proxy's purges, or by an owner.

use std::io::{self, BufRead, IsTerminal, Write};

use bytes::Bytes;
use hyper::header::{HeaderValue, CONTENT_TYPE};
use hyper::Method;
use serde_json::Value;

use crate::args::PurgeArguments;
use crate::http_client::{connection_error, run_blocking, HttpClient, HttpReply};
use crate::json_reply::json_reply;
use crate::output::print_text;
use crate::owner_http::owner_target;
use crate::purge_scope::{check_fleet_purge, check_proxy_query, scope_body, scope_query};
use crate::target::Target;
use crate::CommandError;

/// Runs `sszip purge`.
///
/// # Errors
/// The scope is invalid, a purge of everything is not confirmed, or the purge failed.
pub fn run_purge(arguments: &PurgeArguments) -> Result<(), CommandError> {
    let query = scope_query(&arguments.scope)?;
    let (target, path, body) = match (&arguments.url, &arguments.socket) {
        (Some(url), _) => {
            check_proxy_query(&query)?;
            let path = &url.endpoint.path;
            let mark = if path.contains('?') { '&' } else { '?' };
            (url.clone(), format!("{path}{mark}{query}"), String::new())
        }
        (None, Some(socket)) => {
            let body = scope_body(&query)?;
            (owner_target(socket), "/v1/purges".into(), body)
        }
        (None, None) => return Err(CommandError::Usage("--url or --socket is required".into())),
    };
    if query == "everything=" && !arguments.yes {
        confirm_purge_of_everything(&target)?;
    }
    let client = HttpClient::new(&target, &arguments.connection.options(1))?;
    let json = HeaderValue::from_static("application/json");
    let headers = match body.is_empty() {
        true => Vec::new(),
        false => vec![(CONTENT_TYPE, json)],
    };
    let reply = run_blocking(async {
        let reply = client.send(Method::POST, Some(&path), &headers, Bytes::from(body));
        let reply = reply.await;
        reply.map_err(|error| add_purge_remedy(connection_error(&target, &error)))
    })?;
    let report = purge_report(&target, &reply)?;
    print_text(&match arguments.json {
        true => format!("{report}\n"),
        false => format_report(&report),
    })?;
    match &report["fleet"] {
        Value::Null => Ok(()),
        fleet => check_fleet_purge(fleet),
    }
}

/// Requests a confirmation of a purge of everything, on the terminal.
fn confirm_purge_of_everything(target: &Target) -> Result<(), CommandError> {
    if !io::stdin().is_terminal() {
        let text = "a purge of everything needs --yes where no terminal can confirm it";
        return Err(CommandError::Usage(text.into()));
    }
    // an unreadable terminal confirms nothing
    let _ = write!(io::stderr(), "Purge everything at {target}? [y/N] ");
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CommandError::Usage(
            "nothing was purged: not confirmed".into(),
        )),
    }
}

/// Returns the report of a purge, from its response.
fn purge_report(target: &Target, reply: &HttpReply) -> Result<Value, CommandError> {
    let status = reply.status;
    if matches!(status.as_u16(), 404 | 405) {
        return Err(CommandError::Data(format!(
            "{target}: HTTP {status}: no purges at this path; --url is that of a location with \
             sszip_cache_purge, or of a route with cache_purge"
        )));
    }
    let report = json_reply(target, reply).map_err(|error| match status.is_server_error() {
        true => add_purge_remedy(error),
        false => error,
    })?;
    match report["generation"].is_u64() {
        true => Ok(report),
        false => Err(CommandError::Data(format!(
            "{target} does not respond as the purges of sszip; check the path of the URL"
        ))),
    }
}

/// Adds to an error that the purge must be repeated.
fn add_purge_remedy(error: CommandError) -> CommandError {
    match error {
        CommandError::Data(text) => CommandError::Data(format!(
            "{text}. The purge may be in effect or not: repeat it"
        )),
        error => error,
    }
}

/// Returns the report of a purge as text.
fn format_report(report: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let fleet = &report["fleet"];
    let of_fleet = match fleet["owners"].as_u64() {
        Some(owners) => format!(
            ", confirmed by {} of {owners} owners of the fleet",
            number(&fleet["confirmed"])
        ),
        None => String::new(),
    };
    format!(
        "purged: generation {}, at least {} entries{of_fleet}\n",
        number(&report["generation"]),
        number(&report["entries"]),
    )
}
