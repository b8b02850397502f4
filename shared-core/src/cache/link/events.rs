//! The begin and the loss of the session, the owner's events, and the send leases.

use std::sync::atomic::Ordering;

use super::background_queue::BackgroundQueue;
use super::jobs::OwnerJob;
use super::session::{SessionLoss, SessionStage, SessionState};
use super::{purge, LinkState, OwnerAdminReply, OwnerLink, MAX_PURGE_SENDS};
use crate::cache::chain::ChainState;
use crate::cache::owner_protocol::owner_message::{OwnerMessage, PurgeEventScope, SessionEvent};
use crate::cache::process::owner_client::OwnerClient;
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::process::ProcessCacheState;
use crate::cache::CacheKey;
use crate::lock::lock_ignoring_poison;
use crate::time_constants::predecessor_lease;

/// Lower bound of generations that no owner has: theirs begin with the time.
const MIN_UNOWNED_GENERATION: u64 = 1 << 63;

impl OwnerLink {
    /// Reports that no owner listens: a connection was refused that was attempted after
    /// `monotonic`, in milliseconds of `CLOCK_MONOTONIC`. It is called before
    /// [`handle_connection_opened`](Self::handle_connection_opened). Entries in memory may be sent
    /// for a while then, although no owner permits it: no owner could report a purge as done.
    pub fn handle_connection_refused(&self, shared: &ProcessCacheState, monotonic: u64) {
        let mut state = lock_ignoring_poison(&self.state);
        if state.session.is_open() {
            return;
        }
        if !state.session.is_alone {
            state.session.is_alone = true;
            // no owner reports their changes
            for (_, chain) in self.chains.snapshot_chains() {
                chain.discard_owner_state();
            }
        }
        if !self.permits_sending_from_memory(monotonic) {
            // an owner may have existed meanwhile, and purged
            let generation = self.purge_generation().max(MIN_UNOWNED_GENERATION) + 1;
            shared
                .identities
                .forget_purged_chains(&PurgeEventScope::Everything, generation);
            self.generation.store(generation, Ordering::Release);
            shared.purge_hot_tier(None);
        }
        // an owner that has just begun to listen reports a purge as done only after that time
        let until = monotonic.saturating_add(predecessor_lease());
        self.until.fetch_max(until, Ordering::AcqRel);
    }

    /// Applies a message of the owner: begins the session, renews the send lease, or passes an event
    /// or a reply on. Skips messages that were handled before.
    ///
    /// # Errors
    /// [`SessionLoss`] if the message refuses the session, or is not allowed at this stage: the
    /// connection has to be closed.
    pub(super) fn handle_message(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        message: OwnerMessage,
        now: u64,
    ) -> Result<(), SessionLoss> {
        let stage = state.session.stage;
        if let Some(left) = state.session.repeated_messages.checked_sub(1) {
            state.session.repeated_messages = left;
            return Ok(());
        }
        match message {
            OwnerMessage::Welcome {
                session,
                generation,
                event,
            } if stage == SessionStage::Requested => {
                self.begin_session(state, shared, generation, event);
                state.session.number = session;
                Ok(())
            }
            OwnerMessage::Refused(reason) => {
                state.session.record_refusal(reason, now);
                Err(SessionLoss)
            }
            _ if stage != SessionStage::Open => Err(SessionLoss),
            OwnerMessage::Welcome { .. } => Err(SessionLoss),
            OwnerMessage::SendLease { until, after, .. } => {
                self.accept_send_lease(state, until, after);
                Ok(())
            }
            OwnerMessage::Event { number, event } => {
                self.handle_event(state, shared, number, event, now);
                Ok(())
            }
            reply => {
                state.breaker.record_reply();
                self.handle_reply(state, shared, reply, now)
            }
        }
    }

    fn begin_session(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        generation: u64,
        event: u64,
    ) {
        let session = &mut state.session;
        let was_open = session.was_open;
        if !was_open || generation != self.purge_generation() {
            // which purges it has missed is unknown
            shared
                .identities
                .forget_purged_chains(&PurgeEventScope::Everything, generation);
            shared.purge_hot_tier(None);
        }
        for (_, chain) in self.chains.snapshot_chains() {
            chain.discard_owner_state();
        }
        *session = SessionState {
            stage: SessionStage::Open,
            attempt: session.attempt,
            was_open: true,
            applied_event: event,
            acknowledged_event: event,
            reported_chains: Some(Vec::new()),
            ..SessionState::default()
        };
        state.connection.record_session_opened();
        if !was_open {
            self.first_generation.store(generation, Ordering::Release);
        }
        self.generation.store(generation, Ordering::Release);
    }

    /// Uses a send lease as soon as the events before it are in effect.
    fn accept_send_lease(&self, state: &mut LinkState, until: u64, after: u64) {
        state.session.coming_lease = Some((until, after));
        self.use_coming_lease(state);
    }

    fn use_coming_lease(&self, state: &mut LinkState) {
        let session = &mut state.session;
        let Some((until, after)) = session.coming_lease else {
            return;
        };
        if session.applied_event < after {
            return;
        }
        session.coming_lease = None;
        // answers of callouts overtake each other
        self.until.fetch_max(until, Ordering::AcqRel);
        // all chains that it follows came before
        if let Some(reported) = session.reported_chains.take() {
            self.chains.retain_chains_of_namespaces(&reported);
            self.direct.begin(session.number);
        }
    }

    /// Applies an event, unless it was applied before or the one before it is missing.
    fn handle_event(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        number: u64,
        event: SessionEvent,
        now: u64,
    ) {
        if state.session.applied_event.checked_add(1) != Some(number) {
            if let SessionEvent::LateReply { messages } = event {
                state.session.repeated_messages = messages;
            }
            return;
        }
        match event {
            SessionEvent::Purge { generation, scope } => {
                shared.identities.forget_purged_chains(&scope, generation);
                // responses in flight are older than the purge, from here on
                self.generation.store(generation, Ordering::Release);
                shared.purge_hot_tier(match scope {
                    PurgeEventScope::Key(key) => Some(key),
                    _ => None,
                });
                state.session.has_unacknowledged_purge = true;
            }
            SessionEvent::Filled(key) => self.handle_fetch_end(state, shared, &key, false, now),
            SessionEvent::LeaseReleased(key) => {
                self.handle_fetch_end(state, shared, &key, true, now);
            }
            // its messages follow
            SessionEvent::LateReply { .. } => {}
            SessionEvent::Chain {
                namespace,
                state: published,
            } => {
                let unknown = || ChainState::new_without_blocks(published.heights, 0);
                self.chains
                    .get_or_add_chain(namespace, unknown)
                    .apply_owner_state(*published);
                if let Some(reported) = &mut state.session.reported_chains {
                    reported.push(namespace);
                }
            }
        }
        state.session.applied_event = number;
        self.use_coming_lease(state);
    }

    /// Repeats the lookup that waits for the fetch of another process, which has ended.
    fn handle_fetch_end(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        key: &CacheKey,
        is_without_entry: bool,
        now: u64,
    ) {
        if let Some(mut lookup) = state.pending.remove(key) {
            // the next fetch of another process is not waited for: it would be no better than all
            // processes at once
            lookup.options.skips_wait |= is_without_entry;
            self.queue_lookup(state, shared, lookup, self.lookup_deadline(now));
        }
        state.jobs.mark_missed_event(key);
    }

    /// Fails or repeats all requests, because the session is lost. The send lease continues.
    pub(super) fn handle_session_lost(&self, state: &mut LinkState, shared: &ProcessCacheState) {
        self.direct.end();
        state.session.stage = SessionStage::Closed;
        state.session.coming_lease = None;
        state.shown_blocks.clear();
        state.store_in_parts = None;
        state.partial_replies.drop_all_bodies().for_each(drop);
        state.breaker.record_reply();
        for (_, lookup) in std::mem::take(&mut state.pending) {
            self.end_lookup_as_miss(state, shared, lookup);
        }
        let jobs: Vec<_> = state.jobs.remove_all_jobs().collect();
        for open in jobs {
            match open.job {
                OwnerJob::Purge { sent, .. } if sent < MAX_PURGE_SENDS => {
                    if let Err(job) = state.jobs.add_job(open.job, open.due) {
                        self.fail_job(state, shared, job);
                    }
                }
                job => self.fail_job(state, shared, job),
            }
        }
        // the leases of the process end with its session
        state.background = BackgroundQueue::default();
    }

    /// Ends requests that have timed out.
    pub(super) fn expire_late_jobs(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        now: u64,
    ) {
        while let Some(late) = state.jobs.take_late_job(now) {
            if matches!(late, OwnerJob::Lookup(_) | OwnerJob::BatchLookup { .. }) {
                state.breaker.record_late_lookup(now);
            }
            self.fail_job(state, shared, late);
        }
    }

    /// Fails a request without a reply.
    pub(super) fn fail_job(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        job: OwnerJob,
    ) {
        match job {
            OwnerJob::Lookup(lookup) => self.end_lookup_as_miss(state, shared, lookup),
            OwnerJob::BatchLookup { waiter, .. } | OwnerJob::Status { waiter } => {
                shared.wake_waiters([waiter]);
            }
            OwnerJob::Purge {
                waiter: Some(waiter),
                sent,
                ..
            } => {
                if sent == 0 {
                    let absent =
                        "nothing was purged: the cache's owner does not respond; repeat the request";
                    state.insert_admin_reply(waiter, purge::problem_reply(503, absent));
                }
                shared.wake_waiters([waiter]);
            }
            OwnerJob::Purge { .. } | OwnerJob::TimedOut(_) => {}
        }
    }
}

impl LinkState {
    /// Inserts the reply to a purge or a status query; drops it if memory is refused.
    pub(super) fn insert_admin_reply(&mut self, waiter: WaitingRequestId, reply: OwnerAdminReply) {
        if self.admin_replies.try_reserve(1).is_ok() {
            self.admin_replies.insert(waiter, reply);
        }
    }
}
