//! Compression of a short text to one deflate block with preset Huffman codes.
//!
//! igzip and libdeflate compute the Huffman codes of each text, and libdeflate clears 128 KiB of
//! tables first: for a batch of small JSON-RPC responses that takes longer than its matches and its
//! output. Here the codes are constants, the search for matches skips digits, and the bytes are the
//! same on every machine. Batches of 2 to 35 KB take two thirds of igzip's instructions and a
//! quarter of libdeflate's time, both at level 1, for 0.9 to 1.1 times the bytes of zlib's level 1
//! (docs/decisions/162).
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::preset_codes::{
    CodeBits, BLOCK_HEADER, DISTANCE_CODES, END_OF_BLOCK, HAS_NO_CODE, IS_SEARCHED,
    LITERAL_AND_LENGTH_CODES, LITERAL_CODES, MATCH_LENGTH_CODES, MAX_MATCH_LENGTH,
    RARE_CODE_LENGTH,
};

/// Maximum length of a text in bytes: the table of positions has 16 bits for each.
pub(crate) const MAX_TEXT_LENGTH: usize = 1 << 16;

/// Minimum length of a match, and maximum distance, in bytes.
const MIN_MATCH_LENGTH: usize = 5;
const MAX_DISTANCE: u32 = 1 << 15;

/// Number of bits of an index of the table of positions.
const TABLE_BITS: u32 = 10;

/// A block that is being written into uninitialized memory: its whole bytes, and the bits after
/// them.
struct BlockWriter<'a> {
    output: &'a mut [MaybeUninit<u8>],
    length: usize,
    bits: u64,
    bit_count: u32,
    /// Whether bytes had no space.
    is_full: bool,
}

impl BlockWriter<'_> {
    /// Maximum number of bits between two calls of [`flush_bits`](Self::flush_bits).
    const MAX_BIT_COUNT: u32 = 56;

    /// Appends bits, at most [`MAX_BIT_COUNT`](Self::MAX_BIT_COUNT) between two flushes.
    #[inline(always)]
    fn push_bits(&mut self, bits: u32, count: u32) {
        self.bits |= u64::from(bits) << self.bit_count;
        self.bit_count += count;
    }

    #[inline(always)]
    fn push_code(&mut self, code: CodeBits) {
        self.push_bits(code.bits.into(), code.count.into());
    }

    /// Moves whole bytes to the output, which needs space for eight.
    #[inline(always)]
    fn flush_bits(&mut self) {
        let rest = self.output.get_mut(self.length..);
        match rest.and_then(|rest| rest.first_chunk_mut::<8>()) {
            Some(next) => *next = self.bits.to_le_bytes().map(MaybeUninit::new),
            None => self.is_full = true,
        }
        self.length += (self.bit_count / 8) as usize;
        self.bits >>= self.bit_count & !7;
        self.bit_count &= 7;
    }

    /// Appends the code of a literal; bits are written to memory only when the word is almost full.
    #[inline(always)]
    fn push_literal(&mut self, code: CodeBits) {
        self.push_code(code);
        if self.bit_count > Self::MAX_BIT_COUNT - 16 {
            self.flush_bits();
        }
    }

    /// Appends a match of `length` bytes, 3 to 258, at `distance`, 1 to 32,768.
    #[inline(always)]
    fn push_match(&mut self, length: usize, distance: u32) {
        self.push_code(MATCH_LENGTH_CODES[length]);
        self.flush_bits();
        let before = distance - 1;
        // two symbols for each power of two, and the bits below them (RFC 1951, 3.2.5)
        let (symbol, extra, count) = match before {
            0 | 1 => (before, 0, 0),
            _ => {
                let count = before.ilog2() - 1;
                let symbol = 2 * count + (before >> count);
                (symbol, before & ((1 << count) - 1), count)
            }
        };
        let code = DISTANCE_CODES[symbol as usize];
        self.push_bits(code.bits.into(), code.count.into());
        self.push_bits(extra, count);
        self.flush_bits();
    }
}

/// Space for the end of a block and the write of eight bytes at once.
const END_LENGTH: usize = 16;

/// Length and its complement of an empty stored block, which ends a block at a byte.
const EMPTY_STORED_BLOCK_LENGTH: [u8; 4] = [0x00, 0x00, 0xFF, 0xFF];

/// Compresses `text` to one deflate block, or to one that is not final and an empty stored block,
/// which ends at a byte: an open stream. `None` if memory is refused, if the text is longer than
/// [`MAX_TEXT_LENGTH`], or if it has bytes other than printable ASCII characters and white space.
/// The result may be longer than the text.
pub(crate) fn compress_with_preset_codes(text: &[u8], is_final: bool) -> Option<Vec<u8>> {
    let mut output = Vec::new();
    // a match takes fewer bits than its bytes as literals
    let content = (text.len() * usize::from(RARE_CODE_LENGTH)).div_ceil(8);
    output
        .try_reserve_exact(BLOCK_HEADER.length + content + END_LENGTH)
        .ok()?;
    output.extend_from_slice(BLOCK_HEADER.bytes.get(..BLOCK_HEADER.length)?);
    *output.first_mut()? |= u8::from(is_final);
    let length = write_block_content(text, is_final, output.spare_capacity_mut())?;
    // SAFETY: that many bytes of the spare capacity are initialized.
    unsafe { output.set_len(output.len() + length) };
    if !is_final {
        output.extend_from_slice(&EMPTY_STORED_BLOCK_LENGTH);
    }
    Some(output)
}

/// Writes the content of a block, and returns its length in bytes. All of them are initialized.
fn write_block_content(
    text: &[u8],
    is_final: bool,
    output: &mut [MaybeUninit<u8>],
) -> Option<usize> {
    if text.len() > MAX_TEXT_LENGTH {
        return None;
    }
    let mut block = BlockWriter {
        output,
        length: 0,
        bits: BLOCK_HEADER.bits,
        bit_count: BLOCK_HEADER.bit_count,
        is_full: false,
    };
    // the last position of each hash, and 16 more bits of the hash
    let mut positions = [0u32; 1 << TABLE_BITS];
    let mut at = 0;
    while let Some(next) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let next = u64::from_le_bytes(*next);
        let hash = (next << (64 - 8 * MIN_MATCH_LENGTH)).wrapping_mul(HASH_MULTIPLIER);
        let here = (hash >> 16) as u32 & 0xFFFF_0000 | at as u32;
        let slot = &mut positions[(hash >> (64 - TABLE_BITS)) as usize];
        // beyond any distance if the hashes differ
        let distance = here.wrapping_sub(std::mem::replace(slot, here));
        if distance.wrapping_sub(1) < MAX_DISTANCE {
            let length = match_length(text, at, distance as usize);
            if length >= MIN_MATCH_LENGTH {
                block.push_match(length, distance);
                at += length;
                continue;
            }
        }
        let mut code = LITERAL_CODES[usize::from(next as u8)];
        if code.flags & HAS_NO_CODE != 0 {
            return None;
        }
        // up to the next byte at which a match is searched
        let mut count = 0;
        for byte in text.get(at + 1..)? {
            block.push_literal(code);
            count += 1;
            code = LITERAL_CODES[usize::from(*byte)];
            if code.flags & IS_SEARCHED != 0 {
                break;
            }
        }
        at += count;
    }
    for byte in text.get(at..)? {
        let code = LITERAL_CODES[usize::from(*byte)];
        if code.flags & HAS_NO_CODE != 0 {
            return None;
        }
        block.push_literal(code);
    }
    block.flush_bits();
    block.push_code(LITERAL_AND_LENGTH_CODES[END_OF_BLOCK]);
    if !is_final {
        // the beginning of a stored block that is not final
        block.push_bits(0, 3);
    }
    block.flush_bits();
    if block.bit_count > 0 {
        block.bit_count = 8;
        block.flush_bits();
    }
    (!block.is_full).then_some(block.length)
}

/// 2^64 divided by the golden ratio.
const HASH_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the number of bytes at `at` that are the same `distance` bytes before, at most
/// [`MAX_MATCH_LENGTH`]. 0 if there are no such positions.
#[inline(always)]
fn match_length(text: &[u8], at: usize, distance: usize) -> usize {
    let most = (text.len() - at).min(MAX_MATCH_LENGTH);
    let Some(before) = at
        .checked_sub(distance)
        .and_then(|start| text.get(start..start + most))
    else {
        return 0;
    };
    let here = &text[at..at + most];
    let mut length = 0;
    while let (Some(a), Some(b)) = (before.get(length..length + 8), here.get(length..length + 8)) {
        let (Ok(a), Ok(b)) = (a.try_into(), b.try_into()) else {
            break;
        };
        let difference = u64::from_le_bytes(a) ^ u64::from_le_bytes(b);
        if difference != 0 {
            return length + (difference.trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    let rest = before[length..].iter().zip(&here[length..]);
    length + rest.take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::DeflateDecoder;
    use proptest::prelude::*;

    use super::super::format::EMPTY_FINAL_BLOCK;
    use super::super::inflate::inflate_reserved;
    use super::{compress_with_preset_codes, MAX_DISTANCE, MAX_MATCH_LENGTH, MAX_TEXT_LENGTH};

    /// Checks that two decoders restore a text from its block, final or not.
    fn assert_restored(text: &[u8]) {
        for is_final in [true, false] {
            let mut stream = compress_with_preset_codes(text, is_final).unwrap();
            assert!(stream.len() <= text.len() * 5 / 4 + 80, "{}", text.len());
            if !is_final {
                assert!(stream.ends_with(&[0x00, 0x00, 0xFF, 0xFF]));
                stream.extend_from_slice(&EMPTY_FINAL_BLOCK);
            }
            assert!(inflate_reserved(&stream, text.len()).as_deref() == Some(text));
            let mut plain = Vec::new();
            let mut decoder = DeflateDecoder::new(&stream[..]);
            decoder.read_to_end(&mut plain).unwrap();
            assert_eq!(decoder.total_in(), stream.len() as u64, "it ends early");
            assert!(plain == text);
        }
    }

    /// Returns digits that have no matches.
    fn digits(length: usize) -> Vec<u8> {
        let mut state = 1u64;
        let mut digit = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            b"0123456789abcdef"[(state >> 60) as usize]
        };
        (0..length).map(|_| digit()).collect()
    }

    #[test]
    fn texts_of_all_short_lengths_are_restored() {
        for length in 0..700 {
            assert_restored(&digits(length));
            assert_restored(&vec![b'"'; length]);
            assert_restored(&b"~Q{\t}"[..].repeat(length / 6));
        }
    }

    #[test]
    fn matches_of_all_lengths_and_distances_are_restored() {
        let mut text = b"{".to_vec();
        for length in 1..MAX_MATCH_LENGTH + 20 {
            let word = &digits(2 * MAX_MATCH_LENGTH)[..length];
            text.extend_from_slice(&[b"\"x", word, b"Z"].concat());
        }
        assert_restored(&text);
        // distances up to the maximum, and beyond it
        let most = MAX_DISTANCE as usize;
        for distance in [
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
            9,
            64,
            65,
            1000,
            4096,
            30_000,
            most,
            most + 1,
        ] {
            let mut text = b"\"begin\":\"ABCDEFGHI".to_vec();
            text.resize(text.len().max(distance), b'z');
            text.extend_from_within(..text.len().min(20));
            assert_restored(&text);
        }
    }

    #[test]
    fn printable_characters_and_white_space_are_restored() {
        let all: Vec<u8> = (b' '..=b'~').chain(*b"\t\r\n").collect();
        assert_restored(&all);
        let mut shuffled = all.repeat(20);
        let order = digits(shuffled.len());
        for (n, digit) in order.iter().enumerate() {
            shuffled.swap(n, (n * 31 + usize::from(*digit)) % (n + 1));
        }
        assert_restored(&shuffled);
    }

    #[test]
    fn text_with_other_bytes_is_refused_at_every_position() {
        for byte in (0..=255).filter(|byte| !matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n')) {
            for at in 0..40 {
                let mut text = digits(40);
                text[at] = byte;
                assert!(
                    compress_with_preset_codes(&text, true).is_none(),
                    "{byte} at {at}"
                );
            }
        }
    }

    #[test]
    fn text_up_to_the_maximum_length_is_restored_and_a_longer_one_refused() {
        let mut text = digits(MAX_TEXT_LENGTH);
        assert_restored(&text);
        assert_restored(&b"~"[..].repeat(MAX_TEXT_LENGTH));
        assert_restored(&b"{\"a\":1}"[..].repeat(MAX_TEXT_LENGTH / 7));
        text.push(b'0');
        assert!(compress_with_preset_codes(&text, true).is_none());
    }

    proptest! {
        #[test]
        fn compressed_texts_are_restored(pieces in prop::collection::vec(
            prop_oneof![
                "[0-9a-f]{0,80}",
                "[ -~]{0,40}",
                Just("{\"jsonrpc\":\"2.0\",\"id\":".to_owned()),
                Just(",\"result\":\"0x".to_owned()),
                (0..600usize).prop_map(|length| "0".repeat(length)),
            ],
            0..60,
        )) {
            assert_restored(pieces.concat().as_bytes());
        }
    }
}
