//! A whole zstd-coded body back into what was coded (RFC 8878), under a cap.
//!
//! All of the output stays where it is written, so that it is its own window: a frame
//! takes no more memory than what it decodes to, whatever window it names, and the
//! literals of one block.
//!
//! | module        | concern                                        |
//! |---------------|------------------------------------------------|
//! | `bits`        | bitstreams, read from their start or their end |
//! | `fse`         | tables of finite state entropy                 |
//! | `huffman`     | prefix codes                                   |
//! | `literals`    | a block's bytes that are not copied            |
//! | `sequences`   | a block's copies                               |
//! | `xxh64`       | the checksum                                   |
//!
//! Dictionaries are not known: a content coding of that name has none.

mod bits;
mod fse;
mod huffman;
mod literals;
mod sequences;
mod xxh64;

use self::literals::Literals;
use self::sequences::Sequences;
use self::xxh64::xxh64;
use crate::gzip::inflate::InflateError;

const MAGIC: u32 = 0xFD2F_B528;
/// The four low bits are anything.
const SKIPPABLE: u32 = 0x184D_2A50;
/// No block is longer, coded or decoded.
const MAX_BLOCK: usize = 128 << 10;

/// What is wrong with a frame. It has no room for more: the body goes on as it came.
struct Bad;

impl From<Bad> for InflateError {
    fn from(_: Bad) -> Self {
        InflateError::Bad
    }
}

/// Decodes all frames of `coded` (RFC 8878, section 3.1) into at most `cap` bytes;
/// `may_take` is asked before so many bytes are taken in all.
///
/// # Errors
/// [`InflateError`]; nothing is lost, the input is only borrowed.
pub fn unzstd(
    coded: &[u8],
    cap: usize,
    may_take: impl FnMut(usize) -> bool,
) -> Result<Vec<u8>, InflateError> {
    let mut output = Output {
        body: Vec::new(),
        cap,
        may_take,
    };
    let mut input = Input(coded);
    loop {
        match input.number(4)? as u32 {
            MAGIC => frame(&mut input, &mut output)?,
            magic if magic & !0xF == SKIPPABLE => {
                let length = input.number(4)?;
                input.take(usize::try_from(length).map_err(|_| Bad)?)?;
            }
            _ => return Err(InflateError::Bad),
        }
        if input.0.is_empty() {
            break;
        }
    }
    output.body.shrink_to_fit();
    Ok(output.body)
}

/// One frame, after its magic number.
fn frame<F: FnMut(usize) -> bool>(
    input: &mut Input<'_>,
    output: &mut Output<F>,
) -> Result<(), InflateError> {
    let header = Header::read(input)?;
    if let Some(length) = header.content {
        let length = usize::try_from(length).map_err(|_| InflateError::TooLarge)?;
        output.reserve(length)?;
    }
    let start = output.body.len();
    let mut literals = Literals::default();
    let mut sequences = Sequences::default();
    loop {
        let block = input.number(3)? as usize;
        let (is_last, kind, length) = (block & 1 == 1, block >> 1 & 3, block >> 3);
        if length > header.max_block {
            return Err(InflateError::Bad);
        }
        match kind {
            0 => output.extend(input.take(length)?)?,
            1 => output.fill(input.byte()?, length)?,
            2 => {
                let mut block = Input(input.take(length)?);
                literals.read(&mut block, header.max_block)?;
                sequences.run(block, literals.bytes(), output, start, header.max_block)?;
            }
            _ => return Err(InflateError::Bad),
        }
        if is_last {
            break;
        }
    }
    let content = &output.body[start..];
    if header
        .content
        .is_some_and(|length| length != content.len() as u64)
    {
        return Err(InflateError::Bad);
    }
    if header.has_checksum && input.number(4)? != xxh64(content) & 0xFFFF_FFFF {
        return Err(InflateError::Bad);
    }
    Ok(())
}

/// Of a frame.
struct Header {
    /// The length of what it decodes to, if it says that.
    content: Option<u64>,
    max_block: usize,
    has_checksum: bool,
}

impl Header {
    fn read(input: &mut Input<'_>) -> Result<Self, Bad> {
        let descriptor = input.byte()?;
        let is_single = descriptor & 0x20 != 0;
        // one bit is reserved
        if descriptor & 0x08 != 0 {
            return Err(Bad);
        }
        let window = match is_single {
            true => None,
            false => {
                let byte = u64::from(input.byte()?);
                let base = 1 << (10 + (byte >> 3));
                Some(base + base / 8 * (byte & 7))
            }
        };
        let dictionary = input.number([0, 1, 2, 4][usize::from(descriptor & 3)])?;
        if dictionary != 0 {
            return Err(Bad);
        }
        let content = match (descriptor >> 6, is_single) {
            (0, false) => None,
            (0, true) => Some(input.number(1)?),
            (1, _) => Some(input.number(2)? + 256),
            (2, _) => Some(input.number(4)?),
            _ => Some(input.number(8)?),
        };
        let window = window.or(content).ok_or(Bad)?;
        Ok(Self {
            content,
            max_block: usize::try_from(window).map_or(MAX_BLOCK, |it| it.min(MAX_BLOCK)),
            has_checksum: descriptor & 0x04 != 0,
        })
    }
}

/// What is left of the input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Bad> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Bad)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Bad> {
        Ok(self.take(1)?[0])
    }

    /// A number of so many bytes, at most 8, the lowest first.
    fn number(&mut self, length: usize) -> Result<u64, Bad> {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(self.take(length)?);
        Ok(u64::from_le_bytes(bytes))
    }
}

/// What was decoded so far.
struct Output<F> {
    body: Vec<u8>,
    cap: usize,
    may_take: F,
}

impl<F: FnMut(usize) -> bool> Output<F> {
    /// Room for so many bytes more.
    fn reserve(&mut self, more: usize) -> Result<(), InflateError> {
        let (length, room) = (self.body.len(), self.body.capacity());
        let needed = length.saturating_add(more);
        if needed <= room {
            return Ok(());
        }
        if needed > self.cap {
            return Err(InflateError::TooLarge);
        }
        let room = room.saturating_mul(2).min(self.cap).max(needed);
        let is_taken = (self.may_take)(room.saturating_add(MAX_BLOCK))
            && self.body.try_reserve_exact(room - length).is_ok();
        is_taken.then_some(()).ok_or(InflateError::OutOfMemory)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), InflateError> {
        self.reserve(bytes.len())?;
        self.body.extend_from_slice(bytes);
        Ok(())
    }

    fn fill(&mut self, byte: u8, length: usize) -> Result<(), InflateError> {
        self.reserve(length)?;
        self.body.resize(self.body.len() + length, byte);
        Ok(())
    }

    /// Copies what was decoded so far back, which may become a part of what is copied.
    fn repeat(&mut self, back: usize, length: usize) -> Result<(), InflateError> {
        self.reserve(length)?;
        let start = self.body.len().checked_sub(back).ok_or(Bad)?;
        let mut left = length;
        while left > 0 {
            // each turn doubles what there is to copy
            let there = (self.body.len() - start).min(left);
            if there == 0 {
                return Err(InflateError::Bad);
            }
            self.body.extend_from_within(start..start + there);
            left -= there;
        }
        Ok(())
    }
}
