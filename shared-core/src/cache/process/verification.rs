//! Hit verification: a share of the hits is fetched from the node again and compared.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

use super::event_counts::EventCounts;
use crate::lock::lock_ignoring_poison;

/// The result of comparing a cache hit with a new response of the node in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitVerificationVerdict {
    /// The node's response is the same.
    Same,
    /// The node's response differs, and the entry was cached for a limited time because it may
    /// change.
    Changed,
    /// The node's response differs, and the entry must not change.
    Different,
    /// The node has not responded, or responded with an error.
    Unanswered,
}

impl HitVerificationVerdict {
    /// All verdicts.
    pub const ALL: [Self; 4] = [Self::Same, Self::Changed, Self::Different, Self::Unanswered];
}

/// Maximum number of lines that wait for the host's log.
const MAX_LINES: usize = 16;

/// The choice of the hits that a process verifies, the counts of verdicts, and the lines for the
/// log.
#[derive(Debug, Default)]
pub struct HitVerificationTracker {
    /// Number of hits from which the share was taken.
    seen: AtomicU64,
    /// Numbers of verdicts, in the order of [`HitVerificationVerdict::ALL`].
    pub verdicts: EventCounts<{ HitVerificationVerdict::ALL.len() }>,
    lines: Mutex<VecDeque<String>>,
    has_lines: AtomicBool,
}

impl HitVerificationTracker {
    /// Returns which of `hits` hits that are sent together has to be verified, at a rate of `rate` in
    /// a million; at most one, and not always the first. Due hits are scattered, so that clients with
    /// a regular pattern do not evade verification.
    pub fn pick_hit_to_verify(&self, hits: usize, rate: u32) -> Option<usize> {
        let first = self.seen.fetch_add(hits as u64, Ordering::Relaxed);
        let due = (0..hits).filter_map(|hit| {
            let mixed = splitmix_finalize(first.wrapping_add(hit as u64));
            let is_due = mixed % 1_000_000 < u64::from(rate);
            is_due.then_some((mixed / 1_000_000, hit))
        });
        due.min().map(|(_, hit)| hit)
    }

    /// Counts a verdict, and queues a line for the operator's log if there is one.
    pub fn record_verdict(&self, verdict: HitVerificationVerdict, line: Option<String>) {
        self.verdicts.count_event(verdict as usize);
        if let Some(line) = line {
            self.queue_log_line(line);
        }
    }

    /// Queues a line for the host's error log; beyond a maximum number it is dropped.
    pub fn queue_log_line(&self, line: String) {
        let mut lines = lock_ignoring_poison(&self.lines);
        if lines.len() < MAX_LINES {
            lines.push_back(line);
            self.has_lines.store(true, Ordering::Release);
        }
    }

    /// Takes the oldest queued line for the host's error log.
    pub fn take_log_line(&self) -> Option<String> {
        if !self.has_lines.load(Ordering::Acquire) {
            return None;
        }
        let mut lines = lock_ignoring_poison(&self.lines);
        let line = lines.pop_front();
        self.has_lines.store(!lines.is_empty(), Ordering::Release);
        line
    }
}

/// Scatters a number with the finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable
/// Pseudorandom Number Generators).
fn splitmix_finalize(turn: u64) -> u64 {
    let mut mixed = turn.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::{HitVerificationTracker, HitVerificationVerdict};

    #[test]
    fn hits_are_due_at_the_rate() {
        for (rate, least, most) in [
            (0, 0, 0),
            (1_000_000, 100_000, 100_000),
            (10_000, 900, 1100),
        ] {
            let verified = HitVerificationTracker::default();
            let due = (0..100_000)
                .filter(|_| verified.pick_hit_to_verify(1, rate).is_some())
                .count();
            assert!((least..=most).contains(&due), "{rate}: {due}");
        }
        // also among every tenth request
        let verified = HitVerificationTracker::default();
        let is_due = || verified.pick_hit_to_verify(1, 100_000).is_some();
        let due = (0..100_000).filter(|n| is_due() && n % 10 == 3);
        assert!((800..1200).contains(&due.count()));
    }

    #[test]
    fn hits_of_a_batch_are_all_picked_at_times() {
        let verified = HitVerificationTracker::default();
        let mut chosen = [0; 5];
        for _ in 0..1000 {
            chosen[verified.pick_hit_to_verify(5, 1_000_000).unwrap()] += 1;
        }
        assert!(chosen.iter().all(|times| *times > 100), "{chosen:?}");
        assert_eq!(verified.pick_hit_to_verify(5, 0), None);
        assert_eq!(verified.pick_hit_to_verify(0, 1_000_000), None);
        // each of them counts for the rate
        let due = (0..20_000).filter(|_| verified.pick_hit_to_verify(5, 1_000).is_some());
        assert!((70..130).contains(&due.count()));
    }

    #[test]
    fn log_lines_are_taken_once_and_limited_in_number() {
        let verified = HitVerificationTracker::default();
        verified.record_verdict(HitVerificationVerdict::Different, Some("a".into()));
        for _ in 0..100 {
            verified.record_verdict(HitVerificationVerdict::Different, Some("b".into()));
        }
        assert_eq!(verified.take_log_line().as_deref(), Some("a"));
        assert_eq!(std::iter::from_fn(|| verified.take_log_line()).count(), 15);
    }
}
