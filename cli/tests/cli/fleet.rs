//! `sszip fleet` with a scripted owner.

use std::process::Output;

use crate::support::{run_sszip, standard_error, standard_output, start_owner};

const IN_USE: &str = r#"{"fleet":{"endpoint":"redis://fleet:6379","up":true,"lookups":{"hit":5}}}"#;

/// Runs `sszip fleet` with a scripted owner. Returns the output and the request that the owner has
/// received.
fn run_with_owner(arguments: &[&str], status: &'static str, body: &str) -> (Output, String) {
    let (_folder, socket, owner) = start_owner(vec![(status, body.into())]);
    let (command, more) = arguments.split_first().unwrap();
    let all = [&["fleet", *command, "--socket", &socket][..], more].concat();
    let output = run_sszip(&all, b"");
    (output, owner.join().unwrap().remove(0))
}

#[test]
fn status_is_a_table_or_json() {
    let (output, request) = run_with_owner(&["status"], "200 OK", IN_USE);
    assert!(output.status.success(), "{}", standard_error(&output));
    assert!(request.starts_with("GET /v1/status HTTP/1.1\r\n"));
    let table = standard_output(&output);
    assert!(
        table.contains("server            redis://fleet:6379\n"),
        "{table}"
    );
    assert!(table.contains("lookups           hit 5\n"), "{table}");
    let (output, _) = run_with_owner(&["status", "--json"], "200 OK", IN_USE);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["lookups"]["hit"], 5);
}

#[test]
fn status_fails_unless_the_fleet_is_in_use() {
    let broken = r#"{"fleet":{"up":false,"breakers":{"lookups":"open"}}}"#;
    let (output, _) = run_with_owner(&["status"], "200 OK", broken);
    assert_eq!(output.status.code(), Some(1));
    assert!(standard_output(&output).contains("lookup breaker    open\n"));
    assert_eq!(standard_error(&output), "sszip: the fleet is not in use\n");
    for absent in ["{}", r#"{"fleet":null}"#] {
        let (output, _) = run_with_owner(&["status"], "200 OK", absent);
        assert_eq!(output.status.code(), Some(1));
        assert!(standard_error(&output).contains("has no fleet; set sszip_cache_fleet"));
    }
}

#[test]
fn ping_sends_the_length_and_prints_the_times() {
    let report =
        r#"{"connect_ms":1.25,"ping_ms":{"p50":0.1,"max":0.4},"get_ms":{"p50":0.15,"max":0.5}}"#;
    let (output, request) = run_with_owner(&["ping"], "200 OK", report);
    assert!(request.starts_with("POST /v1/fleet/ping HTTP/1.1\r\n"));
    assert!(request.ends_with("\r\n\r\n{\"bytes\":30000}"), "{request}");
    let expected = "connect  1.250 ms\n\
                    PING     p50 0.100 ms, max 0.400 ms\n\
                    GET      p50 0.150 ms, max 0.500 ms (30000 bytes)\n";
    assert_eq!(standard_output(&output), expected);
    let (_, request) = run_with_owner(&["ping", "--bytes", "7"], "200 OK", report);
    assert!(request.ends_with("{\"bytes\":7}"), "{request}");
}

#[test]
fn detail_of_an_error_response_is_printed() {
    let problem = r#"{"status":502,"detail":"cannot reach the fleet: timed\u001b out"}"#;
    let (output, _) = run_with_owner(&["ping"], "502 Bad Gateway", problem);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        standard_error(&output),
        "sszip: cannot reach the fleet: timed\\u{1b} out\n"
    );
    for (status, body) in [("200 OK", "<html>"), ("500 Error", "{}")] {
        let (output, _) = run_with_owner(&["ping"], status, body);
        assert_eq!(output.status.code(), Some(1));
        assert!(standard_error(&output).contains("is not the socket of an sszip owner"));
    }
}

#[test]
fn purge_sends_its_scope_and_fails_unless_all_owners_confirm() {
    let confirmed = r#"{"generation":7,"entries":2,"fleet":{"owners":2,"confirmed":2,"silent":0}}"#;
    let purge = ["purge", "namespace=main net", "method=eth_call"];
    let (output, request) = run_with_owner(&purge, "200 OK", confirmed);
    assert!(output.status.success(), "{}", standard_error(&output));
    assert!(request.starts_with("POST /v1/purges HTTP/1.1\r\n"));
    assert!(request.contains("\"method\":\"eth_call\"") && request.contains("\"namespace\":\""));
    assert!(standard_output(&output).contains("\"generation\":7"));
    let part = confirmed.replace("\"confirmed\":2", "\"confirmed\":1");
    let (output, request) = run_with_owner(&["purge", "everything"], "200 OK", &part);
    assert!(request.ends_with("{\"everything\":true}"), "{request}");
    assert_eq!(output.status.code(), Some(1));
    assert!(standard_error(&output).contains("1 of 2 owners"));
}

#[test]
fn invalid_arguments_are_rejected_before_a_request() {
    for (arguments, expected) in [
        (&["purge"][..], "<SCOPE>"),
        (&["purge", "all"], "unknown parameter \"all\""),
        (&["purge", "blocks=1-2"], "blocks= needs namespace="),
        (&["purge", "wrong-chain=00"], "wrong-chain is no scope"),
        (&["ping", "--bytes", "0"], "0 is not in 1..=16777216"),
    ] {
        let command = ["fleet", arguments[0], "--socket", "/no/owner"];
        let all = [&command[..], &arguments[1..]].concat();
        let output = run_sszip(&all, b"");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = standard_error(&output);
        assert!(error.contains(expected), "{error}");
    }
    let output = run_sszip(&["fleet", "status"], b"");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn absent_owner_is_reported_with_its_socket() {
    let output = run_sszip(&["fleet", "status", "--socket", "/no/owner"], b"");
    assert_eq!(output.status.code(), Some(1));
    let error = standard_error(&output);
    assert!(
        error.starts_with("sszip: cannot query the owner at /no/owner: No such file"),
        "{error}"
    );
}
