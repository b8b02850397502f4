//! Calls on the simulated chain: params, errors, envelope.

use serde_json::{json, Value};

use super::chain::{hex, number, Chain, ADDRESS};

#[test]
fn block_parameter_accepts_numbers_tags_and_hashes() {
    let chain = Chain::start(&[]);
    let tagged = |tag: &str| chain.result("eth_getBlockByNumber", &json!([tag, false]));
    for (tag, height) in [
        ("earliest", 0),
        ("finalized", 128),
        ("safe", 160),
        ("latest", 200),
    ] {
        assert_eq!(number(&tagged(tag)["number"]), height, "{tag}");
        let by_tag = chain.result("eth_getBalance", &json!([ADDRESS, tag]));
        let by_number = chain.result("eth_getBalance", &json!([ADDRESS, hex(height)]));
        let object = json!({"blockNumber": hex(height)});
        let by_object = chain.result("eth_getBalance", &json!([ADDRESS, object]));
        assert_eq!((&by_tag, &by_tag), (&by_number, &by_object));
    }
    let pending = tagged("pending");
    assert_eq!(
        (&pending["hash"], number(&pending["number"])),
        (&Value::Null, 201)
    );
    assert_eq!(
        chain.result("eth_getBalance", &json!([ADDRESS])),
        chain.result("eth_getBalance", &json!([ADDRESS, "latest"]))
    );
    let nothing = format!("0x{}", "ab".repeat(32));
    for (method, params) in [
        ("eth_getBlockByNumber", json!(["0xc9", false])),
        ("eth_getBlockByHash", json!([nothing, false])),
        ("eth_getBlockReceipts", json!(["0xc9"])),
        ("eth_getBlockTransactionCountByNumber", json!(["0xc9"])),
        ("eth_getUncleCountByBlockNumber", json!(["0xc9"])),
        ("eth_getTransactionByHash", json!([nothing])),
        ("eth_getTransactionReceipt", json!([nothing])),
        (
            "eth_getTransactionByBlockNumberAndIndex",
            json!(["0xc8", "0xffff"]),
        ),
        ("trace_transaction", json!([nothing])),
    ] {
        assert_eq!(chain.result(method, &params), Value::Null, "{method}");
    }
    for (method, params, code) in [
        ("eth_getBalance", json!([ADDRESS, "0xc9"]), -32000),
        ("eth_call", json!([{}, nothing]), -32000),
        ("eth_feeHistory", json!(["0x1", "0xc9", []]), -32000),
        ("debug_traceTransaction", json!([nothing]), -32000),
        ("debug_traceBlockByNumber", json!(["0xc9"]), -32000),
        ("eth_getLogs", json!([{"blockHash": nothing}]), -32000),
        ("eth_getBlockByNumber", json!(["0x0c8", false]), -32602),
        ("eth_getBlockByNumber", json!([200, false]), -32602),
        ("eth_getBlockByNumber", json!([nothing, false]), -32602),
        ("eth_getBlockByHash", json!(["0xc8", false]), -32602),
        ("eth_getBalance", json!({"address": ADDRESS}), -32602),
        ("eth_call", json!([{"data": "0xdeadbeef"}, "latest"]), 3),
        ("eth_subscribe", json!(["newHeads"]), -32601),
        ("eth_sendRawTransaction", json!(["0x00"]), -32601),
    ] {
        assert_eq!(chain.error(method, &params), code, "{method} {params}");
    }
}

#[test]
fn logs_are_limited_by_range_address_and_topics() {
    let chain = Chain::start(&[]);
    let logs = |filter: Value| {
        let logs = chain.result("eth_getLogs", &json!([filter]));
        logs.as_array().expect("an array").clone()
    };
    let all = logs(json!({"fromBlock": "0xb4"}));
    assert!(all.len() > 20);
    let heights: Vec<u64> = all.iter().map(|log| number(&log["blockNumber"])).collect();
    assert!(heights.is_sorted() && heights[0] >= 0xb4);
    // A range beyond the head is clipped to it.
    assert_eq!(logs(json!({"fromBlock": "0xb4", "toBlock": "0xffff"})), all);
    assert_eq!(logs(json!({"fromBlock": "0xb4", "toBlock": "latest"})), all);
    assert!(logs(json!({"fromBlock": "0xc8", "toBlock": "0xc7"})).is_empty());
    assert!(logs(json!({"fromBlock": "0xc9", "toBlock": "0xcf"})).is_empty());
    let final_ones = logs(json!({"fromBlock": "earliest", "toBlock": "finalized"}));
    assert!(final_ones
        .iter()
        .all(|log| number(&log["blockNumber"]) <= 128));

    let (address, topic) = (&all[0]["address"], &all[0]["topics"][0]);
    let matching = |log: &&Value| log["address"] == *address && log["topics"][0] == *topic;
    let expected: Vec<Value> = all.iter().filter(matching).cloned().collect();
    for (addresses, topics) in [
        (json!(address), json!([topic])),
        (
            json!([address, ADDRESS.replace('d', "e")]),
            json!([[topic]]),
        ),
        (
            json!([address]),
            json!([[topic, format!("0x{}", "1".repeat(64))], null]),
        ),
    ] {
        let filter = json!({"fromBlock": "0xb4", "address": addresses, "topics": topics});
        let found = logs(filter);
        let second = |log: &Value| log["topics"].as_array().map_or(0, Vec::len) > 1;
        let expected: Vec<_> = match topics.as_array().map(Vec::len) {
            Some(2) => expected.iter().filter(|log| second(log)).cloned().collect(),
            _ => expected.clone(),
        };
        assert_eq!(found, expected);
    }
    chain.change(&json!({"extend": 20}));
    assert!(logs(json!({"fromBlock": "0xb4"})).len() > all.len());
}

#[test]
fn fee_history_ends_at_the_newest_block_of_the_params() {
    let chain = Chain::start(&[]);
    let history = chain.result("eth_feeHistory", &json!([4, "finalized", [10, 50]]));
    assert_eq!(history["oldestBlock"], hex(125));
    let lens = [
        "baseFeePerGas",
        "gasUsedRatio",
        "reward",
        "baseFeePerBlobGas",
    ]
    .map(|name| history[name].as_array().unwrap().len());
    assert_eq!(lens, [5, 4, 4, 5]);
    for (index, height) in (125..=128).enumerate() {
        assert_eq!(
            history["baseFeePerGas"][index],
            chain.block(height)["baseFeePerGas"]
        );
    }
}

#[test]
fn ids_and_batches_are_handled_as_with_recordings() {
    let chain = Chain::start(&[]);
    let body = r#"[{"jsonrpc":"2.0","id":"\u0041","method":"eth_chainId"},{"jsonrpc":"2.0","method":"eth_chainId"},{"jsonrpc":"2.0","id":1.50,"method":"eth_syncing","params":[]}]"#;
    let response = chain.node.post("/any/path", body);
    let expected = r#"[{"jsonrpc":"2.0","id":"\u0041","result":"0x1"},{"jsonrpc":"2.0","id":1.50,"result":false}]"#;
    assert_eq!(response.text(), expected);
    let stats = chain.node.stats();
    assert_eq!(
        stats["methods"],
        json!({"eth_chainId": 2, "eth_syncing": 1})
    );
    chain.current_response("eth_chainId", &json!([]));
    chain.change(&json!({"extend": 1}));
    let after = chain.node.stats();
    assert_eq!(
        (&after["methods"], &after["requests"]),
        (&stats["methods"], &stats["requests"])
    );
    let chunked = chain.node.post("/?framing=chunked&gzip=always", body);
    assert_eq!(chunked.gunzipped().unwrap(), expected.as_bytes());
}
