//! Queries of a status.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use serde_json::Value;
use tokio::time::{interval, MissedTickBehavior};

use super::snapshot::{parse_status, StatusSnapshot};
use crate::http_client::{connection_error, run_blocking, HttpClient};
use crate::json_reply::json_reply;
use crate::signals::StopSignals;
use crate::target::Target;
use crate::CommandError;

/// An event of the queries in the background.
pub enum PollEvent {
    /// A status.
    Snapshot(Box<StatusSnapshot>),
    /// A query failed, with the reason; others follow.
    Failure(String),
    /// The queries have ended: by a signal.
    End(CommandError),
}

/// Returns the target of a status as JSON: the path that an owner has, and the parameters that a
/// status page or Envoy's `/stats` requires.
pub fn status_target(target: &Target) -> Target {
    let path = &target.endpoint.path;
    let (page, query) = path.split_once('?').unwrap_or((path, ""));
    if target.is_socket() && path == "/" {
        return target.with_path("/v1/status");
    }
    if query.contains("format=") {
        return target.clone();
    }
    let mark = if query.is_empty() { "" } else { "&" };
    let parameters = match page.ends_with("/stats") {
        true => "format=json&filter=sszip",
        false => "format=json",
    };
    target.with_path(&format!("{page}?{query}{mark}{parameters}"))
}

/// Queries the status once, and returns its JSON and its values.
///
/// # Errors
/// The server does not respond, or its response is no status.
async fn query_status(
    client: &HttpClient,
    target: &Target,
) -> Result<(Value, StatusSnapshot), CommandError> {
    let reply = client.send(Method::GET, None, &[], Bytes::new()).await;
    let reply = reply.map_err(|error| connection_error(target, &error))?;
    let json = json_reply(target, &reply)?;
    let snapshot = parse_status(target, Instant::now(), &json)?;
    Ok((json, snapshot))
}

/// Calls `report` with the status at each interval, until it returns `false` or a signal arrives.
///
/// # Errors
/// The first error of a query or of `report`, or the signal.
pub async fn poll_status(
    client: &HttpClient,
    target: &Target,
    period: Duration,
    mut report: impl FnMut(Result<(Value, StatusSnapshot), CommandError>) -> Result<bool, CommandError>,
) -> Result<(), CommandError> {
    let mut signals = StopSignals::listen()
        .map_err(|error| CommandError::Data(format!("cannot wait for signals: {error}")))?;
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let query = async {
            ticks.tick().await;
            query_status(client, target).await
        };
        let status = tokio::select! {
            signal = signals.next() => return Err(CommandError::Interrupted(signal)),
            status = query => status,
        };
        if !report(status)? {
            return Ok(());
        }
    }
}

/// Queries the status on a thread until the receiver is dropped or a signal arrives.
pub fn spawn_poller(
    client: HttpClient,
    target: Target,
    period: Duration,
) -> mpsc::Receiver<PollEvent> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let end = run_blocking(poll_status(&client, &target, period, |status| {
            let event = match status {
                Ok((_, snapshot)) => PollEvent::Snapshot(Box::new(snapshot)),
                Err(error) => PollEvent::Failure(error.message().unwrap_or_default().into()),
            };
            Ok(sender.send(event).is_ok())
        }));
        if let Err(error) = end {
            // a view that has ended needs no event
            let _ = sender.send(PollEvent::End(error));
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_parameters_of_a_status_are_completed() {
        for (text, path) in [
            ("http://proxy/sszip", "/sszip?format=json"),
            ("http://proxy/sszip?a=b", "/sszip?a=b&format=json"),
            ("http://proxy/sszip?format=json", "/sszip?format=json"),
            ("http://proxy:9901/stats", "/stats?format=json&filter=sszip"),
            ("/run/a.sock", "/v1/status"),
            ("unix:/run/a.sock:/sszip", "/sszip?format=json"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(status_target(&target).endpoint.path, path);
        }
    }
}
