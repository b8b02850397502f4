//! Conversion of content to the response that its options specify: format, content coding,
//! headers, framing.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request;
use hyper::{HeaderMap, Method, Response, StatusCode};

use crate::body_slices::BodySlices;
use crate::chain::ResponseDelay;
use crate::delivery::DeliveredBody;
use crate::envelope::{self, ForkAlteration};
use crate::faults::{self, RawResponsePlan};
use crate::handler::{RawResponse, ReplayNode};
use crate::options::{BodyFraming, DeliveryOptions, GzipCondition};
use crate::page::{
    negotiate_format, BodyFormat, PageRepresentation, ReplayPage, CONSENSUS_VERSION,
};
use crate::rpc::CallReply;
use crate::stats::InFlightRequest;
use crate::witness::{WitnessFormat, WitnessGenerator};
use crate::witness_submissions;

/// Response header with the Accept-Encoding that reached the node.
const SEEN_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("x-replay-accept-encoding");
/// Prefix of the response headers that return the request headers named by `echo`.
const ECHO_PREFIX: &str = "x-replay-";

/// Bytes of each piece of a generated witness, unless an option sets another size.
const WITNESS_PIECE: usize = 256 << 10;

pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub const HTML: HeaderValue = HeaderValue::from_static("text/html");
pub const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
const ABSENT_VALUE: HeaderValue = HeaderValue::from_static("-");

/// The content of a response before a content coding is applied.
pub enum ResponseContent<'a> {
    Rpc(CallReply<'a>),
    /// A page in the format that the request accepts.
    Page(&'a ReplayPage),
    Form(&'a PageRepresentation, BodyFormat),
    /// An accepted publish.
    Publish(&'a Bytes),
    /// A payload submitted over REST, for which a witness is generated.
    Submission(&'a Bytes, &'a WitnessGenerator),
    Text(HeaderValue, String),
}

impl ResponseContent<'_> {
    /// Creates an error of the Beacon API.
    pub fn beacon_error(status: StatusCode, message: &str) -> Self {
        let json = serde_json::json!({"code": status.as_u16(), "message": message});
        ResponseContent::Text(JSON, json.to_string())
    }

    /// Creates an error of the Engine API over REST.
    pub fn engine_problem(name: &str) -> Self {
        ResponseContent::Text(
            witness_submissions::PROBLEM_MEDIA_TYPE,
            witness_submissions::problem_json(name),
        )
    }

    fn body_slices(&self) -> BodySlices {
        match self {
            ResponseContent::Rpc(reply) => reply.body_slices(),
            ResponseContent::Form(form, _) => form.body_slices(),
            ResponseContent::Page(_)
            | ResponseContent::Publish(_)
            | ResponseContent::Submission(..) => BodySlices::default(),
            ResponseContent::Text(_, text) => BodySlices::from(text.clone()),
        }
    }

    fn gzipped_body(&self) -> Bytes {
        match self {
            ResponseContent::Rpc(reply) => reply.gzipped_body(),
            ResponseContent::Form(form, _) => form.gzipped_body(),
            _ => self.body_slices().compress_to_gzip(),
        }
    }

    fn media_type(&self) -> HeaderValue {
        match self {
            ResponseContent::Form(_, form) => form.media_type(),
            ResponseContent::Rpc(CallReply::Witness { shape, .. }) => {
                shape.body_format().media_type()
            }
            ResponseContent::Text(media_type, _) => media_type.clone(),
            _ => JSON,
        }
    }
}

/// A response before the options, a content coding and a framing are applied to it.
pub struct UndeliveredResponse<'a> {
    /// Name of the options for the response.
    pub method: Cow<'a, str>,
    pub status: StatusCode,
    pub content: ResponseContent<'a>,
    /// Headers that only this response has.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    pub hold: Option<ResponseDelay>,
}

impl<'a> UndeliveredResponse<'a> {
    pub fn new(
        method: impl Into<Cow<'a, str>>,
        status: StatusCode,
        content: ResponseContent<'a>,
    ) -> Self {
        Self {
            method: method.into(),
            status,
            content,
            fields: Vec::new(),
            hold: None,
        }
    }

    fn into_beacon_error(self, status: StatusCode, message: &str) -> Self {
        Self {
            status,
            content: ResponseContent::beacon_error(status, message),
            fields: Vec::new(),
            ..self
        }
    }

    fn into_engine_problem(self, status: StatusCode, name: &str) -> Self {
        Self {
            status,
            content: ResponseContent::engine_problem(name),
            fields: Vec::new(),
            ..self
        }
    }

    /// Applies the request's headers and the options to the response.
    fn apply_options(
        self,
        node: &ReplayNode,
        head: &request::Parts,
        options: &DeliveryOptions,
    ) -> Self {
        let refused = options.error.or(options.refuse);
        let is_submission = matches!(self.content, ResponseContent::Submission(..));
        if refused.is_some()
            && (is_submission || matches!(self.content, ResponseContent::Publish(_)))
        {
            node.publishes.count_refusal(head);
        }
        if let Some(status) = options.error {
            let page = faults::error_page(status);
            return Self {
                status,
                content: ResponseContent::Text(HTML, page),
                ..self
            };
        }
        if let Some(status) = options.refuse {
            return match is_submission {
                true => self
                    .into_engine_problem(status, witness_submissions::problem_type_suffix(status)),
                false => self.into_beacon_error(status, "refused"),
            };
        }
        match self.content {
            ResponseContent::Page(page) => {
                match options
                    .form
                    .or_else(|| page.negotiate_page_format(&head.headers))
                {
                    Some(form) => match page.find_representation(form) {
                        Some(body) => Self {
                            content: ResponseContent::Form(body, form),
                            fields: page.fields(),
                            ..self
                        },
                        None => self
                            .into_beacon_error(StatusCode::NOT_FOUND, "the page lacks this format"),
                    },
                    None => self.into_beacon_error(StatusCode::NOT_ACCEPTABLE, "not acceptable"),
                }
            }
            ResponseContent::Rpc(CallReply::Witness { witness, shape, id }) => {
                let witness = resized_witness(witness, options);
                let content = ResponseContent::Rpc(CallReply::Witness { witness, shape, id });
                Self { content, ..self }
            }
            ResponseContent::Submission(body, witness) => {
                if let Err((status, name)) = node.publishes.accept_body(head, body) {
                    return self.into_engine_problem(status, name);
                }
                let there = [BodyFormat::Ssz, BodyFormat::Json].into_iter();
                let Some(form) = options
                    .form
                    .or_else(|| negotiate_format(&head.headers, there))
                else {
                    let status = StatusCode::NOT_ACCEPTABLE;
                    return self.into_engine_problem(
                        status,
                        witness_submissions::problem_type_suffix(status),
                    );
                };
                let reply = CallReply::Witness {
                    witness: resized_witness(Cow::Borrowed(witness), options),
                    shape: WitnessFormat::from_format(form),
                    id: "",
                };
                Self {
                    content: ResponseContent::Rpc(reply),
                    ..self
                }
            }
            ResponseContent::Publish(body) => match node.publishes.accept_body(head, body) {
                Ok(()) => self,
                Err((status, why)) => self.into_beacon_error(status, why),
            },
            _ => self,
        }
    }

    /// Omits `Eth-Consensus-Version`, or replaces its value.
    fn set_fork_header(&mut self, declaration: &ForkAlteration) {
        self.fields.retain(|(name, _)| *name != CONSENSUS_VERSION);
        if let ForkAlteration::Fork(name) = declaration {
            if let Ok(value) = HeaderValue::from_str(name) {
                self.fields.push((CONSENSUS_VERSION, value));
            }
        }
    }
}

/// Returns the witness generator, with the size from the options if it is set.
fn resized_witness<'a>(
    witness: Cow<'a, WitnessGenerator>,
    options: &DeliveryOptions,
) -> Cow<'a, WitnessGenerator> {
    match options.witness {
        Some(size) => Cow::Owned(witness.with_size(size)),
        None => witness,
    }
}

pub fn build_response(
    node: &ReplayNode,
    head: &request::Parts,
    answered: UndeliveredResponse<'_>,
    options: &DeliveryOptions,
    in_flight: InFlightRequest,
) -> Result<Response<DeliveredBody>, RawResponse> {
    let mut answered = answered.apply_options(node, head, options);
    if let Some(declaration) = &options.fork {
        answered.set_fork_header(declaration);
    }
    let replaced = options.status.filter(|_| answered.status == StatusCode::OK);
    let (status, content) = (replaced.unwrap_or(answered.status), answered.content);
    let has_body = !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let gzip = options.gzip.unwrap_or(GzipCondition::Never);
    let encode = has_body && is_gzip_applied(gzip, &head.headers);

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
        joined_header(&head.headers, &header::ACCEPT_ENCODING),
    );
    for (name, value) in answered.fields {
        headers.append(name, value);
    }
    if encode {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if gzip == GzipCondition::Accepted {
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    for name in &options.echo {
        if let Ok(echo) = format!("{ECHO_PREFIX}{name}").parse::<HeaderName>() {
            headers.insert(echo, joined_header(&head.headers, name));
        }
    }
    for (name, value) in &options.headers {
        headers.append(name, value.clone());
    }

    let is_plain = has_body && !encode && !options.is_raw() && !options.changes_body();
    let exact = !has_body || options.framing != Some(BodyFraming::Chunked);
    if let (true, ResponseContent::Rpc(CallReply::Witness { witness, shape, id })) =
        (is_plain, &content)
    {
        let pieces = witness.response_pieces(*shape, id, options.piece.unwrap_or(WITNESS_PIECE));
        let body = DeliveredBody::from_generated(pieces, exact, options.pause, Some(in_flight));
        return Ok(response.map(|()| body));
    }
    let payload = build_body(&content, has_body, encode, options);
    if encode {
        node.stats.count_gzipped();
    }
    if options.error.is_some() || options.refuse.is_some() || options.is_raw() {
        node.stats.count_fault();
    }
    if options.is_raw() && head.method != Method::HEAD {
        let parts = response.into_parts().0;
        let plan = RawResponsePlan::new(&parts, payload, head.version, options);
        in_flight.count_sent_bytes(plan.body_bytes);
        let in_flight = Arc::new(in_flight);
        return Err(RawResponse { plan, in_flight });
    }
    let body = DeliveredBody::new(
        payload,
        exact,
        options.piece,
        options.pause,
        Some(in_flight),
    );
    Ok(response.map(|()| body))
}

fn build_body(
    content: &ResponseContent<'_>,
    has_body: bool,
    encode: bool,
    options: &DeliveryOptions,
) -> BodySlices {
    if !has_body {
        return BodySlices::default();
    }
    let mut payload = match (encode, options.changes_plain_body()) {
        (false, false) => content.body_slices(),
        (true, false) => BodySlices::from(content.gzipped_body()),
        (encode, true) => {
            let payload = apply_body_options(content.body_slices(), options);
            if encode {
                BodySlices::from(payload.compress_to_gzip())
            } else {
                payload
            }
        }
    };
    if let Some(len) = options.truncate {
        payload.truncate_to_length(len);
    }
    payload
}

/// Applies the options that change the body before it is encoded.
fn apply_body_options(mut payload: BodySlices, options: &DeliveryOptions) -> BodySlices {
    let version = options.version.as_ref();
    if let Some(changed) =
        version.and_then(|v| envelope::alter_declared_version(&payload.to_single_slice(), v))
    {
        payload = BodySlices::from(Bytes::from(changed));
    }
    if let Some(at) = options.corrupt.filter(|at| *at < payload.len()) {
        let mut bytes = Vec::from(payload.to_single_slice());
        bytes[at] = 0xff;
        payload = BodySlices::from(Bytes::from(bytes));
    }
    if options.newline {
        payload.push(Bytes::from_static(b"\n"));
    }
    payload
}

fn is_gzip_applied(gzip: GzipCondition, headers: &HeaderMap) -> bool {
    let names_gzip = |value: &HeaderValue| value.as_bytes().windows(4).any(|word| word == b"gzip");
    match gzip {
        GzipCondition::Never => false,
        GzipCondition::Always => true,
        GzipCondition::Accepted => headers
            .get_all(header::ACCEPT_ENCODING)
            .iter()
            .any(names_gzip),
    }
}

/// Returns the request's values of the header `name`, joined, or `-`.
fn joined_header(headers: &HeaderMap, name: &HeaderName) -> HeaderValue {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => ABSENT_VALUE,
        (Some(only), None) => only.clone(),
        (Some(_), Some(_)) => {
            let values: Vec<&[u8]> = headers
                .get_all(name)
                .iter()
                .map(HeaderValue::as_bytes)
                .collect();
            HeaderValue::from_bytes(&values.join(&b", "[..])).unwrap_or(ABSENT_VALUE)
        }
    }
}
