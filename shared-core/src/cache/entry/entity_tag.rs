//! Entity tags of entries whose responses have none of the node.

use super::{CacheEntry, EntryPayload};

/// Maximum length in bytes of a stored payload that is hashed: an event loop needs 0.1 ms for it.
const MAX_HASHED_PAYLOAD: usize = 256 << 10;

impl CacheEntry {
    /// Returns a weak entity tag of the response: another one for any other bytes of envelope and
    /// payload. Returns `None` for a long payload.
    pub(crate) fn weak_entity_tag(&self) -> Option<Vec<u8>> {
        let stored: &[u8] = match self.stored_payload() {
            EntryPayload::Raw(bytes) => bytes,
            EntryPayload::Open(open) => &open.bytes,
        };
        if stored.len() > MAX_HASHED_PAYLOAD {
            return None;
        }
        let envelope = self.response_envelope();
        let mut hasher = blake3::Hasher::new();
        for part in [&envelope.before, &envelope.between, &envelope.after] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.update(stored);
        let hash = hasher.finalize().to_hex();
        Some(format!("W/\"{}\"", &hash[..32]).into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::MAX_HASHED_PAYLOAD;
    use crate::cache::entry::{
        CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes, ResponseIdPosition,
    };

    fn tag(after: &[u8], payload: &[u8]) -> Option<Vec<u8>> {
        let envelope = EnvelopeBytes {
            id: ResponseIdPosition::BeforeResult,
            before: Box::from(&b"{\"id\":"[..]),
            between: Box::from(&b",\"result\":"[..]),
            after: Box::from(after),
        };
        let payload = EntryPayload::Raw(payload.to_vec().into());
        CacheEntry::new(envelope, payload, EntryMetadata::default()).weak_entity_tag()
    }

    #[test]
    fn tag_differs_by_result_and_envelope() {
        let one = tag(b"}", b"\"0x1\"").unwrap();
        assert_eq!(one.len(), "W/\"\"".len() + 32);
        assert!(one.starts_with(b"W/\"") && one.ends_with(b"\""));
        assert_eq!(tag(b"}", b"\"0x1\""), Some(one.clone()));
        assert_ne!(tag(b"}", b"\"0x2\""), Some(one.clone()));
        assert_ne!(tag(b"}\n", b"\"0x1\""), Some(one));
    }

    #[test]
    fn long_payload_has_no_tag() {
        assert!(tag(b"}", &vec![b'a'; MAX_HASHED_PAYLOAD]).is_some());
        assert_eq!(tag(b"}", &vec![b'a'; MAX_HASHED_PAYLOAD + 1]), None);
    }
}
