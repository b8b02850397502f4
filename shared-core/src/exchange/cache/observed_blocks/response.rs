//! Observation of the blocks that the node's response shows to the client, whether it is stored
//! or not: entries of an older head expire before its last byte is sent.

use std::sync::Arc;

use crate::beacon::{is_beacon_target, BeaconRouteLifetimeKind};
use crate::cache::chain::HeightUnit;
use crate::cache::vary_key::{truncated_blake3, VaryKey};
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::LookupResult;
use crate::exchange::cache::observed_blocks::observer::{ResponseBlockObserver, ShownBlockSource};
use crate::exchange::machine::Exchange;
use crate::jsonrpc::request::{
    parse_jsonrpc_request, required_request_memory, JsonRpcCall, JsonRpcRequestBody,
};
use crate::jsonrpc::shown_blocks::ShownBlockFinder;
use crate::memory;

impl Exchange {
    /// Starts the observation of the blocks that the response to forwarded calls shows.
    pub(in crate::exchange) fn observe_call_response_blocks(
        &mut self,
        calls: &[JsonRpcCall<'_>],
        is_batch: bool,
        scope: &VaryKey,
    ) {
        let config = Arc::clone(&self.route_config);
        let showing = |call: &JsonRpcCall<'_>| {
            let row = config.cache.valid.effective_method_row(call.method);
            call.id?;
            ShownBlockFinder::for_observed_call(call.method, row, call.params)
        };
        let of = || match (is_batch, calls) {
            (false, [call]) => showing(call).map(ShownBlockSource::Call),
            _ => {
                let mut watched = Vec::new();
                watched.try_reserve_exact(calls.len()).ok()?;
                watched.extend(calls.iter().filter_map(|call| {
                    let id = call.id?.to_vec();
                    Some((id, showing(call)))
                }));
                Some(ShownBlockSource::Batch(watched))
            }
        };
        self.start_block_observation(scope, HeightUnit::Blocks, of);
    }

    /// Starts the observation of the blocks that the response to a background request shows, whose
    /// body is not the client's: clients receive these results from the cache.
    pub(in crate::exchange) fn observe_background_response_blocks(
        &mut self,
        body: &[u8],
        scope: &VaryKey,
    ) {
        let has_owner = self.route_config.process.shared.owner_client().is_some();
        if !has_owner || !memory::can_allocate_now(required_request_memory(body.len())) {
            return;
        }
        // the memory of its calls is checked
        match parse_jsonrpc_request(body, usize::MAX) {
            Ok(JsonRpcRequestBody::Single(call)) => {
                self.observe_call_response_blocks(&[call], false, scope);
            }
            Ok(JsonRpcRequestBody::Batch(calls)) => {
                self.observe_call_response_blocks(&calls, true, scope);
            }
            Err(_) => {}
        }
    }

    /// Starts the observation of the blocks that the response of a route of the Beacon API shows.
    pub(in crate::exchange) fn observe_route_blocks(
        &mut self,
        lookup: &LookupRequest<'_>,
        found: &LookupResult,
    ) {
        if !self.should_observe_blocks(found) || !is_beacon_target(&self.request.cache.target) {
            return;
        }
        let Some(slot) = BeaconRouteLifetimeKind::slot_in_block_target(&self.request.cache.target)
        else {
            return;
        };
        let scope = self.request_vary_key(lookup);
        self.start_block_observation(&scope, HeightUnit::Slots, || {
            Some(ShownBlockSource::Slot(slot))
        });
    }

    /// Whether the node's response is searched for blocks: there is an owner, and the request is
    /// forwarded to the node, for the client or in the background.
    pub(in crate::exchange) fn should_observe_blocks(&self, found: &LookupResult) -> bool {
        let has_owner = self.route_config.process.shared.owner_client().is_some();
        has_owner && (matches!(found, LookupResult::Miss) || self.lookup_findings.repeats_request())
    }

    /// Starts the observation of a response, if the chain of its namespace is followed.
    fn start_block_observation(
        &mut self,
        scope: &VaryKey,
        heights: HeightUnit,
        of: impl FnOnce() -> Option<ShownBlockSource>,
    ) {
        let shared = &self.route_config.process.shared;
        let namespace = truncated_blake3(scope.namespace_key_bytes());
        let chain = shared
            .owner_client()
            .and_then(|it| it.followed_chains().get(&namespace));
        let chain = chain.filter(|chain| chain.uses_height_kind(heights));
        self.watched = chain.and_then(|chain| {
            let watch = ResponseBlockObserver::new(shared, namespace, chain, of()?);
            Some(Box::new(watch))
        });
    }

    /// Stops the observation if the response has another status than 200: errors and partial
    /// responses show no block.
    pub(in crate::exchange) fn stop_observing_error_response(&mut self, status: u16) {
        if status != 200 {
            self.watched = None;
        }
    }

    /// Searches a piece of the node's response for blocks, before it is sent to the client.
    pub(in crate::exchange) fn observe_block_piece(&mut self, piece: &[u8]) {
        if let Some(watch) = &mut self.watched {
            watch.search_piece_for_blocks(piece);
        }
    }

    /// Whether a response is searched for blocks, so that the host must deliver it to the exchange
    /// even if it is sent unchanged.
    pub(in crate::exchange) fn is_observing_blocks(&self) -> bool {
        self.watched.is_some()
    }
}
