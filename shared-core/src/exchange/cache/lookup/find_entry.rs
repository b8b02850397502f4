//! Lookup of one response: in the hot tier, among in-flight fetches, at the owner.

use std::sync::Arc;

use crate::beacon::beacon_request_kind;
use crate::cache::entry::CacheEntry;
use crate::cache::owner_protocol::call_kind::{call_kind, NO_CALL_KIND};
use crate::cache::process::flights::{
    CoalescingRole, FlightFollowerWakeup, FlightLeadership, FlightOutcome,
};
use crate::cache::process::hot::HotTier;
use crate::cache::process::negative_cache::UncacheableSharing;
use crate::cache::process::owner_client::{OwnerClient, OwnerLookup, OwnerLookupOptions};
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::process::ProcessCacheState;
use crate::cache::reason::Reason;
use crate::cache::resource::other_format_key;
use crate::cache::status::CacheStatus;
use crate::cache::vary_key::VaryKey;
use crate::cache::CacheKey;
use crate::exchange::cache::fill::target::FillTarget;
use crate::exchange::cache::format_pair::have_equal_entry_values;
use crate::exchange::cache::lookup::request::{LookupRequest, LookupTarget};
use crate::exchange::cache::lookup::result::LookupResult;
use crate::exchange::cache::waiting::{AwaitedResult, PurgeAndChainSnapshot, WaitingRequest};
use crate::exchange::machine::Exchange;
use crate::gzip::oneshot::off_loop_min_length;

impl Exchange {
    /// Looks up one response in the hot tier, among in-flight fetches and at the owner.
    /// `new_fill_target` is called only if the response is to be fetched.
    pub(in crate::exchange) fn lookup_single_response(
        &mut self,
        target: &LookupTarget<'_>,
        scope: &VaryKey,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
        new_fill_target: impl FnOnce() -> FillTarget,
    ) -> LookupResult {
        let shared = Arc::clone(&self.route_config.process.shared);
        if !shared.has_response_storage() {
            return LookupResult::Miss;
        }
        let key = target.key;
        self.lookup_findings.key = Some(key);
        if let Some(waited) = waited {
            let other = waited
                .awaited_response_key()
                .filter(|(other, _)| *other != key);
            if other.is_none() || self.lookup_findings.is_rekeyed {
                return self.resume_lookup(*waited, target, scope, lookup, new_fill_target);
            }
            // the vary headers changed during the wait: the request is coalesced under its own key
            self.lookup_findings.is_rekeyed = true;
            match waited.claim_wakeup() {
                Some(FlightFollowerWakeup::Response(_)) => {}
                Some(FlightFollowerWakeup::Lead(token)) => {
                    shared.finish_flight_and_wake(token, FlightOutcome::NotShareable);
                }
                // the request was not woken: its wait has timed out
                None => {
                    self.cache_status = CacheStatus::Miss;
                    return self.attach_cache_fill(
                        self.new_cache_fill(new_fill_target(), scope.clone(), None, lookup),
                        lookup,
                    );
                }
            }
        }
        let trusted = shared.may_send_from_memory(lookup.now);
        if lookup.bypass {
            self.cache_reason = Reason::Bypass;
        } else if let Some((entry, found)) = self.find_in_hot_tier(&shared, target, lookup, trusted)
        {
            // a response to a range or HEAD is no complete one to compare with
            if target.is_whole && !matches!(found, LookupResult::Miss) {
                self.start_hit_verification(&entry, scope, lookup, new_fill_target);
            }
            return found;
        }
        if self.request.cache.no_store {
            self.cache_reason = Reason::RequestNoStore;
        }
        if !target.is_whole || self.request.cache.no_store {
            // the response is not a complete one, or must not be stored
            return LookupResult::Miss;
        }
        match self.join_flight_or_fetch(&shared, target, scope, lookup, trusted) {
            FetchDecision::Fetch(token) => {
                let fill = self.new_cache_fill(new_fill_target(), scope.clone(), token, lookup);
                self.attach_cache_fill(fill, lookup)
            }
            FetchDecision::Respond(found) => found,
        }
    }

    /// Looks up one response in the hot tier. Returns the entry and the result if it can be sent. A
    /// stale entry is remembered, because it may be sent if the node fails.
    fn find_in_hot_tier(
        &mut self,
        shared: &ProcessCacheState,
        target: &LookupTarget<'_>,
        lookup: &LookupRequest<'_>,
        trusted: bool,
    ) -> Option<(Arc<CacheEntry>, LookupResult)> {
        let key = target.key;
        let hot = shared.hot_tier();
        if let (Some(hot), None) = (hot, target.id) {
            self.remove_invalidated_entry(hot, &key, lookup);
        }
        let entry = hot.and_then(|hot| hot.get(&key, lookup.now));
        let entry = entry.filter(|entry| trusted && self.matches_other_format(&key, entry));
        self.cache_status = CacheStatus::Miss;
        if let Some(entry) = entry {
            self.mark_usable_when_stale(&entry);
            if let Some(found) =
                self.respond_from_entry(&key, Arc::clone(&entry), target.id, lookup)
            {
                return Some((entry, found));
            }
        }
        self.cache_status = CacheStatus::Miss;
        if trusted && target.is_whole {
            self.find_stale_entry(target, lookup);
        }
        None
    }

    /// Joins the flight of the key, as leader or follower, if requests for it are coalesced or an
    /// owner is to be queried first.
    fn join_flight_or_fetch(
        &mut self,
        shared: &Arc<ProcessCacheState>,
        target: &LookupTarget<'_>,
        scope: &VaryKey,
        lookup: &LookupRequest<'_>,
        trusted: bool,
    ) -> FetchDecision {
        let key = target.key;
        // a stale entry is sent meanwhile because another request fetches the new one
        let sharing = shared
            .negative_cache
            .uncacheable_sharing_of_key(&key, lookup.now);
        let may_share = target.coalesces
            && self.route_config.cache.lock
            && sharing != Some(UncacheableSharing::RequesterOnly)
            && shared.may_coalesce(lookup.now);
        let coalesces = may_share || self.may_send_stale(lookup);
        let joins = coalesces
            || shared
                .owner_client()
                .is_some_and(OwnerClient::is_owner_reachable);
        let since = self.capture_wait_snapshot(scope, lookup.now);
        let Some(waiter) = lookup.waiter.filter(|_| joins && !lookup.bypass) else {
            return FetchDecision::Fetch(None);
        };
        let mark = since.mark.as_ref();
        let is_final = |slot| mark.is_some_and(|mark| mark.is_height_final(slot));
        let is_shareable = target.may_be_immutable
            && target.slot.is_none_or(is_final)
            && self.shares_with_machines(scope, mark);
        let request_kind = || beacon_request_kind(&self.request.cache.target);
        let options = OwnerLookupOptions {
            leases: coalesces,
            // an uncacheable response is not stored by other processes either
            skips_wait: sharing.is_some(),
            is_shareable,
            // a request without a fetch would leave its lease in the fleet, for which others wait
            call_kind: match is_shareable && !self.answers_only_from_cache() {
                true => target.method.map_or_else(request_kind, call_kind),
                false => NO_CALL_KIND,
            },
        };
        let role = join_flight(shared, key, waiter, options, lookup.now);
        match role {
            FlightRole::Leads(Some(token)) if trusted => {
                // another event loop may have stored it since the hot tier was searched
                let Some(entry) = self.find_newly_stored_entry(&key, target, lookup) else {
                    return FetchDecision::Fetch(Some(token));
                };
                if shared.flights.take_flight_lease(&token) {
                    if let Some(owner) = shared.owner_client() {
                        owner.release_lease(key);
                    }
                }
                shared.finish_flight_and_wake(token, FlightOutcome::Answer(Arc::clone(&entry)));
                FetchDecision::from_lookup_result(
                    self.respond_from_entry(&key, entry, target.id, lookup),
                )
            }
            FlightRole::Leads(token) => FetchDecision::Fetch(token),
            FlightRole::Found(entry) => FetchDecision::from_lookup_result(
                self.respond_from_shared_entry(shared, target, entry, &since, lookup),
            ),
            FlightRole::Follows if self.may_send_stale(lookup) => {
                shared.leave_flight(&key, waiter);
                FetchDecision::from_lookup_result(self.respond_stale(CacheStatus::Updating, lookup))
            }
            FlightRole::Follows | FlightRole::AwaitsOwner => {
                let awaited = AwaitedResult::Answer(key, since);
                let waiting = WaitingRequest::new(shared, waiter, awaited);
                FetchDecision::Respond(LookupResult::InFlight(waiting))
            }
        }
    }

    /// Searches the hot tier for an entry that another event loop may have stored since the last
    /// search.
    fn find_newly_stored_entry(
        &self,
        key: &CacheKey,
        target: &LookupTarget<'_>,
        lookup: &LookupRequest<'_>,
    ) -> Option<Arc<CacheEntry>> {
        let entry = self
            .route_config
            .process
            .shared
            .hot_tier()?
            .get(key, lookup.now)?;
        self.mark_usable_when_stale(&entry);
        Some(entry)
            .filter(|entry| target.id.is_some() || !self.is_invalidated_since_fetch(entry, lookup))
    }

    /// Removes an invalidated entry, which must not be revalidated either: its tag may be the same.
    fn remove_invalidated_entry(&self, hot: &HotTier, key: &CacheKey, lookup: &LookupRequest<'_>) {
        if self
            .route_config
            .process
            .shared
            .changes
            .last_invalidation_number()
            == 0
        {
            return;
        }
        let changed = hot
            .get_fresh_or_stale(key)
            .filter(|entry| self.is_invalidated_since_fetch(entry, lookup));
        if let Some(entry) = changed {
            hot.remove_same_entry(key, &entry);
        }
    }

    /// Allows an entry to be served stale later, if the route serves stale responses.
    pub(in crate::exchange) fn mark_usable_when_stale(&self, entry: &CacheEntry) {
        if self.route_config.cache.use_stale.permits_any_stale() {
            entry.mark_stale_allowed();
        }
    }

    /// Whether an entry has the same value as the entry of its other format, if there is one. If
    /// the values are different the node must be queried.
    pub(in crate::exchange) fn matches_other_format(
        &self,
        key: &CacheKey,
        entry: &Arc<CacheEntry>,
    ) -> bool {
        if !entry.needs_format_comparison() {
            return true;
        }
        let (Some(negotiated), Some(hot)) = (
            self.request.ssz,
            self.route_config.process.shared.hot_tier(),
        ) else {
            return true;
        };
        let is_equal = match hot.get_fresh_or_stale(&other_format_key(key)) {
            None => true,
            Some(other) => {
                let most = off_loop_min_length(self.route_config.comp_level) as u64;
                let is_long = entry.response_length(b"").max(other.response_length(b"")) > most;
                let (chain, max_ssz) = (
                    self.route_chain_parameters(),
                    self.route_config.ssz.max_size,
                );
                let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
                let mut memory = None;
                let may_take = |bytes| {
                    memory = self.route_config.process.budget.reserve_bytes(bytes, limit);
                    memory.is_some()
                };
                !is_long
                    && have_equal_entry_values(negotiated, &chain, max_ssz, entry, &other, may_take)
            }
        };
        match is_equal {
            true => entry.mark_format_compared(),
            false => hot.remove_same_entry(key, entry),
        }
        is_equal
    }

    /// Completes a lookup after its wait, with the response that was awaited or as the leader. A
    /// request waits once.
    fn resume_lookup(
        &mut self,
        waited: WaitingRequest,
        target: &LookupTarget<'_>,
        scope: &VaryKey,
        lookup: &LookupRequest<'_>,
        new_fill_target: impl FnOnce() -> FillTarget,
    ) -> LookupResult {
        self.cache_status = CacheStatus::Miss;
        let shared = Arc::clone(&self.route_config.process.shared);
        let Some((key, since)) = waited.awaited_response_key() else {
            return LookupResult::Miss;
        };
        // the vary headers may have changed meanwhile
        let rekeyed = target.key != key;
        let token = match waited.claim_wakeup() {
            // the request was not woken: its wait has timed out
            None => {
                if !rekeyed {
                    if let Some(found) = self.respond_stale(CacheStatus::Updating, lookup) {
                        return found;
                    }
                }
                None
            }
            Some(FlightFollowerWakeup::Lead(token)) => Some(token),
            Some(FlightFollowerWakeup::Response(FlightOutcome::NotShareable)) => None,
            Some(FlightFollowerWakeup::Response(FlightOutcome::Answer(entry))) => {
                let found = match rekeyed {
                    false => self.respond_from_shared_entry(&shared, target, entry, &since, lookup),
                    true => None,
                };
                if let Some(found) = found {
                    return found;
                }
                None
            }
        };
        let mut fill = self.new_cache_fill(new_fill_target(), scope.clone(), token, lookup);
        fill.rekeyed = rekeyed;
        self.attach_cache_fill(fill, lookup)
    }

    /// Responds with an entry that another request has fetched, or the owner had, if it may be sent
    /// to this request, which began with the state `since`.
    fn respond_from_shared_entry(
        &mut self,
        shared: &ProcessCacheState,
        target: &LookupTarget<'_>,
        entry: Arc<CacheEntry>,
        since: &PurgeAndChainSnapshot,
        lookup: &LookupRequest<'_>,
    ) -> Option<LookupResult> {
        self.mark_usable_when_stale(&entry);
        let may_send = shared.may_send_from_memory(lookup.now)
            && since.allows_entry_since_wait(shared, &entry)
            && (target.id.is_some() || !self.is_invalidated_since_fetch(&entry, lookup))
            && self.matches_other_format(&target.key, &entry);
        match may_send {
            true => self.respond_from_entry(&target.key, entry, target.id, lookup),
            false => None,
        }
    }
}

/// The decision of a lookup without an entry in the hot tier: to fetch the response, or to respond
/// or wait.
enum FetchDecision {
    /// The response is fetched, by the leader of a flight or without one.
    Fetch(Option<FlightLeadership>),
    /// The lookup has another result: an entry, or a wait for the flight.
    Respond(LookupResult),
}

impl FetchDecision {
    fn from_lookup_result(found: Option<LookupResult>) -> Self {
        found.map_or(Self::Fetch(None), Self::Respond)
    }
}

/// The role of a request in the flight of its key: it leads, follows, or waits for the owner.
pub(in crate::exchange) enum FlightRole {
    /// The request leads, or (`None`) is sent to the node without a flight.
    Leads(Option<FlightLeadership>),
    /// The owner has the entry. The flight has ended.
    Found(Arc<CacheEntry>),
    /// The owner is queried: wait.
    AwaitsOwner,
    /// Another request leads: wait.
    Follows,
}

/// Joins the flight of a key as leader or follower. Where there is an owner the query to it
/// leads first.
fn join_flight(
    shared: &ProcessCacheState,
    key: CacheKey,
    waiter: WaitingRequestId,
    options: OwnerLookupOptions,
    now: u64,
) -> FlightRole {
    let token = match shared.flights.join_flight(key, waiter) {
        Some(CoalescingRole::Follower) => return FlightRole::Follows,
        Some(CoalescingRole::Leader(token)) => token,
        // memory was refused
        None => return FlightRole::Leads(None),
    };
    let token = match shared.owner_client() {
        Some(owner) => {
            let flights = &shared.flights;
            match owner.lookup_at_owner(flights, token, waiter, options, now) {
                OwnerLookup::Found(entry) => return FlightRole::Found(entry),
                OwnerLookup::Pending => return FlightRole::AwaitsOwner,
                OwnerLookup::Missing(token) => token,
            }
        }
        None => token,
    };
    if !options.leases {
        shared.finish_flight_and_wake(token, FlightOutcome::NotShareable);
        return FlightRole::Leads(None);
    }
    FlightRole::Leads(Some(token))
}
