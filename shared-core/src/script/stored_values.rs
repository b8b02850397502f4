//! Values that programs store by name: in the hot tier, where they share the memory with responses,
//! and, if there is one, at the owner of a store.
//!
//! The key of a value is a hash of its name with a separate hash key, so that a value is never
//! found by the lookup of a response, and the other way round. For the owner it is an ordinary
//! resource (RFC 9111) in a namespace of its own.

use std::sync::Arc;

use super::owner_http::{self, OwnerReplyHead};
use crate::bytes::{try_copy_bytes, SharedBytes};
use crate::cache::class::LifetimeClass;
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::{wire, CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
use crate::cache::link;
use crate::cache::process::owner_client::OwnerClient;
use crate::cache::process::ProcessCacheState;
use crate::cache::vary_key::named_cache_namespace;
use crate::cache::CacheKey;
use crate::memory;

/// Namespace of all stored values, as an operator purges it.
pub const STORED_VALUES_NAMESPACE: &str = "sszip.lua";

/// Hash key that separates the keys of values from the keys of responses.
const VALUE_HASH_KEY: &[u8; 32] = b"sszip: values that scripts keep.";

/// Maximum lifetime of a value: a hundred years, in milliseconds.
const MAX_TTL_MS: u64 = 100 * 365 * 86_400_000;

/// The reason why a value that a script keeps in the cache can't be stored, removed or looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptValueStoreError {
    /// The hot tier is disabled.
    #[error("the cache is off: no location has \"sszip_cache on\"")]
    Cache,
    /// The value is too long for the hot tier.
    #[error("the value is too long for this worker's share of sszip_cache_memory")]
    Room,
    /// Memory was refused.
    #[error("out of memory")]
    Memory,
    /// The owner is not reachable.
    #[error("the cache's owner can't be queried now")]
    Down,
    /// The owner's reply is invalid.
    #[error("the cache's owner sent an invalid reply")]
    Owner,
}

/// Returns the cache key of a script's value, which differs from all keys of responses.
pub fn stored_value_key(name: &[u8]) -> CacheKey {
    *blake3::keyed_hash(VALUE_HASH_KEY, name).as_bytes()
}

/// Returns the value that a program stored under `name`, from memory. `now` is in milliseconds of
/// the lookups' clock, here and below.
///
/// # Errors
/// The reason as [`ScriptValueStoreError`].
pub fn stored_value(
    shared: &ProcessCacheState,
    name: &[u8],
    now: u64,
) -> Result<Option<SharedBytes>, ScriptValueStoreError> {
    let hot = shared.hot_tier().ok_or(ScriptValueStoreError::Cache)?;
    if !shared.may_send_from_memory(now) {
        return Ok(None);
    }
    let Some(entry) = hot.get(&stored_value_key(name), now) else {
        return Ok(None);
    };
    entry
        .identity_payload()
        .map(Some)
        .ok_or(ScriptValueStoreError::Memory)
}

/// Stores a program's value in memory for `ttl` milliseconds, in place of an earlier one of that
/// name. Returns the request that stores it at the owner, if there is one.
///
/// # Errors
/// The reason as [`ScriptValueStoreError`]. No value has that name in memory then, unless only the
/// request to the owner failed: in that case the value is stored in memory.
pub fn set_stored_value(
    shared: &ProcessCacheState,
    name: &[u8],
    value: &[u8],
    ttl: u64,
    now: u64,
) -> Result<Option<Vec<u8>>, ScriptValueStoreError> {
    let hot = shared.hot_tier().ok_or(ScriptValueStoreError::Cache)?;
    let key = stored_value_key(name);
    let copied = (!memory::is_memory_short()).then(|| SharedBytes::try_copy_from(value));
    let Some(value) = copied.flatten() else {
        drop(hot.remove(&key));
        return Err(ScriptValueStoreError::Memory);
    };
    let meta = EntryMetadata {
        status: 200,
        class: LifetimeClass::Resource,
        ..EntryMetadata::default()
    };
    let entry = CacheEntry::new(
        EnvelopeBytes::envelope_without_bytes(),
        EntryPayload::Raw(value),
        meta,
    );
    let entry = Arc::new(entry.with_lifetime(now, ttl.min(MAX_TTL_MS)));
    if !hot.insert(key, Arc::clone(&entry)) {
        return Err(ScriptValueStoreError::Room);
    }
    let Some(owner) = reachable_owner(shared)? else {
        return Ok(None);
    };
    let namespace = named_cache_namespace(STORED_VALUES_NAMESPACE.as_bytes());
    let about = StoredEntryAttributes::attributes_for_entry(
        &entry,
        namespace,
        None,
        owner.purge_generation(),
    )
    .ok_or(ScriptValueStoreError::Memory)?;
    let text = owner_http::store_request(&key, &entry, &about, now);
    text.map(Some).ok_or(ScriptValueStoreError::Memory)
}

/// Removes the named value from memory. Returns the request that purges it everywhere, if there is
/// an owner.
///
/// # Errors
/// The reason as [`ScriptValueStoreError`].
pub fn delete_stored_value(
    shared: &ProcessCacheState,
    name: &[u8],
) -> Result<Option<Vec<u8>>, ScriptValueStoreError> {
    let hot = shared.hot_tier().ok_or(ScriptValueStoreError::Cache)?;
    let key = stored_value_key(name);
    drop(hot.remove(&key));
    if reachable_owner(shared)?.is_none() {
        return Ok(None);
    }
    let purge = format!("{{\"key\":\"{}\"}}", const_hex::encode(key));
    let text = owner_http::purge_request(&purge);
    text.map(Some).ok_or(ScriptValueStoreError::Memory)
}

/// Returns the request that purges the scope in `query` (docs/caching.md, Purging), or `None` if
/// there is no owner.
///
/// # Errors
/// The error in the query, or [`ScriptValueStoreError`] as a text.
pub fn build_scope_purge_request(
    shared: &ProcessCacheState,
    query: &[u8],
) -> Result<Option<Vec<u8>>, String> {
    let body = link::purge_request(query, None)?;
    if reachable_owner(shared)
        .map_err(|lack| lack.to_string())?
        .is_none()
    {
        return Ok(None);
    }
    let text = owner_http::purge_request(&body);
    text.map(Some)
        .ok_or_else(|| ScriptValueStoreError::Memory.to_string())
}

/// Returns the client of the owner, if there is an owner. Errors: it is down; no connection is
/// attempted for each value.
fn reachable_owner(
    shared: &ProcessCacheState,
) -> Result<Option<&dyn OwnerClient>, ScriptValueStoreError> {
    match shared.owner_client() {
        Some(owner) if !owner.is_owner_reachable() => Err(ScriptValueStoreError::Down),
        owner => Ok(owner),
    }
}

/// Returns the request that looks up a value at the owner, and the present purge generation, which
/// [`accept_value_lookup_reply`] requires. `None`: there is no owner.
///
/// # Errors
/// The reason as [`ScriptValueStoreError`].
pub fn value_lookup_request(
    shared: &ProcessCacheState,
    name: &[u8],
) -> Result<Option<(Vec<u8>, u64)>, ScriptValueStoreError> {
    let Some(owner) = reachable_owner(shared)? else {
        return Ok(None);
    };
    let generation = owner.purge_generation();
    let text = owner_http::lookup_request(&stored_value_key(name));
    Ok(Some((text, generation)))
}

/// Reads the owner's reply to [`value_lookup_request`], and returns the value. It is also stored in
/// memory, unless there was a purge since `generation`. `None`: the owner has no such value.
///
/// # Errors
/// The reason as [`ScriptValueStoreError`].
pub fn accept_value_lookup_reply(
    shared: &ProcessCacheState,
    name: &[u8],
    (head, body): (&[u8], &[u8]),
    generation: u64,
    now: u64,
) -> Result<Option<SharedBytes>, ScriptValueStoreError> {
    let head = OwnerReplyHead::parse(head)
        .ok()
        .flatten()
        .ok_or(ScriptValueStoreError::Owner)?;
    match head.status {
        _ if head.generation.is_none() => return Err(ScriptValueStoreError::Owner),
        200 => {}
        404 => return Ok(None),
        _ => return Err(ScriptValueStoreError::Owner),
    }
    let bytes = try_copy_bytes(body).ok_or(ScriptValueStoreError::Memory)?;
    let age = head.age.saturating_mul(1000);
    // an invalid entry is treated as a missing one
    let entry = wire::decode_owned_entry(bytes, now, age, head.fresh)
        .filter(|entry| !entry.needs_strict_check());
    let Some(entry) = entry.map(Arc::new) else {
        return Ok(None);
    };
    if entry.identity_bytes_to_decode() > 0 {
        // values are stored uncompressed: the decoded length of this one has no limit
        return Err(ScriptValueStoreError::Owner);
    }
    let value = entry
        .identity_payload()
        .ok_or(ScriptValueStoreError::Memory)?;
    if let Some(hot) = shared.hot_tier() {
        let key = stored_value_key(name);
        if shared.purge_generation() == generation && hot.insert(key, Arc::clone(&entry)) {
            // a purge may have happened in between
            if shared.purge_generation() != generation {
                hot.remove_same_entry(&key, &entry);
            }
        }
    }
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        accept_value_lookup_reply, delete_stored_value, set_stored_value, stored_value,
        stored_value_key, value_lookup_request, ScriptValueStoreError,
    };
    use crate::cache::entry::wire::EncodedEntry;
    use crate::cache::entry::{
        CacheEntry, CompressionGate, EntryMetadata, EntryPayload, EnvelopeBytes,
    };
    use crate::cache::process::ProcessCacheState;

    fn shared() -> ProcessCacheState {
        let shared = ProcessCacheState::default();
        shared.start_hot_tier(1 << 20, 1 << 20, 1);
        shared
    }

    #[test]
    fn value_is_returned_until_it_expires() {
        let shared = shared();
        assert_eq!(stored_value(&shared, b"a", 0), Ok(None));
        for value in [&b"one"[..], b"", b"\0\xff\0"] {
            assert_eq!(set_stored_value(&shared, b"a", value, 5000, 1000), Ok(None));
            assert_eq!(
                &stored_value(&shared, b"a", 5999).unwrap().unwrap()[..],
                value
            );
            assert_eq!(stored_value(&shared, b"b", 5999), Ok(None));
        }
        assert_eq!(stored_value(&shared, b"a", 6000), Ok(None));
        set_stored_value(&shared, b"a", b"x", u64::MAX, 1000).unwrap();
        assert!(stored_value(&shared, b"a", 1 << 40).unwrap().is_some());
        assert_eq!(delete_stored_value(&shared, b"a"), Ok(None));
        assert_eq!(stored_value(&shared, b"a", 1000), Ok(None));
    }

    #[test]
    fn value_that_is_too_long_removes_the_previous_one() {
        let shared = shared();
        set_stored_value(&shared, b"a", b"old", 5000, 0).unwrap();
        let long = vec![b'x'; 1 << 20];
        assert_eq!(
            set_stored_value(&shared, b"a", &long, 5000, 0),
            Err(ScriptValueStoreError::Room)
        );
        assert_eq!(stored_value(&shared, b"a", 0), Ok(None));
    }

    #[test]
    fn values_are_rejected_without_a_cache() {
        let shared = ProcessCacheState::default();
        assert_eq!(
            set_stored_value(&shared, b"a", b"b", 1, 0),
            Err(ScriptValueStoreError::Cache)
        );
        assert_eq!(
            stored_value(&shared, b"a", 0),
            Err(ScriptValueStoreError::Cache)
        );
        assert_eq!(
            delete_stored_value(&shared, b"a"),
            Err(ScriptValueStoreError::Cache)
        );
        assert!(value_lookup_request(&shared, b"a").unwrap().is_none());
    }

    #[test]
    fn value_keys_differ_from_response_keys() {
        assert_ne!(&stored_value_key(b"a"), blake3::hash(b"a").as_bytes());
        assert_ne!(stored_value_key(b""), stored_value_key(b"\0"));
    }

    /// Returns head and body of an owner's reply with an entry.
    fn owner_reply(entry: CacheEntry) -> (Vec<u8>, Vec<u8>) {
        let body = EncodedEntry::from_entry(&Arc::new(entry)).unwrap().to_vec();
        let head = format!(
            "HTTP/1.1 200 OK\r\nsszip-generation: 7\r\nsszip-fresh: 500\r\n\
             content-length: {}\r\nage: 2\r\n\r\n",
            body.len()
        );
        (head.into_bytes(), body)
    }

    #[test]
    fn compressed_value_is_rejected() {
        let shared = shared();
        let gate = CompressionGate {
            min_length: 0,
            level: 1,
        };
        let long = vec![b'v'; 5000];
        let coded = CacheEntry::from_fetched_result(
            EnvelopeBytes::envelope_without_bytes(),
            &long,
            gate,
            EntryMetadata::default(),
        )
        .unwrap();
        let (head, body) = owner_reply(coded);
        let result = accept_value_lookup_reply(&shared, b"a", (&head, &body), 0, 100);
        assert_eq!(result, Err(ScriptValueStoreError::Owner));
        assert_eq!(stored_value(&shared, b"a", 100), Ok(None));
    }

    #[test]
    fn owner_entry_is_stored_unless_purged_since() {
        let shared = shared();
        let entry = CacheEntry::new(
            EnvelopeBytes::envelope_without_bytes(),
            EntryPayload::Raw(b"value".to_vec().into()),
            EntryMetadata::default(),
        );
        let (head, body) = owner_reply(entry);
        let found = accept_value_lookup_reply(&shared, b"a", (&head, &body), 9, 100);
        assert_eq!(&found.unwrap().unwrap()[..], b"value");
        // the present generation is 0
        assert_eq!(stored_value(&shared, b"a", 100), Ok(None));
        accept_value_lookup_reply(&shared, b"a", (&head, &body), 0, 100).unwrap();
        assert_eq!(
            &stored_value(&shared, b"a", 599).unwrap().unwrap()[..],
            b"value"
        );
        assert_eq!(stored_value(&shared, b"a", 600), Ok(None));
        let damaged = accept_value_lookup_reply(&shared, b"a", (&head, &body[1..]), 0, 100);
        assert_eq!(damaged, Ok(None));
        let none = b"HTTP/1.1 404 Not Found\r\nsszip-generation: 7\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(
            accept_value_lookup_reply(&shared, b"a", (none, b""), 0, 0),
            Ok(None)
        );
        for other in [
            &b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 503 Busy\r\nsszip-generation: 7\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200",
            b"no HTTP\r\n\r\n",
        ] {
            let result = accept_value_lookup_reply(&shared, b"a", (other, b""), 0, 0);
            assert_eq!(result, Err(ScriptValueStoreError::Owner));
        }
    }
}
