//! What the node says now of what was sent from the cache: a part of the hits is asked for
//! again, and compared.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

use crate::lock::locked;

/// What asking again has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The node says the same.
    Same,
    /// It says something else by now, of what was kept for a while because it may change.
    Changed,
    /// It says something else of what does not change.
    Different,
    /// It has not answered, or with an error.
    Unanswered,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Same, Self::Changed, Self::Different, Self::Unanswered];

    /// As operators know it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Changed => "changed",
            Self::Different => "different",
            Self::Unanswered => "unanswered",
        }
    }
}

/// So many lines wait for the host's log at most: who writes none needs no more.
const LINES: usize = 16;

/// Of a process.
#[derive(Debug, Default)]
pub struct Verified {
    /// How many hits there were to choose from.
    seen: AtomicU64,
    /// Verdicts that nobody has counted yet.
    counts: [AtomicU64; Verdict::ALL.len()],
    /// There are some.
    has_counts: AtomicBool,
    lines: Mutex<VecDeque<String>>,
    has_lines: AtomicBool,
}

impl Verified {
    /// Whether one more hit is to be verified, at so many of a million: the turns are
    /// scattered, so that no rhythm of clients hides what they ask for.
    pub fn is_due(&self, rate: u32) -> bool {
        self.due_of(1, rate).is_some()
    }

    /// The same of several that are sent together: which of them, if any is due. It is one
    /// at most, and not always the first.
    pub fn due_of(&self, hits: usize, rate: u32) -> Option<usize> {
        let first = self.seen.fetch_add(hits as u64, Ordering::Relaxed);
        let due = (0..hits).filter_map(|hit| {
            let mixed = scattered(first.wrapping_add(hit as u64));
            let is_due = mixed % 1_000_000 < u64::from(rate);
            is_due.then_some((mixed / 1_000_000, hit))
        });
        due.min().map(|(_, hit)| hit)
    }

    /// What came of one, with a line for the operator.
    pub fn tell(&self, verdict: Verdict, line: Option<String>) {
        self.counts[verdict as usize].fetch_add(1, Ordering::Relaxed);
        self.has_counts.store(true, Ordering::Release);
        if let Some(line) = line {
            self.log(line);
        }
    }

    /// A line for the host's error log.
    pub fn log(&self, line: String) {
        let mut lines = locked(&self.lines);
        if lines.len() < LINES {
            lines.push_back(line);
            self.has_lines.store(true, Ordering::Release);
        }
    }

    /// Verdicts since the last call, in the order of [`Verdict::ALL`], if there are any.
    pub fn take_counts(&self) -> Option<[u64; Verdict::ALL.len()]> {
        if !self.has_counts.load(Ordering::Relaxed) {
            return None;
        }
        self.has_counts.store(false, Ordering::Relaxed);
        let take = |verdict: Verdict| self.counts[verdict as usize].swap(0, Ordering::AcqRel);
        Some(Verdict::ALL.map(take))
    }

    /// What is to be logged next.
    pub fn take_line(&self) -> Option<String> {
        if !self.has_lines.load(Ordering::Acquire) {
            return None;
        }
        let mut lines = locked(&self.lines);
        let line = lines.pop_front();
        self.has_lines.store(!lines.is_empty(), Ordering::Release);
        line
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
/// Generators).
fn scattered(turn: u64) -> u64 {
    let mut mixed = turn.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Verdict, Verified};

    #[test]
    fn so_many_of_a_million() {
        for (rate, least, most) in [
            (0, 0, 0),
            (1_000_000, 100_000, 100_000),
            (10_000, 900, 1100),
        ] {
            let verified = Verified::default();
            let due = (0..100_000).filter(|_| verified.is_due(rate)).count();
            assert!((least..=most).contains(&due), "{rate}: {due}");
        }
        // of each tenth request, too
        let verified = Verified::default();
        let due = (0..100_000).filter(|n| verified.is_due(100_000) && n % 10 == 3);
        assert!((800..1200).contains(&due.count()));
    }

    #[test]
    fn of_several_each_may_be_the_one() {
        let verified = Verified::default();
        let mut chosen = [0; 5];
        for _ in 0..1000 {
            chosen[verified.due_of(5, 1_000_000).unwrap()] += 1;
        }
        assert!(chosen.iter().all(|times| *times > 100), "{chosen:?}");
        assert_eq!(verified.due_of(5, 0), None);
        assert_eq!(verified.due_of(0, 1_000_000), None);
        // each of them has its turn
        let due = (0..20_000).filter(|_| verified.due_of(5, 1_000).is_some());
        assert!((70..130).contains(&due.count()));
    }

    #[test]
    fn what_is_told_is_counted_once() {
        let verified = Verified::default();
        assert_eq!(verified.take_counts(), None);
        verified.tell(Verdict::Same, None);
        verified.tell(Verdict::Different, Some("a".into()));
        assert_eq!(verified.take_counts(), Some([1, 0, 1, 0]));
        assert_eq!(verified.take_counts(), None);
        for _ in 0..100 {
            verified.tell(Verdict::Different, Some("b".into()));
        }
        assert_eq!(verified.take_line().as_deref(), Some("a"));
        assert_eq!(std::iter::from_fn(|| verified.take_line()).count(), 15);
    }
}
