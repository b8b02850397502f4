//! The stored receipts of a block from which the response to a call for its logs may be derived.

use super::assembly_input::LogAssemblySource;
use super::search::{followed_block_chain, ClientLogCall, SearchAction};
use super::search_state::{BlockReceiptsTarget, ReceiptsSearch};
use crate::bytes::try_push;
use crate::cache::process::derived_logs::LogsSource;
use crate::cache::vary_key::truncated_blake3;
use crate::exchange::cache::fill::logs_comparison::PendingLogsComparison;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::waiting::PurgeAndChainSnapshot;
use crate::exchange::machine::Exchange;
use crate::jsonrpc::log_filter::LogFilter;
use crate::jsonrpc::plausible::BlockHashOrNumber;

impl Exchange {
    /// Returns the search for the receipts from which the response to a call may be derived, with
    /// those that the hot tier has. `None` if the route derives no logs or the node's differ, or if
    /// the call's block is not the only one, or is named by its number and not final.
    pub(super) fn plan_receipts_search(
        &self,
        client: &ClientLogCall<'_>,
        filter: &LogFilter<'_>,
        since: &PurgeAndChainSnapshot,
        now: u64,
    ) -> Option<ReceiptsSearch> {
        if !self.route_config.cache.logs_from_receipts {
            return None;
        }
        let block = filter.only_block()?;
        if let BlockHashOrNumber::Number(number) = block {
            followed_block_chain(since).filter(|mark| mark.is_height_final(number))?;
        }
        let target = BlockReceiptsTarget::new(block, client.vary_key)?;
        let shared = &self.route_config.process.shared;
        let vary_key = truncated_blake3(client.vary_key.vary_key_bytes());
        let trust = &shared.derived_logs;
        let source = trust.choose_source(&vary_key, shared.purge_generation());
        let hot = shared.hot_tier().and_then(|hot| hot.get(&target.key, now));
        (source != LogsSource::Node).then(|| ReceiptsSearch {
            target,
            source,
            receipts: hot.filter(|entry| target.has_receipts(entry)),
            is_queried: false,
        })
    }

    /// Queries the owner for missing receipts, derives the response from the receipts, or forwards
    /// the call to the node, whose response is compared with them.
    pub(super) fn continue_receipts_search(
        &self,
        search: &mut ReceiptsSearch,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> SearchAction {
        match search.receipts.take() {
            Some(receipts) if search.source == LogsSource::Receipts => {
                SearchAction::Assemble(LogAssemblySource::Receipts(search.target.key, receipts))
            }
            Some(receipts) => SearchAction::Forward(Some(PendingLogsComparison::new(receipts))),
            None if search.is_queried => SearchAction::Forward(None),
            None => {
                search.is_queried = true;
                let mut keys = Vec::new();
                let waiting = try_push(&mut keys, search.target.key)
                    .and_then(|()| self.query_owner_for_logs(keys, client, lookup));
                waiting.map_or(SearchAction::Forward(None), SearchAction::Wait)
            }
        }
    }

    /// Verifies a derived response as a hit, if a verification is due.
    pub(super) fn verify_derived_logs(
        &mut self,
        client: &ClientLogCall<'_>,
        lookup: &LookupRequest<'_>,
    ) {
        let hot = self.route_config.process.shared.hot_tier();
        let entry = hot.and_then(|hot| hot.get(&client.place.key, lookup.now));
        if let Some(entry) = entry {
            let target = || client.fill_target();
            self.start_hit_verification(&entry, client.vary_key, lookup, target);
        }
    }
}
