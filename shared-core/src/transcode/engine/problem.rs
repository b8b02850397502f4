//! Errors of the route (execution-apis, src/engine/refactor.md, "Error model"), and of
//! JSON-RPC.

use serde_json::{json, Value};

use crate::transcode::Why;

/// What an error of the route is sent as (RFC 7807).
pub const MEDIA_TYPE: &[u8] = b"application/problem+json";

/// Of an answer so many bytes are looked at for an error.
pub const LOOKED_AT: usize = 64 << 10;

/// One kind of error.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// The route's status.
    status: u16,
    /// What its `type` ends in.
    name: &'static str,
    /// JSON-RPC's codes that are this.
    codes: &'static [i64],
    /// JSON-RPC's code for it.
    code: i64,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $constant:ident = $status:literal $name:literal [$($codes:literal)*] $code:literal;)*) => {
        $($(#[$doc])* pub static $constant: Kind = Kind {
            status: $status,
            name: $name,
            codes: &[$($codes),*],
            code: $code,
        };)*
        static KINDS: &[&Kind] = &[$(&$constant),*];
    };
}

kinds! {
    /// It is no JSON.
    PARSE = 400 "parse-error" [-32700] -32700;
    /// It lacks something.
    REQUEST = 400 "invalid-request" [-32600] -32600;
    /// It is no SSZ of its type.
    DECODE = 400 "ssz-decode-error" [] -32602;
    /// The fork is not known, or not to the node.
    FORK = 400 "unsupported-fork" [-38005] -38005;
    /// There is no such route or method.
    METHOD = 404 "method-not-found" [-32601] -32601;
    /// There is no such payload.
    PAYLOAD = 404 "unknown-payload" [-38001] -38001;
    /// Of a forkchoice.
    FORKCHOICE = 409 "invalid-forkchoice" [-38002] -38002;
    /// The same.
    REORG = 409 "reorg-too-deep" [-38006] -38006;
    /// It is too long.
    LENGTH = 413 "request-too-large" [-38004] -38004;
    /// It is no SSZ, as its head says.
    MEDIA = 415 "unsupported-media-type" [] -32603;
    /// It has values that can't be.
    BODY = 422 "invalid-body" [-32602] -32602;
    /// Of a forkchoice.
    ATTRIBUTES = 422 "invalid-attributes" [-38003] -38003;
    /// The node has failed.
    INTERNAL = 500 "internal" [-32603 -32000] -32603;
    /// What the node has sent can't be had in the format that was asked for.
    GATEWAY = 502 "internal" [] -32603;
    /// There is no memory for it.
    BUSY = 503 "internal" [] -32603;
}

/// An error: what kind of it, and more, if there is more to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    kind: &'static Kind,
    detail: Option<String>,
}

impl Problem {
    /// One of that kind.
    pub fn new(kind: &'static Kind, detail: impl Into<Option<String>>) -> Self {
        let detail = detail.into();
        Self { kind, detail }
    }

    /// The error that the answer to a call begins with, of which there are
    /// [`LOOKED_AT`] bytes; `None`: it is none.
    pub fn of_call(answer: &[u8]) -> Option<Self> {
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

    /// The error that an answer of the route is, of which there are [`LOOKED_AT`] bytes;
    /// `None`: it is none.
    pub fn of_route(answer: &[u8]) -> Option<Self> {
        let answer: Value = serde_json::from_slice(answer).ok()?;
        let name = answer.get("type")?.as_str()?.rsplit('/').next()?;
        let kind = KINDS.iter().find(|kind| kind.name == name);
        let detail = answer.get("detail").and_then(Value::as_str);
        Some(Self::new(
            kind.unwrap_or(&&INTERNAL),
            detail.unwrap_or(name).to_owned(),
        ))
    }

    /// Why the route has no answer, of an answer to a call that begins with that.
    pub fn of_answer(begins: &[u8], why: &Why) -> Self {
        let of_call = match why {
            Why::Nothing => Self::of_call(begins),
            _ => None,
        };
        of_call.unwrap_or_else(|| {
            let detail = format!("this answer can't be had as SSZ: {why}");
            Self::new(&GATEWAY, detail)
        })
    }

    /// The same as an answer to the call with that id.
    pub fn to_call(&self, id: &[u8]) -> Vec<u8> {
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

    /// The status of an answer that says so.
    pub fn status(&self) -> u16 {
        self.kind.status
    }

    /// Its body.
    pub fn body(&self) -> Vec<u8> {
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
    fn errors_of_calls_have_their_place() {
        let of = |code: i64| {
            let answer =
                json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "m"}});
            let problem = Problem::of_call(answer.to_string().as_bytes()).unwrap();
            let body: Value = serde_json::from_slice(&problem.body()).unwrap();
            assert_eq!(body["detail"], "m");
            let name = body["type"].as_str().unwrap();
            let name = name.strip_prefix("/engine-api/errors/").unwrap();
            (problem.status(), name.to_owned())
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
    fn errors_of_the_route_have_their_code() {
        let of = |name: &str| {
            let problem = json!({"type": format!("/engine-api/errors/{name}"), "detail": "d\"é"});
            let problem = Problem::of_route(problem.to_string().as_bytes()).unwrap();
            let answer: Value = serde_json::from_slice(&problem.to_call(b"\"a\"")).unwrap();
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
        let bare = Problem::of_route(br#"{"type":"/engine-api/errors/unsupported-fork"}"#);
        let said = bare.unwrap().to_call(b"1");
        assert!(said.ends_with(br#""message":"unsupported-fork"}}"#));
        for none in ["", "{}", "[]", r#"{"type":1}"#, r#"{"error":{"code":1}}"#] {
            assert_eq!(Problem::of_route(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn what_is_no_error_is_none() {
        for answer in [
            "",
            "null",
            r#"{"error":null}"#,
            r#"{"error":{"message":"m"}}"#,
            r#"{"error":{"code":"1"}}"#,
            r#"{"result":{}}"#,
            r#"{"error":{"code":1}"#,
        ] {
            assert_eq!(Problem::of_call(answer.as_bytes()), None, "{answer}");
        }
        let bare = Problem::of_call(br#"{"error":{"code":-32601}}"#).unwrap();
        assert_eq!(
            bare.body(),
            br#"{"type":"/engine-api/errors/method-not-found"}"#
        );
    }
}
