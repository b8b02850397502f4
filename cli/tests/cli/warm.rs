//! `sszip warm` with a scripted proxy in front of a scripted node.

use std::collections::HashSet;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use serde_json::Value;

use crate::scripted_proxy::{cached_route, Received, Scripted, ScriptedServer};
use crate::support::{run_sszip, standard_error};

pub const RESULT: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"number":"0x6"}}"#;
pub const ERROR: &str =
    r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"missing trie node"}}"#;
pub const RECEIPTS: [&str; 2] = ["--method", "eth_getBlockReceipts"];

pub fn receipts_call(block: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getBlockReceipts","params":["{block:#x}"]}}"#)
}

pub fn node(respond: impl Fn(&Received) -> Scripted + Send + Sync + 'static) -> ScriptedServer {
    ScriptedServer::at_port(cached_route(respond))
}

pub fn valid_node() -> ScriptedServer {
    node(|_| Scripted::new(200, "", RESULT))
}

pub fn warm(url: &str, arguments: &[&str]) -> Output {
    run_sszip(&[&["warm", "--url", url], arguments].concat(), b"")
}

/// Runs a command that must succeed, and returns its summary.
pub fn warm_summary(url: &str, arguments: &[&str]) -> Value {
    let output = warm(url, &[arguments, &["--json"]].concat());
    let errors = standard_error(&output);
    assert!(
        output.status.success() && errors.is_empty(),
        "{arguments:?}: {errors}"
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn requests_are_sent_to_the_node_once_and_in_order() {
    let proxy = valid_node();
    let blocks = ["--blocks", "5-7", "--concurrency", "1"];
    let summary = warm_summary(&proxy.url, &blocks);
    assert_eq!(summary["requests"]["stored"], 9);
    assert_eq!(summary["methods"]["eth_getBlockByNumber"]["stored"], 6);
    let bodies = proxy.node_bodies();
    let blocks_of = |bodies: &[String]| -> Vec<_> {
        let params = bodies
            .iter()
            .map(|body| body.split("[\"0x").nth(1).unwrap());
        params.map(|params| params[..1].to_owned()).collect()
    };
    assert_eq!(
        blocks_of(&bodies),
        ["5", "5", "5", "6", "6", "6", "7", "7", "7"]
    );
    assert_eq!(bodies[2], receipts_call(5));
    let request = proxy.received().pop().unwrap();
    assert_eq!(request.line, "POST /node");
    assert!(request
        .headers
        .contains("content-type: application/json\r\n"));

    let summary = warm_summary(&proxy.url, &blocks);
    assert_eq!(summary["requests"]["cached"], 9);
    assert_eq!(proxy.node_bodies().len(), 9);
}

#[test]
fn calls_of_a_method_with_stored_responses_are_sent_without_a_query_before_them() {
    let proxy = valid_node();
    let range = |blocks| [&["--blocks", blocks, "--concurrency", "1"], &RECEIPTS[..]].concat();
    warm_summary(&proxy.url, &range("7-7"));
    let summary = warm_summary(&proxy.url, &range("6-8"));
    assert_eq!(summary["requests"]["stored"], 2);
    assert_eq!(summary["requests"]["cached"], 1);
    let requests = proxy.received();
    let queries = requests.iter().map(Received::is_only_if_cached);
    assert_eq!(
        queries.collect::<Vec<_>>(),
        [true, false, true, true, false, true, false, true, false, true]
    );
    for query in requests
        .iter()
        .filter(|request| request.is_only_if_cached())
    {
        assert!(query.headers.contains("accept-encoding: gzip\r\n"));
    }
    // the limit is of the node's requests: one that the cache responds to is found by a query
    let limited = [range("6-8"), vec!["--rate", "1000"]].concat();
    assert_eq!(warm_summary(&proxy.url, &limited)["requests"]["cached"], 3);
    assert_eq!(proxy.node_bodies().len(), 4);
}

#[test]
fn tags_are_resolved_at_the_node() {
    let proxy = valid_node();
    let summary = warm_summary(
        &proxy.url,
        &[&["--blocks", "last:3"], &RECEIPTS[..]].concat(),
    );
    assert_eq!(summary["requests"]["stored"], 3);
    let mut bodies = proxy.node_bodies();
    assert!(
        bodies[0].contains(r#"["finalized",false]"#),
        "{}",
        bodies[0]
    );
    bodies.remove(0);
    let expected: HashSet<_> = (4..=6).map(receipts_call).collect();
    assert_eq!(bodies.into_iter().collect::<HashSet<_>>(), expected);
    let output = warm(&proxy.url, &["--blocks", "9-latest"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(standard_error(&output).contains("the last block is 6 at present"));

    let proxy = node(|_| Scripted::new(200, "", ERROR));
    let output = warm(&proxy.url, &["--blocks", "last:3"]);
    assert_eq!(output.status.code(), Some(1));
    let error = standard_error(&output);
    assert!(
        error.contains("missing trie node; write the range as two"),
        "{error}"
    );
}

#[test]
fn temporary_failure_is_repeated() {
    let count = AtomicUsize::new(0);
    let proxy = node(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => Scripted::new(503, "retry-after: 1\r\n", ""),
        _ => Scripted::new(200, "", RESULT),
    });
    let summary = warm_summary(&proxy.url, &[&["--blocks", "5-5"], &RECEIPTS[..]].concat());
    assert_eq!(summary["requests"]["stored"], 1);
    assert_eq!(proxy.node_bodies().len(), 2);
}

#[test]
fn responses_that_are_not_cached_are_counted_by_reason() {
    let proxy = node(|request| match request.line.as_str() {
        "GET /slots/5" => Scripted::new(404, "", "{}"),
        "GET /slots/6" => Scripted::new(200, "", "{}"),
        _ => Scripted::new(200, "", r#"{"result":null}"#),
    });
    let blocks = [
        "--blocks",
        "5-6",
        "--get",
        "/slots/$NUMBER",
        "--method",
        "trace_block",
    ];
    let summary = warm_summary(&proxy.url, &blocks);
    assert_eq!(summary["requests"]["stored"], 1);
    assert_eq!(summary["not_stored"]["status"], 1);
    assert_eq!(summary["not_stored"]["result"], 2);
}

#[test]
fn request_that_is_not_looked_up_is_not_sent_to_the_node() {
    let proxy = ScriptedServer::at_port(|_| {
        Scripted::new(504, "cache-status: sszip; detail=credentials\r\n", "{}")
    });
    let summary = warm_summary(&proxy.url, &[&["--blocks", "5-6"], &RECEIPTS[..]].concat());
    assert_eq!(summary["not_stored"]["credentials"], 2);
    assert!(proxy.node_bodies().is_empty());
}

#[test]
fn denied_request_of_a_range_fails_and_one_of_a_file_is_not_stored() {
    const DENIED: &str =
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"not available"}}"#;
    let proxy = ScriptedServer::at_port(|_| {
        Scripted::new(200, "cache-status: sszip; detail=denied\r\n", DENIED)
    });
    let output = warm(&proxy.url, &[&["--blocks", "5-5"], &RECEIPTS[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let error = standard_error(&output);
    assert!(
        error.contains("the last: denied: JSON-RPC error -32601: not available; repeat"),
        "{error}"
    );
    let file = ["warm", "--url", &proxy.url, "--requests", "-", "--json"];
    let output = run_sszip(&file, receipts_call(5).as_bytes());
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["not_stored"]["denied"], 1);
    assert!(proxy.node_bodies().is_empty());
}

#[test]
fn request_over_a_concurrency_limit_is_repeated() {
    const LIMITED: &str =
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"too many calls"}}"#;
    let count = AtomicUsize::new(0);
    let route = cached_route(|_| Scripted::new(200, "", RESULT));
    let proxy = ScriptedServer::at_port(move |request| {
        match count.fetch_add(1, Ordering::Relaxed) {
            // the first query of the cache, and the first request to the node
            0 => Scripted::new(200, "cache-status: sszip; detail=denied\r\n", LIMITED),
            2 => Scripted::new(200, "", LIMITED),
            _ => route(request),
        }
    });
    let file = ["warm", "--url", &proxy.url, "--requests", "-", "--json"];
    let output = run_sszip(&file, receipts_call(5).as_bytes());
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["requests"]["stored"], 1, "{summary}");
    assert_eq!(proxy.node_bodies().len(), 2);
}

#[test]
fn error_of_a_denied_request_is_read_if_the_host_compresses_it() {
    const LIMITED: &str =
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"too many calls"}}"#;
    const DENIED: &str = "cache-status: sszip; detail=denied\r\n";
    let count = AtomicUsize::new(0);
    let route = cached_route(|_| Scripted::new(200, "", RESULT));
    let proxy =
        ScriptedServer::at_port(move |request| match count.fetch_add(1, Ordering::Relaxed) {
            0 => {
                let compressed = format!("{DENIED}content-encoding: gzip\r\n");
                Scripted::new(200, &compressed, "compressed")
            }
            1 => Scripted::new(200, DENIED, LIMITED),
            _ => route(request),
        });
    let summary = warm_summary(&proxy.url, &[&["--blocks", "5-5"], &RECEIPTS[..]].concat());
    assert_eq!(summary["requests"]["stored"], 1, "{summary}");
    assert!(!proxy.received()[1].headers.contains("accept-encoding"));
}

#[test]
fn failed_request_without_repetition_is_reported_at_the_end() {
    let proxy = node(|request| match request.body.contains("0x6") {
        true => Scripted::new(400, "", "{}"),
        false => Scripted::new(200, "", RESULT),
    });
    let output = warm(&proxy.url, &[&["--blocks", "5-8"], &RECEIPTS[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let error = standard_error(&output);
    assert!(
        error.contains("sszip: 1 of 4 requests failed, the last: HTTP 400; repeat"),
        "{error}"
    );
}

#[test]
fn wrong_url_is_reported_at_once() {
    for (status, cache_status, expected) in [
        (404, "", "check the path of the URL"),
        (200, "", "no cache of sszip at http://"),
        (
            200,
            "cache-status: sszip; fwd=miss\r\n",
            "does not support only-if-cached",
        ),
    ] {
        let proxy = ScriptedServer::at_port(move |_| Scripted::new(status, cache_status, "{}"));
        let output = warm(&proxy.url, &["--blocks", "5-9", "--concurrency", "1"]);
        assert_eq!(output.status.code(), Some(1), "{expected}");
        assert!(
            standard_error(&output).contains(expected),
            "{}",
            standard_error(&output)
        );
        assert_eq!(proxy.received().len(), 1);
    }
    let output = warm("http://127.0.0.1:1/", &["--blocks", "5-9"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(standard_error(&output).contains("cannot reach http://127.0.0.1:1/"));
}

#[test]
fn requests_of_an_access_log_are_sent() {
    let proxy = node(|request| match request.line.as_str() {
        "GET /status" => Scripted::new(200, "", "error page"),
        _ => Scripted::new(200, "", RESULT),
    });
    let call = receipts_call(9);
    let batch = format!("[{},{}]", receipts_call(8), call);
    let send = call.replace("eth_getBlockReceipts", "eth_sendRawTransaction");
    let line = |body: &str| serde_json::json!({ "time": 1, "body": body }).to_string();
    let log = [
        line(&call),
        line(&batch),
        line(&send),
        line(""),
        "127.0.0.1 - - \"POST / HTTP/1.1\"".into(),
        "\0\0".into(),
        r#"{"request":"GET /a?b HTTP/1.1"}"#.into(),
        "x".repeat(10 << 20),
        r#"{"request":"GET /status"}"#.into(),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    std::fs::write(&path, log.join("\n")).unwrap();
    let path = path.to_str().unwrap();

    let output = warm(&proxy.url, &["--log", path, "--concurrency", "1", "--json"]);
    let error = standard_error(&output);
    assert!(output.status.success(), "{error}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["requests"]["stored"], 3);
    // the repeated call, the transaction, the line without a body
    assert_eq!(
        (&summary["lines"]["skipped"], &summary["lines"]["invalid"]),
        (&3.into(), &3.into())
    );
    assert!(error.contains("access.log:5: not JSON at byte"), "{error}");
    assert!(!error.contains('\0'), "{error}");
    assert_eq!(proxy.node_bodies()[..2], [call.clone(), receipts_call(8)]);
    let is_sent = |line: &str| proxy.received().iter().any(|request| request.line == line);
    assert!(is_sent("GET /a?b"));

    let output = run_sszip(
        &["warm", "--url", &proxy.url, "--log", path, "--dry-run"],
        b"",
    );
    let expected = format!("{call}\n{}\nGET /a?b\nGET /status\n", receipts_call(8));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn file_without_valid_lines_stops_a_run() {
    let proxy = valid_node();
    let output = run_sszip(
        &[
            "warm",
            "--url",
            &proxy.url,
            "--log",
            "-",
            "--max-errors",
            "4",
        ],
        "127.0.0.1 - -\n".repeat(9).as_bytes(),
    );
    assert_eq!(output.status.code(), Some(4));
    let error = standard_error(&output);
    assert!(
        error.contains("stopped: 4 lines in a row of standard input are invalid"),
        "{error}"
    );
    assert_eq!(
        error.matches("sszip: standard input:").count(),
        3,
        "{error}"
    );
    let output = run_sszip(&["warm", "--url", &proxy.url, "--log", "-"], b"{}\n{}\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(standard_error(&output).contains("standard input has no request"));
    assert!(proxy.received().is_empty());
}

#[test]
fn entries_are_requested_at_the_owner_until_they_are_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("owner.sock");
    let requested = Mutex::new(HashSet::new());
    let owner = ScriptedServer::at_socket(&socket, move |request| {
        if request.line.ends_with(&"0".repeat(64)) {
            return Scripted::new(404, "sszip-generation: 1\r\n", "{}");
        }
        let is_first = requested.lock().unwrap().insert(request.line.clone());
        let tier = if is_first { "memory" } else { "disk" };
        let headers = format!("sszip-generation: 1\r\nsszip-tier: {tier}\r\n");
        Scripted::new(200, &headers, "entry")
    });
    let proxy = valid_node();
    let arguments = [&["--blocks", "5-7", "--socket", &owner.url], &RECEIPTS[..]].concat();
    let summary = warm_summary(&proxy.url, &arguments);
    assert_eq!(
        (
            &summary["owner"]["on_disk"],
            &summary["owner"]["not_on_disk"]
        ),
        (&3.into(), &0.into())
    );
    let keys: HashSet<_> = proxy.received().iter().map(Received::key).collect();
    let lines: HashSet<_> = owner
        .received()
        .into_iter()
        .skip(1)
        .map(|request| request.line)
        .collect();
    assert_eq!(
        lines,
        keys.iter()
            .map(|key| format!("GET /v1/entries/{key}"))
            .collect()
    );

    let absent = folder.path().join("absent.sock");
    let output = warm(
        &proxy.url,
        &["--blocks", "5-7", "--socket", absent.to_str().unwrap()],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(standard_error(&output).contains("absent.sock"));
}

#[test]
fn invalid_arguments_are_rejected_before_a_request() {
    let proxy = valid_node();
    for (arguments, expected) in [
        (&["--blocks", "9-8"][..], "block 8 is before block 9"),
        (&["--blocks", "1-2", "--log", "x"], "cannot be used with"),
        (&["--requests", "x", "--log", "x"], "cannot be used with"),
        (&[], "--blocks"),
        (
            &["--log", "x", "--method", "trace_block"],
            "cannot be used with",
        ),
        (
            &["--blocks", "1-2", "--method", "eth_x"],
            "known are eth_getBlockByNumber",
        ),
        (
            &["--blocks", "1-2", "--call", "eth_getBalance"],
            "expected METHOD PARAMS",
        ),
        (
            &[
                "--blocks",
                "1-2",
                "--call",
                "eth_sendTransaction [\"$BLOCK\"]",
            ],
            "only read",
        ),
        (
            &["--blocks", "1-2", "--get", "/x"],
            "expected $BLOCK or $NUMBER",
        ),
        (&["--blocks", "0-0xffffffffffffffff"], "too many blocks"),
        (&["--blocks", "1-2", "--rate", "0"], "0 is not in"),
        (
            &["--blocks", "1-2", "--concurrency", "2000"],
            "2000 is not in",
        ),
        (&["--blocks", "1-2", "--timeout", "5"], "expected a time"),
        (
            &["--log", "-", "--resume", "x"],
            "a stream cannot be read again",
        ),
        (
            &["--blocks", "1-2", "--resume", "-"],
            "--resume needs the path of a file",
        ),
    ] {
        let output = warm(&proxy.url, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = standard_error(&output);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    for path in ["/no/file", "/"] {
        let output = warm(&proxy.url, &["--requests", path]);
        assert_eq!(output.status.code(), Some(1));
        assert!(standard_error(&output).contains(&format!("cannot read {path}")));
    }
    assert!(proxy.received().is_empty());
}
