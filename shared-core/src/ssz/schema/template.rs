//! A container's JSON as nodes mostly write it: its fields in their order, no
//! white space. What is constant of it is known beforehand, through the
//! containers inside it. The walkers try that first, and go field by field
//! where it doesn't fit.

use super::{Container, Json, Kind, Limit, Schema};

/// A [`Literal`] is compared and copied as so many bytes; no longer one is made.
pub const LITERAL: usize = 48;

/// The most digits of a number of 64 bits.
pub const DIGITS: usize = 20;

/// The JSON of a container whose fields are all numbers of 64 bits, booleans,
/// bytes, bits, or containers of a size that have such fields only.
#[derive(Clone, Debug)]
pub struct Template {
    /// In the order of the SSZ.
    pub steps: Box<[Step]>,
    /// What follows the last of them.
    pub end: Literal,
    /// Of the SSZ. Bytes.
    pub fixed_size: usize,
    /// No JSON of it is longer than that, and two bytes for each of its SSZ.
    /// Counts the bytes after the last literal that are copied with it.
    pub most_json: usize,
}

/// A text and the value that follows.
#[derive(Clone, Debug)]
pub struct Step {
    /// All that is between this value and the last one, quotes and `0x` too.
    pub before: Literal,
    /// What the value is.
    pub leaf: Leaf,
    /// Where in the fixed part it, or its offset, lies. Bytes.
    pub offset: usize,
    /// Where the offset lies of the next field of any size, if there is one.
    pub next_offset: Option<usize>,
}

/// A value that has no parts.
#[derive(Clone, Copy, Debug)]
pub enum Leaf {
    /// Of 64 bits, without its quotes.
    Number,
    /// `true` or `false`.
    Boolean,
    /// Digits of so many bytes.
    ByteVector(usize),
    /// Digits of so many bits.
    Bitvector(usize),
    /// Digits of bytes.
    ByteList(Limit),
    /// Digits of bits.
    Bitlist(Limit),
}

impl Leaf {
    fn of(kind: &Kind) -> Option<Self> {
        match *kind {
            Kind::Uint(8) => Some(Self::Number),
            Kind::Boolean => Some(Self::Boolean),
            Kind::ByteVector(len) => Some(Self::ByteVector(len)),
            Kind::Bitvector(bits) => Some(Self::Bitvector(bits)),
            Kind::ByteList(limit) => Some(Self::ByteList(limit)),
            Kind::Bitlist(limit) => Some(Self::Bitlist(limit)),
            _ => None,
        }
    }

    /// Its place in the fixed part holds an offset.
    fn is_variable(self) -> bool {
        matches!(self, Self::ByteList(_) | Self::Bitlist(_))
    }

    fn closing(self) -> &'static str {
        match self {
            Self::Boolean => "",
            _ => "\"",
        }
    }
}

/// A text of at most [`LITERAL`] bytes.
#[derive(Clone, Debug)]
pub struct Literal {
    /// With zeros after it.
    pub bytes: [u8; LITERAL],
    /// Ones where it has bytes.
    mask: [u8; LITERAL],
    /// How many it has.
    pub len: usize,
}

impl Literal {
    fn new(text: &str) -> Option<Self> {
        let mut literal = Self {
            bytes: [0; LITERAL],
            mask: [0; LITERAL],
            len: text.len(),
        };
        literal
            .bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        literal.mask[..text.len()].fill(u8::MAX);
        Some(literal)
    }

    /// Whether `bytes` begin with it.
    #[inline(always)]
    pub fn begins(&self, bytes: &[u8]) -> bool {
        let Some(bytes) = bytes.first_chunk::<LITERAL>() else {
            return bytes.starts_with(&self.bytes[..self.len]);
        };
        // the constant number of them makes that a few instructions
        let bytes = bytes.iter().zip(&self.bytes).zip(&self.mask);
        bytes.fold(0, |differs, ((is, wanted), mask)| {
            differs | (is ^ wanted) & mask
        }) == 0
    }
}

impl Template {
    /// `None`: it has other fields, or too long names.
    pub(super) fn new(schema: &Schema, container: &Container) -> Option<Self> {
        let mut steps = Vec::new();
        let mut text = String::new();
        flatten(schema, container, 0, &mut text, &mut steps)?;
        let mut next = None;
        for step in steps.iter_mut().rev() {
            step.next_offset = next;
            if step.leaf.is_variable() {
                next = Some(step.offset);
            }
        }
        let literals = steps.iter().map(|step| step.before.len).sum::<usize>();
        let numbers = steps
            .iter()
            .filter(|step| matches!(step.leaf, Leaf::Number | Leaf::Boolean));
        Some(Self {
            most_json: literals + text.len() + LITERAL + numbers.count() * DIGITS,
            steps: steps.into(),
            end: Literal::new(&text)?,
            fixed_size: container.fixed_size,
        })
    }
}

/// Adds a container's steps; `text` is what comes after the last one.
fn flatten(
    schema: &Schema,
    container: &Container,
    base: usize,
    text: &mut String,
    steps: &mut Vec<Step>,
) -> Option<()> {
    for (n, field) in container.fields.iter().enumerate() {
        let ty = schema.get(field.ty);
        text.push(if n == 0 { '{' } else { ',' });
        text.push_str(&format!("\"{}\":{}", field.json_name, ty.opening()));
        let offset = base + field.offset;
        match &ty.kind {
            Kind::Container(inner) if ty.size.is_some() && ty.json == Json::Usual => {
                flatten(schema, inner, offset, text, steps)?;
            }
            kind => {
                let leaf = Leaf::of(kind)?;
                steps.push(Step {
                    before: Literal::new(text)?,
                    leaf,
                    offset,
                    next_offset: None,
                });
                *text = leaf.closing().into();
            }
        }
    }
    text.push('}');
    Some(())
}
