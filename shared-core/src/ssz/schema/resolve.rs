//! Compilation of definitions to types.

use std::collections::BTreeMap;

use super::fork::EXECUTION;
use super::source::{read, Definition, DefinitionKind, FieldLine};
use super::tokens::{SchemaError, Token, Tokens};
use super::{
    Container, Field, Fork, Json, Kind, Limit, Names, Preset, Schema, Template, Type, TypeId,
    Words, OFFSET,
};

/// Maximum nesting depth of containers, more than any type has.
const MAX_DEPTH: usize = 32;

/// The definitions of a fork's type table and of the earlier ones, by name, while they are
/// compiled.
#[derive(Debug)]
pub(super) struct Definitions {
    pub(super) by_name: BTreeMap<String, Definition>,
}

impl Definitions {
    pub(super) fn type_names(&self) -> impl Iterator<Item = &str> {
        let is_type = |(_, definition): &(&String, &Definition)| {
            !matches!(definition.means, DefinitionKind::Constant(_))
        };
        let names = self.by_name.iter().filter(is_type);
        names.map(|(name, _)| name.as_str())
    }
}

impl Schema {
    /// Compiles the types of a fork and preset with other values for some constants. The limits of
    /// an execution witness are not final.
    ///
    /// # Errors
    /// [`SchemaError`] if the constant does not exist, or can't have the value.
    pub fn with_limits(
        fork: Fork,
        preset: Preset,
        limits: &[(&str, u64)],
    ) -> Result<Self, SchemaError> {
        let mut by_name = BTreeMap::new();
        read("execution", EXECUTION, preset, &mut by_name)?;
        for earlier in Fork::ALL.iter().filter(|earlier| **earlier <= fork) {
            read(earlier.name(), earlier.table(), preset, &mut by_name)?;
        }
        Self::compile(by_name, limits)
    }

    /// Compiles the types of one table that belongs to no fork, for tests of the walkers.
    ///
    /// # Errors
    /// [`SchemaError`] with the line of the error.
    pub fn from_table(text: &str) -> Result<Self, SchemaError> {
        let mut by_name = BTreeMap::new();
        read("table", text, Preset::Mainnet, &mut by_name)?;
        Self::compile(by_name, &[])
    }

    pub(super) fn compile(
        mut by_name: BTreeMap<String, Definition>,
        limits: &[(&str, u64)],
    ) -> Result<Self, SchemaError> {
        for (name, value) in limits {
            match by_name
                .get_mut(*name)
                .map(|definition| &mut definition.means)
            {
                Some(DefinitionKind::Constant(text)) => *text = value.to_string(),
                _ => return Err(SchemaError::new(format!("unknown constant {name}"))),
            }
        }
        let mut schema = Self {
            types: Vec::new(),
            ids: BTreeMap::new(),
            definitions: Definitions { by_name },
        };
        let names: Vec<String> = schema.definitions.type_names().map(Into::into).collect();
        for name in names {
            schema.named_type(&name, 0)?;
        }
        Ok(schema)
    }

    /// Parses a type expression: `SignedBeaconBlock`, `List[Withdrawal, 16]`.
    ///
    /// # Errors
    /// [`SchemaError`] with the reason.
    pub fn parse(&mut self, text: &str) -> Result<TypeId, SchemaError> {
        self.expression(text, 0)
    }

    fn expression(&mut self, text: &str, depth: usize) -> Result<TypeId, SchemaError> {
        let mut tokens = Tokens::new(text);
        let id = self.type_of(&mut tokens, depth)?;
        tokens.end()?;
        Ok(id)
    }

    fn named_type(&mut self, name: &str, depth: usize) -> Result<TypeId, SchemaError> {
        if let Some(id) = self.ids.get(name) {
            return Ok(*id);
        }
        if depth > MAX_DEPTH {
            return Err(SchemaError::new(format!("{name} contains itself")));
        }
        let Some(Definition { place, means }) = self.definitions.by_name.get(name).cloned() else {
            return Err(SchemaError::new(format!("unknown type {name}")));
        };
        let (source, line) = place;
        let id = match means {
            DefinitionKind::Constant(_) => Err(SchemaError::new(format!("{name} is not a type"))),
            DefinitionKind::Alias(text) => self.expression(&text, depth + 1),
            DefinitionKind::Class { active, fields, .. } => self
                .container(active.as_deref(), &fields, depth)
                .map(|kind| self.add(name.into(), kind, Json::Usual)),
        };
        let id = id.map_err(|bad| bad.at(source, line))?;
        self.ids.insert(name.into(), id);
        Ok(id)
    }

    fn container(
        &mut self,
        active: Option<&str>,
        lines: &[FieldLine],
        depth: usize,
    ) -> Result<Kind, SchemaError> {
        if lines.is_empty() {
            return Err(SchemaError::new("the container has no fields"));
        }
        let mut fields = Vec::new();
        let mut offset = 0;
        for line in lines {
            let ty = self
                .expression(&line.ty, depth + 1)
                .map_err(|bad| bad.at(line.place.0, line.place.1))?;
            fields.push(Field {
                name: line.name.as_str().into(),
                json_name: line.json_name.as_str().into(),
                ty,
                offset,
            });
            offset += self.get(ty).size.unwrap_or(OFFSET);
        }
        let active_fields = active.map(|text| self.active_fields(text)).transpose()?;
        if let Some(active) = &active_fields {
            let count = active.iter().filter(|is_active| **is_active).count();
            if count != fields.len() || active.last() != Some(&true) || active.len() > 256 {
                return Err(SchemaError::new("active_fields do not match the fields"));
            }
        }
        let is_variable = |n: &usize| self.get(fields[*n].ty).size.is_none();
        let variable = (0..fields.len()).filter(is_variable).collect();
        let bounds = self.fixed_field_bounds(&fields);
        // a set of fields is one word
        if fields.len() > 64 {
            return Err(SchemaError::new("the container has more than 64 fields"));
        }
        let mut container = Container {
            names: Names::new(
                fields
                    .iter()
                    .map(|field| (&*field.json_name, self.get(field.ty).opening())),
            ),
            fields: fields.into(),
            fixed_size: offset,
            variable,
            bounds,
            active_fields,
            template: None,
        };
        container.template = Template::new(self, &container).map(Box::new);
        Ok(Kind::Container(container))
    }

    /// Parses the list of a container's active fields: `[1, 0, 1]`, `[1] * 3`, `[1] * 3 + [0, 1]`.
    fn active_fields(&self, text: &str) -> Result<Box<[bool]>, SchemaError> {
        let mut tokens = Tokens::new(text);
        let mut all = Vec::new();
        loop {
            tokens.expect('[')?;
            let mut active = Vec::new();
            loop {
                match tokens.next()? {
                    Some(Token::Number(bit @ 0..=1)) => active.push(bit == 1),
                    _ => return Err(SchemaError::new("active_fields must be 0 or 1")),
                }
                if !tokens.accept(',')? {
                    break;
                }
            }
            tokens.expect(']')?;
            if tokens.accept('*')? {
                let times = self.definitions.product(&mut tokens)?;
                // a tree of fields has at most 256 leaves
                let times = usize::try_from(times).ok().filter(|times| *times <= 256);
                let times = times.ok_or_else(|| SchemaError::new("more than 256 active_fields"))?;
                active = active.repeat(times);
            }
            all.extend(active);
            if !tokens.accept('+')? {
                break;
            }
        }
        tokens.end()?;
        Ok(all.into())
    }

    fn type_of(&mut self, tokens: &mut Tokens<'_>, depth: usize) -> Result<TypeId, SchemaError> {
        let name = tokens.name()?;
        let kind = match name {
            "uint8" => Kind::Uint(1),
            "uint16" => Kind::Uint(2),
            "uint32" => Kind::Uint(4),
            "uint64" => Kind::Uint(8),
            "uint128" => Kind::Uint(16),
            "uint256" => Kind::Uint(32),
            "boolean" => Kind::Boolean,
            "ProgressiveByteList" => Kind::ByteList(Limit::Progressive),
            "ProgressiveBitlist" => Kind::Bitlist(Limit::Progressive),
            "ByteVector" => Kind::ByteVector(self.definitions.only_length(tokens)?),
            "Bitvector" => Kind::Bitvector(self.definitions.only_length(tokens)?),
            "ByteList" => Kind::ByteList(Limit::AtMost(self.definitions.only_number(tokens)?)),
            "Bitlist" => Kind::Bitlist(Limit::AtMost(self.definitions.only_number(tokens)?)),
            "Text" => Kind::Text(self.definitions.only_number(tokens)?),
            "ProgressiveList" => Kind::List(self.only_type(tokens, depth)?, Limit::Progressive),
            "Optional" => Kind::Optional(self.only_type(tokens, depth)?),
            "List" | "Vector" => {
                tokens.expect('[')?;
                let of = self.type_of(tokens, depth)?;
                tokens.expect(',')?;
                let kind = match name {
                    "List" => Kind::List(of, Limit::AtMost(self.definitions.number(tokens)?)),
                    _ => Kind::Vector(of, self.definitions.length(tokens)?),
                };
                tokens.expect(']')?;
                kind
            }
            "RlpHeader" => {
                let limit = self.definitions.only_number(tokens)?;
                let kind = Kind::ByteList(Limit::AtMost(limit));
                return Ok(self.find_or_add(format!("RlpHeader[{limit}]"), kind, Json::Header));
            }
            "Rlp" => {
                let of = self.only_type(tokens, depth)?;
                let of = self.get(of);
                let (name, kind) = (format!("Rlp[{}]", of.name), of.kind.clone());
                return Ok(self.find_or_add(name, kind, Json::Rlp));
            }
            "Quantity" => {
                let of = self.only_type(tokens, depth)?;
                match self.get(of).kind {
                    Kind::Uint(bytes) => Kind::Quantity(bytes),
                    _ => return Err(SchemaError::new("a quantity must have an unsigned integer")),
                }
            }
            "Enum" => Kind::Enum(words(tokens)?),
            "CompatibleUnion" => Kind::Union(self.options(tokens, depth)?),
            name => return self.named_type(name, depth),
        };
        if let Kind::ByteVector(0) | Kind::Bitvector(0) | Kind::Vector(_, 0) = kind {
            return Err(SchemaError::new("a vector of length 0"));
        }
        let name = self.name_of(&kind);
        Ok(self.find_or_add(name, kind, Json::Usual))
    }

    fn find_or_add(&mut self, name: String, kind: Kind, json: Json) -> TypeId {
        match self.ids.get(&name) {
            Some(id) => *id,
            None => {
                let id = self.add(name.clone(), kind, json);
                self.ids.insert(name, id);
                id
            }
        }
    }

    /// Parses the options of a union: `({1: TYPE, 2: TYPE})`.
    fn options(
        &mut self,
        tokens: &mut Tokens<'_>,
        depth: usize,
    ) -> Result<Box<[(u8, TypeId)]>, SchemaError> {
        tokens.expect('(')?;
        tokens.expect('{')?;
        let mut options: Vec<(u8, TypeId)> = Vec::new();
        loop {
            let selector = match tokens.next()? {
                // EIP-8016
                Some(Token::Number(selector @ 1..=127)) => selector as u8,
                _ => return Err(SchemaError::new("a selector must be 1 to 127")),
            };
            tokens.expect(':')?;
            let ty = self.type_of(tokens, depth + 1)?;
            if options.iter().any(|(other, _)| *other == selector) {
                return Err(SchemaError::new(format!(
                    "selector {selector} occurs twice"
                )));
            }
            options.push((selector, ty));
            if !tokens.accept(',')? {
                break;
            }
        }
        tokens.expect('}')?;
        tokens.expect(')')?;
        Ok(options.into())
    }

    fn only_type(&mut self, tokens: &mut Tokens<'_>, depth: usize) -> Result<TypeId, SchemaError> {
        tokens.expect('[')?;
        let id = self.type_of(tokens, depth)?;
        tokens.expect(']')?;
        Ok(id)
    }

    fn name_of(&self, kind: &Kind) -> String {
        let name = |id: &TypeId| &self.get(*id).name;
        match kind {
            Kind::Uint(bytes) => format!("uint{}", 8 * bytes),
            Kind::Quantity(bytes) => format!("Quantity[uint{}]", 8 * bytes),
            Kind::Boolean => "boolean".into(),
            Kind::ByteVector(len) => format!("ByteVector[{len}]"),
            Kind::ByteList(Limit::AtMost(limit)) => format!("ByteList[{limit}]"),
            Kind::ByteList(Limit::Progressive) => "ProgressiveByteList".into(),
            Kind::Bitvector(bits) => format!("Bitvector[{bits}]"),
            Kind::Bitlist(Limit::AtMost(limit)) => format!("Bitlist[{limit}]"),
            Kind::Bitlist(Limit::Progressive) => "ProgressiveBitlist".into(),
            Kind::Vector(of, len) => format!("Vector[{}, {len}]", name(of)),
            Kind::List(of, Limit::AtMost(limit)) => format!("List[{}, {limit}]", name(of)),
            Kind::List(of, Limit::Progressive) => format!("ProgressiveList[{}]", name(of)),
            Kind::Optional(of) => format!("Optional[{}]", name(of)),
            Kind::Text(limit) => format!("Text[{limit}]"),
            Kind::Enum(words) => {
                let read_only = words.read_only.iter();
                let read_only = read_only
                    .map(|(word, number)| format!(", {word} = {}", words[usize::from(*number)]));
                format!(
                    "Enum[{}{}]",
                    words.join(", "),
                    read_only.collect::<String>()
                )
            }
            Kind::Union(options) => {
                let option = |(selector, of): &(u8, TypeId)| format!("{selector}: {}", name(of));
                let options: Vec<String> = options.iter().map(option).collect();
                format!("CompatibleUnion({{{}}})", options.join(", "))
            }
            Kind::Container(_) => "Container".into(),
        }
    }

    fn add(&mut self, name: String, kind: Kind, json: Json) -> TypeId {
        let ty = Type {
            name: name.into(),
            size: self.size(&kind),
            min_size: self.min_size(&kind),
            is_plain: self.is_plain(&kind),
            bounds: self.bounds(&kind),
            kind,
            json,
        };
        self.types.push(ty);
        TypeId(self.types.len() as u32 - 1)
    }
}

/// Parses the words of an enumeration: `[VALID, INVALID, BAD = INVALID]`.
fn words(tokens: &mut Tokens<'_>) -> Result<Words, SchemaError> {
    tokens.expect('[')?;
    let mut words: Vec<Box<str>> = Vec::new();
    let mut read_only: Vec<(Box<str>, u8)> = Vec::new();
    loop {
        let word = tokens.name()?;
        if tokens.accept('=')? {
            let means = tokens.name()?;
            let number = words.iter().position(|known| **known == *means);
            let number = number.and_then(|number| u8::try_from(number).ok());
            let number = number.ok_or_else(|| SchemaError::new(format!("unknown word {means}")))?;
            read_only.push((word.into(), number));
        } else {
            words.push(word.into());
        }
        if !tokens.accept(',')? {
            break;
        }
    }
    tokens.expect(']')?;
    Ok(Words {
        words: words.into(),
        read_only: read_only.into(),
    })
}
