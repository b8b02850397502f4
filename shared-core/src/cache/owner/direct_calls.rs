//! Direct calls: lookups, stores and releases of a process in which the owner runs, in place of
//! messages of its session.
//!
//! Calls follow the rules of messages: a reply has the generation from before the lookup, a lease
//! ends with its session, and the other processes receive events. A call that needs a disk or much
//! CPU is left to a message.

use super::processes::OwnerClientName;
use super::session_lookups::CheckedHit;
use super::session_tasks::StoredSessionEntry;
use super::state::{Owner, OwnerHit, OwnerMemoryLookupResult, OwnerTables};
use crate::cache::clock::ClockReading;
use crate::cache::owner_protocol::owner_message::LeaseReply;
use crate::cache::owner_protocol::process_message::StoreRequest;
use crate::cache::CacheKey;
use crate::lock::lock_ignoring_poison;

/// The reply to a direct lookup.
#[derive(Debug)]
pub struct DirectLookupReply {
    /// Generation of the newest purge before the lookup.
    pub generation: u64,
    /// The entry, or the decision about the requested lease.
    pub found: Result<OwnerHit, LeaseReply>,
}

/// The result of a direct store.
#[derive(Debug)]
pub enum DirectStoreResult {
    /// The entry was stored.
    Stored(StoredSessionEntry),
    /// The entry was refused. The lease of the process has ended.
    Refused,
    /// Only a message can store the entry: the session was closed, or memory has no room.
    NotHandled,
}

impl Owner {
    /// Looks a key up for the session with this number. `lease` is the maximum duration of the lease
    /// that is requested if there is no entry, in milliseconds, and `fleet_wait` the milliseconds for
    /// which the process can wait for an entry of another machine. Returns `None` if only a message
    /// can look it up: the session was closed, or the lookup needs the disk, much CPU or the fleet.
    pub fn lookup_for_session(
        &self,
        session: u64,
        key: &CacheKey,
        lease: Option<u64>,
        fleet_wait: u16,
        now: ClockReading,
    ) -> Option<DirectLookupReply> {
        let generation = self.owner_store.purge_generation();
        let hit = match self.lookup_without_disk_wait(key, now) {
            OwnerMemoryLookupResult::Found(hit) => match self.check_short_hit(key, hit) {
                CheckedHit::Valid(hit) => Some(hit),
                CheckedHit::Invalid => None,
                CheckedHit::Unchecked(hit) => {
                    return_store_write(Some(&hit));
                    return None;
                }
            },
            OwnerMemoryLookupResult::Missing => None,
            OwnerMemoryLookupResult::QueryStore => return None,
        };
        if hit.is_none() && self.permits_fleet_lookup(fleet_wait, now) {
            // the message acquires the lease
            return None;
        }
        let mut shared = lock_ignoring_poison(&self.shared);
        let Some(process) = self.process_of_session(&shared, session) else {
            return_store_write(hit.as_ref());
            return None;
        };
        let found = match (hit, lease) {
            (Some(hit), _) => Ok(hit),
            (None, None) => Err(LeaseReply::NoLease),
            (None, Some(time)) => match self.acquire_lease(&mut shared, key, &process, time, now) {
                Ok(lease) => Err(lease),
                Err(hit) => Ok(hit),
            },
        };
        Some(DirectLookupReply { generation, found })
    }

    /// Stores an entry that the process of the session with this number has fetched, and ends its
    /// lease. `body` has all bytes of the entry; those in `store` are ignored.
    pub fn store_for_session(
        &self,
        session: u64,
        store: StoreRequest,
        body: Vec<u8>,
        now: ClockReading,
    ) -> DirectStoreResult {
        let process = {
            let shared = lock_ignoring_poison(&self.shared);
            self.process_of_session(&shared, session)
        };
        let Some(process) = process.filter(|_| self.memory_fits_entry(body.len())) else {
            return DirectStoreResult::NotHandled;
        };
        match self.store_fetched_entry(Some(&process), store, body, now) {
            Ok(stored) => DirectStoreResult::Stored(stored),
            Err(_) => DirectStoreResult::Refused,
        }
    }

    /// Ends a lease of the session with this number. Returns `false` if the session was closed: its
    /// leases have ended.
    pub fn release_for_session(&self, session: u64, key: &CacheKey, now: ClockReading) -> bool {
        let process = {
            let shared = lock_ignoring_poison(&self.shared);
            self.process_of_session(&shared, session)
        };
        if let Some(process) = &process {
            self.release_lease(key, process, now);
        }
        process.is_some()
    }

    /// Returns the process of the session with this number, if the session is open.
    fn process_of_session(&self, shared: &OwnerTables, session: u64) -> Option<OwnerClientName> {
        let number = session.checked_sub(self.first_session_number)?;
        shared.processes.process_of_open_session(number)
    }
}

/// Returns the claim of a write to the store that the caller does not begin: the entry is offered
/// again at its next request.
fn return_store_write(hit: Option<&OwnerHit>) {
    if let Some(hit) = hit.filter(|hit| hit.is_to_be_stored) {
        hit.kept.mark_store_rejected();
    }
}
