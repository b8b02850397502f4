//! Detection of other filters of the host that change bodies on a route.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
const SOME: u8 = 2;

/// The other filters on a route, as far as responses have shown them. All settings that are cloned
/// from one share it.
#[derive(Clone, Debug, Default)]
pub struct Filters(Arc<AtomicU8>);

impl Filters {
    /// Whether a filter changes the bodies of some responses at least.
    pub fn change(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SOME
    }

    /// Whether a complete response was seen, and no filter has changed one yet.
    pub fn change_nothing(&self) -> bool {
        self.0.load(Ordering::Relaxed) == NONE
    }

    /// Records a response that was not changed.
    pub fn saw_no_change(&self) {
        // a detected change is kept: a filter need not change every response
        let relaxed = Ordering::Relaxed;
        if self.0.load(relaxed) == UNKNOWN {
            let _ = self.0.compare_exchange(UNKNOWN, NONE, relaxed, relaxed);
        }
    }

    /// Records a response that was changed. Returns whether it is the first one.
    pub fn saw_change(&self) -> bool {
        self.0.swap(SOME, Ordering::Relaxed) != SOME
    }
}

#[cfg(test)]
mod tests {
    use super::Filters;

    #[test]
    fn body_change_is_reported_once_and_kept() {
        let filters = Filters::default();
        let of_another_route = Filters::default();
        assert!(!filters.change() && !filters.change_nothing());
        filters.saw_no_change();
        assert!(filters.change_nothing());
        let shared = filters.clone();
        assert!(shared.saw_change());
        assert!(!filters.saw_change());
        filters.saw_no_change();
        assert!(filters.change() && !filters.change_nothing());
        assert!(!of_another_route.change());
    }
}
