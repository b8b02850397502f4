//! From a request to its response: routes, options, headers.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};

use crate::answers::{Answers, Page};
use crate::chain::{self, Down, EventStream, Got, Simulation};
use crate::delivery::Delivery;
use crate::faults::{self, Plan};
use crate::options::{Framing, Gzip, OptionError, Options};
use crate::payload::Payload;
use crate::rpc::{self, Reply};
use crate::stats::{InFlight, Stats};

/// Options of one request, as an alternative to its query string.
const OPTIONS_HEADER: HeaderName = HeaderName::from_static("x-replay");
/// Repeats the Accept-Encoding that reached the node.
const SEEN_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("x-replay-accept-encoding");
/// The fork of a block of the Beacon API.
const CONSENSUS_VERSION: HeaderName = HeaderName::from_static("eth-consensus-version");
/// Goes before the name of a header field asked for with `echo`.
const ECHO_PREFIX: &str = "x-replay-";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const HTML: HeaderValue = HeaderValue::from_static("text/html");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
const ABSENT: HeaderValue = HeaderValue::from_static("-");

/// Request bodies above this are refused with 413.
const REQUEST_LIMIT: usize = 64 << 20;

/// The body of any response.
pub type Body = Either<Delivery, EventStream>;

/// Where answers come from.
#[derive(Debug)]
pub enum Source {
    Answers(Answers),
    Chain(Arc<Simulation>),
}

impl Source {
    fn calls(&self) -> BTreeMap<&str, u64> {
        match self {
            Source::Answers(answers) => answers.calls(),
            Source::Chain(simulation) => simulation.calls(),
        }
    }
}

/// Everything a request needs, shared by all connections.
#[derive(Debug)]
pub struct Node {
    pub source: Source,
    pub stats: Arc<Stats>,
    pub defaults: Options,
    /// The defaults with a method's own options over them.
    pub by_method: HashMap<String, Options>,
}

/// A response to be written past the HTTP library. It travels as the service's
/// error, which makes hyper give up the connection without writing a byte.
#[derive(Clone, Debug)]
pub struct RawResponse {
    pub plan: Plan,
    /// Ends with the plan, not with the service call.
    pub in_flight: Arc<InFlight>,
}

impl fmt::Display for RawResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the response is written past the HTTP library")
    }
}

impl std::error::Error for RawResponse {}

/// A body before its coding is chosen.
enum Content<'a> {
    Rpc(Reply<'a>),
    Page(&'a Page),
    Text(HeaderValue, String),
}

impl Content<'_> {
    fn payload(&self) -> Payload {
        match self {
            Content::Rpc(reply) => reply.payload(),
            Content::Page(page) => page.payload(),
            Content::Text(_, text) => Payload::from(text.clone()),
        }
    }

    fn gzipped(&self) -> Bytes {
        match self {
            Content::Rpc(reply) => reply.gzipped(),
            Content::Page(page) => page.gzipped(),
            Content::Text(_, text) => Payload::from(text.clone()).gzip(),
        }
    }

    fn media_type(&self) -> HeaderValue {
        match self {
            Content::Text(media_type, _) => media_type.clone(),
            _ => JSON,
        }
    }
}

/// An answer before it is delivered.
struct Answered<'a> {
    /// The name of the options for it.
    method: Cow<'a, str>,
    status: StatusCode,
    content: Content<'a>,
    /// The fork, for `Eth-Consensus-Version`.
    fork: Option<&'static str>,
    hold: Duration,
}

impl<'a> Answered<'a> {
    fn new(method: impl Into<Cow<'a, str>>, status: StatusCode, content: Content<'a>) -> Self {
        Self {
            method: method.into(),
            status,
            content,
            fork: None,
            hold: Duration::ZERO,
        }
    }
}

/// Answers one request. `upgraded` is set if the connection is a WebSocket
/// from here on.
pub async fn handle(
    node: Arc<Node>,
    request: Request<Incoming>,
    upgraded: Arc<AtomicBool>,
) -> Result<Response<Body>, RawResponse> {
    let (head, body) = request.into_parts();
    if matches!(head.method, Method::GET | Method::HEAD) {
        match head.uri.path() {
            "/health" => return Ok(plain(StatusCode::OK, TEXT, "ok\n".to_owned())),
            "/stats" => {
                let json = node.stats.to_json(node.source.calls());
                return Ok(plain(StatusCode::OK, JSON, json));
            }
            _ => (),
        }
    }
    let body = Limited::new(body, REQUEST_LIMIT);
    if let Source::Chain(simulation) = &node.source {
        if chain::is_control(head.uri.path()) {
            let body = match body.collect().await {
                Ok(collected) => collected.to_bytes(),
                Err(error) => return Ok(too_large(&*error)),
            };
            let (status, json) = chain::control(simulation, &head, &body);
            return Ok(plain(status, JSON, json));
        }
    }
    let in_flight = InFlight::new(node.stats.clone());
    let body = match body.collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) => return Ok(too_large(&*error)),
    };
    node.stats.received(body.len());
    let answered = match &node.source {
        Source::Answers(answers) => from_answers(&node, answers, &head, &body),
        Source::Chain(simulation) => match simulation.down() {
            Down::No if head.method == Method::GET && chain::is_websocket(&head.headers) => {
                return Ok(websocket(&head, &upgraded));
            }
            Down::No => match from_chain(&node, simulation, &head, &body) {
                Ok(answered) => answered,
                Err((events, topics)) => {
                    return Ok(event_stream(EventStream::new(events, topics, in_flight)));
                }
            },
            Down::Unavailable => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                let page = Content::Text(HTML, faults::error_page(status));
                Answered::new("", status, page)
            }
            Down::Closed => {
                let in_flight = Arc::new(in_flight);
                let plan = Plan::default();
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
        layered = match layer(options, &head) {
            Ok(layered) => layered,
            Err(error) => return Ok(plain(StatusCode::BAD_REQUEST, TEXT, format!("{error}\n"))),
        };
        &layered
    };
    let latency = options.latency.unwrap_or_default() + answered.hold;
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    let response = respond(&node, &head, answered, options, in_flight)?;
    Ok(response.map(Either::Left))
}

fn from_answers<'a>(
    node: &'a Node,
    answers: &'a Answers,
    head: &request::Parts,
    body: &'a [u8],
) -> Answered<'a> {
    match head.method {
        Method::POST => {
            let exchange = rpc::answer(body, answers, &node.stats);
            let content = Content::Rpc(exchange.reply);
            Answered::new(exchange.method, StatusCode::OK, content)
        }
        Method::GET | Method::HEAD => {
            let path = head.uri.path();
            let (status, content) = match answers.page(path) {
                Some(page) => {
                    node.stats.page();
                    (StatusCode::OK, Content::Page(page))
                }
                None => no_page(path),
            };
            Answered::new("GET", status, content)
        }
        _ => not_allowed(),
    }
}

/// Answers from the chain, or gives the events that are asked for.
fn from_chain(
    node: &Node,
    simulation: &Simulation,
    head: &request::Parts,
    body: &[u8],
) -> Result<Answered<'static>, (chain::Events, HashSet<String>)> {
    match head.method {
        Method::POST => {
            let answered = simulation.answer(body, &node.stats);
            let content = Content::Rpc(Reply::Made(answered.payload));
            Ok(Answered {
                hold: answered.hold,
                ..Answered::new(answered.method, StatusCode::OK, content)
            })
        }
        Method::GET | Method::HEAD => {
            let path = head.uri.path();
            match chain::get(simulation, path, head.uri.query().unwrap_or_default()) {
                Got::Page {
                    status,
                    json,
                    fork,
                    hold,
                } => {
                    node.stats.page();
                    let content = Content::Text(JSON, json);
                    Ok(Answered {
                        fork,
                        hold,
                        ..Answered::new("GET", status, content)
                    })
                }
                Got::Events { events, topics } => Err((events, topics)),
                Got::Nothing => {
                    let (status, content) = no_page(path);
                    Ok(Answered::new("GET", status, content))
                }
            }
        }
        _ => Ok(not_allowed()),
    }
}

fn not_allowed() -> Answered<'static> {
    let text = Content::Text(TEXT, "method not allowed\n".to_owned());
    Answered::new("", StatusCode::METHOD_NOT_ALLOWED, text)
}

fn websocket(head: &request::Parts, upgraded: &AtomicBool) -> Response<Body> {
    let Some(response) = chain::accept(head) else {
        let text = "expected a WebSocket of version 13\n".to_owned();
        return plain(StatusCode::BAD_REQUEST, TEXT, text);
    };
    upgraded.store(true, Ordering::Relaxed);
    response.map(|()| Either::Left(Delivery::new(Payload::default(), true, None, None, None)))
}

fn event_stream(events: EventStream) -> Response<Body> {
    let mut response = Response::new(Either::Right(events));
    let media_type = HeaderValue::from_static("text/event-stream");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, media_type);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn too_large(error: &dyn std::error::Error) -> Response<Body> {
    plain(StatusCode::PAYLOAD_TOO_LARGE, TEXT, format!("{error}\n"))
}

fn no_page(path: &str) -> (StatusCode, Content<'static>) {
    // geth answers an empty 200 to probes of its root.
    if path == "/" {
        let nothing = Content::Rpc(Reply::Made(Payload::default()));
        return (StatusCode::OK, nothing);
    }
    let json = r#"{"code":404,"message":"not found"}"#;
    (StatusCode::NOT_FOUND, Content::Text(JSON, json.to_owned()))
}

/// The request's own options over those of the node.
fn layer(base: &Options, head: &request::Parts) -> Result<Options, OptionError> {
    let mut options = base.clone();
    let query = head.uri.query().unwrap_or_default();
    if head.method == Method::POST {
        options.apply(query)?;
    } else {
        options.apply_known(query)?;
    }
    for value in head.headers.get_all(OPTIONS_HEADER) {
        options.apply(&String::from_utf8_lossy(value.as_bytes()))?;
    }
    Ok(options)
}

fn respond(
    node: &Node,
    head: &request::Parts,
    answered: Answered<'_>,
    options: &Options,
    in_flight: InFlight,
) -> Result<Response<Delivery>, RawResponse> {
    let (status, content) = match options.error {
        Some(error) => (error, Content::Text(HTML, faults::error_page(error))),
        None => (options.status.unwrap_or(answered.status), answered.content),
    };
    let has_body = !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let gzip = options.gzip.unwrap_or(Gzip::Never);
    let encode = has_body && wants_gzip(gzip, &head.headers);

    let mut response = Response::new(());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let media_type = options.content_type.clone();
    headers.insert(
        header::CONTENT_TYPE,
        media_type.unwrap_or_else(|| content.media_type()),
    );
    headers.insert(
        SEEN_ACCEPT_ENCODING,
        seen(&head.headers, &header::ACCEPT_ENCODING),
    );
    if let Some(fork) = answered.fork {
        headers.insert(CONSENSUS_VERSION, HeaderValue::from_static(fork));
    }
    if encode {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if gzip == Gzip::Asked {
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    for name in &options.echo {
        if let Ok(echo) = format!("{ECHO_PREFIX}{name}").parse::<HeaderName>() {
            headers.insert(echo, seen(&head.headers, name));
        }
    }
    for (name, value) in &options.headers {
        headers.append(name, value.clone());
    }

    let payload = body(&content, has_body, encode, options);
    if encode {
        node.stats.gzipped();
    }
    if options.error.is_some() || options.is_raw() {
        node.stats.fault();
    }
    if options.is_raw() && head.method != Method::HEAD {
        let parts = response.into_parts().0;
        let plan = Plan::new(&parts, payload, head.version, options);
        in_flight.sent(plan.body_bytes);
        let in_flight = Arc::new(in_flight);
        return Err(RawResponse { plan, in_flight });
    }
    let exact = !has_body || options.framing != Some(Framing::Chunked);
    let body = Delivery::new(
        payload,
        exact,
        options.piece,
        options.pause,
        Some(in_flight),
    );
    Ok(response.map(|()| body))
}

fn body(content: &Content<'_>, has_body: bool, encode: bool, options: &Options) -> Payload {
    if !has_body {
        return Payload::default();
    }
    let mut payload = match (encode, options.newline) {
        (false, false) => content.payload(),
        (true, false) => Payload::from(content.gzipped()),
        (encode, true) => {
            let mut payload = content.payload();
            payload.push(Bytes::from_static(b"\n"));
            if encode {
                Payload::from(payload.gzip())
            } else {
                payload
            }
        }
    };
    if let Some(len) = options.truncate {
        payload.truncate(len);
    }
    payload
}

fn wants_gzip(gzip: Gzip, headers: &HeaderMap) -> bool {
    let names_gzip = |value: &HeaderValue| value.as_bytes().windows(4).any(|word| word == b"gzip");
    match gzip {
        Gzip::Never => false,
        Gzip::Always => true,
        Gzip::Asked => headers
            .get_all(header::ACCEPT_ENCODING)
            .iter()
            .any(names_gzip),
    }
}

/// The request's field values under `name`, joined, or `-`.
fn seen(headers: &HeaderMap, name: &HeaderName) -> HeaderValue {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => ABSENT,
        (Some(only), None) => only.clone(),
        (Some(_), Some(_)) => {
            let values: Vec<&[u8]> = headers
                .get_all(name)
                .iter()
                .map(HeaderValue::as_bytes)
                .collect();
            HeaderValue::from_bytes(&values.join(&b", "[..])).unwrap_or(ABSENT)
        }
    }
}

/// A response that is not part of the replay.
fn plain(status: StatusCode, media_type: HeaderValue, text: String) -> Response<Body> {
    let delivery = Delivery::new(Payload::from(text), true, None, None, None);
    let mut response = Response::new(Either::Left(delivery));
    *response.status_mut() = status;
    *response.version_mut() = Version::HTTP_11;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}
