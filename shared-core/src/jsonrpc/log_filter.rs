//! The filter of `eth_getLogs`, read strictly: only filters that every node reads alike.
//!
//! A filter has the members `fromBlock`, `toBlock`, `blockHash`, `address` and `topics`, each at
//! most once, and is the only parameter of its call. Filters on which nodes disagree are not read:
//! block members that are `null`, empty lists of addresses or of alternatives, `null` among
//! alternatives, more topics or values than nodes accept.

use std::ops::Range;

use super::block_reference::{parse_hash, parse_number_or_tag, BlockRangeBound, BlockTag};
use super::plausible::BlockHashOrNumber;
use super::scan::{JsonValueKind, StrictJsonReader};
use crate::bytes::try_push;

/// Maximum number of topics of a log, and of positions in a filter.
pub const MAX_TOPICS: usize = 4;

/// Maximum number of addresses, or of alternatives at one position; geth's limit for either.
const MAX_FILTER_VALUES: usize = 1_000;

/// An address of 20 bytes.
pub type Address = [u8; 20];

/// A topic of 32 bytes.
pub type Topic = [u8; 32];

/// One end of a filter's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFilterEnd {
    /// The filter has no member for the end: the node's default applies.
    Absent,
    /// A block's number.
    Number(u64),
    /// A block's tag.
    Tag(BlockTag),
}

/// A filter of `eth_getLogs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter<'a> {
    /// The filter as the client wrote it: an object with its brackets.
    pub text: &'a [u8],
    /// First block of the range.
    pub from_block: LogFilterEnd,
    /// Last block of the range.
    pub to_block: LogFilterEnd,
    /// Span of `fromBlock`'s value in the text, with its quotes.
    pub from_block_span: Option<Range<usize>>,
    /// Span of `toBlock`'s value in the text, with its quotes.
    pub to_block_span: Option<Range<usize>>,
    /// Hash of the only block. Both ends are absent then.
    pub block_hash: Option<[u8; 32]>,
    /// Addresses that a log may have, in ascending order; an empty list allows any.
    pub addresses: Vec<Address>,
    /// Alternatives at each position of the topics, in ascending order; an empty list allows any.
    pub topics: Vec<Vec<Topic>>,
}

impl<'a> LogFilter<'a> {
    /// Reads the filter in the params of a call. `None` if the params are not exactly one filter
    /// that all nodes read alike, or if memory is refused.
    pub fn read(params: &'a [u8]) -> Option<LogFilter<'a>> {
        let mut reader = StrictJsonReader::for_untrusted_text(params).ok()?;
        if !reader.enter_array().ok()? {
            return None;
        }
        let text = &params[reader.skip_value().ok()?.span];
        if reader.next_element().ok()? {
            return None;
        }
        reader.expect_end().ok()?;
        LogFilter::read_object(text)
    }

    /// Returns the only block that the filter searches, if it names the block by its hash, or by
    /// its number at both ends.
    pub fn only_block(&self) -> Option<BlockHashOrNumber> {
        match (self.block_hash, self.from_block, self.to_block) {
            (Some(hash), _, _) => Some(BlockHashOrNumber::Hash(hash)),
            (None, LogFilterEnd::Number(from), LogFilterEnd::Number(to)) if from == to => {
                Some(BlockHashOrNumber::Number(from))
            }
            _ => None,
        }
    }

    /// Reads the filter's object, which is UTF-8.
    fn read_object(text: &'a [u8]) -> Option<LogFilter<'a>> {
        let mut filter = LogFilter {
            text,
            from_block: LogFilterEnd::Absent,
            to_block: LogFilterEnd::Absent,
            from_block_span: None,
            to_block_span: None,
            block_hash: None,
            addresses: Vec::new(),
            topics: Vec::new(),
        };
        let (mut has_address, mut has_topics) = (false, false);
        let mut reader = StrictJsonReader::for_trusted_utf8(text);
        let mut next = reader.read_first_member_name().ok()?;
        while let Some(name) = next {
            let span = reader.skip_value().ok()?.span;
            let value = &text[span.clone()];
            // a name with escapes is equal to none of these
            match &text[name.content] {
                b"fromBlock" if filter.from_block_span.is_none() => {
                    filter.from_block = parse_filter_end(value)?;
                    filter.from_block_span = Some(span);
                }
                b"toBlock" if filter.to_block_span.is_none() => {
                    filter.to_block = parse_filter_end(value)?;
                    filter.to_block_span = Some(span);
                }
                b"blockHash" if filter.block_hash.is_none() => {
                    filter.block_hash = Some(parse_hash(value)?);
                }
                b"address" if !has_address => {
                    has_address = true;
                    filter.addresses = read_alternatives(value)?;
                }
                b"topics" if !has_topics => {
                    has_topics = true;
                    filter.topics = read_topic_positions(value)?;
                }
                _ => return None,
            }
            next = reader.next_member().ok()?;
        }
        reader.expect_end().ok()?;
        let has_range = filter.from_block_span.is_some() || filter.to_block_span.is_some();
        (filter.block_hash.is_none() || !has_range).then_some(filter)
    }
}

/// Parses the value of `fromBlock` or `toBlock`.
fn parse_filter_end(value: &[u8]) -> Option<LogFilterEnd> {
    Some(match parse_number_or_tag(value)? {
        BlockRangeBound::Number(number) => LogFilterEnd::Number(number),
        BlockRangeBound::Tag(tag) => LogFilterEnd::Tag(tag),
    })
}

/// Reads the positions of a filter's topics; `null` and an empty list stand for any topics.
fn read_topic_positions(value: &[u8]) -> Option<Vec<Vec<Topic>>> {
    let mut positions = Vec::new();
    if value == b"null" {
        return Some(positions);
    }
    let mut reader = StrictJsonReader::for_trusted_utf8(value);
    let mut another = reader.enter_array().ok()?;
    while another {
        let span = reader.skip_value().ok()?.span;
        if positions.len() == MAX_TOPICS {
            return None;
        }
        try_push(&mut positions, read_alternatives(&value[span])?)?;
        another = reader.next_element().ok()?;
    }
    Some(positions)
}

/// Reads one value or a list of values, and sorts them; `null` stands for any value.
fn read_alternatives<const N: usize>(value: &[u8]) -> Option<Vec<[u8; N]>> {
    let mut values = Vec::new();
    let mut reader = StrictJsonReader::for_trusted_utf8(value);
    match reader.next_value_kind().ok()? {
        JsonValueKind::Null => {}
        JsonValueKind::String => try_push(&mut values, parse_hex_data(value)?)?,
        JsonValueKind::Array => {
            // nodes read an empty list as any value or as none
            if !reader.enter_array().ok()? {
                return None;
            }
            let mut another = true;
            while another {
                let span = reader.skip_value().ok()?.span;
                if values.len() == MAX_FILTER_VALUES {
                    return None;
                }
                try_push(&mut values, parse_hex_data(&value[span])?)?;
                another = reader.next_element().ok()?;
            }
        }
        _ => return None,
    }
    values.sort_unstable();
    Some(values)
}

/// Parses a string of `0x` and the hexadecimal digits of `N` bytes, in any case.
pub(super) fn parse_hex_data<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    let digits = value.strip_prefix(b"\"0x")?.strip_suffix(b"\"")?;
    if digits.len() != 2 * N {
        return None;
    }
    let mut data = [0; N];
    const_hex::decode_to_slice(digits, &mut data).ok()?;
    Some(data)
}

#[cfg(test)]
mod tests {
    use super::{LogFilter, LogFilterEnd, MAX_FILTER_VALUES};
    use crate::jsonrpc::block_reference::BlockTag;
    use crate::jsonrpc::plausible::BlockHashOrNumber;

    const HASH: &str = "0x00000000000000000000000000000000000000000000000000000000000000ab";
    const ADDRESS: &str = "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48";

    /// Reads a filter whose members may name `HASH` and `ADDRESS`.
    fn check_filter<T>(members: &str, check: impl FnOnce(Option<LogFilter<'_>>) -> T) -> T {
        let members = members.replace("HASH", HASH).replace("ADDRESS", ADDRESS);
        check(LogFilter::read(format!("[{{{members}}}]").as_bytes()))
    }

    fn is_read(members: &str) -> bool {
        check_filter(members, |filter| filter.is_some())
    }

    #[test]
    fn range_ends_are_read_with_the_spans_of_their_values() {
        let params = br#" [ { "toBlock" : "latest", "fromBlock":"0x1F" } ] "#;
        let filter = LogFilter::read(params).unwrap();
        assert_eq!(
            filter.text,
            br#"{ "toBlock" : "latest", "fromBlock":"0x1F" }"#
        );
        assert_eq!(filter.from_block, LogFilterEnd::Number(31));
        assert_eq!(filter.to_block, LogFilterEnd::Tag(BlockTag::Latest));
        assert_eq!(&filter.text[filter.from_block_span.unwrap()], b"\"0x1F\"");
        assert_eq!(&filter.text[filter.to_block_span.unwrap()], b"\"latest\"");
        assert_eq!(filter.block_hash, None);

        check_filter("", |filter| {
            let filter = filter.unwrap();
            assert_eq!(filter.from_block, LogFilterEnd::Absent);
            assert_eq!(filter.to_block, LogFilterEnd::Absent);
            assert_eq!((filter.from_block_span, filter.to_block_span), (None, None));
        });
    }

    #[test]
    fn only_block_is_named_by_its_hash_or_by_its_number_at_both_ends() {
        let only_block = |members| check_filter(members, |filter| filter.unwrap().only_block());
        let number = only_block(r#""fromBlock":"0xa","toBlock":"0xA""#);
        assert_eq!(number, Some(BlockHashOrNumber::Number(10)));
        let mut hash = [0; 32];
        hash[31] = 0xab;
        let named = only_block(r#""blockHash":"HASH""#);
        assert_eq!(named, Some(BlockHashOrNumber::Hash(hash)));
        for members in [
            r#""fromBlock":"0xa","toBlock":"0xb""#,
            r#""fromBlock":"0xa""#,
            r#""toBlock":"0xa""#,
            r#""fromBlock":"latest","toBlock":"latest""#,
            "",
        ] {
            assert_eq!(only_block(members), None, "{members}");
        }
    }

    #[test]
    fn addresses_and_topics_are_read_in_any_case_and_sorted() {
        let members = r#""blockHash":"HASH","address":["ADDRESS","0x0000000000000000000000000000000000000001"],
            "topics":[null,["HASH","0x0000000000000000000000000000000000000000000000000000000000000001"],"HASH"]"#;
        check_filter(members, |filter| {
            let filter = filter.unwrap();
            assert_eq!(filter.block_hash.unwrap()[31], 0xab);
            assert_eq!(filter.addresses.len(), 2);
            assert_eq!(filter.addresses[0][19], 1);
            assert_eq!(filter.addresses[1][..2], [0xa0, 0xb8]);
            assert_eq!(filter.topics.len(), 3);
            assert!(filter.topics[0].is_empty());
            let last_bytes: Vec<u8> = filter.topics[1].iter().map(|topic| topic[31]).collect();
            assert_eq!(last_bytes, [1, 0xab]);
            assert_eq!(filter.topics[2].len(), 1);
        });
        check_filter(r#""address":"ADDRESS","topics":[]"#, |filter| {
            let filter = filter.unwrap();
            assert_eq!(filter.addresses.len(), 1);
            assert!(filter.topics.is_empty());
        });
        check_filter(r#""address":null,"topics":null"#, |filter| {
            let filter = filter.unwrap();
            assert!(filter.addresses.is_empty() && filter.topics.is_empty());
        });
    }

    #[test]
    fn filter_that_nodes_may_read_differently_is_not_read() {
        for members in [
            r#""blockHash":"HASH","fromBlock":"0x1""#,
            r#""blockHash":"HASH","toBlock":"latest""#,
            r#""blockHash":null"#,
            r#""blockHash":"0xab""#,
            r#""fromBlock":null"#,
            r#""fromBlock":1"#,
            r#""fromBlock":"1""#,
            r#""fromBlock":"0x01""#,
            r#""fromBlock":"Latest""#,
            r#""fromBlock":"0x1","fromBlock":"0x2""#,
            r#""fromBlock":"0x1","FROMBLOCK":"0x2""#,
            r#""from\u0042lock":"0x1""#,
            r#""limit":1"#,
            r#""address":[]"#,
            r#""address":[null]"#,
            r#""address":"0xab""#,
            r#""address":"ADDRESS","address":"ADDRESS""#,
            r#""address":null,"address":"ADDRESS""#,
            r#""address":"HASH""#,
            r#""address":{"a":1}"#,
            r#""address":"0x0x0000000000000000000000000000000000000""#,
            r#""topics":"HASH""#,
            r#""topics":[[]]"#,
            r#""topics":[["HASH",null]]"#,
            r#""topics":[[["HASH"]]]"#,
            r#""topics":["ADDRESS"]"#,
            r#""topics":[null,null,null,null,null]"#,
            r#""topics":[],"topics":[]"#,
        ] {
            assert!(!is_read(members), "{members}");
        }
        assert!(is_read(r#""topics":[null,null,null,null]"#));
    }

    #[test]
    fn params_other_than_one_filter_are_not_read() {
        for params in [
            &b"[]"[..],
            b"{}",
            b"[{},{}]",
            b"[{}] x",
            b"[{}",
            b"[null]",
            b"[\"{}\"]",
            b"[[]]",
            b"[{\"address\":\"\xff\"}]",
            b"",
        ] {
            assert_eq!(LogFilter::read(params), None);
        }
        assert!(LogFilter::read(b"[{}]").is_some());
    }

    #[test]
    fn filter_with_more_values_than_geth_accepts_is_not_read() {
        let members = |count| format!(r#""address":[{}]"#, vec![r#""ADDRESS""#; count].join(","));
        assert!(is_read(&members(MAX_FILTER_VALUES)));
        assert!(!is_read(&members(MAX_FILTER_VALUES + 1)));
    }
}
