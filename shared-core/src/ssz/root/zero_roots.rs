//! Roots of trees whose leaves are zero.

use std::sync::OnceLock;

use super::pair_hash::{hash_parent_node, MerkleNode};

/// Maximum depth of a tree: limits have 64 bits.
pub(super) const MAX_TREE_DEPTH: usize = 64;

/// Returns the roots of trees whose leaves are all zero; the index is the depth of the tree.
pub(super) fn zero_tree_roots() -> &'static [MerkleNode; MAX_TREE_DEPTH + 1] {
    static ZERO_TREE_ROOTS: OnceLock<[MerkleNode; MAX_TREE_DEPTH + 1]> = OnceLock::new();
    ZERO_TREE_ROOTS.get_or_init(|| {
        let mut zeros = [MerkleNode::default(); MAX_TREE_DEPTH + 1];
        for depth in 1..=MAX_TREE_DEPTH {
            zeros[depth] = hash_parent_node(&zeros[depth - 1], &zeros[depth - 1]);
        }
        zeros
    })
}
