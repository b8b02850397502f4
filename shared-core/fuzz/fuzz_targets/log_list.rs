//! Lists of logs compared with serde_json: a list is read if each of its logs names one block of
//! the range, in ascending order. Two lists whose texts are joined are one list with the logs of
//! both.
#![no_main]

use std::ops::RangeInclusive;

use libfuzzer_sys::fuzz_target;
use sszip_core::jsonrpc::log_list::{read_log_list, LogListElements};
use sszip_fuzz::log_oracle::{array_elements, object_members, only_member, quantity};
use sszip_fuzz::oracle::Node;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (first, last, list) = input;
    let blocks = u64::from(first)..=u64::from(last);
    let read = read_log_list(list, blocks.clone());
    assert_eq!(read, expected_elements(list, blocks.clone()));
    if let Some(logs) = read {
        assert_lists_can_be_joined(logs, blocks);
    }
});

/// Returns the logs of a list as serde_json reads it.
fn expected_elements(list: &[u8], blocks: RangeInclusive<u64>) -> Option<LogListElements<'_>> {
    let tree = Node::parse(list)?;
    let logs = array_elements(&tree)?;
    let numbers: Option<Vec<u64>> = logs
        .iter()
        .map(|log| quantity(only_member(object_members(log)?, "blockNumber")?))
        .collect();
    let numbers = numbers?;
    if !numbers.iter().all(|number| blocks.contains(number)) || !numbers.is_sorted() {
        return None;
    }
    let start = |node: &Node<'_>| node.raw.as_ptr() as usize - list.as_ptr() as usize;
    let text = match (logs.first(), logs.last()) {
        (Some(first), Some(last)) => &list[start(first)..start(last) + last.raw.len()],
        _ => &[],
    };
    Some(LogListElements {
        text,
        last_block: numbers.last().copied(),
    })
}

/// Asserts that the logs, followed by a log of the last block, are a list of all of them.
fn assert_lists_can_be_joined(logs: LogListElements<'_>, blocks: RangeInclusive<u64>) {
    let last = logs.last_block.unwrap_or(*blocks.start());
    let another = format!("{{\"blockNumber\":\"{last:#x}\"}}");
    let comma = if logs.text.is_empty() { "" } else { "," };
    let text = [logs.text, comma.as_bytes(), another.as_bytes()].concat();
    let joined = [b"[", &text[..], b"]"].concat();
    let expected = blocks.contains(&last).then_some(LogListElements {
        text: &text,
        last_block: Some(last),
    });
    assert_eq!(read_log_list(&joined, blocks), expected);
}
