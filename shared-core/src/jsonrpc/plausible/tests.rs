use super::{check_result_plausibility, ResultPlausibility};
use crate::jsonrpc::methods;

const WORDS: [(&str, &str); 8] = [
    (
        "EMPTY",
        "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
    ),
    (
        "KAIA",
        "0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470",
    ),
    (
        "NOUNCLES",
        "0x1DCC4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347",
    ),
    (
        "ZERO",
        "0x0000000000000000000000000000000000000000000000000000000000000000",
    ),
    (
        "ROOT",
        "0x7de5dd8ea0f1ef1b7a4bcdcd35a0a3f4ce2ff4ddd0d5e1d7a0d2a53f6c0a83aa",
    ),
    (
        "OTHER",
        "0x00000000000000000000000000000000000000000000000000000000000000bb",
    ),
    ("VAULT", "0x4200000000000000000000000000000000000011"),
    (
        "MIX",
        "0xb78df488ab7d1a4e7ecf0b1e2d3c5f6a798081929384a5b6c7d8e9f0a1b2c3d4",
    ),
];

fn expand(text: &str) -> String {
    let words = WORDS.iter();
    words.fold(text.into(), |text, (word, whole)| text.replace(word, whole))
}

fn verdict(method: &str, params: &str, result: &str) -> ResultPlausibility {
    let (params, result) = (expand(params), expand(result));
    let row = methods::find_method_row(method.as_bytes());
    check_result_plausibility(row, Some(params.as_bytes()), result.as_bytes())
}

fn is_implausible(method: &str, params: &str, result: &str) -> bool {
    verdict(method, params, result) == ResultPlausibility::Implausible
}

#[test]
fn block_is_implausible_if_a_list_contradicts_its_root() {
    for (block, expected) in [
        // a header without its body, in the notation of each client
        (r#""transactions":[],"transactionsRoot":"ROOT""#, true),
        (r#""transactionsRoot":"ROOT","transactions":[ ]"#, true),
        (r#""transactionsRoot" : "ROOT" , "transactions" : []"#, true),
        (r#""uncles":[],"sha3Uncles":"ROOT""#, true),
        (r#""withdrawals":[],"withdrawalsRoot":"ROOT""#, true),
        (
            r#""withdrawals":[],"withdrawalsRoot":"ROOT","transactions":["0x1"],"mixHash":"MIX""#,
            true,
        ),
        (
            r#""transactions":[],"transactionsRoot":"ROOT","mixHash":"MIX","difficulty":"0x0""#,
            true,
        ),
        (
            r#""transactions":[],"transactionsRoot":"ROOT","mixHash":"ZERO","difficulty":"0x2""#,
            true,
        ),
        // a body without its header
        (r#""transactions":["0x1"],"transactionsRoot":"EMPTY""#, true),
        (
            r#""transactions":[{}],"transactionsRoot":"EMPTY","mixHash":"MIX""#,
            true,
        ),
        (r#""uncles":["0x1"],"sha3Uncles":"NOUNCLES""#, true),
        (r#""withdrawals":[{}],"withdrawalsRoot":"EMPTY""#, true),
        // complete blocks
        (
            r#""transactions":[],"transactionsRoot":"EMPTY","uncles":[],"sha3Uncles":"NOUNCLES""#,
            false,
        ),
        (
            r#""transactions":["0x1"],"transactionsRoot":"ROOT","withdrawals":[],"withdrawalsRoot":"EMPTY""#,
            false,
        ),
        (
            r#""uncles":["0x1"],"sha3Uncles":"ROOT","withdrawals":[{}],"withdrawalsRoot":"ROOT""#,
            false,
        ),
        // before Shanghai, before withdrawals existed, and a header alone
        (
            r#""transactions":["0x1"],"transactionsRoot":"ROOT","withdrawals":null,"withdrawalsRoot":null"#,
            false,
        ),
        (r#""withdrawals":[]"#, false),
        (
            r#""transactionsRoot":"ROOT","sha3Uncles":"ROOT","withdrawalsRoot":"ROOT""#,
            false,
        ),
        (r#""transactions":null,"transactionsRoot":"ROOT""#, false),
        // a name within a string is no member
        (
            r#""extraData":"\"transactions\":[]","transactionsRoot":"ROOT""#,
            false,
        ),
        (
            r#""a":"transactions","b":[],"transactionsRoot":"ROOT""#,
            false,
        ),
    ] {
        let block = format!(r#"{{"number":"0x10","hash":"OTHER",{block}}}"#);
        for method in ["eth_getBlockByHash", "eth_getBlockByNumber"] {
            assert_eq!(is_implausible(method, "[]", &block), expected, "{block}");
        }
        // a result of this method does not list the uncle's own uncles
        assert!(!is_implausible(
            "eth_getUncleByBlockHashAndIndex",
            "[]",
            &block
        ));
        // Otterscan's result has its transactions elsewhere
        assert!(!is_implausible("ots_getBlockDetails", "[]", &block));
    }
}

#[test]
fn block_of_another_chain_is_plausible() {
    for (chain, block) in [
        (
            "ZKsync",
            r#""mixHash":"ZERO","difficulty":"0x0","transactions":[],"transactionsRoot":"ROOT""#,
        ),
        (
            "ZKsync",
            r#""transactions":["0x1"],"transactionsRoot":"ZERO","uncles":[],"sha3Uncles":"NOUNCLES""#,
        ),
        (
            "Optimism since Isthmus",
            r#""miner":"VAULT","transactions":["0x1"],"transactionsRoot":"ROOT","withdrawals":[],"withdrawalsRoot":"ROOT","mixHash":"MIX""#,
        ),
        (
            "OP Stack, another recipient",
            r#""transactions":[{"hash":"0x1","type":"0x7e"}],"transactionsRoot":"ROOT","withdrawals":[],"withdrawalsRoot":"ROOT""#,
        ),
        (
            "Optimism before",
            r#""miner":"VAULT","withdrawals":[],"withdrawalsRoot":"EMPTY","transactions":["0x1"],"transactionsRoot":"ROOT""#,
        ),
        (
            "Bor, with a state sync alone",
            r#""mixHash":"ZERO","difficulty":"0x15","transactions":["0x1"],"transactionsRoot":"EMPTY","uncles":[],"sha3Uncles":"NOUNCLES""#,
        ),
        (
            "BNB Smart Chain",
            r#""mixHash":"ZERO","difficulty":"0x2","transactions":["0x1"],"transactionsRoot":"ROOT","withdrawals":[],"withdrawalsRoot":"EMPTY""#,
        ),
        (
            "Kaia",
            r#""difficulty":"0x1","mixHash":"ZERO","transactions":[],"transactionsRoot":"KAIA","uncles":[],"sha3Uncles":"NOUNCLES""#,
        ),
        (
            "Filecoin",
            r#""mixHash":"ZERO","difficulty":"0x0","transactions":["0x1"],"transactionsRoot":"ZERO""#,
        ),
        (
            "Hedera",
            r#""mixHash":"ZERO","difficulty":"0x0","transactions":[],"transactionsRoot":"EMPTY","withdrawals":[],"withdrawalsRoot":"ZERO""#,
        ),
        (
            "Sei, Harmony, Acala",
            r#""mixHash":"ZERO","difficulty":"0x0","transactions":[],"transactionsRoot":"ROOT""#,
        ),
        (
            "Conflux",
            r#""mixHash":"ZERO","difficulty":"0x4a817c800","transactions":[],"transactionsRoot":"ROOT""#,
        ),
        (
            "Tron",
            r#""mixHash":null,"difficulty":"0x0","transactions":[],"transactionsRoot":"ZERO","uncles":[],"sha3Uncles":null"#,
        ),
        (
            "Celo as it was",
            r#""transactions":["0x1"],"transactionsRoot":"ROOT""#,
        ),
        (
            "Arbitrum",
            r#""mixHash":"MIX","difficulty":"0x1","transactions":["0x1"],"transactionsRoot":"ROOT","uncles":[],"sha3Uncles":"NOUNCLES","l1BlockNumber":"0x1""#,
        ),
    ] {
        let block = format!(r#"{{"number":"0x10","hash":"OTHER",{block}}}"#);
        assert!(
            !is_implausible("eth_getBlockByHash", "[]", &block),
            "{chain}"
        );
    }
    // a genesis of the OP Stack has no transaction
    let genesis = r#"{"number":"0x0","transactions":[],"transactionsRoot":"EMPTY","withdrawals":[],"withdrawalsRoot":"ROOT"}"#;
    assert!(!is_implausible("eth_getBlockByNumber", "[]", genesis));
}

#[test]
fn long_block_is_checked_at_its_ends() {
    let transaction = format!(r#"{{"type":"0x2","input":"0x{}"}}"#, "ab".repeat(1_000));
    let transactions = vec![transaction; 300].join(",");
    for (root, expected) in [("EMPTY", true), ("ROOT", false)] {
        for block in [
            format!(
                r#"{{"number":"0x10","transactions":[{transactions}],"transactionsRoot":"{root}"}}"#
            ),
            format!(
                r#"{{"transactionsRoot":"{root}","transactions":[{transactions}],"number":"0x10"}}"#
            ),
        ] {
            assert_eq!(
                is_implausible("eth_getBlockByHash", "[]", &block),
                expected,
                "{root}"
            );
        }
    }
}

#[test]
fn receipts_are_implausible_if_some_are_missing_or_belong_to_another_block() {
    let receipt = |index: u64, block: &str, more: &str| {
        format!(r#"{{"blockHash":"{block}","transactionIndex":"{index:#x}"{more}}}"#)
    };
    let log =
        |index: u64, block: &str| format!(r#"{{"logIndex":"{index:#x}","blockHash":"{block}"}}"#);
    let with = |indices: &[u64]| {
        let logs: Vec<String> = indices.iter().map(|index| log(*index, "ROOT")).collect();
        format!(r#","logs":[{}]"#, logs.join(","))
    };
    let plain = |index| receipt(index, "ROOT", "");
    for (receipts, expected) in [
        (vec![plain(0), plain(1), plain(2)], ResultPlausibility::Read),
        (vec![plain(1), plain(0)], ResultPlausibility::Read),
        (vec![plain(0), plain(2)], ResultPlausibility::Implausible),
        (vec![plain(1)], ResultPlausibility::Implausible),
        (
            vec![plain(0), receipt(1, "OTHER", "")],
            ResultPlausibility::Implausible,
        ),
        (
            vec![
                receipt(0, "ROOT", &with(&[0, 1])),
                receipt(1, "ROOT", &with(&[2])),
            ],
            ResultPlausibility::Read,
        ),
        (
            vec![
                receipt(0, "ROOT", &with(&[0])),
                receipt(1, "ROOT", &with(&[2])),
            ],
            ResultPlausibility::Implausible,
        ),
        (
            vec![
                receipt(0, "ROOT", &with(&[])),
                receipt(1, "ROOT", &with(&[1])),
            ],
            ResultPlausibility::Implausible,
        ),
        (
            vec![receipt(
                0,
                "ROOT",
                &format!(r#","logs":[{}]"#, log(0, "OTHER")),
            )],
            ResultPlausibility::Implausible,
        ),
        // Bor restarts the indices of the logs that it adds
        (
            vec![
                receipt(0, "ROOT", &with(&[0, 1])),
                receipt(1, "ROOT", &with(&[0])),
            ],
            ResultPlausibility::Read,
        ),
        // ZKsync and Hedera omit entries
        (
            vec![receipt(0, "ROOT", r#","l1BatchNumber":"0x1""#), plain(2)],
            ResultPlausibility::Read,
        ),
        (
            vec![receipt(7, "ROOT", r#","root":"ZERO","status":"0x1""#)],
            ResultPlausibility::Read,
        ),
        (
            vec![receipt(7, "ROOT", r#","root":null,"status":"0x1""#)],
            ResultPlausibility::Implausible,
        ),
        (vec!["1".into()], ResultPlausibility::Unread),
        (
            vec![
                r#"{"transactionIndex":0}"#.into(),
                r#"{"transactionIndex":7}"#.into(),
            ],
            ResultPlausibility::Read,
        ),
    ] {
        let list = format!("[{}]", receipts.join(","));
        for method in [
            "eth_getBlockReceipts",
            "parity_getBlockReceipts",
            "erigon_getBlockReceiptsByBlockHash",
        ] {
            assert_eq!(verdict(method, "[]", &list), expected, "{list}");
        }
    }
    for (logs, expected) in [
        (with(&[5, 6, 7]), ResultPlausibility::Read),
        (with(&[5, 7]), ResultPlausibility::Implausible),
        (with(&[]), ResultPlausibility::Read),
        (
            format!(r#","logs":[{}]"#, log(5, "OTHER")),
            ResultPlausibility::Implausible,
        ),
        (r#","logs":null"#.into(), ResultPlausibility::Read),
        (
            format!(r#","l1BatchNumber":"0x1"{}"#, with(&[5, 7])),
            ResultPlausibility::Read,
        ),
    ] {
        let one = receipt(3, "ROOT", &logs);
        assert_eq!(
            verdict("eth_getTransactionReceipt", "[]", &one),
            expected,
            "{one}"
        );
        // the order of the members does not matter
        let reordered = one.replacen(r#""blockHash":"ROOT","#, "", 1);
        let reordered = format!(
            r#"{},"blockHash":"ROOT"}}"#,
            reordered.strip_suffix('}').unwrap()
        );
        assert_eq!(
            verdict("eth_getTransactionReceipt", "[]", &reordered),
            expected,
            "{reordered}"
        );
    }
}

#[test]
fn logs_are_implausible_if_some_are_missing_or_belong_to_another_block() {
    let log = |number: u64, index: u64, block: &str| {
        format!(r#"{{"blockNumber":"{number:#x}","logIndex":"{index:#x}","blockHash":"{block}"}}"#)
    };
    let (all, some) = (
        r#"{"fromBlock":"0x1","address":[]}"#,
        r#"{"fromBlock":"0x1","topics":["ROOT"]}"#,
    );
    let of_block = r#"{"blockHash":"ROOT","topics":null}"#;
    for (filter, logs, expected) in [
        (
            all,
            vec![log(1, 0, "ROOT"), log(1, 1, "ROOT"), log(2, 0, "OTHER")],
            ResultPlausibility::Read,
        ),
        (
            all,
            vec![log(1, 0, "ROOT"), log(1, 2, "ROOT")],
            ResultPlausibility::Implausible,
        ),
        (
            all,
            vec![log(1, 0, "ROOT"), log(2, 1, "OTHER"), log(3, 0, "ROOT")],
            ResultPlausibility::Implausible,
        ),
        (
            some,
            vec![log(1, 0, "ROOT"), log(1, 2, "ROOT")],
            ResultPlausibility::Read,
        ),
        (
            some,
            vec![log(1, 0, "ROOT"), log(1, 2, "OTHER")],
            ResultPlausibility::Implausible,
        ),
        (of_block, vec![log(1, 0, "ROOT")], ResultPlausibility::Read),
        (
            of_block,
            vec![log(1, 0, "OTHER")],
            ResultPlausibility::Implausible,
        ),
        (
            of_block,
            vec![log(1, 1, "ROOT")],
            ResultPlausibility::Implausible,
        ),
        (all, vec![], ResultPlausibility::Unread),
    ] {
        let list = format!("[{}]", logs.join(","));
        let params = format!("[{filter}]");
        let expected = match logs.is_empty() {
            true => ResultPlausibility::Read,
            false => expected,
        };
        for method in ["eth_getLogs", "erigon_getLogs"] {
            assert_eq!(verdict(method, &params, &list), expected, "{filter} {list}");
        }
        // these are the newest logs of a block, not all
        let newest = verdict("erigon_getLatestLogs", &params, &list);
        let is_of_several = list.contains("OTHER") && expected == ResultPlausibility::Implausible;
        assert!(
            newest != ResultPlausibility::Implausible || is_of_several,
            "{list}"
        );
    }
}

#[test]
fn page_of_a_block_is_implausible_if_receipts_are_missing() {
    for (page, expected) in [
        (
            r#"{"fullblock":{"transactions":[{},{}]},"receipts":[{}]}"#,
            true,
        ),
        (
            r#"{"fullblock":{"transactions":[{},{}]},"receipts":[{},{}]}"#,
            false,
        ),
        (
            r#"{"fullblock":{"transactions":[],"transactionsRoot":"ROOT"},"receipts":[]}"#,
            false,
        ),
        (r#"{"fullblock":{},"receipts":[]}"#, false),
    ] {
        assert_eq!(
            is_implausible("ots_getBlockTransactions", "[]", page),
            expected,
            "{page}"
        );
    }
}

#[test]
fn text_without_the_expected_structure_is_unread() {
    for text in [
        "",
        "{",
        "[",
        "[{",
        "\"0x\"",
        "[{\"logs\":[{",
        "[{\"logs\":[1]}]",
        "{\"transactions\":[",
        "{\"transactions\":",
    ] {
        for method in [
            "eth_getBlockByHash",
            "eth_getBlockReceipts",
            "eth_getTransactionReceipt",
            "eth_getLogs",
            "ots_getBlockTransactions",
        ] {
            assert_eq!(
                verdict(method, "[]", text),
                ResultPlausibility::Unread,
                "{method} {text}"
            );
        }
    }
}

#[test]
fn result_with_fewer_transactions_than_its_block_is_detected() {
    use super::{
        block_counted_by_result, block_transaction_count, shows_fewer_transactions,
        BlockHashOrNumber,
    };
    let hash = |byte: u8| const_hex::encode_prefixed([byte; 32]);
    let size = |transactions: &str| {
        let block = format!(
            r#"{{"number":"0x10","hash":"{}","transactions":{transactions},"uncles":[]}}"#,
            hash(7)
        );
        let method = methods::find_method_row(b"eth_getBlockByNumber");
        block_transaction_count(method, block.as_bytes()).map(|size| size.transactions)
    };
    for (transactions, expected) in [
        ("[]", Some(0)),
        (r#"["0xaa"]"#, Some(1)),
        (r#" [ "0xaa" , "0xbb" ] "#, Some(2)),
        (
            r#"[{"transactionIndex":"0x0"},{"transactionIndex": "0x1","input":"0x"}]"#,
            Some(2),
        ),
        (r#"[{"hash":"0xaa"}]"#, None),
        ("null", None),
    ] {
        assert_eq!(size(transactions), expected, "{transactions}");
    }
    let receipts = methods::find_method_row(b"eth_getBlockReceipts");
    let number = methods::find_method_row(b"eth_getBlockTransactionCountByNumber");
    let named = |method, params: &str, result: &str| {
        block_counted_by_result(method, Some(params.as_bytes()), result.as_bytes())
    };
    let list = format!(r#"[{{"blockNumber":"0x10","blockHash":"{}"}}]"#, hash(7));
    assert_eq!(
        named(receipts, r#"["latest"]"#, &list),
        Some(BlockHashOrNumber::Hash([7; 32]))
    );
    assert_eq!(
        named(receipts, r#"["0x10"]"#, "[]"),
        Some(BlockHashOrNumber::Number(16))
    );
    assert_eq!(named(receipts, r#"["latest"]"#, "[]"), None);
    assert_eq!(
        named(number, r#"["0x10"]"#, "\"0x1\""),
        Some(BlockHashOrNumber::Number(16))
    );
    assert_eq!(
        named(methods::find_method_row(b"eth_chainId"), "[]", "\"0x1\""),
        None
    );
    for (method, result, expected) in [
        (number, "\"0x1\"", true),
        (number, "\"0x2\"", false),
        (receipts, "[]", true),
        (receipts, r#"[{"transactionIndex":"0x0"}]"#, true),
        (
            receipts,
            r#"[{"transactionIndex":"0x0"},{"transactionIndex":"0x1"}]"#,
            false,
        ),
        // indices that restart, as Bor's do
        (
            receipts,
            r#"[{"transactionIndex":"0x0"},{"transactionIndex":"0x0"}]"#,
            false,
        ),
        (
            receipts,
            r#"[{"transactionIndex":"0x1"},{"transactionIndex":"0x0"}]"#,
            false,
        ),
        // chains that omit entries
        (
            receipts,
            r#"[{"transactionIndex":"0x0","l1BatchNumber":"0x1"}]"#,
            false,
        ),
        (
            receipts,
            r#"[{"transactionIndex":"0x0","root":"0x","status":"0x1"}]"#,
            false,
        ),
    ] {
        assert_eq!(
            shows_fewer_transactions(method, result.as_bytes(), 2),
            expected,
            "{result}"
        );
    }
}
