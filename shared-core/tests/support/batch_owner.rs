//! An owner in this process that records lookups, and returns its entries to batches only.

use std::sync::{Arc, Mutex};

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

/// A lookup that the owner has received.
#[derive(Debug, PartialEq)]
pub enum RecordedLookup {
    /// The key and the conditions of the lookup.
    Single(CacheKey, OwnerLookupOptions),
    /// The keys, and the kinds of the first ones, whose responses may be shared.
    Batch(Vec<CacheKey>, BatchLookupOptions),
}

/// An owner whose lookups of batches end at once.
#[derive(Debug, Default)]
pub struct BatchOwner {
    pub chains: NamespaceChains,
    pub lookups: Mutex<Vec<RecordedLookup>>,
    stored: Mutex<Vec<(CacheKey, Arc<CacheEntry>)>>,
}

impl BatchOwner {
    /// Creates an owner that follows the chain of a namespace, with this head and this last final
    /// block.
    pub fn following_chain(namespace: &str, head: u64, last_final: u64) -> Self {
        let owner = Self::default();
        let mut state = ChainState::new_without_blocks(HeightUnit::Blocks, 0);
        state.known = true;
        state.apply_chain_change(ChainChange::Head(head));
        state.apply_chain_change(ChainChange::Final(Some(last_final)));
        let namespace = named_cache_namespace(namespace.as_bytes());
        owner.chains.get_or_add_chain(namespace, || state);
        owner
    }
}

impl OwnerClient for BatchOwner {
    fn is_owner_reachable(&self) -> bool {
        true
    }

    fn lookup_at_owner(
        &self,
        _: &CoalescedFlights,
        token: FlightLeadership,
        _: WaitingRequestId,
        options: OwnerLookupOptions,
        _: u64,
    ) -> OwnerLookup {
        let lookup = RecordedLookup::Single(*token.flight_key(), options);
        self.lookups.lock().unwrap().push(lookup);
        OwnerLookup::Missing(token)
    }

    fn lookup_batch_at_owner(
        &self,
        keys: Vec<CacheKey>,
        options: BatchLookupOptions,
        _: WaitingRequestId,
        _: u64,
    ) -> bool {
        let lookup = RecordedLookup::Batch(keys, options);
        self.lookups.lock().unwrap().push(lookup);
        true
    }

    fn take_batch_entries(&self, _: WaitingRequestId) -> Vec<(CacheKey, Arc<CacheEntry>)> {
        let lookups = self.lookups.lock().unwrap();
        let Some(RecordedLookup::Batch(requested, _)) = lookups.last() else {
            return Vec::new();
        };
        let stored = self.stored.lock().unwrap();
        let found = stored.iter().filter(|(key, _)| requested.contains(key));
        found.cloned().collect()
    }

    fn store_at_owner(
        &self,
        key: CacheKey,
        entry: Arc<CacheEntry>,
        _: StoredEntryAttributes,
        _: OwnerStoreOptions,
        _: u64,
    ) {
        self.stored.lock().unwrap().push((key, entry));
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
        None
    }

    fn claim_admin_reply(&self, _: WaitingRequestId) -> Option<OwnerAdminReply> {
        None
    }
}
