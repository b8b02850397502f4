//! The owner: memory before the store, leases, processes, purges.
//!
//! What may wait for a disk says so; all else is quick enough for an event
//! loop. A fill and a purge must not pass each other: a fill asks whether it
//! was purged and goes to memory as one step (many at a time), and a purge
//! that the store has written down cleans memory and tells the processes as
//! another (alone).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::disk::{Disk, DiskError, StoreStatus};
use super::leases::{Ended, Lease, Leases};
use super::memory::{Kept, Memory};
use super::processes::{Event, Name, Next, NoSuchPurge, Processes, Stream, TooMany};
use super::{Now, Scope};
use crate::cache::Key;

/// Leases at a time. Beyond it all who miss ask the node.
const MOST_LEASES: usize = 65_536;

/// An entry that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The entry.
    pub kept: Arc<Kept>,
    /// Call [`Owner::store`] with it, once it is sent.
    pub is_to_be_stored: bool,
}

/// What came of a look-up that waits for nothing.
#[derive(Clone, Debug)]
pub enum LookUp {
    /// Memory has it.
    Found(Found),
    /// Nothing has it.
    Missing,
    /// The store may have it: [`Owner::look_up_store`] knows.
    AskStore,
}

/// What came of asking for a lease.
#[derive(Clone, Debug)]
pub enum Leased {
    /// It is not needed any more: the entry came in between.
    Found(Found),
    /// A lease, or none.
    Lease(Lease),
}

/// Why an entry is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It was purged after the node was asked for it; or the generation is
    /// one that has not been yet.
    Purged,
    /// It is too long for memory, and does not belong on a disk or is too long
    /// for that as well.
    TooLong,
    /// Its place is on the disk, where storing is off. For people.
    Off(String),
}

/// What has been done since the start.
#[derive(Debug, Default)]
struct Counters {
    memory_hits: AtomicU64,
    store_hits: AtomicU64,
    misses: AtomicU64,
    fills: AtomicU64,
    refused: AtomicU64,
    stored: AtomicU64,
    not_stored: AtomicU64,
}

/// What an owner knows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// How many purges have taken effect.
    pub generation: u64,
    /// Entries in memory.
    pub memory_entries: usize,
    /// What they weigh, in bytes.
    pub memory_bytes: u64,
    /// How much they may weigh, in bytes.
    pub memory_capacity: u64,
    /// Processes with a stream, in no order.
    pub processes: Vec<Name>,
    /// Keys that somebody fetches.
    pub leases: usize,
    /// Purges that wait for a process.
    pub purges_waiting: usize,
    /// Look-ups that memory answered.
    pub memory_hits: u64,
    /// Look-ups that the store answered.
    pub store_hits: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
    /// Entries that were kept.
    pub fills: u64,
    /// Entries that were refused.
    pub refused: u64,
    /// Entries that went to the store.
    pub stored: u64,
    /// Entries that the store failed to take.
    pub not_stored: u64,
    /// What the store says of itself.
    pub store: StoreStatus,
}

#[derive(Debug)]
struct Shared {
    leases: Leases,
    processes: Processes,
}

/// All that an owner has. Any number of threads may use it.
pub struct Owner {
    disk: Box<dyn Disk>,
    memory: Memory,
    shared: Mutex<Shared>,
    /// Read by fills, written by purges.
    effect: RwLock<()>,
    /// Held by the purge that the store is writing down.
    purging: Mutex<()>,
    counters: Counters,
}

impl Owner {
    /// Begins at `now`, when no other owner of the machine is left, with
    /// `memory` bytes for its memory tier.
    pub fn new(disk: Box<dyn Disk>, memory: u64, now: Now) -> Self {
        let generation = disk.generation();
        Self {
            disk,
            memory: Memory::new(memory),
            shared: Mutex::new(Shared {
                leases: Leases::new(MOST_LEASES),
                processes: Processes::new(generation, now.monotonic),
            }),
            effect: RwLock::new(()),
            purging: Mutex::new(()),
            counters: Counters::default(),
        }
    }

    /// What is under `key`, as far as can be told without a disk.
    pub fn look_up(&self, key: &Key, now: Now) -> LookUp {
        let Some(kept) = self.memory.get(key, now) else {
            if self.disk.may_have(key) {
                return LookUp::AskStore;
            }
            count(&self.counters.misses);
            return LookUp::Missing;
        };
        count(&self.counters.memory_hits);
        LookUp::Found(Found {
            is_to_be_stored: kept.is_to_be_stored(),
            kept,
        })
    }

    /// What the store has under `key`; memory has it then too. May wait for a
    /// disk.
    pub fn look_up_store(&self, key: &Key, now: Now) -> Option<Found> {
        let kept = self
            .disk
            .get(key, now)
            .map(|stored| Arc::new(Kept::from_store(stored, now)))
            .filter(|kept| kept.fresh(now) > 0)
            .filter(|kept| {
                let _effect = self.effect.read().unwrap_or_else(PoisonError::into_inner);
                let holds = !self.disk.refuses(key, kept.about());
                // a fill that came meanwhile is newer
                if holds && self.memory.peek(key, now).is_none() {
                    self.memory.insert(*key, kept);
                }
                holds
            });
        let Some(kept) = kept else {
            count(&self.counters.misses);
            return None;
        };
        count(&self.counters.store_hits);
        Some(Found {
            is_to_be_stored: kept.is_to_be_stored(),
            kept,
        })
    }

    /// `process` has missed `key`, and wants its lease for `time` milliseconds
    /// at most.
    pub fn lease(&self, key: &Key, process: &Name, time: u64, now: Now) -> Leased {
        let mut shared = self.shared();
        // a fill goes to memory before it ends the lease
        if let Some(kept) = self.memory.peek(key, now) {
            return Leased::Found(Found {
                kept,
                is_to_be_stored: false,
            });
        }
        shared.expire(&self.memory, now);
        let ends = now.monotonic.saturating_add(time);
        Leased::Lease(shared.leases.ask(*key, process, ends))
    }

    /// `process` gives its lease back.
    pub fn give_back(&self, key: &Key, process: &Name, now: Now) {
        let mut shared = self.shared();
        let ended = shared.leases.give_back(key, process);
        shared.announce(ended, |key| self.memory.peek(key, now).is_some());
    }

    /// Whether an entry of that many bytes goes to memory, so that
    /// [`put`](Self::put) does not wait for a disk.
    pub fn has_room_for(&self, length: usize) -> bool {
        self.memory.takes(length)
    }

    /// Keeps an entry. `true`: call [`store`](Self::store) with it. `process`
    /// is who stores it. May wait for a disk, if memory
    /// [has no room](Self::has_room_for) for it.
    ///
    /// # Errors
    /// [`Refused`]. A lease that `process` has has ended all the same.
    pub fn put(
        &self,
        key: &Key,
        kept: &Arc<Kept>,
        process: Option<&Name>,
        now: Now,
    ) -> Result<bool, Refused> {
        let put = self.keep(key, kept, now);
        let mut shared = self.shared();
        let ended = match &put {
            Ok(_) => shared.leases.fill(key),
            Err(_) => process.and_then(|process| shared.leases.give_back(key, process)),
        };
        // evicted at once or not: who waits is to look it up
        shared.announce(ended, |_| put.is_ok());
        count(match &put {
            Ok(_) => &self.counters.fills,
            Err(_) => &self.counters.refused,
        });
        put
    }

    fn keep(&self, key: &Key, kept: &Arc<Kept>, now: Now) -> Result<bool, Refused> {
        let may_be_stored = kept.about().class.may_be_stored();
        {
            let _effect = self.effect.read().unwrap_or_else(PoisonError::into_inner);
            if kept.about().generation > self.disk.generation()
                || self.disk.refuses(key, kept.about())
            {
                return Err(Refused::Purged);
            }
            if self.memory.insert(*key, kept) {
                // one that the store has must not outlive the newer one
                let is_known =
                    may_be_stored && (self.disk.admits(key, now) || self.disk.may_have(key));
                return Ok(is_known && kept.is_to_be_stored());
            }
        }
        // a purge that passes it here is known to the store: it carries the
        // generation that it was asked in
        if !may_be_stored {
            return Err(Refused::TooLong);
        }
        match self.store(key, kept, now) {
            Ok(()) => Ok(false),
            Err(DiskError::TooLong) => Err(Refused::TooLong),
            Err(DiskError::Purged) => Err(Refused::Purged),
            Err(error @ (DiskError::Busy | DiskError::Off(_))) => {
                Err(Refused::Off(error.to_string()))
            }
        }
    }

    /// Puts an entry on the disk. May wait for it.
    ///
    /// # Errors
    /// [`DiskError`]: it will be tried again when it is asked for again.
    pub fn store(&self, key: &Key, kept: &Kept, now: Now) -> Result<(), DiskError> {
        let stored_at = now.unix.saturating_sub(kept.age(now));
        let expires_at = now.unix.saturating_add(kept.fresh(now));
        let put = self
            .disk
            .put(key, kept.about(), stored_at, expires_at, kept.body());
        count(match put {
            Ok(()) => &self.counters.stored,
            Err(_) => &self.counters.not_stored,
        });
        if let Err(DiskError::Busy | DiskError::Off(_)) = put {
            kept.is_not_stored();
        }
        put
    }

    /// Removes entries, and gives the new generation. It is over when it
    /// [is not waiting](Self::is_waiting) any more. Waits for a disk; `now` is
    /// asked for the time after that.
    ///
    /// # Errors
    /// [`DiskError`]: it holds until this owner ends, and is to be tried again.
    pub fn purge(&self, scope: &Scope, now: impl Fn() -> Now) -> Result<u64, DiskError> {
        // in the order of their generations: who acknowledges one
        // acknowledges those before it
        let _order = self.purging.lock().unwrap_or_else(PoisonError::into_inner);
        let purged = self.disk.purge(scope);
        let generation = match &purged {
            Ok(generation) => *generation,
            Err(_) => self.disk.generation(),
        };
        let _effect = self.effect.write().unwrap_or_else(PoisonError::into_inner);
        self.memory.purge(scope);
        let key = match scope {
            Scope::Key(key) => Some(*key),
            _ => None,
        };
        self.shared()
            .processes
            .purge(generation, key, now().monotonic);
        purged
    }

    /// All purges up to `generation` hold in a process.
    ///
    /// # Errors
    /// [`NoSuchPurge`].
    pub fn acknowledge(&self, process: &Name, generation: u64) -> Result<(), NoSuchPurge> {
        self.shared().processes.acknowledge(process, generation)
    }

    /// A process has opened an event stream.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn arrive(&self, process: &Name, now: Now) -> Result<Stream, TooMany> {
        let mut shared = self.shared();
        let ended = match shared.processes.has_stream(process) {
            true => shared.leases.forget(process),
            false => Vec::new(),
        };
        let stream = shared.processes.arrive(process, now.monotonic);
        shared.announce(ended, |key| self.memory.peek(key, now).is_some());
        stream
    }

    /// An event stream has ended, and with it the leases of its process.
    pub fn leave(&self, stream: Stream, now: Now) {
        let mut shared = self.shared();
        if let Some(process) = shared.processes.leave(stream) {
            let ended = shared.leases.forget(&process);
            shared.announce(ended, |key| self.memory.peek(key, now).is_some());
        }
    }

    /// What to send on an event stream.
    pub fn next(&self, stream: Stream, now: Now) -> Next {
        self.shared().processes.next(stream, now.monotonic)
    }

    /// The streams that have something to be told since the last call.
    pub fn take_woken(&self) -> Vec<Stream> {
        self.shared().processes.take_woken()
    }

    /// Time has passed, or something was acknowledged: the purges that are
    /// over.
    pub fn tick(&self, now: Now) -> Vec<u64> {
        let mut shared = self.shared();
        shared.expire(&self.memory, now);
        shared.processes.settle(now.monotonic)
    }

    /// When to call [`tick`](Self::tick) next, in monotonic milliseconds.
    pub fn next_tick(&self) -> Option<u64> {
        let shared = self.shared();
        let ends = [shared.leases.next_end(), shared.processes.next_settlement()];
        ends.into_iter().flatten().min()
    }

    /// Writes down what lies in the store's memory. Waits for a disk.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn flush(&self) -> Result<(), DiskError> {
        self.disk.flush()
    }

    /// Something that the store has to say to the log.
    pub fn next_event(&self) -> Option<String> {
        self.disk.next_event()
    }

    /// The end: what memory has and may lie on a disk goes there. Waits for
    /// it; gives up at the first error.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn close(&self, now: Now) -> Result<(), DiskError> {
        for (key, kept) in self.memory.not_stored(now) {
            let mut put = self.store(&key, &kept, now);
            if put == Err(DiskError::Busy) {
                self.disk.flush()?;
                put = self.store(&key, &kept, now);
            }
            // one that the store does not want is no loss to the others
            if let Err(error @ (DiskError::Busy | DiskError::Off(_))) = put {
                return Err(error);
            }
        }
        self.disk.flush()
    }

    /// What it knows of itself.
    pub fn status(&self) -> Status {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let store = self.disk.status();
        let shared = self.shared();
        Status {
            generation: shared.processes.generation(),
            memory_entries: self.memory.len(),
            memory_bytes: self.memory.bytes(),
            memory_capacity: self.memory.capacity(),
            processes: shared.processes.present().cloned().collect(),
            leases: shared.leases.len(),
            purges_waiting: shared.processes.waiting(),
            memory_hits: load(&counters.memory_hits),
            store_hits: load(&counters.store_hits),
            misses: load(&counters.misses),
            fills: load(&counters.fills),
            refused: load(&counters.refused),
            stored: load(&counters.stored),
            not_stored: load(&counters.not_stored),
            store,
        }
    }

    /// Whether a purge is not over yet.
    pub fn is_waiting(&self, generation: u64) -> bool {
        self.shared().processes.is_waiting(generation)
    }

    /// No call leaves it half-changed: none can panic midway.
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn expire(&mut self, memory: &Memory, now: Now) {
        let ended = self.leases.expire(now.monotonic);
        self.announce(ended, |key| memory.peek(key, now).is_some());
    }

    /// Leases have ended: tells those who wait what is there.
    fn announce(
        &mut self,
        ended: impl IntoIterator<Item = Ended>,
        is_there: impl Fn(&Key) -> bool,
    ) {
        for Ended { key, waiters } in ended {
            let event = match is_there(&key) {
                true => Event::Filled(key),
                false => Event::GivenUp(key),
            };
            for waiter in waiters {
                self.processes.tell(&waiter, event.clone());
            }
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::disk::Stored;
    use super::super::{About, Class};
    use super::*;

    const KEY: Key = [7; 32];

    /// A disk as the owner should see it.
    #[derive(Default)]
    struct Model {
        entries: Mutex<HashMap<Key, Stored>>,
        filled: Mutex<Vec<Key>>,
        purges: Mutex<Vec<(u64, Scope)>>,
        is_full: Mutex<bool>,
        /// Entries until a flush is needed; `None`: never.
        room: Mutex<Option<usize>>,
    }

    impl Model {
        fn generation(&self) -> u64 {
            5 + self.purges.lock().unwrap().len() as u64
        }
    }

    impl Disk for Arc<Model> {
        fn generation(&self) -> u64 {
            Model::generation(self)
        }

        fn get(&self, key: &Key, _: Now) -> Option<Stored> {
            let stored = self.entries.lock().unwrap().get(key).cloned()?;
            (!self.refuses(key, &stored.about)).then_some(stored)
        }

        fn may_have(&self, key: &Key) -> bool {
            self.entries.lock().unwrap().contains_key(key)
        }

        fn put(
            &self,
            key: &Key,
            about: &About,
            stored_at: u64,
            expires_at: u64,
            body: &[u8],
        ) -> Result<(), DiskError> {
            if *self.is_full.lock().unwrap() {
                return Err(DiskError::Off("full".into()));
            }
            if body.len() > 100_000 {
                return Err(DiskError::TooLong);
            }
            if let Some(room) = &mut *self.room.lock().unwrap() {
                *room = room.checked_sub(1).ok_or(DiskError::Busy)?;
            }
            let stored = Stored {
                about: about.clone(),
                stored_at,
                expires_at,
                body: body.to_vec(),
                is_old: false,
            };
            self.entries.lock().unwrap().insert(*key, stored);
            Ok(())
        }

        fn purge(&self, scope: &Scope) -> Result<u64, DiskError> {
            let generation = Model::generation(self) + 1;
            let mut purges = self.purges.lock().unwrap();
            purges.push((generation, scope.clone()));
            match *self.is_full.lock().unwrap() {
                true => Err(DiskError::Off("full".into())),
                false => Ok(generation),
            }
        }

        fn refuses(&self, key: &Key, about: &About) -> bool {
            let purges = self.purges.lock().unwrap();
            purges.iter().any(|(generation, scope)| {
                about.generation < *generation && scope.covers(key, about)
            })
        }

        fn admits(&self, key: &Key, _: Now) -> bool {
            let mut filled = self.filled.lock().unwrap();
            let is_second = filled.contains(key);
            filled.push(*key);
            is_second
        }

        fn flush(&self) -> Result<(), DiskError> {
            if let Some(room) = &mut *self.room.lock().unwrap() {
                *room = 3;
            }
            Ok(())
        }

        fn next_event(&self) -> Option<String> {
            None
        }

        fn status(&self) -> StoreStatus {
            StoreStatus::default()
        }
    }

    fn at(monotonic: u64) -> Now {
        Now {
            monotonic,
            unix: 1_000_000 + monotonic,
        }
    }

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    fn kept_of(class: Class, generation: u64, length: usize) -> Arc<Kept> {
        let about = About {
            class,
            namespace: [1; 16],
            method: None,
            block: None,
            generation,
        };
        Arc::new(Kept::new(about, vec![9; length], 60_000, at(0)))
    }

    fn kept(generation: u64) -> Arc<Kept> {
        kept_of(Class::Immutable, generation, 100)
    }

    fn owner() -> (Owner, Arc<Model>) {
        let model = Arc::new(Model::default());
        let owner = Owner::new(Box::new(Arc::clone(&model)), 20_000, at(0));
        (owner, model)
    }

    fn found(look_up: LookUp) -> Found {
        match look_up {
            LookUp::Found(found) => found,
            other => panic!("{other:?}"),
        }
    }

    fn granted(owner: &Owner, process: &str) -> bool {
        match owner.lease(&KEY, &name(process), 1_000, at(0)) {
            Leased::Lease(Lease::Granted) => true,
            Leased::Lease(Lease::Pending) => false,
            other => panic!("{other:?}"),
        }
    }

    /// The first events after `hello`, without times.
    fn heard(owner: &Owner, stream: Stream) -> Vec<Event> {
        let events = std::iter::from_fn(|| match owner.next(stream, at(0)) {
            Next::Event(event) => Some(event),
            _ => None,
        });
        events
            .filter(|event| !matches!(event, Event::Hello { .. } | Event::Lease { .. }))
            .collect()
    }

    #[test]
    fn the_second_request_stores_an_entry_and_not_the_first() {
        let (owner, model) = owner();
        assert_eq!(owner.put(&KEY, &kept(5), None, at(0)), Ok(false));
        let hit = found(owner.look_up(&KEY, at(1)));
        assert!(hit.is_to_be_stored);
        owner.store(&KEY, &hit.kept, at(10)).unwrap();
        assert!(!found(owner.look_up(&KEY, at(11))).is_to_be_stored);
        let stored = model.entries.lock().unwrap()[&KEY].clone();
        assert_eq!(
            (stored.stored_at, stored.expires_at),
            (1_000_000, 1_060_000)
        );
        // filled twice, and not asked for in between
        let other = [8; 32];
        assert_eq!(owner.put(&other, &kept(5), None, at(0)), Ok(false));
        assert_eq!(owner.put(&other, &kept(5), None, at(0)), Ok(true));
        // what is not final never
        let tip = kept_of(Class::Tip, 5, 100);
        for _ in 0..3 {
            assert_eq!(owner.put(&[9; 32], &tip, None, at(0)), Ok(false));
            assert!(!found(owner.look_up(&[9; 32], at(0))).is_to_be_stored);
        }
    }

    #[test]
    fn the_store_is_asked_after_memory_and_fills_it() {
        let (owner, _model) = owner();
        assert!(matches!(owner.look_up(&KEY, at(0)), LookUp::Missing));
        owner.store(&KEY, &kept(5), at(0)).unwrap();
        assert!(matches!(owner.look_up(&KEY, at(0)), LookUp::AskStore));
        let hit = owner.look_up_store(&KEY, at(100)).unwrap();
        assert!(!hit.is_to_be_stored);
        assert_eq!(
            (hit.kept.age(at(100)), hit.kept.fresh(at(100))),
            (100, 59_900)
        );
        assert!(!found(owner.look_up(&KEY, at(200))).is_to_be_stored);
        assert!(owner.look_up_store(&KEY, at(60_000)).is_none());
    }

    #[test]
    fn an_entry_too_long_for_memory_goes_to_the_store_at_once() {
        let (owner, model) = owner();
        assert!(owner.has_room_for(10_000));
        assert!(!owner.has_room_for(50_000));
        let long = kept_of(Class::Resource, 5, 50_000);
        assert_eq!(owner.put(&KEY, &long, None, at(0)), Ok(false));
        assert_eq!(
            owner.look_up_store(&KEY, at(0)).unwrap().kept.body().len(),
            50_000
        );
        let put = |class, length| owner.put(&KEY, &kept_of(class, 5, length), None, at(0));
        assert_eq!(put(Class::Unfinalized, 50_000), Err(Refused::TooLong));
        assert_eq!(put(Class::Immutable, 200_000), Err(Refused::TooLong));
        *model.is_full.lock().unwrap() = true;
        assert_eq!(
            put(Class::Immutable, 50_000),
            Err(Refused::Off("full".into()))
        );
        assert_eq!(put(Class::Immutable, 100), Ok(true));
        assert_eq!(put(Class::Tip, 100), Ok(false));
    }

    #[test]
    fn a_purge_removes_and_refuses_what_is_older() {
        let (owner, _model) = owner();
        let scope = Scope::Namespace([1; 16]);
        owner.put(&KEY, &kept(5), None, at(0)).unwrap();
        owner.store(&KEY, &kept(5), at(0)).unwrap();
        assert_eq!(owner.purge(&scope, || at(0)), Ok(6));
        assert!(owner.look_up_store(&KEY, at(0)).is_none());
        assert!(!matches!(owner.look_up(&KEY, at(0)), LookUp::Found(_)));
        assert_eq!(owner.put(&KEY, &kept(5), None, at(0)), Err(Refused::Purged));
        assert_eq!(owner.put(&KEY, &kept(7), None, at(0)), Err(Refused::Purged));
        assert!(owner.put(&KEY, &kept(6), None, at(0)).is_ok());
        assert_eq!(owner.status().generation, 6);
    }

    #[test]
    fn a_purge_that_is_not_written_down_holds_but_is_not_acknowledged() {
        let (owner, model) = owner();
        let stream = owner.arrive(&name("a"), at(0)).unwrap();
        heard(&owner, stream);
        owner.put(&KEY, &kept(5), None, at(0)).unwrap();
        *model.is_full.lock().unwrap() = true;
        assert!(owner.purge(&Scope::Key(KEY), || at(0)).is_err());
        assert!(!matches!(owner.look_up(&KEY, at(0)), LookUp::Found(_)));
        let purge = Event::Purge {
            generation: 6,
            key: Some(KEY),
        };
        assert_eq!(heard(&owner, stream), [purge]);
    }

    #[test]
    fn leases_end_with_what_is_there_then() {
        let (owner, _model) = owner();
        let [a, b] = ["a", "b"].map(|process| owner.arrive(&name(process), at(0)).unwrap());
        heard(&owner, b);
        assert!(granted(&owner, "a"));
        assert!(!granted(&owner, "b"));
        owner.put(&KEY, &kept(5), Some(&name("a")), at(0)).unwrap();
        assert_eq!(heard(&owner, b), [Event::Filled(KEY)]);
        // it came between the miss and this
        let leased = owner.lease(&KEY, &name("b"), 1_000, at(0));
        assert!(matches!(leased, Leased::Found(_)));

        owner.purge(&Scope::Everything, || at(0)).unwrap();
        assert_eq!(heard(&owner, b).len(), 1);
        for end in [
            |owner: &Owner, _: Stream| owner.give_back(&KEY, &name("a"), at(0)),
            |owner: &Owner, _: Stream| {
                let refused = owner.put(&KEY, &kept(5), Some(&name("a")), at(0));
                assert_eq!(refused, Err(Refused::Purged));
            },
            |owner: &Owner, _: Stream| drop(owner.tick(at(1_000))),
            |owner: &Owner, a: Stream| owner.leave(a, at(0)),
        ] {
            assert!(granted(&owner, "a"));
            assert!(!granted(&owner, "b"));
            end(&owner, a);
            assert_eq!(heard(&owner, b), [Event::GivenUp(KEY)]);
        }
    }

    #[test]
    fn a_clean_end_stores_what_may_be_and_is_fresh() {
        let (owner, model) = owner();
        for (n, class) in Class::ALL.into_iter().enumerate() {
            let entry = kept_of(class, 5, 100);
            owner.put(&[n as u8; 32], &entry, None, at(0)).unwrap();
        }
        owner.close(at(100)).unwrap();
        let mut stored: Vec<_> = model.entries.lock().unwrap().keys().copied().collect();
        stored.sort_unstable();
        assert_eq!(stored, [[0; 32], [3; 32]]);
        owner.put(&KEY, &kept(5), None, at(0)).unwrap();
        owner.close(at(60_000)).unwrap();
        assert_eq!(model.entries.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_clean_end_waits_for_a_disk_that_is_slower() {
        let (owner, model) = owner();
        for n in 0..10 {
            owner.put(&[n; 32], &kept(5), None, at(0)).unwrap();
        }
        *model.room.lock().unwrap() = Some(2);
        owner.close(at(0)).unwrap();
        assert_eq!(model.entries.lock().unwrap().len(), 10);
    }

    #[test]
    fn a_fill_and_a_purge_do_not_pass_each_other() {
        let (owner, _model) = owner();
        std::thread::scope(|scope| {
            let fills = scope.spawn(|| {
                for _ in 0..2_000 {
                    let generation = owner.disk.generation();
                    let _ = owner.put(&KEY, &kept(generation), None, at(0));
                }
            });
            for _ in 0..300 {
                let generation = owner.purge(&Scope::Key(KEY), || at(0)).unwrap();
                if let LookUp::Found(hit) = owner.look_up(&KEY, at(0)) {
                    assert!(hit.kept.about().generation >= generation);
                }
            }
            fills.join().unwrap();
        });
    }
}
