//! Responses that violate HTTP or their own head.

use super::support::{block_call, call, Client, Node, ResponseEnd};

/// 39 bytes.
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#;

fn chain_id() -> String {
    call("1", "eth_chainId", "[]")
}

#[test]
fn body_with_a_length_is_cut_at_every_position() {
    let node = Node::start(&[]);
    for cut in [0, 1, 17, 38] {
        let response = node.post(&format!("/?cut={cut}"), &chain_id());
        assert_eq!(response.header("content-length").as_deref(), Some("39"));
        assert_eq!(response.text(), &ANSWER[..cut]);
        assert_eq!(response.end, ResponseEnd::Closed, "{cut}");
    }
    let uncut = node.post("/?cut=39", &chain_id());
    assert_eq!((uncut.text(), uncut.end), (ANSWER, ResponseEnd::Complete));
}

#[test]
fn chunked_body_is_cut_at_every_position() {
    let node = Node::start(&[]);
    // The chunks end at 16, 32 and 39.
    for cut in [0, 1, 15, 16, 17, 32, 38] {
        let target = format!("/?framing=chunked&piece=16&pause_ms=1&cut={cut}");
        let response = node.post(&target, &chain_id());
        assert_eq!(response.text(), &ANSWER[..cut]);
        assert_eq!(response.end, ResponseEnd::Closed, "{cut}");
        assert_eq!(response.chunks.first(), Some(&16));
    }
    let uncut = node.post("/?framing=chunked&piece=16&cut=99", &chain_id());
    assert_eq!((uncut.text(), uncut.end), (ANSWER, ResponseEnd::Complete));
    assert_eq!(uncut.chunks, [16, 16, 7]);
}

#[test]
fn gzipped_body_is_cut_or_truncated() {
    let node = Node::start(&[]);
    for framing in ["length", "chunked"] {
        let target = format!("/?gzip=always&framing={framing}&cut=1000");
        let response = node.post(&target, &block_call());
        assert_eq!(response.header("content-encoding").as_deref(), Some("gzip"));
        assert_eq!(
            (response.body.len(), response.end),
            (1000, ResponseEnd::Closed)
        );
        response.gunzipped().unwrap_err();
    }
    // The message is complete, and its gzip member is truncated.
    let response = node.post("/?gzip=always&truncate=1000", &block_call());
    assert_eq!(
        (response.body.len(), response.end),
        (1000, ResponseEnd::Complete)
    );
    response.gunzipped().unwrap_err();
}

#[test]
fn cut_with_reset_resets_the_connection() {
    let node = Node::start(&[]);
    let response = node.post("/?cut=0&reset=1", &chain_id());
    assert_eq!((response.end, response.body.len()), (ResponseEnd::Reset, 0));
}

#[test]
fn stalled_response_waits_until_the_client_closes() {
    let node = Node::start(&[]);
    for (target, stalled) in [
        ("/?stall=5", &b"{\"jso"[..]),
        ("/?stall=0", b""),
        ("/?stall=39", ANSWER.as_bytes()),
        ("/?stall=99", ANSWER.as_bytes()),
        (
            "/?stall=20&framing=chunked&piece=16",
            b"10\r\n{\"jsonrpc\":\"2.0\"\r\n10\r\n,\"id",
        ),
    ] {
        let mut client = node.client();
        client.send_request("POST", target, "", &chain_id());
        client.head();
        assert_eq!(client.exactly(stalled.len()), stalled, "{target}");
        assert!(client.is_silent(), "{target}");
        assert_eq!(node.stats()["in_flight"], 1);
        drop(client);
        node.await_stat("/in_flight", 0);
    }
}

#[test]
fn response_is_completed_after_a_stall_with_a_duration() {
    let node = Node::start(&[]);
    for framing in ["length", "chunked", "close"] {
        for stall in [0, 5, 16, 39] {
            let target = format!("/?stall={stall}&stall_ms=1&framing={framing}&piece=16");
            let response = node.post(&target, &chain_id());
            assert_eq!(
                (response.text(), response.end),
                (ANSWER, ResponseEnd::Complete),
                "{target}"
            );
        }
    }
}

#[test]
fn error_option_sends_an_html_page() {
    let node = Node::start(&["--for", "eth_syncing:error=502"]);
    let mut client = node.client();
    for (target, body, status) in [
        ("/?error=500", chain_id(), 500),
        ("/?error=503&framing=chunked", chain_id(), 503),
        ("/", call("1", "eth_syncing", "[]"), 502),
    ] {
        let response = client.post(target, "", &body);
        assert_eq!(
            (response.status, response.end),
            (status, ResponseEnd::Complete)
        );
        assert_eq!(
            response.header("content-type").as_deref(),
            Some("text/html")
        );
        assert!(response.text().starts_with("<html>"));
    }
    let cut = node.post("/?error=504&cut=10", &chain_id());
    assert_eq!(
        (cut.status, cut.text(), cut.end),
        (504, "<html>\r\n<h", ResponseEnd::Closed)
    );
}

#[test]
fn garbage_option_sends_bytes_that_are_not_http() {
    let node = Node::start(&[]);
    for len in [1, 20, 5000] {
        let mut client = node.client();
        client.send_request("POST", &format!("/?garbage={len}"), "", &chain_id());
        let received = client.rest();
        assert_eq!(received.len(), len);
        assert!(received.iter().all(|byte| *byte >= 0x80));
    }
}

#[test]
fn length_off_option_changes_content_length_only() {
    let node = Node::start(&[]);
    let long = node.post("/?length_off=5", &chain_id());
    assert_eq!(long.header("content-length").as_deref(), Some("44"));
    assert_eq!((long.text(), long.end), (ANSWER, ResponseEnd::Closed));

    let mut client = node.client();
    let short = client.post("/?length_off=-5", "", &chain_id());
    assert_eq!(short.header("content-length").as_deref(), Some("34"));
    assert_eq!(
        (short.text(), short.end),
        (&ANSWER[..34], ResponseEnd::Complete)
    );
    assert_eq!(client.rest(), &ANSWER.as_bytes()[34..]);

    let nothing = node.post("/?length_off=-500", &chain_id());
    assert_eq!(nothing.header("content-length").as_deref(), Some("0"));
}

#[test]
fn close_framing_delimits_the_body_by_the_close() {
    let node = Node::start(&["--gzip"]);
    for (framing, version) in [("close", "HTTP/1.1"), ("close10", "HTTP/1.0")] {
        for pieces in ["", "&piece=7&pause_ms=0"] {
            let target = format!("/?framing={framing}{pieces}");
            let response = node.post(&target, &chain_id());
            assert_eq!(response.version, version);
            assert_eq!(response.header("connection").as_deref(), Some("close"));
            assert_eq!(response.header("content-length"), None);
            assert_eq!(response.header("transfer-encoding"), None);
            assert_eq!(response.text(), ANSWER);
        }
        let target = format!("/?framing={framing}&cut=12");
        assert_eq!(node.post(&target, &chain_id()).text(), &ANSWER[..12]);
        let mut client = node.client();
        let target = format!("/?framing={framing}");
        let response = client.post(&target, "Accept-Encoding: gzip\r\n", &chain_id());
        assert_eq!(response.gunzipped().unwrap(), ANSWER.as_bytes());
    }
}

#[test]
fn large_body_arrives_up_to_its_cut_or_close() {
    let node = Node::on(&[]);
    let body = call("7", "trace_block", r#"["0x14ffffe"]"#);
    let whole = node.post("/", &body).body;
    assert!(node.post("/?framing=close", &body).body == whole);
    let cut = node.post("/?cut=1000000", &body);
    assert!(cut.body == whole[..1_000_000]);
    let chunked = node.post("/?framing=chunked&piece=65536&cut=1500000", &body);
    assert!(chunked.body == whole[..1_500_000]);
}

#[test]
fn fault_occurs_after_responses_on_the_same_connection() {
    let node = Node::start(&[]);
    let mut client = node.client();
    for _ in 0..3 {
        assert_eq!(client.post("/", "", &chain_id()).text(), ANSWER);
    }
    let cut = client.post("/?cut=3", "", &chain_id());
    assert_eq!((cut.text(), cut.end), (&ANSWER[..3], ResponseEnd::Closed));
    assert_eq!(client.rest(), b"");
    drop(client);
    node.await_stat("/connections/open", 1);
    let stats = node.stats();
    assert_eq!(
        (&stats["faults"], &stats["requests"]),
        (&1.into(), &4.into())
    );
    assert_eq!(stats["in_flight"], 0);
}

#[test]
fn responses_before_a_pipelined_fault_are_complete() {
    let node = Node::start(&[]);
    let mut client = node.client();
    client.send_request("POST", "/", "", &block_call());
    client.send_request("POST", "/?framing=chunked", "", &chain_id());
    client.send_request("POST", "/?cut=3", "", &chain_id());
    let mut ends = Vec::new();
    for _ in 0..3 {
        let mut response = client.head();
        client.body(&mut response);
        ends.push((response.body.len() > 3, response.end));
    }
    let whole = (true, ResponseEnd::Complete);
    assert_eq!(ends, [whole, whole, (false, ResponseEnd::Closed)]);
}

#[test]
fn faults_occur_on_a_unix_socket_too() {
    let folder = super::support::TemporaryFolder::new();
    let path = folder.0.join("node.sock");
    let listen = format!("unix:{}", path.display());
    let node = Node::start(&["--listen", &listen]);
    let post = |target: &str| Client::unix(&path).post(target, "", &chain_id());
    assert_eq!(post("/").text(), ANSWER);
    let cut = post("/?cut=3&reset=1");
    assert_eq!((cut.text(), cut.end), (&ANSWER[..3], ResponseEnd::Closed));
    assert_eq!(node.stats()["methods"]["eth_chainId"], 2);
}
