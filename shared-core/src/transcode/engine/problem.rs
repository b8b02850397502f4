//! Errors of the REST route (execution-apis, src/engine/refactor.md, "Error model") and of
//! JSON-RPC.

use serde_json::{json, Value};

use crate::transcode::TranscodeError;

/// Media type of an error of the route (RFC 7807).
pub const PROBLEM_MEDIA_TYPE: &[u8] = b"application/problem+json";

/// Maximum number of bytes of a response that are searched for an error.
pub const MAX_ERROR_BYTES: usize = 64 << 10;

/// A kind of error of the witness bridge, with its HTTP status and its codes of JSON-RPC.
#[derive(Debug, PartialEq, Eq)]
pub struct WitnessBridgeErrorKind {
    /// HTTP status of the route's response.
    status: u16,
    /// Last segment of the member `type`.
    name: &'static str,
    /// JSON-RPC codes that are mapped to this kind.
    codes: &'static [i64],
    /// JSON-RPC code to which this kind is mapped.
    code: i64,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $constant:ident = $status:literal $name:literal [$($codes:literal)*] $code:literal;)*) => {
        $($(#[$doc])* pub static $constant: WitnessBridgeErrorKind = WitnessBridgeErrorKind {
            status: $status,
            name: $name,
            codes: &[$($codes),*],
            code: $code,
        };)*
        static KINDS: &[&WitnessBridgeErrorKind] = &[$(&$constant),*];
    };
}

kinds! {
    /// The request is not JSON.
    PARSE = 400 "parse-error" [-32700] -32700;
    /// The request lacks a member.
    REQUEST = 400 "invalid-request" [-32600] -32600;
    /// The body is not valid SSZ of its type.
    DECODE = 400 "ssz-decode-error" [] -32602;
    /// The fork is not known to the proxy or to the node.
    FORK = 400 "unsupported-fork" [-38005] -38005;
    /// The route or the method does not exist.
    METHOD = 404 "method-not-found" [-32601] -32601;
    /// The payload does not exist.
    PAYLOAD = 404 "unknown-payload" [-38001] -38001;
    /// The forkchoice is invalid.
    FORKCHOICE = 409 "invalid-forkchoice" [-38002] -38002;
    /// The forkchoice requires a reorg that is too deep.
    REORG = 409 "reorg-too-deep" [-38006] -38006;
    /// The request is too long.
    LENGTH = 413 "request-too-large" [-38004] -38004;
    /// The request's head declares a media type other than SSZ.
    MEDIA = 415 "unsupported-media-type" [] -32603;
    /// The body has invalid values.
    BODY = 422 "invalid-body" [-32602] -32602;
    /// The payload attributes of a forkchoice are invalid.
    ATTRIBUTES = 422 "invalid-attributes" [-38003] -38003;
    /// The node has failed.
    INTERNAL = 500 "internal" [-32603 -32000] -32603;
    /// The node's response is not available in the requested format.
    GATEWAY = 502 "internal" [] -32603;
    /// Memory is refused.
    BUSY = 503 "internal" [] -32603;
}

/// An error of the witness bridge that is sent to a client: its kind, and a detail where one is
/// known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessBridgeError {
    kind: &'static WitnessBridgeErrorKind,
    detail: Option<String>,
}

impl WitnessBridgeError {
    /// Creates an error of the given kind.
    pub fn new(kind: &'static WitnessBridgeErrorKind, detail: impl Into<Option<String>>) -> Self {
        let detail = detail.into();
        Self { kind, detail }
    }

    /// Reads the error from the first [`MAX_ERROR_BYTES`] bytes of a JSON-RPC response. Returns
    /// `None` if the response is no error.
    pub fn from_rpc_error(answer: &[u8]) -> Option<Self> {
        let answer: Value = serde_json::from_slice(answer).ok()?;
        let error = answer.get("error")?.as_object()?;
        let code = error.get("code")?.as_i64()?;
        let kind = KINDS.iter().find(|kind| kind.codes.contains(&code));
        let message = error.get("message").and_then(Value::as_str);
        Some(Self::new(
            kind.unwrap_or(&&INTERNAL),
            message.map(str::to_owned),
        ))
    }

    /// Reads the error from the first [`MAX_ERROR_BYTES`] bytes of a response of the route. Returns
    /// `None` if the response is no error.
    pub fn from_rest_error_response(answer: &[u8]) -> Option<Self> {
        let answer: Value = serde_json::from_slice(answer).ok()?;
        let name = answer.get("type")?.as_str()?.rsplit('/').next()?;
        let kind = KINDS.iter().find(|kind| kind.name == name);
        let detail = answer.get("detail").and_then(Value::as_str);
        Some(Self::new(
            kind.unwrap_or(&&INTERNAL),
            detail.unwrap_or(name).to_owned(),
        ))
    }

    /// Returns the error of the route for a JSON-RPC response that can't be transcoded. `begins` is
    /// the beginning of the response.
    pub fn from_rpc_error_response(begins: &[u8], why: &TranscodeError) -> Self {
        let of_call = match why {
            TranscodeError::NoValue => Self::from_rpc_error(begins),
            _ => None,
        };
        of_call.unwrap_or_else(|| {
            let detail = format!("the response is not available as SSZ: {why}");
            Self::new(&GATEWAY, detail)
        })
    }

    /// Formats the error as the JSON-RPC response to the call with the id `id`.
    pub fn to_rpc_error_response(&self, id: &[u8]) -> Vec<u8> {
        let message = self.detail.as_deref().unwrap_or(self.kind.name);
        let error = json!({ "code": self.kind.code, "message": message }).to_string();
        [
            b"{\"jsonrpc\":\"2.0\",\"id\":",
            id,
            b",\"error\":",
            error.as_bytes(),
            b"}",
        ]
        .concat()
    }

    /// Returns the HTTP status of the REST response that reports the error.
    pub fn http_status(&self) -> u16 {
        self.kind.status
    }

    /// Formats the body of the REST response that reports the error (RFC 7807).
    pub fn http_problem_body(&self) -> Vec<u8> {
        let mut problem = json!({ "type": format!("/engine-api/errors/{}", self.kind.name) });
        if let Some(detail) = &self.detail {
            problem["detail"] = detail.as_str().into();
        }
        problem.to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rpc_errors_are_mapped_to_problems_of_the_route() {
        let of = |code: i64| {
            let answer =
                json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "m"}});
            let problem =
                WitnessBridgeError::from_rpc_error(answer.to_string().as_bytes()).unwrap();
            let body: Value = serde_json::from_slice(&problem.http_problem_body()).unwrap();
            assert_eq!(body["detail"], "m");
            let name = body["type"].as_str().unwrap();
            let name = name.strip_prefix("/engine-api/errors/").unwrap();
            (problem.http_status(), name.to_owned())
        };
        for (code, status, name) in [
            (-32700, 400, "parse-error"),
            (-32600, 400, "invalid-request"),
            (-38005, 400, "unsupported-fork"),
            (-32601, 404, "method-not-found"),
            (-38001, 404, "unknown-payload"),
            (-38002, 409, "invalid-forkchoice"),
            (-38006, 409, "reorg-too-deep"),
            (-38004, 413, "request-too-large"),
            (-32602, 422, "invalid-body"),
            (-38003, 422, "invalid-attributes"),
            (-32603, 500, "internal"),
            (-32000, 500, "internal"),
            (4444, 500, "internal"),
        ] {
            assert_eq!(of(code), (status, name.to_owned()));
        }
    }

    #[test]
    fn problems_of_the_route_are_mapped_to_rpc_codes() {
        let of = |name: &str| {
            let problem = json!({"type": format!("/engine-api/errors/{name}"), "detail": "d\"é"});
            let problem =
                WitnessBridgeError::from_rest_error_response(problem.to_string().as_bytes())
                    .unwrap();
            let answer: Value =
                serde_json::from_slice(&problem.to_rpc_error_response(b"\"a\"")).unwrap();
            assert_eq!(
                (&answer["jsonrpc"], &answer["id"]),
                (&json!("2.0"), &json!("a"))
            );
            assert_eq!(answer["error"]["message"], "d\"é");
            answer["error"]["code"].as_i64().unwrap()
        };
        for (name, code) in [
            ("parse-error", -32700),
            ("invalid-request", -32600),
            ("ssz-decode-error", -32602),
            ("unsupported-fork", -38005),
            ("method-not-found", -32601),
            ("unknown-payload", -38001),
            ("request-too-large", -38004),
            ("unsupported-media-type", -32603),
            ("invalid-body", -32602),
            ("internal", -32603),
            ("service-unavailable", -32603),
        ] {
            assert_eq!(of(name), code, "{name}");
        }
        let bare = WitnessBridgeError::from_rest_error_response(
            br#"{"type":"/engine-api/errors/unsupported-fork"}"#,
        );
        let call = bare.unwrap().to_rpc_error_response(b"1");
        assert!(call.ends_with(br#""message":"unsupported-fork"}}"#));
        for none in ["", "{}", "[]", r#"{"type":1}"#, r#"{"error":{"code":1}}"#] {
            assert_eq!(
                WitnessBridgeError::from_rest_error_response(none.as_bytes()),
                None,
                "{none}"
            );
        }
    }

    #[test]
    fn response_without_an_error_gives_no_problem() {
        for answer in [
            "",
            "null",
            r#"{"error":null}"#,
            r#"{"error":{"message":"m"}}"#,
            r#"{"error":{"code":"1"}}"#,
            r#"{"result":{}}"#,
            r#"{"error":{"code":1}"#,
        ] {
            assert_eq!(
                WitnessBridgeError::from_rpc_error(answer.as_bytes()),
                None,
                "{answer}"
            );
        }
        let bare = WitnessBridgeError::from_rpc_error(br#"{"error":{"code":-32601}}"#).unwrap();
        assert_eq!(
            bare.http_problem_body(),
            br#"{"type":"/engine-api/errors/method-not-found"}"#
        );
    }
}
