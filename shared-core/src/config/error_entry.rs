//! JSON-RPC errors of the policy, in the form of cache entries.

use crate::bytes::SharedBytes;
use crate::cache::entry::{
    CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes, ResponseIdPosition,
};
use crate::transcode::JSON_MEDIA_TYPE;

/// Creates an error response in the form of a cache entry.
pub(super) fn error_cache_entry(text: &[u8]) -> CacheEntry {
    let envelope = EnvelopeBytes {
        id: ResponseIdPosition::BeforeResult,
        before: Box::from(&b"{\"jsonrpc\":\"2.0\",\"id\":"[..]),
        between: Box::from(&b",\"error\":"[..]),
        after: Box::from(&b"}"[..]),
    };
    let meta = EntryMetadata {
        status: 200,
        fields: vec![(b"Content-Type".to_vec(), JSON_MEDIA_TYPE.to_vec())],
        ..EntryMetadata::default()
    };
    CacheEntry::new(
        envelope,
        EntryPayload::Raw(SharedBytes::from(text.to_vec())),
        meta,
    )
}
