//! A process's link to the cache's owner (docs/owner-protocol.md), without
//! its connections: the host opens them, and carries bytes.
//!
//! The standing event stream says until when the process may send what it has
//! in memory, and what was purged. The other connections carry what is asked
//! for at the same time together, to be read and written at once. A look-up leads the flight of its key until it is answered,
//! so that all who want the key wait for one answer; what comes of it goes to
//! the hot tier. Whatever fails, or takes too long, fails open: the node is
//! asked.

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

/// The slot of the event stream.
const EVENTS: usize = 0;

/// How long after a failure a connection is tried again. Milliseconds.
const RETRY: u64 = 20;

/// And the event stream, after so many failures.
const RETRIES: u32 = 50;

/// ... each time after so long.
const RETRY_SELDOM: u64 = 250;

/// An owner says within that what it knows of itself, in milliseconds.
const STATUS: u64 = 1_000;

/// A purge waits for processes that the owner can't reach, so it may take
/// longer than anything else. Milliseconds.
const PURGE: u64 = 10_000;

/// And one that no owner can be asked for is not refused at once: a worker that
/// was just started has no link yet, and an owner that ended is started anew.
const PURGE_PATIENCE: u64 = 2_000;

/// A purge whose connection breaks is sent again, since it may be done twice;
/// but not for ever to an owner that can't do it.
const PURGE_SENT: u8 = 3;

/// A generation that no owner has: they begin with the time.
const NO_OWNERS: u64 = 1 << 63;

/// What a link keeps within.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections besides the event stream.
    pub connections: usize,
    /// A look-up that takes longer is not waited for; nor is one whose answer
    /// has begun, if no more of it comes for so long. Milliseconds.
    pub deadline: u64,
    /// Longer bodies are refused. Bytes.
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

/// What the host is to do with one of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Open it, then [`Link::connected`].
    Connect(usize),
    /// [`Link::write`] until there is nothing more.
    Write(usize),
    /// Close it.
    Close(usize),
    /// [`Link::tick`].
    Tick,
}

/// The link of a process. Any thread may ask; one drives the connections.
#[derive(Debug)]
pub struct Link {
    bounds: Bounds,
    /// That of the bounds, or a later one. Milliseconds.
    deadline: AtomicU64,
    /// How the owner knows the process.
    process: String,
    state: Mutex<State>,
    /// What the owner has said of the chains that it follows.
    pub chains: Chains,
    /// Until when what is in memory may be sent, in milliseconds of the
    /// machine's monotonic clock.
    until: AtomicU64,
    /// The last purge that holds here.
    generation: AtomicU64,
    /// Something was asked since the last tick.
    stirred: AtomicBool,
    /// Whoever drives the connections, if it waits to be told so.
    driver: Option<(Arc<dyn Wake>, usize)>,
}

#[derive(Debug, Default)]
struct State {
    slots: Vec<Slot>,
    /// Those that somebody waits for.
    asked: VecDeque<Job>,
    /// And those that nobody does.
    favours: Favours,
    needs: VecDeque<Need>,
    /// Another process fetches it.
    pending: HashMap<Key, LookUp>,
    claims: Claims,
    events: Events,
    /// The owner has said hello.
    up: bool,
    /// It has at least once.
    was_up: bool,
    /// There is none, as far as is known.
    is_alone: bool,
    /// The chains that it has told of since it said hello, until it has told of
    /// all.
    told: Option<Vec<Namespace>>,
    /// How often the event stream has ended since then.
    failures: u32,
    /// What a host was told of that.
    known: news::Known,
}

/// A connection.
#[derive(Debug)]
struct Slot {
    stage: Stage,
    /// What it is opened for, or whose answers are still to come, in their order.
    jobs: VecDeque<Job>,
}

#[derive(Debug)]
enum Stage {
    Closed {
        /// Not before that.
        retry_at: u64,
    },
    Connecting,
    Open(Box<Open>),
}

#[derive(Debug)]
struct Open {
    out: Outgoing,
    reader: Reader,
    /// When something last came, or was asked.
    since: u64,
}

/// What goes together over a connection.
#[derive(Default)]
struct Burst {
    out: Outgoing,
    jobs: VecDeque<Job>,
}

impl Link {
    /// Of the process that the owner is to know as `process`: at most 64
    /// letters, digits, `-`, `.` and `_`, another one each time.
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

    /// Of this process, which has entries of at most `max_entry` bytes.
    pub fn of_process(max_entry: u64) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let started = since.unwrap_or_default().as_nanos();
        let name = format!("{}-{started:x}", std::process::id());
        let bounds = Bounds {
            // and its head
            max_body: usize::try_from(max_entry).map_or(usize::MAX, |most| most + (64 << 10)),
            ..Bounds::default()
        };
        Self::new(name, bounds)
    }

    /// Look-ups that begin from now on are waited for so long, in milliseconds.
    pub fn set_deadline(&self, deadline: u64) {
        self.deadline.store(deadline, Ordering::Relaxed);
    }

    /// When one that begins now is not waited for any more.
    fn due(&self, now: u64) -> u64 {
        now.saturating_add(self.deadline.load(Ordering::Relaxed))
    }

    /// The same; where it waits, `waker` wakes whoever drives the connections,
    /// as `id`, when something was asked, on any thread: [`need`](Self::need) has
    /// something then. A host that asks that after each call of its only thread
    /// needs none.
    #[must_use]
    pub fn driven(self, waker: Arc<dyn Wake>, id: usize) -> Self {
        Self {
            driver: Some((waker, id)),
            ..self
        }
    }

    /// What a host should put into its log; to be asked after each
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

    /// It waits no longer for what [`purge`](Self::purge) does: it must not be
    /// woken.
    pub fn forget(&self, gone: Waiter) {
        let mut state = locked(&self.state);
        state.claims.claim_said(gone);
        state.forget(gone);
    }

    /// Asks for a purge, with a body of [`purge_request`]. `waiter` is woken
    /// when it holds everywhere, or has failed, and
    /// [`claim`](Self::claim)s what came of it. `false`: memory is
    /// short.
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

    /// Asks what the owner knows of itself, which `waiter` [`claim`](Self::claim)s.
    /// `false`: it can't be asked now.
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

    /// What came of a purge, or of asking for a status; `None`: nothing is known of it.
    pub fn claim(&self, waiter: Waiter) -> Option<Said> {
        locked(&self.state).claims.claim_said(waiter)
    }

    /// What the host is to do next; to be asked until `None` after each call
    /// of the others. `now` is in milliseconds of the host's clock, here and
    /// everywhere.
    pub fn need(&self) -> Option<Need> {
        if self.stirred.load(Ordering::Acquire) {
            return Some(Need::Tick);
        }
        locked(&self.state).needs.pop_front()
    }

    /// The connection is open, or could not be opened.
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

    /// Nobody listens where the owner would: a connection was refused that was
    /// tried after `monotonic`, in milliseconds of `CLOCK_MONOTONIC`. To be said
    /// before [`connected`](Self::connected) is. What is in memory may be sent
    /// for a while then, although nobody says so: there is nobody who could take
    /// a purge for done.
    pub fn absent(&self, shared: &Shared, monotonic: u64) {
        let mut state = locked(&self.state);
        if state.up {
            return;
        }
        if !state.is_alone {
            state.is_alone = true;
            // nobody says what becomes of them
            for (_, chain) in self.chains.all() {
                chain.outdate();
            }
        }
        if !self.may_send(monotonic) {
            // there may have been one meanwhile, and a purge
            let generation = self.generation().max(NO_OWNERS) + 1;
            self.generation.store(generation, Ordering::Release);
            shared.drop_from_memory(None);
        }
        // an owner that has just begun to listen takes a purge for done only when that is over
        let until = monotonic.saturating_add(memory_lease());
        self.until.fetch_max(until, Ordering::AcqRel);
    }

    /// Shows the pieces that are to be written to a connection, and is told
    /// how many bytes of them were; none: nothing is.
    pub fn write(&self, slot: usize, write: impl FnOnce(&mut dyn Iterator<Item = &[u8]>) -> usize) {
        let mut state = locked(&self.state);
        if let Some(open) = state.open(slot) {
            let written = write(&mut open.out.pieces());
            open.out.advance(written);
        }
    }

    /// Room for bytes from a connection; `None`: close it.
    pub fn room(&self, slot: usize, take: impl FnOnce(&mut [MaybeUninit<u8>])) -> bool {
        let mut state = locked(&self.state);
        let room = state.open(slot).and_then(|open| open.reader.room());
        room.map(take).is_some()
    }

    /// So many bytes came into the [`room`](Self::room) of a connection.
    ///
    /// # Safety
    /// They are written, and `room` was not called since.
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

    /// Takes what was read from a connection. Whether there may be more.
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
                // what has begun to come is no slower from here than from the
                // node, as long as more of it does
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
                // it goes on to close it
                None => false,
            },
            Ok(_) | Err(NotOurs) => {
                self.close(state, shared, slot, now);
                false
            }
        }
    }

    /// The connection is closed.
    pub fn closed(&self, shared: &Shared, slot: usize, now: u64) {
        let mut state = locked(&self.state);
        self.lose(&mut state, shared, slot, now);
        self.assign(&mut state, shared, now);
    }

    /// Sends what was asked, and ends what took too long. How many milliseconds
    /// until it is to be called again, if nothing else happens.
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

    /// Looks it up once more.
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
        // an owner may close what is not in use
        if !jobs.is_empty() {
            self.retry_later(state, slot, now);
        }
        for job in jobs {
            self.fail_or_repeat(state, shared, job);
        }
    }

    /// An owner that is started anew is back within moments; one that is not
    /// there is not looked for all the time.
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
        // the next tick is another one now
        self.stir();
    }

    /// The connection broke.
    fn fail_or_repeat(&self, state: &mut State, shared: &Shared, job: Job) {
        match job {
            Job::Purge { sent, .. } if sent < PURGE_SENT && state.asked.try_reserve(1).is_ok() => {
                state.asked.push_back(job);
            }
            job => self.fail(state, shared, job),
        }
    }

    /// The owner did not answer.
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
            // it may have arrived, or not: others are not to wait for it
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
