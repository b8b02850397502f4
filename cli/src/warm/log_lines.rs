//! The requests in a line of an access log, or of a file of requests.

use serde_json::Value;
use sszip_core::jsonrpc::request::JsonRpcCall;

use super::item::WarmRequest;
use crate::inspect::request_input::{
    describe_parse_failure, is_safe_name, parse_calls, parse_get_path,
};
use crate::server_text::printable;

/// The format of a file's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// JSON-RPC, or `GET /PATH`.
    Requests,
    /// A JSON object of an access log.
    Log,
}

/// Reads the requests in a line; a batch is one request for each call. Requests without a response
/// that can be cached are left out; `is_forced` keeps requests with unknown methods.
///
/// # Errors
/// The line is not in the format.
pub fn parse_line(
    format: LineFormat,
    line: &[u8],
    is_forced: bool,
) -> Result<Vec<WarmRequest>, String> {
    let line = line.trim_ascii();
    match format {
        _ if line.is_empty() => Ok(Vec::new()),
        LineFormat::Log => parse_log_line(line, is_forced),
        LineFormat::Requests => match line.strip_prefix(b"GET ") {
            Some(path) => parse_get(&String::from_utf8_lossy(path)).map(|get| vec![get]),
            None => {
                let unsafe_call = |name: &str| {
                    Err(format!(
                        "{} is not known to only read; --force allows it",
                        printable(name)
                    ))
                };
                parse_body(line, is_forced, unsafe_call)
            }
        },
    }
}

fn parse_log_line(line: &[u8], is_forced: bool) -> Result<Vec<WarmRequest>, String> {
    let json: Value = serde_json::from_slice(line)
        .map_err(|error| format!("not JSON at byte {}", error.column()))?;
    if !json.is_object() {
        return Err("no JSON object".into());
    }
    let text = |member: &str| json[member].as_str().unwrap_or_default();
    // nginx writes `-` or nothing for a request without a body, or with one in a file
    let body = text("body");
    if !matches!(body, "" | "-") {
        return parse_body(body.as_bytes(), is_forced, |_| Ok(()));
    }
    if let Some(path) = text("request").strip_prefix("GET ") {
        return Ok(vec![parse_get(path)?]);
    }
    match (text("method"), text("path")) {
        ("GET", path) if !path.is_empty() => Ok(vec![parse_get(path)?]),
        _ => Ok(Vec::new()),
    }
}

fn parse_get(path: &str) -> Result<WarmRequest, String> {
    parse_get_path(path).map(WarmRequest::get)
}

/// Reads the calls of a body. Notifications are left out; so are calls that may change something,
/// for which `unsafe_call` may return an error.
fn parse_body(
    body: &[u8],
    is_forced: bool,
    unsafe_call: impl Fn(&str) -> Result<(), String>,
) -> Result<Vec<WarmRequest>, String> {
    let mut requests = Vec::new();
    for call in parse_calls(body).map_err(describe_parse_failure)? {
        let name = String::from_utf8_lossy(call.method);
        if !is_forced && !is_safe_name(&name) {
            unsafe_call(&name)?;
        } else if call.id.is_some() {
            requests.push(WarmRequest::call(text_with_id_1(&call), call.method));
        }
    }
    Ok(requests)
}

/// Returns the text of a call with the id 1: clients number their calls, which are repetitions of
/// others nevertheless.
fn text_with_id_1(call: &JsonRpcCall<'_>) -> Vec<u8> {
    let mut text = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"".to_vec();
    text.extend_from_slice(call.method);
    text.push(b'"');
    if let Some(params) = call.params {
        text.extend_from_slice(b",\"params\":");
        text.extend_from_slice(params);
    }
    text.push(b'}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str =
        r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBalance","params":["0x1","0x2"]}"#;
    const SEND: &str =
        r#"{"jsonrpc":"2.0","id":8,"method":"eth_sendRawTransaction","params":["0x1"]}"#;
    const NOTIFICATION: &str = r#"{"jsonrpc":"2.0","method":"eth_chainId"}"#;

    fn log_line(body: &str) -> String {
        serde_json::json!({ "time": 1, "body": body }).to_string()
    }

    /// Returns the line of `CALL` for `--requests`.
    fn call_line() -> String {
        format!("{}\n", CALL.replace("\"id\":7", "\"id\":1"))
    }

    fn parse(format: LineFormat, line: &str) -> Result<Vec<String>, String> {
        let requests = parse_line(format, line.as_bytes(), false)?;
        Ok(requests.iter().map(WarmRequest::to_line).collect())
    }

    #[test]
    fn requests_of_a_log_are_read() {
        let call = call_line();
        for (line, expected) in [
            (log_line(CALL), vec![call.clone()]),
            (
                log_line(&format!("[{CALL}, {SEND},{NOTIFICATION},{CALL}]")),
                vec![call.clone(), call],
            ),
            (log_line(SEND), vec![]),
            (log_line("-"), vec![]),
            (log_line(""), vec![]),
            (
                r#"{"request":"GET /a?b HTTP/1.1","body":""}"#.into(),
                vec!["GET /a?b\n".into()],
            ),
            (r#"{"request":"POST /","body":""}"#.into(), vec![]),
            (
                r#"{"method":"GET","path":"/a?b"}"#.into(),
                vec!["GET /a?b\n".into()],
            ),
            (r#"{"method":"eth_call","path":""}"#.into(), vec![]),
            ("  \r".into(), vec![]),
            ("{}".into(), vec![]),
        ] {
            assert_eq!(parse(LineFormat::Log, &line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn requests_of_a_file_are_read() {
        let line = format!(" {CALL} \r\n");
        assert_eq!(parse(LineFormat::Requests, &line), Ok(vec![call_line()]));
        let without_params = r#"{"id":"a","jsonrpc":"2.0","method":"eth_chainId"}"#;
        let expected = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_chainId\"}\n";
        assert_eq!(
            parse(LineFormat::Requests, without_params),
            Ok(vec![expected.into()])
        );
        assert_eq!(
            parse(LineFormat::Requests, "GET /a\n"),
            Ok(vec!["GET /a\n".into()])
        );
        let sent = parse_line(LineFormat::Requests, SEND.as_bytes(), true).unwrap();
        assert_eq!(sent.len(), 1);
    }

    #[test]
    fn invalid_lines_are_reported_with_their_cause() {
        let open = r#"{"body":"a"#;
        for (format, line, expected) in [
            (LineFormat::Log, open, "not JSON at byte"),
            (
                LineFormat::Log,
                "127.0.0.1 - - [29/Nov/2026] \"GET / HTTP/1.1\"",
                "not JSON at byte",
            ),
            (LineFormat::Log, "[]", "no JSON object"),
            (LineFormat::Log, "\0\0", "not JSON at byte"),
            (LineFormat::Log, r#"{"body":"{"}"#, "not JSON: End"),
            (LineFormat::Log, r#"{"request":"GET a"}"#, "invalid path"),
            (LineFormat::Requests, "{}", "not strictly JSON-RPC"),
            (LineFormat::Requests, "POST /a", "not JSON"),
            (
                LineFormat::Requests,
                SEND,
                "eth_sendRawTransaction is not known to only read",
            ),
        ] {
            let error = parse(format, line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
        assert!(parse_line(LineFormat::Log, b"\xff\xfe", false).is_err());
    }
}
