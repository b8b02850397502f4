//! The format of a stored entry: a header, and an opaque body.
//!
//! The header has all attributes that a purge may refer to, so that no index is needed, and a
//! checksum that covers the key as well: the bytes of another key are no valid record. The body is
//! protected by the checksums of RocksDB's blocks.
//!
//! ```text
//! version │ length of the head │ head (postcard) │ CRC-32 of all that, with the key │ body
//!    1    │   2, little endian │                 │ 4, little endian                 │
//! ```
//!
//! A head may be followed by a byte of flags, which is absent if none is set. A version without
//! flags ignores it.

use serde::{Deserialize, Serialize};

use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::CacheKey;

/// The times and attributes that are stored in front of an entry's body.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct EntryRecordAttributes {
    /// Store attributes of the entry.
    pub about: StoredEntryAttributes,
    /// Time at which the request was sent to the node, in milliseconds since 1970.
    pub requested_at: u64,
    /// Time from which on the entry is stale, in milliseconds since 1970; `u64::MAX`: never.
    pub expires_at: u64,
    /// Whether the entry may be offered to the fleet: the process that has fetched it has reported
    /// that no header of a caller is in its key. Stored in the flags.
    #[serde(skip)]
    pub is_shareable: bool,
}

/// Version of the format. A record of another version is invalid, and so a miss.
const RECORD_VERSION: u8 = 2;
/// Length of version and head length in bytes.
const FIXED_LENGTH: usize = 3;
const CHECKSUM_LENGTH: usize = 4;

/// Flag of an entry that may be offered to the fleet.
const SHAREABLE_FLAG: u8 = 1;

/// The sequence number of RocksDB's newest write when the record was made, which is its position in
/// the order in which SST files are removed; and the length of its body.
type RecordPosition = (u64, u64);

/// Encodes the bytes before a body of `body` bytes. Returns `None` if they are too long.
pub(super) fn encode_record_head(
    key: &CacheKey,
    header: &EntryRecordAttributes,
    sequence: u64,
    body: usize,
) -> Option<Vec<u8>> {
    let place: RecordPosition = (sequence, body as u64);
    let mut head = postcard::to_extend(&(place, header), vec![RECORD_VERSION, 0, 0]).ok()?;
    if header.is_shareable {
        head.push(SHAREABLE_FLAG);
    }
    let length = u16::try_from(head.len() - FIXED_LENGTH).ok()?;
    head[1..FIXED_LENGTH].copy_from_slice(&length.to_le_bytes());
    head.extend(record_checksum(key, &head).to_le_bytes());
    Some(head)
}

/// Decodes the record of `key`: its header, its sequence number, and the start of its body. Returns
/// `None` if it is invalid, or the record of another key.
pub(super) fn decode_entry_record(
    key: &CacheKey,
    value: &[u8],
) -> Option<(EntryRecordAttributes, u64, usize)> {
    let &[version, low, high] = value.first_chunk::<FIXED_LENGTH>()?;
    if version != RECORD_VERSION {
        return None;
    }
    let length = FIXED_LENGTH + usize::from(u16::from_le_bytes([low, high]));
    let (head, rest) = value.split_at_checked(length)?;
    let (stored, body) = rest.split_first_chunk::<CHECKSUM_LENGTH>()?;
    if record_checksum(key, head) != u32::from_le_bytes(*stored) {
        return None;
    }
    let ((place, mut header), flags): ((RecordPosition, EntryRecordAttributes), _) =
        postcard::take_from_bytes(&head[FIXED_LENGTH..]).ok()?;
    let (sequence, body_length) = place;
    header.is_shareable = flags
        .first()
        .is_some_and(|flags| flags & SHAREABLE_FLAG != 0);
    (body_length == body.len() as u64).then_some((header, sequence, length + CHECKSUM_LENGTH))
}

/// Returns the CRC-32 of the key and the head of a record; the payload is not covered.
fn record_checksum(key: &CacheKey, head: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(head);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::{
        decode_entry_record, encode_record_head, EntryRecordAttributes, RecordPosition,
        CHECKSUM_LENGTH, FIXED_LENGTH,
    };
    use crate::cache::class::LifetimeClass;
    use crate::cache::entry::store_attributes::StoredEntryAttributes;

    fn header(method: Option<&str>, block: Option<u64>) -> EntryRecordAttributes {
        EntryRecordAttributes {
            about: StoredEntryAttributes {
                class: LifetimeClass::Resource,
                namespace: [7; 16],
                method: method.map(Into::into),
                block,
                generation: 3,
                height: block,
                ..StoredEntryAttributes::default()
            },
            requested_at: 1_700_000_000_000,
            expires_at: u64::MAX,
            is_shareable: false,
        }
    }

    fn stored(header: &EntryRecordAttributes, body: &[u8]) -> Vec<u8> {
        let head = encode_record_head(&[9; 32], header, 41, body.len()).unwrap();
        [&head, body].concat()
    }

    #[test]
    fn encoded_record_is_decoded_unchanged() {
        let long = "m".repeat(10_000);
        for method in [None, Some("eth_getBlockByNumber"), Some(&long[..])] {
            for block in [None, Some(0), Some(u64::MAX)] {
                for body in [&b""[..], b"body", &[0; 100_000]] {
                    let header = header(method, block);
                    let value = stored(&header, body);
                    let (read, sequence, start) = decode_entry_record(&[9; 32], &value).unwrap();
                    assert_eq!((read, sequence), (header, 41));
                    assert_eq!(&value[start..], body);
                }
            }
        }
        let too_long = "m".repeat(70_000);
        assert!(encode_record_head(&[9; 32], &header(Some(&too_long), None), 41, 0).is_none());
    }

    #[test]
    fn record_has_flags_only_if_its_entry_is_shareable() {
        let unshared = header(Some("eth_chainId"), Some(5));
        let shareable = EntryRecordAttributes {
            is_shareable: true,
            ..unshared.clone()
        };
        let lengths = [&unshared, &shareable].map(|header| stored(header, b"").len());
        assert_eq!(lengths[0] + 1, lengths[1]);
        for header in [unshared, shareable] {
            let value = stored(&header, b"body");
            let (read, _, start) = decode_entry_record(&[9; 32], &value).unwrap();
            assert_eq!(read, header);
            assert_eq!(&value[start..], b"body");
            // as a version without flags reads it
            let head = &value[FIXED_LENGTH..start - CHECKSUM_LENGTH];
            let (_, read): (RecordPosition, EntryRecordAttributes) =
                postcard::from_bytes(head).unwrap();
            assert_eq!(read.about, header.about);
        }
    }

    #[test]
    fn changed_truncated_or_moved_record_is_invalid() {
        let shareable = EntryRecordAttributes {
            is_shareable: true,
            ..header(Some("eth_chainId"), Some(5))
        };
        let value = stored(&shareable, b"body");
        let is_record = |key: u8, value: &[u8]| decode_entry_record(&[key; 32], value).is_some();
        assert!(is_record(9, &value) && !is_record(8, &value));
        assert!((0..value.len()).all(|length| !is_record(9, &value[..length])));
        assert!(!is_record(9, &[&value[..], b"x"].concat()));
        for byte in 0..value.len() - b"body".len() {
            for bit in 0..8 {
                let mut other = value.clone();
                other[byte] ^= 1 << bit;
                assert!(!is_record(9, &other), "{byte}.{bit}");
            }
        }
    }
}
