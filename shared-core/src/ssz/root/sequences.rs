//! Roots of lists, vectors, bytes and bits: values whose leaves are a sequence of one kind.

use std::ops::Range;

use super::super::check::bitlist_length;
use super::super::error::SszError;
use super::super::schema::{ListLimit, Schema, SszType, TypeId, TypeKind, OFFSET_LENGTH};
use super::forest;
use super::grow_stack::try_grow_vec;
use super::pair_hash::{hash_parent_node, MerkleNode};
use super::tree::{tree_depth, MerkleTreeBuilder};
use super::walk::{padded_node, RootWalker, RootWritePositions, SszValueSpan};

/// Number of leaves whose roots are computed together: 32 kB of nodes, which fit the first-level
/// cache of a processor.
const BATCH_LEAVES: usize = 1024;

/// Minimum number of values whose roots are computed together: fewer do not fill the lanes of a
/// processor.
const MIN_BATCH_VALUES: usize = 16;

/// The layout of the Merkle tree of a list, a vector, bytes or bits: its kind of leaves, and its
/// shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct SequenceTreeLayout {
    leaf_kind: MerkleLeafKind,
    shape: TreeShape,
    /// Whether the length is mixed in, as in lists.
    has_length: bool,
    /// Number of leaves that are processed together.
    together: usize,
}

/// The kind of leaves in a sequence's tree: its packed bytes, or the roots of its elements.
#[derive(Clone, Copy, Debug)]
enum MerkleLeafKind {
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

impl SequenceTreeLayout {
    /// Returns the layout of a type, or `None` if it is no sequence.
    pub(super) fn for_ssz_type(schema: &Schema, ty: &SszType) -> Option<Self> {
        let one = ListLimit::AtMost(1);
        Some(
            match &ty.kind {
                TypeKind::ByteVector(_) | TypeKind::Bitvector(_) => {
                    Self::vector_layout(MerkleLeafKind::Bytes(1), ty.size? as u64)
                }
                TypeKind::ByteList(limit) => Self::list_layout(MerkleLeafKind::Bytes(1), *limit),
                TypeKind::Text(limit) => {
                    Self::list_layout(MerkleLeafKind::Bytes(1), ListLimit::AtMost(*limit))
                }
                TypeKind::Bitlist(limit) => Self::list_layout(MerkleLeafKind::Bits, *limit),
                TypeKind::Vector(of, len) => {
                    Self::vector_layout(element_leaf_kind(schema, *of), *len as u64)
                }
                TypeKind::List(of, limit) => {
                    Self::list_layout(element_leaf_kind(schema, *of), *limit)
                }
                TypeKind::Optional(of) => Self::list_layout(element_leaf_kind(schema, *of), one),
                TypeKind::Uint(_)
                | TypeKind::Quantity(_)
                | TypeKind::Boolean
                | TypeKind::Enum(_)
                | TypeKind::Container(_)
                | TypeKind::Union(_) => return None,
            }
            .with_batch_size(schema),
        )
    }

    /// Returns the layout of a vector's tree, whose root does not include a length.
    fn vector_layout(leaves: MerkleLeafKind, len: u64) -> Self {
        Self {
            has_length: false,
            ..Self::list_layout(leaves, ListLimit::AtMost(len))
        }
    }

    /// Returns the layout of a list's tree, whose root includes the length.
    fn list_layout(leaves: MerkleLeafKind, limit: ListLimit) -> Self {
        let shape = match limit {
            ListLimit::Progressive => TreeShape::Progressive,
            ListLimit::AtMost(limit) => TreeShape::Deep(tree_depth(match leaves {
                MerkleLeafKind::Bytes(size) => {
                    let bytes = u128::from(limit) * size as u128;
                    // does not exceed `limit`: an element has at most 32 bytes
                    bytes.div_ceil(32) as u64
                }
                MerkleLeafKind::Bits => limit.div_ceil(256),
                MerkleLeafKind::Values(..) => limit,
            })),
        };
        Self {
            leaf_kind: leaves,
            shape,
            has_length: true,
            together: BATCH_LEAVES,
        }
    }

    /// Sets the number of elements that are hashed together, so that they have about
    /// [`BATCH_LEAVES`] leaves.
    fn with_batch_size(self, schema: &Schema) -> Self {
        let together = match self.leaf_kind {
            MerkleLeafKind::Values(of, _) => {
                (BATCH_LEAVES / estimated_leaf_count(schema.type_by_id(of))).max(MIN_BATCH_VALUES)
            }
            MerkleLeafKind::Bytes(_) | MerkleLeafKind::Bits => BATCH_LEAVES,
        };
        Self { together, ..self }
    }
}

/// Returns how elements of this type form leaves: packed by their bytes, or by their roots.
fn element_leaf_kind(schema: &Schema, of: TypeId) -> MerkleLeafKind {
    let ty = schema.type_by_id(of);
    match (&ty.kind, ty.size) {
        (
            TypeKind::Uint(_) | TypeKind::Quantity(_) | TypeKind::Boolean | TypeKind::Enum(_),
            Some(size),
        ) => MerkleLeafKind::Bytes(size),
        // these elements are their own roots
        (TypeKind::ByteVector(_) | TypeKind::Bitvector(_), Some(32)) => MerkleLeafKind::Bytes(32),
        (_, size) => MerkleLeafKind::Values(of, size),
    }
}

/// Estimates the number of leaves of a value by its type.
fn estimated_leaf_count(ty: &SszType) -> usize {
    match (&ty.kind, ty.size) {
        (TypeKind::Container(container), _) => container.fields.len(),
        (_, Some(size)) => size.div_ceil(32),
        (_, None) => 1,
    }
}

impl RootWalker<'_> {
    /// Computes the roots of all values in `spans`, which have one sequence type, and writes them
    /// to `out`.
    pub(super) fn sequence_roots(
        &mut self,
        series: &SequenceTreeLayout,
        spans: Range<usize>,
        out: RootWritePositions,
    ) -> Result<(), SszError> {
        let counts = self.counts.len();
        let mut next = spans.start;
        while next < spans.end {
            let first = next;
            let mut leaves = 0;
            while next < spans.end {
                let count = self.leaf_count(series, self.spans[next])?;
                leaves += count;
                if leaves > series.together {
                    leaves -= count;
                    break;
                }
                try_grow_vec(&mut self.counts, counts + next + 1 - first, count as u32)?;
                next += 1;
            }
            let to = out.skip_nodes(first - spans.start);
            if next > first {
                self.small_value_roots(series, first..next, leaves, counts)?;
                let roots = self.nodes.len() - (next - first);
                self.move_roots_to_destination(roots, to);
                self.counts.truncate(counts);
            } else {
                let span = self.spans[first];
                self.nodes[to.at] = self.large_value_root(series, span)?;
                next += 1;
            }
        }
        Ok(())
    }

    /// Computes the roots of values with few leaves together, and leaves them at the end of the
    /// nodes.
    fn small_value_roots(
        &mut self,
        series: &SequenceTreeLayout,
        spans: Range<usize>,
        leaves: usize,
        counts: usize,
    ) -> Result<(), SszError> {
        let base = self.nodes.len();
        try_grow_vec(&mut self.nodes, base + leaves, MerkleNode::default())?;
        match series.leaf_kind {
            MerkleLeafKind::Bytes(_) | MerkleLeafKind::Bits => {
                let is_bits = matches!(series.leaf_kind, MerkleLeafKind::Bits);
                let mut room = self.nodes[base..].as_flattened_mut();
                for (span, count) in self.spans[spans.clone()].iter().zip(&self.counts[counts..]) {
                    let bytes = &self.ssz[span.byte_range()];
                    let (leaves, others) = room.split_at_mut(32 * *count as usize);
                    // bits may have one more byte, which contains only the delimiter
                    let len = bytes.len().min(leaves.len());
                    leaves[..len].copy_from_slice(&bytes[..len]);
                    if is_bits && len == bytes.len() {
                        leaves[len - 1] = clear_bitlist_delimiter(leaves[len - 1]);
                    }
                    room = others;
                }
            }
            MerkleLeafKind::Values(of, size) => {
                let children = self.spans.len();
                for n in spans.clone() {
                    let count = self.counts[counts + n - spans.start] as usize;
                    self.push_ssz_element_spans(self.spans[n], size, 0..count)?;
                }
                let out = RootWritePositions::at_consecutive_nodes(base);
                self.write_roots(of, children..self.spans.len(), out)?;
                self.spans.truncate(children);
            }
        }
        let counts = &mut self.counts[counts..];
        match series.shape {
            TreeShape::Deep(depth) => {
                forest::merkleize_trees(&mut self.nodes, base, counts, depth)?;
            }
            TreeShape::Progressive => forest::merkleize_progressive(&mut self.nodes, base, counts)?,
        }
        if series.has_length {
            let (ssz, spans) = (self.ssz, &self.spans[spans]);
            forest::mix_into_roots(&mut self.nodes, base, |n| {
                length_node(ssz, series, spans[n])
            })?;
        }
        Ok(())
    }

    /// Computes the root of one value that has more leaves than one batch.
    fn large_value_root(
        &mut self,
        series: &SequenceTreeLayout,
        span: SszValueSpan,
    ) -> Result<MerkleNode, SszError> {
        let count = self.leaf_count(series, span)?;
        let mut root = match series.shape {
            TreeShape::Deep(depth) => self.tree_root(series, span, 0..count, depth)?,
            TreeShape::Progressive => {
                let parts: Vec<(u64, u64)> = forest::progressive_subtrees()
                    .take_while(|(start, _)| *start < count as u64)
                    .collect();
                let mut root = MerkleNode::default();
                for (n, (start, size)) in parts.into_iter().enumerate().rev() {
                    let part = start as usize..(start + size).min(count as u64) as usize;
                    root = hash_parent_node(&self.tree_root(series, span, part, 2 * n)?, &root);
                }
                root
            }
        };
        if series.has_length {
            root = hash_parent_node(&root, &length_node(self.ssz, series, span));
        }
        Ok(root)
    }

    /// Computes the root of a tree of the given depth over a range of a value's leaves.
    fn tree_root(
        &mut self,
        series: &SequenceTreeLayout,
        span: SszValueSpan,
        part: Range<usize>,
        depth: usize,
    ) -> Result<MerkleNode, SszError> {
        let mut tree = MerkleTreeBuilder::new(&mut self.nodes, part.len())?;
        match series.leaf_kind {
            MerkleLeafKind::Bytes(_) | MerkleLeafKind::Bits => {
                let all = &self.ssz[span.byte_range()];
                let end = all.len().min(32 * part.end);
                let bytes = &all[32 * part.start..end];
                // the last node, which may be incomplete, or contain a delimiter
                let last = bytes.len().saturating_sub(1) / 32 * 32;
                let (bytes, last) = bytes.split_at(last);
                tree.push_leaves(&mut self.nodes, bytes);
                let mut node = padded_node(last);
                if let (MerkleLeafKind::Bits, true, Some(byte)) = (
                    series.leaf_kind,
                    end == all.len(),
                    last.len().checked_sub(1),
                ) {
                    node[byte] = clear_bitlist_delimiter(node[byte]);
                }
                tree.push_leaves(&mut self.nodes, &node);
            }
            MerkleLeafKind::Values(of, size) => {
                let mut next = part.start;
                while next < part.end {
                    let batch = next..part.end.min(next + series.together);
                    next = batch.end;
                    let (base, children) = (self.nodes.len(), self.spans.len());
                    try_grow_vec(&mut self.nodes, base + batch.len(), MerkleNode::default())?;
                    self.push_ssz_element_spans(span, size, batch)?;
                    self.write_roots(
                        of,
                        children..self.spans.len(),
                        RootWritePositions::at_consecutive_nodes(base),
                    )?;
                    self.spans.truncate(children);
                    let (rooms, leaves) = self.nodes.split_at_mut(base);
                    tree.push_leaves(rooms, leaves.as_flattened());
                    self.nodes.truncate(base);
                }
            }
        }
        Ok(tree.finish_root(&mut self.nodes, depth))
    }

    /// Counts the leaves of a value, from its length and, for lists, its first offset.
    fn leaf_count(
        &self,
        series: &SequenceTreeLayout,
        span: SszValueSpan,
    ) -> Result<usize, SszError> {
        Ok(match series.leaf_kind {
            MerkleLeafKind::Bytes(_) => span.byte_range().len().div_ceil(32),
            MerkleLeafKind::Bits => bitlist_length(&self.ssz[span.byte_range()])
                .unwrap_or(0)
                .div_ceil(256),
            MerkleLeafKind::Values(_, Some(size)) => span.byte_range().len() / size,
            MerkleLeafKind::Values(_, None) if span.byte_range().is_empty() => 0,
            MerkleLeafKind::Values(_, None) => {
                self.read_offset(span.byte_range().start)? / OFFSET_LENGTH
            }
        })
    }

    /// Pushes the positions of a range of a value's elements onto the stack of spans.
    fn push_ssz_element_spans(
        &mut self,
        span: SszValueSpan,
        size: Option<usize>,
        part: Range<usize>,
    ) -> Result<(), SszError> {
        let at = self.spans.len();
        try_grow_vec(&mut self.spans, at + part.len(), span)?;
        let Range { start, end } = span.byte_range();
        if let Some(size) = size {
            let begins = (start + part.start * size..).step_by(size);
            for (child, begin) in self.spans[at..].iter_mut().zip(begins) {
                *child = SszValueSpan::new(begin..begin + size);
            }
            return Ok(());
        }
        if part.is_empty() {
            return Ok(());
        }
        let count = self.read_offset(start)? / OFFSET_LENGTH;
        let mut begin = start + self.read_offset(start + part.start * OFFSET_LENGTH)?;
        for (n, child) in part.zip(at..) {
            let next = match n + 1 < count {
                true => start + self.read_offset(start + (n + 1) * OFFSET_LENGTH)?,
                false => end,
            };
            self.spans[child] = SszValueSpan::new(begin..next);
            begin = next;
        }
        Ok(())
    }
}

/// Returns the number of elements of a value as a node, which is mixed into the root of a list.
fn length_node(ssz: &[u8], series: &SequenceTreeLayout, span: SszValueSpan) -> MerkleNode {
    let bytes = &ssz[span.byte_range()];
    let length = match series.leaf_kind {
        MerkleLeafKind::Bytes(size) | MerkleLeafKind::Values(_, Some(size)) => bytes.len() / size,
        MerkleLeafKind::Bits => bitlist_length(bytes).unwrap_or(0),
        MerkleLeafKind::Values(_, None) => match bytes.first_chunk() {
            Some(first) => u32::from_le_bytes(*first) as usize / OFFSET_LENGTH,
            None => 0,
        },
    };
    padded_node(&(length as u64).to_le_bytes())
}

/// Clears the delimiter in the last byte of a bitlist, which is not 0.
fn clear_bitlist_delimiter(byte: u8) -> u8 {
    byte & !(0x80 >> byte.leading_zeros())
}
