//! The history of a metrics board: a ring of samples of its counters, one for each interval.
//!
//! No timer takes the samples. The first exchange that is counted in an interval takes one before
//! it is added: the counters have these values since the start of the interval. No exchange was
//! counted in an interval without a sample.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time_constants::history_interval;

/// Number of intervals that are reported: 15 minutes.
pub const INTERVALS: usize = 60;

/// Number of samples in the ring. A reader needs `INTERVALS + 1` of them; the others may be
/// overwritten while it reads.
const SLOTS: usize = 64;

/// Positions of the start of the first interval, of the time at which the next sample is due, and
/// of the first slot.
const START: usize = 0;
const NEXT_SAMPLE: usize = 1;
const HEAD: usize = 8;

/// The metrics of the last 15 minutes: a ring of samples of `N` values each, as a part of a metrics
/// board.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatusMetricsHistory<const N: usize>(&'static [AtomicU64]);

impl<const N: usize> StatusMetricsHistory<N> {
    /// Length of a slot: its stamp, and the values.
    const SLOT: usize = (1 + N).next_multiple_of(8);
    /// Number of values in the memory of a history.
    pub(super) const LENGTH: usize = HEAD + SLOTS * Self::SLOT;

    /// Attaches to memory of [`LENGTH`](Self::LENGTH) values, which are 0 before the first use.
    pub(super) fn attach_history_memory(numbers: &'static [AtomicU64]) -> Self {
        Self(numbers)
    }

    /// Starts the first interval at `now`, in milliseconds of the monotonic clock. The values of
    /// all samples are 0 at that time.
    pub(super) fn start_first_history_interval(self, now: u64) {
        self.0[START].store(now, Ordering::Relaxed);
        self.0[NEXT_SAMPLE].store(now + history_interval(), Ordering::Relaxed);
    }

    /// Stores the present values as the sample of an interval, in the first call within it. Calls
    /// of other workers return at once, so a sample may include the exchanges that they count
    /// while it is taken.
    ///
    /// It is called for each exchange, and compares two numbers in all calls but the first of an
    /// interval.
    #[inline]
    pub(super) fn record_interval_sample(self, now: u64, values: impl FnOnce() -> [u64; N]) {
        if now >= self.0[NEXT_SAMPLE].load(Ordering::Relaxed) {
            self.record_due_sample(now, values);
        }
    }

    /// Stores the values as the sample of the present interval, unless another process did.
    /// `values` is called at most once.
    #[cold]
    fn record_due_sample(self, now: u64, values: impl FnOnce() -> [u64; N]) {
        let interval = self.interval_number(now);
        let (slot, stamp) = self.interval_slot(interval);
        let seen = slot[0].load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        let is_sampled = interval == 0 || seen >= stamp;
        if is_sampled || slot[0].compare_exchange(seen, stamp, order, order).is_err() {
            return;
        }
        for (place, value) in slot[1..].iter().zip(values()) {
            place.store(value, Ordering::Relaxed);
        }
        slot[0].store(stamp + 1, Ordering::Release);
        let next = self.0[START].load(Ordering::Relaxed) + (interval + 1) * history_interval();
        self.0[NEXT_SAMPLE].fetch_max(next, Ordering::Relaxed);
    }

    /// Returns the increments of the values in the [`INTERVALS`] before the present one, the
    /// oldest first, from the values that were read at `now`. `None`: the increments are unknown,
    /// because the interval is earlier than the first one, or a sample was not completed.
    pub(super) fn interval_increments(self, now: u64, values: [u64; N]) -> Vec<Option<[u64; N]>> {
        let current = self.interval_number(now);
        let mut end = self.values_at_start(current, Some(values));
        let before = (1..=INTERVALS as u64).map(|intervals| {
            let start = current
                .checked_sub(intervals)
                .and_then(|interval| self.values_at_start(interval, end));
            let (from, to) = (start, std::mem::replace(&mut end, start));
            from.zip(to)
                .map(|(from, to)| std::array::from_fn(|at| to[at].saturating_sub(from[at])))
        });
        let mut increments: Vec<_> = before.collect();
        increments.reverse();
        increments
    }

    /// Returns the values at the start of an interval, from its sample or from the values at its
    /// `end`. `None`: they are unknown.
    fn values_at_start(self, interval: u64, end: Option<[u64; N]>) -> Option<[u64; N]> {
        if interval == 0 {
            return Some([0; N]);
        }
        let (slot, stamp) = self.interval_slot(interval);
        match slot[0].load(Ordering::Acquire) {
            // the sample is being taken, or the worker that took it was killed
            seen if seen == stamp => None,
            seen if seen == stamp + 1 => Some(std::array::from_fn(|at| {
                slot[1 + at].load(Ordering::Relaxed)
            })),
            _ => end,
        }
    }

    /// Returns the number of the interval at `now`, counted from the start of the history.
    fn interval_number(self, now: u64) -> u64 {
        now.saturating_sub(self.0[START].load(Ordering::Relaxed)) / history_interval()
    }

    /// Returns the slot of an interval, and its stamp while the sample is taken. The stamp of a
    /// complete sample is greater by 1.
    fn interval_slot(self, interval: u64) -> (&'static [AtomicU64], u64) {
        let at = HEAD + interval as usize % SLOTS * Self::SLOT;
        (&self.0[at..][..=N], 2 * (interval + 1))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{StatusMetricsHistory, INTERVALS};
    use crate::time_constants::history_interval;

    const START: u64 = 1_000_000;

    fn history() -> StatusMetricsHistory<1> {
        let numbers = (0..StatusMetricsHistory::<1>::LENGTH).map(|_| AtomicU64::default());
        let history = StatusMetricsHistory::attach_history_memory(Vec::leak(numbers.collect()));
        history.start_first_history_interval(START);
        history
    }

    /// Returns the milliseconds of an interval's start.
    fn at(interval: u64) -> u64 {
        START + interval * history_interval()
    }

    /// Returns the last `number` increments at `now`; the earlier ones are unknown.
    fn last(
        history: StatusMetricsHistory<1>,
        now: u64,
        value: u64,
        number: usize,
    ) -> Vec<Option<u64>> {
        let increments = history.interval_increments(now, [value]);
        assert_eq!(increments.len(), INTERVALS);
        let (unknown, known) = increments.split_at(INTERVALS - number);
        assert!(unknown.iter().all(Option::is_none), "{increments:?}");
        known.iter().map(|it| it.map(|[value]| value)).collect()
    }

    #[test]
    fn increments_are_those_of_complete_intervals() {
        let history = history();
        assert!(last(history, START, 0, 0).is_empty());
        history.record_interval_sample(START, || unreachable!("the values are known"));
        // the values before the exchange that takes the sample
        history.record_interval_sample(at(1), || [3]);
        // later exchanges of the interval take no sample
        history.record_interval_sample(at(2) - 1, || unreachable!("the interval has a sample"));
        assert_eq!(last(history, at(2) - 1, 5, 1), [Some(3)]);
        history.record_interval_sample(at(2), || [5]);
        assert_eq!(last(history, at(2), 6, 2), [Some(3), Some(2)]);
        assert_eq!(last(history, at(3), 6, 3), [Some(3), Some(2), Some(1)]);
    }

    #[test]
    fn intervals_without_exchanges_have_increments_of_zero() {
        let history = history();
        history.record_interval_sample(at(3) + 7, || [0]);
        history.record_interval_sample(at(6), || [4]);
        let expected = [0, 0, 0, 4, 0, 0, 1, 0].map(Some);
        assert_eq!(last(history, at(8), 5, 8), expected);
    }

    #[test]
    fn intervals_before_the_start_are_unknown() {
        let history = history();
        let all = INTERVALS as u64;
        assert_eq!(last(history, at(all - 1), 0, INTERVALS - 1)[0], Some(0));
        assert_eq!(last(history, at(all), 0, INTERVALS)[0], Some(0));
        assert!(last(history, START - 5, 0, 0).is_empty());
    }

    #[test]
    fn intervals_next_to_an_incomplete_sample_are_unknown() {
        let history = history();
        history.record_interval_sample(at(1), || [1]);
        // a worker is killed while it takes the sample
        let (slot, stamp) = history.interval_slot(2);
        slot[0].store(stamp, Ordering::Relaxed);
        history.record_interval_sample(at(2), || unreachable!("another worker takes the sample"));
        history.record_interval_sample(at(4), || [6]);
        let expected = [Some(1), None, None, Some(0), Some(2)];
        // interval 3 has no sample: its start has the values of its end
        assert_eq!(last(history, at(5), 8, 5), expected);
    }

    #[test]
    fn samples_of_earlier_intervals_are_overwritten() {
        let history = history();
        for interval in 0..1_000 {
            history.record_interval_sample(at(interval), || [interval * interval]);
        }
        let increments = last(history, at(999), 0, INTERVALS);
        let expected: Vec<_> = (999 - INTERVALS as u64..999)
            .map(|interval| Some(2 * interval + 1))
            .collect();
        assert_eq!(increments, expected);
        // after a long time without exchanges the old samples are ignored
        let increments = last(history, at(999 + 64), 999 * 999 + 5, INTERVALS);
        assert_eq!(increments, vec![Some(0); INTERVALS]);
    }

    #[test]
    fn late_exchange_of_an_earlier_interval_takes_no_sample() {
        let history = history();
        history.record_interval_sample(at(1), || [1]);
        history.record_interval_sample(at(3), || [6]);
        // the clock of another worker is behind
        history.record_interval_sample(at(3) - 1, || {
            unreachable!("interval 2 ended without a sample")
        });
        history.record_interval_sample(at(4), || [8]);
        assert_eq!(last(history, at(4), 8, 4), [1, 5, 0, 2].map(Some));
    }
}
