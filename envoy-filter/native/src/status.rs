//! Counters of all workers, for routes with status requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::Instant;

use sszip_core::exchange::drive::ExchangeDriver;
use sszip_core::metrics;
use sszip_core::status::metrics_board::MetricsBoard;

use crate::clock;

static BOARD: OnceLock<MetricsBoard> = OnceLock::new();

/// Creates the metrics board of the process, because a route accepts status requests.
pub fn create_metrics_board() {
    if BOARD.get().is_some() {
        return;
    }
    let numbers: Vec<_> = (0..MetricsBoard::LENGTH)
        .map(|_| Default::default())
        .collect();
    if let Some(board) = MetricsBoard::init_shared_board(
        Vec::leak(numbers),
        clock::unix_seconds(),
        clock::monotonic_ms(),
    ) {
        let _ = BOARD.set(board);
    }
}

/// Returns whether the process has a metrics board, in which exchanges are counted.
pub fn is_counting_exchanges() -> bool {
    BOARD.get().is_some()
}

/// Counts an exchange that began at `since` in the metrics board, and passes its tally to `also`,
/// for Envoy's own metrics.
pub fn count_finished_exchange(
    driver: &mut ExchangeDriver,
    since: Option<Instant>,
    also: impl FnOnce(&metrics::ExchangeMetricsTally),
) {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! { static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed); }
    let elapsed = since.map(|since| since.elapsed().as_micros());
    let elapsed = elapsed.and_then(|elapsed| u64::try_from(elapsed).ok());
    let Some(tally) = driver.take_exchange_tally(elapsed) else {
        return;
    };
    if let Some(board) = BOARD.get() {
        THREAD.with(|thread| board.add_exchange(*thread, &tally, clock::monotonic_ms()));
    }
    also(&tally);
}

/// Returns the metrics board, if there is one, after setting these gauges in it.
pub fn refresh_board_gauges(gauges: [u64; metrics::GAUGES.len()]) -> Option<MetricsBoard> {
    let board = BOARD.get().copied()?;
    // the gauges are the sum over all workers
    board.set_gauges(0, gauges);
    Some(board)
}
