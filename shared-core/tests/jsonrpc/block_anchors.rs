//! Anchors of recorded responses, compared with all hashes that the responses contain.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::Value;
use sszip_core::cache::freshness::{
    BlockAnchor, CacheLifetimes, CallLifetimeRules, ResponseClassificationInput,
};

/// A call and its response, as a node has sent it.
#[derive(Deserialize)]
struct RecordedExchange<'a> {
    #[serde(borrow)]
    request: RecordedRequest<'a>,
    #[serde(borrow)]
    response: RecordedResponse<'a>,
}

#[derive(Deserialize)]
struct RecordedRequest<'a> {
    method: String,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RecordedResponse<'a> {
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
}

fn classify_anchor(method: &str, params: Option<&str>, result: &str) -> Option<BlockAnchor> {
    let valid = CacheLifetimes::default();
    let known = ResponseClassificationInput {
        params: params.map(str::as_bytes),
        mark: None,
        valid: &valid,
    };
    CallLifetimeRules::lifetime_rules_for_call(method.as_bytes(), known.params, &valid)?
        .classify_fetched_result(result.as_bytes(), known)?
        .anchor
}

/// Calls `visit` with the value of each member called `name`, at any depth.
fn visit_members<'a>(value: &'a Value, name: &str, visit: &mut impl FnMut(&'a Value)) {
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                if member == name {
                    visit(value);
                }
                visit_members(value, name, visit);
            }
        }
        Value::Array(elements) => {
            for element in elements {
                visit_members(element, name, visit);
            }
        }
        _ => {}
    }
}

fn lower_text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_lowercase()
}

/// Checks that a result belongs to one block, the one of the anchor.
fn assert_result_names_only(result: &Value, height: u64, hash: &str, context: &str) {
    let mut count = 0;
    visit_members(result, "blockHash", &mut |found| {
        assert_eq!(lower_text(found), hash, "{context}");
        count += 1;
    });
    visit_members(result, "blockNumber", &mut |found| {
        let number = match found {
            Value::Number(number) => number.as_u64(),
            text => u64::from_str_radix(&lower_text(text)[2..], 16).ok(),
        };
        assert_eq!(number, Some(height), "{context}");
    });
    let is_block = result.get("transactionsRoot").is_some();
    if is_block {
        assert_eq!(lower_text(&result["hash"]), hash, "{context}");
        let number = lower_text(&result["number"]);
        assert_eq!(number, format!("{height:#x}"), "{context}");
    }
    assert!(is_block || count > 0, "{context}");
    // the elements of a list are of that block, each of them
    for element in result.as_array().into_iter().flatten() {
        assert_eq!(lower_text(&element["blockHash"]), hash, "{context}");
    }
}

#[test]
fn anchors_of_the_corpus_are_the_only_blocks_of_their_results() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    if !corpus.exists() {
        let name = "anchors_of_the_corpus_are_the_only_blocks_of_their_results";
        eprintln!("skipped {name}: ../shared/corpus is absent");
        return;
    }
    // by method: anchors by the request, anchors by the result, results without one
    let mut counts: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for folder in std::fs::read_dir(corpus.join("execution")).expect("a folder") {
        for file in std::fs::read_dir(folder.expect("an entry").path()).expect("a folder") {
            let path = file.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("a file");
            // some files record batches
            let recorded: Vec<RecordedExchange<'_>> = match serde_json::from_str(&text) {
                Ok(recorded) => recorded,
                Err(_) => continue,
            };
            for RecordedExchange { request, response } in recorded {
                let Some(result) = response.result.map(RawValue::get) else {
                    continue;
                };
                let params = request.params.map(RawValue::get);
                let anchor = classify_anchor(&request.method, params, result);
                let context = format!("{} {}", request.method, path.display());
                let count = counts.entry(request.method).or_default();
                match anchor {
                    Some(BlockAnchor::ByRequest(hash)) => {
                        let digits = const_hex::encode(hash);
                        assert!(
                            params.unwrap().to_lowercase().contains(&digits),
                            "{context}"
                        );
                        count[0] += 1;
                    }
                    Some(BlockAnchor::ByResult { height, hash }) => {
                        let hash = format!("0x{}", const_hex::encode(hash));
                        let result: Value = serde_json::from_str(result).expect("JSON");
                        assert_result_names_only(&result, height, &hash, &context);
                        count[1] += 1;
                    }
                    None => count[2] += 1,
                }
            }
        }
    }
    let count = |method: &str| counts.get(method).copied().unwrap_or_default();
    for method in [
        "eth_getBlockByNumber",
        "eth_getBlockReceipts",
        "eth_getTransactionByHash",
        "eth_getTransactionReceipt",
        "trace_block",
        "trace_transaction",
    ] {
        assert!(count(method)[1] > 0, "{method}: {:?}", count(method));
    }
    for method in [
        "debug_traceBlockByHash",
        "eth_getBlockByHash",
        "eth_getTransactionByBlockHashAndIndex",
    ] {
        assert!(count(method)[0] > 0, "{method}: {:?}", count(method));
        assert_eq!(count(method)[1], 0, "{method}");
    }
    // the state at a number, and traces without a hash
    for method in [
        "debug_traceTransaction",
        "eth_call",
        "eth_feeHistory",
        "eth_getBalance",
        "eth_getCode",
        "eth_getStorageAt",
        "trace_replayTransaction",
    ] {
        assert!(count(method)[1] == 0 && count(method)[2] > 0, "{method}");
    }
}
