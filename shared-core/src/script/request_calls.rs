//! Parser of a request's calls, as for the cache and the policy.

use std::borrow::Cow;
use std::fmt;

use crate::gzip::inflate::InflateError;
use crate::jsonrpc::request::{
    parse_jsonrpc_request, required_request_memory, JsonRpcCall, JsonRpcRequestBody,
    RequestParseFailure,
};
use crate::memory;
use crate::request_coding::BodyContentCoding;

/// The reason why a program can't read the calls of a request, which it receives as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestCallsError {
    /// The body is empty.
    Body,
    /// The body is not valid JSON-RPC, or nodes may read it in different ways.
    Calls(RequestParseFailure),
    /// The body has a content coding that is not decoded, or is damaged.
    Coding,
    /// The body is longer than the limit.
    Length,
    /// Memory was refused.
    Memory,
}

impl fmt::Display for RequestCallsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestCallsError::Body => "no-body",
            RequestCallsError::Calls(refusal) => refusal.metrics_name(),
            RequestCallsError::Coding => "coding",
            RequestCallsError::Length => "length",
            RequestCallsError::Memory => "memory",
        })
    }
}

/// Decompresses a request's body to at most `most` bytes. `codings` are the lines of
/// `Content-Encoding`.
///
/// # Errors
/// The reason as [`RequestCallsError`].
pub fn decode_request_body<'a, 'f>(
    body: &'a [u8],
    codings: impl Iterator<Item = &'f [u8]>,
    most: usize,
) -> Result<Cow<'a, [u8]>, RequestCallsError> {
    let mut coding = BodyContentCoding::None;
    codings.for_each(|line| coding.update_from_coding_line(line));
    if body.len() > most {
        return Err(RequestCallsError::Length);
    }
    match coding {
        BodyContentCoding::None => Ok(Cow::Borrowed(body)),
        BodyContentCoding::Other => Err(RequestCallsError::Coding),
        BodyContentCoding::Coded(coded) => match coded.decompress_body(body, most, |_| true) {
            Ok(body) => Ok(Cow::Owned(body)),
            Err(InflateError::Bad) => Err(RequestCallsError::Coding),
            Err(InflateError::TooLarge) => Err(RequestCallsError::Length),
            Err(InflateError::OutOfMemory) => Err(RequestCallsError::Memory),
        },
    }
}

/// Parses at most `most` calls of a body, and returns whether they are a batch.
///
/// # Errors
/// The reason as [`RequestCallsError`].
pub fn parse_request_calls(
    body: &[u8],
    most: usize,
) -> Result<(Vec<JsonRpcCall<'_>>, bool), RequestCallsError> {
    if body.trim_ascii().is_empty() {
        return Err(RequestCallsError::Body);
    }
    if memory::is_memory_short() || !memory::can_allocate_now(required_request_memory(body.len())) {
        return Err(RequestCallsError::Memory);
    }
    match parse_jsonrpc_request(body, most) {
        Ok(JsonRpcRequestBody::Single(call)) => Ok((vec![call], false)),
        Ok(JsonRpcRequestBody::Batch(calls)) => Ok((calls, true)),
        Err(refusal) => Err(RequestCallsError::Calls(refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::{decode_request_body, parse_request_calls, RequestCallsError};
    use crate::gzip::oneshot::gzip_oneshot;
    use crate::jsonrpc::request::RequestParseFailure;

    #[test]
    fn calls_and_batches_are_distinguished() {
        let call = r#"{"jsonrpc":"2.0","id":"a\u0041","method":"eth_call","params":[{"x":[1]}]}"#;
        let (calls, is_batch) = parse_request_calls(call.as_bytes(), 1).unwrap();
        assert!(!is_batch && calls.len() == 1);
        assert_eq!(calls[0].id, Some(&br#""a\u0041""#[..]));
        assert_eq!(calls[0].params, Some(&br#"[{"x":[1]}]"#[..]));
        let batch = format!("[{call},{}]", r#"{"jsonrpc":"2.0","method":"b"}"#);
        let (calls, is_batch) = parse_request_calls(batch.as_bytes(), 2).unwrap();
        assert!(is_batch && calls.len() == 2 && calls[1].id.is_none());
        let refusal = |body: &str, most| parse_request_calls(body.as_bytes(), most).unwrap_err();
        assert_eq!(
            refusal(&batch, 1),
            RequestCallsError::Calls(RequestParseFailure::LongBatch)
        );
        assert_eq!(refusal(" \n", 1), RequestCallsError::Body);
        assert_eq!(refusal("x", 1).to_string(), "syntax");
        let twice = r#"{"jsonrpc":"2.0","method":"a","method":"b"}"#;
        assert_eq!(refusal(twice, 1).to_string(), "duplicate");
    }

    #[test]
    fn compressed_body_is_decoded_up_to_its_limit() {
        let body = b"[".repeat(1000);
        let coded = gzip_oneshot(&body, 1, 1000).unwrap();
        let decoded = |codings: &[&'static str], most| {
            let lines = codings.iter().map(|line| line.as_bytes());
            decode_request_body(&coded, lines, most).map(|body| body.len())
        };
        assert_eq!(decoded(&["gzip"], 1000), Ok(1000));
        assert_eq!(decoded(&["gzip"], 999), Err(RequestCallsError::Length));
        assert_eq!(decoded(&[], 1000), Ok(coded.len()));
        assert_eq!(decoded(&[], 1), Err(RequestCallsError::Length));
        assert_eq!(decoded(&["br"], 1000), Err(RequestCallsError::Coding));
        assert_eq!(
            decoded(&["gzip", "gzip"], 1000),
            Err(RequestCallsError::Coding)
        );
        assert_eq!(decoded(&["zstd"], 1000), Err(RequestCallsError::Coding));
    }
}
