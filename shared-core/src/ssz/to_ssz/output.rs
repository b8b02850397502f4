//! The output buffer of SSZ: offsets precede the values, but JSON has the number of a list's
//! elements only at its end.
//!
//! Short parts are moved into order at once. Positions of long parts are recorded, so that they can
//! be sent from there: moving them takes longer than decoding them.

use std::ops::Range;

use super::unordered_parts::{DeferredSszReordering, UnorderedSszParts};
use crate::ssz::error::SszErrorKind;
use crate::ssz::schema::OFFSET_LENGTH;

/// Minimum length of parts that are not moved, in bytes.
const MIN_UNMOVED_BYTES: usize = 1 << 20;

/// Minimum number of bytes that are counted for a buffer.
const MIN_COUNTED_BYTES: usize = 64 << 10;

/// The SSZ that is written so far, with the positions from which its offsets are computed.
#[derive(Debug, Default)]
pub(super) struct SszOutput {
    pub(super) bytes: Vec<u8>,
    /// Deferred moves, each after the moves within its parts.
    moves: Vec<DeferredSszReordering>,
    /// Positions of the elements of open lists, the innermost list last.
    starts: Vec<u32>,
    /// Fields of open containers in the order of the input, with their positions, the innermost
    /// container last.
    arrivals: Vec<(usize, u32)>,
}

impl SszOutput {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of bytes that the offsets of open lists will take.
    pub(super) fn pending_offset_bytes(&self) -> usize {
        self.starts.len() * OFFSET_LENGTH
    }

    /// Returns the number of bytes of memory that the output occupies. Memory that was never
    /// written is not counted.
    pub(super) fn occupied_output_memory(&self) -> usize {
        let written_to = self.bytes.len().saturating_mul(2).max(MIN_COUNTED_BYTES);
        self.bytes.capacity().min(written_to) + self.starts.capacity() * size_of::<u32>()
    }

    /// Reserves memory for `more` bytes after those that are written. Errors: memory is refused.
    pub(super) fn reserve_bytes(&mut self, more: usize) -> Result<(), SszErrorKind> {
        if self.bytes.capacity() - self.bytes.len() >= more {
            return Ok(());
        }
        self.bytes
            .try_reserve(more)
            .map_err(|_| SszErrorKind::NoMemory(more))
    }

    /// Appends `count` zero bytes to be overwritten, and returns their position.
    #[inline(always)]
    pub(super) fn append_zeros(&mut self, count: usize) -> Result<usize, SszErrorKind> {
        let at = self.len();
        self.reserve_bytes(count)?;
        self.bytes.resize(at + count, 0);
        Ok(at)
    }

    /// Returns the position of the end, as an offset of 32 bits. Errors: the SSZ is too long.
    fn output_end_offset(&self) -> Result<u32, SszErrorKind> {
        u32::try_from(self.len())
            .map_err(|_| SszErrorKind::Because("too long for offsets of 32 bits".into()))
    }

    /// Begins a list of variable-size elements, whose offsets are written when it ends. The result
    /// is an argument of [`end_variable_list`](Self::end_variable_list).
    pub(super) fn begin_variable_list(&self) -> usize {
        self.starts.len()
    }

    /// Records the end of the output as the beginning of the open list's next element.
    #[inline(always)]
    pub(super) fn record_element_start(&mut self) -> Result<(), SszErrorKind> {
        let position = self.output_end_offset()?;
        if self.starts.len() == self.starts.capacity() {
            let bytes = self.starts.len() * size_of::<u32>();
            let refused = |_| SszErrorKind::NoMemory(bytes);
            self.starts.try_reserve(1).map_err(refused)?;
        }
        self.starts.push(position);
        Ok(())
    }

    /// Ends the list that began at `base`, and writes its offsets before it.
    pub(super) fn end_variable_list(
        &mut self,
        list: usize,
        base: usize,
    ) -> Result<(), SszErrorKind> {
        let offsets = (self.starts.len() - list) * OFFSET_LENGTH;
        let end = self.append_zeros(offsets)?;
        let table = match end - base < MIN_UNMOVED_BYTES {
            true => {
                self.bytes.copy_within(base..end, base + offsets);
                base
            }
            false => {
                let all = self.output_end_offset()?;
                self.defer_move([end as u32..all, base as u32..end as u32])?;
                end
            }
        };
        self.output_end_offset()?;
        let slots = self.bytes[table..].chunks_exact_mut(OFFSET_LENGTH);
        for (slot, start) in slots.zip(self.starts.drain(list..)) {
            let offset = start as usize - base + offsets;
            slot.copy_from_slice(&(offset as u32).to_le_bytes());
        }
        Ok(())
    }

    /// Begins the fields of a container. The result is an argument of
    /// [`end_ssz_container`](Self::end_ssz_container).
    pub(super) fn begin_ssz_container(&self) -> usize {
        self.arrivals.len()
    }

    /// Records the end of the output as the beginning of a variable-size field of the open
    /// container.
    pub(super) fn record_field_start(&mut self, field: usize) -> Result<(), SszErrorKind> {
        let position = self.output_end_offset()?;
        let refused = |_| SszErrorKind::NoMemory(size_of::<(usize, u32)>());
        self.arrivals.try_reserve(1).map_err(refused)?;
        self.arrivals.push((field, position));
        Ok(())
    }

    /// Ends the container at `base`: writes its offsets, and puts its fields into the order of the
    /// SSZ. `slot` returns the position of a field's offset in the fixed part.
    pub(super) fn end_ssz_container(
        &mut self,
        container: usize,
        base: usize,
        slot: impl Fn(usize) -> usize,
    ) -> Result<(), SszErrorKind> {
        let mut end = self.output_end_offset()?;
        let arrivals = &mut self.arrivals[container..];
        if !arrivals.is_sorted() {
            let first = arrivals[0].1;
            if ((end - first) as usize) < MIN_UNMOVED_BYTES {
                sort_parts_in_place(&mut self.bytes, arrivals, end);
            } else {
                let parts = plan_part_order(arrivals, end)?;
                self.defer_move(parts)?;
            }
        }
        for (field, start) in self.arrivals.drain(container..).rev() {
            debug_assert!(start <= end);
            end = start;
            let at = base + slot(field);
            let offset = end - base as u32;
            self.bytes[at..at + OFFSET_LENGTH].copy_from_slice(&offset.to_le_bytes());
        }
        Ok(())
    }

    /// Records the order of adjacent long parts, which are not moved.
    fn defer_move(&mut self, parts: impl Into<Vec<Range<u32>>>) -> Result<(), SszErrorKind> {
        let refused = |_| SszErrorKind::NoMemory(size_of::<DeferredSszReordering>());
        self.moves.try_reserve(1).map_err(refused)?;
        self.moves.push(DeferredSszReordering(parts.into()));
        Ok(())
    }

    /// Ends the output, and returns the SSZ with the order of its parts.
    pub(super) fn into_ssz_parts(self) -> UnorderedSszParts {
        UnorderedSszParts::from_buffer_and_moves(self.bytes, self.moves)
    }
}

/// Sorts the parts of a container like [`sort_parts_in_place`], without moving bytes: returns the
/// positions of the parts in the order of the fields, and replaces the positions in `parts` with
/// the future ones.
fn plan_part_order(parts: &mut [(usize, u32)], end: u32) -> Result<Vec<Range<u32>>, SszErrorKind> {
    let refused = |_| SszErrorKind::NoMemory(size_of_val(parts));
    let mut order = Vec::new();
    order.try_reserve_exact(parts.len()).map_err(refused)?;
    let first = parts[0].1;
    let ends = parts[1..].iter().map(|part| part.1).chain([end]);
    order.extend(
        parts
            .iter()
            .zip(ends)
            .map(|(part, end)| (part.0, part.1..end)),
    );
    order.sort_unstable_by_key(|(field, _)| *field);
    let mut begin = first;
    for (part, (field, lies)) in parts.iter_mut().zip(&order) {
        *part = (*field, begin);
        begin += lies.end - lies.start;
    }
    Ok(order.into_iter().map(|(_, lies)| lies).collect())
}

/// Moves the parts of a container from the order of the input to the order of its fields: each part
/// in turn to the front of the remaining ones.
fn sort_parts_in_place(bytes: &mut [u8], parts: &mut [(usize, u32)], end: u32) {
    for first in 0..parts.len() {
        let rest = &parts[first..];
        let Some(least) = (0..rest.len()).min_by_key(|n| rest[*n].0) else {
            return;
        };
        let least = first + least;
        let (begin, from) = (parts[first].1, parts[least].1);
        let to = parts.get(least + 1).map_or(end, |part| part.1);
        bytes[begin as usize..to as usize].rotate_right((to - from) as usize);
        for part in &mut parts[first..least] {
            part.1 += to - from;
        }
        parts[least].1 = begin;
        parts[first..=least].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_sorted_from_any_order() {
        let orders = [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ];
        let texts: [[&str; 3]; 3] = [["a", "bb", "ccc"], ["", "bb", "ccc"], ["aaa", "", ""]];
        for order in orders {
            for text in texts {
                let mut output = SszOutput::default();
                output.bytes.extend(b"before");
                let base = output.append_zeros(12).unwrap();
                let fields = output.begin_ssz_container();
                for field in order {
                    output.record_field_start(field).unwrap();
                    output.bytes.extend(text[field].bytes());
                }
                output
                    .end_ssz_container(fields, base, |field| 4 * field)
                    .unwrap();
                let mut offset = 12;
                for (field, text) in text.iter().enumerate() {
                    let at = base + 4 * field;
                    assert_eq!(output.bytes[at..at + 4], u32::to_le_bytes(offset));
                    offset += text.len() as u32;
                }
                assert_eq!(output.bytes[base + 12..], *text.concat().as_bytes());
            }
        }
    }

    #[test]
    fn empty_elements_are_counted_by_their_offsets() {
        let mut output = SszOutput::default();
        let list = output.begin_variable_list();
        for count in 1..=1000 {
            output.record_element_start().unwrap();
            assert_eq!(
                (output.len(), output.pending_offset_bytes()),
                (0, 4 * count)
            );
            assert!(output.occupied_output_memory() >= 4 * count);
        }
        output.end_variable_list(list, 0).unwrap();
        assert_eq!((output.len(), output.pending_offset_bytes()), (4000, 0));
    }

    #[test]
    fn offsets_of_nested_lists_are_written() {
        let mut output = SszOutput::default();
        let outer = output.begin_variable_list();
        for inner in [&["ab", "c"][..], &[], &[""]] {
            output.record_element_start().unwrap();
            let base = output.len();
            let list = output.begin_variable_list();
            for text in inner {
                output.record_element_start().unwrap();
                output.bytes.extend(text.bytes());
            }
            output.end_variable_list(list, base).unwrap();
        }
        output.end_variable_list(outer, 0).unwrap();
        let expected = b"\x0c\0\0\0\x17\0\0\0\x17\0\0\0\x08\0\0\0\x0a\0\0\0abc\x04\0\0\0";
        assert_eq!(output.bytes, expected);
    }
}
