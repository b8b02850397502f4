//! The fleet in the owner's status.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{json, Map, Value};
use sszip_core::cache::fleet::sharing::NotServable;
use sszip_core::cache::fleet::value::FleetValueRejection;

use super::tier::FleetTier;
use crate::clock::read_clocks;

impl FleetTier {
    /// Returns the member `fleet` of the owner's status.
    pub(crate) fn status_json(&self) -> Value {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let client = self.client.status();
        let stream = self.purges.status();
        let rejected = counts_by_name(
            FleetValueRejection::ALL
                .iter()
                .map(|rejection| rejection.name())
                .zip(&self.counters.rejected),
        );
        let mut not_servable = counts_by_name(
            NotServable::ALL
                .iter()
                .map(|reason| reason.name())
                .zip(&self.counters.not_servable),
        );
        not_servable.insert("purged".into(), load(&self.counters.purged).into());
        let now = read_clocks().monotonic;
        json!({
            "endpoint": self.settings.endpoint.to_string(),
            "up": client.is_lookup_connected && self.purges.is_current(now),
            "connected": {
                "lookups": client.is_lookup_connected,
                "stores": client.is_store_connected,
            },
            "breakers": {
                "lookups": client.lookup_breaker,
                "stores": client.store_breaker,
            },
            "lookups": client.lookups,
            "lookup_seconds": client.lookup_seconds,
            "rejected": rejected,
            "not_servable": not_servable,
            "stores": {
                "done": client.stores_done,
                "failed": client.stores_failed,
                "refused": client.stores_refused,
                "skipped": client.stores_skipped,
                "dropped": load(&self.stores.dropped),
                "too_long": load(&self.stores.too_long),
            },
            "leases": {
                "leased": load(&self.leases.counters.leased),
                "waited": load(&self.leases.counters.waited),
                "received": load(&self.leases.counters.received),
                "abandoned": load(&self.leases.counters.abandoned),
            },
            "stores_paused": client.are_stores_paused,
            "queue_bytes": self.stores.queued_bytes(),
            "bytes": { "received": client.bytes_received, "sent": client.bytes_sent },
            "stream": stream,
        })
    }
}

fn counts_by_name<'a>(
    counters: impl Iterator<Item = (&'static str, &'a AtomicU64)>,
) -> Map<String, Value> {
    counters
        .map(|(name, counter)| (name.into(), counter.load(Ordering::Relaxed).into()))
        .collect()
}
