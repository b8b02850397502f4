//! The split of a wide call for logs into the pieces of its range.
//!
//! The pieces are searched in the hot tier, then at the owner; the missing ones are fetched by
//! background requests, some at a time, while the call waits.

use std::sync::Arc;

use super::assembly_input::LogAssemblySource;
use super::piece_state::{LogPiece, LogPieces, WaitOutcome};
use super::plan::{piece_params, plan_pieces, LogRange, LogSplitBudget, PieceSpan};
use super::search::{followed_block_chain, ClientLogCall, SearchAction};
use super::search_state::{LogSplit, LogsSearch, SearchedEntries};
use super::LOGS_METHOD;
use crate::cache::chain::DispatchMark;
use crate::cache::class::LifetimeClass;
use crate::cache::freshness::CallLifetimeRules;
use crate::cache::vary_key::VaryKey;
use crate::cache::CacheKey;
use crate::exchange::cache::fill::piece_request::PieceRequestState;
use crate::exchange::cache::fill::range_proof::{RangeProof, LOGS_ID};
use crate::exchange::cache::fill::target::{FillCall, FillTarget};
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::{BackgroundCall, BackgroundUpdate};
use crate::exchange::cache::waiting::{AwaitedResult, PurgeAndChainSnapshot, WaitingRequest};
use crate::exchange::machine::Exchange;
use crate::jsonrpc::log_filter::LogFilter;
use crate::memory;

/// Maximum number of times that the flights of the next pieces are searched: flights that other
/// requests lead may end meanwhile.
const MAX_FLIGHT_SEARCHES: usize = 3;

/// Blocks in place of the blocks of a client's call: the key of the resulting call is the key of the
/// filter, whatever its range.
const FILTER_SPAN: PieceSpan = PieceSpan {
    first: 0,
    last: Some(0),
};

impl Exchange {
    /// Returns the split of a call, without the entries of its pieces; `None` if the call is not
    /// split. Its pieces are taken from the `budget` of the request.
    pub(super) fn plan_log_split(
        &self,
        client: &ClientLogCall<'_>,
        filter: &LogFilter<'_>,
        since: &PurgeAndChainSnapshot,
        budget: &mut LogSplitBudget,
        lookup: &LookupRequest<'_>,
    ) -> Option<LogSplit> {
        let cache = &self.route_config.cache;
        let config = cache.logs_split.as_ref()?;
        let may_fetch =
            cache.lock && lookup.waiter.is_some() && !(lookup.whole || lookup.no_background_update);
        let shared = &self.route_config.process.shared;
        if !may_fetch
            || config.pauses.is_paused(lookup.now)
            || !shared.may_send_from_memory(lookup.now)
            || !self.stores_logs_of_class(LifetimeClass::Immutable)
        {
            return None;
        }
        let mark = followed_block_chain(since).filter(|mark| mark.is_known)?;
        let range = LogRange::from_filter(filter)?;
        let spans = plan_pieces(range, config.blocks, mark.last_final?)?;
        let has_rest = spans.last().is_some_and(|span| span.last.is_none());
        let classes = [LifetimeClass::Unfinalized, LifetimeClass::Tip];
        if has_rest && !classes.iter().all(|it| self.stores_logs_of_class(*it)) {
            return None;
        }
        let keys = client.vary_key.call_key_builder();
        let build_key = |span| {
            let params = piece_params(filter, span)?;
            Some(keys.build_key(LOGS_METHOD, Some(&params)).ok()?.0)
        };
        let filter_key = build_key(FILTER_SPAN)?;
        if config.pauses.is_filter_paused(&filter_key, lookup.now) {
            return None;
        }
        if !budget.take_pieces(spans.len(), filter.text.len()) {
            return None;
        }
        let mut all = Vec::new();
        all.try_reserve_exact(spans.len()).ok()?;
        for span in spans {
            all.push(LogPiece::new(span, build_key(span)?));
        }
        let pieces = LogPieces::new(all, range.last, since.clone());
        Some(LogSplit {
            pieces,
            filter_key,
            queried: 0,
        })
    }

    /// Whether a search that was planned before must not begin: calls of the route, or those with its
    /// filter, are not split any more.
    pub(in crate::exchange) fn is_search_paused(&self, search: &LogsSearch, now: u64) -> bool {
        let config = self.route_config.cache.logs_split.as_ref();
        let (Some(config), SearchedEntries::Pieces(split)) = (config, &search.searched) else {
            return false;
        };
        config.pauses.is_paused(now) || config.pauses.is_filter_paused(&split.filter_key, now)
    }

    /// Whether lists of logs of this class have a lifetime.
    fn stores_logs_of_class(&self, class: LifetimeClass) -> bool {
        let valid = &self.route_config.cache.valid;
        let lifetime = valid.lifetime_for_method(LOGS_METHOD);
        lifetime.unwrap_or(valid.lifetime_for_class(class)) > 0
    }

    /// Ends the wait for the pieces of a call, and returns the outcome. A failure of the node stops
    /// the splitting of all calls for some seconds, a refusal of the filter only of calls with it.
    pub(super) fn end_piece_waits(
        &self,
        split: &mut LogSplit,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
        is_timed_out: bool,
    ) -> WaitOutcome {
        let (shared, pieces) = (&self.route_config.process.shared, &mut split.pieces);
        let outcome = pieces.end_waits(shared, lookup.now, is_timed_out);
        if let Some(config) = &self.route_config.cache.logs_split {
            if pieces.has_fetched_pieces() {
                config.pauses.record_fetched_piece(lookup.now);
            }
            if outcome == WaitOutcome::FilterRefused {
                let pauses = &config.pauses;
                pauses.record_refused_filter(&split.filter_key, lookup.now);
            }
        }
        if outcome == WaitOutcome::NodeFailed
            && self.is_unchanged_since(&pieces.since, client.vary_key)
        {
            self.pause_log_split(lookup.now);
        }
        outcome
    }

    /// Whether no purge, reorganisation or lack of memory has prevented the use of the node's
    /// response for a piece.
    fn is_unchanged_since(&self, since: &PurgeAndChainSnapshot, vary_key: &VaryKey) -> bool {
        let (_, mark) = self.dispatch_mark(vary_key);
        let branch = |mark: Option<DispatchMark>| mark.map(|mark| mark.branch);
        let shared = &self.route_config.process.shared;
        shared.is_unpurged_since(since.generation)
            && branch(mark) == branch(since.mark)
            && !memory::is_memory_short()
    }

    /// Looks the missing pieces up at the owner, fetches the next ones, or assembles the response.
    pub(super) fn continue_log_split(
        &mut self,
        split: &mut LogSplit,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> SearchAction {
        if split.pieces.total_length() > self.route_config.cache.max_entry {
            return SearchAction::Forward(None);
        }
        let keys = split.take_unqueried_keys();
        let waiting = keys.and_then(|keys| self.query_owner_for_logs(keys, client, lookup));
        match waiting {
            Some(waiting) => SearchAction::Wait(waiting),
            None => self.request_missing_pieces(split, client, lookup),
        }
    }

    /// Requests the next missing pieces from the node, or follows the requests of others for them.
    fn request_missing_pieces(
        &mut self,
        split: &mut LogSplit,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> SearchAction {
        let shared = Arc::clone(&self.route_config.process.shared);
        let (Some(waiter), Some(config)) = (lookup.waiter, &self.route_config.cache.logs_split)
        else {
            return SearchAction::Forward(None);
        };
        let concurrent = config.concurrent;
        let mut searches = 0;
        loop {
            let missing = split.pieces.all.iter().enumerate();
            let missing = missing.filter(|(_, piece)| piece.entry.is_none());
            let next: Vec<usize> = missing.map(|(at, _)| at).take(concurrent).collect();
            if next.is_empty() {
                return match split.pieces.stored_pieces(&shared) {
                    Some(pieces) => SearchAction::Assemble(LogAssemblySource::Pieces(pieces)),
                    None => SearchAction::Forward(None),
                };
            }
            let mut keys: Vec<CacheKey> = Vec::with_capacity(next.len());
            for at in &next {
                split.pieces.find_hot_entry(*at, &shared, lookup.now);
                if self.request_piece(split, *at, client, lookup).is_none() {
                    return SearchAction::Forward(None);
                }
                let piece = split.pieces.all.get(*at);
                keys.extend(piece.filter(|it| it.entry.is_none()).map(|it| it.key));
            }
            if keys.is_empty() {
                // the hot tier had all of them
                continue;
            }
            if shared.flights.follow_flights(keys, waiter) {
                for at in next {
                    if let Some(piece) = split.pieces.all.get_mut(at) {
                        piece.mark_awaited();
                    }
                }
                let since = split.pieces.since.clone();
                let names = client.vary_key.vary_header_names().cloned();
                let awaited = AwaitedResult::Flights(since, names, None);
                return SearchAction::Wait(WaitingRequest::new(&shared, waiter, awaited));
            }
            // another request's flight has ended meanwhile
            searches += 1;
            if searches == MAX_FLIGHT_SEARCHES {
                return SearchAction::Forward(None);
            }
        }
    }

    /// Begins the flight of a piece with a background request, unless the piece has an entry or is
    /// in flight. `None` if there is no memory for the request.
    fn request_piece(
        &mut self,
        split: &mut LogSplit,
        at: usize,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> Option<()> {
        let piece = split.pieces.all.get_mut(at)?;
        if piece.entry.is_some() || piece.request.is_some() {
            return Some(());
        }
        let filter = LogFilter::read(client.call.params?)?;
        let params = piece_params(&filter, piece.span)?;
        let valid = &self.route_config.cache.valid;
        let prospect =
            CallLifetimeRules::lifetime_rules_for_call(LOGS_METHOD, Some(&params), valid)?;
        let proof = RangeProof {
            first: piece.span.first,
            last: piece.span.last.or_else(|| {
                let (_, mark) = self.dispatch_mark(client.vary_key);
                let head = mark.and_then(|mark| mark.head)?;
                LogRange::from_filter(&filter)?
                    .last
                    .filter(|last| *last <= head)
            }),
            is_final: piece.is_final(),
        };
        let call = BackgroundCall {
            body: proof.request_body(&params)?,
            method: LOGS_METHOD.to_vec(),
            key: piece.key,
        };
        let fetched = FillCall {
            key: piece.key,
            id: LOGS_ID.to_vec(),
            method: LOGS_METHOD.to_vec(),
            params: Some(params),
            prospect,
        };
        self.lookup_findings
            .background_updates
            .try_reserve(1)
            .ok()?;
        let flights = &self.route_config.process.shared.flights;
        let Some(token) = flights.begin_flight(piece.key) else {
            return Some(());
        };
        let request = PieceRequestState::default();
        piece.request = Some(request.clone());
        let target = FillTarget::Batch(vec![fetched]);
        let scope = client.vary_key.clone();
        let mut fill = self.new_cache_fill(target, scope, Some(token), lookup);
        fill.range_proof = Some(proof);
        fill.piece_request = Some(request);
        let update = BackgroundUpdate {
            fill,
            call: Some(call),
        };
        self.lookup_findings.background_updates.push_back(update);
        Some(())
    }
}
