//! Entries that the owner has sent.

use std::sync::Arc;

use crate::cache::chain::NamespaceChains;
use crate::cache::entry::{wire, CacheEntry};
use crate::cache::process::ProcessCacheState;
use crate::cache::resource::other_format_key;
use crate::cache::CacheKey;
use crate::memory;

/// A serialized entry, and its times in milliseconds.
pub(super) struct ReceivedEntry {
    pub(super) bytes: Vec<u8>,
    /// Remaining lifetime.
    pub(super) fresh: u64,
    /// Time since the request was sent to the node.
    pub(super) age: u64,
}

/// Decodes an entry that the owner has sent, and stores it in the hot tier. Returns `None` if it is
/// invalid or does not hold any more, or memory is short.
pub(super) fn accept_received_entry(
    shared: &ProcessCacheState,
    chains: &NamespaceChains,
    key: &CacheKey,
    received: ReceivedEntry,
    now: u64,
) -> Option<Arc<CacheEntry>> {
    let entry = decode_received_entry(shared, chains, key, received, now)?;
    insert_received_entry(shared, key, &entry);
    Some(entry)
}

/// Decodes an entry that the owner has sent. Returns `None` if it is invalid or does not hold any
/// more, or memory is short.
pub(super) fn decode_received_entry(
    shared: &ProcessCacheState,
    chains: &NamespaceChains,
    key: &CacheKey,
    received: ReceivedEntry,
    now: u64,
) -> Option<Arc<CacheEntry>> {
    // while memory is short nothing is stored
    if memory::is_memory_short() {
        return None;
    }
    let ReceivedEntry { bytes, fresh, age } = received;
    let Some(entry) = wire::decode_owned_entry(bytes, now, age, fresh) else {
        shared.count_invalid_entry();
        return None;
    };
    // it may depend on a head that is not known here yet, or on one that was replaced
    let entry = entry.with_owner_chain_dependency(chains)?;
    if let Some(dependency) = entry.chain_dependency() {
        dependency.record_entry_from_owner();
    }
    // a block that was seen here may be on its way to the owner
    let entry = Some(entry).filter(CacheEntry::is_valid_on_chain)?;
    let hot = shared.hot_tier();
    let entry = match hot.and_then(|hot| hot.get_fresh_or_stale(&other_format_key(key))) {
        Some(_) => entry.mark_for_format_comparison(),
        None => entry,
    };
    Some(Arc::new(entry))
}

/// Stores an entry of the owner in the hot tier.
pub(super) fn insert_received_entry(
    shared: &ProcessCacheState,
    key: &CacheKey,
    entry: &Arc<CacheEntry>,
) {
    if let Some(hot) = shared.hot_tier() {
        hot.insert_newest(*key, entry);
    }
}
