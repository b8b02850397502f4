//! From what the tables say to types.

use std::collections::BTreeMap;

use super::fork::EXECUTION;
use super::source::{read, Definition, FieldLine, Meaning};
use super::text::{BadSchema, Token, Tokens};
use super::{
    Container, Field, Fork, Json, Kind, Limit, Names, Preset, Schema, Template, Type, TypeId,
    OFFSET,
};

/// More containers inside each other than any type has.
const MAX_DEPTH: usize = 32;

/// Longer lists of bounds are no quicker than the rules themselves.
const MAX_BOUNDS: usize = 64;

/// What the tables of a fork and those before it say.
#[derive(Debug)]
pub(super) struct Definitions {
    by_name: BTreeMap<String, Definition>,
}

impl Definitions {
    pub(super) fn type_names(&self) -> impl Iterator<Item = &str> {
        let is_type =
            |(_, what): &(&String, &Definition)| !matches!(what.means, Meaning::Constant(_));
        let names = self.by_name.iter().filter(is_type);
        names.map(|(name, _)| name.as_str())
    }
}

impl Schema {
    /// The types of a fork and preset, with other values for some constants:
    /// the limits of an execution witness are not settled.
    ///
    /// # Errors
    /// [`BadSchema`]: there is no such constant, or it can't have that value.
    pub fn with_limits(
        fork: Fork,
        preset: Preset,
        limits: &[(&str, u64)],
    ) -> Result<Self, BadSchema> {
        let mut by_name = BTreeMap::new();
        read("execution", EXECUTION, preset, &mut by_name)?;
        for earlier in Fork::ALL.iter().filter(|earlier| **earlier <= fork) {
            read(earlier.name(), earlier.table(), preset, &mut by_name)?;
        }
        Self::compile(by_name, limits)
    }

    /// The types of one table, which is of no fork: for tests of the walkers.
    ///
    /// # Errors
    /// [`BadSchema`] says in which line it is wrong.
    pub fn from_table(text: &str) -> Result<Self, BadSchema> {
        let mut by_name = BTreeMap::new();
        read("table", text, Preset::Mainnet, &mut by_name)?;
        Self::compile(by_name, &[])
    }

    fn compile(
        mut by_name: BTreeMap<String, Definition>,
        limits: &[(&str, u64)],
    ) -> Result<Self, BadSchema> {
        for (name, value) in limits {
            match by_name
                .get_mut(*name)
                .map(|definition| &mut definition.means)
            {
                Some(Meaning::Constant(text)) => *text = value.to_string(),
                _ => return Err(BadSchema::new(format!("{name} is no constant"))),
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

    /// A type as it is written: `SignedBeaconBlock`, `List[Withdrawal, 16]`.
    ///
    /// # Errors
    /// [`BadSchema`] says what is wrong with it.
    pub fn parse(&mut self, text: &str) -> Result<TypeId, BadSchema> {
        self.expression(text, 0)
    }

    fn expression(&mut self, text: &str, depth: usize) -> Result<TypeId, BadSchema> {
        let mut tokens = Tokens::new(text);
        let id = self.type_of(&mut tokens, depth)?;
        tokens.end()?;
        Ok(id)
    }

    fn named_type(&mut self, name: &str, depth: usize) -> Result<TypeId, BadSchema> {
        if let Some(id) = self.ids.get(name) {
            return Ok(*id);
        }
        if depth > MAX_DEPTH {
            return Err(BadSchema::new(format!("{name} is part of itself")));
        }
        let Some(Definition { place, means }) = self.definitions.by_name.get(name).cloned() else {
            return Err(BadSchema::new(format!("{name} is no type here")));
        };
        let (source, line) = place;
        let id = match means {
            Meaning::Constant(_) => Err(BadSchema::new(format!("{name} is no type"))),
            Meaning::Alias(text) => self.expression(&text, depth + 1),
            Meaning::Class { active, fields } => self
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
    ) -> Result<Kind, BadSchema> {
        if lines.is_empty() {
            return Err(BadSchema::new("it has no fields"));
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
                return Err(BadSchema::new("active_fields don't fit its fields"));
            }
        }
        let is_variable = |n: &usize| self.get(fields[*n].ty).size.is_none();
        let variable = (0..fields.len()).filter(is_variable).collect();
        let bounds = self.bounds_of(&fields);
        // a set of them is one word
        if fields.len() > 64 {
            return Err(BadSchema::new("it has more than 64 fields"));
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
        container.template = Template::new(self, &container);
        Ok(Kind::Container(container))
    }

    /// `[1, 0, 1]`, `[1] * 3`.
    fn active_fields(&self, text: &str) -> Result<Box<[bool]>, BadSchema> {
        let mut tokens = Tokens::new(text);
        tokens.expect('[')?;
        let mut active = Vec::new();
        loop {
            match tokens.next()? {
                Some(Token::Number(bit @ 0..=1)) => active.push(bit == 1),
                _ => return Err(BadSchema::new("active_fields are 0 and 1")),
            }
            if !tokens.takes(',')? {
                break;
            }
        }
        tokens.expect(']')?;
        if tokens.takes('*')? {
            let times = self.length(&mut tokens)?;
            active = active.repeat(times);
        }
        tokens.end()?;
        Ok(active.into())
    }

    fn type_of(&mut self, tokens: &mut Tokens<'_>, depth: usize) -> Result<TypeId, BadSchema> {
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
            "ByteVector" => Kind::ByteVector(self.only_length(tokens)?),
            "Bitvector" => Kind::Bitvector(self.only_length(tokens)?),
            "ByteList" => Kind::ByteList(Limit::AtMost(self.only_number(tokens)?)),
            "Bitlist" => Kind::Bitlist(Limit::AtMost(self.only_number(tokens)?)),
            "Text" => Kind::Text(self.only_number(tokens)?),
            "ProgressiveList" => Kind::List(self.only_type(tokens, depth)?, Limit::Progressive),
            "Optional" => Kind::Optional(self.only_type(tokens, depth)?),
            "List" | "Vector" => {
                tokens.expect('[')?;
                let of = self.type_of(tokens, depth)?;
                tokens.expect(',')?;
                let kind = match name {
                    "List" => Kind::List(of, Limit::AtMost(self.number(tokens)?)),
                    _ => Kind::Vector(of, self.length(tokens)?),
                };
                tokens.expect(']')?;
                kind
            }
            "RlpHeader" => {
                let limit = self.only_number(tokens)?;
                let kind = Kind::ByteList(Limit::AtMost(limit));
                return Ok(self.find_or_add(format!("RlpHeader[{limit}]"), kind, Json::Header));
            }
            "Rlp" => {
                let of = self.only_type(tokens, depth)?;
                let of = self.get(of);
                let (name, kind) = (format!("Rlp[{}]", of.name), of.kind.clone());
                return Ok(self.find_or_add(name, kind, Json::Rlp));
            }
            "Enum" => Kind::Enum(words(tokens)?),
            "CompatibleUnion" => Kind::Union(self.options(tokens, depth)?),
            name => return self.named_type(name, depth),
        };
        if let Kind::ByteVector(0) | Kind::Bitvector(0) | Kind::Vector(_, 0) = kind {
            return Err(BadSchema::new("a vector of nothing"));
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

    /// `({1: TYPE, 2: TYPE})`.
    fn options(
        &mut self,
        tokens: &mut Tokens<'_>,
        depth: usize,
    ) -> Result<Box<[(u8, TypeId)]>, BadSchema> {
        tokens.expect('(')?;
        tokens.expect('{')?;
        let mut options: Vec<(u8, TypeId)> = Vec::new();
        loop {
            let selector = match tokens.next()? {
                // EIP-8016
                Some(Token::Number(selector @ 1..=127)) => selector as u8,
                _ => return Err(BadSchema::new("a selector is 1 to 127")),
            };
            tokens.expect(':')?;
            let ty = self.type_of(tokens, depth + 1)?;
            if options.iter().any(|(other, _)| *other == selector) {
                return Err(BadSchema::new(format!(
                    "selector {selector} is there twice"
                )));
            }
            options.push((selector, ty));
            if !tokens.takes(',')? {
                break;
            }
        }
        tokens.expect('}')?;
        tokens.expect(')')?;
        Ok(options.into())
    }

    fn only_type(&mut self, tokens: &mut Tokens<'_>, depth: usize) -> Result<TypeId, BadSchema> {
        tokens.expect('[')?;
        let id = self.type_of(tokens, depth)?;
        tokens.expect(']')?;
        Ok(id)
    }

    fn only_number(&self, tokens: &mut Tokens<'_>) -> Result<u64, BadSchema> {
        tokens.expect('[')?;
        let number = self.number(tokens)?;
        tokens.expect(']')?;
        Ok(number)
    }

    fn only_length(&self, tokens: &mut Tokens<'_>) -> Result<usize, BadSchema> {
        let number = self.only_number(tokens)?;
        usize::try_from(number).map_err(|_| BadSchema::new("a vector that fits no memory"))
    }

    fn length(&self, tokens: &mut Tokens<'_>) -> Result<usize, BadSchema> {
        let number = self.number(tokens)?;
        usize::try_from(number).map_err(|_| BadSchema::new("a vector that fits no memory"))
    }

    /// A sum of products, as Python reads it.
    fn number(&self, tokens: &mut Tokens<'_>) -> Result<u64, BadSchema> {
        let too_large = || BadSchema::new("more than 64 bits");
        let mut sum = self.product(tokens)?;
        loop {
            if tokens.takes('+')? {
                sum = sum
                    .checked_add(self.product(tokens)?)
                    .ok_or_else(too_large)?;
            } else if tokens.takes('-')? {
                sum = sum
                    .checked_sub(self.product(tokens)?)
                    .ok_or_else(too_large)?;
            } else {
                return Ok(sum);
            }
        }
    }

    fn product(&self, tokens: &mut Tokens<'_>) -> Result<u64, BadSchema> {
        let too_large = || BadSchema::new("more than 64 bits");
        let mut product = self.power(tokens)?;
        loop {
            if tokens.takes('*')? {
                product = product
                    .checked_mul(self.power(tokens)?)
                    .ok_or_else(too_large)?;
            } else if tokens.takes('/')? {
                product = product
                    .checked_div(self.power(tokens)?)
                    .ok_or_else(|| BadSchema::new("a division by nothing"))?;
            } else {
                return Ok(product);
            }
        }
    }

    fn power(&self, tokens: &mut Tokens<'_>) -> Result<u64, BadSchema> {
        let base = self.factor(tokens)?;
        if !tokens.takes('^')? {
            return Ok(base);
        }
        let power = u32::try_from(self.power(tokens)?).ok();
        let number = power.and_then(|power| base.checked_pow(power));
        number.ok_or_else(|| BadSchema::new("more than 64 bits"))
    }

    fn factor(&self, tokens: &mut Tokens<'_>) -> Result<u64, BadSchema> {
        if tokens.takes('(')? {
            let number = self.number(tokens)?;
            tokens.expect(')')?;
            return Ok(number);
        }
        match tokens.next()? {
            Some(Token::Number(number)) => Ok(number),
            // how deep in a tree the node of a generalized index is
            Some(Token::Name("floorlog2")) => {
                tokens.expect('(')?;
                let number = self.number(tokens)?;
                tokens.expect(')')?;
                let log = number.checked_ilog2().map(u64::from);
                log.ok_or_else(|| BadSchema::new("a logarithm of nothing"))
            }
            Some(Token::Name(name)) => {
                let constant = self.definitions.by_name.get(name);
                let Some(Definition {
                    place,
                    means: Meaning::Constant(text),
                }) = constant
                else {
                    return Err(BadSchema::new(format!("{name} is no constant here")));
                };
                let mut tokens = Tokens::new(text);
                let number = self.number(&mut tokens);
                let number = number.and_then(|number| tokens.end().map(|()| number));
                number.map_err(|bad| bad.at(place.0, place.1))
            }
            _ => Err(BadSchema::new("a number is missing")),
        }
    }

    fn name_of(&self, kind: &Kind) -> String {
        let name = |id: &TypeId| &self.get(*id).name;
        match kind {
            Kind::Uint(bytes) => format!("uint{}", 8 * bytes),
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
            Kind::Enum(words) => format!("Enum[{}]", words.join(", ")),
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

    fn size(&self, kind: &Kind) -> Option<usize> {
        match kind {
            Kind::Uint(bytes) => Some(*bytes),
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

    fn min_size(&self, kind: &Kind) -> usize {
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
            | Kind::Boolean
            | Kind::Enum(_)
            | Kind::ByteVector(_)
            | Kind::Bitvector(_) => self.size(kind).unwrap_or(0),
        }
    }

    fn bounds(&self, kind: &Kind) -> Option<Box<[(usize, u8)]>> {
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
                // most have none, however many they are
                let count = if bounds.is_empty() { 0 } else { *len };
                (0..count).flat_map(each).collect()
            }
            Kind::Container(container) => return container.bounds.clone(),
            _ => Vec::new(),
        };
        (bounds.len() <= MAX_BOUNDS).then(|| bounds.into())
    }

    /// Of the fields that have a size.
    fn bounds_of(&self, fields: &[Field]) -> Option<Box<[(usize, u8)]>> {
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

    fn is_plain(&self, kind: &Kind) -> bool {
        match kind {
            Kind::Uint(_) | Kind::ByteVector(_) => true,
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

/// `[VALID, INVALID]`.
fn words(tokens: &mut Tokens<'_>) -> Result<Box<[Box<str>]>, BadSchema> {
    tokens.expect('[')?;
    let mut words = vec![tokens.name()?.into()];
    while tokens.takes(',')? {
        words.push(tokens.name()?.into());
    }
    tokens.expect(']')?;
    Ok(words.into())
}
