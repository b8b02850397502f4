//! The owner: memory before the store, leases, processes, purges.
//!
//! A method that may wait for a disk documents it; all others are quick enough for an event loop.
//! Purges are applied lazily: a lookup compares an entry of either tier with the purges that the
//! store knows, so a purge is in effect from the moment it is known. The entries that it covers
//! are [swept](Owner::remove_purged_from_memory) out of memory later, in small steps.

use crate::hash_keys::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use serde_json::{json, Value};

use super::disk::{
    DiskEntry, EntryRecordAttributes, OwnerStore, ReadWouldBlock, StoreWriteRejection,
};
use super::leases::{EndedLease, LeaseTable};
use super::memory_tier::{OwnerMemory, OwnerMemoryEntry};
use super::processes::{OwnerClientName, OwnerSessionId, ProcessTable};
use crate::cache::chain::NamespaceChains;
use crate::cache::clock::ClockReading;
use crate::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use crate::cache::owner::fleet_gate::FleetGate;
use crate::cache::owner_protocol::owner_message::{LeaseReply, SessionEvent};
use crate::cache::resource::other_format_key;
use crate::cache::{CacheKey, CacheNamespace};
use crate::lock::{lock_ignoring_poison, read_ignoring_poison};

/// Maximum number of leases at a time. Beyond it every process that misses queries the node.
const MAX_LEASES: usize = 65_536;

/// Age at which an SST file is dropped, and age at which an entry that is requested is written
/// again, in quarters of the inactivity period. Two of the latter periods may pass between the
/// creation of a file and a hit that does not renew an entry in it: one before the entry counted
/// as old when it was read, and one since.
const DROP_AGE_QUARTERS: u64 = 6;
const RENEW_AGE_QUARTERS: u64 = 1;

/// Returns `count` quarters of `time`, without overflow and at least 1.
fn quarters_of_time(time: u64, count: u64) -> u64 {
    (time / 4).saturating_mul(count).max(1)
}

/// An entry that a lookup of the owner has found, and whether the caller has to store it.
#[derive(Clone, Debug)]
pub struct OwnerHit {
    /// The entry.
    pub kept: Arc<OwnerMemoryEntry>,
    /// Whether the caller must call [`Owner::write_to_store`] with the entry, once it is sent.
    pub is_to_be_stored: bool,
}

/// The result of a lookup in the owner's memory, which does not wait for a disk.
#[derive(Clone, Debug)]
pub enum OwnerMemoryLookupResult {
    /// The owner memory has the entry.
    Found(OwnerHit),
    /// Neither the owner memory nor the store has the entry.
    Missing,
    /// The store may have the entry: [`Owner::lookup_in_store`] reads it.
    QueryStore,
}

/// The reason why the owner refuses to store an entry that a process has fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryRejection {
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

/// The owner's counts of hits, misses, fills and writes since its start, for its status.
#[derive(Debug, Default)]
pub(super) struct OwnerCounters {
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

/// The leases and processes of an owner, behind one lock.
#[derive(Debug)]
pub(super) struct OwnerTables {
    pub(super) leases: LeaseTable,
    pub(super) processes: ProcessTable,
}

/// The cache that all processes of a machine share: the memory tier, the store, the leases, the
/// purges and the followed chains. Any number of threads may use it.
pub struct Owner {
    pub(super) owner_store: Box<dyn OwnerStore>,
    pub(super) memory: OwnerMemory,
    pub(super) shared: Mutex<OwnerTables>,
    /// Read-locked by fills, write-locked by the replacement of an entry.
    pub(super) effect: RwLock<()>,
    /// Locked by fills while they compare an entry with the present one and insert it.
    inserting: Mutex<()>,
    /// Locked by the purge that the store is recording.
    purging: Mutex<()>,
    pub(super) counters: OwnerCounters,
    /// The followed chains, and those whose namespace is suspended.
    pub(super) chains: NamespaceChains,
    /// Namespaces that are suspended because a response was of another chain, and whether their
    /// chain is followed.
    pub(super) suspended: Mutex<HashMap<CacheNamespace, bool>>,
    /// The gate of the fleet, if there is one.
    pub(super) fleet_gate: OnceLock<Arc<dyn FleetGate>>,
    /// Inactivity period in milliseconds.
    pub(super) inactive: Option<u64>,
    /// Number of the first session. It depends on the time, so that a session of an earlier owner
    /// is not mistaken for one of this owner.
    pub(super) first_session_number: u64,
}

impl Owner {
    /// Creates an owner over the store `disk`, with `memory` bytes for its memory tier. It starts
    /// at `now`, when no other owner of the machine is left.
    pub fn new(disk: Box<dyn OwnerStore>, memory: u64, now: ClockReading) -> Self {
        let generation = disk.purge_generation();
        Self {
            owner_store: disk,
            memory: OwnerMemory::new(memory),
            shared: Mutex::new(OwnerTables {
                leases: LeaseTable::new(MAX_LEASES),
                processes: ProcessTable::new(generation, now.monotonic),
            }),
            effect: RwLock::new(()),
            inserting: Mutex::new(()),
            purging: Mutex::new(()),
            counters: OwnerCounters::default(),
            chains: NamespaceChains::default(),
            suspended: Mutex::default(),
            fleet_gate: OnceLock::new(),
            inactive: None,
            first_session_number: now.unix.saturating_mul(1 << 20),
        }
    }

    /// Sets the inactivity period in milliseconds, after which entries that no process requests
    /// [expire](Self::expire_inactive_entries). Without it no entry expires for inactivity.
    pub fn with_inactivity_period(mut self, after: Option<u64>) -> Self {
        self.inactive = after;
        self
    }

    /// Looks up `key` without waiting for a disk.
    pub fn lookup_without_disk_wait(
        &self,
        key: &CacheKey,
        now: ClockReading,
    ) -> OwnerMemoryLookupResult {
        let entry = self.memory.get(key, now);
        let Some(entry) = entry.filter(|entry| self.survives_purges(key, entry)) else {
            return match self.owner_store.read_entry_nonblocking(key, now) {
                Ok(stored) => match self.insert_from_store(key, stored, now) {
                    Some(found) => OwnerMemoryLookupResult::Found(found),
                    None => OwnerMemoryLookupResult::Missing,
                },
                Err(ReadWouldBlock) => OwnerMemoryLookupResult::QueryStore,
            };
        };
        increment_counter(&self.counters.memory_hits);
        if let Some(inactive) = self.inactive {
            entry.mark_for_rewrite_if_old(quarters_of_time(inactive, RENEW_AGE_QUARTERS), now);
        }
        self.offer_disk_entry(key, &entry, now);
        OwnerMemoryLookupResult::Found(OwnerHit {
            is_to_be_stored: entry.claim_store_write(),
            kept: entry,
        })
    }

    /// Looks up `key` in the store, and copies the entry to memory. May wait for a disk.
    pub fn lookup_in_store(&self, key: &CacheKey, now: ClockReading) -> Option<OwnerHit> {
        self.insert_from_store(key, self.owner_store.read_entry(key, now), now)
    }

    /// Inserts an entry of the store into memory, if it is fresh, checked and not purged.
    fn insert_from_store(
        &self,
        key: &CacheKey,
        stored: Option<DiskEntry>,
        now: ClockReading,
    ) -> Option<OwnerHit> {
        let entry = stored
            .map(|mut stored| {
                // an entry too long for memory is sent from where the store has it
                if self.memory.fits_entry(stored.body.as_ref().len()) {
                    stored.body = stored.body.into_owned();
                }
                Arc::new(
                    OwnerMemoryEntry::from_disk_entry(stored, now)
                        .with_chain_dependency(&self.chains),
                )
            })
            .filter(|entry| entry.remaining_ttl(now) > 0 && entry.is_chain_identity_checked())
            .filter(|entry| {
                let _effect = read_ignoring_poison(&self.effect);
                let holds = !self
                    .owner_store
                    .is_entry_purged(key, entry.entry_store_attributes());
                // an entry that was filled in the meantime is newer
                if holds && self.get_from_memory(key, now).is_none() {
                    self.memory.insert(*key, entry);
                }
                holds
            });
        let Some(entry) = entry else {
            increment_counter(&self.counters.misses);
            return None;
        };
        increment_counter(&self.counters.store_hits);
        self.offer_disk_entry(key, &entry, now);
        Some(OwnerHit {
            is_to_be_stored: entry.claim_store_write(),
            kept: entry,
        })
    }

    /// Requests the lease of `key` for `process`, which has missed it, so that one process fetches
    /// it.
    ///
    /// # Errors
    /// The entry, if it was filled in the meantime: no lease is needed.
    pub(super) fn acquire_lease(
        &self,
        shared: &mut OwnerTables,
        key: &CacheKey,
        process: &OwnerClientName,
        time: u64,
        now: ClockReading,
    ) -> Result<LeaseReply, OwnerHit> {
        // a fill inserts its entry before it ends the lease
        if let Some(entry) = self.get_from_memory(key, now) {
            if entry.length_if_unchecked().is_some() {
                // the next lookup finds the entry and checks it
                return Ok(LeaseReply::NoLease);
            }
            return Err(OwnerHit {
                kept: entry,
                is_to_be_stored: false,
            });
        }
        let ended = shared.leases.expire_leases(now.monotonic);
        self.notify_lease_waiters(shared, ended, now);
        let ends = now.monotonic.saturating_add(time);
        Ok(shared.leases.acquire_lease(*key, process, ends))
    }

    /// Ends the lease of `key` that `process` has and does not use, so that another process may
    /// fetch.
    pub(super) fn release_lease(
        &self,
        key: &CacheKey,
        process: &OwnerClientName,
        now: ClockReading,
    ) {
        let mut shared = lock_ignoring_poison(&self.shared);
        let ended = shared.leases.release_key_lease(key, process);
        self.notify_lease_waiters(&mut shared, ended, now);
    }

    /// Notifies the processes that wait for ended leases whether the entry is present.
    pub(super) fn notify_lease_waiters(
        &self,
        shared: &mut OwnerTables,
        ended: impl IntoIterator<Item = EndedLease>,
        now: ClockReading,
    ) {
        shared.notify_lease_waiters(ended, |key| self.get_from_memory(key, now).is_some());
    }

    /// Returns the entry in memory if it is fresh and not purged, without counting a request of it.
    fn get_from_memory(&self, key: &CacheKey, now: ClockReading) -> Option<Arc<OwnerMemoryEntry>> {
        let entry = self.memory.get_uncounted(key, now)?;
        self.survives_purges(key, &entry).then_some(entry)
    }

    /// Whether no purge covers the entry. An entry that is covered is removed from memory.
    fn survives_purges(&self, key: &CacheKey, entry: &Arc<OwnerMemoryEntry>) -> bool {
        let newest = self.owner_store.purge_generation();
        let is_purged =
            entry.is_covered_by_purge(newest, |about| self.owner_store.is_entry_purged(key, about));
        if is_purged {
            self.memory.remove_same_entry(key, entry);
        }
        !is_purged
    }

    /// Whether an entry of `length` bytes fits into memory, so that
    /// [`store_fetched_entry`](Self::store_fetched_entry) does not wait for a disk.
    pub fn memory_fits_entry(&self, length: usize) -> bool {
        self.memory.fits_entry(length)
    }

    /// Creates an entry for [`put_fetched_entry`](Self::put_fetched_entry) that is fresh for
    /// `fresh` milliseconds from `now` on.
    pub(super) fn new_memory_entry(
        &self,
        about: StoredEntryAttributes,
        body: Vec<u8>,
        fresh: u64,
        now: ClockReading,
    ) -> OwnerMemoryEntry {
        OwnerMemoryEntry::new(about, body, fresh, now).with_chain_dependency(&self.chains)
    }

    /// Inserts an entry that `process` has fetched. Returns whether the caller must [write it to
    /// the store](Self::write_to_store). May wait for a disk, if memory [has no
    /// room](Self::memory_fits_entry) for the entry.
    ///
    /// # Errors
    /// [`EntryRejection`]. A lease of `process` ends nevertheless.
    pub(super) fn put_fetched_entry(
        &self,
        key: &CacheKey,
        entry: &Arc<OwnerMemoryEntry>,
        process: Option<&OwnerClientName>,
        now: ClockReading,
    ) -> Result<bool, EntryRejection> {
        let put = self.insert_or_store(key, entry, now);
        let mut shared = lock_ignoring_poison(&self.shared);
        if put.is_ok() && entry.record_newer_entry_head() {
            // before any process receives the entry
            self.queue_chain_state_event(&mut shared, &entry.entry_store_attributes().namespace);
        }
        let ended = match &put {
            Ok(_) => shared.leases.end_lease(key),
            Err(_) => process.and_then(|process| shared.leases.release_key_lease(key, process)),
        };
        // even if it is evicted at once: waiters must look it up
        shared.notify_lease_waiters(ended, |_| put.is_ok());
        increment_counter(match &put {
            Ok(_) => &self.counters.fills,
            Err(_) => &self.counters.refused,
        });
        put
    }

    fn insert_or_store(
        &self,
        key: &CacheKey,
        entry: &Arc<OwnerMemoryEntry>,
        now: ClockReading,
    ) -> Result<bool, EntryRejection> {
        let may_be_stored = entry.entry_store_attributes().class.is_storable_on_disk();
        {
            let _effect = read_ignoring_poison(&self.effect);
            if entry.entry_store_attributes().generation > self.owner_store.purge_generation()
                || self
                    .owner_store
                    .is_entry_purged(key, entry.entry_store_attributes())
            {
                return Err(EntryRejection::Purged);
            }
            if !entry.is_valid_on_chain() {
                return Err(EntryRejection::Replaced);
            }
            // two requests were in flight, whose responses come in another order
            let _inserting = lock_ignoring_poison(&self.inserting);
            if self.memory.has_later_fetch(key, entry) {
                return Ok(false);
            }
            if self.memory.insert(*key, entry) {
                // a stored entry must not outlive the newer one
                let is_known = may_be_stored
                    && (self.owner_store.record_fill_for_admission(key, now)
                        || self.owner_store.may_contain_key(key));
                return Ok(is_known && entry.claim_store_write());
            }
        }
        // the store knows a purge that overtakes the entry here: the entry carries the
        // generation that was current when the node was queried
        if !may_be_stored {
            return Err(EntryRejection::TooLong);
        }
        match self.write_to_store(key, entry, now) {
            Ok(()) => Ok(false),
            Err(StoreWriteRejection::TooLarge) => Err(EntryRejection::TooLong),
            Err(StoreWriteRejection::Purged) => Err(EntryRejection::Purged),
            Err(error) => Err(EntryRejection::Off(error.to_string())),
        }
    }

    /// Writes an entry to the store. May wait for a disk.
    ///
    /// # Errors
    /// [`StoreWriteRejection`]: the entry is offered to the store again on its next request.
    pub fn write_to_store(
        &self,
        key: &CacheKey,
        entry: &OwnerMemoryEntry,
        now: ClockReading,
    ) -> Result<(), StoreWriteRejection> {
        let header = EntryRecordAttributes {
            about: entry.entry_store_attributes().clone(),
            requested_at: now.unix.saturating_sub(entry.age_ms(now)),
            expires_at: now.unix.saturating_add(entry.remaining_ttl(now)),
            is_shareable: entry.is_shareable(),
        };
        let put = self
            .owner_store
            .put_entry(key, &header, entry.encoded_bytes());
        increment_counter(match put {
            Ok(()) => &self.counters.stored,
            Err(_) => &self.counters.not_stored,
        });
        match put {
            Ok(()) => entry.mark_stored(now),
            Err(StoreWriteRejection::TooLarge | StoreWriteRejection::Purged) => {}
            Err(_) => entry.mark_store_rejected(),
        }
        put
    }

    /// Purges entries, and returns the new generation. The purge is complete when
    /// [`is_purge_incomplete`](Self::is_purge_incomplete) returns false. Entries that it covers
    /// occupy memory until they are requested or [swept](Self::remove_purged_from_memory). Waits for a
    /// disk; `now` is called after that.
    ///
    /// # Errors
    /// [`StoreWriteRejection`]: the purge is in effect until this owner ends, and must be repeated.
    pub fn purge_entries(
        &self,
        scope: &PurgeScope,
        now: impl Fn() -> ClockReading,
    ) -> Result<u64, StoreWriteRejection> {
        // in the order of their generations: an acknowledgement of one purge covers those before it
        let _order = lock_ignoring_poison(&self.purging);
        let purged = self.owner_store.purge_entries(scope);
        let generation = match &purged {
            Ok(generation) => *generation,
            Err(_) => self.owner_store.purge_generation(),
        };
        lock_ignoring_poison(&self.shared).processes.begin_purge(
            generation,
            scope.into(),
            now().monotonic,
        );
        purged
    }

    /// Removes the entries that a purge with this generation covers from memory, entry by entry,
    /// and returns their number. Takes milliseconds per 10,000 entries in memory.
    pub fn remove_purged_from_memory(&self, scope: &PurgeScope, generation: u64) -> u64 {
        let is_about = |key: &CacheKey, entry: &OwnerMemoryEntry| {
            entry.entry_store_attributes().generation < generation
                && scope.covers_entry(key, entry.entry_store_attributes())
        };
        match scope {
            PurgeScope::Key(key) => {
                let forms = [*key, other_format_key(key)];
                let taken = forms.map(|key| self.memory.remove_entry_if(&key, is_about));
                taken.into_iter().map(u64::from).sum()
            }
            _ => self.memory.remove_matching_entries(is_about),
        }
    }

    /// Records that the owner is reachable from `now` on, and was not before.
    pub fn record_owner_listening_start(&self, now: ClockReading) {
        lock_ignoring_poison(&self.shared)
            .processes
            .record_owner_listening_start(now.monotonic);
    }

    /// Takes the sessions with events that were queued since the last call.
    pub fn take_notified_sessions(&self) -> Vec<OwnerSessionId> {
        lock_ignoring_poison(&self.shared)
            .processes
            .take_notified_sessions()
    }

    /// Ends leases and completes purges that are due at `now` or were acknowledged, and returns the
    /// generations of the completed purges.
    pub fn end_leases_and_complete_purges(&self, now: ClockReading) -> Vec<u64> {
        let mut shared = lock_ignoring_poison(&self.shared);
        let ended = shared.leases.expire_leases(now.monotonic);
        self.notify_lease_waiters(&mut shared, ended, now);
        shared.processes.take_completed_purges(now.monotonic)
    }

    /// Time at which [`end_leases_and_complete_purges`](Self::end_leases_and_complete_purges) has something to
    /// do next, in monotonic milliseconds; `None` if nothing is due.
    pub fn next_lease_or_purge_deadline(&self) -> Option<u64> {
        let shared = lock_ignoring_poison(&self.shared);
        let ends = [
            shared.leases.next_lease_end(),
            shared.processes.next_purge_deadline(),
        ];
        ends.into_iter().flatten().min()
    }

    /// Writes the entries of the memory that may be stored to the store, at the end of the owner.
    /// Waits for a disk; stops at the first error.
    ///
    /// # Errors
    /// [`StoreWriteRejection`].
    pub fn write_memory_to_store(&self, now: ClockReading) -> Result<(), StoreWriteRejection> {
        for (key, entry) in self.memory.unstored_entries(now) {
            let mut put = self.write_to_store(&key, &entry, now);
            if put == Err(StoreWriteRejection::Busy) {
                self.owner_store.flush_memtables()?;
                put = self.write_to_store(&key, &entry, now);
            }
            // an entry that the store rejects does not keep the others from being stored
            match put {
                Ok(()) | Err(StoreWriteRejection::TooLarge | StoreWriteRejection::Purged) => {}
                Err(error) => return Err(error),
            }
        }
        self.owner_store.flush_memtables()
    }

    /// Returns the figures of memory, store, processes, leases and chains as JSON, as the owner
    /// protocol defines it.
    pub fn owner_status_json(&self) -> Value {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let shared = lock_ignoring_poison(&self.shared);
        let processes: Vec<&str> = shared
            .processes
            .connected_process_names()
            .map(OwnerClientName::as_str)
            .collect();
        json!({
            "generation": shared.processes.purge_generation(),
            "processes": processes,
            "leases": shared.leases.lease_count(),
            "suspended": lock_ignoring_poison(&self.suspended).len(),
            "purges_waiting": shared.processes.pending_purge_count(),
            "memory": {
                "entries": self.memory.entry_count(),
                "bytes": self.memory.total_entry_weight(),
                "capacity": self.memory.max_weight(),
                "evicted": self.memory.eviction_count(),
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
            "store": self.owner_store.store_status(),
        })
    }

    /// Returns the store on disk, for reads and writes that are not of entries.
    pub fn owner_store(&self) -> &dyn OwnerStore {
        &*self.owner_store
    }

    /// Removes entries that no process has requested for the inactivity period, in memory and, more
    /// coarsely, in the store. Does nothing without
    /// [`with_inactivity_period`](Self::with_inactivity_period). Waits for a disk.
    pub fn expire_inactive_entries(&self, now: ClockReading) {
        let Some(inactive) = self.inactive else {
            return;
        };
        self.memory
            .remove_unrequested_since(now.monotonic.saturating_sub(inactive));
        self.owner_store.drop_entries_older_than(
            quarters_of_time(inactive, DROP_AGE_QUARTERS),
            quarters_of_time(inactive, RENEW_AGE_QUARTERS),
            now,
        );
    }

    /// Whether a purge waits for processes that may still send entries it covers.
    pub fn is_purge_incomplete(&self, generation: u64) -> bool {
        lock_ignoring_poison(&self.shared)
            .processes
            .is_purge_pending(generation)
    }
}

impl OwnerTables {
    /// Notifies the waiters of ended leases whether the entry is present.
    pub(super) fn notify_lease_waiters(
        &mut self,
        ended: impl IntoIterator<Item = EndedLease>,
        is_there: impl Fn(&CacheKey) -> bool,
    ) {
        for EndedLease { key, waiters } in ended {
            let event = match is_there(&key) {
                true => SessionEvent::Filled(key),
                false => SessionEvent::LeaseReleased(key),
            };
            for waiter in waiters {
                self.processes
                    .queue_event_for_process(&waiter, event.clone());
            }
        }
    }
}

fn increment_counter(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
