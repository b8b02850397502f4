//! The background queue: entries to be stored and leases to be released, for which no request waits.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::CacheEntry;
use crate::cache::process::owner_client::OwnerStoreOptions;
use crate::cache::CacheKey;

/// Maximum number of queued entries; beyond it the oldest are dropped.
const MAX_ENTRIES: usize = 256;

/// Maximum number of bytes that the queued entries keep in memory; beyond it the oldest are dropped.
const MAX_BYTES: u64 = 64 << 20;

/// Maximum number of queued releases. Leases beyond it end by their time.
const MAX_RELEASES: usize = 4_096;

/// An entry that has to be stored at the owner.
#[derive(Debug)]
pub(super) struct QueuedStore {
    pub(super) key: CacheKey,
    pub(super) entry: Arc<CacheEntry>,
    pub(super) about: Box<StoredEntryAttributes>,
    pub(super) options: OwnerStoreOptions,
    /// Memory that the entry took when it was queued.
    weight: u64,
}

impl QueuedStore {
    pub(super) fn new(
        key: CacheKey,
        entry: Arc<CacheEntry>,
        about: Box<StoredEntryAttributes>,
        options: OwnerStoreOptions,
    ) -> Self {
        Self {
            key,
            weight: entry.memory_weight(),
            entry,
            about,
            options,
        }
    }
}

/// The queue of entries to be stored and leases to be released.
#[derive(Debug, Default)]
pub(super) struct BackgroundQueue {
    /// Memory that the entries took when they were queued.
    bytes: u64,
    stores: VecDeque<QueuedStore>,
    /// Releases are sent first, because other processes may wait for them.
    releases: VecDeque<CacheKey>,
}

impl BackgroundQueue {
    /// Queues an entry. Entries for which there is no room leave their leases to be released.
    pub(super) fn push_store(&mut self, store: QueuedStore) {
        if store.weight > MAX_BYTES || self.stores.try_reserve(1).is_err() {
            return self.push_release(store.key);
        }
        self.bytes += store.weight;
        self.stores.push_back(store);
        while self.stores.len() > MAX_ENTRIES || self.bytes > MAX_BYTES {
            match self.pop_store() {
                Some(oldest) => self.push_release(oldest.key),
                None => break,
            }
        }
    }

    /// Queues the release of a lease.
    pub(super) fn push_release(&mut self, key: CacheKey) {
        if self.releases.len() < MAX_RELEASES && self.releases.try_reserve(1).is_ok() {
            self.releases.push_back(key);
        }
    }

    /// Takes the oldest entry.
    pub(super) fn pop_store(&mut self) -> Option<QueuedStore> {
        let store = self.stores.pop_front()?;
        self.bytes -= store.weight;
        Some(store)
    }

    /// Takes the oldest release.
    pub(super) fn pop_release(&mut self) -> Option<CacheKey> {
        self.releases.pop_front()
    }

    /// Whether nothing is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.stores.is_empty() && self.releases.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        BackgroundQueue, OwnerStoreOptions, QueuedStore, MAX_BYTES, MAX_ENTRIES, MAX_RELEASES,
    };
    use crate::cache::entry::store_attributes::StoredEntryAttributes;
    use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};

    fn store(n: u8, length: u64) -> QueuedStore {
        let bytes = vec![b'1'; usize::try_from(length).unwrap()];
        let payload = EntryPayload::Raw(bytes.into());
        let entry = Arc::new(CacheEntry::new(
            EnvelopeBytes::envelope_without_bytes(),
            payload,
            EntryMetadata::default(),
        ));
        let about = StoredEntryAttributes::attributes_for_entry(&entry, [0; 16], None, 0).unwrap();
        QueuedStore::new(
            [n; 32],
            entry,
            Box::new(about),
            OwnerStoreOptions::default(),
        )
    }

    /// Returns the first bytes of the keys: of releases, and of entries.
    fn drain(queue: &mut BackgroundQueue) -> (Vec<u8>, Vec<u8>) {
        let releases = std::iter::from_fn(|| queue.pop_release()).map(|key| key[0]);
        let releases = releases.collect();
        let stores = std::iter::from_fn(|| queue.pop_store()).map(|store| store.key[0]);
        (releases, stores.collect())
    }

    #[test]
    fn oldest_entry_is_dropped_for_a_long_one() {
        let mut queue = BackgroundQueue::default();
        for n in 0..3 {
            queue.push_store(store(n, MAX_BYTES / 3));
        }
        queue.push_release([7; 32]);
        // the lease of the dropped entry is released
        assert_eq!(drain(&mut queue), (vec![0, 7], vec![1, 2]));
        assert_eq!((queue.bytes, queue.is_empty()), (0, true));
    }

    #[test]
    fn entry_longer_than_the_queue_is_dropped() {
        let mut queue = BackgroundQueue::default();
        queue.push_store(store(1, 10));
        queue.push_store(store(2, MAX_BYTES));
        assert_eq!(drain(&mut queue), (vec![2], vec![1]));
    }

    #[test]
    fn entries_and_releases_are_limited_in_number_and_the_oldest_entry_is_dropped() {
        let mut queue = BackgroundQueue::default();
        queue.push_store(store(1, 1));
        for _ in 0..2 * MAX_RELEASES {
            queue.push_store(store(0, 1));
        }
        let (releases, stores) = drain(&mut queue);
        assert_eq!((releases.len(), stores.len()), (MAX_RELEASES, MAX_ENTRIES));
        assert_eq!((releases[0], queue.bytes), (1, 0));
    }
}
