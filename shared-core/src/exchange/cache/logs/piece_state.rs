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
use crate::exchange::cache::fill::piece_request::PieceRequestState;
use crate::exchange::cache::waiting::PurgeAndChainSnapshot;
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
    /// The request for it that was begun for this call.
    pub(super) request: Option<PieceRequestState>,
    /// Number of requests of other clients that were awaited for it.
    followed: u8,
    /// Whether the call waits for the flight of the piece.
    is_awaited: bool,
}

/// The state of a piece after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaitOutcome {
    /// The pieces have usable responses, or another request can be sent for them.
    Continue,
    /// A piece is still in flight: the call was woken for another reason.
    InFlight,
    /// A piece has no entry, and the node is not at fault: the request was not sent, the response
    /// concerns the client, memory for it was short, or other clients' responses were not usable.
    NotUsable,
    /// The node has refused the call for a piece, because of the client's filter as far as is known.
    FilterRefused,
    /// The node has sent no usable response for a piece, or none in time.
    NodeFailed,
}

impl LogPiece {
    pub(super) fn new(span: PieceSpan, key: CacheKey) -> Self {
        Self {
            span,
            key,
            entry: None,
            request: None,
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
        self.followed += u8::from(self.request.is_none());
    }

    /// Whether the call waits for the flight of the piece and has no response.
    fn lacks_awaited_entry(&self) -> bool {
        self.is_awaited && self.entry.is_none()
    }

    /// Ends the wait for the piece, whose flight has ended unless `is_in_flight`.
    fn end_wait(&mut self, is_in_flight: bool, is_timed_out: bool) -> WaitOutcome {
        let is_lacking = self.lacks_awaited_entry();
        self.is_awaited = false;
        if !is_lacking {
            return WaitOutcome::Continue;
        }
        if is_in_flight && !is_timed_out {
            self.followed -= u8::from(self.request.is_none());
            return WaitOutcome::InFlight;
        }
        match &self.request {
            Some(_) if is_in_flight => WaitOutcome::NodeFailed,
            Some(request) if request.is_filter_refused() => WaitOutcome::FilterRefused,
            Some(request) if request.is_node_at_fault() => WaitOutcome::NodeFailed,
            None if !is_in_flight && self.followed < MAX_FOLLOWED_FLIGHTS => WaitOutcome::Continue,
            _ => WaitOutcome::NotUsable,
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

    /// Searches the hot tier for a piece without an entry.
    pub(super) fn find_hot_entry(&mut self, at: usize, shared: &ProcessCacheState, now: u64) {
        let piece = self.all.get(at).filter(|piece| piece.entry.is_none());
        let key = piece.map(|piece| piece.key);
        let entry = key.and_then(|key| shared.hot_tier()?.get(&key, now));
        if let Some(entry) = entry {
            self.set_usable_entry(at, entry, shared);
        }
    }

    /// Searches the hot tier for all pieces without an entry.
    pub(super) fn find_hot_entries(&mut self, shared: &ProcessCacheState, now: u64) {
        for at in 0..self.all.len() {
            self.find_hot_entry(at, shared, now);
        }
    }

    /// Whether all blocks of the range are final.
    pub(super) fn is_final(&self) -> bool {
        self.all.last().is_some_and(LogPiece::is_final)
    }

    /// Sets the usable entries among `entries`, by their keys.
    pub(super) fn set_usable_entries(
        &mut self,
        entries: Vec<(CacheKey, Arc<CacheEntry>)>,
        shared: &ProcessCacheState,
    ) {
        // allocates nothing, so that no entry is lost when memory is refused
        for (key, entry) in entries {
            if let Some(at) = self.all.iter().position(|piece| piece.key == key) {
                self.set_usable_entry(at, entry, shared);
            }
        }
    }

    /// Ends the wait for all pieces, and returns the outcome that decides the next step.
    pub(super) fn end_waits(
        &mut self,
        shared: &ProcessCacheState,
        now: u64,
        is_timed_out: bool,
    ) -> WaitOutcome {
        let mut all = WaitOutcome::Continue;
        for at in 0..self.all.len() {
            let awaited = self.all.get(at).filter(|piece| piece.lacks_awaited_entry());
            let is_in_flight = awaited.is_some_and(|it| shared.flights.is_in_flight(&it.key));
            if awaited.is_some() && !is_in_flight {
                // its flight may have ended after the wakeup, and its entry was stored before
                self.find_hot_entry(at, shared, now);
            }
            if let Some(piece) = self.all.get_mut(at) {
                all = all.max(piece.end_wait(is_in_flight, is_timed_out));
            }
        }
        all
    }

    /// Whether a request was sent for any piece.
    pub(super) fn has_requested_pieces(&self) -> bool {
        self.all.iter().any(|piece| piece.request.is_some())
    }

    /// Whether the node has sent any piece that was requested for this call.
    pub(super) fn has_fetched_pieces(&self) -> bool {
        let mut all = self.all.iter();
        all.any(|piece| piece.request.is_some() && piece.entry.is_some())
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
    use crate::exchange::cache::fill::piece_request::PieceRequestState;
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
        let (shared, request) = (ProcessCacheState::default(), PieceRequestState::default());
        let mut pieces = pieces();
        let outcome = |pieces: &mut LogPieces| pieces.end_waits(&shared, 0, false);
        assert_eq!(outcome(&mut pieces), WaitOutcome::Continue);
        pieces.all[FINAL].request = Some(request.clone());
        assert!(pieces.has_requested_pieces());
        pieces.all[FINAL].mark_awaited();
        // the host has not sent the request
        assert_eq!(outcome(&mut pieces), WaitOutcome::NotUsable);
        request.record_response(200);
        pieces.all[FINAL].mark_awaited();
        pieces.all[REST].request = Some(PieceRequestState::default());
        pieces.all[REST].mark_awaited();
        assert_eq!(outcome(&mut pieces), WaitOutcome::NodeFailed);
    }

    #[test]
    fn refused_filter_is_no_failure_of_the_node() {
        let (shared, request) = (ProcessCacheState::default(), PieceRequestState::default());
        let mut pieces = pieces();
        let outcome = |pieces: &mut LogPieces| {
            for piece in &mut pieces.all {
                piece.mark_awaited();
            }
            pieces.end_waits(&shared, 0, false)
        };
        pieces.all[FINAL].request = Some(request.clone());
        pieces.all[REST].request = Some(PieceRequestState::default());
        request.record_response(200);
        assert_eq!(outcome(&mut pieces), WaitOutcome::NodeFailed);
        request.record_refused_filter();
        assert_eq!(outcome(&mut pieces), WaitOutcome::FilterRefused);
        assert!(!pieces.has_fetched_pieces());
        pieces.set_usable_entry(FINAL, entry(LifetimeClass::Immutable, "[]"), &shared);
        assert!(pieces.has_fetched_pieces());
        assert_eq!(outcome(&mut pieces), WaitOutcome::NotUsable);
    }

    #[test]
    fn piece_in_flight_is_awaited_until_the_timeout() {
        let shared = ProcessCacheState::default();
        let token = shared.flights.begin_flight([1; 32]).unwrap();
        let mut pieces = pieces();
        for (request, failed) in [
            (None, WaitOutcome::NotUsable),
            (Some(PieceRequestState::default()), WaitOutcome::NodeFailed),
        ] {
            pieces.all[FINAL].request = request;
            for _ in 0..5 {
                pieces.all[FINAL].mark_awaited();
                let outcome = pieces.end_waits(&shared, 0, false);
                assert_eq!(outcome, WaitOutcome::InFlight);
            }
            pieces.all[FINAL].mark_awaited();
            assert_eq!(pieces.end_waits(&shared, 0, true), failed);
        }
        shared.hand_over_flight(token);
    }

    #[test]
    fn piece_is_awaited_of_other_clients_twice_at_most() {
        let shared = ProcessCacheState::default();
        let mut pieces = pieces();
        for expected in [WaitOutcome::Continue, WaitOutcome::NotUsable] {
            pieces.all[FINAL].mark_awaited();
            assert_eq!(pieces.end_waits(&shared, 0, false), expected);
        }
        pieces.all[FINAL].mark_awaited();
        pieces.set_usable_entry(FINAL, entry(LifetimeClass::Immutable, "[]"), &shared);
        assert_eq!(pieces.end_waits(&shared, 0, false), WaitOutcome::Continue);
    }
}
