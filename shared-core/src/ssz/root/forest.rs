//! Roots of many small trees, level by level: their leaves are at the end of a stack of nodes,
//! first the leaves of the first tree, then of the second, and so on. One call hashes a level of
//! all trees.

use super::super::error::SszError;
use super::grow_stack::try_grow_vec;
use super::pair_hash::{hash_one_level_in_place, MerkleNode};
use super::zero_roots::zero_tree_roots;

/// Replaces the leaves of each tree with its root. `counts` are the numbers of leaves of each tree,
/// at most `2^depth`; they are overwritten.
pub(super) fn merkleize_trees(
    nodes: &mut Vec<MerkleNode>,
    base: usize,
    counts: &mut [u32],
    depth: usize,
) -> Result<(), SszError> {
    let zeros = zero_tree_roots();
    for zero in &zeros[..depth] {
        pad_trees(nodes, counts, zero, |count| count % 2 == 1)?;
        hash_one_level_in_place(&mut nodes[base..]);
        nodes.truncate(base + (nodes.len() - base) / 2);
        for count in &mut *counts {
            *count /= 2;
        }
    }
    pad_trees(nodes, counts, &zeros[depth], |count| count == 0)
}

/// Replaces the leaves of each tree with the root of a progressive tree (EIP-7916): the first leaf,
/// the next 4, the next 16 and so on form a subtree each, whose root is the left child of a node
/// that has the later subtrees at its right. `counts` are overwritten.
pub(super) fn merkleize_progressive(
    nodes: &mut Vec<MerkleNode>,
    base: usize,
    counts: &mut [u32],
) -> Result<(), SszError> {
    let trees = counts.len();
    let most = counts.iter().copied().max().unwrap_or(0);
    let mut parts = Vec::new();
    try_grow_vec(&mut parts, trees, 0)?;

    // roots of the first subtrees of all trees, then roots of the second subtrees, ...
    let roots = nodes.len();
    let mut starts = Vec::new();
    for (start, size) in progressive_subtrees().take_while(|(start, _)| *start < u64::from(most)) {
        let at = nodes.len();
        let mut leaf = base;
        for (count, part) in counts.iter().zip(&mut parts) {
            let begin = start.min((*count).into()) as usize;
            let end = (start + size).min((*count).into()) as usize;
            *part = (end - begin) as u32;
            let to = nodes.len();
            try_grow_vec(nodes, to + end - begin, MerkleNode::default())?;
            nodes.copy_within(leaf + begin..leaf + end, to);
            leaf += *count as usize;
        }
        merkleize_trees(nodes, at, &mut parts, 2 * starts.len())?;
        starts.push(start);
    }

    // from the last subtree on, whose right sibling is the zero node
    let after = nodes.len();
    try_grow_vec(nodes, after + trees, MerkleNode::default())?;
    for (n, start) in starts.iter().enumerate().rev() {
        let at = nodes.len();
        try_grow_vec(nodes, at + 2 * trees, MerkleNode::default())?;
        let unfinished = counts
            .iter()
            .enumerate()
            .filter(|(_, count)| u64::from(**count) > *start);
        let mut to = at;
        for (k, _) in unfinished.clone() {
            nodes[to] = nodes[roots + n * trees + k];
            nodes[to + 1] = nodes[after + k];
            to += 2;
        }
        hash_one_level_in_place(&mut nodes[at..to]);
        for (from, (k, _)) in (at..).zip(unfinished) {
            nodes[after + k] = nodes[from];
        }
        nodes.truncate(at);
    }
    nodes.copy_within(after..after + trees, base);
    nodes.truncate(base + trees);
    Ok(())
}

/// Iterates over the subtrees of a progressive tree: the index of the first leaf, and the number of
/// leaves, of each. The sequence ends only where 64 bits overflow.
pub(super) fn progressive_subtrees() -> impl Iterator<Item = (u64, u64)> {
    let after =
        |(start, size): &(u64, u64)| Some((start.checked_add(*size)?, size.checked_mul(4)?));
    std::iter::successors(Some((0, 1)), after)
}

/// Replaces each node after `base` with its parent, whose right child is the node that `with`
/// returns for its index: a length, a selector or a bitvector of active fields.
pub(super) fn mix_into_roots(
    nodes: &mut Vec<MerkleNode>,
    base: usize,
    with: impl Fn(usize) -> MerkleNode,
) -> Result<(), SszError> {
    let count = nodes.len() - base;
    try_grow_vec(nodes, base + 2 * count, MerkleNode::default())?;
    for k in (0..count).rev() {
        nodes[base + 2 * k] = nodes[base + k];
        nodes[base + 2 * k + 1] = with(k);
    }
    hash_one_level_in_place(&mut nodes[base..]);
    nodes.truncate(base + count);
    Ok(())
}

/// Appends `node` as a last leaf to each tree whose count satisfies `lacks`.
fn pad_trees(
    nodes: &mut Vec<MerkleNode>,
    counts: &mut [u32],
    node: &MerkleNode,
    lacks: impl Fn(u32) -> bool,
) -> Result<(), SszError> {
    let lacking = counts.iter().filter(|count| lacks(**count)).count();
    if lacking == 0 {
        return Ok(());
    }
    // from the last tree on, so that no node is overwritten
    let mut from = nodes.len();
    let mut to = from + lacking;
    try_grow_vec(nodes, to, *node)?;
    for count in counts.iter_mut().rev() {
        if from == to {
            break;
        }
        let length = *count as usize;
        if lacks(*count) {
            to -= 1;
            nodes[to] = *node;
            *count += 1;
        }
        from -= length;
        to -= length;
        nodes.copy_within(from..from + length, to);
    }
    Ok(())
}
