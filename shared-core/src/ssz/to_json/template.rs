//! Writer of containers that fit into the buffer as a whole.

use super::number;
use super::output::{offset, JsonOutput};
use crate::ssz::schema::{Literal, ScalarKind, Template, LITERAL};

/// Writes a checked value by its template, if there is room for the longest JSON of its length.
/// Returns whether it was written.
#[inline(never)]
pub(super) fn write(template: &Template, value: &[u8], out: &mut JsonOutput<'_>) -> bool {
    let Some(to) = out.to.get_mut(out.len..) else {
        return false;
    };
    let Some(to) = to.get_mut(..template.most_json + 2 * value.len()) else {
        return false;
    };
    let mut len = 0;
    for step in &template.steps {
        len += literal(&step.before, &mut to[len..]);
        let rest = &value[step.offset..];
        let to = &mut to[len..];
        len += match step.leaf {
            ScalarKind::Number => number::write(&rest[..8], to),
            ScalarKind::ByteVector(size) => hex(&rest[..size], to),
            ScalarKind::Bitvector(bits) => hex(&rest[..bits.div_ceil(8)], to),
            ScalarKind::Boolean => {
                let word: &[u8] = if rest[0] == 0 { b"false" } else { b"true" };
                to[..word.len()].copy_from_slice(word);
                word.len()
            }
            ScalarKind::ByteList(_) | ScalarKind::Bitlist(_) => {
                let end = step.next_offset.map(|next| offset(value, next));
                let end = end.unwrap_or(value.len());
                hex(&value[offset(value, step.offset)..end], to)
            }
        };
    }
    len += literal(&template.end, &mut to[len..]);
    out.len += len;
    true
}

#[inline(always)]
fn literal(literal: &Literal, to: &mut [u8]) -> usize {
    // a constant number of bytes is copied faster
    to[..LITERAL].copy_from_slice(&literal.bytes);
    literal.len
}

#[inline(always)]
fn hex(bytes: &[u8], to: &mut [u8]) -> usize {
    let len = 2 * bytes.len();
    // encoding fails only for buffers of another length
    let _ = const_hex::encode_to_slice(bytes, &mut to[..len]);
    len
}
