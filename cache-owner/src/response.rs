//! Responses of the owner: heads and bodies.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::header::{HeaderName, HeaderValue, AGE, ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::Value;
use sszip_core::cache::chain::ChainState;
use sszip_core::cache::owner::leases::LeaseDecision;
use sszip_core::cache::owner::memory_tier::OwnerMemoryEntry;
use sszip_core::cache::owner::state::OwnerHit;
use sszip_core::cache::owner::ClockReading;
use sszip_core::cache::{owner_event, CacheKey};
use sszip_core::status::StatusReportFormat;

use crate::engine::CompletedPurge;
use crate::events::OwnerEventStream;
use crate::follow::chain::FollowedChain;
use crate::request::{ChainStateRequest, ProblemDetails};

/// The body of an owner's HTTP response: pieces of known length, or an event stream.
pub enum OwnerResponseBody {
    /// Pieces of a body of known length.
    Whole(VecDeque<Bytes>),
    /// An event stream, without an end.
    Events(Box<OwnerEventStream>),
}

impl OwnerResponseBody {
    fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(VecDeque::from([bytes.into()]))
    }
}

impl Body for OwnerResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(pieces) => Poll::Ready(pieces.pop_front().map(Frame::data).map(Ok)),
            Self::Events(stream) => stream
                .poll_event_stream_text(context)
                .map(|bytes| bytes.map(Frame::data).map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(pieces) if pieces.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(pieces) => {
                SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum())
            }
            Self::Events(_) => SizeHint::default(),
        }
    }
}

const FRESH_HEADER: HeaderName = HeaderName::from_static("sszip-fresh");
const CLASS_HEADER: HeaderName = HeaderName::from_static("sszip-class");
const GENERATION_HEADER: HeaderName = HeaderName::from_static("sszip-generation");
const CHAIN_HEADER: HeaderName = HeaderName::from_static("sszip-chain");
const CHAIN_STATE_HEADER: HeaderName = HeaderName::from_static("sszip-chain-state");
const LEASE_HEADER: HeaderName = HeaderName::from_static("sszip-lease");

/// Media type of problem details (RFC 9457).
const PROBLEM_TYPE: &str = "application/problem+json";

/// Sets the headers of every response of an owner: the purge generation, and the state of a chain
/// if the request names one. A chain that is not followed has no state.
pub fn set_owner_reply_headers(
    fields: &mut HeaderMap,
    generation: u64,
    chain: Option<(ChainStateRequest, Option<(u64, ChainState)>)>,
) {
    fields
        .entry(GENERATION_HEADER)
        .or_insert_with(|| generation.into());
    let Some((about, published)) = chain else {
        return;
    };
    let Some((number, state)) = published else {
        fields.insert(CHAIN_HEADER, HeaderValue::from_static("none"));
        return;
    };
    fields.insert(CHAIN_HEADER, number.into());
    if about.known != Some(number) {
        let text = owner_event::chain_event_data(&about.namespace, &state);
        // JSON can always be a header
        if let Ok(text) = HeaderValue::try_from(text) {
            fields.insert(CHAIN_STATE_HEADER, text);
        }
    }
}

/// Sets the header with the purge generation, in place of any other.
pub fn set_generation_header(fields: &mut HeaderMap, generation: u64) {
    fields.insert(GENERATION_HEADER, generation.into());
}

fn response_with_type(
    status: StatusCode,
    media_type: &'static str,
    body: OwnerResponseBody,
) -> Response<OwnerResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// The encoded bytes of an entry in the owner's memory, which a response borrows.
struct BorrowedEntryBytes(Arc<OwnerMemoryEntry>);

impl AsRef<[u8]> for BorrowedEntryBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.encoded_bytes()
    }
}

/// Creates the response with a found entry.
pub fn entry_response(found: OwnerHit, now: ClockReading) -> Response<OwnerResponseBody> {
    let entry = found.kept;
    let (fresh, age) = (entry.remaining_ttl(now), entry.age_ms(now) / 1_000);
    let class = entry.entry_store_attributes().class.name();
    let body = OwnerResponseBody::from_bytes(Bytes::from_owner(BorrowedEntryBytes(entry)));
    let mut response = response_with_type(StatusCode::OK, "application/vnd.sszip.entry", body);
    let fields = response.headers_mut();
    fields.insert(FRESH_HEADER, fresh.into());
    fields.insert(AGE, age.into());
    fields.insert(CLASS_HEADER, HeaderValue::from_static(class));
    response
}

/// Creates the response with the found entries of several keys.
pub fn entries_response(
    all: Vec<(CacheKey, OwnerHit)>,
    now: ClockReading,
) -> Response<OwnerResponseBody> {
    let mut pieces = VecDeque::with_capacity(2 * all.len());
    for (key, OwnerHit { kept: entry, .. }) in all {
        let mut head = Vec::with_capacity(48);
        head.extend(key);
        head.extend(entry.remaining_ttl(now).to_be_bytes());
        head.extend((entry.encoded_bytes().len() as u64).to_be_bytes());
        pieces.push_back(Bytes::from(head));
        if !entry.encoded_bytes().is_empty() {
            pieces.push_back(Bytes::from_owner(BorrowedEntryBytes(entry)));
        }
    }
    response_with_type(
        StatusCode::OK,
        "application/vnd.sszip.entries",
        OwnerResponseBody::Whole(pieces),
    )
}

/// The problem details of a lookup without an entry.
const MISS_BODY: &str = r#"{"detail":"no such entry","status":404,"title":"Not Found"}"#;

/// Creates the response to a lookup without an entry (404), with the lease decision if a lease was
/// requested.
pub fn lookup_miss_response(lease: Option<LeaseDecision>) -> Response<OwnerResponseBody> {
    let body = OwnerResponseBody::from_bytes(Bytes::from_static(MISS_BODY.as_bytes()));
    let mut response = response_with_type(StatusCode::NOT_FOUND, PROBLEM_TYPE, body);
    let lease = match lease {
        Some(LeaseDecision::Granted) => "granted",
        Some(LeaseDecision::Pending) => "pending",
        Some(LeaseDecision::Full) | None => return response,
    };
    response
        .headers_mut()
        .insert(LEASE_HEADER, HeaderValue::from_static(lease));
    response
}

/// Creates a response of this status without a body.
pub fn empty_response(status: StatusCode) -> Response<OwnerResponseBody> {
    let mut response = Response::new(OwnerResponseBody::Whole(VecDeque::new()));
    *response.status_mut() = status;
    response
}

/// Returns the report about a completed purge in JSON.
pub fn purge_report_json(purged: CompletedPurge) -> String {
    let report = serde_json::json!({ "generation": purged.generation, "entries": purged.entries });
    format!("{report}\n")
}

/// Creates the response to a completed purge.
pub fn purge_response(purged: CompletedPurge) -> Response<OwnerResponseBody> {
    let body = OwnerResponseBody::from_bytes(purge_report_json(purged));
    let mut response = response_with_type(StatusCode::OK, "application/json", body);
    set_generation_header(response.headers_mut(), purged.generation);
    response
}

/// Creates the response to a callout that carries frames.
pub fn frames_response(answer: Vec<u8>) -> Response<OwnerResponseBody> {
    let body = OwnerResponseBody::from_bytes(answer);
    response_with_type(StatusCode::OK, "application/vnd.sszip.frames", body)
}

/// Creates the response whose body is a process's event stream.
pub fn event_stream_response(stream: OwnerEventStream) -> Response<OwnerResponseBody> {
    let body = OwnerResponseBody::Events(Box::new(stream));
    let mut response = response_with_type(StatusCode::OK, "text/event-stream", body);
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns problem details (RFC 9457) in JSON.
pub fn problem_details_json(problem: &ProblemDetails) -> String {
    let details = serde_json::json!({
        "title": problem.status.canonical_reason(),
        "status": problem.status.as_u16(),
        "detail": problem.detail,
    });
    details.to_string()
}

/// Creates the response to a rejected request: problem details (RFC 9457).
pub fn problem_response(problem: &ProblemDetails) -> Response<OwnerResponseBody> {
    let body = OwnerResponseBody::from_bytes(problem_details_json(problem));
    let mut response = response_with_type(problem.status, PROBLEM_TYPE, body);
    if let Some(allow) = problem.allow {
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static(allow));
    }
    response
}

/// Returns the JSON of a followed chain in the owner's status.
fn followed_chain_json(chain: &FollowedChain) -> Value {
    let status = chain.follow_status();
    let now = crate::clock::read_clocks().monotonic;
    let seconds = |at: u64| now.saturating_sub(at) as f64 / 1000.0;
    let last_reorgs = status.last_reorgs.iter().map(|reorg| {
        serde_json::json!({
            "age": seconds(reorg.at),
            "from": reorg.from,
            "blocks": reorg.blocks,
        })
    });
    serde_json::json!({
        "namespace": hex::encode(chain.namespace),
        "name": chain.name,
        "state": status.state.name(),
        "head": status.head,
        "head_age": status.moved.map(seconds),
        "final": status.last_final,
        "reorgs": status.reorgs,
        "last_reorgs": last_reorgs.collect::<Vec<_>>(),
        "error": status.error,
    })
}

/// Adds the followed chains, the uptime in seconds, the number of connections, and the number of
/// lookups and polls that wait, to the owner's status.
pub fn complete_owner_status(
    mut status: Value,
    chains: &[Arc<FollowedChain>],
    uptime: u64,
    (connections, waits): (usize, usize),
) -> Value {
    status["version"] = 1.into();
    status["software"] = concat!("sszip/", env!("CARGO_PKG_VERSION")).into();
    status["pid"] = std::process::id().into();
    status["uptime"] = uptime.into();
    status["connections"] = connections.into();
    status["waits"] = waits.into();
    status["chains"] = chains
        .iter()
        .map(|chain| followed_chain_json(chain))
        .collect();
    status
}

/// Creates the response with the owner's status, which is `report` in the requested format.
pub fn status_response(format: StatusReportFormat, report: String) -> Response<OwnerResponseBody> {
    let body = OwnerResponseBody::from_bytes(report);
    let mut response = response_with_type(StatusCode::OK, format.report_media_type(), body);
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_bytes(response: Response<OwnerResponseBody>) -> Vec<u8> {
        match response.into_body() {
            OwnerResponseBody::Whole(pieces) => pieces.into_iter().flatten().collect(),
            OwnerResponseBody::Events(_) => Vec::new(),
        }
    }

    #[test]
    fn response_to_a_miss_has_the_problem_details_of_its_status() {
        let problem = ProblemDetails::new(StatusCode::NOT_FOUND, "no such entry");
        let expected = problem_response(&problem);
        let miss = lookup_miss_response(None);
        assert_eq!(miss.status(), expected.status());
        assert_eq!(miss.headers(), expected.headers());
        assert_eq!(body_bytes(miss), body_bytes(expected));
    }
}
