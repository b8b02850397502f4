//! Request objects: ids, members in any order, and refused requests.

use proptest::prelude::*;
use sszip_core::jsonrpc::request::{
    parse_jsonrpc_request, read_call_prefix, JsonRpcCall, JsonRpcRequestBody, RequestParseFailure,
};
use sszip_core::jsonrpc::scan::SyntaxErrorKind;

use crate::oracle::Node;

const MOST: usize = 100;
/// Maximum length of an id, as docs/policy.md states.
const MAX_ID_LENGTH: usize = 256;

fn single(body: &str) -> JsonRpcCall<'_> {
    let request = parse_jsonrpc_request(body.as_bytes(), MOST).expect(body);
    let JsonRpcRequestBody::Single(call) = request else {
        unreachable!("a batch: {body}");
    };
    call
}

fn refusal(body: &str) -> RequestParseFailure {
    parse_jsonrpc_request(body.as_bytes(), MOST).expect_err(body)
}

#[test]
fn method_and_id_are_found_in_the_beginning_of_a_call() {
    for (text, expected) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[{"#,
            Some(("m", Some("1"))),
        ),
        (r#" { "method" : "m" , "params":["0x"#, Some(("m", None))),
        (
            r#"{"id":"é","method":"m","params""#,
            Some(("m", Some("\"é\""))),
        ),
        (r#"{"id":null,"method":"m"}"#, Some(("m", Some("null")))),
        (r#"{"method":"m","id":12"#, Some(("m", None))),
        (r#"{"params":[],"method":"m""#, None),
        (r#"{"id":1,"method":"m"#, None),
        (r#"{"id":{},"method":"m""#, None),
        (r#"{"x":1,"method":"m","params""#, None),
        (r#"{"jsonrpc":2,"method":"m","params""#, None),
        (r#"[{"id":1,"method":"m","params""#, None),
        ("", None),
        ("{", None),
    ] {
        let found = read_call_prefix(text.as_bytes());
        let found = found.map(|(method, id)| (text_of(method), id.map(text_of)));
        assert_eq!(found, expected, "{text}");
    }
    assert_eq!(
        read_call_prefix(b"{\"id\":\"\xff\",\"method\":\"m\","),
        None
    );
}

fn text_of(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// A call of `m` with the raw id `id`.
fn call_with_id(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)
}

#[test]
fn call_is_parsed_as_spans_of_its_body() {
    let body = r#"  {"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{},"0x1"]} "#;
    let call = single(body);
    assert_eq!(&body[call.span], body.trim());
    assert_eq!(call.id, Some(&b"1"[..]));
    assert_eq!(call.method, b"eth_call");
    assert_eq!(call.params, Some(&br#"[{},"0x1"]"#[..]));
}

#[test]
fn ids_are_kept_unchanged() {
    for id in [
        "0",
        "-1",
        "1.0",
        "1.5",
        "1e3",
        "1E+3",
        "-0",
        "9007199254740993",
        "123456789012345678901234567890",
        "null",
        "\"\"",
        "\"1\"",
        "\"null\"",
        r#""\"\\\u0041\n\ud83d\ude00""#,
        "\"é\"",
        "\"a}\"",
    ] {
        assert_eq!(single(&call_with_id(id)).id, Some(id.as_bytes()), "{id}");
    }
}

#[test]
fn absent_id_is_a_notification_and_null_is_not() {
    assert_eq!(single(r#"{"jsonrpc":"2.0","method":"m"}"#).id, None);
    assert_eq!(single(&call_with_id("null")).id, Some(&b"null"[..]));
}

#[test]
fn ids_of_other_types_are_refused() {
    for id in ["{}", "[]", "[1]", r#"{"id":1}"#, "true", "false"] {
        assert_eq!(
            refusal(&call_with_id(id)),
            RequestParseFailure::IdKind,
            "{id}"
        );
    }
}

#[test]
fn id_longer_than_the_limit_is_refused() {
    let longest = format!("\"{}\"", "x".repeat(MAX_ID_LENGTH - 2));
    assert_eq!(single(&call_with_id(&longest)).id, Some(longest.as_bytes()));
    let longer = format!("\"{}\"", "x".repeat(MAX_ID_LENGTH - 1));
    assert_eq!(refusal(&call_with_id(&longer)), RequestParseFailure::LongId);
    assert_eq!(
        refusal(&call_with_id(&"1".repeat(MAX_ID_LENGTH + 1))),
        RequestParseFailure::LongId
    );
}

#[test]
fn members_are_read_in_any_order_with_any_white_space() {
    let members = [
        r#""jsonrpc" : "2.0""#,
        r#""id":7"#,
        "\"method\"\t:\r\n\"m\"",
        r#""params":[ 1 ]"#,
    ];
    let mut orders = 0;
    for a in 0..4 {
        for b in (0..4).filter(|&b| b != a) {
            for c in (0..4).filter(|&c| c != a && c != b) {
                let order = [a, b, c, 6 - a - b - c].map(|n| members[n]);
                let body = format!("\n{{ {} }}\n", order.join(" ,\t"));
                let call = single(&body);
                assert_eq!(call.id, Some(&b"7"[..]), "{body}");
                assert_eq!(call.method, b"m");
                assert_eq!(call.params, Some(&b"[ 1 ]"[..]));
                orders += 1;
            }
        }
    }
    assert_eq!(orders, 24);
}

#[test]
fn absent_empty_null_and_object_params_are_distinguished() {
    let params = |rest: &str| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m"{rest}}}"#);
        single(&body).params.map(<[u8]>::to_vec)
    };
    assert_eq!(params(""), None);
    for raw in ["[]", "null", "{}"] {
        assert_eq!(params(&format!(r#","params":{raw}"#)), Some(raw.into()));
    }
}

#[test]
fn invalid_calls_are_refused_with_a_reason() {
    for (body, reason) in [
        (r#""m""#, RequestParseFailure::NotObject),
        ("1", RequestParseFailure::NotObject),
        ("null", RequestParseFailure::NotObject),
        ("{}", RequestParseFailure::Version),
        (r#"{"id":1,"method":"m"}"#, RequestParseFailure::Version),
        (
            r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#,
            RequestParseFailure::Version,
        ),
        (
            r#"{"jsonrpc":"2.00","id":1,"method":"m"}"#,
            RequestParseFailure::Version,
        ),
        (
            r#"{"jsonrpc":"2","id":1,"method":"m"}"#,
            RequestParseFailure::Version,
        ),
        (
            r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
            RequestParseFailure::Version,
        ),
        (
            r#"{"jsonrpc":null,"id":1,"method":"m"}"#,
            RequestParseFailure::Version,
        ),
        (
            r#"{"jsonrpc":"\u0032.0","id":1,"method":"m"}"#,
            RequestParseFailure::Version,
        ),
        (r#"{"jsonrpc":"2.0","id":1}"#, RequestParseFailure::NoMethod),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":null}"#,
            RequestParseFailure::MethodKind,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":1}"#,
            RequestParseFailure::MethodKind,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":["m"]}"#,
            RequestParseFailure::MethodKind,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"\u006d"}"#,
            RequestParseFailure::EscapedMethod,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m\/"}"#,
            RequestParseFailure::EscapedMethod,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"[]"}"#,
            RequestParseFailure::ParamsKind,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":1}"#,
            RequestParseFailure::ParamsKind,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":false}"#,
            RequestParseFailure::ParamsKind,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","x":1}"#,
            RequestParseFailure::UnknownMember,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","result":1}"#,
            RequestParseFailure::UnknownMember,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","":1}"#,
            RequestParseFailure::UnknownMember,
        ),
    ] {
        assert_eq!(refusal(body), reason, "{body}");
    }
}

#[test]
fn duplicate_members_are_refused() {
    let call = r#""jsonrpc":"2.0","id":1,"method":"m","params":[]"#;
    for again in [
        r#""jsonrpc":"2.0""#,
        r#""id":1"#,
        r#""id":null"#,
        r#""method":"m""#,
        r#""params":[]"#,
        r#""params":null"#,
    ] {
        assert_eq!(
            refusal(&format!("{{{call},{again}}}")),
            RequestParseFailure::Duplicate
        );
        assert_eq!(
            refusal(&format!("{{{again},{call}}}")),
            RequestParseFailure::Duplicate
        );
    }
    // a null counts as a member
    let twice = r#"{"jsonrpc":"2.0","id":null,"id":null,"method":"m"}"#;
    assert_eq!(refusal(twice), RequestParseFailure::Duplicate);
}

/// Go's decoder reads each of these names as the member that it resembles, and takes the last
/// value.
#[test]
fn member_names_in_another_case_or_with_escapes_are_refused() {
    for name in [
        "Method",
        "METHOD",
        "\\u006dethod",
        "I\u{64}",
        "iD",
        "param\u{17f}",
        "JsonRPC",
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","{name}":"x"}}"#);
        assert_eq!(refusal(&body), RequestParseFailure::UnknownMember, "{body}");
    }
}

#[test]
fn invalid_json_is_refused_with_its_fault() {
    let call = call_with_id("1");
    for (body, fault) in [
        (String::new(), SyntaxErrorKind::End),
        (format!("\u{feff}{call}"), SyntaxErrorKind::Value),
        (format!("{call}{call}"), SyntaxErrorKind::Trailing),
        (format!("{call},"), SyntaxErrorKind::Trailing),
        (call.replace('}', ""), SyntaxErrorKind::End),
        (call.replace('}', ",}"), SyntaxErrorKind::Name),
        (call.replace("1,", "01,"), SyntaxErrorKind::Number),
        (call.replace("\"m\"", "\"m\n\""), SyntaxErrorKind::Control),
    ] {
        match refusal(&body) {
            RequestParseFailure::Syntax(error) => assert_eq!(error.fault, fault, "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[test]
fn batch_calls_keep_their_order_and_spans() {
    let body = r#" [ {"jsonrpc":"2.0","id":1,"method":"a"} ,{"jsonrpc":"2.0","method":"b"},
        {"jsonrpc":"2.0","id":1,"method":"a"}]
"#;
    let Ok(JsonRpcRequestBody::Batch(calls)) = parse_jsonrpc_request(body.as_bytes(), MOST) else {
        panic!("no batch");
    };
    // duplicate calls and duplicate ids are accepted
    let names: Vec<_> = calls.iter().map(|call| call.method).collect();
    assert_eq!(names, [b"a", b"b", b"a"]);
    assert_eq!(calls[0].id, calls[2].id);
    assert_eq!(calls[1].id, None);
    for call in &calls {
        assert!(matches!(
            parse_jsonrpc_request(body[call.span.clone()].as_bytes(), 0),
            Ok(JsonRpcRequestBody::Single(_))
        ));
    }
}

#[test]
fn batch_of_one_is_not_a_single_call() {
    let body = format!("[{}]", call_with_id("1"));
    assert!(
        matches!(parse_jsonrpc_request(body.as_bytes(), 1), Ok(JsonRpcRequestBody::Batch(calls)) if calls.len() == 1)
    );
}

#[test]
fn batch_of_notifications_has_calls_without_ids() {
    let body = r#"[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b"}]"#;
    let Ok(JsonRpcRequestBody::Batch(calls)) = parse_jsonrpc_request(body.as_bytes(), MOST) else {
        panic!("no batch");
    };
    assert!(calls.iter().all(|call| call.id.is_none()) && calls.len() == 2);
}

#[test]
fn empty_batch_is_refused() {
    assert_eq!(refusal("[]"), RequestParseFailure::EmptyBatch);
    assert_eq!(refusal(" [ ] "), RequestParseFailure::EmptyBatch);
}

#[test]
fn batch_over_the_limit_is_refused() {
    let body = |n: usize| format!("[{}]", vec![call_with_id("1"); n].join(","));
    assert!(parse_jsonrpc_request(body(3).as_bytes(), 3).is_ok());
    assert_eq!(
        parse_jsonrpc_request(body(4).as_bytes(), 3),
        Err(RequestParseFailure::LongBatch)
    );
    assert_eq!(
        parse_jsonrpc_request(body(1).as_bytes(), 0),
        Err(RequestParseFailure::LongBatch)
    );
}

#[test]
fn batch_with_an_invalid_call_is_refused() {
    for (odd, reason) in [
        ("1", RequestParseFailure::NotObject),
        ("[]", RequestParseFailure::NotObject),
        ("null", RequestParseFailure::NotObject),
        ("{}", RequestParseFailure::Version),
        (
            r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#,
            RequestParseFailure::IdKind,
        ),
    ] {
        let good = call_with_id("1");
        for body in [format!("[{odd},{good}]"), format!("[{good},{odd}]")] {
            assert_eq!(refusal(&body), reason, "{body}");
        }
    }
}

proptest! {
    /// Each parsed member is what serde_json finds under the same name.
    #[test]
    fn parsed_members_equal_those_that_serde_json_finds(
        members in prop::collection::vec((
            prop::sample::select(&["jsonrpc", "id", "method", "params", "Id", "x"][..]),
            prop::sample::select(&["\"2.0\"", "1", "null", "\"m\"", "[]", "{\"a\":[]}", "true"][..]),
        ), 0..6),
    ) {
        let texts: Vec<_> = members.iter().map(|(n, v)| format!("\"{n}\": {v}")).collect();
        let body = format!("{{{}}}", texts.join(" ,"));
        let find = |wanted: &str| {
            let mut found = members.iter().filter(|(name, _)| *name == wanted);
            (found.next().map(|(_, value)| *value), found.next().is_none())
        };
        let once = ["jsonrpc", "id", "method", "params"].iter().all(|name| find(name).1);
        let known = members.iter().all(|(name, _)| !matches!(*name, "Id" | "x"));
        let version = find("jsonrpc").0 == Some("\"2.0\"");
        let id = find("id").0.is_none_or(|id| matches!(id, "\"2.0\"" | "1" | "null" | "\"m\""));
        let method = matches!(find("method").0, Some("\"2.0\"" | "\"m\""));
        let params = find("params").0.is_none_or(|p| matches!(p, "[]" | "null" | "{\"a\":[]}"));
        let good = once && known && version && id && method && params;
        match parse_jsonrpc_request(body.as_bytes(), 1) {
            Ok(JsonRpcRequestBody::Single(call)) => {
                prop_assert!(good, "{}", body);
                prop_assert_eq!(call.id, find("id").0.map(str::as_bytes));
                prop_assert_eq!(call.params, find("params").0.map(str::as_bytes));
                let name = find("method").0.map(|name| name.trim_matches('"').as_bytes());
                prop_assert_eq!(Some(call.method), name);
            }
            Ok(JsonRpcRequestBody::Batch(_)) => prop_assert!(false, "{}", body),
            Err(_) => prop_assert!(!good, "{}", body),
        }
    }

    #[test]
    fn parser_accepts_only_json_among_any_bytes(body: Vec<u8>) {
        if parse_jsonrpc_request(&body, MOST).is_ok() {
            prop_assert!(Node::parse(&body).is_some());
        }
    }
}
