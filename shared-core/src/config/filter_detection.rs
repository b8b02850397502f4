//! Detection of other filters of the host that change bodies on a route.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

const FILTERS_UNKNOWN: u8 = 0;
const FILTERS_ABSENT: u8 = 1;
const FILTERS_PRESENT: u8 = 2;

/// The detected effect of the host's other filters on a route's response bodies: unknown, unchanged
/// or changed. Clones share one value.
#[derive(Clone, Debug, Default)]
pub struct BodyFilterDetection(Arc<AtomicU8>);

impl BodyFilterDetection {
    /// Whether a filter has changed the body of a response.
    pub fn has_detected_filter(&self) -> bool {
        self.0.load(Ordering::Relaxed) == FILTERS_PRESENT
    }

    /// Whether complete responses were seen, and no filter has changed the body of one.
    pub fn has_unchanged_bodies(&self) -> bool {
        self.0.load(Ordering::Relaxed) == FILTERS_ABSENT
    }

    /// Records a response that was not changed.
    pub fn record_unchanged_body(&self) {
        // a detected change is kept: a filter need not change every response
        let relaxed = Ordering::Relaxed;
        if self.0.load(relaxed) == FILTERS_UNKNOWN {
            let _ = self
                .0
                .compare_exchange(FILTERS_UNKNOWN, FILTERS_ABSENT, relaxed, relaxed);
        }
    }

    /// Records a response that was changed. Returns whether it is the first one.
    pub fn record_filter_changed_body(&self) -> bool {
        self.0.swap(FILTERS_PRESENT, Ordering::Relaxed) != FILTERS_PRESENT
    }
}

#[cfg(test)]
mod tests {
    use super::BodyFilterDetection;

    #[test]
    fn body_change_is_reported_once_and_kept() {
        let filters = BodyFilterDetection::default();
        let of_another_route = BodyFilterDetection::default();
        assert!(!filters.has_detected_filter() && !filters.has_unchanged_bodies());
        filters.record_unchanged_body();
        assert!(filters.has_unchanged_bodies());
        let shared = filters.clone();
        assert!(shared.record_filter_changed_body());
        assert!(!filters.record_filter_changed_body());
        filters.record_unchanged_body();
        assert!(filters.has_detected_filter() && !filters.has_unchanged_bodies());
        assert!(!of_another_route.has_detected_filter());
    }
}
