//! The hot tier: entries in the memory of this process, within a number of bytes.
//!
//! Eviction is `quick_cache`'s, which is similar to S3-FIFO: entries that were requested once are
//! evicted first, so that a scan over old blocks does not evict entries that many clients request.
//! Any number of threads may use the tier; a lookup takes a read lock of one shard.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use foldhash::fast::RandomState;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

#[cfg(feature = "ffi")]
use crate::allocator::run_with_guaranteed_allocations;
use crate::cache::entry::CacheEntry;
use crate::cache::CacheKey;
use crate::lock::lock_ignoring_poison;

/// The table of the entries in the memory of this process by key, which evicts entries beyond its
/// capacity in bytes.
#[derive(Debug)]
pub struct HotTier {
    cache: Cache<PrehashedKey, WeighedEntry, HotSlotWeighter, RandomState, EvictionCounter>,
    evictions: EvictionCounter,
    /// Maximum length of an entry as the caller has set it, in bytes.
    entry_limit: u64,
    /// Number of shards.
    shards: u64,
    /// Maximum weight of an entry in bytes, so that each shard has room for it.
    max_entry: AtomicU64,
    /// Current age of the tier; entries of another age are not returned.
    age: AtomicU32,
    /// Lock of threads that change a slot that they have read, with the number of insertions for
    /// which the cache's tables have room.
    writing: Mutex<usize>,
}

/// Number of insertions for which room in the cache's tables is reserved at a time, in each shard:
/// one of them may get all.
const RESERVED_INSERTIONS: usize = 64;

/// Maximum length of a slot in the cache's tables in bytes, with the cache's own fields.
const MAX_SLOT_BYTES: usize = size_of::<PrehashedKey>() + size_of::<WeighedEntry>() + 32;

/// Runs `run`: memory is not checked without the feature `ffi`.
#[cfg(not(feature = "ffi"))]
fn run_with_guaranteed_allocations<T>(_: [usize; 2], run: impl FnOnce() -> T) -> Option<T> {
    Some(run())
}

/// A key of the hot tier's table, whose first half is its table hash: cache keys are hashes
/// already.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PrehashedKey(CacheKey);

impl Hash for PrehashedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let half = self.0.first_chunk();
        state.write_u128(half.map_or(0, |half| u128::from_le_bytes(*half)));
    }
}

/// An entry of the hot tier with the weight that is accounted for it. The cache must see the same
/// weight when it inserts and when it evicts a slot, while an entry's weight may grow.
#[derive(Clone)]
struct WeighedEntry {
    entry: Arc<CacheEntry>,
    weight: u32,
    /// Age of the tier when the entry was inserted, or [`DENIED`].
    age: u32,
}

/// Age of a slot whose entry was denied by the node: it is not returned, and only keeps older
/// responses out.
const DENIED: u32 = u32::MAX;

/// The accounting of slots by their recorded weight in bytes.
#[derive(Clone)]
struct HotSlotWeighter;

impl Weighter<PrehashedKey, WeighedEntry> for HotSlotWeighter {
    fn weight(&self, _: &PrehashedKey, slot: &WeighedEntry) -> u64 {
        slot.weight.into()
    }
}

/// Weight of a typical entry in bytes; only the number of keys that are remembered after eviction
/// depends on it.
const TYPICAL_WEIGHT: u64 = 16 << 10;

/// A counter of entries that were evicted from a cache because others needed their space.
#[derive(Clone, Debug, Default)]
pub(in crate::cache) struct EvictionCounter(Arc<AtomicU64>);

impl EvictionCounter {
    /// Number of evictions since the counter was created.
    pub(in crate::cache) fn eviction_count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the number of evictions since the last call.
    fn take_eviction_count(&self) -> u64 {
        match self.eviction_count() {
            // the usual case
            0 => 0,
            _ => self.0.swap(0, Ordering::Relaxed),
        }
    }
}

impl<K, V> Lifecycle<K, V> for EvictionCounter {
    /// Evicted values, which are dropped after the shard's lock is released.
    type RequestState = <DefaultLifecycle<K, V> as Lifecycle<K, V>>::RequestState;

    /// Counts an eviction. It is not called for a replaced value.
    fn before_evict(&self, _: &mut Self::RequestState, _: &K, _: &mut V) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn on_evict(&self, state: &mut Self::RequestState, key: K, value: V) {
        DefaultLifecycle::default().on_evict(state, key, value);
    }
}

/// Creates a cache that evicts entries beyond `capacity` as `by` weighs them, has `shards` shards,
/// and counts in `evictions`.
pub(in crate::cache) fn new_bounded_cache<K, V, W>(
    capacity: u64,
    shards: usize,
    by: W,
    evictions: EvictionCounter,
) -> Cache<K, V, W, RandomState, EvictionCounter>
where
    K: Eq + Hash,
    V: Clone,
    W: Weighter<K, V> + Clone,
{
    let items = usize::try_from(capacity / TYPICAL_WEIGHT).unwrap_or(usize::MAX);
    let options = OptionsBuilder::new()
        .shards(shards)
        .estimated_items_capacity(items.max(shards * 32))
        .weight_capacity(capacity / shards as u64 * shards as u64)
        .build();
    match options {
        Ok(options) => Cache::with_options(
            options,
            by,
            // clients choose the calls and thereby the keys: they must not know the seed
            RandomState::default(),
            evictions,
        ),
        // both capacities are set above
        Err(_) => unreachable!(),
    }
}

/// Returns the maximum weight of an entry in a shard of that capacity.
fn largest_entry(entry_limit: u64, shard: u64) -> u64 {
    entry_limit.min(shard / 10 * 9).min(u32::MAX.into())
}

impl HotTier {
    /// Creates a tier of at most `capacity` bytes for entries of at most `max_entry` bytes, both as
    /// [`CacheEntry::memory_weight`] counts them, for `threads` concurrent threads. Each shard gets
    /// its share of the capacity, with space for a few of the largest entries: a tier that is small
    /// in relation to its entries has fewer shards, and accepts no entry above nine tenths of its
    /// capacity.
    pub fn new(capacity: u64, max_entry: u64, threads: usize) -> Self {
        let wanted = match threads {
            0 | 1 => 1,
            threads => threads.saturating_mul(4),
        };
        let room = capacity / max_entry.saturating_mul(4).max(1);
        let most = usize::try_from(room).unwrap_or(usize::MAX).max(1);
        // a power of two, as the cache would choose, but not rounded up
        let shards = 1usize << wanted.min(most).min(1 << 16).ilog2();
        let shard = capacity / shards as u64;
        let evictions = EvictionCounter::default();
        Self {
            cache: new_bounded_cache(capacity, shards, HotSlotWeighter, evictions.clone()),
            evictions,
            entry_limit: max_entry,
            shards: shards as u64,
            max_entry: AtomicU64::new(largest_entry(max_entry, shard)),
            age: AtomicU32::new(0),
            writing: Mutex::new(0),
        }
    }

    /// Changes the capacity, and evicts entries beyond it.
    pub fn set_capacity(&self, capacity: u64) {
        let capacity = capacity / self.shards * self.shards;
        if self.cache.capacity() == capacity {
            return;
        }
        let max_entry = largest_entry(self.entry_limit, capacity / self.shards);
        self.max_entry.store(max_entry, Ordering::Relaxed);
        self.cache.set_capacity(capacity);
    }

    fn max_entry(&self) -> u64 {
        self.max_entry.load(Ordering::Relaxed)
    }

    /// Returns the entry of `key`, fresh or stale.
    pub fn get_fresh_or_stale(&self, key: &CacheKey) -> Option<Arc<CacheEntry>> {
        self.get_valid_slot(key).map(|slot| slot.entry)
    }

    /// Returns the slot of `key`; `None` if it is denied or was invalidated with all others. An
    /// invalid slot is removed.
    fn get_valid_slot(&self, key: &CacheKey) -> Option<WeighedEntry> {
        let slot = self.cache.get(&PrehashedKey(*key))?;
        if slot.age != self.age.load(Ordering::Acquire) {
            if slot.age != DENIED {
                self.remove_same_entry(key, &slot.entry);
            }
            return None;
        }
        Some(slot)
    }

    /// Returns the entry of `key` if it is fresh at `now`, in milliseconds of the caller's clock. A
    /// stale entry that may not be served any more is removed.
    pub fn get(&self, key: &CacheKey, now: u64) -> Option<Arc<CacheEntry>> {
        let slot = self.get_valid_slot(key)?;
        if !slot.entry.is_fresh(now) {
            if !slot.entry.may_serve_or_revalidate(now) {
                self.remove_same_entry(key, &slot.entry);
            }
            return None;
        }
        if slot.entry.memory_weight() != u64::from(slot.weight) {
            self.update_entry_weight(key, &slot.entry);
        }
        Some(slot.entry)
    }

    /// Inserts an entry, and replaces the former one of `key`. Returns `false` if the entry is too
    /// large or memory is refused; `key` then has no entry.
    pub fn insert(&self, key: CacheKey, entry: Arc<CacheEntry>) -> bool {
        let mut reserved = lock_ignoring_poison(&self.writing);
        self.insert_while_locked(&mut reserved, key, entry, self.age.load(Ordering::Acquire))
    }

    /// Inserts an entry unless the response of a later request is present or was
    /// [denied](Self::deny_entry): clients may have received that. Returns whether the entry is the
    /// newest.
    pub fn insert_newest(&self, key: CacheKey, entry: &Arc<CacheEntry>) -> bool {
        self.insert_newest_if(key, entry, || true).unwrap_or(false)
    }

    /// Inserts an entry like [`insert_newest`](Self::insert_newest) if `is_current` returns true, and
    /// returns `None` otherwise. A purge that comes into effect before it calls
    /// [`remove`](Self::remove) or [`invalidate_all_entries`](Self::invalidate_all_entries), and
    /// that `is_current` does not know, removes the inserted entry.
    pub fn insert_newest_if(
        &self,
        key: CacheKey,
        entry: &Arc<CacheEntry>,
        is_current: impl FnOnce() -> bool,
    ) -> Option<bool> {
        // before `is_current`: a later invalidation covers the entry
        let age = self.age.load(Ordering::Acquire);
        let mut reserved = lock_ignoring_poison(&self.writing);
        if !is_current() {
            return None;
        }
        let is_newest = self.cache.peek(&PrehashedKey(key)).is_none_or(|slot| {
            slot.age != age && slot.age != DENIED
                || !entry.is_dispatched_before(&slot.entry)
                || !slot.entry.is_valid_on_chain()
        });
        if is_newest {
            self.insert_while_locked(&mut reserved, key, Arc::clone(entry), age);
        }
        Some(is_newest)
    }

    /// Removes the entry of `key`, if it is this very `entry`, because the node's response to the
    /// request that was sent at `sent_at` under this number shows that it does not exist any more.
    /// Responses to earlier requests, which may still be in flight, are not inserted any more.
    pub fn deny_entry(
        &self,
        key: &CacheKey,
        entry: &Arc<CacheEntry>,
        sent_at: u64,
        dispatch_number: u64,
    ) {
        let mut reserved = lock_ignoring_poison(&self.writing);
        let present = self.cache.peek(&PrehashedKey(*key));
        if present.is_some_and(|slot| Arc::ptr_eq(&slot.entry, entry)) {
            let denied =
                CacheEntry::without_content(sent_at).assign_dispatch_number(dispatch_number);
            self.insert_while_locked(&mut reserved, *key, Arc::new(denied), DENIED);
        }
    }

    /// Inserts an entry; the caller holds the lock for writing, with the number of `reserved`
    /// insertions. Returns `false` if the entry is too large or memory is refused: `key` has no entry
    /// then. An entry that is too large with its other forms keeps the stored one alone, as does one
    /// that is too large in any case: it would make another form for each response.
    fn insert_while_locked(
        &self,
        reserved: &mut usize,
        key: CacheKey,
        entry: Arc<CacheEntry>,
        age: u32,
    ) -> bool {
        if entry.memory_weight() > self.max_entry() {
            entry.drop_cached_forms();
        }
        let weight = entry.memory_weight();
        let slot = u32::try_from(weight).map(|weight| WeighedEntry { entry, weight, age });
        let is_there = weight <= self.max_entry()
            && slot.is_ok_and(|slot| self.insert_if_tables_can_grow(reserved, key, slot));
        if !is_there {
            self.cache.remove(&PrehashedKey(key));
        }
        is_there
    }

    /// Inserts a slot if the cache's tables have room for it. Returns whether they have.
    fn insert_if_tables_can_grow(
        &self,
        reserved: &mut usize,
        key: CacheKey,
        slot: WeighedEntry,
    ) -> bool {
        if *reserved == 0 {
            if !self.reserve_insertions() {
                return false;
            }
            *reserved = RESERVED_INSERTIONS;
        }
        *reserved -= 1;
        self.cache.insert(PrehashedKey(key), slot);
        true
    }

    /// Reserves room in the cache's tables for [`RESERVED_INSERTIONS`], if there is enough memory to
    /// double them: they grow by that, and would otherwise abort the process. For several insertions
    /// at a time: twice the tables of a large tier take longer to allocate than all other work of an
    /// insertion. Returns whether there is enough memory.
    fn reserve_insertions(&self) -> bool {
        let shards = usize::try_from(self.shards).unwrap_or(usize::MAX);
        let insertions = RESERVED_INSERTIONS.saturating_mul(shards);
        let used = self.cache.memory_used();
        // the cache reserves as many slots again, for keys that are remembered after eviction
        let slots = insertions.saturating_mul(2 * MAX_SLOT_BYTES);
        let twice = |table: usize| table.saturating_mul(2).saturating_add(4096);
        let lengths = [twice(used.entries.saturating_add(slots)), twice(used.map)];
        run_with_guaranteed_allocations(lengths, || self.cache.reserve(insertions)).is_some()
    }

    /// Updates the accounted weight of `entry`. Callers of
    /// [`CacheEntry::response_for_identity_client`], [`CacheEntry::response_for_zstd_client`] and
    /// the functions of [`batch`](crate::cache::entry::batch), which may make an entry heavier, call
    /// it afterwards. [`get`](Self::get) updates the weight too; without this call, an entry that is
    /// not requested again is accounted with its stored form only. An entry that would be too large
    /// with its other forms keeps the stored one alone.
    pub fn update_entry_weight(&self, key: &CacheKey, entry: &Arc<CacheEntry>) {
        let _writing = lock_ignoring_poison(&self.writing);
        let Some(slot) = self.cache.peek(&PrehashedKey(*key)) else {
            return;
        };
        if !Arc::ptr_eq(&slot.entry, entry) {
            return;
        }
        if entry.memory_weight() > self.max_entry() {
            entry.drop_cached_forms();
        }
        // not above `max_entry` any more
        let weight = u32::try_from(entry.memory_weight()).unwrap_or(u32::MAX);
        if weight != slot.weight {
            let slot = WeighedEntry { weight, ..slot };
            // fails only if the entry was evicted meanwhile
            drop(self.cache.replace(PrehashedKey(*key), slot, true));
        }
    }

    /// Removes and returns the entry of `key`.
    pub fn remove(&self, key: &CacheKey) -> Option<Arc<CacheEntry>> {
        // not between the check and the insertion of `insert_newest_if`
        let _writing = lock_ignoring_poison(&self.writing);
        self.cache
            .remove(&PrehashedKey(*key))
            .map(|(_, slot)| slot.entry)
    }

    /// Removes the entry of `key` only if it is this very `entry`, as a newer one may have replaced
    /// it.
    pub fn remove_same_entry(&self, key: &CacheKey, entry: &Arc<CacheEntry>) {
        self.cache.remove_if(&PrehashedKey(*key), |other| {
            Arc::ptr_eq(&other.entry, entry)
        });
    }

    /// Removes all entries and releases their memory, which takes time in proportion to their
    /// number.
    pub fn clear(&self) {
        self.cache.clear();
    }

    /// Invalidates all present entries in constant time. An invalid entry is removed when it is
    /// looked up or evicted.
    pub fn invalidate_all_entries(&self) {
        self.age.fetch_add(1, Ordering::AcqRel);
    }

    /// Weight of all entries in bytes, at most the capacity.
    pub fn total_entry_weight(&self) -> u64 {
        self.cache.weight()
    }

    /// Returns the number of evictions since the last call.
    pub fn take_eviction_count(&self) -> u64 {
        self.evictions.take_eviction_count()
    }

    /// Number of entries, including stale and invalidated ones.
    pub fn entry_count(&self) -> usize {
        self.cache.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::sync::Arc;
    use std::time::Duration;

    use super::{CacheKey, HotTier};
    use crate::cache::entry::{
        CacheEntry, CompressionGate, EntryMetadata, EntryPayload, EnvelopeBytes,
    };

    fn key(n: u64) -> CacheKey {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.to_le_bytes());
        key
    }

    fn meta(expires_at: u64) -> EntryMetadata {
        EntryMetadata {
            expires_at,
            ..EntryMetadata::default()
        }
    }

    fn raw(length: usize, expires_at: u64) -> Arc<CacheEntry> {
        let payload = EntryPayload::Raw(vec![b'1'; length].into());
        Arc::new(CacheEntry::new(
            EnvelopeBytes::envelope_without_bytes(),
            payload,
            meta(expires_at),
        ))
    }

    fn compressed(length: usize) -> Arc<CacheEntry> {
        entry_of_result(&vec![b'1'; length])
    }

    fn entry_of_result(result: &[u8]) -> Arc<CacheEntry> {
        let gate = CompressionGate {
            min_length: 0,
            level: 1,
        };
        Arc::new(
            CacheEntry::from_fetched_result(
                EnvelopeBytes::envelope_without_bytes(),
                result,
                gate,
                meta(u64::MAX),
            )
            .unwrap(),
        )
    }

    /// Returns an entry of hexadecimal digits, whose compressed form is about half as long in any
    /// coding.
    fn entry_of_digits(length: usize) -> Arc<CacheEntry> {
        let mut state = 1u64;
        let digits = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            b"0123456789abcdef"[(state >> 60) as usize]
        });
        entry_of_result(&digits.take(length).collect::<Vec<u8>>())
    }

    #[test]
    fn entry_is_found_until_it_is_stale() {
        let hot = HotTier::new(1 << 20, 1 << 16, 1);
        let entry = raw(100, 5000);
        assert!(hot.insert(key(1), Arc::clone(&entry)));
        assert!(Arc::ptr_eq(&hot.get(&key(1), 4999).unwrap(), &entry));
        assert!(hot.get(&key(2), 0).is_none());
        assert_eq!(
            (hot.entry_count(), hot.total_entry_weight()),
            (1, entry.memory_weight())
        );
        assert!(hot.get(&key(1), 5000).is_none());
        assert_eq!((hot.entry_count(), hot.total_entry_weight()), (0, 0));
    }

    #[test]
    fn entries_are_not_found_after_removal_or_invalidation() {
        let hot = HotTier::new(1 << 20, 1 << 16, 4);
        for n in 0..10 {
            hot.insert(key(n), raw(100, 9));
        }
        assert!(hot.remove(&key(3)).is_some() && hot.remove(&key(3)).is_none());
        assert_eq!(hot.entry_count(), 9);
        let late = hot.get(&key(4), 0).unwrap();
        hot.invalidate_all_entries();
        // the number of entries does not matter
        assert_eq!(hot.entry_count(), 9);
        hot.update_entry_weight(&key(4), &late);
        assert!(hot.insert(key(5), raw(100, 9)));
        for n in 0..10 {
            let is_there =
                [hot.get(&key(n), 0), hot.get_fresh_or_stale(&key(n))].map(|entry| entry.is_some());
            assert_eq!(is_there, [n == 5; 2], "{n}");
        }
        assert_eq!(
            (hot.entry_count(), hot.total_entry_weight()),
            (1, raw(100, 9).memory_weight())
        );
    }

    #[test]
    fn evicted_entries_are_counted_once() {
        let hot = HotTier::new(1 << 20, 1 << 16, 1);
        for _ in 0..3 {
            for n in 0..10 {
                hot.insert(key(n), raw(1000, 9));
            }
        }
        hot.remove(&key(3));
        assert!(hot.get(&key(4), 9).is_none());
        // replaced, removed and stale entries are not counted
        assert_eq!((hot.take_eviction_count(), hot.entry_count()), (0, 8));
        for n in 10..1000 {
            hot.insert(key(n), raw(10_000, 9));
        }
        let evicted = hot.take_eviction_count();
        assert_eq!(evicted, 998 - hot.entry_count() as u64);
        assert_eq!(hot.take_eviction_count(), 0);
    }

    #[test]
    fn invalidated_entries_are_evicted_for_new_ones() {
        let capacity = 1 << 20;
        let hot = HotTier::new(capacity, 1 << 16, 1);
        for n in 0..1000 {
            hot.insert(key(n), raw(10_000, 9));
            hot.get(&key(n), 0);
        }
        hot.invalidate_all_entries();
        for n in 1000..1060 {
            hot.insert(key(n), raw(10_000, 9));
            hot.get(&key(n), 0);
        }
        let there = (1000..1060).filter(|n| hot.get(&key(*n), 0).is_some());
        assert_eq!(there.count(), 60);
        assert!(hot.total_entry_weight() <= capacity);
    }

    #[test]
    fn capacity_is_never_exceeded() {
        for threads in [1, 2, 8] {
            let capacity = 1_000_003;
            let hot = HotTier::new(capacity, 100_000, threads);
            for n in 0..5000u64 {
                hot.insert(key(n), raw((n * 7919 % 50_000) as usize, 9));
                assert!(
                    hot.total_entry_weight() <= capacity,
                    "{} bytes",
                    hot.total_entry_weight()
                );
            }
            assert!(
                hot.total_entry_weight() > capacity / 2,
                "{} bytes",
                hot.total_entry_weight()
            );
        }
    }

    #[test]
    fn oversized_entry_is_rejected_and_removes_the_older_entry() {
        let hot = HotTier::new(1 << 20, 10_000, 1);
        assert!(hot.insert(key(1), raw(9000, 9)));
        assert!(!hot.insert(key(1), raw(10_000, 9)));
        assert!(hot.entry_count() == 0);
        // the whole tier is smaller than the largest entry
        let hot = HotTier::new(10_000, 1 << 20, 8);
        assert!(!hot.insert(key(1), raw(9500, 9)));
        assert!(hot.insert(key(1), raw(5000, 9)));
        assert!(!HotTier::new(0, 0, 1).insert(key(1), raw(0, 9)));
    }

    #[test]
    fn frequently_requested_entries_survive_a_scan() {
        let hot = HotTier::new(1 << 20, 1 << 16, 1);
        for n in 0..20 {
            hot.insert(key(n), raw(1000, 9));
            hot.get(&key(n), 0);
        }
        for n in 1000..20_000 {
            hot.insert(key(n), raw(1000, 9));
        }
        let survivors = (0..20).filter(|n| hot.get(&key(*n), 0).is_some()).count();
        assert_eq!(survivors, 20);
    }

    #[test]
    fn cached_identity_bytes_are_added_to_the_weight() {
        let hot = HotTier::new(1 << 20, 300_000, 1);
        let entry = compressed(200_000);
        let light = entry.memory_weight();
        hot.insert(key(1), Arc::clone(&entry));
        hot.insert(key(2), raw(50_000, 9));
        for _ in 0..2 {
            assert_eq!(entry.identity_bytes_to_decode(), 200_000);
            entry.response_for_identity_client(b"").unwrap();
        }
        assert_eq!(entry.identity_bytes_to_decode(), 0);
        assert_eq!(entry.memory_weight(), light + 200_000);
        let before = hot.total_entry_weight();
        hot.update_entry_weight(&key(1), &entry);
        assert_eq!(hot.total_entry_weight(), before + 200_000);
        hot.update_entry_weight(&key(1), &entry);
        assert_eq!(hot.total_entry_weight(), before + 200_000);
        // a lookup updates the weight too
        let other = compressed(200_000);
        hot.insert(key(3), Arc::clone(&other));
        other.response_for_identity_client(b"").unwrap();
        other.response_for_identity_client(b"").unwrap();
        let before = hot.total_entry_weight();
        assert!(hot.get(&key(3), 0).is_some());
        assert_eq!(hot.total_entry_weight(), before + 200_000);
    }

    #[test]
    fn growing_entries_evict_others_within_the_capacity() {
        let capacity = 1 << 20;
        let hot = HotTier::new(capacity, 200_000, 1);
        let entries: Vec<_> = (0..100).map(|_| compressed(100_000)).collect();
        for (n, entry) in entries.iter().enumerate() {
            hot.insert(key(n as u64), Arc::clone(entry));
        }
        assert_eq!(hot.entry_count(), 100);
        for (n, entry) in entries.iter().enumerate() {
            entry.response_for_identity_client(b"").unwrap();
            entry.response_for_identity_client(b"").unwrap();
            hot.update_entry_weight(&key(n as u64), entry);
            assert!(
                hot.total_entry_weight() <= capacity,
                "{} bytes",
                hot.total_entry_weight()
            );
        }
        assert!(hot.entry_count() < 100);
    }

    #[test]
    fn entry_too_large_in_both_codings_keeps_one() {
        let hot = HotTier::new(1 << 20, 100_000, 1);
        let entry = compressed(200_000);
        let light = entry.memory_weight();
        hot.insert(key(1), Arc::clone(&entry));
        for _ in 0..5 {
            assert_eq!(
                entry
                    .response_for_identity_client(b"")
                    .unwrap()
                    .byte_length(),
                200_000
            );
            hot.update_entry_weight(&key(1), &entry);
        }
        assert!(hot.get(&key(1), 0).is_some());
        assert_eq!(
            (hot.total_entry_weight(), entry.memory_weight()),
            (light, light)
        );
        assert_eq!(entry.identity_bytes_to_decode(), 200_000);
    }

    #[test]
    fn kept_zstd_form_is_added_to_the_weight_once() {
        let hot = HotTier::new(1 << 20, 300_000, 1);
        let entry = entry_of_digits(100_000);
        let light = entry.memory_weight();
        hot.insert(key(1), Arc::clone(&entry));
        let before = hot.total_entry_weight();
        for _ in 0..3 {
            let body = entry.response_for_zstd_client(b"", 1).unwrap();
            hot.update_entry_weight(&key(1), &entry);
            let grown = entry.memory_weight() - light;
            assert!(
                (body.byte_length() - 100..body.byte_length() + 200).contains(&grown),
                "{grown} {}",
                body.byte_length()
            );
            assert_eq!(hot.total_entry_weight(), before + grown);
        }
        // a lookup updates the weight too
        let other = entry_of_digits(100_000);
        hot.insert(key(2), Arc::clone(&other));
        other.response_for_zstd_client(b"", 1).unwrap();
        assert!(hot.get(&key(2), 0).is_some());
        assert_eq!(hot.total_entry_weight(), 2 * entry.memory_weight());
    }

    #[test]
    fn entry_too_large_with_its_zstd_form_keeps_the_stored_form_alone() {
        let hot = HotTier::new(1 << 20, 80_000, 1);
        let entry = entry_of_digits(100_000);
        let light = entry.memory_weight();
        assert!(hot.insert(key(1), Arc::clone(&entry)) && entry.keeps_zstd_form());
        for _ in 0..3 {
            let body = entry.response_for_zstd_client(b"", 1).unwrap();
            assert_eq!(body.plain_length(), 100_000);
            hot.update_entry_weight(&key(1), &entry);
            assert!(!entry.keeps_zstd_form());
            assert_eq!(entry.zstd_bytes_to_make(), 100_000);
            assert_eq!(
                (hot.total_entry_weight(), entry.memory_weight()),
                (light, light)
            );
        }
        assert!(hot.get(&key(1), 0).is_some());
    }

    #[test]
    fn inserted_entry_keeps_other_forms_if_the_tier_has_space_for_them() {
        let hot = HotTier::new(1 << 20, 80_000, 1);
        let made = |length| {
            let entry = entry_of_digits(length);
            entry.response_for_zstd_client(b"", 1).unwrap();
            entry
        };
        for (n, length, is_inserted, keeps) in [
            (1, 50_000, true, true),
            (2, 100_000, true, false),
            (3, 200_000, false, false),
        ] {
            let entry = made(length);
            assert_eq!(hot.insert(key(n), Arc::clone(&entry)), is_inserted);
            assert_eq!(entry.keeps_zstd_form(), keeps, "{length}");
            assert_eq!(entry.zstd_bytes_to_make() == 0, keeps, "{length}");
        }
    }

    #[test]
    fn replaced_entry_is_not_reweighed() {
        let hot = HotTier::new(1 << 20, 300_000, 1);
        let (old, new) = (compressed(200_000), raw(100, 9));
        hot.insert(key(1), Arc::clone(&old));
        hot.insert(key(1), Arc::clone(&new));
        old.response_for_identity_client(b"").unwrap();
        old.response_for_identity_client(b"").unwrap();
        hot.update_entry_weight(&key(1), &old);
        hot.update_entry_weight(&key(2), &old);
        assert!(Arc::ptr_eq(&hot.get(&key(1), 0).unwrap(), &new));
        assert_eq!(
            (hot.entry_count(), hot.total_entry_weight()),
            (1, new.memory_weight())
        );
    }

    fn dispatched(sent_at: u64, number: u64) -> Arc<CacheEntry> {
        let payload = EntryPayload::Raw(b"1".to_vec().into());
        let entry = CacheEntry::new(EnvelopeBytes::envelope_without_bytes(), payload, meta(0));
        let entry = entry.with_lifetime(sent_at, 1000);
        Arc::new(entry.assign_dispatch_number(number))
    }

    fn sent_at(sent_at: u64) -> Arc<CacheEntry> {
        dispatched(sent_at, 0)
    }

    #[test]
    fn response_to_an_earlier_request_is_not_inserted() {
        let hot = HotTier::new(1 << 20, 1 << 16, 1);
        let (earlier, present, same, later) = (sent_at(4), sent_at(5), sent_at(5), sent_at(6));
        assert!(hot.insert_newest(key(1), &present));
        assert!(!hot.insert_newest(key(1), &earlier));
        assert!(Arc::ptr_eq(&hot.get(&key(1), 9).unwrap(), &present));
        for newest in [same, later] {
            assert!(hot.insert_newest(key(1), &newest));
            assert!(Arc::ptr_eq(&hot.get(&key(1), 9).unwrap(), &newest));
        }
        // a purge leaves nothing that is newer
        hot.invalidate_all_entries();
        assert!(hot.insert_newest(key(1), &earlier));
    }

    #[test]
    fn requests_of_one_millisecond_are_ordered_by_their_numbers() {
        let hot = HotTier::new(1 << 20, 1 << 16, 1);
        let [first, second, third] = [1, 2, 3].map(|number| dispatched(5, number));
        assert!(hot.insert_newest(key(1), &second));
        for earlier in [&first, &sent_at(5), &dispatched(4, 9)] {
            assert!(!hot.insert_newest(key(1), earlier));
            assert!(Arc::ptr_eq(&hot.get(&key(1), 9).unwrap(), &second));
        }
        for later in [&third, &dispatched(6, 1)] {
            assert!(hot.insert_newest(key(1), later));
            assert!(Arc::ptr_eq(&hot.get(&key(1), 9).unwrap(), later));
        }
    }

    #[test]
    fn response_to_an_earlier_request_of_the_millisecond_of_a_denial_is_not_inserted() {
        let hot = HotTier::new(1 << 20, 1 << 16, 1);
        let [present, earlier, later] = [1, 2, 4].map(|number| dispatched(5, number));
        hot.insert_newest(key(1), &present);
        hot.deny_entry(&key(1), &present, 5, 3);
        assert!(!hot.insert_newest(key(1), &earlier) && hot.get(&key(1), 9).is_none());
        assert!(hot.insert_newest(key(1), &later));
    }

    #[test]
    fn entry_inserted_during_a_purge_is_not_found_after_it() {
        let hot = HotTier::new(1 << 20, 1 << 16, 1);
        assert_eq!(hot.insert_newest_if(key(1), &sent_at(5), || false), None);
        assert!(hot.get(&key(1), 9).is_none());
        let inserted = hot.insert_newest_if(key(1), &sent_at(5), || {
            hot.invalidate_all_entries();
            true
        });
        assert_eq!(inserted, Some(true));
        assert!(hot.get(&key(1), 9).is_none());
        let (removed, is_removed) = channel();
        let hot = &hot;
        std::thread::scope(|scope| {
            let inserted = hot.insert_newest_if(key(1), &sent_at(5), || {
                scope.spawn(move || removed.send(hot.remove(&key(1))).unwrap());
                // the removal waits for the insertion
                let early = is_removed.recv_timeout(Duration::from_millis(20));
                early.is_err()
            });
            assert_eq!(inserted, Some(true));
            assert!(is_removed.recv().unwrap().is_some());
        });
        assert!(hot.get(&key(1), 9).is_none());
    }

    #[test]
    fn response_to_a_request_before_the_denial_of_an_entry_is_not_inserted() {
        let hot = HotTier::new(1 << 20, 1 << 16, 1);
        let (present, other, later) = (sent_at(5), sent_at(6), sent_at(7));
        hot.insert_newest(key(1), &present);
        hot.deny_entry(&key(1), &other, 7, 0);
        assert!(hot.get(&key(1), 9).is_some());
        hot.deny_entry(&key(1), &present, 7, 0);
        assert!(hot.get(&key(1), 9).is_none() && hot.get_fresh_or_stale(&key(1)).is_none());
        assert!(!hot.insert_newest(key(1), &other));
        assert!(hot.get(&key(1), 9).is_none());
        assert!(hot.insert_newest(key(1), &later));
        assert!(Arc::ptr_eq(&hot.get(&key(1), 9).unwrap(), &later));
    }

    #[test]
    fn capacity_is_never_exceeded_by_concurrent_threads() {
        let capacity = 1 << 22;
        let hot = HotTier::new(capacity, 1 << 18, 4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let hot = &hot;
                scope.spawn(move || {
                    for n in 0..2000u64 {
                        let key = key((n * 31 + thread) % 200);
                        match hot.get(&key, n % 10) {
                            Some(entry) => {
                                entry.response_for_identity_client(b"").unwrap();
                                hot.update_entry_weight(&key, &entry);
                            }
                            None if n % 3 == 0 => {
                                hot.insert(key, compressed(50_000));
                            }
                            None => {
                                hot.insert(key, raw(5000, n % 10));
                            }
                        }
                        if n % 500 == 0 {
                            hot.remove(&key);
                        }
                    }
                });
            }
        });
        assert!(hot.total_entry_weight() <= capacity);
        let weights = (0..200).filter_map(|n| hot.remove(&key(n)));
        drop(weights.collect::<Vec<_>>());
        assert_eq!((hot.entry_count(), hot.total_entry_weight()), (0, 0));
    }
}
