//! Leases of the fleet: one of several machines fetches a response that takes the node long.
//!
//! ```text
//!  (absent) ── SET NX PX ──▶ lease ── SET ──▶ value
//!                              └── expiry ──▶ (absent)
//! ```
//!
//! The first machine stores a lease under the name of the value, for about twice the node's time. The
//! others poll this name until the value is there, the lease has expired, or their maximum wait is
//! over; then they query their nodes. No response depends on a lease: it saves requests to nodes.

use std::collections::hash_map::Entry;

use crate::hash_keys::HashMap;

/// Beginning of a lease. No value begins with it.
const LEASE_MARK: &str = "sszip lease 1 ";

/// Minimum node time of a kind of calls whose responses are leased, in milliseconds. Below it a wait
/// for another machine takes longer than a fetch.
const MIN_NODE_TIME_MS: u64 = 50;

/// Maximum node time that is recorded, in milliseconds.
const MAX_NODE_TIME_MS: u64 = 3_600_000;

/// Maximum number of kinds of calls whose node times are known.
const MAX_KINDS: usize = 1_024;

/// Intervals between polls of a value, in milliseconds: the first one, and the maximum. Each is twice
/// the one before.
const FIRST_INTERVAL_MS: u64 = 20;
const MAX_INTERVAL_MS: u64 = 200;

/// The lease of an owner, which is stored in place of a value that it fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetLease(Vec<u8>);

impl FleetLease {
    /// Creates the lease of the owner with this random name.
    pub fn new(owner: &[u8; 16]) -> Self {
        Self(format!("{LEASE_MARK}{}", const_hex::encode(owner)).into_bytes())
    }

    /// Returns the bytes that the server stores.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Whether bytes that the server has under the name of a value are a lease.
pub fn is_fleet_lease(bytes: &[u8]) -> bool {
    bytes.starts_with(LEASE_MARK.as_bytes())
}

/// Average node times of the responses that are shared, by kind of call.
#[derive(Debug, Default)]
pub struct NodeTimes {
    averages: HashMap<u32, u64>,
}

impl NodeTimes {
    /// Records the node time of a response in milliseconds; 0 for a response that is not shared. The
    /// last response has a weight of a quarter. Kinds beyond the maximum number are not recorded.
    pub fn record(&mut self, kind: u32, time_ms: u64) {
        let time_ms = time_ms.min(MAX_NODE_TIME_MS);
        let has_room = self.averages.len() < MAX_KINDS && self.averages.try_reserve(1).is_ok();
        match self.averages.entry(kind) {
            Entry::Occupied(mut average) => {
                let average = average.get_mut();
                *average = (*average * 3 + time_ms) / 4;
            }
            Entry::Vacant(place) if has_room => {
                place.insert(time_ms);
            }
            Entry::Vacant(_) => {}
        }
    }

    /// Returns the duration of a lease for a call of this kind: twice its node time, `max_wait_ms` at
    /// most. Returns `None` if the node is known to respond in less than `cost_ms`, or its time is
    /// not known.
    pub fn lease_time_ms(&self, kind: u32, cost_ms: u64, max_wait_ms: u64) -> Option<u64> {
        let average = *self.averages.get(&kind)?;
        let is_slow = average >= cost_ms.max(MIN_NODE_TIME_MS);
        (is_slow && max_wait_ms > 0).then(|| average.saturating_mul(2).min(max_wait_ms))
    }
}

/// The wait of a machine for a value that another one fetches. Times are milliseconds since its
/// begin.
#[derive(Clone, Debug)]
pub struct ValueWait {
    max_ms: u64,
    interval_ms: u64,
}

impl ValueWait {
    /// Begins a wait of `max_ms` at most.
    pub fn new(max_ms: u64) -> Self {
        Self {
            max_ms,
            interval_ms: FIRST_INTERVAL_MS,
        }
    }

    /// Returns the time until the next poll; `None`: the wait is over.
    pub fn next_delay_ms(&mut self, elapsed_ms: u64) -> Option<u64> {
        let remaining = self.remaining_ms(elapsed_ms);
        let delay = self.interval_ms.min(remaining);
        self.interval_ms = (self.interval_ms * 2).min(MAX_INTERVAL_MS);
        (remaining > 0).then_some(delay)
    }

    /// Returns the time that is left.
    pub fn remaining_ms(&self, elapsed_ms: u64) -> u64 {
        self.max_ms.saturating_sub(elapsed_ms)
    }
}

#[cfg(test)]
mod tests;
