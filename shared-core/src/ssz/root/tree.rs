//! Root of one tree of any size, whose leaves are added from left to right.
//!
//! Each level has a buffer for some nodes. When it is full, one call hashes them, their parents are
//! added to the next level, and so on. Memory use is one buffer per level, which stays in the
//! processor's cache.

use super::super::error::SszError;
use super::grow_stack::try_grow_vec;
use super::pair_hash::{hash_node_pairs, hash_parent_node, MerkleNode};
use super::zero_roots::{zero_tree_roots, MAX_TREE_DEPTH};

/// Number of nodes in the buffer of a level.
const BUFFER_NODES: usize = 64;

/// A Merkle tree of one value that receives its leaves from left to right; its buffers are on a
/// stack of nodes, from `base` on.
pub(super) struct MerkleTreeBuilder {
    base: usize,
    /// Height above which the right sibling is always a zero node.
    height: usize,
    /// Number of nodes of each level. Except for moments it is below the buffer's size, and, except
    /// for the leaves, a multiple of half of it.
    lens: [u8; MAX_TREE_DEPTH + 1],
}

/// Returns the least depth of a tree that has room for `leaves` leaves.
pub(super) fn tree_depth(leaves: u64) -> usize {
    match leaves {
        0 | 1 => 0,
        leaves => (u64::BITS - (leaves - 1).leading_zeros()) as usize,
    }
}

impl MerkleTreeBuilder {
    /// Creates a tree for at most `leaves` leaves, and reserves its buffers on the stack.
    pub(super) fn new(nodes: &mut Vec<MerkleNode>, leaves: usize) -> Result<Self, SszError> {
        let base = nodes.len();
        let height = tree_depth(leaves as u64);
        try_grow_vec(
            nodes,
            base + (height + 1) * BUFFER_NODES,
            MerkleNode::default(),
        )?;
        Ok(Self {
            base,
            height,
            lens: [0; MAX_TREE_DEPTH + 1],
        })
    }

    /// Adds consecutive leaves of 32 bytes each.
    pub(super) fn push_leaves(&mut self, nodes: &mut [MerkleNode], mut leaves: &[u8]) {
        while !leaves.is_empty() {
            let free = BUFFER_NODES - usize::from(self.lens[0]);
            let (now, later) = leaves.split_at(leaves.len().min(free * size_of::<MerkleNode>()));
            let (now, _) = now.as_chunks();
            if now.len() == BUFFER_NODES {
                // hashed directly, without a copy to the buffer
                let to = self.base + BUFFER_NODES + usize::from(self.lens[1]);
                hash_node_pairs(now.as_flattened(), &mut nodes[to..to + BUFFER_NODES / 2]);
                self.lens[1] += (BUFFER_NODES / 2) as u8;
                self.hash_full_levels(nodes, 1);
            } else {
                self.buffer_leaves(nodes, now);
            }
            leaves = later;
        }
    }

    /// Adds leaves to the buffer of the lowest level, in which they fit.
    fn buffer_leaves(&mut self, nodes: &mut [MerkleNode], leaves: &[MerkleNode]) {
        let to = self.base + usize::from(self.lens[0]);
        nodes[to..to + leaves.len()].copy_from_slice(leaves);
        self.lens[0] += leaves.len() as u8;
        self.hash_full_levels(nodes, 0);
    }

    /// Hashes the buffers that are full, from a level upwards, each into the next level.
    fn hash_full_levels(&mut self, nodes: &mut [MerkleNode], mut level: usize) {
        while usize::from(self.lens[level]) == BUFFER_NODES {
            self.hash_level(nodes, level);
            level += 1;
        }
    }

    /// Hashes the buffer of a level into the buffer of the next one, and empties it; its nodes are
    /// complete pairs.
    fn hash_level(&mut self, nodes: &mut [MerkleNode], level: usize) {
        let (below, above) = nodes[self.base + level * BUFFER_NODES..].split_at_mut(BUFFER_NODES);
        let count = usize::from(self.lens[level]);
        let to = usize::from(self.lens[level + 1]);
        hash_node_pairs(
            below[..count].as_flattened(),
            &mut above[to..to + count / 2],
        );
        self.lens[level] = 0;
        self.lens[level + 1] += (count / 2) as u8;
    }

    /// Ends the tree and returns its root for the given depth; the buffers are freed.
    pub(super) fn finish_root(mut self, nodes: &mut Vec<MerkleNode>, depth: usize) -> MerkleNode {
        let zeros = zero_tree_roots();
        for level in 0..self.height.min(depth) {
            let count = usize::from(self.lens[level]);
            if count % 2 == 1 {
                nodes[self.base + level * BUFFER_NODES + count] = zeros[level];
                self.lens[level] += 1;
            }
            // at most half a buffer: the next one has that much room
            self.hash_level(nodes, level);
        }
        let mut root = match self.lens[self.height] {
            0 => zeros[self.height],
            _ => nodes[self.base + self.height * BUFFER_NODES],
        };
        for zero in &zeros[self.height..depth.max(self.height)] {
            root = hash_parent_node(&root, zero);
        }
        nodes.truncate(self.base);
        root
    }
}
