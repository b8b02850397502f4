//! Roots of trees whose leaves are zero.

use std::sync::OnceLock;

use super::pairs::{parent, Node};

/// Maximum depth of a tree: limits have 64 bits.
pub(super) const MAX_DEPTH: usize = 64;

/// Returns the roots of trees whose leaves are all zero; the index is the depth of the tree.
pub(super) fn zeros() -> &'static [Node; MAX_DEPTH + 1] {
    static ZEROS: OnceLock<[Node; MAX_DEPTH + 1]> = OnceLock::new();
    ZEROS.get_or_init(|| {
        let mut zeros = [Node::default(); MAX_DEPTH + 1];
        for depth in 1..=MAX_DEPTH {
            zeros[depth] = parent(&zeros[depth - 1], &zeros[depth - 1]);
        }
        zeros
    })
}
