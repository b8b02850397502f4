//! The bloom filter of a receipt (Yellow Paper, 4.3.1): three bits of 2,048 for each address and
//! topic of its logs.

use sha3::{Digest, Keccak256};

use super::log_filter::{parse_hex_data, LogFilter};
use crate::bytes::try_push;

const BLOOM_BYTES: usize = 256;

/// Maximum number of addresses and topics of a filter that are hashed; a hash takes half a
/// microsecond. The logs of a longer filter are read without the bloom.
const MAX_HASHED_VALUES: usize = 64;

/// The member `logsBloom` of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogBloom([u8; BLOOM_BYTES]);

impl LogBloom {
    /// Parses a string of 256 bytes in hexadecimal digits.
    pub(super) fn parse(value: &[u8]) -> Option<LogBloom> {
        parse_hex_data(value).map(LogBloom)
    }

    /// Whether no bit is set, as of a receipt without logs.
    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; BLOOM_BYTES]
    }

    fn contains(&self, bits: BloomBits) -> bool {
        bits.positions()
            .all(|(byte, mask)| self.0[byte] & mask != 0)
    }
}

/// The bits of one address or topic in a bloom.
#[derive(Clone, Copy, Debug)]
struct BloomBits([u16; 3]);

impl BloomBits {
    /// Computes the bits from the first three words of the value's hash, 11 bits of each.
    fn for_value(value: &[u8]) -> BloomBits {
        let hash = Keccak256::digest(value);
        let word = |n: usize| u16::from_be_bytes([hash[2 * n], hash[2 * n + 1]]);
        BloomBits([0, 1, 2].map(|n| word(n) % (8 * BLOOM_BYTES as u16)))
    }

    /// Returns byte and mask of each bit; bit 0 is the lowest one of the last byte.
    fn positions(self) -> impl Iterator<Item = (usize, u8)> {
        let at = |bit: u16| (BLOOM_BYTES - 1 - usize::from(bit / 8), 1u8 << (bit % 8));
        self.0.into_iter().map(at)
    }
}

/// The bits of a filter's values: for its addresses, and for each position of its topics, the bits
/// of the alternatives.
#[derive(Debug)]
pub(super) struct FilterBloomBits(Vec<Vec<BloomBits>>);

impl FilterBloomBits {
    /// Computes the bits of a filter's values. `None` if there are many, or memory is refused.
    pub(super) fn for_filter(filter: &LogFilter<'_>) -> Option<FilterBloomBits> {
        let topics = filter.topics.iter();
        let count = filter.addresses.len() + topics.map(Vec::len).sum::<usize>();
        if count > MAX_HASHED_VALUES {
            return None;
        }
        let mut all = Vec::new();
        try_push(&mut all, bits_for_values(&filter.addresses)?)?;
        for alternatives in &filter.topics {
            try_push(&mut all, bits_for_values(alternatives)?)?;
        }
        Some(FilterBloomBits(all))
    }

    /// Whether a receipt with this bloom may have a log that the filter matches.
    pub(super) fn may_match(&self, bloom: &LogBloom) -> bool {
        self.0.iter().all(|alternatives| {
            alternatives.is_empty() || alternatives.iter().any(|bits| bloom.contains(*bits))
        })
    }
}

fn bits_for_values<const N: usize>(values: &[[u8; N]]) -> Option<Vec<BloomBits>> {
    let mut all = Vec::new();
    for value in values {
        try_push(&mut all, BloomBits::for_value(value))?;
    }
    Some(all)
}

/// Returns the bloom of these addresses and topics as a node writes it, with its quotes.
#[cfg(test)]
pub(super) fn bloom_text(values: &[&[u8]]) -> String {
    let mut bloom = [0u8; BLOOM_BYTES];
    for value in values {
        for (byte, mask) in BloomBits::for_value(value).positions() {
            bloom[byte] |= mask;
        }
    }
    format!("\"0x{}\"", const_hex::encode(bloom))
}

#[cfg(test)]
mod tests {
    use sha3::{Digest, Keccak256};

    use super::{bloom_text, FilterBloomBits, LogBloom, MAX_HASHED_VALUES};
    use crate::jsonrpc::log_filter::LogFilter;

    #[test]
    fn bloom_of_many_values_equals_that_of_geth() {
        // core/types/bloom9_test.go, TestBloomExtensively
        let values: Vec<String> = (0..100)
            .map(|n| format!("xxxxxxxxxx data {n} yyyyyyyyyyyyyy"))
            .collect();
        let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
        let bloom = LogBloom::parse(bloom_text(&values).as_bytes()).unwrap();
        assert_eq!(
            const_hex::encode(Keccak256::digest(bloom.0)),
            "c8d3ca65cdb4874300a9e39475508f23ed6da09fdbc487f89a2dcf50b09eb263"
        );
    }

    #[test]
    fn filter_may_match_a_bloom_with_one_alternative_of_each_position() {
        let params =
            |address: &str, topics: &str| format!(r#"[{{"address":{address},"topics":{topics}}}]"#);
        let text =
            |byte: u8, length: usize| format!("\"0x{}\"", const_hex::encode(vec![byte; length]));
        let bloom = bloom_text(&[&[1; 20], &[2; 32], &[3; 32]]);
        let bloom = LogBloom::parse(bloom.as_bytes()).unwrap();
        let (known, other) = (text(1, 20), text(9, 20));
        let (first, second, absent) = (text(2, 32), text(3, 32), text(8, 32));
        for (address, topics, may_match) in [
            ("null".to_owned(), "[]".to_owned(), true),
            (known.clone(), "[]".to_owned(), true),
            (other.clone(), "[]".to_owned(), false),
            (format!("[{other},{known}]"), format!("[{first}]"), true),
            (known.clone(), format!("[null,[{absent},{second}]]"), true),
            (known.clone(), format!("[{absent}]"), false),
            (other, format!("[{first}]"), false),
        ] {
            let params = params(&address, &topics);
            let filter = LogFilter::read(params.as_bytes()).unwrap();
            let bits = FilterBloomBits::for_filter(&filter).unwrap();
            assert_eq!(bits.may_match(&bloom), may_match, "{params}");
        }
    }

    #[test]
    fn long_filter_is_not_hashed() {
        let hashed = |count: usize| {
            let address = format!("\"0x{}\"", "ab".repeat(20));
            let params = format!("[{{\"address\":[{}]}}]", vec![address; count].join(","));
            FilterBloomBits::for_filter(&LogFilter::read(params.as_bytes()).unwrap()).is_some()
        };
        assert!(hashed(MAX_HASHED_VALUES) && !hashed(MAX_HASHED_VALUES + 1));
    }

    #[test]
    fn bloom_of_another_length_is_not_parsed() {
        let text = |bytes: usize| format!("\"0x{}\"", "00".repeat(bytes));
        assert!(LogBloom::parse(text(256).as_bytes()).unwrap().is_empty());
        assert_eq!(LogBloom::parse(text(255).as_bytes()), None);
        assert_eq!(LogBloom::parse(b"null"), None);
    }
}
