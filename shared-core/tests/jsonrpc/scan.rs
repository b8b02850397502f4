//! The scanner, compared with serde_json.

use std::path::Path;

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;
use sszip_core::jsonrpc::incomplete_result::has_failed_trace;
use sszip_core::jsonrpc::response::first_array_element;
use sszip_core::jsonrpc::scan::{check_json, SyntaxErrorKind};
use sszip_core::jsonrpc::{depth_check, request, response};

use crate::oracle::{agree_on_text, Node};

/// Maximum number of nested arrays and objects, as docs/reasons.md states.
const MAX_DEPTH: usize = 16_384;

const ACCEPTED: &[&str] = &[
    "{}",
    "[]",
    " \t\r\n[ ] \t\r\n",
    "null",
    "true",
    "false",
    "\"\"",
    "0",
    "-0",
    "-0.0e-00",
    "10",
    "1E+9",
    "123456789012345678901234567890.5e1234567",
    r#"{"":{"":[[],{}]}}"#,
    r#"{"a":1,"a":2}"#,
    r#""\"\\\/\b\f\n\r\t\u0000\uFFFFé\u00e9""#,
    r#""\uD834\udd1e""#,
    "\"\u{7f}\u{80}\u{2028}\u{10ffff}\"",
    r#"[1,"2",3.0,{"a":[null]},true]"#,
];

/// Invalid texts, with the position of the invalid byte and the fault.
const REFUSED: &[(&[u8], usize, SyntaxErrorKind)] = &[
    (b"", 0, SyntaxErrorKind::End),
    (b" ", 1, SyntaxErrorKind::End),
    (b"\xEF\xBB\xBF{}", 0, SyntaxErrorKind::Value),
    (b"\xFF", 0, SyntaxErrorKind::Utf8),
    (b"[\"\xC3\x28\"]", 2, SyntaxErrorKind::Utf8),
    (b"[\"\xED\xA0\x80\"]", 2, SyntaxErrorKind::Utf8),
    (b"[\"\xC0\xAF\"]", 2, SyntaxErrorKind::Utf8),
    (b"{}x", 2, SyntaxErrorKind::Trailing),
    (b"[][]", 2, SyntaxErrorKind::Trailing),
    (b"1 2", 2, SyntaxErrorKind::Trailing),
    (b"null\0", 4, SyntaxErrorKind::Trailing),
    (b"[1,]", 3, SyntaxErrorKind::Value),
    (b"[,1]", 1, SyntaxErrorKind::Value),
    (b"[1 2]", 3, SyntaxErrorKind::Separator),
    (b"[1}", 2, SyntaxErrorKind::Separator),
    (b"{\"a\":1]", 6, SyntaxErrorKind::Separator),
    (b"{]", 1, SyntaxErrorKind::Name),
    (b"[}", 1, SyntaxErrorKind::Value),
    (b"{,}", 1, SyntaxErrorKind::Name),
    (b"{\"a\":1,}", 7, SyntaxErrorKind::Name),
    (b"{\"a\"}", 4, SyntaxErrorKind::Colon),
    (b"{\"a\" 1}", 5, SyntaxErrorKind::Colon),
    (b"{\"a\":}", 5, SyntaxErrorKind::Value),
    (b"{a:1}", 1, SyntaxErrorKind::Name),
    (b"{1:1}", 1, SyntaxErrorKind::Name),
    (b"{'a':1}", 1, SyntaxErrorKind::Name),
    (b"[", 1, SyntaxErrorKind::End),
    (b"[1", 2, SyntaxErrorKind::End),
    (b"{\"a\":1", 6, SyntaxErrorKind::End),
    (b"\"abc", 4, SyntaxErrorKind::End),
    (b"\"abc\\\"", 6, SyntaxErrorKind::End),
    (b"\"\n\"", 1, SyntaxErrorKind::Control),
    (b"\"12345678\x1f\"", 9, SyntaxErrorKind::Control),
    (b"\"\0\"", 1, SyntaxErrorKind::Control),
    (b"\"\\x\"", 2, SyntaxErrorKind::Escape),
    (b"\"\\u12G4\"", 5, SyntaxErrorKind::Escape),
    (b"\"\\u+123\"", 3, SyntaxErrorKind::Escape),
    (b"\"\\U0041\"", 2, SyntaxErrorKind::Escape),
    (b"\"a\\uD800\"", 2, SyntaxErrorKind::Surrogate),
    (b"\"\\uDC00\\uD800\"", 1, SyntaxErrorKind::Surrogate),
    (b"\"\\uD800\\n\"", 1, SyntaxErrorKind::Surrogate),
    (b"\"\\uD800\\uD800\"", 1, SyntaxErrorKind::Surrogate),
    (b"\"\\uD800\\u0041\"", 1, SyntaxErrorKind::Surrogate),
    (b"00", 1, SyntaxErrorKind::Number),
    (b"-01", 2, SyntaxErrorKind::Number),
    (b"-", 1, SyntaxErrorKind::End),
    (b"-a", 1, SyntaxErrorKind::Number),
    (b"1.", 2, SyntaxErrorKind::End),
    (b"[1.]", 3, SyntaxErrorKind::Number),
    (b"[1e+]", 4, SyntaxErrorKind::Number),
    (b"+1", 0, SyntaxErrorKind::Value),
    (b".5", 0, SyntaxErrorKind::Value),
    (b"0x10", 1, SyntaxErrorKind::Trailing),
    (b"1_0", 1, SyntaxErrorKind::Trailing),
    (b"NaN", 0, SyntaxErrorKind::Value),
    (b"nul", 3, SyntaxErrorKind::End),
    (b"nulL", 3, SyntaxErrorKind::Value),
    (b"True", 0, SyntaxErrorKind::Value),
    (b"/**/1", 0, SyntaxErrorKind::Value),
    (b"[1,\x0b2]", 3, SyntaxErrorKind::Value),
    ("[\u{a0}]".as_bytes(), 1, SyntaxErrorKind::Value),
];

#[test]
fn valid_json_is_accepted() {
    for text in ACCEPTED {
        let value = check_json(text.as_bytes()).expect(text);
        assert_eq!(&text[value.span], text.trim());
        agree_on_text(text.as_bytes());
    }
}

#[test]
fn invalid_json_is_refused_at_its_position() {
    for &(text, offset, fault) in REFUSED {
        let error = check_json(text).expect_err(&String::from_utf8_lossy(text));
        let found = (error.offset, error.fault);
        assert_eq!(found, (offset, fault), "{}", String::from_utf8_lossy(text));
        agree_on_text(text);
    }
}

#[test]
fn text_is_accepted_up_to_the_maximum_depth() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"[{"a":"#, "}]")] {
        let each = open.matches(['[', '{']).count();
        let nested = |n: usize| format!("{}0{}", open.repeat(n), close.repeat(n));
        let most = MAX_DEPTH / each;
        assert!(check_json(nested(most).as_bytes()).is_ok(), "{open}");
        let error = check_json(nested(most + 1).as_bytes()).expect_err(open);
        assert_eq!(error.fault, SyntaxErrorKind::Depth);
        // at this depth the record of open containers changes its form
        for depth in [510, 512, 514] {
            agree_on_text(nested(depth / each).as_bytes());
        }
    }
    // siblings are not nested
    assert!(check_json(format!("[{}[]]", "[],".repeat(2000)).as_bytes()).is_ok());
}

fn on_stack(bytes: usize, run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(bytes).spawn(run);
    let is_done = thread.is_ok_and(|thread| thread.join().is_ok());
    assert!(is_done, "a stack of {bytes} bytes");
}

#[test]
fn deep_text_is_read_on_a_small_stack() {
    let frame = |n: usize| format!(r#"{}{{}}{}"#, r#"{"calls":["#.repeat(n), "]}".repeat(n));
    let (deepest, too_deep) = (frame(MAX_DEPTH / 2 - 2), frame(100_000));
    on_stack(64 << 10, move || {
        for (trace, is_read) in [(deepest, true), (too_deep, false)] {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":[{trace}]}}"#);
            assert_eq!(
                response::parse_jsonrpc_response(answer.as_bytes()).is_ok(),
                is_read
            );
            let batch = format!("[{answer}]");
            assert_eq!(
                response::parse_batch_responses(batch.as_bytes()).is_ok(),
                is_read
            );
            assert_eq!(response::find_object_member(trace.as_bytes(), "x"), None);
            assert_eq!(
                first_array_element(format!("[{trace}]").as_bytes()).is_some(),
                is_read
            );
            assert!(!has_failed_trace(format!("[{trace},\"error\"]").as_bytes()));
            let call = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":[{trace}]}}"#);
            assert_eq!(
                request::parse_jsonrpc_request(call.as_bytes(), 1).is_ok(),
                is_read
            );
            assert_eq!(depth_check::is_within_max_depth(answer.as_bytes()), is_read);
        }
    });
}

#[test]
fn truncated_object_is_refused() {
    let text = r#" {"jsonrpc":"2.0","id":-1.5e3,"result":[{"x":"\"]}\u0041"},[],true,null]}"#;
    assert!(check_json(text.as_bytes()).is_ok());
    for cut in 0..text.len() {
        assert!(
            check_json(&text.as_bytes()[..cut]).is_err(),
            "{}",
            &text[..cut]
        );
    }
}

#[derive(Deserialize)]
struct Recorded<'a> {
    #[serde(borrow)]
    request: &'a RawValue,
    #[serde(borrow)]
    response: &'a RawValue,
}

#[test]
fn scanner_agrees_with_serde_json_on_the_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    if !corpus.exists() {
        let name = "scanner_agrees_with_serde_json_on_the_corpus";
        eprintln!("skipped {name}: ../shared/corpus is absent");
        return;
    }
    let mut files = 0;
    for method in std::fs::read_dir(corpus.join("execution")).expect("a folder") {
        for file in std::fs::read_dir(method.expect("an entry").path()).expect("a folder") {
            let text = std::fs::read(file.expect("an entry").path()).expect("a file");
            // the whole text, and the spans of its parts if it is short: the oracle parses each
            // level again
            check_json(&text).expect("JSON");
            if text.len() < 20_000 {
                agree_on_text(&text);
            }
            let recorded: Vec<Recorded> = serde_json::from_slice(&text).expect("exchanges");
            for exchange in recorded {
                check_json(exchange.request.get().as_bytes()).expect("a request");
                check_json(exchange.response.get().as_bytes()).expect("a response");
            }
            files += 1;
        }
    }
    assert!(files > 500, "{files}");
}

/// Generates pieces whose concatenation is nearly JSON.
fn piece() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\"a\"",
        "\"a\":",
        "{\"b\":[",
        "]}",
        "null",
        "true",
        "false",
        "0",
        "1",
        "-",
        "1.5",
        "e9",
        "0.",
        " ",
        "\n",
        "\\",
        "\\u",
        "D800",
        "\\uDC00",
        "\"\\uD83D\\uDE00\"",
        "\u{1}",
        "é",
        "\"0x12345678\"",
        "\"12345678901234567890\"",
    ];
    prop::sample::select(WORDS).prop_map(String::from)
}

/// Generates valid JSON texts.
pub fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(
            &["null", "true", "-0.5e7", "12", "\"\"", "\"\\\\\"", "{}", "[ ]"][..]
        )
        .prop_map(String::from),
        "[ -!#-\\[\\]-~é]{0,40}".prop_map(|text| format!("\"{text}\"")),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6)
                .prop_map(|elements| format!("[{}]", elements.join(" , "))),
            prop::collection::vec(("[a-z]{0,12}", inner), 0..6).prop_map(|members| {
                let texts: Vec<_> = members
                    .iter()
                    .map(|(name, value)| format!("\"{name}\" :{value}"))
                    .collect();
                format!("{{{}}}", texts.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn scanner_agrees_with_serde_json_on_pieces(pieces in prop::collection::vec(piece(), 0..12)) {
        agree_on_text(pieces.concat().as_bytes());
    }

    #[test]
    fn scanner_agrees_with_serde_json_on_valid_json(text in json()) {
        prop_assert!(Node::parse(text.as_bytes()).is_some(), "{}", text);
        agree_on_text(text.as_bytes());
    }

    #[test]
    fn scanner_agrees_with_serde_json_on_a_changed_byte(
        text in json(),
        place: prop::sample::Index,
        byte: u8,
        insert: bool,
    ) {
        let mut bytes = text.into_bytes();
        let place = place.index(bytes.len());
        if insert {
            bytes.insert(place, byte);
        } else {
            bytes[place] = byte;
        }
        agree_on_text(&bytes);
    }

    #[test]
    fn scanner_agrees_with_serde_json_on_a_removed_byte(text in json(), place: prop::sample::Index) {
        let mut bytes = text.into_bytes();
        bytes.remove(place.index(bytes.len()));
        agree_on_text(&bytes);
    }
}
