//! Huffman codes for hexadecimal digits in JSON, and the header of a deflate block with them
//! (RFC 1951, 3.2).
//!
//! The lengths are fitted to batches of 10 to 100 JSON-RPC responses, with longer codes cut to
//! [`RARE_CODE_LENGTH`].

const LITERAL_COUNT: usize = 256;
pub(super) const END_OF_BLOCK: usize = 256;
const FIRST_LENGTH_SYMBOL: usize = 257;
const LITERAL_AND_LENGTH_COUNT: usize = 286;
const DISTANCE_COUNT: usize = 30;

/// Maximum length of a match in bytes.
pub(super) const MAX_MATCH_LENGTH: usize = 258;

/// Lengths of codes for literals, in bits. Other printable characters and white space have
/// [`RARE_CODE_LENGTH`]; all other bytes have no code.
const LITERAL_CODE_LENGTHS: [(u8, &[u8]); 5] = [
    (4, b"01245acdef"),
    (5, b"36789b"),
    (6, b"\""),
    (8, b",orst"),
    (9, b":ilmnu"),
];

/// Length of the other codes for literals and of that for the end of the block, in bits.
pub(super) const RARE_CODE_LENGTH: u8 = 10;

/// Lengths of the codes for match lengths, in bits, from symbol 257 on.
const LENGTH_CODE_LENGTHS: [u8; 29] = [
    10, 10, 7, 9, 10, 10, 10, 9, 9, 7, 10, 9, 8, 6, 9, 10, 8, 9, 8, 10, 10, 10, 10, 10, 10, 10, 10,
    10, 10,
];

/// Lengths of the codes for distances, in bits.
const DISTANCE_CODE_LENGTHS: [u8; DISTANCE_COUNT] = [
    6, 6, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 5, 4, 5, 5, 5, 5, 5, 5, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5,
];

/// Lengths of the codes with which the header of the block writes the lengths above, in bits.
const HEADER_CODE_LENGTHS: [u8; 19] = [6, 0, 0, 0, 3, 3, 5, 5, 3, 3, 2, 0, 0, 0, 0, 0, 3, 6, 5];

/// The order in which the header has [`HEADER_CODE_LENGTHS`] (RFC 1951, 3.2.7).
const HEADER_CODE_ORDER: [usize; 19] = [
    16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
];

/// The bytes at which a match is searched: those that begin members and values, and the padding of
/// numbers. Inside hexadecimal digits matches are rare and short.
const SEARCHED_BYTES: &[u8] = b"\",:{}[]0x";

/// Code lengths of all literals and match lengths, in bits; 0: no code.
const LITERAL_AND_LENGTH_CODE_LENGTHS: [u8; LITERAL_AND_LENGTH_COUNT] = {
    let mut lengths = [0; LITERAL_AND_LENGTH_COUNT];
    let mut byte = 0;
    while byte < 0x7F {
        if byte >= 0x20 || matches!(byte as u8, b'\t' | b'\n' | b'\r') {
            lengths[byte] = RARE_CODE_LENGTH;
        }
        byte += 1;
    }
    let mut row = 0;
    while row < LITERAL_CODE_LENGTHS.len() {
        let (length, bytes) = LITERAL_CODE_LENGTHS[row];
        let mut n = 0;
        while n < bytes.len() {
            lengths[bytes[n] as usize] = length;
            n += 1;
        }
        row += 1;
    }
    lengths[END_OF_BLOCK] = RARE_CODE_LENGTH;
    let mut n = 0;
    while n < LENGTH_CODE_LENGTHS.len() {
        lengths[FIRST_LENGTH_SYMBOL + n] = LENGTH_CODE_LENGTHS[n];
        n += 1;
    }
    lengths
};

/// The bits of a Huffman code and of its extra bits, the first bit lowest, and their number.
#[derive(Clone, Copy)]
pub(super) struct CodeBits {
    pub(super) bits: u16,
    pub(super) count: u8,
    /// For a literal: [`IS_SEARCHED`], [`HAS_NO_CODE`].
    pub(super) flags: u8,
}

/// The flag of a literal at which a match is searched, and of one without a code.
pub(super) const IS_SEARCHED: u8 = 1;
pub(super) const HAS_NO_CODE: u8 = 2;

const NO_CODE: CodeBits = CodeBits {
    bits: 0,
    count: 0,
    flags: HAS_NO_CODE,
};

/// Returns the codes with these lengths (RFC 1951, 3.2.2), first bit lowest.
const fn codes_of_lengths<const N: usize>(lengths: &[u8; N]) -> [CodeBits; N] {
    let mut codes = [NO_CODE; N];
    let mut next: u32 = 0;
    let mut length = 1;
    while length <= 15 {
        next <<= 1;
        let mut symbol = 0;
        while symbol < N {
            if lengths[symbol] == length {
                codes[symbol] = CodeBits {
                    bits: (next.reverse_bits() >> (32 - length as u32)) as u16,
                    count: length,
                    flags: 0,
                };
                next += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    codes
}

pub(super) const LITERAL_AND_LENGTH_CODES: [CodeBits; LITERAL_AND_LENGTH_COUNT] =
    codes_of_lengths(&LITERAL_AND_LENGTH_CODE_LENGTHS);

pub(super) static DISTANCE_CODES: [CodeBits; DISTANCE_COUNT] =
    codes_of_lengths(&DISTANCE_CODE_LENGTHS);

pub(super) static LITERAL_CODES: [CodeBits; LITERAL_COUNT] = {
    let mut codes = [NO_CODE; LITERAL_COUNT];
    let mut byte = 0;
    while byte < LITERAL_COUNT {
        codes[byte] = LITERAL_AND_LENGTH_CODES[byte];
        if codes[byte].flags & HAS_NO_CODE != 0 {
            // the search stops there, and finds that it has no code
            codes[byte].flags |= IS_SEARCHED;
        }
        byte += 1;
    }
    let mut n = 0;
    while n < SEARCHED_BYTES.len() {
        codes[SEARCHED_BYTES[n] as usize].flags |= IS_SEARCHED;
        n += 1;
    }
    codes
};

/// First match length of each symbol, and the number of its extra bits (RFC 1951, 3.2.5).
const LENGTH_SYMBOLS: [(usize, u32); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// Codes of the match lengths, with their extra bits.
pub(super) static MATCH_LENGTH_CODES: [CodeBits; MAX_MATCH_LENGTH + 1] = {
    let mut codes = [NO_CODE; MAX_MATCH_LENGTH + 1];
    let mut symbol = 0;
    while symbol < LENGTH_SYMBOLS.len() {
        let (first, extra) = LENGTH_SYMBOLS[symbol];
        let code = LITERAL_AND_LENGTH_CODES[FIRST_LENGTH_SYMBOL + symbol];
        let mut n = 0;
        // the last length of the last but one symbol has a symbol of its own, which follows
        while n < 1 << extra {
            codes[first + n] = CodeBits {
                bits: code.bits | (n as u16) << code.count,
                count: code.count + extra as u8,
                flags: 0,
            };
            n += 1;
        }
        symbol += 1;
    }
    codes
};

/// The header of a block that is not final: its whole bytes, and the bits after them.
pub(super) struct BlockHeader {
    pub(super) bytes: [u8; Self::MAX_LENGTH],
    pub(super) length: usize,
    pub(super) bits: u64,
    pub(super) bit_count: u32,
}

impl BlockHeader {
    const MAX_LENGTH: usize = 64;

    const fn empty() -> Self {
        Self {
            bytes: [0; Self::MAX_LENGTH],
            length: 0,
            bits: 0,
            bit_count: 0,
        }
    }

    /// Appends the lowest `count` bits of `bits`, and moves complete bytes to the header.
    const fn push_bits(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.bit_count;
        self.bit_count += count;
        while self.bit_count >= 8 {
            self.bytes[self.length] = self.bits as u8;
            self.length += 1;
            self.bits >>= 8;
            self.bit_count -= 8;
        }
    }

    /// Appends the code of a symbol, and the lowest `count` bits of `extra` after it.
    const fn push_symbol(&mut self, codes: &[CodeBits; 19], symbol: u8, extra: u64, count: u32) {
        let code = codes[symbol as usize];
        assert!(code.count > 0, "a symbol of the header without a code");
        self.push_bits(code.bits as u64, code.count as u32);
        self.push_bits(extra, count);
    }
}

/// The header of a block with dynamic codes (RFC 1951, 3.2.7).
pub(super) static BLOCK_HEADER: BlockHeader = {
    const COUNT: usize = LITERAL_AND_LENGTH_COUNT + DISTANCE_COUNT;
    let mut lengths = [0; COUNT];
    let mut n = 0;
    while n < COUNT {
        lengths[n] = if n < LITERAL_AND_LENGTH_COUNT {
            LITERAL_AND_LENGTH_CODE_LENGTHS[n]
        } else {
            DISTANCE_CODE_LENGTHS[n - LITERAL_AND_LENGTH_COUNT]
        };
        n += 1;
    }
    let mut order_length = HEADER_CODE_ORDER.len();
    while HEADER_CODE_LENGTHS[HEADER_CODE_ORDER[order_length - 1]] == 0 {
        order_length -= 1;
    }
    let mut header = BlockHeader::empty();
    // not final, dynamic codes
    header.push_bits(0b100, 3);
    header.push_bits((LITERAL_AND_LENGTH_COUNT - 257) as u64, 5);
    header.push_bits((DISTANCE_COUNT - 1) as u64, 5);
    header.push_bits((order_length - 4) as u64, 4);
    let mut n = 0;
    while n < order_length {
        header.push_bits(HEADER_CODE_LENGTHS[HEADER_CODE_ORDER[n]] as u64, 3);
        n += 1;
    }
    let codes = codes_of_lengths(&HEADER_CODE_LENGTHS);
    let mut at = 0;
    while at < COUNT {
        let length = lengths[at];
        let mut run = 1;
        while at + run < COUNT && lengths[at + run] == length {
            run += 1;
        }
        at += run;
        if length > 0 {
            header.push_symbol(&codes, length, 0, 0);
            run -= 1;
        }
        while run > 0 {
            // the longest repetition that the rest allows, or the length once more
            let (symbol, first, most, extra) = match (length, run) {
                (0, 11..) => (18, 11, 138, 7),
                (0, 3..) => (17, 3, 10, 3),
                (1.., 3..) => (16, 3, 6, 2),
                _ => (length, 1, 1, 0),
            };
            let repeated = if run < most { run } else { most };
            header.push_symbol(&codes, symbol, (repeated - first) as u64, extra);
            run -= repeated;
        }
    }
    header
};

#[cfg(test)]
mod tests {
    use super::{
        BLOCK_HEADER, DISTANCE_CODE_LENGTHS, HEADER_CODE_LENGTHS, LITERAL_AND_LENGTH_CODE_LENGTHS,
    };

    #[test]
    fn code_lengths_are_complete_sets() {
        let sum = |lengths: &[u8]| -> u32 {
            let used = lengths.iter().filter(|length| **length > 0);
            used.map(|length| 1 << (15 - length)).sum()
        };
        assert_eq!(sum(&LITERAL_AND_LENGTH_CODE_LENGTHS), 1 << 15);
        assert_eq!(sum(&DISTANCE_CODE_LENGTHS), 1 << 15);
        assert_eq!(sum(&HEADER_CODE_LENGTHS), 1 << 15);
        assert!(BLOCK_HEADER.length < 52, "{}", BLOCK_HEADER.length);
    }
}
