//! The block range that a call requests, for a limit on its width.
//!
//! [`block_reference`](super::block_reference) reads a range only if every node reads it alike. A
//! limit must apply on the most lenient node, too: this module reads names of members in any case,
//! the widest range of duplicate members, numbers in any notation, and a filter within a string.
//! A call has no range if no node can read its ends as numbers or tags. It is sent to the node.

use std::borrow::Cow;

use super::scan::{StrictJsonReader, StringSpan};

/// A range of blocks, with both ends in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// Number of the first block.
    pub from: u64,
    /// Number of the last block, not below `from`.
    pub to: u64,
}

impl BlockRange {
    /// Whether the range has more than `most` blocks; `most` is at least 1.
    pub fn exceeds_block_count(self, most: u64) -> bool {
        // the number of blocks itself may exceed 64 bits
        self.to - self.from >= most
    }

    /// Number of blocks in the range.
    pub fn block_count(self) -> u128 {
        u128::from(self.to - self.from) + 1
    }
}

/// The blocks that the tags of a chain name, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaggedBlocks {
    /// Number of the head.
    pub head: Option<u64>,
    /// Number of the last finalized block.
    pub last_final: Option<u64>,
}

/// A kind of methods that search a range of blocks. The members of their filters have the same
/// names, and other defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeMethodKind {
    /// Logs: a range that the call leaves open is the head, and a filter may name a block's hash.
    Logs,
    /// Traces: a range without a first block begins at the first block of the chain, as on Erigon
    /// and reth.
    Traces,
}

/// The end of a range that a member of a filter sets.
#[derive(Clone, Copy)]
enum RangeEnd {
    First,
    Last,
}

const LOG_METHODS: [&[u8]; 4] = [
    b"eth_getLogs",
    b"eth_newFilter",
    b"erigon_getLogs",
    b"erigon_getLatestLogs",
];
const TRACE_METHODS: [&[u8]; 2] = [b"trace_filter", b"arbtrace_filter"];

impl RangeMethodKind {
    /// Returns the kind of a method by its name in any case, or `None` if the method has no range.
    pub fn for_method(method: &[u8]) -> Option<Self> {
        let is = |name: &&[u8]| name.eq_ignore_ascii_case(method);
        if LOG_METHODS.iter().any(is) {
            return Some(RangeMethodKind::Logs);
        }
        TRACE_METHODS
            .iter()
            .any(is)
            .then_some(RangeMethodKind::Traces)
    }

    /// Returns the widest range that a node may read in the params of a call. `None`: the params
    /// have no filter, an end is neither a number below 2^64 nor a known tag, or the range is
    /// reversed.
    pub fn widest_range(self, params: Option<&[u8]>, tags: TaggedBlocks) -> Option<BlockRange> {
        let mut filter = FilterEnds {
            tags,
            has_filter: false,
            first: FilterEnd::default(),
            last: FilterEnd::default(),
        };
        // an error can only be in a filter within a string: its first members are used
        let _ = filter.read_params(params?);
        if !filter.has_filter {
            return None;
        }
        let from = filter.first.number_or(|| match self {
            RangeMethodKind::Logs => tags.head,
            RangeMethodKind::Traces => Some(0),
        })?;
        let to = filter.last.number_or(|| tags.head)?;
        (from <= to).then_some(BlockRange { from, to })
    }
}

/// One end of a filter's range: whether a member sets it, and the outermost readable value.
#[derive(Clone, Copy, Default)]
struct FilterEnd {
    is_set: bool,
    number: Option<u64>,
}

impl FilterEnd {
    fn number_or(self, default: impl FnOnce() -> Option<u64>) -> Option<u64> {
        match self.is_set {
            true => self.number,
            false => default(),
        }
    }

    /// Records a value. `widest` selects one of two readable values.
    fn record_number(&mut self, number: Option<u64>, widest: impl FnOnce(u64, u64) -> u64) {
        self.is_set = true;
        self.number = match (self.number, number) {
            (Some(former), Some(number)) => Some(widest(former, number)),
            (former, number) => former.or(number),
        };
    }
}

/// The ends of a range, while the filters in a call's params are read.
struct FilterEnds {
    tags: TaggedBlocks,
    has_filter: bool,
    first: FilterEnd,
    last: FilterEnd,
}

impl FilterEnds {
    /// Reads the first parameter of an array, or each named parameter of an object.
    fn read_params(&mut self, params: &[u8]) -> Option<()> {
        let mut reader = StrictJsonReader::for_trusted_utf8(params);
        if params.first() == Some(&b'{') {
            let mut next = reader.read_first_member_name().ok()?;
            while next.is_some() {
                let value = reader.skip_value().ok()?;
                self.read_filter(&params[value.span]);
                next = reader.next_member().ok()?;
            }
        } else if reader.enter_array().ok()? {
            let value = reader.skip_value().ok()?;
            self.read_filter(&params[value.span]);
        }
        Some(())
    }

    /// Reads a filter: an object, or on Nethermind a string that contains one.
    fn read_filter(&mut self, value: &[u8]) {
        let text = match value.first() {
            Some(b'"') => decode_string(value).map(|text| Cow::Owned(text.into_bytes())),
            _ => Some(Cow::Borrowed(value)),
        };
        if let Some(text) = text {
            let _ = self.read_members(text.trim_ascii());
        }
    }

    fn read_members(&mut self, object: &[u8]) -> Option<()> {
        let mut reader = StrictJsonReader::for_trusted_utf8(object);
        let mut next = reader.read_first_member_name().ok()?;
        self.has_filter = true;
        while let Some(name) = next {
            let value = reader.skip_value().ok()?;
            if let Some(end) = range_end_of_member(object, &name) {
                self.record_end(end, &object[value.span]);
            }
            next = reader.next_member().ok()?;
        }
        Some(())
    }

    /// Records the value of a member. Duplicates widen the range: nodes use the first, the last or
    /// none of them.
    fn record_end(&mut self, end: RangeEnd, value: &[u8]) {
        // a member that is null is an absent one
        if value == b"null" {
            return;
        }
        let number = read_block_number(end, value, self.tags);
        match end {
            RangeEnd::First => self.first.record_number(number, u64::min),
            RangeEnd::Last => self.last.record_number(number, u64::max),
        }
    }
}

/// Returns the end of the range that a member sets, by its name; `None` for other members.
fn range_end_of_member(object: &[u8], name: &StringSpan) -> Option<RangeEnd> {
    let raw = &object[name.content.clone()];
    let is_plain = !name.escaped && raw.is_ascii();
    let name = match is_plain {
        true => Cow::Borrowed(raw),
        false => Cow::Owned(fold_name(object, name)?.into_bytes()),
    };
    if name.eq_ignore_ascii_case(b"fromBlock") {
        return Some(RangeEnd::First);
    }
    name.eq_ignore_ascii_case(b"toBlock")
        .then_some(RangeEnd::Last)
}

/// Returns a name without its escapes and with the case folding of Go, in which the Kelvin sign is
/// a `k`.
fn fold_name(object: &[u8], name: &StringSpan) -> Option<String> {
    // the quotes are next to the content
    let quoted = object.get(name.content.start.checked_sub(1)?..name.content.end + 1)?;
    let text = decode_string(quoted)?;
    Some(text.to_uppercase().to_lowercase())
}

/// Decodes a string with its quotes.
fn decode_string(quoted: &[u8]) -> Option<String> {
    serde_json::from_slice(quoted).ok()
}

/// Reads the number of a block: a tag that is resolved, or a number in hexadecimal or decimal
/// digits, with quotes or without. A tag that moves is read so that the range is not wider than it
/// will be at the node.
fn read_block_number(end: RangeEnd, value: &[u8], tags: TaggedBlocks) -> Option<u64> {
    let decoded = match value {
        [b'"', text @ .., b'"'] if !text.contains(&b'\\') => Cow::Borrowed(text),
        [b'"', ..] => Cow::Owned(decode_string(value)?.into_bytes()),
        _ => Cow::Borrowed(value),
    };
    let text = decoded.trim_ascii();
    let is = |tag: &str| text.eq_ignore_ascii_case(tag.as_bytes());
    if is("earliest") {
        return Some(0);
    }
    // a block that is pending is one more than the head on some nodes only
    if is("latest") || is("pending") {
        return tags.head;
    }
    if is("safe") {
        // between the last finalized block and the head
        return match end {
            RangeEnd::First => tags.head,
            RangeEnd::Last => tags.last_final,
        };
    }
    if is("finalized") {
        return tags.last_final;
    }
    let (digits, radix) = match text {
        [b'0', b'x' | b'X', digits @ ..] => (digits, 16),
        digits => (digits, 10),
    };
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests;
