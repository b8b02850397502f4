//! Roots of lists, vectors, bytes and bits: values whose leaves are a sequence of one kind.

use std::ops::Range;

use super::super::check::bits;
use super::super::error::SszError;
use super::super::schema::{Kind, Limit, Schema, Type, TypeId, OFFSET};
use super::forest;
use super::grow::grow;
use super::pairs::{parent, Node};
use super::tree::{depth, MerkleTree};
use super::walk::{node_of, RootOutput, RootWalker, Span};

/// Number of leaves whose roots are computed together: 32 kB of nodes, which fit the first-level
/// cache of a processor.
const BATCH_LEAVES: usize = 1024;

/// Minimum number of values whose roots are computed together: fewer do not fill the lanes of a
/// processor.
const MIN_BATCH_VALUES: usize = 16;

/// The layout of the Merkle tree of a list, a vector, bytes or bits: its kind of leaves, and its
/// shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct SequenceLayout {
    leaves: LeafKind,
    shape: TreeShape,
    /// Whether the length is mixed in, as in lists.
    has_length: bool,
    /// Number of leaves that are processed together.
    together: usize,
}

/// The source of the leaves of a sequence's tree.
#[derive(Clone, Copy, Debug)]
enum LeafKind {
    /// The bytes themselves, with the size of an element.
    Bytes(usize),
    /// The bytes themselves, without the delimiter.
    Bits,
    /// Roots of values, with their size if it is fixed.
    Values(TypeId, Option<usize>),
}

/// The shape of a sequence's tree: of a fixed depth, or progressive (EIP-7916).
#[derive(Clone, Copy, Debug)]
enum TreeShape {
    Deep(usize),
    Progressive,
}

impl SequenceLayout {
    /// Returns the layout of a type, or `None` if it is no sequence.
    pub(super) fn for_type(schema: &Schema, ty: &Type) -> Option<Self> {
        let one = Limit::AtMost(1);
        Some(
            match &ty.kind {
                Kind::ByteVector(_) | Kind::Bitvector(_) => {
                    Self::vector(LeafKind::Bytes(1), ty.size? as u64)
                }
                Kind::ByteList(limit) => Self::list(LeafKind::Bytes(1), *limit),
                Kind::Text(limit) => Self::list(LeafKind::Bytes(1), Limit::AtMost(*limit)),
                Kind::Bitlist(limit) => Self::list(LeafKind::Bits, *limit),
                Kind::Vector(of, len) => Self::vector(leaves(schema, *of), *len as u64),
                Kind::List(of, limit) => Self::list(leaves(schema, *of), *limit),
                Kind::Optional(of) => Self::list(leaves(schema, *of), one),
                Kind::Uint(_)
                | Kind::Quantity(_)
                | Kind::Boolean
                | Kind::Enum(_)
                | Kind::Container(_)
                | Kind::Union(_) => return None,
            }
            .in_batches(schema),
        )
    }

    fn vector(leaves: LeafKind, len: u64) -> Self {
        Self {
            has_length: false,
            ..Self::list(leaves, Limit::AtMost(len))
        }
    }

    fn list(leaves: LeafKind, limit: Limit) -> Self {
        let shape = match limit {
            Limit::Progressive => TreeShape::Progressive,
            Limit::AtMost(limit) => TreeShape::Deep(depth(match leaves {
                LeafKind::Bytes(size) => {
                    let bytes = u128::from(limit) * size as u128;
                    // does not exceed `limit`: an element has at most 32 bytes
                    bytes.div_ceil(32) as u64
                }
                LeafKind::Bits => limit.div_ceil(256),
                LeafKind::Values(..) => limit,
            })),
        };
        Self {
            leaves,
            shape,
            has_length: true,
            together: BATCH_LEAVES,
        }
    }

    fn in_batches(self, schema: &Schema) -> Self {
        let together = match self.leaves {
            LeafKind::Values(of, _) => (BATCH_LEAVES / width(schema.get(of))).max(MIN_BATCH_VALUES),
            LeafKind::Bytes(_) | LeafKind::Bits => BATCH_LEAVES,
        };
        Self { together, ..self }
    }
}

fn leaves(schema: &Schema, of: TypeId) -> LeafKind {
    let ty = schema.get(of);
    match (&ty.kind, ty.size) {
        (Kind::Uint(_) | Kind::Quantity(_) | Kind::Boolean | Kind::Enum(_), Some(size)) => {
            LeafKind::Bytes(size)
        }
        // these elements are their own roots
        (Kind::ByteVector(_) | Kind::Bitvector(_), Some(32)) => LeafKind::Bytes(32),
        (_, size) => LeafKind::Values(of, size),
    }
}

/// Estimates the number of leaves of a value by its type.
fn width(ty: &Type) -> usize {
    match (&ty.kind, ty.size) {
        (Kind::Container(container), _) => container.fields.len(),
        (_, Some(size)) => size.div_ceil(32),
        (_, None) => 1,
    }
}

impl RootWalker<'_> {
    /// Computes the roots of all values in `spans`, which have one sequence type, and writes them
    /// to `out`.
    pub(super) fn series(
        &mut self,
        series: &SequenceLayout,
        spans: Range<usize>,
        out: RootOutput,
    ) -> Result<(), SszError> {
        let counts = self.counts.len();
        let mut next = spans.start;
        while next < spans.end {
            let first = next;
            let mut leaves = 0;
            while next < spans.end {
                let count = self.count(series, self.spans[next])?;
                leaves += count;
                if leaves > series.together {
                    leaves -= count;
                    break;
                }
                grow(&mut self.counts, counts + next + 1 - first, count as u32)?;
                next += 1;
            }
            let to = out.skip(first - spans.start);
            if next > first {
                self.roots_of_small(series, first..next, leaves, counts)?;
                let roots = self.nodes.len() - (next - first);
                self.put(roots, to);
                self.counts.truncate(counts);
            } else {
                let span = self.spans[first];
                self.nodes[to.at] = self.root_of_large(series, span)?;
                next += 1;
            }
        }
        Ok(())
    }

    /// Computes the roots of values with few leaves together, and leaves them at the end of the
    /// nodes.
    fn roots_of_small(
        &mut self,
        series: &SequenceLayout,
        spans: Range<usize>,
        leaves: usize,
        counts: usize,
    ) -> Result<(), SszError> {
        let base = self.nodes.len();
        grow(&mut self.nodes, base + leaves, Node::default())?;
        match series.leaves {
            LeafKind::Bytes(_) | LeafKind::Bits => {
                let is_bits = matches!(series.leaves, LeafKind::Bits);
                let mut room = self.nodes[base..].as_flattened_mut();
                for (span, count) in self.spans[spans.clone()].iter().zip(&self.counts[counts..]) {
                    let bytes = &self.ssz[span.range()];
                    let (leaves, others) = room.split_at_mut(32 * *count as usize);
                    // bits may have one more byte, which contains only the delimiter
                    let len = bytes.len().min(leaves.len());
                    leaves[..len].copy_from_slice(&bytes[..len]);
                    if is_bits && len == bytes.len() {
                        leaves[len - 1] = without_delimiter(leaves[len - 1]);
                    }
                    room = others;
                }
            }
            LeafKind::Values(of, size) => {
                let children = self.spans.len();
                for n in spans.clone() {
                    let count = self.counts[counts + n - spans.start] as usize;
                    self.push_children(self.spans[n], size, 0..count)?;
                }
                let out = RootOutput::row(base);
                self.roots(of, children..self.spans.len(), out)?;
                self.spans.truncate(children);
            }
        }
        let counts = &mut self.counts[counts..];
        match series.shape {
            TreeShape::Deep(depth) => forest::merkleize(&mut self.nodes, base, counts, depth)?,
            TreeShape::Progressive => forest::merkleize_progressive(&mut self.nodes, base, counts)?,
        }
        if series.has_length {
            let (ssz, spans) = (self.ssz, &self.spans[spans]);
            forest::mix_in(&mut self.nodes, base, |n| length(ssz, series, spans[n]))?;
        }
        Ok(())
    }

    /// Computes the root of one value that has more leaves than one batch.
    fn root_of_large(&mut self, series: &SequenceLayout, span: Span) -> Result<Node, SszError> {
        let count = self.count(series, span)?;
        let mut root = match series.shape {
            TreeShape::Deep(depth) => self.tree(series, span, 0..count, depth)?,
            TreeShape::Progressive => {
                let parts: Vec<(u64, u64)> = forest::subtrees()
                    .take_while(|(start, _)| *start < count as u64)
                    .collect();
                let mut root = Node::default();
                for (n, (start, size)) in parts.into_iter().enumerate().rev() {
                    let part = start as usize..(start + size).min(count as u64) as usize;
                    root = parent(&self.tree(series, span, part, 2 * n)?, &root);
                }
                root
            }
        };
        if series.has_length {
            root = parent(&root, &length(self.ssz, series, span));
        }
        Ok(root)
    }

    /// Computes the root of a tree of the given depth over a range of a value's leaves.
    fn tree(
        &mut self,
        series: &SequenceLayout,
        span: Span,
        part: Range<usize>,
        depth: usize,
    ) -> Result<Node, SszError> {
        let mut tree = MerkleTree::new(&mut self.nodes, part.len())?;
        match series.leaves {
            LeafKind::Bytes(_) | LeafKind::Bits => {
                let all = &self.ssz[span.range()];
                let end = all.len().min(32 * part.end);
                let bytes = &all[32 * part.start..end];
                // the last node, which may be incomplete, or contain a delimiter
                let last = bytes.len().saturating_sub(1) / 32 * 32;
                let (bytes, last) = bytes.split_at(last);
                tree.push(&mut self.nodes, bytes);
                let mut node = node_of(last);
                if let (LeafKind::Bits, true, Some(byte)) =
                    (series.leaves, end == all.len(), last.len().checked_sub(1))
                {
                    node[byte] = without_delimiter(node[byte]);
                }
                tree.push(&mut self.nodes, &node);
            }
            LeafKind::Values(of, size) => {
                let mut next = part.start;
                while next < part.end {
                    let batch = next..part.end.min(next + series.together);
                    next = batch.end;
                    let (base, children) = (self.nodes.len(), self.spans.len());
                    grow(&mut self.nodes, base + batch.len(), Node::default())?;
                    self.push_children(span, size, batch)?;
                    self.roots(of, children..self.spans.len(), RootOutput::row(base))?;
                    self.spans.truncate(children);
                    let (rooms, leaves) = self.nodes.split_at_mut(base);
                    tree.push(rooms, leaves.as_flattened());
                    self.nodes.truncate(base);
                }
            }
        }
        Ok(tree.root(&mut self.nodes, depth))
    }

    /// Counts the leaves of a value, from its length and, for lists, its first offset.
    fn count(&self, series: &SequenceLayout, span: Span) -> Result<usize, SszError> {
        Ok(match series.leaves {
            LeafKind::Bytes(_) => span.range().len().div_ceil(32),
            LeafKind::Bits => bits(&self.ssz[span.range()]).unwrap_or(0).div_ceil(256),
            LeafKind::Values(_, Some(size)) => span.range().len() / size,
            LeafKind::Values(_, None) if span.range().is_empty() => 0,
            LeafKind::Values(_, None) => self.offset(span.range().start)? / OFFSET,
        })
    }

    /// Pushes the positions of a range of a value's elements onto the stack of spans.
    fn push_children(
        &mut self,
        span: Span,
        size: Option<usize>,
        part: Range<usize>,
    ) -> Result<(), SszError> {
        let at = self.spans.len();
        grow(&mut self.spans, at + part.len(), span)?;
        let Range { start, end } = span.range();
        if let Some(size) = size {
            let begins = (start + part.start * size..).step_by(size);
            for (child, begin) in self.spans[at..].iter_mut().zip(begins) {
                *child = Span::new(begin..begin + size);
            }
            return Ok(());
        }
        if part.is_empty() {
            return Ok(());
        }
        let count = self.offset(start)? / OFFSET;
        let mut begin = start + self.offset(start + part.start * OFFSET)?;
        for (n, child) in part.zip(at..) {
            let next = match n + 1 < count {
                true => start + self.offset(start + (n + 1) * OFFSET)?,
                false => end,
            };
            self.spans[child] = Span::new(begin..next);
            begin = next;
        }
        Ok(())
    }
}

/// Returns the number of elements of a value as a node, which is mixed into the root of a list.
fn length(ssz: &[u8], series: &SequenceLayout, span: Span) -> Node {
    let bytes = &ssz[span.range()];
    let length = match series.leaves {
        LeafKind::Bytes(size) | LeafKind::Values(_, Some(size)) => bytes.len() / size,
        LeafKind::Bits => bits(bytes).unwrap_or(0),
        LeafKind::Values(_, None) => match bytes.first_chunk() {
            Some(first) => u32::from_le_bytes(*first) as usize / OFFSET,
            None => 0,
        },
    };
    node_of(&(length as u64).to_le_bytes())
}

/// Clears the delimiter in the last byte of a bitlist, which is not 0.
fn without_delimiter(byte: u8) -> u8 {
    byte & !(0x80 >> byte.leading_zeros())
}
