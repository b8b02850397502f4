//! What the node behind a place has refused with 415 (RFC 9110, 15.5.16).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// Of some 32 kinds of bodies, those that it does not take. Shared by all settings
/// that are made of one. What it gets instead every node takes: to remember too much,
/// of several nodes behind one place or of one that was upgraded, is never wrong.
#[derive(Clone, Debug, Default)]
pub struct Refused(Arc<AtomicU32>);

impl Refused {
    /// Whether it has refused that kind, below 32, as far as is known.
    pub fn has(&self, kind: usize) -> bool {
        self.0.load(Ordering::Relaxed) & bit(kind) != 0
    }

    /// It has.
    pub fn learn(&self, kind: usize) {
        self.0.fetch_or(bit(kind), Ordering::Relaxed);
    }
}

fn bit(kind: usize) -> u32 {
    u32::try_from(kind).map_or(0, |kind| 1_u32.checked_shl(kind).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::Refused;

    #[test]
    fn each_kind_is_remembered_for_itself_by_all_who_share_it() {
        let refused = Refused::default();
        let (shared, other) = (refused.clone(), Refused::default());
        for kind in [0, 31] {
            assert!(!shared.has(kind));
            refused.learn(kind);
            assert!(shared.has(kind) && !shared.has(1) && !other.has(kind));
        }
        // there is no such kind
        refused.learn(32);
        assert!(!shared.has(32) && !shared.has(1));
    }
}
