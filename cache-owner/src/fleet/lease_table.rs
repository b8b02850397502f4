//! The leases that an owner has in the fleet, and the node times that decide about new ones.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sszip_core::cache::fleet::leases::{FleetLease, NodeTimes};
use sszip_core::cache::CacheKey;
use sszip_core::lock::lock_ignoring_poison;
use tokio::sync::Semaphore;

use super::random_name;
use crate::clock::read_clocks;

/// Maximum number of keys for which the owner waits at a time.
const MAX_WAITS: usize = 64;

/// Maximum number of leases that the owner has at a time.
const MAX_LEASES: usize = 1_024;

/// The leases and the node times of an owner.
pub(crate) struct FleetLeases {
    pub(super) lease: FleetLease,
    pub(super) node_times: Mutex<NodeTimes>,
    /// End of each lease that this owner has, in monotonic milliseconds.
    leased: Mutex<HashMap<CacheKey, u64>>,
    pub(super) waits: Arc<Semaphore>,
    pub(super) counters: LeaseCounters,
}

/// Counters of leases and of waits for other machines.
#[derive(Debug, Default)]
pub(super) struct LeaseCounters {
    /// Leases that this owner has taken.
    pub(super) leased: AtomicU64,
    /// Keys for which it has waited.
    pub(super) waited: AtomicU64,
    /// Waits that ended with a value.
    pub(super) received: AtomicU64,
    /// Waits that ended without a value.
    pub(super) abandoned: AtomicU64,
}

impl FleetLeases {
    /// Creates the state of an owner without leases.
    pub(super) fn new() -> Self {
        Self {
            lease: FleetLease::new(&random_name()),
            node_times: Mutex::default(),
            leased: Mutex::default(),
            waits: Arc::new(Semaphore::new(MAX_WAITS)),
            counters: LeaseCounters::default(),
        }
    }

    /// Whether bytes of the server are the lease of this owner.
    pub(super) fn is_own_lease(&self, bytes: &[u8]) -> bool {
        bytes == self.lease.as_bytes()
    }

    /// Whether another lease can be taken.
    pub(super) fn has_room_for_lease(&self) -> bool {
        let now = read_clocks().monotonic;
        let mut leased = lock_ignoring_poison(&self.leased);
        if leased.len() >= MAX_LEASES {
            leased.retain(|_, end| *end > now);
        }
        leased.len() < MAX_LEASES && leased.try_reserve(1).is_ok()
    }

    /// Records a lease that this owner has taken.
    pub(super) fn record_lease(&self, key: &CacheKey, ttl_ms: u64) {
        let end = read_clocks().monotonic.saturating_add(ttl_ms);
        lock_ignoring_poison(&self.leased).insert(*key, end);
        self.counters.leased.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets the lease of a key. Returns whether the owner had one.
    pub(super) fn remove_lease(&self, key: &CacheKey) -> bool {
        lock_ignoring_poison(&self.leased).remove(key).is_some()
    }
}
