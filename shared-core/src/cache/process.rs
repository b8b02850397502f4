//! What the exchanges of a process share.

use std::sync::{Arc, OnceLock};

use super::changes::Changes;
use super::flights::{Flights, Outcome, Token};
use super::hot::Hot;
use super::link::Link;
use super::memo::Memo;
use super::repeated::Repeated;
use super::scope::Varying;
use super::unkept;
use super::wake::{EventLoop, Waiter, Wake, Wakers};
use super::Key;
use crate::memory::Budget;

/// Memory, stored answers and answers on their way, of one process. Cheap to
/// clone. Any number of threads may use it.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// What held bodies may take.
    pub budget: Budget,
    /// What is stored and what is being fetched.
    pub shared: Arc<Shared>,
}

impl From<Budget> for Process {
    fn from(budget: Budget) -> Self {
        Self {
            budget,
            shared: Arc::default(),
        }
    }
}

/// What is stored here, what is known of it, and who waits for it.
#[derive(Debug, Default)]
pub struct Shared {
    hot: OnceLock<Hot>,
    link: OnceLock<Link>,
    /// One request at a time for the same thing.
    pub flights: Flights,
    /// What answers turned out to depend on.
    pub varying: Varying,
    /// What requests have changed.
    pub changes: Changes,
    /// Keys of calls that were hits.
    pub memo: Memo,
    /// Answers that are believed when they come again.
    pub repeated: Repeated,
    /// Keys that it is of no use to wait for.
    pub unkept: unkept::Keys,
    wakers: Wakers,
}

impl Shared {
    /// Makes the hot tier, of at most `bytes`, for so many threads. A host
    /// that forks calls it after the fork; a second call changes nothing.
    pub fn start(&self, bytes: u64, threads: usize) {
        self.hot.get_or_init(|| Hot::new(bytes, bytes, threads));
    }

    /// The hot tier, once it is started. A host without memory of its own has
    /// none: what the owner of a store has goes from hand to hand.
    pub fn hot(&self) -> Option<&Hot> {
        self.hot.get()
    }

    /// Whether there is anything where answers are kept: here, or with the owner
    /// of a store.
    pub fn keeps(&self) -> bool {
        self.hot().is_some() || self.link().is_some()
    }

    /// Joins the process to the owner of a store. A second call changes
    /// nothing.
    pub fn join(&self, link: impl FnOnce() -> Link) -> &Link {
        self.link.get_or_init(link)
    }

    /// The link to the owner of a store, if there is one.
    pub fn link(&self) -> Option<&Link> {
        self.link.get()
    }

    /// Whether what is in memory may be sent at `monotonic`, in milliseconds
    /// of `CLOCK_MONOTONIC`: a purge may hold elsewhere already.
    pub fn may_send(&self, monotonic: u64) -> bool {
        self.link().is_none_or(|link| link.may_send(monotonic))
    }

    /// The last purge that holds here.
    pub fn generation(&self) -> u64 {
        self.link().map_or(0, Link::generation)
    }

    /// As [`Flights::finish`], and lets those go on who followed.
    pub fn finish(&self, token: Token, outcome: Outcome) {
        self.wake(self.flights.finish(token, outcome));
        self.give_back();
    }

    /// As [`Flights::hand_on`], and lets the next one go on.
    pub fn hand_on(&self, token: Token) {
        self.wake(self.flights.hand_on(token));
        self.give_back();
    }

    /// As [`Flights::leave`], and lets the next one go on.
    pub fn leave(&self, key: &Key, waiter: Waiter) {
        self.wake(self.flights.leave(key, waiter));
        self.give_back();
    }

    /// Others may fetch what is not fetched here any more.
    fn give_back(&self) {
        self.wake(self.flights.released());
        if let Some(link) = self.link() {
            for key in self.flights.over() {
                link.give_back(key);
            }
        }
    }

    /// One event loop more, where requests wait that `waker` wakes.
    pub fn event_loop(&self, waker: Arc<dyn Wake>) -> EventLoop {
        self.wakers.add(waker)
    }

    /// These can be looked up again: an answer is there, or will never be.
    pub fn wake(&self, waiters: impl IntoIterator<Item = Waiter>) {
        self.wakers.wake(waiters);
    }

    /// It waits no longer: it must not be woken.
    pub fn forget(&self, waiter: Waiter) {
        self.wakers.forget(waiter);
    }
}
