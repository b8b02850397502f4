//! Lookup of a wide call for logs by the pieces of its range.
//!
//! The call is looked up as any other first. If the node would be queried for it, its range is
//! divided into pieces. They are searched in the hot tier, then at the owner; the missing ones are
//! fetched by background requests, some at a time, while the call waits. Any doubt ends the split:
//! the client's own request is sent to the node then.

use std::sync::Arc;

use super::assembly_input::{LogAssembly, LogAssemblySource};
use super::piece_state::{LogPiece, LogPieces, WaitOutcome};
use super::plan::{piece_params, plan_pieces, LogRange};
use super::split_state::LogSplit;
use super::LOGS_METHOD;
use crate::cache::chain::{DispatchMark, HeightUnit};
use crate::cache::class::LifetimeClass;
use crate::cache::freshness::CallLifetimeRules;
use crate::cache::owner_protocol::process_message::MAX_BATCH_KEYS;
use crate::cache::process::log_splits::LogSplitEvent;
use crate::cache::status::CacheStatus;
use crate::cache::vary_key::VaryKey;
use crate::cache::CacheKey;
use crate::exchange::cache::call_keys::CallKeyAndLifetime;
use crate::exchange::cache::fill::range_proof::{PieceRequestState, RangeProof, LOGS_ID};
use crate::exchange::cache::fill::target::{FillCall, FillTarget};
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::{BackgroundCall, BackgroundUpdate, LookupResult};
use crate::exchange::cache::waiting::{AwaitedResult, PurgeAndChainSnapshot, WaitingRequest};
use crate::exchange::machine::Exchange;
use crate::jsonrpc::log_filter::LogFilter;
use crate::jsonrpc::request::JsonRpcCall;
use crate::memory;

/// Maximum number of bytes of the filters of all pieces of one call, which are hashed into keys.
const MAX_FILTER_BYTES: usize = 1 << 20;

/// Maximum number of times that the flights of the next pieces are searched: flights that other
/// requests lead may end meanwhile.
const MAX_FLIGHT_SEARCHES: usize = 3;

/// The client's call, with its key and its vary key.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchange) struct ClientLogCall<'a> {
    pub(in crate::exchange) call: &'a JsonRpcCall<'a>,
    pub(in crate::exchange) id: &'a [u8],
    pub(in crate::exchange) place: &'a CallKeyAndLifetime,
    pub(in crate::exchange) vary_key: &'a VaryKey,
}

/// The next step of a split: a wait, the assembly, or the client's own request.
enum SplitStep {
    Wait(AwaitedResult),
    Assemble,
    Abandon,
}

impl Exchange {
    /// Splits a call for which the node would be queried; a miss if the call is not split.
    pub(in crate::exchange) fn begin_log_split(
        &mut self,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> LookupResult {
        let Some(pieces) = self.plan_log_split(client, lookup) else {
            return LookupResult::Miss;
        };
        let Some(fill) = self.storing.fill.take() else {
            return LookupResult::Miss;
        };
        let split = LogSplit {
            key: client.place.key,
            fill,
            pieces,
            queried: 0,
            waits_until: 0,
        };
        self.continue_log_split(Box::new(split), client, lookup)
    }

    /// Returns the pieces of a call with the entries that the hot tier has for them; `None` if the
    /// call is not split.
    fn plan_log_split(
        &self,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> Option<LogPieces> {
        let cache = &self.route_config.cache;
        let config = cache.logs_split.as_ref()?;
        let fill = self.storing.fill.as_ref()?;
        let may_fetch = cache.lock
            && lookup.waiter.is_some()
            && !(lookup.bypass || lookup.whole || lookup.no_background_update);
        let row = client.place.prospect.call_method_row();
        let is_eligible = client.call.method == LOGS_METHOD && !row.is_operators;
        let shared = &self.route_config.process.shared;
        if !is_eligible
            || !may_fetch
            || fill.rekeyed
            || self.wants_ssz_result()
            || config.is_paused(lookup.now)
            || !shared.may_send_from_memory(lookup.now)
            || !self.stores_logs_of_class(LifetimeClass::Immutable)
        {
            return None;
        }
        let mark = fill.dispatch_mark()?;
        if mark.heights != HeightUnit::Blocks || !mark.is_known || mark.is_wrong {
            return None;
        }
        let filter = LogFilter::read(client.call.params?)?;
        let range = LogRange::from_filter(&filter)?;
        let spans = plan_pieces(range, config.blocks, mark.last_final?)?;
        if spans.len().saturating_mul(filter.text.len()) > MAX_FILTER_BYTES {
            return None;
        }
        let has_rest = spans.last().is_some_and(|span| span.last.is_none());
        let classes = [LifetimeClass::Unfinalized, LifetimeClass::Tip];
        if has_rest && !classes.iter().all(|it| self.stores_logs_of_class(*it)) {
            return None;
        }
        let keys = client.vary_key.call_key_builder();
        let mut all = Vec::new();
        all.try_reserve_exact(spans.len()).ok()?;
        for span in spans {
            let params = piece_params(&filter, span)?;
            let key = keys.build_key(LOGS_METHOD, Some(&params)).ok()?;
            all.push(LogPiece::new(span, key.0));
        }
        let since = self.capture_wait_snapshot(client.vary_key, lookup.now);
        let mut pieces = LogPieces::new(all, range.last, since);
        for at in 0..pieces.all.len() {
            pieces.find_hot_entry(at, shared, lookup.now);
        }
        Some(pieces)
    }

    /// Whether lists of logs of this class have a lifetime.
    fn stores_logs_of_class(&self, class: LifetimeClass) -> bool {
        let valid = &self.route_config.cache.valid;
        let lifetime = valid.lifetime_for_method(LOGS_METHOD);
        lifetime.unwrap_or(valid.lifetime_for_class(class)) > 0
    }

    /// Continues the split of a call after its wait.
    pub(in crate::exchange) fn resume_log_split(
        &mut self,
        mut split: Box<LogSplit>,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
    ) -> LookupResult {
        self.cache_status = CacheStatus::Miss;
        let shared = Arc::clone(&self.route_config.process.shared);
        let received = waited.map(|waited| waited.claim_awaited_responses());
        let received = received.unwrap_or_default();
        // the vary headers may have changed meanwhile
        if split.key != client.place.key {
            return self.abandon_log_split(*split, client, lookup);
        }
        if let Some(of_owner) = received.of_owner {
            let mut entries = of_owner.entries;
            entries.retain(|(_, entry)| entry.is_fresh(lookup.now));
            if of_owner.generation == shared.purge_generation() {
                split.pieces.set_usable_entries(entries, &shared);
            }
        }
        let fetched = received.flight_responses.unwrap_or_default();
        split.pieces.set_usable_entries(fetched, &shared);
        let is_timed_out = split.remaining_wait(lookup.now) == 0;
        let pieces = &mut split.pieces;
        let outcome = pieces.end_waits(&shared, lookup.now, is_timed_out);
        if outcome == WaitOutcome::NodeFailed
            && self.is_unchanged_since(&pieces.since, client.vary_key)
        {
            self.pause_log_split(lookup.now);
        }
        match outcome {
            WaitOutcome::Continue => split.waits_until = 0,
            // until the same time
            WaitOutcome::InFlight => {}
            WaitOutcome::NotUsable | WaitOutcome::NodeFailed => {
                return self.abandon_log_split(*split, client, lookup);
            }
        }
        self.continue_log_split(split, client, lookup)
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
    fn continue_log_split(
        &mut self,
        mut split: Box<LogSplit>,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> LookupResult {
        let shared = Arc::clone(&self.route_config.process.shared);
        let may_send = shared.may_send_from_memory(lookup.now)
            && shared.is_unpurged_since(split.pieces.since.generation)
            && split.pieces.total_length() <= self.route_config.cache.max_entry;
        let step = match may_send {
            true => match self.query_owner_for_pieces(&mut split, client, lookup) {
                Some(awaited) => SplitStep::Wait(awaited),
                None => self.request_missing_pieces(&mut split, client, lookup),
            },
            false => SplitStep::Abandon,
        };
        match (step, lookup.waiter) {
            (SplitStep::Wait(awaited), Some(waiter)) => {
                if split.remaining_wait(lookup.now) == 0 {
                    let longest = self.route_config.cache.lock_timeout;
                    split.waits_until = lookup.now.saturating_add(longest);
                }
                self.lookup_findings.log_split = Some(split);
                LookupResult::InFlight(WaitingRequest::new(&shared, waiter, awaited))
            }
            (SplitStep::Assemble, _) => match split.pieces.stored_pieces(&shared) {
                Some(pieces) => {
                    let assembly = LogAssembly {
                        id: client.id.to_vec(),
                        source: LogAssemblySource::Pieces(pieces),
                        has_fetched: split.pieces.has_requested_pieces(),
                        since: split.pieces.since.clone(),
                        fill: split.fill,
                    };
                    self.respond_with_assembled_logs(assembly, lookup)
                }
                None => self.abandon_log_split(*split, client, lookup),
            },
            _ => self.abandon_log_split(*split, client, lookup),
        }
    }

    /// Sends the owner the keys of missing pieces of final blocks, and returns the wait for its
    /// reply; `None` if it is not queried.
    fn query_owner_for_pieces(
        &self,
        split: &mut LogSplit,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> Option<AwaitedResult> {
        let shared = &self.route_config.process.shared;
        let (waiter, owner) = (lookup.waiter?, shared.owner_client()?);
        let mut keys: Vec<CacheKey> = Vec::new();
        for piece in split.pieces.all.iter().skip(split.queried) {
            if keys.len() == MAX_BATCH_KEYS {
                break;
            }
            split.queried += 1;
            if piece.is_final() && piece.entry.is_none() {
                keys.try_reserve(1).ok()?;
                keys.push(piece.key);
            }
        }
        if keys.is_empty() {
            return None;
        }
        let (_, mark) = self.dispatch_mark(client.vary_key);
        let shareable = match self.shares_with_machines(client.vary_key, mark.as_ref()) {
            true => keys.len(),
            false => 0,
        };
        let is_sent = owner.lookup_batch_at_owner(keys, shareable, waiter, lookup.now);
        is_sent.then_some(AwaitedResult::Stored)
    }

    /// Requests the next missing pieces from the node, or follows the requests of others for them.
    fn request_missing_pieces(
        &mut self,
        split: &mut LogSplit,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> SplitStep {
        let shared = Arc::clone(&self.route_config.process.shared);
        let (Some(waiter), Some(config)) = (lookup.waiter, &self.route_config.cache.logs_split)
        else {
            return SplitStep::Abandon;
        };
        let concurrent = config.concurrent;
        let mut searches = 0;
        loop {
            let missing = split.pieces.all.iter().enumerate();
            let missing = missing.filter(|(_, piece)| piece.entry.is_none());
            let next: Vec<usize> = missing.map(|(at, _)| at).take(concurrent).collect();
            if next.is_empty() {
                return SplitStep::Assemble;
            }
            let mut keys: Vec<CacheKey> = Vec::with_capacity(next.len());
            for at in &next {
                split.pieces.find_hot_entry(*at, &shared, lookup.now);
                if self.request_piece(split, *at, client, lookup).is_none() {
                    return SplitStep::Abandon;
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
                return SplitStep::Wait(AwaitedResult::Flights(since, names, None));
            }
            // another request's flight has ended meanwhile
            searches += 1;
            if searches == MAX_FLIGHT_SEARCHES {
                return SplitStep::Abandon;
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

    /// Ends a split: the client's own request is sent to the node, and the followers of the call
    /// receive its response. Requests for pieces that were not sent are dropped.
    fn abandon_log_split(
        &mut self,
        split: LogSplit,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> LookupResult {
        self.cache_status = CacheStatus::Miss;
        let shared = &self.route_config.process.shared;
        shared.log_splits.count_event(LogSplitEvent::Abandoned);
        self.lookup_findings.background_updates.clear();
        let ClientLogCall {
            call, id, place, ..
        } = client;
        let target = FillTarget::Call(FillCall::new(call, id, place.key, place.prospect));
        let token = split.fill.into_leadership();
        let mut fill = self.new_cache_fill(target, client.vary_key.clone(), token, lookup);
        fill.rekeyed = split.key != place.key;
        self.storing.fill = Some(fill);
        LookupResult::Miss
    }
}
