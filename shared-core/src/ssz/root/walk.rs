//! Traversal of nested values.

use std::ops::Range;

use super::super::error::{SszError, SszErrorKind};
use super::super::schema::{ContainerLayout, Schema, TypeId, TypeKind};
use super::forest;
use super::grow_stack::try_grow_vec;
use super::pair_hash::{hash_parent_node, MerkleNode};
use super::sequences::SequenceTreeLayout;

/// The walker that computes the hash tree root of a checked value, from the roots of its parts.
pub(super) struct RootWalker<'s> {
    pub(super) schema: &'s Schema,
    pub(super) ssz: &'s [u8],
    /// Stack of nodes of incomplete trees.
    pub(super) nodes: Vec<MerkleNode>,
    /// Stack of positions of values whose roots are being computed.
    pub(super) spans: Vec<SszValueSpan>,
    /// Stack of the numbers of leaves of their trees.
    pub(super) counts: Vec<u32>,
}

/// The range of a value's bytes in the SSZ, as two 32-bit numbers: half the memory of a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct SszValueSpan {
    start: u32,
    end: u32,
}

impl SszValueSpan {
    pub(super) fn new(range: Range<usize>) -> Self {
        Self {
            start: range.start as u32,
            end: range.end as u32,
        }
    }

    pub(super) fn byte_range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The positions in the stack of nodes to which computed roots are written: `at`, `at + stride`,
/// `at + 2 * stride`, ...
#[derive(Clone, Copy, Debug)]
pub(super) struct RootWritePositions {
    pub(super) at: usize,
    stride: usize,
}

impl RootWritePositions {
    /// Returns the destination of roots in consecutive nodes from `at` on.
    pub(super) fn at_consecutive_nodes(at: usize) -> Self {
        Self { at, stride: 1 }
    }

    /// Returns the positions after `count` nodes.
    pub(super) fn skip_nodes(self, count: usize) -> Self {
        Self {
            at: self.at + count * self.stride,
            ..self
        }
    }
}

impl<'s> RootWalker<'s> {
    pub(super) fn new(schema: &'s Schema, ssz: &'s [u8]) -> Self {
        Self {
            schema,
            ssz,
            nodes: Vec::new(),
            spans: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// Computes the hash tree root of the whole value, of the type `ty`.
    pub(super) fn value_root(mut self, ty: TypeId) -> Result<MerkleNode, SszError> {
        try_grow_vec(&mut self.nodes, 1, MerkleNode::default())?;
        try_grow_vec(&mut self.spans, 1, SszValueSpan::new(0..self.ssz.len()))?;
        self.write_roots(ty, 0..1, RootWritePositions::at_consecutive_nodes(0))?;
        Ok(self.nodes[0])
    }

    /// Computes the roots of all values in `spans`, which have the type `ty`, and writes them to
    /// `out`. The stacks have the same height afterwards.
    pub(super) fn write_roots(
        &mut self,
        ty: TypeId,
        spans: Range<usize>,
        out: RootWritePositions,
    ) -> Result<(), SszError> {
        if spans.is_empty() {
            return Ok(());
        }
        let schema = self.schema;
        let ty = schema.type_by_id(ty);
        match &ty.kind {
            TypeKind::Container(container) => {
                return self.write_container_roots(container, spans, out)
            }
            TypeKind::Union(options) => return self.write_union_roots(options, spans, out),
            _ => {}
        }
        if let Some(size @ ..=32) = ty.size {
            if is_self_rooted_kind(&ty.kind) {
                self.write_basic_value_roots(spans, 0, size, out);
                return Ok(());
            }
        }
        match SequenceTreeLayout::for_ssz_type(schema, ty) {
            Some(series) => self.sequence_roots(&series, spans, out),
            None => Ok(()),
        }
    }

    /// Writes basic values to `out` unchanged, because they are their own roots; each begins
    /// `offset` bytes into its span.
    fn write_basic_value_roots(
        &mut self,
        spans: Range<usize>,
        offset: usize,
        size: usize,
        out: RootWritePositions,
    ) {
        let starts = self.spans[spans]
            .iter()
            .map(|span| span.start as usize + offset);
        let nodes = self.nodes[out.at..].iter_mut().step_by(out.stride);
        let ssz = self.ssz;
        // copies of constant length are one instruction
        match size {
            32 => nodes.zip(starts).for_each(|(node, at)| {
                node.copy_from_slice(&ssz[at..at + 32]);
            }),
            8 => nodes.zip(starts).for_each(|(node, at)| {
                *node = MerkleNode::default();
                node[..8].copy_from_slice(&ssz[at..at + 8]);
            }),
            size => nodes.zip(starts).for_each(|(node, at)| {
                *node = padded_node(&ssz[at..at + size]);
            }),
        }
    }

    /// Writes the root of the container in each span to the positions of `out`.
    fn write_container_roots(
        &mut self,
        container: &ContainerLayout,
        spans: Range<usize>,
        out: RootWritePositions,
    ) -> Result<(), SszError> {
        let schema = self.schema;
        let fields = &container.fields;
        let base = self.nodes.len();
        let active = container.active_fields.as_deref();
        let width = active.map_or(fields.len(), <[bool]>::len);
        try_grow_vec(
            &mut self.nodes,
            base + spans.len() * width,
            MerkleNode::default(),
        )?;
        let mut place = 0;
        for (n, field) in fields.iter().enumerate() {
            while active.is_some_and(|active| active.get(place) == Some(&false)) {
                place += 1;
            }
            let column = RootWritePositions {
                at: base + place,
                stride: width,
            };
            place += 1;
            let ty = schema.type_by_id(field.ty);
            if let (Some(size @ ..=32), true) = (ty.size, is_self_rooted_kind(&ty.kind)) {
                self.write_basic_value_roots(spans.clone(), field.offset, size, column);
                continue;
            }
            let values = self.spans.len();
            try_grow_vec(
                &mut self.spans,
                values + spans.len(),
                SszValueSpan::new(0..0),
            )?;
            let mut later = fields[n + 1..].iter();
            let later = later.find(|later| schema.type_by_id(later.ty).size.is_none());
            for (k, value) in spans.clone().zip(values..) {
                let Range { start, end } = self.spans[k].byte_range();
                let at = start + field.offset;
                self.spans[value] = SszValueSpan::new(match (ty.size, later) {
                    (Some(size), _) => at..at + size,
                    (None, None) => start + self.read_offset(at)?..end,
                    (None, Some(later)) => {
                        start + self.read_offset(at)?
                            ..start + self.read_offset(start + later.offset)?
                    }
                });
            }
            self.write_roots(field.ty, values..self.spans.len(), column)?;
            self.spans.truncate(values);
        }

        let counts = self.counts.len();
        try_grow_vec(&mut self.counts, counts + spans.len(), width as u32)?;
        let each = &mut self.counts[counts..];
        match active {
            None => {
                let depth = super::tree::tree_depth(width as u64);
                forest::merkleize_trees(&mut self.nodes, base, each, depth)?;
            }
            Some(active) => {
                forest::merkleize_progressive(&mut self.nodes, base, each)?;
                let mut bits = MerkleNode::default();
                for (place, _) in active.iter().enumerate().filter(|(_, is)| **is) {
                    bits[place / 8] |= 1 << (place % 8);
                }
                forest::mix_into_roots(&mut self.nodes, base, |_| bits)?;
            }
        }
        self.counts.truncate(counts);
        self.move_roots_to_destination(base, out);
        Ok(())
    }

    /// Writes the root of the union in each span to the positions of `out`. An unknown selector is
    /// an error.
    fn write_union_roots(
        &mut self,
        options: &[(u8, TypeId)],
        spans: Range<usize>,
        out: RootWritePositions,
    ) -> Result<(), SszError> {
        for (n, span) in spans.enumerate() {
            let Range { start, end } = self.spans[span].byte_range();
            let of = self.ssz.get(start).and_then(|selector| {
                let option = options.iter().find(|(option, _)| option == selector);
                option.copied()
            });
            let Some((selector, of)) = of else {
                return Err(SszError::from_message(
                    start,
                    "the union has no such option",
                ));
            };
            let to = out.skip_nodes(n);
            let value = self.spans.len();
            try_grow_vec(
                &mut self.spans,
                value + 1,
                SszValueSpan::new(start + 1..end),
            )?;
            self.write_roots(of, value..value + 1, to)?;
            self.spans.truncate(value);
            self.nodes[to.at] = hash_parent_node(&self.nodes[to.at], &padded_node(&[selector]));
        }
        Ok(())
    }

    /// Moves the roots after `base` at the end of the nodes to their destination.
    pub(super) fn move_roots_to_destination(&mut self, base: usize, out: RootWritePositions) {
        let (to, nodes) = self.nodes.split_at_mut(base);
        let to = to[out.at..].iter_mut().step_by(out.stride);
        for (to, node) in to.zip(nodes) {
            *to = *node;
        }
        self.nodes.truncate(base);
    }

    /// Reads the offset, of four bytes, that is stored at `at` in the SSZ.
    pub(super) fn read_offset(&self, at: usize) -> Result<usize, SszError> {
        match self.ssz.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(offset) => Ok(u32::from_le_bytes(*offset) as usize),
            None => Err(SszError::new(at, SszErrorKind::Ends)),
        }
    }
}

/// Creates a node from at most 32 bytes, padded with zeros.
pub(super) fn padded_node(bytes: &[u8]) -> MerkleNode {
    let mut node = MerkleNode::default();
    node[..bytes.len()].copy_from_slice(bytes);
    node
}

/// Whether a value of the kind is its own root if it has at most 32 bytes.
fn is_self_rooted_kind(kind: &TypeKind) -> bool {
    matches!(
        kind,
        TypeKind::Uint(_)
            | TypeKind::Quantity(_)
            | TypeKind::Boolean
            | TypeKind::Enum(_)
            | TypeKind::ByteVector(_)
            | TypeKind::Bitvector(_)
    )
}
