//! The bloom filters of receipts (Yellow Paper, 4.3.1).

use sha3::{Digest, Keccak256};

const BLOOM_BYTES: usize = 256;

/// Returns the bloom filter of addresses and topics, which are in hexadecimal digits, as receipts have
/// it.
pub fn bloom_text<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let mut bloom = [0u8; BLOOM_BYTES];
    for value in values {
        let hash = Keccak256::digest(decode_hex(value));
        for pair in 0..3 {
            let word = u16::from_be_bytes([hash[2 * pair], hash[2 * pair + 1]]);
            let bit = usize::from(word) % (8 * BLOOM_BYTES);
            bloom[BLOOM_BYTES - 1 - bit / 8] |= 1 << (bit % 8);
        }
    }
    let digits: Vec<String> = bloom.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{}", digits.concat())
}

/// Decodes hexadecimal digits after `0x`.
fn decode_hex(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("0x").unwrap();
    let pairs = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]);
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}
