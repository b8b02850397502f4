//! Results that contradict themselves: a node that has a header and not yet the body gives a
//! block without transactions, and one that lost a part of its index a list with holes.
//!
//! Only what no correct answer of any public chain shows is a contradiction: [`block`] and
//! [`logs`] say which chains write what.

mod block;
mod logs;
mod sizes;

pub use sizes::{block_size, counted_block, shows_fewer, BlockName, BlockSize};

use super::methods::Method;
use super::response::{content, first_element, member, Content};

/// What reading a result for contradictions came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It contradicts itself.
    Implausible,
    /// It does not, and all of it was read: it is one JSON value.
    Read,
    /// It does not, as far as was looked.
    Unread,
}

/// Whether a result of `method`, called with `params`, contradicts itself.
pub fn judge(method: &Method, params: Option<&[u8]>, result: &[u8]) -> Verdict {
    let contradicts = match method.name {
        "eth_getBlockByHash" | "eth_getBlockByNumber" => {
            return match block::contradicts_itself(result) {
                true => Verdict::Implausible,
                false => Verdict::Unread,
            };
        }
        "erigon_getBlockReceiptsByBlockHash"
        | "eth_getBlockReceipts"
        | "eth_getTransactionReceiptsByBlock"
        | "parity_getBlockReceipts" => logs::are_receipts_odd(result),
        "eth_getTransactionReceipt" => logs::is_receipt_odd(result),
        "eth_getLogs" | "erigon_getLogs" | "erigon_getLatestLogs" => {
            let filter = params.and_then(first_element).unwrap_or_default();
            let is_all = method.name != "erigon_getLatestLogs" && has_no_condition(filter);
            logs::are_logs_odd(result, member(filter, "blockHash"), is_all)
        }
        "ots_getBlockTransactions" => logs::lacks_receipts(result),
        _ => return Verdict::Unread,
    };
    match contradicts {
        Some(true) => Verdict::Implausible,
        Some(false) => Verdict::Read,
        // it is another shape, or no JSON
        None => Verdict::Unread,
    }
}

/// Whether a filter of logs takes all that are in its blocks.
fn has_no_condition(filter: &[u8]) -> bool {
    ["address", "topics"].into_iter().all(|name| {
        let value = member(filter, name);
        value.is_none_or(|value| matches!(content(value), Content::Null | Content::EmptyArray))
    })
}

/// Whether two values are the same hash.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.eq_ignore_ascii_case(other)
}

#[cfg(test)]
mod tests;
