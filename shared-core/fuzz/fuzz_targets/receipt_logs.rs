//! The logs that a filter matches in a block's receipts, compared with serde_json: the same logs in
//! the node's own bytes, or none from a list in which a log could be missing.
//!
//! The input is the params of the call, a line feed, and the list of receipts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sszip_core::jsonrpc::block_reference::ResultBlock;
use sszip_core::jsonrpc::log_filter::{LogFilter, Topic, MAX_TOPICS};
use sszip_core::jsonrpc::plausible::BlockHashOrNumber;
use sszip_core::jsonrpc::receipt_logs::{matching_logs, MatchingLogs};
use sszip_fuzz::log_oracle::{
    array_elements, expand_short_values, hex_data, matches_log, may_match_bloom, member_values,
    object_members, only_member, quantity,
};
use sszip_fuzz::oracle::Node;

/// Maximum number of a filter's values with which blooms are read.
const MAX_BLOOM_VALUES: usize = 64;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |byte| *byte == b'\n');
    let (Some(params), Some(receipts)) = (parts.next(), parts.next()) else {
        return;
    };
    let (params, receipts) = (expand_short_values(params), expand_short_values(receipts));
    let Some(filter) = LogFilter::read(&params) else {
        return;
    };
    let found = matching_logs(&receipts, &filter).expect("memory is not refused");
    assert_eq!(found, expected_logs(&receipts, &filter));
    if let Some(found) = found {
        assert!(found.result.len() <= receipts.len());
    }
});

/// Returns the matching logs by a tree of the whole list.
fn expected_logs(receipts: &[u8], filter: &LogFilter<'_>) -> Option<MatchingLogs> {
    let requested = filter.only_block()?;
    let tree = Node::parse(receipts)?;
    let mut logs = Vec::new();
    let mut block = None;
    let mut next_log = 0;
    for (number, receipt) in (0..).zip(array_elements(&tree)?) {
        let members = unescaped_members(receipt)?;
        let hash = hex_data::<32>(only_member(members, "blockHash")?)?;
        let receipt_block = ResultBlock {
            number: quantity(only_member(members, "blockNumber")?)?,
            hash: Some(hash),
        };
        let is_requested = match requested {
            BlockHashOrNumber::Number(number) => receipt_block.number == number,
            BlockHashOrNumber::Hash(requested) => hash == requested,
        };
        let is_next = quantity(only_member(members, "transactionIndex")?)? == number;
        let is_same = *block.get_or_insert(receipt_block) == receipt_block;
        if !is_requested || !is_next || !is_same {
            return None;
        }
        let receipt_logs = array_elements(only_member(members, "logs")?)?;
        if may_match(members, filter)? {
            for (index, log) in (next_log..).zip(receipt_logs) {
                if is_match(log, index, hash, filter)? {
                    logs.push(log.raw);
                }
            }
        }
        next_log += receipt_logs.len() as u64;
    }
    Some(MatchingLogs {
        result: format!("[{}]", logs.join(",")).into_bytes(),
        count: logs.len(),
        block: block?,
    })
}

/// Returns the members of an object whose names have no escapes.
fn unescaped_members<'n, 'a>(node: &'n Node<'a>) -> Option<&'n [(&'a str, Node<'a>)]> {
    let members = object_members(node)?;
    let is_plain = members.iter().all(|(name, _)| !name.contains('\\'));
    is_plain.then_some(members)
}

/// Whether the bloom of a receipt permits a match. `None` if the bloom can't be read.
fn may_match(members: &[(&str, Node<'_>)], filter: &LogFilter<'_>) -> Option<bool> {
    let bloom = match member_values(members, "logsBloom")[..] {
        [] => return Some(true),
        [bloom] => hex_data::<256>(bloom)?,
        _ => return None,
    };
    let values = filter.addresses.len() + filter.topics.iter().map(Vec::len).sum::<usize>();
    let is_read = bloom != [0; 256] && values <= MAX_BLOOM_VALUES;
    Some(!is_read || may_match_bloom(filter, &bloom))
}

/// Whether the filter matches a log. `None` if it is not the log with this index in its block.
fn is_match(log: &Node<'_>, index: u64, block: [u8; 32], filter: &LogFilter<'_>) -> Option<bool> {
    let members = unescaped_members(log)?;
    let removed = member_values(members, "removed");
    let is_valid = quantity(only_member(members, "logIndex")?)? == index
        && hex_data::<32>(only_member(members, "blockHash")?)? == block
        && removed.iter().all(|value| value.raw == "false");
    let topics = array_elements(only_member(members, "topics")?)?;
    let topics: Option<Vec<Topic>> = topics.iter().map(hex_data).collect();
    let topics = topics.filter(|topics| is_valid && topics.len() <= MAX_TOPICS)?;
    let address = hex_data(only_member(members, "address")?)?;
    matches_log(filter, &address, &topics)
}
