//! Random values from a seed.

use sszip_core::ssz::schema::{ListLimit, TypeKind};
use sszip_core::ssz::{Schema, TypeId};

/// Returns the SSZ of a random value of a type, by its table, with few elements in lists, and
/// occasionally none or the maximum.
pub fn random_value_ssz(schema: &Schema, ty: TypeId, rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut out = Vec::new();
    RandomValues { schema, rng }.append_value(ty, &mut out);
    out
}

/// The generator of random SSZ values of a schema's types.
struct RandomValues<'r> {
    schema: &'r Schema,
    rng: &'r mut fastrand::Rng,
}

impl RandomValues<'_> {
    fn append_value(&mut self, ty: TypeId, out: &mut Vec<u8>) {
        let schema = self.schema;
        match &schema.type_by_id(ty).kind {
            TypeKind::Uint(size) | TypeKind::Quantity(size) | TypeKind::ByteVector(size) => {
                self.append_bytes(*size, out);
            }
            TypeKind::Boolean => out.push(self.rng.u8(..2)),
            TypeKind::Enum(words) => out.push(self.rng.u8(..words.len() as u8)),
            TypeKind::ByteList(limit) => {
                let count = self.random_length(*limit, 200);
                self.append_bytes(count, out);
            }
            TypeKind::Text(limit) => {
                let count = self.random_length(ListLimit::AtMost(*limit), 200);
                out.extend((0..count).map(|_| self.rng.u8(b' '..0x7f)));
            }
            TypeKind::Bitvector(bits) => self.append_bits(*bits, out),
            TypeKind::Bitlist(limit) => {
                let count = self.random_length(*limit, 100);
                let begin = out.len();
                self.append_bits(count, out);
                out.resize(begin + count / 8 + 1, 0);
                out[begin + count / 8] |= 1 << (count % 8);
            }
            TypeKind::Vector(of, count) => self.append_elements(*of, *count, out),
            TypeKind::List(of, limit) => {
                let count = self.random_length(*limit, 5);
                self.append_elements(*of, count, out);
            }
            TypeKind::Optional(of) => {
                let count = self.random_length(ListLimit::AtMost(1), 1);
                self.append_elements(*of, count, out);
            }
            TypeKind::Union(options) => {
                let (selector, of) = options[self.rng.usize(..options.len())];
                out.push(selector);
                self.append_value(of, out);
            }
            TypeKind::Container(container) => {
                let fields: Vec<TypeId> = container.fields.iter().map(|field| field.ty).collect();
                self.append_sequence(&fields, out);
            }
        }
    }

    fn append_elements(&mut self, of: TypeId, count: usize, out: &mut Vec<u8>) {
        self.append_sequence(&vec![of; count], out);
    }

    /// Appends values in sequence, values of variable size with offsets.
    fn append_sequence(&mut self, types: &[TypeId], out: &mut Vec<u8>) {
        let mut fixed = Vec::new();
        let mut variable = Vec::new();
        let sizes = types.iter().map(|ty| self.schema.type_by_id(*ty).size);
        let fixed_size: usize = sizes.map(|size| size.unwrap_or(4)).sum();
        for ty in types {
            if self.schema.type_by_id(*ty).size.is_some() {
                self.append_value(*ty, &mut fixed);
            } else {
                let offset = (fixed_size + variable.len()) as u32;
                fixed.extend(offset.to_le_bytes());
                self.append_value(*ty, &mut variable);
            }
        }
        out.append(&mut fixed);
        out.append(&mut variable);
    }

    fn random_length(&mut self, limit: ListLimit, usual: usize) -> usize {
        let limit = match limit {
            ListLimit::AtMost(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
            ListLimit::Progressive => usize::MAX,
        };
        match self.rng.u8(..8) {
            0 => 0,
            // a list with the maximum has few elements in its inner lists
            1 if limit <= 4 * usual => limit,
            _ => self.rng.usize(..=usual.min(limit)),
        }
    }

    fn append_bytes(&mut self, count: usize, out: &mut Vec<u8>) {
        match self.rng.u8(..8) {
            0 => out.resize(out.len() + count, 0),
            1 => out.resize(out.len() + count, 0xff),
            _ => out.extend((0..count).map(|_| self.rng.u8(..))),
        }
    }

    fn append_bits(&mut self, count: usize, out: &mut Vec<u8>) {
        self.append_bytes(count.div_ceil(8), out);
        if let (Some(last), true) = (out.last_mut(), !count.is_multiple_of(8)) {
            *last &= (1 << (count % 8)) - 1;
        }
    }
}
