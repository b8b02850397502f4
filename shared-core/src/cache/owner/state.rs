//! The owner: memory before the store, leases, processes, purges.
//!
//! A method that may wait for a disk documents it; all others are quick enough for an event loop.
//! Purges are applied lazily: a lookup compares an entry of either tier with the purges that the
//! store knows, so a purge is in effect from the moment it is known. The entries that it covers
//! are [swept](Owner::sweep) out of memory later, in small steps.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use serde_json::{json, Value};

use super::disk::{Disk, Header, StoreError, Stored, Waits};
use super::leases::{Ended, Lease, Leases};
use super::memory::{Kept, Memory};
use super::now::Now;
use super::processes::{Name, Next, NoSuchPurge, Processes, Stream, TooMany};
use crate::cache::chain::Chains;
use crate::cache::entry::about::{About, Scope};
use crate::cache::resource::other_form;
use crate::cache::told::Event;
use crate::cache::{Key, Namespace};
use crate::lock::{locked, read};

/// Maximum number of leases at a time. Beyond it every process that misses queries the node.
const MOST_LEASES: usize = 65_536;

/// Age at which an SST file is dropped, and age at which an entry that is requested is written
/// again, in quarters of the inactivity period. Two of the latter periods may pass between the
/// creation of a file and a hit that does not renew an entry in it: one before the entry counted
/// as old when it was read, and one since.
const GOES: u64 = 6;
const RENEWS: u64 = 1;

/// A number of quarters of `time`, without overflow and at least 1.
fn quarters(time: u64, count: u64) -> u64 {
    (time / 4).saturating_mul(count).max(1)
}

/// An entry that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The entry.
    pub kept: Arc<Kept>,
    /// Whether the caller must call [`Owner::store`] with the entry, once it is sent.
    pub is_to_be_stored: bool,
}

/// The receivers of new events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// Event streams with new events.
    pub streams: Vec<Stream>,
    /// Ended leases for which a process without a stream received "pending" and may wait.
    pub leases: Vec<Key>,
}

/// The result of a lookup that does not wait for a disk.
#[derive(Clone, Debug)]
pub enum LookUp {
    /// The owner memory has the entry.
    Found(Found),
    /// Neither the owner memory nor the store has the entry.
    Missing,
    /// The store may have the entry: [`Owner::look_up_store`] reads it.
    AskStore,
}

/// The reason why an entry is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The entry was purged after the node was queried, or its generation does not exist yet.
    Purged,
    /// The blocks or the state on which the entry depends were replaced after the node was
    /// queried, or have expired; or the namespace has another chain now.
    Replaced,
    /// The entry is too long for the memory, and either not storable or too long for the store.
    TooLong,
    /// The entry must go to the store, where writes are off. The message is for operators.
    Off(String),
}

/// Counts of operations since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    memory_hits: AtomicU64,
    store_hits: AtomicU64,
    misses: AtomicU64,
    fills: AtomicU64,
    refused: AtomicU64,
    stored: AtomicU64,
    not_stored: AtomicU64,
    pub(super) recompressed: AtomicU64,
    pub(super) saved: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Shared {
    leases: Leases,
    /// Ended leases that other processes may wait for.
    ended: Vec<Key>,
    /// The number of the last published state of each chain.
    pub(super) told: HashMap<Namespace, u64>,
    pub(super) processes: Processes,
}

/// The state of an owner. Any number of threads may use it.
pub struct Owner {
    pub(super) disk: Box<dyn Disk>,
    pub(super) memory: Memory,
    pub(super) shared: Mutex<Shared>,
    /// Read-locked by fills, write-locked by the replacement of an entry.
    pub(super) effect: RwLock<()>,
    /// Locked by the purge that the store is recording.
    purging: Mutex<()>,
    pub(super) counters: Counters,
    /// The followed chains, and those whose namespace is suspended.
    pub(super) chains: Chains,
    /// Namespaces that are suspended because a response was of another chain, and whether their
    /// chain is followed.
    pub(super) suspended: Mutex<HashMap<Namespace, bool>>,
    /// Inactivity period in milliseconds.
    pub(super) inactive: Option<u64>,
}

impl Owner {
    /// An owner with `memory` bytes for its memory tier. It starts at `now`, when no other owner
    /// of the machine is left.
    pub fn new(disk: Box<dyn Disk>, memory: u64, now: Now) -> Self {
        let generation = disk.generation();
        Self {
            disk,
            memory: Memory::new(memory),
            shared: Mutex::new(Shared {
                leases: Leases::new(MOST_LEASES),
                ended: Vec::new(),
                told: HashMap::new(),
                processes: Processes::new(generation, now.monotonic),
            }),
            effect: RwLock::new(()),
            purging: Mutex::new(()),
            counters: Counters::default(),
            chains: Chains::default(),
            suspended: Mutex::default(),
            inactive: None,
        }
    }

    /// Sets the inactivity period in milliseconds, after which entries that no process requests
    /// [expire](Self::forget_inactive). Without it no entry expires for inactivity.
    pub fn inactive(mut self, after: Option<u64>) -> Self {
        self.inactive = after;
        self
    }

    /// Looks up `key` without waiting for a disk.
    pub fn look_up(&self, key: &Key, now: Now) -> LookUp {
        let kept = self.memory.get(key, now);
        let Some(kept) = kept.filter(|kept| self.outlives(key, kept)) else {
            return match self.disk.get_ready(key, now) {
                Ok(stored) => match self.take_in(key, stored, now) {
                    Some(found) => LookUp::Found(found),
                    None => LookUp::Missing,
                },
                Err(Waits) => LookUp::AskStore,
            };
        };
        count(&self.counters.memory_hits);
        if let Some(inactive) = self.inactive {
            kept.renew(quarters(inactive, RENEWS), now);
        }
        LookUp::Found(Found {
            is_to_be_stored: kept.is_to_be_stored(),
            kept,
        })
    }

    /// Looks up `key` in the store, and copies the entry to memory. May wait for a disk.
    pub fn look_up_store(&self, key: &Key, now: Now) -> Option<Found> {
        self.take_in(key, self.disk.get(key, now), now)
    }

    /// Inserts an entry of the store into memory, if it is fresh, checked and not purged.
    fn take_in(&self, key: &Key, stored: Option<Stored>, now: Now) -> Option<Found> {
        let kept = stored
            .map(|mut stored| {
                // an entry too long for memory is sent from where the store has it
                if self.memory.takes(stored.body.as_ref().len()) {
                    stored.body = stored.body.into_owned();
                }
                Arc::new(Kept::from_store(stored, now).among(&self.chains))
            })
            .filter(|kept| kept.fresh(now) > 0 && kept.is_checked())
            .filter(|kept| {
                let _effect = read(&self.effect);
                let holds = !self.disk.refuses(key, kept.about());
                // an entry that was filled in the meantime is newer
                if holds && self.in_memory(key, now).is_none() {
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

    /// Requests the lease of `key` for `process`, which has missed it, for at most `time`
    /// milliseconds.
    ///
    /// # Errors
    /// The entry, if it was filled in the meantime: no lease is needed.
    pub fn lease(&self, key: &Key, process: &Name, time: u64, now: Now) -> Result<Lease, Found> {
        let mut shared = locked(&self.shared);
        // a fill inserts its entry before it ends the lease
        if let Some(kept) = self.in_memory(key, now) {
            return Err(Found {
                kept,
                is_to_be_stored: false,
            });
        }
        let ended = shared.leases.expire(now.monotonic);
        shared.announce(ended, |key| self.in_memory(key, now).is_some());
        let ends = now.monotonic.saturating_add(time);
        Ok(shared.leases.ask(*key, process, ends))
    }

    /// Releases the lease that `process` has.
    pub fn give_back(&self, key: &Key, process: &Name, now: Now) {
        let mut shared = locked(&self.shared);
        let ended = shared.leases.give_back(key, process);
        shared.announce(ended, |key| self.in_memory(key, now).is_some());
    }

    /// The entry in memory, if it is fresh and not purged; not counted as a request.
    fn in_memory(&self, key: &Key, now: Now) -> Option<Arc<Kept>> {
        let kept = self.memory.peek(key, now)?;
        self.outlives(key, &kept).then_some(kept)
    }

    /// Whether no purge covers the entry. An entry that is covered is removed from memory.
    fn outlives(&self, key: &Key, kept: &Arc<Kept>) -> bool {
        let newest = self.disk.generation();
        let is_purged = kept.is_purged(newest, |about| self.disk.refuses(key, about));
        if is_purged {
            self.memory.remove_this(key, kept);
        }
        !is_purged
    }

    /// Whether an entry of `length` bytes fits into memory, so that [`put`](Self::put) does not
    /// wait for a disk.
    pub fn has_room_for(&self, length: usize) -> bool {
        self.memory.takes(length)
    }

    /// An entry for [`put`](Self::put) that is fresh for `fresh` milliseconds from `now` on.
    pub fn kept(&self, about: About, body: Vec<u8>, fresh: u64, now: Now) -> Kept {
        Kept::new(about, body, fresh, now).among(&self.chains)
    }

    /// Inserts an entry that `process` has fetched. Returns whether the caller must
    /// [`store`](Self::store) it. May wait for a disk, if memory
    /// [has no room](Self::has_room_for) for the entry.
    ///
    /// # Errors
    /// [`Refused`]. A lease of `process` ends nevertheless.
    pub fn put(
        &self,
        key: &Key,
        kept: &Arc<Kept>,
        process: Option<&Name>,
        now: Now,
    ) -> Result<bool, Refused> {
        let put = self.keep(key, kept, now);
        let mut shared = locked(&self.shared);
        if put.is_ok() && kept.tell() {
            // before any process receives the entry
            self.announce_chain(&mut shared, &kept.about().namespace);
        }
        let ended = match &put {
            Ok(_) => shared.leases.end(key),
            Err(_) => process.and_then(|process| shared.leases.give_back(key, process)),
        };
        // even if it is evicted at once: waiters must look it up
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
            let _effect = read(&self.effect);
            if kept.about().generation > self.disk.generation()
                || self.disk.refuses(key, kept.about())
            {
                return Err(Refused::Purged);
            }
            if !kept.holds() {
                return Err(Refused::Replaced);
            }
            if self.memory.insert(*key, kept) {
                // a stored entry must not outlive the newer one
                let is_known =
                    may_be_stored && (self.disk.admits(key, now) || self.disk.may_have(key));
                return Ok(is_known && kept.is_to_be_stored());
            }
        }
        // the store knows a purge that overtakes the entry here: the entry carries the
        // generation that was current when the node was queried
        if !may_be_stored {
            return Err(Refused::TooLong);
        }
        match self.store(key, kept, now) {
            Ok(()) => Ok(false),
            Err(StoreError::TooLarge) => Err(Refused::TooLong),
            Err(StoreError::Purged) => Err(Refused::Purged),
            Err(error) => Err(Refused::Off(error.to_string())),
        }
    }

    /// Writes an entry to the store. May wait for a disk.
    ///
    /// # Errors
    /// [`StoreError`]: the entry is offered to the store again on its next request.
    pub fn store(&self, key: &Key, kept: &Kept, now: Now) -> Result<(), StoreError> {
        let header = Header {
            about: kept.about().clone(),
            stored_at: now.unix.saturating_sub(kept.age(now)),
            expires_at: now.unix.saturating_add(kept.fresh(now)),
        };
        let put = self.disk.put(key, &header, kept.body());
        count(match put {
            Ok(()) => &self.counters.stored,
            Err(_) => &self.counters.not_stored,
        });
        match put {
            Ok(()) => kept.is_placed(now),
            Err(StoreError::TooLarge | StoreError::Purged) => {}
            Err(_) => kept.is_not_stored(),
        }
        put
    }

    /// Purges entries, and returns the new generation. The purge is complete when
    /// [`is_waiting`](Self::is_waiting) returns false. Entries that it covers occupy memory until
    /// they are requested or [swept](Self::sweep). Waits for a disk; `now` is called after that.
    ///
    /// # Errors
    /// [`StoreError`]: the purge is in effect until this owner ends, and must be repeated.
    pub fn purge(&self, scope: &Scope, now: impl Fn() -> Now) -> Result<u64, StoreError> {
        // in the order of their generations: an acknowledgement of one purge covers those before it
        let _order = locked(&self.purging);
        let purged = self.disk.purge(scope);
        let generation = match &purged {
            Ok(generation) => *generation,
            Err(_) => self.disk.generation(),
        };
        let key = match scope {
            Scope::Key(key) => Some(*key),
            _ => None,
        };
        locked(&self.shared)
            .processes
            .purge(generation, key, now().monotonic);
        purged
    }

    /// Removes the entries that a purge with this generation covers from memory, entry by entry,
    /// and returns their number. Takes milliseconds per 10,000 entries in memory.
    pub fn sweep(&self, scope: &Scope, generation: u64) -> u64 {
        let is_about = |key: &Key, kept: &Kept| {
            kept.about().generation < generation && scope.covers(key, kept.about())
        };
        match scope {
            Scope::Key(key) => {
                let forms = [*key, other_form(key)];
                let taken = forms.map(|key| self.memory.take_out(&key, is_about));
                taken.into_iter().map(u64::from).sum()
            }
            _ => self.memory.sweep(is_about),
        }
    }

    /// Records that all purges up to `generation` are in effect in a process.
    ///
    /// # Errors
    /// [`NoSuchPurge`].
    pub fn acknowledge(&self, process: &Name, generation: u64) -> Result<(), NoSuchPurge> {
        locked(&self.shared)
            .processes
            .acknowledge(process, generation)
    }

    /// Records that the owner is reachable from `now` on, and was not before.
    pub fn listens(&self, now: Now) {
        locked(&self.shared).processes.listens(now.monotonic);
    }

    /// Opens an event stream for a process.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn arrive(&self, process: &Name, now: Now) -> Result<Stream, TooMany> {
        let mut shared = locked(&self.shared);
        let ended = match shared.processes.has_stream(process) {
            true => shared.leases.forget(process),
            false => Vec::new(),
        };
        let stream = shared.processes.arrive(process, now.monotonic);
        for (namespace, chain) in self.chains.all() {
            let state = Box::new(chain.state());
            shared
                .processes
                .tell(process, Event::Chain { namespace, state });
        }
        shared.announce(ended, |key| self.in_memory(key, now).is_some());
        stream
    }

    /// Closes an event stream, and releases the leases of its process.
    pub fn leave(&self, stream: Stream, now: Now) {
        let mut shared = locked(&self.shared);
        if let Some(process) = shared.processes.leave(stream) {
            let ended = shared.leases.forget(&process);
            shared.announce(ended, |key| self.in_memory(key, now).is_some());
        }
    }

    /// The next action on an event stream.
    pub fn next(&self, stream: Stream, now: Now) -> Next {
        locked(&self.shared).processes.next(stream, now.monotonic)
    }

    /// Takes the receivers that have new events since the last call.
    pub fn take_woken(&self) -> Woken {
        let mut shared = locked(&self.shared);
        Woken {
            streams: shared.processes.take_woken(),
            leases: std::mem::take(&mut shared.ended),
        }
    }

    /// Applies the passing of time or an acknowledgement, and returns the completed purges.
    pub fn tick(&self, now: Now) -> Vec<u64> {
        let mut shared = locked(&self.shared);
        let ended = shared.leases.expire(now.monotonic);
        shared.announce(ended, |key| self.in_memory(key, now).is_some());
        shared.processes.settle(now.monotonic)
    }

    /// When to call [`tick`](Self::tick) next, in monotonic milliseconds.
    pub fn next_tick(&self) -> Option<u64> {
        let shared = locked(&self.shared);
        let ends = [shared.leases.next_end(), shared.processes.next_settlement()];
        ends.into_iter().flatten().min()
    }

    /// Writes the entries of the memory that may be stored to the store, at the end of the owner.
    /// Waits for a disk; stops at the first error.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn close(&self, now: Now) -> Result<(), StoreError> {
        for (key, kept) in self.memory.not_stored(now) {
            let mut put = self.store(&key, &kept, now);
            if put == Err(StoreError::Busy) {
                self.disk.flush()?;
                put = self.store(&key, &kept, now);
            }
            // an entry that the store rejects does not keep the others from being stored
            match put {
                Ok(()) | Err(StoreError::TooLarge | StoreError::Purged) => {}
                Err(error) => return Err(error),
            }
        }
        self.disk.flush()
    }

    /// The status of the owner, as the owner protocol defines it.
    pub fn status(&self) -> Value {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let shared = locked(&self.shared);
        let processes: Vec<&str> = shared.processes.present().map(Name::as_str).collect();
        json!({
            "generation": shared.processes.generation(),
            "processes": processes,
            "leases": shared.leases.count(),
            "suspended": locked(&self.suspended).len(),
            "purges_waiting": shared.processes.waiting(),
            "memory": {
                "entries": self.memory.count(),
                "bytes": self.memory.bytes(),
                "capacity": self.memory.capacity(),
                "evicted": self.memory.evictions(),
            },
            "lookups": {
                "memory": load(&counters.memory_hits),
                "store": load(&counters.store_hits),
                "missed": load(&counters.misses),
            },
            "fills": { "kept": load(&counters.fills), "refused": load(&counters.refused) },
            "stores": { "done": load(&counters.stored), "failed": load(&counters.not_stored) },
            "recompressed": {
                "entries": load(&counters.recompressed),
                "saved": load(&counters.saved),
            },
            "store": self.disk.status(),
        })
    }

    /// The store of the owner.
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Removes entries that no process has requested for the inactivity period, in memory and,
    /// more coarsely, in the store. Does nothing without [`inactive`](Self::inactive). Waits for a
    /// disk.
    pub fn forget_inactive(&self, now: Now) {
        let Some(inactive) = self.inactive else {
            return;
        };
        self.memory.forget(now.monotonic.saturating_sub(inactive));
        self.disk
            .forget(quarters(inactive, GOES), quarters(inactive, RENEWS), now);
    }

    /// Whether a purge is not complete yet.
    pub fn is_waiting(&self, generation: u64) -> bool {
        locked(&self.shared).processes.is_waiting(generation)
    }
}

impl Shared {
    /// Notifies the waiters of ended leases whether the entry is present.
    fn announce(
        &mut self,
        ended: impl IntoIterator<Item = Ended>,
        is_there: impl Fn(&Key) -> bool,
    ) {
        for Ended { key, waiters } in ended {
            if !waiters.is_empty() {
                self.ended.push(key);
            }
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
mod tests;
