//! The canonical blocks of a followed chain, by which the owner checks whether a block of another
//! machine is on its own chain.

use std::cmp::Ordering;

/// Maximum number of the newest blocks of a chain that the owner knows by number and hash.
pub const MAX_CANONICAL_BLOCKS: usize = 1_024;

/// The newest blocks of the node's chain, as the owner's follower has found them at its last poll.
/// Heights between them may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CanonicalBlocks {
    /// Heights and hashes, the newest first.
    blocks: Vec<(u64, [u8; 32])>,
}

impl CanonicalBlocks {
    /// Copies the blocks of a chain, the newest first. Blocks beyond the maximum number, and those
    /// that are not below their predecessor, are ignored. Without memory no block is known.
    pub(super) fn from_newest(blocks: impl Iterator<Item = (u64, [u8; 32])>) -> Self {
        let mut known: Vec<(u64, [u8; 32])> = Vec::new();
        // without an exact hint a vector of the maximum number is reserved
        let (_, count) = blocks.size_hint();
        let count = count.map_or(MAX_CANONICAL_BLOCKS, |count| {
            count.min(MAX_CANONICAL_BLOCKS)
        });
        if known.try_reserve_exact(count).is_err() {
            return Self::default();
        }
        for block in blocks {
            if known.len() == count {
                break;
            }
            if known.last().is_none_or(|(above, _)| block.0 < *above) {
                known.push(block);
            }
        }
        Self { blocks: known }
    }

    /// Returns the blocks, the newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = (u64, [u8; 32])> + '_ {
        self.blocks.iter().copied()
    }

    /// Whether a block has this hash.
    pub(super) fn has_hash(&self, hash: &[u8; 32]) -> bool {
        self.blocks.iter().any(|(_, known)| known == hash)
    }

    /// Returns the hash of the block with this height, if it is known.
    pub(super) fn hash_at(&self, height: u64) -> Option<&[u8; 32]> {
        let compare = |(known, _): &(u64, [u8; 32])| -> Ordering { height.cmp(known) };
        let index = self.blocks.binary_search_by(compare).ok()?;
        self.blocks.get(index).map(|(_, hash)| hash)
    }
}

#[cfg(test)]
mod tests {
    use super::{CanonicalBlocks, MAX_CANONICAL_BLOCKS};

    fn hash(height: u64) -> [u8; 32] {
        let mut hash = [7; 32];
        hash[..8].copy_from_slice(&height.to_be_bytes());
        hash
    }

    fn blocks(heights: &[u64]) -> CanonicalBlocks {
        CanonicalBlocks::from_newest(heights.iter().map(|height| (*height, hash(*height))))
    }

    #[test]
    fn hash_is_found_at_known_heights_only() {
        let known = blocks(&[110, 109, 107, 100]);
        for height in 98..=112 {
            let expected = [110, 109, 107, 100].contains(&height).then(|| hash(height));
            assert_eq!(known.hash_at(height).copied(), expected, "{height}");
        }
        assert_eq!(CanonicalBlocks::default().hash_at(0), None);
    }

    #[test]
    fn oldest_blocks_are_ignored_beyond_the_maximum_number() {
        let count = MAX_CANONICAL_BLOCKS as u64;
        let heights: Vec<u64> = (1..=count + 10).rev().collect();
        let known = blocks(&heights);
        assert_eq!(known.newest_first().count(), MAX_CANONICAL_BLOCKS);
        assert!(known.hash_at(11).is_some() && known.hash_at(10).is_none());
    }

    #[test]
    fn block_that_is_not_below_its_predecessor_is_ignored() {
        let known = blocks(&[10, 10, 12, 9]);
        let heights: Vec<u64> = known.newest_first().map(|(height, _)| height).collect();
        assert_eq!(heights, [10, 9]);
    }
}
