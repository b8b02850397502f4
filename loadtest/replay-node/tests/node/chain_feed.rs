//! Events of the simulated chain for clients: WebSocket and event streams.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::{json, Value};
use tokio_tungstenite::tungstenite::{client, Message, WebSocket};

use super::chain::{hex, Chain};

/// A WebSocket client of the node; if the node hangs, a read fails.
struct Socket(WebSocket<TcpStream>);

impl Socket {
    fn open(chain: &Chain) -> Self {
        let port = chain.node.port;
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the node accepts");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("the limit is valid");
        let (socket, response) =
            client(format!("ws://127.0.0.1:{port}/ws"), stream).expect("an upgrade");
        assert_eq!(response.status(), 101);
        Self(socket)
    }

    fn next(&mut self) -> Value {
        loop {
            match self.0.read().expect("a message comes") {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Ping(_) | Message::Pong(_) => (),
                other => unreachable!("{other:?}"),
            }
        }
    }

    fn send(&mut self, id: u64, method: &str, params: Value) {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let text = Message::text(call.to_string());
        self.0.send(text).expect("the node reads");
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.send(1, method, params);
        self.next()
    }

    /// Returns the next head of a subscription.
    fn head(&mut self, subscription: &Value) -> Value {
        let notification = self.next();
        assert_eq!(notification["method"], "eth_subscription");
        assert_eq!(notification["params"]["subscription"], *subscription);
        notification["params"]["result"].clone()
    }

    /// Reads until the close.
    fn closed(mut self) -> bool {
        loop {
            match self.0.read() {
                Ok(Message::Close(_)) => (),
                Ok(_) => return false,
                Err(_) => return !self.0.can_write(),
            }
        }
    }
}

#[test]
fn websocket_serves_calls_and_new_heads() {
    let chain = Chain::start(&[]);
    let mut socket = Socket::open(&chain);
    assert_eq!(socket.call("eth_chainId", json!([]))["result"], "0x1");
    chain.change(&json!({"extend": 1}));
    let subscription = socket.call("eth_subscribe", json!(["newHeads"]))["result"].clone();
    chain.change(&json!({"extend": 2}));
    for height in [202, 203] {
        let head = socket.head(&subscription);
        let block = chain.block(height);
        assert_eq!(head["number"], hex(height));
        for name in ["hash", "parentHash", "stateRoot", "logsBloom", "timestamp"] {
            assert_eq!(head[name], block[name], "{name}");
        }
        assert_eq!(head["transactions"], Value::Null);
    }
    // A reorg notifies of each new block; a rollback causes no notification.
    chain.change(&json!({"reorg": {"depth": 2, "length": 3}}));
    for height in [202, 203, 204] {
        assert_eq!(
            socket.head(&subscription)["hash"],
            chain.block(height)["hash"]
        );
    }
    chain.change(&json!([{"rollback": 2}, {"extend": 1}]));
    assert_eq!(socket.head(&subscription)["hash"], chain.block(203)["hash"]);
    // A node that falls behind notifies of heads again, and of new ones later.
    chain.change(&json!([{"lag": 2}, {"extend": 1}]));
    assert_eq!(socket.head(&subscription)["number"], hex(202));
    chain.change(&json!({"extend": 2}));
    assert_eq!(socket.head(&subscription)["number"], hex(203));
    assert_eq!(socket.head(&subscription)["number"], hex(204));
    chain.change(&json!({"lag": 0}));
    assert_eq!(socket.head(&subscription)["number"], hex(205));
    assert_eq!(socket.head(&subscription)["number"], hex(206));

    assert_eq!(
        socket.call("eth_unsubscribe", json!([subscription]))["result"],
        true
    );
    chain.change(&json!({"extend": 1}));
    assert_eq!(
        socket.call("eth_blockNumber", json!([]))["result"],
        hex(207)
    );
    let unknown = socket.call("eth_unsubscribe", json!([subscription]));
    assert_eq!(unknown["error"]["code"], -32000);
    let other = socket.call("eth_subscribe", json!(["logs"]));
    assert_eq!(other["error"]["code"], -32601);
    assert_eq!(chain.node.stats()["methods"]["eth_subscribe"], 2);
}

#[test]
fn upgrade_with_another_version_or_without_a_key_is_refused() {
    let chain = Chain::start(&[]);
    let upgrade = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n";
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let get = |path: &str, headers: &str| {
        let mut client = chain.node.client();
        client.send_request("GET", path, headers, "");
        client.head()
    };
    // The key of RFC 6455 and its accept value.
    let accepted = get("/", &format!("{upgrade}{key}Sec-WebSocket-Version: 13\r\n"));
    assert_eq!(accepted.status, 101);
    let accept = accepted.header("sec-websocket-accept");
    assert_eq!(accept.as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    let other_version = format!("{upgrade}{key}Sec-WebSocket-Version: 8\r\n");
    assert_eq!(get("/", &other_version).status, 400);
    assert_eq!(get("/", upgrade).status, 400);
    assert_eq!(get("/", "Upgrade: websocket\r\n").status, 200);
    chain.change(&json!({"down": true}));
    assert_eq!(get("/", &other_version).status, 503);
}

#[test]
fn delay_affects_responses_over_websocket_but_not_heads() {
    let chain = Chain::start(&[]);
    let mut socket = Socket::open(&chain);
    let subscription = socket.call("eth_subscribe", json!(["newHeads"]))["result"].clone();
    chain.change(&json!({"hold": {"method": "eth_blockNumber", "ms": 2000}}));
    socket.send(7, "eth_blockNumber", json!([]));
    chain.node.await_stat("/methods/eth_blockNumber", 1);
    chain.change(&json!({"extend": 1}));
    assert_eq!(socket.head(&subscription)["number"], hex(201));
    let answer = socket.next();
    assert_eq!(
        (&answer["id"], &answer["result"]),
        (&json!(7), &json!(hex(200)))
    );
}

#[test]
fn unavailable_node_closes_websocket_connections() {
    let mut chain = Chain::start(&[]);
    let socket = Socket::open(&chain);
    chain.node.await_stat("/connections/open", 2);
    chain.change(&json!({"down": true}));
    assert!(socket.closed());
    chain.change(&json!({"down": false}));
    let socket = Socket::open(&chain);
    assert!(chain.node.signal("TERM").success());
    assert!(socket.closed());
}

#[test]
fn event_stream_has_the_requested_topics() {
    let mut chain = Chain::start(&[]);
    assert_eq!(chain.node.get("/eth/v1/events").status, 400);
    assert_eq!(chain.node.get("/eth/v1/events?topics=nothing").status, 400);
    let open = |topics: &str| {
        let mut client = chain.node.client();
        client.send_request("GET", &format!("/eth/v1/events?topics={topics}"), "", "");
        let head = client.head();
        assert_eq!(
            head.header("content-type").as_deref(),
            Some("text/event-stream")
        );
        client
    };
    let mut all = open("head,chain_reorg&topics=finalized_checkpoint");
    let mut reorgs = open("chain_reorg");
    chain.change(&json!({"extend": 2}));
    let old = chain.page("/eth/v1/beacon/headers/head")["data"]["root"].clone();
    let state = chain.change(&json!({"reorg": {"depth": 2, "length": 2}}));
    chain.change(&json!({"finalize": 150}));
    chain.change(&json!({"rollback": 1}));
    assert!(chain.node.signal("TERM").success());

    let received = events(&all.rest());
    let names: Vec<&str> = received.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "head",
        "head",
        "chain_reorg",
        "head",
        "finalized_checkpoint",
        "chain_reorg",
        "head",
    ];
    assert_eq!(names, expected);
    let slots = [0, 1, 3, 6].map(|at| received[at].1["slot"].clone());
    assert_eq!(slots, ["201", "202", "202", "201"].map(Value::from));
    let reorg = &received[2].1;
    assert_eq!(
        (&reorg["depth"], &reorg["old_head_block"]),
        (&json!("2"), &old)
    );
    assert_eq!(reorg["new_head_block"], state["head"]["root"]);
    assert_eq!(received[3].1["block"], state["head"]["root"]);
    assert_eq!(received[4].1["epoch"], "4");
    assert_eq!(events(&reorgs.rest()).len(), 2);
}

/// Parses the events of a chunked stream up to its end.
fn events(stream: &[u8]) -> Vec<(String, Value)> {
    let text = std::str::from_utf8(stream).expect("events are UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    let named = lines.windows(2).filter_map(|lines| {
        let name = lines[0].strip_prefix("event: ")?;
        let data = lines[1].strip_prefix("data: ")?;
        Some((name.to_owned(), serde_json::from_str(data).ok()?))
    });
    named.collect()
}
