//! The envelope of requests: one call, or a batch of calls.
//!
//! A refused request is no error of the proxy: it is forwarded to the node unchanged, and the
//! node decides. Requests that nodes are known to read differently are refused therefore, among
//! them all that Go's encoding/json accepts: the last of two members with one name, names in
//! another case, unknown members.

use std::fmt;
use std::ops::Range;

use super::scan::{JsonScanError, JsonValueKind, SkippedJsonValue, StrictJsonReader};

/// Maximum length in bytes of an id that is stored, quotes included.
pub const MAX_ID_LENGTH: usize = 256;

/// A parsed body of a JSON-RPC request: a single call, or a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonRpcRequestBody<'a> {
    /// One call.
    Single(JsonRpcCall<'a>),
    /// An array of at least one call.
    Batch(Vec<JsonRpcCall<'a>>),
}

/// One call of a JSON-RPC request, as parts of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonRpcCall<'a> {
    /// Span of the call in the body, brackets included.
    pub span: Range<usize>,
    /// Id, as it is written: a string with its quotes, a number or `null`. A call without an id
    /// (`None`) is a notification, which gets no response.
    pub id: Option<&'a [u8]>,
    /// Name of the method; it has no escapes.
    pub method: &'a [u8],
    /// An array, an object or `null`, as it is written.
    pub params: Option<&'a [u8]>,
    /// Positions of the parts in the call.
    pub starts: CallMemberOffsets,
}

/// The positions of a call's parts in its text; 0 for absent parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallMemberOffsets {
    /// Position of the id.
    pub id: usize,
    /// Position of the method's name, after its quote.
    pub method: usize,
    /// Position of the params.
    pub params: usize,
}

/// The reason why a request is forwarded without being read: nodes may read it in different ways,
/// or it is no JSON-RPC. One such call of a batch is sufficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestParseFailure {
    /// The body is not JSON, or nested too deep.
    Syntax(JsonScanError),
    /// The body is neither an object nor an array, or an element of the array is not an object.
    NotObject,
    /// The body is an array without calls.
    EmptyBatch,
    /// The body is an array of more calls than the limit.
    LongBatch,
    /// A member occurs twice.
    Duplicate,
    /// A member is none of JSON-RPC's, perhaps only by the case or the escapes of its name.
    UnknownMember,
    /// `jsonrpc` is absent or not exactly `"2.0"`.
    Version,
    /// `id` is an object, an array or a boolean.
    IdKind,
    /// `id` is longer than [`MAX_ID_LENGTH`].
    LongId,
    /// `method` is absent.
    NoMethod,
    /// `method` is not a string.
    MethodKind,
    /// `method` is written with escapes.
    EscapedMethod,
    /// `params` is neither an array nor an object nor `null`.
    ParamsKind,
}

impl RequestParseFailure {
    /// Returns the name of the reason in logs and metrics.
    pub const fn metrics_name(self) -> &'static str {
        match self {
            RequestParseFailure::Syntax(_) => "syntax",
            RequestParseFailure::NotObject => "not-object",
            RequestParseFailure::EmptyBatch => "empty-batch",
            RequestParseFailure::LongBatch => "long-batch",
            RequestParseFailure::Duplicate => "duplicate",
            RequestParseFailure::UnknownMember => "unknown-member",
            RequestParseFailure::Version => "version",
            RequestParseFailure::IdKind => "id-kind",
            RequestParseFailure::LongId => "long-id",
            RequestParseFailure::NoMethod => "no-method",
            RequestParseFailure::MethodKind => "method-kind",
            RequestParseFailure::EscapedMethod => "escaped-method",
            RequestParseFailure::ParamsKind => "params-kind",
        }
    }
}

impl fmt::Display for RequestParseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.metrics_name())
    }
}

impl std::error::Error for RequestParseFailure {}

impl From<JsonScanError> for RequestParseFailure {
    fn from(error: JsonScanError) -> RequestParseFailure {
        RequestParseFailure::Syntax(error)
    }
}

/// Parses a request of at most `batch_max` calls.
///
/// Parsing stops at the first reason to refuse: the rest of the body may not even be JSON.
pub fn parse_jsonrpc_request(
    body: &[u8],
    batch_max: usize,
) -> Result<JsonRpcRequestBody<'_>, RequestParseFailure> {
    parse_with_known_calls(body, batch_max, |_| None)
}

/// Parses a request like [`parse_jsonrpc_request`], but takes known calls from a callback. Before a call is
/// read, `known` is called with its position: it returns exactly the call that reading would
/// return, or `None`. A known call has fewer than [`MAX_DEPTH`](super::scan::MAX_DEPTH) brackets.
pub fn parse_with_known_calls<'a>(
    body: &'a [u8],
    batch_max: usize,
    mut known: impl FnMut(usize) -> Option<JsonRpcCall<'a>>,
) -> Result<JsonRpcRequestBody<'a>, RequestParseFailure> {
    let mut scanner = StrictJsonReader::for_untrusted_text(body)?;
    let call = |scanner: &mut StrictJsonReader<'a>| {
        if let Some(call) = known(scanner.next_value_start()) {
            scanner.skip_known_element(call.span.end);
            return Ok(call);
        }
        read_call(scanner, body)
    };
    let request = match scanner.next_value_kind()? {
        JsonValueKind::Object => JsonRpcRequestBody::Single({ call }(&mut scanner)?),
        JsonValueKind::Array => {
            JsonRpcRequestBody::Batch(parse_batch_calls(&mut scanner, body, batch_max, call)?)
        }
        _ => return Err(RequestParseFailure::NotObject),
    };
    scanner.expect_end()?;
    Ok(request)
}

/// Reads the calls of an array, each with `call`. Errors: there are more than `batch_max`, or one
/// is refused.
fn parse_batch_calls<'a>(
    scanner: &mut StrictJsonReader<'a>,
    body: &'a [u8],
    batch_max: usize,
    mut call: impl FnMut(&mut StrictJsonReader<'a>) -> Result<JsonRpcCall<'a>, RequestParseFailure>,
) -> Result<Vec<JsonRpcCall<'a>>, RequestParseFailure> {
    let mut calls = Vec::with_capacity(estimate_call_count(body).min(batch_max));
    let mut another = scanner.enter_array()?;
    if !another {
        return Err(RequestParseFailure::EmptyBatch);
    }
    while another {
        if calls.len() >= batch_max {
            return Err(RequestParseFailure::LongBatch);
        }
        if scanner.next_value_kind()? != JsonValueKind::Object {
            return Err(RequestParseFailure::NotObject);
        }
        calls.push(call(scanner)?);
        another = scanner.next_element()?;
    }
    Ok(calls)
}

/// Estimates the number of calls by the length of short ones, up to a maximum, so that requests
/// of few calls do not pay for it.
pub(crate) fn estimate_call_count(body: &[u8]) -> usize {
    (body.len() / 96 + 1).min(128)
}

/// Estimates the bytes of memory that must be available to read a body of `length` bytes and to
/// look its calls up. The structures are large only in total, and their allocations can't fail
/// gracefully: the shortest call has some 40 bytes, and takes twelve times as much.
pub(crate) fn required_request_memory(length: usize) -> usize {
    match length {
        0..=0x1000 => 0,
        _ => length.saturating_mul(16),
    }
}

/// Returns the method and, if it precedes the params, the id from the beginning of a single call
/// whose method precedes its params. The rest of the text may still make it invalid.
pub fn read_call_prefix(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let mut scanner = StrictJsonReader::for_untrusted_text(text).ok()?;
    let (mut method, mut id) = (None, None);
    if scanner.next_value_kind().ok()? != JsonValueKind::Object {
        return None;
    }
    let mut name = scanner.read_first_member_name();
    while let Ok(Some(member)) = name {
        let content = &text[member.content];
        if content == b"params" {
            break;
        }
        // an incomplete value is ignored: a number may have more digits
        let value = scanner.skip_value().ok();
        let is_cut = |value: &SkippedJsonValue| {
            value.kind == JsonValueKind::Number && value.span.end == text.len()
        };
        let Some(value) = value.filter(|value| !is_cut(value)) else {
            break;
        };
        match (content, value.kind) {
            (b"method", JsonValueKind::String) => {
                method = Some(&text[value.span.start + 1..value.span.end - 1]);
            }
            (b"id", JsonValueKind::String | JsonValueKind::Number | JsonValueKind::Null)
                if value.span.len() <= MAX_ID_LENGTH =>
            {
                id = Some(&text[value.span]);
            }
            (b"jsonrpc", JsonValueKind::String) => {}
            _ => return None,
        }
        name = scanner.next_member();
    }
    Some((method?, id))
}

/// The member of a call that a name stands for.
enum CallMember {
    Version,
    Id,
    Method,
    Params,
}

/// Reads a member's name and its colon. The usual notation of each is compared in one step.
#[inline(always)]
fn read_call_member_name(
    scanner: &mut StrictJsonReader<'_>,
    body: &[u8],
) -> Result<CallMember, RequestParseFailure> {
    if scanner.try_skip_bytes(b"\"id\":") {
        return Ok(CallMember::Id);
    }
    if scanner.try_skip_bytes(b"\"method\":") {
        return Ok(CallMember::Method);
    }
    if scanner.try_skip_bytes(b"\"params\":") {
        return Ok(CallMember::Params);
    }
    // An escaped name has a backslash, so it is none of these.
    match &body[scanner.read_member_name()?.content] {
        b"jsonrpc" => Ok(CallMember::Version),
        b"id" => Ok(CallMember::Id),
        b"method" => Ok(CallMember::Method),
        b"params" => Ok(CallMember::Params),
        _ => Err(RequestParseFailure::UnknownMember),
    }
}

/// Reads one call, and its positions in the body.
fn read_call<'a>(
    scanner: &mut StrictJsonReader<'a>,
    body: &'a [u8],
) -> Result<JsonRpcCall<'a>, RequestParseFailure> {
    let start = scanner.next_value_start();
    let (mut version, mut id, mut method, mut params) = (false, None, None, None);
    let mut starts = CallMemberOffsets::default();
    let mut another = scanner.enter_object()?;
    while another {
        if !version && scanner.try_skip_bytes(b"\"jsonrpc\":\"2.0\"") {
            version = true;
            another = scanner.advance_member()?;
            continue;
        }
        match read_call_member_name(scanner, body)? {
            CallMember::Version if version => return Err(RequestParseFailure::Duplicate),
            CallMember::Version => {
                version = &body[scanner.skip_value()?.span] == b"\"2.0\"";
                if !version {
                    return Err(RequestParseFailure::Version);
                }
            }
            CallMember::Id if id.is_some() => return Err(RequestParseFailure::Duplicate),
            CallMember::Id => {
                let value = scanner.skip_value()?;
                match value.kind {
                    JsonValueKind::String | JsonValueKind::Number | JsonValueKind::Null => {}
                    JsonValueKind::Object | JsonValueKind::Array | JsonValueKind::Bool => {
                        return Err(RequestParseFailure::IdKind)
                    }
                }
                if value.span.len() > MAX_ID_LENGTH {
                    return Err(RequestParseFailure::LongId);
                }
                starts.id = value.span.start - start;
                id = Some(&body[value.span]);
            }
            CallMember::Method if method.is_some() => return Err(RequestParseFailure::Duplicate),
            CallMember::Method => {
                if scanner.next_value_kind()? != JsonValueKind::String {
                    return Err(RequestParseFailure::MethodKind);
                }
                let name = scanner.read_string()?;
                if name.escaped {
                    return Err(RequestParseFailure::EscapedMethod);
                }
                starts.method = name.content.start - start;
                method = Some(&body[name.content]);
            }
            CallMember::Params if params.is_some() => return Err(RequestParseFailure::Duplicate),
            CallMember::Params => {
                let value = scanner.skip_value()?;
                match value.kind {
                    JsonValueKind::Array | JsonValueKind::Object | JsonValueKind::Null => {}
                    _ => return Err(RequestParseFailure::ParamsKind),
                }
                starts.params = value.span.start - start;
                params = Some(&body[value.span]);
            }
        }
        another = scanner.advance_member()?;
    }
    if !version {
        return Err(RequestParseFailure::Version);
    }
    Ok(JsonRpcCall {
        span: start..scanner.last_read_end(),
        id,
        method: method.ok_or(RequestParseFailure::NoMethod)?,
        params,
        starts,
    })
}
