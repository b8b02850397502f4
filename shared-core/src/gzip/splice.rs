//! Assembly of one gzip member from parts that were compressed before.
//!
//! A member is a header, deflate blocks, and a trailer with the checksum and the length of the
//! plain bytes (RFC 1952, section 2.3). Texts become stored blocks; open streams are inserted
//! between them unchanged; the checksums are combined. Nothing is compressed and no long stream
//! is copied, so the time does not depend on their lengths. The result is one member and not
//! several, because curl and Python's zlib stop after the first.

use std::ops::Range;

use super::crc::Crc;
use super::format::{trailer, EMPTY_LAST, HEADER, TRAILER};
use super::inflate::gunzip;
use super::open::OpenStream;
use crate::bytes::{extend, push, Bytes};
use crate::memory::{drain, LONG};

/// A part of a member's plain bytes, as it is passed to [`splice`]: plain, or compressed before.
#[derive(Clone, Copy, Debug)]
pub enum MemberPart<'a> {
    /// Bytes that are not compressed.
    Text(&'a [u8]),
    /// Bytes that were compressed before.
    Open(&'a OpenStream),
}

/// Assembles one gzip member. `None` if memory is refused.
pub fn splice<'a>(parts: impl IntoIterator<Item = MemberPart<'a>>) -> Option<Body> {
    let mut member = GzipMember::with_capacity(0, 0)?;
    for part in parts {
        match part {
            MemberPart::Text(text) => member.append_text(text)?,
            MemberPart::Open(open) => member.append_open(open)?,
        }
    }
    member.finish()
}

impl OpenStream {
    /// Decompresses the stream, and returns its plain bytes. `None` if memory is refused, or the
    /// stream does not match its length and checksum.
    pub fn inflate(&self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.length).ok()?;
        let member = splice([MemberPart::Open(self)])?.try_to_vec()?;
        gunzip(&member, length)
            .ok()
            .filter(|plain| plain.len() == length)
    }
}

/// Maximum number of bytes that are copied rather than referenced. A slice costs as much as
/// copying some KiB (a batch of ten times 6 KiB takes 7 % less CPU): its reference count, and
/// the host's overhead for each slice that it sends.
const COPIED: usize = 8 << 10;

/// The body of a response that is ready to be sent, in slices that own their bytes, so that it
/// outlives the cache entry.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// Bytes that belong to this body alone, in one allocation.
    own: Vec<u8>,
    /// Number of bytes of `own` that are in `slices`; the rest is the last slice.
    sliced: usize,
    slices: Vec<Slice>,
    /// Number of bytes in `slices`.
    length: u64,
    is_gzip: bool,
}

/// A slice of a body, by the owner of its bytes.
#[derive(Clone, Debug)]
enum Slice {
    /// A range of the body's own bytes.
    Own(Range<usize>),
    Owned(Vec<u8>),
    Shared(Bytes),
}

impl Body {
    /// Returns an empty body with the content coding identity.
    pub(crate) fn identity() -> Self {
        Self::default()
    }

    /// Creates a body that consists of these ranges of `own`. `None` if memory is refused.
    pub(crate) fn from_parts(own: Vec<u8>, parts: &[Range<usize>], is_gzip: bool) -> Option<Self> {
        let mut slices = Vec::new();
        slices.try_reserve_exact(parts.len()).ok()?;
        slices.extend(parts.iter().cloned().map(Slice::Own));
        Some(Self {
            sliced: own.len(),
            own,
            slices,
            length: parts.iter().map(|part| part.len() as u64).sum(),
            is_gzip,
        })
    }

    /// Returns the exact length of the body in bytes.
    pub fn length(&self) -> u64 {
        self.length + (self.own.len() - self.sliced) as u64
    }

    /// Whether the content coding is gzip; otherwise it is identity.
    pub fn is_gzip(&self) -> bool {
        self.is_gzip
    }

    /// Returns the length of the body without its content coding, in bytes.
    pub fn plain_length(&self) -> u64 {
        let last = self.slices().filter(|slice| !slice.is_empty()).last();
        match (self.is_gzip(), last) {
            // ISIZE of the trailer, modulo 2^32 (RFC 1952, 2.3.1)
            (true, Some([.., a, b, c, d])) => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
            (true, _) => 0,
            (false, _) => self.length(),
        }
    }

    /// Iterates over the slices of the body, in order; none is empty.
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

    /// Passes the slices to a function that copies them: the memory of a long body is released
    /// while it is drained.
    pub(crate) fn drain(&mut self, mut to: impl FnMut(&[u8])) {
        if self.own.len() < LONG {
            return self.slices().for_each(to);
        }
        for slice in &self.slices {
            match slice {
                Slice::Own(range) => drain(&mut self.own[range.clone()], &mut to),
                Slice::Owned(bytes) => to(bytes),
                Slice::Shared(bytes) => to(bytes),
            }
        }
        drain(&mut self.own[self.sliced..], to);
    }

    /// Returns a contiguous copy of the body.
    ///
    /// # Panics
    /// If memory is refused: for tests, see [`try_to_vec`](Self::try_to_vec).
    pub fn to_vec(&self) -> Vec<u8> {
        self.try_to_vec().expect("out of memory")
    }

    /// Returns a contiguous copy of the body. `None` if memory is refused.
    pub fn try_to_vec(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let length = usize::try_from(self.length()).ok()?;
        bytes.try_reserve_exact(length).ok()?;
        for slice in self.slices() {
            bytes.extend_from_slice(slice);
        }
        Some(bytes)
    }

    /// Reserves memory for `bytes` more bytes of the body's own. `None` if memory is refused.
    pub(crate) fn make_room(&mut self, bytes: usize) -> Option<()> {
        self.own.try_reserve_exact(bytes).ok()
    }

    /// Appends a copy of `bytes` to the body. `None` if memory is refused.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Option<()> {
        extend(&mut self.own, bytes)
    }

    /// Appends `bytes` to the body, which takes their memory over if they are long. `None` if
    /// memory is refused.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) -> Option<()> {
        if bytes.len() <= COPIED {
            self.copy(&bytes)
        } else {
            self.push_slice(bytes.len(), Slice::Owned(bytes))
        }
    }

    /// Appends bytes that the body shares with others, or a copy of short ones. `None` if memory is
    /// refused.
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

    /// Returns the number of bytes that [`push_shared`](Self::push_shared) would copy of `length`
    /// bytes.
    pub(crate) fn copied_length(length: usize) -> usize {
        if length <= COPIED {
            length
        } else {
            0
        }
    }
}

/// Header of a stored block that is not final, before its length is set.
const STORED: [u8; 5] = [0; 5];

/// Maximum length of a stored block.
const STORED_MAX: usize = 0xFFFF;

/// A gzip member that is assembled from texts and open streams, and its unfinished text. Its
/// functions return `None` if memory is refused, and the member must not be used any more then.
pub(crate) struct GzipMember {
    body: Body,
    /// Start of the unfinished text in the body's own bytes, after the room for a block's
    /// header. The checksum does not include it yet.
    text: Option<usize>,
    crc: Crc,
}

impl GzipMember {
    /// Creates a member with room for `texts` texts, and for `bytes` bytes of them and of copied
    /// streams.
    pub(crate) fn with_capacity(texts: usize, bytes: usize) -> Option<Self> {
        let frame = HEADER.len() + EMPTY_LAST.len() + TRAILER;
        let mut body = Body {
            is_gzip: true,
            ..Body::default()
        };
        body.make_room(frame + STORED.len() * (texts + bytes / STORED_MAX) + bytes)?;
        body.copy(&HEADER)?;
        Some(Self {
            body,
            text: None,
            crc: Crc::new(),
        })
    }

    /// Appends plain bytes to the unfinished text, or begins one.
    pub(crate) fn append_text(&mut self, more: &[u8]) -> Option<()> {
        if more.is_empty() {
            return Some(());
        }
        if self.text.is_none() {
            self.body.copy(&STORED)?;
            self.text = Some(self.body.own.len());
        }
        self.body.copy(more)
    }

    /// Returns the plain bytes that are not yet in a block: the caller may compress them and call
    /// [`replace`](Self::replace).
    pub(crate) fn unfinished_text(&self) -> &[u8] {
        self.text.map_or(&[], |text| &self.body.own[text..])
    }

    /// Replaces the unfinished text by `open`, its compressed form.
    pub(crate) fn replace(&mut self, open: &OpenStream) -> Option<()> {
        if let Some(text) = self.text.take() {
            self.body.own.truncate(text - STORED.len());
        }
        self.append_open(open)
    }

    /// Ends the unfinished text, and appends an open stream.
    pub(crate) fn append_open(&mut self, open: &OpenStream) -> Option<()> {
        self.end_text(false)?;
        self.crc.append(open.crc, open.length, open.shift);
        self.body.push_shared(&open.bytes)
    }

    /// Appends the final block and the trailer, and returns the member as a body.
    pub(crate) fn finish(mut self) -> Option<Body> {
        if self.text.is_some() {
            self.end_text(true)?;
        } else {
            self.body.copy(&EMPTY_LAST)?;
        }
        self.body.copy(&trailer(&self.crc))?;
        Some(self.body)
    }

    /// Turns the unfinished text into stored blocks, and adds it to the checksum.
    #[inline]
    fn end_text(&mut self, is_final: bool) -> Option<()> {
        let Some(start) = self.text.take() else {
            return Some(());
        };
        let text = &self.body.own[start..];
        self.crc.update(text);
        if text.len() > STORED_MAX {
            return self.split(start, is_final);
        }
        self.head_block(start, text.len(), is_final);
        Some(())
    }

    /// Splits a text that is longer than a block can be.
    #[cold]
    fn split(&mut self, start: usize, is_final: bool) -> Option<()> {
        let own = &mut self.body.own;
        let length = own.len() - start;
        let last = (length - 1) / STORED_MAX;
        let more = STORED.len() * last;
        own.try_reserve(more).ok()?;
        own.resize(own.len() + more, 0);
        // starting at the last block: each moves by the headers of those before it
        for n in (0..=last).rev() {
            let from = start + n * STORED_MAX;
            let to = from + n * STORED.len();
            let block = STORED_MAX.min(length - n * STORED_MAX);
            self.body.own.copy_within(from..from + block, to);
            self.head_block(to, block, is_final && n == last);
        }
        Some(())
    }

    /// Writes the header of the stored block whose text starts at `start`.
    fn head_block(&mut self, start: usize, length: usize, is_final: bool) {
        let [low, high] = (length as u16).to_le_bytes();
        let header = [u8::from(is_final), low, high, !low, !high];
        self.body.own[start - STORED.len()..start].copy_from_slice(&header);
    }
}
