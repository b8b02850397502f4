//! Validation of SSZ by each rule of ssz/simple-serialize.md: a value that passes has one meaning,
//! and no other bytes have the same one.

use std::ops::Range;

use super::error::{SszError, SszErrorKind};
use super::schema::{ContainerLayout, ListLimit, Schema, TypeId, TypeKind, OFFSET_LENGTH};

/// Checks that `ssz` is a value of the type.
///
/// # Errors
/// The position and the reason if it is not. Positions count bytes of `ssz`.
pub fn check_ssz(schema: &Schema, ty: TypeId, ssz: &[u8]) -> Result<(), SszError> {
    if u32::try_from(ssz.len()).is_err() {
        return Err(SszError::from_message(0, "too long for offsets of 32 bits"));
    }
    SszChecker { schema, ssz }.check_value_in_range(ty, 0..ssz.len())
}

/// The walker that validates the values in `ssz` recursively; ranges are positions in `ssz`.
struct SszChecker<'s> {
    schema: &'s Schema,
    ssz: &'s [u8],
}

impl SszChecker<'_> {
    /// Checks the value of the type `ty` that occupies `range`.
    fn check_value_in_range(&self, ty: TypeId, range: Range<usize>) -> Result<(), SszError> {
        let ty = self.schema.type_by_id(ty);
        let at = range.start;
        if let Some(size) = ty.size {
            if range.len() != size {
                return Err(length_error(at, range.len(), &format!("{size}")));
            }
            if ty.is_plain {
                return Ok(());
            }
        }
        let bytes = &self.ssz[range.clone()];
        match &ty.kind {
            TypeKind::Uint(_) | TypeKind::Quantity(_) | TypeKind::ByteVector(_) => Ok(()),
            TypeKind::Boolean => match bytes {
                [0 | 1] => Ok(()),
                _ => Err(SszError::from_message(at, "a boolean must be 0 or 1")),
            },
            TypeKind::Enum(words) => match bytes {
                [word] if usize::from(*word) < words.len() => Ok(()),
                _ => Err(SszError::from_message(
                    at,
                    format!("not one of {}", words.join(", ")),
                )),
            },
            TypeKind::Bitvector(bits) => {
                check_bitvector(bytes, *bits).map_err(|why| SszError::from_message(at, why))
            }
            TypeKind::Bitlist(limit) => {
                check_bitlist(bytes, *limit).map_err(|why| SszError::from_message(at, why))
            }
            TypeKind::ByteList(limit) => check_limit(at, bytes.len(), *limit),
            TypeKind::Text(limit) => {
                check_limit(at, bytes.len(), ListLimit::AtMost(*limit))?;
                match std::str::from_utf8(bytes) {
                    Ok(_) => Ok(()),
                    Err(bad) => Err(SszError::from_message(at + bad.valid_up_to(), "not UTF-8")),
                }
            }
            TypeKind::Vector(of, len) => match self.schema.type_by_id(*of).size {
                Some(size) => self.check_fixed_elements(*of, size, range),
                None => self.check_variable_elements(
                    *of,
                    range,
                    ListLimit::AtMost(*len as u64),
                    Some(*len),
                ),
            },
            TypeKind::List(of, limit) => self.check_list(*of, *limit, range),
            TypeKind::Optional(of) => self.check_list(*of, ListLimit::AtMost(1), range),
            TypeKind::Union(options) => {
                let Some(selector) = bytes.first() else {
                    return Err(SszError::from_message(at, "the union has no selector"));
                };
                match options.iter().find(|(option, _)| option == selector) {
                    Some((_, of)) => self.check_value_in_range(*of, at + 1..range.end),
                    None => Err(SszError::from_message(
                        at,
                        format!("the union has no option {selector}"),
                    )),
                }
            }
            TypeKind::Container(container) => {
                if let Some(checked) = self.check_container_fast(container, &range) {
                    return checked;
                }
                let mut failed = None;
                let parts = ContainerFieldRanges::new(self.schema, container, self.ssz, range)?;
                for (field, part) in container.fields.iter().zip(parts) {
                    let part =
                        part.and_then(|part| match self.schema.type_by_id(field.ty).is_plain {
                            true => Ok(()),
                            false => self.check_value_in_range(field.ty, part),
                        });
                    if let Err(error) = part {
                        failed = Some(error.prepend_field(&field.name));
                        break;
                    }
                }
                failed.map_or(Ok(()), Err)
            }
        }
    }

    /// Checks the offsets and the fixed-size fields of a container in one pass, then each of its
    /// variable-size fields; it returns the result for the latter. `None`: an offset or a fixed-size
    /// field is invalid, and the slow path reports it.
    fn check_container_fast(
        &self,
        container: &ContainerLayout,
        range: &Range<usize>,
    ) -> Option<Result<(), SszError>> {
        let bytes = &self.ssz[range.clone()];
        let fixed = bytes.get(..container.fixed_size)?;
        let bounds = container.bounds.as_ref()?;
        if !bounds.iter().all(|(at, below)| fixed[*at] < *below) {
            return None;
        }
        let offset = |field: usize| {
            let at = container.fields[field].offset;
            let bytes = fixed.get(at..)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes) as usize)
        };
        let variable = &*container.variable;
        let mut begin = match variable.first() {
            Some(first) => offset(*first)?,
            None => bytes.len(),
        };
        if begin != container.fixed_size {
            return None;
        }
        for (n, field) in variable.iter().enumerate() {
            let end = match variable.get(n + 1) {
                Some(next) => offset(*next)?,
                None => bytes.len(),
            };
            if begin > end || end > bytes.len() {
                return None;
            }
            let field = &container.fields[*field];
            let part = range.start + begin..range.start + end;
            if let Err(error) = self.check_value_in_range(field.ty, part) {
                return Some(Err(error.prepend_field(&field.name)));
            }
            begin = end;
        }
        Some(Ok(()))
    }

    /// Checks a list: its number of elements against `limit`, then each element.
    fn check_list(
        &self,
        of: TypeId,
        limit: ListLimit,
        range: Range<usize>,
    ) -> Result<(), SszError> {
        match self.schema.type_by_id(of).size {
            Some(size) => {
                let (at, len) = (range.start, range.len());
                if len % size != 0 {
                    return Err(length_error(at, len, &format!("a multiple of {size}")));
                }
                check_limit(at, len / size, limit)?;
                self.check_fixed_elements(of, size, range)
            }
            None => self.check_variable_elements(of, range, limit, None),
        }
    }

    /// Checks the elements of a list or vector whose elements have `size` bytes each.
    fn check_fixed_elements(
        &self,
        of: TypeId,
        size: usize,
        range: Range<usize>,
    ) -> Result<(), SszError> {
        let ty = self.schema.type_by_id(of);
        if ty.is_plain {
            return Ok(());
        }
        if let Some(bounds) = &ty.bounds {
            let mut elements = self.ssz[range.clone()].chunks_exact(size);
            let is_right = |bytes: &[u8]| bounds.iter().all(|(at, below)| bytes[*at] < *below);
            if elements.all(is_right) {
                return Ok(());
            }
        }
        // one by one, to report the position and the reason
        for (n, at) in range.step_by(size).enumerate() {
            self.check_value_in_range(of, at..at + size)
                .map_err(|error| error.prepend_element(n))?;
        }
        Ok(())
    }

    /// Checks the elements of a list or vector whose type has no fixed size, and their number: at
    /// most `limit`, and `exactly` the length of a vector.
    fn check_variable_elements(
        &self,
        of: TypeId,
        range: Range<usize>,
        limit: ListLimit,
        exactly: Option<usize>,
    ) -> Result<(), SszError> {
        let elements = VariableElementRanges::new(self.ssz, range.clone())?;
        let count = elements.len();
        if let Some(exactly) = exactly.filter(|exactly| *exactly != count) {
            return Err(SszError::from_message(
                range.start,
                format!("{count} elements, not {exactly}"),
            ));
        }
        check_limit(range.start, count, limit)?;
        if let TypeKind::ByteList(limit) = self.schema.type_by_id(of).kind {
            // the element type of witnesses and transactions
            for (n, element) in elements.enumerate() {
                let checked =
                    element.and_then(|range| check_limit(range.start, range.len(), limit));
                checked.map_err(|error| error.prepend_element(n))?;
            }
            return Ok(());
        }
        for (n, element) in elements.enumerate() {
            let checked = element.and_then(|range| self.check_value_in_range(of, range));
            checked.map_err(|error| error.prepend_element(n))?;
        }
        Ok(())
    }
}

/// An iterator over the positions of the variable-size elements of a list or vector. It checks
/// their offsets, and does not validate the elements.
pub(super) struct VariableElementRanges<'s> {
    ssz: &'s [u8],
    range: Range<usize>,
    count: usize,
    next: usize,
    /// Offset of the next element from the beginning of the list.
    begin: usize,
}

impl<'s> VariableElementRanges<'s> {
    /// Reads the first offset of a list of elements of variable length, which gives the number of
    /// elements. An offset that is no multiple of its size or out of the range is an error.
    pub(super) fn new(ssz: &'s [u8], range: Range<usize>) -> Result<Self, SszError> {
        let mut count = 0;
        let mut begin = 0;
        if !range.is_empty() {
            begin = read_offset(ssz, &range, 0)?;
            if begin == 0 || begin % OFFSET_LENGTH != 0 {
                let why = format!("the first offset is {begin}, not a multiple of {OFFSET_LENGTH}");
                return Err(SszError::from_message(range.start, why));
            }
            if begin > range.len() {
                return Err(offset_error(range.start, begin, &range));
            }
            count = begin / OFFSET_LENGTH;
        }
        Ok(Self {
            ssz,
            range,
            count,
            next: 0,
            begin,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns one element without reading the others.
    pub(super) fn element_range(&self, n: usize) -> Result<Option<Range<usize>>, SszError> {
        if n >= self.count {
            return Ok(None);
        }
        let begin = read_offset(self.ssz, &self.range, n * OFFSET_LENGTH)?;
        let end = match n + 1 < self.count {
            true => read_offset(self.ssz, &self.range, (n + 1) * OFFSET_LENGTH)?,
            false => self.range.len(),
        };
        let at = self.range.start + n * OFFSET_LENGTH;
        range_between_offsets(&self.range, at, begin, end, self.count * OFFSET_LENGTH).map(Some)
    }
}

impl Iterator for VariableElementRanges<'_> {
    type Item = Result<Range<usize>, SszError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.count {
            return None;
        }
        let at = self.next * OFFSET_LENGTH;
        self.next += 1;
        let end = match self.next < self.count {
            true => read_offset(self.ssz, &self.range, at + OFFSET_LENGTH),
            false => Ok(self.range.len()),
        };
        let begin = self.begin;
        Some(end.and_then(|end| {
            self.begin = end;
            range_between_offsets(&self.range, self.range.start + at, begin, end, 0)
        }))
    }
}

/// An iterator over the positions of a container's fields in an SSZ value, which checks their
/// offsets.
pub(super) struct ContainerFieldRanges<'s> {
    schema: &'s Schema,
    fields: std::slice::Iter<'s, super::schema::ContainerField>,
    ssz: &'s [u8],
    range: Range<usize>,
}

impl<'s> ContainerFieldRanges<'s> {
    /// Checks that the range has room for the fixed part of the container.
    pub(super) fn new(
        schema: &'s Schema,
        container: &'s ContainerLayout,
        ssz: &'s [u8],
        range: Range<usize>,
    ) -> Result<Self, SszError> {
        if range.len() < container.fixed_size {
            let wanted = format!("{} or more", container.fixed_size);
            return Err(length_error(range.start, range.len(), &wanted));
        }
        let is_variable =
            |field: &&super::schema::ContainerField| schema.type_by_id(field.ty).size.is_none();
        if let Some(first) = container.fields.iter().find(is_variable) {
            let begin = read_offset(ssz, &range, first.offset)?;
            if begin != container.fixed_size {
                let why = format!("the first offset is {begin}, not {}", container.fixed_size);
                let at = range.start + first.offset;
                return Err(SszError::from_message(at, why).prepend_field(&first.name));
            }
        }
        Ok(Self {
            schema,
            fields: container.fields.iter(),
            ssz,
            range,
        })
    }
}

impl Iterator for ContainerFieldRanges<'_> {
    type Item = Result<Range<usize>, SszError>;

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.fields.next()?;
        let at = self.range.start + field.offset;
        if let Some(size) = self.schema.type_by_id(field.ty).size {
            return Some(Ok(at..at + size));
        }
        let later = self
            .fields
            .as_slice()
            .iter()
            .find(|field| self.schema.type_by_id(field.ty).size.is_none());
        let begin = read_offset(self.ssz, &self.range, field.offset);
        let end = match later {
            Some(later) => read_offset(self.ssz, &self.range, later.offset),
            None => Ok(self.range.len()),
        };
        Some(begin.and_then(|begin| range_between_offsets(&self.range, at, begin, end?, 0)))
    }
}

/// Returns the part of `range` between two offsets, which the caller has read; `at` is the position
/// of the first offset, for errors. Errors: an offset is below `least`, exceeds the range, or
/// exceeds the next one.
fn range_between_offsets(
    range: &Range<usize>,
    at: usize,
    begin: usize,
    end: usize,
    least: usize,
) -> Result<Range<usize>, SszError> {
    if begin < least {
        return Err(SszError::from_message(
            at,
            format!("the offset {begin} points into the offsets"),
        ));
    }
    if begin > range.len() {
        return Err(offset_error(at, begin, range));
    }
    if end > range.len() {
        return Err(offset_error(at, end, range));
    }
    if begin > end {
        return Err(SszError::from_message(
            at,
            format!("the offset {begin} is followed by a lower one, {end}"),
        ));
    }
    Ok(range.start + begin..range.start + end)
}

/// Reads the offset, of four bytes, that is stored `at` bytes into `range`.
fn read_offset(ssz: &[u8], range: &Range<usize>, at: usize) -> Result<usize, SszError> {
    let bytes = ssz[range.clone()]
        .get(at..)
        .and_then(|rest| rest.first_chunk());
    match bytes {
        Some(bytes) => Ok(u32::from_le_bytes(*bytes) as usize),
        None => Err(SszError::new(range.start + at, SszErrorKind::Ends)),
    }
}

fn offset_error(at: usize, offset: usize, range: &Range<usize>) -> SszError {
    let why = format!("the offset {offset} points past the end, {}", range.len());
    SszError::from_message(at, why)
}

fn length_error(at: usize, len: usize, wanted: &str) -> SszError {
    SszError::from_message(at, format!("{len} bytes, not {wanted}"))
}

/// Returns an error with position `at` if a list has more elements than its limit.
fn check_limit(at: usize, count: usize, limit: ListLimit) -> Result<(), SszError> {
    match limit {
        ListLimit::AtMost(limit) if count as u64 > limit => Err(SszError::from_message(
            at,
            format!("{count} elements are more than {limit}"),
        )),
        _ => Ok(()),
    }
}

/// Checks that the unused bits in the last byte of a bitvector are 0; the length of `bytes` is
/// valid already.
pub(super) fn check_bitvector(bytes: &[u8], bits: usize) -> Result<(), String> {
    let unused = bits % 8;
    match bytes.last() {
        Some(last) if unused != 0 && last >> unused != 0 => {
            Err(format!("a bit after the last of {bits} is set"))
        }
        _ => Ok(()),
    }
}

/// Checks that a bitlist has a delimiter, and no more bits than `limit`.
pub(super) fn check_bitlist(bytes: &[u8], limit: ListLimit) -> Result<(), String> {
    match bitlist_length(bytes) {
        None if bytes.is_empty() => Err("the bitlist is empty, and has no delimiter bit".into()),
        None => Err("the last byte has no delimiter bit".into()),
        Some(bits) => match limit {
            ListLimit::AtMost(limit) if bits as u64 > limit => {
                Err(format!("{bits} bits are more than {limit}"))
            }
            _ => Ok(()),
        },
    }
}

/// Counts the bits of a bitlist before its delimiter; `None` if it has no delimiter.
pub(super) fn bitlist_length(bytes: &[u8]) -> Option<usize> {
    let last = bytes.last().filter(|last| **last != 0)?;
    Some((bytes.len() - 1) * 8 + last.ilog2() as usize)
}
