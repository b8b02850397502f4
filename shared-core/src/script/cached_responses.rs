//! Cached responses of nodes in the memory of this process, by their key.

use super::stored_values::ScriptValueStoreError;
use crate::cache::class::LifetimeClass;
use crate::cache::entry::CacheEntry;
use crate::cache::process::ProcessCacheState;
use crate::cache::CacheKey;
use crate::jsonrpc::request::MAX_ID_LENGTH;
use crate::jsonrpc::scan::{check_json, JsonValueKind};

/// Returns whether an entry can be sent as it is. Entries that must first be read, or compared with
/// something else, are not used here.
pub(super) fn can_be_sent_directly(shared: &ProcessCacheState, entry: &CacheEntry) -> bool {
    let is_changed = || {
        entry.response_metadata().class == LifetimeClass::Resource
            && shared.changes.last_invalidation_number() > entry.invalidation_number_at_dispatch()
    };
    !entry.needs_strict_check() && !entry.needs_format_comparison() && !is_changed()
}

/// Returns a cached response in identity, under `id`, which is raw JSON, if it answers a call.
///
/// # Errors
/// The error in the id, or [`ScriptValueStoreError`] as a text.
pub fn cached_call_response(
    shared: &ProcessCacheState,
    key: &CacheKey,
    id: &[u8],
    now: u64,
) -> Result<Option<Vec<u8>>, String> {
    let kind = check_json(id).ok().map(|value| value.kind);
    if !matches!(
        kind,
        Some(JsonValueKind::String | JsonValueKind::Number | JsonValueKind::Null)
    ) || id.len() > MAX_ID_LENGTH
    {
        return Err("the id must be a JSON string, number or null of at most 256 bytes".into());
    }
    let hot = shared
        .hot_tier()
        .ok_or_else(|| ScriptValueStoreError::Cache.to_string())?;
    if !shared.may_send_from_memory(now) {
        return Ok(None);
    }
    let entry = hot
        .get(key, now)
        .filter(|entry| can_be_sent_directly(shared, entry));
    let Some(entry) = entry else {
        return Ok(None);
    };
    let body = entry
        .response_for_identity_client(id.trim_ascii())
        .and_then(|body| body.try_to_vec());
    body.map(Some)
        .ok_or_else(|| ScriptValueStoreError::Memory.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::cached_call_response;
    use crate::cache::entry::{
        CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes, ResponseIdPosition,
    };
    use crate::cache::process::ProcessCacheState;

    #[test]
    fn cached_response_is_returned_under_the_requested_id() {
        let shared = ProcessCacheState::default();
        shared.start_hot_tier(1 << 20, 1 << 20, 1);
        let envelope = EnvelopeBytes {
            id: ResponseIdPosition::BeforeResult,
            before: b"{\"id\":".as_slice().into(),
            between: b",\"result\":".as_slice().into(),
            after: b"}\n".as_slice().into(),
        };
        let meta = || EntryMetadata {
            expires_at: 10,
            ..EntryMetadata::default()
        };
        let payload = || EntryPayload::Raw(b"true".to_vec().into());
        let entry = CacheEntry::new(envelope, payload(), meta());
        shared.hot_tier().unwrap().insert([1; 32], Arc::new(entry));
        let found = cached_call_response(&shared, &[1; 32], b" \"a\"", 9)
            .unwrap()
            .unwrap();
        assert_eq!(found, b"{\"id\":\"a\",\"result\":true}\n");
        assert_eq!(cached_call_response(&shared, &[1; 32], b"1", 10), Ok(None));
        assert_eq!(cached_call_response(&shared, &[2; 32], b"1", 9), Ok(None));
        for id in ["{}", "[1]", "true", "", "1,2", &"1".repeat(257)] {
            assert!(
                cached_call_response(&shared, &[1; 32], id.as_bytes(), 9).is_err(),
                "{id}"
            );
        }
        let unread = CacheEntry::new(EnvelopeBytes::envelope_without_bytes(), payload(), meta())
            .mark_for_strict_check();
        shared.hot_tier().unwrap().insert([3; 32], Arc::new(unread));
        assert_eq!(cached_call_response(&shared, &[3; 32], b"1", 9), Ok(None));
        // a resource that was invalidated later
        let resource = CacheEntry::new(EnvelopeBytes::envelope_without_bytes(), payload(), meta());
        shared
            .hot_tier()
            .unwrap()
            .insert([4; 32], Arc::new(resource));
        assert!(cached_call_response(&shared, &[4; 32], b"1", 9)
            .unwrap()
            .is_some());
        shared
            .changes
            .record_invalidation(b"namespace", b"/elsewhere");
        assert_eq!(cached_call_response(&shared, &[4; 32], b"1", 9), Ok(None));
    }
}
