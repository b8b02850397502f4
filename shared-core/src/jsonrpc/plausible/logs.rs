//! Lists of receipts and logs that are incomplete, or belong to several blocks.
//!
//! The indices of a complete list are below its length. Indices that restart are ignored: Bor
//! restarts them for what it adds to a block, and some nodes count within a transaction. Chains
//! that omit entries on purpose have holes: ZKsync (all its own objects have a member
//! `l1BatchNumber`) and Hedera (a `root` as well as a `status`).

use super::super::scan::{JsonScanError, JsonValueKind, StrictJsonReader};

/// Whether two JSON texts are the same hash, in any letter case.
fn is_same_hash(one: &[u8], other: &[u8]) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// The number of entries that were read from a list, and the lowest and the highest of their
/// indices.
#[derive(Clone, Copy, Debug, Default)]
struct SeenIndexRange {
    number: u64,
    lowest: Option<u64>,
    highest: Option<u64>,
}

impl SeenIndexRange {
    /// Counts one entry of the list, and adds its index to the range, if it has one.
    fn add_index_to_range(&mut self, index: Option<u64>) {
        self.number += 1;
        let Some(index) = index else {
            return;
        };
        self.lowest = Some(self.lowest.map_or(index, |lowest| lowest.min(index)));
        self.highest = self.highest.max(Some(index));
    }

    fn merge_range(&mut self, other: Self) {
        self.number += other.number;
        self.lowest = self.lowest.into_iter().chain(other.lowest).min();
        self.highest = self.highest.max(other.highest);
    }

    /// Whether indices are missing, if they start at `first`.
    fn has_index_gaps(&self, first: u64) -> bool {
        let numbers = |highest: u64| highest.saturating_sub(first).saturating_add(1);
        self.highest
            .is_some_and(|highest| numbers(highest) > self.number)
    }
}

/// The block hash that was read first, and whether a different one followed.
#[derive(Clone, Copy, Debug, Default)]
struct BlockHashAgreement<'a> {
    first: Option<&'a [u8]>,
    differ: bool,
}

impl<'a> BlockHashAgreement<'a> {
    /// Compares a hash with the first one; an absent hash agrees with all.
    fn add_hash(&mut self, hash: Option<&'a [u8]>) {
        match (self.first, hash) {
            (Some(first), Some(hash)) => self.differ |= !is_same_hash(first, hash),
            (None, hash) => self.first = hash,
            _ => {}
        }
    }

    fn merge_hashes(&mut self, other: Self) {
        self.add_hash(other.first);
        self.differ |= other.differ;
    }
}

/// The members of one log or one receipt that its plausibility depends on.
#[derive(Debug, Default)]
struct LogPlausibilityFields<'a> {
    block_hash: Option<&'a [u8]>,
    block_number: Option<&'a [u8]>,
    index: Option<u64>,
    /// Indices of a receipt's logs.
    logs: SeenIndexRange,
    hashes: BlockHashAgreement<'a>,
    has_status: bool,
    has_root: bool,
    /// The entry has the mark of a chain that omits entries.
    has_gaps: bool,
}

/// Whether a list of a block's receipts is incomplete, or has receipts of another block; `None`
/// if it could not be read.
pub(super) fn receipts_are_implausible(list: &[u8]) -> Option<bool> {
    let (mut hashes, mut indices, mut logs) =
        <(BlockHashAgreement<'_>, SeenIndexRange, SeenIndexRange)>::default();
    let mut has_gaps = false;
    read_log_list(list, "transactionIndex", |receipt| {
        hashes.add_hash(receipt.block_hash);
        hashes.merge_hashes(receipt.hashes);
        indices.add_index_to_range(receipt.index);
        logs.merge_range(receipt.logs);
        has_gaps |= receipt.has_gaps || receipt.has_status && receipt.has_root;
    })?;
    let is_short = !has_gaps && (indices.has_index_gaps(0) || logs.has_index_gaps(0));
    Some(hashes.differ || is_short)
}

/// Whether the logs of a receipt are incomplete or belong to another block; `None` if it could
/// not be read.
pub(super) fn receipt_is_implausible(receipt: &[u8]) -> Option<bool> {
    let mut scanner = StrictJsonReader::for_trusted_utf8(receipt);
    let mut found = LogPlausibilityFields::default();
    read_log_facts(&mut scanner, receipt, "transactionIndex", &mut found).ok()?;
    scanner.expect_end().ok()?;
    let mut hashes = found.hashes;
    hashes.add_hash(found.block_hash);
    let has_gaps = found.has_gaps || found.has_status && found.has_root;
    let first = found.logs.lowest.unwrap_or(0);
    Some(hashes.differ || !has_gaps && found.logs.has_index_gaps(first))
}

/// Whether a list of logs has one of another block than `requested`, has two of one block number
/// and different blocks, or, with `is_all`, is incomplete; `None` if it could not be read.
pub(super) fn logs_are_implausible(
    list: &[u8],
    requested: Option<&[u8]>,
    is_all: bool,
) -> Option<bool> {
    let mut number: Option<&[u8]> = None;
    let (mut hashes, mut indices) = (BlockHashAgreement::default(), SeenIndexRange::default());
    let (mut is_odd, mut has_holes, mut has_gaps) = (false, false, false);
    read_log_list(list, "logIndex", |log| {
        if number.is_none() || number != log.block_number {
            has_holes |= indices.has_index_gaps(0);
            (hashes, indices) = (BlockHashAgreement::default(), SeenIndexRange::default());
            number = log.block_number;
        }
        hashes.add_hash(requested);
        hashes.add_hash(log.block_hash);
        indices.add_index_to_range(log.index);
        is_odd |= hashes.differ;
        has_gaps |= log.has_gaps;
    })?;
    has_holes |= indices.has_index_gaps(0);
    Some(is_odd || is_all && has_holes && !has_gaps)
}

/// Whether a page of a block's transactions (`ots_getBlockTransactions`) has fewer receipts than
/// transactions; `None` if it cannot be read.
pub(super) fn transactions_page_lacks_receipts(page: &[u8]) -> Option<bool> {
    use crate::jsonrpc::response::find_object_member;
    let receipts = list_length(find_object_member(page, "receipts")?)?;
    let transactions = list_length(find_object_member(
        find_object_member(page, "fullblock")?,
        "transactions",
    )?)?;
    (receipts < transactions).then_some(true)
}

/// Returns the number of elements of a JSON array, or `None` if the value is not one.
fn list_length(list: &[u8]) -> Option<u64> {
    let mut scanner = StrictJsonReader::for_trusted_utf8(list);
    let (mut length, mut another) = (0, scanner.enter_array().ok()?);
    while another {
        length += 1;
        scanner.skip_value().ok()?;
        another = scanner.next_element().ok()?;
    }
    Some(length)
}

/// Calls `found` with the fields of each object in a JSON array. Returns `None` at the first
/// element that cannot be read.
fn read_log_list<'a>(
    list: &'a [u8],
    index: &str,
    mut found: impl FnMut(&LogPlausibilityFields<'a>),
) -> Option<()> {
    let mut scanner = StrictJsonReader::for_trusted_utf8(list);
    let mut another = scanner.enter_array().ok()?;
    while another {
        let mut item = LogPlausibilityFields::default();
        read_log_facts(&mut scanner, list, index, &mut item).ok()?;
        found(&item);
        another = scanner.next_element().ok()?;
    }
    scanner.expect_end().ok()
}

/// Reads a log or a receipt, whose index is the member `index`.
fn read_log_facts<'a>(
    scanner: &mut StrictJsonReader<'a>,
    text: &'a [u8],
    index: &str,
    item: &mut LogPlausibilityFields<'a>,
) -> Result<(), JsonScanError> {
    let mut next = scanner.read_first_member_name()?;
    while let Some(name) = next {
        let name = &text[name.content];
        if name == b"logs" && scanner.next_value_kind()? == JsonValueKind::Array {
            read_logs(scanner, text, item)?;
        } else {
            let span = scanner.skip_value()?.span;
            let value = &text[span];
            let is_there = || value != b"null";
            match name {
                b"blockHash" => item.block_hash = Some(value).filter(|_| is_there()),
                b"blockNumber" => item.block_number = Some(value),
                b"status" => item.has_status = is_there(),
                b"root" => item.has_root = is_there(),
                b"l1BatchNumber" => item.has_gaps = true,
                _ if name == index.as_bytes() => item.index = parse_number(value),
                _ => {}
            }
        }
        next = scanner.next_member()?;
    }
    Ok(())
}

/// Reads the logs of a receipt, and adds their block hashes and indices to `receipt`.
fn read_logs<'a>(
    scanner: &mut StrictJsonReader<'a>,
    text: &'a [u8],
    receipt: &mut LogPlausibilityFields<'a>,
) -> Result<(), JsonScanError> {
    let mut another = scanner.enter_array()?;
    while another {
        let mut next = scanner.read_first_member_name()?;
        let mut index = None;
        while let Some(name) = next {
            let span = scanner.skip_value()?.span;
            match &text[name.content] {
                b"blockHash" if &text[span.clone()] != b"null" => {
                    receipt.hashes.add_hash(Some(&text[span]));
                }
                b"logIndex" => index = parse_number(&text[span]),
                b"l1BatchNumber" => receipt.has_gaps = true,
                _ => {}
            }
            next = scanner.next_member()?;
        }
        receipt.logs.add_index_to_range(index);
        another = scanner.next_element()?;
    }
    Ok(())
}

/// Parses a quantity with its quotes, or returns `None` if the value is none or exceeds 64 bits.
fn parse_number(value: &[u8]) -> Option<u64> {
    let digits = value.strip_prefix(b"\"0x")?.strip_suffix(b"\"")?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
