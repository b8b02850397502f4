//! JSON-RPC 2.0 over any source of responses, with geth's errors.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::{RawValue, Value};

use crate::body_slices::SharedBodySlices;
use crate::responses::{deserialize_present_member, RecordedResponse};
use crate::stats::RequestCounters;
use crate::witness::{WitnessFormat, WitnessGenerator};

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
/// Code that geth uses for most errors.
const SERVER_ERROR: i32 = -32000;

/// Name of the options for batches.
pub const BATCH_OPTIONS: &str = "batch";

/// A JSON-RPC error object: code, message and data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    code: i32,
    message: String,
    data: Option<String>,
}

impl RpcError {
    pub fn new(code: i32, message: &str) -> Self {
        Self {
            code,
            message: message.to_owned(),
            data: None,
        }
    }

    /// Creates the error for invalid params.
    pub fn invalid_params(message: &str) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    pub fn server_error(message: &str) -> Self {
        Self::new(SERVER_ERROR, message)
    }

    pub fn with_data(self, data: String) -> Self {
        Self {
            data: Some(data),
            ..self
        }
    }
}

/// The result of the search for the response to one call.
#[derive(Debug)]
pub enum ReplayLookupResult<'a> {
    Answer(&'a RecordedResponse),
    /// A result that was generated for this call, as JSON.
    Result(String),
    /// A result that is generated while it is sent.
    Witness(&'a WitnessGenerator, WitnessFormat),
    Failure(RpcError),
    UnknownParams,
    UnknownMethod,
}

/// A responder to JSON-RPC calls: the table of recordings or the simulated chain.
pub trait CallResponder {
    /// Finds the response to a call, and counts the call unless the method is unknown.
    fn find_response_to_call(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> ReplayLookupResult<'_>;
}

/// The reply to one JSON-RPC request body, a call or a batch, with the name of its options.
#[derive(Debug)]
pub struct RequestBodyReply<'a> {
    /// The called method, or [`BATCH_OPTIONS`]; empty for a body that is not a call.
    pub method: Cow<'a, str>,
    pub reply: ReplayRpcReply<'a>,
}

/// The reply to a call or a batch: a recorded one with the caller's id, or a generated one.
#[derive(Debug)]
pub enum ReplayRpcReply<'a> {
    Recorded {
        answer: &'a RecordedResponse,
        id: &'a str,
    },
    Witness {
        witness: Cow<'a, WitnessGenerator>,
        shape: WitnessFormat,
        id: &'a str,
    },
    Generated(SharedBodySlices),
}

impl ReplayRpcReply<'_> {
    pub fn body_slices(&self) -> SharedBodySlices {
        match self {
            ReplayRpcReply::Recorded { answer, id } => answer.body_with_id(id),
            ReplayRpcReply::Witness { witness, shape, id } => {
                witness.build_complete_response(*shape, id)
            }
            ReplayRpcReply::Generated(payload) => payload.clone(),
        }
    }

    pub fn gzipped_body(&self) -> Bytes {
        match self {
            ReplayRpcReply::Recorded { answer, id } => answer.gzipped_with_id(id),
            _ => self.body_slices().compress_to_gzip(),
        }
    }

    fn error_reply(id: &str, code: i32, message: &str) -> Self {
        Self::failure_reply(id, &RpcError::new(code, message))
    }

    fn failure_reply(id: &str, failure: &RpcError) -> Self {
        let code = failure.code;
        let message = Value::from(failure.message.as_str());
        let data = failure.data.as_deref().map(Value::from);
        let data = data.map_or_else(String::new, |data| format!(r#","data":{data}"#));
        ReplayRpcReply::Generated(SharedBodySlices::from(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#
        )))
    }
}

/// The members of a JSON-RPC request object.
#[derive(Deserialize)]
struct RpcRequestMembers<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "deserialize_present_member")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present_member")]
    id: Option<&'a RawValue>,
}

/// Responds to a JSON-RPC request body: a call or a batch.
pub fn respond_to_body<'a>(
    body: &'a [u8],
    answers: &'a impl CallResponder,
    stats: &RequestCounters,
) -> RequestBodyReply<'a> {
    let Ok(text) = serde_json::from_slice::<&RawValue>(body) else {
        stats.count_invalid_call();
        return invalid_body_reply(ReplayRpcReply::error_reply(
            "null",
            PARSE_ERROR,
            "parse error",
        ));
    };
    if text.get().starts_with('[') {
        return respond_to_batch(text.get(), answers, stats);
    }
    let (method, reply) = respond_to_call(text.get(), answers, stats);
    RequestBodyReply {
        method,
        reply: reply.unwrap_or_else(|| ReplayRpcReply::Generated(SharedBodySlices::default())),
    }
}

/// Responds to each call of a batch in order. A batch of notifications has an empty body; an empty
/// batch is an error.
fn respond_to_batch<'a>(
    text: &'a str,
    answers: &'a impl CallResponder,
    stats: &RequestCounters,
) -> RequestBodyReply<'a> {
    stats.count_batch();
    let members: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    if members.is_empty() {
        stats.count_invalid_call();
        return invalid_body_reply(ReplayRpcReply::error_reply(
            "null",
            INVALID_REQUEST,
            "empty batch",
        ));
    }
    let mut payload = SharedBodySlices::default();
    for member in members {
        let (_, Some(reply)) = respond_to_call(member.get(), answers, stats) else {
            continue;
        };
        let separator: &[u8] = if payload.len() == 0 { b"[" } else { b"," };
        payload.push(Bytes::from_static(separator));
        payload.append_slices(reply.body_slices());
    }
    if payload.len() > 0 {
        payload.push(Bytes::from_static(b"]"));
    }
    RequestBodyReply {
        method: Cow::Borrowed(BATCH_OPTIONS),
        reply: ReplayRpcReply::Generated(payload.into_fewer_slices()),
    }
}

/// Responds to one call; a notification has no response.
fn respond_to_call<'a>(
    text: &'a str,
    answers: &'a impl CallResponder,
    stats: &RequestCounters,
) -> (Cow<'a, str>, Option<ReplayRpcReply<'a>>) {
    // serde would read an array as a struct's members in order.
    let call = text
        .starts_with('{')
        .then(|| serde_json::from_str::<RpcRequestMembers>(text).ok())
        .flatten();
    let Some(call) = call else {
        stats.count_invalid_call();
        return invalid_request_reply("null");
    };
    let id = call.id.map(RawValue::get);
    let method = match (call.method, call.jsonrpc.as_deref()) {
        (Some(method), Some("2.0")) if !method.is_empty() && !id.is_some_and(is_json_container) => {
            method
        }
        _ => {
            stats.count_invalid_call();
            return invalid_request_reply(id.filter(|id| !is_json_container(id)).unwrap_or("null"));
        }
    };
    let found = answers.find_response_to_call(&method, call.params);
    if matches!(found, ReplayLookupResult::UnknownMethod) {
        stats.count_unknown_method(&method);
    }
    let Some(id) = id else {
        return (method, None);
    };
    let reply = match found {
        ReplayLookupResult::Answer(answer) => ReplayRpcReply::Recorded { answer, id },
        ReplayLookupResult::Witness(witness, shape) => ReplayRpcReply::Witness {
            witness: Cow::Borrowed(witness),
            shape,
            id,
        },
        ReplayLookupResult::Result(json) => ReplayRpcReply::Generated(SharedBodySlices::from(
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{json}}}"#),
        )),
        ReplayLookupResult::Failure(failure) => ReplayRpcReply::failure_reply(id, &failure),
        ReplayLookupResult::UnknownParams => {
            let message = format!("the method {method} is not available with these params");
            ReplayRpcReply::error_reply(id, METHOD_NOT_FOUND, &message)
        }
        ReplayLookupResult::UnknownMethod => {
            let message = format!("the method {method} does not exist/is not available");
            ReplayRpcReply::error_reply(id, METHOD_NOT_FOUND, &message)
        }
    };
    (method, Some(reply))
}

/// Whether an id is an object or an array; geth accepts any scalar.
fn is_json_container(id: &str) -> bool {
    id.starts_with(['{', '['])
}

fn invalid_request_reply(id: &str) -> (Cow<'static, str>, Option<ReplayRpcReply<'static>>) {
    let reply = ReplayRpcReply::error_reply(id, INVALID_REQUEST, "invalid request");
    (Cow::Borrowed(""), Some(reply))
}

fn invalid_body_reply(reply: ReplayRpcReply<'_>) -> RequestBodyReply<'_> {
    RequestBodyReply {
        method: Cow::Borrowed(""),
        reply,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::responses::ResponseTable;

    fn table() -> ResponseTable {
        let mut answers = ResponseTable::new(false);
        let recorded = [
            ("a", "[]", r#"{"jsonrpc":"2.0","id":1,"result":"A"}"#),
            ("b", r#"[{"x":1,"y":"z"}]"#, r#"{"result":"B","id":1}"#),
        ];
        for (method, params, response) in recorded {
            let answer = Arc::new(RecordedResponse::from_recorded_json(response).unwrap());
            answers.insert_recorded_response(
                method,
                Some(serde_json::from_str(params).unwrap()),
                answer,
            );
        }
        answers
    }

    fn response_to(body: &str) -> String {
        let answers = table();
        let exchange = respond_to_body(body.as_bytes(), &answers, &RequestCounters::default());
        String::from_utf8(exchange.reply.body_slices().to_single_slice().to_vec()).unwrap()
    }

    #[test]
    fn call_receives_its_result_or_geths_error() {
        let cases = [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#,
                r#"{"jsonrpc":"2.0","id":1,"result":"A"}"#,
            ),
            (
                r#"{"method":"a","params":null,"id":null,"jsonrpc":"2.0"}"#,
                r#"{"jsonrpc":"2.0","id":null,"result":"A"}"#,
            ),
            (
                r#" {"jsonrpc":"2.0","id":1.50,"method":"b","params":[ {"y":"z", "x":1} ]} "#,
                r#"{"result":"B","id":1.50}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":"\u0041\"","method":"\u0061","extra":{}}"#,
                r#"{"jsonrpc":"2.0","id":"\u0041\"","result":"A"}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":18446744073709551617,"method":"a"}"#,
                r#"{"jsonrpc":"2.0","id":18446744073709551617,"result":"A"}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"c\""}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"the method c\" does not exist/is not available"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[1]}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"the method a is not available with these params"}}"#,
            ),
            (r#"{"jsonrpc":"2.0","method":"a"}"#, ""),
            (
                r#"{"jsonrpc":"1.0","id":3,"method":"a"}"#,
                r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32600,"message":"invalid request"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":[3],"method":"a"}"#,
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request"}}"#,
            ),
            (
                r#"7"#,
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request"}}"#,
            ),
            (
                r#"{"jsonrpc""#,
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}"#,
            ),
            (
                "",
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}"#,
            ),
        ];
        for (body, expected) in cases {
            assert_eq!(response_to(body), expected, "{body}");
        }
    }

    /// A source of a test, which generates results and errors.
    struct GeneratingSource;

    impl CallResponder for GeneratingSource {
        fn find_response_to_call(
            &self,
            method: &str,
            _: Option<&RawValue>,
        ) -> ReplayLookupResult<'_> {
            match method {
                "result" => ReplayLookupResult::Result("[1]".to_owned()),
                "failure" => ReplayLookupResult::Failure(RpcError::server_error("no \"x\"")),
                _ => ReplayLookupResult::Failure(
                    RpcError::new(3, "reverted").with_data("0x01".to_owned()),
                ),
            }
        }
    }

    #[test]
    fn generated_result_and_error_have_the_calls_id() {
        let cases = [
            ("result", r#""result":[1]"#),
            ("failure", r#""error":{"code":-32000,"message":"no \"x\""}"#),
            (
                "revert",
                r#""error":{"code":3,"message":"reverted","data":"0x01"}"#,
            ),
        ];
        for (method, expected) in cases {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1.0,"method":"{method}"}}"#);
            let exchange = respond_to_body(
                body.as_bytes(),
                &GeneratingSource,
                &RequestCounters::default(),
            );
            let expected = format!(r#"{{"jsonrpc":"2.0","id":1.0,{expected}}}"#);
            assert_eq!(exchange.reply.body_slices().to_single_slice(), expected);
        }
    }

    #[test]
    fn batch_member_without_id_has_no_response_and_invalid_one_an_error() {
        let cases = [
            (
                "[]",
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"empty batch"}}"#,
            ),
            (r#"[{"jsonrpc":"2.0","method":"a"}]"#, ""),
            (
                r#"[{"jsonrpc":"2.0","id":"x","method":"a"}, {"jsonrpc":"2.0","method":"a"}, 1,{"jsonrpc":"2.0","id":2,"method":"a"}]"#,
                r#"[{"jsonrpc":"2.0","id":"x","result":"A"},{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request"}},{"jsonrpc":"2.0","id":2,"result":"A"}]"#,
            ),
        ];
        for (body, expected) in cases {
            assert_eq!(response_to(body), expected, "{body}");
        }
    }
}
