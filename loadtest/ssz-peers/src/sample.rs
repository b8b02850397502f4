//! Random values from a seed.

use sszip_core::ssz::schema::{Kind, Limit};
use sszip_core::ssz::{Schema, TypeId};

/// Returns the SSZ of a random value of a type, by its table, with few elements in lists, and
/// occasionally none or the maximum.
pub fn random(schema: &Schema, ty: TypeId, rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut out = Vec::new();
    Random { schema, rng }.value(ty, &mut out);
    out
}

struct Random<'r> {
    schema: &'r Schema,
    rng: &'r mut fastrand::Rng,
}

impl Random<'_> {
    fn value(&mut self, ty: TypeId, out: &mut Vec<u8>) {
        let schema = self.schema;
        match &schema.get(ty).kind {
            Kind::Uint(size) | Kind::Quantity(size) | Kind::ByteVector(size) => {
                self.bytes(*size, out);
            }
            Kind::Boolean => out.push(self.rng.u8(..2)),
            Kind::Enum(words) => out.push(self.rng.u8(..words.len() as u8)),
            Kind::ByteList(limit) => {
                let count = self.count(*limit, 200);
                self.bytes(count, out);
            }
            Kind::Text(limit) => {
                let count = self.count(Limit::AtMost(*limit), 200);
                out.extend((0..count).map(|_| self.rng.u8(b' '..0x7f)));
            }
            Kind::Bitvector(bits) => self.bits(*bits, out),
            Kind::Bitlist(limit) => {
                let count = self.count(*limit, 100);
                let begin = out.len();
                self.bits(count, out);
                out.resize(begin + count / 8 + 1, 0);
                out[begin + count / 8] |= 1 << (count % 8);
            }
            Kind::Vector(of, count) => self.elements(*of, *count, out),
            Kind::List(of, limit) => {
                let count = self.count(*limit, 5);
                self.elements(*of, count, out);
            }
            Kind::Optional(of) => {
                let count = self.count(Limit::AtMost(1), 1);
                self.elements(*of, count, out);
            }
            Kind::Union(options) => {
                let (selector, of) = options[self.rng.usize(..options.len())];
                out.push(selector);
                self.value(of, out);
            }
            Kind::Container(container) => {
                let fields: Vec<TypeId> = container.fields.iter().map(|field| field.ty).collect();
                self.parts(&fields, out);
            }
        }
    }

    fn elements(&mut self, of: TypeId, count: usize, out: &mut Vec<u8>) {
        self.parts(&vec![of; count], out);
    }

    /// Appends values in sequence, values of variable size with offsets.
    fn parts(&mut self, types: &[TypeId], out: &mut Vec<u8>) {
        let mut fixed = Vec::new();
        let mut variable = Vec::new();
        let sizes = types.iter().map(|ty| self.schema.get(*ty).size);
        let fixed_size: usize = sizes.map(|size| size.unwrap_or(4)).sum();
        for ty in types {
            if self.schema.get(*ty).size.is_some() {
                self.value(*ty, &mut fixed);
            } else {
                let offset = (fixed_size + variable.len()) as u32;
                fixed.extend(offset.to_le_bytes());
                self.value(*ty, &mut variable);
            }
        }
        out.append(&mut fixed);
        out.append(&mut variable);
    }

    fn count(&mut self, limit: Limit, usual: usize) -> usize {
        let limit = match limit {
            Limit::AtMost(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
            Limit::Progressive => usize::MAX,
        };
        match self.rng.u8(..8) {
            0 => 0,
            // a list with the maximum has few elements in its inner lists
            1 if limit <= 4 * usual => limit,
            _ => self.rng.usize(..=usual.min(limit)),
        }
    }

    fn bytes(&mut self, count: usize, out: &mut Vec<u8>) {
        match self.rng.u8(..8) {
            0 => out.resize(out.len() + count, 0),
            1 => out.resize(out.len() + count, 0xff),
            _ => out.extend((0..count).map(|_| self.rng.u8(..))),
        }
    }

    fn bits(&mut self, count: usize, out: &mut Vec<u8>) {
        self.bytes(count.div_ceil(8), out);
        if let (Some(last), true) = (out.last_mut(), !count.is_multiple_of(8)) {
            *last &= (1 << (count % 8)) - 1;
        }
    }
}
