//! What is looked for, and what a look-up asks of its host.

use crate::cache::process::wake::Waiter;
use crate::cache::Key;

/// How long a request's body is, for all that its head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// So many bytes; 0: there is none.
    Known(u64),
    /// That will be known at its end.
    Unknown,
}

/// A request's body, as the host has it at a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody<'a> {
    /// All of it, in memory; empty: there is none.
    Whole(&'a [u8]),
    /// The host has not read it: the client waits for a 100 (Continue), which the host
    /// does not send.
    Unread,
    /// It could not be kept in memory, or read: it is too long, memory was refused, or its
    /// file can't be read.
    Unavailable,
}

impl<'a> RequestBody<'a> {
    /// All of it, if the host has that.
    pub fn whole(self) -> Option<&'a [u8]> {
        match self {
            RequestBody::Whole(body) => Some(body),
            RequestBody::Unread | RequestBody::Unavailable => None,
        }
    }
}

impl<'a> From<Option<&'a [u8]>> for RequestBody<'a> {
    /// `None` is a body that could not be had.
    fn from(body: Option<&'a [u8]>) -> Self {
        body.map_or(RequestBody::Unavailable, RequestBody::Whole)
    }
}

/// What a look-up needs of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// There will be none: send the request to the node.
    Nothing,
    /// Nothing more: look it up.
    LookUp,
    /// The request's body, as it came but for chunks: read it, then look it up.
    Body,
    /// The same, wherever the host keeps it: in a file, too.
    WholeBody,
}

/// A look-up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// What keeps answers of one chain apart from those of another, where the
    /// operator says it for each request; for all of a place that is in its settings.
    pub namespace: Option<&'a [u8]>,
    /// What else chooses the answer, where the operator does not say it: which
    /// node the request goes to, as the configuration names it. It is the same
    /// after a restart; with the port, the host and the target of the request
    /// it is the namespace.
    pub place: &'a [u8],
    /// The host can't tell the place from others which get the same requests and pass
    /// them elsewhere: without a namespace it is not looked up.
    pub unnamed: bool,
    /// No node is behind the request: the host answers it, and nothing that is stored may
    /// take the place of that, under whatever name.
    pub local: bool,
    /// The host that is asked, as the proxy itself reads it: a target in
    /// absolute form wins over the `Host` field (RFC 9112, 3.2.2).
    pub host: &'a [u8],
    /// The port on which the proxy was asked.
    pub port: u16,
    /// The request's body, whole.
    pub body: &'a [u8],
    /// Milliseconds of the machine's monotonic clock, read for this call, or,
    /// where the process is linked to no owner of a store, or asks it by calls, of
    /// any that does not run backwards.
    pub now: u64,
    /// The host's own rules allow a content coding here.
    pub coding_allowed: bool,
    /// Of a batch the node is to be asked for all or nothing: the host may change
    /// what it answers, and what is stored is not changed with it.
    pub whole: bool,
    /// The host has other filters, which may change bodies on their way here or to
    /// the client, and tells of them ([`Driver::beside`]).
    ///
    /// [`Driver::beside`]: crate::exchange::drive::Driver::beside
    pub filters: bool,
    /// The host writes `Vary: Accept-Encoding` itself when told to.
    pub host_writes_vary: bool,
    /// The host's configuration tells the node which codings the client accepts,
    /// whatever the upstream edits say.
    pub forwards_codings: bool,
    /// Where this request waits, and by what its host knows it there when it is
    /// to be looked up again; `None`: it will not wait.
    pub waiter: Option<Waiter>,
    /// What is stored is not to be sent; the node's answer replaces it.
    pub bypass: bool,
    /// The host can't make this request anew, so nothing is fetched in the background.
    pub never_anew: bool,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookUp {
    /// Send it to the node.
    Forward,
    /// Send `Exchange::status`, `Exchange::head_edits` as the whole head,
    /// and `Exchange::body`.
    Respond,
    /// As `Respond`, once `Exchange::code` has run on a thread that serves
    /// no connections; if `Exchange::status` is 0 then, send it to the node.
    RespondOffLoop,
    /// Send it to the node, with `Exchange::request_body` as its body.
    ForwardRewritten,
    /// The answer is on its way for another request: look up again when this one
    /// is woken. A batch may then have to wait once more: first for what others
    /// have, then for what they fetch.
    Wait,
}

/// One answer that is looked for.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchange) struct Sought<'a> {
    pub(in crate::exchange) key: Key,
    /// What it is to be sent under; `None`: it is a resource.
    pub(in crate::exchange) id: Option<&'a [u8]>,
    /// The node's answer will be all that could be stored.
    pub(in crate::exchange) is_whole: bool,
    /// It is worth waiting for another request's.
    pub(in crate::exchange) coalesces: bool,
}
