//! Selection of a part of a large value by its path: `body.attestations[3].data`. Only the offsets
//! along the path are read.

use std::ops::Range;

use super::check::{ContainerFieldRanges, VariableElementRanges};
use super::error::SszError;
use super::schema::{Schema, TypeId, TypeKind};

/// Returns the type and the position of the part of `ssz` at a path. Only the offsets along the
/// path are [checked](super::check_ssz).
///
/// # Errors
/// The part does not exist, or an offset along the path is invalid.
pub fn locate_value_at_path(
    schema: &Schema,
    ty: TypeId,
    ssz: &[u8],
    path: &str,
) -> Result<(TypeId, Range<usize>), SszError> {
    let mut here = (ty, 0..ssz.len());
    let mut rest = path;
    while !rest.is_empty() {
        let walked = &path[..path.len() - rest.len()];
        let (found, after) =
            resolve_path_step(schema, here, ssz, rest).map_err(|error| match walked {
                "" => error,
                walked => error.prepend_field(walked),
            })?;
        here = found;
        rest = after;
    }
    Ok(here)
}

/// Returns the positions of the elements of a list whose element type has no fixed size. The
/// elements are not validated.
///
/// # Errors
/// An offset is invalid. The iterator returns the error, unless it is the first offset.
pub fn variable_element_ranges(
    ssz: &[u8],
    list: Range<usize>,
) -> Result<impl Iterator<Item = Result<Range<usize>, SszError>> + '_, SszError> {
    VariableElementRanges::new(ssz, list)
}

/// Resolves the first step of a path in a value, and returns the type and position of the part with
/// the remaining steps.
fn resolve_path_step<'p>(
    schema: &Schema,
    (ty, range): (TypeId, Range<usize>),
    ssz: &[u8],
    path: &'p str,
) -> Result<((TypeId, Range<usize>), &'p str), SszError> {
    let ty = schema.type_by_id(ty);
    let at = range.start;
    if let Some(rest) = path.strip_prefix('[') {
        let Some((index, rest)) = rest.split_once(']') else {
            return Err(SszError::from_message(
                at,
                format!("{path:?} lacks a \"]\""),
            ));
        };
        let Ok(index) = index.parse::<usize>() else {
            return Err(SszError::from_message(
                at,
                format!("{index:?} is not an index"),
            ));
        };
        let (of, most) = match ty.kind {
            TypeKind::List(of, _) | TypeKind::Optional(of) => (of, usize::MAX),
            TypeKind::Vector(of, len) => (of, len),
            _ => {
                return Err(SszError::from_message(
                    at,
                    format!("{} has no elements", ty.name),
                ))
            }
        };
        let (count, element) = match schema.type_by_id(of).size {
            Some(size) => {
                let begin = index.saturating_mul(size);
                let end = begin.saturating_add(size);
                let element = (end <= range.len()).then(|| at + begin..at + end);
                (range.len() / size, element)
            }
            None => {
                let elements = VariableElementRanges::new(ssz, range)?;
                (elements.len(), elements.element_range(index)?)
            }
        };
        return match element.filter(|_| index < most) {
            Some(element) => Ok(((of, element), rest)),
            None => Err(SszError::from_message(
                at,
                format!("index {index} is out of range: {count} elements"),
            )),
        };
    }
    let path = path.strip_prefix('.').unwrap_or(path);
    let (name, rest) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
    let TypeKind::Container(container) = &ty.kind else {
        return Err(SszError::from_message(
            at,
            format!("{} has no fields", ty.name),
        ));
    };
    let fields = container.fields.iter();
    let parts = ContainerFieldRanges::new(schema, container, ssz, range)?;
    let found = fields
        .zip(parts)
        .find(|(field, _)| *field.name == *name || *field.json_name == *name);
    match found {
        Some((field, part)) => Ok(((field.ty, part?), rest)),
        None => Err(SszError::from_message(
            at,
            format!("{} has no field {name:?}", ty.name),
        )),
    }
}
