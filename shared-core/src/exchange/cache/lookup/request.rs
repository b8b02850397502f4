//! The input of a lookup, and the action that it returns to its host.

use crate::cache::process::wake::WaitingRequestId;
use crate::cache::CacheKey;

/// The length of a request's body, as its head announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// Number of bytes; 0 if the request has no body.
    Known(u64),
    /// The length is known when the body ends.
    Unknown,
}

/// The body of a request, as the host has it at the lookup: complete, unread or unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBodyAvailability<'a> {
    /// The complete body, in memory; empty if the request has none.
    Whole(&'a [u8]),
    /// The host has not read the body: the client waits for a 100 (Continue), which the host
    /// does not send.
    AwaitsContinue,
    /// The host could not buffer or read the body: it is too long, memory was refused, or its
    /// file can't be read.
    Unavailable,
}

impl<'a> RequestBodyAvailability<'a> {
    /// Returns a view of the complete body; `None` if the host has not read it or could not.
    pub fn as_complete_body(self) -> Option<&'a [u8]> {
        match self {
            RequestBodyAvailability::Whole(body) => Some(body),
            RequestBodyAvailability::AwaitsContinue | RequestBodyAvailability::Unavailable => None,
        }
    }
}

impl<'a> From<Option<&'a [u8]>> for RequestBodyAvailability<'a> {
    /// Converts an optional body; `None` is a body that is unavailable.
    fn from(body: Option<&'a [u8]>) -> Self {
        body.map_or(
            RequestBodyAvailability::Unavailable,
            RequestBodyAvailability::Whole,
        )
    }
}

/// The part of a request that its lookup needs from the host: nothing, the head or the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredBody {
    /// No lookup follows: forward the request to the node.
    Nothing,
    /// The head is sufficient: look the request up.
    LookUp,
    /// The request's body, unchanged except for its chunked coding: read it, then look it up.
    Body,
    /// The request's body wherever the host keeps it, also in a file.
    WholeBody,
}

/// The input of a lookup: the request's body, and the host's properties of the request and its
/// route.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookupRequest<'a> {
    /// The namespace, where the operator sets it per request; the namespace of a whole route
    /// is in its settings.
    pub namespace: Option<&'a [u8]>,
    /// Upstream of the route, as the configuration names it. It selects the response where
    /// the operator sets no namespace: with the port, the host and the target of the request
    /// it is the namespace, and it stays the same after a restart.
    pub place: &'a [u8],
    /// The host can't distinguish the route from others that receive the same requests and
    /// forward them to other upstreams: without a namespace the request is not looked up.
    pub unnamed: bool,
    /// No node is behind the request: the host itself responds, and no entry of any namespace
    /// may replace its response.
    pub local: bool,
    /// Host of the request, as the proxy itself reads it: a target in absolute form wins over
    /// the `Host` header (RFC 9112, 3.2.2).
    pub host: &'a [u8],
    /// Port on which the proxy received the request.
    pub port: u16,
    /// The complete body of the request.
    pub body: &'a [u8],
    /// Milliseconds of the machine's monotonic clock, read for this lookup; any clock that
    /// does not run backwards is sufficient where the process has no owner.
    pub now: u64,
    /// The host's own rules allow a content coding for this response.
    pub coding_allowed: bool,
    /// A batch is forwarded unsplit or not at all: the host may change the node's response,
    /// and stored responses would not be changed with it.
    pub whole: bool,
    /// The host has other filters, which may change the request's or the response's body, and
    /// reports them ([`record_host_filter_effect`]).
    ///
    /// [`record_host_filter_effect`]: crate::exchange::drive::ExchangeDriver::record_host_filter_effect
    pub filters: bool,
    /// The host adds `Vary: Accept-Encoding` itself when the exchange requests it.
    pub host_writes_vary: bool,
    /// The host's configuration forwards the client's `Accept-Encoding` to the node, whatever
    /// the upstream edits contain.
    pub forwards_codings: bool,
    /// Identity under which this request is woken and looked up again; `None` if it does not
    /// wait.
    pub waiter: Option<WaitingRequestId>,
    /// No stored response is sent; the node's response replaces the stored one.
    pub bypass: bool,
    /// The host can't repeat this request: no background update is possible.
    pub no_background_update: bool,
}

/// The action that the host takes after a lookup: forward the request, respond or wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupAction {
    /// Forward the request to the node.
    Forward,
    /// Send `Exchange::stored_response_status`, `Exchange::head_edits` as the complete head, and
    /// `Exchange::body_slices`.
    Respond,
    /// Respond like `Respond`, after `Exchange::run_pending_stages` has run on a thread that serves
    /// no connections; if `Exchange::stored_response_status` is 0 then, forward the request to the
    /// node.
    RespondOffLoop,
    /// Run `Exchange::run_pending_stages` on a thread that serves no connections, then look up again.
    AssembleOffLoop,
    /// Forward the request to the node, with `Exchange::request_body` as its body.
    ForwardRewritten,
    /// Another request is fetching the response, or background updates fetch its parts: look up
    /// again when this request is woken. A batch may have to wait several times: first for entries of
    /// the owner, then for responses that other requests fetch, or for parts of a range of logs.
    Wait,
}

/// One response that a lookup searches: its key, and the conditions under which it is stored and
/// coalesced.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchange) struct LookupTarget<'a> {
    pub(in crate::exchange) key: CacheKey,
    /// Id of the call under which the response is sent; `None` for a resource.
    pub(in crate::exchange) id: Option<&'a [u8]>,
    /// The node's response will be complete, so that it can be stored.
    pub(in crate::exchange) is_whole: bool,
    /// The request may wait for another request's response.
    pub(in crate::exchange) coalesces: bool,
    /// The response may be immutable, as far as the request shows, so that other machines may have
    /// it.
    pub(in crate::exchange) may_be_immutable: bool,
    /// Slot of a resource, which other machines may have once it is final; `None` for a call.
    pub(in crate::exchange) slot: Option<u64>,
    /// Method of a call; `None` for a resource.
    pub(in crate::exchange) method: Option<&'a [u8]>,
}
