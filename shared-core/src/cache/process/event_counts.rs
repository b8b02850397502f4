//! Counts of events by kind, until they are added to the metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The numbers of events of `N` kinds that were not added to the metrics yet. Any number of threads
/// may use it.
#[derive(Debug)]
pub struct EventCounts<const N: usize> {
    counts: [AtomicU64; N],
    has_counts: AtomicBool,
}

impl<const N: usize> Default for EventCounts<N> {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            has_counts: AtomicBool::new(false),
        }
    }
}

impl<const N: usize> EventCounts<N> {
    /// Counts an event of the kind with this number.
    pub fn count_event(&self, kind: usize) {
        self.counts[kind].fetch_add(1, Ordering::Relaxed);
        self.has_counts.store(true, Ordering::Release);
    }

    /// Takes the numbers of events since the last call, or returns `None` if there were none.
    pub fn take_event_counts(&self) -> Option<[u64; N]> {
        if !self.has_counts.load(Ordering::Relaxed) {
            return None;
        }
        self.has_counts.store(false, Ordering::Relaxed);
        let take = |count: &AtomicU64| count.swap(0, Ordering::AcqRel);
        Some(self.counts.each_ref().map(take))
    }
}

#[cfg(test)]
mod tests {
    use super::EventCounts;

    #[test]
    fn events_are_taken_once() {
        let events = EventCounts::<2>::default();
        assert_eq!(events.take_event_counts(), None);
        for kind in [1, 0, 1] {
            events.count_event(kind);
        }
        assert_eq!(events.take_event_counts(), Some([1, 2]));
        assert_eq!(events.take_event_counts(), None);
    }
}
