//! One gzip member of parts that were coded before.
//!
//! A member is a header, deflate blocks, and a trailer with the sum and the
//! length of the plain bytes (RFC 1952, section 2.3). Texts become stored
//! blocks; open streams stand as they are, between them; the sum is combined.
//! Nothing is coded and no stream is copied, so the time does not depend on
//! their lengths. One member, not several: curl and Python's zlib stop after
//! the first.

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
    let mut member = Member::new();
    for part in parts {
        match part {
            Part::Text(text) => member.text(text),
            Part::Open(open) => member.open(open),
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
    Shared(Arc<[u8]>),
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
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length as usize);
        for slice in self.slices() {
            bytes.extend_from_slice(slice);
        }
        bytes
    }

    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        self.push_slice(Slice::Owned(bytes));
    }

    pub(crate) fn push_shared(&mut self, bytes: Arc<[u8]>) {
        self.push_slice(Slice::Shared(bytes));
    }

    fn push_slice(&mut self, slice: Slice) {
        let length = slice.bytes().len();
        if length > 0 {
            self.length += length as u64;
            self.slices.push(slice);
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

    pub(crate) fn text(&mut self, text: &[u8]) {
        self.crc.update(text);
        let mut rest = text;
        while !rest.is_empty() {
            let block = *self.block.get_or_insert_with(|| {
                self.tail.extend_from_slice(&STORED);
                self.tail.len() - STORED.len()
            });
            let used = self.tail.len() - block - STORED.len();
            let (now, later) = rest.split_at(rest.len().min(STORED_MAX - used));
            self.tail.extend_from_slice(now);
            rest = later;
            if used + now.len() == STORED_MAX && !rest.is_empty() {
                self.close_block(false);
            }
        }
    }

    pub(crate) fn open(&mut self, open: &Open) {
        self.close_block(false);
        self.crc.append(open.crc, open.length, open.shift);
        self.body.push(std::mem::take(&mut self.tail));
        self.body.push_shared(Arc::clone(&open.bytes));
    }

    pub(crate) fn finish(mut self) -> Body {
        if !self.close_block(true) {
            self.tail.extend_from_slice(&EMPTY_LAST);
        }
        self.tail.extend_from_slice(&self.crc.sum().to_le_bytes());
        // ISIZE is modulo 2^32
        let isize = self.crc.length() as u32;
        self.tail.extend_from_slice(&isize.to_le_bytes());
        self.body.push(self.tail);
        self.body
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
