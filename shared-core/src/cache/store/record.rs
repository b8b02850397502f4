//! A stored answer: a head that says what it is, and a body that nobody here
//! reads.
//!
//! The head carries all that a purge may ask for, so that an entry can be
//! judged without an index, and a checksum over the key as well: bytes that lie
//! under a key they were not stored under are no record. The body is guarded by
//! the checksums of RocksDB's blocks.

use crate::cache::Key;

/// What keeps answers of one chain apart from another's.
pub type Namespace = [u8; 16];

/// How long answers are kept, roughly; each class has tables of its own, so
/// that short-lived ones don't drive out the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// True for as long as the chain is.
    Immutable,
    /// Has a lifetime, as HTTP resources have.
    Aging,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Immutable, Self::Aging];

    /// The byte in a head.
    pub(super) fn byte(self) -> u8 {
        match self {
            Self::Immutable => 1,
            Self::Aging => 2,
        }
    }

    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.byte() == byte)
    }
}

/// What is to be stored under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Says which tables it goes to.
    pub class: Class,
    /// Whose answer it is.
    pub namespace: Namespace,
    /// The method's name, at most 255 bytes; empty if there is none.
    pub method: &'a [u8],
    /// The block that it hangs on, if its number is known.
    pub block: Option<u64>,
    /// The generation when its request was sent to the node
    /// ([`Purges::generation`](super::purges::Purges::generation)).
    pub generation: u64,
    /// When it was made, in milliseconds since 1970.
    pub stored_at: u64,
    /// From when on it is stale, in milliseconds since 1970; `u64::MAX` never.
    pub expires_at: u64,
    /// The answer, in the caller's own form.
    pub body: &'a [u8],
}

/// What the head of a stored record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// As in [`Record`].
    pub class: Class,
    /// As in [`Record`].
    pub namespace: Namespace,
    /// As in [`Record`].
    pub method: &'a [u8],
    /// As in [`Record`].
    pub block: Option<u64>,
    /// As in [`Record`].
    pub generation: u64,
    /// As in [`Record`].
    pub stored_at: u64,
    /// As in [`Record`].
    pub expires_at: u64,
    /// The number of RocksDB's newest write when this one was made: its place
    /// in the order in which the tables leave.
    pub sequence: u64,
}

/// The longest method's name, in bytes.
pub const MAX_METHOD: usize = 255;

/// Of the head's layout. A record of another is no record, and so a miss.
const VERSION: u8 = 1;
/// Before the method's name.
const FIXED: usize = 68;
const CHECKSUM: usize = 4;

impl<'a> Record<'a> {
    /// What its head will say.
    pub(super) fn header(&self, sequence: u64) -> Header<'a> {
        Header {
            class: self.class,
            namespace: self.namespace,
            method: self.method,
            block: self.block,
            generation: self.generation,
            stored_at: self.stored_at,
            expires_at: self.expires_at,
            sequence,
        }
    }
}

impl Header<'_> {
    /// The head of a record of `body` bytes under `key`. A method longer than
    /// [`MAX_METHOD`] is cut off.
    pub(super) fn encode(&self, key: &Key, body: usize) -> Vec<u8> {
        let method = &self.method[..self.method.len().min(MAX_METHOD)];
        let mut head = Vec::with_capacity(FIXED + method.len() + CHECKSUM);
        head.extend([
            VERSION,
            self.class.byte(),
            method.len() as u8,
            self.block.is_some().into(),
        ]);
        head.extend(self.namespace);
        for number in [
            self.block.unwrap_or(0),
            self.generation,
            self.stored_at,
            self.expires_at,
            self.sequence,
            body as u64,
        ] {
            head.extend(number.to_be_bytes());
        }
        head.extend(method);
        head.extend(checksum(key, &head).to_be_bytes());
        head
    }
}

impl<'a> Header<'a> {
    /// The head and the body of what was stored under `key`; `None` if that is
    /// no record, or one of another key.
    pub(super) fn decode(key: &Key, value: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let fixed: &[u8; FIXED] = value.first_chunk()?;
        let &[version, class, method_length, has_block, ..] = fixed;
        if version != VERSION {
            return None;
        }
        let (head, rest) = value.split_at_checked(FIXED + usize::from(method_length))?;
        let (stored, body) = rest.split_first_chunk::<CHECKSUM>()?;
        if checksum(key, head) != u32::from_be_bytes(*stored) {
            return None;
        }
        let number = |place: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&fixed[20 + place * 8..][..8]);
            u64::from_be_bytes(bytes)
        };
        if number(5) != body.len() as u64 {
            return None;
        }
        let mut namespace = [0; 16];
        namespace.copy_from_slice(&fixed[4..20]);
        let header = Self {
            class: Class::from_byte(class)?,
            namespace,
            method: &head[FIXED..],
            block: (has_block != 0).then(|| number(0)),
            generation: number(1),
            stored_at: number(2),
            expires_at: number(3),
            sequence: number(4),
        };
        Some((header, body))
    }
}

fn checksum(key: &Key, head: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(head);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::{Class, Header, Record, MAX_METHOD};

    fn record<'a>(method: &'a [u8], block: Option<u64>, body: &'a [u8]) -> Record<'a> {
        Record {
            class: Class::Aging,
            namespace: [7; 16],
            method,
            block,
            generation: 3,
            stored_at: 1_700_000_000_000,
            expires_at: u64::MAX,
            body,
        }
    }

    fn stored(record: &Record<'_>) -> Vec<u8> {
        [
            &record.header(41).encode(&[9; 32], record.body.len()),
            record.body,
        ]
        .concat()
    }

    #[test]
    fn what_was_stored_is_read() {
        for method in [&b""[..], b"eth_getBlockByNumber", &[b'm'; MAX_METHOD]] {
            for block in [None, Some(0), Some(u64::MAX)] {
                for body in [&b""[..], b"body", &[0; 100_000]] {
                    let record = record(method, block, body);
                    let value = stored(&record);
                    let (header, read) = Header::decode(&[9; 32], &value).unwrap();
                    assert_eq!(read, body);
                    assert_eq!((header.method, header.block), (method, block));
                    assert_eq!((header.class, header.generation), (Class::Aging, 3));
                    assert_eq!(header.namespace, [7; 16]);
                    assert_eq!(header.stored_at, 1_700_000_000_000);
                    assert_eq!((header.expires_at, header.sequence), (u64::MAX, 41));
                }
            }
        }
    }

    #[test]
    fn a_changed_head_another_key_or_a_cut_is_no_record() {
        let value = stored(&record(b"eth_chainId", Some(5), b"body"));
        assert!(Header::decode(&[9; 32], &value).is_some());
        assert!(Header::decode(&[8; 32], &value).is_none());
        for length in 0..value.len() {
            assert!(Header::decode(&[9; 32], &value[..length]).is_none());
        }
        assert!(Header::decode(&[9; 32], &[&value[..], b"x"].concat()).is_none());
        for byte in 0..value.len() - b"body".len() {
            for bit in 0..8 {
                let mut other = value.clone();
                other[byte] ^= 1 << bit;
                assert!(Header::decode(&[9; 32], &other).is_none(), "{byte}.{bit}");
            }
        }
    }
}
