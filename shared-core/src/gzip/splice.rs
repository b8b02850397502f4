//! One gzip member of parts that were coded before.
//!
//! A member is a header, deflate blocks, and a trailer with the sum and the
//! length of the plain bytes (RFC 1952, section 2.3). Texts become stored
//! blocks; open streams stand as they are, between them; the sum is combined.
//! Nothing is coded and no long stream is copied, so the time does not depend on
//! their lengths. One member, not several: curl and Python's zlib stop after
//! the first.

use std::ops::Range;

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
    let mut member = Member::default();
    for part in parts {
        match part {
            Part::Text(text) => member.text(text)?,
            Part::Open(open) => member.open(open)?,
        }
    }
    member.finish()
}

/// Most that is copied rather than referred to, in bytes. A slice costs what
/// copying some KiB does (a batch of ten times 6 KiB takes 7 % less CPU): counting its owners, and what a host needs for each
/// piece that it sends.
const COPIED: usize = 8 << 10;

/// What is sent, in slices that own what they refer to, so that it outlives
/// the cache's entry.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// What belongs to no other, all of it in one piece of memory.
    own: Vec<u8>,
    /// How much of `own` is in `slices`; the rest is the last slice.
    sliced: usize,
    slices: Vec<Slice>,
    /// Bytes in `slices`.
    length: u64,
    is_gzip: bool,
}

#[derive(Clone, Debug)]
enum Slice {
    /// Of the body's own bytes.
    Own(Range<usize>),
    Owned(Vec<u8>),
    Shared(Bytes),
}

impl Body {
    /// An empty one, of content coding identity.
    pub(crate) fn identity() -> Self {
        Self::default()
    }

    /// Its exact length in bytes.
    pub fn length(&self) -> u64 {
        self.length + (self.own.len() - self.sliced) as u64
    }

    /// Whether its content coding is gzip; identity if not.
    pub fn is_gzip(&self) -> bool {
        self.is_gzip
    }

    /// Its bytes, in order; no slice is empty.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let last = &self.own[self.sliced..];
        self.slices
            .iter()
            .map(|slice| match slice {
                Slice::Own(range) => &self.own[range.clone()],
                Slice::Owned(bytes) => bytes,
                Slice::Shared(bytes) => bytes,
            })
            .chain(Some(last).filter(|last| !last.is_empty()))
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
        let length = usize::try_from(self.length()).ok()?;
        bytes.try_reserve_exact(length).ok()?;
        for slice in self.slices() {
            bytes.extend_from_slice(slice);
        }
        Some(bytes)
    }

    /// Makes room for so many bytes of its own. `None` when memory is refused.
    pub(crate) fn make_room(&mut self, bytes: usize) -> Option<()> {
        self.own.try_reserve_exact(bytes).ok()
    }

    /// `None` when memory is refused.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Option<()> {
        extend(&mut self.own, bytes)
    }

    /// `None` when memory is refused.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) -> Option<()> {
        if bytes.len() <= COPIED {
            self.copy(&bytes)
        } else {
            self.push_slice(bytes.len(), Slice::Owned(bytes))
        }
    }

    /// `None` when memory is refused.
    pub(crate) fn push_shared(&mut self, bytes: &Bytes) -> Option<()> {
        if bytes.len() <= COPIED {
            self.copy(bytes)
        } else {
            self.push_slice(bytes.len(), Slice::Shared(bytes.clone()))
        }
    }

    fn push_slice(&mut self, length: usize, slice: Slice) -> Option<()> {
        let own = self.sliced..self.own.len();
        if !own.is_empty() {
            push(&mut self.slices, Slice::Own(own.clone()))?;
            self.sliced = own.end;
            self.length += own.len() as u64;
        }
        push(&mut self.slices, slice)?;
        self.length += length as u64;
        Some(())
    }

    /// How much of so many bytes [`push_shared`](Self::push_shared) would copy.
    pub(crate) fn copied(length: usize) -> usize {
        if length <= COPIED {
            length
        } else {
            0
        }
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
    /// Where in the body's own bytes the header of a stored block is that can
    /// grow. The texts in it are not in the sum yet.
    block: Option<usize>,
    crc: Crc,
}

impl Default for Member {
    fn default() -> Self {
        let mut body = Body {
            own: Vec::with_capacity(192),
            is_gzip: true,
            ..Body::default()
        };
        body.own.extend_from_slice(&HEADER);
        Self {
            body,
            block: None,
            crc: Crc::new(),
        }
    }
}

impl Member {
    /// Makes room for so many bytes of texts and of what is copied. `None`
    /// when memory is refused.
    pub(crate) fn make_room(&mut self, texts: usize, bytes: usize) -> Option<()> {
        let frame = EMPTY_LAST.len() + 8 + STORED.len() * (texts + bytes / STORED_MAX);
        self.body.make_room(frame + bytes)
    }

    pub(crate) fn text(&mut self, text: &[u8]) -> Option<()> {
        let mut rest = text;
        while !rest.is_empty() {
            let own = &mut self.body.own;
            let block = match self.block {
                Some(block) => block,
                None => {
                    let block = own.len();
                    extend(own, &STORED)?;
                    *self.block.insert(block)
                }
            };
            let used = own.len() - block - STORED.len();
            let (now, later) = rest.split_at(rest.len().min(STORED_MAX - used));
            extend(own, now)?;
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
        self.body.push_shared(&open.bytes)
    }

    pub(crate) fn finish(mut self) -> Option<Body> {
        if !self.close_block(true) {
            self.body.copy(&EMPTY_LAST)?;
        }
        self.body.copy(&self.crc.sum().to_le_bytes())?;
        // ISIZE is modulo 2^32
        let isize = self.crc.length() as u32;
        self.body.copy(&isize.to_le_bytes())?;
        Some(self.body)
    }

    /// Writes the length of the stored block that is being written, and sums
    /// it up; `false` if there is none.
    fn close_block(&mut self, is_final: bool) -> bool {
        let Some(block) = self.block.take() else {
            return false;
        };
        let (header, text) = self.body.own[block..].split_at_mut(STORED.len());
        self.crc.update(text);
        let [low, high] = (text.len() as u16).to_le_bytes();
        header.copy_from_slice(&[u8::from(is_final), low, high, !low, !high]);
        true
    }
}
