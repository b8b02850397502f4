//! Results that contradict themselves: a node that has a header and not yet the body returns a
//! block without transactions, and a node that lost a part of its index a list with holes.
//!
//! A contradiction is a property that no correct response of any public chain has: [`block`] and
//! [`logs`] list the properties of the chains.

mod block;
mod block_sizes;
mod logs;

pub use block_sizes::{
    block_counted_by_result, block_transaction_count, shows_fewer_transactions, BlockHashOrNumber,
    BlockTransactionCount,
};

use super::methods::MethodRow;
use super::response::{
    classify_result_content, find_object_member, first_array_element, ResultEmptiness,
};

/// The result of a plausibility check: whether a result contradicts itself, and whether it was read
/// as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultPlausibility {
    /// The result contradicts itself.
    Implausible,
    /// The result does not contradict itself, and is completely read: it is one JSON value.
    Read,
    /// The part of the result that was read does not contradict itself.
    Unread,
}

/// Checks whether a result of `method`, called with `params`, contradicts itself.
pub fn check_result_plausibility(
    method: &MethodRow,
    params: Option<&[u8]>,
    result: &[u8],
) -> ResultPlausibility {
    let contradicts = match method.name {
        "eth_getBlockByHash" | "eth_getBlockByNumber" => {
            return match block::block_has_implausible_roots(result) {
                true => ResultPlausibility::Implausible,
                false => ResultPlausibility::Unread,
            };
        }
        "erigon_getBlockReceiptsByBlockHash"
        | "eth_getBlockReceipts"
        | "eth_getTransactionReceiptsByBlock"
        | "parity_getBlockReceipts" => logs::receipts_are_implausible(result),
        "eth_getTransactionReceipt" => logs::receipt_is_implausible(result),
        "eth_getLogs" | "erigon_getLogs" | "erigon_getLatestLogs" => {
            let filter = params.and_then(first_array_element).unwrap_or_default();
            let is_all = method.name != "erigon_getLatestLogs" && filter_matches_all_logs(filter);
            logs::logs_are_implausible(result, find_object_member(filter, "blockHash"), is_all)
        }
        "ots_getBlockTransactions" => logs::transactions_page_lacks_receipts(result),
        _ => return ResultPlausibility::Unread,
    };
    match contradicts {
        Some(true) => ResultPlausibility::Implausible,
        Some(false) => ResultPlausibility::Read,
        // the result has another structure, or is no JSON
        None => ResultPlausibility::Unread,
    }
}

/// Whether a log filter restricts neither addresses nor topics.
fn filter_matches_all_logs(filter: &[u8]) -> bool {
    ["address", "topics"].into_iter().all(|name| {
        let value = find_object_member(filter, name);
        value.is_none_or(|value| {
            matches!(
                classify_result_content(value),
                ResultEmptiness::Null | ResultEmptiness::EmptyArray
            )
        })
    })
}

#[cfg(test)]
mod tests;
