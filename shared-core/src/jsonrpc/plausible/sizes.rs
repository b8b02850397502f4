//! Numbers of transactions of blocks, and responses that show fewer.

use memchr::memmem;

use super::super::block::{self as reference, BlockReference};
use super::super::methods::Method;
use super::super::scan::Scanner;
use super::block::{block_is_implausible, value};

/// The minimum number of transactions that a block is known to have, and the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// Number of the block.
    pub number: u64,
    /// Hash of the block.
    pub hash: [u8; 32],
    /// Minimum number of its transactions.
    pub transactions: u64,
}

/// The hash or the number by which a call or its result names a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockName {
    /// Hash of the block.
    Hash([u8; 32]),
    /// Number of the block.
    Number(u64),
}

/// Returns the size of the block that is the result of `method`; `None` if the result is no
/// block, or contradicts itself.
pub fn block_size(method: &Method, result: &[u8]) -> Option<BlockSize> {
    if !matches!(method.name, "eth_getBlockByHash" | "eth_getBlockByNumber")
        || block_is_implausible(result)
    {
        return None;
    }
    let block = reference::in_result(method, result)?;
    let list = value(result, "transactions")?;
    let transactions = match list.strip_prefix(b"[")?.trim_ascii_start().first()? {
        b'{' => after_last_index(list)?,
        _ => length(list)?,
    };
    Some(BlockSize {
        number: block.number,
        hash: block.hash?,
        transactions,
    })
}

/// Returns the block whose transactions a result of `method` counts; `None` if it counts none.
pub fn counted_block(method: &Method, params: Option<&[u8]>, result: &[u8]) -> Option<BlockName> {
    if !is_list_of_receipts(method) && !is_number_of_transactions(method) {
        return None;
    }
    if let Some(hash) = reference::in_result(method, result).and_then(|block| block.hash) {
        return Some(BlockName::Hash(hash));
    }
    match reference::reference(method, params) {
        BlockReference::Hash { hash, .. } => Some(BlockName::Hash(hash)),
        BlockReference::Number(number) => Some(BlockName::Number(number)),
        _ => None,
    }
}

/// Whether a result of `method` counts fewer transactions than `transactions`, the number of its
/// block.
pub fn shows_fewer(method: &Method, result: &[u8], transactions: u64) -> bool {
    if is_number_of_transactions(method) {
        return quantity(result).is_some_and(|number| number < transactions);
    }
    // the last receipt usually has the highest index, so that no element has to be counted
    let is_enough = after_last_index(result).is_some_and(|number| number >= transactions);
    if is_enough || omits_receipts(result) {
        return false;
    }
    length(result).is_some_and(|number| number < transactions)
}

fn is_list_of_receipts(method: &Method) -> bool {
    matches!(
        method.name,
        "erigon_getBlockReceiptsByBlockHash"
            | "eth_getBlockReceipts"
            | "eth_getTransactionReceiptsByBlock"
            | "parity_getBlockReceipts"
    )
}

fn is_number_of_transactions(method: &Method) -> bool {
    matches!(
        method.name,
        "eth_getBlockTransactionCountByHash" | "eth_getBlockTransactionCountByNumber"
    )
}

/// Whether the chain omits receipts on purpose, as ZKsync and Hedera do (see [`super::logs`]).
fn omits_receipts(receipts: &[u8]) -> bool {
    let has = |name: &str| memmem::find(receipts, name.as_bytes()).is_some();
    has("\"l1BatchNumber\"") || has("\"root\"") && has("\"status\"")
}

/// Returns the last index of a transaction in a text, plus one.
fn after_last_index(text: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\"transactionIndex\"";
    let at = memmem::rfind(text, NAME)?;
    let value = text[at + NAME.len()..].trim_ascii_start();
    let value = value.strip_prefix(b":")?.trim_ascii_start();
    quantity(value)?.checked_add(1)
}

/// Reads the number that begins here.
fn quantity(value: &[u8]) -> Option<u64> {
    let rest = value.strip_prefix(b"\"0x")?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    let digits = std::str::from_utf8(&rest[..end]).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

/// Counts the elements of the list that begins here.
fn length(list: &[u8]) -> Option<u64> {
    let mut scanner = Scanner::of_value(list);
    let (mut length, mut another) = (0, scanner.first_element().ok()?);
    while another {
        length += 1;
        scanner.value().ok()?;
        another = scanner.next_element().ok()?;
    }
    Some(length)
}
