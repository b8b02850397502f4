//! The types of one fork and preset.
//!
//! Types are written in `forks/*.types`, one file per fork, in nearly the notation of the
//! specifications (docs/forks.md), and compiled once into a table that the walkers index.

// Circle of imports: mod.rs, fork.rs, resolve.rs, source.rs, template.rs. A schema keeps the
// definitions from which it was compiled, and a container the template that is derived from it.
mod field_names;
mod fork;
mod numbers;
mod resolve;
mod size;
mod source;
mod template;
mod tokens;

use std::collections::BTreeMap;

pub use self::field_names::{FieldNames, FieldPrefix, FIELD_PREFIX_BYTES};
pub use self::fork::{Fork, Preset};
pub use self::template::{
    JsonTemplate, TemplateLiteral, TemplateScalarKind, TemplateStep, MAX_LITERAL_LENGTH,
};
pub use self::tokens::SchemaError;

/// The index of a type in the [`Schema`] that compiled it; other schemas give it another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(u32);

/// The compiled types of one fork and preset, which the walkers read.
#[derive(Debug)]
pub struct Schema {
    types: Vec<SszType>,
    /// Types by their name, or by their notation.
    ids: BTreeMap<String, TypeId>,
    definitions: resolve::SchemaDefinitions,
}

/// A compiled SSZ type: its name, kind, size and JSON representation, which the walkers read.
#[derive(Clone, Debug)]
pub struct SszType {
    /// The type in the notation of the specifications: `Validator`,
    /// `List[Validator, 1099511627776]`.
    pub name: Box<str>,
    /// The kind of the type.
    pub kind: TypeKind,
    /// Size of every value in bytes, if it is fixed.
    pub size: Option<usize>,
    /// Minimum size of a value in bytes.
    pub min_size: usize,
    /// Whether any `size` bytes are a valid value.
    pub is_plain: bool,
    /// Positions of bytes with exclusive upper bounds, for a type with a fixed size. If present,
    /// nothing else need be checked.
    pub bounds: Option<Box<[(usize, u8)]>>,
    /// The representation in JSON.
    pub json: JsonRepresentationOverride,
}

/// The representation of a type in JSON, where it differs from the usual one of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonRepresentationOverride {
    /// The representation of the type's kind.
    Usual,
    /// RLP of a header, or an object with its fields, which is only read.
    Header,
    /// A witness, as the hex of its RLP: `[headers, codes, state]`, optionally followed by more.
    Rlp,
}

/// The kind of a type, with the properties that determine its SSZ.
#[derive(Clone, Debug)]
pub enum TypeKind {
    /// An unsigned integer of 1, 2, 4, 8, 16 or 32 bytes. A decimal string in JSON.
    Uint(usize),
    /// A boolean: `true` or `false` in JSON.
    Boolean,
    /// Fixed number of bytes. Hex in JSON.
    ByteVector(usize),
    /// Variable number of bytes. Hex in JSON.
    ByteList(ListLimit),
    /// Fixed number of bits. Hex of the SSZ in JSON.
    Bitvector(usize),
    /// Variable number of bits. Hex of the SSZ in JSON.
    Bitlist(ListLimit),
    /// Fixed number of values.
    Vector(TypeId, usize),
    /// Variable number of values.
    List(TypeId, ListLimit),
    /// Named fields.
    Container(ContainerLayout),
    /// A value of one of several types, which a selector identifies (EIP-7688, EIP-8016).
    Union(Box<[(u8, TypeId)]>),
    /// A list of at most one value in SSZ; `null` or the value in JSON. Used by the Engine API.
    Optional(TypeId),
    /// A list of bytes in SSZ, a text in JSON, which is truncated to the given number of bytes.
    /// Used by the Engine API.
    Text(u64),
    /// A byte in SSZ, one of these words in JSON. Used by the Engine API.
    Enum(EnumJsonWords),
    /// An unsigned integer of the given number of bytes in SSZ; a quantity in JSON, which is hex
    /// without leading zeros. Used by the Engine API.
    Quantity(usize),
}

/// The words that stand for the values of an [`Enum`](TypeKind::Enum) in JSON, where SSZ has a
/// byte; the index of a word is its value.
#[derive(Clone, Debug)]
pub struct EnumJsonWords {
    words: Box<[Box<str>]>,
    /// Words that are read and never written, with their values.
    read_only: Box<[(Box<str>, u8)]>,
}

impl EnumJsonWords {
    /// Returns the byte that stands in SSZ for a word of the JSON; `None` if the word is not
    /// allowed.
    pub fn enum_word_value(&self, word: &str) -> Option<u8> {
        let number = self.words.iter().position(|known| **known == *word);
        let number = number.and_then(|number| u8::try_from(number).ok());
        let read_only = self.read_only.iter().find(|(known, _)| **known == *word);
        number.or(read_only.map(|(_, number)| *number))
    }
}

impl std::ops::Deref for EnumJsonWords {
    type Target = [Box<str>];

    fn deref(&self) -> &[Box<str>] {
        &self.words
    }
}

impl SszType {
    /// Returns the text with which every value of the type begins in JSON: a quote, `"0x`, a
    /// bracket, or nothing. Containers begin with their first field.
    pub fn constant_json_prefix(&self) -> &'static str {
        match self.kind {
            _ if self.json == JsonRepresentationOverride::Rlp => "\"0x",
            TypeKind::ByteVector(_)
            | TypeKind::ByteList(_)
            | TypeKind::Bitvector(_)
            | TypeKind::Bitlist(_)
            | TypeKind::Quantity(_) => "\"0x",
            TypeKind::Uint(_) | TypeKind::Enum(_) => "\"",
            TypeKind::Vector(..) | TypeKind::List(..) => "[",
            TypeKind::Boolean
            | TypeKind::Container(_)
            | TypeKind::Union(_)
            | TypeKind::Optional(_)
            | TypeKind::Text(_) => "",
        }
    }
}

/// The maximum number of elements, bytes or bits of a list, and the shape of its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListLimit {
    /// Maximum number of elements, on which the root depends.
    AtMost(u64),
    /// No maximum; the root is the root of a progressive tree (EIP-7916).
    Progressive,
}

impl ListLimit {
    /// Returns the maximum number of elements; `u64::MAX` for a list without one.
    pub fn max_elements(self) -> u64 {
        match self {
            Self::AtMost(limit) => limit,
            Self::Progressive => u64::MAX,
        }
    }

    /// Returns whether a list may have `count` elements.
    pub fn allows_count(self, count: u64) -> bool {
        match self {
            Self::AtMost(limit) => count <= limit,
            Self::Progressive => true,
        }
    }
}

/// The fields of a container, with their layout in SSZ and their names in JSON.
#[derive(Clone, Debug)]
pub struct ContainerLayout {
    /// Fields in the order of the SSZ.
    pub fields: Box<[ContainerField]>,
    /// Length of the fixed part in bytes, which contains the fixed-size fields and the offsets of
    /// the others.
    pub fixed_size: usize,
    /// Indices of the variable-size fields.
    pub variable: Box<[usize]>,
    /// Positions in the fixed part with exclusive upper bounds. If present, nothing else need be
    /// checked of the fixed-size fields.
    pub bounds: Option<Box<[(usize, u8)]>>,
    /// Active positions of the tree (EIP-7495).
    pub active_fields: Option<Box<[bool]>>,
    /// Names of the fields in JSON.
    pub names: FieldNames,
    /// Template of the JSON as most nodes write it, if the container has only simple fields.
    pub template: Option<Box<JsonTemplate>>,
}

/// One field of a container: its name, its type, and its position in the fixed part.
#[derive(Clone, Debug)]
pub struct ContainerField {
    /// Name in the specification.
    pub name: Box<str>,
    /// Name in JSON.
    pub json_name: Box<str>,
    /// Type of the field.
    pub ty: TypeId,
    /// Position of the field, or of its offset, in the fixed part, in bytes.
    pub offset: usize,
}

/// Length of an offset in bytes.
pub const OFFSET_LENGTH: usize = 4;

impl Schema {
    /// Returns the type of an identifier that this schema has issued.
    pub fn type_by_id(&self, id: TypeId) -> &SszType {
        &self.types[id.0 as usize]
    }

    /// Finds a type by its name in the type tables, or by its expression once it was parsed.
    pub fn find_type(&self, name: &str) -> Option<TypeId> {
        self.ids.get(name).copied()
    }

    /// Iterates over the types that the tables name, in the order of their names.
    pub fn named_types(&self) -> impl Iterator<Item = (&str, TypeId)> {
        self.definitions
            .type_names()
            .filter_map(|name| Some((name, self.find_type(name)?)))
    }
}

#[cfg(test)]
mod tests;
