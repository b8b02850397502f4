//! Trust in lists of logs that are derived from stored receipts: the node's own responses are
//! compared with derived ones before any is sent.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::event_counts::EventCounts;
use crate::cache::CacheNamespace;
use crate::lock::lock_ignoring_poison;

/// Number of equal responses, each with a log, after which logs are derived.
pub const REQUIRED_EQUAL_RESPONSES: u32 = 16;

/// Interval in calls at which the node still answers one, for another comparison: a new version of
/// the node may write logs differently.
pub const RECHECK_INTERVAL: u32 = 256;

/// Maximum number of vary keys whose comparisons are recorded.
const MAX_VARY_KEYS: usize = 64;

/// The source of the response to a call for the logs of a block whose receipts are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogsSource {
    /// The receipts.
    Receipts,
    /// The node, whose response is compared with the logs in the receipts.
    ComparedNode,
    /// The node, because an earlier response differed.
    Node,
}

/// The events about derived logs that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DerivedLogsEvent {
    /// A response was derived.
    Derived,
    /// The node's response was equal to the derived one.
    Same,
    /// The node's response differed from the derived one.
    Different,
}

impl DerivedLogsEvent {
    /// All events.
    pub const ALL: [Self; 3] = [Self::Derived, Self::Same, Self::Different];
}

/// A bounded table of the comparisons for each vary key, whose responses come from interchangeable
/// nodes, and the counts of events. Any number of threads may use it.
#[derive(Debug, Default)]
pub struct DerivedLogsTrust {
    vary_keys: Mutex<VecDeque<VaryKeyComparisons>>,
    /// Numbers of events, in the order of [`DerivedLogsEvent::ALL`].
    pub events: EventCounts<{ DerivedLogsEvent::ALL.len() }>,
}

/// The comparisons under one vary key since a purge.
#[derive(Debug)]
struct VaryKeyComparisons {
    vary_key: CacheNamespace,
    /// Purge generation of the comparisons; a purge starts them again.
    generation: u64,
    /// Number of equal responses.
    equal: u32,
    has_difference: bool,
    /// Number of calls since the trust was established.
    calls: u32,
}

impl DerivedLogsTrust {
    /// Returns the source of the response to one more call under the vary key with this hash.
    pub fn choose_source(&self, vary_key: &CacheNamespace, generation: u64) -> LogsSource {
        let mut all = lock_ignoring_poison(&self.vary_keys);
        let is_it = |it: &&mut VaryKeyComparisons| it.is_of_generation(vary_key, generation);
        if let Some(known) = all.iter_mut().find(is_it) {
            return known.choose_next_source();
        }
        all.retain(|it| it.vary_key != *vary_key);
        if all.len() >= MAX_VARY_KEYS {
            all.pop_front();
        }
        if all.try_reserve(1).is_err() {
            return LogsSource::Node;
        }
        all.push_back(VaryKeyComparisons {
            vary_key: *vary_key,
            generation,
            equal: 0,
            has_difference: false,
            calls: 0,
        });
        LogsSource::ComparedNode
    }

    /// Records a response of the node that is equal to the derived logs and has at least one;
    /// `generation` is the one of its call.
    pub fn record_equal_response(&self, vary_key: &CacheNamespace, generation: u64) {
        self.events.count_event(DerivedLogsEvent::Same as usize);
        self.modify_comparisons(vary_key, generation, |known| {
            known.equal = known.equal.saturating_add(1);
        });
    }

    /// Records a response of the node that differs from the derived logs, as
    /// [`record_equal_response`](Self::record_equal_response) does. Returns whether it is the first
    /// one under the vary key since a purge.
    pub fn record_different_response(&self, vary_key: &CacheNamespace, generation: u64) -> bool {
        self.events
            .count_event(DerivedLogsEvent::Different as usize);
        let is_first = self.modify_comparisons(vary_key, generation, |known| {
            !std::mem::replace(&mut known.has_difference, true)
        });
        is_first.unwrap_or(false)
    }

    /// Counts a derived response.
    pub fn record_derived_response(&self) {
        self.events.count_event(DerivedLogsEvent::Derived as usize);
    }

    /// Changes the comparisons of a vary key, unless they were dropped or started again.
    fn modify_comparisons<T>(
        &self,
        vary_key: &CacheNamespace,
        generation: u64,
        action: impl FnOnce(&mut VaryKeyComparisons) -> T,
    ) -> Option<T> {
        let mut all = lock_ignoring_poison(&self.vary_keys);
        let is_it = |it: &&mut VaryKeyComparisons| it.is_of_generation(vary_key, generation);
        all.iter_mut().find(is_it).map(action)
    }
}

impl VaryKeyComparisons {
    fn is_of_generation(&self, vary_key: &CacheNamespace, generation: u64) -> bool {
        self.vary_key == *vary_key && self.generation == generation
    }

    /// Counts one more call, and returns the source of its response.
    fn choose_next_source(&mut self) -> LogsSource {
        if self.has_difference {
            return LogsSource::Node;
        }
        if self.equal < REQUIRED_EQUAL_RESPONSES {
            return LogsSource::ComparedNode;
        }
        self.calls = self.calls.wrapping_add(1);
        match self.calls % RECHECK_INTERVAL {
            0 => LogsSource::ComparedNode,
            _ => LogsSource::Receipts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        DerivedLogsTrust, LogsSource, MAX_VARY_KEYS, RECHECK_INTERVAL, REQUIRED_EQUAL_RESPONSES,
    };

    const MAIN: [u8; 16] = [1; 16];
    const OTHER: [u8; 16] = [2; 16];

    /// Returns a table in which logs of the vary key `MAIN` are derived.
    fn trusting_table() -> DerivedLogsTrust {
        let trust = DerivedLogsTrust::default();
        for _ in 0..REQUIRED_EQUAL_RESPONSES {
            assert_eq!(trust.choose_source(&MAIN, 0), LogsSource::ComparedNode);
            trust.record_equal_response(&MAIN, 0);
        }
        trust
    }

    #[test]
    fn logs_are_derived_after_equal_responses_of_their_vary_key() {
        let trust = trusting_table();
        assert_eq!(trust.choose_source(&MAIN, 0), LogsSource::Receipts);
        assert_eq!(trust.choose_source(&OTHER, 0), LogsSource::ComparedNode);
    }

    #[test]
    fn logs_are_compared_again_at_intervals() {
        let trust = trusting_table();
        let sources = (0..2 * RECHECK_INTERVAL).map(|_| trust.choose_source(&MAIN, 0));
        let compared = sources.filter(|source| *source == LogsSource::ComparedNode);
        assert_eq!(compared.count(), 2);
        assert!(trust.record_different_response(&MAIN, 0));
        assert_eq!(trust.choose_source(&MAIN, 0), LogsSource::Node);
    }

    #[test]
    fn difference_stops_the_derivation_until_a_purge() {
        let trust = DerivedLogsTrust::default();
        assert_eq!(trust.choose_source(&MAIN, 0), LogsSource::ComparedNode);
        assert!(trust.record_different_response(&MAIN, 0));
        assert!(!trust.record_different_response(&MAIN, 0));
        assert_eq!(trust.events.take_event_counts(), Some([0, 0, 2]));
        for _ in 0..2 * REQUIRED_EQUAL_RESPONSES {
            trust.record_equal_response(&MAIN, 0);
        }
        assert_eq!(trust.choose_source(&MAIN, 0), LogsSource::Node);
        assert_eq!(trust.choose_source(&MAIN, 1), LogsSource::ComparedNode);
        // a response to a call before the purge
        assert!(!trust.record_different_response(&MAIN, 0));
        assert_eq!(trust.choose_source(&MAIN, 1), LogsSource::ComparedNode);
    }

    #[test]
    fn purge_ends_the_trust() {
        let trust = trusting_table();
        assert_eq!(trust.choose_source(&MAIN, 1), LogsSource::ComparedNode);
    }

    #[test]
    fn oldest_vary_key_is_forgotten() {
        let trust = trusting_table();
        for number in 0..MAX_VARY_KEYS as u8 {
            trust.choose_source(&[100 + number; 16], 0);
        }
        assert_eq!(trust.choose_source(&MAIN, 0), LogsSource::ComparedNode);
        assert!(trust.vary_keys.lock().unwrap().len() <= MAX_VARY_KEYS);
    }
}
