//! Open streams: deflate streams that can be placed anywhere inside a gzip member.
//!
//! A deflate stream (RFC 1951) ends with a block marked as final, at any bit of a byte. An
//! *open* stream, which others can follow, has no such block and ends at a byte. igzip writes
//! open streams. libdeflate does not: its stream is walked to the header of the final block, the
//! mark is cleared, and an empty stored block is appended, which aligns the stream to the next
//! byte. The walk takes about as long as decompression, and no memory: 0.5 to 3 GB/s of plain
//! bytes, on JSON-RPC responses. It ends at the final block in libdeflate's own output, which at level 1
//! is one block up to 64 KB.

use super::compressor_pool::run_with_pooled_compressor;
use super::crc::{crc32, CrcShift};
use super::deflate_walk::{self, FinalDeflateBlock};
use super::format::{EMPTY_FINAL_BLOCK, MEMBER_HEADER, TRAILER_LENGTH};
use super::inflate::inflate_reserved;
use super::libdeflate::MAX_LEVEL;
use super::oneshot::compressed_bound;
use crate::bytes::{try_concat_bytes, SharedBytes};

/// Bytes that libdeflate writes before the stream.
const GZIP_HEADER: usize = MEMBER_HEADER.len();

/// A part of a gzip member that can be placed anywhere in it: an open deflate stream, with checksum
/// and length of its plain bytes.
#[derive(Clone, Debug)]
pub struct OpenDeflateStream {
    /// Deflate blocks, none of them final, aligned to a byte.
    pub bytes: SharedBytes,
    /// CRC-32 of the plain bytes.
    pub crc: u32,
    /// Number of plain bytes.
    pub length: u64,
    /// [`CrcShift::for_appended_bytes`] of that length.
    pub(super) shift: CrcShift,
}

impl OpenDeflateStream {
    /// Creates an open stream from blocks that were written elsewhere, and the checksum and length
    /// of their plain bytes.
    pub fn new(bytes: SharedBytes, crc: u32, length: u64) -> Self {
        Self {
            bytes,
            crc,
            length,
            shift: CrcShift::for_appended_bytes(length),
        }
    }

    /// Decompresses the stream, and returns its plain bytes. `None` if memory is refused, or the
    /// stream does not match its length and checksum.
    pub fn decompress_open_stream(&self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.length).ok()?;
        let stream = try_concat_bytes([&self.bytes, &EMPTY_FINAL_BLOCK])?;
        let plain = inflate_reserved(&stream, length)?;
        (plain.len() == length && crc32(&plain) == self.crc).then_some(plain)
    }
}

/// Compresses `plain` to an open stream at libdeflate's `level`, 0 to 12.
///
/// Levels 1 to 3 are igzip's only useful one if that is installed: on 20 to 300 KB of recorded
/// responses it takes 0.3 to 0.9 of the time of libdeflate's level 1, for -1 to 8 % more, and a
/// fifth of the time of levels 2 and 3, for 0 to 10 % more. `None` if memory is refused or there
/// is no such level. The bytes may differ between machines: never compare them with recorded
/// ones.
pub fn compress_to_open_stream(plain: &[u8], level: u8) -> Option<OpenDeflateStream> {
    open_stream_reusing_buffer(plain, level, &mut Vec::new())
}

/// Compresses `plain` to an open stream as [`compress_to_open_stream`] does, and reuses the memory of `room`
/// for the output of igzip. `room` grows if it is shorter than `plain`, whose compressed form is
/// rarely longer. `None` if memory is refused or there is no such level.
pub fn open_stream_reusing_buffer(
    plain: &[u8],
    level: u8,
    room: &mut Vec<u8>,
) -> Option<OpenDeflateStream> {
    if (1..=3).contains(&level) {
        room.clear();
        if room.capacity() < plain.len() {
            room.try_reserve_exact(compressed_bound(plain.len())).ok()?;
        }
        if super::igzip_raw::deflate_with_igzip(plain, room) {
            let (crc, length) = (crc32(plain), plain.len() as u64);
            return Some(OpenDeflateStream::new(
                SharedBytes::try_copy_from(room)?,
                crc,
                length,
            ));
        }
    }
    compress_with_libdeflate(plain, level)
}

/// Compresses `plain` to an open stream with libdeflate. Returns `None` if the level is too high or
/// memory is refused.
fn compress_with_libdeflate(plain: &[u8], level: u8) -> Option<OpenDeflateStream> {
    if level > MAX_LEVEL {
        return None;
    }
    let mut member = Vec::new();
    member
        .try_reserve_exact(compressed_bound(plain.len()))
        .ok()?;
    run_with_pooled_compressor(level, |compressor| {
        compressor.compress_gzip_member(plain, &mut member)
    })
    .filter(|fits| *fits)?;
    let end = member.len().checked_sub(TRAILER_LENGTH)?;
    let crc = member.get(end..end + 4)?.try_into().ok()?;
    // the trailer is the margin that the walk may read beyond the end
    let last = deflate_walk::find_final_block_of_own_stream(&member, GZIP_HEADER, end)?;
    reopen_deflate_stream(&mut member, last, end)?;
    Some(OpenDeflateStream::new(
        SharedBytes::try_copy_from(member.get(GZIP_HEADER..)?)?,
        u32::from_le_bytes(crc),
        plain.len() as u64,
    ))
}

/// Converts a finished deflate stream to the blocks of an open one.
///
/// `None` for bytes that are not exactly one stream: damaged, truncated, or followed by other
/// bytes. The result decompresses to the same bytes.
pub fn convert_to_open_stream(raw_final_deflate: Vec<u8>) -> Option<Vec<u8>> {
    let mut stream = raw_final_deflate;
    let end = stream.len();
    stream.try_reserve(deflate_walk::WALK_MARGIN).ok()?;
    stream.resize(end + deflate_walk::WALK_MARGIN, 0);
    let last = deflate_walk::find_final_deflate_block(&stream, 0, end)?;
    reopen_deflate_stream(&mut stream, last, end)?;
    Some(stream)
}

/// Converts a finished stream, whose final block is `last`, to an open one, and cuts `bytes` at its
/// end. `end` is the end of the finished stream.
fn reopen_deflate_stream(bytes: &mut Vec<u8>, last: FinalDeflateBlock, end: usize) -> Option<()> {
    *bytes.get_mut(last.header / 8)? &= !(1 << (last.header % 8));
    bytes.truncate(end);
    // the rest of the last byte is undefined; an empty stored block is three zero bits, zero
    // bits up to a byte, its length, its complement
    if !last.end.is_multiple_of(8) {
        *bytes.last_mut()? &= (1 << (last.end % 8)) - 1;
    }
    bytes.resize((last.end + 3).div_ceil(8), 0);
    bytes.extend_from_slice(&[0x00, 0x00, 0xFF, 0xFF]);
    Some(())
}
