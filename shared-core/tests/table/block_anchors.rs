//! Anchors of the entries that exchanges store at their owner.

use std::sync::atomic::AtomicU64;
use std::sync::Arc;

use serde_json::{json, Value};
use sszip_core::cache::freshness::BlockAnchor;

use super::coalescing::{config, node_response, request};
use super::event_loops::{EventLoopsHost, HostOptions};
use super::host::TestHost;
use super::owner::OwnerReplies;

/// Returns the anchors of the entries that are stored for calls with this response.
fn stored_anchors(calls: &Value, response: Value) -> Vec<Option<BlockAnchor>> {
    let host = EventLoopsHost::new(HostOptions {
        event_loops: 1,
        memory: Some(1 << 20),
        owner: Some(OwnerReplies::Direct),
    });
    let at_node = Box::new(move |_: &[u8]| Some(node_response(200, &response)));
    let purged = Arc::new(AtomicU64::new(0));
    host.request(request(&config(&host), calls, "identity", at_node, &purged))
        .unwrap();
    let owner = &host.owner.as_ref().unwrap().owned;
    let anchors = owner.anchors.lock().unwrap();
    anchors.clone()
}

fn call(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn answer(id: u64, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn hash_text(byte: u8) -> String {
    format!("0x{}", format!("{byte:02x}").repeat(32))
}

#[test]
fn stored_entry_of_a_call_has_its_anchor() {
    let block = json!({"number": "0x10", "hash": hash_text(7), "transactions": []});
    let by_result = Some(BlockAnchor::ByResult {
        height: 16,
        hash: [7; 32],
    });
    let by_request = Some(BlockAnchor::ByRequest([7; 32]));
    for (method, params, result, expected) in [
        (
            "eth_getBlockByNumber",
            json!(["0x10", false]),
            block.clone(),
            by_result,
        ),
        (
            "eth_getBlockByHash",
            json!([hash_text(7), false]),
            block,
            by_request,
        ),
        (
            "eth_getBalance",
            json!([format!("0x{}", "00".repeat(20)), "0x10"]),
            json!("0x1"),
            None,
        ),
    ] {
        let anchors = stored_anchors(&call(1, method, params), answer(1, result));
        assert_eq!(anchors, [expected], "{method}");
    }
}

#[test]
fn stored_entries_of_a_batch_have_their_own_anchors() {
    let calls = json!([
        call(1, "eth_getBlockByNumber", json!(["0x10", false])),
        call(2, "eth_getBlockByNumber", json!(["0x11", false])),
    ]);
    let block = |number: &str, byte| json!({"number": number, "hash": hash_text(byte)});
    let response = json!([answer(2, block("0x11", 8)), answer(1, block("0x10", 7))]);
    let mut anchors = stored_anchors(&calls, response);
    anchors.sort_by_key(|anchor| match anchor {
        Some(BlockAnchor::ByResult { height, .. }) => *height,
        _ => 0,
    });
    let expected = [(16, 7), (17, 8)].map(|(height, byte)| {
        Some(BlockAnchor::ByResult {
            height,
            hash: [byte; 32],
        })
    });
    assert_eq!(anchors, expected);
}
