//! The stored receipts of a block from which the response to a call for its logs may be derived.

use std::sync::Arc;

use super::assembly_input::LogAssemblySource;
use super::search::{followed_block_chain, ClientLogCall, SearchAction};
use crate::bytes::try_push;
use crate::cache::class::LifetimeClass;
use crate::cache::entry::CacheEntry;
use crate::cache::process::derived_logs::LogsSource;
use crate::cache::process::ProcessCacheState;
use crate::cache::vary_key::{truncated_blake3, VaryKey};
use crate::cache::CacheKey;
use crate::exchange::cache::fill::logs_comparison::PendingLogsComparison;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::waiting::PurgeAndChainSnapshot;
use crate::exchange::machine::Exchange;
use crate::jsonrpc::log_filter::LogFilter;
use crate::jsonrpc::plausible::BlockHashOrNumber;

const RECEIPTS_METHOD: &[u8] = b"eth_getBlockReceipts";

/// The receipts of the only block that a call for logs searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockReceiptsTarget {
    /// Key of the response to `eth_getBlockReceipts` with the block as the call names it.
    key: CacheKey,
    block: BlockHashOrNumber,
}

impl BlockReceiptsTarget {
    /// Returns the target for the block, under the vary key of the call for logs.
    fn new(block: BlockHashOrNumber, vary_key: &VaryKey) -> Option<Self> {
        let params = match block {
            BlockHashOrNumber::Number(number) => format!("[\"{number:#x}\"]"),
            BlockHashOrNumber::Hash(hash) => format!("[\"0x{}\"]", const_hex::encode(hash)),
        };
        let key = vary_key
            .call_key_builder()
            .build_key(RECEIPTS_METHOD, Some(params.as_bytes()))
            .ok()?;
        Some(Self { key: key.0, block })
    }

    /// Whether a stored response has the receipts of the block as the node has them now: a number
    /// stands for one block only once that is final.
    fn has_receipts(&self, entry: &CacheEntry) -> bool {
        let meta = entry.response_metadata();
        let has_class = match self.block {
            BlockHashOrNumber::Number(_) => meta.class == LifetimeClass::Immutable,
            BlockHashOrNumber::Hash(_) => matches!(
                meta.class,
                LifetimeClass::Immutable | LifetimeClass::Unfinalized
            ),
        };
        meta.status == 200 && has_class && entry.is_valid_on_chain()
    }
}

/// The search for the stored receipts of a call for logs.
#[derive(Debug)]
pub(super) struct ReceiptsSearch {
    target: BlockReceiptsTarget,
    source: LogsSource,
    /// The receipts, once they were found.
    receipts: Option<Arc<CacheEntry>>,
    /// Whether the owner was queried.
    is_queried: bool,
}

impl ReceiptsSearch {
    /// Sets the receipts, if they are among `entries` and usable.
    pub(super) fn set_usable_receipts(
        &mut self,
        entries: Vec<(CacheKey, Arc<CacheEntry>)>,
        shared: &ProcessCacheState,
        since: &PurgeAndChainSnapshot,
    ) {
        let mut entries = entries.into_iter();
        let found = entries.find(|(key, _)| *key == self.target.key);
        let is_usable = |entry: &Arc<CacheEntry>| {
            self.target.has_receipts(entry) && since.allows_entry_since_wait(shared, entry)
        };
        self.receipts = found.map(|(_, entry)| entry).filter(is_usable);
    }
}

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

#[cfg(test)]
mod tests {
    use super::BlockReceiptsTarget;
    use crate::cache::class::LifetimeClass;
    use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
    use crate::cache::vary_key::VaryKey;
    use crate::jsonrpc::key::call_cache_key;
    use crate::jsonrpc::plausible::BlockHashOrNumber;

    const NUMBER: BlockHashOrNumber = BlockHashOrNumber::Number(31);
    const HASH: BlockHashOrNumber = BlockHashOrNumber::Hash([0xab; 32]);

    #[test]
    fn key_is_the_one_of_a_call_for_receipts_with_the_same_block() {
        let vary_key = VaryKey::new();
        let hash = format!("[ \"0x{}\" ]", "AB".repeat(32));
        for (block, params) in [(NUMBER, "[\"0x1f\"]"), (HASH, hash.as_str())] {
            let target = BlockReceiptsTarget::new(block, &vary_key).unwrap();
            let scope = vary_key.vary_key_bytes();
            let key = call_cache_key(scope, b"eth_getBlockReceipts", Some(params.as_bytes()));
            assert_eq!(target.key, key.unwrap().0);
        }
    }

    #[test]
    fn receipts_by_number_are_used_only_if_they_are_immutable() {
        let entry = |class, status| {
            let meta = EntryMetadata {
                class,
                status,
                ..EntryMetadata::default()
            };
            let payload = EntryPayload::Raw(b"[]".to_vec().into());
            CacheEntry::new(EnvelopeBytes::envelope_without_bytes(), payload, meta)
        };
        for (class, status, by_number, by_hash) in [
            (LifetimeClass::Immutable, 200, true, true),
            (LifetimeClass::Immutable, 404, false, false),
            (LifetimeClass::Unfinalized, 200, false, true),
            (LifetimeClass::Tip, 200, false, false),
            (LifetimeClass::Nothing, 200, false, false),
        ] {
            let has_receipts = |block| {
                let target = BlockReceiptsTarget::new(block, &VaryKey::new()).unwrap();
                target.has_receipts(&entry(class, status))
            };
            assert_eq!(has_receipts(NUMBER), by_number, "{class:?}");
            assert_eq!(has_receipts(HASH), by_hash, "{class:?}");
        }
    }
}
