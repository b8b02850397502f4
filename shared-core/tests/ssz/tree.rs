//! Types and values as trees, and their roots by ssz/simple-serialize.md, EIP-7495, EIP-7916 and
//! EIP-8016, computed one hash after the other.

use sha2::{Digest, Sha256};

pub type Node = [u8; 32];

#[derive(Clone, Debug)]
pub enum Type {
    Uint(usize),
    Boolean,
    Enum,
    ByteVector(usize),
    /// A byte list; `None` if it is progressive.
    ByteList(Option<u64>),
    Text(u64),
    Bitvector(usize),
    Bitlist(Option<u64>),
    Vector(Box<Type>, usize),
    List(Box<Type>, Option<u64>),
    Optional(Box<Type>),
    Container(Vec<Type>),
    /// A progressive container; its inactive fields are `None`.
    Progressive(Vec<Option<Type>>),
    Union(Vec<(u8, Type)>),
}

#[derive(Clone, Debug)]
pub enum Value {
    Bytes(Vec<u8>),
    Bits(Vec<bool>),
    Values(Vec<Value>),
    Option(u8, Box<Value>),
}

impl Type {
    /// Returns the type in the notation of type tables. Containers are added to `definitions`.
    pub fn text(&self, definitions: &mut String) -> String {
        match self {
            Self::Uint(bytes) => format!("uint{}", 8 * bytes),
            Self::Boolean => "boolean".into(),
            Self::Enum => "Enum[A, B, C]".into(),
            Self::ByteVector(len) => format!("ByteVector[{len}]"),
            Self::ByteList(Some(limit)) => format!("ByteList[{limit}]"),
            Self::ByteList(None) => "ProgressiveByteList".into(),
            Self::Text(limit) => format!("Text[{limit}]"),
            Self::Bitvector(len) => format!("Bitvector[{len}]"),
            Self::Bitlist(Some(limit)) => format!("Bitlist[{limit}]"),
            Self::Bitlist(None) => "ProgressiveBitlist".into(),
            Self::Vector(of, len) => format!("Vector[{}, {len}]", of.text(definitions)),
            Self::List(of, Some(limit)) => format!("List[{}, {limit}]", of.text(definitions)),
            Self::List(of, None) => format!("ProgressiveList[{}]", of.text(definitions)),
            Self::Optional(of) => format!("Optional[{}]", of.text(definitions)),
            Self::Container(fields) => {
                let fields: Vec<String> = fields.iter().map(|ty| ty.text(definitions)).collect();
                class(definitions, "Container", &fields)
            }
            Self::Progressive(places) => {
                let active: Vec<&str> = places
                    .iter()
                    .map(|place| if place.is_some() { "1" } else { "0" })
                    .collect();
                let fields: Vec<String> = places
                    .iter()
                    .flatten()
                    .map(|ty| ty.text(definitions))
                    .collect();
                let base = format!(
                    "ProgressiveContainer(active_fields=[{}])",
                    active.join(", ")
                );
                class(definitions, &base, &fields)
            }
            Self::Union(options) => {
                let options: Vec<String> = options
                    .iter()
                    .map(|(selector, ty)| format!("{selector}: {}", ty.text(definitions)))
                    .collect();
                format!("CompatibleUnion({{{}}})", options.join(", "))
            }
        }
    }

    pub fn is_fixed(&self) -> bool {
        match self {
            Self::Uint(_) | Self::Boolean | Self::Enum => true,
            Self::ByteVector(_) | Self::Bitvector(_) => true,
            Self::Vector(of, _) => of.is_fixed(),
            Self::Container(fields) => fields.iter().all(Self::is_fixed),
            Self::Progressive(places) => places.iter().flatten().all(Self::is_fixed),
            _ => false,
        }
    }

    pub fn serialize(&self, value: &Value) -> Vec<u8> {
        match (self, value) {
            (_, Value::Bytes(bytes)) => bytes.clone(),
            (_, Value::Bits(bits)) => {
                let mut bits = bits.clone();
                if let Self::Bitlist(_) = self {
                    bits.push(true);
                }
                pack_bits(&bits)
            }
            (Self::Union(options), Value::Option(selector, value)) => {
                let mut ssz = vec![*selector];
                ssz.extend(option(options, *selector).serialize(value));
                ssz
            }
            (_, Value::Values(values)) => {
                let types = self.types(values.len());
                let parts: Vec<Vec<u8>> = types
                    .iter()
                    .zip(values)
                    .map(|(ty, value)| ty.serialize(value))
                    .collect();
                let head =
                    |(ty, part): (&&Self, &Vec<u8>)| if ty.is_fixed() { part.len() } else { 4 };
                let mut offset: usize = types.iter().zip(&parts).map(head).sum();
                let mut heads = Vec::new();
                let mut tail = Vec::new();
                for (ty, part) in types.iter().zip(parts) {
                    if ty.is_fixed() {
                        heads.extend(part);
                    } else {
                        heads.extend((offset as u32).to_le_bytes());
                        offset += part.len();
                        tail.extend(part);
                    }
                }
                heads.extend(tail);
                heads
            }
            _ => panic!("{self:?} {value:?}"),
        }
    }

    /// Returns the types of the elements or fields.
    fn types(&self, count: usize) -> Vec<&Self> {
        match self {
            Self::Vector(of, _) | Self::List(of, _) | Self::Optional(of) => vec![&**of; count],
            Self::Container(fields) => fields.iter().collect(),
            Self::Progressive(places) => places.iter().flatten().collect(),
            _ => panic!("{self:?}"),
        }
    }

    pub fn root(&self, value: &Value) -> Node {
        match (self, value) {
            (Self::Uint(_) | Self::Boolean | Self::Enum, Value::Bytes(bytes)) => pack(bytes)[0],
            (Self::ByteVector(_), Value::Bytes(bytes)) => {
                let chunks = pack(bytes);
                tree(&chunks, depth(chunks.len() as u128))
            }
            (Self::ByteList(limit), Value::Bytes(bytes)) => list(
                &pack(bytes),
                limit.map(|limit| (limit as u128).div_ceil(32)),
                bytes.len(),
            ),
            (Self::Text(limit), Value::Bytes(bytes)) => list(
                &pack(bytes),
                Some((*limit as u128).div_ceil(32)),
                bytes.len(),
            ),
            (Self::Bitvector(_), Value::Bits(bits)) => {
                let chunks = pack(&pack_bits(bits));
                tree(&chunks, depth(chunks.len() as u128))
            }
            (Self::Bitlist(limit), Value::Bits(bits)) => {
                let chunks = pack(&pack_bits(bits));
                list(
                    &chunks,
                    limit.map(|limit| (limit as u128).div_ceil(256)),
                    bits.len(),
                )
            }
            (Self::Vector(of, len), Value::Values(values)) => {
                let (chunks, limit) = of.elements(values, Some(*len as u64));
                tree(&chunks, depth(limit.unwrap()))
            }
            (Self::List(of, limit), Value::Values(values)) => {
                let (chunks, limit) = of.elements(values, *limit);
                list(&chunks, limit, values.len())
            }
            (Self::Optional(of), Value::Values(values)) => {
                let (chunks, limit) = of.elements(values, Some(1));
                list(&chunks, limit, values.len())
            }
            (Self::Container(fields), Value::Values(values)) => {
                let roots: Vec<Node> = fields
                    .iter()
                    .zip(values)
                    .map(|(ty, v)| ty.root(v))
                    .collect();
                tree(&roots, depth(roots.len() as u128))
            }
            (Self::Progressive(places), Value::Values(values)) => {
                let mut values = values.iter();
                let mut root = |ty: &Self| ty.root(values.next().unwrap());
                let roots: Vec<Node> = places
                    .iter()
                    .map(|place| place.as_ref().map_or([0; 32], &mut root))
                    .collect();
                let active: Vec<bool> = places.iter().map(Option::is_some).collect();
                hash(progressive(&roots, 0), pack(&pack_bits(&active))[0])
            }
            (Self::Union(options), Value::Option(selector, value)) => hash(
                option(options, *selector).root(value),
                pack(&[*selector])[0],
            ),
            _ => panic!("{self:?} {value:?}"),
        }
    }

    /// Returns the leaves of a list or vector of `self`, and their maximum number.
    fn elements(&self, values: &[Value], limit: Option<u64>) -> (Vec<Node>, Option<u128>) {
        let limit = limit.map(u128::from);
        let packed = match self {
            Self::Uint(size) => *size,
            Self::Boolean | Self::Enum => 1,
            _ => return (values.iter().map(|value| self.root(value)).collect(), limit),
        };
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| self.serialize(value))
            .collect();
        (
            pack(&bytes),
            limit.map(|limit| (limit * packed as u128).div_ceil(32)),
        )
    }
}

fn class(definitions: &mut String, base: &str, fields: &[String]) -> String {
    let name = format!("C{}", definitions.matches("class").count());
    let mut text = format!("class {name}({base}):\n");
    for (n, field) in fields.iter().enumerate() {
        text += &format!("    f{n}: {field}\n");
    }
    definitions.push_str(&text);
    name
}

fn option(options: &[(u8, Type)], selector: u8) -> &Type {
    &options
        .iter()
        .find(|(option, _)| *option == selector)
        .unwrap()
        .1
}

pub fn hash(left: Node, right: Node) -> Node {
    Sha256::digest([left, right].as_flattened()).into()
}

pub fn pack(bytes: &[u8]) -> Vec<Node> {
    let chunk = |bytes: &[u8]| {
        let mut chunk = [0; 32];
        chunk[..bytes.len()].copy_from_slice(bytes);
        chunk
    };
    bytes.chunks(32).map(chunk).collect()
}

pub fn pack_bits(bits: &[bool]) -> Vec<u8> {
    let byte = |bits: &[bool]| {
        let each = bits.iter().enumerate();
        each.map(|(n, bit)| u8::from(*bit) << n).sum()
    };
    bits.chunks(8).map(byte).collect()
}

pub fn depth(leaves: u128) -> u32 {
    leaves.max(1).next_power_of_two().ilog2()
}

fn zero(depth: u32) -> Node {
    match depth {
        0 => [0; 32],
        _ => hash(zero(depth - 1), zero(depth - 1)),
    }
}

pub fn tree(chunks: &[Node], depth: u32) -> Node {
    match (chunks, depth) {
        ([], depth) if depth > 4 => {
            let half = tree(&[], depth - 1);
            hash(half, half)
        }
        ([], depth) => zero(depth),
        ([chunk], 0) => *chunk,
        _ => {
            let half = (1_u128 << (depth - 1)).min(chunks.len() as u128) as usize;
            hash(
                tree(&chunks[..half], depth - 1),
                tree(&chunks[half..], depth - 1),
            )
        }
    }
}

pub fn progressive(chunks: &[Node], depth: u32) -> Node {
    if chunks.is_empty() {
        return [0; 32];
    }
    let (now, later) = chunks.split_at(chunks.len().min(1 << depth));
    hash(tree(now, depth), progressive(later, depth + 2))
}

pub fn list(chunks: &[Node], limit: Option<u128>, len: usize) -> Node {
    let root = match limit {
        Some(limit) => tree(chunks, depth(limit)),
        None => progressive(chunks, 0),
    };
    hash(root, pack(&(len as u64).to_le_bytes())[0])
}
