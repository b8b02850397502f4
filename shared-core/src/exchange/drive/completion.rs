//! End of an exchange and its timeouts.

use super::{ExchangeDriver, OffLoopJob};
use crate::cache::process::hot::HotTier;
use crate::exchange::drive::step::{build_fill_or_defer, OffLoopWork, TEARDOWN_JOB_LENGTH};
use crate::exchange::machine::transitions::ExchangeState;
use crate::exchange::machine::Exchange;
use crate::metrics::{ExchangeMetrics, ExchangeMetricsTally};
use crate::panics::catch_panic;

impl ExchangeDriver {
    /// Handles the end of a response that is completely with the host: stores its entry at `now` of
    /// the lookup clock, or returns the job that does, which ends with
    /// [`OffLoopJob::store_built_entry`].
    pub fn handle_response_sent(&mut self, now: u64) -> Option<OffLoopJob> {
        self.detect_filter_by_length();
        let exchange = self.available_exchange_mut()?;
        catch_panic(|| exchange.evaluate_probe_response(now));
        exchange.release_permits();
        let fill = catch_panic(|| exchange.take_complete_fill())?;
        build_fill_or_defer(fill?, now)
    }

    /// Passes the pieces of [`Exchange::body_slices`] to a host that copies them, once: the memory
    /// of a long body is released while it is drained.
    pub fn drain_body(&mut self, to: impl FnMut(&[u8])) {
        if let Some(exchange) = self.available_exchange_mut() {
            exchange.drain_body(to);
        }
    }

    /// Returns the metrics of the exchange when its response has ended: once, and only for requests
    /// of clients.
    ///
    /// `elapsed` is the time since the request's head in microseconds; `None` if the host has no
    /// such clock.
    pub fn take_exchange_tally(&mut self, elapsed: Option<u64>) -> Option<ExchangeMetricsTally> {
        let is_counted = |exchange: &&Exchange| !exchange.is_administrative;
        let exchange = self
            .available_exchange
            .as_deref()
            .filter(|_| !self.is_counted)?;
        let exchange = Some(exchange).filter(is_counted)?;
        let mut tally = ExchangeMetricsTally::from_exchange(&ExchangeMetrics {
            mode: exchange.response_mode(),
            is_compressed: exchange.is_compressed(),
            coding: exchange.response_coding(),
            received: exchange.received_body_bytes(),
            sent: exchange.sent_body_bytes(),
            status: exchange.cache_status(),
            reason: exchange.cache_reason(),
            method: exchange.rpc_method(),
            calls: exchange.batch_size(),
            hits: exchange.cached_batch_call_count(),
            each: &exchange.lookup_findings.batch_calls,
            is_forwarded: self.is_forwarded,
            node_status: exchange.upstream.upstream_status(),
            node_elapsed: self.node_elapsed,
            is_cut: exchange.is_truncated_by_upstream(),
            elapsed,
            age: exchange.lookup_findings.age,
            key: exchange.cache_key(),
        });
        let shared = &exchange.route_config().process.shared;
        tally.add_counts_outside_exchanges(shared);
        tally.add_eviction_count(shared.hot_tier().map_or(0, HotTier::take_eviction_count));
        tally.add_invalid_entry_count(shared.take_invalid_count());
        self.is_counted = true;
        Some(tally)
    }

    /// Records the time in microseconds from the request's head to the response's head.
    pub fn record_upstream_latency(&mut self, elapsed: u64) {
        self.node_elapsed.get_or_insert(elapsed);
    }

    /// Returns a job that frees the exchange, if that takes long. Called last, once the host uses
    /// none of the borrowed bodies.
    pub fn take_exchange_as_teardown_job(&mut self) -> Option<OffLoopJob> {
        let long = self.available_exchange.take_if(|exchange| {
            let pieces = exchange.body_slices();
            pieces.map(<[u8]>::len).sum::<usize>() >= TEARDOWN_JOB_LENGTH
        });
        long.map(|exchange| OffLoopJob(OffLoopWork::Teardown(Some(exchange))))
    }

    /// Number of bytes of the body that should be read at once after
    /// [`HostStep::Buffer`](super::HostStep::Buffer); `None` for the host's default.
    pub fn body_read_size(&self) -> Option<usize> {
        self.available_exchange().and_then(Exchange::body_read_size)
    }

    /// Time in milliseconds after which the host calls [`ExchangeDriver::end_buffering`], flushes a
    /// stream that has consumed its input, repeats the lookup after
    /// [`HostStep::Wait`](super::HostStep::Wait), or drops a [probe](Self::take_node_probe); `None`
    /// without a timeout.
    pub fn next_timeout_ms(&self) -> Option<u64> {
        let exchange = self.available_exchange()?;
        if let Some(patience) = exchange.probe_timeout_ms() {
            return Some(patience);
        }
        match exchange.exchange_state() {
            ExchangeState::Waiting => Some(exchange.lookup_wait_ms()),
            ExchangeState::Streaming if self.is_flushed => None,
            _ => exchange.buffering_timeout_ms(),
        }
    }
}
