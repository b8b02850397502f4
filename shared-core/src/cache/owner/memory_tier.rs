//! The memory tier of the owner.
//!
//! Entries that are not final are only here, and so is the first fill of a final entry: most
//! responses are requested once and are not worth a write to disk. `quick_cache` evicts entries,
//! as in the hot tier (`cache::process::hot`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use foldhash::fast::RandomState;
use quick_cache::sync::Cache;
use quick_cache::Weighter;

use super::disk::{DiskEntry, EntryBytes, EntryRecordAttributes};
use crate::cache::chain::{ChainDependency, NamespaceChain, NamespaceChains};
use crate::cache::clock::ClockReading;
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::wire;
use crate::cache::freshness::BlockAnchor;
use crate::cache::process::hot::{new_bounded_cache, EvictionCounter};
use crate::cache::CacheKey;

/// An entry in the owner's memory, with the state that decides whether it is fresh, purged, and on
/// disk.
#[derive(Debug)]
pub struct OwnerMemoryEntry {
    about: StoredEntryAttributes,
    encoded_bytes: EntryBytes,
    /// The followed chain on which the entry depends.
    chain: Option<Arc<NamespaceChain>>,
    /// Block hash by which the owner of another machine can check the entry; not on disk.
    anchor: Option<BlockAnchor>,
    /// Age at `since`, and remaining lifetime from then on, in milliseconds.
    age_ms: u64,
    fresh: u64,
    /// Monotonic milliseconds.
    since: u64,
    /// Number of the entry among all entries; its forms have the same number.
    number: u64,
    is_stored: AtomicBool,
    /// Whether the fleet has not been offered the entry yet, for all its forms; `None` if it may not
    /// be shared.
    unshared: Option<Arc<AtomicBool>>,
    /// Whether the entry was read from the store, which a former owner may have filled.
    is_from_disk: bool,
    /// Time when the entry was written to the store or read from it. Monotonic milliseconds.
    placed: AtomicU64,
    /// Time of the last request. Monotonic milliseconds.
    requested: AtomicU64,
    /// No purge up to this generation covers the entry.
    outlived: AtomicU64,
}

/// Number of entries created so far.
static ENTRY_NUMBER: AtomicU64 = AtomicU64::new(0);

impl OwnerMemoryEntry {
    /// Creates an entry that is fresh for `fresh` milliseconds from `now` on.
    pub fn new(about: StoredEntryAttributes, body: Vec<u8>, fresh: u64, now: ClockReading) -> Self {
        Self::with_body_and_lifetime(about, EntryBytes::Owned(body), fresh, now)
    }

    fn with_body_and_lifetime(
        about: StoredEntryAttributes,
        body: EntryBytes,
        fresh: u64,
        now: ClockReading,
    ) -> Self {
        Self {
            outlived: AtomicU64::new(about.generation),
            about,
            encoded_bytes: body,
            chain: None,
            anchor: None,
            age_ms: 0,
            fresh,
            since: now.monotonic,
            number: ENTRY_NUMBER.fetch_add(1, Ordering::Relaxed),
            is_stored: AtomicBool::new(false),
            unshared: None,
            is_from_disk: false,
            placed: AtomicU64::new(now.monotonic),
            requested: AtomicU64::new(now.monotonic),
        }
    }

    /// Creates an entry that was read from the store. A wall clock that was set back does not make
    /// it fresher than it was at first.
    pub fn from_disk_entry(stored: DiskEntry, now: ClockReading) -> Self {
        let EntryRecordAttributes {
            about,
            requested_at,
            expires_at,
            is_shareable,
        } = stored.header;
        let left = expires_at.saturating_sub(now.unix.max(requested_at));
        Self {
            age_ms: now.unix.saturating_sub(requested_at),
            is_stored: AtomicBool::new(!stored.is_old),
            is_from_disk: true,
            ..Self::with_body_and_lifetime(about, stored.body, left, now)
        }
        .mark_shareability(is_shareable)
    }

    /// Copies the entry in another form, with the state of the present form.
    pub fn with_encoded_bytes(&self, body: Vec<u8>) -> Self {
        let same = |number: &AtomicU64| number.load(Ordering::Relaxed).into();
        Self {
            about: self.about.clone(),
            encoded_bytes: EntryBytes::Owned(body),
            chain: self.chain.clone(),
            is_stored: self.is_stored.load(Ordering::Relaxed).into(),
            unshared: self.unshared.clone(),
            placed: same(&self.placed),
            requested: same(&self.requested),
            outlived: same(&self.outlived),
            ..*self
        }
    }

    /// Whether this entry and `other` are the same response in two forms: unchecked, checked or
    /// recompressed.
    pub fn is_form_of_same_response(&self, other: &Self) -> bool {
        self.number == other.number
    }

    /// Makes the entry dependent on its chain, if `chains` has it.
    #[must_use]
    pub fn with_chain_dependency(mut self, chains: &NamespaceChains) -> Self {
        self.chain = chains.get(&self.about.namespace);
        self
    }

    /// Sets the age of the entry: its node was queried `age_ms` milliseconds before it was created.
    #[must_use]
    pub fn with_age(self, age_ms: u64) -> Self {
        Self { age_ms, ..self }
    }

    /// Sets the block hash by which the owner of another machine can check the entry.
    #[must_use]
    pub fn attach_block_anchor(self, anchor: Option<BlockAnchor>) -> Self {
        Self { anchor, ..self }
    }

    /// Returns the block hash by which the owner of another machine can check the entry; `None` for
    /// entries that were read from the disk.
    pub fn block_anchor(&self) -> Option<BlockAnchor> {
        self.anchor
    }

    /// Time at which the node was queried, in monotonic milliseconds.
    fn sent_at(&self) -> u64 {
        self.since.saturating_sub(self.age_ms)
    }

    fn chain_dependency(&self) -> Option<ChainDependency<'_>> {
        let StoredEntryAttributes {
            class,
            epoch,
            height,
            ..
        } = self.about;
        Some(ChainDependency::new(
            self.chain.as_ref()?,
            class,
            epoch,
            height,
        ))
    }

    /// Whether the entry is still valid on its chain, regardless of its lifetime.
    pub fn is_valid_on_chain(&self) -> bool {
        self.chain_dependency()
            .is_none_or(|stamp| stamp.is_entry_valid())
    }

    /// Whether its chain is known to be the chain that it was stored under, or cannot be compared.
    pub fn is_chain_identity_checked(&self) -> bool {
        self.chain_dependency()
            .is_none_or(|stamp| stamp.is_chain_identity_checked())
    }

    /// Expires the responses about older heads, if the entry depends on the head. Returns whether
    /// the entry shows a newer head.
    pub fn record_newer_entry_head(&self) -> bool {
        self.chain_dependency()
            .is_some_and(|stamp| stamp.record_newer_entry_head())
    }

    /// Returns the class, namespace, block and generation with which a process stored the entry.
    pub fn entry_store_attributes(&self) -> &StoredEntryAttributes {
        &self.about
    }

    /// Returns the serialized bytes of the entry, which the owner sends to processes without
    /// parsing them.
    pub fn encoded_bytes(&self) -> &[u8] {
        self.encoded_bytes.as_ref()
    }

    /// Returns the decompressed length in bytes of an entry that was stored unchecked and has not
    /// been read strictly yet.
    pub fn length_if_unchecked(&self) -> Option<u64> {
        wire::payload_length_if_unchecked(self.encoded_bytes())
    }

    /// Remaining lifetime in milliseconds; 0 if the entry is not fresh.
    pub fn remaining_ttl(&self, now: ClockReading) -> u64 {
        match self.is_valid_on_chain() {
            true => self.fresh.saturating_sub(self.elapsed_ms(now)),
            false => 0,
        }
    }

    /// Time in milliseconds since the node was queried.
    pub fn age_ms(&self, now: ClockReading) -> u64 {
        self.age_ms.saturating_add(self.elapsed_ms(now))
    }

    /// Whether the entry should be written to the store on this request. Returns true once.
    pub fn claim_store_write(&self) -> bool {
        self.about.class.is_storable_on_disk()
            && !self.is_stored.load(Ordering::Relaxed)
            && !self.is_stored.swap(true, Ordering::Relaxed)
    }

    /// Whether the store has the entry, or is writing it.
    pub fn is_on_disk(&self) -> bool {
        self.is_from_disk || self.is_stored.load(Ordering::Relaxed)
    }

    /// Marks the entry as rejected by the store: it may be offered again.
    pub fn mark_store_rejected(&self) {
        self.is_stored.store(false, Ordering::Relaxed);
    }

    /// Sets whether the entry may be offered to the fleet.
    #[must_use]
    pub fn mark_shareability(self, is_shareable: bool) -> Self {
        Self {
            unshared: is_shareable.then(|| Arc::new(true.into())),
            ..self
        }
    }

    /// Gives the entry the shareability of `former`, which it replaces. The fleet is not offered the
    /// former entry any more.
    #[must_use]
    pub fn take_shareability(self, former: &Self) -> Self {
        let is_unshared = former.claim_fleet_offer();
        let unshared = former.unshared.as_ref();
        Self {
            unshared: unshared.map(|_| Arc::new(is_unshared.into())),
            ..self
        }
    }

    /// Whether the entry is of a kind that may be offered to the fleet, offered already or not.
    pub fn is_shareable(&self) -> bool {
        self.unshared.is_some()
    }

    /// Whether the entry may be [offered](Self::claim_fleet_offer) to the fleet.
    pub fn is_unshared(&self) -> bool {
        let unshared = self.unshared.as_ref();
        unshared.is_some_and(|unshared| unshared.load(Ordering::Relaxed))
    }

    /// Whether the entry was read from the store, and may be offered to the fleet.
    pub fn is_unshared_disk_entry(&self) -> bool {
        self.is_from_disk && self.is_unshared()
    }

    /// Whether the entry should be offered to the fleet. Returns true once.
    pub fn claim_fleet_offer(&self) -> bool {
        let unshared = self.unshared.as_ref();
        unshared.is_some_and(|unshared| unshared.swap(false, Ordering::Relaxed))
    }

    /// Marks the entry as written to the store.
    pub fn mark_stored(&self, now: ClockReading) {
        self.placed.store(now.monotonic, Ordering::Relaxed);
    }

    /// Marks the entry as [to be stored](Self::claim_store_write) again if it was written to the
    /// store `after` milliseconds ago or earlier.
    pub fn mark_for_rewrite_if_old(&self, after: u64, now: ClockReading) {
        let placed = self.placed.load(Ordering::Relaxed);
        if now.monotonic.saturating_sub(placed) >= after {
            // only one of concurrent requests
            let renews = self.placed.compare_exchange(
                placed,
                now.monotonic,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if renews.is_ok() {
                self.mark_store_rejected();
            }
        }
    }

    /// Time of the last request, in monotonic milliseconds.
    pub fn last_request_time(&self) -> u64 {
        self.requested.load(Ordering::Relaxed)
    }

    /// Whether a purge up to `newest` covers the entry, as `judge` determines; `judge` is called
    /// once per purge.
    pub fn is_covered_by_purge(
        &self,
        newest: u64,
        judge: impl FnOnce(&StoredEntryAttributes) -> bool,
    ) -> bool {
        if self.outlived.load(Ordering::Relaxed) >= newest {
            return false;
        }
        let is_purged = judge(&self.about);
        if !is_purged {
            self.outlived.fetch_max(newest, Ordering::Relaxed);
        }
        is_purged
    }

    fn elapsed_ms(&self, now: ClockReading) -> u64 {
        now.monotonic.saturating_sub(self.since)
    }

    fn memory_weight(&self) -> u64 {
        let length = match &self.encoded_bytes {
            EntryBytes::Owned(bytes) => bytes.capacity(),
            EntryBytes::Pinned(pinned) => (**pinned).as_ref().len(),
        };
        length as u64 + ENTRY_OVERHEAD
    }
}

/// Bytes of an entry in addition to its body, including its slot in the cache.
const ENTRY_OVERHEAD: u64 = 304;

/// The accounting of entries by their length in bytes.
#[derive(Clone)]
struct OwnerEntryWeighter;

impl Weighter<CacheKey, Arc<OwnerMemoryEntry>> for OwnerEntryWeighter {
    fn weight(&self, _: &CacheKey, entry: &Arc<OwnerMemoryEntry>) -> u64 {
        entry.memory_weight()
    }
}

/// The table of the entries in the owner's memory by key, which evicts entries beyond its capacity
/// in bytes.
pub struct OwnerMemory {
    cache: Cache<CacheKey, Arc<OwnerMemoryEntry>, OwnerEntryWeighter, RandomState, EvictionCounter>,
    eviction_count: EvictionCounter,
    max_entry: u64,
}

impl OwnerMemory {
    /// Creates a tier of at most `capacity` bytes. One entry may take nine tenths of it.
    pub fn new(capacity: u64) -> Self {
        let evictions = EvictionCounter::default();
        Self {
            cache: new_bounded_cache(capacity, 1, OwnerEntryWeighter, evictions.clone()),
            eviction_count: evictions,
            max_entry: capacity / 10 * 9,
        }
    }

    /// Whether an entry of `length` bytes fits.
    pub fn fits_entry(&self, length: usize) -> bool {
        length as u64 + ENTRY_OVERHEAD <= self.max_entry
    }

    /// Returns the entry under `key` if it is fresh at `now`, and counts a request of it.
    pub fn get(&self, key: &CacheKey, now: ClockReading) -> Option<Arc<OwnerMemoryEntry>> {
        let entry = self.cache.get(key)?;
        if entry.remaining_ttl(now) == 0 {
            self.remove_same_entry(key, &entry);
            return None;
        }
        entry.requested.store(now.monotonic, Ordering::Relaxed);
        Some(entry)
    }

    /// Returns the entry under `key` if it is fresh, without counting a request of it.
    pub fn get_uncounted(
        &self,
        key: &CacheKey,
        now: ClockReading,
    ) -> Option<Arc<OwnerMemoryEntry>> {
        self.cache
            .peek(key)
            .filter(|entry| entry.remaining_ttl(now) > 0)
    }

    /// Whether `key` has the response to a later request to the node than `entry`, which is not
    /// about a chain that was reorganized away.
    pub fn has_later_fetch(&self, key: &CacheKey, entry: &OwnerMemoryEntry) -> bool {
        let there = self.cache.peek(key);
        there.is_some_and(|there| there.sent_at() > entry.sent_at() && there.is_valid_on_chain())
    }

    /// Inserts an entry under `key`, in place of the present one. Returns false if the entry is too
    /// large or [pinned in the store](EntryBytes::Pinned); the key is then empty.
    pub fn insert(&self, key: CacheKey, entry: &Arc<OwnerMemoryEntry>) -> bool {
        if entry.memory_weight() > self.max_entry
            || matches!(entry.encoded_bytes, EntryBytes::Pinned(_))
        {
            self.cache.remove(&key);
            return false;
        }
        self.cache.insert(key, Arc::clone(entry));
        true
    }

    /// Whether `key` has the entry of another fetch than `entry`, in whatever form.
    pub fn has_entry_of_other_fetch(&self, key: &CacheKey, entry: &OwnerMemoryEntry) -> bool {
        let there = self.cache.peek(key);
        there.is_some_and(|there| !there.is_form_of_same_response(entry))
    }

    /// Returns the strictly read form of `entry`, if it is under `key`.
    pub fn find_checked_form(
        &self,
        key: &CacheKey,
        entry: &OwnerMemoryEntry,
    ) -> Option<Arc<OwnerMemoryEntry>> {
        let there = self.cache.peek(key)?;
        (there.is_form_of_same_response(entry) && there.length_if_unchecked().is_none())
            .then_some(there)
    }

    /// Replaces the entry under `key` if `is_it` returns true for it. No other thread may insert
    /// under that key in the meantime.
    pub fn replace_entry_if(
        &self,
        key: &CacheKey,
        is_it: impl Fn(&Arc<OwnerMemoryEntry>) -> bool,
        by: &Arc<OwnerMemoryEntry>,
    ) -> bool {
        let is_there = self.cache.peek(key).is_some_and(|there| is_it(&there));
        is_there && self.cache.replace(*key, Arc::clone(by), true).is_ok()
    }

    /// Removes the entry under `key` only if it is this very `entry`, as a newer one may have
    /// replaced it.
    pub fn remove_same_entry(&self, key: &CacheKey, entry: &Arc<OwnerMemoryEntry>) {
        self.cache.remove_if(key, |other| Arc::ptr_eq(other, entry));
    }

    /// Removes entries whose last request was before `cutoff`, in monotonic milliseconds.
    pub fn remove_unrequested_since(&self, cutoff: u64) {
        self.remove_matching_entries(|_, entry| entry.last_request_time() < cutoff);
    }

    /// Removes the entry under `key` if `goes` returns true for it. Returns whether it was removed.
    pub fn remove_entry_if(
        &self,
        key: &CacheKey,
        goes: impl Fn(&CacheKey, &OwnerMemoryEntry) -> bool,
    ) -> bool {
        let taken = self.cache.remove_if(key, |entry| goes(key, entry));
        taken.is_some()
    }

    /// Removes the entries for which `goes` returns true, one by one, so that no other thread waits
    /// for more than one removal. Returns their number.
    pub fn remove_matching_entries(
        &self,
        goes: impl Fn(&CacheKey, &OwnerMemoryEntry) -> bool,
    ) -> u64 {
        let mut swept = 0;
        for (key, entry) in self.cache.iter() {
            if goes(&key, &entry) {
                self.remove_same_entry(&key, &entry);
                swept += 1;
            }
        }
        swept
    }

    /// Returns the fresh entries that belong in the store and are not there.
    pub fn unstored_entries(&self, now: ClockReading) -> Vec<(CacheKey, Arc<OwnerMemoryEntry>)> {
        self.cache
            .iter()
            .filter(|(_, entry)| entry.remaining_ttl(now) > 0 && entry.claim_store_write())
            .collect()
    }

    /// Total weight in bytes of the entries, including stale and purged ones. Never more than the
    /// capacity.
    pub fn total_entry_weight(&self) -> u64 {
        self.cache.weight()
    }

    /// Maximum total weight in bytes, beyond which entries are evicted.
    pub fn max_weight(&self) -> u64 {
        self.cache.capacity()
    }

    /// Number of entries that were evicted since the owner's start because others needed their
    /// space.
    pub fn eviction_count(&self) -> u64 {
        self.eviction_count.eviction_count()
    }

    /// Number of entries, including stale ones.
    pub fn entry_count(&self) -> usize {
        self.cache.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::class::LifetimeClass;

    const KEY: CacheKey = [7; 32];

    fn at(monotonic: u64) -> ClockReading {
        ClockReading {
            monotonic,
            unix: 1_000_000 + monotonic,
        }
    }

    fn about(class: LifetimeClass) -> StoredEntryAttributes {
        StoredEntryAttributes {
            class,
            namespace: [1; 16],
            ..StoredEntryAttributes::default()
        }
    }

    fn fresh_entry(class: LifetimeClass, fresh: u64) -> Arc<OwnerMemoryEntry> {
        Arc::new(OwnerMemoryEntry::new(
            about(class),
            vec![1; 100],
            fresh,
            at(0),
        ))
    }

    #[test]
    fn entry_is_found_while_it_is_fresh() {
        let memory = OwnerMemory::new(10_000);
        assert!(memory.insert(KEY, &fresh_entry(LifetimeClass::Tip, 1_500)));
        let entry = memory.get(&KEY, at(1_499)).unwrap();
        assert_eq!(
            (entry.remaining_ttl(at(1_499)), entry.age_ms(at(1_499))),
            (1, 1_499)
        );
        assert!(memory.get_uncounted(&KEY, at(1_499)).is_some());
        assert!(memory.get(&KEY, at(1_500)).is_none());
        assert!(memory.entry_count() == 0);
    }

    #[test]
    fn memory_stays_below_its_capacity_when_entries_are_inserted() {
        let memory = OwnerMemory::new(10_000);
        let large = OwnerMemoryEntry::new(
            about(LifetimeClass::Immutable),
            vec![0; 9_000],
            1_000,
            at(0),
        );
        assert!(memory.insert(KEY, &fresh_entry(LifetimeClass::Immutable, 1_000)));
        assert!(!memory.insert(KEY, &Arc::new(large)));
        assert!(memory.get(&KEY, at(0)).is_none());
        for n in 0..200u8 {
            assert!(memory.insert([n; 32], &fresh_entry(LifetimeClass::Immutable, 1_000)));
            assert!(memory.total_entry_weight() <= memory.max_weight());
        }
        assert!(memory.entry_count() > 20);
        assert_eq!(memory.eviction_count(), 200 - memory.entry_count() as u64);
    }

    #[test]
    fn pinned_body_is_not_inserted_into_memory() {
        let memory = OwnerMemory::new(100_000);
        for is_pinned in [false, true] {
            let body = match is_pinned {
                true => EntryBytes::Pinned(Arc::new([2; 10])),
                false => EntryBytes::Pinned(Arc::new([2; 10])).into_owned(),
            };
            let stored = DiskEntry {
                header: EntryRecordAttributes {
                    about: about(LifetimeClass::Resource),
                    requested_at: at(0).unix,
                    expires_at: at(1_000).unix,
                    is_shareable: false,
                },
                body,
                is_old: false,
            };
            let entry = Arc::new(OwnerMemoryEntry::from_disk_entry(stored, at(0)));
            assert_eq!(entry.encoded_bytes(), [2; 10]);
            assert_eq!(memory.insert(KEY, &entry), !is_pinned);
            assert_eq!(memory.get_uncounted(&KEY, at(0)).is_some(), !is_pinned);
        }
    }

    #[test]
    fn entry_read_from_the_store_keeps_its_age() {
        let stored = |is_old| DiskEntry {
            header: EntryRecordAttributes {
                about: about(LifetimeClass::Resource),
                requested_at: 1_000_000,
                expires_at: 1_010_000,
                is_shareable: false,
            },
            body: EntryBytes::Owned(vec![2; 10]),
            is_old,
        };
        let entry = OwnerMemoryEntry::from_disk_entry(stored(false), at(4_000));
        assert_eq!(
            (entry.age_ms(at(5_000)), entry.remaining_ttl(at(5_000))),
            (5_000, 5_000)
        );
        assert!(!entry.claim_store_write());
        assert!(OwnerMemoryEntry::from_disk_entry(stored(true), at(0)).claim_store_write());
        // the wall clock was put back by an hour
        let early = ClockReading {
            monotonic: 0,
            unix: 0,
        };
        let entry = OwnerMemoryEntry::from_disk_entry(stored(false), early);
        assert_eq!(
            (entry.age_ms(early), entry.remaining_ttl(early)),
            (0, 10_000)
        );
    }

    #[test]
    fn form_replaces_only_its_own_entry() {
        let memory = OwnerMemory::new(10_000);
        let (old, newer) = (
            fresh_entry(LifetimeClass::Immutable, 1_000),
            fresh_entry(LifetimeClass::Immutable, 1_000),
        );
        let form = Arc::new(old.with_encoded_bytes(vec![2; 10]));
        assert!(form.is_form_of_same_response(&old) && !newer.is_form_of_same_response(&old));
        let put = |entry: &Arc<OwnerMemoryEntry>, by| {
            memory.replace_entry_if(&KEY, |there| Arc::ptr_eq(there, entry), by)
        };
        assert!(!put(&old, &form));
        assert!(memory.entry_count() == 0 && !memory.has_entry_of_other_fetch(&KEY, &old));
        memory.insert(KEY, &old);
        let before = memory.total_entry_weight();
        assert!(put(&old, &form));
        assert!(
            !memory.has_entry_of_other_fetch(&KEY, &old)
                && memory.has_entry_of_other_fetch(&KEY, &newer)
        );
        assert_eq!(
            memory.get_uncounted(&KEY, at(0)).unwrap().encoded_bytes(),
            [2; 10]
        );
        assert_eq!(memory.total_entry_weight(), before - 90);
        assert_eq!(form.remaining_ttl(at(400)), old.remaining_ttl(at(400)));
        // a new form continues with the state of the former one
        assert!(form.claim_store_write() && !form.with_encoded_bytes(vec![3]).claim_store_write());
        memory.insert(KEY, &newer);
        assert!(!put(&form, &old));
        assert!(Arc::ptr_eq(
            &memory.get_uncounted(&KEY, at(0)).unwrap(),
            &newer
        ));
    }

    #[test]
    fn stored_entry_is_to_be_stored_again_once_after_the_renewal_time() {
        let entry = fresh_entry(LifetimeClass::Immutable, 10_000);
        assert!(entry.claim_store_write());
        entry.mark_stored(at(100));
        entry.mark_for_rewrite_if_old(50, at(149));
        assert!(!entry.claim_store_write());
        entry.mark_for_rewrite_if_old(50, at(150));
        assert!(entry.claim_store_write());
        entry.mark_for_rewrite_if_old(50, at(199));
        assert!(!entry.claim_store_write());
    }

    #[test]
    fn block_anchor_is_kept_in_all_forms_and_not_on_disk() {
        let anchor = Some(BlockAnchor::ByResult {
            height: 5,
            hash: [3; 32],
        });
        let new = |anchor| {
            let about = about(LifetimeClass::Unfinalized);
            let entry = OwnerMemoryEntry::new(about, vec![1; 100], 1_000, at(0));
            entry.attach_block_anchor(anchor)
        };
        for anchor in [anchor, None] {
            assert_eq!(new(anchor).block_anchor(), anchor);
            let form = new(anchor).with_encoded_bytes(vec![2; 10]);
            assert_eq!(form.with_age(7).block_anchor(), anchor);
        }
        let stored = DiskEntry {
            header: EntryRecordAttributes {
                about: about(LifetimeClass::Immutable),
                requested_at: at(0).unix,
                expires_at: at(1_000).unix,
                is_shareable: true,
            },
            body: EntryBytes::Owned(vec![2; 10]),
            is_old: false,
        };
        let entry = OwnerMemoryEntry::from_disk_entry(stored, at(0));
        assert_eq!(entry.block_anchor(), None);
    }

    #[test]
    fn shareable_entry_is_offered_once_in_all_its_forms() {
        let is_offered = |entry: &OwnerMemoryEntry| entry.claim_fleet_offer();
        let new = |is_shareable| {
            let about = about(LifetimeClass::Immutable);
            let entry = OwnerMemoryEntry::new(about, vec![1; 100], 1_000, at(0));
            entry.mark_shareability(is_shareable)
        };
        let other = new(false);
        assert!(!other.is_shareable() && !is_offered(&other));
        let entry = new(true);
        let form = entry.with_encoded_bytes(vec![2; 10]);
        assert!(is_offered(&form) && !is_offered(&entry));
        assert!(entry.is_shareable() && !entry.is_unshared());
        // the entry that replaces it is the same response
        let made = new(false).take_shareability(&entry);
        assert!(made.is_shareable() && !is_offered(&made));
        let unoffered = new(true);
        let made = new(false).take_shareability(&unoffered);
        assert!(is_offered(&made) && !is_offered(&unoffered));
        assert!(!new(true).take_shareability(&other).is_shareable());
    }

    #[test]
    fn entry_from_the_store_is_shareable_if_its_record_is() {
        for is_shareable in [true, false] {
            let stored = DiskEntry {
                header: EntryRecordAttributes {
                    about: about(LifetimeClass::Immutable),
                    requested_at: at(0).unix,
                    expires_at: at(1_000).unix,
                    is_shareable,
                },
                body: EntryBytes::Owned(vec![2; 10]),
                is_old: false,
            };
            let entry = OwnerMemoryEntry::from_disk_entry(stored, at(0));
            assert_eq!(entry.is_unshared_disk_entry(), is_shareable);
            assert_eq!(entry.is_shareable(), is_shareable);
            let form = entry.with_encoded_bytes(vec![3]);
            assert_eq!(form.is_unshared_disk_entry(), is_shareable);
            assert_eq!(form.claim_fleet_offer(), is_shareable);
            assert!(!entry.is_unshared_disk_entry());
        }
        // an entry that was just fetched is offered when it is stored
        let about = about(LifetimeClass::Immutable);
        let fetched = OwnerMemoryEntry::new(about, vec![1; 100], 1_000, at(0));
        let fetched = fetched.mark_shareability(true);
        assert!(fetched.is_unshared() && !fetched.is_unshared_disk_entry());
    }

    #[test]
    fn sweep_removes_exactly_the_matching_entries() {
        let memory = OwnerMemory::new(1 << 20);
        for n in 0..200u8 {
            memory.insert([n; 32], &fresh_entry(LifetimeClass::Immutable, 1_000));
            if n % 3 == 0 {
                // requested entries are in another part of the cache
                memory.get(&[n; 32], at(1)).unwrap();
            }
        }
        assert_eq!(
            memory.remove_matching_entries(|key, _| key[0] % 2 == 0),
            100
        );
        assert_eq!(memory.entry_count(), 100);
        assert!((0..200u8).all(|n| memory.get_uncounted(&[n; 32], at(1)).is_some() == (n % 2 == 1)));
        assert_eq!(memory.remove_matching_entries(|_, _| true), 100);
        assert_eq!((memory.entry_count(), memory.total_entry_weight()), (0, 0));
    }

    #[test]
    fn entry_is_compared_with_each_purge_once() {
        let entry = fresh_entry(LifetimeClass::Immutable, 1_000);
        let never = |_: &StoredEntryAttributes| panic!("there was none since");
        assert!(!entry.is_covered_by_purge(0, never));
        assert!(!entry.is_covered_by_purge(1, |_| false));
        assert!(!entry.is_covered_by_purge(1, never));
        assert!(entry.is_covered_by_purge(2, |_| true));
        assert!(entry.is_covered_by_purge(2, |_| true));
        let other = entry.with_encoded_bytes(vec![1]);
        assert!(!other.is_covered_by_purge(1, never) && other.is_covered_by_purge(2, |_| true));
    }
}
