//! Recompression of entries at a higher level, before they are written to disk.
//!
//! A fill is compressed in the time of a request, at igzip's speed. An entry that is requested
//! again and stored for long justifies more effort. On 428 recorded responses libdeflate's level 9
//! makes the compressed bytes of level 1 smaller by 6 % (1 to 20 KB of identity bytes), 14 % (20 to
//! 100 KB), 15 % (up to 1 MB) and 9 % (witnesses), at 40 to 47 MB/s. Level 8 is at most 0.6 %
//! behind and up to 1.8 times as fast. Levels 10 to 12 take 2 to 17 times as long, and 9 MB instead
//! of 660 KB, for another 0.4 to 2.6 %.

use super::wire::SerializedEntryHead;
use crate::bytes::SharedBytes;
use crate::gzip::open_stream::{compress_to_open_stream, OpenDeflateStream};

/// Level of libdeflate.
const RECOMPRESSION_LEVEL: u8 = 9;

/// Maximum length of an identity payload in bytes; it takes about 200 ms and 24 MB.
const MAX_LENGTH: u64 = 8 << 20;

/// Whether [`recompress_entry`] may make an entry's bytes smaller. It takes no time.
pub fn is_entry_recompressible(bytes: &[u8]) -> bool {
    SerializedEntryHead::parse_entry_head(bytes)
        .is_some_and(|(head, _)| recompressible_checksum_and_length(&head).is_some())
}

/// Returns checksum and length of a payload that may be recompressed.
fn recompressible_checksum_and_length(head: &SerializedEntryHead<'_>) -> Option<(u32, u64)> {
    let (crc, length) = head.coded?;
    (!head.recompressed && length <= MAX_LENGTH).then_some((crc, length))
}

/// Recompresses the payload of an entry's bytes. The result is another form of the same entry, with
/// a flag so that it is recompressed once only. The compressed payload is decoded again and
/// compared with the identity bytes. A payload that does not get smaller is copied unchanged.
/// Returns `None` if the payload is not compressed, too long or recompressed already, if the bytes
/// are no valid entry of this version, or if memory is refused.
pub fn recompress_entry(bytes: &[u8]) -> Option<Vec<u8>> {
    let (head, payload) = SerializedEntryHead::parse_entry_head(bytes)?;
    let (crc, length) = recompressible_checksum_and_length(&head)?;
    let coded = recompress_open_stream(&OpenDeflateStream::new(
        SharedBytes::try_copy_from(payload)?,
        crc,
        length,
    ))?;
    encode_recompressed_entry(head, &coded)
}

/// Returns the shorter of a stream and its recompression.
fn recompress_open_stream(before: &OpenDeflateStream) -> Option<OpenDeflateStream> {
    // checked against CRC and length
    let plain = before.decompress_open_stream()?;
    let after = compress_to_open_stream(&plain, RECOMPRESSION_LEVEL)?;
    if after.bytes.len() >= before.bytes.len() {
        return Some(before.clone());
    }
    let is_same = (after.crc, after.length) == (before.crc, before.length)
        && after.decompress_open_stream().as_ref() == Some(&plain);
    is_same.then_some(after)
}

/// Returns the serialized entry with the recompressed payload, marked as recompressed. Returns
/// `None` if memory is refused.
fn encode_recompressed_entry(
    mut head: SerializedEntryHead<'_>,
    coded: &OpenDeflateStream,
) -> Option<Vec<u8>> {
    head.recompressed = true;
    let head = head.serialize_entry_head()?;
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(head.len() + coded.bytes.len())
        .ok()?;
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&coded.bytes);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{is_entry_recompressible, recompress_entry, MAX_LENGTH};
    use crate::cache::entry::wire::{decode_cache_entry, EncodedEntry};
    use crate::cache::entry::{
        CacheEntry, CompressionGate, EntryMetadata, EntryPayload, EnvelopeBytes, ResponseIdPosition,
    };

    fn result(length: usize) -> Vec<u8> {
        let mut text = String::from("\"0x");
        let mut state = 7u32;
        while text.len() < length {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            text += &format!("{:08x}000000000000", state >> 16);
        }
        (text + "\"").into_bytes()
    }

    fn entry(result: &[u8], level: u8) -> CacheEntry {
        let envelope = EnvelopeBytes {
            id: ResponseIdPosition::BeforeResult,
            before: b"{\"id\":"[..].into(),
            between: b",\"result\":"[..].into(),
            after: b"}"[..].into(),
        };
        let meta = EntryMetadata {
            status: 200,
            fields: vec![(b"content-type".to_vec(), b"application/json".to_vec())],
            block_number: Some(7),
            ..EntryMetadata::default()
        };
        let gate = CompressionGate {
            min_length: 0,
            level,
        };
        CacheEntry::from_fetched_result(envelope, result, gate, meta).unwrap()
    }

    fn bytes_of(entry: &CacheEntry) -> Vec<u8> {
        EncodedEntry::from_entry(entry).unwrap().to_vec()
    }

    #[test]
    fn recompressed_entry_is_smaller_and_equal_to_the_first() {
        for length in [2_000, 50_000, 1_000_000] {
            let result = result(length);
            for entry in [entry(&result, 1), entry(&result, 1).mark_for_strict_check()] {
                let bytes = bytes_of(&entry);
                assert!(is_entry_recompressible(&bytes));
                let again = recompress_entry(&bytes).unwrap();
                assert!(again.len() < bytes.len(), "{length}");
                assert_eq!(again.len(), again.capacity());
                let read = decode_cache_entry(&again, 0, 0, 0).unwrap();
                assert_eq!(read.response_envelope(), entry.response_envelope());
                assert_eq!(
                    read.response_metadata().fields,
                    entry.response_metadata().fields
                );
                assert_eq!(read.response_metadata().block_number, Some(7));
                assert_eq!(read.needs_strict_check(), entry.needs_strict_check());
                assert_eq!(read.response_length(b"12"), entry.response_length(b"12"));
                let EntryPayload::Open(open) = read.stored_payload() else {
                    panic!();
                };
                assert_eq!(open.decompress_open_stream().unwrap(), result);
            }
        }
    }

    #[test]
    fn entry_is_recompressed_only_once() {
        let again = recompress_entry(&bytes_of(&entry(&result(5_000), 1))).unwrap();
        assert!(!is_entry_recompressible(&again) && recompress_entry(&again).is_none());
    }

    #[test]
    fn entry_that_gets_no_smaller_is_marked_as_recompressed() {
        let bytes = bytes_of(&entry(&result(5_000), 12));
        let again = recompress_entry(&bytes).unwrap();
        assert_eq!(again.len(), bytes.len());
        assert_eq!(recompress_entry(&again), None);
    }

    #[test]
    fn uncompressed_invalid_or_long_entries_are_not_recompressed() {
        for bytes in [
            bytes_of(&entry(b"\"0x1\"", 1)),
            bytes_of(&entry(&vec![b'0'; MAX_LENGTH as usize + 1], 1)),
            b"body".to_vec(),
            Vec::new(),
        ] {
            assert!(!is_entry_recompressible(&bytes) && recompress_entry(&bytes).is_none());
        }
    }

    #[test]
    fn damaged_payload_is_not_recompressed() {
        let entry = entry(&result(5_000), 1);
        let bytes = bytes_of(&entry);
        let head = EncodedEntry::from_entry(&entry).unwrap().head.len();
        for at in (head..bytes.len()).step_by(97) {
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            // a changed bit that decodes to the same bytes is no damage
            if let Some(again) = recompress_entry(&other) {
                let read = decode_cache_entry(&again, 0, 0, 0).unwrap();
                let EntryPayload::Open(open) = read.stored_payload() else {
                    panic!();
                };
                assert_eq!(open.decompress_open_stream().unwrap(), result(5_000));
            }
        }
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(recompress_entry(cut), None);
    }
}
