//! Sizes of types, and the bounds of their bytes.

use super::{ContainerField, Schema, TypeKind, OFFSET_LENGTH};

/// Maximum length of a list of bounds: longer ones are not faster than the rules themselves.
const MAX_BOUNDS: usize = 64;

impl Schema {
    /// Returns the length in bytes of each value of this kind, or `None` if lengths vary or
    /// overflow.
    pub(super) fn fixed_size_of(&self, kind: &TypeKind) -> Option<usize> {
        match kind {
            TypeKind::Uint(bytes) | TypeKind::Quantity(bytes) => Some(*bytes),
            TypeKind::Boolean | TypeKind::Enum(_) => Some(1),
            TypeKind::ByteVector(len) => Some(*len),
            TypeKind::Bitvector(bits) => Some(bits.div_ceil(8)),
            TypeKind::Vector(of, len) => self
                .type_by_id(*of)
                .size
                .and_then(|size| size.checked_mul(*len)),
            TypeKind::Container(container) => container
                .fields
                .iter()
                .all(|field| self.type_by_id(field.ty).size.is_some())
                .then_some(container.fixed_size),
            TypeKind::ByteList(_)
            | TypeKind::Bitlist(_)
            | TypeKind::List(..)
            | TypeKind::Union(_)
            | TypeKind::Optional(_)
            | TypeKind::Text(_) => None,
        }
    }

    /// Returns the length in bytes of the shortest value of this kind.
    pub(super) fn min_size_of(&self, kind: &TypeKind) -> usize {
        match kind {
            TypeKind::Vector(of, len) => {
                let of = self.type_by_id(*of);
                let each = of.size.unwrap_or(OFFSET_LENGTH + of.min_size);
                each.saturating_mul(*len)
            }
            TypeKind::Container(container) => {
                let variable = container
                    .fields
                    .iter()
                    .map(|field| self.type_by_id(field.ty))
                    .filter(|ty| ty.size.is_none());
                container.fixed_size + variable.map(|ty| ty.min_size).sum::<usize>()
            }
            TypeKind::Bitlist(_) | TypeKind::Union(_) => 1,
            TypeKind::ByteList(_)
            | TypeKind::List(..)
            | TypeKind::Optional(_)
            | TypeKind::Text(_) => 0,
            TypeKind::Uint(_)
            | TypeKind::Quantity(_)
            | TypeKind::Boolean
            | TypeKind::Enum(_)
            | TypeKind::ByteVector(_)
            | TypeKind::Bitvector(_) => self.fixed_size_of(kind).unwrap_or(0),
        }
    }

    /// Returns the bytes that must be below a bound: their positions in a value, and the bounds.
    /// `None`: the size is not fixed, or more than [`MAX_BOUNDS`] bytes have a bound.
    pub(super) fn byte_bounds(&self, kind: &TypeKind) -> Option<Box<[(usize, u8)]>> {
        let size = self.fixed_size_of(kind)?;
        let bounds = match kind {
            TypeKind::Boolean => vec![(0, 2)],
            TypeKind::Enum(words) => vec![(0, u8::try_from(words.len()).ok()?)],
            TypeKind::Bitvector(bits) if bits % 8 > 0 => vec![(size - 1, 1 << (bits % 8))],
            TypeKind::Vector(of, len) => {
                let of = self.type_by_id(*of);
                let (bounds, size) = (of.bounds.as_ref()?, of.size?);
                if bounds.len().saturating_mul(*len) > MAX_BOUNDS {
                    return None;
                }
                let each = |n: usize| {
                    bounds
                        .iter()
                        .map(move |(at, below)| (n * size + at, *below))
                };
                // most element types have no bounds, in lists of any length
                let count = if bounds.is_empty() { 0 } else { *len };
                (0..count).flat_map(each).collect()
            }
            TypeKind::Container(container) => return container.bounds.clone(),
            _ => Vec::new(),
        };
        (bounds.len() <= MAX_BOUNDS).then(|| bounds.into())
    }

    /// Collects the bounds of a container's fixed-size fields, at their positions in the container.
    pub(super) fn fixed_field_value_bounds(
        &self,
        fields: &[ContainerField],
    ) -> Option<Box<[(usize, u8)]>> {
        let mut all = Vec::new();
        for field in fields {
            let ty = self.type_by_id(field.ty);
            if ty.size.is_some() {
                let bounds = ty.bounds.as_ref()?.iter();
                all.extend(bounds.map(|(at, below)| (field.offset + at, *below)));
            }
        }
        (all.len() <= MAX_BOUNDS).then(|| all.into())
    }

    /// Whether all byte strings of the kind's fixed length are valid values.
    pub(super) fn accepts_any_bytes(&self, kind: &TypeKind) -> bool {
        match kind {
            TypeKind::Uint(_) | TypeKind::Quantity(_) | TypeKind::ByteVector(_) => true,
            TypeKind::Bitvector(bits) => bits % 8 == 0,
            TypeKind::Vector(of, _) => self.type_by_id(*of).is_plain,
            TypeKind::Container(container) => container
                .fields
                .iter()
                .all(|field| self.type_by_id(field.ty).is_plain),
            _ => false,
        }
    }
}
