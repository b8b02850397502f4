//! Assembly of one gzip member from parts that were compressed before.
//!
//! A member is a header, deflate blocks, and a trailer with the checksum and the length of the
//! plain bytes (RFC 1952, section 2.3). Texts become stored blocks; open streams are inserted
//! between them unchanged; the checksums are combined. Nothing is compressed and no long stream
//! is copied, so the time does not depend on their lengths. The result is one member and not
//! several, because curl and Python's zlib stop after the first.

use std::ops::Range;

use super::crc::RunningCrc;
use super::format::{member_trailer, EMPTY_FINAL_BLOCK, MEMBER_HEADER, TRAILER_LENGTH};
use super::open_stream::OpenDeflateStream;
use crate::bytes::{try_extend, try_push, SharedBytes};
use crate::content_coding::SupportedContentCoding;
use crate::memory::{drain_body_to_host, release_unused_capacity, DRAINED_BODY_BYTES};

/// A part of a member's plain bytes, as it is passed to [`assemble_gzip_member`]: plain, or
/// compressed before.
#[derive(Clone, Copy, Debug)]
pub enum GzipMemberInput<'a> {
    /// Bytes that are not compressed.
    Text(&'a [u8]),
    /// Bytes that were compressed before.
    Open(&'a OpenDeflateStream),
}

/// Assembles one gzip member. `None` if memory is refused.
pub fn assemble_gzip_member<'a>(
    parts: impl IntoIterator<Item = GzipMemberInput<'a>>,
) -> Option<SlicedBody> {
    let mut member = GzipMemberBuilder::with_capacity(0, 0)?;
    for part in parts {
        match part {
            GzipMemberInput::Text(text) => member.append_plain_text(text)?,
            GzipMemberInput::Open(open) => member.append_open_stream(open)?,
        }
    }
    member.finish_gzip_member()
}

/// Maximum number of bytes that are copied rather than referenced. A slice costs as much as
/// copying some KiB (a batch of ten times 6 KiB takes 7 % less CPU): its reference count, and
/// the host's overhead for each slice that it sends.
const MAX_COPIED_LENGTH: usize = 8 << 10;

/// The body of a response that is ready to be sent, in slices that own their bytes, so that it
/// outlives the cache entry.
#[derive(Clone, Debug, Default)]
pub struct SlicedBody {
    /// Bytes that belong to this body alone, in one allocation.
    own: Vec<u8>,
    /// Number of bytes of `own` that are in `body_slices`; the rest is the last slice.
    sliced: usize,
    body_slices: Vec<OwnedBodySlice>,
    /// Number of bytes in `body_slices`.
    byte_length: u64,
    /// Content coding; `None` for identity.
    coding: Option<SupportedContentCoding>,
    /// Length of a compressed body without its content coding, in bytes.
    plain_length: u64,
}

/// A slice of a body, by the owner of its bytes.
#[derive(Clone, Debug)]
enum OwnedBodySlice {
    /// A range of the body's own bytes.
    Own(Range<usize>),
    Owned(Vec<u8>),
    Shared(SharedBytes),
}

impl SlicedBody {
    /// Returns an empty body with the content coding identity.
    pub(crate) fn empty_identity_body() -> Self {
        Self::default()
    }

    /// Returns an empty body with this content coding, whose [plain
    /// length](Self::set_plain_length) is set when it is complete.
    pub(crate) fn empty_compressed_body(coding: SupportedContentCoding) -> Self {
        Self {
            coding: Some(coding),
            ..Self::default()
        }
    }

    /// Creates a body that consists of these ranges of `own`, from its content coding and the length
    /// of its plain bytes, or `None` for identity. Returns `None` if memory is refused.
    pub(crate) fn from_buffer_ranges(
        own: Vec<u8>,
        parts: &[Range<usize>],
        coding: Option<(SupportedContentCoding, u64)>,
    ) -> Option<Self> {
        let mut slices = Vec::new();
        slices.try_reserve_exact(parts.len()).ok()?;
        slices.extend(parts.iter().cloned().map(OwnedBodySlice::Own));
        Some(Self {
            sliced: own.len(),
            own,
            body_slices: slices,
            byte_length: parts.iter().map(|part| part.len() as u64).sum(),
            coding: coding.map(|(coding, _)| coding),
            plain_length: coding.map_or(0, |(_, plain_length)| plain_length),
        })
    }

    /// Returns the exact length of the body in bytes.
    pub fn byte_length(&self) -> u64 {
        self.byte_length + (self.own.len() - self.sliced) as u64
    }

    /// Returns the content coding of the body; `None` for identity.
    pub fn content_coding(&self) -> Option<SupportedContentCoding> {
        self.coding
    }

    /// Whether the content coding is gzip.
    pub fn is_gzip(&self) -> bool {
        self.coding == Some(SupportedContentCoding::Gzip)
    }

    /// Returns the length of the body without its content coding, in bytes.
    pub fn plain_length(&self) -> u64 {
        match self.coding {
            Some(_) => self.plain_length,
            None => self.byte_length(),
        }
    }

    /// Sets the length of a compressed body without its content coding, in bytes.
    pub(crate) fn set_plain_length(&mut self, length: u64) {
        self.plain_length = length;
    }

    /// Iterates over the slices of the body, in order; none is empty.
    pub fn body_slices(&self) -> impl Iterator<Item = &[u8]> {
        let last = &self.own[self.sliced..];
        self.body_slices
            .iter()
            .map(|slice| match slice {
                OwnedBodySlice::Own(range) => &self.own[range.clone()],
                OwnedBodySlice::Owned(bytes) => bytes,
                OwnedBodySlice::Shared(bytes) => bytes,
            })
            .chain(Some(last).filter(|last| !last.is_empty()))
    }

    /// Passes the slices to a function that copies them: the memory of a long body is released
    /// while it is drained.
    pub(crate) fn drain_body_into(&mut self, mut to: impl FnMut(&[u8])) {
        if self.own.len() < DRAINED_BODY_BYTES {
            return self.body_slices().for_each(to);
        }
        for slice in &self.body_slices {
            match slice {
                OwnedBodySlice::Own(range) => {
                    drain_body_to_host(&mut self.own[range.clone()], &mut to);
                }
                OwnedBodySlice::Owned(bytes) => to(bytes),
                OwnedBodySlice::Shared(bytes) => to(bytes),
            }
        }
        drain_body_to_host(&mut self.own[self.sliced..], to);
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
        let length = usize::try_from(self.byte_length()).ok()?;
        bytes.try_reserve_exact(length).ok()?;
        for slice in self.body_slices() {
            bytes.extend_from_slice(slice);
        }
        Some(bytes)
    }

    /// Reserves memory for `bytes` more bytes of the body's own. `None` if memory is refused.
    pub(crate) fn reserve_owned_buffer(&mut self, bytes: usize) -> Option<()> {
        self.own.try_reserve_exact(bytes).ok()
    }

    /// Returns the bytes that belong to this body alone.
    pub(crate) fn owned_bytes(&self) -> &[u8] {
        &self.own
    }

    /// Returns the bytes that belong to this body alone, for a change of bytes or of the length of
    /// the end that is not in a slice yet.
    pub(crate) fn owned_bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    /// Appends a copy of `bytes` to the body. `None` if memory is refused.
    pub(crate) fn append_copy(&mut self, bytes: &[u8]) -> Option<()> {
        try_extend(&mut self.own, bytes)
    }

    /// Appends `bytes` to the body, which takes their memory over if they are long. `None` if
    /// memory is refused.
    pub(crate) fn append_owned(&mut self, bytes: Vec<u8>) -> Option<()> {
        if bytes.len() <= MAX_COPIED_LENGTH {
            self.append_copy(&bytes)
        } else {
            self.push_slice(bytes.len(), OwnedBodySlice::Owned(bytes))
        }
    }

    /// Appends bytes that the body shares with others, or a copy of short ones. `None` if memory is
    /// refused.
    pub(crate) fn append_shared(&mut self, bytes: &SharedBytes) -> Option<()> {
        if bytes.len() <= MAX_COPIED_LENGTH {
            self.append_copy(bytes)
        } else {
            self.push_slice(bytes.len(), OwnedBodySlice::Shared(bytes.clone()))
        }
    }

    /// Appends a slice of `length` bytes, after the owned bytes that are not in a slice yet.
    /// Returns `None` if memory is refused.
    fn push_slice(&mut self, length: usize, slice: OwnedBodySlice) -> Option<()> {
        let own = self.sliced..self.own.len();
        if !own.is_empty() {
            try_push(&mut self.body_slices, OwnedBodySlice::Own(own.clone()))?;
            self.sliced = own.end;
            self.byte_length += own.len() as u64;
        }
        try_push(&mut self.body_slices, slice)?;
        self.byte_length += length as u64;
        Some(())
    }

    /// Returns the number of bytes that [`append_shared`](Self::append_shared) would copy of
    /// `length` bytes.
    pub(crate) fn bytes_copied_when_shared(length: usize) -> usize {
        if length <= MAX_COPIED_LENGTH {
            length
        } else {
            0
        }
    }
}

/// Header of a stored block that is not final, before its length is set.
const STORED_BLOCK_HEADER: [u8; 5] = [0; 5];

/// Maximum length of a stored block.
const MAX_STORED_LENGTH: usize = 0xFFFF;

/// A gzip member while it is assembled from texts and open streams, and its unfinished text. Its
/// functions return `None` if memory is refused, and the member must not be used any more then.
pub(crate) struct GzipMemberBuilder {
    body: SlicedBody,
    /// Start of the unfinished text in the body's own bytes, after the room for a block's
    /// header. The checksum does not include it yet.
    text: Option<usize>,
    crc: RunningCrc,
    /// Whether the last block is final.
    is_ended: bool,
}

impl GzipMemberBuilder {
    /// Creates a member with room for `texts` texts, and for `bytes` bytes of them and of copied
    /// streams.
    pub(crate) fn with_capacity(texts: usize, bytes: usize) -> Option<Self> {
        let frame = MEMBER_HEADER.len() + EMPTY_FINAL_BLOCK.len() + TRAILER_LENGTH;
        let mut body = SlicedBody::empty_compressed_body(SupportedContentCoding::Gzip);
        body.reserve_owned_buffer(
            frame + STORED_BLOCK_HEADER.len() * (texts + bytes / MAX_STORED_LENGTH) + bytes,
        )?;
        body.append_copy(&MEMBER_HEADER)?;
        Some(Self {
            body,
            text: None,
            crc: RunningCrc::new(),
            is_ended: false,
        })
    }

    /// Appends plain bytes to the unfinished text, or begins one.
    pub(crate) fn append_plain_text(&mut self, more: &[u8]) -> Option<()> {
        if more.is_empty() {
            return Some(());
        }
        if self.text.is_none() {
            self.body.append_copy(&STORED_BLOCK_HEADER)?;
            self.text = Some(self.body.own.len());
        }
        self.body.append_copy(more)
    }

    /// Returns the plain bytes that are not yet in a block: the caller may compress them and call
    /// [`replace_pending_with_compressed`](Self::replace_pending_with_compressed).
    pub(crate) fn pending_plain_text(&self) -> &[u8] {
        self.text.map_or(&[], |text| &self.body.own[text..])
    }

    /// Replaces the unfinished text by `open`, its compressed form.
    pub(crate) fn replace_pending_with_compressed(
        &mut self,
        open: &OpenDeflateStream,
    ) -> Option<()> {
        if let Some(text) = self.text.take() {
            self.body.own.truncate(text - STORED_BLOCK_HEADER.len());
        }
        self.append_open_stream(open)
    }

    /// Replaces the unfinished text by `blocks`, its compressed form. Nothing is appended after a
    /// final block.
    pub(crate) fn replace_pending_with_blocks(
        &mut self,
        blocks: &[u8],
        is_final: bool,
    ) -> Option<()> {
        if let Some(start) = self.text.take() {
            self.crc.update_checksum(&self.body.own[start..]);
            self.body.own.truncate(start - STORED_BLOCK_HEADER.len());
        }
        self.is_ended = is_final;
        self.body.append_copy(blocks)
    }

    /// Ends the unfinished text, and appends an open stream.
    pub(crate) fn append_open_stream(&mut self, open: &OpenDeflateStream) -> Option<()> {
        self.seal_pending_text(false)?;
        self.crc.combine_crc(open.crc, open.length, open.shift);
        self.body.append_shared(&open.bytes)
    }

    /// Appends the final block and the trailer, and returns the member as a body.
    pub(crate) fn finish_gzip_member(mut self) -> Option<SlicedBody> {
        if self.text.is_some() {
            self.seal_pending_text(true)?;
        } else if !self.is_ended {
            self.body.append_copy(&EMPTY_FINAL_BLOCK)?;
        }
        self.body.append_copy(&member_trailer(&self.crc))?;
        if self.body.own.len() < self.body.own.capacity() / 2 {
            // the text was longer
            release_unused_capacity(&mut self.body.own);
        }
        self.body.plain_length = self.crc.byte_count();
        Some(self.body)
    }

    /// Turns the unfinished text into stored blocks, and adds it to the checksum.
    #[inline]
    fn seal_pending_text(&mut self, is_final: bool) -> Option<()> {
        let Some(start) = self.text.take() else {
            return Some(());
        };
        let text = &self.body.own[start..];
        self.crc.update_checksum(text);
        if text.len() > MAX_STORED_LENGTH {
            return self.split_into_stored_blocks(start, is_final);
        }
        self.write_block_header(start, text.len(), is_final);
        Some(())
    }

    /// Splits a text that is longer than a block can be.
    #[cold]
    fn split_into_stored_blocks(&mut self, start: usize, is_final: bool) -> Option<()> {
        let own = &mut self.body.own;
        let length = own.len() - start;
        let last = (length - 1) / MAX_STORED_LENGTH;
        let more = STORED_BLOCK_HEADER.len() * last;
        own.try_reserve(more).ok()?;
        own.resize(own.len() + more, 0);
        // starting at the last block: each moves by the headers of those before it
        for n in (0..=last).rev() {
            let from = start + n * MAX_STORED_LENGTH;
            let to = from + n * STORED_BLOCK_HEADER.len();
            let block = MAX_STORED_LENGTH.min(length - n * MAX_STORED_LENGTH);
            self.body.own.copy_within(from..from + block, to);
            self.write_block_header(to, block, is_final && n == last);
        }
        Some(())
    }

    /// Writes the header of the stored block whose text starts at `start`.
    fn write_block_header(&mut self, start: usize, length: usize, is_final: bool) {
        let [low, high] = (length as u16).to_le_bytes();
        let header = [u8::from(is_final), low, high, !low, !high];
        self.body.own[start - STORED_BLOCK_HEADER.len()..start].copy_from_slice(&header);
    }
}
