//! HTTP routes in front of the chain: `/chain` for tests, pages and event streams for all
//! clients.

use std::collections::HashSet;

use hyper::header::{self, HeaderName};
use hyper::http::request;
use hyper::{HeaderMap, Method, StatusCode};
use serde_json::json;

use super::beacon;
use super::control as commands;
use super::feed::ChainEventReceiver;
use super::{ResponseDelay, SimulatedNode};

/// Path at which tests change and inspect the chain, without passing the node's faults.
const CONTROL_PATH: &str = "/chain";
/// Path at which a node without lag, delay or outage responds.
const UNDISTURBED_PATH: &str = "/chain/answer";
const EVENTS_PATH: &str = "/eth/v1/events";
const EVENT_TOPICS: [&str; 3] = ["head", "chain_reorg", "finalized_checkpoint"];

/// The simulated node's response to a GET: a page or an event stream.
#[derive(Debug)]
pub enum SimulatedGetResponse {
    Page {
        status: StatusCode,
        json: String,
        /// Fork for `Eth-Consensus-Version`.
        fork: Option<&'static str>,
        hold: Option<ResponseDelay>,
    },
    Events {
        events: ChainEventReceiver,
        topics: HashSet<String>,
    },
    Nothing,
}

impl SimulatedGetResponse {
    fn beacon_page(page: &beacon::SimulatedBeaconPage, hold: Option<ResponseDelay>) -> Self {
        SimulatedGetResponse::Page {
            status: StatusCode::from_u16(page.status).unwrap_or_default(),
            json: page.body.to_string(),
            fork: page.versioned.then_some(beacon::FORK),
            hold,
        }
    }

    fn error_response(status: StatusCode, message: &str) -> Self {
        SimulatedGetResponse::Page {
            status,
            json: json!({"code": status.as_u16(), "message": message}).to_string(),
            fork: None,
            hold: None,
        }
    }
}

/// Responds to a GET of the Beacon API.
pub fn respond_to_get(simulation: &SimulatedNode, path: &str, query: &str) -> SimulatedGetResponse {
    if path == EVENTS_PATH {
        return open_event_stream(simulation, query);
    }
    let state = simulation.read_state();
    match beacon::find_beacon_page(&state.node_view(), path) {
        Some(page) => SimulatedGetResponse::beacon_page(&page, state.response_delay("GET")),
        None => SimulatedGetResponse::Nothing,
    }
}

/// Opens the event stream for the `topics` of the query; an unknown topic or none is a 400, a node
/// that is down a 503.
fn open_event_stream(simulation: &SimulatedNode, query: &str) -> SimulatedGetResponse {
    let mut topics = HashSet::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if name == "topics" {
            topics.extend(value.split(',').map(str::to_owned));
        }
    }
    let unknown = topics
        .iter()
        .find(|topic| !EVENT_TOPICS.contains(&topic.as_str()));
    match unknown {
        Some(unknown) => {
            let message = format!("BAD_REQUEST: unknown topic: {unknown}");
            SimulatedGetResponse::error_response(StatusCode::BAD_REQUEST, &message)
        }
        None if topics.is_empty() => {
            SimulatedGetResponse::error_response(StatusCode::BAD_REQUEST, "BAD_REQUEST: no topics")
        }
        None => match simulation.listen_if_up() {
            Some(events) => SimulatedGetResponse::Events { events, topics },
            None => SimulatedGetResponse::error_response(StatusCode::SERVICE_UNAVAILABLE, "down"),
        },
    }
}

/// Whether a request is for `/chain`, which controls the simulation; such requests are not counted,
/// and the node's faults don't affect them.
pub fn is_chain_control_request(path: &str) -> bool {
    path == CONTROL_PATH || path == UNDISTURBED_PATH
}

/// Responds to a request for the control routes: the state, commands, and the responses of an
/// undisturbed node.
pub fn respond_to_control(
    simulation: &SimulatedNode,
    head: &request::Parts,
    body: &[u8],
) -> (StatusCode, String) {
    match (&head.method, head.uri.path()) {
        (&Method::GET, CONTROL_PATH) => (StatusCode::OK, state_json(simulation)),
        (&Method::POST, CONTROL_PATH) => run_posted_commands(simulation, body),
        (&Method::POST, UNDISTURBED_PATH) => {
            let payload = simulation.undisturbed_response(body).to_single_slice();
            let text = String::from_utf8_lossy(&payload).into_owned();
            (StatusCode::OK, text)
        }
        (&Method::GET, UNDISTURBED_PATH) => {
            undisturbed_node_page(simulation, head.uri.query().unwrap_or_default())
        }
        _ => control_error_body(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
    }
}

fn state_json(simulation: &SimulatedNode) -> String {
    commands::chain_report(&simulation.read_state()).to_string()
}

/// Runs the posted commands, and returns the state of the chain, or a 400 with the error.
fn run_posted_commands(simulation: &SimulatedNode, body: &[u8]) -> (StatusCode, String) {
    let commands = match commands::parse_chain_commands(body) {
        Ok(commands) => commands,
        Err(error) => return control_error_body(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    match simulation.run_commands(commands) {
        Ok(()) => (StatusCode::OK, state_json(simulation)),
        Err(error) => control_error_body(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

/// Returns the page at the path in the query, as a node without lag or outage shows it.
fn undisturbed_node_page(simulation: &SimulatedNode, query: &str) -> (StatusCode, String) {
    let mut named = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "path");
    let Some((_, path)) = named.next() else {
        return control_error_body(StatusCode::BAD_REQUEST, "expected ?path=/eth/...");
    };
    let state = simulation.read_state();
    match beacon::find_beacon_page(&state.unlagged_view(), &path) {
        Some(page) => {
            let status = StatusCode::from_u16(page.status).unwrap_or_default();
            (status, page.body.to_string())
        }
        None => control_error_body(StatusCode::NOT_FOUND, "not found"),
    }
}

fn control_error_body(status: StatusCode, message: &str) -> (StatusCode, String) {
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
