//! The frame of a gzip member (RFC 1952, section 2.3).

use super::crc::RunningCrc;

/// Header of a member without name and time, whose system is "unknown".
pub(crate) const MEMBER_HEADER: [u8; 10] = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF];

/// Length of the trailer, which has the checksum and the length of the plain bytes.
pub(super) const TRAILER_LENGTH: usize = 8;

/// An empty final block with the fixed codes: the shortest one.
pub(crate) const EMPTY_FINAL_BLOCK: [u8; 2] = [0x03, 0x00];

/// Returns the trailer of a member: the checksum and the length of its plain bytes.
pub(crate) fn member_trailer(crc: &RunningCrc) -> [u8; TRAILER_LENGTH] {
    let mut trailer = [0; TRAILER_LENGTH];
    let (sum, length) = trailer.split_at_mut(4);
    sum.copy_from_slice(&crc.crc_value().to_le_bytes());
    // ISIZE is modulo 2^32
    length.copy_from_slice(&(crc.byte_count() as u32).to_le_bytes());
    trailer
}
