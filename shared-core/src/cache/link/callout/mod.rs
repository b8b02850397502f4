//! The callout client: the owner client of a process that has no connections of its own. Each
//! request is a callout of its host, which passes the reply back.
//!
//! There is no event stream: the state of purges and chains is known from replies, and may have
//! changed since. So no entry is sent before the owner was queried for it *after* the request began
//! to wait. A follower that joins a flight later waits for one more query, on behalf of all such
//! followers; and a response that a request has fetched is shared when the owner has stored it. No
//! entry is sent from memory
//! ([`permits_sending_from_memory`](OwnerClient::permits_sending_from_memory) is `false`).
//!
//! ```text
//!  queued ──▶ next ──▶ in flight ──▶ answered: found     to those who joined before it was sent
//!    ▲                    │                    granted   one of them leads
//!    │ later followers    │                    pending   the lookup is sent again, and the owner
//!    │                    │                              waits (a long poll)
//!    └────────────────────┴── failed, late ────────────▶ the node
//! ```

mod background_queue;
mod circuit_breaker;
mod decode_response;
pub mod message;
mod owner_job;
mod owner_state;
mod query_queue;
mod replies;

use crate::hash_keys::HashMap;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::Mutex;

use self::background_queue::OwnerBackgroundQueue;
use self::circuit_breaker::CircuitBreaker;
use self::decode_response::resolve_lookup_as_miss;
use self::message::{LeaseRequestTerms, OwnerReply, OwnerRequest};
use self::owner_job::{LookupJob, QueuedOwnerRequest};
use self::owner_state::{OwnerState, OwnerStateAtQuery};
use super::owner_health::{self, OwnerHealthChange, OwnerReachability};
use super::purge;
use super::unclaimed_replies::UnclaimedOwnerReplies;
use super::PURGE_TIMEOUT_MS;
use crate::cache::chain::NamespaceChains;
use crate::cache::process::flights::FlightOutcome;
use crate::cache::process::owner_client::{OwnerClient, PendingFlightResponse};
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::process::ProcessCacheState;
use crate::cache::{CacheKey, CacheNamespace};
use crate::lock::lock_ignoring_poison;
use crate::time_constants::lookup_timeout;

/// The timeouts of a callout client, and the numbers of callouts and bytes that it may have in
/// flight.
#[derive(Clone, Copy, Debug)]
pub struct CalloutLimits {
    /// Timeout of a lookup in milliseconds.
    pub deadline: u64,
    /// Duration of a long poll, in which the owner waits for the fetch of another process, in
    /// milliseconds.
    pub slice: u64,
    /// Maximum number of callouts in flight; beyond it requests are sent to the node at once.
    pub most: usize,
    /// Maximum number of long polls among them.
    pub most_waits: usize,
    /// Maximum number of bytes of entries that are being stored or wait for it.
    pub most_bytes: u64,
}

impl Default for CalloutLimits {
    fn default() -> Self {
        Self {
            deadline: lookup_timeout(),
            slice: 1_000,
            most: 256,
            most_waits: 64,
            most_bytes: 16 << 20,
        }
    }
}

/// For how long a lease is asked for: nobody can tell when a process without an
/// event stream has gone. Milliseconds.
const LEASE: u64 = 10_000;

/// How much later than it should an answer may come that the owner waits for.
/// Milliseconds.
const MARGIN: u64 = 500;

/// What nobody waits for may take so long. Milliseconds.
const FAVOUR: u64 = 1_500;

/// Who waits for what was fetched waits so many times the deadline until the owner
/// has taken it, and no longer than a favour takes.
const LANDING: u64 = 5;

/// An answer that comes after its time is heeded for so long. Milliseconds.
const GONE: u64 = 10_000;

/// An owner that does not answer is asked so often for nothing. Milliseconds.
const GREET: u64 = 1_000;

/// One that may be of before a purge is asked for so often once more.
const AGAIN: u8 = 2;

/// The identity of a callout, which the host passes back with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CalloutId(u64);

/// A request to the owner that the host has to send as an HTTP callout.
#[derive(Debug)]
pub struct OwnerCallout {
    /// Identity that the host passes back with the reply.
    pub ticket: CalloutId,
    /// Request to the owner.
    pub message: OwnerRequest,
    /// Timeout in milliseconds, after which the callout has
    /// [failed](OwnerCalloutClient::callout_failed).
    pub timeout: u64,
}

/// The owner client over HTTP callouts of a proxy-wasm host. Any thread may send requests and pass
/// replies.
#[derive(Debug)]
pub struct OwnerCalloutClient {
    bounds: CalloutLimits,
    /// How the owner knows the process.
    process: String,
    state: Mutex<CalloutState>,
    chains: NamespaceChains,
    /// The last purge that is known.
    generation: AtomicU64,
}

#[derive(Debug)]
struct CalloutState {
    /// Queries that an exchange waits for.
    queries: VecDeque<OwnerCalloutQuery>,
    /// Requests that no exchange waits for.
    favours: OwnerBackgroundQueue,
    under_way: HashMap<CalloutId, InFlightCallout>,
    last: CalloutId,
    /// Nothing has to be given up before that.
    next_due: u64,
    claims: UnclaimedOwnerReplies,
    known: OwnerState,
    pulse: CircuitBreaker,
    news: owner_health::OwnerHealth,
}

/// A question.
#[derive(Debug)]
struct OwnerCalloutQuery {
    job: QueuedOwnerRequest,
    /// The owner is to tell of the chain behind that namespace.
    namespace: Option<CacheNamespace>,
    /// Those who wait for what is stored with it, or is not.
    landing: Option<PendingFlightResponse>,
    /// If another process fetches it the owner is to wait for that.
    waits: bool,
    /// How often it was asked before.
    again: u8,
    /// Who asks for it is called now: it may be asked in its name.
    is_own: bool,
}

/// A call that was made.
#[derive(Debug)]
struct InFlightCallout {
    work: OwnerCalloutQuery,
    /// So many had joined a flight when it was made: it answers their questions.
    joined: u64,
    /// When it was made, and what was known.
    sent: u64,
    heard: OwnerStateAtQuery,
    /// Then it is given up.
    due: u64,
}

impl OwnerCalloutQuery {
    fn new(job: QueuedOwnerRequest, namespace: Option<CacheNamespace>) -> Self {
        Self {
            job,
            namespace,
            landing: None,
            waits: false,
            again: 0,
            is_own: false,
        }
    }

    /// What an exchange asks for itself, and does not wait for when it has gone.
    fn query_for_exchange(job: QueuedOwnerRequest, namespace: Option<CacheNamespace>) -> Self {
        Self {
            is_own: true,
            ..Self::new(job, namespace)
        }
    }

    /// What nobody waits for.
    fn query_for_background_job(job: QueuedOwnerRequest) -> Self {
        let namespace = match &job {
            QueuedOwnerRequest::Store { about, .. } => Some(about.namespace),
            QueuedOwnerRequest::ShowBlock(namespace, _) => Some(*namespace),
            _ => None,
        };
        Self::new(job, namespace)
    }

    /// When it is given up, if it is sent now.
    fn owner_query_deadline(&self, bounds: &CalloutLimits, now: u64) -> u64 {
        match &self.job {
            QueuedOwnerRequest::LookUp(_) if self.waits => now + bounds.slice + MARGIN,
            QueuedOwnerRequest::LookUp(LookupJob { due, .. })
            | QueuedOwnerRequest::LookUps { due, .. } => *due,
            QueuedOwnerRequest::Purge { .. } => now + PURGE_TIMEOUT_MS,
            _ if self.landing.is_some() => now + FAVOUR.min(bounds.deadline * LANDING),
            _ => now + FAVOUR,
        }
    }

    /// For how long the host is to wait for the answer.
    fn callout_timeout_ms(&self, due: u64, now: u64) -> u64 {
        match self.landing {
            Some(_) => FAVOUR,
            None => due.saturating_sub(now),
        }
    }
}

impl OwnerCalloutClient {
    /// Creates the client of the process that the owner knows as `process`: at most 64 letters,
    /// digits, `-`, `.` and `_`, and a new name for each process.
    pub fn new(process: String, bounds: CalloutLimits) -> Self {
        Self {
            bounds,
            process,
            state: Mutex::new(CalloutState {
                queries: VecDeque::new(),
                favours: OwnerBackgroundQueue::with_capacity_bytes(bounds.most_bytes),
                under_way: HashMap::default(),
                last: CalloutId(0),
                next_due: u64::MAX,
                claims: UnclaimedOwnerReplies::default(),
                known: OwnerState::default(),
                pulse: CircuitBreaker::default(),
                news: owner_health::OwnerHealth::default(),
            }),
            chains: NamespaceChains::default(),
            generation: AtomicU64::new(0),
        }
    }

    /// Queues a request only for the purge generation in its reply. Without it, the first lookup
    /// would learn of an unknown purge from its own reply, and be repeated.
    pub fn enqueue_generation_query(&self) {
        // a lease that nobody has is given back
        lock_ignoring_poison(&self.state)
            .favours
            .push_owner_job(QueuedOwnerRequest::ReleaseLease(CacheKey::default()));
    }

    /// Returns the next callout to be made. The host calls it until `None` after each other call,
    /// and at the time of [`ms_until_next_tick`](Self::ms_until_next_tick). `now` is in milliseconds of the lookups'
    /// clock, here and everywhere; any monotonic clock will do.
    pub fn next_callout(&self, shared: &ProcessCacheState, now: u64) -> Option<OwnerCallout> {
        let mut state = lock_ignoring_poison(&self.state);
        state.pulse.advance_clock(now);
        if now >= state.next_due {
            state.expire_late_owner_queries(shared, now);
        }
        let greets = state.next_idle_probe_at().is_some_and(|at| now >= at);
        // not from the background queue, which waits while the owner is down
        if greets && state.queries.try_reserve(1).is_ok() {
            let job = QueuedOwnerRequest::ReleaseLease(CacheKey::default());
            state
                .queries
                .push_back(OwnerCalloutQuery::query_for_background_job(job));
        }
        loop {
            let work = state.take_next_query(&self.bounds)?;
            if let Some(call) = self.begin_callout(&mut state, shared, work, now) {
                return Some(call);
            }
        }
    }

    /// Returns the next callout that may be made in the context of the present exchange, and
    /// [ends](Self::abandon_callout) with it: a request of its own since it was called, or, if it was
    /// the last to follow a flight, the repeated lookup of that flight.
    pub fn next_callout_for_stream(
        &self,
        shared: &ProcessCacheState,
        waiter: WaitingRequestId,
        now: u64,
    ) -> Option<OwnerCallout> {
        let mut state = lock_ignoring_poison(&self.state);
        state.pulse.advance_clock(now);
        loop {
            let work = state.take_own(shared, waiter)?;
            if let Some(call) = self.begin_callout(&mut state, shared, work, now) {
                return Some(call);
            }
        }
    }

    /// Makes all queued requests callouts of the root context, by
    /// [`next_callout`](Self::next_callout).
    pub fn assign_queries_to_root(&self) {
        for work in &mut lock_ignoring_poison(&self.state).queries {
            work.is_own = false;
        }
    }

    /// Returns the milliseconds until the next call of [`next_callout`](Self::next_callout) if
    /// nothing else happens, as callouts may be lost. `None` if there are none.
    pub fn ms_until_next_tick(&self, now: u64) -> Option<u64> {
        let state = lock_ignoring_poison(&self.state);
        let due = state
            .next_due
            .min(state.next_idle_probe_at().unwrap_or(u64::MAX));
        (due < u64::MAX).then(|| due.saturating_sub(now).max(1))
    }

    /// Passes the reply to a callout.
    pub fn callout_answered(
        &self,
        shared: &ProcessCacheState,
        ticket: CalloutId,
        answer: OwnerReply,
        now: u64,
    ) {
        let mut state = lock_ignoring_poison(&self.state);
        state.pulse.advance_clock(now);
        if let Some(under_way) = state.under_way.remove(&ticket) {
            self.handle_reply(&mut state, shared, under_way, answer, now);
        }
    }

    /// Reports that a callout has timed out or was cut off.
    pub fn callout_failed(&self, shared: &ProcessCacheState, ticket: CalloutId, now: u64) {
        let mut state = lock_ignoring_poison(&self.state);
        state.pulse.advance_clock(now);
        if let Some(InFlightCallout { work, .. }) = state.under_way.remove(&ticket) {
            state.fail_query(shared, work);
        }
    }

    /// Reports that a callout has ended with its exchange, so that nothing is known of the owner's
    /// health.
    pub fn abandon_callout(&self, shared: &ProcessCacheState, ticket: CalloutId, now: u64) {
        let mut state = lock_ignoring_poison(&self.state);
        state.pulse.advance_clock(now);
        if let Some(InFlightCallout { work, .. }) = state.under_way.remove(&ticket) {
            state.pulse.record_unknown_outcome();
            state.abandon_query(shared, work);
        }
    }

    /// Reports that a callout could not be made, or found no upstream: it has not arrived.
    pub fn callout_rejected(&self, shared: &ProcessCacheState, ticket: CalloutId, now: u64) {
        let mut state = lock_ignoring_poison(&self.state);
        state.pulse.advance_clock(now);
        state.pulse.is_another = false;
        if let Some(InFlightCallout { work, .. }) = state.under_way.remove(&ticket) {
            if let QueuedOwnerRequest::Purge {
                waiter: Some(waiter),
                ..
            } = work.job
            {
                state
                    .claims
                    .insert_admin_reply(waiter, purge::unreachable_reply());
            }
            state.fail_query(shared, work);
        }
    }

    /// Returns a change of the owner's health for the log; the host calls it periodically.
    pub fn take_owner_health_change(&self, now: u64) -> Option<OwnerHealthChange> {
        let mut state = lock_ignoring_poison(&self.state);
        let reachability = match (state.pulse.is_open(), state.pulse.is_another) {
            (false, _) => OwnerReachability::Reachable,
            (true, true) => OwnerReachability::OtherVersion,
            (true, false) => OwnerReachability::Silent,
        };
        state.news.record_owner_reachability(reachability, now)
    }

    /// What is to be sent for it; `None`: it can't be.
    fn begin_callout(
        &self,
        state: &mut CalloutState,
        shared: &ProcessCacheState,
        work: OwnerCalloutQuery,
        now: u64,
    ) -> Option<OwnerCallout> {
        let due = work.owner_query_deadline(&self.bounds, now);
        let heard = OwnerStateAtQuery {
            generation: self.purge_generation(),
            chain: work.namespace.and_then(|of| state.known.get(&of)),
        };
        let message = self.build_owner_request(&work, &heard, now);
        let (Some(message), true, Ok(())) = (message, due > now, state.under_way.try_reserve(1))
        else {
            state.release_query_waiters(shared, work);
            return None;
        };
        let timeout = work.callout_timeout_ms(due, now);
        let under_way = InFlightCallout {
            joined: shared.flights.total_follower_joins(),
            sent: now,
            work,
            heard,
            due,
        };
        state.last = CalloutId(state.last.0 + 1);
        state.under_way.insert(state.last, under_way);
        state.is_due(due);
        Some(OwnerCallout {
            ticket: state.last,
            message,
            timeout,
        })
    }

    fn build_owner_request(
        &self,
        work: &OwnerCalloutQuery,
        heard: &OwnerStateAtQuery,
        now: u64,
    ) -> Option<OwnerRequest> {
        let message = match &work.job {
            QueuedOwnerRequest::LookUp(look_up) => {
                let lease = LeaseRequestTerms {
                    process: &self.process,
                    milliseconds: LEASE,
                    wait: if work.waits { self.bounds.slice } else { 0 },
                };
                OwnerRequest::lookup_request(
                    &look_up.key,
                    look_up.requests_lease().then_some(lease),
                )
            }
            job => job.to_owner_request(&self.process, now)?,
        };
        Some(match &work.namespace {
            Some(namespace) => {
                message.with_chain_query(namespace, heard.known_chain_state_number())
            }
            None => message,
        })
    }
}

impl CalloutState {
    /// When an owner that has failed, and is asked for nothing, is asked again: operators are
    /// to hear of it without any client.
    fn next_idle_probe_at(&self) -> Option<u64> {
        let is_idle = self.under_way.is_empty() && self.queries.is_empty();
        self.pulse
            .last_failure_at()
            .filter(|_| is_idle)
            .map(|at| at + GREET)
    }

    /// Whether there is room for what somebody waits for.
    fn has_query_room(&mut self, bounds: &CalloutLimits) -> bool {
        self.under_way.len() + self.queries.len() < bounds.most
            && self.queries.try_reserve(1).is_ok()
    }

    /// Queues a query; there [is room](Self::has_query_room).
    fn enqueue_query(&mut self, work: OwnerCalloutQuery, due: u64) {
        self.queries.push_back(work);
        self.is_due(due);
    }

    fn is_due(&mut self, due: u64) {
        self.next_due = self.next_due.min(due);
    }

    /// What is to be sent next.
    fn take_next_query(&mut self, bounds: &CalloutLimits) -> Option<OwnerCalloutQuery> {
        if let Some(work) = self.queries.pop_front() {
            return Some(work);
        }
        // half of the calls are for those who wait
        let has_room = self.under_way.len() < bounds.most / 2
            && self.pending_store_bytes() < bounds.most_bytes;
        let favour =
            (has_room && !self.pulse.is_open()).then(|| self.favours.pop_lease_or_oldest());
        favour
            .flatten()
            .map(OwnerCalloutQuery::query_for_background_job)
    }

    fn take_own(
        &mut self,
        shared: &ProcessCacheState,
        waiter: WaitingRequestId,
    ) -> Option<OwnerCalloutQuery> {
        let is_own = |work: &OwnerCalloutQuery| {
            work.is_own
                || matches!(&work.job, QueuedOwnerRequest::LookUp(look_up)
                    if shared.flights.last_follower(&look_up.token) == Some(waiter))
        };
        let at = self.queries.iter().position(is_own)?;
        self.queries.remove(at)
    }

    /// Bytes of entries that are under way to be stored.
    fn pending_store_bytes(&self) -> u64 {
        let works = self.under_way.values().map(|it| &it.work);
        works
            .chain(&self.queries)
            .map(|work| background_queue::job_entry_weight(&work.job))
            .sum()
    }

    /// How many calls there are for which the owner waits.
    fn waiting_lookup_count(&self) -> usize {
        let works = self.under_way.values().map(|it| &it.work);
        works.chain(&self.queries).filter(|work| work.waits).count()
    }

    /// Those whose time is over go on without the owner.
    fn expire_late_owner_queries(&mut self, shared: &ProcessCacheState, now: u64) {
        for _ in 0..self.queries.len() {
            match self.queries.pop_front() {
                Some(work) if work.job.is_late(now) => self.release_query_waiters(shared, work),
                Some(work) => self.queries.push_back(work),
                None => break,
            }
        }
        let late = self.under_way.iter().filter(|(_, it)| it.due <= now);
        let late: Vec<CalloutId> = late.map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            let Some(under_way) = self.under_way.get_mut(&ticket) else {
                continue;
            };
            if let Some(landing) = under_way.work.landing.take() {
                // it is stored all the same
                under_way.due = under_way.sent + FAVOUR;
                finish_flight_unshared(shared, landing);
                continue;
            }
            let late = QueuedOwnerRequest::Expired(match &under_way.work.job {
                QueuedOwnerRequest::LookUp(look_up) if look_up.requests_lease() => {
                    Some(look_up.key)
                }
                _ => None,
            });
            let job = std::mem::replace(&mut under_way.work.job, late);
            under_way.due = now + GONE;
            if matches!(job, QueuedOwnerRequest::Expired(_)) {
                // its host has forgotten it
                self.under_way.remove(&ticket);
            } else {
                self.fail_query(shared, OwnerCalloutQuery::new(job, None));
            }
        }
        let query_deadlines = self
            .queries
            .iter()
            .filter_map(|work| work.job.reply_deadline());
        let dues = self
            .under_way
            .values()
            .map(|it| it.due)
            .chain(query_deadlines);
        self.next_due = dues.min().unwrap_or(u64::MAX);
    }

    /// The owner did not answer.
    fn fail_query(&mut self, shared: &ProcessCacheState, work: OwnerCalloutQuery) {
        if !matches!(work.job, QueuedOwnerRequest::Expired(_)) {
            self.pulse.record_failure();
        }
        self.abandon_query(shared, work);
    }

    /// No answer will come of it.
    fn abandon_query(&mut self, shared: &ProcessCacheState, work: OwnerCalloutQuery) {
        if let QueuedOwnerRequest::LookUp(look_up) = &work.job {
            if look_up.requests_lease() {
                // it may have been granted
                shared.flights.record_flight_lease(&look_up.key);
            }
        }
        self.release_query_waiters(shared, work);
    }

    /// Who waits for it goes on without.
    fn release_query_waiters(&mut self, shared: &ProcessCacheState, work: OwnerCalloutQuery) {
        if let Some(landing) = work.landing {
            finish_flight_unshared(shared, landing);
        }
        match work.job {
            QueuedOwnerRequest::LookUp(look_up) => {
                resolve_lookup_as_miss(&mut self.favours, shared, look_up);
            }
            QueuedOwnerRequest::LookUps { waiter, .. } => shared.wake_waiters([waiter]),
            QueuedOwnerRequest::Purge { waiter, .. } => shared.wake_waiters(waiter),
            // it may have arrived, or not: others are not to wait for it
            QueuedOwnerRequest::Store { key, .. } => self
                .favours
                .push_owner_job(QueuedOwnerRequest::ReleaseLease(key)),
            QueuedOwnerRequest::ReleaseLease(_)
            | QueuedOwnerRequest::ShowBlock(..)
            | QueuedOwnerRequest::Expired(_) => {}
        }
    }
}

/// Nobody can say whether it holds: each asks the node.
fn finish_flight_unshared(shared: &ProcessCacheState, landing: PendingFlightResponse) {
    shared.wake_waiters(
        shared
            .flights
            .finish_flight(landing.token, FlightOutcome::NotShareable),
    );
}

#[cfg(test)]
mod tests;
