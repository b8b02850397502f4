//! From a request to its response: routes, options, headers.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};

use crate::answers::{Answers, Page};
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
/// Goes before the name of a header field asked for with `echo`.
const ECHO_PREFIX: &str = "x-replay-";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const HTML: HeaderValue = HeaderValue::from_static("text/html");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
const ABSENT: HeaderValue = HeaderValue::from_static("-");

/// Request bodies above this are refused with 413.
const REQUEST_LIMIT: usize = 64 << 20;

/// Everything a request needs, shared by all connections.
#[derive(Debug)]
pub struct Node {
    pub answers: Answers,
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

/// Answers one request.
pub async fn handle(
    node: Arc<Node>,
    request: Request<Incoming>,
) -> Result<Response<Delivery>, RawResponse> {
    let (head, body) = request.into_parts();
    if matches!(head.method, Method::GET | Method::HEAD) {
        match head.uri.path() {
            "/health" => return Ok(plain(StatusCode::OK, TEXT, "ok\n".to_owned())),
            "/stats" => {
                let json = node.stats.to_json(&node.answers);
                return Ok(plain(StatusCode::OK, JSON, json));
            }
            _ => (),
        }
    }
    let in_flight = InFlight::new(node.stats.clone());
    let body = match Limited::new(body, REQUEST_LIMIT).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) => {
            let text = format!("{error}\n");
            return Ok(plain(StatusCode::PAYLOAD_TOO_LARGE, TEXT, text));
        }
    };
    node.stats.received(body.len());
    let (method, status, content) = match head.method {
        Method::POST => {
            let exchange = rpc::answer(&body, &node.answers, &node.stats);
            let content = Content::Rpc(exchange.reply);
            (exchange.method, StatusCode::OK, content)
        }
        Method::GET | Method::HEAD => {
            let (status, content) = page(&node, head.uri.path());
            ("GET".into(), status, content)
        }
        _ => {
            let text = Content::Text(TEXT, "method not allowed\n".to_owned());
            ("".into(), StatusCode::METHOD_NOT_ALLOWED, text)
        }
    };
    let layered;
    let options = match node.by_method.get(method.as_ref()) {
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
    if let Some(latency) = options.latency {
        tokio::time::sleep(latency).await;
    }
    respond(&node, &head, status, content, options, in_flight)
}

fn page<'a>(node: &'a Node, path: &str) -> (StatusCode, Content<'a>) {
    match node.answers.page(path) {
        Some(page) => {
            node.stats.page();
            (StatusCode::OK, Content::Page(page))
        }
        // geth answers an empty 200 to probes of its root.
        None if path == "/" => (
            StatusCode::OK,
            Content::Rpc(Reply::Made(Payload::default())),
        ),
        None => {
            let json = r#"{"code":404,"message":"not found"}"#;
            (StatusCode::NOT_FOUND, Content::Text(JSON, json.to_owned()))
        }
    }
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
    status: StatusCode,
    content: Content<'_>,
    options: &Options,
    in_flight: InFlight,
) -> Result<Response<Delivery>, RawResponse> {
    let (status, content) = match options.error {
        Some(error) => (error, Content::Text(HTML, faults::error_page(error))),
        None => (options.status.unwrap_or(status), content),
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
fn plain(status: StatusCode, media_type: HeaderValue, text: String) -> Response<Delivery> {
    let mut response = Response::new(Delivery::new(Payload::from(text), true, None, None, None));
    *response.status_mut() = status;
    *response.version_mut() = Version::HTTP_11;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}
