//! The scanner compared with serde_json, and the parsers of calls and responses with any input.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sszip_core::jsonrpc::request::{self, Request};
use sszip_core::jsonrpc::response::{self, Outcome};
use sszip_core::jsonrpc::response_ends::locate_result;
use sszip_core::jsonrpc::{block, key, methods};
use sszip_fuzz::oracle::{agree_on_text, Node, Parts};

const BATCH_MAX: usize = 8;

fuzz_target!(|body: &[u8]| {
    agree_on_text(body);
    match request::parse(body, BATCH_MAX) {
        Ok(Request::Single(call)) => check(body, &call),
        Ok(Request::Batch(calls)) => {
            assert!((1..=BATCH_MAX).contains(&calls.len()));
            for call in &calls {
                check(body, call);
            }
        }
        Err(_) => {}
    }
    if let Ok(answer) = response::parse(body) {
        assert_eq!(member(body, "id"), Some(&body[answer.id.clone()]));
        if let Some(found) = locate_result(body, &body[answer.id.clone()]) {
            assert_eq!((&found.id, &found.outcome), (&answer.id, &answer.outcome));
        }
        let (name, span) = match answer.outcome {
            Outcome::Result(span) => ("result", span),
            Outcome::Error(span) => ("error", span),
        };
        assert_eq!(member(body, name), Some(&body[span]));
    }
    if let Ok(answers) = response::parse_batch(body) {
        for answer in answers {
            let body = &body[answer.span];
            assert!(response::parse(body).is_ok());
        }
    }
});

fn check(body: &[u8], call: &request::Call<'_>) {
    let own = &body[call.span.clone()];
    assert_eq!(member(own, "id"), call.id);
    assert_eq!(member(own, "params"), call.params);
    assert_eq!(
        member(own, "method"),
        Some(&[b"\"", call.method, b"\""].concat()[..])
    );
    block::reference(methods::method(call.method), call.params);
    let _ = key::key(b"", call.method, call.params);
}

/// Returns the value of a member, on which serde_json and the core agree.
fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let node = Node::parse(object).expect("JSON");
    let Parts::Object(members) = node.parts else {
        panic!("no object");
    };
    let quoted = format!("\"{name}\"");
    let value = members.iter().find(|(found, _)| *found == quoted);
    let theirs = value.map(|(_, node)| node.raw.as_bytes());
    assert_eq!(response::member(object, name), theirs);
    theirs
}
