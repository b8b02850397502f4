//! The simulated chain over JSON-RPC and the Beacon API.

use std::collections::HashSet;

use serde_json::{json, Value};

use super::support::Node;

pub const ADDRESS: &str = "0xdac17f958d2ee523a2206206994597c13d831ec7";

/// A running node with a simulated chain.
pub struct Chain {
    pub node: Node,
}

impl Chain {
    pub fn start(args: &[&str]) -> Self {
        let node = Node::on(&[&["--chain"], args].concat());
        Self { node }
    }

    fn send(&self, target: &str, method: &str, params: &Value) -> Value {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let response = self.node.post(target, &call.to_string());
        assert_eq!(response.status, 200);
        serde_json::from_slice(&response.body).expect("an answer is JSON")
    }

    /// Returns the complete response to a call.
    pub fn answer(&self, method: &str, params: &Value) -> Value {
        self.send("/", method, params)
    }

    /// Returns the response of a node without lag, delay or outage.
    pub fn current_response(&self, method: &str, params: &Value) -> Value {
        self.send("/chain/answer", method, params)
    }

    /// Returns the result of a call.
    pub fn result(&self, method: &str, params: &Value) -> Value {
        let answer = self.answer(method, params);
        assert_eq!(answer["error"], Value::Null, "{method} {params}");
        answer["result"].clone()
    }

    /// Returns the code of a call's error.
    pub fn error(&self, method: &str, params: &Value) -> i64 {
        let answer = self.answer(method, params);
        let code = answer["error"]["code"].as_i64();
        code.unwrap_or_else(|| unreachable!("{method} {params}: {answer}"))
    }

    pub fn page(&self, path: &str) -> Value {
        let response = self.node.get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        serde_json::from_slice(&response.body).expect("a page is JSON")
    }

    /// Changes the chain; returns its state.
    pub fn change(&self, command: &Value) -> Value {
        let response = self.node.post("/chain", &command.to_string());
        assert_eq!(response.status, 200, "{command}: {}", response.text());
        serde_json::from_slice(&response.body).expect("the state is JSON")
    }

    pub fn block(&self, number: u64) -> Value {
        self.result("eth_getBlockByNumber", &json!([hex(number), true]))
    }

    pub fn head(&self) -> u64 {
        let head = self.result("eth_blockNumber", &json!([]));
        number(&head)
    }
}

pub fn hex(number: u64) -> String {
    format!("{number:#x}")
}

pub fn number(quantity: &Value) -> u64 {
    let digits = quantity.as_str().and_then(|text| text.strip_prefix("0x"));
    u64::from_str_radix(digits.expect("a quantity"), 16).expect("a quantity")
}

/// Returns calls that refer to a block by number, and their params.
fn calls_by_number(block: u64) -> Vec<(&'static str, Value)> {
    let at = hex(block);
    vec![
        ("eth_getBlockByNumber", json!([at, true])),
        ("eth_getBlockByNumber", json!([at, false])),
        ("eth_getBlockReceipts", json!([at])),
        (
            "eth_getTransactionByBlockNumberAndIndex",
            json!([at, "0x0"]),
        ),
        ("eth_getLogs", json!([{"fromBlock": at, "toBlock": at}])),
        ("eth_getBalance", json!([ADDRESS, at])),
        ("eth_getTransactionCount", json!([ADDRESS, at])),
        ("eth_getCode", json!([ADDRESS, at])),
        ("eth_getStorageAt", json!([ADDRESS, "0x0", at])),
        (
            "eth_call",
            json!([{"to": ADDRESS, "data": "0x18160ddd"}, at]),
        ),
        ("eth_feeHistory", json!(["0x1", at, [50]])),
        (
            "debug_traceBlockByNumber",
            json!([at, {"tracer": "callTracer"}]),
        ),
        ("trace_block", json!([at])),
    ]
}

/// Returns the highest block below `number`, and not below `least`, that has transactions.
fn busy_block(chain: &Chain, least: u64, number: u64) -> u64 {
    let has_any = |number: &u64| {
        let count = chain.result(
            "eth_getBlockTransactionCountByNumber",
            &json!([hex(*number)]),
        );
        count != "0x0"
    };
    let found = (least..number).rev().find(has_any);
    found.expect("a block with transactions")
}

#[test]
fn blocks_link_to_their_parents_and_agree_in_every_method() {
    let chain = Chain::start(&[
        "--chain-length",
        "40",
        "--chain-id",
        "560048",
        "--chain-genesis-time",
        "1700000000",
    ]);
    let genesis = chain.page("/eth/v1/beacon/genesis");
    assert_eq!(genesis["data"]["genesis_time"], "1700000000");
    assert_eq!(
        number(&chain.block(40)["timestamp"]),
        1_700_000_000 + 40 * 12
    );
    assert_eq!(chain.result("eth_chainId", &json!([])), "0x88bb0");
    assert_eq!(chain.result("net_version", &json!([])), "560048");
    assert_eq!(chain.head(), 40);
    let mut parent = json!(format!("0x{}", "0".repeat(64)));
    let mut time = 0;
    for height in 0..=40 {
        let block = chain.block(height);
        let hash = &block["hash"];
        assert_eq!(
            (&block["parentHash"], number(&block["number"])),
            (&parent, height)
        );
        assert!(number(&block["timestamp"]) > time);
        time = number(&block["timestamp"]);
        assert_eq!(
            chain.result("eth_getBlockByHash", &json!([hash, true])),
            block
        );
        let receipts = chain.result("eth_getBlockReceipts", &json!([hash]));
        let (transactions, receipts) = (
            block["transactions"].as_array().unwrap(),
            receipts.as_array().unwrap(),
        );
        assert_eq!(transactions.len(), receipts.len());
        for (index, (transaction, receipt)) in transactions.iter().zip(receipts).enumerate() {
            assert_eq!(transaction["blockHash"], *hash);
            assert_eq!(number(&transaction["transactionIndex"]), index as u64);
            assert_eq!(receipt["transactionHash"], transaction["hash"]);
            assert_eq!(receipt["blockHash"], *hash);
        }
        parent = hash.clone();
    }
}

#[test]
fn transaction_is_equal_in_every_method() {
    let chain = Chain::start(&[]);
    let height = busy_block(&chain, 100, 200);
    let block = chain.block(height);
    let transaction = &block["transactions"][0];
    let hash = &transaction["hash"];
    let receipts = chain.result("eth_getBlockReceipts", &json!([hex(height)]));
    let traces = chain.result("debug_traceBlockByHash", &json!([block["hash"]]));
    let flat = chain.result("trace_block", &json!([hex(height)]));
    let of_first: Vec<_> = flat
        .as_array()
        .unwrap()
        .iter()
        .filter(|trace| trace["transactionPosition"] == 0)
        .collect();
    let cases = [
        (
            "eth_getTransactionByHash",
            json!([hash]),
            transaction.clone(),
        ),
        (
            "eth_getTransactionByBlockHashAndIndex",
            json!([block["hash"], "0x0"]),
            transaction.clone(),
        ),
        (
            "eth_getTransactionByBlockNumberAndIndex",
            json!([hex(height), "0x0"]),
            transaction.clone(),
        ),
        (
            "eth_getTransactionReceipt",
            json!([hash]),
            receipts[0].clone(),
        ),
        (
            "debug_traceTransaction",
            json!([hash]),
            traces[0]["result"].clone(),
        ),
        ("trace_transaction", json!([hash]), json!(of_first)),
    ];
    for (method, params, expected) in cases {
        assert_eq!(chain.result(method, &params), expected, "{method}");
    }
}

#[test]
fn chain_depends_only_on_seed_and_commands() {
    let commands = [
        json!({"extend": 3}),
        json!({"reorg": {"depth": 2, "length": 4}}),
        json!({"rollback": 1}),
        json!({"finalize": null}),
    ];
    let states = ["1", "1", "2"].map(|seed| {
        let chain = Chain::start(&["--seed", seed]);
        let states = commands.iter().map(|command| {
            let state = chain.change(command);
            json!([state["head"], state["finalized"], state["safe"]])
        });
        let states: Vec<_> = states.collect();
        let answers = calls_by_number(180).into_iter();
        let answers: Vec<_> = answers.map(|(m, p)| chain.answer(m, &p)).collect();
        (states, answers)
    });
    assert!(states[0] == states[1]);
    for (one, other) in states[0].1.iter().zip(&states[2].1) {
        assert_ne!(one, other);
    }
}

#[test]
fn responses_about_a_height_differ_between_branches() {
    let chain = Chain::start(&[]);
    // Finds a height with logs on both branches.
    let height = (150..200)
        .rev()
        .find(|height| {
            let filter = json!([{"fromBlock": hex(*height), "toBlock": hex(*height)}]);
            chain.result("eth_getLogs", &filter) != json!([])
        })
        .expect("a block with logs");
    let calls = calls_by_number(height);
    let before: Vec<_> = calls.iter().map(|(m, p)| chain.answer(m, p)).collect();
    let depth = 201 - height;
    chain.change(&json!({"reorg": {"depth": depth, "length": depth}}));
    assert_eq!(chain.head(), 200);
    for ((method, params), before) in calls.iter().zip(before) {
        assert_eq!(before["error"], Value::Null, "{method}");
        assert_ne!(chain.answer(method, params), before, "{method} {params}");
    }
}

#[test]
fn orphaned_block_is_found_by_hash_only() {
    let chain = Chain::start(&[]);
    let height = busy_block(&chain, 190, 200);
    let block = chain.block(height);
    let hash = block["hash"].clone();
    let of_hash = json!({"blockHash": hash});
    let canonical = json!({"blockHash": hash, "requireCanonical": true});
    let calls = [
        ("eth_getBlockByHash", json!([hash, true])),
        ("eth_getBlockReceipts", json!([hash])),
        ("eth_getBlockReceipts", json!([of_hash])),
        ("eth_getLogs", json!([{"blockHash": hash}])),
        ("eth_getBlockTransactionCountByHash", json!([hash])),
        ("eth_getUncleCountByBlockHash", json!([hash])),
        ("eth_getBalance", json!([ADDRESS, of_hash])),
        ("eth_getBalance", json!([ADDRESS, hash])),
        ("eth_call", json!([{"to": ADDRESS}, of_hash])),
        ("debug_traceBlockByHash", json!([hash])),
    ];
    let before: Vec<_> = calls.iter().map(|(m, p)| chain.result(m, p)).collect();
    chain.result("eth_getBalance", &json!([ADDRESS, canonical]));
    chain.change(&json!({"reorg": {"depth": 201 - height, "length": 1}}));
    for ((method, params), before) in calls.iter().zip(before) {
        assert_eq!(chain.result(method, params), before, "{method}");
    }
    assert_eq!(
        chain.error("eth_getBalance", &json!([ADDRESS, canonical])),
        -32000
    );
    let root = chain.page("/eth/v1/beacon/headers/head");
    assert_eq!(root["data"]["canonical"], true);
}

#[test]
fn orphaned_transactions_are_included_pending_or_dropped_after_a_reorg() {
    let chain = Chain::start(&["--chain-transactions", "12"]);
    let orphaned: Vec<Value> = (195..=200)
        .flat_map(|height| {
            chain.block(height)["transactions"]
                .as_array()
                .unwrap()
                .clone()
        })
        .collect();
    chain.change(&json!({"reorg": {"depth": 6, "length": 7}}));
    let (mut again, mut waiting, mut gone) = (0, 0, 0);
    for old in &orphaned {
        let hash = &old["hash"];
        let now = chain.result("eth_getTransactionByHash", &json!([hash]));
        let receipt = chain.result("eth_getTransactionReceipt", &json!([hash]));
        if now.is_null() {
            gone += 1;
            assert!(receipt.is_null());
        } else if now["blockHash"].is_null() {
            waiting += 1;
            assert!(receipt.is_null() && now["blockNumber"].is_null());
            assert_eq!((&now["from"], &now["nonce"]), (&old["from"], &old["nonce"]));
        } else {
            again += 1;
            assert_ne!(now["blockHash"], old["blockHash"]);
            assert_eq!(receipt["blockHash"], now["blockHash"]);
            assert_eq!((&now["from"], &now["input"]), (&old["from"], &old["input"]));
            let block = chain.result("eth_getBlockByHash", &json!([now["blockHash"], false]));
            let hashes = block["transactions"].as_array().unwrap();
            assert!(hashes.contains(hash));
        }
    }
    assert!(
        again > 3 && waiting > 3 && gone > 3,
        "{again} {waiting} {gone}"
    );
    // Pending transactions are included eventually.
    chain.change(&json!({"extend": 40}));
    let included = orphaned.iter().filter(|old| {
        let receipt = chain.result("eth_getTransactionReceipt", &json!([old["hash"]]));
        !receipt.is_null()
    });
    assert!(included.count() > again);
}

#[test]
fn beacon_pages_agree_with_the_chain() {
    let chain = Chain::start(&[]);
    chain.change(&json!({"miss": 3}));
    chain.change(&json!({"extend": 2}));
    let head = chain.page("/eth/v1/beacon/headers/head");
    let message = &head["data"]["header"]["message"];
    assert_eq!(message["slot"], "205");
    assert_eq!(
        (&head["finalized"], &head["execution_optimistic"]),
        (&json!(false), &json!(false))
    );
    let parent = message["parent_root"].as_str().unwrap();
    let by_root = chain.page(&format!("/eth/v1/beacon/headers/{parent}"));
    assert_eq!(by_root["data"]["header"]["message"]["slot"], "204");
    assert_eq!(by_root, chain.page("/eth/v1/beacon/headers/204"));
    assert_eq!(chain.node.get("/eth/v1/beacon/headers/202").status, 404);
    assert_eq!(chain.node.get("/eth/v1/beacon/headers/206").status, 404);
    assert_eq!(chain.node.get("/eth/v1/beacon/headers/latest").status, 400);

    let final_block = chain.node.get("/eth/v2/beacon/blocks/finalized");
    assert_eq!(
        final_block.header("eth-consensus-version").as_deref(),
        Some("deneb")
    );
    let block: Value = serde_json::from_slice(&final_block.body).unwrap();
    assert_eq!(
        (&block["version"], &block["finalized"]),
        (&json!("deneb"), &json!(true))
    );
    let payload = &block["data"]["message"]["body"]["execution_payload"];
    assert_eq!(payload["block_number"], "128");
    assert_eq!(payload["block_hash"], chain.block(128)["hash"]);
    let root = chain.page("/eth/v1/beacon/blocks/finalized/root");
    let checkpoints = chain.page("/eth/v1/beacon/states/head/finality_checkpoints");
    assert_eq!(
        checkpoints["data"]["finalized"]["root"],
        root["data"]["root"]
    );
    assert_eq!(checkpoints["data"]["finalized"]["epoch"], "4");
    let genesis = chain.page("/eth/v1/beacon/genesis");
    assert_eq!(genesis["data"]["genesis_time"], "1606824023");
    assert_eq!(
        chain.page("/eth/v1/config/spec")["data"]["SLOTS_PER_EPOCH"],
        "32"
    );
    assert_eq!(
        chain.page("/eth/v1/node/syncing")["data"]["is_syncing"],
        false
    );
    let honest = chain.page("/chain/answer?path=/eth/v1/beacon/headers/head");
    assert_eq!(honest, head);

    // An orphaned block is found by its root and is not canonical.
    let old = head["data"]["root"].as_str().unwrap();
    chain.change(&json!({"reorg": {"depth": 1, "length": 1}}));
    let orphan = chain.page(&format!("/eth/v1/beacon/headers/{old}"));
    assert_eq!(orphan["data"]["canonical"], false);
    assert_ne!(
        chain.page("/eth/v1/beacon/headers/head")["data"]["root"],
        old
    );
}

#[test]
fn chain_of_thousands_of_blocks_starts_immediately_and_grows_by_itself() {
    let chain = Chain::start(&[
        "--chain-length",
        "5000",
        "--chain-slot-ms",
        "1",
        "--chain-reorgs",
        "0.2",
        "--chain-missed",
        "0.1",
        "--threads",
        "2",
    ]);
    assert_eq!(chain.block(5)["number"], "0x5");
    let mut heads = HashSet::new();
    for _ in 0..12_000 {
        let state = chain.change(&json!({"finality": true}));
        heads.insert(state["head"]["hash"].to_string());
        if state["blocks"].as_u64() > Some(5200) && heads.len() > 5 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(heads.len() > 5);
    let state = chain.change(&json!({"stall": true}));
    assert!(state["blocks"].as_u64() > Some(5200));
    assert!(state["finalized"]["number"].as_u64() > Some(4900));
    // time for 30 slots: a stalled chain does not grow in any time
    std::thread::sleep(std::time::Duration::from_millis(30));
    let later = chain.page("/chain");
    assert_eq!(later["head"], state["head"]);
}
