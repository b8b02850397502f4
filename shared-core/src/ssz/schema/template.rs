//! Template of a container's JSON as most nodes write it: its fields in order, without white space.
//! The constant texts of the container and of nested containers are computed in advance. The
//! walkers try the template first, and continue field by field where it does not match.

use super::{ContainerLayout, JsonRepresentationOverride, ListLimit, Schema, TypeKind};

/// Number of bytes that are compared and copied for a [`TemplateLiteral`], and its maximum length.
pub const MAX_LITERAL_LENGTH: usize = 48;

/// Maximum number of digits of a 64-bit number.
pub const MAX_U64_DIGITS: usize = 20;

/// The template of a container's JSON: its constant texts and scalars, in order. The container has
/// only fields that are 64-bit numbers, booleans, bytes, bits, or fixed-size containers with such
/// fields only.
#[derive(Clone, Debug)]
pub struct JsonTemplate {
    /// Steps in the order of the SSZ.
    pub steps: Box<[TemplateStep]>,
    /// Text after the last value.
    pub end: TemplateLiteral,
    /// Length of the fixed part of the SSZ in bytes.
    pub fixed_size: usize,
    /// Maximum length of the JSON in addition to two bytes for each byte of SSZ. Includes the
    /// padding that is copied with the last literal.
    pub most_json: usize,
}

/// One step of a template: a constant text, and the scalar that follows it.
#[derive(Clone, Debug)]
pub struct TemplateStep {
    /// Text between the previous value and this one, including quotes and `0x`.
    pub before: TemplateLiteral,
    /// The kind of the value.
    pub leaf: TemplateScalarKind,
    /// Position of the value, or of its offset, in the fixed part, in bytes.
    pub offset: usize,
    /// Position of the next variable-size field's offset, if there is one.
    pub next_offset: Option<usize>,
}

/// The kind of a scalar: a value that has no elements and no fields.
#[derive(Clone, Copy, Debug)]
pub enum TemplateScalarKind {
    /// A 64-bit number without its quotes.
    Number,
    /// A boolean: `true` or `false`.
    Boolean,
    /// Hex digits of a fixed number of bytes.
    ByteVector(usize),
    /// Hex digits of a fixed number of bits.
    Bitvector(usize),
    /// Hex digits of a variable number of bytes.
    ByteList(ListLimit),
    /// Hex digits of a variable number of bits.
    Bitlist(ListLimit),
}

impl TemplateScalarKind {
    /// Returns the scalar kind that templates have for a type, or `None` if the type needs the slow
    /// path.
    fn from_kind(kind: &TypeKind) -> Option<Self> {
        match *kind {
            TypeKind::Uint(8) => Some(Self::Number),
            TypeKind::Boolean => Some(Self::Boolean),
            TypeKind::ByteVector(len) => Some(Self::ByteVector(len)),
            TypeKind::Bitvector(bits) => Some(Self::Bitvector(bits)),
            TypeKind::ByteList(limit) => Some(Self::ByteList(limit)),
            TypeKind::Bitlist(limit) => Some(Self::Bitlist(limit)),
            _ => None,
        }
    }

    /// Whether the fixed part has an offset in place of the value.
    fn is_variable(self) -> bool {
        matches!(self, Self::ByteList(_) | Self::Bitlist(_))
    }

    /// Returns the text after the scalar's content in JSON: a quote, or nothing for a boolean.
    fn json_closing(self) -> &'static str {
        match self {
            Self::Boolean => "",
            _ => "\"",
        }
    }
}

/// A constant text of at most [`MAX_LITERAL_LENGTH`] bytes, in an array that is compared and copied
/// as a whole.
#[derive(Clone, Debug)]
pub struct TemplateLiteral {
    /// The text, padded with zeros.
    pub bytes: [u8; MAX_LITERAL_LENGTH],
    /// 0xff for each byte of the text.
    mask: [u8; MAX_LITERAL_LENGTH],
    /// Length of the text in bytes.
    pub len: usize,
}

impl TemplateLiteral {
    /// Returns the text padded for comparison in one piece, or `None` if it is longer than
    /// [`MAX_LITERAL_LENGTH`] bytes.
    fn new(text: &str) -> Option<Self> {
        let mut literal = Self {
            bytes: [0; MAX_LITERAL_LENGTH],
            mask: [0; MAX_LITERAL_LENGTH],
            len: text.len(),
        };
        literal
            .bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        literal.mask[..text.len()].fill(u8::MAX);
        Some(literal)
    }

    /// Whether `bytes` begin with this text.
    #[inline(always)]
    pub fn is_prefix_of(&self, bytes: &[u8]) -> bool {
        let Some(bytes) = bytes.first_chunk::<MAX_LITERAL_LENGTH>() else {
            return bytes.starts_with(&self.bytes[..self.len]);
        };
        // a constant number of bytes compiles to a few instructions
        let bytes = bytes.iter().zip(&self.bytes).zip(&self.mask);
        bytes.fold(0, |differs, ((is, wanted), mask)| {
            differs | (is ^ wanted) & mask
        }) == 0
    }
}

impl JsonTemplate {
    /// Creates the template of a container, or returns `None` if a field has another kind or a long
    /// name.
    pub(super) fn new(schema: &Schema, container: &ContainerLayout) -> Option<Self> {
        let mut steps = Vec::new();
        let mut text = String::new();
        append_template_steps(schema, container, 0, &mut text, &mut steps)?;
        let mut next = None;
        for step in steps.iter_mut().rev() {
            step.next_offset = next;
            if step.leaf.is_variable() {
                next = Some(step.offset);
            }
        }
        let literals = steps.iter().map(|step| step.before.len).sum::<usize>();
        let numbers = steps.iter().filter(|step| {
            matches!(
                step.leaf,
                TemplateScalarKind::Number | TemplateScalarKind::Boolean
            )
        });
        Some(Self {
            most_json: literals
                + text.len()
                + MAX_LITERAL_LENGTH
                + numbers.count() * MAX_U64_DIGITS,
            steps: steps.into(),
            end: TemplateLiteral::new(&text)?,
            fixed_size: container.fixed_size,
        })
    }
}

/// Appends the steps of a container and of the containers in it; `text` collects the constant text
/// after the last step.
fn append_template_steps(
    schema: &Schema,
    container: &ContainerLayout,
    base: usize,
    text: &mut String,
    steps: &mut Vec<TemplateStep>,
) -> Option<()> {
    for (n, field) in container.fields.iter().enumerate() {
        let ty = schema.type_by_id(field.ty);
        text.push(if n == 0 { '{' } else { ',' });
        text.push_str(&format!(
            "\"{}\":{}",
            field.json_name,
            ty.constant_json_prefix()
        ));
        let offset = base + field.offset;
        match &ty.kind {
            TypeKind::Container(inner)
                if ty.size.is_some() && ty.json == JsonRepresentationOverride::Usual =>
            {
                append_template_steps(schema, inner, offset, text, steps)?;
            }
            kind => {
                let leaf = TemplateScalarKind::from_kind(kind)?;
                steps.push(TemplateStep {
                    before: TemplateLiteral::new(text)?,
                    leaf,
                    offset,
                    next_offset: None,
                });
                *text = leaf.json_closing().into();
            }
        }
    }
    text.push('}');
    Some(())
}
