//! When an answer is with the host, and for how long it may take.

use super::{Driver, Job};
use crate::cache::process::hot::Hot;
use crate::exchange::machine::Exchange;
use crate::exchange::step::{stored, Work, LONG_TO_FORGET};
use crate::exchange::transitions::State;
use crate::metrics::{Answered, Tally};
use crate::panics::caught;

impl Driver {
    /// All of the answer is with the host: what is to be stored of it is, at
    /// `now` of the look-ups' clock, or there is a job for that, which ends
    /// with [`Job::store`].
    pub fn sent(&mut self, now: u64) -> Option<Job> {
        self.compare_with_node();
        self.tell(|exchange| caught(|| exchange.learn(now)));
        self.tell(Exchange::give_back_permits);
        let fill = self.tell(|exchange| caught(|| exchange.take_fill()))??;
        stored(fill?, now)
    }

    /// All of [`Exchange::body`], for a host that copies it, once: of a long one the memory
    /// goes as it is given out.
    pub fn give_out(&mut self, to: impl FnMut(&[u8])) {
        self.tell(|exchange| exchange.give_out(to));
    }

    /// What the host counts of it, when nothing more comes of the answer: once, and not
    /// of what was no client's.
    /// `elapsed` are microseconds since the request's head came; `None`: the host has no
    /// such clock.
    pub fn tally(&mut self, elapsed: Option<u64>) -> Option<Tally> {
        let is_counted = |exchange: &&Exchange| !exchange.is_administrative;
        let exchange = self.exchange.as_deref().filter(|_| !self.is_counted)?;
        let exchange = Some(exchange).filter(is_counted)?;
        let mut tally = Tally::of(&Answered {
            mode: exchange.mode(),
            is_compressed: exchange.is_compressed(),
            received: exchange.received(),
            sent: exchange.sent(),
            status: exchange.cache_status(),
            reason: exchange.reason(),
            method: exchange.rpc_method(),
            calls: exchange.batch_size(),
            hits: exchange.batch_hits(),
            each: &exchange.looked.batch_calls,
            is_forwarded: self.is_forwarded,
            node_status: exchange.upstream.status(),
            node_elapsed: self.node_elapsed,
            is_cut: exchange.is_cut_by_node(),
            elapsed,
            age: exchange.looked.age,
        });
        let shared = &exchange.config().process.shared;
        tally.add_process(shared);
        tally.add_evicted(shared.hot().map_or(0, Hot::take_evictions));
        tally.add_invalid(shared.take_invalid());
        self.is_counted = true;
        Some(tally)
    }

    /// The head of the node's response came so many microseconds after the request's.
    pub fn node_answered_after(&mut self, elapsed: u64) {
        self.node_elapsed.get_or_insert(elapsed);
    }

    /// The last that is asked of it, once the host uses nothing more that it gave out:
    /// a job where forgetting it all takes long, to be run by whoever has time.
    pub fn last_job(&mut self) -> Option<Job> {
        let long = self.exchange.take_if(|exchange| {
            let pieces = exchange.body();
            pieces.map(<[u8]>::len).sum::<usize>() >= LONG_TO_FORGET
        });
        long.map(|exchange| Job(Work::Forget(Some(exchange))))
    }

    /// After [`Step::Hold`](super::Step::Hold), how many bytes of the body it is best to read at once;
    /// `None`: as many as the host reads by itself.
    pub fn read_size(&self) -> Option<usize> {
        self.exchange().and_then(Exchange::read_size)
    }

    /// In how many milliseconds the host is to call [`Driver::release`], or to
    /// flush a stream that has been given all there is, or, after [`Step::Wait`](super::Step::Wait),
    /// to look up again, or to drop what [inquires](Self::take_inquiry); `None`: it may
    /// wait for what comes.
    pub fn next_timer(&self) -> Option<u64> {
        let exchange = self.exchange()?;
        if let Some(patience) = exchange.patience() {
            return Some(patience);
        }
        match exchange.state() {
            State::Waiting => Some(exchange.wait_ms()),
            State::Streaming if self.is_flushed => None,
            _ => exchange.hold_ms(),
        }
    }
}
