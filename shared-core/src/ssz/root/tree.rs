//! One tree of any size, whose leaves come from left to right.
//!
//! Each level has room for some nodes. When it is full they are hashed by one
//! call, their parents go to the next level, and so on. So the memory is that of
//! one room a level, which stays in the processor's cache.

use super::grow;
use super::pairs::{hash, parent, Node};
use super::zeros::{zeros, MAX_DEPTH};
use super::Error;

/// Nodes in the room of a level.
const ROOM: usize = 64;

/// The rooms lie on a stack of nodes, from `base` on.
pub(super) struct Tree {
    base: usize,
    /// Above it is only the zero nodes' right side.
    height: usize,
    /// How many nodes each level has. At any time but for moments fewer than
    /// fit; a multiple of half of that, but for the leaves.
    lens: [u8; MAX_DEPTH + 1],
}

/// How deep a tree of so many leaves is.
pub(super) fn depth(leaves: u64) -> usize {
    match leaves {
        0 | 1 => 0,
        leaves => (u64::BITS - (leaves - 1).leading_zeros()) as usize,
    }
}

impl Tree {
    /// For at most so many leaves.
    pub(super) fn new(nodes: &mut Vec<Node>, leaves: usize) -> Result<Self, Error> {
        let base = nodes.len();
        let height = depth(leaves as u64);
        grow(nodes, base + (height + 1) * ROOM, Node::default())?;
        Ok(Self {
            base,
            height,
            lens: [0; MAX_DEPTH + 1],
        })
    }

    /// Leaves that lie in a row, 32 bytes each.
    pub(super) fn push(&mut self, nodes: &mut [Node], mut leaves: &[u8]) {
        while !leaves.is_empty() {
            let free = ROOM - usize::from(self.lens[0]);
            let (now, later) = leaves.split_at(leaves.len().min(free * size_of::<Node>()));
            let (now, _) = now.as_chunks();
            if now.len() == ROOM {
                // as they are: into no room first
                let to = self.base + ROOM + usize::from(self.lens[1]);
                hash(now.as_flattened(), &mut nodes[to..to + ROOM / 2]);
                self.lens[1] += (ROOM / 2) as u8;
                self.carry(nodes, 1);
            } else {
                self.put(nodes, now);
            }
            leaves = later;
        }
    }

    /// No more leaves than there is room for.
    fn put(&mut self, nodes: &mut [Node], leaves: &[Node]) {
        let to = self.base + usize::from(self.lens[0]);
        nodes[to..to + leaves.len()].copy_from_slice(leaves);
        self.lens[0] += leaves.len() as u8;
        self.carry(nodes, 0);
    }

    /// Empties rooms that are full, from a level on.
    fn carry(&mut self, nodes: &mut [Node], mut level: usize) {
        while usize::from(self.lens[level]) == ROOM {
            self.hash(nodes, level);
            level += 1;
        }
    }

    /// Empties the room of a level, which has pairs.
    fn hash(&mut self, nodes: &mut [Node], level: usize) {
        let (below, above) = nodes[self.base + level * ROOM..].split_at_mut(ROOM);
        let count = usize::from(self.lens[level]);
        let to = usize::from(self.lens[level + 1]);
        hash(
            below[..count].as_flattened(),
            &mut above[to..to + count / 2],
        );
        self.lens[level] = 0;
        self.lens[level + 1] += (count / 2) as u8;
    }

    /// The root of a tree of that depth. Frees the rooms.
    pub(super) fn root(mut self, nodes: &mut Vec<Node>, depth: usize) -> Node {
        let zeros = zeros();
        for level in 0..self.height.min(depth) {
            let count = usize::from(self.lens[level]);
            if count % 2 == 1 {
                nodes[self.base + level * ROOM + count] = zeros[level];
                self.lens[level] += 1;
            }
            // no more than half a room: the next one has as many left
            self.hash(nodes, level);
        }
        let mut root = match self.lens[self.height] {
            0 => zeros[self.height],
            _ => nodes[self.base + self.height * ROOM],
        };
        for zero in &zeros[self.height..depth.max(self.height)] {
            root = parent(&root, zero);
        }
        nodes.truncate(self.base);
        root
    }
}
