//! Lookups that continue in the fleet, the cache that the owners of several machines share.
//!
//! A lookup queries the fleet only when neither memory nor the store has the entry and the process
//! would fetch it: it has the lease of the key, or has requested none. So each machine queries the
//! fleet once for a key, and its other processes wait for the same lease.

use std::sync::Arc;

use super::memory_tier::OwnerMemoryEntry;
use super::processes::OwnerClientName;
use super::session::OwnerSession;
use super::session_lookups::{reply_to_batch, reply_to_hit, CheckedHit};
use super::session_tasks::{
    open_task, FleetBatchLookup, FleetLookup, FleetWait, OwnerTask, SessionBatchLookup,
    SessionLookup, ShareableCall,
};
use super::state::{Owner, OwnerHit};
use crate::cache::chain::ChainState;
use crate::cache::clock::ClockReading;
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::wire;
use crate::cache::fleet::sharing::{check_against_chain, NotServable, ServableValue};
use crate::cache::fleet::value::FleetValue;
use crate::cache::owner::fleet_gate::FleetGate;
use crate::cache::owner_protocol::owner_message::{LeaseReply, OwnerMessage};
use crate::cache::{CacheKey, CacheNamespace};
use crate::lock::lock_ignoring_poison;

/// Maximum number of keys of a batch for which the fleet is queried.
const MAX_BATCH_QUERIES: usize = 64;

/// Maximum number of batch lookups of a session that wait while other machines fetch. The other
/// requests of the process must find room.
const MAX_WAITING_BATCHES: usize = 64;

impl Owner {
    /// Sets the gate of the fleet. Without one, no lookup queries a fleet. Only the first call has
    /// an effect.
    pub fn set_fleet_gate(&self, gate: Arc<dyn FleetGate>) {
        // a second call does not replace the gate
        let _ = self.fleet_gate.set(gate);
    }

    /// Whether a lookup may query the fleet now, whose process waits for `fleet_wait` milliseconds
    /// more.
    pub(super) fn permits_fleet_lookup(&self, fleet_wait: u16, now: ClockReading) -> bool {
        fleet_wait > 0
            && self
                .fleet_gate
                .get()
                .is_some_and(|gate| gate.is_open(now.monotonic))
    }

    /// Offers a found entry to the fleet if it was read from the store, and may be shared.
    pub(super) fn offer_disk_entry(
        &self,
        key: &CacheKey,
        entry: &Arc<OwnerMemoryEntry>,
        now: ClockReading,
    ) {
        if entry.is_unshared_disk_entry() {
            if let Some(gate) = self.fleet_gate.get() {
                gate.offer_disk_entry(key, entry, now.monotonic);
            }
        }
    }

    /// Returns the task of querying the fleet for an entry that the machine does not have, if the
    /// process would fetch it otherwise.
    pub(super) fn begin_fleet_lookup(
        &self,
        session: &mut OwnerSession,
        lookup: SessionLookup,
        lease: LeaseReply,
        now: ClockReading,
    ) -> Option<OwnerTask> {
        let would_fetch = matches!(lease, LeaseReply::Granted | LeaseReply::NoLease);
        if !would_fetch || !self.permits_fleet_lookup(lookup.fleet_wait.remaining_ms(now), now) {
            return None;
        }
        let task = OwnerTask::QueryFleet(FleetLookup { lookup, lease });
        open_task(session, task).pop()
    }

    /// Checks a value of the fleet against the chain of its namespace, which the owner follows.
    ///
    /// # Errors
    /// Returns [`NotServable`] if the chain does not permit the use of the value.
    pub fn check_fleet_value(
        &self,
        value: FleetValue,
        now: ClockReading,
    ) -> Result<ServableValue, NotServable> {
        let chain = self.chains.get(&value.about.namespace);
        let chain = chain.ok_or(NotServable::UnknownChain)?;
        check_against_chain(value, &chain, now.unix)
    }

    /// Completes the task of a lookup with the value that the fleet has, or without one. Returns the
    /// tasks that follow.
    pub fn complete_fleet_lookup(
        &self,
        session: &mut OwnerSession,
        fleet_lookup: FleetLookup,
        value: Option<ServableValue>,
        now: ClockReading,
    ) -> Vec<OwnerTask> {
        session.open_tasks = session.open_tasks.saturating_sub(1);
        let FleetLookup { lookup, lease } = fleet_lookup;
        // an entry that turns out to be invalid is not looked up there again
        let lookup = SessionLookup {
            fleet_wait: FleetWait::default(),
            ..lookup
        };
        let key = lookup.key;
        let accepted = value
            .and_then(|value| {
                let process = session.process();
                self.accept_fleet_value(&key, value, lookup.generation, Some(process), now)
            })
            .map(|hit| self.check_short_hit(&key, hit));
        let tasks = match accepted {
            Some(CheckedHit::Valid(hit)) => reply_to_hit(session, lookup, hit, now)
                .into_iter()
                .collect(),
            Some(CheckedHit::Unchecked(hit)) => {
                open_task(session, OwnerTask::CheckEntry(lookup, hit))
            }
            // a lease that a rejected entry has ended does no harm: its release has no effect
            Some(CheckedHit::Invalid) | None => queue_miss(session, lookup, lease),
        };
        self.number_late_replies(session);
        tasks
    }

    /// Stores a value of the fleet in memory, as if `process`, which has the lease, had fetched it.
    /// Returns `None` if it was purged or replaced in the meantime, by an entry or by a
    /// reorganisation since its check, or if memory is refused. Without a process the lease
    /// continues then.
    fn accept_fleet_value(
        &self,
        key: &CacheKey,
        value: ServableValue,
        generation: u64,
        process: Option<&OwnerClientName>,
        now: ClockReading,
    ) -> Option<OwnerHit> {
        let ServableValue {
            about,
            requested_at,
            expires_at,
            entry,
        } = value;
        let about = StoredEntryAttributes {
            generation,
            ..about
        };
        let bytes = wire::set_chain_dependency(entry, about.class, about.namespace, about.epoch)?;
        let fresh = expires_at.saturating_sub(now.unix.max(requested_at));
        let age = now.unix.saturating_sub(requested_at);
        let entry = self
            .new_memory_entry(about, bytes, fresh, now)
            .with_age(age);
        let entry = Arc::new(entry);
        let put = self.put_fetched_entry(key, &entry, process, now);
        Some(OwnerHit {
            is_to_be_stored: put.ok()?,
            kept: entry,
        })
    }

    /// Passes the lease of a lookup from its process to the owner, because another machine fetches
    /// the response: the reply to the lookup is that the lease is pending. The caller ends the lease
    /// by [`end_fleet_wait`](Self::end_fleet_wait). Returns `false` if the process has no lease.
    pub fn pass_lease_to_owner(
        &self,
        process: &OwnerClientName,
        fleet_lookup: &mut FleetLookup,
    ) -> bool {
        let owner = OwnerClientName::for_owner();
        let passes = fleet_lookup.has_lease()
            && lock_ignoring_poison(&self.shared).leases.pass_lease(
                &fleet_lookup.lookup.key,
                process,
                owner,
            );
        if passes {
            fleet_lookup.lease = LeaseReply::Pending;
        }
        passes
    }

    /// Ends the lease that [was passed](Self::pass_lease_to_owner) to the owner, with the value that
    /// another machine has stored, and the generation of the newest purge before it was queried; or
    /// without one. The processes that wait look the key up again then, as if the entry was stored,
    /// so that the first of them gets the lease and the others wait for it. Other sessions have new
    /// events afterwards. Returns the entry if the value was stored.
    pub fn end_fleet_wait(
        &self,
        key: &CacheKey,
        value: Option<(u64, ServableValue)>,
        now: ClockReading,
    ) -> Option<OwnerHit> {
        let hit = value.and_then(|(generation, value)| {
            self.accept_fleet_value(key, value, generation, None, now)
        });
        if hit.is_none() {
            let owner = OwnerClientName::for_owner();
            let mut shared = lock_ignoring_poison(&self.shared);
            let ended = shared.leases.release_key_lease(key, &owner);
            shared.notify_lease_waiters(ended, |_| true);
        }
        hit
    }

    /// Returns the task of querying the fleet for keys of a batch that the machine does not have.
    ///
    /// # Errors
    /// The entries that were found on the machine: the fleet is not queried.
    pub(super) fn begin_fleet_batch_lookup(
        &self,
        session: &mut OwnerSession,
        batch: SessionBatchLookup,
        found: Vec<(CacheKey, OwnerHit)>,
        now: ClockReading,
    ) -> Result<OwnerTask, Vec<(CacheKey, OwnerHit)>> {
        if !self.permits_fleet_lookup(batch.fleet_wait.remaining_ms(now), now) {
            return Err(found);
        }
        let is_absent = |call: &&ShareableCall| !found.iter().any(|(there, _)| *there == call.key);
        let absent = batch.shareable.iter().filter(is_absent);
        let calls: Vec<_> = absent.take(MAX_BATCH_QUERIES).copied().collect();
        if calls.is_empty() {
            return Err(found);
        }
        session.open_tasks += 1;
        Ok(OwnerTask::QueryFleetBatch(FleetBatchLookup {
            batch,
            calls,
            found,
        }))
    }

    /// Completes the task of a batch lookup with the values that the fleet has. The lookup waits for
    /// the keys in `awaited`, which other machines fetch, unless too many of the session do. Returns
    /// the tasks that follow.
    pub fn complete_fleet_batch_lookup(
        &self,
        session: &mut OwnerSession,
        mut fleet_lookup: FleetBatchLookup,
        values: Vec<(CacheKey, ServableValue)>,
        awaited: Vec<CacheKey>,
        now: ClockReading,
    ) -> Vec<OwnerTask> {
        session.open_tasks = session.open_tasks.saturating_sub(1);
        let (id, generation) = (fleet_lookup.batch.id, fleet_lookup.batch.generation);
        for (key, value) in values {
            let process = session.process();
            let hit = self.accept_fleet_value(&key, value, generation, Some(process), now);
            let Some(hit) = hit else {
                continue;
            };
            // a long unchecked entry is sent by the next lookup, which reads it on another thread
            if let CheckedHit::Valid(hit) = self.check_short_hit(&key, hit) {
                fleet_lookup.found.push((key, hit));
            }
        }
        let waits = !awaited.is_empty() && session.waiting_batches < MAX_WAITING_BATCHES;
        let tasks = if waits {
            session.waiting_batches += 1;
            session.queue_reply(OwnerMessage::BatchWait { id });
            open_task(session, OwnerTask::AwaitFleetBatch(fleet_lookup, awaited))
        } else {
            reply_to_batch(session, id, generation, fleet_lookup.found, now)
        };
        self.number_late_replies(session);
        tasks
    }

    /// Completes the task of a batch lookup that has waited while other machines fetched, with the
    /// entries that this machine has received from them. Returns the tasks that follow.
    pub fn complete_fleet_batch_wait(
        &self,
        session: &mut OwnerSession,
        fleet_lookup: FleetBatchLookup,
        received: Vec<(CacheKey, OwnerHit)>,
        now: ClockReading,
    ) -> Vec<OwnerTask> {
        session.open_tasks = session.open_tasks.saturating_sub(1);
        session.waiting_batches = session.waiting_batches.saturating_sub(1);
        let FleetBatchLookup {
            batch, mut found, ..
        } = fleet_lookup;
        found.extend(received);
        let tasks = reply_to_batch(session, batch.id, batch.generation, found, now);
        self.number_late_replies(session);
        tasks
    }

    /// Returns the state of the chain of a namespace if the owner follows it.
    pub fn chain_state_of_namespace(&self, namespace: &CacheNamespace) -> Option<ChainState> {
        Some(self.chains.get(namespace)?.copy_chain_state())
    }

    /// Whether no purge covers the entry.
    pub fn is_entry_unpurged(&self, key: &CacheKey, entry: &OwnerMemoryEntry) -> bool {
        !self
            .owner_store
            .is_entry_purged(key, entry.entry_store_attributes())
    }
}

/// Replies that no entry was found. No task follows.
fn queue_miss(
    session: &mut OwnerSession,
    lookup: SessionLookup,
    lease: LeaseReply,
) -> Vec<OwnerTask> {
    session.queue_reply(OwnerMessage::Missing {
        id: lookup.id,
        generation: lookup.generation,
        lease,
    });
    Vec::new()
}
