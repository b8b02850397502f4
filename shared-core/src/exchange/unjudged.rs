//! Why a request is refused where calls are judged, and the answer that it gets.

use super::head::HeadEdit;
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
