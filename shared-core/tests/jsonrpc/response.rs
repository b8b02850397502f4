//! Envelopes of answers, and what is seen of a result.

use sszip_core::jsonrpc::response::{
    content, first_element, member, parse, parse_batch, Content, Outcome, ResponseError,
};
use sszip_core::jsonrpc::scan::Fault;

fn parts(body: &str) -> (&str, &str) {
    let answer = parse(body.as_bytes()).expect(body);
    match answer.outcome {
        Outcome::Result(span) | Outcome::Error(span) => (&body[answer.id], &body[span]),
    }
}

fn refused(body: &str) -> ResponseError {
    parse(body.as_bytes()).expect_err(body)
}

#[test]
fn envelope_members_come_in_any_order() {
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
fn envelope_white_space_and_a_final_newline_are_outside_of_the_spans() {
    let body = "\n { \"jsonrpc\" : \"2.0\" , \"id\" : 1.50 , \"result\" : [ 1 ] }\r\n\n";
    assert_eq!(parts(body), ("1.50", "[ 1 ]"));
    let answer = parse(body.as_bytes()).expect("an answer");
    assert_eq!(&body[answer.span], body.trim());
}

#[test]
fn envelope_ids_of_every_kind() {
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
fn upstream_errors_are_told_from_results() {
    let body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"x"}}"#;
    let answer = parse(body.as_bytes()).expect("an answer");
    assert!(
        matches!(answer.outcome, Outcome::Error(span) if body[span.clone()].starts_with("{\"code"))
    );
}

#[test]
fn upstream_result_together_with_error() {
    for rest in [r#""result":1,"error":{}"#, r#""error":{},"result":1"#] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,{rest}}}"#);
        assert_eq!(refused(&body), ResponseError::TwoOutcomes, "{body}");
    }
}

#[test]
fn upstream_null_beside_the_outcome() {
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
            let answer = parse(body.as_bytes()).expect("an answer");
            assert_eq!(matches!(answer.outcome, Outcome::Error(_)), is_error);
        }
    }
}

#[test]
fn envelope_odd_answers() {
    use ResponseError::{
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
fn upstream_malformed_truncated_or_html() {
    let body = r#"{"jsonrpc":"2.0","id":1,"result":["0x1"]}"#;
    for cut in 0..body.len() {
        assert!(
            matches!(refused(&body[..cut]), ResponseError::Syntax(_)),
            "{cut}"
        );
    }
    for body in ["<html></html>", "{}{}", "\u{feff}{}", "{\"a\":\"\u{1}\"}"] {
        let error = refused(body);
        assert!(!matches!(error, ResponseError::NoId), "{error}");
    }
    match refused(&format!("{body} x")) {
        ResponseError::Syntax(error) => {
            assert_eq!(
                (error.fault, error.offset),
                (Fault::Trailing, body.len() + 1)
            );
        }
        other => panic!("{other}"),
    }
}

#[test]
fn batch_answers_are_given_as_they_came() {
    let body = concat!(
        r#"[ {"jsonrpc":"2.0","id":2,"result":"b"},"#,
        r#"{"jsonrpc":"2.0","result":"a","id":1} , "#,
        r#"{"jsonrpc":"2.0","id":2,"error":{}}]"#,
        "\n"
    );
    let answers = parse_batch(body.as_bytes()).expect("a batch");
    // Out of order, one missing, one twice: for the caller to see.
    let ids: Vec<_> = answers.iter().map(|a| &body[a.id.clone()]).collect();
    assert_eq!(ids, ["2", "1", "2"]);
    for answer in &answers {
        assert!(parse(body[answer.span.clone()].as_bytes()).is_ok());
    }
    assert_eq!(parse_batch(b" [ ] "), Ok(vec![]));
}

#[test]
fn batch_answered_with_one_error_for_all() {
    let body = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"too large"}}"#;
    assert_eq!(parse_batch(body), Err(ResponseError::NotArray));
    assert!(matches!(
        parse(body).expect("an answer").outcome,
        Outcome::Error(_)
    ));
}

#[test]
fn batch_with_one_odd_answer() {
    let body = br#"[{"jsonrpc":"2.0","id":1,"result":1},{"jsonrpc":"2.0","id":2}]"#;
    assert_eq!(parse_batch(body), Err(ResponseError::NoOutcome));
    assert_eq!(parse_batch(b"[1]"), Err(ResponseError::NotObject));
}

#[test]
fn null_and_empty_are_told_from_real_answers() {
    for (result, expected) in [
        ("null", Content::Null),
        ("[]", Content::EmptyArray),
        ("[ \n]", Content::EmptyArray),
        ("{}", Content::EmptyObject),
        ("{\t}", Content::EmptyObject),
        ("\"0x\"", Content::EmptyData),
        ("\"0x0\"", Content::Some),
        ("\"\"", Content::Some),
        ("\"null\"", Content::Some),
        ("\"[]\"", Content::Some),
        ("[null]", Content::Some),
        ("[[]]", Content::Some),
        ("0", Content::Some),
        ("false", Content::Some),
    ] {
        assert_eq!(content(result.as_bytes()), expected, "{result}");
    }
}

#[test]
fn members_of_a_result() {
    let object = br#"{ "blockHash" : "0xab", "x":{"blockNumber":"0x2"}, "blockNumber":"0x1"}"#;
    assert_eq!(member(object, "blockHash"), Some(&b"\"0xab\""[..]));
    assert_eq!(member(object, "blockNumber"), Some(&b"\"0x1\""[..]));
    assert_eq!(member(object, "blocknumber"), None);
    assert_eq!(member(b"{}", "a"), None);
    for other in ["[]", "null", "\"a\"", "", "{", "{\"b\":", "{\"a\":}"] {
        assert_eq!(member(other.as_bytes(), "a"), None, "{other}");
    }
}

#[test]
fn the_first_element_of_a_result() {
    assert_eq!(
        first_element(b"[ {\"a\":[1]} ,2]"),
        Some(&b"{\"a\":[1]}"[..])
    );
    for other in ["[]", "[ ]", "{}", "null", "", "[", "[,]"] {
        assert_eq!(first_element(other.as_bytes()), None, "{other}");
    }
}
