//! The split of a wide call for logs, between its lookups.

use super::piece_state::LogPieces;
use crate::cache::CacheKey;
use crate::exchange::cache::fill::CacheFill;

/// The split of one call, while it waits for its pieces.
#[derive(Debug)]
pub(in crate::exchange) struct LogSplit {
    /// Key of the client's call.
    pub(super) key: CacheKey,
    /// Fill of the client's call, whose followers receive the assembled entry.
    pub(super) fill: Box<CacheFill>,
    pub(super) pieces: LogPieces,
    /// Number of pieces that were looked up at the owner, or need not be.
    pub(super) queried: usize,
    /// Time until which the call waits, in milliseconds of the lookup clock.
    pub(super) waits_until: u64,
}

impl LogSplit {
    /// Milliseconds from `now` to the end of the wait.
    pub(in crate::exchange) fn remaining_wait(&self, now: u64) -> u64 {
        self.waits_until.saturating_sub(now)
    }
}
