//! A stored answer: a head that says what it is, and a body that nobody here
//! reads.
//!
//! The head carries all that a purge may ask for, so that an entry can be
//! judged without an index, and a checksum over the key as well: bytes that lie
//! under a key they were not stored under are no record. The body is guarded by
//! the checksums of RocksDB's blocks.
//!
//! ```text
//! version │ length of the head │ head (postcard) │ CRC-32 of all that, with the key │ body
//!    1    │   2, little endian │                 │ 4, little endian                 │
//! ```

use serde::{Deserialize, Serialize};

use crate::cache::entry::about::About;
use crate::cache::Key;

/// What is known of a stored answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Header {
    /// What was said of it.
    pub about: About,
    /// When it was made, in milliseconds since 1970.
    pub stored_at: u64,
    /// From when on it is stale, in milliseconds since 1970; `u64::MAX` never.
    pub expires_at: u64,
}

/// Of the head's layout. A record of another is no record, and so a miss.
const VERSION: u8 = 2;
/// Of version and length.
const FIXED: usize = 3;
const CHECKSUM: usize = 4;

/// The number of RocksDB's newest write when a record was made, which is its
/// place in the order in which the tables leave; and the length of its body.
type Place = (u64, u64);

/// What comes before a body of so many bytes under `key`; `None`: it is too much.
pub(super) fn encode(key: &Key, header: &Header, sequence: u64, body: usize) -> Option<Vec<u8>> {
    let place: Place = (sequence, body as u64);
    let mut head = postcard::to_extend(&(place, header), vec![VERSION, 0, 0]).ok()?;
    let length = u16::try_from(head.len() - FIXED).ok()?;
    head[1..FIXED].copy_from_slice(&length.to_le_bytes());
    head.extend(checksum(key, &head).to_le_bytes());
    Some(head)
}

/// The header, the sequence, and where the body starts of what was stored under
/// `key`; `None` if that is no record, or one of another key.
pub(super) fn decode(key: &Key, value: &[u8]) -> Option<(Header, u64, usize)> {
    let &[version, low, high] = value.first_chunk::<FIXED>()?;
    if version != VERSION {
        return None;
    }
    let length = FIXED + usize::from(u16::from_le_bytes([low, high]));
    let (head, rest) = value.split_at_checked(length)?;
    let (stored, body) = rest.split_first_chunk::<CHECKSUM>()?;
    if checksum(key, head) != u32::from_le_bytes(*stored) {
        return None;
    }
    let ((sequence, body_length), header): (Place, Header) =
        postcard::from_bytes(&head[FIXED..]).ok()?;
    (body_length == body.len() as u64).then_some((header, sequence, length + CHECKSUM))
}

fn checksum(key: &Key, head: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(head);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, Header};
    use crate::cache::class::Class;
    use crate::cache::entry::about::About;

    fn header(method: Option<&str>, block: Option<u64>) -> Header {
        Header {
            about: About {
                class: Class::Resource,
                namespace: [7; 16],
                method: method.map(Into::into),
                block,
                generation: 3,
                height: block,
                ..About::default()
            },
            stored_at: 1_700_000_000_000,
            expires_at: u64::MAX,
        }
    }

    fn stored(header: &Header, body: &[u8]) -> Vec<u8> {
        let head = encode(&[9; 32], header, 41, body.len()).unwrap();
        [&head, body].concat()
    }

    #[test]
    fn what_was_stored_is_read() {
        let long = "m".repeat(10_000);
        for method in [None, Some("eth_getBlockByNumber"), Some(&long[..])] {
            for block in [None, Some(0), Some(u64::MAX)] {
                for body in [&b""[..], b"body", &[0; 100_000]] {
                    let header = header(method, block);
                    let value = stored(&header, body);
                    let (read, sequence, start) = decode(&[9; 32], &value).unwrap();
                    assert_eq!((read, sequence), (header, 41));
                    assert_eq!(&value[start..], body);
                }
            }
        }
        let too_long = "m".repeat(70_000);
        assert!(encode(&[9; 32], &header(Some(&too_long), None), 41, 0).is_none());
    }

    #[test]
    fn a_changed_head_another_key_or_a_cut_is_no_record() {
        let value = stored(&header(Some("eth_chainId"), Some(5)), b"body");
        let is_record = |key: u8, value: &[u8]| decode(&[key; 32], value).is_some();
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
