//! Sizes of types, and the bounds of their bytes.

use super::{Field, Kind, Schema, OFFSET};

/// Maximum length of a list of bounds: longer ones are not faster than the rules themselves.
const MAX_BOUNDS: usize = 64;

impl Schema {
    pub(super) fn size(&self, kind: &Kind) -> Option<usize> {
        match kind {
            Kind::Uint(bytes) | Kind::Quantity(bytes) => Some(*bytes),
            Kind::Boolean | Kind::Enum(_) => Some(1),
            Kind::ByteVector(len) => Some(*len),
            Kind::Bitvector(bits) => Some(bits.div_ceil(8)),
            Kind::Vector(of, len) => self.get(*of).size.and_then(|size| size.checked_mul(*len)),
            Kind::Container(container) => container
                .fields
                .iter()
                .all(|field| self.get(field.ty).size.is_some())
                .then_some(container.fixed_size),
            Kind::ByteList(_)
            | Kind::Bitlist(_)
            | Kind::List(..)
            | Kind::Union(_)
            | Kind::Optional(_)
            | Kind::Text(_) => None,
        }
    }

    pub(super) fn min_size(&self, kind: &Kind) -> usize {
        match kind {
            Kind::Vector(of, len) => {
                let of = self.get(*of);
                let each = of.size.unwrap_or(OFFSET + of.min_size);
                each.saturating_mul(*len)
            }
            Kind::Container(container) => {
                let variable = container
                    .fields
                    .iter()
                    .map(|field| self.get(field.ty))
                    .filter(|ty| ty.size.is_none());
                container.fixed_size + variable.map(|ty| ty.min_size).sum::<usize>()
            }
            Kind::Bitlist(_) | Kind::Union(_) => 1,
            Kind::ByteList(_) | Kind::List(..) | Kind::Optional(_) | Kind::Text(_) => 0,
            Kind::Uint(_)
            | Kind::Quantity(_)
            | Kind::Boolean
            | Kind::Enum(_)
            | Kind::ByteVector(_)
            | Kind::Bitvector(_) => self.size(kind).unwrap_or(0),
        }
    }

    pub(super) fn bounds(&self, kind: &Kind) -> Option<Box<[(usize, u8)]>> {
        let size = self.size(kind)?;
        let bounds = match kind {
            Kind::Boolean => vec![(0, 2)],
            Kind::Enum(words) => vec![(0, u8::try_from(words.len()).ok()?)],
            Kind::Bitvector(bits) if bits % 8 > 0 => vec![(size - 1, 1 << (bits % 8))],
            Kind::Vector(of, len) => {
                let of = self.get(*of);
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
            Kind::Container(container) => return container.bounds.clone(),
            _ => Vec::new(),
        };
        (bounds.len() <= MAX_BOUNDS).then(|| bounds.into())
    }

    /// Collects the bounds of a container's fixed-size fields, at their positions in the container.
    pub(super) fn fixed_field_bounds(&self, fields: &[Field]) -> Option<Box<[(usize, u8)]>> {
        let mut all = Vec::new();
        for field in fields {
            let ty = self.get(field.ty);
            if ty.size.is_some() {
                let bounds = ty.bounds.as_ref()?.iter();
                all.extend(bounds.map(|(at, below)| (field.offset + at, *below)));
            }
        }
        (all.len() <= MAX_BOUNDS).then(|| all.into())
    }

    pub(super) fn is_plain(&self, kind: &Kind) -> bool {
        match kind {
            Kind::Uint(_) | Kind::Quantity(_) | Kind::ByteVector(_) => true,
            Kind::Bitvector(bits) => bits % 8 == 0,
            Kind::Vector(of, _) => self.get(*of).is_plain,
            Kind::Container(container) => container
                .fields
                .iter()
                .all(|field| self.get(field.ty).is_plain),
            _ => false,
        }
    }
}
