//! Detection of other filters of the host that change bodies on a route.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
const SOME: u8 = 2;

/// The record of whether other filters change bodies on a route, as far as responses have shown it.
/// All settings that are cloned from one share it.
#[derive(Clone, Debug, Default)]
pub struct FilterDetection(Arc<AtomicU8>);

impl FilterDetection {
    /// Whether a filter changes the bodies of some responses at least.
    pub fn has_body_filter(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SOME
    }

    /// Whether a complete response was seen, and no filter has changed one yet.
    pub fn has_no_body_filter(&self) -> bool {
        self.0.load(Ordering::Relaxed) == NONE
    }

    /// Records a response that was not changed.
    pub fn record_unchanged_body(&self) {
        // a detected change is kept: a filter need not change every response
        let relaxed = Ordering::Relaxed;
        if self.0.load(relaxed) == UNKNOWN {
            let _ = self.0.compare_exchange(UNKNOWN, NONE, relaxed, relaxed);
        }
    }

    /// Records a response that was changed. Returns whether it is the first one.
    pub fn record_changed_body(&self) -> bool {
        self.0.swap(SOME, Ordering::Relaxed) != SOME
    }
}

#[cfg(test)]
mod tests {
    use super::FilterDetection;

    #[test]
    fn body_change_is_reported_once_and_kept() {
        let filters = FilterDetection::default();
        let of_another_route = FilterDetection::default();
        assert!(!filters.has_body_filter() && !filters.has_no_body_filter());
        filters.record_unchanged_body();
        assert!(filters.has_no_body_filter());
        let shared = filters.clone();
        assert!(shared.record_changed_body());
        assert!(!filters.record_changed_body());
        filters.record_unchanged_body();
        assert!(filters.has_body_filter() && !filters.has_no_body_filter());
        assert!(!of_another_route.has_body_filter());
    }
}
