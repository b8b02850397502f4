//! The state of a search for the entries from which the response to a call for logs is assembled.

use std::sync::Arc;

use super::piece_state::LogPieces;
use crate::bytes::try_push;
use crate::cache::class::LifetimeClass;
use crate::cache::entry::CacheEntry;
use crate::cache::owner_protocol::process_message::MAX_BATCH_KEYS;
use crate::cache::process::derived_logs::LogsSource;
use crate::cache::process::ProcessCacheState;
use crate::cache::vary_key::VaryKey;
use crate::cache::CacheKey;
use crate::exchange::cache::fill::CacheFill;
use crate::exchange::cache::waiting::PurgeAndChainSnapshot;
use crate::jsonrpc::plausible::BlockHashOrNumber;

/// The search for the entries of one call that is a miss.
#[derive(Debug)]
pub(in crate::exchange) struct LogsSearch {
    /// Key of the client's call.
    pub(super) key: CacheKey,
    /// Fill of the client's call, whose followers receive the assembled entry.
    pub(super) fill: Box<CacheFill>,
    /// State when the call was looked up.
    pub(super) since: PurgeAndChainSnapshot,
    /// Time until which the call waits, in milliseconds of the lookup clock.
    pub(super) waits_until: u64,
    /// Time after which no wait begins.
    pub(super) ends_at: u64,
    pub(super) searched: SearchedEntries,
}

impl LogsSearch {
    /// Key of the client's call.
    pub(in crate::exchange) fn call_key(&self) -> &CacheKey {
        &self.key
    }

    /// Whether pieces are searched whose blocks are all final, so that the response does not depend
    /// on the head.
    pub(in crate::exchange) fn has_final_range(&self) -> bool {
        matches!(&self.searched, SearchedEntries::Pieces(split) if split.pieces.is_final())
    }

    /// Makes the search the leader of the flight of its call, unless another request leads it.
    pub(in crate::exchange) fn lead_call_flight(&mut self) {
        self.fill.lead_single_flight();
    }

    /// Milliseconds from `now` to the end of the wait.
    pub(in crate::exchange) fn remaining_wait(&self, now: u64) -> u64 {
        self.waits_until.saturating_sub(now)
    }
}

/// The entries that are searched: the receipts of the only block, or the pieces of the range.
#[derive(Debug)]
pub(super) enum SearchedEntries {
    Receipts(ReceiptsSearch),
    Pieces(LogSplit),
}

const RECEIPTS_METHOD: &[u8] = b"eth_getBlockReceipts";

/// The receipts of the only block that a call for logs searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockReceiptsTarget {
    /// Key of the response to `eth_getBlockReceipts` with the block as the call names it.
    pub(super) key: CacheKey,
    block: BlockHashOrNumber,
}

impl BlockReceiptsTarget {
    /// Returns the target for the block, under the vary key of the call for logs.
    pub(super) fn new(block: BlockHashOrNumber, vary_key: &VaryKey) -> Option<Self> {
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
    pub(super) fn has_receipts(&self, entry: &CacheEntry) -> bool {
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
    pub(super) target: BlockReceiptsTarget,
    pub(super) source: LogsSource,
    /// The receipts, once they were found.
    pub(super) receipts: Option<Arc<CacheEntry>>,
    /// Whether the owner was queried.
    pub(super) is_queried: bool,
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

/// The split of one call.
#[derive(Debug)]
pub(super) struct LogSplit {
    pub(super) pieces: LogPieces,
    /// Key of the client's filter, whatever its range.
    pub(super) filter_key: CacheKey,
    /// Number of pieces that were looked up at the owner, or need not be.
    pub(super) queried: usize,
}

impl LogSplit {
    /// Returns the keys of the next missing pieces of final blocks that are looked up at the owner.
    /// `None` if memory is refused.
    pub(super) fn take_unqueried_keys(&mut self) -> Option<Vec<CacheKey>> {
        let mut keys = Vec::new();
        for piece in self.pieces.all.iter().skip(self.queried) {
            if keys.len() == MAX_BATCH_KEYS {
                break;
            }
            self.queried += 1;
            if piece.is_final() && piece.entry.is_none() {
                try_push(&mut keys, piece.key)?;
            }
        }
        Some(keys)
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
