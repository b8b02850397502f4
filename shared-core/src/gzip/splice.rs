//! One gzip member of parts that were coded before.
//!
//! A member is a header, deflate blocks, and a trailer with the sum and the
//! length of the plain bytes (RFC 1952, section 2.3). Texts become stored
//! blocks; open streams stand as they are, between them; the sum is combined.
//! Nothing is coded and no stream is copied, so the time does not depend on
//! their lengths. One member, not several: curl and Python's zlib stop after
//! the first.

use super::crc::Crc;
use super::open::Open;
use crate::bytes::{extend, push, Bytes};

/// A part of a member's plain bytes.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// Bytes as they are.
    Text(&'a [u8]),
    /// Coded ones.
    Open(&'a Open),
}

/// Assembles one gzip member. `None` when memory is refused.
pub fn splice<'a>(parts: impl IntoIterator<Item = Part<'a>>) -> Option<Body> {
    let mut member = Member::new();
    for part in parts {
        match part {
            Part::Text(text) => member.text(text)?,
            Part::Open(open) => member.open(open)?,
        }
    }
    member.finish()
}

/// What is sent, in slices that own what they refer to, so that it outlives
/// the cache's entry.
#[derive(Clone, Debug, Default)]
pub struct Body {
    slices: Vec<Slice>,
    length: u64,
    is_gzip: bool,
}

#[derive(Clone, Debug)]
enum Slice {
    Owned(Vec<u8>),
    Shared(Bytes),
}

impl Slice {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl Body {
    /// An empty one, of content coding identity.
    pub(crate) fn identity() -> Self {
        Self::default()
    }

    /// Its exact length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether its content coding is gzip; identity if not.
    pub fn is_gzip(&self) -> bool {
        self.is_gzip
    }

    /// Its bytes, in order; no slice is empty.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.slices.iter().map(Slice::bytes)
    }

    /// Its bytes in one piece.
    ///
    /// # Panics
    /// When memory is refused: for tests, see [`try_to_vec`](Self::try_to_vec).
    pub fn to_vec(&self) -> Vec<u8> {
        self.try_to_vec().expect("memory was refused")
    }

    /// Its bytes in one piece. `None` when memory is refused.
    pub fn try_to_vec(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let length = usize::try_from(self.length).ok()?;
        bytes.try_reserve_exact(length).ok()?;
        for slice in self.slices() {
            bytes.extend_from_slice(slice);
        }
        Some(bytes)
    }

    /// `None` when memory is refused.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) -> Option<()> {
        self.push_slice(Slice::Owned(bytes))
    }

    /// `None` when memory is refused.
    pub(crate) fn push_shared(&mut self, bytes: Bytes) -> Option<()> {
        self.push_slice(Slice::Shared(bytes))
    }

    fn push_slice(&mut self, slice: Slice) -> Option<()> {
        let length = slice.bytes().len();
        if length > 0 {
            push(&mut self.slices, slice)?;
            self.length += length as u64;
        }
        Some(())
    }
}

/// No name, no time; the system is "unknown".
pub(super) const HEADER: [u8; 10] = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF];

/// The header of a stored block that is not the last one, its length yet to
/// be written.
const STORED: [u8; 5] = [0; 5];

/// Most that a stored block can hold.
const STORED_MAX: usize = 0xFFFF;

/// An empty last block, of the fixed codes: the shortest there is.
pub(super) const EMPTY_LAST: [u8; 2] = [0x03, 0x00];

/// A member that is being written. `None` of its functions: memory is refused,
/// and it is of no use any more.
pub(crate) struct Member {
    body: Body,
    /// Its end, which is not in `body` yet.
    tail: Vec<u8>,
    /// Where in `tail` the header of a stored block is that can grow.
    block: Option<usize>,
    crc: Crc,
}

impl Member {
    pub(crate) fn new() -> Self {
        let mut tail = Vec::with_capacity(192);
        tail.extend_from_slice(&HEADER);
        Self {
            body: Body {
                slices: Vec::with_capacity(3),
                length: 0,
                is_gzip: true,
            },
            tail,
            block: None,
            crc: Crc::new(),
        }
    }

    pub(crate) fn text(&mut self, text: &[u8]) -> Option<()> {
        self.crc.update(text);
        let mut rest = text;
        while !rest.is_empty() {
            let block = match self.block {
                Some(block) => block,
                None => {
                    let block = self.tail.len();
                    extend(&mut self.tail, &STORED)?;
                    *self.block.insert(block)
                }
            };
            let used = self.tail.len() - block - STORED.len();
            let (now, later) = rest.split_at(rest.len().min(STORED_MAX - used));
            extend(&mut self.tail, now)?;
            rest = later;
            if used + now.len() == STORED_MAX && !rest.is_empty() {
                self.close_block(false);
            }
        }
        Some(())
    }

    pub(crate) fn open(&mut self, open: &Open) -> Option<()> {
        self.close_block(false);
        self.crc.append(open.crc, open.length, open.shift);
        self.body.push(std::mem::take(&mut self.tail))?;
        self.body.push_shared(open.bytes.clone())
    }

    pub(crate) fn finish(mut self) -> Option<Body> {
        if !self.close_block(true) {
            extend(&mut self.tail, &EMPTY_LAST)?;
        }
        extend(&mut self.tail, &self.crc.sum().to_le_bytes())?;
        // ISIZE is modulo 2^32
        let isize = self.crc.length() as u32;
        extend(&mut self.tail, &isize.to_le_bytes())?;
        self.body.push(self.tail)?;
        Some(self.body)
    }

    /// Writes the length of the stored block that is being written; `false`
    /// if there is none.
    fn close_block(&mut self, is_final: bool) -> bool {
        let Some(block) = self.block.take() else {
            return false;
        };
        let length = (self.tail.len() - block - STORED.len()) as u16;
        let [low, high] = length.to_le_bytes();
        let header = [u8::from(is_final), low, high, !low, !high];
        self.tail[block..block + STORED.len()].copy_from_slice(&header);
        true
    }
}
