//! Leases of the fleet for the calls of batches.
//!
//! A batch waits or fetches, and never both at a time: it waits while it has no lease, and once. If
//! another machine has the lease of one of its calls, it takes none and waits. Otherwise it takes the
//! leases of the calls that take the node long, first the one of the lowest key: if another machine
//! has taken this one meanwhile, it waits for all of them. So two batches never wait for each other,
//! and one of equal batches fetches. After its wait a batch takes the leases that are free.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sszip_core::cache::fleet::sharing::ServableValue;
use sszip_core::cache::owner::session_tasks::{
    FleetBatchLookup, SessionBatchLookup, ShareableCall,
};
use sszip_core::cache::owner_protocol::call_kind::NO_CALL_KIND;
use sszip_core::cache::CacheKey;
use tokio::time::timeout;

use super::leases::increment;
use super::tier::{FleetTier, QueriedKey};
use crate::clock::read_clocks;
use crate::engine::OwnerRequestExecutor;

/// The result of a batch lookup in the fleet.
#[derive(Default)]
pub(crate) struct QueriedBatch {
    /// The values that the fleet has.
    pub(crate) values: Vec<(CacheKey, ServableValue)>,
    /// The keys for which the batch waits, as other machines fetch them.
    pub(crate) awaited: Vec<CacheKey>,
}

impl FleetTier {
    /// Looks up the values of several keys at once. Takes the leases of the calls that the process
    /// fetches then, or begins a wait for other machines.
    pub(crate) async fn query_batch(
        self: &Arc<Self>,
        engine: &Arc<OwnerRequestExecutor>,
        fleet_lookup: &FleetBatchLookup,
    ) -> QueriedBatch {
        let batch = &fleet_lookup.batch;
        let wait_ms = batch.fleet_wait.remaining_ms(read_clocks());
        let query = |call: ShareableCall| async move {
            (call, self.query_key(&call.key, wait_ms.into()).await)
        };
        let queries = fleet_lookup.calls.iter().copied().map(query);
        let mut queried = QueriedBatch::default();
        let (mut leased, mut absent) = (Vec::new(), Vec::new());
        for (call, value) in join_all(queries).await {
            match value {
                QueriedKey::Servable(value) => queried.values.push((call.key, value)),
                QueriedKey::Leased { is_own } if !is_own && call.call_kind != NO_CALL_KIND => {
                    leased.push(call.key);
                }
                QueriedKey::Absent if self.lease_time_ms(call.call_kind).is_some() => {
                    absent.push(call);
                }
                _ => {}
            }
        }
        if self.settings.lease_wait_ms > 0 {
            queried.awaited = self.coordinate_batch(engine, batch, leased, absent).await;
        }
        queried
    }

    /// Begins a wait for the keys that other machines fetch, and returns them; or takes the leases of
    /// the calls that are absent and take the node long.
    async fn coordinate_batch(
        self: &Arc<Self>,
        engine: &Arc<OwnerRequestExecutor>,
        batch: &SessionBatchLookup,
        leased: Vec<CacheKey>,
        mut absent: Vec<ShareableCall>,
    ) -> Vec<CacheKey> {
        let awaited = self.await_keys(engine, batch, leased);
        if !awaited.is_empty() {
            return awaited;
        }
        absent.sort_unstable();
        absent.dedup();
        let Some(first) = absent.first().copied() else {
            return Vec::new();
        };
        let remaining_ms = || u64::from(batch.fleet_wait.remaining_ms(read_clocks()));
        let lease = self.take_lease(&first.key, first.call_kind, remaining_ms());
        if lease.await == Some(false) {
            // that machine takes the others, too, if it has the same batch
            let keys = absent.iter().map(|call| call.key).collect();
            let awaited = self.await_keys(engine, batch, keys);
            if !awaited.is_empty() {
                return awaited;
            }
        }
        self.take_leases(absent.split_off(1), remaining_ms()).await;
        Vec::new()
    }

    /// Takes the leases of calls that the process fetches. Those that other machines have make no
    /// difference.
    async fn take_leases(&self, calls: Vec<ShareableCall>, wait_ms: u64) {
        let take = |call: ShareableCall| async move {
            self.take_lease(&call.key, call.call_kind, wait_ms).await
        };
        join_all(calls.into_iter().map(take)).await;
    }

    /// Takes the leases of the calls that the process fetches after a wait. The reply to the batch
    /// follows, so that this takes no longer than a lookup in the fleet.
    pub(crate) async fn take_free_leases(&self, calls: Vec<ShareableCall>) {
        self.take_leases(calls, self.settings.timeout_ms).await;
    }

    /// Begins a wait for the values of keys that other machines fetch, if the batch may wait. Returns
    /// the keys for which it waits.
    fn await_keys(
        self: &Arc<Self>,
        engine: &Arc<OwnerRequestExecutor>,
        batch: &SessionBatchLookup,
        mut keys: Vec<CacheKey>,
    ) -> Vec<CacheKey> {
        keys.retain(|key| batch.lease_wait_ms > 0 && self.await_key(engine, key));
        keys
    }

    /// Has the value of a key polled that another machine fetches. Returns `false` if the owner does
    /// not wait for it.
    fn await_key(self: &Arc<Self>, engine: &Arc<OwnerRequestExecutor>, key: &CacheKey) -> bool {
        let leases = &self.leases;
        if !leases.may_wait_for(key) {
            return false;
        }
        if leases.batch_waits.contains_any(&[*key]) {
            return true;
        }
        let Ok(place) = Arc::clone(&leases.waits).try_acquire_owned() else {
            return false;
        };
        if !leases.batch_waits.add(key) {
            return true;
        }
        increment(&leases.counters.waited);
        let (tier, engine, key) = (Arc::clone(self), Arc::clone(engine), *key);
        // not a task of the session: other batches wait for it, too
        tokio::spawn(async move {
            let _place = place;
            tier.wait_for_value(&engine, &key).await;
            tier.leases.batch_waits.remove(&key);
        });
        true
    }

    /// Waits until the values of keys for which a batch waits are stored on this machine, or their
    /// waits have ended without one, as long as the batch may wait.
    pub(crate) async fn await_values(&self, batch: &SessionBatchLookup, awaited: &[CacheKey]) {
        let limit = Duration::from_millis(batch.lease_wait_ms.into());
        let ended = self.leases.batch_waits.wait_until_ended(awaited);
        // the process fetches what has not come
        drop(timeout(limit, ended).await);
    }
}
