//! What requests have changed at the node (RFC 9111, 4.4): a successful PUT,
//! POST or DELETE makes what is stored of its target out of date.
//!
//! Keys of entries can't be found by their target, and there may be several of
//! one. So each change gets a number, each place of a table that of the last
//! change to a target that belongs there, and each entry that of the last change
//! before the node was asked for it: an entry with a smaller number than its
//! target's place is not sent. A place knows some bits of its target, until
//! another one has changed that belongs there: from then on all do that belong
//! there, and cost each other a request to the node. An entry that comes from a store has no number: after a
//! change to its target the node is asked once more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// Places; a power of two. 128 KiB.
const PLACES: usize = 1 << 14;

/// Bits of a change's number; the others of a place tell whose it is.
const NUMBER: u32 = 40;

/// Whose a place is that several targets have.
const ANY: u64 = 0;

/// The changes that a process has seen.
#[derive(Debug, Default)]
pub struct Changes {
    last: AtomicU64,
    /// Made at the first change: most nodes see none.
    places: OnceLock<Box<[AtomicU64]>>,
}

impl Changes {
    /// The number of the last one; 0: there was none.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// What `target` names in `namespace` has changed.
    pub fn add(&self, namespace: &[u8], target: &[u8]) {
        let places = self.places.get_or_init(|| {
            let mut places = Vec::new();
            // refused: there are none, and every later change counts for all
            if places.try_reserve_exact(PLACES).is_ok() {
                places.resize_with(PLACES, AtomicU64::default);
            }
            places.into()
        });
        let number = self.last.fetch_add(1, Ordering::AcqRel) + 1;
        let (at, own) = place_of(namespace, target);
        if let Some(place) = places.get(at) {
            let changed = |known: u64| {
                let is_own = known == 0 || known >> NUMBER == own;
                let whose = if is_own { own } else { ANY };
                Some(whose << NUMBER | number_in(known).max(number_in(number)))
            };
            // it never refuses
            let _ = place.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
        }
    }

    /// Whether what `target` names in `namespace` has changed since `number`
    /// was the last.
    pub fn is_changed_since(&self, number: u64, namespace: &[u8], target: &[u8]) -> bool {
        let Some(places) = self.places.get() else {
            return false;
        };
        let (at, own) = place_of(namespace, target);
        let Some(place) = places.get(at) else {
            return self.last() > number;
        };
        let known = place.load(Ordering::Acquire);
        let whose = known >> NUMBER;
        (whose == own || whose == ANY) && number_in(known) > number
    }
}

fn number_in(place: u64) -> u64 {
    place & ((1 << NUMBER) - 1)
}

/// Where a target belongs, and whose that is then; never [`ANY`].
fn place_of(namespace: &[u8], target: &[u8]) -> (usize, u64) {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(namespace.len() as u64).to_le_bytes());
    hasher.update(namespace);
    hasher.update(target);
    let mut bits = [0; 8];
    hasher.finalize_xof().fill(&mut bits);
    let bits = u64::from_le_bytes(bits);
    let place = (bits % PLACES as u64) as usize;
    (place, (bits >> NUMBER).max(1))
}

#[cfg(test)]
mod tests {
    use super::Changes;

    #[test]
    fn what_was_asked_for_before_a_change_is_out_of_date() {
        let changes = Changes::default();
        let is_changed = |number, target| changes.is_changed_since(number, b"here", target);
        assert!(!is_changed(0, b"/a"));
        changes.add(b"here", b"/a");
        let after = changes.last();
        assert!(is_changed(0, b"/a") && !is_changed(after, b"/a"));
        assert!(!is_changed(0, b"/b"));
        assert!(!changes.is_changed_since(0, b"there", b"/a"));
        changes.add(b"here", b"/b");
        assert!(!is_changed(after, b"/a") && is_changed(after, b"/b"));
    }

    /// As many as a suite of tests sets up, each with a PUT: what else it asks
    /// for stays.
    #[test]
    fn few_changes_cost_others_nothing() {
        let changes = Changes::default();
        for number in 0..400 {
            changes.add(b"here", format!("/config/{number}").as_bytes());
        }
        let lost = (0..10_000)
            .filter(|number| {
                changes.is_changed_since(0, b"here", format!("/test/{number}").as_bytes())
            })
            .count();
        assert!(lost < 20, "{lost}");
    }

    #[test]
    fn a_place_is_shared_and_never_forgotten() {
        let changes = Changes::default();
        for number in 0..40_000 {
            changes.add(b"here", format!("/{number}").as_bytes());
        }
        let last = changes.last();
        assert_eq!(last, 40_000);
        for number in 0..40_000 {
            let target = format!("/{number}");
            assert!(changes.is_changed_since(0, b"here", target.as_bytes()));
            assert!(!changes.is_changed_since(last, b"here", target.as_bytes()));
        }
    }
}
