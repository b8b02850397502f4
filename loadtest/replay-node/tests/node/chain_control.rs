//! Commands of `/chain` on the simulated chain and its node.

use serde_json::{json, Value};

use super::chain::{hex, number, Chain};
use super::support::{call, ResponseEnd};

fn hash_at(chain: &Chain, height: u64) -> Value {
    chain.result("eth_getBlockByNumber", &json!([hex(height), false]))["hash"].clone()
}

fn heads(state: &Value) -> [u64; 3] {
    ["head", "safe", "finalized"].map(|name| state[name]["number"].as_u64().expect("a number"))
}

#[test]
fn extend_reorg_rollback_and_adopt_change_the_head() {
    let chain = Chain::start(&[]);
    let state = chain.change(&json!({"extend": 5}));
    assert_eq!(heads(&state), [205, 160, 128]);
    assert_eq!(state["head"]["hash"], hash_at(&chain, 205));
    let old = state["head"]["hash"].clone();
    // The new branch has the same height, is longer, shorter, or is deeper than the safe block.
    for (depth, length, head) in [(1, 1, 205), (2, 3, 206), (3, 1, 204), (60, 60, 204)] {
        let before = hash_at(&chain, 205 - 60);
        let state = chain.change(&json!({"reorg": {"depth": depth, "length": length}}));
        assert_eq!(state["head"]["number"], head);
        assert_eq!(chain.head(), head);
        assert_eq!(hash_at(&chain, 205 - 60) == before, depth < 60);
    }
    let state = chain.change(&json!({"rollback": 60}));
    assert_eq!(heads(&state), [144, 144, 128]);
    assert_eq!(
        chain.answer("eth_getBlockByNumber", &json!(["0xc8", false]))["result"],
        Value::Null
    );
    // Adopts the head of the first branch again.
    let state = chain.change(&json!({"adopt": old}));
    assert_eq!(
        (&state["head"]["number"], &state["head"]["hash"]),
        (&json!(205), &old)
    );
    let state = chain.change(&json!({"rollback": 200}));
    assert_eq!(heads(&state), [5, 5, 5]);
}

#[test]
fn finality_advances_and_is_moved_back() {
    let chain = Chain::start(&[]);
    let state = chain.change(&json!({"finalize": 150}));
    assert_eq!(heads(&state), [200, 175, 150]);
    let state = chain.change(&json!({"finalize": null}));
    assert_eq!(heads(&state), [200, 184, 168]);
    let tagged = |tag: &str| {
        let block = chain.result("eth_getBlockByNumber", &json!([tag, false]));
        number(&block["number"])
    };
    assert_eq!((tagged("finalized"), tagged("safe")), (168, 184));
    let state = chain.change(&json!({"unfinalize": 100}));
    assert_eq!(heads(&state), [200, 150, 100]);
    assert_eq!(tagged("finalized"), 100);

    let state = chain.change(&json!({"finality": false}));
    assert!(state["finalized"].is_null() && state["safe"].is_null());
    for tag in ["finalized", "safe"] {
        assert_eq!(
            chain.error("eth_getBlockByNumber", &json!([tag, false])),
            -32000
        );
        assert_eq!(
            chain.error("eth_getLogs", &json!([{"fromBlock": tag}])),
            -32000
        );
    }
    assert_eq!(
        chain.node.get("/eth/v1/beacon/headers/finalized").status,
        404
    );
    let checkpoints = chain.page("/eth/v1/beacon/states/head/finality_checkpoints");
    assert_eq!(checkpoints["data"]["finalized"]["epoch"], "0");
    chain.change(&json!({"finality": true}));
    assert_eq!(tagged("finalized"), 100);
}

#[test]
fn lagging_node_returns_no_newer_block() {
    let chain = Chain::start(&[]);
    let height_200 = hash_at(&chain, 200);
    chain.change(&json!({"finalize": 140}));
    let state = chain.change(&json!([{"extend": 6}, {"finalize": 170}, {"extend": 4}, {"lag": 8}]));
    assert_eq!(state["head"]["number"], 210);
    assert_eq!(state["served_head"]["number"], 202);
    assert_eq!(chain.head(), 202);
    assert_eq!(
        number(&chain.current_response("eth_blockNumber", &json!([]))["result"]),
        210
    );
    let finalized = |answer: Value| number(&answer["result"]["number"]);
    let request = ("eth_getBlockByNumber", json!(["finalized", false]));
    assert_eq!(finalized(chain.answer(request.0, &request.1)), 140);
    assert_eq!(
        finalized(chain.current_response(request.0, &request.1)),
        170
    );

    // Queries by number, by hash and by transaction.
    let newer =
        chain.current_response("eth_getBlockByNumber", &json!(["0xcc", false]))["result"].clone();
    let unknown = [
        ("eth_getBlockByNumber", json!(["0xcc", false])),
        ("eth_getBlockByHash", json!([newer["hash"], false])),
        (
            "eth_getTransactionReceipt",
            json!([newer["transactions"][0]]),
        ),
    ];
    for (method, params) in &unknown {
        assert_eq!(chain.result(method, params), Value::Null, "{method}");
        assert_ne!(
            chain.current_response(method, params)["result"],
            Value::Null,
            "{method}"
        );
    }
    assert_eq!(hash_at(&chain, 200), height_200);
    let beacon = chain.page("/eth/v1/beacon/headers/head");
    assert_eq!(beacon["data"]["header"]["message"]["slot"], "202");
    let root = chain.current_response("eth_blockNumber", &json!([]));
    assert_eq!(root["result"], hex(210));
    chain.change(&json!({"lag": 0}));
    assert_eq!(chain.head(), 210);
    for (method, params) in &unknown {
        assert_ne!(chain.result(method, params), Value::Null, "{method}");
    }
}

#[test]
fn syncing_is_reported_by_both_apis() {
    let chain = Chain::start(&[]);
    chain.change(&json!({"syncing": true}));
    let syncing = chain.result("eth_syncing", &json!([]));
    assert_eq!(syncing["currentBlock"], "0xc8");
    let page = chain.page("/eth/v1/node/syncing");
    assert_eq!(page["data"]["is_syncing"], true);
    assert_eq!(
        chain.page("/eth/v1/beacon/headers/head")["execution_optimistic"],
        true
    );
    chain.change(&json!({"syncing": false}));
    assert_eq!(chain.result("eth_syncing", &json!([])), false);
}

#[test]
fn replaced_chain_has_another_id_and_other_blocks() {
    let chain = Chain::start(&["--chain-transactions", "6"]);
    let (old, block) = (hash_at(&chain, 150), chain.block(150));
    let state = chain.change(&json!({"replace": {"seed": 9, "chain_id": 5}}));
    assert_eq!(heads(&state), [200, 160, 128]);
    assert_eq!(chain.result("eth_chainId", &json!([])), "0x5");
    assert_ne!(hash_at(&chain, 150), old);
    assert_ne!(hash_at(&chain, 0), json!(null));
    let by_hash = chain.result("eth_getBlockByHash", &json!([old, false]));
    assert_eq!(by_hash, Value::Null);
    let state = chain.change(&json!({"replace": {"seed": 1, "chain_id": 1, "length": 150}}));
    assert_eq!(heads(&state), [150, 96, 64]);
    assert_eq!(chain.block(150), block);
}

#[test]
fn unavailable_node_responds_with_503_or_closes() {
    let chain = Chain::start(&[]);
    chain.change(&json!({"down": true}));
    let request = call("1", "eth_chainId", "[]");
    assert_eq!(chain.node.post("/", &request).status, 503);
    assert_eq!(chain.node.get("/eth/v1/node/syncing").status, 503);
    let honest = chain.current_response("eth_chainId", &json!([]));
    assert_eq!(honest["result"], "0x1");
    let state = chain.change(&json!({"extend": 1}));
    assert_eq!(
        (&state["down"], &state["head"]["number"]),
        (&json!(true), &json!(201))
    );

    chain.change(&json!({"down": "close"}));
    let mut client = chain.node.client();
    client.send_request("POST", "/", "", &request);
    assert_eq!(client.rest(), b"");
    let state = chain.change(&json!({"down": false}));
    assert_eq!(state["down"], false);
    assert_eq!(chain.head(), 201);
    assert_eq!(chain.node.stats()["methods"], json!({"eth_blockNumber": 1}));
}

#[test]
fn delayed_response_shows_the_state_at_its_request() {
    let chain = Chain::start(&[]);
    let hold = |method: &str, ms: u64| chain.change(&json!({"hold": {"method": method, "ms": ms}}));
    let [one, other] = ["eth_chainId", "eth_blockNumber"].map(|method| call("1", method, "[]"));
    let send_requests = || {
        let (mut batch, mut page) = (chain.node.client(), chain.node.client());
        batch.send_request("POST", "/", "", &format!("[{one},{other}]"));
        page.send_request("GET", "/eth/v1/beacon/headers/head", "", "");
        (batch, page)
    };
    for method in ["eth_blockNumber", "GET"] {
        hold(method, 50);
    }
    let (mut batch, mut page) = send_requests();
    // A counted call has been computed.
    chain.node.await_stat("/methods/eth_blockNumber", 1);
    chain.node.await_stat("/pages", 1);
    chain.change(&json!({"extend": 1}));
    let mut response = batch.head();
    batch.body(&mut response);
    assert!(response.text().contains("\"0xc8\""), "{}", response.text());
    let mut response = page.head();
    page.body(&mut response);
    assert!(response.text().contains("\"slot\":\"200\""));
    assert_eq!(response.end, ResponseEnd::Complete);

    // With a delay without end, delayed responses don't arrive and others do.
    for method in ["eth_blockNumber", "GET"] {
        hold(method, 600_000);
    }
    let (mut batch, mut page) = send_requests();
    assert_eq!(chain.block(201)["number"], "0xc9");
    assert!(batch.is_silent() && page.is_silent());
    let state = hold("eth_blockNumber", 0);
    assert_eq!(state["hold"], json!({"GET": 600_000}));
    // The end of the delay sends the delayed responses.
    let mut response = batch.head();
    batch.body(&mut response);
    assert_eq!(response.end, ResponseEnd::Complete);
    assert!(page.is_silent());
    assert_eq!(chain.head(), 201);
    hold("*", 600_000);
    let (mut batch, _) = send_requests();
    assert!(batch.is_silent());
}

#[test]
fn invalid_command_is_refused_and_the_chain_unchanged() {
    let chain = Chain::start(&[]);
    let before = chain.page("/chain");
    for body in [
        "{",
        "{}",
        "7",
        r#"{"extend":-1}"#,
        r#"{"extend":100001}"#,
        r#"{"extend":1,"stall":true}"#,
        r#"{"nothing":1}"#,
        r#"{"reorg":{"depth":1}}"#,
        r#"{"reorg":{"depth":201,"length":1}}"#,
        r#"{"reorg":{"depth":1,"length":0}}"#,
        r#"{"rollback":201}"#,
        r#"{"adopt":"0x12"}"#,
        r#"{"finalize":201}"#,
        r#"{"finalize":1}"#,
        r#"{"unfinalize":128}"#,
        r#"{"down":"maybe"}"#,
        r#"{"hold":{"method":"GET","ms":600001}}"#,
    ] {
        let response = chain.node.post("/chain", body);
        assert_eq!(response.status, 400, "{body}");
        assert!(response.text().starts_with("{\"error\":"), "{body}");
    }
    assert_eq!(chain.page("/chain"), before);
    let mut client = chain.node.client();
    assert_eq!(client.request("PUT", "/chain", "", "{}").status, 405);
    assert_eq!(chain.node.get("/chain/answer").status, 400);
    assert_eq!(chain.node.get("/chain/answer?path=/eth/v9").status, 404);
}
