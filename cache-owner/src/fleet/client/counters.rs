//! Counters of the client, for metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

/// Upper bounds of the buckets of latencies, in microseconds. Another bucket has no bound.
const LATENCY_BOUNDS_US: [u64; 14] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000,
];

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetLookupResult {
    /// The server has a value.
    Hit,
    /// The server has no value.
    Miss,
    /// The server has not replied in time.
    Timeout,
    /// The connection failed, or the server replied with an error.
    Error,
    /// The lookup was not sent: too many are in flight.
    Busy,
    /// The lookup was not sent: the server is not connected or does not work, or there was no time.
    Skipped,
}

impl FleetLookupResult {
    /// All results, in order.
    pub const ALL: [Self; 6] = [
        Self::Hit,
        Self::Miss,
        Self::Timeout,
        Self::Error,
        Self::Busy,
        Self::Skipped,
    ];

    /// Returns the name of the result in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Timeout => "timeout",
            Self::Error => "error",
            Self::Busy => "busy",
            Self::Skipped => "skipped",
        }
    }
}

/// The counters of a client.
#[derive(Debug, Default)]
pub(super) struct FleetCounters {
    lookups: [AtomicU64; FleetLookupResult::ALL.len()],
    latency: LatencyHistogram,
    /// Number of values that were stored.
    pub(super) stores_done: AtomicU64,
    /// Number of values whose store failed, or has no reply.
    pub(super) stores_failed: AtomicU64,
    /// Number of values that the server refused.
    pub(super) stores_refused: AtomicU64,
    /// Number of values that were not sent: no connection, or stores are paused.
    pub(super) stores_skipped: AtomicU64,
}

impl FleetCounters {
    pub(super) fn count_lookup(&self, result: FleetLookupResult) {
        if let Some(counter) = self.lookups.get(result as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a lookup with a reply.
    pub(super) fn count_reply(&self, is_hit: bool, latency: Duration) {
        self.count_lookup(match is_hit {
            true => FleetLookupResult::Hit,
            false => FleetLookupResult::Miss,
        });
        self.latency.add(latency);
    }

    pub(super) fn lookups_by_result(&self) -> BTreeMap<&'static str, u64> {
        FleetLookupResult::ALL
            .into_iter()
            .zip(&self.lookups)
            .map(|(result, count)| (result.name(), count.load(Ordering::Relaxed)))
            .collect()
    }

    pub(super) fn latency(&self) -> LatencySnapshot {
        self.latency.snapshot()
    }
}

/// The latencies of lookups with a reply, as OpenMetrics counts them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatencySnapshot {
    /// Number of latencies.
    pub count: u64,
    /// Sum of all latencies in seconds.
    pub sum: f64,
    /// Buckets by their bounds, in ascending order.
    pub buckets: Vec<LatencyBucket>,
}

/// A bucket of a histogram of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyBucket {
    /// Upper bound in seconds.
    pub le: f64,
    /// Number of latencies up to the bound, including the lower buckets' latencies.
    pub count: u64,
}

#[derive(Debug, Default)]
struct LatencyHistogram {
    buckets: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl LatencyHistogram {
    fn add(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < micros);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(micros, Ordering::Relaxed);
    }

    fn snapshot(&self) -> LatencySnapshot {
        let mut count = 0;
        let mut cumulated = self.buckets.iter().map(|bucket| {
            count += bucket.load(Ordering::Relaxed);
            count
        });
        let buckets: Vec<_> = LATENCY_BOUNDS_US
            .iter()
            .zip(&mut cumulated)
            .map(|(bound, count)| LatencyBucket {
                le: *bound as f64 / 1e6,
                count,
            })
            .collect();
        LatencySnapshot {
            count: cumulated.last().unwrap_or_default(),
            sum: self.sum_us.load(Ordering::Relaxed) as f64 / 1e6,
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_counted_in_all_buckets_whose_bound_they_do_not_exceed() {
        let histogram = LatencyHistogram::default();
        for micros in [1, 50, 51, 1_000_000, 1_000_001, 30_000_000] {
            histogram.add(Duration::from_micros(micros));
        }
        let snapshot = histogram.snapshot();
        let count_at = |le: f64| {
            let bucket = snapshot.buckets.iter().find(|bucket| bucket.le == le);
            bucket.map(|bucket| bucket.count)
        };
        assert_eq!(count_at(0.000_05), Some(2));
        assert_eq!(count_at(0.000_1), Some(3));
        assert_eq!(count_at(0.5), Some(3));
        assert_eq!(count_at(1.0), Some(4));
        assert_eq!(snapshot.count, 6);
        assert!((snapshot.sum - 32.000_103).abs() < 1e-9, "{}", snapshot.sum);
    }

    #[test]
    fn lookups_are_counted_by_result() {
        let counters = FleetCounters::default();
        counters.count_reply(true, Duration::from_micros(60));
        counters.count_reply(false, Duration::from_micros(60));
        for result in FleetLookupResult::ALL {
            counters.count_lookup(result);
        }
        let counts = counters.lookups_by_result();
        assert_eq!((counts["hit"], counts["miss"]), (2, 2));
        assert_eq!(counts.values().sum::<u64>(), 8);
        assert_eq!(counters.latency().count, 2);
    }
}
