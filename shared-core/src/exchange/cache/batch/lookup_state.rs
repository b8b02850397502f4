//! The state of the lookup of a batch.

use std::sync::Arc;

use crate::cache::class::LifetimeClass;
use crate::cache::entry::CacheEntry;
use crate::cache::process::ProcessCacheState;
use crate::cache::reason::Reason;
use crate::cache::vary_key::VaryKey;
use crate::cache::CacheKey;
use crate::config::{CallAccessPolicy, RouteConfig};
use crate::exchange::cache::batch::log_split_state::BatchLogSplits;
use crate::exchange::cache::batch::split::BatchElementSource;
use crate::exchange::cache::call_keys::{CallKeyAndLifetime, CallKeyReader};
use crate::exchange::cache::logs::search::ClientLogCall;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::waiting::AwaitedBatchResponses;
use crate::exchange::machine::Exchange;
use crate::jsonrpc::request::JsonRpcCall;

/// The state of a batch's lookup: its calls, the keys of their responses, and the entries that were
/// found.
#[derive(Debug)]
pub(super) struct BatchLookup<'a> {
    pub(super) calls: Vec<JsonRpcCall<'a>>,
    pub(super) places: Vec<Option<CallKeyAndLifetime>>,
    /// Whether each call is denied, empty if none is; the entry of a denied call is its error.
    pub(super) denied: Vec<bool>,
    pub(super) found: Vec<Option<Arc<CacheEntry>>>,
    /// Indices of the calls whose responses were assembled from pieces that were fetched for the
    /// batch.
    pub(super) fetched: Vec<usize>,
}

impl BatchLookup<'_> {
    /// Sets the errors of denied calls as their entries, and removes denied notifications.
    pub(super) fn insert_denied_errors(&mut self, denial_errors: &[Option<Arc<CacheEntry>>]) {
        let calls = std::mem::take(&mut self.calls);
        let places = std::mem::take(&mut self.places);
        for ((call, place), denied) in calls.into_iter().zip(places).zip(denial_errors) {
            let is_denied = denied.is_some();
            if is_denied && call.id.is_none() {
                continue;
            }
            self.found.push(denied.clone());
            self.places.push(place.filter(|_| !is_denied));
            self.calls.push(call);
            self.denied.push(is_denied);
        }
    }

    /// Whether the policy denies the call with this index.
    fn is_call_denied(&self, call: usize) -> bool {
        self.denied.get(call) == Some(&true)
    }

    /// Iterates over the entries of the calls that are not denied.
    pub(super) fn stored_batch_entries(&self) -> impl Iterator<Item = &Arc<CacheEntry>> {
        let found = self.found.iter().enumerate();
        found.filter_map(|(call, entry)| entry.as_ref().filter(|_| !self.is_call_denied(call)))
    }

    /// Whether the call with this index is a cache hit; a denied call is none, and neither is one
    /// for which the node was queried.
    pub(super) fn has_stored_response(&self, call: usize) -> bool {
        let found = self.found.get(call).is_some_and(Option::is_some);
        found && !self.is_call_denied(call) && !self.fetched.contains(&call)
    }

    /// Number of calls that are cache hits.
    pub(super) fn batch_hit_count(&self) -> usize {
        let calls = 0..self.calls.len();
        calls.filter(|call| self.has_stored_response(*call)).count()
    }

    /// Returns the call for logs with this key, if it has no response yet.
    pub(super) fn missing_log_call<'b>(
        &'b self,
        key: &CacheKey,
        vary_key: &'b VaryKey,
    ) -> Option<ClientLogCall<'b>> {
        let mut calls = self.calls.iter().zip(&self.places).enumerate();
        calls.find_map(|(at, (call, place))| {
            let is_missing = self.found.get(at).is_none_or(Option::is_none);
            let place = place.as_ref().filter(|place| place.key == *key)?;
            Some(ClientLogCall {
                call,
                id: call.id.filter(|_| is_missing)?,
                place,
                vary_key,
            })
        })
    }

    /// Forgets the responses that are not fresh any more, so that their calls are looked up again: an
    /// assembled response may have shown a newer head.
    pub(super) fn forget_stale_entries(&mut self, now: u64) {
        let denied = &self.denied;
        for (call, found) in self.found.iter_mut().enumerate() {
            found.take_if(|entry| denied.get(call) != Some(&true) && !entry.is_fresh(now));
        }
    }

    /// Searches the hot tier, the responses that were just fetched, the owner's entries, and the
    /// assembled responses.
    pub(super) fn find_batch_entries(
        &mut self,
        shared: &ProcessCacheState,
        judge: &CallKeyReader<'_>,
        lookup: &LookupRequest<'_>,
        wakeup: &AwaitedBatchResponses,
        splits: Option<&BatchLogSplits>,
    ) {
        let looks = !lookup.bypass && shared.may_send_from_memory(lookup.now);
        let owned = match &wakeup.owner_reply {
            Some(has) if has.generation == shared.purge_generation() => &has.entries[..],
            _ => &[],
        };
        self.found.resize(self.calls.len(), None);
        let find = |call: &JsonRpcCall<'_>, place: &Option<CallKeyAndLifetime>| {
            let place = place.as_ref()?;
            let is_it = |(key, _): &&(CacheKey, Arc<CacheEntry>)| *key == place.key;
            let in_hand = || {
                let fetched = wakeup.flight_responses.iter().flatten().find(is_it);
                let owned = || owned.iter().find(is_it);
                let owned = || owned().filter(|(_, entry)| entry.is_fresh(lookup.now));
                Some(fetched.or_else(owned)?.1.clone())
            };
            if !looks {
                return None;
            }
            let hot = shared.hot_tier();
            let entry = hot.and_then(|hot| hot.get(&place.key, lookup.now));
            let assembled = || splits.and_then(|it| it.usable_response(&place.key, shared));
            let entry = entry.or_else(in_hand).or_else(assembled)?;
            judge.add_to_key_cache(call, place);
            Some(entry)
        };
        let places = self.calls.iter().zip(&self.places);
        for (found, (call, place)) in self.found.iter_mut().zip(places) {
            if found.is_none() {
                *found = find(call, place);
            }
        }
        self.fetched.clear();
        if let Some(splits) = splits {
            self.discard_entries_of_former_heads(splits);
            let places = self.places.iter().enumerate();
            let fetched = places.filter(|(_, place)| {
                let place = place.as_ref();
                place.is_some_and(|place| splits.has_fetched_response(&place.key))
            });
            self.fetched.extend(fetched.map(|(call, _)| call));
        }
    }

    /// Discards entries of a former head if the response to another call depends on the head, too: all
    /// responses of a batch belong to one head.
    fn discard_entries_of_former_heads(&mut self, splits: &BatchLogSplits) {
        let is_changing = |call: &usize| {
            let place = self.places.get(*call).and_then(Option::as_ref);
            place.is_none_or(|place| !splits.has_immutable_response(&place.key))
        };
        if self.head_dependent_calls().filter(is_changing).count() < 2 {
            return;
        }
        for (call, found) in self.found.iter_mut().enumerate() {
            let is_denied = self.denied.get(call) == Some(&true);
            found.take_if(|entry| !is_denied && !entry.is_valid_on_chain());
        }
    }

    /// Iterates over the indices of the calls whose responses depend on the head, or may show a newer
    /// one.
    fn head_dependent_calls(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.calls.len()).filter(|call| self.depends_on_head(*call))
    }

    fn depends_on_head(&self, call: usize) -> bool {
        let has_id = self.calls.get(call).is_some_and(|it| it.id.is_some());
        let place = self.places.get(call).and_then(Option::as_ref);
        let depends = place.is_none_or(|place| place.prospect.depends_on_head());
        has_id && depends && !self.is_call_denied(call)
    }

    /// Discards entries that exceed the response limit of their method.
    pub(super) fn discard_overlong_entries(&mut self, policy: Option<&Arc<CallAccessPolicy>>) {
        let Some(policy) = policy else {
            return;
        };
        for (at, call) in self.calls.iter().enumerate() {
            let (false, Some(most)) = (
                self.is_call_denied(at),
                policy.method_response_limit(call.method),
            ) else {
                continue;
            };
            let id = call.id.unwrap_or_default();
            if let Some(found) = self.found.get_mut(at) {
                found.take_if(|entry| entry.response_length(id) > most);
            }
        }
    }

    /// Discards entries that depend on the head if the node is queried for a call that may show
    /// a newer head: all responses of a batch belong to one head.
    pub(super) fn discard_head_dependent_entries(&mut self) {
        let is_fetched = |call: usize| self.found.get(call).is_none_or(Option::is_none);
        if self.head_dependent_calls().any(is_fetched) {
            for found in &mut self.found {
                found.take_if(|entry| {
                    matches!(
                        entry.response_metadata().class,
                        LifetimeClass::Tip | LifetimeClass::Nothing
                    )
                });
            }
        }
    }

    /// Iterates over the places of the calls without an entry.
    pub(super) fn missing_call_keys(&self) -> impl Iterator<Item = &Option<CallKeyAndLifetime>> {
        let places = self.places.iter().zip(&self.found);
        places.filter_map(|(place, found)| found.is_none().then_some(place))
    }

    /// Whether there are entries and all have the same headers: they are sent under one head.
    pub(super) fn have_equal_stored_headers(&self) -> bool {
        let mut stored = self.stored_batch_entries();
        let first = stored.next();
        first.is_some_and(|first| {
            stored.all(|other| other.response_metadata().fields == first.response_metadata().fields)
        })
    }

    /// Whether all calls have entries that can be sent together.
    pub(super) fn is_batch_fully_stored(&self) -> bool {
        self.found.iter().all(Option::is_some) && self.have_equal_stored_headers()
    }

    /// Checks the unchecked entries, `most` bytes of them at most, the limit of a single
    /// response, and discards those that are damaged or exceed it. Returns whether all entries
    /// remain.
    pub(super) fn discard_damaged_entries(&mut self, config: &RouteConfig, most: u64) -> bool {
        let hot = config.process.shared.hot_tier();
        let budget = &config.process.budget;
        let limit = usize::try_from(config.memory).unwrap_or(usize::MAX);
        let mut all = 0;
        let mut all_remain = true;
        for (place, found) in self.places.iter().zip(&mut self.found) {
            let (Some(place), Some(entry)) = (place, &found) else {
                continue;
            };
            all += bytes_to_check_strictly(entry);
            if all > most && entry.needs_strict_check() {
                *found = None;
                all_remain = false;
                continue;
            }
            let Err(reason) = entry.check_strictly_within_budget(budget, limit) else {
                continue;
            };
            if let (Some(hot), true) = (hot, reason != Reason::Memory) {
                hot.remove_same_entry(&place.key, entry);
            }
            *found = None;
            all_remain = false;
        }
        all_remain
    }

    /// Returns the sources of the response, and the batch of the missing calls, notifications
    /// included.
    pub(super) fn split_missing_calls(
        &self,
        body: &[u8],
        policy: Option<&Arc<CallAccessPolicy>>,
    ) -> (Vec<BatchElementSource>, Vec<u8>) {
        let mut places = Vec::with_capacity(self.calls.len());
        let mut request = vec![b'['];
        for (at, (call, found)) in self.calls.iter().zip(&self.found).enumerate() {
            match (found, call.id) {
                (Some(entry), Some(id)) => {
                    let (entry, id) = (Arc::clone(entry), id.to_vec());
                    // a denied call has no key
                    places.push(match self.places.get(at) {
                        Some(Some(place)) => BatchElementSource::Stored(entry, id, place.key),
                        _ => BatchElementSource::Denied(entry, id),
                    });
                    continue;
                }
                (_, Some(id)) => {
                    let most = Exchange::batch_call_response_limit(policy, call.method);
                    places.push(BatchElementSource::Forwarded(id.to_vec(), most));
                }
                (_, None) => {}
            }
            if request.len() > 1 {
                request.push(b',');
            }
            request.extend_from_slice(&body[call.span.clone()]);
        }
        request.push(b']');
        (places, request)
    }
}

/// Number of bytes that must be checked before the entry is sent.
pub(super) fn bytes_to_check_strictly(entry: &CacheEntry) -> u64 {
    match entry.needs_strict_check() {
        true => entry.response_length(b""),
        false => 0,
    }
}
