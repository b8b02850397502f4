//! The search for entries from which the response to a call for logs is assembled.
//!
//! The call is looked up as any other first. If the node would be queried for it, the receipts of
//! its block are searched, or the pieces of its range. The call keeps its fill meanwhile, whose
//! followers receive the assembled entry. Any doubt ends the search: the client's own request is
//! sent to the node then.

use std::sync::Arc;

use super::assembly_input::{LogAssembly, LogAssemblySource};
use super::piece_state::WaitOutcome;
use super::plan::LogSplitBudget;
use super::search_state::{LogsSearch, SearchedEntries};
use super::LOGS_METHOD;
use crate::cache::chain::{DispatchMark, HeightUnit};
use crate::cache::owner_protocol::call_kind::NO_CALL_KIND;
use crate::cache::process::log_splits::LogSplitEvent;
use crate::cache::process::owner_client::BatchLookupOptions;
use crate::cache::status::CacheStatus;
use crate::cache::vary_key::VaryKey;
use crate::cache::CacheKey;
use crate::exchange::cache::call_keys::CallKeyAndLifetime;
use crate::exchange::cache::fill::logs_comparison::PendingLogsComparison;
use crate::exchange::cache::fill::target::{FillCall, FillTarget};
use crate::exchange::cache::fill::CacheFill;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::LookupResult;
use crate::exchange::cache::waiting::{AwaitedResult, PurgeAndChainSnapshot, WaitingRequest};
use crate::exchange::machine::Exchange;
use crate::jsonrpc::log_filter::LogFilter;
use crate::jsonrpc::request::JsonRpcCall;

/// Maximum time of a search, as a multiple of the lock timeout: no wait begins after it.
const MAX_LOCK_TIMEOUTS: u64 = 6;

/// The client's call, with its key and its vary key.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchange) struct ClientLogCall<'a> {
    pub(in crate::exchange) call: &'a JsonRpcCall<'a>,
    pub(in crate::exchange) id: &'a [u8],
    pub(in crate::exchange) place: &'a CallKeyAndLifetime,
    pub(in crate::exchange) vary_key: &'a VaryKey,
}

impl ClientLogCall<'_> {
    /// Returns the target of the call's fill.
    pub(in crate::exchange) fn fill_target(&self) -> FillTarget {
        let (key, prospect) = (self.place.key, self.place.prospect);
        FillTarget::Call(FillCall::new(self.call, self.id, key, prospect))
    }
}

/// The next action of a search.
#[derive(Debug)]
pub(super) enum SearchAction {
    Wait(Box<WaitingRequest>),
    Assemble(LogAssemblySource),
    /// The client's request is sent to the node, whose response is compared if receipts are set.
    Forward(Option<Box<PendingLogsComparison>>),
}

/// The result of a step of a search, which is the client's single call or a call of a batch.
#[derive(Debug)]
pub(in crate::exchange) enum SearchStep {
    /// The exchange waits, and has the search.
    Wait(Box<WaitingRequest>),
    Assemble(Box<LogAssembly>),
    /// The search has ended: the call is sent to the node, whose response is compared if receipts
    /// are set.
    Abandon(Box<LogsSearch>, Option<Box<PendingLogsComparison>>),
}

impl Exchange {
    /// Searches the entries of a single call for which the node would be queried; a miss if its
    /// response is not assembled.
    pub(in crate::exchange) fn begin_logs_search(
        &mut self,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> LookupResult {
        let Some((since, searched)) = self.plan_logs_search(client, lookup) else {
            return LookupResult::Miss;
        };
        let Some(fill) = self.storing.fill.take() else {
            return LookupResult::Miss;
        };
        let search = self.new_logs_search(client, fill, since, searched, lookup.now);
        let step = self.start_logs_search(Box::new(search), client, lookup);
        self.finish_search_step(step, client, lookup)
    }

    fn new_logs_search(
        &self,
        client: &ClientLogCall<'_>,
        fill: Box<CacheFill>,
        since: PurgeAndChainSnapshot,
        searched: SearchedEntries,
        now: u64,
    ) -> LogsSearch {
        let longest = self.route_config.cache.lock_timeout;
        let longest = longest.saturating_mul(MAX_LOCK_TIMEOUTS);
        LogsSearch {
            key: client.place.key,
            fill,
            since,
            waits_until: 0,
            ends_at: now.saturating_add(longest),
            searched,
        }
    }

    /// Returns the search for the pieces of a call of a batch that was looked up with the state
    /// `since`; `None` if the call is not split. The time limit of the search begins now.
    pub(in crate::exchange) fn plan_batch_logs_search(
        &self,
        client: &ClientLogCall<'_>,
        since: &PurgeAndChainSnapshot,
        budget: &mut LogSplitBudget,
        lookup: &LookupRequest<'_>,
    ) -> Option<LogsSearch> {
        let row = client.place.prospect.call_method_row();
        if client.call.method != LOGS_METHOD || row.is_operators {
            return None;
        }
        let filter = LogFilter::read(client.call.params?)?;
        let split = self.plan_log_split(client, &filter, since, budget, lookup)?;
        let searched = SearchedEntries::Pieces(split);
        let scope = client.vary_key.clone();
        let fill = self.new_cache_fill(client.fill_target(), scope, None, lookup);
        Some(self.new_logs_search(client, fill, since.clone(), searched, lookup.now))
    }

    /// Begins a planned search with the pieces that the hot tier has.
    pub(in crate::exchange) fn start_logs_search(
        &mut self,
        mut search: Box<LogsSearch>,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> SearchStep {
        if let SearchedEntries::Pieces(split) = &mut search.searched {
            let shared = &self.route_config.process.shared;
            split.pieces.find_hot_entries(shared, lookup.now);
        }
        self.continue_logs_search(search, client, lookup)
    }

    /// Returns the entries that are searched for a call, with those that the hot tier has, and the
    /// state of purges and the chain before the search. `None` if the call is not eligible.
    fn plan_logs_search(
        &self,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> Option<(PurgeAndChainSnapshot, SearchedEntries)> {
        let cache = &self.route_config.cache;
        let fill = self.storing.fill.as_ref()?;
        let row = client.place.prospect.call_method_row();
        let is_eligible = (cache.logs_from_receipts || cache.logs_split.is_some())
            && client.call.method == LOGS_METHOD
            && !row.is_operators
            && !lookup.bypass
            && !fill.rekeyed
            && !self.wants_ssz_result();
        if !is_eligible {
            return None;
        }
        let filter = LogFilter::read(client.call.params?)?;
        let since = self.capture_wait_snapshot(client.vary_key, lookup.now);
        let searched = match self.plan_receipts_search(client, &filter, &since, lookup.now) {
            Some(receipts) => SearchedEntries::Receipts(receipts),
            None => {
                let budget = &mut LogSplitBudget::default();
                let split = self.plan_log_split(client, &filter, &since, budget, lookup)?;
                SearchedEntries::Pieces(split)
            }
        };
        Some((since, searched))
    }

    /// Continues the search of a single call after its wait.
    pub(in crate::exchange) fn resume_logs_search(
        &mut self,
        search: Box<LogsSearch>,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
    ) -> LookupResult {
        self.cache_status = CacheStatus::Miss;
        let step = self.end_search_wait(search, client, lookup, waited);
        self.finish_search_step(step, client, lookup)
    }

    /// Ends the wait of a search, and continues it with the entries that were received.
    pub(in crate::exchange) fn end_search_wait(
        &mut self,
        mut search: Box<LogsSearch>,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
    ) -> SearchStep {
        let shared = Arc::clone(&self.route_config.process.shared);
        let received = waited.map(|waited| waited.claim_awaited_responses());
        let received = received.unwrap_or_default();
        // the vary headers may have changed meanwhile
        if search.key != client.place.key {
            return SearchStep::Abandon(search, None);
        }
        let mut entries = received.flight_responses.unwrap_or_default();
        if let Some(owner_reply) = received.owner_reply {
            if owner_reply.generation == shared.purge_generation() {
                entries = owner_reply.entries;
                entries.retain(|(_, entry)| entry.is_fresh(lookup.now));
            }
        }
        let is_timed_out = search.remaining_wait(lookup.now) == 0;
        let LogsSearch {
            since, searched, ..
        } = &mut *search;
        let outcome = match searched {
            SearchedEntries::Receipts(receipts) => {
                receipts.set_usable_receipts(entries, &shared, since);
                WaitOutcome::Continue
            }
            SearchedEntries::Pieces(split) => {
                split.pieces.set_usable_entries(entries, &shared);
                self.end_piece_waits(split, client, lookup, is_timed_out)
            }
        };
        match outcome {
            WaitOutcome::Continue => search.waits_until = 0,
            // the wait goes on until the same time
            WaitOutcome::InFlight => {}
            WaitOutcome::NotUsable | WaitOutcome::FilterRefused | WaitOutcome::NodeFailed => {
                return SearchStep::Abandon(search, None);
            }
        }
        self.continue_logs_search(search, client, lookup)
    }

    /// Waits for missing entries, assembles the response, or abandons the search.
    fn continue_logs_search(
        &mut self,
        mut search: Box<LogsSearch>,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> SearchStep {
        let shared = &self.route_config.process.shared;
        let may_send = shared.may_send_from_memory(lookup.now)
            && shared.is_unpurged_since(search.since.generation);
        let action = match &mut search.searched {
            _ if !may_send => SearchAction::Forward(None),
            SearchedEntries::Receipts(receipts) => {
                self.continue_receipts_search(receipts, client, lookup)
            }
            SearchedEntries::Pieces(split) => self.continue_log_split(split, client, lookup),
        };
        match action {
            SearchAction::Wait(waiting) => {
                if search.remaining_wait(lookup.now) == 0 {
                    if lookup.now >= search.ends_at {
                        drop(waiting);
                        return SearchStep::Abandon(search, None);
                    }
                    let longest = self.route_config.cache.lock_timeout;
                    search.waits_until = lookup.now.saturating_add(longest);
                }
                self.lookup_findings.logs_search = Some(search);
                SearchStep::Wait(waiting)
            }
            SearchAction::Assemble(source) => {
                let assembly = LogAssembly {
                    key: search.key,
                    id: client.id.to_vec(),
                    source,
                    fill: search.fill,
                    since: search.since,
                    has_fetched: match search.searched {
                        SearchedEntries::Receipts(_) => false,
                        SearchedEntries::Pieces(split) => split.pieces.has_requested_pieces(),
                    },
                };
                SearchStep::Assemble(Box::new(assembly))
            }
            SearchAction::Forward(compared) => SearchStep::Abandon(search, compared),
        }
    }

    /// Performs a step of the search of a single call.
    fn finish_search_step(
        &mut self,
        step: SearchStep,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> LookupResult {
        match step {
            SearchStep::Wait(waiting) => LookupResult::InFlight(waiting),
            SearchStep::Assemble(assembly) => {
                let is_derived = matches!(assembly.source, LogAssemblySource::Receipts(..));
                let found = self.respond_with_assembled_logs(assembly, lookup);
                if let (LookupResult::Hit(_), true) = (&found, is_derived) {
                    self.verify_derived_logs(client, lookup);
                }
                found
            }
            SearchStep::Abandon(search, compared) => {
                self.forward_logs_call(*search, compared, client, lookup)
            }
        }
    }

    /// Sends the owner the keys of missing entries, and returns the wait for its reply; `None` if
    /// it is not queried.
    pub(super) fn query_owner_for_logs(
        &self,
        keys: Vec<CacheKey>,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> Option<Box<WaitingRequest>> {
        let shared = &self.route_config.process.shared;
        let (waiter, owner) = (lookup.waiter?, shared.owner_client()?);
        if keys.is_empty() {
            return None;
        }
        let (_, mark) = self.dispatch_mark(client.vary_key);
        // a request that leads a flight waits for no other machine
        let mut options = BatchLookupOptions::default();
        if self.shares_with_machines(client.vary_key, mark.as_ref()) {
            options.call_kinds.try_reserve_exact(keys.len()).ok()?;
            options.call_kinds.resize(keys.len(), NO_CALL_KIND);
        }
        let is_sent = owner.lookup_batch_at_owner(keys, options, waiter, lookup.now);
        is_sent.then(|| WaitingRequest::new(shared, waiter, AwaitedResult::Stored))
    }

    /// Ends a search without a response: requests for pieces that were not sent are dropped. Returns
    /// the fill of its call.
    pub(in crate::exchange) fn end_abandoned_search(
        &mut self,
        search: LogsSearch,
    ) -> Box<CacheFill> {
        if let SearchedEntries::Pieces(_) = search.searched {
            self.count_log_split(LogSplitEvent::Abandoned);
            self.lookup_findings.background_updates.clear();
        }
        search.fill
    }

    /// Forwards a single call whose search has ended: the client's own request is sent to the node,
    /// and the followers of the call receive its response.
    fn forward_logs_call(
        &mut self,
        search: LogsSearch,
        compared: Option<Box<PendingLogsComparison>>,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> LookupResult {
        self.cache_status = CacheStatus::Miss;
        let is_rekeyed = search.key != client.place.key;
        let token = self.end_abandoned_search(search).into_leadership();
        let scope = client.vary_key.clone();
        let mut fill = self.new_cache_fill(client.fill_target(), scope, token, lookup);
        fill.rekeyed = is_rekeyed;
        fill.receipts = compared;
        self.storing.fill = Some(fill);
        LookupResult::Miss
    }
}

/// Returns the state of the followed chain, if it has blocks and is not a wrong one.
pub(super) fn followed_block_chain(since: &PurgeAndChainSnapshot) -> Option<&DispatchMark> {
    let mark = since.mark.as_ref()?;
    (mark.heights == HeightUnit::Blocks && !mark.is_wrong).then_some(mark)
}
