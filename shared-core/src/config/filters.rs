//! Whether bodies are changed at a place on their way between the node, the
//! exchange and the client, as far as that has shown.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
const SOME: u8 = 2;

/// What is known of the filters that a host has beside sszip at a place. Shared by
/// all settings that are made of one.
#[derive(Clone, Debug, Default)]
pub struct Filters(Arc<AtomicU8>);

impl Filters {
    /// One changes bodies, of some answers at least.
    pub fn change(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SOME
    }

    /// None has changed any yet, and an answer came whole.
    pub fn change_nothing(&self) -> bool {
        self.0.load(Ordering::Relaxed) == NONE
    }

    /// An answer was not changed.
    pub fn saw_no_change(&self) {
        // what was seen once stays: it need not change each answer
        let relaxed = Ordering::Relaxed;
        if self.0.load(relaxed) == UNKNOWN {
            let _ = self.0.compare_exchange(UNKNOWN, NONE, relaxed, relaxed);
        }
    }

    /// An answer was changed. Whether that is news.
    pub fn saw_change(&self) -> bool {
        self.0.swap(SOME, Ordering::Relaxed) != SOME
    }
}

#[cfg(test)]
mod tests {
    use super::Filters;

    #[test]
    fn a_change_is_news_once_and_stays() {
        let filters = Filters::default();
        let of_another_place = Filters::default();
        assert!(!filters.change() && !filters.change_nothing());
        filters.saw_no_change();
        assert!(filters.change_nothing());
        let shared = filters.clone();
        assert!(shared.saw_change());
        assert!(!filters.saw_change());
        filters.saw_no_change();
        assert!(filters.change() && !filters.change_nothing());
        assert!(!of_another_place.change());
    }
}
