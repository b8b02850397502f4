//! The requests of `inspect` and `warm`, as the user writes them.

use std::path::Path;

use hyper::body::Bytes;
use hyper::{Method, Uri};
use sszip_core::jsonrpc::methods::find_method_row;
use sszip_core::jsonrpc::request::{
    parse_jsonrpc_request, JsonRpcCall, JsonRpcRequestBody, RequestParseFailure,
};
use sszip_core::jsonrpc::safe_methods::is_safe_method;
use sszip_core::log::escape_log_bytes;

use crate::input;
use crate::server_text::printable;
use crate::CommandError;

/// A request for a cached route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRequest {
    /// GET, or POST for JSON-RPC.
    pub method: Method,
    /// The path and query of a GET; JSON-RPC is sent to the path of the URL.
    pub path: Option<String>,
    /// JSON-RPC, or empty.
    pub body: Bytes,
    /// The JSON-RPC methods of the calls, in their order.
    pub rpc_methods: Vec<String>,
}

impl CacheRequest {
    /// Reads the request of an argument: JSON-RPC, `@FILE`, `-`, or `GET /PATH`.
    pub fn from_argument(argument: &str) -> Result<Self, CommandError> {
        if let Some(path) = argument.strip_prefix("GET ") {
            let path = parse_get_path(path).map_err(CommandError::Usage)?;
            return Ok(Self::get(path));
        }
        let body = match argument.strip_prefix('@') {
            Some(path) => input::read_input(Some(Path::new(path)))?,
            None if argument == "-" => input::read_input(None)?,
            None => argument.as_bytes().to_vec(),
        };
        let rpc_methods = parse_rpc_methods(&body).map_err(|failure| {
            CommandError::Data(format!(
                "cannot read the request: {}; expected JSON-RPC 2.0, @FILE or - with it, or \
                 \"GET /PATH\"",
                describe_parse_failure(failure)
            ))
        })?;
        Ok(Self {
            method: Method::POST,
            path: None,
            body: body.into(),
            rpc_methods,
        })
    }

    /// Creates a GET for a path and query.
    pub fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path: Some(path),
            body: Bytes::new(),
            rpc_methods: Vec::new(),
        }
    }
}

fn parse_rpc_methods(body: &[u8]) -> Result<Vec<String>, RequestParseFailure> {
    let calls = parse_calls(body)?;
    let names = calls.iter().map(|call| escape_log_bytes(call.method));
    Ok(names.collect())
}

/// Parses the calls of a JSON-RPC request of any length, as the proxy does.
pub fn parse_calls(body: &[u8]) -> Result<Vec<JsonRpcCall<'_>>, RequestParseFailure> {
    Ok(match parse_jsonrpc_request(body, usize::MAX)? {
        JsonRpcRequestBody::Single(call) => vec![call],
        JsonRpcRequestBody::Batch(calls) => calls,
    })
}

/// Describes the reason for which a text is no JSON-RPC request, with the position of a syntax
/// error.
pub fn describe_parse_failure(failure: RequestParseFailure) -> String {
    match failure {
        RequestParseFailure::Syntax(error) => error.to_string(),
        failure => format!("not strictly JSON-RPC 2.0 ({failure})"),
    }
}

/// Parses the path and query of a GET; the version of HTTP may follow, as in an access log.
pub fn parse_get_path(text: &str) -> Result<String, String> {
    let path = text.trim();
    let path = match path.rsplit_once(' ') {
        Some((path, version)) if version.starts_with("HTTP/") => path,
        _ => path,
    };
    // a fragment is not sent
    let is_valid = path.is_ascii() && !path.contains('#') && path.parse::<Uri>().is_ok();
    match path.starts_with('/') && is_valid {
        true => Ok(path.into()),
        false => Err(format!(
            "invalid path \"{}\": expected /PATH, with other characters than those of a URL as %XX",
            printable(path)
        )),
    }
}

/// Returns the first of the JSON-RPC methods that is not known to only read.
pub fn find_unsafe_method(names: &[String]) -> Option<&str> {
    let mut names = names.iter().map(String::as_str);
    names.find(|name| !is_safe_name(name))
}

/// Whether a JSON-RPC method is known to only read.
pub fn is_safe_name(name: &str) -> bool {
    let name = name.as_bytes();
    is_safe_method(name, find_method_row(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_each_form_are_read() {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
        let request = CacheRequest::from_argument(call).unwrap();
        assert_eq!(request.method, Method::POST);
        assert_eq!((request.path, &request.body[..]), (None, call.as_bytes()));
        assert_eq!(request.rpc_methods, ["eth_chainId"]);
        let batch = CacheRequest::from_argument(&format!("[{call},{call}]")).unwrap();
        assert_eq!(batch.rpc_methods.len(), 2);
        let get = CacheRequest::from_argument("GET /eth/v1/beacon/genesis?a=%20 HTTP/1.1").unwrap();
        assert_eq!(
            get,
            CacheRequest::get("/eth/v1/beacon/genesis?a=%20".into())
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), call).unwrap();
        let from_file = format!("@{}", file.path().display());
        let request = CacheRequest::from_argument(&from_file).unwrap();
        assert_eq!(&request.body[..], call.as_bytes());
    }

    #[test]
    fn invalid_requests_are_rejected_with_their_position_or_rule() {
        for (argument, expected) in [
            ("", "not JSON: End"),
            (r#"{"a":1}"#, "unknown-member"),
            ("eth_chainId", "not JSON"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "no-method"),
            ("[]", "empty-batch"),
            ("PUT /x", "not JSON"),
            ("@/no/file", "cannot read /no/file"),
        ] {
            let CommandError::Data(text) = CacheRequest::from_argument(argument).unwrap_err()
            else {
                panic!("{argument} is no data error");
            };
            assert!(text.contains(expected), "{argument}: {text}");
        }
        for argument in [
            "GET relative",
            "GET ",
            "GET /a b",
            "GET /a\\b<",
            "GET /\u{1b}",
            "GET /a#b",
        ] {
            let error = CacheRequest::from_argument(argument).unwrap_err();
            let CommandError::Usage(text) = error else {
                panic!("{argument} is no usage error");
            };
            assert!(text.contains("invalid path"), "{text}");
        }
    }

    #[test]
    fn methods_that_may_change_something_are_found() {
        let names = |names: &[&str]| names.iter().map(|&name| name.into()).collect::<Vec<_>>();
        let found = names(&["eth_call", "eth_sendRawTransaction"]);
        assert_eq!(find_unsafe_method(&found), Some("eth_sendRawTransaction"));
        assert_eq!(find_unsafe_method(&names(&["acme_x"])), Some("acme_x"));
        assert_eq!(
            find_unsafe_method(&names(&["eth_call", "eth_chainId"])),
            None
        );
    }
}
