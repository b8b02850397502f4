//! Invalidations by requests that change a resource at the node (RFC 9111, 4.4): a successful PUT,
//! POST or DELETE invalidates the entries of its target.
//!
//! The keys of a target's entries can't be derived from the target, and one target may have several
//! entries. So each invalidation gets a number. Each slot of a table has the number of the last
//! invalidation of a target that is hashed to it. Each entry has the number of the last
//! invalidation before its request was sent to the node; an entry with a smaller number than the
//! slot of its target is not sent. A slot stores some bits of its target until another target of
//! the same slot is invalidated; from then on the slot stands for all its targets, which cost each
//! other a request to the node. An entry from a store has no number: after an invalidation of its
//! target it is fetched once more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// Number of slots; a power of two. The table takes 128 KiB.
const SLOTS: usize = 1 << 14;

/// Bits of a slot that hold an invalidation's number; the other bits identify the target.
const NUMBER_BITS: u32 = 40;

/// Target bits of a slot that several targets share.
const SHARED_SLOT: u64 = 0;

/// A table of fixed size of the targets that PUT, POST, PATCH or DELETE requests have invalidated
/// in this process.
#[derive(Debug, Default)]
pub struct InvalidatedRequestTargets {
    last_invalidation_number: AtomicU64,
    /// Table of slots, allocated at the first invalidation: most nodes see none.
    places: OnceLock<Box<[AtomicU64]>>,
}

impl InvalidatedRequestTargets {
    /// Number of the last invalidation; 0 if there was none.
    pub fn last_invalidation_number(&self) -> u64 {
        self.last_invalidation_number.load(Ordering::Acquire)
    }

    /// Records an invalidation of `target` in `namespace`: entries of requests that were sent to
    /// the node before are not sent any more.
    pub fn record_invalidation(&self, namespace: &[u8], target: &[u8]) {
        let places = self.places.get_or_init(|| {
            let mut places = Vec::new();
            // without memory there are no slots, and later invalidations cover all targets
            if places.try_reserve_exact(SLOTS).is_ok() {
                places.resize_with(SLOTS, AtomicU64::default);
            }
            places.into()
        });
        let number = self.last_invalidation_number.fetch_add(1, Ordering::AcqRel) + 1;
        let (at, own) = invalidation_slot(namespace, target);
        if let Some(place) = places.get(at) {
            let changed = |known: u64| {
                let is_own = known == 0 || known >> NUMBER_BITS == own;
                let whose = if is_own { own } else { SHARED_SLOT };
                Some(
                    whose << NUMBER_BITS
                        | invalidation_number(known).max(invalidation_number(number)),
                )
            };
            // the closure always returns a value
            let _ = place.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
        }
    }

    /// Whether an entry of `target` in `namespace` is invalid: the target was invalidated after
    /// invalidation `number`, the last one before the entry's request.
    pub fn is_target_invalidated_since(
        &self,
        number: u64,
        namespace: &[u8],
        target: &[u8],
    ) -> bool {
        let Some(places) = self.places.get() else {
            return false;
        };
        let (at, own) = invalidation_slot(namespace, target);
        let Some(place) = places.get(at) else {
            return self.last_invalidation_number() > number;
        };
        let known = place.load(Ordering::Acquire);
        let whose = known >> NUMBER_BITS;
        (whose == own || whose == SHARED_SLOT) && invalidation_number(known) > number
    }
}

fn invalidation_number(place: u64) -> u64 {
    place & ((1 << NUMBER_BITS) - 1)
}

/// Returns the slot of a target and its target bits, which are never [`SHARED_SLOT`].
fn invalidation_slot(namespace: &[u8], target: &[u8]) -> (usize, u64) {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(namespace.len() as u64).to_le_bytes());
    hasher.update(namespace);
    hasher.update(target);
    let mut bits = [0; 8];
    hasher.finalize_xof().fill(&mut bits);
    let bits = u64::from_le_bytes(bits);
    let place = (bits % SLOTS as u64) as usize;
    (place, (bits >> NUMBER_BITS).max(1))
}

#[cfg(test)]
mod tests {
    use super::InvalidatedRequestTargets;

    #[test]
    fn entry_from_before_an_invalidation_of_its_target_is_outdated() {
        let changes = InvalidatedRequestTargets::default();
        let is_changed =
            |number, target| changes.is_target_invalidated_since(number, b"here", target);
        assert!(!is_changed(0, b"/a"));
        changes.record_invalidation(b"here", b"/a");
        let after = changes.last_invalidation_number();
        assert!(is_changed(0, b"/a") && !is_changed(after, b"/a"));
        assert!(!is_changed(0, b"/b"));
        assert!(!changes.is_target_invalidated_since(0, b"there", b"/a"));
        changes.record_invalidation(b"here", b"/b");
        assert!(!is_changed(after, b"/a") && is_changed(after, b"/b"));
    }

    /// As many invalidations as a test suite makes, one for each configuration that it sets; the
    /// entries of its other targets must stay valid.
    #[test]
    fn other_targets_stay_valid_after_few_invalidations() {
        let changes = InvalidatedRequestTargets::default();
        for number in 0..400 {
            changes.record_invalidation(b"here", format!("/config/{number}").as_bytes());
        }
        let lost = (0..10_000)
            .filter(|number| {
                changes.is_target_invalidated_since(
                    0,
                    b"here",
                    format!("/test/{number}").as_bytes(),
                )
            })
            .count();
        assert!(lost < 20, "{lost}");
    }

    #[test]
    fn invalidation_is_remembered_when_targets_share_a_slot() {
        let changes = InvalidatedRequestTargets::default();
        for number in 0..40_000 {
            changes.record_invalidation(b"here", format!("/{number}").as_bytes());
        }
        let last = changes.last_invalidation_number();
        assert_eq!(last, 40_000);
        for number in 0..40_000 {
            let target = format!("/{number}");
            assert!(changes.is_target_invalidated_since(0, b"here", target.as_bytes()));
            assert!(!changes.is_target_invalidated_since(last, b"here", target.as_bytes()));
        }
    }
}
