//! `sszip inspect` with a scripted proxy and owner.

use crate::scripted_proxy::{cached_route, Scripted, ScriptedServer};
use crate::support::{run_sszip, standard_error, standard_output};

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockReceipts","params":["0x10"]}"#;
const SEND: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["0x10"]}"#;

const ENTRY: &str = "sszip-generation: 7\r\nsszip-fresh: 3600000\r\nage: 7200\r\n\
                     sszip-class: immutable\r\nsszip-block: 16\r\nsszip-tier: disk\r\n";

/// Returns a proxy that responds to each request with this status and `Cache-Status`.
fn proxy_with(status: u16, cache_status: &'static str) -> ScriptedServer {
    ScriptedServer::at_port(move |_| {
        let header = match cache_status {
            "" => String::new(),
            value => format!("cache-status: {value}\r\n"),
        };
        Scripted::new(status, &header, "{}")
    })
}

#[test]
fn hit_is_reported_with_the_entry_of_the_owner() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("owner.sock");
    let owner = ScriptedServer::at_socket(&socket, |_| Scripted::new(200, ENTRY, "12345678"));
    let proxy = ScriptedServer::at_port(cached_route(|_| Scripted::new(200, "", "{}")));
    let arguments = ["inspect", CALL, "--url", &proxy.url, "--socket", &owner.url];

    let output = run_sszip(&arguments, b"");
    assert!(output.status.success(), "{}", standard_error(&output));
    let table = standard_output(&output);
    assert!(
        table.starts_with("verdict   not cached: miss\nwhy       the cache has no"),
        "{table}"
    );
    assert!(proxy.node_bodies().is_empty());

    // a client's request stores it
    let warm = ["warm", "--url", &proxy.url, "--requests", "-"];
    assert!(run_sszip(&warm, CALL.as_bytes()).status.success());
    let output = run_sszip(&arguments, b"");
    let table = standard_output(&output);
    let key = proxy.received()[0].key();
    assert!(
        table.starts_with("verdict   hit, fresh for 60 s\nmethod    eth_getBlock"),
        "{table}"
    );
    assert!(table.contains("by finality; block: p[0]"), "{table}");
    assert!(table.contains(&format!("key       {key}\n")), "{table}");
    let stored = "stored    on disk, or being written there: 8 bytes, class immutable, block 16\n";
    assert!(table.contains(stored), "{table}");
    assert!(table.contains("node      requested 2 h ago; "), "{table}");
    let last = owner.received().pop().unwrap();
    assert_eq!(last.line, format!("GET /v1/entries/{key}"));

    let output = run_sszip(&[&arguments[..], &["--json"]].concat(), b"");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["hit"], &json["ttl"]), (&true.into(), &60.into()));
    assert_eq!(
        (&json["owner"]["tier"], &json["owner"]["block"]),
        (&"disk".into(), &16.into())
    );
}

#[test]
fn reason_is_explained() {
    let proxy = proxy_with(504, "sszip; detail=credentials");
    let output = run_sszip(&["inspect", "-", "--url", &proxy.url], CALL.as_bytes());
    assert!(output.status.success(), "{}", standard_error(&output));
    let table = standard_output(&output);
    let expected = "verdict   not cached: credentials\n\
                    why       the request identifies the caller, in Authorization, Cookie";
    assert!(table.starts_with(expected), "{table}");
    assert!(!table.contains("key  "), "{table}");
    let get = ["inspect", "GET /eth/v1/beacon/genesis", "--url", &proxy.url];
    assert!(run_sszip(&get, b"").status.success());
    let last = proxy.received().pop().unwrap();
    assert_eq!(last.line, "GET /eth/v1/beacon/genesis");
    assert!(last.is_only_if_cached());

    let proxy = proxy_with(200, "sszip; detail=denied");
    let output = run_sszip(&["inspect", CALL, "--url", &proxy.url], b"");
    let table = standard_output(&output);
    let expected = "verdict   not cached: denied\nwhy       the request is denied";
    assert!(table.starts_with(expected), "{table}");
}

#[test]
fn proxy_without_support_or_cache_is_an_error() {
    for (status, cache_status, expected) in [
        (
            200,
            "sszip; fwd=miss",
            "does not support only-if-cached: it has sent the request",
        ),
        (200, "", "no cache of sszip at http://"),
        (404, "cdn; hit", "check the path of the URL"),
        (403, "", "--header"),
        (502, "", "check the proxy's log"),
    ] {
        let proxy = proxy_with(status, cache_status);
        let output = run_sszip(&["inspect", CALL, "--url", &proxy.url], b"");
        assert_eq!(output.status.code(), Some(1), "{cache_status}");
        assert!(output.stdout.is_empty());
        let error = standard_error(&output);
        assert!(
            error.starts_with("sszip: ") && error.contains(expected),
            "{error}"
        );
    }
}

#[test]
fn method_that_may_change_something_is_sent_only_if_forced() {
    let proxy = proxy_with(504, "sszip; detail=rpc-method");
    let arguments = ["inspect", SEND, "--url", &proxy.url];
    let output = run_sszip(&arguments, b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(standard_error(&output).contains("eth_sendRawTransaction is not known to only read"));
    assert!(proxy.received().is_empty());
    let output = run_sszip(&[&arguments[..], &["--force"]].concat(), b"");
    assert!(standard_output(&output).starts_with("verdict   not cached: rpc-method\n"));
    assert!(proxy.received()[0].is_only_if_cached());
}

#[test]
fn key_is_looked_up_at_the_owner() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("owner.sock");
    let absent = "sszip-generation: 7\r\n";
    let owner = ScriptedServer::at_socket(&socket, move |_| Scripted::new(404, absent, "{}"));
    let key = "AB".repeat(32);
    let output = run_sszip(&["inspect", &key, "--socket", &owner.url], b"");
    let expected = format!(
        "key       {}\nstored    not at the owner\n",
        "ab".repeat(32)
    );
    assert_eq!(standard_output(&output), expected);

    let other = folder.path().join("other.sock");
    let other = ScriptedServer::at_socket(&other, |_| Scripted::new(404, "", "<html>"));
    let output = run_sszip(&["inspect", &key, "--socket", &other.url], b"");
    assert_eq!(output.status.code(), Some(1));
    let error = standard_error(&output);
    assert!(
        error.contains("unexpected response (HTTP 404); check that it is"),
        "{error}"
    );
}

#[test]
fn invalid_arguments_are_rejected_with_their_cause() {
    for (arguments, code, expected) in [
        (&["inspect"][..], 2, "<REQUEST|KEY>"),
        (&["inspect", CALL], 2, "--url"),
        (
            &["inspect", CALL, "--socket", "/no/owner"],
            2,
            "a request needs --url",
        ),
        (
            &["inspect", CALL, "--url", "localhost"],
            2,
            "expected http://",
        ),
        (
            &["inspect", "{", "--url", "http://127.0.0.1:1/"],
            1,
            "not JSON",
        ),
        (
            &["inspect", "@/no/file", "--url", "http://127.0.0.1:1/"],
            1,
            "cannot read /no/file",
        ),
        (
            &["inspect", CALL, "--url", "http://127.0.0.1:1/"],
            1,
            "cannot reach http://127.0.0.1:1/",
        ),
    ] {
        let output = run_sszip(arguments, b"");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let error = standard_error(&output);
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    let key = "ab".repeat(32);
    let output = run_sszip(&["inspect", &key, "--url", "http://127.0.0.1:1/"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(standard_error(&output).contains("a key needs --socket"));
}
