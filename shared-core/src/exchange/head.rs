//! Message heads of an exchange: the parts that the core reads, and the edits of them.

use std::borrow::Cow;

use crate::beacon;
use crate::cache::credentials::Credentials;
use crate::cache::reason::Reason;
use crate::cache::vary_key::Fields;
use crate::config::{CacheConfig, CacheGetScope};
use crate::negotiate::accept::FormatPreference;
use crate::negotiate::accept_encoding::AcceptEncoding;
use crate::negotiate::list_header::members;
use crate::negotiate::{cache_control, etag, media_type, vary};
use crate::request_coding::BodyCoding;
use crate::transcode::engine::rpc_request::RpcRequest;
use crate::transcode::engine::{Fork, RestRequest};
use crate::transcode::{Submission, TranscodeRequest};

/// A header: name and value. Bytes, because HTTP does not guarantee UTF-8.
pub type Header<'a> = (&'a [u8], &'a [u8]);

/// A change to one header of a message: it is set, replaced or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadEdit {
    /// Name of the header, as it is written.
    pub name: Cow<'static, str>,
    /// The only value of the header after the edit; `None` removes the header.
    pub value: Option<Cow<'static, [u8]>>,
}

impl HeadEdit {
    pub(super) fn set(
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, [u8]>>,
    ) -> Self {
        Self {
            name: name.into(),
            value: Some(value.into()),
        }
    }

    pub(super) fn content_length(length: usize) -> Self {
        Self::set("Content-Length", length.to_string().into_bytes())
    }

    pub(super) fn remove(name: &'static str) -> Self {
        Self {
            name: name.into(),
            value: None,
        }
    }
}

/// A request head as the host received it.
#[derive(Clone, Debug)]
pub struct RequestHead<'a, I> {
    /// The method.
    pub method: &'a [u8],
    /// Path and query, as the client sent them or as the host has rewritten them: the target
    /// that selects the response.
    pub target: &'a [u8],
    /// All headers, including `Host`.
    pub fields: I,
}

/// The parts of a request head that the exchange keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) accept_encoding: AcceptEncoding,
    pub(super) head: bool,
    pub(super) post: bool,
    pub(super) no_transform: bool,
    /// Whether the head is forwarded unchanged: WebSocket, gRPC, tunnels.
    pub(super) untouched: bool,
    /// The protocol that the client requests for the connection.
    pub(super) upgrade: Upgrade,
    /// Charset and form encoding of the body, as the head declares them.
    pub(super) text: RequestCharset,
    /// Whether the client may wait for a 100 (Continue) before it sends the body.
    pub(super) expects_continue: bool,
    /// Whether a node may find a call in the request's target.
    pub(super) calls_by_query: bool,
    /// The client's format preference, if the request is a call.
    pub(super) call: Option<FormatPreference>,
    /// Negotiation of the response's format, if the route has an SSZ type.
    pub(super) ssz: Option<TranscodeRequest>,
    /// The only format that the client accepts, for a route without a known SSZ type.
    pub(super) untyped: Option<TranscodeRequest>,
    /// The submission in the body, if it is SSZ, which the node may not accept.
    pub(super) submitted: Option<Submission>,
    /// Content coding of the body as the node receives it; `Other` if the body is not
    /// decompressed here.
    pub(super) coding: BodyCoding,
    /// The payload that is submitted over REST to a node that accepts it over JSON-RPC.
    pub(super) payload: Option<RestRequest>,
    /// The target and fork of a route of the node, if the request may be a call for it.
    pub(super) route: Option<(Vec<u8>, Option<Fork>)>,
    /// The call for that route, once it was read.
    pub(super) called: Option<RpcRequest>,
    /// The part of the path before the Beacon API's route, if the chain's capabilities are
    /// needed.
    pub(super) prefix: Option<Vec<u8>>,
    pub(super) cache: CacheHeaders,
}

/// The kind of a request as the cache sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A request that is not cached.
    #[default]
    None,
    /// A possible JSON-RPC request: POST with JSON.
    Call,
    /// GET or HEAD.
    Resource,
    /// A request whose method may change the response to a GET.
    Change,
}

/// The parts of a request head that only the cache needs. Empty without a cache.
#[derive(Clone, Debug, Default)]
pub(super) struct CacheHeaders {
    pub(super) kind: RequestKind,
    /// Reason why the request has no kind.
    pub(super) why: Reason,
    /// Whether a header with credentials makes the request bypass the cache.
    pub(super) credentials: bool,
    /// Whether the client forbids storing the response (RFC 9111, 5.2.1.5).
    pub(super) no_store: bool,
    pub(super) target: Vec<u8>,
    pub(super) fields: Fields,
}

/// Safe methods (RFC 9110, 9.2.1, and the IANA registry), except GET and HEAD.
const SAFE: [&[u8]; 6] = [
    b"OPTIONS",
    b"TRACE",
    b"PROPFIND",
    b"REPORT",
    b"SEARCH",
    b"QUERY",
];

impl Request {
    /// Whether the response depends on `Accept`.
    pub(super) fn varies_on_accept(&self) -> bool {
        let is_negotiated = self.ssz.is_some_and(|ssz| !ssz.is_bridged());
        is_negotiated || self.call.is_some()
    }

    /// Reads the parts of a request head that the exchange keeps. `caches` are the settings of the
    /// cache, if there is one; with `decodes`, a compressed body is handled as the same body
    /// without its coding.
    pub(super) fn read<'a, I>(
        head: RequestHead<'_, I>,
        caches: Option<&CacheConfig>,
        decodes: bool,
    ) -> Self
    where
        I: Iterator<Item = Header<'a>>,
    {
        let mut request = Request {
            head: head.method == b"HEAD",
            post: head.method == b"POST",
            untouched: head.method == b"CONNECT",
            ..Request::default()
        };
        if request.untouched {
            request.upgrade = Upgrade::Other;
        }
        let mut is_chunked = false;
        let (mut json, mut octets) = (false, false);
        if caches.is_some() {
            let expected = head.fields.size_hint().0;
            request.cache.fields.reserve(expected.min(64));
        }
        for (name, value) in head.fields {
            if let Some(config) = caches {
                request.cache.read_field(name, value, &config.credentials);
            }
            if name.eq_ignore_ascii_case(b"accept-encoding") {
                request.accept_encoding.read_line(value);
            } else if name.eq_ignore_ascii_case(b"cache-control") {
                request.no_transform |= cache_control::has_no_transform(value);
            } else if name.eq_ignore_ascii_case(b"upgrade") {
                request.untouched |= members(value).any(is_websocket);
                request.upgrade.read(value);
            } else if name.eq_ignore_ascii_case(b"expect") {
                let mut expected = members(value);
                request.expects_continue |=
                    expected.any(|it| it.eq_ignore_ascii_case(b"100-continue"));
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                is_chunked = true;
            } else if name.eq_ignore_ascii_case(b"content-type") {
                json |= media_type::is_json(value);
                octets |= media_type::is_octets(value);
                request.text.read(value);
                if media_type::is_grpc(value) {
                    request.untouched = true;
                    request.upgrade = Upgrade::Other;
                }
            } else if name.eq_ignore_ascii_case(b"content-encoding") {
                request.coding.read(value);
            }
        }
        if request.upgrade == Upgrade::WebSocket && (is_chunked || head.method != b"GET") {
            // a node that ignores the upgrade may read it as a call (RFC 6455, 4.1)
            request.upgrade = Upgrade::Other;
        }
        let is_read = decodes && !request.untouched && head.method == b"POST" && (json || octets);
        if request.coding.supported().is_some() && !is_read {
            request.coding = BodyCoding::Other;
        }
        if let Some(config) = caches {
            request.cache.target = head.target.to_vec();
            let caches_get = config.get == CacheGetScope::All || beacon::is_beacon(head.target);
            let (kind, why) = match head.method {
                _ if request.untouched => (RequestKind::None, Reason::Upgrade),
                b"POST" if !json => (RequestKind::Change, Reason::RequestType),
                b"POST" if request.coding == BodyCoding::Other => {
                    (RequestKind::Change, Reason::RequestCoding)
                }
                b"POST" => (RequestKind::Call, Reason::None),
                b"GET" | b"HEAD" if !caches_get => (RequestKind::None, Reason::Get),
                b"GET" | b"HEAD" => (RequestKind::Resource, Reason::None),
                method if SAFE.contains(&method) => (RequestKind::None, Reason::Method),
                _ => (RequestKind::Change, Reason::Method),
            };
            request.cache.kind = kind;
            request.cache.why = why;
        }
        request
    }
}

impl CacheHeaders {
    /// Reads a header that keys or the cache's rules may depend on.
    fn read_field(&mut self, name: &[u8], value: &[u8], credentials: &Credentials) {
        self.fields.push(name, value);
        if name.eq_ignore_ascii_case(b"cache-control") {
            self.no_store |= members(value).any(|one| one.eq_ignore_ascii_case(b"no-store"));
        } else {
            self.credentials |= credentials.causes_bypass(name);
        }
    }
}

/// Whether the protocol is WebSocket. Other upgrades, such as curl's `h2c`, are offers that most
/// hosts ignore.
fn is_websocket(protocol: &[u8]) -> bool {
    protocol.eq_ignore_ascii_case(b"websocket")
}

/// The protocol that a connection is to switch to (RFC 9110, 7.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Upgrade {
    /// No upgrade.
    #[default]
    None,
    /// WebSocket, and nothing else.
    WebSocket,
    /// Another protocol, or several; gRPC, or a tunnel (`CONNECT`).
    Other,
}

impl Upgrade {
    /// Updates the protocol with one line of `Upgrade`; several protocols are `Other`.
    pub(super) fn read(&mut self, value: &[u8]) {
        let mut protocols = members(value).peekable();
        let is_there = protocols.peek().is_some();
        *self = match *self {
            Upgrade::Other => Upgrade::Other,
            _ if is_there && protocols.all(is_websocket) => Upgrade::WebSocket,
            _ => Upgrade::Other,
        };
    }
}

/// The text encoding of a request's body, as far as `Content-Type` declares it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestCharset {
    /// Whether a charset is ISO-8859-1 or US-ASCII, which equal UTF-8 for ASCII only.
    pub(super) is_latin: bool,
    /// Whether a charset is another one, neither Latin nor UTF-8.
    pub(super) is_other: bool,
    /// Whether the type is `application/x-www-form-urlencoded`.
    pub(super) is_form: bool,
}

impl RequestCharset {
    /// Updates the encoding with one line of `Content-Type`.
    fn read(&mut self, value: &[u8]) {
        if value == b"application/json" {
            // the usual value
            return;
        }
        self.is_form |= media_type::is_form(value);
        for charset in media_type::charsets(value) {
            let is = |known: &str| charset.eq_ignore_ascii_case(known.as_bytes());
            if is("iso-8859-1") || is("latin1") || is("us-ascii") || is("ascii") {
                self.is_latin = true;
            } else if !is("utf-8") && !is("utf8") {
                self.is_other = true;
            }
        }
    }

    /// Whether a node that follows the head may read another text than UTF-8 in this body.
    pub(super) fn is_ambiguous(self, body: &[u8]) -> bool {
        self.is_other
            || self.is_latin && !body.is_ascii()
            || self.is_form && body.iter().any(|byte| matches!(byte, b'%' | b'+'))
    }
}

/// A response head as the host received it.
#[derive(Clone, Debug)]
pub struct ResponseHead<I> {
    /// The status code.
    pub status: u16,
    /// Length of the body in bytes, if the head declares it.
    pub content_length: Option<u64>,
    /// All headers, with or without `Content-Length`.
    pub fields: I,
    /// Whether a body without a length has a visible end (chunked, HTTP/2), apart from the end
    /// of its connection.
    pub delimited: bool,
    /// The wall clock, in seconds since 1970.
    pub now: u64,
    /// Whether the operator has disabled buffering: pieces are to be sent as they arrive.
    pub unbuffered: bool,
    /// Whether the response becomes a part of another one.
    pub subrequest: bool,
    /// Whether the host's own rules allow a content coding here.
    pub coding_allowed: bool,
    /// Whether the host writes `Vary: Accept-Encoding` itself on request.
    pub host_writes_vary: bool,
}

/// Whether responses with this status have no body.
pub(super) fn has_no_body(status: u16) -> bool {
    matches!(status, 0..=199 | 204 | 304)
}

/// The content coding of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Coding {
    #[default]
    Identity,
    Gzip,
    Other,
}

impl Coding {
    /// Updates the coding with one line of `Content-Encoding`.
    pub(super) fn read(&mut self, value: &[u8]) {
        for coding in members(value) {
            *self = if coding.eq_ignore_ascii_case(b"identity") {
                continue;
            } else if *self == Coding::Identity
                && (coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip"))
            {
                Coding::Gzip
            } else {
                Coding::Other
            };
        }
    }
}

/// The parts of a response head that the exchange reads, in one pass.
pub(super) struct Response<'a> {
    pub(super) content_type: Option<&'a [u8]>,
    pub(super) coding: Coding,
    pub(super) no_transform: bool,
    pub(super) etag: Option<&'a [u8]>,
    pub(super) vary: Vec<&'a [u8]>,
    /// Whether trailers follow the body (RFC 9110, 6.6.2).
    pub(super) announces_trailers: bool,
    /// Headers that describe the bytes of the body, and are removed when the bytes change.
    bytewise: [bool; BYTEWISE.len()],
}

/// Names of headers that apply to the original bytes only: byte ranges (RFC 9110, 14.3) and
/// digests (RFC 9530; RFC 3230 and 2616 before it).
const BYTEWISE: [&str; 5] = [
    "Accept-Ranges",
    "Content-Digest",
    "Repr-Digest",
    "Digest",
    "Content-MD5",
];

/// Whether the header applies to the original bytes only.
pub(super) fn is_byte_dependent_header(name: &[u8]) -> bool {
    BYTEWISE
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

impl<'a> Response<'a> {
    pub(super) fn read(fields: impl Iterator<Item = Header<'a>>) -> Self {
        let mut response = Response {
            content_type: None,
            coding: Coding::Identity,
            no_transform: false,
            etag: None,
            vary: Vec::new(),
            announces_trailers: false,
            bytewise: [false; BYTEWISE.len()],
        };
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(b"content-type") {
                response.content_type = Some(value);
            } else if name.eq_ignore_ascii_case(b"content-encoding") {
                response.coding.read(value);
            } else if name.eq_ignore_ascii_case(b"cache-control") {
                response.no_transform |= cache_control::has_no_transform(value);
            } else if name.eq_ignore_ascii_case(b"etag") {
                response.etag = Some(value);
            } else if name.eq_ignore_ascii_case(b"vary") {
                response.vary.push(value);
            } else if name.eq_ignore_ascii_case(b"trailer") {
                response.announces_trailers |= members(value).next().is_some();
            } else if let Some(known) = BYTEWISE
                .iter()
                .position(|known| name.eq_ignore_ascii_case(known.as_bytes()))
            {
                response.bytewise[known] = true;
            }
        }
        response
    }

    /// Adds the edit that makes `Vary` contain `Accept-Encoding` exactly once.
    pub(super) fn vary_accept_encoding_edits(
        &self,
        host_writes_vary: bool,
        edits: &mut Vec<HeadEdit>,
    ) {
        const NAME: &str = "Vary";
        const MEMBER: &str = "Accept-Encoding";
        let lines = || self.vary.iter().copied();
        let covered = vary::covers(lines(), MEMBER);
        if host_writes_vary && covered {
            let rest = vary::remove_name(lines(), MEMBER);
            edits.push(if rest.is_empty() {
                HeadEdit::remove(NAME)
            } else {
                HeadEdit::set(NAME, rest)
            });
        } else if !host_writes_vary && !covered {
            edits.push(HeadEdit::set(NAME, vary::add_name(lines(), MEMBER)));
        }
    }

    /// Adds the edits for a body in another encoding of the same representation: the entity tag
    /// is weakened, and headers of the original bytes are removed.
    pub(super) fn edits_for_compressed_body(&self, edits: &mut Vec<HeadEdit>) {
        if let Some(weak) = self.etag.and_then(etag::weakened) {
            edits.push(HeadEdit::set("ETag", weak));
        }
        self.bytewise_edits(edits);
    }

    /// Adds the edits for another representation: entity tag and headers of the original bytes
    /// are removed.
    pub(super) fn edits_for_changed_body(&self, edits: &mut Vec<HeadEdit>) {
        if self.etag.is_some() {
            edits.push(HeadEdit::remove("ETag"));
        }
        self.bytewise_edits(edits);
    }

    fn bytewise_edits(&self, edits: &mut Vec<HeadEdit>) {
        for (name, present) in BYTEWISE.into_iter().zip(self.bytewise) {
            if present {
                edits.push(HeadEdit::remove(name));
            }
        }
    }
}
