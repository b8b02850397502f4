//! Writer of containers that fit into the buffer as a whole.

use super::number;
use super::output::{read_checked_offset, JsonOutput};
use crate::ssz::schema::{JsonTemplate, TemplateLiteral, TemplateScalarKind, MAX_LITERAL_LENGTH};

/// Writes a checked value by its template, if there is room for the longest JSON of its length.
/// Returns whether it was written.
#[inline(never)]
pub(super) fn write_by_template(
    template: &JsonTemplate,
    value: &[u8],
    out: &mut JsonOutput<'_>,
) -> bool {
    let Some(to) = out.to.get_mut(out.len..) else {
        return false;
    };
    let Some(to) = to.get_mut(..template.most_json + 2 * value.len()) else {
        return false;
    };
    let mut len = 0;
    for step in &template.steps {
        len += copy_literal(&step.before, &mut to[len..]);
        let rest = &value[step.offset..];
        let to = &mut to[len..];
        len += match step.leaf {
            TemplateScalarKind::Number => number::write_decimal(&rest[..8], to),
            TemplateScalarKind::ByteVector(size) => write_hex(&rest[..size], to),
            TemplateScalarKind::Bitvector(bits) => write_hex(&rest[..bits.div_ceil(8)], to),
            TemplateScalarKind::Boolean => {
                let word: &[u8] = if rest[0] == 0 { b"false" } else { b"true" };
                to[..word.len()].copy_from_slice(word);
                word.len()
            }
            TemplateScalarKind::ByteList(_) | TemplateScalarKind::Bitlist(_) => {
                let end = step
                    .next_offset
                    .map(|next| read_checked_offset(value, next));
                let end = end.unwrap_or(value.len());
                write_hex(&value[read_checked_offset(value, step.offset)..end], to)
            }
        };
    }
    len += copy_literal(&template.end, &mut to[len..]);
    out.len += len;
    true
}

/// Writes a literal, and returns its length. [`MAX_LITERAL_LENGTH`] bytes of `to` are overwritten.
#[inline(always)]
fn copy_literal(literal: &TemplateLiteral, to: &mut [u8]) -> usize {
    // a constant number of bytes is copied faster
    to[..MAX_LITERAL_LENGTH].copy_from_slice(&literal.bytes);
    literal.len
}

/// Writes the bytes in hex, and returns the number of digits.
#[inline(always)]
fn write_hex(bytes: &[u8], to: &mut [u8]) -> usize {
    let len = 2 * bytes.len();
    // encoding fails only for buffers of another length
    let _ = const_hex::encode_to_slice(bytes, &mut to[..len]);
    len
}
