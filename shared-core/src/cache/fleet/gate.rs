//! The decision whether lookups may query the fleet.

/// The decision whether the fleet can be queried: it is connected, and the owner knows its purges.
/// Called for every miss of a response that may be shared, so that an unavailable fleet costs
/// nothing else.
pub trait FleetGate: Send + Sync {
    /// Whether the fleet can be queried at `now`, in monotonic milliseconds.
    fn is_open(&self, now: u64) -> bool;
}
