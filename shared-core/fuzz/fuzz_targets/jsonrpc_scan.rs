//! The scanner compared with serde_json, and the parsers of calls and responses with any input.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sszip_core::jsonrpc::request::{self, JsonRpcRequestBody};
use sszip_core::jsonrpc::response::{self, CallOutcomeSpan};
use sszip_core::jsonrpc::response_ends::locate_result;
use sszip_core::jsonrpc::{block_reference, key, methods};
use sszip_fuzz::oracle::{agree_on_text, Node, Parts};

const BATCH_MAX: usize = 8;

fuzz_target!(|body: &[u8]| {
    agree_on_text(body);
    match request::parse_jsonrpc_request(body, BATCH_MAX) {
        Ok(JsonRpcRequestBody::Single(call)) => check(body, &call),
        Ok(JsonRpcRequestBody::Batch(calls)) => {
            assert!((1..=BATCH_MAX).contains(&calls.len()));
            for call in &calls {
                check(body, call);
            }
        }
        Err(_) => {}
    }
    if let Ok(answer) = response::parse_jsonrpc_response(body) {
        assert_eq!(
            object_member_value(body, "id"),
            Some(&body[answer.id.clone()])
        );
        if let Some(found) = locate_result(body, &body[answer.id.clone()]) {
            assert_eq!((&found.id, &found.outcome), (&answer.id, &answer.outcome));
        }
        let (name, span) = match answer.outcome {
            CallOutcomeSpan::Result(span) => ("result", span),
            CallOutcomeSpan::Error(span) => ("error", span),
        };
        assert_eq!(object_member_value(body, name), Some(&body[span]));
    }
    if let Ok(answers) = response::parse_batch_responses(body) {
        for answer in answers {
            let body = &body[answer.span];
            assert!(response::parse_jsonrpc_response(body).is_ok());
        }
    }
});

fn check(body: &[u8], call: &request::JsonRpcCall<'_>) {
    let own = &body[call.span.clone()];
    assert_eq!(object_member_value(own, "id"), call.id);
    assert_eq!(object_member_value(own, "params"), call.params);
    assert_eq!(
        object_member_value(own, "method"),
        Some(&[b"\"", call.method, b"\""].concat()[..])
    );
    block_reference::call_block_reference(methods::find_method_row(call.method), call.params);
    let _ = key::call_cache_key(b"", call.method, call.params);
}

/// Returns the value of a member, on which serde_json and the core agree.
fn object_member_value<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let node = Node::parse(object).expect("JSON");
    let Parts::Object(members) = node.parts else {
        panic!("no object");
    };
    let quoted = format!("\"{name}\"");
    let value = members.iter().find(|(found, _)| *found == quoted);
    let theirs = value.map(|(_, node)| node.raw.as_bytes());
    assert_eq!(response::find_object_member(object, name), theirs);
    theirs
}
