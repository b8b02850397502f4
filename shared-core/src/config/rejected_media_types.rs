//! Media types that a route's node has refused with 415 (RFC 9110, 15.5.16).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// The set of kinds of request bodies that a route's node has refused with 415: routes of SSZ
/// submissions, or content codings, as numbers below 32. Clones share one set. Every node accepts
/// the form that is sent instead: a kind that is recorded wrongly, for one of several nodes or
/// before an upgrade, does no harm.
#[derive(Clone, Debug, Default)]
pub struct NodeRejectedBodyKinds(Arc<AtomicU32>);

impl NodeRejectedBodyKinds {
    /// Whether the node has refused the kind of bodies, which is below 32.
    pub fn has_node_refused_kind(&self, kind: usize) -> bool {
        self.0.load(Ordering::Relaxed) & body_kind_bit(kind) != 0
    }

    /// Records that the node has refused the kind of bodies.
    pub fn record_node_refusal(&self, kind: usize) {
        self.0.fetch_or(body_kind_bit(kind), Ordering::Relaxed);
    }
}

/// Returns the bit of a body kind, or 0 if the kind has none.
fn body_kind_bit(kind: usize) -> u32 {
    u32::try_from(kind).map_or(0, |kind| 1_u32.checked_shl(kind).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::NodeRejectedBodyKinds;

    #[test]
    fn refused_kinds_are_recorded_separately_and_shared_by_clones() {
        let refused = NodeRejectedBodyKinds::default();
        let (shared, other) = (refused.clone(), NodeRejectedBodyKinds::default());
        for kind in [0, 31] {
            assert!(!shared.has_node_refused_kind(kind));
            refused.record_node_refusal(kind);
            assert!(
                shared.has_node_refused_kind(kind)
                    && !shared.has_node_refused_kind(1)
                    && !other.has_node_refused_kind(kind)
            );
        }
        // out of range, and ignored
        refused.record_node_refusal(32);
        assert!(!shared.has_node_refused_kind(32) && !shared.has_node_refused_kind(1));
    }
}
