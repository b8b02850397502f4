//! Wide calls for logs in a batch, whose responses are assembled from pieces.
//!
//! Before the missing calls of a batch are sent to the node, the wide ones among them are searched
//! as single calls are, one after the other: the search of a call looks its pieces up in the cache,
//! and fetches the missing ones from the node. While a batch waits for the pieces of one call, it
//! leads the flight of this call only, so that no two requests wait for each other. A response that
//! was assembled is a stored one for the batch, whose other calls are then looked up again. After a
//! search that has failed none begins: the node receives the missing calls in one request.

use super::log_split_state::{AssembledResponse, BatchLogSplits};
use super::lookup_state::BatchLookup;
use crate::bytes::try_push;
use crate::cache::process::log_splits::LogSplitEvent;
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::vary_key::VaryKey;
use crate::exchange::cache::fill::CacheFill;
use crate::exchange::cache::logs::assembly_input::LogAssembly;
use crate::exchange::cache::logs::plan::LogSplitBudget;
use crate::exchange::cache::logs::search::{ClientLogCall, SearchStep};
use crate::exchange::cache::logs::search_state::LogsSearch;
use crate::exchange::cache::logs::LOGS_METHOD;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::LookupResult;
use crate::exchange::cache::waiting::{AwaitedBatchResponses, AwaitedResult, WaitingRequest};
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::gzip::oneshot::off_loop_min_length;
use crate::jsonrpc::ids::count_call_ids;
use crate::jsonrpc::method_rules::MethodAccessDecision;

/// The progress of the searches of a batch.
#[derive(Debug)]
pub(super) enum BatchSearchProgress {
    /// No search is left.
    Done,
    /// A search has ended: the batch is looked up again.
    Changed,
    /// The batch waits.
    Pending(LookupResult),
}

impl Exchange {
    /// Ends the wait of a batch: continues the search that has waited, if there is one. Returns the
    /// responses that the batch itself has waited for; the error is the result of a lookup that
    /// waits again.
    pub(super) fn end_batch_wait(
        &mut self,
        batch: &BatchLookup<'_>,
        vary_key: &VaryKey,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
    ) -> Result<AwaitedBatchResponses, LookupResult> {
        if let Some(splits) = &mut self.lookup_findings.batch_logs {
            splits.bytes_assembled_on_event_loop = 0;
        }
        let mut received = AwaitedBatchResponses::default();
        match self.lookup_findings.logs_search.take() {
            Some(search) => {
                let pending = match batch.missing_log_call(search.call_key(), vary_key) {
                    Some(client) => {
                        let step = self.end_search_wait(search, &client, lookup, waited);
                        self.perform_batch_search_step(step, lookup)
                    }
                    // the vary headers have changed meanwhile
                    None => {
                        self.perform_batch_search_step(SearchStep::Abandon(search, None), lookup)
                    }
                };
                if let Some(pending) = pending {
                    return Err(pending);
                }
            }
            None => {
                if let Some(waited) = waited {
                    received = waited.claim_awaited_responses();
                }
            }
        }
        if received.owner_reply.is_none() {
            let splits = self.lookup_findings.batch_logs.as_mut();
            received.owner_reply = splits.and_then(|splits| splits.owner_reply.take());
        }
        Ok(received)
    }

    /// Searches the next wide call of the batch that is missing.
    pub(super) fn search_batch_logs(
        &mut self,
        batch: &BatchLookup<'_>,
        vary_key: &VaryKey,
        lookup: &LookupRequest<'_>,
        received: &mut AwaitedBatchResponses,
    ) -> BatchSearchProgress {
        if received.flight_responses.is_some() {
            // it has waited for its missing calls already
            return BatchSearchProgress::Done;
        }
        if self.lookup_findings.batch_logs.is_none() {
            self.lookup_findings.batch_logs = self.plan_batch_log_splits(batch, vary_key, lookup);
        }
        while let Some(mut search) = self.next_planned_search() {
            if self.is_search_paused(&search, lookup.now) {
                continue;
            }
            let Some(client) = batch.missing_log_call(search.call_key(), vary_key) else {
                // another request has fetched it meanwhile
                continue;
            };
            search.lead_call_flight();
            let step = self.start_logs_search(Box::new(search), &client, lookup);
            let Some(pending) = self.perform_batch_search_step(step, lookup) else {
                return BatchSearchProgress::Changed;
            };
            if let Some(splits) = &mut self.lookup_findings.batch_logs {
                splits.owner_reply = received.owner_reply.take();
            }
            return BatchSearchProgress::Pending(pending);
        }
        BatchSearchProgress::Done
    }

    fn next_planned_search(&mut self) -> Option<LogsSearch> {
        let splits = self.lookup_findings.batch_logs.as_mut()?;
        splits.planned.pop()
    }

    /// Returns the searches for the missing wide calls of a batch; `None` if no call is split.
    ///
    /// The other missing calls reach the node after the searches. If one of them is not cached, a
    /// transaction for example, or holds a permit, none is delayed. If one may show a newer head, the
    /// node responds to the calls whose range is not final as well.
    fn plan_batch_log_splits(
        &self,
        batch: &BatchLookup<'_>,
        vary_key: &VaryKey,
        lookup: &LookupRequest<'_>,
    ) -> Option<Box<BatchLogSplits>> {
        self.route_config.cache.logs_split.as_ref()?;
        let mut missing = batch.calls.iter().zip(&batch.found);
        if !missing.any(|(call, found)| found.is_none() && call.method == LOGS_METHOD) {
            return None;
        }
        if self.has_other_missing_limited_call(batch) {
            return None;
        }
        let may_be_stored = !(lookup.bypass || self.request.cache.no_store);
        if !may_be_stored || self.lookup_findings.is_rekeyed || !self.may_split_batch(batch, lookup)
        {
            return None;
        }
        // a response is matched with its call by the id alone
        let ids = count_call_ids(batch.calls.iter().filter_map(|call| call.id))?;
        if ids.len() < batch.calls.len() {
            return None;
        }
        let snapshot = self.capture_wait_snapshot(vary_key, lookup.now);
        let mut budget = LogSplitBudget::default();
        let mut planned: Vec<LogsSearch> = Vec::new();
        let mut shows_newer_head = false;
        let calls = batch.calls.iter().zip(&batch.places).zip(&batch.found);
        for ((call, place), _) in calls.filter(|(_, found)| found.is_none()) {
            let (place, id) = (place.as_ref()?, call.id?);
            if planned.iter().any(|other| *other.call_key() == place.key) {
                continue;
            }
            let client = ClientLogCall {
                call,
                id,
                place,
                vary_key,
            };
            match self.plan_batch_logs_search(&client, &snapshot, &mut budget, lookup) {
                Some(search) => try_push(&mut planned, search)?,
                None => shows_newer_head |= place.prospect.depends_on_head(),
            }
        }
        if shows_newer_head {
            planned.retain(LogsSearch::has_final_range);
        }
        planned.reverse();
        (!planned.is_empty()).then(|| {
            Box::new(BatchLogSplits {
                planned,
                assembled: Vec::new(),
                snapshot,
                assembled_bytes: 0,
                bytes_assembled_on_event_loop: 0,
                abandoned: None,
                owner_reply: None,
            })
        })
    }

    /// Whether a missing call of another method has a concurrency limit: it would keep its permit
    /// during the searches, without a call at the node.
    fn has_other_missing_limited_call(&self, batch: &BatchLookup<'_>) -> bool {
        let Some(policy) = self.route_config.active_call_policy() else {
            return false;
        };
        let mut calls = batch.calls.iter().zip(&batch.found);
        calls.any(|(call, found)| {
            let decision = || policy.evaluate_method_rules(call.method);
            let is_other = found.is_none() && call.method != LOGS_METHOD;
            is_other && matches!(decision(), MethodAccessDecision::Limited(_))
        })
    }

    /// Performs a step of the search of a call of a batch. Returns the result of the lookup if the
    /// batch waits, or `None` if the search has ended.
    fn perform_batch_search_step(
        &mut self,
        step: SearchStep,
        lookup: &LookupRequest<'_>,
    ) -> Option<LookupResult> {
        match step {
            SearchStep::Wait(waiting) => Some(LookupResult::InFlight(waiting)),
            SearchStep::Assemble(assembly) => self.assemble_batch_logs(assembly, lookup.now),
            SearchStep::Abandon(search, _) => {
                let fill = self.end_abandoned_search(*search);
                if let Some(splits) = &mut self.lookup_findings.batch_logs {
                    splits.abandon_searches(Some(fill));
                }
                None
            }
        }
    }

    /// Assembles the response to a call of a batch now, or by a job if that takes too long for an
    /// event loop. All responses of a batch are as long as one entry may be.
    fn assemble_batch_logs(
        &mut self,
        assembly: Box<LogAssembly>,
        now: u64,
    ) -> Option<LookupResult> {
        let most = off_loop_min_length(self.route_config.comp_level) as u64;
        let max_entry = self.route_config.cache.max_entry;
        let length = assembly.source.decoded_length();
        let splits = self.lookup_findings.batch_logs.as_mut()?;
        splits.assembled_bytes = splits.assembled_bytes.saturating_add(length);
        splits.bytes_assembled_on_event_loop =
            splits.bytes_assembled_on_event_loop.saturating_add(length);
        if splits.assembled_bytes > max_entry {
            splits.abandon_searches(Some(assembly.fill));
            self.count_log_split(LogSplitEvent::Abandoned);
            return None;
        }
        if splits.bytes_assembled_on_event_loop > most {
            return Some(LookupResult::AssemblyForBatch(assembly));
        }
        self.add_assembled_response(*assembly, now);
        None
    }

    /// Assembles the response to a call of a batch, and stores it for the batch and other clients.
    fn add_assembled_response(&mut self, assembly: LogAssembly, now: u64) {
        let LogAssembly {
            key,
            source,
            fill,
            since,
            has_fetched,
            ..
        } = assembly;
        let published = self.publish_assembled_logs(source, fill, &since, now);
        self.count_log_split(match published {
            Ok(_) => LogSplitEvent::Assembled,
            Err(_) => LogSplitEvent::Abandoned,
        });
        self.lookup_findings.unusable_reason = None;
        let Some(splits) = &mut self.lookup_findings.batch_logs else {
            return;
        };
        match published {
            Ok(entry) => {
                let response = AssembledResponse {
                    key,
                    entry,
                    has_fetched,
                };
                // without memory for it the call is sent to the node, unless the hot tier has it
                let _ = try_push(&mut splits.assembled, response);
            }
            Err(fill) => splits.abandon_searches(fill),
        }
    }

    /// Assembles the response to a call of a batch on a thread that serves no connections. The batch
    /// is looked up again at once.
    pub(in crate::exchange) fn assemble_logs_off_loop(
        &mut self,
        assembly: LogAssembly,
    ) -> Result<(), HostMisuse> {
        self.add_assembled_response(assembly, self.lookup_findings.at);
        let shared = &self.route_config.process.shared;
        let nothing = AwaitedResult::Nothing;
        let ended = WaitingRequest::new(shared, WaitingRequestId::NONE, nothing);
        self.apply_transition(ExchangeEvent::Wait, |_| ExchangePhase::Waiting(ended))
    }

    /// Makes a fill of the missing calls the leader of the flight whose search has failed.
    pub(super) fn pass_on_abandoned_leadership(&mut self, fill: &mut CacheFill) {
        let splits = self.lookup_findings.batch_logs.as_mut();
        if let Some(abandoned) = splits.and_then(|splits| splits.abandoned.take()) {
            fill.take_over_leadership(*abandoned);
        }
    }
}
