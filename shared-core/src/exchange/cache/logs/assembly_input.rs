//! The entries from which the response to a call for logs is assembled.

use std::sync::Arc;

use super::join::{join_memory, total_piece_length, StoredLogPiece};
use crate::cache::entry::CacheEntry;
use crate::cache::process::ProcessCacheState;
use crate::cache::CacheKey;
use crate::exchange::cache::fill::logs_comparison::derived_logs_memory;
use crate::exchange::cache::fill::CacheFill;
use crate::exchange::cache::waiting::PurgeAndChainSnapshot;

/// A response to a call for logs, before its entry is assembled from the entries of other calls.
#[derive(Debug)]
pub(in crate::exchange) struct LogAssembly {
    /// Key of the client's call.
    pub(in crate::exchange) key: CacheKey,
    /// Id of the client's call, as it is written in the request.
    pub(in crate::exchange) id: Vec<u8>,
    pub(in crate::exchange) source: LogAssemblySource,
    /// Fill of the client's call. It stores the assembled entry, or the node's response if the
    /// assembly fails.
    pub(in crate::exchange) fill: Box<CacheFill>,
    /// State when the call was looked up.
    pub(in crate::exchange) since: PurgeAndChainSnapshot,
    /// Whether the node was queried for a part of the response.
    pub(in crate::exchange) has_fetched: bool,
}

/// The entries from which the logs are assembled.
#[derive(Debug)]
pub(in crate::exchange) enum LogAssemblySource {
    /// The responses for the pieces of a range.
    Pieces(Vec<StoredLogPiece>),
    /// The receipts of a block, with their key.
    Receipts(CacheKey, Arc<CacheEntry>),
}

impl LogAssemblySource {
    /// Number of bytes that are decoded and read.
    pub(in crate::exchange) fn decoded_length(&self) -> u64 {
        match self {
            LogAssemblySource::Pieces(pieces) => total_piece_length(pieces),
            LogAssemblySource::Receipts(_, receipts) => receipts.response_length(b""),
        }
    }

    /// Number of bytes that the assembly takes.
    pub(super) fn required_memory(&self) -> usize {
        match self {
            LogAssemblySource::Pieces(pieces) => join_memory(pieces),
            LogAssemblySource::Receipts(_, receipts) => derived_logs_memory(receipts),
        }
    }

    /// Whether all entries may be sent to a request that began with the state `since`.
    pub(super) fn is_usable(
        &self,
        shared: &ProcessCacheState,
        since: &PurgeAndChainSnapshot,
    ) -> bool {
        let is_usable = |entry: &CacheEntry| {
            entry.is_unaffected_by_reorgs() && since.allows_entry_since_wait(shared, entry)
        };
        match self {
            LogAssemblySource::Pieces(pieces) => pieces.iter().all(|it| is_usable(&it.entry)),
            LogAssemblySource::Receipts(_, receipts) => is_usable(receipts),
        }
    }
}
