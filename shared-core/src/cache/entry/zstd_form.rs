//! The zstd form of an entry, for clients that prefer zstd.
//!
//! An entry is stored as deflate alone, on disk and in other processes too. Its zstd blocks are made
//! from that at the first use, and are kept in memory with the entry until it is evicted.

use super::{BodySink, CacheEntry, CachedForms, EntryPayload, IdentityBytesCache};
use crate::content_coding::SupportedContentCoding;
use crate::gzip::splice::SlicedBody;
use crate::lock::lock_ignoring_poison;
use crate::zstd::open_blocks::{compress_to_open_blocks, OpenZstdBlocks};
use crate::zstd::splice::ZstdFrameBuilder;
use crate::zstd::ZstdLevel;

/// Bytes of kept blocks besides the blocks themselves: their description, and the headers of three
/// allocations.
const BLOCKS_OVERHEAD: usize = size_of::<OpenZstdBlocks>() + 3 * 16;

impl BodySink for ZstdFrameBuilder {
    fn append_bytes(&mut self, more: &[u8]) -> Option<()> {
        self.append_plain_text(more)
    }
}

impl CacheEntry {
    /// Number of bytes that [`response_for_zstd_client`](Self::response_for_zstd_client) has to
    /// decode and compress if it is called now; 0 if the zstd blocks are kept, or the payload is
    /// stored uncompressed.
    pub fn zstd_bytes_to_make(&self) -> u64 {
        let EntryPayload::Open(open) = &self.stored_payload else {
            return 0;
        };
        match lock_ignoring_poison(&self.forms).zstd {
            Some(_) => 0,
            None => open.length,
        }
    }

    /// Whether the entry keeps its zstd blocks, or will keep them from their first use on: its tier
    /// has space for them.
    pub(crate) fn keeps_zstd_form(&self) -> bool {
        let forms = lock_ignoring_poison(&self.forms);
        !matches!(forms.identity, IdentityBytesCache::Disabled)
    }

    /// Returns the compressed payload as zstd blocks, which the entry keeps from their first use on:
    /// [`memory_weight`](Self::memory_weight) grows by them. They have the level of their first use.
    /// Returns `None` if the payload is damaged or stored uncompressed, or if memory is refused.
    pub(crate) fn zstd_payload(&self, level: ZstdLevel) -> Option<OpenZstdBlocks> {
        let EntryPayload::Open(open) = &self.stored_payload else {
            return None;
        };
        let plain = {
            let forms = lock_ignoring_poison(&self.forms);
            if let Some(blocks) = &forms.zstd {
                // the usual case
                return Some(OpenZstdBlocks::clone(blocks));
            }
            forms.present_identity_bytes()
        };
        // without the lock: other requests may need gzip, or the length
        let blocks = match plain {
            Some(plain) => compress_to_open_blocks(&plain, level)?,
            None => compress_to_open_blocks(&open.decompress_open_stream()?, level)?,
        };
        Some(lock_ignoring_poison(&self.forms).keep_zstd_blocks(blocks))
    }

    /// Returns the response under `id`, raw JSON, for a client that accepts zstd. An uncompressed
    /// payload is sent in identity, see [`SlicedBody::content_coding`]. Blocks that are made now have
    /// this level. Returns `None` if the entry is damaged or memory is refused.
    pub fn response_for_zstd_client(&self, id: &[u8], level: ZstdLevel) -> Option<SlicedBody> {
        match &self.stored_payload {
            EntryPayload::Raw(bytes) => self.assemble_identity_response(id, bytes),
            EntryPayload::Open(_) => self.response_for_zstd_only_client(id, level),
        }
    }

    /// Returns the response for a client that accepts zstd only. An uncompressed payload becomes raw
    /// blocks of the frame.
    pub fn response_for_zstd_only_client(&self, id: &[u8], level: ZstdLevel) -> Option<SlicedBody> {
        match &self.stored_payload {
            EntryPayload::Raw(bytes) => {
                self.assemble_zstd_response(id, bytes.len(), |frame| frame.append_plain_text(bytes))
            }
            EntryPayload::Open(_) => {
                let blocks = self.zstd_payload(level)?;
                let copied = SlicedBody::bytes_copied_when_shared(blocks.bytes.len());
                self.assemble_zstd_response(id, copied, |frame| frame.append_open_blocks(&blocks))
            }
        }
    }

    /// Assembles one frame under `id`, for which `copied` bytes of the payload are copied; `payload`
    /// appends the payload.
    fn assemble_zstd_response(
        &self,
        id: &[u8],
        copied: usize,
        payload: impl FnOnce(&mut ZstdFrameBuilder) -> Option<()>,
    ) -> Option<SlicedBody> {
        let own = self.envelope_bytes.envelope_length() + id.len() + copied;
        let mut frame = ZstdFrameBuilder::with_capacity(2, own)?;
        self.assemble_response_into(&mut frame, id, false, payload)?;
        frame.finish_zstd_frame()
    }

    /// Returns the response under `id` for a client that accepts this content coding, or no other one
    /// if it `refuses_identity`. An uncompressed payload is sent in identity unless that is refused.
    /// zstd blocks that are made now have this `level`. Returns `None` if memory is refused, or the
    /// blocks can't be made of a damaged entry.
    pub fn response_for_coding(
        &self,
        id: &[u8],
        coding: SupportedContentCoding,
        level: ZstdLevel,
        refuses_identity: bool,
    ) -> Option<SlicedBody> {
        match (coding, refuses_identity) {
            (SupportedContentCoding::Gzip, false) => self.response_for_gzip_client(id),
            (SupportedContentCoding::Gzip, true) => self.response_for_gzip_only_client(id),
            (SupportedContentCoding::Zstd, false) => self.response_for_zstd_client(id, level),
            (SupportedContentCoding::Zstd, true) => self.response_for_zstd_only_client(id, level),
        }
    }
}

impl CachedForms {
    /// Keeps these blocks unless another thread has made them meanwhile, or the tier has no space for
    /// them. Returns the blocks to send.
    fn keep_zstd_blocks(&mut self, blocks: OpenZstdBlocks) -> OpenZstdBlocks {
        if matches!(self.identity, IdentityBytesCache::Disabled) {
            return blocks;
        }
        let kept = self.zstd.get_or_insert_with(|| Box::new(blocks));
        OpenZstdBlocks::clone(kept)
    }

    /// Returns the bytes of memory of the blocks that the entry keeps.
    pub(super) fn zstd_blocks_weight(&self) -> usize {
        let blocks = self.zstd.as_ref();
        blocks.map_or(0, |blocks| BLOCKS_OVERHEAD + blocks.bytes.len())
    }
}
