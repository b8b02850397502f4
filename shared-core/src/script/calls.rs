//! Parser of a request's calls, as for the cache and the policy.

use std::borrow::Cow;
use std::fmt;

use crate::coded::BodyCoding;
use crate::gzip::inflate::InflateError;
use crate::jsonrpc::request::{parse, room_for, Call, Refusal, Request};
use crate::memory;

/// The reason why a request has no calls. Programs receive it as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum No {
    /// The body is empty.
    Body,
    /// The body is not valid JSON-RPC, or nodes may read it in different ways.
    Calls(Refusal),
    /// The body has a content coding that is not decoded, or is damaged.
    Coding,
    /// The body is longer than the limit.
    Length,
    /// Memory was refused.
    Memory,
}

impl fmt::Display for No {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            No::Body => "no-body",
            No::Calls(refusal) => refusal.name(),
            No::Coding => "coding",
            No::Length => "length",
            No::Memory => "memory",
        })
    }
}

/// Decodes a body to at most `most` bytes. `codings` are the lines of `Content-Encoding`.
///
/// # Errors
/// The reason as [`No`].
pub fn plain<'a, 'f>(
    body: &'a [u8],
    codings: impl Iterator<Item = &'f [u8]>,
    most: usize,
) -> Result<Cow<'a, [u8]>, No> {
    let mut coding = BodyCoding::None;
    codings.for_each(|line| coding.read(line));
    if body.len() > most {
        return Err(No::Length);
    }
    match coding {
        BodyCoding::None => Ok(Cow::Borrowed(body)),
        BodyCoding::Other => Err(No::Coding),
        BodyCoding::Coded(coded) => match coded.decode(body, most, |_| true) {
            Ok(body) => Ok(Cow::Owned(body)),
            Err(InflateError::Bad) => Err(No::Coding),
            Err(InflateError::TooLarge) => Err(No::Length),
            Err(InflateError::OutOfMemory) => Err(No::Memory),
        },
    }
}

/// Parses at most `most` calls of a body, and returns whether they are a batch.
///
/// # Errors
/// The reason as [`No`].
pub fn read(body: &[u8], most: usize) -> Result<(Vec<Call<'_>>, bool), No> {
    if body.trim_ascii().is_empty() {
        return Err(No::Body);
    }
    if memory::is_short() || !memory::is_there(room_for(body.len())) {
        return Err(No::Memory);
    }
    match parse(body, most) {
        Ok(Request::Single(call)) => Ok((vec![call], false)),
        Ok(Request::Batch(calls)) => Ok((calls, true)),
        Err(refusal) => Err(No::Calls(refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::{plain, read, No};
    use crate::gzip::oneshot::gzip;
    use crate::jsonrpc::request::Refusal;

    #[test]
    fn calls_and_batches_are_distinguished() {
        let call = r#"{"jsonrpc":"2.0","id":"a\u0041","method":"eth_call","params":[{"x":[1]}]}"#;
        let (calls, is_batch) = read(call.as_bytes(), 1).unwrap();
        assert!(!is_batch && calls.len() == 1);
        assert_eq!(calls[0].id, Some(&br#""a\u0041""#[..]));
        assert_eq!(calls[0].params, Some(&br#"[{"x":[1]}]"#[..]));
        let batch = format!("[{call},{}]", r#"{"jsonrpc":"2.0","method":"b"}"#);
        let (calls, is_batch) = read(batch.as_bytes(), 2).unwrap();
        assert!(is_batch && calls.len() == 2 && calls[1].id.is_none());
        let refusal = |body: &str, most| read(body.as_bytes(), most).unwrap_err();
        assert_eq!(refusal(&batch, 1), No::Calls(Refusal::LongBatch));
        assert_eq!(refusal(" \n", 1), No::Body);
        assert_eq!(refusal("x", 1).to_string(), "syntax");
        let twice = r#"{"jsonrpc":"2.0","method":"a","method":"b"}"#;
        assert_eq!(refusal(twice, 1).to_string(), "duplicate");
    }

    #[test]
    fn compressed_body_is_decoded_up_to_its_limit() {
        let body = b"[".repeat(1000);
        let coded = gzip(&body, 1, 1000).unwrap();
        let decoded = |codings: &[&'static str], most| {
            let lines = codings.iter().map(|line| line.as_bytes());
            plain(&coded, lines, most).map(|body| body.len())
        };
        assert_eq!(decoded(&["gzip"], 1000), Ok(1000));
        assert_eq!(decoded(&["gzip"], 999), Err(No::Length));
        assert_eq!(decoded(&[], 1000), Ok(coded.len()));
        assert_eq!(decoded(&[], 1), Err(No::Length));
        assert_eq!(decoded(&["br"], 1000), Err(No::Coding));
        assert_eq!(decoded(&["gzip", "gzip"], 1000), Err(No::Coding));
        assert_eq!(decoded(&["zstd"], 1000), Err(No::Coding));
    }
}
