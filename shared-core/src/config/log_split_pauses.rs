//! The pauses in which calls for logs are not split: after a failure of the node all calls of the
//! route, after a refusal of a client's filter those with this filter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

use crate::cache::CacheKey;
use crate::lock::lock_ignoring_poison;

/// Duration of a pause in milliseconds.
const PAUSE_MS: u64 = 10_000;

/// Maximum number of refused filters that are remembered.
const MAX_FILTERS: usize = 32;

/// Number of filters that are refused in a row, while no piece is fetched, from which on the node is
/// expected to refuse all pieces.
const MAX_REFUSALS_IN_A_ROW: u32 = 8;

/// Time in milliseconds after a fetched piece in which refusals do not show that the node refuses all
/// pieces: the filters of one client must not end the splitting for the others.
const FETCHED_PIECE_VALIDITY_MS: u64 = 60_000;

/// The pauses of one route. Times are in milliseconds of the lookup clock.
#[derive(Debug, Default)]
pub(crate) struct LogSplitPauses {
    /// End of the pause for all calls.
    paused_until: AtomicU64,
    refusals: Mutex<FilterRefusals>,
}

/// The filters that the node has refused in a piece.
#[derive(Debug, Default)]
struct FilterRefusals {
    /// The last refused filters, each with the end of its pause.
    filters: [(CacheKey, u64); MAX_FILTERS],
    /// Number of refused filters; the next one replaces the oldest one.
    count: usize,
    /// Number of refused filters since a piece was fetched; a pause halves it.
    in_a_row: u32,
    /// Time when the last piece was fetched.
    last_fetched_piece: Option<u64>,
}

impl FilterRefusals {
    fn is_paused(&self, filter: &CacheKey, now: u64) -> bool {
        let mut filters = self.filters.iter();
        filters.any(|(refused, until)| refused == filter && now < *until)
    }

    /// Whether the node is expected to refuse the pieces of every filter.
    fn are_all_pieces_refused(&self, now: u64) -> bool {
        let has_fetched_lately = self
            .last_fetched_piece
            .is_some_and(|at| now.saturating_sub(at) < FETCHED_PIECE_VALIDITY_MS);
        self.in_a_row >= MAX_REFUSALS_IN_A_ROW && !has_fetched_lately
    }
}

impl LogSplitPauses {
    /// Whether no call is split.
    pub(crate) fn is_paused(&self, now: u64) -> bool {
        now < self.paused_until.load(Ordering::Relaxed)
    }

    /// Whether calls with this filter are not split.
    pub(crate) fn is_filter_paused(&self, filter: &CacheKey, now: u64) -> bool {
        lock_ignoring_poison(&self.refusals).is_paused(filter, now)
    }

    /// Stops the splitting of all calls: the node has failed to send a piece, and would fail again.
    pub(crate) fn pause(&self, now: u64) {
        let until = now.saturating_add(PAUSE_MS);
        self.paused_until.fetch_max(until, Ordering::Relaxed);
    }

    /// Stops the splitting of calls with this filter, which the node has refused in a piece; of all
    /// calls if it has refused many filters in a row, and has sent no piece for a minute.
    pub(crate) fn record_refused_filter(&self, filter: &CacheKey, now: u64) {
        let refusals = &mut *lock_ignoring_poison(&self.refusals);
        // concurrent calls with one filter are one refusal
        if refusals.is_paused(filter, now) {
            return;
        }
        let at = refusals.count % MAX_FILTERS;
        if let Some(oldest) = refusals.filters.get_mut(at) {
            *oldest = (*filter, now.saturating_add(PAUSE_MS));
        }
        refusals.count = refusals.count.wrapping_add(1);
        refusals.in_a_row = refusals.in_a_row.saturating_add(1);
        if refusals.are_all_pieces_refused(now) {
            self.pause(now);
            refusals.in_a_row /= 2;
        }
    }

    /// Records that the node has sent a piece.
    pub(crate) fn record_fetched_piece(&self, now: u64) {
        let refusals = &mut *lock_ignoring_poison(&self.refusals);
        refusals.in_a_row = 0;
        refusals.last_fetched_piece = refusals.last_fetched_piece.max(Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records refusals of these filters.
    fn refuse(pauses: &LogSplitPauses, filters: std::ops::Range<u8>, now: u64) {
        for filter in filters {
            pauses.record_refused_filter(&[filter; 32], now);
        }
    }

    #[test]
    fn pause_ends_after_its_time() {
        let pauses = LogSplitPauses::default();
        assert!(!pauses.is_paused(5));
        pauses.pause(5);
        // an earlier time does not shorten the pause
        pauses.pause(1);
        assert!(pauses.is_paused(4 + PAUSE_MS) && !pauses.is_paused(5 + PAUSE_MS));
    }

    #[test]
    fn refused_filter_pauses_only_its_own_calls() {
        let pauses = LogSplitPauses::default();
        assert!(!pauses.is_filter_paused(&[0; 32], 0));
        for _ in 0..100 {
            pauses.record_refused_filter(&[1; 32], 5);
        }
        assert!(pauses.is_filter_paused(&[1; 32], 4 + PAUSE_MS));
        assert!(!pauses.is_filter_paused(&[1; 32], 5 + PAUSE_MS));
        assert!(!pauses.is_filter_paused(&[2; 32], 5) && !pauses.is_paused(5));
    }

    #[test]
    fn route_is_paused_when_many_filters_in_a_row_are_refused() {
        let pauses = LogSplitPauses::default();
        refuse(&pauses, 0..7, 5);
        assert!(!pauses.is_paused(5));
        refuse(&pauses, 7..8, 6);
        assert!(pauses.is_paused(5 + PAUSE_MS) && !pauses.is_paused(6 + PAUSE_MS));
        // a pause halves the number of refusals
        refuse(&pauses, 8..11, 20_000);
        assert!(!pauses.is_paused(20_000));
        refuse(&pauses, 11..12, 20_000);
        assert!(pauses.is_paused(20_000));
    }

    #[test]
    fn route_is_not_paused_by_refusals_while_pieces_are_fetched() {
        let pauses = LogSplitPauses::default();
        pauses.record_fetched_piece(5);
        refuse(&pauses, 0..20, 4 + FETCHED_PIECE_VALIDITY_MS);
        assert!(!pauses.is_paused(4 + FETCHED_PIECE_VALIDITY_MS));
        refuse(&pauses, 20..21, 5 + FETCHED_PIECE_VALIDITY_MS);
        assert!(pauses.is_paused(5 + FETCHED_PIECE_VALIDITY_MS));
        // an earlier time does not replace a later one
        pauses.record_fetched_piece(100_000);
        pauses.record_fetched_piece(90_000);
        refuse(&pauses, 21..40, 155_000);
        assert!(!pauses.is_paused(155_000));
        refuse(&pauses, 40..41, 160_000);
        assert!(pauses.is_paused(160_000));
    }

    #[test]
    fn number_of_remembered_filters_is_limited() {
        let pauses = LogSplitPauses::default();
        refuse(&pauses, 0..33, 5);
        let paused = (0..33_u8).filter(|filter| pauses.is_filter_paused(&[*filter; 32], 5));
        assert!(paused.eq(1..33));
    }
}
