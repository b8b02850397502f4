//! Requests of exchanges until the host takes them.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::{CalloutClient, LookupJob, OwnerJob, PendingQuery};
use crate::cache::chain::{Chains, DispatchMark, ShownBlock};
use crate::cache::entry::store_attributes::StoreAttributes;
use crate::cache::entry::CacheEntry;
use crate::cache::freshness::FinalUpgrade;
use crate::cache::link::purge::{self, AdminReply};
use crate::cache::process::flights::{FlightOutcome, Leadership};
use crate::cache::process::owner_client::{OwnerClient, PendingPublish};
use crate::cache::process::wake::Waiter;
use crate::cache::{Key, Namespace};
use crate::lock::lock_ignoring_poison;

impl OwnerClient for CalloutClient {
    fn is_up(&self) -> bool {
        lock_ignoring_poison(&self.state).pulse.allows_request()
    }

    /// What one fetches is for others when the owner has taken it.
    fn may_follow_flights(&self) -> bool {
        self.is_up()
    }

    fn lookup_at_owner(
        &self,
        key: Key,
        token: Leadership,
        namespace: &Namespace,
        leases: bool,
        in_vain: bool,
        now: u64,
    ) -> Result<(), Leadership> {
        let mut state = lock_ignoring_poison(&self.state);
        state.pulse.advance_clock(now);
        if !state.pulse.allows_request() || !state.has_room(&self.bounds) {
            return Err(token);
        }
        state.pulse.record_request();
        let due = now.saturating_add(self.bounds.deadline);
        let look_up = LookupJob {
            key,
            token,
            leases,
            due,
            generation: self.purge_generation(),
            waits_in_vain: in_vain,
            missed_event: false,
        };
        state.enqueue_query(
            PendingQuery::for_exchange(OwnerJob::LookUp(look_up), Some(*namespace)),
            due,
        );
        Ok(())
    }

    fn lookup_all(&self, keys: Vec<Key>, namespace: &Namespace, waiter: Waiter, now: u64) -> bool {
        let mut state = lock_ignoring_poison(&self.state);
        state.pulse.advance_clock(now);
        if !state.pulse.allows_request() || !state.has_room(&self.bounds) {
            return false;
        }
        state.pulse.record_request();
        let due = now.saturating_add(self.bounds.deadline);
        let job = OwnerJob::LookUps {
            keys,
            waiter,
            due,
            generation: self.purge_generation(),
        };
        state.enqueue_query(PendingQuery::for_exchange(job, Some(*namespace)), due);
        true
    }

    fn claim_entries(&self, waiter: Waiter) -> Vec<(Key, Arc<CacheEntry>)> {
        let mut state = lock_ignoring_poison(&self.state);
        let found = state.claims.take_entries(waiter, self.purge_generation());
        found.unwrap_or_else(|| {
            state.forget_waiter(waiter);
            Vec::new()
        })
    }

    fn store_entry(
        &self,
        key: Key,
        entry: Arc<CacheEntry>,
        about: StoreAttributes,
        if_final: Option<FinalUpgrade>,
    ) {
        let about = Box::new(about);
        let mut state = lock_ignoring_poison(&self.state);
        if !state.pulse.is_open() {
            state.favours.push(OwnerJob::Store {
                key,
                entry,
                about,
                if_final,
            });
        }
    }

    fn publish_response(&self, landing: PendingPublish) -> Result<(), (Leadership, FlightOutcome)> {
        let key = *landing.token.flight_key();
        let mut state = lock_ignoring_poison(&self.state);
        if state.pulse.is_open() || !state.has_room(&self.bounds) {
            return Err((landing.token, FlightOutcome::NotShareable));
        }
        // that it is not stored is something to ask, too
        let job = state
            .favours
            .take_for_key(&key)
            .unwrap_or(OwnerJob::ReleaseLease(key));
        let follows = landing.entry.response_metadata().follows;
        let mut work = PendingQuery::for_background_job(job);
        work.namespace = work.namespace.or(follows.map(|(namespace, _)| namespace));
        work.landing = Some(landing);
        state.queries.push_back(work);
        Ok(())
    }

    fn release_lease(&self, key: Key) {
        let mut state = lock_ignoring_poison(&self.state);
        if !state.pulse.is_open() {
            state.favours.push(OwnerJob::ReleaseLease(key));
        }
    }

    fn report_shown_block(&self, namespace: &Namespace, sighting: ShownBlock) {
        let mut state = lock_ignoring_poison(&self.state);
        if !state.pulse.is_open() && state.queries.try_reserve(1).is_ok() {
            let work = PendingQuery::for_background_job(OwnerJob::ShowBlock(*namespace, sighting));
            // before look-ups: none is to find what is over
            state.queries.push_front(work);
        }
    }

    fn permits_sending(&self, _monotonic: u64) -> bool {
        false
    }

    /// What comes was asked for by then.
    fn permits_sharing(&self, _monotonic: u64) -> bool {
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

    fn followed_chains(&self) -> &Chains {
        &self.chains
    }

    fn dispatch_mark(&self, namespace: &Namespace, now: u64) -> Option<DispatchMark> {
        lock_ignoring_poison(&self.state)
            .known
            .dispatch_mark(&self.chains, namespace, now)
    }

    fn purge_at_owner(
        &self,
        query: &[u8],
        own: Option<&[u8]>,
        waiter: Waiter,
        now: u64,
    ) -> Option<AdminReply> {
        purge::send_purge(query, own, |body| {
            let mut state = lock_ignoring_poison(&self.state);
            let job = OwnerJob::Purge {
                body,
                waiter: Some(waiter),
                due: now.saturating_add(super::PURGE),
                sent: 0,
            };
            let has_memory = state.queries.try_reserve(1).is_ok();
            if has_memory {
                state
                    .queries
                    .push_back(PendingQuery::for_exchange(job, None));
            }
            has_memory
        })
    }

    fn claim_admin_reply(&self, waiter: Waiter) -> Option<AdminReply> {
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
    fn forget_waiter(&mut self, gone: Waiter) {
        let under_way = self.under_way.values_mut().map(|it| &mut it.work);
        for work in under_way.chain(&mut self.queries) {
            work.job.forget_waiter(gone);
        }
        self.queries
            .retain(|work| !matches!(work.job, OwnerJob::Expired(_)));
    }
}
