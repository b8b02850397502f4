//! Reasons to reject a request under a policy, or an invalid QUERY, and the responses to it.

use crate::exchange::machine::message_head::HeadEdit;
use crate::jsonrpc::request::RequestParseFailure;

/// The reason why a request is rejected: its calls can't be verified under a policy, or it is an
/// invalid QUERY.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchange) enum UnverifiableRequestReason {
    /// The body is not JSON.
    Syntax,
    /// The body is not strictly JSON-RPC.
    Request(RequestParseFailure),
    /// The batch has more calls than this maximum.
    Batch(usize),
    /// The request has a body, or names a method in its query, and is no POST.
    Method,
    /// The request is a GET of the REST Engine API, whose methods are denied.
    EngineApi,
    /// The request is a QUERY without `Content-Type`.
    UntypedQuery,
    /// The request is a QUERY whose content is declared as another type than JSON.
    QueryType,
    /// The request is a QUERY with a call that may change something.
    UnsafeQuery,
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

impl UnverifiableRequestReason {
    /// Status of the response. Errors about calls are sent with 200, as nodes do, but to a QUERY as
    /// RFC 10008, 2.1 defines them; errors about the HTTP request are not.
    pub(in crate::exchange) fn rejection_status(self, is_query: bool) -> u16 {
        match self {
            UnverifiableRequestReason::Syntax if is_query => 400,
            UnverifiableRequestReason::Request(_) | UnverifiableRequestReason::Batch(_)
                if is_query =>
            {
                422
            }
            UnverifiableRequestReason::Syntax
            | UnverifiableRequestReason::Request(_)
            | UnverifiableRequestReason::Batch(_) => 200,
            UnverifiableRequestReason::Method | UnverifiableRequestReason::UnsafeQuery => 405,
            UnverifiableRequestReason::UntypedQuery => 400,
            UnverifiableRequestReason::QueryType => 415,
            UnverifiableRequestReason::EngineApi => 404,
            UnverifiableRequestReason::Upgrade => 403,
            UnverifiableRequestReason::Length => 413,
            UnverifiableRequestReason::Coding => 415,
            UnverifiableRequestReason::Expectation => 417,
            UnverifiableRequestReason::Memory => 503,
        }
    }

    /// Header that the response must have.
    pub(in crate::exchange) fn rejection_header(self) -> Option<HeadEdit> {
        match self {
            UnverifiableRequestReason::Method | UnverifiableRequestReason::UnsafeQuery => {
                Some(HeadEdit::set_header("Allow", b"POST"))
            }
            _ => None,
        }
    }

    /// Returns the body of the response, a JSON-RPC error without an id.
    pub(in crate::exchange) fn rejection_body(self) -> Vec<u8> {
        const PARSE: i32 = -32700;
        const REQUEST: i32 = -32600;
        const METHOD: i32 = -32601;
        const INTERNAL: i32 = -32603;
        let (code, message) = match self {
            UnverifiableRequestReason::Syntax => (PARSE, "the request is not JSON".into()),
            UnverifiableRequestReason::Request(why) => {
                (REQUEST, format!("the request is not JSON-RPC 2.0: {why}"))
            }
            UnverifiableRequestReason::Batch(most) => {
                (REQUEST, format!("the batch has more than {most} calls"))
            }
            UnverifiableRequestReason::Method => (REQUEST, "calls must be sent with POST".into()),
            UnverifiableRequestReason::EngineApi => {
                (METHOD, "the Engine API is not available here".into())
            }
            UnverifiableRequestReason::UntypedQuery => (
                REQUEST,
                "a QUERY must have a Content-Type: application/json".into(),
            ),
            UnverifiableRequestReason::QueryType => (
                REQUEST,
                "the content of a QUERY must be application/json".into(),
            ),
            UnverifiableRequestReason::UnsafeQuery => (
                REQUEST,
                "a QUERY may only call methods that are known to change nothing: send this one \
                 with POST"
                    .into(),
            ),
            UnverifiableRequestReason::Upgrade => (
                REQUEST,
                "upgrades are not allowed here: send calls in HTTP requests".into(),
            ),
            UnverifiableRequestReason::Length => (REQUEST, "the request is too long".into()),
            UnverifiableRequestReason::Coding => (
                REQUEST,
                "the content coding or charset of the request is not supported".into(),
            ),
            UnverifiableRequestReason::Expectation => (
                REQUEST,
                "\"Expect: 100-continue\" is not supported here".into(),
            ),
            UnverifiableRequestReason::Memory => (
                INTERNAL,
                "the request can't be read: memory is short".into(),
            ),
        };
        let error = serde_json::json!({ "code": code, "message": message });
        format!("{{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{error}}}").into_bytes()
    }
}
