//! The owner client over connections (docs/owner-protocol.md). The host opens the connections and
//! carries the bytes.
//!
//! The standing event stream reports until when the process may send entries from its memory, and
//! what was purged. The other connections carry requests; requests at the same time are sent
//! together, in one write. A lookup leads the flight of its key until the owner replies, so that
//! all requests for the key wait for one reply; a found entry is stored in the hot tier. A failure
//! or a timeout fails open: the request is sent to the node.

mod background_queue;
pub mod callout;
mod decode_response;
mod dispatch;
mod event_stream;
mod http1;
mod message;
mod owner_health;
mod owner_job;
mod purge;
mod replies;
mod request_queue;
mod unclaimed_replies;

use crate::hash_keys::HashMap;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use self::background_queue::OwnerBackgroundQueue;
use self::decode_response::resolve_lookup_as_miss;
use self::event_stream::EventStreamParser;
pub use self::http1::{serialize_owner_request as request_text, OwnerReplyHead};
use self::http1::{OwnerReadResult, OwnerResponseReader, RequestWriter};
pub use self::message::{
    ChainStateNumber, LeaseRequestTerms, OwnerProtocolError, OwnerReply, OwnerRequest,
};
pub use self::owner_health::OwnerHealthChange;
use self::owner_job::{LookupJob, QueuedOwnerRequest};
pub use self::purge::{
    problem_document, purge_request_body as purge_request, OwnerAdminReply, PurgeQueryError,
};
use self::unclaimed_replies::UnclaimedOwnerReplies;
use super::chain::NamespaceChains;
use super::process::owner_client::OwnerClient;
use super::process::wake::{EventLoopWaker, WaitingRequestId};
use super::process::ProcessCacheState;
use super::{CacheKey, CacheNamespace};
use crate::lock::lock_ignoring_poison;
use crate::time_constants::{link_silence, lookup_timeout, memory_lease};

/// Number of the event stream's connection.
const EVENTS: usize = 0;

/// Time after a failure until a connection is retried, in milliseconds.
const RETRY: u64 = 20;

/// Number of failures of the event stream after which it is retried less often.
const RETRIES: u32 = 50;

/// Time between these later retries of the event stream, in milliseconds.
const RETRY_SLOW: u64 = 250;

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
const MIN_UNOWNED_GENERATION: u64 = 1 << 63;

/// The number of connections, the lookup timeout and the body length of a link.
#[derive(Clone, Copy, Debug)]
pub struct OwnerLinkLimits {
    /// Number of connections besides the event stream.
    pub connections: usize,
    /// Timeout of a lookup in milliseconds. For a reply that has begun it is the timeout of the
    /// next bytes.
    pub deadline: u64,
    /// Maximum length of a body in bytes; longer ones are refused.
    pub max_body: usize,
}

impl Default for OwnerLinkLimits {
    fn default() -> Self {
        Self {
            connections: 8,
            deadline: lookup_timeout(),
            max_body: 1 << 30,
        }
    }
}

/// The next action that the host has to carry out on one of the link's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkConnectionAction {
    /// Open the connection, then call [`OwnerLink::handle_connection_opened`].
    Connect(usize),
    /// Call [`OwnerLink::pass_unwritten_pieces`] until nothing is left.
    Write(usize),
    /// Close the connection.
    Close(usize),
    /// Call [`OwnerLink::send_and_expire_requests`].
    Tick,
}

/// The owner client over connections that the host opens and drives. Any thread may send requests;
/// one thread drives the connections.
#[derive(Debug)]
pub struct OwnerLink {
    bounds: OwnerLinkLimits,
    /// Timeout of lookups in milliseconds: the value in the limits, or a later one.
    lookup_deadline: AtomicU64,
    /// Name of the process for the owner.
    process: String,
    state: Mutex<LinkState>,
    /// The chains that the owner follows, as far as it has reported them.
    pub chains: NamespaceChains,
    /// Time until which entries in memory may be sent, in milliseconds of the machine's monotonic
    /// clock.
    until: AtomicU64,
    /// Generation of the last purge that is in effect here.
    generation: AtomicU64,
    /// Whether requests were queued since the last tick.
    stirred: AtomicBool,
    /// Waker of the thread that drives the connections, if it waits for one.
    driver: Option<(Arc<dyn EventLoopWaker>, usize)>,
}

#[derive(Debug, Default)]
struct LinkState {
    slots: Vec<OwnerConnection>,
    /// Requests that an exchange waits for.
    requests: VecDeque<QueuedOwnerRequest>,
    /// Requests that no exchange waits for.
    favours: OwnerBackgroundQueue,
    needs: VecDeque<LinkConnectionAction>,
    /// Lookups of keys that another process fetches.
    pending: HashMap<CacheKey, LookupJob>,
    claims: UnclaimedOwnerReplies,
    events: EventStreamParser,
    /// Whether the owner has sent `hello`.
    up: bool,
    /// Whether any owner has sent `hello`.
    was_up: bool,
    /// Whether no owner exists, as far as is known.
    is_alone: bool,
    /// Chains that the owner has reported since its `hello`, until it has reported all.
    reported_chains: Option<Vec<CacheNamespace>>,
    /// Number of times that the event stream has ended since then.
    failures: u32,
    /// Health of the owner, as reported to the host.
    known: owner_health::OwnerHealth,
}

/// A connection and its requests.
#[derive(Debug)]
struct OwnerConnection {
    stage: ConnectionState,
    /// The request that it is opened for, or the requests without a reply, in order.
    jobs: VecDeque<QueuedOwnerRequest>,
}

#[derive(Debug)]
enum ConnectionState {
    Closed {
        /// Earliest time of the next attempt.
        retry_at: u64,
    },
    Connecting,
    Open(Box<OpenConnection>),
}

#[derive(Debug)]
struct OpenConnection {
    out: RequestWriter,
    reader: OwnerResponseReader,
    /// Time of the last received bytes, or of the last request.
    since: u64,
}

/// Requests that are sent together over a connection.
#[derive(Default)]
struct PipelinedOwnerRequests {
    out: RequestWriter,
    jobs: VecDeque<QueuedOwnerRequest>,
}

impl OwnerLink {
    /// Creates the link of the process that the owner knows as `process`: at most 64 letters,
    /// digits, `-`, `.` and `_`, and a new name for each process.
    pub fn new(process: String, bounds: OwnerLinkLimits) -> Self {
        let slots = (0..=bounds.connections).map(|_| OwnerConnection {
            stage: ConnectionState::Closed { retry_at: 0 },
            jobs: VecDeque::new(),
        });
        Self {
            lookup_deadline: AtomicU64::new(bounds.deadline),
            bounds,
            process,
            state: Mutex::new(LinkState {
                slots: slots.collect(),
                ..LinkState::default()
            }),
            chains: NamespaceChains::default(),
            until: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            // the first tick opens the event stream
            stirred: AtomicBool::new(true),
            driver: None,
        }
    }

    /// Creates the link of this process, which has entries of at most `max_entry` bytes.
    pub fn link_for_process(max_entry: u64) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let started = since.unwrap_or_default().as_nanos();
        let name = format!("{}-{started:x}", std::process::id());
        let bounds = OwnerLinkLimits {
            // the entry, and its head
            max_body: usize::try_from(max_entry).map_or(usize::MAX, |most| most + (64 << 10)),
            ..OwnerLinkLimits::default()
        };
        Self::new(name, bounds)
    }

    /// Sets the timeout of later lookups in milliseconds.
    pub fn set_lookup_timeout(&self, deadline: u64) {
        self.lookup_deadline.store(deadline, Ordering::Relaxed);
    }

    /// Returns the deadline of a lookup that begins now.
    fn lookup_deadline(&self, now: u64) -> u64 {
        now.saturating_add(self.lookup_deadline.load(Ordering::Relaxed))
    }

    /// Sets the waker of the thread that drives the connections: it is woken as `id` when a request
    /// is queued on any thread, and [`next_connection_action`](Self::next_connection_action) has an action then. A host
    /// that calls
    /// [`next_connection_action`](Self::next_connection_action) after each call of its only thread needs no waker.
    #[must_use]
    pub fn attach_driver_waker(self, waker: Arc<dyn EventLoopWaker>, id: usize) -> Self {
        Self {
            driver: Some((waker, id)),
            ..self
        }
    }

    /// Returns a change of the owner's health for the log. The host calls it after each
    /// [`send_and_expire_requests`](Self::send_and_expire_requests).
    pub fn take_owner_health_change(&self, now: u64) -> Option<OwnerHealthChange> {
        let mut state = lock_ignoring_poison(&self.state);
        let is_up = state.up;
        state.known.record_owner_reachability(is_up, now)
    }

    fn mark_queued(&self) {
        let was_stirred = self.stirred.swap(true, Ordering::AcqRel);
        if let (Some((waker, id)), false) = (&self.driver, was_stirred) {
            waker.wake(*id);
        }
    }

    /// Removes a waiter of [`queue_purge`](Self::queue_purge) that no longer waits and must not be
    /// woken.
    pub fn forget_waiter(&self, gone: WaitingRequestId) {
        let mut state = lock_ignoring_poison(&self.state);
        state.claims.take_admin_reply(gone);
        state.forget_waiter(gone);
    }

    /// Sends a purge, with a body of [`purge_request`]. `waiter` is woken when the purge is in
    /// effect everywhere or has failed, and [`take_admin_reply`](Self::take_admin_reply)s the
    /// reply. Returns `false` if memory is refused.
    pub fn queue_purge(&self, body: String, waiter: WaitingRequestId, now: u64) -> bool {
        let mut state = lock_ignoring_poison(&self.state);
        if state.requests.try_reserve(1).is_err() {
            return false;
        }
        let patience = if state.up { PURGE } else { PURGE_PATIENCE };
        state.requests.push_back(QueuedOwnerRequest::Purge {
            body,
            waiter: Some(waiter),
            due: now.saturating_add(patience),
            sent: 0,
        });
        self.mark_queued();
        true
    }

    /// Queries the owner's status, which `waiter` [`take_admin_reply`](Self::take_admin_reply)s.
    /// Returns `false` if the owner is not connected.
    pub fn send_status_query(&self, waiter: WaitingRequestId, now: u64) -> bool {
        let mut state = lock_ignoring_poison(&self.state);
        if !state.up || state.requests.try_reserve(1).is_err() {
            return false;
        }
        let due = now.saturating_add(STATUS);
        state
            .requests
            .push_back(QueuedOwnerRequest::Status { waiter, due });
        self.mark_queued();
        true
    }

    /// Returns the reply to a purge or a status query, or `None` if there is none.
    pub fn take_admin_reply(&self, waiter: WaitingRequestId) -> Option<OwnerAdminReply> {
        lock_ignoring_poison(&self.state)
            .claims
            .take_admin_reply(waiter)
    }

    /// Returns the next action of the host, which calls it until `None` after each other call.
    /// `now` is in milliseconds of the host's clock, here and everywhere.
    pub fn next_connection_action(&self) -> Option<LinkConnectionAction> {
        if self.stirred.load(Ordering::Acquire) {
            return Some(LinkConnectionAction::Tick);
        }
        lock_ignoring_poison(&self.state).needs.pop_front()
    }

    /// Reports that a connection was opened, or could not be opened.
    pub fn handle_connection_opened(
        &self,
        shared: &ProcessCacheState,
        slot: usize,
        is_open: bool,
        now: u64,
    ) {
        let mut state = lock_ignoring_poison(&self.state);
        let Some(place) = state.slots.get_mut(slot) else {
            return;
        };
        if !matches!(place.stage, ConnectionState::Connecting) {
            return;
        }
        if !is_open {
            self.handle_closed(&mut state, shared, slot, now);
            return;
        }
        let first = place.jobs.pop_front();
        place.stage = ConnectionState::Open(Box::new(OpenConnection {
            out: RequestWriter::default(),
            reader: OwnerResponseReader::new(self.bounds.max_body),
            since: now,
        }));
        if slot == EVENTS {
            state.events = EventStreamParser::default();
        }
        let mut burst = PipelinedOwnerRequests::default();
        if let Some(job) = first {
            self.add_job_to_request_batch(&mut state, shared, &mut burst, job, now);
        }
        state.assign_batch_to_connection(slot, burst, now);
        self.assign_jobs_to_connections(&mut state, shared, now);
    }

    /// Reports that no owner listens: a connection was refused that was attempted after
    /// `monotonic`, in milliseconds of `CLOCK_MONOTONIC`. It is called before
    /// [`handle_connection_opened`](Self::handle_connection_opened). Entries in memory may be sent for a while
    /// then, although no owner permits it: no owner could report a purge as done.
    pub fn handle_connection_refused(&self, shared: &ProcessCacheState, monotonic: u64) {
        let mut state = lock_ignoring_poison(&self.state);
        if state.up {
            return;
        }
        if !state.is_alone {
            state.is_alone = true;
            // no owner reports their changes
            for (_, chain) in self.chains.snapshot_chains() {
                chain.discard_owner_state();
            }
        }
        if !self.permits_sending_from_memory(monotonic) {
            // an owner may have existed meanwhile, and purged
            let generation = self.purge_generation().max(MIN_UNOWNED_GENERATION) + 1;
            self.generation.store(generation, Ordering::Release);
            shared.purge_hot_tier(None);
        }
        // an owner that has just begun to listen reports a purge as done only after that time
        let until = monotonic.saturating_add(memory_lease());
        self.until.fetch_max(until, Ordering::AcqRel);
    }

    /// Passes the pieces that have to be written to a connection to `write`, which returns the
    /// number of bytes that it has written. There are no pieces if nothing has to be written.
    pub fn pass_unwritten_pieces(
        &self,
        slot: usize,
        write: impl FnOnce(&mut dyn Iterator<Item = &[u8]>) -> usize,
    ) {
        let mut state = lock_ignoring_poison(&self.state);
        if let Some(open) = state.find_open_connection(slot) {
            let written = write(&mut open.out.unwritten_pieces());
            open.out.mark_bytes_written(written);
        }
    }

    /// Passes a buffer for bytes of a connection to `take`. Returns `false` if the connection has
    /// to be closed.
    pub fn pass_read_buffer(&self, slot: usize, take: impl FnOnce(&mut [MaybeUninit<u8>])) -> bool {
        let mut state = lock_ignoring_poison(&self.state);
        let room = state
            .find_open_connection(slot)
            .and_then(|open| open.reader.reserve_read_buffer());
        room.map(take).is_some()
    }

    /// Reports bytes that were read into the buffer of [`pass_read_buffer`](Self::pass_read_buffer).
    ///
    /// # Safety
    /// The bytes are initialized, and `read_buffer` was not called since.
    #[allow(unsafe_code)]
    pub unsafe fn report_bytes_read(
        &self,
        shared: &ProcessCacheState,
        slot: usize,
        bytes: usize,
        now: u64,
    ) {
        let mut state = lock_ignoring_poison(&self.state);
        let Some(open) = state.find_open_connection(slot) else {
            return;
        };
        open.since = now;
        // SAFETY: the function's contract.
        let mut read = unsafe { open.reader.handle_read_bytes(bytes) };
        while self.handle_received_message(&mut state, shared, slot, read, now) {
            let Some(open) = state.find_open_connection(slot) else {
                break;
            };
            read = open.reader.next();
        }
        self.assign_jobs_to_connections(&mut state, shared, now);
    }

    /// Handles the input of a connection. Returns whether there may be more.
    fn handle_received_message(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        slot: usize,
        read: Result<OwnerReadResult, OwnerProtocolError>,
        now: u64,
    ) -> bool {
        let Some(OwnerConnection {
            stage: ConnectionState::Open(open),
            jobs,
        }) = state.slots.get_mut(slot)
        else {
            return false;
        };
        match read {
            Ok(OwnerReadResult::More) => {
                // a reply that has begun is not slower than the node's, as long as its bytes arrive
                if let Some(job) = jobs.front_mut().filter(|_| open.reader.is_in_body()) {
                    job.extend_lookup_deadline(self.lookup_deadline(now));
                }
                false
            }
            Ok(OwnerReadResult::Events(data)) if slot == EVENTS => {
                self.receive_owner_events(state, shared, &data, now);
                true
            }
            Ok(OwnerReadResult::Response(response)) if slot != EVENTS => match jobs.pop_front() {
                Some(job) => {
                    self.handle_reply(state, shared, job, response, now);
                    true
                }
                // the host closes it
                None => false,
            },
            Ok(_) | Err(OwnerProtocolError) => {
                self.close_connection(state, shared, slot, now);
                false
            }
        }
    }

    /// Reports that a connection was closed.
    pub fn connection_closed(&self, shared: &ProcessCacheState, slot: usize, now: u64) {
        let mut state = lock_ignoring_poison(&self.state);
        self.handle_closed(&mut state, shared, slot, now);
        self.assign_jobs_to_connections(&mut state, shared, now);
    }

    /// Sends queued requests, and ends those that have timed out. Returns the milliseconds until
    /// the next call if nothing else happens.
    pub fn send_and_expire_requests(&self, shared: &ProcessCacheState, now: u64) -> u64 {
        self.stirred.store(false, Ordering::Release);
        let mut state = lock_ignoring_poison(&self.state);
        self.expire_late_owner_jobs(&mut state, shared, now);
        for slot in 0..state.slots.len() {
            let is_waited_for = match state.slots[slot].jobs.front() {
                Some(QueuedOwnerRequest::Purge { .. }) => false,
                Some(_) => true,
                None => slot == EVENTS,
            };
            let is_silent = |open: &mut OpenConnection| now >= open.since + link_silence();
            if is_waited_for && state.find_open_connection(slot).is_some_and(is_silent) {
                self.close_connection(&mut state, shared, slot, now);
            }
        }
        if matches!(state.slots[EVENTS].stage, ConnectionState::Closed { retry_at } if retry_at <= now)
        {
            state.queue_connect_for_owner_request(EVENTS, QueuedOwnerRequest::Listen);
        }
        self.assign_jobs_to_connections(&mut state, shared, now);
        state.next_tick(now)
    }

    /// Queues a lookup again.
    fn retry_lookup(&self, state: &mut LinkState, shared: &ProcessCacheState, look_up: LookupJob) {
        if state.requests.try_reserve(1).is_ok() {
            state
                .requests
                .push_back(QueuedOwnerRequest::LookUp(look_up));
        } else {
            resolve_lookup_as_miss(&mut state.favours, shared, look_up);
        }
    }

    fn close_connection(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        slot: usize,
        now: u64,
    ) {
        state.needs.push_back(LinkConnectionAction::Close(slot));
        self.handle_closed(state, shared, slot, now);
    }

    fn handle_closed(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        slot: usize,
        now: u64,
    ) {
        let Some(place) = state.slots.get_mut(slot) else {
            return;
        };
        if matches!(place.stage, ConnectionState::Closed { .. }) {
            return;
        }
        place.stage = ConnectionState::Closed { retry_at: now };
        let jobs = std::mem::take(&mut place.jobs);
        // an owner may close an idle connection
        if !jobs.is_empty() {
            self.schedule_reconnect(state, slot, now);
        }
        for job in jobs {
            self.fail_or_retry_job(state, shared, job);
        }
    }

    /// Delays the next attempt: an owner that is restarted is back within moments, and an absent
    /// one is not polled all the time.
    fn schedule_reconnect(&self, state: &mut LinkState, slot: usize, now: u64) {
        let mut wait = RETRY;
        if slot == EVENTS {
            state.failures = state.failures.saturating_add(1);
            if state.failures > RETRIES {
                wait = RETRY_SLOW;
            }
        }
        if let Some(place) = state.slots.get_mut(slot) {
            let retry_at = now + wait;
            place.stage = ConnectionState::Closed { retry_at };
        }
        // the next tick is due earlier now
        self.mark_queued();
    }

    /// Repeats or fails a request whose connection broke.
    fn fail_or_retry_job(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        job: QueuedOwnerRequest,
    ) {
        match job {
            QueuedOwnerRequest::Purge { sent, .. }
                if sent < PURGE_SENT && state.requests.try_reserve(1).is_ok() =>
            {
                state.requests.push_back(job);
            }
            job => self.fail_owner_job(state, shared, job),
        }
    }

    /// Fails a request without a reply.
    fn fail_owner_job(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        job: QueuedOwnerRequest,
    ) {
        match job {
            QueuedOwnerRequest::LookUp(look_up) => {
                resolve_lookup_as_miss(&mut state.favours, shared, look_up);
            }
            QueuedOwnerRequest::LookUps { waiter, .. }
            | QueuedOwnerRequest::Status { waiter, .. } => {
                shared.wake_waiters([waiter]);
            }
            QueuedOwnerRequest::Purge {
                waiter: Some(waiter),
                sent,
                ..
            } => {
                if sent == 0 {
                    state
                        .claims
                        .insert_admin_reply(waiter, purge::unreachable_reply());
                }
                shared.wake_waiters([waiter]);
            }
            QueuedOwnerRequest::Listen => {
                state.up = false;
                for (_, look_up) in std::mem::take(&mut state.pending) {
                    resolve_lookup_as_miss(&mut state.favours, shared, look_up);
                }
                for job in std::mem::take(&mut state.requests) {
                    self.fail_or_retry_job(state, shared, job);
                }
                state.favours.clear();
            }
            // the entry may have arrived or not: other processes must not wait for it
            QueuedOwnerRequest::Store { key, .. } if state.up => {
                state
                    .favours
                    .push_owner_job(QueuedOwnerRequest::ReleaseLease(key));
            }
            QueuedOwnerRequest::Store { .. }
            | QueuedOwnerRequest::ReleaseLease(_)
            | QueuedOwnerRequest::Acknowledge(_)
            | QueuedOwnerRequest::ShowBlock(..)
            | QueuedOwnerRequest::Expired(_) => {}
            QueuedOwnerRequest::Purge { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
