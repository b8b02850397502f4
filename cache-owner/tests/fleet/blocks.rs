//! A tree of blocks, and the views of it that nodes have.

use sszip_core::cache::chain::BlockHash;

/// Number of a block in the tree.
pub type BlockId = u32;

/// Random numbers that are the same in each run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        // SplitMix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn happens_once_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// The blocks from the first one to a head, by their heights.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockPath(Vec<BlockId>);

/// All blocks of all branches, as the number of the last one.
#[derive(Debug)]
pub struct BlockTree(BlockId);

impl BlockTree {
    /// Creates a tree with one branch of this length.
    pub fn new(length: BlockId) -> (Self, BlockPath) {
        (Self(length - 1), BlockPath((0..length).collect()))
    }

    /// Adds a block to a branch.
    pub fn extend(&mut self, path: &mut BlockPath) {
        self.0 += 1;
        path.0.push(self.0);
    }
}

pub fn hash_of(block: BlockId) -> BlockHash {
    let mut hash = [0xb1; 32];
    hash[..4].copy_from_slice(&block.to_be_bytes());
    hash
}

impl BlockPath {
    pub fn head(&self) -> u64 {
        self.0.len() as u64 - 1
    }

    pub fn block_at(&self, height: u64) -> Option<BlockId> {
        self.0.get(height as usize).copied()
    }

    pub fn height_of(&self, block: BlockId) -> Option<u64> {
        let height = self.0.iter().position(|other| *other == block)?;
        Some(height as u64)
    }

    /// Returns the blocks up to a height.
    pub fn up_to(&self, height: u64) -> Self {
        Self(self.0[..=height as usize].to_vec())
    }

    /// Returns the height of the last block that both paths have.
    pub fn common_height(&self, other: &Self) -> u64 {
        let both = self.0.iter().zip(&other.0);
        both.take_while(|(one, other)| one == other).count() as u64 - 1
    }

    /// Returns heights and hashes from `first` on, the newest first.
    pub fn hashes_from(&self, first: u64) -> impl Iterator<Item = (u64, BlockHash)> + '_ {
        let blocks = self.0.iter().enumerate().skip(first as usize).rev();
        blocks.map(|(height, block)| (height as u64, hash_of(*block)))
    }
}
