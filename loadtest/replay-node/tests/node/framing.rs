//! Lengths, chunks and codings of responses that conform to HTTP.

use super::support::{block_call, call, Node, ResponseEnd};

const ASKS_GZIP: &str = "Accept-Encoding: gzip\r\n";

#[test]
fn response_has_an_exact_length_and_the_connection_is_kept_alive() {
    let node = Node::start(&[]);
    let mut client = node.client();
    for _ in 0..3 {
        let response = client.post("/", "", &block_call());
        assert_eq!(response.version, "HTTP/1.1");
        let length = response.body.len().to_string();
        assert_eq!(response.header("content-length"), Some(length));
        assert_eq!(response.header("transfer-encoding"), None);
    }
    // One connection for the three requests and one for the stats.
    assert_eq!(node.stats()["connections"]["accepted"], 2);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let node = Node::start(&[]);
    let mut client = node.client();
    client.send_request("POST", "/", "", &call("1", "eth_chainId", "[]"));
    client.send_request("POST", "/?framing=chunked", "", &block_call());
    client.send_request("POST", "/", "", &call("3", "eth_chainId", "[]"));
    for expected in [
        "\"id\":1,\"result\":\"0x1\"",
        "\"number\":\"0x14fffff\"",
        "\"id\":3,",
    ] {
        let mut response = client.head();
        client.body(&mut response);
        assert!(response.text().contains(expected));
    }
}

#[test]
fn http_1_0_response_has_a_length_or_ends_with_the_close() {
    let node = Node::start(&[]);
    let body = call("1", "eth_chainId", "[]");
    let len = body.len();
    for (target, keep_alive, has_length) in [
        ("/", false, true),
        ("/", true, true),
        ("/?framing=chunked", false, false),
        ("/?framing=chunked&length_off=0", false, false),
    ] {
        let connection = if keep_alive {
            "Connection: keep-alive\r\n"
        } else {
            ""
        };
        let request =
            format!("POST {target} HTTP/1.0\r\nContent-Length: {len}\r\n{connection}\r\n{body}");
        let mut client = node.client();
        for _ in 0..if keep_alive { 2 } else { 1 } {
            client.send(&request);
            let mut response = client.head();
            client.body(&mut response);
            assert_eq!(
                response.text(),
                r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#
            );
            assert_eq!(response.version, "HTTP/1.0", "{target}");
            assert_eq!(
                response.header("content-length").is_some(),
                has_length,
                "{target}"
            );
            assert_eq!(response.header("transfer-encoding"), None, "{target}");
        }
        if !keep_alive {
            assert_eq!(client.rest(), b"");
        }
    }
}

#[test]
fn chunks_have_the_size_of_the_piece_option() {
    let node = Node::start(&[]);
    let whole = node.post("/", &block_call());
    for (piece, pause) in [(1000, ""), (4096, "&pause_ms=0"), (1 << 20, "&pause_ms=1")] {
        // With a different id the response consists of slices; pieces ignore their boundaries.
        let other_id = block_call().replacen("\"id\":1", "\"id\":2", 1);
        let target = format!("/?framing=chunked&piece={piece}{pause}");
        let response = node.post(&target, &other_id);
        assert_eq!(response.end, ResponseEnd::Complete);
        let expected = whole.text().replacen("\"id\":1", "\"id\":2", 1);
        assert!(response.text() == expected);
        let (last, full) = response.chunks.split_last().unwrap();
        assert!(
            full.iter().all(|size| *size == piece),
            "{:?}",
            response.chunks
        );
        assert_eq!(full.len() * piece + last, expected.len());
    }
}

#[test]
fn first_piece_is_flushed_before_a_pause() {
    let node = Node::start(&[]);
    for framing in ["length", "chunked"] {
        let mut client = node.client();
        let target = format!("/?framing={framing}&piece=10&pause_ms=600000");
        client.send_request("POST", &target, "", &call("1", "eth_chainId", "[]"));
        client.head();
        let expected: &[u8] = match framing {
            "length" => b"{\"jsonrpc\"",
            _ => b"A\r\n{\"jsonrpc\"\r\n",
        };
        assert_eq!(client.exactly(expected.len()), expected);
    }
}

#[test]
fn flags_set_the_framing_by_method() {
    let node = Node::start(&[
        "--chunked",
        "eth_chainId,eth_blockNumber",
        "--piece",
        "16",
        "--for",
        "net_version:status=299&header=ETag:%22x%22",
        "--for",
        "batch,GET:framing=chunked",
    ]);
    let framing = |method: &str| node.post("/", &call("1", method, "[]")).chunks;
    assert_eq!(framing("eth_chainId"), [16, 16, 7]);
    assert_eq!(framing("eth_blockNumber"), [16, 16, 13]);
    assert!(framing("eth_syncing").is_empty());
    let answer = node.post("/", &call("1", "net_version", "[]"));
    assert_eq!(
        (answer.status, answer.header("etag").as_deref()),
        (299, Some("\"x\""))
    );
    let batch = format!("[{}]", call("1", "eth_syncing", "[]"));
    assert_eq!(node.post("/", &batch).chunks, [16, 16, 9]);
    assert_eq!(node.get("/eth/v1/node/version").chunks[0], 16);
    // The request's own options override all others.
    let own = node.post("/?framing=length", &call("1", "eth_chainId", "[]"));
    assert!(own.chunks.is_empty());

    let all = Node::start(&["--chunked", "*", "--with", "newline=on&piece=8"]);
    let answer = all.post("/", &call("1", "net_version", "[]"));
    assert_eq!(answer.chunks, [8, 8, 8, 8, 6]);
    assert!(answer.text().ends_with("}\n"));
}

#[test]
fn gzip_flag_compresses_for_any_accept_encoding_with_gzip() {
    let node = Node::start(&["--gzip"]);
    let plain = node.post("/", &block_call());
    assert_eq!(plain.header("content-encoding"), None);
    assert_eq!(plain.header("vary").as_deref(), Some("Accept-Encoding"));
    let mut client = node.client();
    for (id, target) in [
        ("1", "/"),
        ("2", "/"),
        ("1", "/?framing=chunked&piece=512"),
        ("2", "/?newline=1"),
    ] {
        for accept in ["gzip", "br, gzip", "gzip;q=0", "x-gzip"] {
            let body = block_call().replacen("\"id\":1", &format!("\"id\":{id}"), 1);
            let response = client.post(target, &format!("Accept-Encoding: {accept}\r\n"), &body);
            assert_eq!(response.header("content-encoding").as_deref(), Some("gzip"));
            assert_eq!(response.header("vary").as_deref(), Some("Accept-Encoding"));
            assert_eq!(
                response.header("x-replay-accept-encoding").as_deref(),
                Some(accept)
            );
            assert!(response.body.len() < plain.body.len() / 2);
            let mut expected = plain
                .text()
                .replacen("\"id\":1", &format!("\"id\":{id}"), 1);
            if target.contains("newline") {
                expected.push('\n');
            }
            assert!(response.gunzipped().unwrap() == expected.as_bytes());
        }
    }
    let other = client.post("/", "Accept-Encoding: br\r\n", &block_call());
    assert_eq!(other.header("content-encoding"), None);
    assert_eq!(node.stats()["gzipped"], 16);
}

#[test]
fn gzip_is_off_by_default_and_forced_by_an_option() {
    let node = Node::start(&[]);
    let mut client = node.client();
    let off = client.post("/", ASKS_GZIP, &block_call());
    assert_eq!(
        (off.header("content-encoding"), off.header("vary")),
        (None, None)
    );
    let forced = client.post("/?gzip=always", "", &block_call());
    assert_eq!(forced.header("content-encoding").as_deref(), Some("gzip"));
    assert!(forced.gunzipped().unwrap() == off.body);
    let page = client.request("GET", "/eth/v1/node/version?gzip=on", ASKS_GZIP, "");
    assert_eq!(page.header("content-encoding").as_deref(), Some("gzip"));
    assert!(page.gunzipped().unwrap().starts_with(b"{\"data\""));
}

#[test]
fn request_headers_that_reached_the_node_are_echoed() {
    let node = Node::start(&[]);
    let mut client = node.client();
    let body = call("1", "eth_chainId", "[]");
    let response = client.post(
        "/?echo=X-Other&echo=Accept",
        "Accept: a/b\r\nAccept: c/d\r\n",
        &body,
    );
    assert_eq!(
        response.header("x-replay-accept-encoding").as_deref(),
        Some("-")
    );
    assert_eq!(response.header("x-replay-x-other").as_deref(), Some("-"));
    assert_eq!(
        response.header("x-replay-accept").as_deref(),
        Some("a/b, c/d")
    );
}

#[test]
fn options_set_status_headers_and_media_type() {
    let node = Node::start(&[]);
    let mut client = node.client();
    let body = call("1", "eth_chainId", "[]");
    let target = "/?status=206&type=text/plain&header=Content-Range:bytes+0-3/39&truncate=4&header=Vary:Origin";
    let response = client.post(target, "", &body);
    assert_eq!((response.status, response.text()), (206, "{\"js"));
    assert_eq!(
        response.header("content-type").as_deref(),
        Some("text/plain")
    );
    assert_eq!(
        response.header("content-range").as_deref(),
        Some("bytes 0-3/39")
    );
    assert_eq!(response.header("vary").as_deref(), Some("Origin"));
    for status in [204, 304] {
        let target = format!("/?status={status}&framing=chunked&gzip=always");
        client.send_request("POST", &target, "", &body);
        let response = client.head();
        assert_eq!(response.status, status);
        assert_eq!(response.header("transfer-encoding"), None);
        assert_eq!(response.header("content-encoding"), None);
    }
    // The responses above had no body, so the connection is in step.
    assert_eq!(client.post("/", "", &body).status, 200);
}
