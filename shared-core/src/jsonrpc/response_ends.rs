//! Positions of the parts of a response, found at its beginning and its end.
//!
//! Reading a response strictly takes longer than all other work of the cache. Nodes write responses
//! in few ways, so that the beginning and the end show the positions of id and result, *if the text
//! between them is one JSON value*. That is enough to send the same bytes again under the same id.
//! Replacing the id requires that [`parse_jsonrpc_response`](super::response::parse_jsonrpc_response) finds the
//! same positions.

use std::ops::Range;

use super::response::{CallOutcomeSpan, JsonRpcResponse};

/// Beginnings of responses, up to the id or the result.
const BEFORE_ID: [&[u8]; 2] = [b"{\"jsonrpc\":\"2.0\",\"id\":", b"{\"id\":"];
const BEFORE_RESULT: &[u8] = b"{\"jsonrpc\":\"2.0\",\"result\":";

/// Text between id and result, for each of [`BEFORE_ID`].
const BETWEEN_ID_AND_RESULT: [&[u8]; 2] = [b",\"result\":", b",\"jsonrpc\":\"2.0\",\"result\":"];

/// Returns the only possible positions of the parts of a successful response under `id`;
/// `None` if the response begins or ends differently.
pub fn locate_result(body: &[u8], id: &[u8]) -> Option<JsonRpcResponse> {
    let inner = body.trim_ascii_end().strip_suffix(b"}")?;
    let (id, result) = locate_id_first(inner, id).or_else(|| locate_id_last(inner, id))?;
    let ends = [
        *inner[result.clone()].first()?,
        *inner[result.clone()].last()?,
    ];
    let is_closed = matches!(&ends, b"{}" | b"[]" | b"\"\"");
    (is_closed && result.len() > 1).then_some(JsonRpcResponse {
        span: 0..body.len(),
        id,
        outcome: CallOutcomeSpan::Result(result),
    })
}

/// Returns the positions of the id and the result in `inner`, if the id precedes the result in one
/// of the usual notations.
fn locate_id_first(inner: &[u8], id: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
    BEFORE_ID
        .iter()
        .zip(BETWEEN_ID_AND_RESULT)
        .find_map(|(before, between)| {
            let rest = inner.strip_prefix(*before)?.strip_prefix(id)?;
            let result = rest.strip_prefix(between)?;
            let start = before.len();
            Some((
                start..start + id.len(),
                inner.len() - result.len()..inner.len(),
            ))
        })
}

/// Returns the positions of the id and the result in `inner`, if the id is the last member in the
/// usual notation.
fn locate_id_last(inner: &[u8], id: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
    let start = inner.strip_suffix(id)?.len();
    let result = inner[..start].strip_suffix(b",\"id\":")?;
    result.strip_prefix(BEFORE_RESULT)?;
    Some((start..start + id.len(), BEFORE_RESULT.len()..result.len()))
}

#[cfg(test)]
mod tests {
    use super::super::response::parse_jsonrpc_response;
    use super::locate_result;

    const RESULTS: [&str; 5] = ["[]", "{\"a\":\"}\"}", "\"0x\"", "[[1],{}]", "\"\\\"\""];

    #[test]
    fn outline_equals_strict_parse_in_usual_notations() {
        for result in RESULTS {
            for id in ["1", "\"a,\\\"id\\\":1\"", "null", "-0.5e3"] {
                for end in ["", "\n", " \r\n\t"] {
                    for body in [
                        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}{end}"),
                        format!("{{\"id\":{id},\"jsonrpc\":\"2.0\",\"result\":{result}}}{end}"),
                        format!("{{\"jsonrpc\":\"2.0\",\"result\":{result},\"id\":{id}}}{end}"),
                    ] {
                        let strict = parse_jsonrpc_response(body.as_bytes()).unwrap();
                        let found = locate_result(body.as_bytes(), id.as_bytes()).unwrap();
                        assert_eq!((found.id, found.outcome), (strict.id, strict.outcome));
                        assert_eq!(found.span, 0..body.len());
                    }
                }
            }
        }
    }

    #[test]
    fn outline_is_none_in_unusual_notations() {
        for body in [
            "",
            "{",
            "}",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":}",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"}",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1}",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null}",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[]",
            "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":[]}",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{}}",
            "{\"jsonrpc\":\"2.0\", \"id\":1,\"result\":[]}",
            "{\"jsonrpc\":\"2.0\",\"result\":[]}",
            "{\"jsonrpc\":\"2.0\",\"result\":,\"id\":1}",
            "[{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[]}]",
        ] {
            assert!(locate_result(body.as_bytes(), b"1").is_none(), "{body}");
        }
    }
}
