//! Reasons to reject a request under a policy, and the responses to it.

use super::head::HeadEdit;
use crate::jsonrpc::request::Refusal;

/// The reason why the calls of a request can't be verified.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unjudged {
    /// The body is not JSON.
    Syntax,
    /// The body is not strictly JSON-RPC.
    Request(Refusal),
    /// The batch has more calls than this maximum.
    Batch(usize),
    /// The request has a body, or names a method in its query, and is no POST.
    Method,
    /// The connection changes its protocol.
    Upgrade,
    /// The body is too long.
    Length,
    /// The body has a content coding that is not decompressed here, or is text in another
    /// encoding than UTF-8.
    Coding,
    /// The client waits for a 100 (Continue) that the host does not send.
    Expectation,
    /// There is no memory to read the body, or the host could not read it.
    Memory,
}

impl Unjudged {
    /// Status of the response. Errors about calls are sent with 200, as nodes do; errors about
    /// the HTTP request are not.
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

    /// Header that the response must have.
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
