//! HTTP routes in front of the chain: `/chain` for tests, pages and event streams for all
//! clients.

use std::collections::HashSet;

use hyper::header::{self, HeaderName};
use hyper::http::request;
use hyper::{HeaderMap, Method, StatusCode};
use serde_json::json;

use super::beacon;
use super::control as commands;
use super::feed::Events;
use super::{ResponseDelay, Simulation};

/// Path at which tests change and inspect the chain, without passing the node's faults.
const CONTROL: &str = "/chain";
/// Path at which a node without lag, delay or outage responds.
const HONEST: &str = "/chain/answer";
const EVENTS: &str = "/eth/v1/events";
const TOPICS: [&str; 3] = ["head", "chain_reorg", "finalized_checkpoint"];

/// The response of the simulated node to a GET: a page or an event stream.
#[derive(Debug)]
pub enum GetResponse {
    Page {
        status: StatusCode,
        json: String,
        /// Fork for `Eth-Consensus-Version`.
        fork: Option<&'static str>,
        hold: Option<ResponseDelay>,
    },
    Events {
        events: Events,
        topics: HashSet<String>,
    },
    Nothing,
}

impl GetResponse {
    fn page(page: &beacon::Page, hold: Option<ResponseDelay>) -> Self {
        GetResponse::Page {
            status: StatusCode::from_u16(page.status).unwrap_or_default(),
            json: page.body.to_string(),
            fork: page.versioned.then_some(beacon::FORK),
            hold,
        }
    }

    fn error(status: StatusCode, message: &str) -> Self {
        GetResponse::Page {
            status,
            json: json!({"code": status.as_u16(), "message": message}).to_string(),
            fork: None,
            hold: None,
        }
    }
}

/// Responds to a GET of the Beacon API.
pub fn get(simulation: &Simulation, path: &str, query: &str) -> GetResponse {
    if path == EVENTS {
        return events(simulation, query);
    }
    let state = simulation.read();
    match beacon::page(&state.view(), path) {
        Some(page) => GetResponse::page(&page, state.response_delay("GET")),
        None => GetResponse::Nothing,
    }
}

fn events(simulation: &Simulation, query: &str) -> GetResponse {
    let mut topics = HashSet::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if name == "topics" {
            topics.extend(value.split(',').map(str::to_owned));
        }
    }
    let unknown = topics
        .iter()
        .find(|topic| !TOPICS.contains(&topic.as_str()));
    match unknown {
        Some(unknown) => {
            let message = format!("BAD_REQUEST: unknown topic: {unknown}");
            GetResponse::error(StatusCode::BAD_REQUEST, &message)
        }
        None if topics.is_empty() => {
            GetResponse::error(StatusCode::BAD_REQUEST, "BAD_REQUEST: no topics")
        }
        None => match simulation.listen_if_up() {
            Some(events) => GetResponse::Events { events, topics },
            None => GetResponse::error(StatusCode::SERVICE_UNAVAILABLE, "down"),
        },
    }
}

/// Whether a request is for `/chain`; such requests are not counted, and the node's faults don't
/// affect them.
pub fn is_control(path: &str) -> bool {
    path == CONTROL || path == HONEST
}

/// Responds to a request for `/chain`.
pub fn control(
    simulation: &Simulation,
    head: &request::Parts,
    body: &[u8],
) -> (StatusCode, String) {
    match (&head.method, head.uri.path()) {
        (&Method::GET, CONTROL) => (StatusCode::OK, shown(simulation)),
        (&Method::POST, CONTROL) => command(simulation, body),
        (&Method::POST, HONEST) => {
            let payload = simulation.honest_answer(body).joined();
            let text = String::from_utf8_lossy(&payload).into_owned();
            (StatusCode::OK, text)
        }
        (&Method::GET, HONEST) => honest_page(simulation, head.uri.query().unwrap_or_default()),
        _ => refused(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
    }
}

fn shown(simulation: &Simulation) -> String {
    commands::shown(&simulation.read()).to_string()
}

fn command(simulation: &Simulation, body: &[u8]) -> (StatusCode, String) {
    let commands = match commands::read(body) {
        Ok(commands) => commands,
        Err(error) => return refused(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    match simulation.command(commands) {
        Ok(()) => (StatusCode::OK, shown(simulation)),
        Err(error) => refused(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

/// Returns the page at the path in the query, as a node without lag or outage shows it.
fn honest_page(simulation: &Simulation, query: &str) -> (StatusCode, String) {
    let mut named = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "path");
    let Some((_, path)) = named.next() else {
        return refused(StatusCode::BAD_REQUEST, "expected ?path=/eth/...");
    };
    let state = simulation.read();
    match beacon::page(&state.current_view(), &path) {
        Some(page) => {
            let status = StatusCode::from_u16(page.status).unwrap_or_default();
            (status, page.body.to_string())
        }
        None => refused(StatusCode::NOT_FOUND, "not found"),
    }
}

fn refused(status: StatusCode, message: &str) -> (StatusCode, String) {
    (status, json!({"error": message}).to_string())
}

/// Whether a GET requests an upgrade to WebSocket.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    let names = |field: HeaderName, name: &str| {
        let values = headers.get_all(field).iter();
        let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
        let mut words = values.iter().flat_map(|value| value.split(','));
        words.any(|word| word.trim().eq_ignore_ascii_case(name))
    };
    names(header::CONNECTION, "upgrade") && names(header::UPGRADE, "websocket")
}
