mod block_anchors;
mod block_ranges;
mod block_time;
mod proven_range;

use std::sync::{Arc, LazyLock};

use super::{
    CacheLifetimes, CallLifetimeRules, FinalityUpgrade, LifetimeClass, ResponseClassificationInput,
    ResultOrError,
};
use crate::cache::chain::{ChainChange, ChainState, DispatchMark, HeightUnit, NamespaceChain};
use crate::jsonrpc::method_spec::{method_row_to_words, MethodSpecs};
use crate::jsonrpc::methods;

/// Abbreviations in the rows of tables.
const WORDS: [(&str, &str); 3] = [
    (
        "HASH",
        "\"0x00000000000000000000000000000000000000000000000000000000000000aa\"",
    ),
    (
        "OTHER",
        "\"0x00000000000000000000000000000000000000000000000000000000000000bb\"",
    ),
    ("ADDR", "\"0x00000000000000000000000000000000000000aa\""),
];

/// Splits a table into the columns of each row.
fn split_table_rows<const N: usize>(text: &str) -> impl Iterator<Item = [String; N]> + '_ {
    let rows = text.lines().map(str::trim);
    let rows = rows.filter(|row| !row.is_empty() && !row.starts_with("//"));
    rows.map(|row| {
        let columns: Vec<String> = row
            .split(" | ")
            .map(|column| expand(column.trim()))
            .collect();
        columns.try_into().unwrap()
    })
}

fn expand(text: &str) -> String {
    let words = WORDS.iter();
    words.fold(text.into(), |text, (word, whole)| text.replace(word, whole))
}

fn known(params: &str) -> ResponseClassificationInput<'_> {
    static VALID: LazyLock<CacheLifetimes> = LazyLock::new(CacheLifetimes::default);
    ResponseClassificationInput {
        params: Some(params.as_bytes()),
        mark: None,
        valid: &VALID,
    }
}

fn prospect(method: &str, params: &str) -> Option<CallLifetimeRules> {
    let known = known(params);
    CallLifetimeRules::lifetime_rules_for_call(method.as_bytes(), known.params, known.valid)
}

/// Formats a classification as in the rows: class with block or height, or `no` if it is not
/// stored.
fn classification_text(classified: Option<(LifetimeClass, Option<u64>)>) -> String {
    match classified {
        Some((class, Some(number))) => format!("{} {number}", class.name()),
        Some((class, None)) => class.name().into(),
        None => "no".into(),
    }
}

#[test]
fn class_is_determined_by_the_block_reference() {
    let table = r#"
        eth_getBlockByHash | [HASH,false] | immutable
        // Erigon reads these as a block of the chain
        eth_getBlockByHash | ["latest",false] | no
        eth_getBlockByHash | ["0x10",false] | no
        erigon_getLogsByHash | [] | no
        debug_accountAt | [HASH,0,ADDR] | immutable
        debug_accountAt | ["0x10",0,ADDR] | unfinalized
        debug_accountAt | ["latest",0,ADDR] | tip
        eth_getBlockByNumber | ["0x10",true] | unfinalized
        eth_getBlockByNumber | ["latest",true] | tip
        eth_getBlockByNumber | ["safe",true] | tip
        eth_getBlockByNumber | ["finalized",true] | tip
        eth_getBlockByNumber | ["earliest",true] | unfinalized
        eth_getBlockByNumber | ["pending",true] | no
        eth_getBlockByNumber | ["0x0010",true] | no
        eth_getBlockByNumber | [16,true] | no
        eth_estimateGas | [{},"pending"] | no
        eth_estimateGas | [{},"latest"] | tip
        eth_simulateV1 | [{},"pending"] | no
        // an absent block is the latest one
        eth_getBalance | [ADDR] | tip
        eth_estimateGas | [{}] | tip
        eth_getLogs | [{"fromBlock":"0x1"}] | tip
        // they change state, or depend on no block
        eth_sendRawTransaction | [] | no
        eth_sendRawTransactionSync | ["0x02"] | no
        eth_sendRawTransactionConditional | ["0x02",{}] | no
        eth_sendPrivateTransaction | [{}] | no
        eth_fillTransaction | [{}] | no
        eth_syncing | [] | no
        engine_newPayloadV4 | [] | no
        eth_newFilter | [] | no
        eth_getFilterChanges | [] | no
        nobody_knowsThis | [] | no"#;
    for [method, params, expected] in split_table_rows(table) {
        let class = prospect(&method, &params).map(|prospect| (prospect.class, None));
        assert_eq!(classification_text(class), expected, "{method} {params}");
    }
}

#[test]
fn response_may_be_immutable_unless_it_depends_on_the_head_or_the_node() {
    let table = r#"
        eth_getBlockByHash | [HASH,false] | true
        eth_getBlockByNumber | ["0x10",true] | true
        eth_getBlockByNumber | ["earliest",true] | true
        eth_getTransactionReceipt | [HASH] | true
        eth_getLogs | [{"fromBlock":"0x1","toBlock":"0x2"}] | true
        eth_chainId | [] | true
        eth_getBlockByNumber | ["latest",true] | false
        eth_getBlockByNumber | ["finalized",true] | false
        eth_getBalance | [ADDR] | false
        eth_getLogs | [{"fromBlock":"0x1"}] | false
        eth_config | [] | false"#;
    for [method, params, expected] in split_table_rows(table) {
        let may_be = prospect(&method, &params).unwrap().may_be_immutable();
        assert_eq!(may_be.to_string(), expected, "{method} {params}");
    }
}

#[test]
fn block_of_a_response_is_read_from_the_call_or_the_result() {
    let table = r#"
        eth_getTransactionReceipt | [HASH] | null | no
        eth_getBlockByHash | [HASH,true] | null | no
        eth_getTransactionByHash | [HASH] | {"blockHash":null,"blockNumber":null} | no
        // empty code and a balance of zero are valid results
        eth_getCode | [ADDR,"0x10"] | "0x" | unfinalized 16
        eth_getBalance | [ADDR,"0x10"] | "0x0" | unfinalized 16
        eth_getBlockByNumber | ["0x10",true] | {} | unfinalized 16
        eth_getBlockByHash | [HASH,true] | {"number":"0x11","hash":HASH} | immutable 17
        eth_getBlockByHash | [HASH,true] | {} | immutable
        eth_getBlockByNumber | ["latest",true] | {"number":"0x11","hash":HASH} | tip
        eth_chainId | [] | "0x1" | immutable
        eth_getLogs | [{"fromBlock":"0x1","toBlock":"0x5"}] | [] | unfinalized
        // the block is added to a batch of another chain some hours later
        eth_getBlockByHash | [HASH] | {"number":"0x1","hash":HASH,"l1BatchNumber":null} | unfinalized 1
        eth_getBlockByHash | [HASH] | {"number":"0x1","hash":HASH,"l1BatchNumber":"0x1"} | immutable 1"#;
    for [method, params, result, expected] in split_table_rows(table) {
        let classified = prospect(&method, &params).and_then(|prospect| {
            prospect.classify_fetched_result(result.as_bytes(), known(&params))
        });
        let block = classified.map(|classified| (classified.class, classified.block));
        assert_eq!(
            classification_text(block),
            expected,
            "{method} {params} {result}"
        );
    }
}

/// Returns a dispatch mark with head 160, finalized block 96, and a reported head 161.
fn sample_dispatch_mark() -> DispatchMark {
    let mut state = ChainState::new_without_blocks(HeightUnit::Blocks, 1_000);
    state.apply_chain_change(ChainChange::ChainVerified(true));
    state.apply_chain_change(ChainChange::Head(160));
    state.apply_chain_change(ChainChange::Final(Some(96)));
    state.seen = 161;
    NamespaceChain::new(state).chain_mark_at_dispatch()
}

/// Returns the default lifetimes with a method row of an operator.
fn lifetimes_with_method_row(method: &str, words: &str) -> CacheLifetimes {
    let mut rows = MethodSpecs::default();
    let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
    rows.add_method_row(method.as_bytes(), &words).unwrap();
    CacheLifetimes::default().with_operator_method_rows(Arc::new(rows))
}

/// Classifies the result of each row, on a chain that is followed, and compares class and height.
/// An operator's method with an equal method row is classified equally.
fn assert_rows_classified(table: &str, mark: &DispatchMark) {
    for [method, params, result, expected] in split_table_rows(table) {
        let known = ResponseClassificationInput {
            mark: Some(mark),
            ..known(&params)
        };
        let classified = prospect(&method, &params)
            .and_then(|prospect| prospect.classify_fetched_result(result.as_bytes(), known));
        let summary = classified.map(|classified| {
            assert_eq!(
                classified.valid,
                known.valid.lifetime_for_class(classified.class)
            );
            (classified.class, classified.height)
        });
        assert_eq!(
            classification_text(summary),
            expected,
            "{method} {params} {result}"
        );
        let words = method_row_to_words(methods::find_method_row(method.as_bytes()));
        let theirs = method.replacen(method.split('_').next().unwrap(), "acme", 1);
        let valid = lifetimes_with_method_row(&theirs, &words);
        let known = ResponseClassificationInput {
            valid: &valid,
            ..known
        };
        let prospect = CallLifetimeRules::lifetime_rules_for_call(
            theirs.as_bytes(),
            known.params,
            known.valid,
        );
        let again = prospect
            .and_then(|prospect| prospect.classify_fetched_result(result.as_bytes(), known));
        let hashless = |classified: super::ResponseClassification| {
            (
                classified.class,
                classified.height,
                classified.block,
                classified.if_final,
            )
        };
        assert_eq!(
            again.map(hashless),
            classified.map(hashless),
            "{theirs} {words} {params}"
        );
    }
}

#[test]
fn response_about_a_finalized_block_is_immutable() {
    let table = r#"
        eth_getBlockByNumber | ["0x60",false] | {"number":"0x60","hash":HASH} | immutable 96
        eth_getBlockByNumber | ["0x61",false] | {"number":"0x61","hash":HASH} | unfinalized 97
        // the result is of another block
        eth_getBlockByNumber | ["0x60",false] | {"number":"0x61","hash":HASH} | no
        eth_getBlockByNumber | ["0x60",false] | null | no
        // the first block of a node may change
        eth_getBlockByNumber | ["earliest",false] | {"number":"0x0","hash":HASH} | unfinalized
        eth_getBlockByNumber | ["finalized",false] | {"number":"0x60","hash":HASH} | tip 161
        eth_getBlockByNumber | ["latest",false] | {"number":"0xa1","hash":HASH} | tip 161
        eth_getBlockByNumber | ["latest",false] | {"number":"0xaa","hash":HASH} | tip 170
        eth_getBlockByNumber | ["latest",false] | {"number":"0xa0","hash":HASH} | no
        eth_blockNumber | [] | "0xa1" | tip 161
        eth_blockNumber | [] | "0xa0" | no
        eth_gasPrice | [] | "0x1" | tip 161
        eth_getBalance | [ADDR,"0x60"] | "0x0" | immutable 96
        eth_getBalance | [ADDR,"0x0"] | "0x0" | immutable 0
        eth_getBalance | [ADDR] | "0x0" | tip 161
        eth_getCode | [ADDR,"0x60"] | "0x" | immutable 96
        eth_getBlockByHash | [HASH,false] | {"number":"0x96","hash":HASH} | immutable 150
        eth_getBlockByHash | [OTHER,false] | {"number":"0x96","hash":HASH} | no
        eth_getBlockReceipts | [{"blockHash":OTHER,"requireCanonical":true}] | [{"blockNumber":"0x60","blockHash":OTHER}] | immutable 96
        eth_getBlockReceipts | [{"blockHash":OTHER,"requireCanonical":true}] | [{"blockNumber":"0x61","blockHash":OTHER}] | unfinalized 97
        eth_getBlockReceipts | ["0x60"] | [] | unfinalized 96
        eth_getLogs | [{"fromBlock":"0x1","toBlock":"0x60"}] | [{"blockNumber":"0x60"}] | immutable 96
        // a node whose head is block 95 may have returned this
        eth_getLogs | [{"fromBlock":"0x1","toBlock":"0x60"}] | [{"blockNumber":"0x5f"}] | unfinalized 96
        eth_getLogs | [{"fromBlock":"0x1","toBlock":"0x60"}] | [{}] | unfinalized 96
        eth_getLogs | [{"fromBlock":"0x1","toBlock":"0x60"}] | [] | unfinalized 96
        eth_getLogs | [{"fromBlock":"0x5a","toBlock":"0x61"}] | [{}] | unfinalized 97
        eth_getLogs | [{"fromBlock":"0x5a","toBlock":"0xa0"}] | [{}] | unfinalized 160
        // the next block extends it
        eth_getLogs | [{"fromBlock":"0x5a","toBlock":"0xa1"}] | [{}] | tip 161
        eth_getLogs | [{"fromBlock":"0x1"}] | [{}] | tip 161
        eth_getTransactionReceipt | [HASH] | {"blockNumber":"0x60","blockHash":OTHER,"transactionHash":HASH} | immutable 96
        eth_getTransactionReceipt | [HASH] | {"blockNumber":"0x61","blockHash":OTHER,"transactionHash":HASH} | unfinalized 97
        debug_traceTransaction | [HASH] | {} | unfinalized
        eth_chainId | [] | "0x1" | immutable"#;
    assert_rows_classified(table, &sample_dispatch_mark());
}

#[test]
fn result_that_the_node_may_complete_later_is_not_immutable() {
    let table = r#"
        debug_traceBlockByNumber | ["0x60",{}] | [{"result":{"error":"execution reverted"}}] | immutable 96
        debug_traceBlockByNumber | ["0x60",{}] | [{"result":{}},{"error":"execution timeout"}] | no
        debug_traceBlockByNumber | ["latest"] | [{"result":{}},{"error":"execution timeout"}] | no
        // a trace without a wrapper: the error is the call's own
        debug_traceBlockByNumber | ["0x60",{}] | [{"type":"CALL","from":ADDR,"error":"execution reverted"}] | immutable 96
        trace_replayBlockTransactions | ["0x60",{}] | [{"result":{}},{"error":"execution timeout"}] | no
        debug_traceBlockByHash | [HASH] | [{"result":{}},{"error":"execution timeout"}] | no
        debug_traceBlockByHash | [HASH] | [{"result":{"error":"execution reverted"}}] | immutable
        eth_getBlockByNumber | ["0x60",true] | {"number":"0x60","hash":HASH,"l1BatchNumber":"0x1"} | immutable 96
        eth_getBlockByNumber | ["0x60",true] | {"number":"0x60","hash":HASH,"l1BatchNumber":null} | unfinalized 96
        eth_getBlockByHash | [HASH] | {"number":"0x5a","hash":HASH,"l1BatchNumber":"0x1"} | immutable 90
        eth_getBlockByHash | [HASH] | {"number":"0x5a","hash":HASH,"l1BatchNumber":null} | unfinalized 90
        eth_getLogs | [{"fromBlock":"0x1","toBlock":"0x60"}] | [{"blockNumber":"0x60","l1BatchNumber":null}] | unfinalized 96
        // there may be no block with that hash later
        eth_getBlockByHash | [HASH] | {"number":"0xa0","hash":HASH} | immutable 160
        eth_getBlockByHash | [HASH] | {"number":"0xa1","hash":HASH} | tip 161
        eth_getBlockByNumber | ["0xa1",true] | {"number":"0xa1","hash":HASH} | tip 161"#;
    assert_rows_classified(table, &sample_dispatch_mark());
}

#[test]
fn client_specific_methods_are_classified_by_their_block() {
    let table = r#"
        eth_getStorageValues | [{},"0x60"] | {} | immutable 96
        eth_getStorageValues | [{}] | {} | tip 161
        eth_getBlockAccessList | ["0x60"] | [{}] | immutable 96
        eth_getBlockAccessListRaw | ["0x60"] | "0xc0" | immutable 96
        // nodes return this for a missing block
        eth_getBlockAccessListRaw | ["0x60"] | "0x" | no
        eth_getMultiProof | [[],"0x60"] | [{}] | immutable 96
        debug_simulateV1 | [{},"0x60"] | [{}] | tip 161
        debug_traceTransactionByBlockAndIndex | ["0x60",0] | {} | immutable 96
        proof_getTransactionByHash | [HASH] | {} | unfinalized
        trace_block | [HASH] | [{"blockNumber":96,"blockHash":HASH}] | immutable 96
        trace_block | [OTHER] | [{"blockNumber":96,"blockHash":HASH}] | no
        eth_callMany | [[],{"blockNumber":"0x60","transactionIndex":-1}] | [[{}]] | immutable 96
        eth_callMany | [[],{}] | [[{}]] | tip 161
        trace_get | [HASH] | {"blockNumber":96,"blockHash":HASH,"transactionHash":HASH} | immutable 96
        trace_get | [HASH] | {"blockNumber":97,"blockHash":HASH,"transactionHash":HASH} | unfinalized 97
        arbtrace_block | ["0x60"] | [{"blockNumber":96,"blockHash":HASH}] | immutable 96
        erigon_getLogsByHash | [HASH] | [[]] | immutable
        ots_hasCode | ["0xaa","0x60"] | true | immutable 96
        // Erigon reads it as a number, others may not
        ots_getBlockTransactions | [96,0,2] | {} | no
        eth_config | [] | {} | config
        eth_capabilities | [] | {} | tip 161
        zks_getBlockDetails | [96] | {} | tip 161
        // nodes return this for a missing block
        debug_getRawBlock | ["0x60"] | "0x" | no
        debug_getRawBlock | ["0x60"] | "0xf9" | immutable 96
        eth_getRawTransactionByBlockHashAndIndex | [HASH] | "0x" | no
        eth_getRawTransactionByHash | [HASH] | "0x" | no
        eth_getRawTransactionByHash | [HASH] | "0x02" | unfinalized"#;
    assert_rows_classified(table, &sample_dispatch_mark());
}

#[test]
fn receipt_of_another_transaction_is_not_stored() {
    let classified = |requested: &str| {
        let params = expand(requested);
        let receipt = expand(r#"{"blockNumber":"0x60","blockHash":OTHER,"transactionHash":HASH}"#);
        let prospect = prospect("eth_getTransactionReceipt", &params)?;
        prospect.classify_fetched_result(receipt.as_bytes(), known(&params))
    };
    assert!(classified("[HASH]").is_some() && classified("[OTHER]").is_none());
}

#[test]
fn operator_method_is_classified_by_its_method_row() {
    let table = r#"
        block=p[1] | [{},"0x60"] | {} | immutable 96
        block=p[1] | [{},"0x61"] | {} | unfinalized 97
        block=p[1] | [{},"0xa1"] | {} | tip 161
        block=p[1] | [{}] | {} | tip 161
        block=p[1] | [{},"pending"] | {} | no
        block=p[1] | [{},HASH] | {} | immutable
        // the errors in a list of an operator's method are not known
        block=p[1] | [{},"0x60"] | [{"error":"timeout"}] | no
        block=p[1] block=result.number | [{},"0x60"] | {"number":"0x60"} | immutable 96
        block=p[1] block=result.number | [{},"0x60"] | {"number":"0x5f"} | no
        block=p[1] block=result.number | [{},"latest"] | {"number":"0xa0"} | no
        block=p[1] block=result.number | [{},"latest"] | {"number":"0xa2"} | tip 162
        block=result.receipt.blockNumber | [HASH] | {"receipt":{"blockNumber":"0x60"}} | immutable 96
        block=result.receipt.blockNumber | [7] | {"receipt":{"blockNumber":"0x61"}} | unfinalized 97
        block=result.receipt.blockNumber | [7] | {"receipt":{"blockNumber":null}} | no
        block=result.receipt.blockNumber | [7] | {} | no
        // the hash that it names need not be a transaction's
        block=result.blockNumber | [OTHER] | {"blockNumber":"0x60","transactionHash":HASH} | immutable 96
        block=result[0].blockNumber | [] | [{"blockNumber":97}] | unfinalized 97
        block=result[0].blockNumber | [] | [] | no
        block=p[0].at | [{"at":"0x60","of":1}] | [] | unfinalized 96
        range=p[0] | [{"fromBlock":"0x1","toBlock":"0x60","of":1}] | [{"blockNumber":"0x60"}] | immutable 96
        range=p[0] | [{"fromBlock":"0x1","toBlock":"0x60"}] | [{}] | unfinalized 96
        range=p[0] | [{"fromBlock":"0x1","of":1}] | [{}] | tip 161
        transaction=p[0] | [HASH] | {} | unfinalized
        block=result | [] | "0xa1" | tip 161
        block=result | [] | "0xa0" | no
        class=tip | [HASH] | {} | tip 161
        class=immutable | ["latest"] | {} | immutable
        class=config | [] | {} | config
        class=none | ["0x60"] | {} | no"#;
    let mark = sample_dispatch_mark();
    for [words, params, result, expected] in split_table_rows(table) {
        let valid = lifetimes_with_method_row("acme_x", &words);
        let known = ResponseClassificationInput {
            params: Some(params.as_bytes()),
            mark: Some(&mark),
            valid: &valid,
        };
        let prospect =
            CallLifetimeRules::lifetime_rules_for_call(b"acme_x", known.params, known.valid);
        let classified = prospect
            .and_then(|prospect| prospect.classify_fetched_result(result.as_bytes(), known));
        let summary = classified.map(|classified| (classified.class, classified.height));
        assert_eq!(
            classification_text(summary),
            expected,
            "{words} {params} {result}"
        );
    }
}

#[test]
fn null_result_is_not_cached_if_the_result_names_the_block() {
    for (words, lifetime) in [
        ("block=result.blockNumber", 0),
        ("transaction=p[0]", 0),
        ("block=p[0]", 500),
        ("class=tip", 500),
    ] {
        let valid = lifetimes_with_method_row("acme_x", words);
        let known = ResponseClassificationInput {
            valid: &valid,
            ..known("[]")
        };
        let prospect =
            CallLifetimeRules::lifetime_rules_for_call(b"acme_x", known.params, &valid).unwrap();
        let nothing = prospect.classify_as_empty_result(ResultOrError::Result(b"null"), known);
        assert_eq!(nothing.valid, lifetime, "{words}");
    }
}

#[test]
fn range_that_may_be_incomplete_is_immutable_after_a_confirmation() {
    let classify = |range: &str, result: &str, valid: &CacheLifetimes| {
        let mark = sample_dispatch_mark();
        let known = ResponseClassificationInput {
            params: Some(range.as_bytes()),
            mark: Some(&mark),
            valid,
        };
        let prospect =
            CallLifetimeRules::lifetime_rules_for_call(b"trace_filter", known.params, valid)?;
        let classified = prospect.classify_fetched_result(result.as_bytes(), known)?;
        Some((classified.class, classified.valid, classified.if_repeated))
    };
    let mut valid = CacheLifetimes::default();
    let (cut, whole) = ("[{\"blockNumber\":95}]", "[{},{\"blockNumber\":96}]");
    let range = "[{\"fromBlock\":\"0x1\",\"toBlock\":\"0x60\"}]";
    let young = "[{\"fromBlock\":\"0x1\",\"toBlock\":\"0x61\"}]";
    let unfinalized = |valid, later| Some((LifetimeClass::Unfinalized, valid, later));
    let (short, long) = (2_000, 3_600_000);
    assert_eq!(classify(range, cut, &valid), unfinalized(short, Some(long)));
    let immutable = Some((LifetimeClass::Immutable, long, None));
    assert_eq!(classify(range, whole, &valid), immutable);
    // an empty result may be returned repeatedly
    assert_eq!(classify(range, "[]", &valid), unfinalized(short, None));
    assert_eq!(classify(young, cut, &valid), unfinalized(short, None));
    // a result that is not cached meanwhile is recorded all the same
    valid
        .set_class_lifetime(LifetimeClass::Unfinalized, 0)
        .unwrap();
    assert_eq!(classify(range, cut, &valid), unfinalized(0, Some(long)));
    valid
        .set_class_lifetime(LifetimeClass::Immutable, 0)
        .unwrap();
    assert_eq!(classify(range, cut, &valid), None);
}

#[test]
fn trace_has_an_upgrade_for_a_finalized_transaction() {
    let if_final = |method: &str, params: &str, result: &str, mark: Option<&DispatchMark>| {
        let known = ResponseClassificationInput {
            mark,
            ..known(params)
        };
        let classified =
            prospect(method, params)?.classify_fetched_result(result.as_bytes(), known);
        classified.unwrap().if_final
    };
    let (mark, params) = (sample_dispatch_mark(), expand("[HASH,{}]"));
    let expected = FinalityUpgrade {
        transaction: *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xaa",
        last: 96,
        valid: 3_600_000,
    };
    let gas = "{\"gas\":1}";
    for method in ["debug_traceTransaction", "trace_replayTransaction"] {
        assert_eq!(if_final(method, &params, gas, Some(&mark)), Some(expected));
        assert_eq!(if_final(method, &params, gas, None), None);
        assert_eq!(if_final(method, "[\"0xaa\"]", gas, Some(&mark)), None);
    }
    assert_eq!(if_final("eth_gasPrice", "[]", gas, Some(&mark)), None);
    // the receipt names its block
    let receipt = expand("{\"blockNumber\":\"0x61\",\"blockHash\":OTHER,\"transactionHash\":HASH}");
    let method = "eth_getTransactionReceipt";
    assert_eq!(if_final(method, &params, &receipt, Some(&mark)), None);
    // "0x": there was no error, or the node did not know the transaction
    let method = "ots_getTransactionError";
    assert_eq!(if_final(method, &params, "\"0x\"", Some(&mark)), None);
    assert!(if_final(method, &params, "\"0x08c3\"", Some(&mark)).is_some());
}

#[test]
fn response_is_immutable_only_below_a_known_finalized_block() {
    let mut state = ChainState::new_without_blocks(HeightUnit::Blocks, 1_000);
    let classify = |state: &ChainState, expected: &str| {
        let row = "eth_getBalance | [ADDR,\"0x60\"] | \"0x0\" | ";
        assert_rows_classified(
            &format!("{row}{expected}"),
            &NamespaceChain::new(state.clone()).chain_mark_at_dispatch(),
        );
    };
    classify(&state, "unfinalized 96");
    state.apply_chain_change(ChainChange::Final(Some(96)));
    // nor while the chain is not known
    classify(&state, "unfinalized 96");
    state.apply_chain_change(ChainChange::ChainVerified(true));
    classify(&state, "immutable 96");
    // slots are other numbers than blocks
    state.heights = HeightUnit::Slots;
    classify(&state, "unfinalized 96");
    state.apply_chain_change(ChainChange::Wrong(true));
    classify(&state, "no");
}

#[test]
fn lifetimes_of_an_operator_override_the_defaults() {
    let mut valid = CacheLifetimes::default();
    valid.set_class_lifetime(LifetimeClass::Tip, 0).unwrap();
    valid.set_method_lifetime(b"eth_gasPrice", 500).unwrap();
    valid.set_method_lifetime(b"my_method", 700).unwrap();
    let lifetime = |method: &str| {
        let known = ResponseClassificationInput {
            valid: &valid,
            ..known("[]")
        };
        let classified =
            CallLifetimeRules::lifetime_rules_for_call(method.as_bytes(), None, &valid)?
                .classify_fetched_result(b"1", known)?;
        Some(classified.valid)
    };
    assert_eq!(lifetime("eth_blockNumber"), None);
    assert_eq!(lifetime("eth_gasPrice"), Some(500));
    assert_eq!(lifetime("my_method"), Some(700));
    assert!(valid.set_class_lifetime(LifetimeClass::Tip, 1).is_err());
    assert!(valid.set_method_lifetime(b"my_method", 1).is_err());
}

#[test]
fn head_of_a_namespace_that_follows_the_beacon_api_is_not_stored() {
    let mark = |heights| {
        NamespaceChain::new(ChainState::new_without_blocks(heights, 0)).chain_mark_at_dispatch()
    };
    for (method, params, heights, is_other) in [
        ("eth_blockNumber", "[]", HeightUnit::Slots, true),
        (
            "eth_getBalance",
            "[ADDR,\"latest\"]",
            HeightUnit::Slots,
            true,
        ),
        (
            "eth_getBalance",
            "[ADDR,\"latest\"]",
            HeightUnit::Blocks,
            false,
        ),
        ("eth_getBalance", "[ADDR,\"0x5\"]", HeightUnit::Slots, false),
        ("eth_chainId", "[]", HeightUnit::Slots, false),
    ] {
        let (params, mark) = (expand(params), mark(heights));
        let prospect = prospect(method, &params).unwrap();
        assert_eq!(
            prospect.depends_on_unfollowed_api(Some(&mark)),
            is_other,
            "{method}"
        );
        let known = ResponseClassificationInput {
            mark: Some(&mark),
            ..known(&params)
        };
        assert_eq!(
            prospect
                .classify_fetched_result(b"\"0x9\"", known)
                .is_none(),
            is_other,
            "{method}"
        );
        assert!(!prospect.depends_on_unfollowed_api(None));
    }
}
