//! The envelope of responses, and the content of results as the cache needs it.
//!
//! Every byte of a response belongs to a span or lies between two: members have any order
//! (Nethermind writes the id last), and white space around them, including a final newline, is
//! part of the entry.

use std::fmt;
use std::ops::Range;

use super::scan::{JsonScanError, JsonValueKind, StrictJsonReader};
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
pub enum RpcResponseParseError {
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

impl fmt::Display for RpcResponseParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RpcResponseParseError::Syntax(error) => error.fmt(f),
            RpcResponseParseError::NotObject => f.write_str("the response is not an object"),
            RpcResponseParseError::NotArray => f.write_str("the batch is not an array"),
            RpcResponseParseError::Duplicate => f.write_str("a member occurs twice"),
            RpcResponseParseError::UnknownMember => f.write_str("a member is unknown"),
            RpcResponseParseError::Version => f.write_str("jsonrpc is not \"2.0\""),
            RpcResponseParseError::NoId => f.write_str("the id is missing"),
            RpcResponseParseError::IdKind => f.write_str("the id is not a string, number or null"),
            RpcResponseParseError::NoOutcome => f.write_str("both result and error are missing"),
            RpcResponseParseError::TwoOutcomes => f.write_str("both result and error are present"),
            RpcResponseParseError::ErrorKind => f.write_str("the error is not an object"),
            RpcResponseParseError::OutOfMemory => f.write_str("out of memory"),
        }
    }
}

impl std::error::Error for RpcResponseParseError {}

impl From<JsonScanError> for RpcResponseParseError {
    fn from(error: JsonScanError) -> RpcResponseParseError {
        RpcResponseParseError::Syntax(error)
    }
}

/// Parses the response to one call.
pub fn parse_jsonrpc_response(body: &[u8]) -> Result<JsonRpcResponse, RpcResponseParseError> {
    let mut scanner = StrictJsonReader::for_untrusted_text(body)?;
    let response = read_jsonrpc_response(&mut scanner, body)?;
    scanner.expect_end()?;
    Ok(response)
}

/// Parses an array of responses, in the order in which the node wrote them. The array may be
/// empty, and ids may be missing or occur twice: only the caller knows the calls.
pub fn parse_batch_responses(body: &[u8]) -> Result<Vec<JsonRpcResponse>, RpcResponseParseError> {
    let mut scanner = StrictJsonReader::for_untrusted_text(body)?;
    if scanner.next_value_kind()? != JsonValueKind::Array {
        return Err(RpcResponseParseError::NotArray);
    }
    let mut answers = Vec::new();
    let mut another = scanner.enter_array()?;
    while another {
        let answer = read_jsonrpc_response(&mut scanner, body)?;
        try_push(&mut answers, answer).ok_or(RpcResponseParseError::OutOfMemory)?;
        another = scanner.next_element()?;
    }
    scanner.expect_end()?;
    Ok(answers)
}

/// Reads one response, and checks its members strictly.
fn read_jsonrpc_response(
    scanner: &mut StrictJsonReader<'_>,
    body: &[u8],
) -> Result<JsonRpcResponse, RpcResponseParseError> {
    if scanner.next_value_kind()? != JsonValueKind::Object {
        return Err(RpcResponseParseError::NotObject);
    }
    let start = scanner.next_value_start();
    let is_null = |span: &Range<usize>| &body[span.clone()] == b"null";
    let (mut version, mut id, mut result, mut error) = (false, None, None, None);
    let mut next = scanner.read_first_member_name()?;
    while let Some(name) = next {
        let name = &body[name.content];
        let value = scanner.skip_value()?;
        let member = match name {
            b"jsonrpc" if version => return Err(RpcResponseParseError::Duplicate),
            b"jsonrpc" => {
                version = &body[value.span] == b"\"2.0\"";
                if !version {
                    return Err(RpcResponseParseError::Version);
                }
                next = scanner.next_member()?;
                continue;
            }
            b"id" => match value.kind {
                JsonValueKind::String | JsonValueKind::Number | JsonValueKind::Null => &mut id,
                JsonValueKind::Object | JsonValueKind::Array | JsonValueKind::Bool => {
                    return Err(RpcResponseParseError::IdKind)
                }
            },
            b"result" => &mut result,
            b"error" => match value.kind {
                JsonValueKind::Object | JsonValueKind::Null => &mut error,
                _ => return Err(RpcResponseParseError::ErrorKind),
            },
            _ => return Err(RpcResponseParseError::UnknownMember),
        };
        if member.replace(value.span).is_some() {
            return Err(RpcResponseParseError::Duplicate);
        }
        next = scanner.next_member()?;
    }
    if !version {
        return Err(RpcResponseParseError::Version);
    }
    Ok(JsonRpcResponse {
        span: start..scanner.last_read_end(),
        id: id.ok_or(RpcResponseParseError::NoId)?,
        // JSON-RPC 1.0 has both members, one of them null, and some nodes still write both
        outcome: match (result, error) {
            (Some(result), None) => CallOutcomeSpan::Result(result),
            (Some(result), Some(error)) if is_null(&error) => CallOutcomeSpan::Result(result),
            (Some(result), Some(error)) if is_null(&result) => CallOutcomeSpan::Error(error),
            (None, Some(error)) if !is_null(&error) => CallOutcomeSpan::Error(error),
            (None, _) => return Err(RpcResponseParseError::NoOutcome),
            (Some(_), Some(_)) => return Err(RpcResponseParseError::TwoOutcomes),
        },
    })
}

/// The content of a result, as far as its lifetime in the cache depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultEmptiness {
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
pub fn classify_result_content(result: &[u8]) -> ResultEmptiness {
    match result {
        b"null" => ResultEmptiness::Null,
        b"\"0x\"" => ResultEmptiness::EmptyData,
        [b'[', blank @ .., b']'] if is_white_space(blank) => ResultEmptiness::EmptyArray,
        [b'{', blank @ .., b'}'] if is_white_space(blank) => ResultEmptiness::EmptyObject,
        _ => ResultEmptiness::Some,
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
pub fn find_object_member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut scanner = StrictJsonReader::for_trusted_utf8(object);
    let mut next = scanner.read_first_member_name().ok()?;
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
    let mut scanner = StrictJsonReader::for_trusted_utf8(array);
    if !scanner.enter_array().ok()? {
        return None;
    }
    scanner.skip_value().ok().map(|value| &array[value.span])
}
