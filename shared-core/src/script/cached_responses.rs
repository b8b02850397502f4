//! Cached responses of nodes in the memory of this process, by their key.

use super::stored_values::StoredValueError;
use crate::cache::class::Class;
use crate::cache::entry::CacheEntry;
use crate::cache::process::Shared;
use crate::cache::Key;
use crate::jsonrpc::request::MAX_ID;
use crate::jsonrpc::scan::{check, ValueKind};

/// Returns whether an entry can be sent as it is. Entries that must first be read, or compared with
/// something else, are not used here.
pub(super) fn is_ready(shared: &Shared, entry: &CacheEntry) -> bool {
    let is_changed =
        || entry.meta().class == Class::Resource && shared.changes.last() > entry.changes();
    !entry.is_unchecked() && !entry.is_format_unchecked() && !is_changed()
}

/// Returns a cached response in identity, under `id`, which is raw JSON, if it answers a call.
///
/// # Errors
/// The error in the id, or [`StoredValueError`] as a text.
pub fn get(shared: &Shared, key: &Key, id: &[u8], now: u64) -> Result<Option<Vec<u8>>, String> {
    let kind = check(id).ok().map(|value| value.kind);
    if !matches!(
        kind,
        Some(ValueKind::String | ValueKind::Number | ValueKind::Null)
    ) || id.len() > MAX_ID
    {
        return Err("the id must be a JSON string, number or null of at most 256 bytes".into());
    }
    let hot = shared
        .hot()
        .ok_or_else(|| StoredValueError::Cache.to_string())?;
    if !shared.may_send_from_memory(now) {
        return Ok(None);
    }
    let entry = hot.get(key, now).filter(|entry| is_ready(shared, entry));
    let Some(entry) = entry else {
        return Ok(None);
    };
    let body = entry
        .identity(id.trim_ascii())
        .and_then(|body| body.try_to_vec());
    body.map(Some)
        .ok_or_else(|| StoredValueError::Memory.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::get;
    use crate::cache::entry::{CacheEntry, EntryMeta, Envelope, IdPosition, Payload};
    use crate::cache::process::Shared;

    #[test]
    fn cached_response_is_returned_under_the_requested_id() {
        let shared = Shared::default();
        shared.start(1 << 20, 1 << 20, 1);
        let envelope = Envelope {
            id: IdPosition::BeforeResult,
            before: b"{\"id\":".as_slice().into(),
            between: b",\"result\":".as_slice().into(),
            after: b"}\n".as_slice().into(),
        };
        let meta = || EntryMeta {
            expires_at: 10,
            ..EntryMeta::default()
        };
        let payload = || Payload::Raw(b"true".to_vec().into());
        let entry = CacheEntry::new(envelope, payload(), meta());
        shared.hot().unwrap().insert([1; 32], Arc::new(entry));
        let found = get(&shared, &[1; 32], b" \"a\"", 9).unwrap().unwrap();
        assert_eq!(found, b"{\"id\":\"a\",\"result\":true}\n");
        assert_eq!(get(&shared, &[1; 32], b"1", 10), Ok(None));
        assert_eq!(get(&shared, &[2; 32], b"1", 9), Ok(None));
        for id in ["{}", "[1]", "true", "", "1,2", &"1".repeat(257)] {
            assert!(get(&shared, &[1; 32], id.as_bytes(), 9).is_err(), "{id}");
        }
        let unread = CacheEntry::new(Envelope::none(), payload(), meta()).mark_unchecked();
        shared.hot().unwrap().insert([3; 32], Arc::new(unread));
        assert_eq!(get(&shared, &[3; 32], b"1", 9), Ok(None));
        // a resource that was invalidated later
        let resource = CacheEntry::new(Envelope::none(), payload(), meta());
        shared.hot().unwrap().insert([4; 32], Arc::new(resource));
        assert!(get(&shared, &[4; 32], b"1", 9).unwrap().is_some());
        shared.changes.add(b"namespace", b"/elsewhere");
        assert_eq!(get(&shared, &[4; 32], b"1", 9), Ok(None));
    }
}
