//! Lookup of stored responses, before a request is forwarded to the node.

mod compressed_body;
mod find_entry;
pub(in crate::exchange) mod request;
mod resource;
pub(in crate::exchange) mod result;

use std::sync::Arc;

use crate::cache::process::chain_identities::is_identity_method;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::exchange::cache::call_keys::{CallKeyAndLifetime, CallKeyReader};
use crate::exchange::cache::logs::search::ClientLogCall;
use crate::exchange::cache::lookup::request::{
    BodyLength, LookupAction, LookupRequest, LookupTarget, RequiredBody,
};
use crate::exchange::cache::lookup::result::LookupResult;
use crate::exchange::cache::waiting::WaitingRequest;
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::machine::message_head::CacheRequestKind;
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::{ExchangeEvent, ExchangeState};
use crate::exchange::machine::Exchange;
use crate::exchange::response::ready_response::StoredResponseToDecode;
use crate::jsonrpc::request::{
    required_request_memory, JsonRpcCall, JsonRpcRequestBody, RequestParseFailure,
};
use crate::memory;
use crate::response_mode::ResponseMode;

impl Exchange {
    /// Returns the part of the request that a lookup needs, for a body of this length.
    pub fn required_body(&mut self, length: BodyLength) -> RequiredBody {
        if let Some(need) = self.body_required_by_policy(length) {
            return need;
        }
        if self.requires_request_rewrite() {
            if self.is_rewritable_body_length(length) {
                return RequiredBody::WholeBody;
            }
            // the body will not be rewritten, though the request is looked up without it
            self.request.submitted = None;
        }
        let need = self.body_required_by_cache(length);
        let others = self.may_have_ssz_result(length) || self.may_be_engine_witness_call(length);
        if others || self.is_body_read_to_decompress(length) {
            self.lookup_findings.cache_skips_body = need == RequiredBody::Nothing;
            return RequiredBody::WholeBody;
        }
        need
    }

    /// Returns the part of the request that the cache needs for a lookup; see
    /// [`Exchange::required_body`].
    pub(in crate::exchange) fn body_required_by_cache(
        &mut self,
        length: BodyLength,
    ) -> RequiredBody {
        let (request, cache) = (&self.request.cache, &self.route_config.cache);
        let looks = matches!(
            self.exchange_state(),
            ExchangeState::AwaitingHead | ExchangeState::Waiting
        );
        if !looks || !self.route_config.process.shared.has_response_storage() {
            return RequiredBody::Nothing;
        }
        let (fits, need) = match request.kind {
            CacheRequestKind::Change => return RequiredBody::LookUp,
            CacheRequestKind::None => return RequiredBody::Nothing,
            _ if self.must_bypass_cache() => return RequiredBody::Nothing,
            CacheRequestKind::Resource => (length == BodyLength::Known(0), RequiredBody::LookUp),
            CacheRequestKind::Call => {
                let fits = match length {
                    BodyLength::Known(length) => (1..=cache.max_request).contains(&length),
                    BodyLength::Unknown => cache.max_request > 0,
                };
                (fits, RequiredBody::Body)
            }
        };
        if !fits {
            self.cache_reason = Reason::RequestLength;
            return RequiredBody::Nothing;
        }
        need
    }

    /// Whether stored responses must not be sent to this client.
    pub(super) fn must_bypass_cache(&self) -> bool {
        self.request.cache.credentials
    }

    /// Whether a body is too long to be looked up, now that its length is known.
    pub(in crate::exchange) fn exceeds_lookup_limit(&self, body: &[u8]) -> bool {
        self.is_call_request() && body.len() as u64 > self.route_config.cache.max_request
    }

    /// Whether the request may be a JSON-RPC call, whose body determines the response.
    pub(in crate::exchange) fn is_call_request(&self) -> bool {
        self.request.cache.kind == CacheRequestKind::Call
    }

    /// Searches the cache for responses to the request, and returns the action that follows.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a response head is awaited.
    pub fn lookup_in_cache(
        &mut self,
        lookup: LookupRequest<'_>,
    ) -> Result<LookupAction, HostMisuse> {
        let waited = self.end_lookup_wait();
        let ExchangePhase::AwaitingHead = self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Miss));
        };
        self.cache_status = CacheStatus::Bypass;
        let found = self.search_by_request_kind(&lookup, waited);
        if !matches!(
            found,
            LookupResult::InFlight(_) | LookupResult::AssemblyForBatch(_)
        ) {
            self.end_logs_searches();
        }
        let needs_node = matches!(found, LookupResult::Miss | LookupResult::PartialHit(_));
        if needs_node && self.answers_only_from_cache() {
            return self.respond_not_cached();
        }
        if matches!(found, LookupResult::Miss) && self.forward_allowed_calls()? {
            return Ok(LookupAction::ForwardRewritten);
        }
        let (event, phase, look_up) = match found {
            LookupResult::Miss if !self.request_body.is_empty() => (
                ExchangeEvent::Miss,
                ExchangePhase::AwaitingHead,
                LookupAction::ForwardRewritten,
            ),
            LookupResult::Miss => (
                ExchangeEvent::Miss,
                ExchangePhase::AwaitingHead,
                LookupAction::Forward,
            ),
            LookupResult::Hit(answer) => (
                ExchangeEvent::Hit,
                ExchangePhase::Ready(answer),
                LookupAction::Respond,
            ),
            LookupResult::HitToDecode(decoding) => (
                ExchangeEvent::HitToDecode,
                ExchangePhase::Decoding(decoding),
                LookupAction::RespondOffLoop,
            ),
            LookupResult::AssemblyForBatch(assembly) => (
                ExchangeEvent::HitToDecode,
                ExchangePhase::Decoding(Box::new(StoredResponseToDecode::LogsOfBatch(assembly))),
                LookupAction::AssembleOffLoop,
            ),
            LookupResult::PartialHit(mixed) => (
                ExchangeEvent::PartialHit,
                ExchangePhase::AwaitingPart(mixed),
                LookupAction::ForwardRewritten,
            ),
            LookupResult::InFlight(waits) => (
                ExchangeEvent::Wait,
                ExchangePhase::Waiting(waits),
                LookupAction::Wait,
            ),
        };
        if look_up == LookupAction::Respond {
            self.complete_query_head(false);
        }
        self.apply_transition(event, |_| phase)?;
        Ok(look_up)
    }

    /// Searches the cache by the kind of the request, unless the cache can't be used for it.
    pub(in crate::exchange) fn search_by_request_kind(
        &mut self,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
    ) -> LookupResult {
        if self.request.cache.kind == CacheRequestKind::Change {
            self.cache_reason = self.request.cache.why;
            self.record_invalidating_request(lookup);
            return LookupResult::Miss;
        }
        if lookup.local {
            self.cache_reason = Reason::Local;
            return LookupResult::Miss;
        }
        if self.lacks_namespace(lookup) {
            self.cache_reason = Reason::Namespace;
            return LookupResult::Miss;
        }
        if self.is_cache_suspended(lookup) {
            self.cache_reason = Reason::WrongChain;
            return LookupResult::Miss;
        }
        if memory::is_memory_short()
            || !memory::can_allocate_now(required_request_memory(lookup.body.len()))
        {
            self.cache_reason = Reason::Memory;
            return LookupResult::Miss;
        }
        self.lookup_findings.at = lookup.now;
        self.route_config
            .process
            .shared
            .negative_cache
            .advance_clock_to(lookup.now);
        self.lookup_findings.coding_allowed = lookup.coding_allowed;
        self.lookup_findings.host_writes_vary = lookup.host_writes_vary;
        self.lookup_findings.forwards_codings = lookup.forwards_codings;
        if self.request.cache.kind == CacheRequestKind::Resource {
            let found = self.lookup_resource(lookup, waited);
            self.observe_route_blocks(lookup, &found);
            return found;
        }
        match self.request.coding.supported_coding().is_some() {
            true => self.lookup_decompressed_request(lookup, waited),
            false => self.lookup_call_or_batch(lookup, waited),
        }
    }

    /// Looks up the call or the batch in the request's body.
    pub(super) fn lookup_call_or_batch(
        &mut self,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
    ) -> LookupResult {
        let (config, scope) = (
            Arc::clone(&self.route_config),
            self.request_vary_key(lookup),
        );
        let mut judge = CallKeyReader::new(&config, &scope, lookup.body);
        match judge.read_calls_and_keys(config.cache.batch_max) {
            Ok((JsonRpcRequestBody::Single(call), places)) => {
                let place = places.into_iter().flatten().next();
                let found = self.lookup_single_call(&call, place, &judge, lookup, waited);
                if self.should_observe_blocks(&found) {
                    self.observe_call_response_blocks(&[call], false, &scope);
                }
                found
            }
            Ok((JsonRpcRequestBody::Batch(calls), places)) => {
                self.lookup_findings.record_batch_method_names(&calls);
                self.lookup_batch(calls, places, &judge, lookup, waited)
            }
            Err(refusal) => {
                self.cache_reason = match refusal {
                    RequestParseFailure::LongBatch => Reason::BatchLength,
                    _ => Reason::Malformed,
                };
                // the body is no JSON-RPC: a POST like any other
                self.record_invalidating_request(lookup);
                LookupResult::Miss
            }
        }
    }

    /// Looks up a single call; a notification, or a method that is not cached, is a miss.
    fn lookup_single_call(
        &mut self,
        call: &JsonRpcCall<'_>,
        place: Option<CallKeyAndLifetime>,
        judge: &CallKeyReader<'_>,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
    ) -> LookupResult {
        self.lookup_findings.rpc_method = call.method.to_vec();
        let (Some(id), Some(place)) = (call.id, place) else {
            self.cache_reason = match call.id {
                Some(_) => Reason::RpcMethod,
                None => Reason::Notification,
            };
            return LookupResult::Miss;
        };
        self.lookup_findings.is_unverified = is_identity_method(call.method)
            && self.has_unverified_chain_headers(judge.call_vary_key());
        let vary_key = judge.call_vary_key();
        let client = ClientLogCall {
            call,
            id,
            place: &place,
            vary_key,
        };
        if let Some(search) = self.lookup_findings.logs_search.take() {
            let found = self.resume_logs_search(search, &client, lookup, waited);
            self.record_other_api_miss(&found);
            return found;
        }
        let target = LookupTarget {
            key: place.key,
            id: Some(id),
            is_whole: true,
            coalesces: true,
            may_be_immutable: place.prospect.may_be_immutable(),
            slot: None,
            method: Some(call.method),
        };
        let fill_target = || client.fill_target();
        let found = self.lookup_single_response(&target, vary_key, lookup, waited, fill_target);
        if let LookupResult::Hit(_) | LookupResult::HitToDecode(_) = found {
            judge.add_to_key_cache(call, &place);
        }
        let found = match found {
            LookupResult::Miss => self.begin_logs_search(&client, lookup),
            found => found,
        };
        self.record_other_api_miss(&found);
        found
    }

    /// Records that the response will not be stored because its namespace follows a node of the
    /// other API.
    pub(super) fn record_other_api_miss(&mut self, found: &LookupResult) {
        let fill = self.storing.fill.as_ref();
        let is_missing = matches!(found, LookupResult::Miss);
        if is_missing && fill.is_some_and(|fill| fill.depends_on_other_api()) {
            self.cache_reason = Reason::OtherApi;
        }
    }

    /// Ends the wait, if there is one, and returns it, so that its result can be claimed.
    pub(super) fn end_lookup_wait(&mut self) -> Option<Box<WaitingRequest>> {
        let mut waits = None;
        if let ExchangePhase::Waiting(_) = self.phase {
            // the transition table has this move
            let _ = self.apply_transition(ExchangeEvent::Wake, |phase| {
                if let ExchangePhase::Waiting(awaited) = phase {
                    waits = Some(awaited);
                }
                ExchangePhase::AwaitingHead
            });
        }
        waits
    }

    /// Ends the wait and discards its result.
    pub(in crate::exchange) fn stop_waiting(&mut self) {
        drop(self.end_lookup_wait());
    }

    /// Discards the results of a lookup that has failed, so that the request is forwarded as a
    /// miss.
    pub fn reset_failed_lookup(&mut self) {
        self.storing.fill = None;
        self.lookup_findings.stale_entry = None;
        self.lookup_findings.background_updates.clear();
        self.end_logs_searches();
        self.lookup_findings.batch_hits = 0;
        self.lookup_findings.batch_calls.clear();
        self.response_mode = ResponseMode::Off;
        self.head_edits.clear();
        self.cache_status = CacheStatus::None;
        self.cache_reason = Reason::Memory;
    }

    /// Records the reason why the host did not look the request up.
    pub fn set_bypass_reason(&mut self, reason: Reason) {
        // they can't be resumed without the body
        self.end_logs_searches();
        self.cache_reason = reason;
    }

    /// Ends the searches for logs that were not resumed: they hand their flights over.
    pub(in crate::exchange) fn end_logs_searches(&mut self) {
        self.lookup_findings.logs_search = None;
        self.lookup_findings.batch_logs = None;
    }
}
