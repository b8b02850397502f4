//! The owner: memory before the store, leases, processes, purges.
//!
//! What may wait for a disk says so; all else is quick enough for an event
//! loop. What was purged is judged when it is found, by what the store knows of
//! purges, in memory as on the disk: a purge holds from the moment that it is
//! known, and what it is about is [swept](Owner::sweep) out of memory later, in
//! small steps.

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

/// Leases at a time. Beyond it all who miss ask the node.
const MOST_LEASES: usize = 65_536;

/// How many times as old as an inactive entry a table is that goes, in
/// quarters; and after how many quarters what is asked for is put again. Two
/// of the latter may pass between a table's making and a hit that does not
/// renew an entry in it: one that it was old when it was read, and one since.
const GOES: u64 = 6;
const RENEWS: u64 = 1;

/// Of a time, without overflow.
fn quarters(time: u64, count: u64) -> u64 {
    (time / 4).saturating_mul(count).max(1)
}

/// An entry that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The entry.
    pub kept: Arc<Kept>,
    /// Call [`Owner::store`] with it, once it is sent.
    pub is_to_be_stored: bool,
}

/// Who has something to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// These streams.
    pub streams: Vec<Stream>,
    /// And whoever was told "pending" of one of these, and waits without a stream.
    pub leases: Vec<Key>,
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

/// Why an entry is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It was purged after the node was asked for it; or the generation is
    /// one that has not been yet.
    Purged,
    /// What it depends on was replaced after the node was asked for it, or is
    /// over; or its chain is another one than it was.
    Replaced,
    /// It is too long for memory, and does not belong on a disk or is too long
    /// for that as well.
    TooLong,
    /// Its place is on the disk, where storing is off. For people.
    Off(String),
}

/// What has been done since the start.
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
    /// Those that have ended, and others may wait for that.
    ended: Vec<Key>,
    /// The numbers of what was told of chains.
    pub(super) told: HashMap<Namespace, u64>,
    pub(super) processes: Processes,
}

/// All that an owner has. Any number of threads may use it.
pub struct Owner {
    pub(super) disk: Box<dyn Disk>,
    pub(super) memory: Memory,
    pub(super) shared: Mutex<Shared>,
    /// Read by fills, written by what replaces an entry.
    pub(super) effect: RwLock<()>,
    /// Held by the purge that the store is writing down.
    purging: Mutex<()>,
    pub(super) counters: Counters,
    /// Those that are followed.
    pub(super) chains: Chains,
    /// Namespaces whose cache is off since an answer was of another chain, and whether they
    /// are followed.
    pub(super) suspended: Mutex<HashMap<Namespace, bool>>,
    /// Milliseconds.
    pub(super) inactive: Option<u64>,
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

    /// What nobody asks for in so many milliseconds is to be
    /// [forgotten](Self::forget_inactive). Without it nothing is.
    pub fn inactive(mut self, after: Option<u64>) -> Self {
        self.inactive = after;
        self
    }

    /// What is under `key`, as far as can be told without a disk.
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

    /// What the store has under `key`; memory has it then too. May wait for a
    /// disk.
    pub fn look_up_store(&self, key: &Key, now: Now) -> Option<Found> {
        self.take_in(key, self.disk.get(key, now), now)
    }

    /// What the store gave goes to memory.
    fn take_in(&self, key: &Key, stored: Option<Stored>, now: Now) -> Option<Found> {
        let kept = stored
            .map(|mut stored| {
                // what is too long for memory goes out from where it lies
                if self.memory.takes(stored.body.as_ref().len()) {
                    stored.body = stored.body.into_owned();
                }
                Arc::new(Kept::from_store(stored, now).among(&self.chains))
            })
            .filter(|kept| kept.fresh(now) > 0 && kept.is_checked())
            .filter(|kept| {
                let _effect = read(&self.effect);
                let holds = !self.disk.refuses(key, kept.about());
                // a fill that came meanwhile is newer
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

    /// `process` has missed `key`, and wants its lease for `time` milliseconds
    /// at most.
    ///
    /// # Errors
    /// It is not needed any more: the entry came in between.
    pub fn lease(&self, key: &Key, process: &Name, time: u64, now: Now) -> Result<Lease, Found> {
        let mut shared = locked(&self.shared);
        // a fill goes to memory before it ends the lease
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

    /// `process` gives its lease back.
    pub fn give_back(&self, key: &Key, process: &Name, now: Now) {
        let mut shared = locked(&self.shared);
        let ended = shared.leases.give_back(key, process);
        shared.announce(ended, |key| self.in_memory(key, now).is_some());
    }

    /// What memory has, not counted as being asked for.
    fn in_memory(&self, key: &Key, now: Now) -> Option<Arc<Kept>> {
        let kept = self.memory.peek(key, now)?;
        self.outlives(key, &kept).then_some(kept)
    }

    /// Whether no purge is about it. What one is about leaves memory.
    fn outlives(&self, key: &Key, kept: &Arc<Kept>) -> bool {
        let newest = self.disk.generation();
        let is_purged = kept.is_purged(newest, |about| self.disk.refuses(key, about));
        if is_purged {
            self.memory.remove_this(key, kept);
        }
        !is_purged
    }

    /// Whether an entry of that many bytes goes to memory, so that
    /// [`put`](Self::put) does not wait for a disk.
    pub fn has_room_for(&self, length: usize) -> bool {
        self.memory.takes(length)
    }

    /// An entry that may be [put](Self::put), fresh for so many milliseconds
    /// from now on.
    pub fn kept(&self, about: About, body: Vec<u8>, fresh: u64, now: Now) -> Kept {
        Kept::new(about, body, fresh, now).among(&self.chains)
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
        let mut shared = locked(&self.shared);
        if put.is_ok() && kept.tell() {
            // before anybody else is given it
            self.announce_chain(&mut shared, &kept.about().namespace);
        }
        let ended = match &put {
            Ok(_) => shared.leases.end(key),
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
            Err(StoreError::TooLarge) => Err(Refused::TooLong),
            Err(StoreError::Purged) => Err(Refused::Purged),
            Err(error) => Err(Refused::Off(error.to_string())),
        }
    }

    /// Puts an entry on the disk. May wait for it.
    ///
    /// # Errors
    /// [`StoreError`]: it will be tried again when it is asked for again.
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

    /// Removes entries, and gives the new generation. It is over when it
    /// [is not waiting](Self::is_waiting) any more; what it is about lies in
    /// memory until it is asked for, or [swept](Self::sweep). Waits for a disk;
    /// `now` is asked for the time after that.
    ///
    /// # Errors
    /// [`StoreError`]: it holds until this owner ends, and is to be tried again.
    pub fn purge(&self, scope: &Scope, now: impl Fn() -> Now) -> Result<u64, StoreError> {
        // in the order of their generations: who acknowledges one
        // acknowledges those before it
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

    /// Takes out of memory what a purge with that generation is about, entry by
    /// entry. How many there were. Takes milliseconds for each 10,000 entries
    /// that there are.
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

    /// All purges up to `generation` hold in a process.
    ///
    /// # Errors
    /// [`NoSuchPurge`].
    pub fn acknowledge(&self, process: &Name, generation: u64) -> Result<(), NoSuchPurge> {
        locked(&self.shared)
            .processes
            .acknowledge(process, generation)
    }

    /// It can be reached from `now` on, and could not be before.
    pub fn listens(&self, now: Now) {
        locked(&self.shared).processes.listens(now.monotonic);
    }

    /// A process has opened an event stream.
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

    /// An event stream has ended, and with it the leases of its process.
    pub fn leave(&self, stream: Stream, now: Now) {
        let mut shared = locked(&self.shared);
        if let Some(process) = shared.processes.leave(stream) {
            let ended = shared.leases.forget(&process);
            shared.announce(ended, |key| self.in_memory(key, now).is_some());
        }
    }

    /// What to send on an event stream.
    pub fn next(&self, stream: Stream, now: Now) -> Next {
        locked(&self.shared).processes.next(stream, now.monotonic)
    }

    /// Who has something to be told since the last call.
    pub fn take_woken(&self) -> Woken {
        let mut shared = locked(&self.shared);
        Woken {
            streams: shared.processes.take_woken(),
            leases: std::mem::take(&mut shared.ended),
        }
    }

    /// Time has passed, or something was acknowledged: the purges that are
    /// over.
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

    /// The end: what memory has and may lie on a disk goes there. Waits for
    /// it; gives up at the first error.
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
            // one that the store does not want is no loss to the others
            match put {
                Ok(()) | Err(StoreError::TooLarge | StoreError::Purged) => {}
                Err(error) => return Err(error),
            }
        }
        self.disk.flush()
    }

    /// What it knows of itself, as its protocol says it.
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

    /// Its disk.
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Forgets what nobody has asked for in so many milliseconds, in memory
    /// and, more coarsely, on the disk. Does nothing unless that was said to
    /// [`inactive`](Self::inactive). Waits for a disk.
    pub fn forget_inactive(&self, now: Now) {
        let Some(inactive) = self.inactive else {
            return;
        };
        self.memory.forget(now.monotonic.saturating_sub(inactive));
        self.disk
            .forget(quarters(inactive, GOES), quarters(inactive, RENEWS), now);
    }

    /// Whether a purge is not over yet.
    pub fn is_waiting(&self, generation: u64) -> bool {
        locked(&self.shared).processes.is_waiting(generation)
    }
}

impl Shared {
    /// Leases have ended: tells those who wait what is there.
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
