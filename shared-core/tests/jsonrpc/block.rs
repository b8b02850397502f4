//! Block references of calls, method by method and edge case by edge case.

use sszip_core::jsonrpc::block_reference::{
    call_block_reference, result_block, BlockRangeBound, BlockReference, BlockTag, ResultBlock,
};
use sszip_core::jsonrpc::methods::{find_method_row, MethodClass};
use BlockReference::{InResult, Invalid, Number, Range};

const HASH: &str = "0x00000000000000000000000000000000000000000000000000000000000000Ab";

fn block_of(name: &str, params: &str) -> BlockReference {
    call_block_reference(find_method_row(name.as_bytes()), Some(params.as_bytes()))
}

fn hash(require_canonical: bool) -> BlockReference {
    let mut hash = [0; 32];
    hash[31] = 0xAB;
    BlockReference::Hash {
        hash,
        require_canonical,
    }
}

fn tag(tag: BlockTag) -> BlockReference {
    BlockReference::Tag(tag)
}

/// Each method, with params that name block 5 in the position of the table.
#[test]
fn block_of_each_method_is_found_by_the_table() {
    let five = [
        (
            "\"0x5\"",
            "eth_getBlockByNumber eth_getUncleByBlockNumberAndIndex
            eth_getTransactionByBlockNumberAndIndex eth_getBlockTransactionCountByNumber
            eth_getUncleCountByBlockNumber eth_getBlockReceipts debug_getRawReceipts
            debug_getRawBlock debug_getRawHeader trace_block debug_traceBlockByNumber
            trace_replayBlockTransactions debug_storageRangeAt erigon_getHeaderByNumber
            debug_executionWitness",
        ),
        (
            "{},\"0x5\"",
            "eth_getBalance eth_getTransactionCount eth_getCode eth_call eth_feeHistory
            eth_getAccount debug_traceCall trace_callMany eth_estimateGas eth_simulateV1",
        ),
        ("{},[],\"0x5\"", "eth_getStorageAt eth_getProof trace_call"),
        (
            "[],{\"blockNumber\":\"0x5\",\"transactionIndex\":1}",
            "debug_traceCallMany",
        ),
    ];
    for (params, names) in five {
        for name in names.split_whitespace() {
            assert_eq!(block_of(name, &format!("[{params}]")), Number(5), "{name}");
            assert_ne!(
                find_method_row(name.as_bytes()).class,
                MethodClass::Never,
                "{name}"
            );
            // Absent means latest.
            assert_eq!(block_of(name, "[]"), tag(BlockTag::Latest), "{name}");
            assert_eq!(
                call_block_reference(find_method_row(name.as_bytes()), None),
                tag(BlockTag::Latest),
                "{name}"
            );
        }
    }
    for name in ["eth_getLogs", "trace_filter"] {
        let five = BlockRangeBound::Number(5);
        let range = Range {
            from: five,
            to: five,
        };
        assert_eq!(
            block_of(name, r#"[{"fromBlock":"0x5","toBlock":"0x5"}]"#),
            range
        );
    }
    for name in "eth_getBlockByHash eth_getUncleByBlockHashAndIndex
        eth_getTransactionByBlockHashAndIndex eth_getBlockTransactionCountByHash
        eth_getUncleCountByBlockHash debug_traceBlockByHash"
        .split_whitespace()
    {
        assert_eq!(
            block_of(name, &format!("[\"{HASH}\"]")),
            hash(false),
            "{name}"
        );
        for other in ["[\"0x5\"]", "[\"latest\"]", "[]", "[null]", "null", "[{}]"] {
            assert_eq!(block_of(name, other), Invalid, "{name} {other}");
        }
    }
    for name in "eth_getTransactionByHash eth_getTransactionReceipt debug_traceTransaction
        trace_transaction trace_replayTransaction"
        .split_whitespace()
    {
        assert_eq!(block_of(name, "[\"0x1\"]"), InResult, "{name}");
        assert_eq!(
            find_method_row(name.as_bytes()).class,
            MethodClass::ByFinality,
            "{name}"
        );
    }
}

#[test]
fn methods_without_a_block_have_their_class_in_the_table() {
    let rows = [
        (
            MethodClass::Immutable,
            "eth_chainId net_version web3_sha3 zks_L1ChainId",
        ),
        (
            MethodClass::Config,
            "eth_config erigon_forks ots_getApiLevel optimism_rollupConfig zks_getMainContract",
        ),
        (
            MethodClass::Tip,
            "eth_blockNumber erigon_blockNumber eth_gasPrice eth_maxPriorityFeePerGas
            eth_blobBaseFee eth_baseFee eth_capabilities ots_searchTransactionsBefore
            zks_getBlockDetails optimism_outputAtBlock bor_getCurrentProposer",
        ),
        (
            MethodClass::Never,
            "eth_syncing eth_mining eth_hashrate net_peerCount net_listening txpool_content
            txpool_status txpool_inspect eth_sendRawTransaction eth_sendTransaction eth_sign
            eth_signTransaction eth_subscribe eth_unsubscribe personal_sign admin_nodeInfo
            miner_stop engine_newPayloadV4 engine_forkchoiceUpdatedV3 eth_createAccessList
            trace_rawTransaction eth_getFilterChanges eth_getFilterLogs eth_newFilter
            eth_newBlockFilter eth_newPendingTransactionFilter eth_uninstallFilter
            eth_unknown",
        ),
    ];
    for (class, names) in rows {
        for name in names.split_whitespace() {
            assert_eq!(find_method_row(name.as_bytes()).class, class, "{name}");
            assert_eq!(block_of(name, "[\"0x5\"]"), BlockReference::None, "{name}");
        }
    }
}

/// The second parameter is `fullTx`.
#[test]
fn block_by_timestamp_is_never_stored() {
    let row = find_method_row(b"erigon_getBlockByTimestamp");
    assert_eq!(row.class, MethodClass::Never);
    assert_eq!(block_of(row.name, "[\"1\",true]"), BlockReference::None);
}

#[test]
fn block_zero_is_a_number() {
    assert_eq!(
        block_of("eth_getBlockByNumber", "[\"0x0\",true]"),
        Number(0)
    );
}

#[test]
fn future_block_is_a_number() {
    assert_eq!(
        block_of("eth_call", "[{},\"0xfffFFFF\"]"),
        Number(0xFFF_FFFF)
    );
    assert_eq!(
        block_of("eth_call", "[{},\"0x7fffffffffffffff\"]"),
        Number(i64::MAX.unsigned_abs())
    );
}

#[test]
fn tags_are_read_as_block_references() {
    for (word, expected) in [
        ("latest", BlockTag::Latest),
        ("safe", BlockTag::Safe),
        ("finalized", BlockTag::Finalized),
        ("pending", BlockTag::Pending),
        ("earliest", BlockTag::Earliest),
    ] {
        assert_eq!(
            block_of("eth_call", &format!("[{{}},\"{word}\"]")),
            tag(expected)
        );
        let object = format!("[{{}},{{\"blockNumber\":\"{word}\"}}]");
        assert_eq!(block_of("eth_call", &object), tag(expected));
    }
}

#[test]
fn ambiguous_block_reference_is_invalid() {
    for value in [
        "\"100\"",
        "100",
        "0",
        "-1",
        "1.0",
        "\"-0x1\"",
        "\"0x-1\"",
        "\"0x+1\"",
        "\"0x\"",
        "\"\"",
        "\"0x0064\"",
        "\"0x00\"",
        "\"0X64\"",
        "\"0xg\"",
        "\"0x6 4\"",
        "\" 0x64\"",
        "\"0x64 \"",
        "\"0x8000000000000000\"",
        "\"0xffffffffffffffff\"",
        "\"0x10000000000000000\"",
        "\"Latest\"",
        "\"LATEST\"",
        "\"\\u006catest\"",
        "\"latestExecuted\"",
        "\"0x\\u0031\"",
        "null",
        "true",
        "[]",
        "[\"0x1\"]",
        "{}",
    ] {
        assert_eq!(
            block_of("eth_call", &format!("[{{}},{value}]")),
            Invalid,
            "{value}"
        );
        assert_eq!(
            block_of("eth_getBlockByNumber", &format!("[{value},true]")),
            Invalid,
            "{value}"
        );
        for name in ["fromBlock", "toBlock", "blockHash"] {
            let filter = format!("[{{\"{name}\":{value}}}]");
            assert_eq!(block_of("eth_getLogs", &filter), Invalid, "{filter}");
        }
    }
}

/// A node that accepts only numbers may read a hash as a long number.
#[test]
fn hash_is_a_block_reference_only_where_nodes_accept_hashes() {
    assert_eq!(
        block_of("eth_call", &format!("[{{}},\"{HASH}\"]")),
        hash(false)
    );
    assert_eq!(
        block_of("eth_getBlockReceipts", &format!("[\"{HASH}\"]")),
        hash(false)
    );
    assert_eq!(
        block_of("eth_getBlockByNumber", &format!("[\"{HASH}\",true]")),
        Invalid
    );
    assert_eq!(
        block_of("eth_feeHistory", &format!("[1,\"{HASH}\"]")),
        Invalid
    );
    for odd in [
        &HASH[..65],
        &HASH.replace('A', "g"),
        &HASH.replace('x', "X"),
        &format!("{HASH}0"),
    ] {
        assert_eq!(
            block_of("eth_call", &format!("[{{}},\"{odd}\"]")),
            Invalid,
            "{odd}"
        );
        assert_eq!(
            block_of("eth_getBlockByHash", &format!("[\"{odd}\",true]")),
            Invalid,
            "{odd}"
        );
    }
}

#[test]
fn eip_1898_objects_are_read_strictly() {
    let call = |object: &str| block_of("eth_getBalance", &format!("[\"0x\",{object}]"));
    let by_hash = |rest: &str| call(&format!("{{\"blockHash\":\"{HASH}\"{rest}}}"));
    assert_eq!(call(r#"{ "blockNumber" : "0x10" }"#), Number(16));
    assert_eq!(by_hash(""), hash(false));
    assert_eq!(by_hash(",\"requireCanonical\":false"), hash(false));
    assert_eq!(by_hash(",\"requireCanonical\":true"), hash(true));
    for rest in [
        ",\"requireCanonical\":null",
        ",\"requireCanonical\":\"true\"",
        ",\"requireCanonical\":1",
        ",\"requireCanonical\":true,\"requireCanonical\":true",
        ",\"RequireCanonical\":true",
        ",\"blockNumber\":\"0x1\"",
        ",\"blockHash\":null",
        ",\"x\":1",
    ] {
        assert_eq!(by_hash(rest), Invalid, "{rest}");
    }
    for object in [
        r#"{"blockNumber":"0x1","requireCanonical":false}"#,
        r#"{"blockNumber":"0x1","BLOCKNUMBER":"latest"}"#,
        r#"{"blockNumber":"0x1","bloc\u006bNumber":"latest"}"#,
        "{\"blockNumber\":\"0x1\",\"bloc\u{212A}Number\":\"latest\"}",
        r#"{"blockNumber":1}"#,
        r#"{"blockNumber":"1"}"#,
        r#"{"blockNumber":null}"#,
        r#"{"blockHash":"0x1"}"#,
        r#"{"requireCanonical":true}"#,
    ] {
        assert_eq!(call(object), Invalid, "{object}");
    }
}

#[test]
fn params_that_are_not_an_array_are_invalid() {
    for params in ["{}", "null", r#"{"block":"0x1"}"#] {
        for name in [
            "eth_call",
            "eth_getBlockByNumber",
            "eth_getLogs",
            "debug_traceCallMany",
        ] {
            assert_eq!(block_of(name, params), Invalid, "{name} {params}");
        }
    }
}

#[test]
fn range_of_a_filter_is_read_with_latest_as_default() {
    let logs = |filter: &str| block_of("eth_getLogs", &format!("[{filter}]"));
    let range = |from, to| Range { from, to };
    let (two, three) = (BlockRangeBound::Number(2), BlockRangeBound::Number(3));
    let latest = BlockRangeBound::Tag(BlockTag::Latest);
    assert_eq!(
        logs(r#"{"fromBlock":"0x2","toBlock":"0x3"}"#),
        range(two, three)
    );
    assert_eq!(
        logs(r#"{"toBlock":"0x2","fromBlock":"0x2"}"#),
        range(two, two)
    );
    // an absent bound means latest, for any other bound
    assert_eq!(logs(r#"{"fromBlock":"0x2"}"#), range(two, latest));
    assert_eq!(
        logs(r#"{"fromBlock":"0x2","topics":[],"address":null}"#),
        range(two, latest)
    );
    assert_eq!(logs(r#"{"toBlock":"0x2"}"#), range(latest, two));
    assert_eq!(logs("{}"), range(latest, latest));
    let earliest = BlockRangeBound::Tag(BlockTag::Earliest);
    assert_eq!(
        logs(r#"{"fromBlock":"earliest","toBlock":"0x2"}"#),
        range(earliest, two)
    );
    assert_eq!(
        logs(&format!("{{\"blockHash\":\"{HASH}\",\"topics\":[]}}")),
        hash(false)
    );
}

#[test]
fn range_that_ends_before_it_begins_is_invalid() {
    assert_eq!(
        block_of("eth_getLogs", r#"[{"fromBlock":"0x3","toBlock":"0x2"}]"#),
        Invalid
    );
}

#[test]
fn ambiguous_filter_is_invalid() {
    for filter in [
        format!(r#"{{"blockHash":"{HASH}","fromBlock":"0x1"}}"#),
        format!(r#"{{"blockHash":"{HASH}","toBlock":"0x1"}}"#),
        r#"{"fromBlock":"0x1","toBlock":"0x2","TOBLOCK":"latest"}"#.into(),
        r#"{"fromBlock":"0x1","toBlock":"0x2","toBlock":"0x2"}"#.into(),
        r#"{"fromBlock":"0x1","toBlock":"0x2","toBloc\u006b":"latest"}"#.into(),
        r#"{"fromBlock":"0x1","toBlock":"0x2","limit":5}"#.into(),
        r#"{"fromBlock":"0x1","toBlock":null}"#.into(),
        r#"{"fromBlock":null,"toBlock":"0x1"}"#.into(),
        "null".into(),
        "\"0x1\"".into(),
        "[]".into(),
    ] {
        assert_eq!(
            block_of("eth_getLogs", &format!("[{filter}]")),
            Invalid,
            "{filter}"
        );
    }
    assert_eq!(block_of("eth_getLogs", "[]"), Invalid);
    assert_eq!(
        call_block_reference(find_method_row(b"eth_getLogs"), None),
        Invalid
    );
}

#[test]
fn block_of_traced_calls_is_read_from_their_context() {
    let context = |context: &str| block_of("debug_traceCallMany", &format!("[[],{context}]"));
    assert_eq!(
        context(r#"{"transactionIndex":-1,"blockNumber":"latest"}"#),
        tag(BlockTag::Latest)
    );
    assert_eq!(context(r#"{"transactionIndex":1}"#), tag(BlockTag::Latest));
    assert_eq!(
        context(&format!("{{\"blockNumber\":\"{HASH}\"}}")),
        hash(false)
    );
    for odd in [
        r#"{"blockNumber":"0x1","blockHash":"0x1"}"#,
        r#"{"blockNumber":"0x1","blocknumber":"latest"}"#,
        r#"{"blockNumber":5}"#,
        "null",
        "\"0x1\"",
    ] {
        assert_eq!(context(odd), Invalid, "{odd}");
    }
}

#[test]
fn block_of_a_result_is_found() {
    let block_of = |name: &str, result: &str| {
        result_block(find_method_row(name.as_bytes()), result.as_bytes())
    };
    let mut hash = [0; 32];
    hash[31] = 0xAB;
    let five = Some(ResultBlock {
        number: 5,
        hash: Some(hash),
    });
    let item = format!(r#"{{"blockHash":"{HASH}","blockNumber":"0x5","x":[]}}"#);
    let block = format!(r#"{{"hash":"{HASH}","number":"0x5"}}"#);
    let trace = format!(r#"[{{"blockHash":"{HASH}","blockNumber":5}},null]"#);
    assert_eq!(block_of("eth_getTransactionReceipt", &item), five);
    assert_eq!(block_of("eth_getTransactionByHash", &item), five);
    assert_eq!(block_of("eth_getBlockByNumber", &block), five);
    assert_eq!(
        block_of("eth_getBlockReceipts", &format!("[{item},{item}]")),
        five
    );
    assert_eq!(block_of("trace_transaction", &trace), five);
    let head = Some(ResultBlock {
        number: 0x10,
        hash: None,
    });
    assert_eq!(block_of("eth_blockNumber", "\"0x10\""), head);
    // its argument may select another head
    assert_eq!(block_of("erigon_blockNumber", "\"0x10\""), None);
    // the number of an uncle is not the number of its block
    assert_eq!(block_of("eth_getUncleByBlockNumberAndIndex", &block), None);
}

#[test]
fn null_and_empty_results_have_no_block() {
    let block_of = |name: &str, result: &str| {
        result_block(find_method_row(name.as_bytes()), result.as_bytes())
    };
    let pending = r#"{"blockHash":null,"blockNumber":null,"hash":"0x1"}"#;
    for (name, result) in [
        ("eth_getTransactionReceipt", "null"),
        ("eth_getTransactionByHash", "null"),
        ("eth_getTransactionByHash", pending),
        ("eth_getTransactionByHash", "{}"),
        ("eth_getBlockByNumber", "null"),
        ("eth_getBlockByNumber", r#"{"hash":null,"number":null}"#),
        ("eth_getBlockReceipts", "null"),
        ("eth_getBlockReceipts", "[]"),
        ("eth_getBlockReceipts", "[null]"),
        ("eth_blockNumber", "null"),
        ("eth_blockNumber", "16"),
        ("eth_blockNumber", "\"0x\""),
    ] {
        assert_eq!(block_of(name, result), None, "{name} {result}");
    }
}
