//! Requests of exchanges until the host takes them.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::{LookupJob, OwnerCalloutClient, OwnerCalloutQuery, QueuedOwnerRequest};
use crate::cache::chain::{DispatchMark, NamespaceChains, ShownBlock};
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::CacheEntry;
use crate::cache::freshness::FinalityUpgrade;
use crate::cache::link::purge::{self, OwnerAdminReply};
use crate::cache::process::flights::{FlightLeadership, FlightOutcome};
use crate::cache::process::owner_client::{OwnerClient, PendingFlightResponse};
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::{CacheKey, CacheNamespace};
use crate::lock::lock_ignoring_poison;

impl OwnerClient for OwnerCalloutClient {
    fn is_owner_reachable(&self) -> bool {
        lock_ignoring_poison(&self.state)
            .pulse
            .allows_owner_request()
    }

    /// What one fetches is for others when the owner has taken it.
    fn may_follow_flights(&self) -> bool {
        self.is_owner_reachable()
    }

    fn lookup_at_owner(
        &self,
        key: CacheKey,
        token: FlightLeadership,
        namespace: &CacheNamespace,
        leases: bool,
        in_vain: bool,
        now: u64,
    ) -> Result<(), FlightLeadership> {
        let mut state = lock_ignoring_poison(&self.state);
        state.pulse.advance_clock(now);
        if !state.pulse.allows_owner_request() || !state.has_query_room(&self.bounds) {
            return Err(token);
        }
        state.pulse.record_owner_attempt();
        let due = now.saturating_add(self.bounds.deadline);
        let look_up = LookupJob {
            key,
            token,
            leases,
            due,
            waits_in_vain: in_vain,
        };
        state.enqueue_query(
            OwnerCalloutQuery::query_for_exchange(
                QueuedOwnerRequest::LookUp(look_up),
                Some(*namespace),
            ),
            due,
        );
        Ok(())
    }

    fn lookup_batch_at_owner(
        &self,
        keys: Vec<CacheKey>,
        namespace: &CacheNamespace,
        waiter: WaitingRequestId,
        now: u64,
    ) -> bool {
        let mut state = lock_ignoring_poison(&self.state);
        state.pulse.advance_clock(now);
        if !state.pulse.allows_owner_request() || !state.has_query_room(&self.bounds) {
            return false;
        }
        state.pulse.record_owner_attempt();
        let due = now.saturating_add(self.bounds.deadline);
        let job = QueuedOwnerRequest::LookUps { keys, waiter, due };
        state.enqueue_query(
            OwnerCalloutQuery::query_for_exchange(job, Some(*namespace)),
            due,
        );
        true
    }

    fn take_batch_entries(&self, waiter: WaitingRequestId) -> Vec<(CacheKey, Arc<CacheEntry>)> {
        let mut state = lock_ignoring_poison(&self.state);
        let found = state
            .claims
            .take_found_entries(waiter, self.purge_generation());
        found.unwrap_or_else(|| {
            state.forget_waiter(waiter);
            Vec::new()
        })
    }

    fn store_at_owner(
        &self,
        key: CacheKey,
        entry: Arc<CacheEntry>,
        about: StoredEntryAttributes,
        if_final: Option<FinalityUpgrade>,
    ) {
        let about = Box::new(about);
        let mut state = lock_ignoring_poison(&self.state);
        if !state.pulse.is_open() {
            state.favours.push_owner_job(QueuedOwnerRequest::Store {
                key,
                entry,
                about,
                if_final,
            });
        }
    }

    fn publish_response(
        &self,
        landing: PendingFlightResponse,
    ) -> Result<(), (FlightLeadership, FlightOutcome)> {
        let key = *landing.token.flight_key();
        let mut state = lock_ignoring_poison(&self.state);
        if state.pulse.is_open() || !state.has_query_room(&self.bounds) {
            return Err((landing.token, FlightOutcome::NotShareable));
        }
        // that it is not stored is something to ask, too
        let job = state
            .favours
            .take_for_key(&key)
            .unwrap_or(QueuedOwnerRequest::ReleaseLease(key));
        let follows = landing.entry.response_metadata().follows;
        let mut work = OwnerCalloutQuery::query_for_background_job(job);
        work.namespace = work.namespace.or(follows.map(|(namespace, _)| namespace));
        work.landing = Some(landing);
        state.queries.push_back(work);
        Ok(())
    }

    fn release_lease(&self, key: CacheKey) {
        let mut state = lock_ignoring_poison(&self.state);
        if !state.pulse.is_open() {
            state
                .favours
                .push_owner_job(QueuedOwnerRequest::ReleaseLease(key));
        }
    }

    fn report_shown_block(&self, namespace: &CacheNamespace, sighting: ShownBlock) {
        let mut state = lock_ignoring_poison(&self.state);
        if !state.pulse.is_open() && state.queries.try_reserve(1).is_ok() {
            let work = OwnerCalloutQuery::query_for_background_job(QueuedOwnerRequest::ShowBlock(
                *namespace, sighting,
            ));
            // before look-ups: none is to find what is over
            state.queries.push_front(work);
        }
    }

    fn permits_sending_from_memory(&self, _monotonic: u64) -> bool {
        false
    }

    /// What comes was asked for by then.
    fn permits_sharing_response(&self, _monotonic: u64) -> bool {
        true
    }

    fn purge_generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What lands was asked for after who waits for it had begun to. So who did when no
    /// purge was known, as a process that has just begun knows none, can have it.
    fn is_unpurged_since(&self, generation: u64) -> bool {
        generation == 0 || self.purge_generation() == generation
    }

    fn followed_chains(&self) -> &NamespaceChains {
        &self.chains
    }

    fn dispatch_mark(&self, namespace: &CacheNamespace, now: u64) -> Option<DispatchMark> {
        lock_ignoring_poison(&self.state)
            .known
            .dispatch_mark(&self.chains, namespace, now)
    }

    fn purge_at_owner(
        &self,
        query: &[u8],
        own: Option<&[u8]>,
        waiter: WaitingRequestId,
        now: u64,
    ) -> Option<OwnerAdminReply> {
        purge::send_purge_from_query(query, own, |body| {
            let mut state = lock_ignoring_poison(&self.state);
            let job = QueuedOwnerRequest::Purge {
                body,
                waiter: Some(waiter),
                due: now.saturating_add(super::PURGE_TIMEOUT_MS),
            };
            let has_memory = state.queries.try_reserve(1).is_ok();
            if has_memory {
                state
                    .queries
                    .push_back(OwnerCalloutQuery::query_for_exchange(job, None));
            }
            has_memory
        })
    }

    fn claim_admin_reply(&self, waiter: WaitingRequestId) -> Option<OwnerAdminReply> {
        let mut state = lock_ignoring_poison(&self.state);
        let purged = state.claims.take_admin_reply(waiter);
        if purged.is_none() {
            state.forget_waiter(waiter);
        }
        purged
    }
}

impl super::CalloutState {
    /// Nobody waits under that name any more.
    fn forget_waiter(&mut self, gone: WaitingRequestId) {
        let under_way = self.under_way.values_mut().map(|it| &mut it.work);
        for work in under_way.chain(&mut self.queries) {
            work.job.forget_waiter(gone);
        }
        self.queries
            .retain(|work| !matches!(work.job, QueuedOwnerRequest::Expired(_)));
    }
}
