//! Response objects, and the parts of a result that are read.

use sszip_core::jsonrpc::response::{
    classify_result_content, find_object_member, first_array_element, parse_batch_responses,
    parse_jsonrpc_response, CallOutcomeSpan, ResultEmptiness, RpcResponseParseError,
};
use sszip_core::jsonrpc::scan::SyntaxErrorKind;

fn parts(body: &str) -> (&str, &str) {
    let answer = parse_jsonrpc_response(body.as_bytes()).expect(body);
    match answer.outcome {
        CallOutcomeSpan::Result(span) | CallOutcomeSpan::Error(span) => {
            (&body[answer.id], &body[span])
        }
    }
}

fn refused(body: &str) -> RpcResponseParseError {
    parse_jsonrpc_response(body.as_bytes()).expect_err(body)
}

#[test]
fn response_members_are_read_in_any_order() {
    for body in [
        r#"{"jsonrpc":"2.0","id":"a\u0041","result":{"id":2}}"#,
        r#"{"jsonrpc":"2.0","result":{"id":2},"id":"a\u0041"}"#,
        r#"{"id":"a\u0041","jsonrpc":"2.0","result":{"id":2}}"#,
        r#"{"result":{"id":2},"id":"a\u0041","jsonrpc":"2.0"}"#,
    ] {
        assert_eq!(parts(body), (r#""a\u0041""#, r#"{"id":2}"#), "{body}");
    }
}

#[test]
fn spans_exclude_white_space_and_the_final_newline() {
    let body = "\n { \"jsonrpc\" : \"2.0\" , \"id\" : 1.50 , \"result\" : [ 1 ] }\r\n\n";
    assert_eq!(parts(body), ("1.50", "[ 1 ]"));
    let answer = parse_jsonrpc_response(body.as_bytes()).expect("an answer");
    assert_eq!(&body[answer.span], body.trim());
}

#[test]
fn response_ids_of_each_type_are_read() {
    for id in [
        "0",
        "null",
        "\"\"",
        "-1.5e3",
        "18446744073709551616",
        r#""\"""#,
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":0}}"#);
        assert_eq!(parts(&body).0, id);
    }
}

#[test]
fn errors_are_distinguished_from_results() {
    let body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"x"}}"#;
    let answer = parse_jsonrpc_response(body.as_bytes()).expect("an answer");
    assert!(
        matches!(answer.outcome, CallOutcomeSpan::Error(span) if body[span.clone()].starts_with("{\"code"))
    );
}

#[test]
fn result_together_with_an_error_is_refused() {
    for rest in [r#""result":1,"error":{}"#, r#""error":{},"result":1"#] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,{rest}}}"#);
        assert_eq!(refused(&body), RpcResponseParseError::TwoOutcomes, "{body}");
    }
}

#[test]
fn null_next_to_the_outcome_is_ignored() {
    for (rest, is_error, outcome) in [
        (r#""result":1,"error":null"#, false, "1"),
        (r#""error":null,"result":{}"#, false, "{}"),
        (r#""error" : null , "result":null"#, false, "null"),
        (r#""result":null,"error":{"code":1}"#, true, r#"{"code":1}"#),
        (r#""error":{},"result":null"#, true, "{}"),
    ] {
        for body in [
            format!(r#"{{"jsonrpc":"2.0","id":1,{rest}}}"#),
            format!(r#"{{{rest},"id":1,"jsonrpc":"2.0"}}"#),
        ] {
            assert_eq!(parts(&body), ("1", outcome), "{body}");
            let answer = parse_jsonrpc_response(body.as_bytes()).expect("an answer");
            assert_eq!(
                matches!(answer.outcome, CallOutcomeSpan::Error(_)),
                is_error
            );
        }
    }
}

#[test]
fn invalid_responses_are_refused_with_a_reason() {
    use RpcResponseParseError::{
        Duplicate, ErrorKind, IdKind, NoId, NoOutcome, NotObject, UnknownMember, Version,
    };
    for (body, reason) in [
        (r#"{"jsonrpc":"2.0","id":1}"#, NoOutcome),
        (r#"{"jsonrpc":"2.0","result":1}"#, NoId),
        (r#"{"id":1,"result":1}"#, Version),
        (r#"{"jsonrpc":"1.0","id":1,"result":1}"#, Version),
        (r#"{"jsonrpc":"2.0","id":[],"result":1}"#, IdKind),
        (r#"{"jsonrpc":"2.0","id":{},"result":1}"#, IdKind),
        (r#"{"jsonrpc":"2.0","id":true,"result":1}"#, IdKind),
        (r#"{"jsonrpc":"2.0","id":1,"error":null}"#, NoOutcome),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":null,"error":{}}"#,
            Duplicate,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":0}"#,
            ErrorKind,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"error":"x"}"#, ErrorKind),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":1,"result":1}"#,
            Duplicate,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"id":1,"result":1}"#, Duplicate),
        (
            r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"result":1}"#,
            Duplicate,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{},"error":{}}"#,
            Duplicate,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":1,"time":3}"#,
            UnknownMember,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"Result":1}"#, UnknownMember),
        (r#"{"jsonrpc":"2.0","\u0069d":1,"result":1}"#, UnknownMember),
        (r#"[{"jsonrpc":"2.0","id":1,"result":1}]"#, NotObject),
        ("1", NotObject),
    ] {
        assert_eq!(refused(body), reason, "{body}");
    }
}

#[test]
fn malformed_and_truncated_responses_are_refused() {
    let body = r#"{"jsonrpc":"2.0","id":1,"result":["0x1"]}"#;
    for cut in 0..body.len() {
        assert!(
            matches!(refused(&body[..cut]), RpcResponseParseError::Syntax(_)),
            "{cut}"
        );
    }
    for body in ["<html></html>", "{}{}", "\u{feff}{}", "{\"a\":\"\u{1}\"}"] {
        let error = refused(body);
        assert!(!matches!(error, RpcResponseParseError::NoId), "{error}");
    }
    match refused(&format!("{body} x")) {
        RpcResponseParseError::Syntax(error) => {
            assert_eq!(
                (error.fault, error.offset),
                (SyntaxErrorKind::Trailing, body.len() + 1)
            );
        }
        other => panic!("{other}"),
    }
}

#[test]
fn batch_responses_are_returned_in_their_order() {
    let body = concat!(
        r#"[ {"jsonrpc":"2.0","id":2,"result":"b"},"#,
        r#"{"jsonrpc":"2.0","result":"a","id":1} , "#,
        r#"{"jsonrpc":"2.0","id":2,"error":{}}]"#,
        "\n"
    );
    let answers = parse_batch_responses(body.as_bytes()).expect("a batch");
    // order, missing and duplicate ids are left to the caller
    let ids: Vec<_> = answers.iter().map(|a| &body[a.id.clone()]).collect();
    assert_eq!(ids, ["2", "1", "2"]);
    for answer in &answers {
        assert!(parse_jsonrpc_response(body[answer.span.clone()].as_bytes()).is_ok());
    }
    assert_eq!(parse_batch_responses(b" [ ] "), Ok(vec![]));
}

#[test]
fn single_error_is_not_a_batch_response() {
    let body = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"too large"}}"#;
    assert_eq!(
        parse_batch_responses(body),
        Err(RpcResponseParseError::NotArray)
    );
    assert!(matches!(
        parse_jsonrpc_response(body).expect("an answer").outcome,
        CallOutcomeSpan::Error(_)
    ));
}

#[test]
fn batch_with_an_invalid_response_is_refused() {
    let body = br#"[{"jsonrpc":"2.0","id":1,"result":1},{"jsonrpc":"2.0","id":2}]"#;
    assert_eq!(
        parse_batch_responses(body),
        Err(RpcResponseParseError::NoOutcome)
    );
    assert_eq!(
        parse_batch_responses(b"[1]"),
        Err(RpcResponseParseError::NotObject)
    );
}

#[test]
fn null_and_empty_results_are_distinguished_from_others() {
    for (result, expected) in [
        ("null", ResultEmptiness::Null),
        ("[]", ResultEmptiness::EmptyArray),
        ("[ \n]", ResultEmptiness::EmptyArray),
        ("{}", ResultEmptiness::EmptyObject),
        ("{\t}", ResultEmptiness::EmptyObject),
        ("\"0x\"", ResultEmptiness::EmptyData),
        ("\"0x0\"", ResultEmptiness::Some),
        ("\"\"", ResultEmptiness::Some),
        ("\"null\"", ResultEmptiness::Some),
        ("\"[]\"", ResultEmptiness::Some),
        ("[null]", ResultEmptiness::Some),
        ("[[]]", ResultEmptiness::Some),
        ("0", ResultEmptiness::Some),
        ("false", ResultEmptiness::Some),
    ] {
        assert_eq!(
            classify_result_content(result.as_bytes()),
            expected,
            "{result}"
        );
    }
}

#[test]
fn member_of_a_result_is_found_at_its_top_level() {
    let object = br#"{ "blockHash" : "0xab", "x":{"blockNumber":"0x2"}, "blockNumber":"0x1"}"#;
    assert_eq!(
        find_object_member(object, "blockHash"),
        Some(&b"\"0xab\""[..])
    );
    assert_eq!(
        find_object_member(object, "blockNumber"),
        Some(&b"\"0x1\""[..])
    );
    assert_eq!(find_object_member(object, "blocknumber"), None);
    assert_eq!(find_object_member(b"{}", "a"), None);
    for other in ["[]", "null", "\"a\"", "", "{", "{\"b\":", "{\"a\":}"] {
        assert_eq!(find_object_member(other.as_bytes(), "a"), None, "{other}");
    }
}

#[test]
fn first_element_of_a_result_is_found() {
    assert_eq!(
        first_array_element(b"[ {\"a\":[1]} ,2]"),
        Some(&b"{\"a\":[1]}"[..])
    );
    for other in ["[]", "[ ]", "{}", "null", "", "[", "[,]"] {
        assert_eq!(first_array_element(other.as_bytes()), None, "{other}");
    }
}
