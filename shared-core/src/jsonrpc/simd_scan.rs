//! Search for the end of the plain part of a string: one step covers 16 bytes on x86-64, where
//! SSE2 is part of the architecture, and in WebAssembly with its vectors, and 8 bytes in a word
//! elsewhere. Search for the end of digits: many clients number their calls with nine digits and
//! more. Search for bytes beyond ASCII.
#![allow(unsafe_code)]

/// Returns the position of the first byte from `at` on that is not a plain part of a string: a
/// quote, a backslash or a control character; the text's length if there is none.
#[inline]
pub fn plain_string_run_end(text: &[u8], mut at: usize) -> usize {
    while let Some(block) = text.get(at..).and_then(|rest| rest.first_chunk()) {
        if let Some(special) = first_special_byte(block) {
            return at + special;
        }
        at += block.len();
    }
    while text.get(at).is_some_and(|&byte| is_plain_string_byte(byte)) {
        at += 1;
    }
    at
}

/// Returns the position of the first byte from `at` on that is no digit; the text's length if
/// there is none.
#[inline]
pub fn digits_end(text: &[u8], mut at: usize) -> usize {
    while let Some(block) = text.get(at..).and_then(|rest| rest.first_chunk()) {
        match first_non_digit(u64::from_le_bytes(*block)) {
            Some(other) => return at + other,
            None => at += block.len(),
        }
    }
    while text.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

/// Whether a text is ASCII.
#[cfg(not(target_family = "wasm"))]
pub fn is_ascii_text(text: &[u8]) -> bool {
    text.is_ascii()
}

/// Whether a text is ASCII.
#[cfg(target_family = "wasm")]
pub fn is_ascii_text(text: &[u8]) -> bool {
    is_ascii_in_blocks(text)
}

/// Whether a text is ASCII, for targets on which the standard library reads words of 4 bytes: the
/// compiler joins the bytes of a block in vectors.
#[cfg(any(test, target_family = "wasm"))]
fn is_ascii_in_blocks(text: &[u8]) -> bool {
    let (blocks, rest) = text.as_chunks::<64>();
    let mut blocks = blocks.iter();
    blocks.all(|block| block.iter().fold(0_u8, |all, byte| all | byte).is_ascii())
        && rest.is_ascii()
}

/// Returns the index of the lowest byte of a word that is not a decimal digit.
#[inline(always)]
fn first_non_digit(word: u64) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xFF;
    const UPPER: u64 = ONES * 0xF0;
    const DIGITS: u64 = ONES * 0x30;
    // The upper half of each digit is 3, and still is after 6 is added. A byte above 0xF9
    // carries into the next one: only the lowest mismatch is reliable.
    let with_6 = word.wrapping_add(ONES * 6);
    let other = ((word & UPPER) ^ DIGITS) | ((with_6 & UPPER) ^ DIGITS);
    match other {
        0 => None,
        other => Some((other.trailing_zeros() / 8) as usize),
    }
}

fn is_plain_string_byte(byte: u8) -> bool {
    byte >= 0x20 && byte != b'"' && byte != b'\\'
}

/// Returns the index of the first byte of a block that is not a plain part of a string.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn first_special_byte(block: &[u8; 16]) -> Option<usize> {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128,
        _mm_set1_epi8,
    };

    // SAFETY: the block is 16 readable bytes, at any address; every x86-64 processor has SSE2.
    let mask = unsafe {
        let bytes = _mm_loadu_si128(block.as_ptr().cast());
        let quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
        let backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
        // min(byte, 0x1F) equals the byte for control characters only
        let control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes);
        _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, backslash), control))
    };
    match mask {
        0 => None,
        mask => Some(mask.trailing_zeros() as usize),
    }
}

/// Returns the index of the first byte of a block that is not a plain part of a string.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
#[inline(always)]
fn first_special_byte(block: &[u8; 16]) -> Option<usize> {
    use std::arch::wasm32::{u8x16_bitmask, u8x16_eq, u8x16_min, u8x16_splat, v128_load, v128_or};

    // SAFETY: the block is 16 readable bytes, at any address.
    let bytes = unsafe { v128_load(block.as_ptr().cast()) };
    let quote = u8x16_eq(bytes, u8x16_splat(b'"'));
    let backslash = u8x16_eq(bytes, u8x16_splat(b'\\'));
    // min(byte, 0x1F) equals the byte for control characters only
    let control = u8x16_eq(u8x16_min(bytes, u8x16_splat(0x1F)), bytes);
    match u8x16_bitmask(v128_or(v128_or(quote, backslash), control)) {
        0 => None,
        mask => Some(mask.trailing_zeros() as usize),
    }
}

/// Returns the index of the first byte of a block that is not a plain part of a string.
#[cfg(not(any(
    target_arch = "x86_64",
    all(target_arch = "wasm32", target_feature = "simd128")
)))]
#[inline(always)]
fn first_special_byte(block: &[u8; 8]) -> Option<usize> {
    first_special_in_word(u64::from_le_bytes(*block))
}

/// Returns the index of the lowest byte of a word that is not a plain part of a string.
#[cfg(any(
    test,
    not(any(
        target_arch = "x86_64",
        all(target_arch = "wasm32", target_feature = "simd128")
    ))
))]
#[inline(always)]
fn first_special_in_word(word: u64) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xFF;
    const HIGH: u64 = ONES << 7;
    // The quote is exchanged with 0x20, so that it lies below 0x21 with the control characters,
    // and the space (0x22) above. A borrow may mark bytes above a special one, too: only the
    // lowest mark is reliable.
    let below = (word ^ (ONES * 0x02)).wrapping_sub(ONES * 0x21);
    let backslash = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    match (below | backslash) & !word & HIGH {
        0 => None,
        special => Some((special.trailing_zeros() / 8) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        digits_end, first_special_in_word, is_ascii_in_blocks, is_plain_string_byte,
        plain_string_run_end,
    };

    const NEIGHBOURS: [u8; 11] = [
        b'a', 0x1F, 0x20, b'!', b'"', b'#', b'\\', b']', 0x7F, 0x80, 0xFF,
    ];

    /// Searches one byte at a time.
    fn naive(text: &[u8], at: usize) -> usize {
        (at..text.len())
            .find(|&n| !is_plain_string_byte(text[n]))
            .unwrap_or(text.len())
    }

    #[test]
    fn end_of_plain_equals_the_definition_for_all_bytes_and_positions() {
        for length in 0..36 {
            for place in 0..length {
                for byte in 0..=255 {
                    for next in NEIGHBOURS {
                        let mut text = vec![b'a'; length];
                        text[place] = byte;
                        if let Some(after) = text.get_mut(place + 1) {
                            *after = next;
                        }
                        for at in [0, 1, place, length] {
                            let expected = naive(&text, at);
                            assert_eq!(
                                plain_string_run_end(&text, at),
                                expected,
                                "{text:?} from {at}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn end_of_digits_equals_the_definition_for_all_bytes_and_positions() {
        for length in 0..20 {
            for place in 0..length {
                for byte in 0..=255 {
                    for next in [b'0', b'9', b'/', b':', 0xFA, 0xFF] {
                        let mut text = vec![b'0' + (place % 10) as u8; length];
                        text[place] = byte;
                        if let Some(after) = text.get_mut(place + 1) {
                            *after = next;
                        }
                        for at in [0, 1, place, length] {
                            let digits = text.iter().skip(at);
                            let expected = at + digits.take_while(|b| b.is_ascii_digit()).count();
                            assert_eq!(digits_end(&text, at), expected, "{text:?} from {at}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn search_in_blocks_finds_bytes_beyond_ascii_at_all_positions() {
        for length in [0, 1, 63, 64, 65, 128, 130] {
            let mut text = vec![b'a'; length];
            assert!(is_ascii_in_blocks(&text), "{length}");
            for place in 0..length {
                for byte in [0x80, 0xFF] {
                    text[place] = byte;
                    assert!(!is_ascii_in_blocks(&text), "{length} {place}");
                }
                text[place] = 0x7F;
            }
        }
    }

    #[test]
    fn word_search_equals_the_definition_for_all_bytes() {
        for place in 0..8 {
            for byte in 0..=255 {
                for next in NEIGHBOURS {
                    let mut text = [b'a'; 8];
                    text[place] = byte;
                    if let Some(after) = text.get_mut(place + 1) {
                        *after = next;
                    }
                    let found = first_special_in_word(u64::from_le_bytes(text)).unwrap_or(8);
                    assert_eq!(found, naive(&text, 0), "{text:?}");
                }
            }
        }
    }
}
