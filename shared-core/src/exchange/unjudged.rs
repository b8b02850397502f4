//! Requests of which it can't be known what they call: by their heads, before their bodies
//! have come, or by their bodies. They are refused where calls are judged.

use super::cache::asked::BodyLength;
use super::head::{Field, HeadEdit, ResponseHead, Upgrade};
use super::machine::Exchange;
use crate::coded::BodyCoding;
use crate::jsonrpc::request::Refusal;

/// Why it is not known what a request calls.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unjudged {
    /// It is not JSON.
    Syntax,
    /// It is not JSON-RPC to the letter.
    Request(Refusal),
    /// A batch of more calls than that.
    Batch(usize),
    /// It has a body, or names a method in its query, and is no POST.
    Method,
    /// The connection becomes another one.
    Upgrade,
    /// Its body is too long.
    Length,
    /// Its body is coded, and is not decoded here; or it is text in another encoding than
    /// UTF-8.
    Coding,
    /// Its client waits for a 100 (Continue) that nobody here sends.
    Expectation,
    /// There is no memory to read it, or the host could not.
    Memory,
}

impl Exchange {
    /// Why the request is refused for its head alone, with a body of that length.
    pub(super) fn refused_by_head(&self, length: BodyLength) -> Option<Unjudged> {
        let allows_websocket = self
            .config
            .policy()
            .is_some_and(|policy| policy.allows_websocket());
        match self.request.upgrade {
            Upgrade::None => {}
            Upgrade::WebSocket if allows_websocket => {}
            Upgrade::WebSocket | Upgrade::Other => return Some(Unjudged::Upgrade),
        }
        if length == BodyLength::Known(0) {
            return self.request.calls_by_query.then_some(Unjudged::Method);
        }
        if !self.request.post {
            // of an unknown length it may be empty
            let has_body = length != BodyLength::Unknown;
            return has_body.then_some(Unjudged::Method);
        }
        let longest = self.longest_request(true);
        if matches!(length, BodyLength::Known(length) if length > longest) {
            return Some(Unjudged::Length);
        }
        let is_coded = self.request.coding == BodyCoding::Other;
        (is_coded || self.request.text.is_other).then_some(Unjudged::Coding)
    }

    /// Whether the connection becomes a WebSocket, where the operator lets it.
    pub(super) fn becomes_websocket(&self) -> bool {
        self.request.upgrade == Upgrade::WebSocket
    }

    /// Whether a node may switch protocols (101) here: where calls are judged only to what
    /// the client has asked for, and the operator allows.
    pub(super) fn may_switch<'a, I>(&self, head: &ResponseHead<I>) -> bool
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        let Some(policy) = self.config.policy() else {
            return true;
        };
        let mut switches_to = Upgrade::None;
        for (name, value) in head.fields.clone() {
            if name.eq_ignore_ascii_case(b"upgrade") {
                switches_to.read(value);
            }
        }
        policy.allows_websocket() && self.becomes_websocket() && switches_to == Upgrade::WebSocket
    }
}

impl Unjudged {
    /// Errors of JSON-RPC come with a 200, as nodes have it; what is wrong with the
    /// request that they are in does not.
    pub(super) fn status(self) -> u16 {
        match self {
            Unjudged::Syntax | Unjudged::Request(_) | Unjudged::Batch(_) => 200,
            Unjudged::Method => 405,
            Unjudged::Upgrade => 403,
            Unjudged::Length => 413,
            Unjudged::Coding => 415,
            Unjudged::Expectation => 417,
            Unjudged::Memory => 503,
        }
    }

    /// What such an answer has to say in its head.
    pub(super) fn field(self) -> Option<HeadEdit> {
        match self {
            Unjudged::Method => Some(HeadEdit::set("Allow", b"POST")),
            _ => None,
        }
    }

    pub(super) fn body(self) -> Vec<u8> {
        const PARSE: i32 = -32700;
        const REQUEST: i32 = -32600;
        const INTERNAL: i32 = -32603;
        let (code, message) = match self {
            Unjudged::Syntax => (PARSE, "it is not JSON".into()),
            Unjudged::Request(why) => (REQUEST, format!("it is not JSON-RPC 2.0: {why}")),
            Unjudged::Batch(most) => (REQUEST, format!("a batch may have {most} calls at most")),
            Unjudged::Method => (REQUEST, "what is called is POSTed".into()),
            Unjudged::Upgrade => (REQUEST, "what is called here is called by HTTP".into()),
            Unjudged::Length => (REQUEST, "it is too long".into()),
            Unjudged::Coding => (
                REQUEST,
                "its body is coded in a way that is not read".into(),
            ),
            Unjudged::Expectation => (REQUEST, "100-continue is not supported here".into()),
            Unjudged::Memory => (INTERNAL, "there is no memory to read it".into()),
        };
        let error = serde_json::json!({ "code": code, "message": message });
        format!("{{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{error}}}").into_bytes()
    }
}
