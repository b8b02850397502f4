//! The problem of a JSON-RPC response that is not cached.

use serde_json::Value;

use super::item::WarmRequest;
use crate::server_text::printable;

/// The code of JSON-RPC for an exceeded limit (EIP-1474), after which a call is repeated later.
pub const LIMIT_EXCEEDED: i64 = -32_005;

/// Maximum length of a response that is searched for an error of JSON-RPC.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// A response of JSON-RPC that is not cached.
#[derive(Debug, PartialEq, Eq)]
pub enum RpcProblem {
    /// An error.
    Error {
        /// The code; 0 if there is none.
        code: i64,
        /// Code and message, printable.
        text: String,
    },
    /// The result is `null`.
    Null,
}

/// Returns the error, or the absent result, of the response to a JSON-RPC request. Long responses
/// have a result.
pub fn find_rpc_problem(request: &WarmRequest, body: &[u8]) -> Option<RpcProblem> {
    if request.path.is_some() || body.len() > MAX_ERROR_BYTES {
        return None;
    }
    let json: Value = serde_json::from_slice(body).ok()?;
    match json.get("error") {
        None | Some(Value::Null) => {
            (json.get("result") == Some(&Value::Null)).then_some(RpcProblem::Null)
        }
        Some(error) => {
            let code = error["code"].as_i64().unwrap_or_default();
            let message = error["message"].as_str().unwrap_or_default();
            let text = format!("JSON-RPC error {code}: {}", printable(message));
            Some(RpcProblem::Error { code, text })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_null_of_json_rpc_are_found() {
        let call = WarmRequest::call("{}", b"eth_call");
        let long = format!(
            "{{\"result\":null,\"x\":\"{}\"}}",
            "x".repeat(MAX_ERROR_BYTES)
        );
        let error = |code: i64, text: &str| {
            let text = text.into();
            Some(RpcProblem::Error { code, text })
        };
        for (body, expected) in [
            (r#"{"result":null}"#, Some(RpcProblem::Null)),
            (r#"{"error":null,"result":1}"#, None),
            (
                r#"{"error":{"code":-32601,"message":"no \u001b method"}}"#,
                error(-32_601, "JSON-RPC error -32601: no \\u{1b} method"),
            ),
            (r#"{"error":"x"}"#, error(0, "JSON-RPC error 0: ")),
            (long.as_str(), None),
            ("[]", None),
            ("<html>", None),
        ] {
            assert_eq!(
                find_rpc_problem(&call, body.as_bytes()),
                expected,
                "{body:.60}"
            );
        }
        let get = WarmRequest::get("/".into());
        assert_eq!(find_rpc_problem(&get, b"{\"result\":null}"), None);
    }
}
