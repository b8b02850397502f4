//! Requests of exchanges until they are sent.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::owner_job::{LookupJob, QueuedOwnerRequest};
use super::{purge, LinkState, OwnerAdminReply, OwnerLink};
use crate::cache::chain::{NamespaceChains, ShownBlock};
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::CacheEntry;
use crate::cache::freshness::FinalityUpgrade;
use crate::cache::process::flights::FlightLeadership;
use crate::cache::process::owner_client::OwnerClient;
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::{CacheKey, CacheNamespace};
use crate::lock::lock_ignoring_poison;

impl OwnerClient for OwnerLink {
    fn is_owner_reachable(&self) -> bool {
        lock_ignoring_poison(&self.state).up
    }

    fn lookup_at_owner(
        &self,
        key: CacheKey,
        token: FlightLeadership,
        _namespace: &CacheNamespace,
        leases: bool,
        in_vain: bool,
        now: u64,
    ) -> Result<(), FlightLeadership> {
        let mut state = lock_ignoring_poison(&self.state);
        if !state.up || state.requests.try_reserve(1).is_err() {
            return Err(token);
        }
        let job = LookupJob {
            key,
            token,
            leases,
            due: self.lookup_deadline(now),
            generation: self.purge_generation(),
            waits_in_vain: in_vain,
            missed_event: false,
        };
        state.requests.push_back(QueuedOwnerRequest::LookUp(job));
        self.mark_queued();
        Ok(())
    }

    fn lookup_batch_at_owner(
        &self,
        keys: Vec<CacheKey>,
        _: &CacheNamespace,
        waiter: WaitingRequestId,
        now: u64,
    ) -> bool {
        let mut state = lock_ignoring_poison(&self.state);
        if !state.up || state.requests.try_reserve(1).is_err() {
            return false;
        }
        state.requests.push_back(QueuedOwnerRequest::LookUps {
            keys,
            waiter,
            due: self.lookup_deadline(now),
            generation: self.purge_generation(),
        });
        self.mark_queued();
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
        self.do_favour(QueuedOwnerRequest::Store {
            key,
            entry,
            about,
            if_final,
        });
    }

    fn release_lease(&self, key: CacheKey) {
        self.do_favour(QueuedOwnerRequest::ReleaseLease(key));
    }

    fn report_shown_block(&self, namespace: &CacheNamespace, sighting: ShownBlock) {
        let mut state = lock_ignoring_poison(&self.state);
        if state.up && state.requests.try_reserve(1).is_ok() {
            // before look-ups: none is to find what is over
            state
                .requests
                .push_front(QueuedOwnerRequest::ShowBlock(*namespace, sighting));
            self.mark_queued();
        }
    }

    fn permits_sending_from_memory(&self, monotonic: u64) -> bool {
        monotonic < self.until.load(Ordering::Acquire)
    }

    fn purge_generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
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
        purge::send_purge_from_query(query, own, |body| self.queue_purge(body, waiter, now))
    }

    fn query_owner_status(&self, waiter: WaitingRequestId, now: u64) -> bool {
        self.send_status_query(waiter, now)
    }

    fn claim_admin_reply(&self, waiter: WaitingRequestId) -> Option<OwnerAdminReply> {
        let reply = self.take_admin_reply(waiter);
        if reply.is_none() {
            self.forget_waiter(waiter);
        }
        reply
    }
}

impl OwnerLink {
    fn do_favour(&self, job: QueuedOwnerRequest) {
        let mut state = lock_ignoring_poison(&self.state);
        if !state.up {
            return;
        }
        state.favours.push_owner_job(job);
        self.mark_queued();
    }
}

impl LinkState {
    /// Nobody waits under that name any more.
    pub(super) fn forget_waiter(&mut self, gone: WaitingRequestId) {
        let Self {
            slots, requests, ..
        } = self;
        let busy = slots.iter_mut().flat_map(|slot| &mut slot.jobs);
        for job in requests.iter_mut().chain(busy) {
            job.forget_waiter(gone);
        }
        requests.retain(|job| !matches!(job, QueuedOwnerRequest::Expired(_)));
    }
}
