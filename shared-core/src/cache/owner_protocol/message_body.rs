//! Bodies of messages. The payload of an entry is shared with the entry, so that a message of it is
//! sent without a copy.

use std::ops::Range;

use crate::bytes::{try_copy_bytes, try_extend, SharedBytes};
use crate::cache::entry::wire::EncodedEntry;

/// The body of a message in two parts: bytes of its own, then a part of shared bytes.
///
/// Bodies are equal if their joined bytes are equal. A decoded body has bytes of its own only.
#[derive(Clone, Debug, Default)]
pub struct MessageBody {
    owned: Vec<u8>,
    shared: Option<SharedRange>,
}

/// A part of shared bytes.
#[derive(Clone, Debug)]
pub(super) struct SharedRange {
    bytes: SharedBytes,
    range: Range<usize>,
}

impl SharedRange {
    /// Returns the bytes of the part.
    pub(super) fn as_bytes(&self) -> &[u8] {
        // the range was compared with the length
        self.bytes.get(self.range.clone()).unwrap_or(&[])
    }
}

impl MessageBody {
    /// Creates a body of `owned` bytes and all of `shared`.
    pub fn from_parts(owned: Vec<u8>, shared: SharedBytes) -> Self {
        let range = 0..shared.len();
        Self {
            owned,
            shared: Some(SharedRange {
                bytes: shared,
                range,
            }),
        }
    }

    /// Copies `bytes` into a body. Returns `None` if memory is refused.
    pub fn try_copy_from(bytes: &[u8]) -> Option<Self> {
        try_copy_bytes(bytes).map(Self::from)
    }

    /// Length in bytes.
    pub fn byte_length(&self) -> usize {
        // both are lengths of allocations
        self.owned.len().saturating_add(self.shared_part().len())
    }

    /// Returns both parts; either may be empty.
    pub fn parts(&self) -> [&[u8]; 2] {
        [&self.owned, self.shared_part()]
    }

    /// Returns the shared part, if the body has one.
    pub(super) fn shared_range(&self) -> Option<&SharedRange> {
        self.shared.as_ref()
    }

    fn shared_part(&self) -> &[u8] {
        self.shared.as_ref().map_or(&[], SharedRange::as_bytes)
    }

    /// Returns a part of the body; bytes beyond its end are left out. Returns `None` if memory is
    /// refused.
    pub fn slice_body(&self, range: Range<usize>) -> Option<Self> {
        let split = self.owned.len();
        let (start, end) = (range.start, range.end.min(self.byte_length()));
        let owned = self.owned.get(start..end.min(split)).unwrap_or(&[]);
        let shared = self.shared.as_ref().and_then(|shared| {
            let part = start.max(split)..end;
            // positions in the body, then in the shared bytes
            let offset = |position: usize| shared.range.start + (position - split);
            (part.start < part.end).then(|| SharedRange {
                bytes: shared.bytes.clone(),
                range: offset(part.start)..offset(part.end),
            })
        });
        Some(Self {
            owned: try_copy_bytes(owned)?,
            shared,
        })
    }

    /// Returns the bytes of both parts in one vector, without a copy if nothing is shared. Returns
    /// `None` if memory is refused.
    pub fn into_joined_bytes(self) -> Option<Vec<u8>> {
        let Self { mut owned, shared } = self;
        if let Some(shared) = shared {
            try_extend(&mut owned, shared.as_bytes())?;
        }
        Some(owned)
    }

    /// Returns the bytes of the body, in order.
    fn bytes(&self) -> impl Iterator<Item = &u8> {
        self.parts().into_iter().flatten()
    }
}

impl From<Vec<u8>> for MessageBody {
    fn from(owned: Vec<u8>) -> Self {
        Self {
            owned,
            shared: None,
        }
    }
}

impl From<EncodedEntry> for MessageBody {
    fn from(entry: EncodedEntry) -> Self {
        Self::from_parts(entry.head, entry.payload)
    }
}

impl PartialEq for MessageBody {
    fn eq(&self, other: &Self) -> bool {
        self.byte_length() == other.byte_length() && self.bytes().eq(other.bytes())
    }
}

impl Eq for MessageBody {}
