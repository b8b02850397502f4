//! Anchors: responses that another machine can check by a block's hash.

use super::*;
use crate::cache::freshness::BlockAnchor;

/// Formats an anchor as in the rows: the last byte of the hash, and the height if the result names
/// the block.
fn anchor_text(anchor: Option<BlockAnchor>) -> String {
    match anchor {
        Some(BlockAnchor::ByRequest(hash)) => format!("request {:02x}", hash[31]),
        Some(BlockAnchor::ByResult { height, hash }) => {
            format!("result {height} {:02x}", hash[31])
        }
        None => "none".into(),
    }
}

/// Returns the anchor of a result on a chain that is followed: `no` if it is not stored.
fn classify_anchor(method: &str, params: &str, result: &str, valid: &CacheLifetimes) -> String {
    let mark = sample_dispatch_mark();
    let known = ResponseClassificationInput {
        params: Some(params.as_bytes()),
        mark: Some(&mark),
        valid,
    };
    let rules =
        CallLifetimeRules::lifetime_rules_for_call(method.as_bytes(), known.params, known.valid);
    let classified =
        rules.and_then(|rules| rules.classify_fetched_result(result.as_bytes(), known));
    classified.map_or("no".into(), |classified| anchor_text(classified.anchor))
}

fn assert_anchors(table: &str) {
    for [method, params, result, expected] in split_table_rows(table) {
        let valid = CacheLifetimes::default();
        let found = classify_anchor(&method, &params, &result, &valid);
        assert_eq!(found, expected, "{method} {params} {result}");
    }
}

#[test]
fn result_that_names_its_block_is_anchored_by_it() {
    assert_anchors(
        r#"
        eth_getBlockByNumber | ["0x60",false] | {"number":"0x60","hash":HASH} | result 96 aa
        eth_getBlockByNumber | ["0x61",false] | {"number":"0x61","hash":HASH} | result 97 aa
        eth_getBlockByNumber | ["0xa0",false] | {"number":"0xa0","hash":HASH} | result 160 aa
        eth_getBlockReceipts | ["0x61"] | [{"blockNumber":"0x61","blockHash":HASH}] | result 97 aa
        eth_getTransactionReceipt | [OTHER] | {"blockNumber":"0x61","blockHash":HASH,"transactionHash":OTHER} | result 97 aa
        eth_getTransactionByHash | [OTHER] | {"blockNumber":"0x61","blockHash":HASH,"hash":OTHER} | result 97 aa
        eth_getTransactionByBlockNumberAndIndex | ["0x61","0x0"] | {"blockNumber":"0x61","blockHash":HASH} | result 97 aa
        trace_block | ["0x61"] | [{"blockNumber":97,"blockHash":HASH},{"blockNumber":97,"blockHash":HASH}] | result 97 aa
        trace_transaction | [OTHER] | [{"blockNumber":97,"blockHash":HASH,"transactionHash":OTHER}] | result 97 aa
        // a block that the next one is not above yet
        eth_getBlockByNumber | ["0xa1",false] | {"number":"0xa1","hash":HASH} | none
        // the result names no block, or not all of it does
        eth_getBlockByNumber | ["0x61",false] | {} | none
        eth_getBlockByNumber | ["0x61",false] | {"number":"0x61"} | none
        trace_block | ["0x61"] | [{"blockNumber":97,"blockHash":HASH},{"blockNumber":97,"blockHash":OTHER}] | none
        trace_block | ["0x61"] | [{"blockNumber":97,"blockHash":HASH},{}] | none
        eth_getBlockReceipts | ["0x61"] | [] | none"#,
    );
}

#[test]
fn call_that_names_a_hash_is_anchored_by_it() {
    assert_anchors(
        r#"
        eth_getBlockByHash | [HASH,false] | {"number":"0x61","hash":HASH} | request aa
        eth_getBlockTransactionCountByHash | [HASH] | "0x5" | request aa
        debug_traceBlockByHash | [HASH,{}] | [{"result":{}}] | request aa
        eth_call | [{},HASH] | "0x" | request aa
        eth_call | [{},{"blockHash":HASH}] | "0x01" | request aa
        eth_getBalance | [ADDR,{"blockHash":HASH,"requireCanonical":false}] | "0x0" | request aa
        eth_getLogs | [{"blockHash":HASH}] | [{"blockNumber":"0x61","blockHash":HASH}] | request aa
        // of another block, empty, or not there
        eth_getLogs | [{"blockHash":HASH}] | [{"blockNumber":"0x61","blockHash":OTHER}] | none
        eth_getLogs | [{"blockHash":HASH}] | [] | no
        eth_getBlockByHash | [HASH,false] | {"number":"0x61","hash":OTHER} | no
        eth_getBlockByHash | [HASH,false] | null | no
        // on another branch the node returns an error
        eth_getBalance | [ADDR,{"blockHash":HASH,"requireCanonical":true}] | "0x0" | none
        eth_getBlockReceipts | [{"blockHash":HASH,"requireCanonical":true}] | [{"blockNumber":"0x61","blockHash":HASH}] | result 97 aa"#,
    );
}

#[test]
fn logs_of_a_single_block_are_anchored_by_it() {
    assert_anchors(
        r#"
        eth_getLogs | [{"fromBlock":"0x61","toBlock":"0x61"}] | [{"blockNumber":"0x61","blockHash":HASH},{"blockNumber":"0x61","blockHash":HASH}] | result 97 aa
        trace_filter | [{"fromBlock":"0x61","toBlock":"0x61"}] | [{"blockNumber":97,"blockHash":HASH}] | result 97 aa
        eth_getLogs | [{"fromBlock":"0x61","toBlock":"0x61"}] | [] | none
        eth_getLogs | [{"fromBlock":"0x61","toBlock":"0x61"}] | [{"blockNumber":"0x61"}] | none
        eth_getLogs | [{"fromBlock":"0x61","toBlock":"0x61"}] | [{"blockNumber":"0x61","blockHash":HASH},{"blockNumber":"0x61"}] | none
        eth_getLogs | [{"fromBlock":"0x61","toBlock":"0x61"}] | [{"blockNumber":"0x62","blockHash":HASH}] | none
        // ranges
        eth_getLogs | [{"fromBlock":"0x60","toBlock":"0x61"}] | [{"blockNumber":"0x61","blockHash":HASH}] | none
        eth_getLogs | [{"fromBlock":"0x1","toBlock":"0x60"}] | [{"blockNumber":"0x60","blockHash":HASH}] | none
        eth_getLogs | [{"fromBlock":"0x1","toBlock":"0x60"}] | [{"blockNumber":"0x5f","blockHash":HASH}] | none
        eth_getLogs | [{"fromBlock":"earliest","toBlock":"0x61"}] | [{"blockNumber":"0x61","blockHash":HASH}] | none
        eth_getLogs | [{"fromBlock":"0x61"}] | [{"blockNumber":"0x61","blockHash":HASH}] | none"#,
    );
}

#[test]
fn response_that_no_hash_verifies_has_no_anchor() {
    assert_anchors(
        r#"
        eth_call | [{},"0x60"] | "0x01" | none
        eth_getBalance | [ADDR,"0x61"] | "0x0" | none
        eth_getTransactionCount | [ADDR,{"blockNumber":"0x61"}] | "0x0" | none
        eth_getBlockTransactionCountByNumber | ["0x61"] | "0x5" | none
        debug_traceBlockByNumber | ["0x61",{}] | [{"result":{}}] | none
        debug_traceTransaction | [HASH,{}] | {"gas":1} | none
        eth_feeHistory | ["0x1","0x61",[]] | {"oldestBlock":"0x61"} | none
        // an uncle has a hash of its own
        eth_getUncleByBlockNumberAndIndex | ["0x61","0x0"] | {"number":"0x60","hash":HASH} | none
        // the head, and tags that move
        eth_blockNumber | [] | "0xa1" | none
        eth_gasPrice | [] | "0x1" | none
        eth_call | [{},"latest"] | "0x01" | none
        eth_getBlockByNumber | ["latest",false] | {"number":"0xa1","hash":HASH} | none
        eth_getBlockByNumber | ["finalized",false] | {"number":"0x60","hash":HASH} | none
        eth_getBlockByNumber | ["earliest",false] | {"number":"0x0","hash":HASH} | none
        eth_getBlockReceipts | ["latest"] | [{"blockNumber":"0xa1","blockHash":HASH}] | none
        eth_chainId | [] | "0x1" | none
        eth_config | [] | {} | none"#,
    );
}

#[test]
fn list_above_one_mebibyte_is_not_read_for_its_anchor() {
    let element = expand("{\"blockNumber\":97,\"blockHash\":HASH}");
    let list = |count| format!("[{}]", vec![element.as_str(); count].join(","));
    let count = (1 << 20) / (element.len() + 1);
    for (count, expected) in [(count - 1, "result 97 aa"), (count + 1, "none")] {
        let valid = CacheLifetimes::default();
        let found = classify_anchor("trace_block", "[\"0x61\"]", &list(count), &valid);
        assert_eq!(found, expected, "{count}");
    }
}

#[test]
fn method_of_an_operator_is_anchored_by_the_members_of_its_row() {
    for (words, result, expected) in [
        (
            "block=p[0] block=result.head.number",
            "{\"head\":{\"number\":\"0x61\",\"hash\":HASH}}",
            "result 97 aa",
        ),
        // the other elements of a list are not read
        (
            "block=p[0] block=result[0].blockNumber",
            "[{\"blockNumber\":\"0x61\",\"blockHash\":HASH}]",
            "none",
        ),
        (
            "range=p[0]",
            "[{\"blockNumber\":\"0x61\",\"blockHash\":HASH}]",
            "none",
        ),
    ] {
        let valid = lifetimes_with_method_row("acme_block", words);
        let params = match words.starts_with("range") {
            true => "[{\"fromBlock\":\"0x61\",\"toBlock\":\"0x61\"}]",
            false => "[\"0x61\"]",
        };
        let found = classify_anchor("acme_block", params, &expand(result), &valid);
        assert_eq!(found, expected, "{words}");
    }
}
