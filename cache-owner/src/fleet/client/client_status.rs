//! The state and the counters of a client, for the owner's status.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::counters::LatencySnapshot;
use super::{FleetClient, SharedClient};

/// The state and the counters of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetClientStatus {
    /// Whether lookups have a connection.
    pub is_lookup_connected: bool,
    /// Whether stores and purges have a connection.
    pub is_store_connected: bool,
    /// Name of the state of the lookups' breaker.
    pub lookup_breaker: &'static str,
    /// Name of the state of the store connection's breaker.
    pub store_breaker: &'static str,
    /// Whether stores are paused, because the server refuses writes.
    pub are_stores_paused: bool,
    /// Number of lookups by their result.
    pub lookups: BTreeMap<&'static str, u64>,
    /// Latencies of lookups with a reply.
    pub lookup_seconds: LatencySnapshot,
    /// Number of values that were stored.
    pub stores_done: u64,
    /// Number of values whose store failed or has no reply.
    pub stores_failed: u64,
    /// Number of values that the server refused.
    pub stores_refused: u64,
    /// Number of values that were not sent: no connection, or stores are paused.
    pub stores_skipped: u64,
    /// Number of bytes received from the server.
    pub bytes_received: u64,
    /// Number of bytes sent to the server.
    pub bytes_sent: u64,
}

impl FleetClient {
    /// Returns the state and the counters.
    pub fn status(&self) -> FleetClientStatus {
        let SharedClient {
            lookups,
            stores,
            counters,
            traffic,
            pause,
            ..
        } = &*self.shared;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FleetClientStatus {
            is_lookup_connected: lookups.is_connected(),
            is_store_connected: stores.is_connected(),
            lookup_breaker: lookups.breaker_state().name(),
            store_breaker: stores.breaker_state().name(),
            are_stores_paused: pause.is_paused(),
            lookups: counters.lookups_by_result(),
            lookup_seconds: counters.latency(),
            stores_done: load(&counters.stores_done),
            stores_failed: load(&counters.stores_failed),
            stores_refused: load(&counters.stores_refused),
            stores_skipped: load(&counters.stores_skipped),
            bytes_received: load(&traffic.received),
            bytes_sent: load(&traffic.sent),
        }
    }
}
