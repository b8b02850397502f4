//! The stored receipts of a block from which the response to a call for its logs may be derived.

use std::sync::Arc;

use super::assembly_input::{LogAssembly, LogAssemblySource};
use super::receipts_state::{BlockReceiptsTarget, ReceiptsLookup};
use super::split::ClientLogCall;
use super::LOGS_METHOD;
use crate::bytes::try_push;
use crate::cache::chain::HeightUnit;
use crate::cache::entry::CacheEntry;
use crate::cache::process::derived_logs::LogsSource;
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::status::CacheStatus;
use crate::cache::vary_key::{truncated_blake3, VaryKey};
use crate::exchange::cache::fill::logs_comparison::PendingLogsComparison;
use crate::exchange::cache::fill::target::{FillCall, FillTarget};
use crate::exchange::cache::fill::CacheFill;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::LookupResult;
use crate::exchange::cache::waiting::{AwaitedResult, WaitingRequest};
use crate::exchange::machine::Exchange;
use crate::jsonrpc::log_filter::LogFilter;
use crate::jsonrpc::plausible::BlockHashOrNumber;

impl Exchange {
    /// Continues the lookup of a call that is a miss with a fill, if its response may be derived
    /// from stored receipts.
    pub(in crate::exchange) fn begin_receipts_lookup(
        &mut self,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> LookupResult {
        let Some(target) = self.block_receipts_target(client, lookup) else {
            return LookupResult::Miss;
        };
        let source = self.choose_logs_source(client.vary_key);
        if source == LogsSource::Node {
            return LookupResult::Miss;
        }
        let Some(fill) = self.storing.fill.take() else {
            return LookupResult::Miss;
        };
        let search = ReceiptsLookup {
            target,
            source,
            key: client.place.key,
            fill,
            since: self.capture_wait_snapshot(client.vary_key, lookup.now),
        };
        if let Some(receipts) = self.find_hot_receipts(&target, lookup) {
            return self.respond_from_receipts(search, receipts, client, lookup);
        }
        let waiter = lookup.waiter;
        match waiter.filter(|waiter| self.is_owner_queried(&search, client, *waiter, lookup.now)) {
            Some(waiter) => {
                self.lookup_findings.receipts_lookup = Some(Box::new(search));
                let shared = &self.route_config.process.shared;
                let waiting = WaitingRequest::new(shared, waiter, AwaitedResult::Stored);
                LookupResult::InFlight(waiting)
            }
            None => {
                self.storing.fill = Some(search.fill);
                LookupResult::Miss
            }
        }
    }

    /// Completes the lookup of a call after the wait for the owner's receipts.
    pub(in crate::exchange) fn resume_receipts_lookup(
        &mut self,
        search: ReceiptsLookup,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
    ) -> LookupResult {
        self.cache_status = CacheStatus::Miss;
        let shared = Arc::clone(&self.route_config.process.shared);
        let reply = waited.and_then(|waited| waited.claim_awaited_responses().of_owner);
        let reply = reply.filter(|reply| {
            // the vary headers may have changed during the wait
            reply.generation == shared.purge_generation() && search.key == client.place.key
        });
        let mut entries = reply.into_iter().flat_map(|reply| reply.entries);
        let receipts = entries
            .find(|(key, _)| *key == search.target.key)
            .map(|(_, entry)| entry)
            .filter(|entry| search.target.has_receipts(entry) && entry.is_fresh(lookup.now))
            .filter(|entry| search.since.allows_entry_since_wait(&shared, entry));
        match receipts {
            Some(receipts) => self.respond_from_receipts(search, receipts, client, lookup),
            None => {
                self.storing.fill = Some(self.renew_receipts_fill(search, client, lookup));
                LookupResult::Miss
            }
        }
    }

    /// Responds with logs that are derived from the receipts, or sends the call to the node, whose
    /// response is compared with them.
    fn respond_from_receipts(
        &mut self,
        search: ReceiptsLookup,
        receipts: Arc<CacheEntry>,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> LookupResult {
        if search.source != LogsSource::Receipts {
            let mut fill = self.renew_receipts_fill(search, client, lookup);
            fill.receipts = Some(PendingLogsComparison::new(receipts));
            self.storing.fill = Some(fill);
            return LookupResult::Miss;
        }
        let assembly = LogAssembly {
            id: client.id.to_vec(),
            source: LogAssemblySource::Receipts(search.target.key, receipts),
            fill: search.fill,
            since: search.since,
            has_fetched: false,
        };
        let found = self.respond_with_assembled_logs(assembly, lookup);
        if let LookupResult::Hit(_) = found {
            self.verify_derived_logs(client, lookup);
        }
        found
    }

    /// Verifies a derived response as a hit, if a verification is due.
    fn verify_derived_logs(&mut self, client: &ClientLogCall<'_>, lookup: &LookupRequest<'_>) {
        let key = client.place.key;
        let hot = self.route_config.process.shared.hot_tier();
        let entry = hot.and_then(|hot| hot.get(&key, lookup.now));
        if let Some(entry) = entry {
            self.start_hit_verification(&entry, client.vary_key, lookup, || {
                FillTarget::Call(FillCall::new(
                    client.call,
                    client.id,
                    key,
                    client.place.prospect,
                ))
            });
        }
    }

    /// Returns a fill for the call that is sent to the node now, with the state of the chain after
    /// the wait.
    fn renew_receipts_fill(
        &self,
        search: ReceiptsLookup,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> Box<CacheFill> {
        let ClientLogCall {
            call, id, place, ..
        } = client;
        let is_rekeyed = search.key != place.key;
        let target = FillTarget::Call(FillCall::new(call, id, place.key, place.prospect));
        let token = search.fill.into_leadership();
        let mut fill = self.new_cache_fill(target, client.vary_key.clone(), token, lookup);
        fill.rekeyed = is_rekeyed;
        fill
    }

    /// Returns the receipts from which the response to a call may be derived. `None` if the route
    /// does not derive logs, the call is not read alike by all nodes, or its block is not the only
    /// one, or is named by its number and not final.
    fn block_receipts_target(
        &self,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> Option<BlockReceiptsTarget> {
        let is_eligible = self.route_config.cache.logs_from_receipts
            && client.call.method == LOGS_METHOD
            && !client.place.prospect.call_method_row().is_operators
            && !lookup.bypass
            && !self.wants_ssz_result();
        let fill = self.storing.fill.as_ref().filter(|_| is_eligible)?;
        let block = LogFilter::read(client.call.params?)?.only_block()?;
        if let BlockHashOrNumber::Number(number) = block {
            let mark = fill.dispatch_mark()?;
            let is_followed = mark.heights == HeightUnit::Blocks && !mark.is_wrong;
            if !is_followed || !mark.is_height_final(number) {
                return None;
            }
        }
        if fill.rekeyed {
            return None;
        }
        BlockReceiptsTarget::new(block, client.vary_key)
    }

    /// Returns the receipts, if the hot tier has them.
    fn find_hot_receipts(
        &self,
        target: &BlockReceiptsTarget,
        lookup: &LookupRequest<'_>,
    ) -> Option<Arc<CacheEntry>> {
        let shared = &self.route_config.process.shared;
        let hot = shared
            .hot_tier()
            .filter(|_| shared.may_send_from_memory(lookup.now))?;
        let entry = hot.get(&target.key, lookup.now)?;
        target.has_receipts(&entry).then_some(entry)
    }

    /// Sends the owner the key of the receipts. Returns whether it was sent, so that `waiter` will
    /// be woken.
    fn is_owner_queried(
        &self,
        search: &ReceiptsLookup,
        client: &ClientLogCall<'_>,
        waiter: WaitingRequestId,
        now: u64,
    ) -> bool {
        let Some(owner) = self.route_config.process.shared.owner_client() else {
            return false;
        };
        let mut keys = Vec::new();
        if try_push(&mut keys, search.target.key).is_none() {
            return false;
        }
        let mark = search.since.mark.as_ref();
        let is_shareable = self.shares_with_machines(client.vary_key, mark);
        owner.lookup_batch_at_owner(keys, usize::from(is_shareable), waiter, now)
    }

    /// Returns the source of the response to one more call for the logs of a block.
    fn choose_logs_source(&self, vary_key: &VaryKey) -> LogsSource {
        let shared = &self.route_config.process.shared;
        let vary_key = truncated_blake3(vary_key.vary_key_bytes());
        let trust = &shared.derived_logs;
        trust.choose_source(&vary_key, shared.purge_generation())
    }
}
