//! The leases that an owner has in the fleet, and the node times that decide about new ones.
//!
//! The node times of calls are recorded by the method of the stored entry. An entry of the Beacon API
//! has no method: its kind is remembered from the lookup until the response is stored.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sszip_core::cache::fleet::leases::{FleetLease, NodeTimes};
use sszip_core::cache::CacheKey;
use sszip_core::lock::lock_ignoring_poison;
use tokio::sync::Semaphore;

use super::awaited_keys::AwaitedKeys;
use super::random_name;
use crate::clock::read_clocks;

/// Maximum number of keys for which the owner waits at a time.
const MAX_WAITS: usize = 64;

/// Maximum number of leases that the owner has at a time, of keys whose waits have ended without a
/// value, and of requests of the Beacon API whose kinds are remembered.
const MAX_LEASES: usize = 1_024;

/// A request of the Beacon API that a process of this machine sends to its node.
struct ResourceFetch {
    kind: u32,
    /// End of the process' lease, in monotonic milliseconds.
    end: u64,
}

/// The leases and the node times of an owner.
pub(crate) struct FleetLeases {
    pub(super) lease: FleetLease,
    pub(super) node_times: Mutex<NodeTimes>,
    /// End of each lease that this owner has, in monotonic milliseconds.
    leased: Mutex<HashMap<CacheKey, u64>>,
    /// Keys whose wait has ended without a value, and the time until which the owner does not wait
    /// for them again, in monotonic milliseconds.
    abandoned: Mutex<HashMap<CacheKey, u64>>,
    resources: Mutex<HashMap<CacheKey, ResourceFetch>>,
    pub(super) waits: Arc<Semaphore>,
    pub(super) batch_waits: AwaitedKeys,
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
            abandoned: Mutex::default(),
            resources: Mutex::default(),
            waits: Arc::new(Semaphore::new(MAX_WAITS)),
            batch_waits: AwaitedKeys::default(),
            counters: LeaseCounters::default(),
        }
    }

    /// Whether bytes of the server are the lease of this owner.
    pub(super) fn is_own_lease(&self, bytes: &[u8]) -> bool {
        bytes == self.lease.as_bytes()
    }

    /// Whether another lease can be taken.
    pub(super) fn has_room_for_lease(&self) -> bool {
        has_room_for_key(&mut lock_ignoring_poison(&self.leased), |end| *end)
    }

    /// Remembers the kind of a request of the Beacon API that a process sends under its lease, which
    /// lasts for `lease_ms`.
    pub(super) fn record_resource_fetch(&self, key: &CacheKey, kind: u32, lease_ms: u64) {
        let end = read_clocks().monotonic.saturating_add(lease_ms);
        let mut resources = lock_ignoring_poison(&self.resources);
        // without room its node time is not recorded
        if has_room_for_key(&mut resources, |fetch| fetch.end) {
            resources.insert(*key, ResourceFetch { kind, end });
        }
    }

    /// Returns the remembered kind of the request whose response was stored, and forgets it.
    pub(super) fn take_resource_kind(&self, key: &CacheKey) -> Option<u32> {
        let fetch = lock_ignoring_poison(&self.resources).remove(key);
        fetch.map(|fetch| fetch.kind)
    }

    /// Records a lease that this owner has taken.
    pub(super) fn record_lease(&self, key: &CacheKey, ttl_ms: u64) {
        let end = read_clocks().monotonic.saturating_add(ttl_ms);
        lock_ignoring_poison(&self.leased).insert(*key, end);
        self.counters.leased.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets the lease of a key, which was filled. Returns whether the owner had one.
    pub(super) fn remove_lease(&self, key: &CacheKey) -> bool {
        lock_ignoring_poison(&self.abandoned).remove(key);
        lock_ignoring_poison(&self.leased).remove(key).is_some()
    }

    /// Records that the wait for the value of a key has ended without one. A process of this
    /// machine fetches the response now: the owner does not wait for the key again for `pause_ms`.
    pub(super) fn record_abandoned_wait(&self, key: &CacheKey, pause_ms: u64) {
        let end = read_clocks().monotonic.saturating_add(pause_ms);
        let mut abandoned = lock_ignoring_poison(&self.abandoned);
        // without room it may wait again: each process limits its own wait
        if has_room_for_key(&mut abandoned, |end| *end) {
            abandoned.insert(*key, end);
        }
    }

    /// Whether the owner may wait for the value of a key.
    pub(super) fn may_wait_for(&self, key: &CacheKey) -> bool {
        let end = lock_ignoring_poison(&self.abandoned).get(key).copied();
        end.is_none_or(|end| end <= read_clocks().monotonic)
    }
}

/// Whether a table of keys has room for another key. `end` returns the time at which a key ends, in
/// monotonic milliseconds. Keys that have ended are removed when the table is full.
fn has_room_for_key<T>(table: &mut HashMap<CacheKey, T>, end: impl Fn(&T) -> u64) -> bool {
    if table.len() >= MAX_LEASES {
        let now = read_clocks().monotonic;
        table.retain(|_, value| end(value) > now);
    }
    table.len() < MAX_LEASES && table.try_reserve(1).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abandoned_key_is_not_waited_for_until_it_is_filled_or_the_pause_is_over() {
        let leases = FleetLeases::new();
        let key = |number| [number; 32];
        leases.record_abandoned_wait(&key(1), 60_000);
        leases.record_abandoned_wait(&key(2), 0);
        assert!(!leases.may_wait_for(&key(1)));
        assert!(leases.may_wait_for(&key(2)) && leases.may_wait_for(&key(3)));
        leases.remove_lease(&key(1));
        assert!(leases.may_wait_for(&key(1)));
    }

    #[test]
    fn kind_of_a_resource_is_remembered_until_its_response_is_stored() {
        let leases = FleetLeases::new();
        let key = |number| [number; 32];
        leases.record_resource_fetch(&key(1), 7, 60_000);
        leases.record_resource_fetch(&key(2), 8, 60_000);
        assert_eq!(leases.take_resource_kind(&key(1)), Some(7));
        assert_eq!(leases.take_resource_kind(&key(1)), None);
        assert_eq!(leases.take_resource_kind(&key(2)), Some(8));
        assert_eq!(leases.take_resource_kind(&key(3)), None);
    }

    #[test]
    fn full_table_drops_the_keys_that_have_ended() {
        let key = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            key
        };
        let leases = FleetLeases::new();
        for number in 0..MAX_LEASES {
            leases.record_abandoned_wait(&key(number), 60_000 * u64::from(number > 0));
        }
        leases.record_abandoned_wait(&key(MAX_LEASES), 60_000);
        assert!(!leases.may_wait_for(&key(MAX_LEASES)));
        leases.record_abandoned_wait(&key(MAX_LEASES + 1), 60_000);
        assert!(leases.may_wait_for(&key(MAX_LEASES + 1)));
    }
}
