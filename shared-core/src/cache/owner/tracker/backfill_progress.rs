//! The progress of the backfill.

use super::types::BlockHash;

/// The progress of the backfill.
#[derive(Debug, Default)]
pub(super) struct WindowBackfill {
    /// Number of blocks that may be queried until the next poll.
    pub(super) remaining: u32,
    /// A block that the node did not return, and the number of polls in a row after which it was
    /// queried.
    pub(super) missing: Option<(BlockHash, u32)>,
}

impl WindowBackfill {
    /// Ends the backfill until the next successful poll.
    pub(super) fn stop_until_next_poll(&mut self) {
        self.remaining = 0;
    }
}
