//! `sszip status` and `sszip top` with scripted servers, without a terminal.

use serde_json::{json, Value};

use crate::support::{run_sszip, standard_error, standard_output, start_owner, start_server};

fn proxy_status(requests: u64) -> String {
    json!({
        "software": "sszip/9.9.9", "requests": requests, "node": {"requests": 1, "errors": {}},
        "cache": {"hit": requests - 1, "miss": 1},
        "methods": [
            {"name": "eth_call", "calls": 5, "hits": 1, "node": 4, "microseconds": 400},
            {"name": "eth_getLogs\u{1b}", "calls": requests, "hits": 2, "node": 0, "microseconds": 0},
        ],
        "reasons": {"rpc-method": 3},
        "keys": {"sampled": 16, "samples": 4, "top": [
            {"key": "ab".repeat(32), "method": "eth_call", "samples": 3, "hits": 3},
            {"key": "cd".repeat(32), "method": "eth_call", "samples": 1, "hits": 0},
        ]},
    })
    .to_string()
}

/// Runs a command against a server with a status before and after its interval.
fn run_with_server(arguments: &[&str]) -> (String, Vec<String>) {
    let responses = vec![("200 OK", proxy_status(100)), ("200 OK", proxy_status(110))];
    let (url, server) = start_server(responses);
    let url = format!("{url}/sszip");
    let (command, more) = arguments.split_first().unwrap();
    let output = run_sszip(
        &[&[*command, &url[..], "--interval", "500ms"][..], more].concat(),
        b"",
    );
    assert!(output.status.success(), "{}", standard_error(&output));
    (standard_output(&output).to_owned(), server.join().unwrap())
}

#[test]
fn report_has_the_rates_between_two_queries() {
    let (report, requests) = run_with_server(&["status"]);
    assert!(report.starts_with("sszip/9.9.9\n"), "{report}");
    assert!(
        report.contains(&format!("Hit ratio{}100.0 %", " ".repeat(23))),
        "{report}"
    );
    assert!(report.contains("METHODS\nMethod"), "{report}");
    assert!(report.contains("eth_getLogs\\u{1b}"), "{report}");
    assert!(!report.contains('\u{1b}'), "{report}");
    assert!(report.contains("rpc-method"), "{report}");
    let line = "GET /sszip?format=json HTTP/1.1\r\n";
    assert!(
        requests.iter().all(|request| request.starts_with(line)),
        "{requests:?}"
    );
}

#[test]
fn json_is_that_of_the_source() {
    let (url, server) = start_server(vec![("200 OK", proxy_status(7))]);
    let output = run_sszip(&["status", &url, "--json"], b"");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["software"], "sszip/9.9.9");
    server.join().unwrap();
}

#[test]
fn json_is_printed_at_each_interval_until_a_query_fails() {
    let responses = vec![
        ("200 OK", proxy_status(7)),
        ("503 Unavailable", "{}".into()),
    ];
    let (url, server) = start_server(responses);
    let output = run_sszip(&["status", &url, "--json", "--interval", "500ms"], b"");
    assert_eq!(output.status.code(), Some(1));
    let lines: Vec<_> = standard_output(&output).lines().collect();
    assert_eq!(lines.len(), 1);
    assert!(serde_json::from_str::<Value>(lines[0]).unwrap().is_object());
    assert!(standard_error(&output).contains("503"));
    server.join().unwrap();
}

#[test]
fn owner_is_queried_over_its_socket() {
    let status = r#"{"generation":7,"memory":{"entries":5},"lookups":{"memory":3}}"#;
    let responses = vec![("200 OK", status.to_owned()); 2];
    let (_folder, socket, owner) = start_owner(responses);
    let output = run_sszip(&["status", &socket, "--interval", "500ms"], b"");
    let report = standard_output(&output);
    assert!(
        report.contains("Lookups/s"),
        "{report}{}",
        standard_error(&output)
    );
    assert!(report.contains("Purges (generation)       7"), "{report}");
    assert!(owner.join().unwrap()[0].starts_with("GET /v1/status HTTP/1.1\r\n"));
}

#[test]
fn top_lists_methods_by_a_column() {
    let (report, _) = run_with_server(&["top", "--sort", "latency", "--count", "1"]);
    let lines: Vec<_> = report.lines().collect();
    assert_eq!(lines.len(), 2, "{report}");
    assert!(
        lines[1].starts_with("eth_call") && lines[1].ends_with("100 us"),
        "{report}"
    );
    let (url, server) = start_server(vec![("200 OK", proxy_status(100)); 2]);
    let output = run_sszip(
        &["top", &url, "--json", "--once", "--interval", "500ms"],
        b"",
    );
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[0]["calls"], 100);
    assert_eq!(json[0]["calls_per_second"], 0.0);
    assert_eq!(json[1]["node_microseconds"], 100);
    server.join().unwrap();
}

#[test]
fn top_lists_sampled_keys_in_full() {
    let (url, server) = start_server(vec![("200 OK", proxy_status(100))]);
    let output = run_sszip(&["top", &url, "--keys", "--count", "1"], b"");
    let report = standard_output(&output);
    assert!(
        report.contains(&format!("75.0 %    100.0 %  {}\n", "ab".repeat(32))),
        "{report}"
    );
    assert!(!report.contains("cdcd"), "{report}");
    assert!(
        report.ends_with("A sample: the last 4 of 1 in 16 single requests.\n"),
        "{report}"
    );
    server.join().unwrap();
    let (url, server) = start_server(vec![("200 OK", r#"{"requests":1,"node":{}}"#.into())]);
    let output = run_sszip(&["top", &url, "--keys"], b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(standard_error(&output).contains("No keys are sampled"));
    server.join().unwrap();
}

#[test]
fn unusable_sources_are_reported_with_a_remedy() {
    for (status, body, expected) in [
        (
            "200 OK",
            "<html>",
            "does not respond with JSON; check the path",
        ),
        ("200 OK", "{}", "is no status page of sszip"),
        ("200 OK", r#"{"stats":[]}"#, "has no counters of sszip"),
        ("404 Not Found", "", "404 Not Found; check the path"),
        ("403 Forbidden", "", "allow the address of this client"),
    ] {
        let (url, server) = start_server(vec![(status, body.into())]);
        let output = run_sszip(&["status", &url], b"");
        server.join().unwrap();
        assert_eq!(output.status.code(), Some(1), "{status}");
        assert!(output.stdout.is_empty(), "{status}");
        let error = standard_error(&output);
        assert!(error.contains(expected), "{error}");
    }
    for (target, expected) in [
        (
            "http://127.0.0.1:1/",
            "Connection refused (os error 111); check that the proxy runs",
        ),
        (
            "/no/socket",
            "No such file or directory (os error 2); check that sszip-cached",
        ),
    ] {
        let output = run_sszip(&["status", target], b"");
        assert_eq!(output.status.code(), Some(1), "{target}");
        let error = standard_error(&output);
        assert!(error.contains(expected), "{error}");
    }
    let output = run_sszip(&["status", "https://127.0.0.1:1/", "--ca", "/no/file"], b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(standard_error(&output).contains("/no/file"));
}

#[test]
fn invalid_arguments_are_rejected() {
    for (arguments, expected) in [
        (&["status", "localhost:8580"][..], "expected http://"),
        (&["status", "--interval", "100ms"], "500ms to 60s"),
        (&["status", "--header", "secret"], "NAME: VALUE"),
        (&["top", "--count", "0"], "0 is not in 1.."),
        (&["top", "--keys", "--sort", "hits"], "cannot be used with"),
    ] {
        let output = run_sszip(arguments, b"");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = standard_error(&output);
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
