//! The envelope of responses, and the content of results as the cache needs it.
//!
//! Every byte of a response belongs to a span or lies between two: members have any order
//! (Nethermind writes the id last), and white space around them, including a final newline, is
//! part of the entry.

use std::fmt;
use std::ops::Range;

use super::scan::{JsonScanError, JsonScanner, JsonValueKind};
use crate::bytes::try_push;

/// One response of a node that may be stored, as spans of its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonRpcResponse {
    /// Span of the response, brackets included.
    pub span: Range<usize>,
    /// Id: a string with its quotes, a number or `null`.
    pub id: Range<usize>,
    /// Outcome of the call.
    pub outcome: CallOutcomeSpan,
}

/// The result or the error of a call, as the span of its value in the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcomeSpan {
    /// Value of `result`: any JSON. An `error` in the same object is `null`.
    Result(Range<usize>),
    /// Value of `error`: an object.
    Error(Range<usize>),
}

/// The reason why a node's response can't be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseParseError {
    /// The body is not JSON, or nested too deep.
    Syntax(JsonScanError),
    /// The response is not an object.
    NotObject,
    /// The batch response is not an array.
    NotArray,
    /// A member occurs twice.
    Duplicate,
    /// A member is none of JSON-RPC's.
    UnknownMember,
    /// `jsonrpc` is absent or not exactly `"2.0"`.
    Version,
    /// `id` is absent.
    NoId,
    /// `id` is an object, an array or a boolean.
    IdKind,
    /// The response has neither `result` nor `error`, or only an `error` that is `null`.
    NoOutcome,
    /// The response has both `result` and `error`, and neither is `null`.
    TwoOutcomes,
    /// `error` is neither an object nor `null`.
    ErrorKind,
    /// Memory was refused.
    OutOfMemory,
}

impl fmt::Display for ResponseParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResponseParseError::Syntax(error) => error.fmt(f),
            ResponseParseError::NotObject => f.write_str("the response is not an object"),
            ResponseParseError::NotArray => f.write_str("the batch is not an array"),
            ResponseParseError::Duplicate => f.write_str("a member occurs twice"),
            ResponseParseError::UnknownMember => f.write_str("a member is unknown"),
            ResponseParseError::Version => f.write_str("jsonrpc is not \"2.0\""),
            ResponseParseError::NoId => f.write_str("the id is missing"),
            ResponseParseError::IdKind => f.write_str("the id is not a string, number or null"),
            ResponseParseError::NoOutcome => f.write_str("both result and error are missing"),
            ResponseParseError::TwoOutcomes => f.write_str("both result and error are present"),
            ResponseParseError::ErrorKind => f.write_str("the error is not an object"),
            ResponseParseError::OutOfMemory => f.write_str("out of memory"),
        }
    }
}

impl std::error::Error for ResponseParseError {}

impl From<JsonScanError> for ResponseParseError {
    fn from(error: JsonScanError) -> ResponseParseError {
        ResponseParseError::Syntax(error)
    }
}

/// Parses the response to one call.
pub fn parse_response(body: &[u8]) -> Result<JsonRpcResponse, ResponseParseError> {
    let mut scanner = JsonScanner::for_network_text(body)?;
    let response = read_response(&mut scanner, body)?;
    scanner.expect_end()?;
    Ok(response)
}

/// Parses an array of responses, in the order in which the node wrote them. The array may be
/// empty, and ids may be missing or occur twice: only the caller knows the calls.
pub fn parse_batch_responses(body: &[u8]) -> Result<Vec<JsonRpcResponse>, ResponseParseError> {
    let mut scanner = JsonScanner::for_network_text(body)?;
    if scanner.next_value_kind()? != JsonValueKind::Array {
        return Err(ResponseParseError::NotArray);
    }
    let mut answers = Vec::new();
    let mut another = scanner.first_element()?;
    while another {
        let answer = read_response(&mut scanner, body)?;
        try_push(&mut answers, answer).ok_or(ResponseParseError::OutOfMemory)?;
        another = scanner.next_element()?;
    }
    scanner.expect_end()?;
    Ok(answers)
}

/// Reads one response, and checks its members strictly.
fn read_response(
    scanner: &mut JsonScanner<'_>,
    body: &[u8],
) -> Result<JsonRpcResponse, ResponseParseError> {
    if scanner.next_value_kind()? != JsonValueKind::Object {
        return Err(ResponseParseError::NotObject);
    }
    let start = scanner.next_value_start();
    let is_null = |span: &Range<usize>| &body[span.clone()] == b"null";
    let (mut version, mut id, mut result, mut error) = (false, None, None, None);
    let mut next = scanner.first_member()?;
    while let Some(name) = next {
        let name = &body[name.content];
        let value = scanner.skip_value()?;
        let member = match name {
            b"jsonrpc" if version => return Err(ResponseParseError::Duplicate),
            b"jsonrpc" => {
                version = &body[value.span] == b"\"2.0\"";
                if !version {
                    return Err(ResponseParseError::Version);
                }
                next = scanner.next_member()?;
                continue;
            }
            b"id" => match value.kind {
                JsonValueKind::String | JsonValueKind::Number | JsonValueKind::Null => &mut id,
                JsonValueKind::Object | JsonValueKind::Array | JsonValueKind::Bool => {
                    return Err(ResponseParseError::IdKind)
                }
            },
            b"result" => &mut result,
            b"error" => match value.kind {
                JsonValueKind::Object | JsonValueKind::Null => &mut error,
                _ => return Err(ResponseParseError::ErrorKind),
            },
            _ => return Err(ResponseParseError::UnknownMember),
        };
        if member.replace(value.span).is_some() {
            return Err(ResponseParseError::Duplicate);
        }
        next = scanner.next_member()?;
    }
    if !version {
        return Err(ResponseParseError::Version);
    }
    Ok(JsonRpcResponse {
        span: start..scanner.last_read_end(),
        id: id.ok_or(ResponseParseError::NoId)?,
        // JSON-RPC 1.0 has both members, one of them null, and some nodes still write both
        outcome: match (result, error) {
            (Some(result), None) => CallOutcomeSpan::Result(result),
            (Some(result), Some(error)) if is_null(&error) => CallOutcomeSpan::Result(result),
            (Some(result), Some(error)) if is_null(&result) => CallOutcomeSpan::Error(error),
            (None, Some(error)) if !is_null(&error) => CallOutcomeSpan::Error(error),
            (None, _) => return Err(ResponseParseError::NoOutcome),
            (Some(_), Some(_)) => return Err(ResponseParseError::TwoOutcomes),
        },
    })
}

/// The content of a result, as far as its lifetime in the cache depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultContent {
    /// `null`: the object does not exist, for now.
    Null,
    /// `[]`: an empty list, or a node that lags.
    EmptyArray,
    /// `{}`: an empty object.
    EmptyObject,
    /// `"0x"`: a valid result, for an account without code or a call that returns no data.
    EmptyData,
    /// Any other result.
    Some,
}

/// Classifies a raw result by its content; white space within empty brackets is ignored.
pub fn classify_result(result: &[u8]) -> ResultContent {
    match result {
        b"null" => ResultContent::Null,
        b"\"0x\"" => ResultContent::EmptyData,
        [b'[', blank @ .., b']'] if is_white_space(blank) => ResultContent::EmptyArray,
        [b'{', blank @ .., b'}'] if is_white_space(blank) => ResultContent::EmptyObject,
        _ => ResultContent::Some,
    }
}

fn is_white_space(bytes: &[u8]) -> bool {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    bytes.iter().all(blank)
}

/// Returns the value of the first member of `object` that is called exactly `name`; `None` if
/// there is none or `object` is not an object.
///
/// The object must be part of a response that was parsed: the text after the member is not read,
/// because results are long and nodes' encoders write no name twice.
pub fn first_object_member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut scanner = JsonScanner::for_utf8_value(object);
    let mut next = scanner.first_member().ok()?;
    while let Some(found) = next {
        let value = scanner.skip_value().ok()?;
        if &object[found.content] == name.as_bytes() {
            return Some(&object[value.span]);
        }
        next = scanner.next_member().ok()?;
    }
    None
}

/// Returns the first element of `array`, which must be part of a response that was parsed.
pub fn first_array_element(array: &[u8]) -> Option<&[u8]> {
    let mut scanner = JsonScanner::for_utf8_value(array);
    if !scanner.first_element().ok()? {
        return None;
    }
    scanner.skip_value().ok().map(|value| &array[value.span])
}
