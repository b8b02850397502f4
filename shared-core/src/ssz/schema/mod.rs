//! The types of one fork and preset.
//!
//! They are written in `forks/*.types`, one file a fork, much as the specs
//! write them (docs/forks.md), and compiled once into a table that the walkers
//! index.

mod fork;
mod measure;
mod names;
mod numbers;
mod resolve;
mod source;
mod template;
mod text;

use std::collections::BTreeMap;

pub use self::fork::{Fork, Preset};
pub use self::names::{Lead, Names, LEAD};
pub use self::template::{Leaf, Literal, Step, Template, LITERAL};
pub use self::text::BadSchema;

/// A type of a [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(u32);

/// The types of one fork and preset.
#[derive(Debug)]
pub struct Schema {
    types: Vec<Type>,
    /// By name, or by how they are written.
    ids: BTreeMap<String, TypeId>,
    definitions: resolve::Definitions,
}

/// A type, and what the walkers want to know of it.
#[derive(Clone, Debug)]
pub struct Type {
    /// As the specs write it: `Validator`, `List[Validator, 1099511627776]`.
    pub name: Box<str>,
    /// What it is made of.
    pub kind: Kind,
    /// How many bytes each value has, if all have as many.
    pub size: Option<usize>,
    /// The fewest bytes that a value has.
    pub min_size: usize,
    /// Any bytes, `size` of them, are a value.
    pub is_plain: bool,
    /// Of a type that has a size: which of its bytes must be below what. That
    /// is all there is to check of them, if there is such a list.
    pub bounds: Option<Box<[(usize, u8)]>>,
    /// How JSON has it.
    pub json: Json,
}

/// How JSON has a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Json {
    /// As its kind says.
    Usual,
    /// A header's RLP, or an object with its fields, which is read only.
    Header,
    /// A witness, as the hex of its RLP: `[headers, codes, state]`, and what
    /// may follow.
    Rlp,
}

/// What a type is made of.
#[derive(Clone, Debug)]
pub enum Kind {
    /// An unsigned number of 1, 2, 4, 8, 16 or 32 bytes. A decimal string in
    /// JSON.
    Uint(usize),
    /// `true` or `false`.
    Boolean,
    /// So many bytes. Hex in JSON.
    ByteVector(usize),
    /// Bytes. Hex in JSON.
    ByteList(Limit),
    /// So many bits. Hex of the SSZ in JSON.
    Bitvector(usize),
    /// Bits. Hex of the SSZ in JSON.
    Bitlist(Limit),
    /// So many values.
    Vector(TypeId, usize),
    /// Values.
    List(TypeId, Limit),
    /// Fields, by their names.
    Container(Container),
    /// One of several types, by a selector (EIP-7688, EIP-8016).
    Union(Box<[(u8, TypeId)]>),
    /// A list of at most one value in SSZ; `null` or the value in JSON. The
    /// Engine API's.
    Optional(TypeId),
    /// A list of bytes in SSZ, a text in JSON, of which only so many bytes are
    /// taken. The Engine API's.
    Text(u64),
    /// A byte in SSZ, one of these words in JSON. The Engine API's.
    Enum(Words),
    /// An unsigned number of so many bytes in SSZ, a quantity in JSON: hex without
    /// zeros before it. The Engine API's.
    Quantity(usize),
}

/// The words of an enumeration, in the order of their numbers.
#[derive(Clone, Debug)]
pub struct Words {
    words: Box<[Box<str>]>,
    /// Words that are read, and not written, and the number that each has.
    read_only: Box<[(Box<str>, u8)]>,
}

impl Words {
    /// The number of a word that is read.
    pub fn find(&self, word: &str) -> Option<u8> {
        let number = self.words.iter().position(|known| **known == *word);
        let number = number.and_then(|number| u8::try_from(number).ok());
        let read_only = self.read_only.iter().find(|(known, _)| **known == *word);
        number.or(read_only.map(|(_, number)| *number))
    }
}

impl std::ops::Deref for Words {
    type Target = [Box<str>];

    fn deref(&self) -> &[Box<str>] {
        &self.words
    }
}

impl Type {
    /// What a value in JSON begins with, whatever it is. Containers begin with
    /// their first field.
    pub fn opening(&self) -> &'static str {
        match self.kind {
            _ if self.json == Json::Rlp => "\"0x",
            Kind::ByteVector(_)
            | Kind::ByteList(_)
            | Kind::Bitvector(_)
            | Kind::Bitlist(_)
            | Kind::Quantity(_) => "\"0x",
            Kind::Uint(_) | Kind::Enum(_) => "\"",
            Kind::Vector(..) | Kind::List(..) => "[",
            Kind::Boolean
            | Kind::Container(_)
            | Kind::Union(_)
            | Kind::Optional(_)
            | Kind::Text(_) => "",
        }
    }
}

/// How many elements a list may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Its root depends on that, too.
    AtMost(u64),
    /// Any number, and its root is made as EIP-7916 says.
    Progressive,
}

impl Limit {
    /// The most elements that are allowed.
    pub fn most(self) -> u64 {
        match self {
            Self::AtMost(limit) => limit,
            Self::Progressive => u64::MAX,
        }
    }

    /// Whether so many elements are allowed.
    pub fn allows(self, count: u64) -> bool {
        match self {
            Self::AtMost(limit) => count <= limit,
            Self::Progressive => true,
        }
    }
}

/// A container's fields.
#[derive(Clone, Debug)]
pub struct Container {
    /// In the order of the SSZ.
    pub fields: Box<[Field]>,
    /// How long the part is that holds the fixed-size fields, and the offsets
    /// of the others. Bytes.
    pub fixed_size: usize,
    /// Which fields have no size.
    pub variable: Box<[usize]>,
    /// Which bytes of the fixed part must be below what, if that is all there
    /// is to check of its fields that have a size.
    pub bounds: Option<Box<[(usize, u8)]>>,
    /// EIP-7495: which places of the tree its fields have.
    pub active_fields: Option<Box<[bool]>>,
    /// Its fields, by what they are called in JSON.
    pub names: Names,
    /// Its JSON as most write it, if it has no parts of parts.
    pub template: Option<Box<Template>>,
}

/// A field of a container.
#[derive(Clone, Debug)]
pub struct Field {
    /// Of the spec's.
    pub name: Box<str>,
    /// In JSON, if it is another one there.
    pub json_name: Box<str>,
    /// Its type.
    pub ty: TypeId,
    /// Where in the fixed part it, or its offset, lies. Bytes.
    pub offset: usize,
}

/// Bytes of an offset.
pub const OFFSET: usize = 4;

impl Schema {
    /// What a type is made of.
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// The type of that name.
    pub fn find(&self, name: &str) -> Option<TypeId> {
        self.ids.get(name).copied()
    }

    /// What has a name, in its order: containers, and other types that the
    /// tables name.
    pub fn named(&self) -> impl Iterator<Item = (&str, TypeId)> {
        self.definitions
            .type_names()
            .filter_map(|name| Some((name, self.find(name)?)))
    }
}

#[cfg(test)]
mod tests;
