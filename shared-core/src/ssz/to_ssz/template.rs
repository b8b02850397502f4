//! Reader of complete containers in the usual notation.

use super::hex;
use super::output::Output;
use super::scan::digits_u64;
use crate::ssz::check::{bitlist, bitvector};
use crate::ssz::error::SszErrorKind;
use crate::ssz::schema::{ScalarKind, Step, Template, OFFSET};

/// Reads a complete container by its template: into `place` if its type has a fixed size, at the
/// end of the output otherwise. Returns the length of its JSON, or `None` if the slow path must
/// read it; nothing is appended then.
#[inline(never)]
pub(super) fn read(
    template: &Template,
    json: &[u8],
    place: Option<usize>,
    output: &mut Output,
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
        return steps(template, json, base, output);
    }
    let base = output.zeros(template.fixed_size)?;
    let read = steps(template, json, base, output)?;
    if read.is_none() {
        output.bytes.truncate(base);
    }
    Ok(read)
}

#[inline(always)]
fn steps(
    template: &Template,
    json: &[u8],
    base: usize,
    output: &mut Output,
) -> Result<Option<usize>, SszErrorKind> {
    let mut at = 0;
    for step in &template.steps {
        if !step.before.is_prefix_of(&json[at..]) {
            return Ok(None);
        }
        at += step.before.len;
        match leaf(step, &json[at..], base, output)? {
            Some(len) => at += len,
            None => return Ok(None),
        }
    }
    let ends = template.end.is_prefix_of(&json[at..]);
    Ok(ends.then_some(at + template.end.len))
}

#[inline(always)]
fn leaf(
    step: &Step,
    json: &[u8],
    base: usize,
    output: &mut Output,
) -> Result<Option<usize>, SszErrorKind> {
    let place = base + step.offset;
    Ok(match step.leaf {
        ScalarKind::Number => match digits_u64(json) {
            Some((value, len)) => {
                output.bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());
                Some(len)
            }
            None => None,
        },
        ScalarKind::ByteVector(size) => hex::digits(json, &mut output.bytes[place..place + size]),
        ScalarKind::Bitvector(bits) => {
            let to = &mut output.bytes[place..place + bits.div_ceil(8)];
            hex::digits(json, to).filter(|_| bitvector(to, bits).is_ok())
        }
        ScalarKind::Boolean => {
            let is_true = json.starts_with(b"true");
            output.bytes[place] = is_true.into();
            match is_true {
                true => Some(4),
                false => json.starts_with(b"false").then_some(5),
            }
        }
        ScalarKind::ByteList(limit) => {
            offset(base, place, output);
            hex::digits_to_quote(json, limit.max(), output)?
        }
        ScalarKind::Bitlist(limit) => {
            let begin = offset(base, place, output);
            let most = limit.max().saturating_add(1).div_ceil(8);
            hex::digits_to_quote(json, most, output)?
                .filter(|_| bitlist(&output.bytes[begin..], limit).is_ok())
        }
    })
}

/// Begins the field whose offset is at `place` at the end of the output, and returns that position.
/// An offset that exceeds 32 bits is rejected at the end of the input.
#[inline(always)]
fn offset(base: usize, place: usize, output: &mut Output) -> usize {
    let begin = output.len();
    let offset = (begin - base) as u32;
    output.bytes[place..place + OFFSET].copy_from_slice(&offset.to_le_bytes());
    begin
}
