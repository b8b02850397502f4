//! The window: the newest known blocks of a chain.

use std::collections::VecDeque;

use super::types::{BlockHash, FinalityMark, NodeBlock};
use crate::cache::chain::MAX_CANONICAL_BLOCKS;

/// Maximum number of blocks in the window.
pub(super) const MAX_BLOCKS: usize = MAX_CANONICAL_BLOCKS;

/// Minimum number of blocks, and of seconds between the first and the last one, for an average block
/// time: timestamps are whole seconds.
const MIN_MEASURED_BLOCKS: u64 = 8;
const MIN_MEASURED_SECONDS: u64 = 10;

/// The newest blocks of one chain that the tracker remembers, the newest last. Each descends from
/// the one before it, directly or through blocks that are not stored (a long time without polls).
#[derive(Clone, Debug, Default)]
pub(super) struct BlockWindow(VecDeque<NodeBlock>);

impl BlockWindow {
    pub(super) fn newest_block(&self) -> Option<FinalityMark> {
        self.0.back().map(NodeBlock::as_finality_mark)
    }

    pub(super) fn blocks_newest_first(&self) -> impl Iterator<Item = FinalityMark> + '_ {
        self.0.iter().rev().map(NodeBlock::as_finality_mark)
    }

    pub(super) fn oldest_block(&self) -> Option<NodeBlock> {
        self.0.front().copied()
    }

    /// Number of blocks.
    pub(super) fn block_count(&self) -> usize {
        self.0.len()
    }

    /// Returns the block with this number.
    pub(super) fn block_at(&self, number: u64) -> Option<FinalityMark> {
        let index = self.0.binary_search_by_key(&number, |block| block.number);
        self.0.get(index.ok()?).map(NodeBlock::as_finality_mark)
    }

    /// Returns the newest block up to this number.
    pub(super) fn newest_block_up_to(&self, number: u64) -> Option<FinalityMark> {
        let after = self.block_count_up_to(number);
        let block = self.0.get(after.checked_sub(1)?);
        block.map(NodeBlock::as_finality_mark)
    }

    /// Number of blocks up to this number.
    pub(super) fn block_count_up_to(&self, number: u64) -> usize {
        self.0.partition_point(|block| block.number <= number)
    }

    /// Returns the block at `index`, counted from the oldest.
    pub(super) fn block_at_index(&self, index: usize) -> Option<FinalityMark> {
        self.0.get(index).map(NodeBlock::as_finality_mark)
    }

    pub(super) fn block_with_hash(&self, hash: &BlockHash) -> Option<FinalityMark> {
        let block = self.0.iter().rev().find(|block| block.hash == *hash);
        block.map(NodeBlock::as_finality_mark)
    }

    /// Whether the window has the maximum number of blocks.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MAX_BLOCKS
    }

    /// Removes the blocks above this number.
    pub(super) fn truncate_above(&mut self, number: u64) {
        self.0.truncate(self.block_count_up_to(number));
    }

    /// Appends a block, if it is above the newest one.
    pub(super) fn push_block(&mut self, block: &NodeBlock) {
        if self
            .newest_block()
            .is_some_and(|top| top.number >= block.number)
        {
            return;
        }
        if self.0.len() == MAX_BLOCKS {
            self.0.pop_front();
        }
        self.0.push_back(*block);
    }

    /// Prepends a block if it is the parent of the oldest one and the window is not full. Returns
    /// whether it was prepended.
    pub(super) fn prepend_parent(&mut self, block: &NodeBlock) -> bool {
        let is_parent = self
            .0
            .front()
            .is_some_and(|oldest| oldest.parent == block.hash && block.number < oldest.number);
        let is_added = is_parent && !self.is_full();
        if is_added {
            self.0.push_front(*block);
        }
        is_added
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the average time between two blocks in milliseconds, by their timestamps; `None` if
    /// the window has too few blocks for it, or blocks without a timestamp.
    pub(super) fn average_block_time(&self) -> Option<u64> {
        let (oldest, newest) = (self.0.front()?, self.0.back()?);
        let blocks = newest.number.checked_sub(oldest.number)?;
        let seconds = newest.timestamp?.checked_sub(oldest.timestamp?)?;
        // a full window does not become longer
        let is_long = seconds >= MIN_MEASURED_SECONDS || self.is_full();
        if blocks < MIN_MEASURED_BLOCKS || !is_long {
            return None;
        }
        seconds.checked_mul(1_000)?.checked_div(blocks)
    }
}
