//! The envelope of requests: one call, or a batch of them.
//!
//! A request that is refused is no error of ours: it goes to the node as it
//! came, and the node says what it thinks of it. So whatever nodes are known
//! to read in different ways is refused, among it all that Go's encoding/json
//! lets pass: the last of two members with one name, names in another case,
//! members nobody asked for.

use std::fmt;
use std::ops::Range;

use super::scan::{Kind, ScanError, Scanner, Value};

/// The longest id that is kept, in bytes, quotes included.
pub const MAX_ID: usize = 256;

/// A request that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// One call.
    Single(Call<'a>),
    /// An array of calls: at least one.
    Batch(Vec<Call<'a>>),
}

/// One call of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Where the call is in the body, brackets included.
    pub span: Range<usize>,
    /// The id as it was written: a string with its quotes, a number or
    /// `null`. `None` makes it a notification, which gets no reply.
    pub id: Option<&'a [u8]>,
    /// The method's name; it has no escapes.
    pub method: &'a [u8],
    /// An array, an object or `null`, as it was written.
    pub params: Option<&'a [u8]>,
    /// Where in the call they start.
    pub starts: Starts,
}

/// Where in a call its parts start; 0 for what is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// The id.
    pub id: usize,
    /// The method's name, behind its quote.
    pub method: usize,
    /// The params.
    pub params: usize,
}

/// Why a request goes to the node unread. In a batch one such call is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The body is not JSON, or nested too deep.
    Syntax(ScanError),
    /// The body is neither an object nor an array, or an element of the array
    /// is not an object.
    NotObject,
    /// An array without calls.
    EmptyBatch,
    /// An array of more calls than the limit.
    LongBatch,
    /// A member occurs twice.
    Duplicate,
    /// There is a member that JSON-RPC does not have, if only for the case or
    /// the escapes of its name.
    UnknownMember,
    /// `jsonrpc` is absent or not exactly `"2.0"`.
    Version,
    /// `id` is an object, an array or a boolean.
    IdKind,
    /// `id` is longer than [`MAX_ID`].
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

impl Refusal {
    /// The name that logs and metrics show.
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::Syntax(_) => "syntax",
            Refusal::NotObject => "not-object",
            Refusal::EmptyBatch => "empty-batch",
            Refusal::LongBatch => "long-batch",
            Refusal::Duplicate => "duplicate",
            Refusal::UnknownMember => "unknown-member",
            Refusal::Version => "version",
            Refusal::IdKind => "id-kind",
            Refusal::LongId => "long-id",
            Refusal::NoMethod => "no-method",
            Refusal::MethodKind => "method-kind",
            Refusal::EscapedMethod => "escaped-method",
            Refusal::ParamsKind => "params-kind",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Refusal {}

impl From<ScanError> for Refusal {
    fn from(error: ScanError) -> Refusal {
        Refusal::Syntax(error)
    }
}

/// Reads a request of at most `batch_max` calls.
///
/// Reading stops at the first reason to refuse: what follows it may not even
/// be JSON.
pub fn parse(body: &[u8], batch_max: usize) -> Result<Request<'_>, Refusal> {
    parse_unknown(body, batch_max, |_| None)
}

/// The same. Before a call is read, `known` is asked for it, with where it
/// starts: what it gives has to be what reading would have given. A known call
/// has fewer than [`MAX_DEPTH`](super::scan::MAX_DEPTH) brackets.
pub fn parse_unknown<'a>(
    body: &'a [u8],
    batch_max: usize,
    mut known: impl FnMut(usize) -> Option<Call<'a>>,
) -> Result<Request<'a>, Refusal> {
    let mut scanner = Scanner::of_text(body)?;
    let call = |scanner: &mut Scanner<'a>| {
        if let Some(call) = known(scanner.start()) {
            scanner.skip_to(call.span.end);
            return Ok(call);
        }
        call(scanner, body)
    };
    let request = match scanner.kind()? {
        Kind::Object => Request::Single({ call }(&mut scanner)?),
        Kind::Array => Request::Batch(batch(&mut scanner, body, batch_max, call)?),
        _ => return Err(Refusal::NotObject),
    };
    scanner.end()?;
    Ok(request)
}

fn batch<'a>(
    scanner: &mut Scanner<'a>,
    body: &'a [u8],
    batch_max: usize,
    mut call: impl FnMut(&mut Scanner<'a>) -> Result<Call<'a>, Refusal>,
) -> Result<Vec<Call<'a>>, Refusal> {
    let mut calls = Vec::with_capacity(expected(body).min(batch_max));
    let mut another = scanner.first_element()?;
    if !another {
        return Err(Refusal::EmptyBatch);
    }
    while another {
        if calls.len() >= batch_max {
            return Err(Refusal::LongBatch);
        }
        if scanner.kind()? != Kind::Object {
            return Err(Refusal::NotObject);
        }
        calls.push(call(scanner)?);
        another = scanner.next_element()?;
    }
    Ok(calls)
}

/// How many calls there will be, by the length of short ones, and not so many
/// that their number is paid for by those who send few.
pub(crate) fn expected(body: &[u8]) -> usize {
    (body.len() / 96 + 1).min(128)
}

/// What there must be to read a body of `length` bytes and to look its calls up, in bytes.
/// They become structures of which only all together are long, and which can't be refused:
/// the shortest call has some 40 bytes, and takes twelve times that.
pub(crate) fn room_for(length: usize) -> usize {
    match length {
        0..=0x1000 => 0,
        _ => length.saturating_mul(16),
    }
}

/// The method and, if it comes before the params, the id of what begins like that, if it is
/// a single call whose method comes before its params. What follows may make it another thing.
pub fn beginning(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let mut scanner = Scanner::of_text(text).ok()?;
    let (mut method, mut id) = (None, None);
    if scanner.kind().ok()? != Kind::Object {
        return None;
    }
    let mut name = scanner.first_member();
    while let Ok(Some(member)) = name {
        let content = &text[member.content];
        if content == b"params" {
            break;
        }
        // what is not all there is none: of a number there may be more
        let value = scanner.value().ok();
        let is_cut = |value: &Value| value.kind == Kind::Number && value.span.end == text.len();
        let Some(value) = value.filter(|value| !is_cut(value)) else {
            break;
        };
        match (content, value.kind) {
            (b"method", Kind::String) => {
                method = Some(&text[value.span.start + 1..value.span.end - 1]);
            }
            (b"id", Kind::String | Kind::Number | Kind::Null) if value.span.len() <= MAX_ID => {
                id = Some(&text[value.span]);
            }
            (b"jsonrpc", Kind::String) => {}
            _ => return None,
        }
        name = scanner.next_member();
    }
    Some((method?, id))
}

enum Member {
    Version,
    Id,
    Method,
    Params,
}

/// Takes a member's name and its colon. As nearly all clients write them, they
/// are compared at once.
#[inline(always)]
fn member(scanner: &mut Scanner<'_>, body: &[u8]) -> Result<Member, Refusal> {
    if scanner.verbatim(b"\"id\":") {
        return Ok(Member::Id);
    }
    if scanner.verbatim(b"\"method\":") {
        return Ok(Member::Method);
    }
    if scanner.verbatim(b"\"params\":") {
        return Ok(Member::Params);
    }
    // An escaped name has a backslash, so it is none of these.
    match &body[scanner.member_name()?.content] {
        b"jsonrpc" => Ok(Member::Version),
        b"id" => Ok(Member::Id),
        b"method" => Ok(Member::Method),
        b"params" => Ok(Member::Params),
        _ => Err(Refusal::UnknownMember),
    }
}

fn call<'a>(scanner: &mut Scanner<'a>, body: &'a [u8]) -> Result<Call<'a>, Refusal> {
    let start = scanner.start();
    let (mut version, mut id, mut method, mut params) = (false, None, None, None);
    let mut starts = Starts::default();
    let mut another = scanner.first_name()?;
    while another {
        if !version && scanner.verbatim(b"\"jsonrpc\":\"2.0\"") {
            version = true;
            another = scanner.next_name()?;
            continue;
        }
        match member(scanner, body)? {
            Member::Version if version => return Err(Refusal::Duplicate),
            Member::Version => {
                version = &body[scanner.value()?.span] == b"\"2.0\"";
                if !version {
                    return Err(Refusal::Version);
                }
            }
            Member::Id if id.is_some() => return Err(Refusal::Duplicate),
            Member::Id => {
                let value = scanner.value()?;
                match value.kind {
                    Kind::String | Kind::Number | Kind::Null => {}
                    Kind::Object | Kind::Array | Kind::Bool => return Err(Refusal::IdKind),
                }
                if value.span.len() > MAX_ID {
                    return Err(Refusal::LongId);
                }
                starts.id = value.span.start - start;
                id = Some(&body[value.span]);
            }
            Member::Method if method.is_some() => return Err(Refusal::Duplicate),
            Member::Method => {
                if scanner.kind()? != Kind::String {
                    return Err(Refusal::MethodKind);
                }
                let name = scanner.string()?;
                if name.escaped {
                    return Err(Refusal::EscapedMethod);
                }
                starts.method = name.content.start - start;
                method = Some(&body[name.content]);
            }
            Member::Params if params.is_some() => return Err(Refusal::Duplicate),
            Member::Params => {
                let value = scanner.value()?;
                match value.kind {
                    Kind::Array | Kind::Object | Kind::Null => {}
                    _ => return Err(Refusal::ParamsKind),
                }
                starts.params = value.span.start - start;
                params = Some(&body[value.span]);
            }
        }
        another = scanner.next_name()?;
    }
    if !version {
        return Err(Refusal::Version);
    }
    Ok(Call {
        span: start..scanner.position(),
        id,
        method: method.ok_or(Refusal::NoMethod)?,
        params,
        starts,
    })
}
