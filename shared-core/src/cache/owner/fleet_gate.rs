//! The way from the owner's lookups to the fleet.

use std::sync::Arc;

use crate::cache::owner::memory_tier::OwnerMemoryEntry;
use crate::cache::CacheKey;

/// The decision whether the fleet can be queried: it is connected, and the owner knows its purges.
/// Called for every miss of a response that may be shared, so that an unavailable fleet costs
/// nothing else.
pub trait FleetGate: Send + Sync {
    /// Whether the fleet can be queried at `now`, in monotonic milliseconds.
    fn is_open(&self, now: u64) -> bool;

    /// Offers an entry to the fleet that a request has found, and that was
    /// [read from the store](OwnerMemoryEntry::is_unshared_disk_entry). Never waits. Called for each
    /// hit of the entry until its [offer is claimed](OwnerMemoryEntry::claim_fleet_offer).
    fn offer_disk_entry(&self, key: &CacheKey, entry: &Arc<OwnerMemoryEntry>, now: u64);
}
