//! Counters of requests in `GET /stats`.

use super::support::{block_call, call, Node};

#[test]
fn calls_are_counted_by_method() {
    let node = Node::start(&[]);
    let mut client = node.client();
    let chain_id = call("1", "eth_chainId", "[]");
    let note = r#"{"jsonrpc":"2.0","method":"net_version"}"#;
    client.post("/", "", &chain_id);
    client.post("/", "", &format!("[{chain_id},{note},{chain_id},7]"));
    client.post("/", "", &call("1", "eth_chainId", "[9]"));
    client.post("/", "", &call("1", "eth_nothing", "[]"));
    client.post("/", "", "{");
    client.request("GET", "/eth/v1/node/version", "", "");
    client.request("GET", "/health", "", "");
    let stats = node.stats();
    let expected = [
        ("/requests", 6),
        ("/batches", 1),
        ("/invalid", 2),
        ("/pages", 1),
        ("/faults", 0),
        ("/in_flight", 0),
        ("/methods/eth_chainId", 4),
        ("/methods/net_version", 1),
        ("/unknown_methods/eth_nothing", 1),
        ("/connections/accepted", 2),
        ("/connections/open", 2),
    ];
    for (pointer, count) in expected {
        assert_eq!(
            stats.pointer(pointer),
            Some(&count.into()),
            "{pointer}: {stats}"
        );
    }
}

#[test]
fn body_bytes_are_counted_in_both_directions() {
    let node = Node::start(&[]);
    let mut client = node.client();
    let (mut sent, mut received) = (0, 0);
    for target in [
        "/",
        "/?framing=chunked&piece=100",
        "/?gzip=always",
        "/?framing=close",
    ] {
        sent += block_call().len();
        received += client.post(target, "", &block_call()).body.len();
    }
    sent += block_call().len();
    let cut = node.post("/?cut=777", &block_call());
    assert_eq!(cut.body.len(), 777);
    received += 777;
    let stats = node.stats();
    assert_eq!(stats["bytes_in"], sent);
    assert_eq!(stats["bytes_out"], received);
}

#[test]
fn request_is_in_flight_until_its_body_is_sent() {
    let node = Node::start(&[]);
    let mut client = node.client();
    client.send_request(
        "POST",
        "/?piece=5&pause_ms=600000",
        "",
        &call("1", "eth_chainId", "[]"),
    );
    client.head();
    client.exactly(5);
    assert_eq!(node.stats()["in_flight"], 1);
    drop(client);
    node.await_stat("/in_flight", 0);

    let mut client = node.client();
    client.send_request(
        "POST",
        "/?latency_ms=600000",
        "",
        &call("1", "eth_chainId", "[]"),
    );
    node.await_stat("/in_flight", 1);
    drop(client);
    node.await_stat("/in_flight", 0);
}
