//! Payloads that are submitted over REST for their witness (execution-apis #885, a draft): which
//! are accepted, and the errors of that API.

use hyper::header;
use hyper::http::request;
use hyper::StatusCode;
use serde_json::value::RawValue;

use crate::page::BodyFormat;
use crate::submissions::header_text;

/// Name of the options for these submissions.
pub const SUBMISSION_OPTIONS: &str = "payloads/witness";
/// Suffix of the path, below any prefix, since JSON-RPC accepts any path too.
const WITNESS_ROUTE: &str = "/engine/v1/payloads/witness";
const VERSION: &str = "eth-execution-version";

/// Media type of that API's errors.
pub const PROBLEM_MEDIA_TYPE: header::HeaderValue =
    header::HeaderValue::from_static("application/problem+json");

pub fn is_witness_route(path: &str) -> bool {
    path.ends_with(WITNESS_ROUTE)
}

/// Checks the head of a submitted payload, and returns its format or the reason of its refusal: a
/// status, and the suffix of the error's `type`. The value itself is not parsed.
pub fn check_payload_head(
    head: &request::Parts,
    body: &[u8],
) -> Result<BodyFormat, (StatusCode, &'static str)> {
    let unsupported = (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type");
    match header_text(&head.headers, header::CONTENT_ENCODING) {
        None | Some("identity") => (),
        Some(_) => return Err(unsupported),
    }
    let media_type = header_text(&head.headers, header::CONTENT_TYPE);
    let form = BodyFormat::from_media_type(media_type.unwrap_or_default()).ok_or(unsupported)?;
    if !head.headers.contains_key(VERSION) {
        return Err((StatusCode::BAD_REQUEST, "unsupported-fork"));
    }
    let is_json = || serde_json::from_slice::<&RawValue>(body).is_ok();
    match form {
        BodyFormat::Ssz if body.is_empty() => Err((StatusCode::BAD_REQUEST, "ssz-decode-error")),
        BodyFormat::Json if !is_json() => Err((StatusCode::BAD_REQUEST, "parse-error")),
        form => Ok(form),
    }
}

/// Returns the suffix of an error's `type` for a status.
pub fn problem_type_suffix(status: StatusCode) -> &'static str {
    match status.as_u16() {
        404 => "method-not-found",
        406 => "not-acceptable",
        409 => "invalid-forkchoice",
        413 => "request-too-large",
        415 => "unsupported-media-type",
        422 => "invalid-body",
        400..=499 => "invalid-request",
        _ => "internal",
    }
}

/// Builds the body of an error.
pub fn problem_json(name: &str) -> String {
    serde_json::json!({ "type": format!("/engine-api/errors/{name}") }).to_string()
}
