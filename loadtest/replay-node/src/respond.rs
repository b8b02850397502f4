//! Conversion of content to the response that its options specify: format, content coding,
//! headers, framing.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request;
use hyper::{HeaderMap, Method, Response, StatusCode};

use crate::body_slices::SharedBodySlices;
use crate::chain::ResponseDelay;
use crate::delivery::PacedResponseBody;
use crate::envelope::{self, DeclaredForkAlteration};
use crate::faults::{self, FaultyResponsePlan};
use crate::handler::{FaultyResponse, ReplayNode};
use crate::options::{BodyFraming, GzipPolicy, ReplayResponseOptions};
use crate::page::{
    negotiate_format, BodyFormat, PageRepresentation, ReplayPage, CONSENSUS_VERSION,
};
use crate::rpc::ReplayRpcReply;
use crate::stats::InFlightRequestGuard;
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
pub enum UncodedResponseContent<'a> {
    Rpc(ReplayRpcReply<'a>),
    /// A page in the format that the request accepts.
    Page(&'a ReplayPage),
    Form(&'a PageRepresentation, BodyFormat),
    /// An accepted publish.
    Publish(&'a Bytes),
    /// A payload submitted over REST, for which a witness is generated.
    Submission(&'a Bytes, &'a WitnessGenerator),
    Text(HeaderValue, String),
}

impl UncodedResponseContent<'_> {
    /// Creates an error of the Beacon API.
    pub fn beacon_error(status: StatusCode, message: &str) -> Self {
        let json = serde_json::json!({"code": status.as_u16(), "message": message});
        UncodedResponseContent::Text(JSON, json.to_string())
    }

    /// Creates an error of the Engine API over REST.
    pub fn engine_api_problem(name: &str) -> Self {
        UncodedResponseContent::Text(
            witness_submissions::PROBLEM_MEDIA_TYPE,
            witness_submissions::problem_json(name),
        )
    }

    fn body_slices(&self) -> SharedBodySlices {
        match self {
            UncodedResponseContent::Rpc(reply) => reply.body_slices(),
            UncodedResponseContent::Form(form, _) => form.body_slices(),
            UncodedResponseContent::Page(_)
            | UncodedResponseContent::Publish(_)
            | UncodedResponseContent::Submission(..) => SharedBodySlices::default(),
            UncodedResponseContent::Text(_, text) => SharedBodySlices::from(text.clone()),
        }
    }

    fn gzipped_body(&self) -> Bytes {
        match self {
            UncodedResponseContent::Rpc(reply) => reply.gzipped_body(),
            UncodedResponseContent::Form(form, _) => form.gzipped_body(),
            _ => self.body_slices().compress_to_gzip(),
        }
    }

    fn media_type(&self) -> HeaderValue {
        match self {
            UncodedResponseContent::Form(_, form) => form.media_type(),
            UncodedResponseContent::Rpc(ReplayRpcReply::Witness { shape, .. }) => {
                shape.body_format().media_type()
            }
            UncodedResponseContent::Text(media_type, _) => media_type.clone(),
            _ => JSON,
        }
    }
}

/// A response before the options, a content coding and a framing are applied to it.
pub struct UnframedResponse<'a> {
    /// Name of the options for the response.
    pub method: Cow<'a, str>,
    pub status: StatusCode,
    pub content: UncodedResponseContent<'a>,
    /// Headers that only this response has.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    pub hold: Option<ResponseDelay>,
}

impl<'a> UnframedResponse<'a> {
    /// Creates a response without delay or headers of its own. `method`: the name by which delivery
    /// options are chosen.
    pub fn new(
        method: impl Into<Cow<'a, str>>,
        status: StatusCode,
        content: UncodedResponseContent<'a>,
    ) -> Self {
        Self {
            method: method.into(),
            status,
            content,
            fields: Vec::new(),
            hold: None,
        }
    }

    /// Replaces the response by an error of the Beacon API; its headers are dropped.
    fn into_beacon_error(self, status: StatusCode, message: &str) -> Self {
        Self {
            status,
            content: UncodedResponseContent::beacon_error(status, message),
            fields: Vec::new(),
            ..self
        }
    }

    /// Replaces the response by a problem of the Engine API; its headers are dropped.
    fn into_engine_problem(self, status: StatusCode, name: &str) -> Self {
        Self {
            status,
            content: UncodedResponseContent::engine_api_problem(name),
            fields: Vec::new(),
            ..self
        }
    }

    /// Applies the request's headers and the options to the response.
    fn apply_delivery_options(
        self,
        node: &ReplayNode,
        head: &request::Parts,
        options: &ReplayResponseOptions,
    ) -> Self {
        let refused = options.error.or(options.refuse);
        let is_submission = matches!(self.content, UncodedResponseContent::Submission(..));
        if refused.is_some()
            && (is_submission || matches!(self.content, UncodedResponseContent::Publish(_)))
        {
            node.publishes.count_refused_submission(head);
        }
        if let Some(status) = options.error {
            let page = faults::error_page(status);
            return Self {
                status,
                content: UncodedResponseContent::Text(HTML, page),
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
            UncodedResponseContent::Page(page) => {
                match options
                    .form
                    .or_else(|| page.negotiate_replay_page_format(&head.headers))
                {
                    Some(form) => match page.find_representation(form) {
                        Some(body) => Self {
                            content: UncodedResponseContent::Form(body, form),
                            fields: page.page_response_headers(),
                            ..self
                        },
                        None => self
                            .into_beacon_error(StatusCode::NOT_FOUND, "the page lacks this format"),
                    },
                    None => self.into_beacon_error(StatusCode::NOT_ACCEPTABLE, "not acceptable"),
                }
            }
            UncodedResponseContent::Rpc(ReplayRpcReply::Witness { witness, shape, id }) => {
                let witness = witness_generator_with_size(witness, options);
                let content =
                    UncodedResponseContent::Rpc(ReplayRpcReply::Witness { witness, shape, id });
                Self { content, ..self }
            }
            UncodedResponseContent::Submission(body, witness) => {
                if let Err((status, name)) = node.publishes.accept_submission(head, body) {
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
                let reply = ReplayRpcReply::Witness {
                    witness: witness_generator_with_size(Cow::Borrowed(witness), options),
                    shape: WitnessFormat::from_format(form),
                    id: "",
                };
                Self {
                    content: UncodedResponseContent::Rpc(reply),
                    ..self
                }
            }
            UncodedResponseContent::Publish(body) => {
                match node.publishes.accept_submission(head, body) {
                    Ok(()) => self,
                    Err((status, why)) => self.into_beacon_error(status, why),
                }
            }
            _ => self,
        }
    }

    /// Omits `Eth-Consensus-Version`, or replaces its value.
    fn alter_fork_header(&mut self, declaration: &DeclaredForkAlteration) {
        self.fields.retain(|(name, _)| *name != CONSENSUS_VERSION);
        if let DeclaredForkAlteration::Fork(name) = declaration {
            if let Ok(value) = HeaderValue::from_str(name) {
                self.fields.push((CONSENSUS_VERSION, value));
            }
        }
    }
}

/// Returns the witness generator, with the size from the options if it is set.
fn witness_generator_with_size<'a>(
    witness: Cow<'a, WitnessGenerator>,
    options: &ReplayResponseOptions,
) -> Cow<'a, WitnessGenerator> {
    match options.witness {
        Some(size) => Cow::Owned(witness.copy_with_size(size)),
        None => witness,
    }
}

/// Builds the response with all `options` applied. Returns the error variant for a response that
/// the HTTP library cannot send.
pub fn build_response(
    node: &ReplayNode,
    head: &request::Parts,
    answered: UnframedResponse<'_>,
    options: &ReplayResponseOptions,
    in_flight: InFlightRequestGuard,
) -> Result<Response<PacedResponseBody>, FaultyResponse> {
    let mut answered = answered.apply_delivery_options(node, head, options);
    if let Some(declaration) = &options.fork {
        answered.alter_fork_header(declaration);
    }
    let replaced = options.status.filter(|_| answered.status == StatusCode::OK);
    let (status, content) = (replaced.unwrap_or(answered.status), answered.content);
    let has_body = !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let gzip = options.gzip.unwrap_or(GzipPolicy::Never);
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
    if gzip == GzipPolicy::Accepted {
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

    let is_plain =
        has_body && !encode && !options.bypasses_http_library() && !options.changes_body();
    let exact = !has_body || options.framing != Some(BodyFraming::Chunked);
    if let (true, UncodedResponseContent::Rpc(ReplayRpcReply::Witness { witness, shape, id })) =
        (is_plain, &content)
    {
        let pieces = witness.response_pieces(*shape, id, options.piece.unwrap_or(WITNESS_PIECE));
        let body =
            PacedResponseBody::from_generated_pieces(pieces, exact, options.pause, Some(in_flight));
        return Ok(response.map(|()| body));
    }
    let payload = build_body(&content, has_body, encode, options);
    if encode {
        node.stats.count_gzipped();
    }
    if options.error.is_some() || options.refuse.is_some() || options.bypasses_http_library() {
        node.stats.count_fault();
    }
    if options.bypasses_http_library() && head.method != Method::HEAD {
        let parts = response.into_parts().0;
        let plan = FaultyResponsePlan::new(&parts, payload, head.version, options);
        in_flight.count_sent_bytes(plan.body_bytes);
        let in_flight = Arc::new(in_flight);
        return Err(FaultyResponse { plan, in_flight });
    }
    let body = PacedResponseBody::new(
        payload,
        exact,
        options.piece,
        options.pause,
        Some(in_flight),
    );
    Ok(response.map(|()| body))
}

/// Returns the body with all options that change it; it is gzipped if `encode`, and empty if not
/// `has_body`.
fn build_body(
    content: &UncodedResponseContent<'_>,
    has_body: bool,
    encode: bool,
    options: &ReplayResponseOptions,
) -> SharedBodySlices {
    if !has_body {
        return SharedBodySlices::default();
    }
    let mut payload = match (encode, options.changes_body_before_coding()) {
        (false, false) => content.body_slices(),
        (true, false) => SharedBodySlices::from(content.gzipped_body()),
        (encode, true) => {
            let payload = alter_response_body(content.body_slices(), options);
            if encode {
                SharedBodySlices::from(payload.compress_to_gzip())
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
fn alter_response_body(
    mut payload: SharedBodySlices,
    options: &ReplayResponseOptions,
) -> SharedBodySlices {
    let version = options.version.as_ref();
    if let Some(changed) =
        version.and_then(|v| envelope::alter_declared_version(&payload.to_single_slice(), v))
    {
        payload = SharedBodySlices::from(Bytes::from(changed));
    }
    if let Some(at) = options.corrupt.filter(|at| *at < payload.len()) {
        let mut bytes = Vec::from(payload.to_single_slice());
        bytes[at] = 0xff;
        payload = SharedBodySlices::from(Bytes::from(bytes));
    }
    if options.newline {
        payload.push(Bytes::from_static(b"\n"));
    }
    payload
}

/// Whether the body is gzipped under the policy, for a client with these request headers.
fn is_gzip_applied(gzip: GzipPolicy, headers: &HeaderMap) -> bool {
    let names_gzip = |value: &HeaderValue| value.as_bytes().windows(4).any(|word| word == b"gzip");
    match gzip {
        GzipPolicy::Never => false,
        GzipPolicy::Always => true,
        GzipPolicy::Accepted => headers
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
