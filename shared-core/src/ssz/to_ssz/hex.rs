//! Bytes, as `0x` and hexadecimal digits of either case.

use super::output::Output;
use super::scan::{not_a_string, Wrong};
use super::skip::escaped;
use crate::ssz::error::Problem;

/// So many bytes are made room for at a time: they are in the processor's cache
/// when they are written.
const BLOCK: usize = 1 << 14;

/// Where bytes are to be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At the end.
    End,
    /// Here, where as many were made room for as come.
    At(usize),
}

/// A string that comes in pieces, or is unusual.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hex {
    place: Place,
    /// More bytes than that are refused.
    most: u64,
    /// So many have come.
    count: u64,
    /// How much of `"0x` has.
    begun: usize,
    /// The first digit of the next byte.
    half: Option<u8>,
}

const PREFIX: &[u8; 3] = b"\"0x";

/// Why it goes no further.
pub(super) enum Stop {
    Wrong(Wrong),
    Refused(Problem),
}

impl From<Wrong> for Stop {
    fn from(wrong: Wrong) -> Self {
        Self::Wrong(wrong)
    }
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

/// A string of exactly `to.len()` bytes that is all there and as most write
/// it. Its length; `None`: it is to be looked at more closely.
#[inline(always)]
pub(super) fn whole_of_length(bytes: &[u8], to: &mut [u8]) -> Option<usize> {
    let inner = bytes.strip_prefix(PREFIX)?;
    let len = digits(inner, to)?;
    (inner.get(len) == Some(&b'"')).then_some(PREFIX.len() + len + 1)
}

/// Its digits.
#[inline(always)]
pub(super) fn digits(bytes: &[u8], to: &mut [u8]) -> Option<usize> {
    let digits = bytes.get(..2 * to.len())?;
    decode(digits, to).then_some(digits.len())
}

/// The same of any length, up to `most`, which is put at the end.
#[inline(always)]
pub(super) fn whole(
    bytes: &[u8],
    most: u64,
    output: &mut Output,
) -> Result<Option<usize>, Problem> {
    let Some(inner) = bytes.strip_prefix(PREFIX) else {
        return Ok(None);
    };
    let len = digits_to_quote(inner, most, output)?;
    Ok(len.map(|len| PREFIX.len() + len + 1))
}

/// Its digits, which a quote follows.
#[inline(always)]
pub(super) fn digits_to_quote(
    bytes: &[u8],
    most: u64,
    output: &mut Output,
) -> Result<Option<usize>, Problem> {
    let Some(len) = memchr::memchr(b'"', bytes) else {
        return Ok(None);
    };
    if len % 2 != 0 || len as u64 / 2 > most {
        return Ok(None);
    }
    let start = output.len();
    Ok(match append(&bytes[..len], output)? {
        true => Some(len),
        false => {
            output.bytes.truncate(start);
            None
        }
    })
}

/// Whether all of them are digits.
fn append(digits: &[u8], output: &mut Output) -> Result<bool, Problem> {
    output.reserve(digits.len() / 2)?;
    for block in digits.chunks(2 * BLOCK) {
        let at = output.zeros(block.len() / 2)?;
        if !decode(block, &mut output.bytes[at..]) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[inline(always)]
fn decode(digits: &[u8], to: &mut [u8]) -> bool {
    // it would take "0x" for a prefix
    digits.get(1) != Some(&b'x') && const_hex::decode_to_slice(digits, to).is_ok()
}

impl Hex {
    pub(super) fn new(place: Place, most: u64) -> Self {
        Self {
            place,
            most,
            count: 0,
            begun: 0,
            half: None,
        }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// How many bytes came.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// A digit has come whose other one has not.
    pub(super) fn is_half(&self) -> bool {
        self.half.is_some()
    }

    /// Reads on from `at`. How far it came, and whether the string ended there.
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        mut at: usize,
        output: &mut Output,
    ) -> Result<(usize, bool), Stop> {
        loop {
            let Some(first) = bytes.get(at) else {
                return Ok((at, false));
            };
            if self.begun == 0 && *first != b'"' {
                return Err(Wrong::new(at, not_a_string(*first)).into());
            }
            if self.begun == 0 {
                self.begun = 1;
                at += 1;
                continue;
            }
            let rest = &bytes[at..];
            match first {
                b'"' if self.begun < PREFIX.len() => {
                    return Err(Wrong::new(at, "hexadecimal digits without 0x").into());
                }
                b'"' if self.half.is_some() => {
                    return Err(Wrong::new(at, "an odd number of hexadecimal digits").into());
                }
                b'"' => return Ok((at + 1, true)),
                b'\\' => {
                    let unit = escaped(rest).map_err(|why| Wrong::new(at, why))?;
                    let Some((unit, len)) = unit else {
                        return Ok((at, false));
                    };
                    let plain = u8::try_from(unit).unwrap_or(0);
                    self.digits(&[plain], at, output)?;
                    at += len;
                }
                _ if self.begun < PREFIX.len() => {
                    self.digits(&bytes[at..=at], at, output)?;
                    at += 1;
                }
                _ => {
                    let len = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                    self.digits(&rest[..len], at, output)?;
                    at += len;
                }
            }
        }
    }

    /// Takes what a string holds.
    fn digits(
        &mut self,
        mut digits: &[u8],
        mut at: usize,
        output: &mut Output,
    ) -> Result<(), Stop> {
        if self.begun < PREFIX.len() {
            // one at a time
            if digits[0] != PREFIX[self.begun] {
                return Err(Wrong::new(at, "hexadecimal digits without 0x").into());
            }
            self.begun += 1;
            return Ok(());
        }
        if let (Some(half), Some((first, rest))) = (self.half, digits.split_first()) {
            let mut byte = [0];
            if !decode(&[half, *first], &mut byte) {
                return Err(Wrong::new(at, "no hexadecimal digit").into());
            }
            self.half = None;
            self.put(&[half, *first], at + 1, output)?;
            digits = rest;
            at += 1;
        }
        let pairs = digits.len() & !1;
        self.put(&digits[..pairs], at + pairs, output)?;
        if let Some(last) = digits.get(pairs) {
            if !last.is_ascii_hexdigit() {
                return Err(Wrong::new(at + pairs, "no hexadecimal digit").into());
            }
            self.half = Some(*last);
        }
        Ok(())
    }

    /// Decodes pairs of digits, which end before `end`; the first of them may
    /// have come in another piece.
    fn put(&mut self, digits: &[u8], end: usize, output: &mut Output) -> Result<(), Stop> {
        let at = |digit: usize| end + digit - digits.len();
        let count = digits.len() / 2;
        let allowed = usize::try_from(self.most - self.count).map_or(count, |most| most.min(count));
        let (digits, more) = digits.split_at(2 * allowed);
        let is_hex = match self.place {
            Place::End => append(digits, output)?,
            Place::At(place) => {
                let place = place + self.count as usize;
                decode(digits, &mut output.bytes[place..place + allowed])
            }
        };
        self.count += allowed as u64;
        let next = more.get(..2).unwrap_or_default();
        let looked_at = if is_hex { next } else { digits };
        let before = if is_hex { digits.len() } else { 0 };
        match looked_at.iter().position(|byte| !byte.is_ascii_hexdigit()) {
            Some(bad) => Err(Wrong::new(at(before + bad), "no hexadecimal digit").into()),
            // the digit that makes one too many
            None if !more.is_empty() => {
                let why = format!("more than {} bytes", self.most);
                Err(Wrong::new(at(before + 1), why).into())
            }
            None => Ok(()),
        }
    }
}
