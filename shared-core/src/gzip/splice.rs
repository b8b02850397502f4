//! One gzip member of parts that were coded before.
//!
//! A member is a header, deflate blocks, and a trailer with the sum and the
//! length of the plain bytes (RFC 1952, section 2.3). Texts become stored
//! blocks; open streams stand as they are, between them; the sum is combined.
//! Nothing is coded and no long stream is copied, so the time does not depend on
//! their lengths. One member, not several: curl and Python's zlib stop after
//! the first.

use std::ops::Range;
use std::sync::Arc;

use super::crc::Crc;
use super::open::Open;

/// A part of a member's plain bytes.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// Bytes as they are.
    Text(&'a [u8]),
    /// Coded ones.
    Open(&'a Open),
}

/// Assembles one gzip member.
pub fn splice<'a>(parts: impl IntoIterator<Item = Part<'a>>) -> Body {
    let mut member = Member::default();
    for part in parts {
        match part {
            Part::Text(text) => member.text(text),
            Part::Open(open) => member.open(open),
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
    Shared(Arc<[u8]>),
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
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length() as usize);
        for slice in self.slices() {
            bytes.extend_from_slice(slice);
        }
        bytes
    }

    /// Makes room for so many bytes of its own. `None` when memory is refused.
    pub(crate) fn make_room(&mut self, bytes: usize) -> Option<()> {
        self.own.try_reserve_exact(bytes).ok()
    }

    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        self.own.extend_from_slice(bytes);
    }

    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        if bytes.len() <= COPIED {
            self.copy(&bytes);
        } else {
            self.push_slice(bytes.len(), Slice::Owned(bytes));
        }
    }

    pub(crate) fn push_shared(&mut self, bytes: &Arc<[u8]>) {
        if bytes.len() <= COPIED {
            self.copy(bytes);
        } else {
            self.push_slice(bytes.len(), Slice::Shared(Arc::clone(bytes)));
        }
    }

    fn push_slice(&mut self, length: usize, slice: Slice) {
        let own = self.sliced..self.own.len();
        if !own.is_empty() {
            self.sliced = own.end;
            self.length += own.len() as u64;
            self.slices.push(Slice::Own(own));
        }
        self.length += length as u64;
        self.slices.push(slice);
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

/// A member that is being written.
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
        body.copy(&HEADER);
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

    pub(crate) fn text(&mut self, text: &[u8]) {
        let mut rest = text;
        while !rest.is_empty() {
            let own = &mut self.body.own;
            let block = *self.block.get_or_insert_with(|| {
                own.extend_from_slice(&STORED);
                own.len() - STORED.len()
            });
            let used = own.len() - block - STORED.len();
            let (now, later) = rest.split_at(rest.len().min(STORED_MAX - used));
            own.extend_from_slice(now);
            rest = later;
            if used + now.len() == STORED_MAX && !rest.is_empty() {
                self.close_block(false);
            }
        }
    }

    pub(crate) fn open(&mut self, open: &Open) {
        self.close_block(false);
        self.crc.append(open.crc, open.length, open.shift);
        self.body.push_shared(&open.bytes);
    }

    pub(crate) fn finish(mut self) -> Body {
        if !self.close_block(true) {
            self.body.copy(&EMPTY_LAST);
        }
        self.body.copy(&self.crc.sum().to_le_bytes());
        // ISIZE is modulo 2^32
        let isize = self.crc.length() as u32;
        self.body.copy(&isize.to_le_bytes());
        self.body
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
