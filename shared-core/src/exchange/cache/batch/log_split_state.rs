//! The state of the wide calls for logs of a batch.

use std::sync::Arc;

use crate::cache::class::LifetimeClass;
use crate::cache::entry::CacheEntry;
use crate::cache::process::ProcessCacheState;
use crate::cache::CacheKey;
use crate::exchange::cache::fill::CacheFill;
use crate::exchange::cache::logs::search_state::LogsSearch;
use crate::exchange::cache::waiting::{OwnerBatchReply, PurgeAndChainSnapshot};

/// The wide calls for logs of a batch: the searches that have not begun, and the responses that were
/// assembled.
#[derive(Debug)]
pub(in crate::exchange) struct BatchLogSplits {
    /// The searches that have not begun, the next one last.
    pub(super) planned: Vec<LogsSearch>,
    pub(super) assembled: Vec<AssembledResponse>,
    /// State when the batch was looked up, with which the responses must be valid.
    pub(super) snapshot: PurgeAndChainSnapshot,
    /// Number of bytes of the assembled responses.
    pub(super) assembled_bytes: u64,
    /// Number of bytes that were assembled on the event loop since the last wait.
    pub(super) bytes_assembled_on_event_loop: u64,
    /// Fill of the call whose search has failed, with the leadership of its flight.
    pub(super) abandoned: Option<Box<CacheFill>>,
    /// The owner's entries for the batch, during the wait of a search.
    pub(super) owner_reply: Option<OwnerBatchReply>,
}

/// The assembled response to a call of a batch.
#[derive(Debug)]
pub(super) struct AssembledResponse {
    pub(super) key: CacheKey,
    pub(super) entry: Arc<CacheEntry>,
    /// Whether the node was queried for a part of it.
    pub(super) has_fetched: bool,
}

impl BatchLogSplits {
    /// Returns the assembled response to a call, if it may be sent.
    pub(super) fn usable_response(
        &self,
        key: &CacheKey,
        shared: &ProcessCacheState,
    ) -> Option<Arc<CacheEntry>> {
        let entry = &self.assembled.iter().find(|it| it.key == *key)?.entry;
        let is_usable =
            entry.is_unaffected_by_reorgs() && self.snapshot.allows_entry_since_wait(shared, entry);
        is_usable.then(|| Arc::clone(entry))
    }

    /// Whether the response to a call was assembled from pieces that were fetched for it.
    pub(super) fn has_fetched_response(&self, key: &CacheKey) -> bool {
        let mut assembled = self.assembled.iter();
        assembled.any(|it| it.has_fetched && it.key == *key)
    }

    /// Whether the response to a call was assembled from pieces of final blocks: no head changes it.
    pub(super) fn has_immutable_response(&self, key: &CacheKey) -> bool {
        let is_immutable =
            |entry: &CacheEntry| entry.response_metadata().class == LifetimeClass::Immutable;
        let mut assembled = self.assembled.iter();
        assembled.any(|it| it.key == *key && is_immutable(&it.entry))
    }

    /// Whether a search has failed, so that the missing calls are sent to the node at once.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.is_some()
    }

    /// Ends the searches, because one has failed.
    pub(super) fn abandon_searches(&mut self, fill: Option<Box<CacheFill>>) {
        self.planned.clear();
        self.abandoned = fill;
    }
}
