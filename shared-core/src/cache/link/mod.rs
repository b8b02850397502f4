//! The owner client over connections (docs/owner-protocol.md). The host opens the connections and
//! carries the bytes.
//!
//! The standing event stream reports until when the process may send entries from its memory, and
//! what was purged. The other connections carry requests; requests at the same time are sent
//! together, in one write. A lookup leads the flight of its key until the owner replies, so that
//! all requests for the key wait for one reply; a found entry is stored in the hot tier. A failure
//! or a timeout fails open: the request is sent to the node.

mod answers;
mod asking;
pub mod calls;
mod channel;
mod claims;
mod events;
mod favours;
mod job;
mod message;
mod news;
mod purge;
mod sending;
mod taking;

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

pub use self::channel::{request as request_text, Head};
use self::channel::{Outgoing, Read, Reader};
use self::claims::Claims;
use self::events::Events;
use self::favours::Favours;
use self::job::{Job, LookUp};
pub use self::message::{Answer, Lease, Message, NotOurs, Told};
pub use self::news::News;
pub use self::purge::{problem, request as purge_request, BadPurge, Said};
use self::taking::fail_open;
use super::chain::Chains;
use super::process::ownership::Owner;
use super::process::wake::{Waiter, Wake};
use super::process::Shared;
use super::{Key, Namespace};
use crate::lock::locked;
use crate::times::{link_silence, lookup_timeout, memory_lease};

/// Number of the event stream's connection.
const EVENTS: usize = 0;

/// Time after a failure until a connection is retried, in milliseconds.
const RETRY: u64 = 20;

/// Number of failures of the event stream after which it is retried less often.
const RETRIES: u32 = 50;

/// Time between these later retries of the event stream, in milliseconds.
const RETRY_SELDOM: u64 = 250;

/// Timeout of a status query, in milliseconds.
const STATUS: u64 = 1_000;

/// Timeout of a purge, in milliseconds. A purge waits for processes that the owner can't reach, so
/// that it may take longer than other requests.
const PURGE: u64 = 10_000;

/// Time for which a purge waits for an owner that is not connected, in milliseconds: a worker that
/// was just started has no link yet, and an owner that ended is restarted.
const PURGE_PATIENCE: u64 = 2_000;

/// Maximum number of times that a purge is sent. It is idempotent and sent again if its connection
/// breaks, but not forever to an owner that can't execute it.
const PURGE_SENT: u8 = 3;

/// Lower bound of generations that no owner has: theirs begin with the time.
const NO_OWNERS: u64 = 1 << 63;

/// The limits of a link.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Number of connections besides the event stream.
    pub connections: usize,
    /// Timeout of a lookup in milliseconds. For a reply that has begun it is the timeout of the
    /// next bytes.
    pub deadline: u64,
    /// Maximum length of a body in bytes; longer ones are refused.
    pub max_body: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 8,
            deadline: lookup_timeout(),
            max_body: 1 << 30,
        }
    }
}

/// An action of the host on one of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Open the connection, then call [`Link::connected`].
    Connect(usize),
    /// Call [`Link::write`] until nothing is left.
    Write(usize),
    /// Close the connection.
    Close(usize),
    /// Call [`Link::tick`].
    Tick,
}

/// The link of a process. Any thread may send requests; one thread drives the connections.
#[derive(Debug)]
pub struct Link {
    bounds: Bounds,
    /// Timeout of lookups in milliseconds: the value in the limits, or a later one.
    deadline: AtomicU64,
    /// Name of the process for the owner.
    process: String,
    state: Mutex<State>,
    /// The chains that the owner follows, as far as it has reported them.
    pub chains: Chains,
    /// Time until which entries in memory may be sent, in milliseconds of the machine's monotonic
    /// clock.
    until: AtomicU64,
    /// Generation of the last purge that is in effect here.
    generation: AtomicU64,
    /// Whether requests were queued since the last tick.
    stirred: AtomicBool,
    /// Waker of the thread that drives the connections, if it waits for one.
    driver: Option<(Arc<dyn Wake>, usize)>,
}

#[derive(Debug, Default)]
struct State {
    slots: Vec<Slot>,
    /// Requests that an exchange waits for.
    asked: VecDeque<Job>,
    /// Requests that no exchange waits for.
    favours: Favours,
    needs: VecDeque<Need>,
    /// Lookups of keys that another process fetches.
    pending: HashMap<Key, LookUp>,
    claims: Claims,
    events: Events,
    /// Whether the owner has sent `hello`.
    up: bool,
    /// Whether any owner has sent `hello`.
    was_up: bool,
    /// Whether no owner exists, as far as is known.
    is_alone: bool,
    /// Chains that the owner has reported since its `hello`, until it has reported all.
    told: Option<Vec<Namespace>>,
    /// Number of times that the event stream has ended since then.
    failures: u32,
    /// Health of the owner, as reported to the host.
    known: news::Known,
}

/// A connection and its requests.
#[derive(Debug)]
struct Slot {
    stage: Stage,
    /// The request that it is opened for, or the requests without a reply, in order.
    jobs: VecDeque<Job>,
}

#[derive(Debug)]
enum Stage {
    Closed {
        /// Earliest time of the next attempt.
        retry_at: u64,
    },
    Connecting,
    Open(Box<Open>),
}

#[derive(Debug)]
struct Open {
    out: Outgoing,
    reader: Reader,
    /// Time of the last received bytes, or of the last request.
    since: u64,
}

/// Requests that are sent together over a connection.
#[derive(Default)]
struct Burst {
    out: Outgoing,
    jobs: VecDeque<Job>,
}

impl Link {
    /// Creates the link of the process that the owner knows as `process`: at most 64 letters,
    /// digits, `-`, `.` and `_`, and a new name for each process.
    pub fn new(process: String, bounds: Bounds) -> Self {
        let slots = (0..=bounds.connections).map(|_| Slot {
            stage: Stage::Closed { retry_at: 0 },
            jobs: VecDeque::new(),
        });
        Self {
            deadline: AtomicU64::new(bounds.deadline),
            bounds,
            process,
            state: Mutex::new(State {
                slots: slots.collect(),
                ..State::default()
            }),
            chains: Chains::default(),
            until: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            // the first tick opens the event stream
            stirred: AtomicBool::new(true),
            driver: None,
        }
    }

    /// Creates the link of this process, which has entries of at most `max_entry` bytes.
    pub fn of_process(max_entry: u64) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let started = since.unwrap_or_default().as_nanos();
        let name = format!("{}-{started:x}", std::process::id());
        let bounds = Bounds {
            // the entry, and its head
            max_body: usize::try_from(max_entry).map_or(usize::MAX, |most| most + (64 << 10)),
            ..Bounds::default()
        };
        Self::new(name, bounds)
    }

    /// Sets the timeout of later lookups in milliseconds.
    pub fn set_deadline(&self, deadline: u64) {
        self.deadline.store(deadline, Ordering::Relaxed);
    }

    /// Returns the deadline of a lookup that begins now.
    fn due(&self, now: u64) -> u64 {
        now.saturating_add(self.deadline.load(Ordering::Relaxed))
    }

    /// Sets the waker of the thread that drives the connections: it is woken as `id` when a request
    /// is queued on any thread, and [`need`](Self::need) has an action then. A host that calls
    /// [`need`](Self::need) after each call of its only thread needs no waker.
    #[must_use]
    pub fn driven(self, waker: Arc<dyn Wake>, id: usize) -> Self {
        Self {
            driver: Some((waker, id)),
            ..self
        }
    }

    /// Returns a change of the owner's health for the log. The host calls it after each
    /// [`tick`](Self::tick).
    pub fn news(&self, now: u64) -> Option<News> {
        let mut state = locked(&self.state);
        let is_up = state.up;
        state.known.news(is_up, now)
    }

    fn stir(&self) {
        let was_stirred = self.stirred.swap(true, Ordering::AcqRel);
        if let (Some((waker, id)), false) = (&self.driver, was_stirred) {
            waker.wake(*id);
        }
    }

    /// Removes a waiter of [`purge`](Self::purge) that no longer waits and must not be woken.
    pub fn forget(&self, gone: Waiter) {
        let mut state = locked(&self.state);
        state.claims.claim_said(gone);
        state.forget(gone);
    }

    /// Sends a purge, with a body of [`purge_request`]. `waiter` is woken when the purge is in
    /// effect everywhere or has failed, and [`claim`](Self::claim)s the reply. Returns `false` if
    /// memory is refused.
    pub fn purge(&self, body: String, waiter: Waiter, now: u64) -> bool {
        let mut state = locked(&self.state);
        if state.asked.try_reserve(1).is_err() {
            return false;
        }
        let patience = if state.up { PURGE } else { PURGE_PATIENCE };
        state.asked.push_back(Job::Purge {
            body,
            waiter: Some(waiter),
            due: now.saturating_add(patience),
            sent: 0,
        });
        self.stir();
        true
    }

    /// Queries the owner's status, which `waiter` [`claim`](Self::claim)s. Returns `false` if the
    /// owner is not connected.
    pub fn status(&self, waiter: Waiter, now: u64) -> bool {
        let mut state = locked(&self.state);
        if !state.up || state.asked.try_reserve(1).is_err() {
            return false;
        }
        let due = now.saturating_add(STATUS);
        state.asked.push_back(Job::Status { waiter, due });
        self.stir();
        true
    }

    /// Returns the reply to a purge or a status query, or `None` if there is none.
    pub fn claim(&self, waiter: Waiter) -> Option<Said> {
        locked(&self.state).claims.claim_said(waiter)
    }

    /// Returns the next action of the host, which calls it until `None` after each other call.
    /// `now` is in milliseconds of the host's clock, here and everywhere.
    pub fn need(&self) -> Option<Need> {
        if self.stirred.load(Ordering::Acquire) {
            return Some(Need::Tick);
        }
        locked(&self.state).needs.pop_front()
    }

    /// Reports that a connection was opened, or could not be opened.
    pub fn connected(&self, shared: &Shared, slot: usize, is_open: bool, now: u64) {
        let mut state = locked(&self.state);
        let Some(place) = state.slots.get_mut(slot) else {
            return;
        };
        if !matches!(place.stage, Stage::Connecting) {
            return;
        }
        if !is_open {
            self.lose(&mut state, shared, slot, now);
            return;
        }
        let first = place.jobs.pop_front();
        place.stage = Stage::Open(Box::new(Open {
            out: Outgoing::default(),
            reader: Reader::new(self.bounds.max_body),
            since: now,
        }));
        if slot == EVENTS {
            state.events = Events::default();
        }
        let mut burst = Burst::default();
        if let Some(job) = first {
            self.add(&mut state, shared, &mut burst, job, now);
        }
        state.carry(slot, burst, now);
        self.assign(&mut state, shared, now);
    }

    /// Reports that no owner listens: a connection was refused that was attempted after
    /// `monotonic`, in milliseconds of `CLOCK_MONOTONIC`. It is called before
    /// [`connected`](Self::connected). Entries in memory may be sent for a while then, although no
    /// owner permits it: no owner could report a purge as done.
    pub fn absent(&self, shared: &Shared, monotonic: u64) {
        let mut state = locked(&self.state);
        if state.up {
            return;
        }
        if !state.is_alone {
            state.is_alone = true;
            // no owner reports their changes
            for (_, chain) in self.chains.all() {
                chain.outdate();
            }
        }
        if !self.may_send(monotonic) {
            // an owner may have existed meanwhile, and purged
            let generation = self.generation().max(NO_OWNERS) + 1;
            self.generation.store(generation, Ordering::Release);
            shared.drop_from_memory(None);
        }
        // an owner that has just begun to listen reports a purge as done only after that time
        let until = monotonic.saturating_add(memory_lease());
        self.until.fetch_max(until, Ordering::AcqRel);
    }

    /// Passes the pieces that have to be written to a connection to `write`, which returns the
    /// number of bytes that it has written. There are no pieces if nothing has to be written.
    pub fn write(&self, slot: usize, write: impl FnOnce(&mut dyn Iterator<Item = &[u8]>) -> usize) {
        let mut state = locked(&self.state);
        if let Some(open) = state.open(slot) {
            let written = write(&mut open.out.pieces());
            open.out.advance(written);
        }
    }

    /// Passes a buffer for bytes of a connection to `take`. Returns `false` if the connection has
    /// to be closed.
    pub fn room(&self, slot: usize, take: impl FnOnce(&mut [MaybeUninit<u8>])) -> bool {
        let mut state = locked(&self.state);
        let room = state.open(slot).and_then(|open| open.reader.room());
        room.map(take).is_some()
    }

    /// Reports bytes that were read into the buffer of [`room`](Self::room).
    ///
    /// # Safety
    /// The bytes are initialized, and `room` was not called since.
    #[allow(unsafe_code)]
    pub unsafe fn filled(&self, shared: &Shared, slot: usize, bytes: usize, now: u64) {
        let mut state = locked(&self.state);
        let Some(open) = state.open(slot) else {
            return;
        };
        open.since = now;
        // SAFETY: the function's contract.
        let mut read = unsafe { open.reader.filled(bytes) };
        while self.take(&mut state, shared, slot, read, now) {
            let Some(open) = state.open(slot) else {
                break;
            };
            read = open.reader.next();
        }
        self.assign(&mut state, shared, now);
    }

    /// Handles the input of a connection. Returns whether there may be more.
    fn take(
        &self,
        state: &mut State,
        shared: &Shared,
        slot: usize,
        read: Result<Read, NotOurs>,
        now: u64,
    ) -> bool {
        let Some(Slot {
            stage: Stage::Open(open),
            jobs,
        }) = state.slots.get_mut(slot)
        else {
            return false;
        };
        match read {
            Ok(Read::More) => {
                // a reply that has begun is not slower than the node's, as long as its bytes arrive
                if let Some(job) = jobs.front_mut().filter(|_| open.reader.is_in_body()) {
                    job.put_off(self.due(now));
                }
                false
            }
            Ok(Read::Events(data)) if slot == EVENTS => {
                self.hear(state, shared, &data, now);
                true
            }
            Ok(Read::Response(response)) if slot != EVENTS => match jobs.pop_front() {
                Some(job) => {
                    self.answered(state, shared, job, response, now);
                    true
                }
                // the host closes it
                None => false,
            },
            Ok(_) | Err(NotOurs) => {
                self.close(state, shared, slot, now);
                false
            }
        }
    }

    /// Reports that a connection was closed.
    pub fn closed(&self, shared: &Shared, slot: usize, now: u64) {
        let mut state = locked(&self.state);
        self.lose(&mut state, shared, slot, now);
        self.assign(&mut state, shared, now);
    }

    /// Sends queued requests, and ends those that have timed out. Returns the milliseconds until
    /// the next call if nothing else happens.
    pub fn tick(&self, shared: &Shared, now: u64) -> u64 {
        self.stirred.store(false, Ordering::Release);
        let mut state = locked(&self.state);
        self.give_up_late(&mut state, shared, now);
        for slot in 0..state.slots.len() {
            let is_waited_for = match state.slots[slot].jobs.front() {
                Some(Job::Purge { .. }) => false,
                Some(_) => true,
                None => slot == EVENTS,
            };
            let is_silent = |open: &mut Open| now >= open.since + link_silence();
            if is_waited_for && state.open(slot).is_some_and(is_silent) {
                self.close(&mut state, shared, slot, now);
            }
        }
        if matches!(state.slots[EVENTS].stage, Stage::Closed { retry_at } if retry_at <= now) {
            state.connect(EVENTS, Job::Listen);
        }
        self.assign(&mut state, shared, now);
        state.next_tick(now)
    }

    /// Queues a lookup again.
    fn ask_again(&self, state: &mut State, shared: &Shared, look_up: LookUp) {
        if state.asked.try_reserve(1).is_ok() {
            state.asked.push_back(Job::LookUp(look_up));
        } else {
            fail_open(&mut state.favours, shared, look_up);
        }
    }

    fn close(&self, state: &mut State, shared: &Shared, slot: usize, now: u64) {
        state.needs.push_back(Need::Close(slot));
        self.lose(state, shared, slot, now);
    }

    fn lose(&self, state: &mut State, shared: &Shared, slot: usize, now: u64) {
        let Some(place) = state.slots.get_mut(slot) else {
            return;
        };
        if matches!(place.stage, Stage::Closed { .. }) {
            return;
        }
        place.stage = Stage::Closed { retry_at: now };
        let jobs = std::mem::take(&mut place.jobs);
        // an owner may close an idle connection
        if !jobs.is_empty() {
            self.retry_later(state, slot, now);
        }
        for job in jobs {
            self.fail_or_repeat(state, shared, job);
        }
    }

    /// Delays the next attempt: an owner that is restarted is back within moments, and an absent
    /// one is not polled all the time.
    fn retry_later(&self, state: &mut State, slot: usize, now: u64) {
        let mut wait = RETRY;
        if slot == EVENTS {
            state.failures = state.failures.saturating_add(1);
            if state.failures > RETRIES {
                wait = RETRY_SELDOM;
            }
        }
        if let Some(place) = state.slots.get_mut(slot) {
            let retry_at = now + wait;
            place.stage = Stage::Closed { retry_at };
        }
        // the next tick is due earlier now
        self.stir();
    }

    /// Repeats or fails a request whose connection broke.
    fn fail_or_repeat(&self, state: &mut State, shared: &Shared, job: Job) {
        match job {
            Job::Purge { sent, .. } if sent < PURGE_SENT && state.asked.try_reserve(1).is_ok() => {
                state.asked.push_back(job);
            }
            job => self.fail(state, shared, job),
        }
    }

    /// Fails a request without a reply.
    fn fail(&self, state: &mut State, shared: &Shared, job: Job) {
        match job {
            Job::LookUp(look_up) => fail_open(&mut state.favours, shared, look_up),
            Job::LookUps { waiter, .. } | Job::Status { waiter, .. } => shared.wake([waiter]),
            Job::Purge {
                waiter: Some(waiter),
                sent,
                ..
            } => {
                if sent == 0 {
                    state.claims.said(waiter, purge::not_asked());
                }
                shared.wake([waiter]);
            }
            Job::Listen => {
                state.up = false;
                for (_, look_up) in std::mem::take(&mut state.pending) {
                    fail_open(&mut state.favours, shared, look_up);
                }
                for job in std::mem::take(&mut state.asked) {
                    self.fail_or_repeat(state, shared, job);
                }
                state.favours.clear();
            }
            // the entry may have arrived or not: other processes must not wait for it
            Job::Store { key, .. } if state.up => state.favours.push(Job::GiveBack(key)),
            Job::Store { .. }
            | Job::GiveBack(_)
            | Job::Acknowledge(_)
            | Job::Shows(..)
            | Job::Late(_) => {}
            Job::Purge { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
