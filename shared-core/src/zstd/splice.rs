//! Assembly of one zstd frame from parts that were compressed before.
//!
//! A frame is a header with the length of the plain bytes, and blocks (RFC 8878, section 3.1.1).
//! Texts become raw blocks; open blocks are inserted between them unchanged. There is no checksum:
//! the frame would have to be decompressed for it. Nothing is compressed and no long part is
//! copied, so the time does not depend on their lengths. The result is one frame and not several,
//! because many decoders stop after the first.

use super::frame::{
    frame_header, raw_block_header, BLOCK_HEADER_LENGTH, EMPTY_LAST_BLOCK, FRAME_HEADER_LENGTH,
    MAX_BLOCK_LENGTH, MIN_WINDOW_LOG,
};
use super::open_blocks::OpenZstdBlocks;
use crate::content_coding::SupportedContentCoding;
use crate::gzip::splice::SlicedBody;
use crate::memory::release_unused_capacity;

/// A part of a frame's plain bytes, as it is passed to [`assemble_zstd_frame`]: plain, or
/// compressed before.
#[derive(Clone, Copy, Debug)]
pub enum ZstdFrameInput<'a> {
    /// Bytes that are not compressed.
    Text(&'a [u8]),
    /// Bytes that were compressed before.
    Open(&'a OpenZstdBlocks),
}

/// Assembles one zstd frame. `None` if memory is refused, or the plain bytes are 4 GiB or longer.
pub fn assemble_zstd_frame<'a>(
    parts: impl IntoIterator<Item = ZstdFrameInput<'a>>,
) -> Option<SlicedBody> {
    let mut frame = ZstdFrameBuilder::with_capacity(0, 0)?;
    for part in parts {
        match part {
            ZstdFrameInput::Text(text) => frame.append_plain_text(text)?,
            ZstdFrameInput::Open(open) => frame.append_open_blocks(open)?,
        }
    }
    frame.finish_zstd_frame()
}

/// A zstd frame while it is assembled from texts and open blocks, and its unfinished text. Its
/// functions return `None` if memory is refused, and the frame must not be used any more then.
pub(crate) struct ZstdFrameBuilder {
    body: SlicedBody,
    /// Start of the unfinished text in the body's own bytes, after the room for a block's header.
    /// `length` does not include it yet.
    text: Option<usize>,
    /// Number of plain bytes.
    length: u64,
    /// Logarithm of the window in bytes that a decoder needs.
    window_log: u32,
}

impl ZstdFrameBuilder {
    /// Creates a frame with room for `texts` texts, and for `bytes` bytes of them and of copied
    /// blocks.
    pub(crate) fn with_capacity(texts: usize, bytes: usize) -> Option<Self> {
        let frame = FRAME_HEADER_LENGTH + EMPTY_LAST_BLOCK.len();
        let mut body = SlicedBody::empty_compressed_body(SupportedContentCoding::Zstd);
        body.reserve_owned_buffer(
            frame + BLOCK_HEADER_LENGTH * (texts + bytes / MAX_BLOCK_LENGTH) + bytes,
        )?;
        // replaced when the length is known
        body.append_copy(&[0; FRAME_HEADER_LENGTH])?;
        Some(Self {
            body,
            text: None,
            length: 0,
            window_log: MIN_WINDOW_LOG,
        })
    }

    /// Appends plain bytes to the unfinished text, or begins one.
    pub(crate) fn append_plain_text(&mut self, more: &[u8]) -> Option<()> {
        if more.is_empty() {
            return Some(());
        }
        if self.text.is_none() {
            self.body.append_copy(&[0; BLOCK_HEADER_LENGTH])?;
            self.text = Some(self.body.owned_bytes().len());
        }
        self.body.append_copy(more)
    }

    /// Returns the plain bytes that are not yet in a block: the caller may compress them and call
    /// [`replace_pending_with_compressed`](Self::replace_pending_with_compressed).
    pub(crate) fn pending_plain_text(&self) -> &[u8] {
        self.text
            .map_or(&[], |text| &self.body.owned_bytes()[text..])
    }

    /// Replaces the unfinished text by `open`, its compressed form.
    pub(crate) fn replace_pending_with_compressed(&mut self, open: &OpenZstdBlocks) -> Option<()> {
        if let Some(text) = self.text.take() {
            self.body
                .owned_bytes_mut()
                .truncate(text - BLOCK_HEADER_LENGTH);
        }
        self.append_open_blocks(open)
    }

    /// Ends the unfinished text, and appends open blocks.
    pub(crate) fn append_open_blocks(&mut self, open: &OpenZstdBlocks) -> Option<()> {
        self.seal_pending_text(false)?;
        self.length += open.length;
        self.window_log = self.window_log.max(open.window_log);
        self.body.append_shared(&open.bytes)
    }

    /// Appends the last block, writes the header, and returns the frame as a body. `None` also if
    /// the plain bytes are 4 GiB or longer.
    pub(crate) fn finish_zstd_frame(mut self) -> Option<SlicedBody> {
        match self.text {
            Some(_) => self.seal_pending_text(true)?,
            None => self.body.append_copy(&EMPTY_LAST_BLOCK)?,
        }
        let length = u32::try_from(self.length).ok()?;
        let own = self.body.owned_bytes_mut();
        own[..FRAME_HEADER_LENGTH].copy_from_slice(&frame_header(self.window_log, length));
        if own.len() < own.capacity() / 2 {
            // the text was longer
            release_unused_capacity(own);
        }
        self.body.set_plain_length(self.length);
        Some(self.body)
    }

    /// Turns the unfinished text into raw blocks, and adds it to the length.
    #[inline]
    fn seal_pending_text(&mut self, is_last: bool) -> Option<()> {
        let Some(start) = self.text.take() else {
            return Some(());
        };
        let length = self.body.owned_bytes().len() - start;
        self.length += length as u64;
        if length > MAX_BLOCK_LENGTH {
            return self.split_into_raw_blocks(start, is_last);
        }
        self.write_block_header(start, length, is_last);
        Some(())
    }

    /// Splits a text that is longer than a block can be.
    #[cold]
    fn split_into_raw_blocks(&mut self, start: usize, is_last: bool) -> Option<()> {
        let own = self.body.owned_bytes_mut();
        let length = own.len() - start;
        let last = (length - 1) / MAX_BLOCK_LENGTH;
        let more = BLOCK_HEADER_LENGTH * last;
        own.try_reserve(more).ok()?;
        own.resize(own.len() + more, 0);
        // starting at the last block: each moves by the headers of those before it
        for n in (0..=last).rev() {
            let from = start + n * MAX_BLOCK_LENGTH;
            let to = from + n * BLOCK_HEADER_LENGTH;
            let block = MAX_BLOCK_LENGTH.min(length - n * MAX_BLOCK_LENGTH);
            self.body
                .owned_bytes_mut()
                .copy_within(from..from + block, to);
            self.write_block_header(to, block, is_last && n == last);
        }
        Some(())
    }

    /// Writes the header of the raw block whose text starts at `start`.
    fn write_block_header(&mut self, start: usize, length: usize, is_last: bool) {
        self.body.owned_bytes_mut()[start - BLOCK_HEADER_LENGTH..start]
            .copy_from_slice(&raw_block_header(length, is_last));
    }
}

#[cfg(test)]
mod tests {
    use super::{assemble_zstd_frame, OpenZstdBlocks, ZstdFrameInput, MIN_WINDOW_LOG};
    use crate::zstd::decompress_zstd;
    use crate::zstd::open_blocks::compress_to_open_blocks;

    /// Compresses to the blocks of a frame of its own, which are not open: the mark of the last
    /// one is removed, but repeated offsets are as at the start of a frame.
    fn closed_blocks(plain: &[u8], level: u8) -> OpenZstdBlocks {
        let frame = zstd::bulk::compress(plain, i32::from(level)).unwrap();
        let descriptor = frame[4];
        // a single segment has no window, and the length in 1, 2, 4 or 8 bytes
        assert_eq!(descriptor & 0b0011_1111, 0b0010_0000);
        let header = 5 + (1 << (descriptor >> 6));
        let mut blocks = frame[header..].to_vec();
        let mut at = 0;
        loop {
            let word = u32::from_le_bytes([blocks[at], blocks[at + 1], blocks[at + 2], 0]);
            if word & 1 == 1 {
                blocks[at] &= !1;
                break;
            }
            let is_rle = (word >> 1) & 3 == 1;
            at += 3 + if is_rle { 1 } else { (word >> 3) as usize };
        }
        OpenZstdBlocks {
            bytes: blocks.into(),
            length: plain.len() as u64,
            window_log: MIN_WINDOW_LOG,
        }
    }

    /// Returns texts whose first bytes match those at a distance of 1, 4 and 8.
    fn texts_of_short_distances() -> Vec<Vec<u8>> {
        let hashes = |n: u32| format!("{{\"hash\":\"{:08x}\"}},", n.wrapping_mul(0x9E37_79B9));
        let json: Vec<u8> = (0..200).map(hashes).collect::<String>().into_bytes();
        [1, 4, 8]
            .iter()
            .map(|distance| [b"abcdefgh"[..*distance].repeat(60 / distance), json.clone()].concat())
            .collect()
    }

    fn assemble_both(
        texts: &[Vec<u8>],
        level: u8,
        compress: impl Fn(&[u8], u8) -> OpenZstdBlocks,
    ) -> Option<Vec<u8>> {
        let opens: Vec<OpenZstdBlocks> = texts.iter().map(|it| compress(it, level)).collect();
        let frame = assemble_zstd_frame(opens.iter().map(ZstdFrameInput::Open)).unwrap();
        decompress_zstd(&frame.to_vec(), 1 << 20, |_| true).ok()
    }

    /// Shows why the repeated offsets are invalidated.
    #[test]
    fn blocks_of_a_frame_are_damaged_behind_others_unless_they_are_open() {
        let mut damaged = 0;
        for first in texts_of_short_distances() {
            for second in texts_of_short_distances() {
                let texts = [first.clone(), second];
                let expected = Some(texts.concat());
                for level in 1..=19 {
                    let open = assemble_both(&texts, level, |text, level| {
                        compress_to_open_blocks(text, level).unwrap()
                    });
                    assert!(open == expected, "level {level}");
                    let closed = assemble_both(&texts, level, closed_blocks);
                    damaged += usize::from(closed != expected);
                }
            }
        }
        assert!(damaged > 0);
    }
}
