//! Lookup of a batch. If a part of it is stored, the node receives one batch of the missing
//! calls, under the client's own ids, so that its responses are valid for the client
//! unchanged.

mod assembly;
pub(in crate::exchange) mod log_split_state;
mod log_splits;
mod lookup_state;
pub(in crate::exchange) mod merge;
mod owner_query;
mod pairing;
pub(in crate::exchange) mod split;
mod stored_response;

use std::sync::Arc;

use crate::bytes::try_copy_bytes;
use crate::cache::entry::batch::BatchCoding;
use crate::cache::process::chain_identities::is_identity_method;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::cache::vary_key::VaryKey;
use crate::cache::CacheKey;
use crate::exchange::cache::batch::log_split_state::BatchLogSplits;
use crate::exchange::cache::batch::log_splits::BatchSearchProgress;
use crate::exchange::cache::batch::lookup_state::BatchLookup;
use crate::exchange::cache::batch::split::SplitBatch;
use crate::exchange::cache::call_keys::{CallKeyAndLifetime, CallKeyReader};
use crate::exchange::cache::fill::target::{FillCall, FillTarget};
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::{BackgroundCall, BackgroundUpdate, LookupResult};
use crate::exchange::cache::waiting::{
    AwaitedBatchResponses, AwaitedResult, OwnerBatchReply, WaitingRequest,
};
use crate::exchange::machine::message_head::{HeadEdit, Header};
use crate::exchange::machine::Exchange;
use crate::exchange::response::pipeline::{BufferedBody, EntryReservations};
use crate::jsonrpc::ids::count_call_ids;
use crate::jsonrpc::request::JsonRpcCall;
use crate::metrics::BatchCallOutcome;
use crate::request_coding::BodyContentCoding;

const ACCEPT_ENCODING: &str = "Accept-Encoding";

impl Exchange {
    /// Looks up the calls of a batch: responds with their entries, waits for other requests, or
    /// forwards the missing calls.
    pub(in crate::exchange) fn lookup_batch(
        &mut self,
        calls: Vec<JsonRpcCall<'_>>,
        mut places: Vec<Option<CallKeyAndLifetime>>,
        judge: &CallKeyReader<'_>,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
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
            fetched: Vec::new(),
        };
        self.record_batch_metrics(&batch);
        if !self.route_config.process.shared.has_response_storage() {
            return LookupResult::Miss;
        }
        if self.lookup_findings.allowed_part.is_some() {
            batch.insert_denied_errors(&self.lookup_findings.denial_errors);
        }
        if let Some(pending) = self.find_or_await_responses(&mut batch, judge, lookup, waited) {
            return pending;
        }
        if !batch.fetched.is_empty() {
            self.lookup_findings.served_status = Some(CacheStatus::Miss);
        }
        let Some((coding, borrowed)) = self.reserve_batch_memory(&batch.found, lookup) else {
            // the node's responses are streamed, and the entries stay as they are
            self.cache_status = CacheStatus::Miss;
            self.cache_reason = Reason::Memory;
            return LookupResult::Miss;
        };
        let proof = self.new_batch_call_verification(&batch, judge, lookup);
        let found = match self.respond_to_stored_batch(&mut batch, coding, borrowed, lookup) {
            Ok(found) => found,
            Err(borrowed) => {
                batch.discard_head_dependent_entries();
                self.observe_call_response_blocks(&batch.calls, true, judge.call_vary_key());
                self.forward_missing_calls(batch, judge, lookup, coding, borrowed)
            }
        };
        // a batch that is forwarded unsplit has no hits
        if let (Some(proof), false) = (proof, matches!(found, LookupResult::Miss)) {
            self.lookup_findings.background_updates.push_back(proof);
        }
        found
    }

    /// Finds the entries of the batch's calls, and assembles the responses to wide calls for logs.
    /// Returns the result of the lookup if the batch waits.
    fn find_or_await_responses(
        &mut self,
        batch: &mut BatchLookup<'_>,
        judge: &CallKeyReader<'_>,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
    ) -> Option<LookupResult> {
        let shared = Arc::clone(&self.route_config.process.shared);
        let vary_key = judge.call_vary_key();
        let mut received = match self.end_batch_wait(batch, vary_key, lookup, waited) {
            Ok(received) => received,
            Err(pending) => return Some(pending),
        };
        loop {
            let splits = self.lookup_findings.batch_logs.as_deref();
            batch.find_batch_entries(&shared, judge, lookup, &received, splits);
            batch.discard_overlong_entries(self.route_config.active_call_policy());
            if let Some(waiting) = self.await_missing_calls(batch, vary_key, lookup, &mut received)
            {
                return Some(LookupResult::InFlight(waiting));
            }
            match self.search_batch_logs(batch, vary_key, lookup, &mut received) {
                BatchSearchProgress::Done => return None,
                BatchSearchProgress::Changed => batch.forget_stale_entries(lookup.now),
                BatchSearchProgress::Pending(pending) => return Some(pending),
            }
        }
    }

    /// Waits for the owner's entries for the missing calls, or for the requests of others that fetch
    /// all of them.
    fn await_missing_calls(
        &mut self,
        batch: &BatchLookup<'_>,
        vary_key: &VaryKey,
        lookup: &LookupRequest<'_>,
        received: &mut AwaitedBatchResponses,
    ) -> Option<Box<WaitingRequest>> {
        // the vary headers changed during the wait: the batch is coalesced under its own keys
        let is_rekeyed = received.flight_responses.is_some()
            && received.names.as_ref() != vary_key.vary_header_names();
        let may_wait =
            received.flight_responses.is_none() || is_rekeyed && !self.lookup_findings.is_rekeyed;
        self.lookup_findings.is_rekeyed |= is_rekeyed;
        let splits = self.lookup_findings.batch_logs.as_deref();
        // a request that leads a flight does not wait
        if !may_wait || splits.is_some_and(BatchLogSplits::is_abandoned) {
            return None;
        }
        let awaited = match &received.owner_reply {
            None => self.query_owner_for_batch(batch, vary_key, lookup),
            Some(_) => None,
        };
        let owner_reply = &mut received.owner_reply;
        let awaited =
            awaited.or_else(|| self.follow_missing_calls(batch, vary_key, lookup, owner_reply))?;
        let shared = &self.route_config.process.shared;
        Some(WaitingRequest::new(shared, lookup.waiter?, awaited))
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

    /// Forwards the missing calls to the node, or the whole batch.
    fn forward_missing_calls(
        &mut self,
        batch: BatchLookup<'_>,
        judge: &CallKeyReader<'_>,
        lookup: &LookupRequest<'_>,
        merged_coding: BatchCoding,
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
        let may_be_split = self.may_split_batch(&batch, lookup);
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
                self.pass_on_abandoned_leadership(&mut fill);
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
            merged_coding,
            buffered: BufferedBody {
                borrowed,
                ..BufferedBody::default()
            },
            ..SplitBatch::default()
        }))
    }

    /// Whether the node may receive a part of the batch: its response can be merged.
    fn may_split_batch(&self, batch: &BatchLookup<'_>, lookup: &LookupRequest<'_>) -> bool {
        // a batch with denied calls is split in any case
        let is_split = batch.denied.contains(&true);
        !lookup.whole && (is_split || !self.may_receive_unknown_coding(lookup))
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

    /// Follows the flights of all missing calls, and keeps the owner's entries meanwhile; `None` if
    /// other requests do not fetch all of them.
    fn follow_missing_calls(
        &self,
        batch: &BatchLookup<'_>,
        scope: &VaryKey,
        lookup: &LookupRequest<'_>,
        owner_reply: &mut Option<OwnerBatchReply>,
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
        follows.then(|| AwaitedResult::Flights(since, names, owner_reply.take()))
    }
}

fn is_accept_encoding(edit: &HeadEdit) -> bool {
    edit.name == ACCEPT_ENCODING
}
