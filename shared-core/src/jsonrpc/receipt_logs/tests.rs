use proptest::collection::vec;
use proptest::prelude::*;

use super::{matching_logs, MatchingLogs};
use crate::jsonrpc::block_reference::ResultBlock;
use crate::jsonrpc::log_bloom::bloom_text;
use crate::jsonrpc::log_filter::LogFilter;

/// The texts of a node's receipts and logs, with names in place of the values that differ.
struct NodeFormat {
    node: &'static str,
    receipt: &'static str,
    log: &'static str,
}

const GETH: NodeFormat = NodeFormat {
    node: "geth",
    receipt: r#"{"blockHash":"%BLOCK","blockNumber":"0x10","contractAddress":null,"cumulativeGasUsed":"0x5208","effectiveGasPrice":"0x7","from":"0x00000000000000000000000000000000000000f0","gasUsed":"0x5208","logs":%LOGS,"logsBloom":%BLOOM,"status":"0x1","to":null,"transactionHash":"%BLOCK","transactionIndex":"%NUMBER","type":"0x2"}"#,
    log: r#"{"address":"%ADDRESS","topics":%TOPICS,"data":"0x","blockNumber":"0x10","transactionHash":"%BLOCK","transactionIndex":"0x0","blockHash":"%BLOCK","blockTimestamp":"0x6","logIndex":"%INDEX","removed":false}"#,
};

const FORMATS: [NodeFormat; 6] = [
    GETH,
    NodeFormat {
        node: "reth",
        receipt: r#"{"type":"0x2","status":"0x1","cumulativeGasUsed":"0x5208","logs":%LOGS,"logsBloom":%BLOOM,"transactionHash":"%BLOCK","transactionIndex":"%NUMBER","blockHash":"%BLOCK","blockNumber":"0x10","gasUsed":"0x5208","effectiveGasPrice":"0x7","from":"0x00000000000000000000000000000000000000f0","to":null,"contractAddress":null}"#,
        log: r#"{"address":"%ADDRESS","topics":%TOPICS,"data":"0x","blockHash":"%BLOCK","blockNumber":"0x10","blockTimestamp":"0x6","transactionHash":"%BLOCK","transactionIndex":"0x0","logIndex":"%INDEX","removed":false}"#,
    },
    NodeFormat {
        node: "Nethermind",
        receipt: r#"{"transactionHash":"%BLOCK","transactionIndex":"%NUMBER","blockHash":"%BLOCK","blockNumber":"0x10","cumulativeGasUsed":"0x5208","gasUsed":"0x5208","effectiveGasPrice":"0x7","from":"0x00000000000000000000000000000000000000f0","to":null,"contractAddress":null,"logs":%LOGS,"logsBloom":%BLOOM,"status":"0x1","type":"0x2"}"#,
        log: r#"{"removed":false,"logIndex":"%INDEX","transactionIndex":"0x0","transactionHash":"%BLOCK","blockHash":"%BLOCK","blockNumber":"0x10","address":"%ADDRESS","data":"0x","topics":%TOPICS}"#,
    },
    NodeFormat {
        node: "Erigon",
        receipt: r#"{"blockHash":"%BLOCK","blockNumber":"0x10","contractAddress":null,"cumulativeGasUsed":"0x5208","effectiveGasPrice":"0x7","from":"0x00000000000000000000000000000000000000f0","gasUsed":"0x5208","logs":%LOGS,"logsBloom":%BLOOM,"status":"0x1","to":null,"transactionHash":"%BLOCK","transactionIndex":"%NUMBER","type":"0x2"}"#,
        log: r#"{"address":"%ADDRESS","topics":%TOPICS,"data":"0x","blockNumber":"0x10","transactionHash":"%BLOCK","transactionIndex":"0x0","blockHash":"%BLOCK","logIndex":"%INDEX","removed":false}"#,
    },
    NodeFormat {
        node: "Besu",
        receipt: r#"{"blockHash":"%BLOCK","blockNumber":"0x10","contractAddress":null,"cumulativeGasUsed":"0x5208","from":"0x00000000000000000000000000000000000000f0","gasUsed":"0x5208","effectiveGasPrice":"0x7","logs":%LOGS,"logsBloom":%BLOOM,"status":"0x1","to":null,"transactionHash":"%BLOCK","transactionIndex":"%NUMBER","type":"0x2"}"#,
        log: r#"{"logIndex":"%INDEX","removed":false,"blockNumber":"0x10","blockHash":"%BLOCK","transactionHash":"%BLOCK","transactionIndex":"0x0","address":"%ADDRESS","data":"0x","topics":%TOPICS}"#,
    },
    NodeFormat {
        node: "before Byzantium, without a bloom, with white space",
        receipt: r#" { "blockHash" : "%BLOCK" , "blockNumber" : "0x10", "root" : "%BLOCK", "logs" : %LOGS , "transactionIndex":"%NUMBER" } "#,
        log: r#"{ "address" : "%ADDRESS", "topics" : %TOPICS, "blockHash" : "%BLOCK", "logIndex" : "%INDEX" }"#,
    },
];

/// A log, with one byte for its address and each of its topics.
#[derive(Clone, Debug)]
struct TestLog {
    address: u8,
    topics: Vec<u8>,
}

fn log(address: u8, topics: &[u8]) -> TestLog {
    TestLog {
        address,
        topics: topics.to_vec(),
    }
}

fn hex(byte: u8, length: usize) -> String {
    format!("0x{}", const_hex::encode(vec![byte; length]))
}

fn block() -> String {
    hex(0xbb, 32)
}

fn topics_text(topics: &[u8]) -> String {
    let topics: Vec<String> = topics
        .iter()
        .map(|topic| format!("\"{}\"", hex(*topic, 32)))
        .collect();
    format!("[{}]", topics.join(","))
}

/// Returns the list of receipts of a block as a node writes it, and its logs.
fn receipts(format: &NodeFormat, transactions: &[Vec<TestLog>]) -> (String, Vec<String>) {
    let (mut list, mut all) = (Vec::new(), Vec::new());
    for (number, logs) in transactions.iter().enumerate() {
        let first = all.len();
        let mut values: Vec<Vec<u8>> = Vec::new();
        for log in logs {
            values.push(vec![log.address; 20]);
            values.extend(log.topics.iter().map(|topic| vec![*topic; 32]));
            let text = format
                .log
                .replace("%BLOCK", &block())
                .replace("%ADDRESS", &hex(log.address, 20))
                .replace("%TOPICS", &topics_text(&log.topics))
                .replace("%INDEX", &format!("0x{:x}", all.len()));
            all.push(text);
        }
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        let text = format
            .receipt
            .replace("%BLOCK", &block())
            .replace("%NUMBER", &format!("0x{number:x}"))
            .replace("%BLOOM", &bloom_text(&values))
            .replace("%LOGS", &format!("[{}]", all[first..].join(",")));
        list.push(text);
    }
    (format!("[{}]", list.join(",")), all)
}

/// Filters the receipts of the block by its hash; `members` starts with a comma, if it is not empty.
fn filtered(receipts: &str, members: &str) -> Option<MatchingLogs> {
    let params = format!(r#"[{{"blockHash":"{}"{members}}}]"#, block());
    let filter = LogFilter::read(params.as_bytes()).unwrap();
    matching_logs(receipts.as_bytes(), &filter).unwrap()
}

fn example() -> Vec<Vec<TestLog>> {
    vec![
        vec![log(1, &[5]), log(2, &[5, 6]), log(1, &[7, 6])],
        vec![],
        vec![log(3, &[]), log(1, &[5, 6, 7, 8])],
    ]
}

#[test]
fn logs_of_each_node_are_returned_as_the_node_wrote_them() {
    for format in &FORMATS {
        let (list, logs) = receipts(format, &example());
        let select = |indices: &[usize]| {
            let logs: Vec<&str> = indices.iter().map(|n| logs[*n].as_str()).collect();
            format!("[{}]", logs.join(","))
        };
        let address = |byte| {
            format!(
                r#","address":"{}""#,
                hex(byte, 20).to_uppercase().replace("0X", "0x")
            )
        };
        let list_of_one = format!(r#","address":["{}"]"#, hex(2, 20));
        let topics = format!(r#","topics":[null,["{}","{}"]]"#, hex(9, 32), hex(6, 32));
        let both = format!("{}{topics}", address(1));
        for (members, expected) in [
            ("".to_owned(), &[0, 1, 2, 3, 4][..]),
            (r#","topics":[]"#.to_owned(), &[0, 1, 2, 3, 4]),
            (address(1), &[0, 2, 4]),
            (address(3), &[3]),
            (address(0xaa), &[]),
            (list_of_one, &[1]),
            (topics, &[1, 2, 4]),
            (both, &[2, 4]),
        ] {
            let found = filtered(&list, &members).unwrap();
            let result = String::from_utf8(found.result).unwrap();
            assert_eq!(result, select(expected), "{}: {members}", format.node);
            assert_eq!(found.count, expected.len());
            let block = ResultBlock {
                number: 0x10,
                hash: Some([0xbb; 32]),
            };
            assert_eq!(found.block, block);
        }
    }
}

#[test]
fn block_by_number_has_the_number_of_its_receipts() {
    let (list, _) = receipts(&GETH, &example());
    let found = |number: &str| {
        let params = format!(r#"[{{"fromBlock":"{number}","toBlock":"{number}"}}]"#);
        let filter = LogFilter::read(params.as_bytes()).unwrap();
        matching_logs(list.as_bytes(), &filter).unwrap()
    };
    assert_eq!(found("0x10").unwrap().count, 5);
    assert_eq!(found("0x11"), None);
    let range = LogFilter::read(br#"[{"fromBlock":"0x10","toBlock":"0x11"}]"#).unwrap();
    assert_eq!(matching_logs(list.as_bytes(), &range), Ok(None));
}

#[test]
fn filter_with_any_topic_beyond_the_topics_of_a_log_has_no_result_if_the_log_matches() {
    let (list, _) = receipts(&GETH, &example());
    // the log without topics matches at some nodes
    assert_eq!(filtered(&list, r#","topics":[null]"#), None);
    let other_address = format!(r#","topics":[null],"address":"{}""#, hex(1, 20));
    assert_eq!(filtered(&list, &other_address).unwrap().count, 3);
    let first = format!(r#","topics":["{}",null]"#, hex(5, 32));
    assert_eq!(filtered(&list, &first), None);
    let first = format!(r#","topics":["{}",null]"#, hex(7, 32));
    assert_eq!(filtered(&list, &first).unwrap().count, 1);
}

#[test]
fn incomplete_or_contradictory_list_has_no_result() {
    let (list, _) = receipts(&GETH, &example());
    assert!(filtered(&list, "").is_some());
    let other_block = hex(0xcc, 32);
    let block_member = format!(r#""blockHash":"{}""#, block());
    let other_member = format!(r#""blockHash":"{other_block}""#);
    let topic = format!("\"{}\"", hex(8, 32));
    let address = format!(r#""address":"{}""#, hex(3, 20));
    let five_topics = format!("{topic},{topic}");
    for (from, to) in [
        ("[", ""),
        ("\"removed\":false", "\"removed\":true"),
        ("\"removed\":false", "\"removed\":null"),
        (block_member.as_str(), other_member.as_str()),
        (block_member.as_str(), "\"blockHash\":null"),
        (r#""blockNumber":"0x10","c"#, r#""blockNumber":"0x11","c"#),
        (r#""blockNumber":"0x10","c"#, r#""blockNumber":"0x010","c"#),
        (r#""logIndex":"0x2""#, r#""logIndex":"0x3""#),
        (r#""logIndex":"0x3""#, r#""logIndex":"0x0""#),
        (r#""logIndex":"0x1","#, ""),
        (
            r#""logIndex":"0x1""#,
            r#""logIndex":"0x1","logIndex":"0x1""#,
        ),
        (
            r#""transactionIndex":"0x2","type""#,
            r#""transactionIndex":"0x3","type""#,
        ),
        (r#""transactionIndex":"0x1","type""#, r#""type""#),
        (r#""logs":[]"#, r#""logs":null"#),
        (r#""logs":[]"#, r#""logs":[],"logs":[]"#),
        (r#""logs":[],"#, ""),
        (r#""logsBloom":"0x0"#, r#""logsBloom":"0x"#),
        (address.as_str(), r#""address":"0x03""#),
        (address.as_str(), r#""addr\u0065ss":"0x03""#),
        (topic.as_str(), "null"),
        (topic.as_str(), five_topics.as_str()),
        (r#""type":"0x2""#, r#""typ\u0065":"0x2""#),
    ] {
        let damaged = list.replacen(from, to, 1);
        assert_ne!(damaged, list, "{from}");
        assert_eq!(filtered(&damaged, ""), None, "{from}: {to}");
    }
    for damaged in ["[]", "null", "{}", "[[]]", "[null]", "[{}]", ""] {
        assert_eq!(filtered(damaged, ""), None, "{damaged}");
    }
    assert_eq!(filtered(&format!("{list}x"), ""), None);
    assert_eq!(filtered(&list[..list.len() - 1], ""), None);
}

#[test]
fn receipt_is_skipped_if_its_bloom_excludes_the_filter() {
    let (list, _) = receipts(&GETH, &[vec![log(1, &[5])]]);
    let true_bloom = bloom_text(&[&[1; 20], &[5; 32]]);
    let address = format!(r#","address":"{}""#, hex(1, 20));
    let count = |bloom: &str| {
        let list = list.replace(&true_bloom, bloom);
        filtered(&list, &address).unwrap().count
    };
    assert_eq!(count(&true_bloom), 1);
    assert_eq!(count(&bloom_text(&[&[2; 20]])), 0);
    // an empty bloom of a receipt with logs is none
    assert_eq!(count(&bloom_text(&[])), 1);
}

/// Matches a log as the specification describes it; `None` if nodes disagree.
fn matches_by_specification(log: &TestLog, addresses: &[u8], topics: &[Vec<u8>]) -> Option<bool> {
    let is_address = addresses.is_empty() || addresses.contains(&log.address);
    let is_topic = |(n, any): (usize, &Vec<u8>)| match log.topics.get(n) {
        Some(topic) => any.is_empty() || any.contains(topic),
        None => any.is_empty(),
    };
    let is_match = is_address && topics.iter().enumerate().all(is_topic);
    (!is_match || topics.len() <= log.topics.len()).then_some(is_match)
}

proptest! {
    #[test]
    fn logs_are_selected_as_the_specification_describes(
        transactions in vec(vec((1u8..4, vec(1u8..4, 0..=4)), 0..4), 1..6),
        addresses in vec(1u8..5, 0..3),
        topics in vec(vec(1u8..5, 0..3), 0..=4),
        format in 0..FORMATS.len(),
    ) {
        let transactions: Vec<Vec<TestLog>> = transactions
            .into_iter()
            .map(|logs| logs.into_iter().map(|(address, topics)| log(address, &topics)).collect())
            .collect();
        let (list, texts) = receipts(&FORMATS[format], &transactions);
        let mut members = String::new();
        if !addresses.is_empty() {
            let values: Vec<String> =
                addresses.iter().map(|byte| format!("\"{}\"", hex(*byte, 20))).collect();
            members += &format!(r#","address":[{}]"#, values.join(","));
        }
        let positions: Vec<String> = topics
            .iter()
            .map(|any| match any.is_empty() {
                true => "null".to_owned(),
                false => topics_text(any),
            })
            .collect();
        members += &format!(r#","topics":[{}]"#, positions.join(","));
        let selected: Option<Vec<bool>> = transactions
            .iter()
            .flatten()
            .map(|log| matches_by_specification(log, &addresses, &topics))
            .collect();
        let expected = selected.map(|selected| {
            let logs: Vec<&str> = texts
                .iter()
                .zip(selected)
                .filter_map(|(text, is_selected)| is_selected.then_some(text.as_str()))
                .collect();
            format!("[{}]", logs.join(","))
        });
        let found = filtered(&list, &members)
            .map(|found| String::from_utf8(found.result).unwrap());
        prop_assert_eq!(found, expected);
    }
}
