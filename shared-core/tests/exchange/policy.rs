//! Policy against arbitrary texts: the forwarded body is read by a second parser, as leniently as
//! any node might, and contains no denied call in any reading.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use proptest::prelude::*;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{
    BodyLength, ExchangeDriver, HostStep, RequestBodyAvailability, RequiredBody,
};
use sszip_core::exchange::{LookupRequest, RequestHead};
use sszip_core::response_mode::ResponseMode;

use crate::driver_host::{body_to_send, client_body, run_job, store_sent_response, BodyEnd};
use crate::setup::{self, config, response_head};
use crate::tier::times;

struct ClientRequest<'a> {
    method: &'a str,
    fields: &'a [(&'a str, &'a str)],
    body: &'a [u8],
}

/// Sends a request, and returns its driver with the body that is forwarded, if any.
fn send_request(
    config: &Arc<RouteConfig>,
    request: &ClientRequest<'_>,
) -> (ExchangeDriver, Option<Vec<u8>>) {
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    let fields = request.fields.iter();
    let head = RequestHead {
        method: request.method.as_bytes(),
        target: b"/",
        fields: fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())),
    };
    driver.handle_request_head(head).unwrap();
    let length = BodyLength::Known(request.body.len() as u64);
    if driver.required_body(length) == RequiredBody::Nothing {
        return (driver, Some(request.body.to_vec()));
    }
    let lookup_request = LookupRequest {
        now: 1,
        ..LookupRequest::default()
    };
    let step = driver
        .lookup_under_policy(RequestBodyAvailability::Whole(request.body), lookup_request)
        .unwrap();
    let goes = match run_job(&mut driver, step) {
        HostStep::Forward => Some(request.body.to_vec()),
        HostStep::ForwardRewritten => Some(
            driver
                .available_exchange()
                .unwrap()
                .upstream_request_body()
                .to_vec(),
        ),
        HostStep::Respond => None,
        other => panic!("{other:?}"),
    };
    (driver, goes)
}

/// A JSON text with all of its members, including duplicates of a name.
#[derive(Debug)]
enum Tree {
    Text(String),
    Object(Vec<(String, Tree)>),
    Array(Vec<Tree>),
    Other,
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Tree;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
                Ok(Tree::Other)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }
            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Other)
            }
            fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
                Ok(Tree::Text(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Tree, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = all.next_element()? {
                    elements.push(element);
                }
                Ok(Tree::Array(elements))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Tree, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = all.next_entry()? {
                    members.push(member);
                }
                Ok(Tree::Object(members))
            }
        }
        deserializer.deserialize_any(All)
    }
}

impl Tree {
    /// Whether any reading of the tree contains a denied call.
    fn calls_denied(&self) -> bool {
        match self {
            Tree::Object(members) => members.iter().any(|(name, value)| {
                let is_method = name.trim().eq_ignore_ascii_case("method");
                let denied = |text: &str| text.trim().to_ascii_lowercase().starts_with("debug_");
                is_method && matches!(value, Tree::Text(text) if denied(text))
            }),
            Tree::Array(elements) => elements.iter().any(Tree::calls_denied),
            Tree::Text(_) | Tree::Other => false,
        }
    }
}

/// Whether any of the consecutive JSON texts contains a denied call.
fn calls_denied(text: &[u8]) -> bool {
    let lossy = String::from_utf8_lossy(text);
    let texts = serde_json::Deserializer::from_str(&lossy).into_iter::<Tree>();
    texts.map_while(Result::ok).any(|tree| tree.calls_denied())
}

fn member() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "\"method\"",
        "\"method\"",
        "\"method\"",
        "\"Method\"",
        "\"METHOD\"",
        "\"m\\u0065thod\"",
        "\"method \"",
        "\"id\"",
        "\"id\"",
        "\"params\"",
        "\"jsonrpc\"",
        "\"x\"",
    ]);
    let value = prop::sample::select(vec![
        "\"debug_traceCall\"",
        "\"debug_x\"",
        "\"d\\u0065bug_x\"",
        "\"debug\\u005fx\"",
        "\"DEBUG_x\"",
        "\"debug_x \"",
        "\"\u{a0}debug_x\"",
        "\"\u{3000}debug_x\u{85}\"",
        "\"eth_chainId\"",
        "\"eth_call\"",
        "\"eth_chainId\"",
        "1",
        "\"a\"",
        "null",
        "[]",
        "{}",
        "\"2.0\"",
        "[{\"method\":\"debug_x\"}]",
        "tru",
        "-",
        "1e999",
    ]);
    let blank = || prop::sample::select(vec!["", "", "", " ", "\n\t"]);
    (name, blank(), value, blank()).prop_map(|(name, a, value, b)| format!("{name}{a}:{b}{value}"))
}

/// Valid calls and malformed ones.
fn call() -> impl Strategy<Value = String> {
    let method = prop::sample::select(vec![
        "debug_traceCall",
        "debug_",
        "eth_chainId",
        "eth_call",
        "net_version",
        "debug",
        "Debug_x",
        " debug_x",
        "debug_x\u{2028}",
    ]);
    let id = prop::sample::select(vec!["1", "2", "\"a\"", "null", "", "-0.5e7"]);
    let good = (method, id).prop_map(|(method, id)| {
        let id = if id.is_empty() {
            String::new()
        } else {
            format!("\"id\":{id},")
        };
        format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}"}}"#)
    });
    let odd = (prop::collection::vec(member(), 0..6), any::<bool>()).prop_map(|(all, version)| {
        let version = if version { "\"jsonrpc\":\"2.0\"," } else { "" };
        format!("{{{version}{}}}", all.join(","))
    });
    prop_oneof![4 => good, 2 => odd]
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let batch = |least| {
        let between = prop::sample::select(vec![",", ",", ", ", ",,", "", "]["]);
        (prop::collection::vec(call(), least..6), between)
            .prop_map(|(calls, between)| format!("[{}]", calls.join(between)))
    };
    let nested = batch(1).prop_map(|batch| format!("[{batch}]"));
    let two = (call(), call()).prop_map(|(a, b)| format!("{a}{b}"));
    let around = prop::sample::select(vec!["", "", "", " ", "\u{feff}", "\0", "//\n", ","]);
    let all = prop_oneof![3 => call(), 5 => batch(0), 1 => nested, 1 => two];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 0..2);
    (around.clone(), all, around, changes).prop_map(|(before, text, after, changes)| {
        let mut text = format!("{before}{text}{after}").into_bytes();
        for (at, byte, operation) in changes {
            if text.is_empty() {
                break;
            }
            let at = at.index(text.len());
            match operation {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ => drop(text.remove(at)),
            }
        }
        text
    })
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    coder.write_all(body).unwrap();
    coder.finish().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: times(1_000, 4_000), ..ProptestConfig::default() })]

    #[test]
    fn forwarded_requests_contain_no_denied_call(
        body in text(),
        method in prop::sample::select(vec!["POST", "POST", "POST", "POST", "GET", "PUT"]),
        kind in prop::sample::select(vec!["application/json", "application/json", "text/plain", ""]),
        cookie in any::<bool>(),
        coded in any::<bool>(),
        rules in prop::sample::select(vec!["deny debug_*", "allow eth_* net_*"]),
        cache in prop::sample::select(vec!["on", "off"]),
    ) {
        let config = config(&[&format!("method {rules}"), &format!("cache {cache}"), "batch_max 4"]);
        // a call that may be a hit
        let stored_call = br#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
        let json = [("Content-Type", "application/json")];
        let (driver, _) = send_request(&config, &ClientRequest { method: "POST", fields: &json, body: stored_call });
        answer(driver, br#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#);

        let is_json = kind == "application/json";
        let mut fields = Vec::new();
        if !kind.is_empty() {
            fields.push(("Content-Type", kind));
        }
        if cookie {
            fields.push(("Cookie", "a=b"));
        }
        let sent = if coded { gzip(&body) } else { body.clone() };
        if coded {
            fields.push(("Content-Encoding", "gzip"));
        }
        let (mut driver, goes) = send_request(&config, &ClientRequest { method, fields: &fields, body: &sent });
        if let Some(goes) = &goes {
            let is_as_sent = *goes == sent;
            let plain = if is_as_sent { &body } else { goes };
            prop_assert!(!calls_denied(plain), "{}", String::from_utf8_lossy(plain));
            // a body that could not be read is not forwarded either
            prop_assert!(!coded || is_json);
            prop_assert!(method == "POST" || body.is_empty());
        } else {
            let answer = body_to_send(&driver);
            if !answer.is_empty() {
                // an id may be a number that no type holds
                let _: IgnoredAny = serde_json::from_slice(&answer).unwrap();
            }
            driver.take_exchange_tally(None);
        }
    }
}

#[test]
fn lenient_parser_finds_denied_calls_in_malformed_texts() {
    for text in [
        r#"{"method":"debug_x","method":"eth_x"}"#,
        r#"{"method":"eth_x","METHOD":"debug_x"}"#,
        r#"[1,[{"m\u0065thod":"d\u0065bug_x"}]]"#,
        r#"{"method":"eth_x"} {"method":"Debug_x"} ,"#,
    ] {
        assert!(calls_denied(text.as_bytes()), "{text}");
    }
    assert!(!calls_denied(
        br#"{"method":"eth_x","params":[{"method":"debug_x"}]}"#
    ));
}

/// Sends the node's response, which may be stored, and returns the client's.
fn answer(mut driver: ExchangeDriver, body: &[u8]) -> Vec<u8> {
    let head = response_head(200, Some(body.len() as u64), &[setup::JSON]);
    let step = driver.handle_response_head(head).unwrap();
    let got = client_body(&mut driver, step, [body], BodyEnd::Whole)
        .unwrap()
        .unwrap();
    store_sent_response(&mut driver, 1);
    got
}

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

fn call_with(config: &Arc<RouteConfig>, body: &[u8]) -> (ExchangeDriver, Option<Vec<u8>>) {
    let request = ClientRequest {
        method: "POST",
        fields: &JSON,
        body,
    };
    send_request(config, &request)
}

#[test]
fn request_without_its_body_is_rejected() {
    let config = config(&["method deny debug_*"]);
    for (is_too_long, status) in [(false, 503), (true, 413)] {
        let mut driver = ExchangeDriver::new(Arc::clone(&config));
        let fields = JSON
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let head = RequestHead {
            method: b"POST",
            target: b"/",
            fields,
        };
        driver.handle_request_head(head).unwrap();
        assert_eq!(
            driver.required_body(BodyLength::Unknown),
            RequiredBody::WholeBody
        );
        if is_too_long {
            assert_eq!(
                driver.request_buffer_allowance(0, BodyLength::Known(1 << 40)),
                None
            );
        }
        let step = driver
            .lookup_under_policy(
                RequestBodyAvailability::Unavailable,
                LookupRequest::default(),
            )
            .unwrap();
        assert!(matches!(step, HostStep::Respond));
        let exchange = driver.available_exchange().unwrap();
        assert_eq!(
            (exchange.stored_response_status(), exchange.response_mode()),
            (status, ResponseMode::Denied)
        );
    }
}

/// Returns the status of the response to a request that is rejected at its head, or 0.
fn refused_at_head(config: &Arc<RouteConfig>, method: &str, target: &str, fields: &str) -> u16 {
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    let fields: Vec<_> = fields
        .split('|')
        .filter_map(|line| line.split_once(": "))
        .collect();
    let length = fields
        .iter()
        .find(|(name, _)| *name == "Content-Length")
        .map_or(BodyLength::Unknown, |(_, value)| {
            BodyLength::Known(value.parse().unwrap())
        });
    let head = RequestHead {
        method: method.as_bytes(),
        target: target.as_bytes(),
        fields: fields
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
    };
    driver.handle_request_head(head).unwrap();
    let body = match driver.required_body(length) {
        RequiredBody::LookUp => RequestBodyAvailability::Whole(b""),
        RequiredBody::WholeBody if driver.expects_continue() => {
            RequestBodyAvailability::AwaitsContinue
        }
        _ => return 0,
    };
    match driver
        .lookup_under_policy(body, LookupRequest::default())
        .unwrap()
    {
        HostStep::Respond => driver
            .available_exchange()
            .unwrap()
            .stored_response_status(),
        HostStep::Forward => 0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn request_is_rejected_at_its_head_when_the_head_decides() {
    let config = config(&["method deny debug_*", "max_oneshot 1m"]);
    let allowed = config_with_websocket();
    const JSON: &str = "Content-Type: application/json|";
    for (method, target, fields, status, with_websocket) in [
        ("POST", "/", "", 0, 0),
        ("POST", "/", "Content-Length: 5", 0, 0),
        ("POST", "/", "Expect: 100-continue", 417, 417),
        ("POST", "/", "Expect: 100-Continue", 417, 417),
        ("POST", "/", "Expect: foo", 0, 0),
        ("POST", "/", "Content-Length: 0|Expect: 100-continue", 0, 0),
        (
            "POST",
            "/",
            "Content-Length: 99999999|Expect: 100-continue",
            413,
            413,
        ),
        ("POST", "/", "Content-Length: 1048577", 413, 413),
        ("POST", "/", "Content-Length: 1048576", 0, 0),
        ("POST", "/", "Content-Encoding: br", 415, 415),
        (
            "POST",
            "/",
            "Content-Encoding: gzip|Content-Encoding: gzip",
            415,
            415,
        ),
        ("POST", "/", "Content-Encoding: br|Content-Length: 0", 0, 0),
        (
            "POST",
            "/",
            "Content-Type: application/json; charset=utf-7",
            415,
            415,
        ),
        (
            "POST",
            "/",
            "Content-Type: application/json; charset=\"UTF-8\"",
            0,
            0,
        ),
        ("PUT", "/", "Content-Length: 5", 405, 405),
        ("GET", "/", "Content-Length: 5", 405, 405),
        ("GET", "/", "", 0, 0),
        ("GET", "/?method=debug_x", "Content-Length: 0", 405, 405),
        ("POST", "/?method=debug_x", "Content-Length: 0", 405, 405),
        ("GET", "/?key=1", "Content-Length: 0", 0, 0),
        ("CONNECT", "/", "", 403, 403),
        ("GET", "/", "Upgrade: websocket", 403, 0),
        ("GET", "/", "Upgrade: WebSocket|Content-Length: 0", 403, 0),
        (
            "GET",
            "/",
            "Upgrade: websocket|Transfer-Encoding: chunked",
            403,
            403,
        ),
        ("GET", "/", "Upgrade: websocket|Content-Length: 5", 403, 405),
        (
            "POST",
            "/",
            "Upgrade: websocket|Content-Length: 5",
            403,
            403,
        ),
        ("GET", "/", "Upgrade: websocket, h2c", 403, 403),
        ("GET", "/", "Upgrade: h2c|Upgrade: websocket", 403, 403),
        ("GET", "/", "Upgrade: h2c|Content-Length: 0", 403, 403),
        ("GET", "/", "Upgrade: TLS/1.0", 403, 403),
        ("OPTIONS", "/", "Upgrade: x", 403, 403),
        ("POST", "/", "Upgrade: |Content-Length: 5", 403, 403),
        ("POST", "/", "Content-Type: application/grpc", 403, 403),
    ] {
        let fields = match fields.contains("Content-Type") {
            true => fields.to_owned(),
            false => format!("{JSON}{fields}"),
        };
        let got = refused_at_head(&config, method, target, &fields);
        assert_eq!(got, status, "{method} {target} {fields}");
        let got = refused_at_head(&allowed, method, target, &fields);
        assert_eq!(got, with_websocket, "websocket: {method} {target} {fields}");
    }
}

fn config_with_websocket() -> Arc<RouteConfig> {
    config(&["method deny debug_*", "max_oneshot 1m", "upgrade websocket"])
}

#[test]
fn switch_to_a_protocol_that_was_not_allowed_fails() {
    let rules = ["method deny debug_*"];
    for (config, requested_protocol, switches_to, passes) in [
        (config(&[]), "h2c", "h2c", true),
        (config(&rules), "", "h2c", false),
        (config(&rules), "", "websocket", false),
        (config_with_websocket(), "websocket", "websocket", true),
        (config_with_websocket(), "websocket", "h2c", false),
        (
            config_with_websocket(),
            "websocket",
            "websocket, h2c",
            false,
        ),
        (config_with_websocket(), "websocket", "", false),
        (config_with_websocket(), "", "websocket", false),
    ] {
        let mut driver = ExchangeDriver::new(Arc::clone(&config));
        let request_fields = [("Upgrade", requested_protocol)];
        let head = RequestHead {
            method: b"GET",
            target: b"/",
            fields: request_fields
                .iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        };
        driver.handle_request_head(head).unwrap();
        assert_eq!(
            driver.required_body(BodyLength::Known(0)),
            RequiredBody::Nothing
        );
        let answer = [("Upgrade", switches_to), ("Connection", "upgrade")];
        let fields = answer
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let fields: Vec<_> = fields.collect();
        let head = response_head(101, None, &fields);
        let step = driver.handle_response_head(head).unwrap();
        match passes {
            true => assert!(
                matches!(step, HostStep::Pass),
                "{requested_protocol} {switches_to}: {step:?}"
            ),
            false => assert!(
                matches!(step, HostStep::Fail(_)),
                "{requested_protocol} {switches_to}: {step:?}"
            ),
        }
    }
}

#[test]
fn denied_call_keeps_its_position_before_a_hit_that_is_decompressed() {
    // a compressed entry is not borrowed in decompressed form
    let config = config(&["method deny debug_*", "cache on", "min_length 0"]);
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#,
        "a".repeat(3_000_000)
    );
    let (driver, _) = call_with(
        &config,
        br#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#,
    );
    answer(driver, long.as_bytes());
    let batch = br#"[{"jsonrpc":"2.0","id":2,"method":"debug_x"},{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}]"#;
    let (driver, goes) = call_with(&config, batch);
    assert_eq!(goes, None);
    let got = body_to_send(&driver);
    let denied = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"the method does not exist/is not available"}}"#;
    assert_eq!(
        String::from_utf8(got).unwrap(),
        format!("[{denied},{long}]")
    );
    assert_eq!(
        driver
            .available_exchange()
            .unwrap()
            .cached_batch_call_count(),
        1
    );
}

#[test]
fn methods_of_a_batch_are_logged_once_each() {
    let config = config(&["method deny debug_*"]);
    let named = |methods: &[&str]| {
        let calls: Vec<_> = methods
            .iter()
            .map(|method| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#))
            .collect();
        let (driver, _) = call_with(&config, format!("[{}]", calls.join(",")).as_bytes());
        String::from_utf8(
            driver
                .available_exchange()
                .unwrap()
                .batch_method_names()
                .to_vec(),
        )
        .unwrap()
    };
    assert_eq!(named(&["a", "a", "b", "a", "debug_x", "b"]), "a,b,debug_x");
    let long: Vec<_> = (0..100).map(|n| format!("method_{n:03}")).collect();
    let long: Vec<_> = long.iter().map(String::as_str).collect();
    let logged = named(&long);
    assert!(
        logged.starts_with("method_000,method_001,") && logged.ends_with(",*"),
        "{logged}"
    );
    assert!(logged.len() <= 514, "{}", logged.len());
    assert_eq!(named(&[&"a".repeat(600)]), "*");
}
