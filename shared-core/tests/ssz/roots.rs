//! Roots of reference values, computed one hash after the other.

use sszip_core::ssz::schema::{ListLimit, TypeKind};
use sszip_core::ssz::{Schema, TypeId};

use super::reference::{to_ssz, Json};

use crate::tree::{depth, hash, list, pack, pack_bits, progressive, tree, Node};

/// Returns the root of a value of the type.
pub fn root(schema: &Schema, ty: TypeId, json: &Json) -> Node {
    let kind = &schema.type_by_id(ty).kind;
    let bytes = || to_ssz(schema, ty, json).expect("a value of the type");
    match (kind, json) {
        (TypeKind::Uint(_) | TypeKind::Quantity(_) | TypeKind::Boolean | TypeKind::Enum(_), _) => {
            pack(&bytes())[0]
        }
        (TypeKind::ByteVector(_) | TypeKind::Bitvector(_), _) => whole(&pack(&bytes())),
        (TypeKind::ByteList(limit), _) => {
            let bytes = bytes();
            list(&pack(&bytes), leaves(*limit, 32), bytes.len())
        }
        (TypeKind::Text(limit), _) => {
            let bytes = bytes();
            list(
                &pack(&bytes),
                leaves(ListLimit::AtMost(*limit), 32),
                bytes.len(),
            )
        }
        (TypeKind::Bitlist(limit), _) => {
            let bytes = bytes();
            let mut bits: Vec<bool> = (0..8 * bytes.len())
                .map(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 1)
                .collect();
            while bits.pop() == Some(false) {}
            list(&pack(&pack_bits(&bits)), leaves(*limit, 256), bits.len())
        }
        (TypeKind::Vector(of, len), Json::Array(all)) => {
            let (chunks, each) = elements(schema, *of, all);
            tree(&chunks, depth((*len as u128).div_ceil(each)))
        }
        (TypeKind::List(of, limit), Json::Array(all)) => {
            let (chunks, each) = elements(schema, *of, all);
            list(&chunks, leaves(*limit, each), all.len())
        }
        (TypeKind::Optional(of), value) => {
            let all: Vec<Json> = Some(value.clone())
                .filter(|value| *value != Json::Null)
                .into_iter()
                .collect();
            let (chunks, each) = elements(schema, *of, &all);
            list(&chunks, leaves(ListLimit::AtMost(1), each), all.len())
        }
        (TypeKind::Container(container), Json::Object(all)) => {
            let fields = container.fields.iter().zip(all);
            let mut roots = fields.map(|(field, (_, value))| root(schema, field.ty, value));
            match &container.active_fields {
                None => whole(&roots.collect::<Vec<_>>()),
                Some(active) => {
                    let place = |is_active: &bool| match is_active {
                        true => roots.next().expect("a field"),
                        false => [0; 32],
                    };
                    let places: Vec<Node> = active.iter().map(place).collect();
                    hash(progressive(&places, 0), pack(&pack_bits(active))[0])
                }
            }
        }
        (TypeKind::Union(options), Json::Object(all)) => {
            let (Json::Text(selector), data) = (&all[0].1, &all[1].1) else {
                panic!("{all:?}");
            };
            let selector: u8 = selector.parse().expect("a selector");
            let (_, of) = options
                .iter()
                .find(|(option, _)| *option == selector)
                .expect("an option");
            hash(root(schema, *of, data), pack(&[selector])[0])
        }
        (kind, json) => panic!("{kind:?} {json:?}"),
    }
}

fn whole(chunks: &[Node]) -> Node {
    tree(chunks, depth(chunks.len() as u128))
}

/// Returns the maximum number of chunks of a list whose chunks hold `each` elements.
fn leaves(limit: ListLimit, each: u128) -> Option<u128> {
    match limit {
        ListLimit::AtMost(limit) => Some(u128::from(limit).div_ceil(each)),
        ListLimit::Progressive => None,
    }
}

/// Returns the chunks of the elements, and the number of elements per chunk.
fn elements(schema: &Schema, of: TypeId, all: &[Json]) -> (Vec<Node>, u128) {
    let ty = schema.type_by_id(of);
    match (&ty.kind, ty.size) {
        (
            TypeKind::Uint(_) | TypeKind::Quantity(_) | TypeKind::Boolean | TypeKind::Enum(_),
            Some(size),
        ) => {
            let bytes = all
                .iter()
                .flat_map(|one| to_ssz(schema, of, one).expect("a value"));
            (pack(&bytes.collect::<Vec<u8>>()), 32 / size as u128)
        }
        _ => (all.iter().map(|one| root(schema, of, one)).collect(), 1),
    }
}
