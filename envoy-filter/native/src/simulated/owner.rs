//! An owner without entries, which follows one chain.

use std::sync::Arc;

use sszip_core::cache::chain::{ChainChange, ChainState, HeightUnit, NamespaceChains};
use sszip_core::cache::entry::store_attributes::StoredEntryAttributes;
use sszip_core::cache::entry::CacheEntry;
use sszip_core::cache::process::flights::{CoalescedFlights, FlightLeadership};
use sszip_core::cache::process::owner_client::{
    BatchLookupOptions, OwnerAdminReply, OwnerClient, OwnerLookup, OwnerLookupOptions,
    OwnerStoreOptions,
};
use sszip_core::cache::process::wake::WaitingRequestId;
use sszip_core::cache::vary_key::named_cache_namespace;
use sszip_core::cache::CacheKey;

use crate::process::PROCESS;

/// Namespace of the chain.
pub const LOG_NAMESPACE: &str = "simulated-logs";

/// Head of the chain, and its last final block.
const HEAD: u64 = 1_000;
const LAST_FINAL: u64 = 900;

/// Connects the process to an owner that follows the chain, unless it is connected.
pub fn follow_simulated_chain() {
    PROCESS
        .shared
        .set_owner_client(Arc::new(SimulatedOwner::new()));
}

#[derive(Debug)]
struct SimulatedOwner {
    chains: NamespaceChains,
}

impl SimulatedOwner {
    fn new() -> Self {
        let mut state = ChainState::new_without_blocks(HeightUnit::Blocks, 0);
        state.known = true;
        state.apply_chain_change(ChainChange::Head(HEAD));
        state.apply_chain_change(ChainChange::Final(Some(LAST_FINAL)));
        let chains = NamespaceChains::default();
        chains.get_or_add_chain(named_cache_namespace(LOG_NAMESPACE.as_bytes()), || state);
        Self { chains }
    }
}

impl OwnerClient for SimulatedOwner {
    fn is_owner_reachable(&self) -> bool {
        false
    }

    fn lookup_at_owner(
        &self,
        _: &CoalescedFlights,
        token: FlightLeadership,
        _: WaitingRequestId,
        _: OwnerLookupOptions,
        _: u64,
    ) -> OwnerLookup {
        OwnerLookup::Missing(token)
    }

    fn lookup_batch_at_owner(
        &self,
        _: Vec<CacheKey>,
        _: BatchLookupOptions,
        _: WaitingRequestId,
        _: u64,
    ) -> bool {
        false
    }

    fn take_batch_entries(&self, _: WaitingRequestId) -> Vec<(CacheKey, Arc<CacheEntry>)> {
        Vec::new()
    }

    fn store_at_owner(
        &self,
        _: CacheKey,
        _: Arc<CacheEntry>,
        _: StoredEntryAttributes,
        _: OwnerStoreOptions,
        _: u64,
    ) {
    }

    fn release_lease(&self, _: CacheKey) {}

    fn permits_sending_from_memory(&self, _: u64) -> bool {
        true
    }

    fn purge_generation(&self) -> u64 {
        0
    }

    fn followed_chains(&self) -> &NamespaceChains {
        &self.chains
    }

    fn purge_at_owner(
        &self,
        _: &[u8],
        _: Option<&[u8]>,
        _: WaitingRequestId,
        _: u64,
    ) -> Option<OwnerAdminReply> {
        Some((503, b"{}".to_vec()))
    }

    fn claim_admin_reply(&self, _: WaitingRequestId) -> Option<OwnerAdminReply> {
        None
    }
}
