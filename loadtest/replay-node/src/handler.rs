//! Request handling: routes and options.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request;
use hyper::{Method, Request, Response, StatusCode, Version};

use crate::body_slices::SharedBodySlices;
use crate::chain::{self, BeaconEventStreamBody, OutageMode, SimulatedGetResponse, SimulatedNode};
use crate::delivery::PacedResponseBody;
use crate::faults::{self, FaultyResponsePlan};
use crate::options::{DeliveryOptionError, ReplayResponseOptions};
use crate::page::CONSENSUS_VERSION;
use crate::respond::{build_response, UncodedResponseContent, UnframedResponse, HTML, JSON, TEXT};
use crate::responses::ResponseTable;
use crate::rpc::{self, ReplayRpcReply};
use crate::stats::{InFlightRequestGuard, RequestCounters};
use crate::submissions::{self, ReceivedSubmissions};
use crate::witness_submissions;

/// Header with the options of one request, as an alternative to its query string.
const OPTIONS_HEADER: HeaderName = HeaderName::from_static("x-replay");
/// Prefix of the paths that return the last accepted publish of a path.
const PUBLISHED_PREFIX: &str = "/published";
/// Name of the options for publishes.
const PUBLISH_OPTIONS: &str = "publish";

/// Maximum bytes of a request body; larger ones are refused with 413.
const REQUEST_LIMIT: usize = 64 << 20;

/// The body of any response of the node: a delivery or an event stream.
pub type NodeResponseBody = Either<PacedResponseBody, BeaconEventStreamBody>;

/// The source of the node's responses: a table of recorded ones, or a simulated chain.
#[derive(Debug)]
pub enum ReplayResponseSource {
    Answers(ResponseTable),
    Chain(Arc<SimulatedNode>),
}

impl ReplayResponseSource {
    fn calls_by_method(&self) -> BTreeMap<&str, u64> {
        match self {
            ReplayResponseSource::Answers(answers) => answers.call_counts_by_method(),
            ReplayResponseSource::Chain(simulation) => simulation.calls(),
        }
    }
}

/// The replay node: its responses, options and counters, shared by all connections.
#[derive(Debug)]
pub struct ReplayNode {
    pub source: ReplayResponseSource,
    pub stats: Arc<RequestCounters>,
    pub publishes: ReceivedSubmissions,
    pub defaults: ReplayResponseOptions,
    /// Options by method: the defaults, overridden by the method's own options.
    pub by_method: HashMap<String, ReplayResponseOptions>,
}

/// A response that is sent without the HTTP library. It is returned as the service's error, which
/// makes hyper give up the connection without writing a byte.
#[derive(Clone, Debug)]
pub struct FaultyResponse {
    pub plan: FaultyResponsePlan,
    /// Dropped at the end of the plan, not of the service call.
    pub in_flight: Arc<InFlightRequestGuard>,
}

impl fmt::Display for FaultyResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the response is written past the HTTP library")
    }
}

impl std::error::Error for FaultyResponse {}

/// Handles one HTTP request. `upgraded` is set if the connection is a WebSocket from then on.
pub async fn handle_request(
    node: Arc<ReplayNode>,
    request: Request<Incoming>,
    upgraded: Arc<AtomicBool>,
) -> Result<Response<NodeResponseBody>, FaultyResponse> {
    let (head, body) = request.into_parts();
    if matches!(head.method, Method::GET | Method::HEAD) {
        match head.uri.path() {
            "/health" => return Ok(plain_response(StatusCode::OK, TEXT, "ok\n".to_owned())),
            "/stats" => {
                let json = node.stats.to_json(
                    node.source.calls_by_method(),
                    node.publishes.submission_counts_by_path(),
                );
                return Ok(plain_response(StatusCode::OK, JSON, json));
            }
            path => {
                if let Some(path) = path.strip_prefix(PUBLISHED_PREFIX) {
                    return Ok(accepted_publish_response(&node, path));
                }
            }
        }
    }
    let body = Limited::new(body, REQUEST_LIMIT);
    if let ReplayResponseSource::Chain(simulation) = &node.source {
        if chain::is_chain_control_request(head.uri.path()) {
            let body = match body.collect().await {
                Ok(collected) => collected.to_bytes(),
                Err(error) => return Ok(body_too_large_response(&*error)),
            };
            let (status, json) = chain::respond_to_control(simulation, &head, &body);
            return Ok(plain_response(status, JSON, json));
        }
    }
    let in_flight = InFlightRequestGuard::new(node.stats.clone());
    let body = match body.collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) => return Ok(body_too_large_response(&*error)),
    };
    node.stats.count_received_bytes(body.len());
    let answered = match &node.source {
        ReplayResponseSource::Answers(answers) => respond_from_table(&node, answers, &head, &body),
        ReplayResponseSource::Chain(simulation) => match simulation.outage_mode() {
            OutageMode::No if head.method == Method::GET && chain::is_websocket(&head.headers) => {
                return Ok(accept_upgrade(&head, &upgraded));
            }
            OutageMode::No => match respond_from_simulated_chain(&node, simulation, &head, &body) {
                Ok(answered) => answered,
                Err((events, topics)) => {
                    return Ok(event_stream_response(BeaconEventStreamBody::new(
                        events, topics, in_flight,
                    )));
                }
            },
            OutageMode::Unavailable => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                let page = UncodedResponseContent::Text(HTML, faults::error_page(status));
                UnframedResponse::new("", status, page)
            }
            OutageMode::Closed => {
                let in_flight = Arc::new(in_flight);
                let plan = FaultyResponsePlan::default();
                return Err(FaultyResponse { plan, in_flight });
            }
        },
    };
    let layered;
    let options = match node.by_method.get(answered.method.as_ref()) {
        Some(options) => options,
        None => &node.defaults,
    };
    let options = if head.uri.query().is_none() && !head.headers.contains_key(OPTIONS_HEADER) {
        options
    } else {
        layered = match merge_request_options(options, &head) {
            Ok(layered) => layered,
            Err(error) => {
                return Ok(plain_response(
                    StatusCode::BAD_REQUEST,
                    TEXT,
                    format!("{error}\n"),
                ))
            }
        };
        &layered
    };
    if let Some(latency) = options.latency {
        tokio::time::sleep(latency).await;
    }
    let mut answered = answered;
    if let Some(hold) = answered.hold.take() {
        hold.wait_for_end().await;
    }
    let response = build_response(&node, &head, answered, options, in_flight)?;
    Ok(response.map(Either::Left))
}

/// Responds from the table of recordings: a page, a JSON-RPC call, or a submission.
fn respond_from_table<'a>(
    node: &'a ReplayNode,
    answers: &'a ResponseTable,
    head: &request::Parts,
    body: &'a Bytes,
) -> UnframedResponse<'a> {
    let path = head.uri.path();
    match head.method {
        Method::POST if submissions::is_publish_route(path) => match answers.find_page(path) {
            // A query whose parameters are in the body of the POST.
            Some(page) => {
                node.stats.count_page();
                UnframedResponse::new("GET", StatusCode::OK, UncodedResponseContent::Page(page))
            }
            None => UnframedResponse::new(
                PUBLISH_OPTIONS,
                StatusCode::OK,
                UncodedResponseContent::Publish(body),
            ),
        },
        Method::POST if witness_submissions::is_witness_route(path) => {
            match answers.witness_generator() {
                Some(witness) => {
                    let content = UncodedResponseContent::Submission(body, witness);
                    UnframedResponse::new(
                        witness_submissions::SUBMISSION_OPTIONS,
                        StatusCode::OK,
                        content,
                    )
                }
                None => {
                    let status = StatusCode::NOT_FOUND;
                    UnframedResponse::new(
                        witness_submissions::SUBMISSION_OPTIONS,
                        status,
                        UncodedResponseContent::engine_api_problem("method-not-found"),
                    )
                }
            }
        }
        Method::POST => {
            let exchange = rpc::respond_to_body(body, answers, &node.stats);
            let content = UncodedResponseContent::Rpc(exchange.reply);
            UnframedResponse::new(exchange.method, StatusCode::OK, content)
        }
        Method::GET | Method::HEAD => {
            let (status, content) = match answers.find_page(path) {
                Some(page) => {
                    node.stats.count_page();
                    (StatusCode::OK, UncodedResponseContent::Page(page))
                }
                None => unknown_page(path),
            };
            UnframedResponse::new("GET", status, content)
        }
        _ => method_not_allowed(),
    }
}

/// Responds from the chain, or returns the event stream that was requested.
fn respond_from_simulated_chain(
    node: &ReplayNode,
    simulation: &SimulatedNode,
    head: &request::Parts,
    body: &[u8],
) -> Result<UnframedResponse<'static>, (chain::ChainEventReceiver, HashSet<String>)> {
    match head.method {
        Method::POST => {
            let answered = simulation.respond_to_body(body, &node.stats);
            let content = UncodedResponseContent::Rpc(ReplayRpcReply::Generated(answered.payload));
            Ok(UnframedResponse {
                hold: answered.hold,
                ..UnframedResponse::new(answered.method, StatusCode::OK, content)
            })
        }
        Method::GET | Method::HEAD => {
            let path = head.uri.path();
            match chain::respond_to_get(simulation, path, head.uri.query().unwrap_or_default()) {
                SimulatedGetResponse::Page {
                    status,
                    json,
                    fork,
                    hold,
                } => {
                    node.stats.count_page();
                    let content = UncodedResponseContent::Text(JSON, json);
                    let fork = fork.map(HeaderValue::from_static);
                    Ok(UnframedResponse {
                        fields: fork
                            .map(|fork| (CONSENSUS_VERSION, fork))
                            .into_iter()
                            .collect(),
                        hold,
                        ..UnframedResponse::new("GET", status, content)
                    })
                }
                SimulatedGetResponse::Events { events, topics } => Err((events, topics)),
                SimulatedGetResponse::Nothing => {
                    let (status, content) = unknown_page(path);
                    Ok(UnframedResponse::new("GET", status, content))
                }
            }
        }
        _ => Ok(method_not_allowed()),
    }
}

fn method_not_allowed() -> UnframedResponse<'static> {
    let text = UncodedResponseContent::Text(TEXT, "method not allowed\n".to_owned());
    UnframedResponse::new("", StatusCode::METHOD_NOT_ALLOWED, text)
}

/// Returns the response to a WebSocket handshake, a 101 or a 400, and sets `upgraded` for the
/// former.
fn accept_upgrade(head: &request::Parts, upgraded: &AtomicBool) -> Response<NodeResponseBody> {
    let Some(response) = chain::accept_websocket(head) else {
        let text = "expected a WebSocket of version 13\n".to_owned();
        return plain_response(StatusCode::BAD_REQUEST, TEXT, text);
    };
    upgraded.store(true, Ordering::Relaxed);
    response.map(|()| {
        Either::Left(PacedResponseBody::new(
            SharedBodySlices::default(),
            true,
            None,
            None,
            None,
        ))
    })
}

fn event_stream_response(events: BeaconEventStreamBody) -> Response<NodeResponseBody> {
    let mut response = Response::new(Either::Right(events));
    let media_type = HeaderValue::from_static("text/event-stream");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, media_type);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn body_too_large_response(error: &dyn std::error::Error) -> Response<NodeResponseBody> {
    plain_response(StatusCode::PAYLOAD_TOO_LARGE, TEXT, format!("{error}\n"))
}

/// Returns the response for a path without a page: a 404, or an empty 200 for `/`.
fn unknown_page(path: &str) -> (StatusCode, UncodedResponseContent<'static>) {
    // geth responds to probes of its root with an empty 200.
    if path == "/" {
        let nothing =
            UncodedResponseContent::Rpc(ReplayRpcReply::Generated(SharedBodySlices::default()));
        return (StatusCode::OK, nothing);
    }
    let status = StatusCode::NOT_FOUND;
    (
        status,
        UncodedResponseContent::beacon_error(status, "not found"),
    )
}

/// Returns the last accepted publish of a path, unchanged.
fn accepted_publish_response(node: &ReplayNode, path: &str) -> Response<NodeResponseBody> {
    let Some(last) = node.publishes.last_accepted_submission(path) else {
        return plain_response(
            StatusCode::NOT_FOUND,
            TEXT,
            "nothing was taken there\n".to_owned(),
        );
    };
    let delivery =
        PacedResponseBody::new(SharedBodySlices::from(last.body), true, None, None, None);
    let mut response = Response::new(Either::Left(delivery));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, last.media_type);
    if let Some(fork) = last.fork {
        headers.insert(CONSENSUS_VERSION, fork);
    }
    response
}

/// Applies the options of the request over the options of the node.
fn merge_request_options(
    base: &ReplayResponseOptions,
    head: &request::Parts,
) -> Result<ReplayResponseOptions, DeliveryOptionError> {
    let mut options = base.clone();
    let query = head.uri.query().unwrap_or_default();
    if head.method == Method::POST {
        options.parse_query_options(query)?;
    } else {
        options.parse_options_ignoring_unknown(query)?;
    }
    for value in head.headers.get_all(OPTIONS_HEADER) {
        options.parse_query_options(&String::from_utf8_lossy(value.as_bytes()))?;
    }
    Ok(options)
}

/// Builds a response that is not part of the replay.
fn plain_response(
    status: StatusCode,
    media_type: HeaderValue,
    text: String,
) -> Response<NodeResponseBody> {
    let delivery = PacedResponseBody::new(SharedBodySlices::from(text), true, None, None, None);
    let mut response = Response::new(Either::Left(delivery));
    *response.status_mut() = status;
    *response.version_mut() = Version::HTTP_11;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}
