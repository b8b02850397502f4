//! The backfill of the window.
//!
//! After a start the window has one block, and each poll adds the new ones. The blocks between the
//! oldest one and the final one are fetched after the polls, so that no poll waits for them or
//! fails with them. Each is queried by the hash that its child names as its parent: the response
//! is of the window's chain, even if the node follows another branch by then.

use super::types::{NodeQuery, NodeResult};
use super::ChainTracker;

/// Maximum number of blocks that are fetched after a poll, and after one that has begun a window.
const BLOCKS_PER_POLL: u32 = 1;
const BLOCKS_OF_NEW_WINDOW: u32 = 8;

/// Number of polls after which a block that the node does not have is not queried again.
const MAX_ATTEMPTS: u32 = 8;

impl ChainTracker {
    /// Permits queries of the backfill after a successful poll.
    pub(super) fn permit_backfill(&mut self) {
        self.backfill.remaining = match self.window.block_count() {
            1 => BLOCKS_OF_NEW_WINDOW,
            _ => BLOCKS_PER_POLL,
        };
    }

    /// Returns the query for the parent of the oldest known block, to be sent after a poll; `None`
    /// if the window reaches down to the final block or is full, if no block is final, or if
    /// enough blocks were queried since the poll.
    pub fn next_backfill_query(&mut self) -> Option<NodeQuery> {
        let oldest = self.window.oldest_block()?;
        let is_above_final = self
            .published_final
            .is_some_and(|last| oldest.number > last);
        let is_undisturbed = self.poll.is_none() && self.behind.is_none() && !self.is_wrong;
        let is_absent = self.backfill.missing == Some((oldest.parent, MAX_ATTEMPTS));
        if !is_above_final || !is_undisturbed || is_absent || self.window.is_full() {
            return None;
        }
        self.backfill.remaining = self.backfill.remaining.checked_sub(1)?;
        Some(NodeQuery::ByHash(oldest.parent))
    }

    /// Records the result of the query that [`next_backfill_query`](Self::next_backfill_query) has
    /// returned last. Returns whether the window has got an older block.
    pub fn handle_backfill_result(&mut self, answer: &NodeResult) -> bool {
        let is_added = match answer {
            NodeResult::Block(Some(block)) => self.window.prepend_parent(block),
            _ => false,
        };
        if is_added {
            self.backfill.missing = None;
        } else if let Some(oldest) = self.window.oldest_block() {
            let attempts = match self.backfill.missing {
                Some((missing, attempts)) if missing == oldest.parent => attempts,
                _ => 0,
            };
            self.backfill.missing = Some((oldest.parent, (attempts + 1).min(MAX_ATTEMPTS)));
            self.backfill.stop_until_next_poll();
        }
        is_added
    }
}
