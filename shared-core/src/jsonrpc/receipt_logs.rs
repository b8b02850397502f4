//! The logs of a block that a filter matches, taken from the list of the block's receipts.
//!
//! The list is read strictly, and completely: the receipts belong to the block of the filter, and
//! transactions and logs are numbered from zero without a gap. A list in which a log could be
//! missing or be matched by one node and not by another has no result. Chains that number or omit
//! logs in their own way have none, see [`plausible`](super::plausible).

use std::ops::Range;

use super::batch_elements::OutOfMemory;
use super::block_reference::{parse_hash, parse_quantity, ResultBlock};
use super::log_bloom::{FilterBloomBits, LogBloom};
use super::log_filter::{parse_hex_data, Address, LogFilter, Topic, MAX_TOPICS};
use super::plausible::BlockHashOrNumber;
use super::scan::StrictJsonReader;
use crate::bytes::{try_extend, try_push};

/// The logs of one block that a filter matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchingLogs {
    /// Result of `eth_getLogs`: the logs as the node wrote them, in an array.
    pub result: Vec<u8>,
    /// Number of logs in the result.
    pub count: usize,
    /// Block to which the receipts belong.
    pub block: ResultBlock,
}

/// Returns the logs that the filter of one block matches in the list of the block's receipts. The
/// result is not longer than the list. `None` if the list is empty or no complete list of this
/// block, or if nodes may disagree on a log.
///
/// # Errors
/// [`OutOfMemory`].
pub fn matching_logs(
    receipts: &[u8],
    filter: &LogFilter<'_>,
) -> Result<Option<MatchingLogs>, OutOfMemory> {
    let mut result = Vec::new();
    let reserved = result.try_reserve_exact(receipts.len());
    reserved.map_err(|_| OutOfMemory)?;
    Ok(find_matching_logs(receipts, filter, result))
}

/// Returns the matching logs like [`matching_logs`], with `result` as the empty buffer of the list.
fn find_matching_logs(
    receipts: &[u8],
    filter: &LogFilter<'_>,
    mut result: Vec<u8>,
) -> Option<MatchingLogs> {
    let requested = filter.only_block()?;
    let bits = FilterBloomBits::for_filter(filter);
    let mut reader = StrictJsonReader::for_untrusted_text(receipts).ok()?;
    try_push(&mut result, b'[')?;
    let (mut count, mut block) = (0, None);
    let (mut next_transaction, mut next_log) = (0, 0);
    let mut another = reader.enter_array().ok()?;
    while another {
        let receipt = read_receipt(&mut reader, receipts)?;
        let of = ResultBlock {
            number: receipt.block_number,
            hash: Some(receipt.block_hash),
        };
        let is_of_block = match requested {
            BlockHashOrNumber::Number(number) => receipt.block_number == number,
            BlockHashOrNumber::Hash(hash) => receipt.block_hash == hash,
        };
        if !is_of_block || *block.get_or_insert(of) != of || receipt.index != next_transaction {
            return None;
        }
        let may_match = match (&bits, &receipt.bloom) {
            // some nodes write an empty bloom where they have none
            (Some(bits), Some(bloom)) if !bloom.is_empty() => bits.may_match(bloom),
            _ => true,
        };
        if may_match {
            let text = &receipts[receipt.logs.clone()];
            let matched = append_matching_logs(text, &receipt, next_log, filter, &mut result)?;
            count += matched;
        }
        next_transaction += 1;
        next_log += receipt.log_count;
        another = reader.next_element().ok()?;
    }
    reader.expect_end().ok()?;
    try_push(&mut result, b']')?;
    Some(MatchingLogs {
        result,
        count,
        block: block?,
    })
}

/// The members of one receipt on which the selection of its logs depends.
struct Receipt {
    block_hash: [u8; 32],
    block_number: u64,
    /// Index of the transaction in its block.
    index: u64,
    bloom: Option<LogBloom>,
    /// Span of the array of logs.
    logs: Range<usize>,
    log_count: u64,
}

/// The members of one log that a filter and the check of the list read.
struct Log {
    address: Address,
    topics: Vec<Topic>,
    block_hash: [u8; 32],
    index: u64,
}

/// Reads one receipt, whose logs are counted and not read.
fn read_receipt(reader: &mut StrictJsonReader<'_>, text: &[u8]) -> Option<Receipt> {
    let (mut block_hash, mut block_number, mut index) = (None, None, None);
    let (mut bloom, mut logs) = (None, None);
    let mut next = reader.read_first_member_name().ok()?;
    while let Some(name) = next {
        if name.escaped {
            return None;
        }
        let name = &text[name.content];
        let is_new = if name == b"logs" {
            let start = reader.next_value_start();
            let log_count = count_elements(reader)?;
            let span = start..reader.last_read_end();
            logs.replace((span, log_count)).is_none()
        } else {
            let span = reader.skip_value().ok()?.span;
            let value = &text[span];
            match name {
                b"blockHash" => block_hash.replace(parse_hash(value)?).is_none(),
                b"blockNumber" => block_number.replace(parse_quantity(value)?).is_none(),
                b"transactionIndex" => index.replace(parse_quantity(value)?).is_none(),
                b"logsBloom" => bloom.replace(LogBloom::parse(value)?).is_none(),
                _ => true,
            }
        };
        if !is_new {
            return None;
        }
        next = reader.next_member().ok()?;
    }
    let (logs, log_count) = logs?;
    Some(Receipt {
        block_hash: block_hash?,
        block_number: block_number?,
        index: index?,
        bloom,
        logs,
        log_count,
    })
}

/// Skips an array, and returns the number of its elements.
fn count_elements(reader: &mut StrictJsonReader<'_>) -> Option<u64> {
    let (mut count, mut another) = (0, reader.enter_array().ok()?);
    while another {
        reader.skip_value().ok()?;
        count += 1;
        another = reader.next_element().ok()?;
    }
    Some(count)
}

/// Appends the logs of a receipt that the filter matches to `result`, which starts with the
/// bracket of its array. The logs are numbered from `first_index` on. Returns the number of
/// appended logs.
fn append_matching_logs(
    logs: &[u8],
    receipt: &Receipt,
    first_index: u64,
    filter: &LogFilter<'_>,
    result: &mut Vec<u8>,
) -> Option<usize> {
    let mut reader = StrictJsonReader::for_trusted_utf8(logs);
    let (mut count, mut next_index) = (0, first_index);
    let mut another = reader.enter_array().ok()?;
    while another {
        let start = reader.next_value_start();
        let log = read_log(&mut reader, logs)?;
        if log.index != next_index || log.block_hash != receipt.block_hash {
            return None;
        }
        if is_matched_log(filter, &log)? {
            if result.len() > 1 {
                try_push(result, b',')?;
            }
            try_extend(result, &logs[start..reader.last_read_end()])?;
            count += 1;
        }
        next_index += 1;
        another = reader.next_element().ok()?;
    }
    Some(count)
}

/// Reads one log. `None` if it lacks a member, has one twice, or was removed by a reorganisation.
fn read_log(reader: &mut StrictJsonReader<'_>, text: &[u8]) -> Option<Log> {
    let (mut address, mut topics, mut block_hash, mut index) = (None, None, None, None);
    let mut next = reader.read_first_member_name().ok()?;
    while let Some(name) = next {
        if name.escaped {
            return None;
        }
        let span = reader.skip_value().ok()?.span;
        let value = &text[span];
        let is_new = match &text[name.content] {
            b"address" => address.replace(parse_hex_data(value)?).is_none(),
            b"topics" => topics.replace(read_topics(value)?).is_none(),
            b"blockHash" => block_hash.replace(parse_hash(value)?).is_none(),
            b"logIndex" => index.replace(parse_quantity(value)?).is_none(),
            b"removed" => value == b"false",
            _ => true,
        };
        if !is_new {
            return None;
        }
        next = reader.next_member().ok()?;
    }
    Some(Log {
        address: address?,
        topics: topics?,
        block_hash: block_hash?,
        index: index?,
    })
}

/// Reads the topics of a log.
fn read_topics(value: &[u8]) -> Option<Vec<Topic>> {
    let mut topics = Vec::new();
    let mut reader = StrictJsonReader::for_trusted_utf8(value);
    let mut another = reader.enter_array().ok()?;
    while another {
        let span = reader.skip_value().ok()?.span;
        if topics.len() == MAX_TOPICS {
            return None;
        }
        try_push(&mut topics, parse_hash(&value[span])?)?;
        another = reader.next_element().ok()?;
    }
    Some(topics)
}

/// Whether the filter matches a log of its block. `None` if nodes disagree: the filter allows any
/// topic at a position at which the log has none.
fn is_matched_log(filter: &LogFilter<'_>, log: &Log) -> Option<bool> {
    if !filter.addresses.is_empty() && filter.addresses.binary_search(&log.address).is_err() {
        return Some(false);
    }
    let mut is_disputed = false;
    for (position, alternatives) in filter.topics.iter().enumerate() {
        match log.topics.get(position) {
            _ if alternatives.is_empty() => is_disputed |= position >= log.topics.len(),
            Some(topic) if alternatives.binary_search(topic).is_ok() => {}
            _ => return Some(false),
        }
    }
    (!is_disputed).then_some(true)
}

#[cfg(test)]
mod tests;
