//! Requests of our own, for which no client waits: questions to nodes, and updates of
//! what is stored.
//!
//! What a stream asks for ends with it. So these are the filter's configuration's, which
//! makes them on Envoy's main thread; any thread can leave one for it.
//!
//! Where a filter's configuration comes by itself (ECDS) Envoy ends the one before with the
//! last stream that has it, on that stream's worker, and breaks its requests off there. They
//! are the main thread's: Envoy crashes. So none is under way then: whenever a filter is
//! configured, others, of which it may take the place, break theirs off, and make none for
//! streams that may be the last ones. Of one whose place nobody takes nothing is said: the
//! worker waits until what is under way has ended.

mod fields;
mod of_stream;
mod rewriting;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

use sszip_core::cache::stale::Failure;
use sszip_core::exchange::drive::{Driver, Step};
use sszip_core::exchange::Exchange;

use self::fields::Fields;
pub use self::of_stream::{OfStream, OnItsWay};
use self::rewriting::Rewritings;
use crate::envoy::{FilterConfig, Head, Pieces, Scheduler};
use crate::stream::response;
use crate::{clock, pool};

/// So many at a time, in the process: who comes beyond them does without, and what it
/// wanted is wanted again.
const MOST: usize = 64;

/// None is awaited for longer, in milliseconds.
const PATIENCE: u64 = 60_000;

/// After that Envoy has ended them all, unless it ends itself.
const ENDED: Duration = Duration::from_millis(PATIENCE + 5000);

/// So long after a filter was configured all streams that begin have it, if it takes the
/// place of theirs. Milliseconds.
const SETTLES: u64 = 1000;

/// The event that the configuration is told where there is something to be done.
pub const BEGIN: u64 = 2;
/// And where another one was made.
pub const GIVE_WAY: u64 = 3;

/// Those of all filters.
static ALL: Mutex<Vec<Weak<Background>>> = Mutex::new(Vec::new());

/// Those of a filter.
#[derive(Debug)]
pub struct Background {
    scheduler: Arc<Scheduler>,
    /// To be made.
    waiting: Mutex<Vec<Request>>,
    /// What was made. The main thread's.
    asked: Mutex<HashMap<u64, Asked>>,
    /// To be broken off: nobody wants the rest. The main thread's.
    unwanted: Mutex<Vec<u64>>,
    rewritings: Rewritings,
    /// When another filter was configured; 0: none was. Written with `waiting` locked.
    followed: AtomicU64,
    main: ThreadId,
    /// How many Envoy has under way.
    under_way: Mutex<usize>,
    one_is_over: Condvar,
}

/// One that is to be made.
#[derive(Debug)]
struct Request {
    cluster: Vec<u8>,
    head: Fields,
    /// The client's, unless the driver has another one.
    body: Vec<u8>,
    ms: u64,
    asked: Asked,
}

/// What awaits the answer.
#[derive(Debug)]
struct Asked {
    driver: Driver,
    _turn: Turn,
}

/// One of as many as there may be.
#[derive(Debug)]
struct Turn;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl Turn {
    fn take() -> Option<Self> {
        let more = |taken| (taken < MOST).then_some(taken + 1);
        let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(job) = self.driver.last_job() {
            pool::run_alone(job);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.scheduler.close();
    }
}

fn locked<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Background {
    /// Of a filter that is told by this, and may take the place of any that there is.
    pub fn new(scheduler: Arc<Scheduler>) -> Arc<Self> {
        let made = Arc::new(Self {
            scheduler,
            waiting: Mutex::default(),
            asked: Mutex::default(),
            unwanted: Mutex::default(),
            rewritings: Rewritings::default(),
            followed: AtomicU64::new(0),
            main: thread::current().id(),
            under_way: Mutex::default(),
            one_is_over: Condvar::new(),
        });
        let mut all = locked(&ALL);
        let others: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        *all = others.iter().map(Arc::downgrade).collect();
        all.push(Arc::downgrade(&made));
        drop(all);
        let now = clock::monotonic();
        others.iter().for_each(|other| other.is_followed(now));
        made
    }

    fn is_followed(&self, now: u64) {
        let waiting = locked(&self.waiting);
        self.followed.store(now, Ordering::Relaxed);
        drop(waiting);
        self.scheduler.commit(GIVE_WAY);
    }

    /// Whether a request is made for a stream that began then.
    fn asks_for(&self, began: u64) -> bool {
        let followed = self.followed.load(Ordering::Relaxed);
        followed == 0 || began > followed + SETTLES
    }

    fn leave(
        &self,
        began: u64,
        driver: Driver,
        cluster: &[u8],
        head: Fields,
        body: Vec<u8>,
        ms: u64,
    ) {
        let Some(turn) = Turn::take() else {
            return;
        };
        let request = Request {
            cluster: cluster.to_vec(),
            head,
            body,
            ms,
            asked: Asked {
                driver,
                _turn: turn,
            },
        };
        let mut waiting = locked(&self.waiting);
        if self.asks_for(began) {
            waiting.push(request);
            drop(waiting);
            self.scheduler.commit(BEGIN);
        }
    }

    /// On the main thread: there is something to be done.
    pub fn begin(&self, main: FilterConfig) {
        let unwanted = std::mem::take(&mut *locked(&self.unwanted));
        unwanted.into_iter().for_each(|id| main.reset(id));
        let waiting = std::mem::take(&mut *locked(&self.waiting));
        for request in waiting {
            let (cluster, head) = (&request.cluster, request.head.all());
            let own = request.asked.driver.exchange().map(Exchange::request_body);
            let body = own.filter(|own| !own.is_empty()).unwrap_or(&request.body);
            *locked(&self.under_way) += 1;
            match main.ask(cluster, head, body, request.ms.min(PATIENCE)) {
                Some(id) => drop(locked(&self.asked).insert(id, request.asked)),
                None => self.one_ends(),
            }
        }
    }

    /// Envoy has nothing to do with one of them any more.
    fn one_ends(&self) {
        *locked(&self.under_way) -= 1;
        self.one_is_over.notify_all();
    }

    /// The filter goes, and no more are begun. What is under way then Envoy breaks off on
    /// this thread.
    pub fn end(&self) {
        if thread::current().id() != self.main {
            let some = locked(&self.under_way);
            let waited = self
                .one_is_over
                .wait_timeout_while(some, ENDED, |some| *some > 0);
            drop(waited);
        }
    }

    /// On the main thread: another filter may take this one's place.
    pub fn give_way(&self, main: FilterConfig) {
        let waiting = std::mem::take(&mut *locked(&self.waiting));
        drop(waiting);
        let mut made = std::mem::take(&mut *locked(&self.unwanted));
        made.extend(locked(&self.asked).keys());
        made.into_iter().for_each(|id| main.reset(id));
    }

    /// What becomes of the one of that number; `wanted` is whether anything is to come of
    /// it still.
    fn with(&self, id: u64, wanted: impl FnOnce(&mut Driver) -> bool) {
        // not in the table: if this panics nothing comes of it
        let asked = locked(&self.asked).remove(&id);
        let Some(mut asked) = asked else {
            return;
        };
        if wanted(&mut asked.driver) {
            locked(&self.asked).insert(id, asked);
        } else {
            // Envoy is about to say more of it
            locked(&self.unwanted).push(id);
            self.scheduler.commit(BEGIN);
        }
    }

    /// The answer's head.
    pub fn head(&self, id: u64, head: &Head, is_all: bool) {
        self.with(id, |driver| {
            let response = response::read(head, response::is_delimited(head, is_all));
            let failure = Failure::Status(response.status);
            let judged = driver.node_head(response.clone(), failure, clock::monotonic());
            judged.is_ok() && matches!(driver.response_head(response), Ok(Step::Show))
        });
    }

    /// A piece of its body.
    pub fn body(&self, id: u64, pieces: &Pieces) {
        self.with(id, |driver| {
            pieces.iter().all(|piece| driver.piece(piece).is_ok())
        });
    }

    /// It is complete.
    pub fn complete(&self, id: u64) {
        self.one_ends();
        let asked = locked(&self.asked).remove(&id);
        if let Some(mut asked) = asked {
            if let Some(job) = asked.driver.sent(clock::monotonic()) {
                pool::run_alone(job);
            }
            pool::log_lines();
        }
    }

    /// It was broken off.
    pub fn reset(&self, id: u64) {
        self.one_ends();
        drop(locked(&self.asked).remove(&id));
    }
}
