//! Open blocks: zstd blocks that can be placed anywhere inside a frame.
//!
//! A block may refer to the tables of codes and to the last three offsets of earlier compressed
//! blocks (RFC 8878, sections 3.1.1.3 and 3.1.1.5). The first block of a new context never uses
//! tables of others, but the library assumes that it knows the offsets: 1, 4 and 8 at the start of
//! a frame. Here they are invalidated before the first block, so that the blocks refer to none
//! but each other. Matches are relative, and never reach beyond the plain bytes of the blocks.

use super::frame::MIN_WINDOW_LOG;
use super::limits::{ZstdLevel, MAX_ZSTD_LEVEL};
use super::oneshot::zstd_compressed_bound;
use super::pool::run_with_pooled_context;
use crate::bytes::SharedBytes;

/// A part of a zstd frame that can be placed anywhere in it: blocks, with the length of their plain
/// bytes.
#[derive(Clone, Debug)]
pub struct OpenZstdBlocks {
    /// Blocks, none of them marked as the last one.
    pub bytes: SharedBytes,
    /// Number of plain bytes.
    pub length: u64,
    /// Logarithm of the window in bytes that a decoder needs.
    pub(super) window_log: u32,
}

/// Compresses `plain` to open blocks at a level of 1 to [`MAX_ZSTD_LEVEL`]. `None` if memory is
/// refused or there is no such level. Blocks that would not become shorter are raw ones.
pub fn compress_to_open_blocks(plain: &[u8], level: ZstdLevel) -> Option<OpenZstdBlocks> {
    open_blocks_reusing_buffer(plain, level, &mut Vec::new())
}

/// Compresses `plain` to open blocks as [`compress_to_open_blocks`] does, and reuses the memory of
/// `room` for the output of the library. `None` if memory is refused or there is no such level.
pub(crate) fn open_blocks_reusing_buffer(
    plain: &[u8],
    level: ZstdLevel,
    room: &mut Vec<u8>,
) -> Option<OpenZstdBlocks> {
    if !(1..=MAX_ZSTD_LEVEL).contains(&level) {
        return None;
    }
    room.clear();
    let mut window_log = MIN_WINDOW_LOG;
    if !plain.is_empty() {
        room.try_reserve_exact(zstd_compressed_bound(plain.len()))
            .ok()?;
        window_log =
            run_with_pooled_context(|context| context.compress_open_blocks(plain, level, room))??;
    }
    Some(OpenZstdBlocks {
        bytes: SharedBytes::try_copy_from(room)?,
        length: plain.len() as u64,
        window_log,
    })
}
