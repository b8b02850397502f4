//! Root of one tree of any size, whose leaves are added from left to right.
//!
//! Each level has a buffer for some nodes. When it is full, one call hashes them, their parents are
//! added to the next level, and so on. Memory use is one buffer per level, which stays in the
//! processor's cache.

use super::super::error::SszError;
use super::grow::grow;
use super::pairs::{hash, parent, Node};
use super::zeros::{zeros, MAX_DEPTH};

/// Number of nodes in the buffer of a level.
const BUFFER_NODES: usize = 64;

/// A Merkle tree of one value that receives its leaves from left to right; its buffers are on a
/// stack of nodes, from `base` on.
pub(super) struct MerkleTree {
    base: usize,
    /// Height above which the right sibling is always a zero node.
    height: usize,
    /// Number of nodes of each level. Except for moments it is below the buffer's size, and, except
    /// for the leaves, a multiple of half of it.
    lens: [u8; MAX_DEPTH + 1],
}

/// Returns the least depth of a tree that has room for `leaves` leaves.
pub(super) fn depth(leaves: u64) -> usize {
    match leaves {
        0 | 1 => 0,
        leaves => (u64::BITS - (leaves - 1).leading_zeros()) as usize,
    }
}

impl MerkleTree {
    /// Creates a tree for at most `leaves` leaves, and reserves its buffers on the stack.
    pub(super) fn new(nodes: &mut Vec<Node>, leaves: usize) -> Result<Self, SszError> {
        let base = nodes.len();
        let height = depth(leaves as u64);
        grow(nodes, base + (height + 1) * BUFFER_NODES, Node::default())?;
        Ok(Self {
            base,
            height,
            lens: [0; MAX_DEPTH + 1],
        })
    }

    /// Adds consecutive leaves of 32 bytes each.
    pub(super) fn push(&mut self, nodes: &mut [Node], mut leaves: &[u8]) {
        while !leaves.is_empty() {
            let free = BUFFER_NODES - usize::from(self.lens[0]);
            let (now, later) = leaves.split_at(leaves.len().min(free * size_of::<Node>()));
            let (now, _) = now.as_chunks();
            if now.len() == BUFFER_NODES {
                // hashed directly, without a copy to the buffer
                let to = self.base + BUFFER_NODES + usize::from(self.lens[1]);
                hash(now.as_flattened(), &mut nodes[to..to + BUFFER_NODES / 2]);
                self.lens[1] += (BUFFER_NODES / 2) as u8;
                self.flush_full(nodes, 1);
            } else {
                self.put(nodes, now);
            }
            leaves = later;
        }
    }

    /// Adds leaves to the buffer of the lowest level, in which they fit.
    fn put(&mut self, nodes: &mut [Node], leaves: &[Node]) {
        let to = self.base + usize::from(self.lens[0]);
        nodes[to..to + leaves.len()].copy_from_slice(leaves);
        self.lens[0] += leaves.len() as u8;
        self.flush_full(nodes, 0);
    }

    /// Hashes the buffers that are full, from a level upwards, each into the next level.
    fn flush_full(&mut self, nodes: &mut [Node], mut level: usize) {
        while usize::from(self.lens[level]) == BUFFER_NODES {
            self.hash(nodes, level);
            level += 1;
        }
    }

    /// Hashes the buffer of a level into the buffer of the next one, and empties it; its nodes are
    /// complete pairs.
    fn hash(&mut self, nodes: &mut [Node], level: usize) {
        let (below, above) = nodes[self.base + level * BUFFER_NODES..].split_at_mut(BUFFER_NODES);
        let count = usize::from(self.lens[level]);
        let to = usize::from(self.lens[level + 1]);
        hash(
            below[..count].as_flattened(),
            &mut above[to..to + count / 2],
        );
        self.lens[level] = 0;
        self.lens[level + 1] += (count / 2) as u8;
    }

    /// Ends the tree and returns its root for the given depth; the buffers are freed.
    pub(super) fn root(mut self, nodes: &mut Vec<Node>, depth: usize) -> Node {
        let zeros = zeros();
        for level in 0..self.height.min(depth) {
            let count = usize::from(self.lens[level]);
            if count % 2 == 1 {
                nodes[self.base + level * BUFFER_NODES + count] = zeros[level];
                self.lens[level] += 1;
            }
            // at most half a buffer: the next one has that much room
            self.hash(nodes, level);
        }
        let mut root = match self.lens[self.height] {
            0 => zeros[self.height],
            _ => nodes[self.base + self.height * BUFFER_NODES],
        };
        for zero in &zeros[self.height..depth.max(self.height)] {
            root = parent(&root, zero);
        }
        nodes.truncate(self.base);
        root
    }
}
