//! Counts of the calls for logs that were split into pieces.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The ends of a split that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSplitEvent {
    /// The response was assembled from the pieces.
    Assembled,
    /// The call was sent to the node.
    Abandoned,
}

impl LogSplitEvent {
    /// All events.
    pub const ALL: [Self; 2] = [Self::Assembled, Self::Abandoned];
}

/// The counts of a process. Any number of threads may use it.
#[derive(Debug, Default)]
pub struct LogSplitCounts {
    /// Events that were not counted yet.
    counts: [AtomicU64; LogSplitEvent::ALL.len()],
    has_counts: AtomicBool,
}

impl LogSplitCounts {
    /// Counts the end of a split.
    pub fn count_event(&self, event: LogSplitEvent) {
        self.counts[event as usize].fetch_add(1, Ordering::Relaxed);
        self.has_counts.store(true, Ordering::Release);
    }

    /// Takes the numbers of events since the last call, in the order of [`LogSplitEvent::ALL`], or
    /// returns `None` if there were none.
    pub fn take_event_counts(&self) -> Option<[u64; LogSplitEvent::ALL.len()]> {
        if !self.has_counts.load(Ordering::Relaxed) {
            return None;
        }
        self.has_counts.store(false, Ordering::Relaxed);
        let take = |event: LogSplitEvent| self.counts[event as usize].swap(0, Ordering::AcqRel);
        Some(LogSplitEvent::ALL.map(take))
    }
}

#[cfg(test)]
mod tests {
    use super::{LogSplitCounts, LogSplitEvent};

    #[test]
    fn events_are_taken_once() {
        let counts = LogSplitCounts::default();
        assert_eq!(counts.take_event_counts(), None);
        counts.count_event(LogSplitEvent::Abandoned);
        counts.count_event(LogSplitEvent::Assembled);
        counts.count_event(LogSplitEvent::Abandoned);
        assert_eq!(counts.take_event_counts(), Some([1, 2]));
        assert_eq!(counts.take_event_counts(), None);
    }
}
