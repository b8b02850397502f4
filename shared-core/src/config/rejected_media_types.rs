//! Media types that a route's node has refused with 415 (RFC 9110, 15.5.16).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// The kinds of request bodies, of at most 32, that a route's node has refused with 415. All
/// settings that are cloned from one share it. Every node accepts the form that is sent instead: a
/// kind that is recorded wrongly, for one of several nodes or before an upgrade, does no harm.
#[derive(Clone, Debug, Default)]
pub struct RejectedMediaTypes(Arc<AtomicU32>);

impl RejectedMediaTypes {
    /// Whether the node has refused the kind of bodies, which is below 32.
    pub fn contains(&self, kind: usize) -> bool {
        self.0.load(Ordering::Relaxed) & bit(kind) != 0
    }

    /// Records that the node has refused the kind of bodies.
    pub fn insert(&self, kind: usize) {
        self.0.fetch_or(bit(kind), Ordering::Relaxed);
    }
}

fn bit(kind: usize) -> u32 {
    u32::try_from(kind).map_or(0, |kind| 1_u32.checked_shl(kind).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::RejectedMediaTypes;

    #[test]
    fn refused_kinds_are_recorded_separately_and_shared_by_clones() {
        let refused = RejectedMediaTypes::default();
        let (shared, other) = (refused.clone(), RejectedMediaTypes::default());
        for kind in [0, 31] {
            assert!(!shared.contains(kind));
            refused.insert(kind);
            assert!(shared.contains(kind) && !shared.contains(1) && !other.contains(kind));
        }
        // out of range, and ignored
        refused.insert(32);
        assert!(!shared.contains(32) && !shared.contains(1));
    }
}
