//! The pieces of one wide call for logs, with the entries that were found or fetched for them.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::join::StoredLogPiece;
use super::plan::PieceSpan;
use crate::bytes::try_push;
use crate::cache::class::LifetimeClass;
use crate::cache::entry::CacheEntry;
use crate::cache::process::ProcessCacheState;
use crate::cache::CacheKey;
use crate::exchange::cache::waiting::PurgeAndChainSnapshot;
use crate::hash_keys::HashMap;
use crate::jsonrpc::response::{classify_result_content, ResultEmptiness};

/// Maximum number of times that a piece waits for a request of another client, whose response may
/// not be usable.
const MAX_FOLLOWED_FLIGHTS: u8 = 2;

/// Maximum length in bytes of a response with an empty list.
const MAX_EMPTY_LIST: u64 = 256;

/// One piece of a wide call.
#[derive(Debug)]
pub(super) struct LogPiece {
    pub(super) span: PieceSpan,
    pub(super) key: CacheKey,
    pub(super) entry: Option<Arc<CacheEntry>>,
    /// Whether a request for it was sent for this call.
    pub(super) is_requested: bool,
    /// Number of requests of other clients that were awaited for it.
    followed: u8,
    /// Whether the call waits for the flight of the piece.
    is_awaited: bool,
}

/// The state of a piece after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitOutcome {
    /// The pieces have usable responses, or another request can be sent for them.
    Continue,
    /// The node has sent no usable response for a piece.
    NodeFailed,
    /// Other clients' responses for a piece were not usable.
    NotUsable,
}

impl LogPiece {
    pub(super) fn new(span: PieceSpan, key: CacheKey) -> Self {
        Self {
            span,
            key,
            entry: None,
            is_requested: false,
            followed: 0,
            is_awaited: false,
        }
    }

    /// Whether all blocks of the piece are final.
    pub(super) fn is_final(&self) -> bool {
        self.span.last.is_some()
    }

    /// Whether the response to a call for this piece may become a part of the response to a call
    /// that began with the state `since`.
    ///
    /// The node has proven its range, so that it was not cut. A piece of final blocks is immutable;
    /// the rest may be what any client may receive, unless it is uncacheable.
    fn accepts_entry(
        &self,
        entry: &CacheEntry,
        shared: &ProcessCacheState,
        since: &PurgeAndChainSnapshot,
    ) -> bool {
        let class = entry.response_metadata().class;
        let has_class = match class {
            LifetimeClass::Immutable => true,
            LifetimeClass::Unfinalized | LifetimeClass::Tip => !self.is_final(),
            LifetimeClass::Nothing => !self.is_final() && is_empty_list(entry),
            LifetimeClass::Config | LifetimeClass::Resource => false,
        };
        has_class
            && entry.is_range_proven()
            && entry.is_unaffected_by_reorgs()
            && since.allows_entry_since_wait(shared, entry)
    }

    /// Records that the call waits for the flight of the piece.
    pub(super) fn mark_awaited(&mut self) {
        self.is_awaited = true;
        self.followed += u8::from(!self.is_requested);
    }

    /// Ends the wait for the piece.
    fn end_wait(&mut self) -> WaitOutcome {
        let was_awaited = std::mem::take(&mut self.is_awaited);
        match was_awaited && self.entry.is_none() {
            true if self.is_requested => WaitOutcome::NodeFailed,
            true if self.followed >= MAX_FOLLOWED_FLIGHTS => WaitOutcome::NotUsable,
            _ => WaitOutcome::Continue,
        }
    }
}

/// Whether the result of an entry is an empty list.
fn is_empty_list(entry: &CacheEntry) -> bool {
    entry.response_length(b"") <= MAX_EMPTY_LIST
        && entry
            .decode_payload()
            .is_some_and(|result| classify_result_content(&result) == ResultEmptiness::EmptyArray)
}

/// All pieces of one wide call, in the order of their blocks.
#[derive(Debug)]
pub(super) struct LogPieces {
    pub(super) all: Vec<LogPiece>,
    /// Last block of the client's range; the maximum if it ends at the head.
    end: u64,
    /// State when the call was looked up.
    pub(super) since: PurgeAndChainSnapshot,
}

impl LogPieces {
    pub(super) fn new(all: Vec<LogPiece>, end: Option<u64>, since: PurgeAndChainSnapshot) -> Self {
        Self {
            all,
            end: end.unwrap_or(u64::MAX),
            since,
        }
    }

    /// Sets the entry of a piece that has none, if it is usable.
    pub(super) fn set_usable_entry(
        &mut self,
        at: usize,
        entry: Arc<CacheEntry>,
        shared: &ProcessCacheState,
    ) {
        let since = &self.since;
        if let Some(piece) = self.all.get_mut(at) {
            if piece.entry.is_none() && piece.accepts_entry(&entry, shared, since) {
                piece.entry = Some(entry);
            }
        }
    }

    /// Sets the usable entries among `entries`, by their keys.
    pub(super) fn set_usable_entries(
        &mut self,
        entries: Vec<(CacheKey, Arc<CacheEntry>)>,
        shared: &ProcessCacheState,
    ) {
        let mut by_key = HashMap::default();
        if by_key.try_reserve(entries.len()).is_err() {
            return;
        }
        by_key.extend(entries);
        for at in 0..self.all.len() {
            let entry = self.all.get(at).and_then(|piece| by_key.remove(&piece.key));
            if let Some(entry) = entry {
                self.set_usable_entry(at, entry, shared);
            }
        }
    }

    /// Ends the wait for all pieces.
    pub(super) fn end_waits(&mut self) -> WaitOutcome {
        let mut all = WaitOutcome::Continue;
        for piece in &mut self.all {
            match piece.end_wait() {
                WaitOutcome::Continue => {}
                failed => all = failed,
            }
        }
        all
    }

    /// Whether a request was sent for any piece.
    pub(super) fn has_requested_pieces(&self) -> bool {
        self.all.iter().any(|piece| piece.is_requested)
    }

    /// Number of bytes of all entries, decompressed.
    pub(super) fn total_length(&self) -> u64 {
        let entries = self.all.iter().filter_map(|piece| piece.entry.as_ref());
        let lengths = entries.map(|entry| entry.response_length(b""));
        lengths.fold(0, u64::saturating_add)
    }

    /// Returns the pieces with their entries, if all have one that is still usable.
    pub(super) fn stored_pieces(&self, shared: &ProcessCacheState) -> Option<Vec<StoredLogPiece>> {
        let mut stored = Vec::new();
        for piece in &self.all {
            let entry = piece.entry.as_ref()?;
            if !piece.accepts_entry(entry, shared, &self.since) {
                return None;
            }
            let one = StoredLogPiece {
                key: piece.key,
                blocks: self.covered_blocks(piece.span),
                is_final: piece.is_final(),
                entry: Arc::clone(entry),
            };
            try_push(&mut stored, one)?;
        }
        Some(stored)
    }

    fn covered_blocks(&self, span: PieceSpan) -> RangeInclusive<u64> {
        span.first..=span.last.unwrap_or(self.end)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{LogPiece, LogPieces, WaitOutcome};
    use crate::cache::class::LifetimeClass;
    use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
    use crate::cache::process::ProcessCacheState;
    use crate::exchange::cache::logs::plan::PieceSpan;
    use crate::exchange::cache::waiting::PurgeAndChainSnapshot;

    const FINAL: usize = 0;
    const REST: usize = 1;

    fn entry(class: LifetimeClass, result: &str) -> Arc<CacheEntry> {
        let meta = EntryMetadata {
            class,
            ..EntryMetadata::default()
        };
        let payload = EntryPayload::Raw(result.as_bytes().to_vec().into());
        let envelope = EnvelopeBytes::envelope_without_bytes();
        Arc::new(CacheEntry::new(envelope, payload, meta).mark_range_proven())
    }

    /// Returns a piece of final blocks and the rest of the range.
    fn pieces() -> LogPieces {
        let spans = [(10, Some(19)), (20, None)];
        let all = spans
            .iter()
            .zip(1..)
            .map(|(&(first, last), n)| LogPiece::new(PieceSpan { first, last }, [n; 32]));
        let since = PurgeAndChainSnapshot {
            generation: 0,
            mark: None,
            is_current: true,
        };
        LogPieces::new(all.collect(), Some(25), since)
    }

    #[test]
    fn final_piece_is_immutable_and_the_rest_is_any_list_for_clients() {
        let shared = ProcessCacheState::default();
        for (class, result, is_final, is_rest) in [
            (LifetimeClass::Immutable, "[]", true, true),
            (LifetimeClass::Unfinalized, "[]", false, true),
            (LifetimeClass::Tip, "[{}]", false, true),
            (LifetimeClass::Nothing, "[ ]", false, true),
            // uncacheable: an error, or a result that contradicts itself
            (LifetimeClass::Nothing, "{}", false, false),
            (LifetimeClass::Nothing, "[{}]", false, false),
            (LifetimeClass::Config, "[]", false, false),
        ] {
            let mut pieces = pieces();
            for at in [FINAL, REST] {
                pieces.set_usable_entry(at, entry(class, result), &shared);
            }
            let has = |at: usize| pieces.all[at].entry.is_some();
            assert_eq!((has(FINAL), has(REST)), (is_final, is_rest), "{class:?}");
            assert_eq!(
                pieces.stored_pieces(&shared).is_some(),
                is_final && is_rest,
                "{class:?}"
            );
        }
    }

    #[test]
    fn response_without_a_proof_of_its_range_is_not_used() {
        let shared = ProcessCacheState::default();
        let payload = EntryPayload::Raw(b"[]".to_vec().into());
        let meta = EntryMetadata {
            class: LifetimeClass::Immutable,
            ..EntryMetadata::default()
        };
        let envelope = EnvelopeBytes::envelope_without_bytes();
        let unproven = Arc::new(CacheEntry::new(envelope, payload, meta));
        let mut pieces = pieces();
        for at in [FINAL, REST] {
            pieces.set_usable_entry(at, Arc::clone(&unproven), &shared);
            assert!(pieces.all[at].entry.is_none());
        }
    }

    #[test]
    fn pieces_cover_the_range_of_the_client() {
        let shared = ProcessCacheState::default();
        let mut pieces = pieces();
        let entries =
            [[2; 32], [1; 32], [7; 32]].map(|key| (key, entry(LifetimeClass::Immutable, "[]")));
        pieces.set_usable_entries(entries.to_vec(), &shared);
        let stored = pieces.stored_pieces(&shared).unwrap();
        let blocks: Vec<_> = stored.iter().map(|piece| piece.blocks.clone()).collect();
        assert_eq!(blocks, [10..=19, 20..=25]);
        assert_eq!(pieces.total_length(), 4);
    }

    #[test]
    fn piece_without_a_usable_response_of_the_node_ends_the_split() {
        let mut pieces = pieces();
        assert_eq!(pieces.end_waits(), WaitOutcome::Continue);
        pieces.all[FINAL].is_requested = true;
        pieces.all[FINAL].mark_awaited();
        assert!(pieces.has_requested_pieces());
        assert_eq!(pieces.end_waits(), WaitOutcome::NodeFailed);
    }

    #[test]
    fn piece_is_awaited_of_other_clients_twice_at_most() {
        let mut pieces = pieces();
        for expected in [WaitOutcome::Continue, WaitOutcome::NotUsable] {
            pieces.all[FINAL].mark_awaited();
            assert_eq!(pieces.end_waits(), expected);
        }
        let shared = ProcessCacheState::default();
        pieces.all[FINAL].mark_awaited();
        pieces.set_usable_entry(FINAL, entry(LifetimeClass::Immutable, "[]"), &shared);
        assert_eq!(pieces.end_waits(), WaitOutcome::Continue);
    }
}
