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

use crate::body_slices::BodySlices;
use crate::chain::{self, BeaconEventStream, BeaconGetResponse, OutageMode, SimulatedNode};
use crate::delivery::DeliveredBody;
use crate::faults::{self, RawResponsePlan};
use crate::options::{DeliveryOptionError, DeliveryOptions};
use crate::page::CONSENSUS_VERSION;
use crate::respond::{build_response, ResponseContent, UndeliveredResponse, HTML, JSON, TEXT};
use crate::responses::ResponseTable;
use crate::rpc::{self, CallReply};
use crate::stats::{InFlightRequest, RequestCounters};
use crate::submissions::{self, Submissions};
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
pub type NodeResponseBody = Either<DeliveredBody, BeaconEventStream>;

/// The source of the node's responses: a table of recorded ones, or a simulated chain.
#[derive(Debug)]
pub enum ResponseSource {
    Answers(ResponseTable),
    Chain(Arc<SimulatedNode>),
}

impl ResponseSource {
    fn calls_by_method(&self) -> BTreeMap<&str, u64> {
        match self {
            ResponseSource::Answers(answers) => answers.calls_by_method(),
            ResponseSource::Chain(simulation) => simulation.calls(),
        }
    }
}

/// The replay node: its responses, options and counters, shared by all connections.
#[derive(Debug)]
pub struct ReplayNode {
    pub source: ResponseSource,
    pub stats: Arc<RequestCounters>,
    pub publishes: Submissions,
    pub defaults: DeliveryOptions,
    /// Options by method: the defaults, overridden by the method's own options.
    pub by_method: HashMap<String, DeliveryOptions>,
}

/// A response that is sent without the HTTP library. It is returned as the service's error, which
/// makes hyper give up the connection without writing a byte.
#[derive(Clone, Debug)]
pub struct RawResponse {
    pub plan: RawResponsePlan,
    /// Dropped at the end of the plan, not of the service call.
    pub in_flight: Arc<InFlightRequest>,
}

impl fmt::Display for RawResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the response is written past the HTTP library")
    }
}

impl std::error::Error for RawResponse {}

/// Handles one HTTP request. `upgraded` is set if the connection is a WebSocket from then on.
pub async fn handle_request(
    node: Arc<ReplayNode>,
    request: Request<Incoming>,
    upgraded: Arc<AtomicBool>,
) -> Result<Response<NodeResponseBody>, RawResponse> {
    let (head, body) = request.into_parts();
    if matches!(head.method, Method::GET | Method::HEAD) {
        match head.uri.path() {
            "/health" => return Ok(plain_response(StatusCode::OK, TEXT, "ok\n".to_owned())),
            "/stats" => {
                let json = node.stats.to_json(
                    node.source.calls_by_method(),
                    node.publishes.counts_by_path(),
                );
                return Ok(plain_response(StatusCode::OK, JSON, json));
            }
            path => {
                if let Some(path) = path.strip_prefix(PUBLISHED_PREFIX) {
                    return Ok(published_response(&node, path));
                }
            }
        }
    }
    let body = Limited::new(body, REQUEST_LIMIT);
    if let ResponseSource::Chain(simulation) = &node.source {
        if chain::is_chain_control(head.uri.path()) {
            let body = match body.collect().await {
                Ok(collected) => collected.to_bytes(),
                Err(error) => return Ok(body_too_large_response(&*error)),
            };
            let (status, json) = chain::respond_to_control(simulation, &head, &body);
            return Ok(plain_response(status, JSON, json));
        }
    }
    let in_flight = InFlightRequest::new(node.stats.clone());
    let body = match body.collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) => return Ok(body_too_large_response(&*error)),
    };
    node.stats.count_received_bytes(body.len());
    let answered = match &node.source {
        ResponseSource::Answers(answers) => respond_from_table(&node, answers, &head, &body),
        ResponseSource::Chain(simulation) => match simulation.outage_mode() {
            OutageMode::No if head.method == Method::GET && chain::is_websocket(&head.headers) => {
                return Ok(accept_upgrade(&head, &upgraded));
            }
            OutageMode::No => match respond_from_chain(&node, simulation, &head, &body) {
                Ok(answered) => answered,
                Err((events, topics)) => {
                    return Ok(event_stream_response(BeaconEventStream::new(
                        events, topics, in_flight,
                    )));
                }
            },
            OutageMode::Unavailable => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                let page = ResponseContent::Text(HTML, faults::error_page(status));
                UndeliveredResponse::new("", status, page)
            }
            OutageMode::Closed => {
                let in_flight = Arc::new(in_flight);
                let plan = RawResponsePlan::default();
                return Err(RawResponse { plan, in_flight });
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
        layered = match merge_options(options, &head) {
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

fn respond_from_table<'a>(
    node: &'a ReplayNode,
    answers: &'a ResponseTable,
    head: &request::Parts,
    body: &'a Bytes,
) -> UndeliveredResponse<'a> {
    let path = head.uri.path();
    match head.method {
        Method::POST if submissions::is_publish_route(path) => match answers.find_page(path) {
            // A query whose parameters are in the body of the POST.
            Some(page) => {
                node.stats.count_page();
                UndeliveredResponse::new("GET", StatusCode::OK, ResponseContent::Page(page))
            }
            None => UndeliveredResponse::new(
                PUBLISH_OPTIONS,
                StatusCode::OK,
                ResponseContent::Publish(body),
            ),
        },
        Method::POST if witness_submissions::is_witness_route(path) => {
            match answers.witness_generator() {
                Some(witness) => {
                    let content = ResponseContent::Submission(body, witness);
                    UndeliveredResponse::new(
                        witness_submissions::SUBMISSION_OPTIONS,
                        StatusCode::OK,
                        content,
                    )
                }
                None => {
                    let status = StatusCode::NOT_FOUND;
                    UndeliveredResponse::new(
                        witness_submissions::SUBMISSION_OPTIONS,
                        status,
                        ResponseContent::engine_problem("method-not-found"),
                    )
                }
            }
        }
        Method::POST => {
            let exchange = rpc::respond_to_body(body, answers, &node.stats);
            let content = ResponseContent::Rpc(exchange.reply);
            UndeliveredResponse::new(exchange.method, StatusCode::OK, content)
        }
        Method::GET | Method::HEAD => {
            let (status, content) = match answers.find_page(path) {
                Some(page) => {
                    node.stats.count_page();
                    (StatusCode::OK, ResponseContent::Page(page))
                }
                None => unknown_page(path),
            };
            UndeliveredResponse::new("GET", status, content)
        }
        _ => method_not_allowed(),
    }
}

/// Responds from the chain, or returns the event stream that was requested.
fn respond_from_chain(
    node: &ReplayNode,
    simulation: &SimulatedNode,
    head: &request::Parts,
    body: &[u8],
) -> Result<UndeliveredResponse<'static>, (chain::ChainEventReceiver, HashSet<String>)> {
    match head.method {
        Method::POST => {
            let answered = simulation.respond_to_body(body, &node.stats);
            let content = ResponseContent::Rpc(CallReply::Generated(answered.payload));
            Ok(UndeliveredResponse {
                hold: answered.hold,
                ..UndeliveredResponse::new(answered.method, StatusCode::OK, content)
            })
        }
        Method::GET | Method::HEAD => {
            let path = head.uri.path();
            match chain::respond_to_get(simulation, path, head.uri.query().unwrap_or_default()) {
                BeaconGetResponse::Page {
                    status,
                    json,
                    fork,
                    hold,
                } => {
                    node.stats.count_page();
                    let content = ResponseContent::Text(JSON, json);
                    let fork = fork.map(HeaderValue::from_static);
                    Ok(UndeliveredResponse {
                        fields: fork
                            .map(|fork| (CONSENSUS_VERSION, fork))
                            .into_iter()
                            .collect(),
                        hold,
                        ..UndeliveredResponse::new("GET", status, content)
                    })
                }
                BeaconGetResponse::Events { events, topics } => Err((events, topics)),
                BeaconGetResponse::Nothing => {
                    let (status, content) = unknown_page(path);
                    Ok(UndeliveredResponse::new("GET", status, content))
                }
            }
        }
        _ => Ok(method_not_allowed()),
    }
}

fn method_not_allowed() -> UndeliveredResponse<'static> {
    let text = ResponseContent::Text(TEXT, "method not allowed\n".to_owned());
    UndeliveredResponse::new("", StatusCode::METHOD_NOT_ALLOWED, text)
}

fn accept_upgrade(head: &request::Parts, upgraded: &AtomicBool) -> Response<NodeResponseBody> {
    let Some(response) = chain::accept_websocket(head) else {
        let text = "expected a WebSocket of version 13\n".to_owned();
        return plain_response(StatusCode::BAD_REQUEST, TEXT, text);
    };
    upgraded.store(true, Ordering::Relaxed);
    response.map(|()| {
        Either::Left(DeliveredBody::new(
            BodySlices::default(),
            true,
            None,
            None,
            None,
        ))
    })
}

fn event_stream_response(events: BeaconEventStream) -> Response<NodeResponseBody> {
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

fn unknown_page(path: &str) -> (StatusCode, ResponseContent<'static>) {
    // geth responds to probes of its root with an empty 200.
    if path == "/" {
        let nothing = ResponseContent::Rpc(CallReply::Generated(BodySlices::default()));
        return (StatusCode::OK, nothing);
    }
    let status = StatusCode::NOT_FOUND;
    (status, ResponseContent::beacon_error(status, "not found"))
}

/// Returns the last accepted publish of a path, unchanged.
fn published_response(node: &ReplayNode, path: &str) -> Response<NodeResponseBody> {
    let Some(last) = node.publishes.last_accepted(path) else {
        return plain_response(
            StatusCode::NOT_FOUND,
            TEXT,
            "nothing was taken there\n".to_owned(),
        );
    };
    let delivery = DeliveredBody::new(BodySlices::from(last.body), true, None, None, None);
    let mut response = Response::new(Either::Left(delivery));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, last.media_type);
    if let Some(fork) = last.fork {
        headers.insert(CONSENSUS_VERSION, fork);
    }
    response
}

/// Applies the options of the request over the options of the node.
fn merge_options(
    base: &DeliveryOptions,
    head: &request::Parts,
) -> Result<DeliveryOptions, DeliveryOptionError> {
    let mut options = base.clone();
    let query = head.uri.query().unwrap_or_default();
    if head.method == Method::POST {
        options.parse_options(query)?;
    } else {
        options.parse_known_options(query)?;
    }
    for value in head.headers.get_all(OPTIONS_HEADER) {
        options.parse_options(&String::from_utf8_lossy(value.as_bytes()))?;
    }
    Ok(options)
}

/// Builds a response that is not part of the replay.
fn plain_response(
    status: StatusCode,
    media_type: HeaderValue,
    text: String,
) -> Response<NodeResponseBody> {
    let delivery = DeliveredBody::new(BodySlices::from(text), true, None, None, None);
    let mut response = Response::new(Either::Left(delivery));
    *response.status_mut() = status;
    *response.version_mut() = Version::HTTP_11;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}
