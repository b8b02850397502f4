//! `sszip purge` with scripted servers.

use crate::support::{run_sszip, standard_error, standard_output, start_owner, start_server};

const REPORT: &str = r#"{"generation":7,"entries":2}"#;

#[test]
fn scope_is_sent_in_the_query_of_a_proxy() {
    let (url, server) = start_server(vec![("200 OK", REPORT.into())]);
    let url = format!("{url}/sszip/purge");
    let scope = ["namespace=main net", "method=eth_call"];
    let arguments = [&["purge"][..], &scope, &["--url", &url]].concat();
    let output = run_sszip(&arguments, b"");
    assert!(output.status.success(), "{}", standard_error(&output));
    let expected = "purged: generation 7, at least 2 entries\n";
    assert_eq!(standard_output(&output), expected);
    let request = server.join().unwrap().remove(0);
    let line = "POST /sszip/purge?namespace=main%20net&method=eth_call HTTP/1.1\r\n";
    assert!(request.starts_with(line), "{request}");
}

#[test]
fn scope_is_sent_as_json_to_an_owner() {
    let fleet = r#"{"generation":7,"entries":2,"fleet":{"owners":3,"confirmed":2}}"#;
    let (_folder, socket, owner) = start_owner(vec![("200 OK", fleet.into())]);
    let arguments = [
        "purge",
        "everything",
        "--yes",
        "--json",
        "--socket",
        &socket,
    ];
    let output = run_sszip(&arguments, b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(standard_output(&output).contains("\"generation\":7"));
    assert!(standard_error(&output).contains("2 of 3 owners have confirmed"));
    let request = owner.join().unwrap().remove(0);
    assert!(
        request.starts_with("POST /v1/purges HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.ends_with("\r\n\r\n{\"everything\":true}"),
        "{request}"
    );
}

#[test]
fn purge_of_everything_is_confirmed() {
    // nothing listens there: a request would end with 1
    let arguments = ["purge", "everything", "--url", "http://127.0.0.1:1/purge"];
    let output = run_sszip(&arguments, b"y\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(standard_error(&output).contains("needs --yes"));
    let output = run_sszip(&[&arguments[..], &["--yes"]].concat(), b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(standard_error(&output).contains("repeat it"));
}

#[test]
fn failed_purges_are_explained() {
    for (status, body, expected) in [
        ("404 Not Found", "<html>", "no purges at this path"),
        ("405 Not Allowed", "<html>", "no purges at this path"),
        (
            "503 Unavailable",
            "{}",
            "503 Service Unavailable; check the server's log. The purge may",
        ),
        (
            "507 Storage",
            r#"{"detail":"the disk is full"}"#,
            "the disk is full. The purge may be",
        ),
        (
            "403 Forbidden",
            "<html>",
            "allow the address of this client",
        ),
        ("200 OK", "<html>", "does not respond with JSON"),
        ("200 OK", "{}", "does not respond as the purges of sszip"),
        ("400 Bad Request", r#"{"detail":"no\u001b"}"#, "no\\u{1b}\n"),
    ] {
        let (url, server) = start_server(vec![(status, body.into())]);
        let output = run_sszip(&["purge", "method=eth_call", "--url", &url], b"");
        server.join().unwrap();
        assert_eq!(output.status.code(), Some(1), "{status}");
        assert!(output.stdout.is_empty(), "{status}");
        let error = standard_error(&output);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn invalid_purges_are_rejected_before_a_request() {
    for (arguments, expected) in [
        (&["method=eth_call"][..], "--url <URL>"),
        (&["all", "--socket", "/no/owner"], "unknown parameter"),
        (&["blocks=1-2", "--socket", "/no/owner"], "needs namespace="),
        (&["wrong-chain=00", "--url", "http://a"], "wrong-chain"),
        (&["key=1", "--url", "http://a"], "64 hexadecimal digits"),
        (&["key=1", "--url", "ftp://a"], "expected http://"),
        (
            &["key=1", "--url", "http://a", "--socket", "/b"],
            "cannot be used with",
        ),
        (&["key=1", "--url", "http://a", "--timeout", "5"], "500ms"),
    ] {
        let output = run_sszip(&[&["purge"][..], arguments].concat(), b"");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = standard_error(&output);
        assert!(error.contains(expected), "{error}");
    }
}
