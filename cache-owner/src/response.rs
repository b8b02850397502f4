//! Responses of the owner's HTTP interface: heads and bodies.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderName, HeaderValue, AGE, ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::Value;
use sszip_core::cache::owner::memory_tier::OwnerMemoryEntry;
use sszip_core::cache::owner::state::OwnerHit;
use sszip_core::cache::owner::ClockReading;
use sszip_core::status::StatusReportFormat;

use crate::engine::CompletedPurge;
use crate::fleet::purge_report::FleetPurgeReport;
use crate::follow::chain::FollowedChain;
use crate::request::ProblemDetails;

/// A response of the owner.
pub type OwnerResponse = Response<Full<Bytes>>;

const FRESH_HEADER: HeaderName = HeaderName::from_static("sszip-fresh");
const CLASS_HEADER: HeaderName = HeaderName::from_static("sszip-class");
const GENERATION_HEADER: HeaderName = HeaderName::from_static("sszip-generation");
const NAMESPACE_HEADER: HeaderName = HeaderName::from_static("sszip-namespace");
const METHOD_HEADER: HeaderName = HeaderName::from_static("sszip-method");
const BLOCK_HEADER: HeaderName = HeaderName::from_static("sszip-block");
const TIER_HEADER: HeaderName = HeaderName::from_static("sszip-tier");

/// Sets the header of every response of an owner, the purge generation, unless it has one.
pub fn set_generation_header(fields: &mut HeaderMap, generation: u64) {
    fields
        .entry(GENERATION_HEADER)
        .or_insert_with(|| generation.into());
}

fn response_with_type(
    status: StatusCode,
    media_type: &'static str,
    body: impl Into<Bytes>,
) -> OwnerResponse {
    let mut response = Response::new(Full::new(body.into()));
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
pub fn entry_response(found: OwnerHit, now: ClockReading) -> OwnerResponse {
    let entry = found.kept;
    let body = Bytes::from_owner(BorrowedEntryBytes(Arc::clone(&entry)));
    let mut response = response_with_type(StatusCode::OK, "application/vnd.sszip.entry", body);
    set_entry_headers(response.headers_mut(), &entry, now);
    response
}

/// Sets the headers that describe an entry: its lifetime, its attributes, and whether it is on disk.
fn set_entry_headers(fields: &mut HeaderMap, entry: &OwnerMemoryEntry, now: ClockReading) {
    let about = entry.entry_store_attributes();
    let tier = match entry.is_on_disk() {
        true => "disk",
        false => "memory",
    };
    fields.insert(FRESH_HEADER, entry.remaining_ttl(now).into());
    fields.insert(AGE, (entry.age_ms(now) / 1_000).into());
    fields.insert(CLASS_HEADER, HeaderValue::from_static(about.class.name()));
    fields.insert(TIER_HEADER, HeaderValue::from_static(tier));
    let texts = [
        (NAMESPACE_HEADER, Some(hex::encode(about.namespace))),
        (METHOD_HEADER, about.method.as_deref().map(str::to_owned)),
        (BLOCK_HEADER, about.block.map(|block| block.to_string())),
    ];
    for (name, text) in texts {
        // names of methods are printable ASCII, as the protocol requires
        if let Some(Ok(value)) = text.map(HeaderValue::try_from) {
            fields.insert(name, value);
        }
    }
}

/// Creates the response to a lookup without an entry.
pub fn lookup_miss_response() -> OwnerResponse {
    problem_response(&ProblemDetails::new(StatusCode::NOT_FOUND, "no such entry"))
}

/// Creates the response to a request to store an entry.
pub fn stored_response() -> OwnerResponse {
    let mut response = OwnerResponse::default();
    *response.status_mut() = StatusCode::CREATED;
    response
}

/// Returns the report about a completed purge in JSON; `fleet` is its effect in the fleet, if the
/// purge was published.
pub fn purge_report_json(purged: CompletedPurge, fleet: Option<&FleetPurgeReport>) -> String {
    let mut report =
        serde_json::json!({ "generation": purged.generation, "entries": purged.entries });
    if let Some(fleet) = fleet {
        report["fleet"] = fleet.to_json();
    }
    format!("{report}\n")
}

/// Creates the response to a completed purge.
pub fn purge_response(purged: CompletedPurge, fleet: Option<&FleetPurgeReport>) -> OwnerResponse {
    let report = purge_report_json(purged, fleet);
    let mut response = response_with_type(StatusCode::OK, "application/json", report);
    set_generation_header(response.headers_mut(), purged.generation);
    response
}

/// Creates the response with a report in JSON.
pub fn json_response(report: &Value) -> OwnerResponse {
    response_with_type(StatusCode::OK, "application/json", format!("{report}\n"))
}

/// Creates the response to a callout that carries frames.
pub fn frames_response(answer: Vec<u8>) -> OwnerResponse {
    response_with_type(StatusCode::OK, "application/vnd.sszip.frames", answer)
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
pub fn problem_response(problem: &ProblemDetails) -> OwnerResponse {
    let details = problem_details_json(problem);
    let mut response = response_with_type(problem.status, "application/problem+json", details);
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
        "block_time": status.block_time.map(|time| time as f64 / 1000.0),
        "reorgs": status.reorgs,
        "last_reorgs": last_reorgs.collect::<Vec<_>>(),
        "error": status.error,
    })
}

/// Adds the followed chains, the uptime in seconds, the number of connections, and the number of
/// polls that wait, to the owner's status.
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
pub fn status_response(format: StatusReportFormat, report: String) -> OwnerResponse {
    let mut response = response_with_type(StatusCode::OK, format.report_media_type(), report);
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}
