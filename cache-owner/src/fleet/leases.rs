//! Leases of the fleet: a response that takes the node long is fetched by one machine.
//!
//! A lookup that finds no value takes the lease of the key, if earlier responses to such calls took
//! the node long, or finds the lease of another machine. In that case the owner becomes the holder of
//! the lease that it grants to its own processes, and polls the value for them: they wait as for
//! another process. No process waits longer for it than `lease_wait`, or its own
//! `cache_lock_timeout`. After a wait without a value one process fetches the response, and the
//! others wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use sszip_core::cache::fleet::leases::ValueWait;
use sszip_core::cache::fleet::sharing::ServableValue;
use sszip_core::cache::owner::memory_tier::OwnerMemoryEntry;
use sszip_core::cache::owner::processes::OwnerClientName;
use sszip_core::cache::owner::session_tasks::FleetLookup;
use sszip_core::cache::owner_protocol::call_kind::{call_kind, is_resource_kind, NO_CALL_KIND};
use sszip_core::cache::CacheKey;
use sszip_core::lock::lock_ignoring_poison;
use tokio::time::{sleep, Instant};

use super::tier::{FleetTier, QueriedKey};
use crate::clock::read_clocks;
use crate::engine::OwnerRequestExecutor;

impl FleetTier {
    /// Looks up the value of one key for a process. Returns `None` if the fleet has none that may be
    /// used, or does not answer in time; the lookup [may wait](Self::coordinate_fetch) for another
    /// machine then.
    pub(crate) async fn query(
        self: &Arc<Self>,
        engine: &Arc<OwnerRequestExecutor>,
        process: &OwnerClientName,
        fleet_lookup: &mut FleetLookup,
    ) -> Option<ServableValue> {
        let lookup = &fleet_lookup.lookup;
        let wait = lookup.fleet_wait.remaining_ms(read_clocks());
        let queried = self.query_key(&lookup.key, wait.into()).await;
        if let QueriedKey::Servable(value) = queried {
            return Some(value);
        }
        self.coordinate_fetch(engine, process, fleet_lookup, &queried)
            .await;
        None
    }

    /// Records the node time of an entry that was just stored. Returns whether the entry is offered to
    /// the fleet now: at its first fill, or because other machines wait for it. While stores are not
    /// sent, nothing is recorded or offered, and while their queue is full, nothing is offered: an
    /// entry would be checked and copied for nothing.
    pub(crate) fn record_fill(
        &self,
        key: &CacheKey,
        entry: &OwnerMemoryEntry,
        node_time_ms: u64,
    ) -> bool {
        if !self.client.is_store_open() {
            return false;
        }
        let is_admitted = self.admits_first_fill(entry, node_time_ms);
        let kind = match &entry.entry_store_attributes().method {
            Some(method) => Some(call_kind(method.as_bytes())),
            None => self.leases.take_resource_kind(key),
        };
        if let Some(kind) = kind {
            let is_shared =
                is_admitted && entry.encoded_bytes().len() as u64 <= self.settings.max_entry;
            // a lease for a response that is not shared delays other machines for nothing
            let node_time_ms = if is_shared { node_time_ms } else { 0 };
            lock_ignoring_poison(&self.leases.node_times).record(kind, node_time_ms);
        }
        let is_leased = self.leases.remove_lease(key);
        let is_offered = is_admitted || is_leased;
        if is_offered && self.stores.is_full() {
            self.stores.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        is_offered
    }

    /// Takes the lease of a key that the fleet does not have, if its response takes the node long. If
    /// another machine has the lease, the owner waits for its value, and the process of the lookup for
    /// the owner.
    pub(super) async fn coordinate_fetch(
        self: &Arc<Self>,
        engine: &Arc<OwnerRequestExecutor>,
        process: &OwnerClientName,
        fleet_lookup: &mut FleetLookup,
        queried: &QueriedKey,
    ) {
        let is_off = self.settings.lease_wait_ms == 0;
        if is_off || !fleet_lookup.has_lease() {
            return;
        }
        let lookup = fleet_lookup.lookup;
        if is_resource_kind(lookup.call_kind) {
            let lease_ms = lookup.lease.unwrap_or(0);
            self.leases
                .record_resource_fetch(&lookup.key, lookup.call_kind, lease_ms);
        }
        let other_has_lease = match queried {
            QueriedKey::Leased { is_own } => !is_own,
            QueriedKey::Absent => {
                let wait_ms = lookup.fleet_wait.remaining_ms(read_clocks()).into();
                let lease = self.take_lease(&lookup.key, lookup.call_kind, wait_ms);
                lease.await == Some(false)
            }
            QueriedKey::Servable(_) | QueriedKey::Unusable | QueriedKey::NoReply => false,
        };
        let key = lookup.key;
        if !other_has_lease || !self.leases.may_wait_for(&key) {
            return;
        }
        let Ok(place) = Arc::clone(&self.leases.waits).try_acquire_owned() else {
            return;
        };
        if !self.owner.pass_lease_to_owner(process, fleet_lookup) {
            return;
        }
        increment(&self.leases.counters.waited);
        let (tier, engine) = (Arc::clone(self), Arc::clone(engine));
        // not a task of the session: the other processes wait for it, too
        tokio::spawn(async move {
            let _place = place;
            tier.wait_for_value(&engine, &key).await;
        });
    }

    /// Returns the duration of a lease for a call of this kind in milliseconds, or `None` if none is
    /// needed.
    pub(super) fn lease_time_ms(&self, call_kind: u32) -> Option<u64> {
        if call_kind == NO_CALL_KIND {
            return None;
        }
        lock_ignoring_poison(&self.leases.node_times).lease_time_ms(
            call_kind,
            self.settings.cost_ms,
            self.settings.lease_wait_ms,
        )
    }

    /// Requests the lease of a key, for `wait_ms` milliseconds at most. Returns whether this owner has
    /// it, or `None` if none is needed or it is not known.
    pub(super) async fn take_lease(
        &self,
        key: &CacheKey,
        call_kind: u32,
        wait_ms: u64,
    ) -> Option<bool> {
        let ttl_ms = self.lease_time_ms(call_kind)?;
        if !self.leases.has_room_for_lease() {
            return None;
        }
        let limit = Duration::from_millis(wait_ms.min(self.settings.timeout_ms));
        let name = self.keyring.value_name(&self.settings.prefix, key);
        let lease = self.leases.lease.as_bytes();
        let set = self.client.set_lease(&name, lease, ttl_ms, limit).await;
        let is_taken = set.ok()?;
        if is_taken {
            self.leases.record_lease(key, ttl_ms);
        }
        Some(is_taken)
    }

    /// Polls the value of a key that another machine fetches, and wakes the processes that wait for
    /// it: with the value, or without one when the lease has ended or the maximum wait is over.
    pub(super) async fn wait_for_value(&self, engine: &Arc<OwnerRequestExecutor>, key: &CacheKey) {
        let value = self.poll_value(engine, key).await;
        let counters = &self.leases.counters;
        let hit = self.owner.end_fleet_wait(key, value, read_clocks());
        match hit {
            Some(_) => increment(&counters.received),
            None => {
                increment(&counters.abandoned);
                // before the processes are woken
                self.leases
                    .record_abandoned_wait(key, self.settings.lease_wait_ms);
            }
        }
        engine.wake_sessions();
        if let Some(hit) = hit.filter(|hit| hit.is_to_be_stored) {
            engine.check_and_store_entry(*key, hit.kept, true, false);
        }
    }

    /// Polls a value until it may be used, and returns it with the generation before its last query.
    async fn poll_value(
        &self,
        engine: &OwnerRequestExecutor,
        key: &CacheKey,
    ) -> Option<(u64, ServableValue)> {
        let begun = Instant::now();
        let elapsed_ms = || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut wait = ValueWait::new(self.settings.lease_wait_ms);
        while let Some(delay) = wait.next_delay_ms(elapsed_ms()) {
            sleep(Duration::from_millis(delay)).await;
            let remaining = wait.remaining_ms(elapsed_ms());
            // the task would keep the store of an owner that ends
            if remaining == 0 || engine.is_stopping() {
                return None;
            }
            let generation = engine.purge_generation();
            match self.query_key(key, remaining).await {
                QueriedKey::Servable(value) => return Some((generation, value)),
                QueriedKey::Leased { .. } => {}
                QueriedKey::NoReply if self.client.is_lookup_open() => {}
                QueriedKey::NoReply | QueriedKey::Absent | QueriedKey::Unusable => return None,
            }
        }
        None
    }
}

pub(super) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
