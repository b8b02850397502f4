//! The output buffer of the conversion to JSON.

use super::number;
use crate::ssz::schema::{FieldPrefix, FIELD_PREFIX_BYTES};

/// Bytes of room with which [`SszToJson::write_next`](super::SszToJson::write_next) always writes
/// something.
pub const MIN_JSON_BUFFER: usize = 1024;

/// Reads the offset, of four bytes, that is stored at `at`, and has been checked.
#[inline(always)]
pub(super) fn read_checked_offset(ssz: &[u8], at: usize) -> usize {
    let bytes = ssz[at..].first_chunk().copied();
    u32::from_le_bytes(bytes.unwrap_or_default()) as usize
}

/// The output buffer of the caller, and the number of bytes that were written to it.
pub(super) struct JsonOutput<'t> {
    pub(super) to: &'t mut [u8],
    pub(super) len: usize,
}

impl JsonOutput<'_> {
    /// Returns the number of bytes that still fit in the buffer.
    pub(super) fn remaining_capacity(&self) -> usize {
        self.to.len() - self.len
    }

    /// Whether the buffer has at least [`MIN_JSON_BUFFER`] bytes left, which any scalar fits in.
    #[inline(always)]
    pub(super) fn has_remaining_bytes(&self) -> bool {
        self.remaining_capacity() >= MIN_JSON_BUFFER
    }

    #[inline(always)]
    pub(super) fn put_bytes(&mut self, bytes: &[u8]) {
        self.to[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Writes the text before a field. A constant number of bytes is copied faster.
    #[inline(always)]
    pub(super) fn put_json_field_prefix(&mut self, lead: &FieldPrefix) {
        match (
            lead.bytes.first_chunk::<FIELD_PREFIX_BYTES>(),
            lead.len <= FIELD_PREFIX_BYTES,
        ) {
            (Some(bytes), true) => {
                self.to[self.len..self.len + FIELD_PREFIX_BYTES].copy_from_slice(bytes);
                self.len += lead.len;
            }
            _ => self.put_bytes(&lead.bytes[..lead.len]),
        }
    }

    /// Writes a little-endian number in decimal, without quotes.
    #[inline(always)]
    pub(super) fn put_number(&mut self, bytes: &[u8]) {
        self.len += number::write_decimal(bytes, &mut self.to[self.len..]);
    }

    /// Writes the hex digits of a little-endian number, without `0x`, quotes and leading zeros.
    #[inline(never)]
    pub(super) fn put_quantity(&mut self, bytes: &[u8]) {
        self.len += number::write_quantity(bytes, &mut self.to[self.len..]);
    }

    /// Writes the bytes in hex, without a prefix and quotes.
    #[inline(always)]
    pub(super) fn put_hex(&mut self, bytes: &[u8]) {
        let to = &mut self.to[self.len..self.len + 2 * bytes.len()];
        // encoding fails only for buffers of another length
        let _ = const_hex::encode_to_slice(bytes, to);
        self.len += 2 * bytes.len();
    }
}
