//! Reader of complete containers in the usual notation.

use super::hex;
use super::output::SszOutput;
use super::scan::read_u64_digits;
use crate::ssz::check::{check_bitlist, check_bitvector};
use crate::ssz::error::SszErrorKind;
use crate::ssz::schema::{JsonTemplate, TemplateScalarKind, TemplateStep, OFFSET_LENGTH};

/// Reads a complete container by its template: into `place` if its type has a fixed size, at the
/// end of the output otherwise. Returns the length of its JSON, or `None` if the slow path must
/// read it; nothing is appended then.
#[inline(never)]
pub(super) fn read_by_template(
    template: &JsonTemplate,
    json: &[u8],
    place: Option<usize>,
    output: &mut SszOutput,
) -> Result<Option<usize>, SszErrorKind> {
    // most mismatches are at the beginning
    if !template
        .steps
        .first()
        .is_some_and(|first| first.before.is_prefix_of(json))
    {
        return Ok(None);
    }
    if let Some(base) = place {
        return read_template_steps(template, json, base, output);
    }
    let base = output.append_zeros(template.fixed_size)?;
    let read = read_template_steps(template, json, base, output)?;
    if read.is_none() {
        output.bytes.truncate(base);
    }
    Ok(read)
}

/// Reads JSON that has exactly the text of the template, and writes its SSZ from `base` on. Returns
/// the length of the JSON, or `None` if the slow path must read it.
#[inline(always)]
fn read_template_steps(
    template: &JsonTemplate,
    json: &[u8],
    base: usize,
    output: &mut SszOutput,
) -> Result<Option<usize>, SszErrorKind> {
    let mut at = 0;
    for step in &template.steps {
        if !step.before.is_prefix_of(&json[at..]) {
            return Ok(None);
        }
        at += step.before.len;
        match read_scalar(step, &json[at..], base, output)? {
            Some(len) => at += len,
            None => return Ok(None),
        }
    }
    let ends = template.end.is_prefix_of(&json[at..]);
    Ok(ends.then_some(at + template.end.len))
}

/// Reads the scalar of `step` at the beginning of `json`, and writes its SSZ. Returns the length of
/// its JSON, or `None` if the slow path must read it.
#[inline(always)]
fn read_scalar(
    step: &TemplateStep,
    json: &[u8],
    base: usize,
    output: &mut SszOutput,
) -> Result<Option<usize>, SszErrorKind> {
    let place = base + step.offset;
    Ok(match step.leaf {
        TemplateScalarKind::Number => match read_u64_digits(json) {
            Some((value, len)) => {
                output.bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());
                Some(len)
            }
            None => None,
        },
        TemplateScalarKind::ByteVector(size) => {
            hex::decode_exact_digits(json, &mut output.bytes[place..place + size])
        }
        TemplateScalarKind::Bitvector(bits) => {
            let to = &mut output.bytes[place..place + bits.div_ceil(8)];
            hex::decode_exact_digits(json, to).filter(|_| check_bitvector(to, bits).is_ok())
        }
        TemplateScalarKind::Boolean => {
            let is_true = json.starts_with(b"true");
            output.bytes[place] = is_true.into();
            match is_true {
                true => Some(4),
                false => json.starts_with(b"false").then_some(5),
            }
        }
        TemplateScalarKind::ByteList(limit) => {
            write_field_offset(base, place, output);
            hex::decode_digits_to_quote(json, limit.max_elements(), output)?
        }
        TemplateScalarKind::Bitlist(limit) => {
            let begin = write_field_offset(base, place, output);
            let most = limit.max_elements().saturating_add(1).div_ceil(8);
            hex::decode_digits_to_quote(json, most, output)?
                .filter(|_| check_bitlist(&output.bytes[begin..], limit).is_ok())
        }
    })
}

/// Begins the field whose offset is at `place` at the end of the output, and returns that position.
/// An offset that exceeds 32 bits is rejected at the end of the input.
#[inline(always)]
fn write_field_offset(base: usize, place: usize, output: &mut SszOutput) -> usize {
    let begin = output.len();
    let offset = (begin - base) as u32;
    output.bytes[place..place + OFFSET_LENGTH].copy_from_slice(&offset.to_le_bytes());
    begin
}
