//! The metrics board: counters of several workers, in memory that all of them can read. Each worker
//! adds to a part of its own, and a reader adds the parts up.

use std::sync::atomic::{AtomicU64, Ordering};

use super::histogram::{bucket_index, BUCKET_COUNT};
use super::history::StatusMetricsHistory;
use super::key_samples::{count_top_keys, is_sampled, KeySampleRing, SampledKeys};
use crate::cache::process::ProcessResources;
use crate::metrics::{
    self, all_counter_names, ExchangeMetricsTally, HitOrMissLatency, COUNTER_COUNT, GAUGES,
};

/// Number of parts. Each of the first workers has its own part; further workers share the last one.
/// Its counters are complete, but each of its gauges is of the worker that has set it last: parts
/// for more workers would cost every host memory.
pub const BOARD_PARTS: usize = 64;
const SHARED_PART: usize = BOARD_PARTS - 1;

const FIRST_HISTOGRAM: usize = COUNTER_COUNT;
/// Length of a histogram: its buckets, and the sum.
const HISTOGRAM_LENGTH: usize = BUCKET_COUNT + 1;
const AGE_HISTOGRAM: usize = FIRST_HISTOGRAM + HitOrMissLatency::ALL.len() * HISTOGRAM_LENGTH;
const FIRST_GAUGE: usize = AGE_HISTOGRAM + HISTOGRAM_LENGTH;
/// Positions of the gauges that are set for requests in flight: memory, reservations, running
/// conversions and waiting requests.
const MEMORY_GAUGE: usize = FIRST_GAUGE;
const RESERVATIONS_GAUGE: usize = FIRST_GAUGE + 1;
const TRANSCODINGS_GAUGE: usize = FIRST_GAUGE + 4;
const WAITING_GAUGE: usize = FIRST_GAUGE + GAUGES.len() - 1;
/// Length of a part, so that each begins at a line of the processor's cache.
const PART_LENGTH: usize = (FIRST_GAUGE + GAUGES.len()).next_multiple_of(8);

/// Positions of the layout's identifier, and of the start of counting in seconds since 1970.
const LAYOUT_POSITION: usize = 0;
const COUNTING_SINCE_POSITION: usize = 1;
const HEAD_LENGTH: usize = 8;

/// Number of values in a sample of the history: some counters, and the histograms of latencies.
const SAMPLE: usize = metrics::HISTORY_COUNTERS.len() + AGE_HISTOGRAM - FIRST_HISTOGRAM;
const HISTORY: usize = HEAD_LENGTH + BOARD_PARTS * PART_LENGTH;
const KEY_SAMPLES: usize = HISTORY + StatusMetricsHistory::<SAMPLE>::LENGTH;

/// Number of keys in a report.
const MAX_TOP_KEYS: usize = 50;

/// The shared memory with the metrics of a host's process, or of several, as an array of counters.
#[derive(Clone, Copy, Debug)]
pub struct MetricsBoard(&'static [AtomicU64]);

/// The metrics of all workers together: the sums over all parts of a board.
#[derive(Clone, Debug)]
pub struct MetricsTotals {
    /// Start of counting, in seconds since 1970.
    pub since: u64,
    /// Counters in the order of `metrics::all_counter_names`.
    pub counters: Vec<u64>,
    /// Histograms in the order of [`HitOrMissLatency::ALL`].
    pub times: [DurationHistogram; HitOrMissLatency::ALL.len()],
    /// Age of the entries of hits, in tenths of a second.
    pub ages: DurationHistogram,
    /// Gauges in the order of [`GAUGES`].
    pub gauges: [u64; GAUGES.len()],
}

/// The metrics of all workers together in one interval of the history.
#[derive(Clone, Copy, Debug)]
pub struct IntervalMetrics {
    /// Number of requests.
    pub requests: u64,
    /// Number of requests that the node has answered.
    pub node_requests: u64,
    /// Number of hits.
    pub hits: u64,
    /// Number of misses.
    pub misses: u64,
    /// Histograms in the order of [`HitOrMissLatency::ALL`].
    pub times: [DurationHistogram; HitOrMissLatency::ALL.len()],
}

/// A histogram of durations, in microseconds unless stated otherwise.
#[derive(Clone, Copy, Debug)]
pub struct DurationHistogram {
    /// Number of durations in each bucket.
    pub buckets: [u64; BUCKET_COUNT],
    /// Sum of all durations.
    pub sum: u64,
}

impl MetricsBoard {
    /// Number of values in the memory of a board.
    pub const LENGTH: usize = KEY_SAMPLES + KeySampleRing::LENGTH;

    /// Initializes a board in memory of [`LENGTH`](Self::LENGTH) values, by the first process that
    /// maps it. Present counts are kept, unless another version has written them. `wall` is in
    /// seconds since 1970, `now` in milliseconds of the monotonic clock. `None`: the memory has
    /// fewer values.
    pub fn init_shared_board(numbers: &'static [AtomicU64], wall: u64, now: u64) -> Option<Self> {
        let board = Self::attach_shared_board(numbers)?;
        let layout = layout_identifier();
        if board.0[LAYOUT_POSITION].swap(layout, Ordering::Relaxed) != layout {
            for number in &board.0[HEAD_LENGTH..] {
                number.store(0, Ordering::Relaxed);
            }
            board.0[COUNTING_SINCE_POSITION].store(wall, Ordering::Relaxed);
            board.sample_history().start_first_history_interval(now);
        }
        Some(board)
    }

    /// Attaches to the memory of a board that another process has initialized. `None`: the memory
    /// has too few values.
    pub fn attach_shared_board(numbers: &'static [AtomicU64]) -> Option<Self> {
        Some(Self(numbers.get(..Self::LENGTH)?))
    }

    /// Adds the metrics of one finished exchange to the part of a worker, at `now` in milliseconds
    /// of the monotonic clock. No other running worker may have the number `worker`.
    pub fn add_exchange(self, worker: usize, tally: &ExchangeMetricsTally, now: u64) {
        self.sample_history()
            .record_interval_sample(now, || self.sum_history_sample());
        match worker < SHARED_PART {
            true => self.add_to_part(worker, tally, |number, by| {
                // with one writer this takes a tenth of the time of an atomic addition
                let now = number.load(Ordering::Relaxed);
                number.store(now.wrapping_add(by), Ordering::Relaxed);
            }),
            false => self.add_to_part(worker, tally, |number, by| {
                number.fetch_add(by, Ordering::Relaxed);
            }),
        }
        if let Some(sample) = tally.key_sample() {
            let requests = &self.worker_part(worker)[metrics::REQUESTS_COUNTER];
            if is_sampled(requests.load(Ordering::Relaxed)) {
                self.key_sample_ring().record(sample);
            }
        }
    }

    /// Adds the increments and durations of one exchange to a worker's counters, by calls of `add`.
    fn add_to_part(
        self,
        worker: usize,
        tally: &ExchangeMetricsTally,
        add: impl Fn(&AtomicU64, u64),
    ) {
        let part = self.worker_part(worker);
        for (counter, by) in tally.counter_increments() {
            add(&part[counter], by);
        }
        let of_time = |(time, took)| (FIRST_HISTOGRAM + time as usize * HISTOGRAM_LENGTH, took);
        let times = tally.response_latency().map(of_time);
        let ages = tally.hit_age_tenths().map(|age| (AGE_HISTOGRAM, age));
        for (at, took) in times.into_iter().chain(ages) {
            let times = &part[at..][..HISTOGRAM_LENGTH];
            add(&times[bucket_index(took)], 1);
            add(&times[BUCKET_COUNT], took);
        }
    }

    /// Sets all gauges in the part of a worker.
    pub fn set_gauges(self, worker: usize, gauges: [u64; GAUGES.len()]) {
        let part = self.worker_part(worker);
        for (place, now) in part[FIRST_GAUGE..].iter().zip(gauges) {
            place.store(now, Ordering::Relaxed);
        }
    }

    /// Sets the gauges of a worker's requests in flight: their memory, and the number of coalesced
    /// ones that wait.
    pub fn set_request_gauges(self, worker: usize, process: &ProcessResources) {
        let part = self.worker_part(worker);
        let show = |at: usize, now: usize| part[at].store(now as u64, Ordering::Relaxed);
        show(MEMORY_GAUGE, process.budget.reserved_bytes());
        show(RESERVATIONS_GAUGE, process.budget.reservation_count());
        show(TRANSCODINGS_GAUGE, process.transcodings.reserved_bytes());
        show(WAITING_GAUGE, process.shared.flights.total_waiter_count());
    }

    /// Returns all metrics, each summed over the parts of all workers.
    pub fn sum_over_workers(self) -> MetricsTotals {
        let mut all = [0; PART_LENGTH];
        for part in self.worker_parts() {
            for (sum, number) in all.iter_mut().zip(part) {
                *sum = u64::wrapping_add(*sum, number.load(Ordering::Relaxed));
            }
        }
        MetricsTotals {
            since: self.0[COUNTING_SINCE_POSITION].load(Ordering::Relaxed),
            counters: all[..COUNTER_COUNT].to_vec(),
            times: latency_histograms_from_values(&all[FIRST_HISTOGRAM..]),
            ages: DurationHistogram::new(&all[AGE_HISTOGRAM..]),
            gauges: std::array::from_fn(|gauge| all[FIRST_GAUGE + gauge]),
        }
    }

    /// Computes the metrics of the last intervals before `now`, in milliseconds of the monotonic
    /// clock; the oldest is the first. `None`: the metrics of an interval are unknown.
    pub fn interval_history(self, now: u64) -> Vec<Option<IntervalMetrics>> {
        let increments = self
            .sample_history()
            .interval_increments(now, self.sum_history_sample());
        let interval = |sample: [u64; SAMPLE]| {
            let [requests, node_requests, hit, updating, stale, miss, revalidated, times @ ..] =
                &sample;
            IntervalMetrics {
                requests: *requests,
                node_requests: *node_requests,
                hits: hit + updating + stale,
                misses: miss + revalidated,
                times: latency_histograms_from_values(times),
            }
        };
        increments.into_iter().map(|it| it.map(interval)).collect()
    }

    /// Returns the most frequent keys of the last sampled requests.
    pub fn sampled_keys(self) -> SampledKeys {
        let samples = self.key_sample_ring().read();
        SampledKeys {
            samples: samples.len(),
            top: count_top_keys(&samples, MAX_TOP_KEYS),
        }
    }

    /// Computes the sums of the values in a sample over the parts of all workers.
    fn sum_history_sample(self) -> [u64; SAMPLE] {
        let mut sample = [0; SAMPLE];
        for part in self.worker_parts() {
            let positions = metrics::HISTORY_COUNTERS
                .into_iter()
                .chain(FIRST_HISTOGRAM..AGE_HISTOGRAM);
            for (sum, at) in sample.iter_mut().zip(positions) {
                *sum = u64::wrapping_add(*sum, part[at].load(Ordering::Relaxed));
            }
        }
        sample
    }

    fn sample_history(self) -> StatusMetricsHistory<SAMPLE> {
        StatusMetricsHistory::attach_history_memory(&self.0[HISTORY..KEY_SAMPLES])
    }

    fn key_sample_ring(self) -> KeySampleRing {
        KeySampleRing::attach_ring_memory(&self.0[KEY_SAMPLES..Self::LENGTH])
    }

    fn worker_parts(self) -> impl Iterator<Item = &'static [AtomicU64]> {
        self.0[HEAD_LENGTH..HISTORY].chunks_exact(PART_LENGTH)
    }

    #[cfg(test)]
    pub(super) fn board_numbers(self) -> &'static [AtomicU64] {
        self.0
    }

    /// Returns the counters of a worker; workers without a part of their own share the last one.
    fn worker_part(self, worker: usize) -> &'static [AtomicU64] {
        &self.0[HEAD_LENGTH + worker.min(SHARED_PART) * PART_LENGTH..][..PART_LENGTH]
    }
}

impl DurationHistogram {
    /// Returns the histogram at the beginning of a part's values.
    fn new(values: &[u64]) -> Self {
        Self {
            buckets: std::array::from_fn(|bucket| values[bucket]),
            sum: values[BUCKET_COUNT],
        }
    }
}

/// Returns the histograms of [`HitOrMissLatency::ALL`] at the beginning of a part's values.
fn latency_histograms_from_values(
    values: &[u64],
) -> [DurationHistogram; HitOrMissLatency::ALL.len()] {
    HitOrMissLatency::ALL
        .map(|time| DurationHistogram::new(&values[time as usize * HISTOGRAM_LENGTH..]))
}

/// Computes the identifier of the board's layout, which differs if other metrics are counted, or at
/// other positions.
fn layout_identifier() -> u64 {
    let mut known = blake3::Hasher::new();
    for name in all_counter_names().map(Option::unwrap_or_default) {
        known.update(name.as_bytes());
        known.update(b"\n");
    }
    known.update(&[BOARD_PARTS as u8, BUCKET_COUNT as u8, GAUGES.len() as u8]);
    known.update(&MetricsBoard::LENGTH.to_le_bytes());
    let hash = known.finalize();
    hash.as_bytes()
        .first_chunk()
        .copied()
        .map_or(1, u64::from_le_bytes)
}
