//! Lookup of a batch. If a part of it is stored, the node receives one batch of the missing
//! calls, under the client's own ids, so that its responses are valid for the client
//! unchanged.

mod assembly;
pub(in crate::exchange) mod merge;
mod pairing;
pub(in crate::exchange) mod split;

use std::sync::Arc;

use crate::bytes::try_copy_bytes;
use crate::cache::class::LifetimeClass;
use crate::cache::entry::batch::{
    assemble_batch_for_gzip_only, assemble_gzip_batch, assemble_identity_batch, batch_coding_work,
    BatchResponseElement,
};
use crate::cache::entry::CacheEntry;
use crate::cache::process::chain_identities::is_identity_method;
use crate::cache::process::ProcessCacheState;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::cache::vary_key::VaryKey;
use crate::cache::CacheKey;
use crate::config::{CallAccessPolicy, RouteConfig};
use crate::exchange::cache::batch::split::{BatchElementSource, SplitBatch};
use crate::exchange::cache::call_keys::{CallKeyAndLifetime, CallKeyReader};
use crate::exchange::cache::fill::target::{FillCall, FillTarget};
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::{BackgroundCall, BackgroundUpdate, LookupResult};
use crate::exchange::cache::waiting::{
    AwaitedBatchResponses, AwaitedResult, OwnerBatchReply, WaitingRequest,
};
use crate::exchange::machine::message_head::{HeadEdit, Header};
use crate::exchange::machine::Exchange;
use crate::exchange::response::pipeline::{BufferedBody, EntryReservations, SentEntryReservation};
use crate::exchange::response::ready_response::{ReadyResponse, StoredResponseToDecode};
use crate::gzip::oneshot::off_loop_min_length;
use crate::gzip::splice::SlicedBody;
use crate::jsonrpc::ids::count_call_ids;
use crate::jsonrpc::request::JsonRpcCall;
use crate::metrics::BatchCallOutcome;
use crate::request_coding::BodyContentCoding;

const ACCEPT_ENCODING: &str = "Accept-Encoding";

/// Bytes of a long entry in identity that are copied into the batch at most; a total below
/// this is not reserved.
const MAX_COPIED_BYTES: u64 = 64 << 10;

impl Exchange {
    /// Looks up the calls of a batch: responds with their entries, waits for other requests, or
    /// forwards the missing calls.
    pub(in crate::exchange) fn lookup_batch(
        &mut self,
        calls: Vec<JsonRpcCall<'_>>,
        mut places: Vec<Option<CallKeyAndLifetime>>,
        judge: &CallKeyReader<'_>,
        lookup: &LookupRequest<'_>,
        wakeup: AwaitedBatchResponses,
    ) -> LookupResult {
        self.lookup_findings.batch_size = Some(calls.len());
        let is_identity = |call: &JsonRpcCall<'_>| is_identity_method(call.method);
        if calls.iter().any(is_identity) && self.has_unverified_chain_headers(judge.call_vary_key())
        {
            // the node responds to these calls of this request
            for (_, place) in calls
                .iter()
                .zip(&mut places)
                .filter(|(it, _)| is_identity(it))
            {
                *place = None;
            }
        }
        let mut batch = BatchLookup {
            calls,
            places,
            denied: Vec::new(),
            found: Vec::new(),
        };
        self.record_batch_metrics(&batch);
        let shared = Arc::clone(&self.route_config.process.shared);
        if !shared.has_response_storage() {
            return LookupResult::Miss;
        }
        if self.lookup_findings.allowed_part.is_some() {
            batch.insert_denied_errors(&self.lookup_findings.denial_errors);
        }
        batch.find_batch_entries(&shared, judge, lookup, &wakeup);
        batch.discard_overlong_entries(self.route_config.active_call_policy());
        // the vary headers changed during the wait: the batch is coalesced under its own keys
        let is_rekeyed = wakeup.flight_responses.is_some()
            && wakeup.names.as_ref() != judge.call_vary_key().vary_header_names();
        let may_wait =
            wakeup.flight_responses.is_none() || is_rekeyed && !self.lookup_findings.is_rekeyed;
        self.lookup_findings.is_rekeyed |= is_rekeyed;
        if may_wait {
            let awaited = match &wakeup.of_owner {
                None => self.query_owner_for_batch(&batch, judge.call_vary_key(), lookup),
                Some(_) => None,
            };
            let awaited = awaited.or_else(|| {
                self.follow_missing_calls(&batch, judge.call_vary_key(), lookup, wakeup.of_owner)
            });
            if let (Some(awaited), Some(waiter)) = (awaited, lookup.waiter) {
                return LookupResult::InFlight(WaitingRequest::new(&shared, waiter, awaited));
            }
        }
        let Some((gzip, borrowed)) = self.reserve_batch_memory(&batch.found, lookup) else {
            // the node's responses are streamed, and the entries stay as they are
            self.cache_status = CacheStatus::Miss;
            self.cache_reason = Reason::Memory;
            return LookupResult::Miss;
        };
        let proof = self.new_batch_call_verification(&batch, judge, lookup);
        let found = match self.respond_to_stored_batch(&mut batch, gzip, borrowed, lookup) {
            Ok(found) => found,
            Err(borrowed) => {
                batch.discard_head_dependent_entries();
                self.observe_call_response_blocks(&batch.calls, true, judge.call_vary_key());
                self.forward_missing_calls(batch, judge, lookup, gzip, borrowed)
            }
        };
        // a batch that is forwarded unsplit has no hits
        if let (Some(proof), false) = (proof, matches!(found, LookupResult::Miss)) {
            self.lookup_findings.background_updates.push_back(proof);
        }
        found
    }

    /// Creates the background request that verifies the hit of one call of a batch, if a
    /// verification is due: the node receives this call alone.
    fn new_batch_call_verification(
        &self,
        batch: &BatchLookup<'_>,
        judge: &CallKeyReader<'_>,
        lookup: &LookupRequest<'_>,
    ) -> Option<BackgroundUpdate> {
        let shared = &self.route_config.process.shared;
        let verify = self.route_config.cache.verify;
        // a host that can't forward a split batch can't forward a single call either
        if !verify.is_verification_enabled() || lookup.no_background_update || lookup.whole {
            return None;
        }
        let chosen = shared
            .verified
            .pick_hit_to_verify(batch.batch_hit_count(), verify.rate)?;
        let stored = (0..batch.calls.len()).filter(|call| batch.has_stored_response(*call));
        let at = { stored }.nth(chosen)?;
        let entry = batch.found.get(at)?.as_ref()?;
        let (call, place) = (batch.calls.get(at)?, batch.places.get(at)?.as_ref()?);
        // an entry that was fetched for another request just now does not verify the cache
        let current = shared.hot_tier()?.get(&place.key, lookup.now);
        current.filter(|other| Arc::ptr_eq(other, entry))?;
        let verified = BackgroundCall {
            body: try_copy_bytes(lookup.body.get(call.span.clone())?)?,
            method: call.method.to_vec(),
            key: place.key,
        };
        let wanted = FillCall::new(call, call.id?, place.key, place.prospect);
        let fill = self.new_verification_fill(
            entry,
            FillTarget::Call(wanted),
            judge.call_vary_key(),
            lookup,
        );
        Some(BackgroundUpdate {
            fill,
            call: Some(verified),
        })
    }

    /// Records the methods of the batch's calls, and their hits, for the metrics.
    fn record_batch_metrics(&mut self, batch: &BatchLookup<'_>) {
        let each = batch.calls.iter().enumerate();
        let each = each.map(|(at, call)| (call.method, batch.has_stored_response(at)));
        self.lookup_findings.batch_calls.clear();
        self.lookup_findings
            .batch_calls
            .extend(BatchCallOutcome::from_batch(each));
    }

    /// Responds from the cache if the whole batch is stored; otherwise returns its memory.
    fn respond_to_stored_batch(
        &mut self,
        batch: &mut BatchLookup<'_>,
        gzip: bool,
        borrowed: EntryReservations,
        lookup: &LookupRequest<'_>,
    ) -> Result<LookupResult, EntryReservations> {
        let most = off_loop_min_length(self.route_config.comp_level) as u64;
        let is_stored = batch.is_batch_fully_stored();
        if is_stored {
            let entries = || batch.found.iter().flatten().map(|it| &**it);
            let work = entries().map(bytes_to_check_strictly).sum::<u64>()
                + batch_coding_work(entries(), gzip);
            if work > most {
                let hits = batch.batch_hit_count();
                self.record_batch_metrics(batch);
                let found = std::mem::take(&mut batch.found);
                let answers = batch.calls.iter().zip(&batch.places).zip(found);
                let answers = answers.filter_map(|((call, place), entry)| {
                    let key = place.as_ref().map(|place| place.key);
                    Some((key, entry?, call.id?.to_vec()))
                });
                self.lookup_findings.batch_hits = hits;
                return Ok(LookupResult::HitToDecode(Box::new(
                    StoredResponseToDecode::Batch {
                        answers: answers.collect(),
                        gzip,
                        borrowed,
                    },
                )));
            }
        }
        let all_remain = batch.discard_damaged_entries(&self.route_config, most);
        let (Some(first), true) = (batch.stored_batch_entries().next(), is_stored && all_remain)
        else {
            return Err(borrowed);
        };
        let ids = batch.calls.iter().filter_map(|call| call.id);
        let entries = batch.found.iter().flatten().zip(ids);
        let mut elements: Vec<BatchResponseElement<'_>> = Vec::with_capacity(batch.calls.len());
        elements.extend(entries.map(|(entry, id)| BatchResponseElement::Stored(entry, id)));
        let weight = total_decodable_weight(batch.found.iter().flatten(), gzip);
        let Some(body) = self.assemble_batch_body(&elements, gzip) else {
            return Err(borrowed);
        };
        if total_decodable_weight(batch.found.iter().flatten(), gzip) != weight {
            let places = batch.places.iter().zip(&batch.found);
            self.update_entry_weights(
                places.filter_map(|(place, entry)| Some((&place.as_ref()?.key, entry.as_ref()?))),
            );
        }
        self.lookup_findings.batch_hits = batch.batch_hit_count();
        self.record_batch_metrics(batch);
        Ok(LookupResult::Hit(self.respond_with_entry_body(
            first,
            Some(body),
            lookup,
            borrowed,
        )))
    }

    /// Forwards the missing calls to the node, or the whole batch.
    fn forward_missing_calls(
        &mut self,
        batch: BatchLookup<'_>,
        judge: &CallKeyReader<'_>,
        lookup: &LookupRequest<'_>,
        gzip: bool,
        borrowed: EntryReservations,
    ) -> LookupResult {
        if !batch.places.iter().any(Option::is_some) {
            return LookupResult::Miss;
        }
        // a response is matched with its call by the id alone
        let Some(ids) = count_call_ids(batch.calls.iter().filter_map(|call| call.id)) else {
            return LookupResult::Miss;
        };
        let distinct = ids.len() == batch.calls.len();
        if !lookup.bypass {
            self.cache_status = CacheStatus::Miss;
        }
        // a batch with denied calls is split in any case
        let is_split = batch.denied.contains(&true);
        let may_be_split = !lookup.whole && (is_split || !self.may_receive_unknown_coding(lookup));
        let part = (distinct && batch.have_equal_stored_headers() && may_be_split).then(|| {
            batch.split_missing_calls(lookup.body, self.route_config.active_call_policy())
        });
        let hits = batch.batch_hit_count();
        let fetched = batch
            .calls
            .iter()
            .zip(&batch.places)
            .zip(&batch.found)
            .filter(|(_, found)| part.is_none() || found.is_none())
            .filter_map(|((call, place), _)| {
                let id = call.id.filter(|id| ids.get(id) == Some(&1))?;
                let place = place.as_ref()?;
                Some(FillCall::new(call, id, place.key, place.prospect))
            })
            .collect();
        if !self.request.cache.no_store {
            let target = FillTarget::Batch(fetched);
            let mut fill = self.new_cache_fill(target, judge.call_vary_key().clone(), None, lookup);
            if self.route_config.cache.lock && !lookup.bypass {
                fill.lead_batch_flights();
            }
            self.storing.fill = Some(fill);
        }
        let Some((places, request)) = part else {
            return LookupResult::Miss;
        };
        self.lookup_findings.batch_hits = hits;
        self.lookup_findings.allowed_part = None;
        self.record_batch_metrics(&batch);
        self.request_body = request;
        self.request_identity_coding();
        LookupResult::PartialHit(Box::new(SplitBatch {
            places,
            gzip,
            buffered: BufferedBody {
                borrowed,
                ..BufferedBody::default()
            },
            ..SplitBatch::default()
        }))
    }

    /// Whether the node's response may have a coding that is not decoded here: it always has, or
    /// the node receives the client's `Accept-Encoding`.
    fn may_receive_unknown_coding(&self, lookup: &LookupRequest<'_>) -> bool {
        let accept = self.request.accept_encoding;
        self.route_config.upstream_codings.has_sent_unknown_coding()
            || lookup.forwards_codings && accept.allows_other_codings()
    }

    /// Records that the node's response has a coding that was not requested and is not decoded
    /// here.
    pub(in crate::exchange) fn record_unrequested_coding<'a>(
        &self,
        fields: impl Iterator<Item = Header<'a>>,
    ) {
        if !self.request.post
            || BodyContentCoding::from_response_headers(fields) != BodyContentCoding::Other
        {
            return;
        }
        let edits_accept_encoding = self.upstream_edits.iter().any(is_accept_encoding);
        let is_forwarded = self.lookup_findings.forwards_codings || !edits_accept_encoding;
        if !(is_forwarded && self.request.accept_encoding.allows_other_codings()) {
            self.route_config.upstream_codings.record_unknown_coding();
        }
    }

    /// Requests identity from the node: an encoded response can't be merged.
    pub(in crate::exchange) fn request_identity_coding(&mut self) {
        if !self.upstream_edits.iter().any(is_accept_encoding) {
            self.upstream_edits
                .push(HeadEdit::set_header(ACCEPT_ENCODING, b"identity"));
        }
    }

    /// Sends the owner the keys of all missing calls, and returns the wait for its reply; `None` if
    /// it is not queried.
    fn query_owner_for_batch(
        &self,
        batch: &BatchLookup<'_>,
        scope: &VaryKey,
        lookup: &LookupRequest<'_>,
    ) -> Option<AwaitedResult> {
        let shared = &self.route_config.process.shared;
        let (waiter, owner) = (lookup.waiter?, shared.owner_client()?);
        let missing = || batch.missing_call_keys().flatten();
        let mut keys: Vec<CacheKey> = Vec::new();
        keys.try_reserve_exact(missing().count()).ok()?;
        if lookup.bypass || missing().next().is_none() {
            return None;
        }
        let (_, mark) = self.dispatch_mark(scope);
        let shares = self.shares_with_machines(scope, mark.as_ref());
        let is_shareable =
            |place: &&CallKeyAndLifetime| shares && place.prospect.may_be_immutable();
        keys.extend(missing().filter(is_shareable).map(|place| place.key));
        let shareable = keys.len();
        let others = missing().filter(|place| !is_shareable(place));
        keys.extend(others.map(|place| place.key));
        let is_sent = owner.lookup_batch_at_owner(keys, shareable, waiter, lookup.now);
        is_sent.then_some(AwaitedResult::Stored)
    }

    /// Follows the flights of all missing calls; `None` if other requests do not fetch all of them.
    fn follow_missing_calls(
        &self,
        batch: &BatchLookup<'_>,
        scope: &VaryKey,
        lookup: &LookupRequest<'_>,
        of_owner: Option<OwnerBatchReply>,
    ) -> Option<AwaitedResult> {
        let waiter = lookup.waiter?;
        if !self.route_config.cache.lock || lookup.bypass || self.request.cache.no_store {
            return None;
        }
        let mut keys: Vec<CacheKey> = Vec::new();
        keys.try_reserve_exact(batch.places.len()).ok()?;
        for place in batch.missing_call_keys() {
            keys.push(place.as_ref()?.key);
        }
        let since = self.capture_wait_snapshot(scope, lookup.now);
        let flights = &self.route_config.process.shared.flights;
        let follows = !keys.is_empty() && flights.follow_flights(keys, waiter);
        let names = scope.vary_header_names().cloned();
        follows.then_some(AwaitedResult::Flights(since, names, of_owner))
    }

    /// Reserves the memory for the response to a batch of these entries. Returns whether the
    /// response is to be gzip, or `None` if there is not enough memory for either form.
    fn reserve_batch_memory(
        &self,
        found: &[Option<Arc<CacheEntry>>],
        lookup: &LookupRequest<'_>,
    ) -> Option<(bool, EntryReservations)> {
        let first = self.client_prefers_gzip(lookup);
        // the coding that the client also accepts
        let second = (!first && self.client_accepts_gzip(lookup)).then_some(true);
        let ways = [Some(first), second].into_iter().flatten();
        ways.filter_map(|gzip| Some((gzip, self.reserve_batch_decode_memory(found, gzip)?)))
            .next()
    }

    /// Reserves memory for the entries that are decoded or copied for a batch; `None` if there is
    /// not enough.
    fn reserve_batch_decode_memory(
        &self,
        found: &[Option<Arc<CacheEntry>>],
        gzip: bool,
    ) -> Option<EntryReservations> {
        let mut borrowed = EntryReservations::default();
        let mut copied: u64 = 0;
        for entry in found.iter().flatten() {
            // the bytes of longer compressed entries are shared
            copied += match (gzip, entry.is_compressed() && !entry.may_be_inlined()) {
                (true, true) => 0,
                (true, false) => entry.response_length(b""),
                (false, _) if !self.reserve_entry_decode(entry, &mut borrowed) => return None,
                (false, _) => entry.response_length(b"").min(MAX_COPIED_BYTES),
            };
        }
        if copied >= MAX_COPIED_BYTES {
            let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
            let copied = usize::try_from(copied).unwrap_or(usize::MAX);
            let _memory = self
                .route_config
                .process
                .budget
                .reserve_bytes(copied, limit)?;
            borrowed.push(SentEntryReservation::Assembled { _memory });
        }
        Some(borrowed)
    }

    /// Assembles a batch whose entries were set aside for a thread that serves no connections;
    /// `None` if an entry is damaged or memory is short.
    pub(in crate::exchange) fn assemble_stored_batch(
        &mut self,
        answers: &[(Option<CacheKey>, Arc<CacheEntry>, Vec<u8>)],
        gzip: bool,
        lookup: &LookupRequest<'_>,
        borrowed: EntryReservations,
    ) -> Option<Box<ReadyResponse>> {
        let shared = Arc::clone(&self.route_config.process.shared);
        let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
        let mut stand = true;
        for (key, entry, _) in answers {
            let Err(reason) =
                entry.check_strictly_within_budget(&self.route_config.process.budget, limit)
            else {
                continue;
            };
            stand = false;
            if let (Some(hot), Some(key)) = (shared.hot_tier(), key) {
                if reason != Reason::Memory {
                    hot.remove_same_entry(key, entry);
                }
            }
        }
        if !stand {
            return None;
        }
        let elements: Vec<BatchResponseElement<'_>> = answers
            .iter()
            .map(|(_, entry, id)| BatchResponseElement::Stored(entry, id))
            .collect();
        let body = self.assemble_batch_body(&elements, gzip)?;
        self.update_entry_weights(
            answers
                .iter()
                .filter_map(|(key, entry, _)| Some((key.as_ref()?, entry))),
        );
        // the error of a denied call has no key
        let (_, first, _) = answers.iter().find(|(key, _, _)| key.is_some())?;
        Some(self.respond_with_entry_body(first, Some(body), lookup, borrowed))
    }

    /// Updates the weights of entries in the hot tier, as some may have both codings from now on.
    fn update_entry_weights<'a>(
        &self,
        entries: impl Iterator<Item = (&'a CacheKey, &'a Arc<CacheEntry>)>,
    ) {
        if let Some(hot) = self.route_config.process.shared.hot_tier() {
            entries.for_each(|(key, entry)| hot.update_entry_weight(key, entry));
        }
    }

    /// Assembles the elements of a batch into one body, gzip or identity; `None` if that fails.
    pub(in crate::exchange) fn assemble_batch_body(
        &self,
        elements: &[BatchResponseElement<'_>],
        gzip: bool,
    ) -> Option<SlicedBody> {
        if gzip {
            match self.request.accept_encoding.refuses_identity() {
                true => assemble_batch_for_gzip_only(elements, self.compression_gate()),
                false => assemble_gzip_batch(elements, self.compression_gate()),
            }
        } else {
            assemble_identity_batch(elements)
        }
    }
}

/// The state of a batch's lookup: its calls, the keys of their responses, and the entries that were
/// found.
#[derive(Debug)]
struct BatchLookup<'a> {
    calls: Vec<JsonRpcCall<'a>>,
    places: Vec<Option<CallKeyAndLifetime>>,
    /// Whether each call is denied, empty if none is; the entry of a denied call is its error.
    denied: Vec<bool>,
    found: Vec<Option<Arc<CacheEntry>>>,
}

impl BatchLookup<'_> {
    /// Sets the errors of denied calls as their entries, and removes denied notifications.
    fn insert_denied_errors(&mut self, denial_errors: &[Option<Arc<CacheEntry>>]) {
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
    fn stored_batch_entries(&self) -> impl Iterator<Item = &Arc<CacheEntry>> {
        let found = self.found.iter().enumerate();
        found.filter_map(|(call, entry)| entry.as_ref().filter(|_| !self.is_call_denied(call)))
    }

    /// Whether the call with this index is a cache hit; a denied call is none.
    fn has_stored_response(&self, call: usize) -> bool {
        let found = self.found.get(call).is_some_and(Option::is_some);
        found && !self.is_call_denied(call)
    }

    /// Number of calls with a stored response.
    fn batch_hit_count(&self) -> usize {
        self.stored_batch_entries().count()
    }

    /// Searches the hot tier, the responses that were just fetched, and the owner's entries.
    pub(in crate::exchange) fn find_batch_entries(
        &mut self,
        shared: &ProcessCacheState,
        judge: &CallKeyReader<'_>,
        lookup: &LookupRequest<'_>,
        wakeup: &AwaitedBatchResponses,
    ) {
        let looks = !lookup.bypass && shared.may_send_from_memory(lookup.now);
        let owned = match &wakeup.of_owner {
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
            let entry = entry.or_else(in_hand)?;
            judge.add_to_key_cache(call, place);
            Some(entry)
        };
        let places = self.calls.iter().zip(&self.places);
        for (found, (call, place)) in self.found.iter_mut().zip(places) {
            if found.is_none() {
                *found = find(call, place);
            }
        }
    }

    /// Discards entries that exceed the response limit of their method.
    fn discard_overlong_entries(&mut self, policy: Option<&Arc<CallAccessPolicy>>) {
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
    fn discard_head_dependent_entries(&mut self) {
        let calls = self.calls.iter().zip(&self.places).zip(&self.found);
        let mut fetched = calls.enumerate().filter(|(at, ((call, _), found))| {
            found.is_none() && call.id.is_some() && !self.is_call_denied(*at)
        });
        let moves = |place: &Option<CallKeyAndLifetime>| {
            let prospect = place.as_ref().map(|place| place.prospect);
            prospect.is_none_or(|prospect| prospect.depends_on_head())
        };
        if fetched.any(|(_, ((_, place), _))| moves(place)) {
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
    fn missing_call_keys(&self) -> impl Iterator<Item = &Option<CallKeyAndLifetime>> {
        let places = self.places.iter().zip(&self.found);
        places.filter_map(|(place, found)| found.is_none().then_some(place))
    }

    /// Whether there are entries and all have the same headers: they are sent under one head.
    fn have_equal_stored_headers(&self) -> bool {
        let mut stored = self.stored_batch_entries();
        let first = stored.next();
        first.is_some_and(|first| {
            stored.all(|other| other.response_metadata().fields == first.response_metadata().fields)
        })
    }

    /// Whether all calls have entries that can be sent together.
    fn is_batch_fully_stored(&self) -> bool {
        self.found.iter().all(Option::is_some) && self.have_equal_stored_headers()
    }

    /// Checks the unchecked entries, `most` bytes of them at most, the limit of a single
    /// response, and discards those that are damaged or exceed it. Returns whether all entries
    /// remain.
    pub(in crate::exchange) fn discard_damaged_entries(
        &mut self,
        config: &RouteConfig,
        most: u64,
    ) -> bool {
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
    fn split_missing_calls(
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
                    places.push(match self.is_call_denied(at) {
                        true => BatchElementSource::Denied(entry, id),
                        false => BatchElementSource::Stored(entry, id),
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

fn is_accept_encoding(edit: &HeadEdit) -> bool {
    edit.name == ACCEPT_ENCODING
}

/// Total weight of the entries that a batch may decode: it grows if it does.
fn total_decodable_weight<'a>(
    entries: impl Iterator<Item = &'a Arc<CacheEntry>>,
    gzip: bool,
) -> u64 {
    entries
        .filter(|entry| match gzip {
            true => entry.may_be_inlined(),
            false => entry.is_compressed(),
        })
        .map(|entry| entry.memory_weight())
        .sum()
}

/// Number of bytes that must be checked before the entry is sent.
fn bytes_to_check_strictly(entry: &CacheEntry) -> u64 {
    match entry.needs_strict_check() {
        true => entry.response_length(b""),
        false => 0,
    }
}
