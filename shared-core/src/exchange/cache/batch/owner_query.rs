//! The lookup of a batch's missing calls at the owner.

use crate::cache::owner_protocol::call_kind::{call_kind, NO_CALL_KIND};
use crate::cache::process::owner_client::BatchLookupOptions;
use crate::cache::vary_key::VaryKey;
use crate::cache::CacheKey;
use crate::exchange::cache::batch::lookup_state::BatchLookup;
use crate::exchange::cache::call_keys::CallKeyAndLifetime;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::waiting::AwaitedResult;
use crate::exchange::machine::Exchange;

impl Exchange {
    /// Sends the owner the keys of all missing calls, and returns the wait for its reply; `None` if
    /// it is not queried.
    pub(super) fn query_owner_for_batch(
        &self,
        batch: &BatchLookup<'_>,
        scope: &VaryKey,
        lookup: &LookupRequest<'_>,
    ) -> Option<AwaitedResult> {
        let shared = &self.route_config.process.shared;
        let (waiter, owner) = (lookup.waiter?, shared.owner_client()?);
        let missing = || {
            let calls = batch.calls.iter().zip(&batch.places).zip(&batch.found);
            let missing = calls.filter(|(_, found)| found.is_none());
            missing.filter_map(|((call, place), _)| Some((call, place.as_ref()?)))
        };
        let mut keys: Vec<CacheKey> = Vec::new();
        keys.try_reserve_exact(missing().count()).ok()?;
        if lookup.bypass || missing().next().is_none() {
            return None;
        }
        let (_, mark) = self.dispatch_mark(scope);
        let shares = self.shares_with_machines(scope, mark.as_ref());
        let is_shareable = |place: &CallKeyAndLifetime| shares && place.prospect.may_be_immutable();
        let takes_leases = self.route_config.cache.lock
            && !self.request.cache.no_store
            && !self.answers_only_from_cache()
            && shared.may_coalesce(lookup.now);
        let mut options = BatchLookupOptions::default();
        options.call_kinds.try_reserve(missing().count()).ok()?;
        for (call, place) in missing().filter(|(_, place)| is_shareable(place)) {
            let negative = &shared.negative_cache;
            let sharing = negative.uncacheable_sharing_of_key(&place.key, lookup.now);
            keys.push(place.key);
            options
                .call_kinds
                .push(match takes_leases && sharing.is_none() {
                    true => call_kind(call.method),
                    false => NO_CALL_KIND,
                });
        }
        let others = missing().filter(|(_, place)| !is_shareable(place));
        keys.extend(others.map(|(_, place)| place.key));
        // a call that is not cached, a transaction for example, is not delayed
        if takes_leases && batch.missing_call_keys().all(Option::is_some) {
            options.max_lease_wait_ms = self.route_config.cache.lock_timeout;
        }
        let is_sent = owner.lookup_batch_at_owner(keys, options, waiter, lookup.now);
        is_sent.then_some(AwaitedResult::Stored)
    }
}
