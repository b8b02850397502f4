//! Requests of our own, for which no client waits: questions to nodes, and updates of
//! what is stored.
//!
//! What a stream asks for ends with it. So these are the filter's configuration's, which
//! makes them on Envoy's main thread; any thread can leave one for it.

mod fields;
mod rewriting;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sszip_core::cache::stale::Failure;
use sszip_core::exchange::drive::{Driver, Step};

use self::fields::Fields;
use self::rewriting::{Rewriting, Rewritings};
use crate::abi::HeaderType;
use crate::envoy::{FilterConfig, Head, Pieces, Scheduler, Stream};
use crate::stream::response;
use crate::{clock, pool};

/// So many at a time, in the process: who comes beyond them does without, and what it
/// wanted is wanted again.
const MOST: usize = 64;

/// One that says nothing else is awaited for so long, in milliseconds.
const PATIENCE: u64 = 60_000;

/// The event that the configuration is told.
pub const BEGIN: u64 = 2;

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
}

/// A request on its way to the node, from which is learnt what the router makes of it.
#[derive(Debug)]
pub struct OnItsWay {
    name: Vec<u8>,
    head: Fields,
}

/// One that is to be made.
#[derive(Debug)]
struct Request {
    cluster: Vec<u8>,
    head: Fields,
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
    /// Of a filter that is told by this.
    pub fn new(scheduler: Arc<Scheduler>) -> Self {
        Self {
            scheduler,
            waiting: Mutex::default(),
            asked: Mutex::default(),
            unwanted: Mutex::default(),
            rewritings: Rewritings::default(),
        }
    }

    /// Asks the node of a request what the driver wants to know. `head` is what went to
    /// the node.
    pub fn inquire(&self, driver: Driver, cluster: &[u8], head: &Head) {
        let path = head.get(":path").unwrap_or_default();
        let Some(path) = driver.path_of_inquiry(path) else {
            return;
        };
        let mut head = Fields::of(head);
        if let Some(exchange) = driver.exchange() {
            head.edit(exchange.upstream_edits());
        }
        head.has_body(0);
        head.set(b":method", b"GET");
        head.set(b":path", &path);
        head.take_timeout();
        let ms = driver.next_timer().unwrap_or(PATIENCE);
        self.leave(driver, cluster, head, Vec::new(), ms);
    }

    /// Whether a request can be made anew: it is known what the router makes of it.
    pub fn can_update(&self, stream: Stream, head: &Head, now: u64) -> bool {
        self.rewritings.get(&name(stream, head), now).is_some()
    }

    /// Before the request goes on to the router: what is to be learnt from it.
    pub fn forwards(&self, stream: Stream, now: u64) -> Option<OnItsWay> {
        let head = stream.head(HeaderType::Request);
        let name = name(stream, &head);
        let head = (!self.rewritings.is_fresh(&name, now)).then(|| Fields::of(&head))?;
        Some(OnItsWay { name, head })
    }

    /// The node has answered it.
    pub fn forwarded(&self, stream: Stream, sent: OnItsWay, now: u64) {
        let head = Fields::of(&stream.head(HeaderType::Request));
        let rewriting = Rewriting::between(sent.head, head);
        self.rewritings.learn(sent.name, rewriting, now);
    }

    /// Makes a request anew, whose client gets what is stored. `pieces` is its body.
    pub fn update(&self, mut driver: Driver, stream: Stream, pieces: &[&[u8]]) {
        let head = stream.head(HeaderType::Request);
        let name = name(stream, &head);
        let Some(rewriting) = self.rewritings.get(&name, clock::monotonic()) else {
            return;
        };
        let mut head = Fields::of(&head);
        let mut body = Vec::new();
        if let Some(exchange) = driver.exchange() {
            head.edit(exchange.upstream_edits());
            body.extend_from_slice(exchange.request_body());
        }
        if body.is_empty() {
            if !driver.take_room(pieces.iter().map(|piece| piece.len()).sum()) {
                return;
            }
            body = pieces.concat();
        }
        head.has_body(body.len());
        rewriting.apply(&mut head);
        let ms = rewriting.timeout.unwrap_or(PATIENCE);
        self.leave(driver, stream.cluster(), head, body, ms);
    }

    fn leave(&self, driver: Driver, cluster: &[u8], head: Fields, body: Vec<u8>, ms: u64) {
        let Some(turn) = Turn::take() else {
            return;
        };
        locked(&self.waiting).push(Request {
            cluster: cluster.to_vec(),
            head,
            body,
            ms,
            asked: Asked {
                driver,
                _turn: turn,
            },
        });
        self.scheduler.commit(BEGIN);
    }

    /// On the main thread: there is something to be done.
    pub fn begin(&self, main: FilterConfig) {
        for id in std::mem::take(&mut *locked(&self.unwanted)) {
            main.reset(id);
        }
        for request in std::mem::take(&mut *locked(&self.waiting)) {
            let Request {
                cluster,
                head,
                body,
                ..
            } = &request;
            if let Some(id) = main.ask(cluster, head.all(), body, request.ms) {
                locked(&self.asked).insert(id, request.asked);
            }
        }
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
        let asked = locked(&self.asked).remove(&id);
        if let Some(mut asked) = asked {
            if let Some(job) = asked.driver.sent(clock::monotonic()) {
                pool::run_alone(job);
            }
        }
    }

    /// It was broken off.
    pub fn reset(&self, id: u64) {
        drop(locked(&self.asked).remove(&id));
    }
}

/// Under which the router's doings are remembered.
fn name(stream: Stream, head: &Head) -> Vec<u8> {
    let get = |name| head.get(name).unwrap_or_default();
    let (route, cluster) = (stream.route(), stream.cluster());
    rewriting::name(route, cluster, get(":authority"), get(":path"))
}
