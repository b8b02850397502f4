//! The hot tier: entries of this process, in memory, within a number of bytes.
//!
//! Eviction is `quick_cache`'s, like S3-FIFO's: what was asked for once leaves
//! first, so that a scan over old blocks does not drive out what many ask for.
//! Any number of threads may use it; a look-up takes a read lock of a shard.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use foldhash::fast::RandomState;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

#[cfg(feature = "ffi")]
use crate::allocator::with_spares;
use crate::cache::entry::Entry;
use crate::cache::Key;
use crate::lock::locked;

/// Entries by key.
#[derive(Debug)]
pub struct Hot {
    cache: Cache<Name, Slot, ByWeight, RandomState, Evictions>,
    evictions: Evictions,
    max_entry: u64,
    /// Slots of another age are given to nobody.
    age: AtomicU32,
    /// Held by whoever changes a slot that it has looked at.
    writing: Mutex<()>,
}

/// A key. It is a hash already: to find a place for it half of it does.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name(Key);

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let half = self.0.first_chunk();
        state.write_u128(half.map_or(0, |half| u128::from_le_bytes(*half)));
    }
}

/// An entry and what it is counted for: the cache must see the same weight
/// when it takes a slot in and when it throws it out, and an entry's grows.
#[derive(Clone)]
struct Slot {
    entry: Arc<Entry>,
    weight: u32,
    /// The tier's, when it came.
    age: u32,
}

#[derive(Clone)]
struct ByWeight;

impl Weighter<Name, Slot> for ByWeight {
    fn weight(&self, _: &Name, slot: &Slot) -> u64 {
        slot.weight.into()
    }
}

/// What a typical entry weighs, in bytes; only the number of keys remembered
/// after eviction depends on it.
const TYPICAL: u64 = 16 << 10;

/// Entries that left a cache because others needed their room.
#[derive(Clone, Debug, Default)]
pub(in crate::cache) struct Evictions(Arc<AtomicU64>);

impl Evictions {
    /// How many there were so far.
    pub(in crate::cache) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// How many there were since the last call.
    fn take(&self) -> u64 {
        match self.count() {
            // as nearly always
            0 => 0,
            _ => self.0.swap(0, Ordering::Relaxed),
        }
    }
}

impl<K, V> Lifecycle<K, V> for Evictions {
    /// What is dropped when the shard's lock is given back.
    type RequestState = <DefaultLifecycle<K, V> as Lifecycle<K, V>>::RequestState;

    /// Not called for what is replaced.
    fn before_evict(&self, _: &mut Self::RequestState, _: &K, _: &mut V) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn on_evict(&self, state: &mut Self::RequestState, key: K, value: V) {
        DefaultLifecycle::default().on_evict(state, key, value);
    }
}

/// A cache of that many shards, of at most `capacity` as `by` weighs it.
pub(in crate::cache) fn bounded<K, V, W>(
    capacity: u64,
    shards: usize,
    by: W,
    evictions: Evictions,
) -> Cache<K, V, W, RandomState, Evictions>
where
    K: Eq + Hash,
    V: Clone,
    W: Weighter<K, V> + Clone,
{
    let items = usize::try_from(capacity / TYPICAL).unwrap_or(usize::MAX);
    let options = OptionsBuilder::new()
        .shards(shards)
        .estimated_items_capacity(items.max(shards * 32))
        .weight_capacity(capacity / shards as u64 * shards as u64)
        .build();
    match options {
        Ok(options) => Cache::with_options(
            options,
            by,
            // whoever chooses calls chooses keys: the seed is what he does
            // not know
            RandomState::default(),
            evictions,
        ),
        // both capacities are set above
        Err(_) => unreachable!(),
    }
}

impl Hot {
    /// A tier of at most `capacity` bytes, of entries of at most `max_entry`
    /// bytes, both as [`Entry::weight`] counts them, for `threads` threads at
    /// a time. Each shard has its share of the capacity, and room for a few of
    /// the largest entries: a tier that is small for its entries is less
    /// concurrent, and takes none above nine tenths of its capacity.
    pub fn new(capacity: u64, max_entry: u64, threads: usize) -> Self {
        let wanted = match threads {
            0 | 1 => 1,
            threads => threads.saturating_mul(4),
        };
        let room = capacity / max_entry.saturating_mul(4).max(1);
        let most = usize::try_from(room).unwrap_or(usize::MAX).max(1);
        // a power of two, as the cache would make of it, but not above
        let shards = 1usize << wanted.min(most).min(1 << 16).ilog2();
        let shard = capacity / shards as u64;
        let evictions = Evictions::default();
        Self {
            cache: bounded(capacity, shards, ByWeight, evictions.clone()),
            evictions,
            max_entry: max_entry.min(shard / 10 * 9).min(u32::MAX.into()),
            age: AtomicU32::new(0),
            writing: Mutex::new(()),
        }
    }

    /// The entry under `key`, fresh or not.
    pub fn stale(&self, key: &Key) -> Option<Arc<Entry>> {
        self.slot(key).map(|slot| slot.entry)
    }

    fn slot(&self, key: &Key) -> Option<Slot> {
        let slot = self.cache.get(&Name(*key))?;
        if slot.age != self.age.load(Ordering::Acquire) {
            self.remove_this(key, &slot.entry);
            return None;
        }
        Some(slot)
    }

    /// The entry under `key`, if it is fresh at `now`, in milliseconds of the
    /// caller's clock. One that is not, and is of no use, is removed.
    pub fn get(&self, key: &Key, now: u64) -> Option<Arc<Entry>> {
        let slot = self.slot(key)?;
        if !slot.entry.is_fresh(now) {
            if !slot.entry.is_of_use_stale(now) {
                self.remove_this(key, &slot.entry);
            }
            return None;
        }
        if slot.entry.weight() != u64::from(slot.weight) {
            self.reweigh(key, &slot.entry);
        }
        Some(slot.entry)
    }

    /// Puts an entry under `key`, in place of what was there. `false` if it
    /// is too large or memory is refused; nothing is then under that key.
    pub fn insert(&self, key: Key, entry: Arc<Entry>) -> bool {
        let weight = entry.weight();
        let age = self.age.load(Ordering::Acquire);
        let _writing = locked(&self.writing);
        let slot = u32::try_from(weight).map(|weight| Slot { entry, weight, age });
        let is_there =
            weight <= self.max_entry && slot.is_ok_and(|slot| self.insert_into_table(key, slot));
        if !is_there {
            self.cache.remove(&Name(key));
        }
        is_there
    }

    /// The cache's tables grow, to twice their length, and would end the
    /// process if they could not: there is that much, or nothing is inserted.
    #[cfg(feature = "ffi")]
    fn insert_into_table(&self, key: Key, slot: Slot) -> bool {
        let used = self.cache.memory_used();
        let twice = |table: usize| table.saturating_mul(2).saturating_add(4096);
        with_spares([twice(used.entries), twice(used.map)], || {
            self.cache.insert(Name(key), slot);
        })
        .is_some()
    }

    #[cfg(not(feature = "ffi"))]
    fn insert_into_table(&self, key: Key, slot: Slot) -> bool {
        self.cache.insert(Name(key), slot);
        true
    }

    /// Counts `entry` anew, to be called after [`Entry::identity`] and
    /// [`batch_identity`](crate::cache::entry::batch::batch_identity), which may make it
    /// heavier. [`get`](Self::get) does so too: without the call, an entry that
    /// is not asked for again is counted for its coded form alone. An entry
    /// that would be too large in both codings stays in one.
    pub fn reweigh(&self, key: &Key, entry: &Arc<Entry>) {
        let _writing = locked(&self.writing);
        let Some(slot) = self.cache.peek(&Name(*key)) else {
            return;
        };
        if !Arc::ptr_eq(&slot.entry, entry) {
            return;
        }
        if entry.weight() > self.max_entry {
            entry.keep_no_plain();
        }
        // never more than that now
        let weight = u32::try_from(entry.weight()).unwrap_or(u32::MAX);
        if weight != slot.weight {
            let slot = Slot { weight, ..slot };
            // refused only if it was evicted just now
            drop(self.cache.replace(Name(*key), slot, true));
        }
    }

    /// Takes out what is under `key`.
    pub fn remove(&self, key: &Key) -> Option<Arc<Entry>> {
        self.cache.remove(&Name(*key)).map(|(_, slot)| slot.entry)
    }

    /// Takes out `entry`, unless it was replaced.
    pub fn remove_this(&self, key: &Key, entry: &Arc<Entry>) {
        self.cache
            .remove_if(&Name(*key), |other| Arc::ptr_eq(&other.entry, entry));
    }

    /// Takes out all, and gives its memory back, which takes its time.
    pub fn clear(&self) {
        self.cache.clear();
    }

    /// What is there now is given to nobody any more. It leaves when it is asked
    /// for, or others need the room: however much there is, nobody waits.
    pub fn outdate(&self) {
        self.age.fetch_add(1, Ordering::AcqRel);
    }

    /// What the entries weigh, in bytes. Never more than the capacity.
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// How many entries have left since the last call because others needed their
    /// room.
    pub fn take_evictions(&self) -> u64 {
        self.evictions.take()
    }

    /// How many entries there are, stale and outdated ones too.
    pub fn count(&self) -> usize {
        self.cache.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Hot, Key};
    use crate::cache::entry::{Entry, Envelope, Gate, Meta, Payload};

    fn key(n: u64) -> Key {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.to_le_bytes());
        key
    }

    fn meta(expires_at: u64) -> Meta {
        Meta {
            expires_at,
            ..Meta::default()
        }
    }

    fn raw(length: usize, expires_at: u64) -> Arc<Entry> {
        let payload = Payload::Raw(vec![b'1'; length].into());
        Arc::new(Entry::new(Envelope::none(), payload, meta(expires_at)))
    }

    fn coded(length: usize) -> Arc<Entry> {
        let gate = Gate {
            min_length: 0,
            level: 1,
        };
        let result = vec![b'1'; length];
        Arc::new(Entry::code(Envelope::none(), &result, gate, meta(u64::MAX)).unwrap())
    }

    #[test]
    fn an_entry_is_found_until_it_is_stale() {
        let hot = Hot::new(1 << 20, 1 << 16, 1);
        let entry = raw(100, 5000);
        assert!(hot.insert(key(1), Arc::clone(&entry)));
        assert!(Arc::ptr_eq(&hot.get(&key(1), 4999).unwrap(), &entry));
        assert!(hot.get(&key(2), 0).is_none());
        assert_eq!((hot.count(), hot.bytes()), (1, entry.weight()));
        assert!(hot.get(&key(1), 5000).is_none());
        assert_eq!((hot.count(), hot.bytes()), (0, 0));
    }

    #[test]
    fn what_is_removed_or_outdated_is_gone() {
        let hot = Hot::new(1 << 20, 1 << 16, 4);
        for n in 0..10 {
            hot.insert(key(n), raw(100, 9));
        }
        assert!(hot.remove(&key(3)).is_some() && hot.remove(&key(3)).is_none());
        assert_eq!(hot.count(), 9);
        let late = hot.get(&key(4), 0).unwrap();
        hot.outdate();
        // however many there are
        assert_eq!(hot.count(), 9);
        hot.reweigh(&key(4), &late);
        assert!(hot.insert(key(5), raw(100, 9)));
        for n in 0..10 {
            let is_there = [hot.get(&key(n), 0), hot.stale(&key(n))].map(|entry| entry.is_some());
            assert_eq!(is_there, [n == 5; 2], "{n}");
        }
        assert_eq!((hot.count(), hot.bytes()), (1, raw(100, 9).weight()));
    }

    #[test]
    fn who_makes_room_for_others_is_counted_once() {
        let hot = Hot::new(1 << 20, 1 << 16, 1);
        for _ in 0..3 {
            for n in 0..10 {
                hot.insert(key(n), raw(1000, 9));
            }
        }
        hot.remove(&key(3));
        assert!(hot.get(&key(4), 9).is_none());
        // replaced, removed and stale ones are not
        assert_eq!((hot.take_evictions(), hot.count()), (0, 8));
        for n in 10..1000 {
            hot.insert(key(n), raw(10_000, 9));
        }
        let evicted = hot.take_evictions();
        assert_eq!(evicted, 998 - hot.count() as u64);
        assert_eq!(hot.take_evictions(), 0);
    }

    #[test]
    fn what_is_outdated_gives_room() {
        let capacity = 1 << 20;
        let hot = Hot::new(capacity, 1 << 16, 1);
        for n in 0..1000 {
            hot.insert(key(n), raw(10_000, 9));
            hot.get(&key(n), 0);
        }
        hot.outdate();
        for n in 1000..1060 {
            hot.insert(key(n), raw(10_000, 9));
            hot.get(&key(n), 0);
        }
        let there = (1000..1060).filter(|n| hot.get(&key(*n), 0).is_some());
        assert_eq!(there.count(), 60);
        assert!(hot.bytes() <= capacity);
    }

    #[test]
    fn the_capacity_is_never_exceeded() {
        for threads in [1, 2, 8] {
            let capacity = 1_000_003;
            let hot = Hot::new(capacity, 100_000, threads);
            for n in 0..5000u64 {
                hot.insert(key(n), raw((n * 7919 % 50_000) as usize, 9));
                assert!(hot.bytes() <= capacity, "{} bytes", hot.bytes());
            }
            assert!(hot.bytes() > capacity / 2, "{} bytes", hot.bytes());
        }
    }

    #[test]
    fn too_large_an_entry_is_refused_and_replaces_what_it_is_newer_than() {
        let hot = Hot::new(1 << 20, 10_000, 1);
        assert!(hot.insert(key(1), raw(9000, 9)));
        assert!(!hot.insert(key(1), raw(10_000, 9)));
        assert!(hot.count() == 0);
        // the whole tier is smaller than the largest entry
        let hot = Hot::new(10_000, 1 << 20, 8);
        assert!(!hot.insert(key(1), raw(9500, 9)));
        assert!(hot.insert(key(1), raw(5000, 9)));
        assert!(!Hot::new(0, 0, 1).insert(key(1), raw(0, 9)));
    }

    #[test]
    fn what_many_ask_for_survives_a_scan() {
        let hot = Hot::new(1 << 20, 1 << 16, 1);
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
    fn kept_identity_bytes_are_counted() {
        let hot = Hot::new(1 << 20, 300_000, 1);
        let entry = coded(200_000);
        let light = entry.weight();
        hot.insert(key(1), Arc::clone(&entry));
        hot.insert(key(2), raw(50_000, 9));
        for _ in 0..2 {
            assert_eq!(entry.inflates(), 200_000);
            entry.identity(b"").unwrap();
        }
        assert_eq!(entry.inflates(), 0);
        assert_eq!(entry.weight(), light + 200_000);
        let before = hot.bytes();
        hot.reweigh(&key(1), &entry);
        assert_eq!(hot.bytes(), before + 200_000);
        hot.reweigh(&key(1), &entry);
        assert_eq!(hot.bytes(), before + 200_000);
        // a look-up counts too
        let other = coded(200_000);
        hot.insert(key(3), Arc::clone(&other));
        other.identity(b"").unwrap();
        other.identity(b"").unwrap();
        let before = hot.bytes();
        assert!(hot.get(&key(3), 0).is_some());
        assert_eq!(hot.bytes(), before + 200_000);
    }

    #[test]
    fn growing_entries_drive_others_out_not_memory_up() {
        let capacity = 1 << 20;
        let hot = Hot::new(capacity, 200_000, 1);
        let entries: Vec<_> = (0..100).map(|_| coded(100_000)).collect();
        for (n, entry) in entries.iter().enumerate() {
            hot.insert(key(n as u64), Arc::clone(entry));
        }
        assert_eq!(hot.count(), 100);
        for (n, entry) in entries.iter().enumerate() {
            entry.identity(b"").unwrap();
            entry.identity(b"").unwrap();
            hot.reweigh(&key(n as u64), entry);
            assert!(hot.bytes() <= capacity, "{} bytes", hot.bytes());
        }
        assert!(hot.count() < 100);
    }

    #[test]
    fn an_entry_too_large_in_both_codings_stays_in_one() {
        let hot = Hot::new(1 << 20, 100_000, 1);
        let entry = coded(200_000);
        let light = entry.weight();
        hot.insert(key(1), Arc::clone(&entry));
        for _ in 0..5 {
            assert_eq!(entry.identity(b"").unwrap().length(), 200_000);
            hot.reweigh(&key(1), &entry);
        }
        assert!(hot.get(&key(1), 0).is_some());
        assert_eq!((hot.bytes(), entry.weight()), (light, light));
        assert_eq!(entry.inflates(), 200_000);
    }

    #[test]
    fn an_entry_that_was_replaced_is_not_counted() {
        let hot = Hot::new(1 << 20, 300_000, 1);
        let (old, new) = (coded(200_000), raw(100, 9));
        hot.insert(key(1), Arc::clone(&old));
        hot.insert(key(1), Arc::clone(&new));
        old.identity(b"").unwrap();
        old.identity(b"").unwrap();
        hot.reweigh(&key(1), &old);
        hot.reweigh(&key(2), &old);
        assert!(Arc::ptr_eq(&hot.get(&key(1), 0).unwrap(), &new));
        assert_eq!((hot.count(), hot.bytes()), (1, new.weight()));
    }

    #[test]
    fn a_body_outlives_its_entry() {
        let hot = Hot::new(1 << 20, 300_000, 1);
        hot.insert(key(1), coded(200_000));
        let bodies = {
            let entry = hot.get(&key(1), 0).unwrap();
            [entry.gzip(b"").unwrap(), entry.identity(b"").unwrap()]
        };
        hot.remove(&key(1));
        let [gzip, identity] = bodies;
        assert_eq!(
            crate::gzip::inflate::gunzip(&gzip.to_vec(), 200_000).unwrap(),
            identity.to_vec()
        );
    }

    #[test]
    fn many_threads_at_once() {
        let capacity = 1 << 22;
        let hot = Hot::new(capacity, 1 << 18, 4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let hot = &hot;
                scope.spawn(move || {
                    for n in 0..2000u64 {
                        let key = key((n * 31 + thread) % 200);
                        match hot.get(&key, n % 10) {
                            Some(entry) => {
                                entry.identity(b"").unwrap();
                                hot.reweigh(&key, &entry);
                            }
                            None if n % 3 == 0 => {
                                hot.insert(key, coded(50_000));
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
        assert!(hot.bytes() <= capacity);
        let weights = (0..200).filter_map(|n| hot.remove(&key(n)));
        drop(weights.collect::<Vec<_>>());
        assert_eq!((hot.count(), hot.bytes()), (0, 0));
    }
}
