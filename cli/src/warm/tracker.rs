//! The positions of a source that are done, so that a later run continues there.

use std::collections::{BTreeSet, HashMap};

/// Maximum number of positions that are done after one that is not.
const MAX_DONE: usize = 65_536;

/// The positions that are done and those that are not. Requests are started in the order of their
/// positions, and end in any order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PositionTracker {
    /// Positions from this one on were not started, unless `done` has them.
    end: u64,
    /// Started, and not done.
    open: BTreeSet<u64>,
    /// Done, and not below all others.
    done: BTreeSet<u64>,
}

impl PositionTracker {
    /// Continues with `next`, the first position that is not done, and the later ones that are.
    pub fn continue_from(next: u64, done: impl IntoIterator<Item = u64>) -> Self {
        Self {
            end: next,
            open: BTreeSet::new(),
            done: done
                .into_iter()
                .filter(|position| *position >= next)
                .collect(),
        }
    }

    /// Starts the request at a position; returns `false` if it is done already.
    pub fn start(&mut self, position: u64) -> bool {
        let is_done = position < self.end || self.done.contains(&position);
        self.end = self.end.max(position.saturating_add(1));
        if !is_done {
            self.open.insert(position);
        }
        !is_done
    }

    /// Marks positions as done.
    pub fn finish(&mut self, positions: impl IntoIterator<Item = u64>) {
        for position in positions {
            self.open.remove(&position);
            self.done.insert(position);
        }
        self.done = self.done.split_off(&self.next());
    }

    /// Returns the first position that is not done.
    pub fn next(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.end)
    }

    /// Returns the positions after the first one that is not done, which are done.
    pub fn done(&self) -> impl Iterator<Item = u64> + '_ {
        self.done.iter().copied()
    }

    /// Returns the number of positions that are done.
    pub fn count(&self) -> u64 {
        self.next() + self.done.len() as u64
    }

    /// Whether more than `MAX_DONE` positions wait for earlier ones that have failed, which must be
    /// marked as done then.
    pub fn is_full(&self) -> bool {
        self.done.len() > MAX_DONE
    }
}

/// The requests that have failed since the last success, of all names and of each. Their positions
/// are not done while the failures may lead to a stop.
#[derive(Debug)]
pub struct FailureStreaks {
    limit: u32,
    total: u32,
    by_name: HashMap<&'static str, Vec<u64>>,
}

impl FailureStreaks {
    /// Allows fewer than `limit` failures in a row.
    pub fn new(limit: u32) -> Self {
        Self {
            limit,
            total: 0,
            by_name: HashMap::new(),
        }
    }

    /// Records a success; returns the positions of the failures of the name, which are done now.
    pub fn succeed(&mut self, name: &'static str) -> Vec<u64> {
        self.total = 0;
        self.by_name.remove(name).unwrap_or_default()
    }

    /// Records a failure; returns the number of failures in a row if the limit is reached.
    pub fn fail(&mut self, name: &'static str, position: u64) -> Option<u32> {
        self.total = self.total.saturating_add(1);
        let of_name = self.by_name.entry(name).or_default();
        of_name.push(position);
        let longest = self.total.max(of_name.len() as u32);
        (longest >= self.limit).then_some(longest)
    }

    /// Returns the positions of all failures that are not done.
    pub fn drain(&mut self) -> Vec<u64> {
        self.by_name
            .drain()
            .flat_map(|(_, positions)| positions)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(tracker: &PositionTracker) -> (u64, Vec<u64>) {
        (tracker.next(), tracker.done().collect())
    }

    #[test]
    fn next_position_is_the_first_one_that_is_not_done() {
        let mut tracker = PositionTracker::default();
        assert_eq!(state(&tracker), (0, vec![]));
        for position in 0..4 {
            assert!(tracker.start(position));
        }
        tracker.finish([1, 3]);
        assert_eq!(state(&tracker), (0, vec![1, 3]));
        assert_eq!(tracker.count(), 2);
        tracker.finish([0]);
        assert_eq!(state(&tracker), (2, vec![3]));
        tracker.finish([2]);
        assert_eq!(state(&tracker), (4, vec![]));
        // positions of repetitions are not started
        assert!(tracker.start(9));
        assert_eq!(state(&tracker), (9, vec![]));
    }

    #[test]
    fn recorded_positions_are_not_started_again() {
        let mut tracker = PositionTracker::continue_from(5, [3, 7]);
        assert_eq!(state(&tracker), (5, vec![7]));
        assert!(!tracker.start(4));
        assert!(tracker.start(5));
        assert!(tracker.start(6));
        assert!(!tracker.start(7));
        tracker.finish([5]);
        assert_eq!(state(&tracker), (6, vec![7]));
        tracker.finish([6]);
        assert_eq!(state(&tracker), (8, vec![]));
    }

    #[test]
    fn failures_in_a_row_reach_the_limit() {
        let mut streaks = FailureStreaks::new(3);
        assert_eq!(streaks.fail("a", 0), None);
        assert_eq!(streaks.fail("b", 1), None);
        assert_eq!(streaks.fail("c", 2), Some(3));
    }

    #[test]
    fn failures_of_one_name_reach_the_limit_between_successes() {
        let mut streaks = FailureStreaks::new(3);
        for position in [0, 2] {
            assert_eq!(streaks.fail("a", position), None);
            assert!(streaks.succeed("b").is_empty());
        }
        assert_eq!(streaks.fail("b", 3), None);
        assert_eq!(streaks.succeed("b"), [3_u64]);
        assert_eq!(streaks.fail("a", 4), Some(3));
        assert_eq!(streaks.drain(), [0_u64, 2, 4]);
        assert!(streaks.succeed("a").is_empty());
    }
}
