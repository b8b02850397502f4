//! Compilation of definitions to types.

use std::collections::BTreeMap;

use super::fork::EXECUTION_TYPE_TABLE;
use super::source::{read_type_table, DefinitionKind, SchemaDefinition, SchemaFieldLine};
use super::tokens::{SchemaError, TypeToken, TypeTokenizer};
use super::{
    ContainerField, ContainerLayout, EnumJsonWords, FieldNames, Fork, JsonRepresentationOverride,
    JsonTemplate, ListLimit, Preset, Schema, SszType, TypeId, TypeKind, OFFSET_LENGTH,
};

/// Maximum nesting depth of containers, more than any type has.
const MAX_TYPE_DEPTH: usize = 32;

/// The definitions by name, from a fork's type table and the earlier ones, from which a schema is
/// compiled.
#[derive(Debug)]
pub(super) struct SchemaDefinitions {
    pub(super) by_name: BTreeMap<String, SchemaDefinition>,
}

impl SchemaDefinitions {
    pub(super) fn type_names(&self) -> impl Iterator<Item = &str> {
        let is_type = |(_, definition): &(&String, &SchemaDefinition)| {
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
    pub fn compile_with_constants(
        fork: Fork,
        preset: Preset,
        limits: &[(&str, u64)],
    ) -> Result<Self, SchemaError> {
        let mut by_name = BTreeMap::new();
        read_type_table("execution", EXECUTION_TYPE_TABLE, preset, &mut by_name)?;
        for earlier in Fork::ALL.iter().filter(|earlier| **earlier <= fork) {
            read_type_table(
                earlier.name(),
                earlier.fork_type_table(),
                preset,
                &mut by_name,
            )?;
        }
        Self::compile_definitions(by_name, limits)
    }

    /// Compiles the types of one table that belongs to no fork, for tests of the walkers.
    ///
    /// # Errors
    /// [`SchemaError`] with the line of the error.
    pub fn compile_type_table(text: &str) -> Result<Self, SchemaError> {
        let mut by_name = BTreeMap::new();
        read_type_table("table", text, Preset::Mainnet, &mut by_name)?;
        Self::compile_definitions(by_name, &[])
    }

    /// Compiles all definitions to a schema, after the constants named in `limits` were set to
    /// their values.
    pub(super) fn compile_definitions(
        mut by_name: BTreeMap<String, SchemaDefinition>,
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
            definitions: SchemaDefinitions { by_name },
        };
        let names: Vec<String> = schema.definitions.type_names().map(Into::into).collect();
        for name in names {
            schema.compile_named_type(&name, 0)?;
        }
        Ok(schema)
    }

    /// Parses a type expression: `SignedBeaconBlock`, `List[Withdrawal, 16]`.
    ///
    /// # Errors
    /// [`SchemaError`] with the reason.
    pub fn parse_type(&mut self, text: &str) -> Result<TypeId, SchemaError> {
        self.parse_type_expression(text, 0)
    }

    /// Compiles the type expression in `text`, which must have nothing after it. `depth`: number of
    /// types that contain it.
    fn parse_type_expression(&mut self, text: &str, depth: usize) -> Result<TypeId, SchemaError> {
        let mut tokens = TypeTokenizer::new(text);
        let id = self.parse_type_tokens(&mut tokens, depth)?;
        tokens.expect_end()?;
        Ok(id)
    }

    /// Returns the type with this name, which is compiled on first use. A type that contains
    /// itself, or is unknown, is an error.
    fn compile_named_type(&mut self, name: &str, depth: usize) -> Result<TypeId, SchemaError> {
        if let Some(id) = self.ids.get(name) {
            return Ok(*id);
        }
        if depth > MAX_TYPE_DEPTH {
            return Err(SchemaError::new(format!("{name} contains itself")));
        }
        let Some(SchemaDefinition { place, means }) = self.definitions.by_name.get(name).cloned()
        else {
            return Err(SchemaError::new(format!("unknown type {name}")));
        };
        let (source, line) = place;
        let id = match means {
            DefinitionKind::Constant(_) => Err(SchemaError::new(format!("{name} is not a type"))),
            DefinitionKind::Alias(text) => self.parse_type_expression(&text, depth + 1),
            DefinitionKind::Class { active, fields, .. } => self
                .compile_container(active.as_deref(), &fields, depth)
                .map(|kind| self.add_type(name.into(), kind, JsonRepresentationOverride::Usual)),
        };
        let id = id.map_err(|bad| bad.with_location(source, line))?;
        self.ids.insert(name.into(), id);
        Ok(id)
    }

    /// Compiles a container from the lines of its fields. `active`: the list of active fields of a
    /// progressive container.
    fn compile_container(
        &mut self,
        active: Option<&str>,
        lines: &[SchemaFieldLine],
        depth: usize,
    ) -> Result<TypeKind, SchemaError> {
        if lines.is_empty() {
            return Err(SchemaError::new("the container has no fields"));
        }
        let mut fields = Vec::new();
        let mut offset = 0;
        for line in lines {
            let ty = self
                .parse_type_expression(&line.ty, depth + 1)
                .map_err(|bad| bad.with_location(line.place.0, line.place.1))?;
            fields.push(ContainerField {
                name: line.name.as_str().into(),
                json_name: line.json_name.as_str().into(),
                ty,
                offset,
            });
            offset += self.type_by_id(ty).size.unwrap_or(OFFSET_LENGTH);
        }
        let active_fields = active
            .map(|text| self.parse_active_fields(text))
            .transpose()?;
        if let Some(active) = &active_fields {
            let count = active.iter().filter(|is_active| **is_active).count();
            if count != fields.len() || active.last() != Some(&true) || active.len() > 256 {
                return Err(SchemaError::new("active_fields do not match the fields"));
            }
        }
        let is_variable = |n: &usize| self.type_by_id(fields[*n].ty).size.is_none();
        let variable = (0..fields.len()).filter(is_variable).collect();
        let bounds = self.fixed_field_value_bounds(&fields);
        // a set of fields is one word
        if fields.len() > 64 {
            return Err(SchemaError::new("the container has more than 64 fields"));
        }
        let mut container = ContainerLayout {
            names: FieldNames::new(fields.iter().map(|field| {
                (
                    &*field.json_name,
                    self.type_by_id(field.ty).constant_json_prefix(),
                )
            })),
            fields: fields.into(),
            fixed_size: offset,
            variable,
            bounds,
            active_fields,
            template: None,
        };
        container.template = JsonTemplate::new(self, &container).map(Box::new);
        Ok(TypeKind::Container(container))
    }

    /// Parses the list of a container's active fields: `[1, 0, 1]`, `[1] * 3`, `[1] * 3 + [0, 1]`.
    fn parse_active_fields(&self, text: &str) -> Result<Box<[bool]>, SchemaError> {
        let mut tokens = TypeTokenizer::new(text);
        let mut all = Vec::new();
        loop {
            tokens.expect_punctuation('[')?;
            let mut active = Vec::new();
            loop {
                match tokens.next_token()? {
                    Some(TypeToken::Number(bit @ 0..=1)) => active.push(bit == 1),
                    _ => return Err(SchemaError::new("active_fields must be 0 or 1")),
                }
                if !tokens.accept_punctuation(',')? {
                    break;
                }
            }
            tokens.expect_punctuation(']')?;
            if tokens.accept_punctuation('*')? {
                let times = self.definitions.parse_product(&mut tokens)?;
                // a tree of fields has at most 256 leaves
                let times = usize::try_from(times).ok().filter(|times| *times <= 256);
                let times = times.ok_or_else(|| SchemaError::new("more than 256 active_fields"))?;
                active = active.repeat(times);
            }
            all.extend(active);
            if !tokens.accept_punctuation('+')? {
                break;
            }
        }
        tokens.expect_end()?;
        Ok(all.into())
    }

    /// Compiles a type expression at the tokenizer's position, and advances past it. Tokens may
    /// follow.
    fn parse_type_tokens(
        &mut self,
        tokens: &mut TypeTokenizer<'_>,
        depth: usize,
    ) -> Result<TypeId, SchemaError> {
        let name = tokens.expect_name()?;
        let kind = match name {
            "uint8" => TypeKind::Uint(1),
            "uint16" => TypeKind::Uint(2),
            "uint32" => TypeKind::Uint(4),
            "uint64" => TypeKind::Uint(8),
            "uint128" => TypeKind::Uint(16),
            "uint256" => TypeKind::Uint(32),
            "boolean" => TypeKind::Boolean,
            "ProgressiveByteList" => TypeKind::ByteList(ListLimit::Progressive),
            "ProgressiveBitlist" => TypeKind::Bitlist(ListLimit::Progressive),
            "ByteVector" => TypeKind::ByteVector(self.definitions.parse_bracketed_length(tokens)?),
            "Bitvector" => TypeKind::Bitvector(self.definitions.parse_bracketed_length(tokens)?),
            "ByteList" => TypeKind::ByteList(ListLimit::AtMost(
                self.definitions.parse_bracketed_number(tokens)?,
            )),
            "Bitlist" => TypeKind::Bitlist(ListLimit::AtMost(
                self.definitions.parse_bracketed_number(tokens)?,
            )),
            "Text" => TypeKind::Text(self.definitions.parse_bracketed_number(tokens)?),
            "ProgressiveList" => TypeKind::List(
                self.parse_bracketed_type(tokens, depth)?,
                ListLimit::Progressive,
            ),
            "Optional" => TypeKind::Optional(self.parse_bracketed_type(tokens, depth)?),
            "List" | "Vector" => {
                tokens.expect_punctuation('[')?;
                let of = self.parse_type_tokens(tokens, depth)?;
                tokens.expect_punctuation(',')?;
                let kind = match name {
                    "List" => {
                        TypeKind::List(of, ListLimit::AtMost(self.definitions.parse_sum(tokens)?))
                    }
                    _ => TypeKind::Vector(of, self.definitions.parse_length(tokens)?),
                };
                tokens.expect_punctuation(']')?;
                kind
            }
            "RlpHeader" => {
                let limit = self.definitions.parse_bracketed_number(tokens)?;
                let kind = TypeKind::ByteList(ListLimit::AtMost(limit));
                return Ok(self.find_or_add(
                    format!("RlpHeader[{limit}]"),
                    kind,
                    JsonRepresentationOverride::Header,
                ));
            }
            "Rlp" => {
                let of = self.parse_bracketed_type(tokens, depth)?;
                let of = self.type_by_id(of);
                let (name, kind) = (format!("Rlp[{}]", of.name), of.kind.clone());
                return Ok(self.find_or_add(name, kind, JsonRepresentationOverride::Rlp));
            }
            "Quantity" => {
                let of = self.parse_bracketed_type(tokens, depth)?;
                match self.type_by_id(of).kind {
                    TypeKind::Uint(bytes) => TypeKind::Quantity(bytes),
                    _ => return Err(SchemaError::new("a quantity must have an unsigned integer")),
                }
            }
            "Enum" => TypeKind::Enum(parse_ssz_enum_words(tokens)?),
            "CompatibleUnion" => TypeKind::Union(self.parse_union_options(tokens, depth)?),
            name => return self.compile_named_type(name, depth),
        };
        if let TypeKind::ByteVector(0) | TypeKind::Bitvector(0) | TypeKind::Vector(_, 0) = kind {
            return Err(SchemaError::new("a vector of length 0"));
        }
        let name = self.name_of_kind(&kind);
        Ok(self.find_or_add(name, kind, JsonRepresentationOverride::Usual))
    }

    /// Returns the type with this name, which is added if it is not present.
    fn find_or_add(
        &mut self,
        name: String,
        kind: TypeKind,
        json: JsonRepresentationOverride,
    ) -> TypeId {
        match self.ids.get(&name) {
            Some(id) => *id,
            None => {
                let id = self.add_type(name.clone(), kind, json);
                self.ids.insert(name, id);
                id
            }
        }
    }

    /// Parses the options of a union: `({1: TYPE, 2: TYPE})`.
    fn parse_union_options(
        &mut self,
        tokens: &mut TypeTokenizer<'_>,
        depth: usize,
    ) -> Result<Box<[(u8, TypeId)]>, SchemaError> {
        tokens.expect_punctuation('(')?;
        tokens.expect_punctuation('{')?;
        let mut options: Vec<(u8, TypeId)> = Vec::new();
        loop {
            let selector = match tokens.next_token()? {
                // EIP-8016
                Some(TypeToken::Number(selector @ 1..=127)) => selector as u8,
                _ => return Err(SchemaError::new("a selector must be 1 to 127")),
            };
            tokens.expect_punctuation(':')?;
            let ty = self.parse_type_tokens(tokens, depth + 1)?;
            if options.iter().any(|(other, _)| *other == selector) {
                return Err(SchemaError::new(format!(
                    "selector {selector} occurs twice"
                )));
            }
            options.push((selector, ty));
            if !tokens.accept_punctuation(',')? {
                break;
            }
        }
        tokens.expect_punctuation('}')?;
        tokens.expect_punctuation(')')?;
        Ok(options.into())
    }

    /// Compiles a type expression in square brackets.
    fn parse_bracketed_type(
        &mut self,
        tokens: &mut TypeTokenizer<'_>,
        depth: usize,
    ) -> Result<TypeId, SchemaError> {
        tokens.expect_punctuation('[')?;
        let id = self.parse_type_tokens(tokens, depth)?;
        tokens.expect_punctuation(']')?;
        Ok(id)
    }

    /// Returns the name of an anonymous type as a type expression, such as `List[uint64, 16]`.
    fn name_of_kind(&self, kind: &TypeKind) -> String {
        let name = |id: &TypeId| &self.type_by_id(*id).name;
        match kind {
            TypeKind::Uint(bytes) => format!("uint{}", 8 * bytes),
            TypeKind::Quantity(bytes) => format!("Quantity[uint{}]", 8 * bytes),
            TypeKind::Boolean => "boolean".into(),
            TypeKind::ByteVector(len) => format!("ByteVector[{len}]"),
            TypeKind::ByteList(ListLimit::AtMost(limit)) => format!("ByteList[{limit}]"),
            TypeKind::ByteList(ListLimit::Progressive) => "ProgressiveByteList".into(),
            TypeKind::Bitvector(bits) => format!("Bitvector[{bits}]"),
            TypeKind::Bitlist(ListLimit::AtMost(limit)) => format!("Bitlist[{limit}]"),
            TypeKind::Bitlist(ListLimit::Progressive) => "ProgressiveBitlist".into(),
            TypeKind::Vector(of, len) => format!("Vector[{}, {len}]", name(of)),
            TypeKind::List(of, ListLimit::AtMost(limit)) => format!("List[{}, {limit}]", name(of)),
            TypeKind::List(of, ListLimit::Progressive) => format!("ProgressiveList[{}]", name(of)),
            TypeKind::Optional(of) => format!("Optional[{}]", name(of)),
            TypeKind::Text(limit) => format!("Text[{limit}]"),
            TypeKind::Enum(words) => {
                let read_only = words.read_only.iter();
                let read_only = read_only
                    .map(|(word, number)| format!(", {word} = {}", words[usize::from(*number)]));
                format!(
                    "Enum[{}{}]",
                    words.join(", "),
                    read_only.collect::<String>()
                )
            }
            TypeKind::Union(options) => {
                let option = |(selector, of): &(u8, TypeId)| format!("{selector}: {}", name(of));
                let options: Vec<String> = options.iter().map(option).collect();
                format!("CompatibleUnion({{{}}})", options.join(", "))
            }
            TypeKind::Container(_) => "Container".into(),
        }
    }

    /// Adds a type with the sizes and bounds that follow from its kind.
    fn add_type(
        &mut self,
        name: String,
        kind: TypeKind,
        json: JsonRepresentationOverride,
    ) -> TypeId {
        let ty = SszType {
            name: name.into(),
            size: self.fixed_size_of(&kind),
            min_size: self.min_size_of(&kind),
            is_plain: self.accepts_any_bytes(&kind),
            bounds: self.byte_bounds(&kind),
            kind,
            json,
        };
        self.types.push(ty);
        TypeId(self.types.len() as u32 - 1)
    }
}

/// Parses the words of an enumeration: `[VALID, INVALID, BAD = INVALID]`.
fn parse_ssz_enum_words(tokens: &mut TypeTokenizer<'_>) -> Result<EnumJsonWords, SchemaError> {
    tokens.expect_punctuation('[')?;
    let mut words: Vec<Box<str>> = Vec::new();
    let mut read_only: Vec<(Box<str>, u8)> = Vec::new();
    loop {
        let word = tokens.expect_name()?;
        if tokens.accept_punctuation('=')? {
            let means = tokens.expect_name()?;
            let number = words.iter().position(|known| **known == *means);
            let number = number.and_then(|number| u8::try_from(number).ok());
            let number = number.ok_or_else(|| SchemaError::new(format!("unknown word {means}")))?;
            read_only.push((word.into(), number));
        } else {
            words.push(word.into());
        }
        if !tokens.accept_punctuation(',')? {
            break;
        }
    }
    tokens.expect_punctuation(']')?;
    Ok(EnumJsonWords {
        words: words.into(),
        read_only: read_only.into(),
    })
}
