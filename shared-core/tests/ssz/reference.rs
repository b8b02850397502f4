//! Reference walkers, slow and simple: they walk a tree by the letter of ssz/simple-serialize.md.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use sszip_core::ssz::schema::{ListLimit, TypeKind};
use sszip_core::ssz::{Schema, TypeId};

/// A type table with each kind of type, and their combinations.
pub const TABLE: &str = r#"
LIMIT = 5
class Point(Container):
    slot: uint64
    root: ByteVector[32]
class Flags(Container):
    a: boolean
    bits: Bitvector[11]
    small "smallOne": uint8
    point: Point
    wide: Vector[uint256, 2]
class Parts(Container):
    first: ByteList[40]
    number: uint64
    second: List[uint64, LIMIT]
    points: List[Point, LIMIT]
    bits: Bitlist[19]
    names: List[ByteList[7], LIMIT]
class Vote(Container):
    bits: Bitlist[19]
    point: Point
    an_offset_after_a_container: ByteList[9]
    slashed: boolean
    few "fewBits": Bitvector[11]
    number: uint64
class Named(Container):
    a_name_that_makes_just_forty_eight_bytes_xx: uint64
    number: uint64
class LongerNamed(Container):
    a_name_that_makes_just_forty_eight_bytes_xxx: uint64
    number: uint64
class Outer(Container):
    parts: Parts
    flags: Vector[Flags, 2]
    both: Vector[Parts, 2]
    many: ProgressiveList[Parts]
    none: Optional[Parts]
    one: Optional[Point]
    text: Text[30]
    status: Enum[VALID, INVALID, BAD = INVALID, SYNCING]
    long: ByteVector[300]
    open: ProgressiveByteList
    wide: uint128
    booleans: List[boolean, 9]
    sixteen: Vector[uint16, 3]
    flagged: List[Flags, 3]
    free: ProgressiveBitlist
    vectors: List[Bitvector[3], 4]
    votes: List[Vote, LIMIT]
    named: List[Named, 3]
    longer_named: List[LongerNamed, 3]
    quantity: Quantity[uint64]
    quantities: List[Quantity[uint256], 3]
class Places(ProgressiveContainer(active_fields=[1, 0, 0, 1, 1])):
    slot: uint64
    points: ProgressiveList[Point]
    parts: Parts
class Union(Container):
    value: CompatibleUnion({1: Point, 3: Parts, 7: Vote})
"#;

/// A JSON value as it is written: an object may have a name twice.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number,
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Json;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json::Null)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
                Ok(Json::Bool(value))
            }
            fn visit_u64<E>(self, _: u64) -> Result<Json, E> {
                Ok(Json::Number)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Json, E> {
                Ok(Json::Number)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
                Ok(Json::Number)
            }
            fn visit_str<E>(self, text: &str) -> Result<Json, E> {
                Ok(Json::Text(text.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = seq.next_element()? {
                    all.push(one);
                }
                Ok(Json::Array(all))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = map.next_entry()? {
                    all.push(one);
                }
                Ok(Json::Object(all))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

impl Json {
    /// Returns the value as JSON without white space.
    pub fn write(&self) -> String {
        match self {
            Self::Null => "null".into(),
            Self::Bool(value) => value.to_string(),
            Self::Number => "0".into(),
            Self::Text(text) => serde_json::to_string(text).unwrap(),
            Self::Array(all) => {
                let all: Vec<String> = all.iter().map(Self::write).collect();
                format!("[{}]", all.join(","))
            }
            Self::Object(all) => {
                let write = |(name, value): &(String, Self)| {
                    format!("{}:{}", serde_json::to_string(name).unwrap(), value.write())
                };
                let all: Vec<String> = all.iter().map(write).collect();
                format!("{{{}}}", all.join(","))
            }
        }
    }
}

fn allows(limit: ListLimit, count: usize) -> Option<()> {
    limit.allows_count(count as u64).then_some(())
}

/// Converts a value to SSZ; `None` if it is not a value of the type.
pub fn to_ssz(schema: &Schema, ty: TypeId, json: &Json) -> Option<Vec<u8>> {
    Some(match (&schema.type_by_id(ty).kind, json) {
        (TypeKind::Uint(size), Json::Text(text)) => number(text, *size)?,
        (TypeKind::Quantity(size), Json::Text(text)) => quantity(text, *size)?,
        (TypeKind::Boolean, Json::Bool(value)) => vec![u8::from(*value)],
        (TypeKind::ByteVector(len), Json::Text(text)) => {
            hex(text).filter(|bytes| bytes.len() == *len)?
        }
        (TypeKind::ByteList(limit), Json::Text(text)) => {
            hex(text).filter(|bytes| limit.allows_count(bytes.len() as u64))?
        }
        (TypeKind::Bitvector(bits), Json::Text(text)) => {
            let bytes = hex(text)?;
            let is_set = |bit: usize| bytes[bit / 8] >> (bit % 8) & 1 == 1;
            let right = bytes.len() == bits.div_ceil(8);
            (right && !(*bits..8 * bytes.len()).any(is_set)).then_some(bytes)?
        }
        (TypeKind::Bitlist(limit), Json::Text(text)) => {
            let bytes = hex(text)?;
            let bits = (0..8 * bytes.len()).rev();
            let delimiter = bits
                .clone()
                .find(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 1)?;
            allows(*limit, delimiter)?;
            (delimiter / 8 + 1 == bytes.len()).then_some(bytes)?
        }
        (TypeKind::Vector(of, len), Json::Array(all)) if all.len() == *len => {
            series(schema, all.iter().map(|one| (*of, one)))?
        }
        (TypeKind::List(of, limit), Json::Array(all)) => {
            allows(*limit, all.len())?;
            series(schema, all.iter().map(|one| (*of, one)))?
        }
        (TypeKind::Container(container), Json::Object(all)) => {
            let fields = container.fields.iter().map(|field| {
                let mut values = all.iter().filter(|(name, _)| **name == *field.json_name);
                match (values.next(), values.next()) {
                    (Some((_, value)), None) => Some((field.ty, value)),
                    (None, None) if is_optional(schema, field.ty) => Some((field.ty, &Json::Null)),
                    _ => None,
                }
            });
            series(schema, fields.collect::<Option<Vec<_>>>()?.into_iter())?
        }
        (TypeKind::Union(options), Json::Object(all)) => {
            let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            let known = |name: &&&str| ["selector", "data"].contains(*name);
            let known: Vec<&&str> = names.iter().filter(known).collect();
            if known != [&"selector", &"data"] {
                return None;
            }
            let value = |wanted: &str| all.iter().find(|(name, _)| name == wanted);
            let Json::Text(selector) = &value("selector")?.1 else {
                return None;
            };
            let selector = number(selector, 8)?;
            let (selector, of) = options
                .iter()
                .find(|(option, _)| u64::from(*option).to_le_bytes() == *selector)?;
            [vec![*selector], to_ssz(schema, *of, &value("data")?.1)?].concat()
        }
        (TypeKind::Optional(_), Json::Null) => Vec::new(),
        (TypeKind::Optional(of), value) => series(schema, [(*of, value)].into_iter())?,
        (TypeKind::Text(limit), Json::Text(text)) => {
            let mut cut = String::new();
            for character in text.chars() {
                if (cut.len() + character.len_utf8()) as u64 > *limit {
                    break;
                }
                cut.push(character);
            }
            cut.into_bytes()
        }
        (TypeKind::Enum(words), Json::Text(text)) => {
            // an alias of the table
            let known = if text == "BAD" { "INVALID" } else { text };
            vec![words.iter().position(|word| **word == *known)? as u8]
        }
        _ => return None,
    })
}

fn is_optional(schema: &Schema, ty: TypeId) -> bool {
    matches!(schema.type_by_id(ty).kind, TypeKind::Optional(_))
}

/// Serializes consecutive values, with offsets for those without a fixed size.
fn series<'j>(
    schema: &Schema,
    values: impl Iterator<Item = (TypeId, &'j Json)>,
) -> Option<Vec<u8>> {
    let mut parts = Vec::new();
    for (ty, value) in values {
        parts.push((
            schema.type_by_id(ty).size.is_some(),
            to_ssz(schema, ty, value)?,
        ));
    }
    let size = |(is_fixed, part): &(bool, Vec<u8>)| if *is_fixed { part.len() } else { 4 };
    let mut offset: usize = parts.iter().map(size).sum();
    let mut ssz = Vec::new();
    for (is_fixed, part) in &parts {
        if *is_fixed {
            ssz.extend(part);
        } else {
            ssz.extend((offset as u32).to_le_bytes());
            offset += part.len();
        }
    }
    for (_, part) in parts.iter().filter(|(is_fixed, _)| !is_fixed) {
        ssz.extend(part);
    }
    Some(ssz)
}

fn number(text: &str, size: usize) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let is_number = !digits.is_empty()
        && digits.iter().all(u8::is_ascii_digit)
        && (digits.len() == 1 || digits[0] != b'0');
    if !is_number {
        return None;
    }
    let mut value = vec![0_u8; size];
    for digit in digits {
        let mut carry = u32::from(digit - b'0');
        for byte in &mut value {
            carry += u32::from(*byte) * 10;
            *byte = carry as u8;
            carry >>= 8;
        }
        if carry > 0 {
            return None;
        }
    }
    Some(value)
}

fn quantity(text: &str, size: usize) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x")?.as_bytes();
    let is_number = !digits.is_empty()
        && digits.iter().all(u8::is_ascii_hexdigit)
        && (digits.len() == 1 || digits[0] != b'0');
    if !is_number {
        return None;
    }
    let even = format!("0x{}{}", "0".repeat(digits.len() % 2), &text[2..]);
    let mut value = hex(&even)?;
    value.reverse();
    if value.len() > size {
        return None;
    }
    value.resize(size, 0);
    Some(value)
}

fn to_quantity(bytes: &[u8]) -> Json {
    let digits: String = bytes
        .iter()
        .rev()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let digits = match digits.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    Json::Text(format!("0x{digits}"))
}

fn decimal(bytes: &[u8]) -> String {
    let mut digits = vec![0_u8];
    for byte in bytes.iter().rev() {
        let mut carry = u32::from(*byte);
        for digit in &mut digits {
            carry += u32::from(*digit) * 256;
            *digit = (carry % 10) as u8;
            carry /= 10;
        }
        while carry > 0 {
            digits.push((carry % 10) as u8);
            carry /= 10;
        }
    }
    digits
        .iter()
        .rev()
        .map(|digit| char::from(b'0' + digit))
        .collect()
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x")?.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?);
    digits.chunks(2).map(pair).collect()
}

fn to_hex(bytes: &[u8]) -> Json {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Json::Text(format!("0x{digits}"))
}

/// Converts SSZ to a value; `None` if it is not a value of the type.
pub fn to_json(schema: &Schema, ty: TypeId, ssz: &[u8]) -> Option<Json> {
    let ty = schema.type_by_id(ty);
    if ty.size.is_some_and(|size| size != ssz.len()) {
        return None;
    }
    Some(match &ty.kind {
        TypeKind::Uint(_) => Json::Text(decimal(ssz)),
        TypeKind::Quantity(_) => to_quantity(ssz),
        TypeKind::Boolean if ssz[0] < 2 => Json::Bool(ssz[0] == 1),
        TypeKind::ByteVector(_) => to_hex(ssz),
        TypeKind::ByteList(limit) => {
            allows(*limit, ssz.len())?;
            to_hex(ssz)
        }
        TypeKind::Bitvector(bits) => {
            let is_set = |bit: usize| ssz[bit / 8] >> (bit % 8) & 1 == 1;
            (!(*bits..8 * ssz.len()).any(is_set)).then(|| to_hex(ssz))?
        }
        TypeKind::Bitlist(limit) => {
            let last = ssz.last().filter(|last| **last != 0)?;
            allows(
                *limit,
                8 * (ssz.len() - 1) + (7 - last.leading_zeros() as usize),
            )?;
            to_hex(ssz)
        }
        TypeKind::Vector(of, len) => {
            let all = elements(schema, *of, ssz)?;
            (all.len() == *len).then_some(Json::Array(all))?
        }
        TypeKind::List(of, limit) => {
            let all = elements(schema, *of, ssz)?;
            allows(*limit, all.len())?;
            Json::Array(all)
        }
        TypeKind::Optional(of) => match elements(schema, *of, ssz)?.as_slice() {
            [] => Json::Null,
            [one] => one.clone(),
            _ => return None,
        },
        TypeKind::Container(container) => {
            let types: Vec<TypeId> = container.fields.iter().map(|field| field.ty).collect();
            let names = container
                .fields
                .iter()
                .map(|field| field.json_name.to_string());
            let values = split(schema, &types, ssz)?.into_iter().zip(&types);
            let values: Option<Vec<Json>> = values
                .map(|(part, ty)| to_json(schema, *ty, part))
                .collect();
            Json::Object(names.zip(values?).collect())
        }
        TypeKind::Union(options) => {
            let (selector, data) = ssz.split_first()?;
            let (_, of) = options.iter().find(|(option, _)| option == selector)?;
            Json::Object(vec![
                ("selector".into(), Json::Text(selector.to_string())),
                ("data".into(), to_json(schema, *of, data)?),
            ])
        }
        TypeKind::Text(limit) => {
            allows(ListLimit::AtMost(*limit), ssz.len())?;
            Json::Text(String::from_utf8(ssz.to_vec()).ok()?)
        }
        TypeKind::Enum(words) => Json::Text(words.get(usize::from(ssz[0]))?.to_string()),
        TypeKind::Boolean => return None,
    })
}

fn elements(schema: &Schema, of: TypeId, ssz: &[u8]) -> Option<Vec<Json>> {
    let count = match schema.type_by_id(of).size {
        Some(size) if ssz.len().is_multiple_of(size) => ssz.len() / size,
        Some(_) => return None,
        None if ssz.is_empty() => 0,
        None => {
            let first = u32::from_le_bytes(*ssz.first_chunk()?) as usize;
            (first.is_multiple_of(4) && first > 0 && first <= ssz.len()).then_some(first / 4)?
        }
    };
    let parts = split(schema, &vec![of; count], ssz)?;
    parts
        .into_iter()
        .map(|part| to_json(schema, of, part))
        .collect()
}

/// Returns the parts of consecutive values.
fn split<'s>(schema: &Schema, types: &[TypeId], ssz: &'s [u8]) -> Option<Vec<&'s [u8]>> {
    let mut rest = ssz;
    let mut parts = Vec::new();
    let mut offsets = Vec::new();
    for ty in types {
        let (part, more) = rest.split_at_checked(schema.type_by_id(*ty).size.unwrap_or(4))?;
        rest = more;
        if schema.type_by_id(*ty).size.is_none() {
            offsets.push((
                parts.len(),
                u32::from_le_bytes(*part.first_chunk()?) as usize,
            ));
        }
        parts.push(part);
    }
    let fixed = ssz.len() - rest.len();
    match offsets.first() {
        None if !rest.is_empty() => return None,
        Some((_, first)) if *first != fixed => return None,
        _ => {}
    }
    let ends = offsets
        .iter()
        .skip(1)
        .map(|(_, offset)| *offset)
        .chain([ssz.len()]);
    for ((part, begin), end) in offsets.iter().zip(ends) {
        parts[*part] = ssz.get(*begin..end)?;
    }
    Some(parts)
}

/// The decisions of a test that are taken from a fuzzer's bytes, one after the other.
pub struct FuzzedChoices<'b>(pub &'b [u8]);

impl FuzzedChoices<'_> {
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub fn below(&mut self, count: usize) -> usize {
        match count {
            0 | 1 => 0,
            2..=255 => usize::from(self.byte()) % count,
            _ => (usize::from(self.byte()) << 8 | usize::from(self.byte())) % count,
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        // a decision per byte would use up the input
        let (first, step) = (self.byte(), self.byte());
        (0..count)
            .map(|n| first.wrapping_add(step.wrapping_mul(n as u8)))
            .collect()
    }
}

/// Chooses a value of the type.
pub fn choose(schema: &Schema, ty: TypeId, choices: &mut FuzzedChoices<'_>) -> Json {
    let count = |choices: &mut FuzzedChoices<'_>, limit: ListLimit| match limit {
        ListLimit::AtMost(limit) => choices.below(limit.min(5) as usize + 1),
        ListLimit::Progressive => choices.below(5),
    };
    match &schema.type_by_id(ty).kind {
        TypeKind::Uint(size) => {
            let mut bytes = choices.bytes(*size);
            bytes[choices.below(size + 1)..].fill(0);
            Json::Text(decimal(&bytes))
        }
        TypeKind::Quantity(size) => {
            let mut bytes = choices.bytes(*size);
            bytes[choices.below(size + 1)..].fill(0);
            to_quantity(&bytes)
        }
        TypeKind::Boolean => Json::Bool(choices.below(2) == 1),
        TypeKind::ByteVector(len) => to_hex(&choices.bytes(*len)),
        TypeKind::ByteList(limit) => {
            let most = match limit {
                ListLimit::AtMost(limit) => (*limit).min(700) as usize,
                ListLimit::Progressive => 700,
            };
            let len = choices.below(most + 1);
            to_hex(&choices.bytes(len))
        }
        TypeKind::Bitvector(bits) => {
            let mut bytes = choices.bytes(bits.div_ceil(8));
            if let (Some(last), unused @ 1..) = (bytes.last_mut(), bits % 8) {
                *last &= (1 << unused) - 1;
            }
            to_hex(&bytes)
        }
        TypeKind::Bitlist(limit) => {
            let most = match limit {
                ListLimit::AtMost(limit) => (*limit).min(40) as usize,
                ListLimit::Progressive => 40,
            };
            let bits = choices.below(most + 1);
            let mut bytes = choices.bytes(bits / 8 + 1);
            if let Some(last) = bytes.last_mut() {
                *last = *last & ((1 << (bits % 8)) - 1) | 1 << (bits % 8);
            }
            to_hex(&bytes)
        }
        TypeKind::Vector(of, len) => {
            Json::Array((0..*len).map(|_| choose(schema, *of, choices)).collect())
        }
        TypeKind::List(of, limit) => {
            let count = count(choices, *limit);
            Json::Array((0..count).map(|_| choose(schema, *of, choices)).collect())
        }
        TypeKind::Container(container) => {
            let fields = container.fields.iter();
            let fields = fields.map(|field| {
                (
                    field.json_name.to_string(),
                    choose(schema, field.ty, choices),
                )
            });
            Json::Object(fields.collect())
        }
        TypeKind::Union(options) => {
            let (selector, of) = options[choices.below(options.len())];
            Json::Object(vec![
                ("selector".into(), Json::Text(selector.to_string())),
                ("data".into(), choose(schema, of, choices)),
            ])
        }
        TypeKind::Optional(of) => match choices.below(2) {
            0 => Json::Null,
            _ => choose(schema, *of, choices),
        },
        TypeKind::Text(limit) => {
            let texts = [
                "",
                "a",
                "\"quoted\" \\ \n",
                "\u{e9}\u{20ac}\u{1f600}",
                "0x12",
            ];
            let text = texts[choices.below(texts.len())];
            Json::Text(text.chars().take(*limit as usize / 4).collect())
        }
        TypeKind::Enum(words) => Json::Text(words[choices.below(words.len())].to_string()),
    }
}
