//! Numbers of transactions of blocks, and responses that show fewer.

use memchr::memmem;

use super::super::block_reference::{self as reference, BlockReference};
use super::super::methods::MethodRow;
use super::super::scan::StrictJsonReader;
use super::block::{block_has_implausible_roots, text_from_member_value};

/// The minimum number of transactions that a block is known to have, and the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockTransactionCount {
    /// Number of the block.
    pub number: u64,
    /// Hash of the block.
    pub hash: [u8; 32],
    /// Minimum number of its transactions.
    pub transactions: u64,
}

/// The hash or the number by which a call or its result names a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockHashOrNumber {
    /// Hash of the block.
    Hash([u8; 32]),
    /// Number of the block.
    Number(u64),
}

/// Returns the size of the block that is the result of `method`; `None` if the result is no
/// block, or contradicts itself.
pub fn block_transaction_count(method: &MethodRow, result: &[u8]) -> Option<BlockTransactionCount> {
    if !matches!(method.name, "eth_getBlockByHash" | "eth_getBlockByNumber")
        || block_has_implausible_roots(result)
    {
        return None;
    }
    let block = reference::result_block(method, result)?;
    let list = text_from_member_value(result, "transactions")?;
    let transactions = match list.strip_prefix(b"[")?.trim_ascii_start().first()? {
        b'{' => transaction_count_by_index(list)?,
        _ => leading_json_list_length(list)?,
    };
    Some(BlockTransactionCount {
        number: block.number,
        hash: block.hash?,
        transactions,
    })
}

/// Returns the block whose transactions a result of `method` counts; `None` if it counts none.
pub fn block_counted_by_result(
    method: &MethodRow,
    params: Option<&[u8]>,
    result: &[u8],
) -> Option<BlockHashOrNumber> {
    if !returns_receipt_list(method) && !returns_transaction_count(method) {
        return None;
    }
    if let Some(hash) = reference::result_block(method, result).and_then(|block| block.hash) {
        return Some(BlockHashOrNumber::Hash(hash));
    }
    match reference::call_block_reference(method, params) {
        BlockReference::Hash { hash, .. } => Some(BlockHashOrNumber::Hash(hash)),
        BlockReference::Number(number) => Some(BlockHashOrNumber::Number(number)),
        _ => None,
    }
}

/// Whether a result of `method` counts fewer transactions than `transactions`, the number of its
/// block.
pub fn shows_fewer_transactions(method: &MethodRow, result: &[u8], transactions: u64) -> bool {
    if returns_transaction_count(method) {
        return read_leading_quantity(result).is_some_and(|number| number < transactions);
    }
    // the last receipt usually has the highest index, so that no element has to be counted
    let is_enough = transaction_count_by_index(result).is_some_and(|number| number >= transactions);
    if is_enough || chain_omits_receipts(result) {
        return false;
    }
    leading_json_list_length(result).is_some_and(|number| number < transactions)
}

fn returns_receipt_list(method: &MethodRow) -> bool {
    matches!(
        method.name,
        "erigon_getBlockReceiptsByBlockHash"
            | "eth_getBlockReceipts"
            | "eth_getTransactionReceiptsByBlock"
            | "parity_getBlockReceipts"
    )
}

fn returns_transaction_count(method: &MethodRow) -> bool {
    matches!(
        method.name,
        "eth_getBlockTransactionCountByHash" | "eth_getBlockTransactionCountByNumber"
    )
}

/// Whether the chain omits receipts on purpose, as ZKsync and Hedera do (see [`super::logs`]).
fn chain_omits_receipts(receipts: &[u8]) -> bool {
    let has = |name: &str| memmem::find(receipts, name.as_bytes()).is_some();
    has("\"l1BatchNumber\"") || has("\"root\"") && has("\"status\"")
}

/// Returns the last index of a transaction in a text, plus one.
fn transaction_count_by_index(text: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\"transactionIndex\"";
    let at = memmem::rfind(text, NAME)?;
    let value = text[at + NAME.len()..].trim_ascii_start();
    let value = value.strip_prefix(b":")?.trim_ascii_start();
    read_leading_quantity(value)?.checked_add(1)
}

/// Reads the number that begins here.
fn read_leading_quantity(value: &[u8]) -> Option<u64> {
    let rest = value.strip_prefix(b"\"0x")?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    let digits = std::str::from_utf8(&rest[..end]).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

/// Counts the elements of the list that begins here.
fn leading_json_list_length(list: &[u8]) -> Option<u64> {
    let mut scanner = StrictJsonReader::for_trusted_utf8(list);
    let (mut length, mut another) = (0, scanner.enter_array().ok()?);
    while another {
        length += 1;
        scanner.skip_value().ok()?;
        another = scanner.next_element().ok()?;
    }
    Some(length)
}
