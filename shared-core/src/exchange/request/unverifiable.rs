//! Reasons to reject a request under a policy, and the responses to it.

use crate::exchange::machine::message_head::HeadEdit;
use crate::jsonrpc::request::RequestParseRefusal;

/// The reason why a request is rejected under a policy because its calls can't be verified.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchange) enum UnverifiableReason {
    /// The body is not JSON.
    Syntax,
    /// The body is not strictly JSON-RPC.
    Request(RequestParseRefusal),
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
    /// Memory is missing to read the body, or the host could not read it.
    Memory,
}

impl UnverifiableReason {
    /// Status of the response. Errors about calls are sent with 200, as nodes do; errors about
    /// the HTTP request are not.
    pub(in crate::exchange) fn rejection_status(self) -> u16 {
        match self {
            UnverifiableReason::Syntax
            | UnverifiableReason::Request(_)
            | UnverifiableReason::Batch(_) => 200,
            UnverifiableReason::Method => 405,
            UnverifiableReason::Upgrade => 403,
            UnverifiableReason::Length => 413,
            UnverifiableReason::Coding => 415,
            UnverifiableReason::Expectation => 417,
            UnverifiableReason::Memory => 503,
        }
    }

    /// Header that the response must have.
    pub(in crate::exchange) fn rejection_header(self) -> Option<HeadEdit> {
        match self {
            UnverifiableReason::Method => Some(HeadEdit::set_header("Allow", b"POST")),
            _ => None,
        }
    }

    /// Returns the body of the response, a JSON-RPC error without an id.
    pub(in crate::exchange) fn rejection_body(self) -> Vec<u8> {
        const PARSE: i32 = -32700;
        const REQUEST: i32 = -32600;
        const INTERNAL: i32 = -32603;
        let (code, message) = match self {
            UnverifiableReason::Syntax => (PARSE, "the request is not JSON".into()),
            UnverifiableReason::Request(why) => {
                (REQUEST, format!("the request is not JSON-RPC 2.0: {why}"))
            }
            UnverifiableReason::Batch(most) => {
                (REQUEST, format!("the batch has more than {most} calls"))
            }
            UnverifiableReason::Method => (REQUEST, "calls must be sent with POST".into()),
            UnverifiableReason::Upgrade => (
                REQUEST,
                "upgrades are not allowed here: send calls in HTTP requests".into(),
            ),
            UnverifiableReason::Length => (REQUEST, "the request is too long".into()),
            UnverifiableReason::Coding => (
                REQUEST,
                "the content coding or charset of the request is not supported".into(),
            ),
            UnverifiableReason::Expectation => (
                REQUEST,
                "\"Expect: 100-continue\" is not supported here".into(),
            ),
            UnverifiableReason::Memory => (
                INTERNAL,
                "the request can't be read: memory is short".into(),
            ),
        };
        let error = serde_json::json!({ "code": code, "message": message });
        format!("{{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{error}}}").into_bytes()
    }
}
