//! Metrics with flat names.

use crate::metrics::{all_counter_names, HitOrMissLatency, GAUGES};
use crate::status::metrics_board::MetricsBoard;

/// Returns the metrics with their names: all totals and gauges, and of modes, reasons, statuses and
/// methods those that have occurred.
pub fn flat_metrics(board: MetricsBoard) -> Vec<(String, u64)> {
    let sums = board.sum_over_workers();
    let mut all = vec![("since".to_owned(), sums.since)];
    let is_total = |name: &str| !crate::status::is_counter_family_member(name);
    for (name, count) in all_counter_names().zip(&sums.counters) {
        match name {
            Some(name) if *count > 0 || is_total(&name) => all.push((name, *count)),
            _ => {}
        }
    }
    for (time, times) in HitOrMissLatency::ALL.iter().zip(&sums.times) {
        let name = time.metrics_name();
        all.push((format!("{name}.number"), times.buckets.iter().sum()));
        all.push((format!("{name}.microseconds"), times.sum));
    }
    let gauges = GAUGES.iter().zip(sums.gauges);
    all.extend(gauges.map(|(name, now)| ((*name).to_owned(), now)));
    all
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::flat_metrics;
    use crate::status::metrics_board::MetricsBoard;

    #[test]
    fn zero_totals_are_listed_and_zero_family_counters_are_not() {
        let mut numbers = Vec::new();
        numbers.resize_with(MetricsBoard::LENGTH, AtomicU64::default);
        let board = MetricsBoard::init_shared_board(numbers.leak(), 77, 0).unwrap();
        let figures = flat_metrics(board);
        let of = |wanted: &str| {
            let found = figures.iter().find(|(name, _)| name == wanted);
            found.map(|(_, figure)| *figure)
        };
        assert_eq!(of("since"), Some(77));
        for name in [
            "requests",
            "cache.hit_bytes",
            "cache.zstd_hits",
            "memory.bytes",
            "hit.number",
        ] {
            assert_eq!(of(name), Some(0), "{name}");
        }
        for name in ["cache.hit", "rpc.eth_call", "mode.hit"] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
