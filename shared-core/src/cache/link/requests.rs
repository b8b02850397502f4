//! The requests of the exchanges of a process to the owner.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::background_queue::QueuedStore;
use super::jobs::{LookupJob, OwnerJob};
use super::{purge, LinkState, OwnerAdminReply, OwnerLink};
use crate::cache::chain::{NamespaceChains, ShownBlock};
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::CacheEntry;
use crate::cache::owner_protocol::process_message::MAX_BATCH_KEYS;
use crate::cache::process::flights::{CoalescedFlights, FlightLeadership, FlightOutcome};
use crate::cache::process::owner_client::{
    BatchLookupOptions, OwnerClient, OwnerLookup, OwnerLookupOptions, OwnerStoreOptions,
};
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::process::ProcessCacheState;
use crate::cache::{CacheKey, CacheNamespace};
use crate::lock::lock_ignoring_poison;
use crate::time_constants::{purge_patience, purge_timeout, status_timeout};

/// Maximum number of shown blocks that wait to be reported. Further ones are dropped: the owner
/// learns them by its own polls.
const MAX_SHOWN_BLOCKS: usize = 256;

impl OwnerClient for OwnerLink {
    fn is_owner_reachable(&self) -> bool {
        lock_ignoring_poison(&self.state).accepts_lookups()
    }

    fn lookup_at_owner(
        &self,
        flights: &CoalescedFlights,
        token: FlightLeadership,
        waiter: WaitingRequestId,
        options: OwnerLookupOptions,
        now: u64,
    ) -> OwnerLookup {
        let token = match self.lookup_by_call(token, options, now) {
            Ok(result) => return result,
            Err(token) => token,
        };
        let mut state = lock_ignoring_poison(&self.state);
        let is_sent = state.accepts_lookups() && !state.breaker.is_open(now);
        if !is_sent || flights.follow_own_flight(&token, waiter).is_none() {
            return OwnerLookup::Missing(token);
        }
        let lookup = OwnerJob::Lookup(LookupJob {
            token,
            options,
            missed_event: false,
        });
        match self.add_awaited_job(&mut state, lookup, self.lookup_deadline(now)) {
            Err(OwnerJob::Lookup(LookupJob { token, .. })) => {
                drop(flights.remove_follower(token.flight_key(), waiter));
                OwnerLookup::Missing(token)
            }
            _ => OwnerLookup::Pending,
        }
    }

    fn lookup_batch_at_owner(
        &self,
        mut keys: Vec<CacheKey>,
        options: BatchLookupOptions,
        waiter: WaitingRequestId,
        now: u64,
    ) -> bool {
        let mut state = lock_ignoring_poison(&self.state);
        if !state.accepts_lookups() || state.breaker.is_open(now) {
            return false;
        }
        // entries beyond the limit are fetched
        keys.truncate(MAX_BATCH_KEYS);
        if keys.is_empty() {
            return false;
        }
        let mut call_kinds = options.call_kinds;
        call_kinds.truncate(keys.len());
        // the owner replies before the request's own wait is over
        let lease_wait = options
            .max_lease_wait_ms
            .saturating_sub(self.lookup_timeout().saturating_mul(2));
        let lookup = OwnerJob::BatchLookup {
            keys,
            call_kinds,
            lease_wait: u32::try_from(lease_wait).unwrap_or(u32::MAX),
            waiter,
            entries: Vec::new(),
            generation: None,
        };
        self.add_awaited_job(&mut state, lookup, self.lookup_deadline(now))
            .is_ok()
    }

    fn take_batch_entries(&self, waiter: WaitingRequestId) -> Vec<(CacheKey, Arc<CacheEntry>)> {
        let mut state = lock_ignoring_poison(&self.state);
        match state.batch_entries.remove(&waiter) {
            Some((entries, generation)) if generation == self.purge_generation() => entries,
            Some(_) => Vec::new(),
            None => {
                state.jobs.forget_waiter(waiter);
                Vec::new()
            }
        }
    }

    fn store_at_owner(
        &self,
        key: CacheKey,
        entry: Arc<CacheEntry>,
        about: StoredEntryAttributes,
        options: OwnerStoreOptions,
        now: u64,
    ) {
        let Some(about) = self.store_by_call(key, &entry, about, options, now) else {
            return;
        };
        let mut state = lock_ignoring_poison(&self.state);
        if state.session.is_open() {
            let store = QueuedStore::new(key, entry, Box::new(about), options);
            state.background.push_store(store);
            self.wake_driver();
        }
    }

    fn release_lease(&self, key: CacheKey) {
        if self.release_by_call(&key) {
            return;
        }
        let mut state = lock_ignoring_poison(&self.state);
        if state.session.is_open() {
            state.background.push_release(key);
            self.wake_driver();
        }
    }

    fn report_shown_block(&self, namespace: &CacheNamespace, sighting: ShownBlock) {
        let mut state = lock_ignoring_poison(&self.state);
        let blocks = &mut state.shown_blocks;
        if blocks.len() >= MAX_SHOWN_BLOCKS || blocks.try_reserve(1).is_err() {
            return;
        }
        if state.session.is_open() {
            state.shown_blocks.push_back((*namespace, sighting));
            self.wake_driver();
        }
    }

    fn permits_sending_from_memory(&self, monotonic: u64) -> bool {
        monotonic < self.until.load(Ordering::Acquire)
    }

    fn purge_generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn is_unpurged_since(&self, generation: u64) -> bool {
        let current = self.purge_generation();
        // the first session does not begin with a purge
        current == generation
            || generation == 0 && current == self.first_generation.load(Ordering::Acquire)
    }

    fn followed_chains(&self) -> &NamespaceChains {
        &self.chains
    }

    fn purge_at_owner(
        &self,
        query: &[u8],
        own: Option<&[u8]>,
        waiter: WaitingRequestId,
        now: u64,
    ) -> Option<OwnerAdminReply> {
        let body = match purge::purge_request_body(query, own) {
            Ok(body) => body,
            Err(bad) => return Some(purge::problem_reply(400, &bad)),
        };
        let short = "nothing was purged: memory is short; repeat the request";
        let is_queued = self.queue_purge(body, waiter, now);
        (!is_queued).then(|| purge::problem_reply(503, short))
    }

    fn query_owner_status(&self, waiter: WaitingRequestId, now: u64) -> bool {
        let mut state = lock_ignoring_poison(&self.state);
        let due = now.saturating_add(status_timeout());
        let status = OwnerJob::Status { waiter };
        state.session.is_open() && self.add_awaited_job(&mut state, status, due).is_ok()
    }

    fn claim_admin_reply(&self, waiter: WaitingRequestId) -> Option<OwnerAdminReply> {
        let mut state = lock_ignoring_poison(&self.state);
        let reply = state.admin_replies.remove(&waiter);
        if reply.is_none() {
            state.jobs.forget_waiter(waiter);
        }
        reply
    }
}

impl OwnerLink {
    /// Sends a purge, with a body of [`purge_request`](super::purge_request). `waiter` is woken when
    /// the purge is in effect everywhere or has failed, and
    /// [claims](OwnerClient::claim_admin_reply) the reply. Returns `false` if memory is refused.
    pub fn queue_purge(&self, scope: String, waiter: WaitingRequestId, now: u64) -> bool {
        let mut state = lock_ignoring_poison(&self.state);
        let patience = match state.session.is_open() {
            true => purge_timeout(),
            false => purge_patience(),
        };
        let purge = OwnerJob::Purge {
            scope,
            waiter: Some(waiter),
            sent: 0,
        };
        self.add_awaited_job(&mut state, purge, now.saturating_add(patience))
            .is_ok()
    }

    /// Queues a request on which a client's request waits; an error returns it.
    fn add_awaited_job(
        &self,
        state: &mut LinkState,
        job: OwnerJob,
        due: u64,
    ) -> Result<(), OwnerJob> {
        state.jobs.add_job(job, due)?;
        state.connection.schedule_tick(due);
        self.wake_driver();
        Ok(())
    }

    /// Queues a lookup once more.
    pub(super) fn queue_lookup(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        lookup: LookupJob,
        due: u64,
    ) {
        match state.jobs.add_job(OwnerJob::Lookup(lookup), due) {
            Ok(()) => state.connection.schedule_tick(due),
            Err(job) => self.fail_job(state, shared, job),
        }
    }

    /// Ends a lookup without an entry: the node is queried. A lease that no request needs any more
    /// is released.
    pub(super) fn end_lookup_as_miss(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        lookup: LookupJob,
    ) {
        let flights = &shared.flights;
        let change = match lookup.options.leases {
            true => flights.hand_over_leadership(lookup.token),
            false => flights.finish_flight(lookup.token, FlightOutcome::NotShareable),
        };
        if let Some(key) = shared.wake_flight_waiters(change) {
            state.background.push_release(key);
        }
    }
}

impl LinkState {
    /// Whether lookups are accepted: the session is open, or it was requested for the first time
    /// since the last one, so that it opens within moments.
    fn accepts_lookups(&self) -> bool {
        let is_opening = self.session.is_open_or_requested() && self.connection.has_not_failed();
        self.session.is_open() || is_opening
    }
}
