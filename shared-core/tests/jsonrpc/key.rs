//! Cache keys of calls: equal for equivalent calls, and different for all others.

use proptest::prelude::*;
use sszip_core::jsonrpc::key::{call_cache_key, CallCacheKey, CallKeyError};
use sszip_core::jsonrpc::scan::SyntaxErrorKind;

use crate::oracle::{agree_on_keys, key_and_canonical, Node};

const ADDRESS: &str = "0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2";
const HASH: &str = "0xDEADbeef00000000000000000000000000000000000000000000000000000Abc";

fn key_of(params: &str) -> CallCacheKey {
    call_cache_key(b"scope", b"method", Some(params.as_bytes())).expect(params)
}

fn error(params: &str) -> CallKeyError {
    call_cache_key(b"scope", b"method", Some(params.as_bytes())).expect_err(params)
}

fn all_differ(params: &[&str]) {
    for (n, a) in params.iter().enumerate() {
        for b in &params[n + 1..] {
            assert_ne!(key_of(a), key_of(b), "{a} {b}");
        }
    }
}

fn all_equal(params: &[&str]) {
    for other in params {
        assert_eq!(key_of(params[0]), key_of(other), "{} {other}", params[0]);
    }
}

#[test]
fn key_depends_on_nesting() {
    all_differ(&[
        r#"["A","B"]"#,
        r#"[["A","B"]]"#,
        r#"[["A"],"B"]"#,
        r#"["A",["B"]]"#,
        r#"[["A"],["B"]]"#,
        r#"["A","B",[]]"#,
        r#"[[],"A","B"]"#,
        r#"["A","B",{}]"#,
        r#"[{"A":"B"}]"#,
        r#"{"A":"B"}"#,
    ]);
}

#[test]
fn key_depends_on_borders_of_strings() {
    all_differ(&[
        r#"["12"]"#,
        r#"["1","2"]"#,
        r#"["","12"]"#,
        r#"["12",""]"#,
        r#"["1,2"]"#,
        r#"["1\",\"2"]"#,
    ]);
}

#[test]
fn key_depends_on_types_of_values() {
    all_differ(&["[true]", "[\"true\"]", "[false]", "[\"false\"]"]);
    all_differ(&[
        "[null]",
        "[\"null\"]",
        "[\"\"]",
        "[]",
        "[[]]",
        "[{}]",
        "[0]",
    ]);
    all_differ(&["[25]", "[\"25\"]", "[\"0x19\"]"]);
    all_differ(&[
        "[{\"a\":null}]",
        "[{}]",
        "[{\"a\":\"null\"}]",
        "[{\"a\":{}}]",
    ]);
}

#[test]
fn key_depends_on_notation_of_numbers() {
    all_differ(&[
        "[25]",
        "[25.0000001]",
        "[25.0]",
        "[2.5e1]",
        "[250e-1]",
        "[2.5E1]",
    ]);
    all_differ(&["[0]", "[-0]", "[0.0]", "[0e0]"]);
    all_differ(&["[9007199254740992]", "[9007199254740993]"]);
}

#[test]
fn key_depends_on_leading_zeros() {
    all_differ(&[
        "[\"0x64\"]",
        "[\"0x0064\"]",
        "[\"0x064\"]",
        "[\"0X64\"]",
        "[\"64\"]",
    ]);
}

#[test]
fn key_ignores_case_of_addresses_and_hashes() {
    for hex in [ADDRESS, HASH] {
        let (lower, upper) = (hex.to_lowercase(), format!("0x{}", hex[2..].to_uppercase()));
        for shape in [
            "[\"@\"]",
            "[{\"to\":\"@\"},[\"@\"]]",
            "[{\"@\":{\"balance\":\"0x1\"}}]",
        ] {
            let with = |hex: &str| shape.replace('@', hex);
            all_equal(&[&with(hex), &with(&lower), &with(&upper)]);
        }
    }
}

#[test]
fn key_depends_on_case_of_other_strings() {
    let short = &ADDRESS[..41];
    let long = &format!("{ADDRESS}0");
    let big_x = &ADDRESS.replace("0x", "0X");
    let bare = &ADDRESS[2..];
    let no_hex = &ADDRESS.replace('9', "g");
    for text in [
        short,
        long,
        big_x,
        bare,
        no_hex,
        &HASH[..65],
        "0xAbC",
        "Latest",
        "0xA",
    ] {
        let lower = &text.to_lowercase();
        all_differ(&[&format!("[\"{text}\"]"), &format!("[\"{lower}\"]")]);
    }
}

#[test]
fn key_depends_on_case_of_tracer_source() {
    let source = "{data: [], fault: function(Log) {}, step: function(log) {}}";
    let with = |source: &str| format!("[{{\"tracer\":\"{source}\"}}]");
    all_differ(&[&with(source), &with(&source.to_lowercase())]);
    let quoted = format!("return '{ADDRESS}'");
    all_differ(&[&with(&quoted), &with(&quoted.to_lowercase())]);
}

#[test]
fn key_ignores_order_of_members() {
    all_equal(&[
        r#"[{"from":"0x1","to":"0x2","data":{"b":1,"a":[{"d":1,"c":2}]}}]"#,
        r#"[{"to":"0x2","data":{"a":[{"c":2,"d":1}],"b":1},"from":"0x1"}]"#,
        r#"[{"data":{"b":1,"a":[{"c":2,"d":1}]},"from":"0x1","to":"0x2"}]"#,
    ]);
    all_differ(&[
        r#"[{"a":1,"b":2}]"#,
        r#"[{"a":2,"b":1}]"#,
        r#"[{"a":1},{"b":2}]"#,
        r#"[{"b":2},{"a":1}]"#,
        r#"[{"a":1,"B":2}]"#,
    ]);
    // the order of elements counts
    all_differ(&["[1,2]", "[2,1]"]);
}

#[test]
fn key_ignores_order_of_names_with_a_common_prefix() {
    all_equal(&[
        r#"{"a":1,"aa":2,"":3}"#,
        r#"{"aa":2,"":3,"a":1}"#,
        r#"{"":3,"a":1,"aa":2}"#,
    ]);
    all_equal(&[r#"{"a":1,"B":2,"C":3}"#, r#"{"C":3,"B":2,"a":1}"#]);
}

#[test]
fn key_ignores_white_space() {
    all_equal(&[
        r#"[{"a":[1,"x y"],"b":{}},[]]"#,
        "\n[ {\t\"a\" : [ 1 ,\r\"x y\" ] , \"b\" : { } } , [ ] ] ",
    ]);
    all_differ(&[r#"["x y"]"#, r#"["xy"]"#, r#"["x  y"]"#]);
}

#[test]
fn key_depends_on_escapes() {
    all_differ(&[r#"["a"]"#, r#"["\u0061"]"#, r#"["\/"]"#, r#"["/"]"#]);
}

#[test]
fn object_with_a_duplicate_name_has_no_key() {
    for params in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"a":3}"#,
        r#"[[{"x":{"a":1,"a":2}}]]"#,
        // Go's decoder reads these as one name, and takes the last value
        r#"[{"to":"0x1","TO":"0x2"}]"#,
        r#"[{"TO":"0x2","x":0,"to":"0x1"}]"#,
    ] {
        assert_eq!(error(params), CallKeyError::Duplicate, "{params}");
    }
    let twice = format!("{{\"{ADDRESS}\":1,\"{}\":2}}", ADDRESS.to_lowercase());
    assert_eq!(error(&twice), CallKeyError::Duplicate);
    // the same name in two objects is not a duplicate
    key_of(r#"{"a":{"a":{"a":1}},"b":{"a":1}}"#);
    key_of(r#"[{"a":1},{"a":1}]"#);
}

#[test]
fn object_with_an_escaped_or_non_ascii_name_has_no_key() {
    for params in [
        r#"{"\u0061":1}"#,
        r#"[{"a\"":1}]"#,
        r#"[{"é":1}]"#,
        "[{\"\u{212A}\":1}]",
    ] {
        assert_eq!(error(params), CallKeyError::Name, "{params}");
    }
}

#[test]
fn key_differs_for_absent_empty_null_and_object_params() {
    let absent = call_cache_key(b"scope", b"method", None).expect("a key");
    let mut keys = vec![
        absent,
        key_of("[]"),
        key_of("null"),
        key_of("{}"),
        key_of("[null]"),
        key_of("[[]]"),
    ];
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 6);
}

#[test]
fn key_depends_on_scope_and_method() {
    let key_of = |scope: &str, method: &str| {
        call_cache_key(scope.as_bytes(), method.as_bytes(), None).expect("a key")
    };
    assert_ne!(
        key_of("1", "eth_blockNumber"),
        key_of("10", "eth_blockNumber")
    );
    assert_ne!(
        key_of("1", "eth_blockNumber"),
        key_of("1", "eth_blocknumber")
    );
}

#[test]
fn key_depends_on_borders_of_scope_method_and_params() {
    let key_of = |scope: &[u8], method: &[u8], params: Option<&[u8]>| {
        call_cache_key(scope, method, params).expect("a key")
    };
    let mut keys = [
        key_of(b"ab", b"c", None),
        key_of(b"a", b"bc", None),
        key_of(b"", b"abc", None),
        key_of(b"abc", b"", None),
        key_of(b"ab", b"c\x01[]", None),
        key_of(b"ab", b"c", Some(b"[]")),
        key_of(b"ab\x01\0\0\0\0\0\0\0c", b"", None),
    ];
    keys.sort_unstable();
    assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn params_nested_too_deep_have_no_key() {
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    key_of(&nested(32));
    assert_eq!(error(&nested(33)), CallKeyError::Depth);
    assert_eq!(error(&nested(100_000)), CallKeyError::Depth);
}

#[test]
fn invalid_json_has_no_key() {
    for params in [
        "",
        "[",
        "[1,]",
        "[]x",
        "[\"a\n\"]",
        "[01]",
        "{\"a\":1",
        "[\"\\ud800\"]",
    ] {
        assert!(matches!(error(params), CallKeyError::Syntax(_)), "{params}");
    }
    let error = call_cache_key(b"", b"", Some(b"[\"\xFF\"]")).expect_err("no key");
    assert!(matches!(error, CallKeyError::Syntax(error) if error.fault == SyntaxErrorKind::Utf8));
}

/// The encoding of keys is a part of the stored data: a change makes each stored entry
/// unreachable.
#[test]
fn key_of_a_call_never_changes() {
    let key = call_cache_key(b"mainnet", b"eth_chainId", Some(b" [ ] ")).expect("a key");
    let scope = blake3::hash(b"mainnet");
    let text = b"\x0b\0\0\0\0\0\0\0eth_chainId\x01[]";
    assert_eq!(
        key.0,
        *blake3::keyed_hash(scope.as_bytes(), text).as_bytes()
    );
}

/// Values that implementations have confused, or nearly.
fn leaf() -> impl Strategy<Value = String> {
    const LEAVES: &[&str] = &[
        "true",
        "\"true\"",
        "false",
        "null",
        "\"null\"",
        "\"\"",
        "0",
        "-0",
        "1",
        "\"1\"",
        "2",
        "12",
        "\"12\"",
        "25",
        "25.0",
        "25.0000001",
        "2.5e1",
        "\"0x64\"",
        "\"0x0064\"",
        "\"0X64\"",
        "\"0xA\"",
        "\"0xa\"",
        "\"latest\"",
        "\"Latest\"",
        "\"a,b\"",
        "\"\\\",\\\"\"",
        "\"]\"",
        "\"a\"",
        "\"\\u0061\"",
        "\"A\"",
        "[]",
        "{}",
        "\"[]\"",
    ];
    let hex = (
        prop::sample::select(&[39usize, 40, 41, 63, 64, 65][..]),
        any::<bool>(),
        any::<u8>(),
    )
        .prop_map(|(digits, upper, last)| {
            let text = format!("{}{:x}", "ab".repeat(40), last % 4);
            let text = &text[text.len() - digits..];
            format!(
                "\"0x{}\"",
                if upper {
                    text.to_uppercase()
                } else {
                    text.into()
                }
            )
        });
    prop_oneof![4 => prop::sample::select(LEAVES).prop_map(String::from), 1 => hex]
}

fn value() -> impl Strategy<Value = String> {
    let address = "0xabababababababababababababababababababab";
    let names = vec!["a", "b", "c", "A", "to", "TO", "", "\\u0061", address];
    leaf().prop_recursive(4, 24, 4, move |inner| {
        let member = (prop::sample::select(names.clone()), inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|parts| format!("[{}]", parts.join(","))),
            prop::collection::vec(member, 0..4).prop_map(|members| {
                let texts: Vec<_> = members
                    .iter()
                    .map(|(n, v)| format!("\"{n}\":{v}"))
                    .collect();
                format!("{{{}}}", texts.join(","))
            }),
        ]
    })
}

/// Returns the text with a bracket, quote or border moved, or a byte changed.
fn moved(text: &str, place: usize, kind: u8) -> String {
    const TOKENS: [&str; 12] = [
        "[", "]", "{", "}", "\"", ",", "\",\"", "],[", "[[", "]]", "0", "\"\"",
    ];
    let place = (place..=text.len())
        .find(|&n| text.is_char_boundary(n))
        .unwrap_or(0);
    let (before, after) = text.split_at(place);
    let rest = &after[after.chars().next().map_or(0, char::len_utf8)..];
    match kind % 4 {
        0 => format!("{before}{rest}"),
        1 => format!("{before}{}{after}", TOKENS[usize::from(kind / 4) % 12]),
        2 => format!("{before}{}{rest}", TOKENS[usize::from(kind / 4) % 12]),
        _ => format!("[{before}{rest}]"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Among many small requests of a few edge cases, only equivalent ones share a key.
    #[test]
    fn distinct_requests_never_share_a_key(
        calls in prop::collection::vec((
            prop::sample::select(&["", "a", "ab", "b"][..]),
            prop::sample::select(&["", "a", "ab", "b", "[]"][..]),
            prop::option::of(value()),
        ), 2..24),
    ) {
        let known: Vec<_> = calls.iter().filter_map(|(scope, method, params)| {
            let form = match params {
                Some(params) => Some(Node::parse(params.as_bytes())?.canonical()?),
                None => None,
            };
            let params = params.as_ref().map(String::as_bytes);
            let key = call_cache_key(scope.as_bytes(), method.as_bytes(), params).expect("a key");
            Some(((scope, method, form), key))
        }).collect();
        for (n, (call_a, key_a)) in known.iter().enumerate() {
            for (call_b, key_b) in &known[n..] {
                prop_assert_eq!(call_a == call_b, key_a == key_b, "{:?} {:?}", call_a, call_b);
            }
        }
    }

    #[test]
    fn equivalent_requests_share_a_key(params in value(), choices: Vec<u8>) {
        let node = Node::parse(params.as_bytes()).expect("JSON");
        let mut choices = choices.into_iter().chain(std::iter::repeat(0));
        let respelt = node.equivalent_text(&mut || choices.next().unwrap_or(0));
        let (key_a, form) = key_and_canonical(params.as_bytes());
        let (key_b, same) = key_and_canonical(respelt.as_bytes());
        prop_assert_eq!(&form, &same, "{} {}", params, respelt);
        prop_assert_eq!(key_a.is_ok(), form.is_some());
        prop_assert_eq!(key_a.ok(), key_b.ok(), "{} {}", params, respelt);
    }

    #[test]
    fn changed_request_shares_a_key_only_if_it_is_equivalent(
        params in value(),
        place: prop::sample::Index,
        kind: u8,
    ) {
        let other = moved(&params, place.index(params.len()), kind);
        agree_on_keys(params.as_bytes(), other.as_bytes());
    }
}
