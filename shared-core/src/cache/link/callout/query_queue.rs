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
use crate::lock::locked;

impl OwnerClient for CalloutClient {
    fn is_up(&self) -> bool {
        locked(&self.state).pulse.allows_request()
    }

    /// What one fetches is for others when the owner has taken it.
    fn may_wait(&self) -> bool {
        self.is_up()
    }

    fn lookup(
        &self,
        key: Key,
        token: Leadership,
        namespace: &Namespace,
        leases: bool,
        in_vain: bool,
        now: u64,
    ) -> Result<(), Leadership> {
        let mut state = locked(&self.state);
        state.pulse.at(now);
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
            generation: self.generation(),
            waits_in_vain: in_vain,
            missed_event: false,
        };
        state.enqueue(
            PendingQuery::own(OwnerJob::LookUp(look_up), Some(*namespace)),
            due,
        );
        Ok(())
    }

    fn lookup_all(&self, keys: Vec<Key>, namespace: &Namespace, waiter: Waiter, now: u64) -> bool {
        let mut state = locked(&self.state);
        state.pulse.at(now);
        if !state.pulse.allows_request() || !state.has_room(&self.bounds) {
            return false;
        }
        state.pulse.record_request();
        let due = now.saturating_add(self.bounds.deadline);
        let job = OwnerJob::LookUps {
            keys,
            waiter,
            due,
            generation: self.generation(),
        };
        state.enqueue(PendingQuery::own(job, Some(*namespace)), due);
        true
    }

    fn claim_all(&self, waiter: Waiter) -> Vec<(Key, Arc<CacheEntry>)> {
        let mut state = locked(&self.state);
        let found = state.claims.take_entries(waiter, self.generation());
        found.unwrap_or_else(|| {
            state.forget(waiter);
            Vec::new()
        })
    }

    fn store(
        &self,
        key: Key,
        entry: Arc<CacheEntry>,
        about: StoreAttributes,
        if_final: Option<FinalUpgrade>,
    ) {
        let about = Box::new(about);
        let mut state = locked(&self.state);
        if !state.pulse.is_open() {
            state.favours.push(OwnerJob::Store {
                key,
                entry,
                about,
                if_final,
            });
        }
    }

    fn publish(&self, landing: PendingPublish) -> Result<(), (Leadership, FlightOutcome)> {
        let key = *landing.token.key();
        let mut state = locked(&self.state);
        if state.pulse.is_open() || !state.has_room(&self.bounds) {
            return Err((landing.token, FlightOutcome::NotShareable));
        }
        // that it is not stored is something to ask, too
        let job = state
            .favours
            .take_for_key(&key)
            .unwrap_or(OwnerJob::ReleaseLease(key));
        let follows = landing.entry.meta().follows;
        let mut work = PendingQuery::favour(job);
        work.namespace = work.namespace.or(follows.map(|(namespace, _)| namespace));
        work.landing = Some(landing);
        state.queries.push_back(work);
        Ok(())
    }

    fn release_lease(&self, key: Key) {
        let mut state = locked(&self.state);
        if !state.pulse.is_open() {
            state.favours.push(OwnerJob::ReleaseLease(key));
        }
    }

    fn report_shown_block(&self, namespace: &Namespace, sighting: ShownBlock) {
        let mut state = locked(&self.state);
        if !state.pulse.is_open() && state.queries.try_reserve(1).is_ok() {
            let work = PendingQuery::favour(OwnerJob::ShowBlock(*namespace, sighting));
            // before look-ups: none is to find what is over
            state.queries.push_front(work);
        }
    }

    fn may_send(&self, _monotonic: u64) -> bool {
        false
    }

    /// What comes was asked for by then.
    fn may_share(&self, _monotonic: u64) -> bool {
        true
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What lands was asked for after who waits for it had begun to. So who did when no
    /// purge was known, as a process that has just begun knows none, can have it.
    fn holds_since(&self, generation: u64) -> bool {
        generation == 0 || self.generation() == generation
    }

    fn chains(&self) -> &Chains {
        &self.chains
    }

    fn mark(&self, namespace: &Namespace, now: u64) -> Option<DispatchMark> {
        locked(&self.state)
            .known
            .dispatch_mark(&self.chains, namespace, now)
    }

    fn purge(
        &self,
        query: &[u8],
        own: Option<&[u8]>,
        waiter: Waiter,
        now: u64,
    ) -> Option<AdminReply> {
        purge::send_purge(query, own, |body| {
            let mut state = locked(&self.state);
            let job = OwnerJob::Purge {
                body,
                waiter: Some(waiter),
                due: now.saturating_add(super::PURGE),
                sent: 0,
            };
            let has_memory = state.queries.try_reserve(1).is_ok();
            if has_memory {
                state.queries.push_back(PendingQuery::own(job, None));
            }
            has_memory
        })
    }

    fn claim_admin_reply(&self, waiter: Waiter) -> Option<AdminReply> {
        let mut state = locked(&self.state);
        let purged = state.claims.take_admin_reply(waiter);
        if purged.is_none() {
            state.forget(waiter);
        }
        purged
    }
}

impl super::State {
    /// Nobody waits under that name any more.
    fn forget(&mut self, gone: Waiter) {
        let under_way = self.under_way.values_mut().map(|it| &mut it.work);
        for work in under_way.chain(&mut self.queries) {
            work.job.forget(gone);
        }
        self.queries
            .retain(|work| !matches!(work.job, OwnerJob::Expired(_)));
    }
}
