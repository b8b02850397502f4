//! Message heads of an exchange: the parts that the core reads, and the edits of them.

use std::borrow::Cow;

use crate::beacon;
use crate::cache::credentials::CredentialsPolicies;
use crate::cache::reason::Reason;
use crate::cache::vary_key::RetainedRequestHeaders;
use crate::config::{CacheConfig, CacheableGetRequests};
use crate::exchange::request::engine_targets::is_engine_target;
use crate::negotiate::accept::FormatPreference;
use crate::negotiate::accept_encoding::EncodingPreferences;
use crate::negotiate::list_header::list_header_members;
use crate::negotiate::query_content::QueryContentType;
use crate::negotiate::{cache_control, etag, media_type, vary};
use crate::request_coding::{BodyContentCoding, SupportedContentCoding};
use crate::transcode::engine::rpc_request::NewPayloadWitnessCall;
use crate::transcode::engine::{ExecutionFork, RestPayloadWitnessRequest};
use crate::transcode::{SszSubmission, TranscodeRequest};

/// A header field: name and value. Bytes, because HTTP does not guarantee UTF-8.
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
    pub(in crate::exchange) fn set_header(
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, [u8]>>,
    ) -> Self {
        Self {
            name: name.into(),
            value: Some(value.into()),
        }
    }

    pub(in crate::exchange) fn set_content_length(length: usize) -> Self {
        Self::set_header("Content-Length", length.to_string().into_bytes())
    }

    pub(in crate::exchange) fn set_content_encoding(coding: SupportedContentCoding) -> Self {
        Self::set_header("Content-Encoding", coding.coding_name().as_bytes())
    }

    pub(in crate::exchange) fn remove_header(name: &'static str) -> Self {
        Self {
            name: name.into(),
            value: None,
        }
    }
}

/// A request head as the host received it: method, target and headers.
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

/// The properties of the client's request that an exchange keeps, most of them read from its head.
#[derive(Clone, Debug, Default)]
pub(in crate::exchange) struct RequestProperties {
    pub(in crate::exchange) accept_encoding: EncodingPreferences,
    pub(in crate::exchange) head: bool,
    pub(in crate::exchange) post: bool,
    pub(in crate::exchange) no_transform: bool,
    /// Whether the head is forwarded unchanged: WebSocket, gRPC, tunnels.
    pub(in crate::exchange) untouched: bool,
    /// The protocol that the client requests for the connection.
    pub(in crate::exchange) upgrade: UpgradeProtocol,
    /// Charset and form encoding of the body, as the head declares them.
    pub(in crate::exchange) text: RequestCharset,
    /// Whether the client may wait for a 100 (Continue) before it sends the body.
    pub(in crate::exchange) expects_continue: bool,
    /// Whether a node may find a call in the request's target.
    pub(in crate::exchange) calls_by_query: bool,
    /// Whether the target is of the REST Engine API, and rules deny its methods.
    pub(in crate::exchange) is_denied_engine_target: bool,
    /// Type of the content of a QUERY; `None` for other methods, and where they are not handled.
    pub(in crate::exchange) query: Option<QueryContentType>,
    /// The client's format preference, if the request is a call.
    pub(in crate::exchange) call: Option<FormatPreference>,
    /// Negotiation of the response's format, if the route has an SSZ type.
    pub(in crate::exchange) ssz: Option<TranscodeRequest>,
    /// The only format that the client accepts, for a route without a known SSZ type.
    pub(in crate::exchange) untyped: Option<TranscodeRequest>,
    /// The submission in the body, if it is SSZ, which the node may not accept.
    pub(in crate::exchange) submitted: Option<SszSubmission>,
    /// Content coding of the body as the node receives it; `Other` if the body is not
    /// decompressed here.
    pub(in crate::exchange) coding: BodyContentCoding,
    /// The payload that is submitted over REST to a node that accepts it over JSON-RPC.
    pub(in crate::exchange) payload: Option<RestPayloadWitnessRequest>,
    /// The target and fork of a route of the node, if the request may be a call for it.
    pub(in crate::exchange) route: Option<(Vec<u8>, Option<ExecutionFork>)>,
    /// The call for that route, once it was read.
    pub(in crate::exchange) called: Option<NewPayloadWitnessCall>,
    /// The part of the path before the Beacon API's route, if the chain's capabilities are
    /// needed.
    pub(in crate::exchange) prefix: Option<Vec<u8>>,
    pub(in crate::exchange) cache: CacheRequestProperties,
}

/// The kind of a request as the cache sees it: a call, a resource, a change, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::exchange) enum CacheRequestKind {
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
pub(in crate::exchange) struct CacheRequestProperties {
    pub(in crate::exchange) kind: CacheRequestKind,
    /// Reason why the request has no kind.
    pub(in crate::exchange) why: Reason,
    /// Whether a header with credentials makes the request bypass the cache.
    pub(in crate::exchange) credentials: bool,
    /// Whether the client forbids storing the response (RFC 9111, 5.2.1.5).
    pub(in crate::exchange) no_store: bool,
    /// Whether the client accepts a stored response only (RFC 9111, 5.2.1.7).
    pub(in crate::exchange) only_if_cached: bool,
    pub(in crate::exchange) target: Vec<u8>,
    pub(in crate::exchange) fields: RetainedRequestHeaders,
}

/// Safe methods (RFC 9110, 9.2.1, and the IANA registry), except GET and HEAD.
const SAFE_METHODS: [&[u8]; 6] = [
    b"OPTIONS",
    b"TRACE",
    b"PROPFIND",
    b"REPORT",
    b"SEARCH",
    b"QUERY",
];

impl RequestProperties {
    /// Whether the response depends on `Accept`.
    pub(in crate::exchange) fn varies_on_accept(&self) -> bool {
        let is_negotiated = self.ssz.is_some_and(|ssz| !ssz.is_bridged_to_rpc());
        is_negotiated || self.call.is_some()
    }

    /// Reads the parts of a request head that the exchange keeps. `caches` are the settings of the
    /// cache, if there is one; with `decodes`, a compressed body is handled as the same body
    /// without its coding.
    pub(in crate::exchange) fn from_request_head<'a, I>(
        head: RequestHead<'_, I>,
        caches: Option<&CacheConfig>,
        decodes: bool,
    ) -> Self
    where
        I: Iterator<Item = Header<'a>>,
    {
        let mut request = RequestProperties {
            head: head.method == b"HEAD",
            post: head.method == b"POST",
            untouched: head.method == b"CONNECT",
            ..RequestProperties::default()
        };
        if request.untouched {
            request.upgrade = UpgradeProtocol::Other;
        }
        let mut is_chunked = false;
        let (mut json, mut octets) = (false, false);
        if caches.is_some() {
            let expected = head.fields.size_hint().0;
            request
                .cache
                .fields
                .reserve_header_capacity(expected.min(64));
        }
        for (name, value) in head.fields {
            if let Some(config) = caches {
                request
                    .cache
                    .record_cache_relevant_header(name, value, &config.credentials);
            }
            if name.eq_ignore_ascii_case(b"accept-encoding") {
                request.accept_encoding.read_accept_encoding_line(value);
            } else if name.eq_ignore_ascii_case(b"cache-control") {
                request.no_transform |= cache_control::has_no_transform(value);
            } else if name.eq_ignore_ascii_case(b"upgrade") {
                request.untouched |= list_header_members(value).any(is_websocket);
                request.upgrade.update_from_upgrade_header(value);
            } else if name.eq_ignore_ascii_case(b"expect") {
                let mut expected = list_header_members(value);
                request.expects_continue |=
                    expected.any(|it| it.eq_ignore_ascii_case(b"100-continue"));
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                is_chunked = true;
            } else if name.eq_ignore_ascii_case(b"content-type") {
                if value == b"application/json" {
                    // the usual value
                    json = true;
                    continue;
                }
                json |= media_type::is_json_type(value);
                octets |= media_type::is_octet_stream(value);
                request.text.update_from_content_type(value);
                if media_type::is_grpc_type(value) {
                    request.untouched = true;
                    request.upgrade = UpgradeProtocol::Other;
                }
            } else if name.eq_ignore_ascii_case(b"content-encoding") {
                request.coding.update_from_coding_line(value);
            }
        }
        if request.upgrade == UpgradeProtocol::WebSocket && (is_chunked || head.method != b"GET") {
            // a node that ignores the upgrade may read it as a call (RFC 6455, 4.1)
            request.upgrade = UpgradeProtocol::Other;
        }
        let is_read = decodes && !request.untouched && head.method == b"POST" && (json || octets);
        if request.coding.supported_coding().is_some() && !is_read {
            request.coding = BodyContentCoding::Other;
        }
        if let Some(config) = caches {
            request.cache.target = head.target.to_vec();
            let caches_get = match config.get {
                CacheableGetRequests::All => !is_engine_target(head.target),
                CacheableGetRequests::Beacon => beacon::is_beacon_target(head.target),
            };
            let (kind, why) = match head.method {
                _ if request.untouched => (CacheRequestKind::None, Reason::Upgrade),
                b"POST" if !json => (CacheRequestKind::Change, Reason::RequestType),
                b"POST" if request.coding == BodyContentCoding::Other => {
                    (CacheRequestKind::Change, Reason::RequestCoding)
                }
                b"POST" => (CacheRequestKind::Call, Reason::None),
                b"GET" | b"HEAD" if !caches_get => (CacheRequestKind::None, Reason::Get),
                b"GET" | b"HEAD" => (CacheRequestKind::Resource, Reason::None),
                method if SAFE_METHODS.contains(&method) => {
                    (CacheRequestKind::None, Reason::Method)
                }
                _ => (CacheRequestKind::Change, Reason::Method),
            };
            request.cache.kind = kind;
            request.cache.why = why;
        }
        request
    }
}

impl CacheRequestProperties {
    /// Reads a header that keys or the cache's rules may depend on.
    fn record_cache_relevant_header(
        &mut self,
        name: &[u8],
        value: &[u8],
        credentials: &CredentialsPolicies,
    ) {
        self.fields.push_header(name, value);
        if name.eq_ignore_ascii_case(b"cache-control") {
            for directive in list_header_members(value) {
                self.no_store |= directive.eq_ignore_ascii_case(b"no-store");
            }
            self.only_if_cached |= cache_control::has_only_if_cached(value);
        } else {
            self.credentials |= credentials.header_causes_bypass(name);
        }
    }
}

/// Whether the protocol is WebSocket. Other upgrades, such as curl's `h2c`, are offers that most
/// hosts ignore.
fn is_websocket(protocol: &[u8]) -> bool {
    protocol.eq_ignore_ascii_case(b"websocket")
}

/// The protocol to which a client requests, or a node announces, to switch a connection (RFC 9110,
/// 7.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::exchange) enum UpgradeProtocol {
    /// No upgrade.
    #[default]
    None,
    /// WebSocket, and nothing else.
    WebSocket,
    /// Another protocol, or several; gRPC, or a tunnel (`CONNECT`).
    Other,
}

impl UpgradeProtocol {
    /// Updates the protocol with one line of `Upgrade`; several protocols are `Other`.
    pub(in crate::exchange) fn update_from_upgrade_header(&mut self, value: &[u8]) {
        let mut protocols = list_header_members(value).peekable();
        let is_there = protocols.peek().is_some();
        *self = match *self {
            UpgradeProtocol::Other => UpgradeProtocol::Other,
            _ if is_there && protocols.all(is_websocket) => UpgradeProtocol::WebSocket,
            _ => UpgradeProtocol::Other,
        };
    }
}

/// The text encoding of a request's body, as far as `Content-Type` declares it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::exchange) struct RequestCharset {
    /// Whether a charset is ISO-8859-1 or US-ASCII, which equal UTF-8 for ASCII only.
    pub(in crate::exchange) is_latin: bool,
    /// Whether a charset is another one, neither Latin nor UTF-8.
    pub(in crate::exchange) is_other: bool,
    /// Whether the type is `application/x-www-form-urlencoded`.
    pub(in crate::exchange) is_form: bool,
}

impl RequestCharset {
    /// Updates the encoding with one line of `Content-Type`.
    fn update_from_content_type(&mut self, value: &[u8]) {
        self.is_form |= media_type::is_form_type(value);
        for charset in media_type::charset_parameters(value) {
            let is = |known: &str| charset.eq_ignore_ascii_case(known.as_bytes());
            if is("iso-8859-1") || is("latin1") || is("us-ascii") || is("ascii") {
                self.is_latin = true;
            } else if !is("utf-8") && !is("utf8") {
                self.is_other = true;
            }
        }
    }

    /// Whether a node that obeys the `Content-Type` could read other text in this body than its
    /// UTF-8.
    pub(in crate::exchange) fn may_be_read_as_other_text_than_utf8(self, body: &[u8]) -> bool {
        self.is_other
            || self.is_latin && !body.is_ascii()
            || self.is_form && body.iter().any(|byte| matches!(byte, b'%' | b'+'))
    }
}

/// A response head as the host received it, with the host's conditions for changing the response.
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
pub(in crate::exchange) fn status_has_no_body(status: u16) -> bool {
    matches!(status, 0..=199 | 204 | 304)
}

/// The content coding of a response body: none, one that sszip decompresses, or any other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::exchange) enum ResponseContentCoding {
    #[default]
    Identity,
    Gzip,
    Zstd,
    /// Another coding, or several.
    Other,
}

impl ResponseContentCoding {
    /// Updates the coding with one line of `Content-Encoding`.
    pub(in crate::exchange) fn update_from_content_encoding(&mut self, value: &[u8]) {
        for coding in list_header_members(value) {
            let is = |known: &str| coding.eq_ignore_ascii_case(known.as_bytes());
            if is("identity") {
                continue;
            }
            *self = match *self {
                ResponseContentCoding::Identity if is("gzip") || is("x-gzip") => {
                    ResponseContentCoding::Gzip
                }
                ResponseContentCoding::Identity if is("zstd") => ResponseContentCoding::Zstd,
                _ => ResponseContentCoding::Other,
            };
        }
    }

    /// Returns the coding, if it is one that sszip decompresses.
    pub(in crate::exchange) fn supported_coding(self) -> Option<SupportedContentCoding> {
        match self {
            ResponseContentCoding::Gzip => Some(SupportedContentCoding::Gzip),
            ResponseContentCoding::Zstd => Some(SupportedContentCoding::Zstd),
            ResponseContentCoding::Identity | ResponseContentCoding::Other => None,
        }
    }
}

/// The parts of a response head that determine whether and how its body may be changed.
pub(in crate::exchange) struct ResponseProperties<'a> {
    pub(in crate::exchange) content_type: Option<&'a [u8]>,
    pub(in crate::exchange) coding: ResponseContentCoding,
    pub(in crate::exchange) no_transform: bool,
    pub(in crate::exchange) etag: Option<&'a [u8]>,
    pub(in crate::exchange) vary: Vec<&'a [u8]>,
    /// Whether trailers follow the body (RFC 9110, 6.6.2).
    pub(in crate::exchange) announces_trailers: bool,
    /// Headers that describe the bytes of the body, and are removed when the bytes change.
    bytewise: [bool; BYTE_DEPENDENT_HEADERS.len()],
}

/// Names of headers that apply to the original bytes only: byte ranges (RFC 9110, 14.3) and
/// digests (RFC 9530; RFC 3230 and 2616 before it).
const BYTE_DEPENDENT_HEADERS: [&str; 5] = [
    "Accept-Ranges",
    "Content-Digest",
    "Repr-Digest",
    "Digest",
    "Content-MD5",
];

/// Whether the header applies to the original bytes only.
pub(in crate::exchange) fn is_byte_dependent_header(name: &[u8]) -> bool {
    BYTE_DEPENDENT_HEADERS
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

impl<'a> ResponseProperties<'a> {
    /// Collects the properties of a response from all its headers.
    pub(in crate::exchange) fn from_response_headers(
        fields: impl Iterator<Item = Header<'a>>,
    ) -> Self {
        let mut response = ResponseProperties {
            content_type: None,
            coding: ResponseContentCoding::Identity,
            no_transform: false,
            etag: None,
            vary: Vec::new(),
            announces_trailers: false,
            bytewise: [false; BYTE_DEPENDENT_HEADERS.len()],
        };
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(b"content-type") {
                response.content_type = Some(value);
            } else if name.eq_ignore_ascii_case(b"content-encoding") {
                response.coding.update_from_content_encoding(value);
            } else if name.eq_ignore_ascii_case(b"cache-control") {
                response.no_transform |= cache_control::has_no_transform(value);
            } else if name.eq_ignore_ascii_case(b"etag") {
                response.etag = Some(value);
            } else if name.eq_ignore_ascii_case(b"vary") {
                response.vary.push(value);
            } else if name.eq_ignore_ascii_case(b"trailer") {
                response.announces_trailers |= list_header_members(value).next().is_some();
            } else if let Some(known) = BYTE_DEPENDENT_HEADERS
                .iter()
                .position(|known| name.eq_ignore_ascii_case(known.as_bytes()))
            {
                response.bytewise[known] = true;
            }
        }
        response
    }

    /// Adds the edit that makes `Vary` contain `Accept-Encoding` exactly once.
    pub(in crate::exchange) fn add_vary_edits(
        &self,
        host_writes_vary: bool,
        edits: &mut Vec<HeadEdit>,
    ) {
        const NAME: &str = "Vary";
        const MEMBER: &str = "Accept-Encoding";
        let lines = || self.vary.iter().copied();
        let covered = vary::is_named_in_vary(lines(), MEMBER);
        if host_writes_vary && covered {
            let rest = vary::remove_vary_name(lines(), MEMBER);
            edits.push(if rest.is_empty() {
                HeadEdit::remove_header(NAME)
            } else {
                HeadEdit::set_header(NAME, rest)
            });
        } else if !host_writes_vary && !covered {
            edits.push(HeadEdit::set_header(
                NAME,
                vary::add_vary_name(lines(), MEMBER),
            ));
        }
    }

    /// Adds the edits for a body in another encoding of the same representation: the entity tag
    /// is weakened, and headers of the original bytes are removed.
    pub(in crate::exchange) fn add_reencoded_body_edits(&self, edits: &mut Vec<HeadEdit>) {
        if let Some(weak) = self.etag.and_then(etag::weaken_entity_tag) {
            edits.push(HeadEdit::set_header("ETag", weak));
        }
        self.remove_byte_dependent_headers(edits);
    }

    /// Adds the edits for another representation: entity tag and headers of the original bytes
    /// are removed.
    pub(in crate::exchange) fn add_changed_body_edits(&self, edits: &mut Vec<HeadEdit>) {
        if self.etag.is_some() {
            edits.push(HeadEdit::remove_header("ETag"));
        }
        self.remove_byte_dependent_headers(edits);
    }

    /// Appends edits that remove the present headers whose value depends on the bytes of the body.
    fn remove_byte_dependent_headers(&self, edits: &mut Vec<HeadEdit>) {
        for (name, present) in BYTE_DEPENDENT_HEADERS.into_iter().zip(self.bytewise) {
            if present {
                edits.push(HeadEdit::remove_header(name));
            }
        }
    }
}
