//! What the exchanges of a process share.
//!
//! [`hot`] keeps entries within a number of bytes, [`flights`] lets one request
//! fetch what many want, [`wake`] tells who waits to go on, and [`ownership`] joins
//! the process to others. What was learnt, in tables of fixed size: [`varying`],
//! what answers depend on, [`memo`], which calls were asked in the same words
//! before, [`repeated`], which answers were given before, [`changes`], what requests
//! have changed, and [`unkept`], where waiting is of no use. [`upstream_errors`] are
//! counted by kind, and [`identities`] tell chains apart.

pub mod block_sizes;
pub mod changes;
pub mod flights;
pub mod hot;
pub mod identities;
pub mod memo;
mod own;
pub mod ownership;
pub mod repeated;
pub mod reported;
pub mod unkept;
pub mod unreadable;
pub mod upstream_errors;
pub mod varying;
pub mod verified;
pub mod wake;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use self::block_sizes::BlockSizes;
use self::changes::Changes;
use self::flights::{Flights, Outcome, Token};
use self::hot::Hot;
use self::identities::Identities;
use self::memo::Memo;
use self::ownership::{Landing, Owner};
use self::repeated::Repeated;
use self::reported::Reported;
use self::unreadable::Unreadable;
use self::upstream_errors::UpstreamErrors;
use self::varying::Varying;
use self::verified::Verified;
use self::wake::{EventLoop, Waiter, Wake, Wakers};
use super::resource::other_form;
use super::Key;
use crate::memory::Budget;

/// Memory, stored answers and answers on their way, of one process. Cheap to
/// clone. Any number of threads may use it.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// What held bodies may take.
    pub budget: Budget,
    /// Long answers that are on their way to another format: so many, not bytes.
    pub transcodings: Budget,
    /// What is stored and what is being fetched.
    pub shared: Arc<Shared>,
}

impl From<Budget> for Process {
    fn from(budget: Budget) -> Self {
        Self {
            budget,
            ..Self::default()
        }
    }
}

/// What is stored here, what is known of it, and who waits for it.
#[derive(Debug, Default)]
pub struct Shared {
    hot: OnceLock<Hot>,
    owner: OnceLock<Arc<dyn Owner>>,
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
    /// Keys of answers that were stored and could not be read.
    pub unreadable: Unreadable,
    /// What came of asking the node again.
    pub verified: Verified,
    /// How many transactions blocks have that were seen.
    pub block_sizes: BlockSizes,
    /// What answers have shown of their chains.
    pub identities: Identities,
    /// Namespaces that are asked for responses of an API that they do not follow.
    pub other_api: Reported,
    /// Failed upstream requests, and JSON-RPC errors.
    pub upstream_errors: UpstreamErrors,
    wakers: Wakers,
    /// Entries of the owner's that can't be sent as an answer, and were not counted yet.
    invalid: AtomicU64,
}

impl Shared {
    /// The owner has given what can't be sent as an answer.
    pub fn saw_invalid(&self) {
        self.invalid.fetch_add(1, Ordering::Relaxed);
    }

    /// How many of these there were since this was asked last.
    pub fn take_invalid(&self) -> u64 {
        match self.invalid.load(Ordering::Relaxed) {
            // as always
            0 => 0,
            _ => self.invalid.swap(0, Ordering::Relaxed),
        }
    }

    /// Makes the hot tier, of at most `bytes`, with entries of at most
    /// `max_entry` bytes, for so many event loops: the larger entries may be, the
    /// fewer its shards. A host that forks calls it after the fork; a second call
    /// changes nothing.
    pub fn start(&self, bytes: u64, max_entry: u64, event_loops: usize) {
        self.hot
            .get_or_init(|| Hot::new(bytes, max_entry, event_loops));
        self.spread(event_loops);
    }

    /// Gives each of so many event loops, each on a thread, its own of what nearly
    /// all read and few change. A second call changes nothing.
    pub fn spread(&self, event_loops: usize) {
        self.memo.spread(event_loops);
        self.varying.spread(event_loops);
    }

    /// The hot tier, once it is started. A host without memory of its own has
    /// none: what the owner of a store has goes from hand to hand.
    pub fn hot(&self) -> Option<&Hot> {
        self.hot.get()
    }

    /// Whether there is anything where answers are kept: here, or with the owner
    /// of a store.
    pub fn keeps(&self) -> bool {
        self.hot().is_some() || self.owner().is_some()
    }

    /// Joins the process to the owner of a store. A second call changes
    /// nothing.
    pub fn join(&self, owner: Arc<dyn Owner>) {
        // the first one stays
        let _ = self.owner.set(owner);
    }

    /// The owner of a store, if there is one.
    pub fn owner(&self) -> Option<&dyn Owner> {
        self.owner.get().map(|owner| &**owner)
    }

    /// Whether what is in memory may be sent at `monotonic`, in milliseconds
    /// of `CLOCK_MONOTONIC`: a purge may hold elsewhere already.
    pub fn may_send(&self, monotonic: u64) -> bool {
        self.owner().is_none_or(|owner| owner.may_send(monotonic))
    }

    /// Whether a request may wait for what another one fetches here.
    pub fn may_wait(&self) -> bool {
        self.owner().is_none_or(Owner::may_wait)
    }

    /// As [`may_send`](Self::may_send), of what one has fetched for all who wait.
    pub fn may_share(&self, monotonic: u64) -> bool {
        self.owner().is_none_or(|owner| owner.may_share(monotonic))
    }

    /// The last purge that holds here.
    pub fn generation(&self) -> u64 {
        self.owner().map_or(0, Owner::generation)
    }

    /// Whether what has landed is an answer to who began to wait when that was the last
    /// purge.
    pub fn holds_since(&self, generation: u64) -> bool {
        self.owner()
            .is_none_or(|owner| owner.holds_since(generation))
    }

    /// As [`Flights::finish`], and lets those go on who followed.
    pub fn finish(&self, token: Token, outcome: Outcome) {
        self.wake(self.flights.finish(token, outcome));
        self.give_back();
    }

    /// What was fetched for all who follow a flight is theirs as soon as it is known
    /// to hold.
    pub fn land(&self, landing: Landing) {
        let (token, outcome) = match self.owner() {
            Some(owner) => match owner.lands(landing) {
                Ok(()) => return,
                Err(now) => now,
            },
            None => (landing.token, Outcome::Answer(landing.entry)),
        };
        self.finish(token, outcome);
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
        if let Some(owner) = self.owner() {
            for key in self.flights.over() {
                owner.give_back(key);
            }
        }
    }

    /// What was purged is given to nobody any more: what is under `key`, in both
    /// formats, or perhaps anything.
    pub fn drop_from_memory(&self, key: Option<Key>) {
        match (self.hot(), key) {
            (Some(hot), Some(key)) => {
                for key in [key, other_form(&key)] {
                    drop(hot.remove(&key));
                }
            }
            // entries in memory don't say what they are of; they come back from
            // the owner. Nothing is searched or freed here: the loop has others to
            // serve
            (Some(hot), None) => hot.outdate(),
            (None, _) => {}
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
