//! The window: the newest known blocks of a chain.

use std::collections::VecDeque;

use super::types::{BlockHash, FinalityMark, NodeBlock};

/// Maximum number of blocks in the window.
pub(super) const MAX_BLOCKS: usize = 1_024;

/// Returns the newest blocks of one chain that the tracker remembers, the newest last. Each
/// descends from the one before it, directly or through blocks that are not stored (a long time
/// without polls).
#[derive(Clone, Debug, Default)]
pub(super) struct BlockWindow(VecDeque<FinalityMark>);

impl BlockWindow {
    pub(super) fn newest_block(&self) -> Option<FinalityMark> {
        self.0.back().copied()
    }

    pub(super) fn blocks_newest_first(&self) -> impl Iterator<Item = FinalityMark> + '_ {
        self.0.iter().rev().copied()
    }

    pub(super) fn oldest_block(&self) -> Option<FinalityMark> {
        self.0.front().copied()
    }

    /// Returns the block with this number.
    pub(super) fn block_at(&self, number: u64) -> Option<FinalityMark> {
        let index = self.0.binary_search_by_key(&number, |mark| mark.number);
        self.0.get(index.ok()?).copied()
    }

    /// Returns the newest block up to this number.
    pub(super) fn newest_block_up_to(&self, number: u64) -> Option<FinalityMark> {
        let after = self.block_count_up_to(number);
        self.0.get(after.checked_sub(1)?).copied()
    }

    /// Number of blocks up to this number.
    pub(super) fn block_count_up_to(&self, number: u64) -> usize {
        self.0.partition_point(|mark| mark.number <= number)
    }

    /// Returns the block at `index`, counted from the oldest.
    pub(super) fn block_at_index(&self, index: usize) -> Option<FinalityMark> {
        self.0.get(index).copied()
    }

    pub(super) fn block_with_hash(&self, hash: &BlockHash) -> Option<FinalityMark> {
        self.0.iter().rev().find(|mark| mark.hash == *hash).copied()
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
        self.0.push_back(block.as_finality_mark());
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
