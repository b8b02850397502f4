//! The frame of a zstd body that is assembled of parts (RFC 8878, section 3.1.1).

use super::limits::MAX_WINDOW_LOG;

const MAGIC_NUMBER: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Descriptor of a frame with a window, a content size of four bytes, and neither checksum nor
/// dictionary.
const FRAME_DESCRIPTOR: u8 = 2 << 6;

/// Length of the header of an assembled frame in bytes: the same for all, so that it can be
/// written last.
pub(super) const FRAME_HEADER_LENGTH: usize = 10;

/// Logarithm of the shortest window in bytes that a header can declare.
const MIN_DECLARED_WINDOW_LOG: u32 = 10;

/// Logarithm of the shortest window in bytes of an assembled frame: a block must not be longer than
/// the window.
pub(super) const MIN_WINDOW_LOG: u32 = 17;

/// Maximum length of the content of a block in bytes.
pub(super) const MAX_BLOCK_LENGTH: usize = 1 << MIN_WINDOW_LOG;

/// Length of the header of a block in bytes.
pub(super) const BLOCK_HEADER_LENGTH: usize = 3;

/// An empty raw block that ends a frame.
pub(crate) const EMPTY_LAST_BLOCK: [u8; BLOCK_HEADER_LENGTH] = raw_block_header(0, true);

/// Returns the header of a frame of `length` bytes, whose window is at least `window_log`.
pub(crate) fn frame_header(window_log: u32, length: u32) -> [u8; FRAME_HEADER_LENGTH] {
    let window_log = window_log.clamp(MIN_WINDOW_LOG, MAX_WINDOW_LOG);
    // the exponent of the window; its mantissa is 0
    let window_descriptor = ((window_log - MIN_DECLARED_WINDOW_LOG) << 3) as u8;
    let [a, b, c, d] = MAGIC_NUMBER;
    let [e, f, g, h] = length.to_le_bytes();
    [a, b, c, d, FRAME_DESCRIPTOR, window_descriptor, e, f, g, h]
}

/// Returns the header of a raw block of `length` bytes.
pub(super) const fn raw_block_header(length: usize, is_last: bool) -> [u8; BLOCK_HEADER_LENGTH] {
    // bit 0 marks the last block, bits 1 and 2 are the type
    let [a, b, c, _] = (((length as u32) << 3) | is_last as u32).to_le_bytes();
    [a, b, c]
}
