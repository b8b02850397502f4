//! End of an exchange and its timeouts.

use super::{Driver, Job};
use crate::cache::process::hot::HotTier;
use crate::exchange::machine::Exchange;
use crate::exchange::step::{store_or_job, JobKind, TEARDOWN_JOB_LENGTH};
use crate::exchange::transitions::State;
use crate::metrics::{ExchangeMetrics, ExchangeTally};
use crate::panics::catch_panic;

impl Driver {
    /// Handles the end of a response that is completely with the host: stores its entry at `now` of
    /// the lookup clock, or returns the job that does, which ends with [`Job::store`].
    pub fn response_sent(&mut self, now: u64) -> Option<Job> {
        self.compare_with_node();
        self.with_exchange(|exchange| catch_panic(|| exchange.finish_probe(now)));
        self.with_exchange(Exchange::release_permits);
        let fill = self.with_exchange(|exchange| catch_panic(|| exchange.take_fill()))??;
        store_or_job(fill?, now)
    }

    /// Passes the pieces of [`Exchange::body`] to a host that copies them, once: the memory of a
    /// long body is released while it is drained.
    pub fn drain_body(&mut self, to: impl FnMut(&[u8])) {
        self.with_exchange(|exchange| exchange.drain_body(to));
    }

    /// Returns the metrics of the exchange when its response has ended: once, and only for requests
    /// of clients.
    ///
    /// `elapsed` is the time since the request's head in microseconds; `None` if the host has no
    /// such clock.
    pub fn metrics(&mut self, elapsed: Option<u64>) -> Option<ExchangeTally> {
        let is_counted = |exchange: &&Exchange| !exchange.is_administrative;
        let exchange = self.exchange.as_deref().filter(|_| !self.is_counted)?;
        let exchange = Some(exchange).filter(is_counted)?;
        let mut tally = ExchangeTally::from_exchange(&ExchangeMetrics {
            mode: exchange.mode(),
            is_compressed: exchange.is_compressed(),
            received: exchange.received_bytes(),
            sent: exchange.sent_bytes(),
            status: exchange.cache_status(),
            reason: exchange.reason(),
            method: exchange.rpc_method(),
            calls: exchange.batch_size(),
            hits: exchange.batch_hits(),
            each: &exchange.looked.batch_calls,
            is_forwarded: self.is_forwarded,
            node_status: exchange.upstream.status(),
            node_elapsed: self.node_elapsed,
            is_cut: exchange.is_truncated_by_upstream(),
            elapsed,
            age: exchange.looked.age,
        });
        let shared = &exchange.config().process.shared;
        tally.add_process(shared);
        tally.add_evicted(shared.hot().map_or(0, HotTier::take_evictions));
        tally.add_invalid(shared.take_invalid());
        self.is_counted = true;
        Some(tally)
    }

    /// Records the time in microseconds from the request's head to the response's head.
    pub fn record_upstream_latency(&mut self, elapsed: u64) {
        self.node_elapsed.get_or_insert(elapsed);
    }

    /// Returns a job that frees the exchange, if that takes long. Called last, once the host uses
    /// none of the borrowed bodies.
    pub fn teardown_job(&mut self) -> Option<Job> {
        let long = self.exchange.take_if(|exchange| {
            let pieces = exchange.body();
            pieces.map(<[u8]>::len).sum::<usize>() >= TEARDOWN_JOB_LENGTH
        });
        long.map(|exchange| Job(JobKind::Teardown(Some(exchange))))
    }

    /// Number of bytes of the body that should be read at once after
    /// [`Step::Buffer`](super::Step::Buffer); `None` for the host's default.
    pub fn read_size(&self) -> Option<usize> {
        self.exchange().and_then(Exchange::read_size)
    }

    /// Time in milliseconds after which the host calls [`Driver::end_buffering`], flushes a stream
    /// that has consumed its input, repeats the lookup after [`Step::Wait`](super::Step::Wait), or
    /// drops a [probe](Self::take_probe); `None` without a timeout.
    pub fn next_timeout_ms(&self) -> Option<u64> {
        let exchange = self.exchange()?;
        if let Some(patience) = exchange.probe_timeout_ms() {
            return Some(patience);
        }
        match exchange.state() {
            State::Waiting => Some(exchange.wait_ms()),
            State::Streaming if self.is_flushed => None,
            _ => exchange.buffering_time_ms(),
        }
    }
}
