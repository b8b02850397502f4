//! Finding the end of a string, where nearly all of the bytes are.

use super::scan::{Fault, ScanError};

/// The first byte from `at` on that is not a plain part of a string: a quote,
/// a backslash or a control character; the text's length if there is none.
#[inline]
pub fn end_of_plain(text: &[u8], mut at: usize) -> usize {
    while let Some(word) = text.get(at..).and_then(|rest| rest.first_chunk()) {
        let special = specials(u64::from_le_bytes(*word));
        if special != 0 {
            return at + (special.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while text
        .get(at)
        .is_some_and(|&byte| byte >= 0x20 && byte != b'"' && byte != b'\\')
    {
        at += 1;
    }
    at
}

const ONES: u64 = u64::MAX / 0xFF;
const HIGH: u64 = ONES << 7;

/// The high bit of each byte that is special. A borrow may set it in bytes
/// above a special one too: only the lowest is to be believed.
#[inline]
fn specials(word: u64) -> u64 {
    // The quote changes places with 0x20, so that it lies below 0x21 with the
    // control characters, and the space with it (0x22) above.
    let below = (word ^ (ONES * 0x02)).wrapping_sub(ONES * 0x21);
    let backslash = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    (below | backslash) & !word & HIGH
}

/// Checks an escape, or two that make a surrogate pair, from the backslash at
/// `at` on; where it ends.
#[cold]
pub fn end_of_escape(text: &[u8], at: usize) -> Result<usize, ScanError> {
    let error = |offset, fault| ScanError { offset, fault };
    let unpaired = error(at, Fault::Surrogate);
    match text.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => return Ok(at + 2),
        Some(b'u') => {}
        Some(_) => return Err(error(at + 1, Fault::Escape)),
        None => return Err(error(at + 1, Fault::End)),
    }
    match code_unit(text, at + 2)? {
        0xD800..=0xDBFF => {}
        0xDC00..=0xDFFF => return Err(unpaired),
        _ => return Ok(at + 6),
    }
    for (offset, expected) in [(at + 6, b'\\'), (at + 7, b'u')] {
        match text.get(offset) {
            Some(&byte) if byte == expected => {}
            Some(_) => return Err(unpaired),
            None => return Err(error(offset, Fault::End)),
        }
    }
    match code_unit(text, at + 8)? {
        0xDC00..=0xDFFF => Ok(at + 12),
        _ => Err(unpaired),
    }
}

/// Four hexadecimal digits.
fn code_unit(text: &[u8], at: usize) -> Result<u32, ScanError> {
    (at..at + 4).try_fold(0, |unit, offset| {
        let error = |fault| ScanError { offset, fault };
        let byte = *text.get(offset).ok_or(error(Fault::End))?;
        let digit = char::from(byte).to_digit(16).ok_or(error(Fault::Escape))?;
        Ok(unit << 4 | digit)
    })
}

#[cfg(test)]
mod tests {
    use super::end_of_plain;

    /// The definition, a byte at a time.
    fn naive(text: &[u8], at: usize) -> usize {
        (at..text.len())
            .find(|&n| text[n] < 0x20 || text[n] == b'"' || text[n] == b'\\')
            .unwrap_or(text.len())
    }

    #[test]
    fn every_byte_at_every_place_beside_every_byte() {
        for length in 0..20 {
            for place in 0..length {
                for byte in 0..=255 {
                    for next in [
                        b'a', 0x1F, 0x20, b'!', b'"', b'#', b'\\', b']', 0x7F, 0x80, 0xFF,
                    ] {
                        let mut text = vec![b'a'; length];
                        text[place] = byte;
                        if let Some(after) = text.get_mut(place + 1) {
                            *after = next;
                        }
                        for at in [0, 1, place, length] {
                            let expected = naive(&text, at);
                            assert_eq!(end_of_plain(&text, at), expected, "{text:?} from {at}");
                        }
                    }
                }
            }
        }
    }
}
