//! Strings of bytes: `0x` and hex digits of either case.

use super::output::SszOutput;
use super::scan::{not_a_string_error, JsonTokenError};
use super::skip::decode_escape;
use crate::ssz::error::SszErrorKind;

/// Number of bytes that are allocated at a time, so that they are in the processor's cache when
/// they are written.
const ALLOCATION_BLOCK: usize = 1 << 14;

/// The position of the output to which the next decoded bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecodedHexDestination {
    /// The end of the output.
    End,
    /// A position with reserved room.
    At(usize),
}

/// A reader of a string of hex digits that arrives in pieces, or in an unusual notation, and its
/// progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct HexReader {
    write_position: DecodedHexDestination,
    /// Maximum number of bytes.
    most: u64,
    /// Number of bytes that were read.
    decoded_bytes: u64,
    /// Number of bytes of the prefix `"0x` that were read.
    begun: usize,
    /// The first digit of the next byte.
    half: Option<u8>,
}

const HEX_PREFIX: &[u8; 3] = b"\"0x";

/// The reason why the input is rejected: an invalid token, or a value that breaks a rule of SSZ.
pub(super) enum JsonToSszError {
    Wrong(JsonTokenError),
    Refused(SszErrorKind),
}

impl From<JsonTokenError> for JsonToSszError {
    fn from(wrong: JsonTokenError) -> Self {
        Self::Wrong(wrong)
    }
}

impl From<SszErrorKind> for JsonToSszError {
    fn from(problem: SszErrorKind) -> Self {
        Self::Refused(problem)
    }
}

/// Reads a complete string of exactly `to.len()` bytes in the usual notation. Returns the length of
/// its token, or `None` if the slow path must read it.
#[inline(always)]
pub(super) fn read_exact_hex(bytes: &[u8], to: &mut [u8]) -> Option<usize> {
    let inner = bytes.strip_prefix(HEX_PREFIX)?;
    let len = decode_exact_digits(inner, to)?;
    (inner.get(len) == Some(&b'"')).then_some(HEX_PREFIX.len() + len + 1)
}

/// Decodes the digits of exactly `to.len()` bytes; `None` if there are too few, or others than hex
/// digits.
#[inline(always)]
pub(super) fn decode_exact_digits(bytes: &[u8], to: &mut [u8]) -> Option<usize> {
    let digits = bytes.get(..2 * to.len())?;
    decode_digits(digits, to).then_some(digits.len())
}

/// Reads a complete string of at most `most` bytes, and appends them. Returns the length of its
/// token, or `None` if the slow path must read it.
#[inline(always)]
pub(super) fn read_hex_string(
    bytes: &[u8],
    most: u64,
    output: &mut SszOutput,
) -> Result<Option<usize>, SszErrorKind> {
    let Some(inner) = bytes.strip_prefix(HEX_PREFIX) else {
        return Ok(None);
    };
    let len = decode_digits_to_quote(inner, most, output)?;
    Ok(len.map(|len| HEX_PREFIX.len() + len + 1))
}

/// Reads digits up to a quote, and appends their bytes.
#[inline(always)]
pub(super) fn decode_digits_to_quote(
    bytes: &[u8],
    most: u64,
    output: &mut SszOutput,
) -> Result<Option<usize>, SszErrorKind> {
    let Some(len) = memchr::memchr(b'"', bytes) else {
        return Ok(None);
    };
    if len % 2 != 0 || len as u64 / 2 > most {
        return Ok(None);
    }
    let start = output.len();
    Ok(match append_decoded_hex(&bytes[..len], output)? {
        true => Some(len),
        false => {
            output.bytes.truncate(start);
            None
        }
    })
}

/// Decodes and appends digits. Returns whether all of them are hex digits.
fn append_decoded_hex(digits: &[u8], output: &mut SszOutput) -> Result<bool, SszErrorKind> {
    output.reserve_bytes(digits.len() / 2)?;
    for block in digits.chunks(2 * ALLOCATION_BLOCK) {
        let at = output.append_zeros(block.len() / 2)?;
        if !decode_digits(block, &mut output.bytes[at..]) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Decodes hex without a prefix into `to`. Returns `false` if a digit is invalid or the length
/// differs.
#[inline(always)]
fn decode_digits(digits: &[u8], to: &mut [u8]) -> bool {
    // the decoder would accept "0x" as a prefix
    digits.get(1) != Some(&b'x') && const_hex::decode_to_slice(digits, to).is_ok()
}

impl HexReader {
    /// Creates a reader that decodes at most `most` bytes to the destination.
    pub(super) fn new(place: DecodedHexDestination, most: u64) -> Self {
        Self {
            write_position: place,
            most,
            decoded_bytes: 0,
            begun: 0,
            half: None,
        }
    }

    pub(super) fn write_position(&self) -> DecodedHexDestination {
        self.write_position
    }

    /// Returns the number of bytes that were decoded.
    pub(super) fn decoded_byte_count(&self) -> u64 {
        self.decoded_bytes
    }

    /// Whether the first digit of a byte was read, and the second was not.
    pub(super) fn has_half_byte(&self) -> bool {
        self.half.is_some()
    }

    /// Continues to read at `at`. Returns the end of the input that was read, and whether the
    /// string ended.
    pub(super) fn continue_hex_string(
        &mut self,
        bytes: &[u8],
        mut at: usize,
        output: &mut SszOutput,
    ) -> Result<(usize, bool), JsonToSszError> {
        loop {
            let Some(first) = bytes.get(at) else {
                return Ok((at, false));
            };
            if self.begun == 0 && *first != b'"' {
                return Err(JsonTokenError::new(at, not_a_string_error(*first)).into());
            }
            if self.begun == 0 {
                self.begun = 1;
                at += 1;
                continue;
            }
            let rest = &bytes[at..];
            match first {
                b'"' if self.begun < HEX_PREFIX.len() => {
                    return Err(JsonTokenError::new(at, "0x is missing before the digits").into());
                }
                b'"' if self.half.is_some() => {
                    return Err(
                        JsonTokenError::new(at, "an odd number of hexadecimal digits").into(),
                    );
                }
                b'"' => return Ok((at + 1, true)),
                b'\\' => {
                    let unit = decode_escape(rest).map_err(|why| JsonTokenError::new(at, why))?;
                    let Some((unit, len)) = unit else {
                        return Ok((at, false));
                    };
                    let plain = u8::try_from(unit).unwrap_or(0);
                    self.decode_hex_piece(&[plain], at, output)?;
                    at += len;
                }
                _ if self.begun < HEX_PREFIX.len() => {
                    self.decode_hex_piece(&bytes[at..=at], at, output)?;
                    at += 1;
                }
                _ => {
                    let len = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                    self.decode_hex_piece(&rest[..len], at, output)?;
                    at += len;
                }
            }
        }
    }

    /// Decodes a part of the string's digits, which may begin or end between the two digits of a
    /// byte.
    fn decode_hex_piece(
        &mut self,
        mut digits: &[u8],
        mut at: usize,
        output: &mut SszOutput,
    ) -> Result<(), JsonToSszError> {
        if self.begun < HEX_PREFIX.len() {
            // one digit at a time
            if digits[0] != HEX_PREFIX[self.begun] {
                return Err(JsonTokenError::new(at, "0x is missing before the digits").into());
            }
            self.begun += 1;
            return Ok(());
        }
        if let (Some(half), Some((first, rest))) = (self.half, digits.split_first()) {
            let mut byte = [0];
            if !decode_digits(&[half, *first], &mut byte) {
                return Err(JsonTokenError::new(at, "not a hexadecimal digit").into());
            }
            self.half = None;
            self.decode_digit_pairs(&[half, *first], at + 1, output)?;
            digits = rest;
            at += 1;
        }
        let pairs = digits.len() & !1;
        self.decode_digit_pairs(&digits[..pairs], at + pairs, output)?;
        if let Some(last) = digits.get(pairs) {
            if !last.is_ascii_hexdigit() {
                return Err(JsonTokenError::new(at + pairs, "not a hexadecimal digit").into());
            }
            self.half = Some(*last);
        }
        Ok(())
    }

    /// Decodes pairs of digits, which end before `end`. The first digit may have been in the
    /// previous piece.
    fn decode_digit_pairs(
        &mut self,
        digits: &[u8],
        end: usize,
        output: &mut SszOutput,
    ) -> Result<(), JsonToSszError> {
        let at = |digit: usize| end + digit - digits.len();
        let count = digits.len() / 2;
        let allowed =
            usize::try_from(self.most - self.decoded_bytes).map_or(count, |most| most.min(count));
        let (digits, more) = digits.split_at(2 * allowed);
        let is_hex = match self.write_position {
            DecodedHexDestination::End => append_decoded_hex(digits, output)?,
            DecodedHexDestination::At(place) => {
                let place = place + self.decoded_bytes as usize;
                decode_digits(digits, &mut output.bytes[place..place + allowed])
            }
        };
        self.decoded_bytes += allowed as u64;
        let next = more.get(..2).unwrap_or_default();
        let candidates = if is_hex { next } else { digits };
        let before = if is_hex { digits.len() } else { 0 };
        match candidates.iter().position(|byte| !byte.is_ascii_hexdigit()) {
            Some(bad) => {
                Err(JsonTokenError::new(at(before + bad), "not a hexadecimal digit").into())
            }
            // the first digit of the excess byte
            None if !more.is_empty() => {
                let why = format!("more than {} bytes", self.most);
                Err(JsonTokenError::new(at(before + 1), why).into())
            }
            None => Ok(()),
        }
    }
}
