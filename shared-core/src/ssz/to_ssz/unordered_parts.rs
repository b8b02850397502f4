//! SSZ whose long parts are at the positions where they were read, with their order.

use std::ops::Range;

/// A reordering of adjacent parts of the SSZ that is not done yet: their present positions, in the
/// order in which the SSZ must have them.
#[derive(Clone, Debug)]
pub(super) struct DeferredSszReordering(pub(super) Vec<Range<u32>>);

/// The SSZ of one value in one buffer, whose parts may be out of order until they are moved.
#[derive(Debug, Default)]
pub struct UnorderedSszParts {
    bytes: Vec<u8>,
    /// Deferred moves, each after the moves within its parts.
    moves: Vec<DeferredSszReordering>,
}

impl From<Vec<u8>> for UnorderedSszParts {
    fn from(bytes: Vec<u8>) -> Self {
        let moves = Vec::new();
        Self { bytes, moves }
    }
}

impl UnorderedSszParts {
    /// Creates the SSZ in `bytes`, which is in order once all `moves` are done.
    pub(super) fn from_buffer_and_moves(bytes: Vec<u8>, moves: Vec<DeferredSszReordering>) -> Self {
        Self { bytes, moves }
    }

    /// Returns the length of the SSZ in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the SSZ is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the parts are in order.
    pub fn is_in_order(&self) -> bool {
        self.moves.is_empty()
    }

    /// Returns the whole buffer in its present order.
    pub fn unordered_buffer(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Returns the buffer, and the positions in it of the parts in the order of the SSZ, for a host
    /// that sends them without moving them.
    pub fn into_buffer_with_order(self) -> (Vec<u8>, Vec<Range<usize>>) {
        let whole = 0..self.bytes.len();
        let mut order: Vec<_> = Some(whole)
            .into_iter()
            .filter(|it| !it.is_empty())
            .collect();
        // from the outermost move inwards: each is within one of the present parts
        for it in self.moves.iter().rev() {
            let all = it.combined_part_range();
            let is_around = |part: &Range<usize>| part.start <= all.start && all.end <= part.end;
            let Some(at) = order.iter().position(is_around) else {
                debug_assert!(false, "{all:?} is in no part of {order:?}");
                continue;
            };
            let around = order[at].clone();
            let before = std::iter::once(around.start..all.start);
            let parts = before
                .chain(it.part_ranges())
                .chain(std::iter::once(all.end..around.end));
            order.splice(at..=at, parts.filter(|part| !part.is_empty()));
        }
        (self.bytes, order)
    }

    /// Moves the parts into order, and returns the SSZ in one piece.
    ///
    /// `None`: memory was refused, and the order is unchanged.
    pub fn move_parts_into_order(&mut self) -> Option<&[u8]> {
        let away = self
            .moves
            .iter()
            .map(DeferredSszReordering::shorter_parts_length)
            .max()
            .unwrap_or(0);
        let mut room = Vec::new();
        room.try_reserve_exact(away).ok()?;
        for it in self.moves.drain(..) {
            it.apply_deferred_move(&mut self.bytes, &mut room);
        }
        Some(&self.bytes)
    }
}

impl DeferredSszReordering {
    /// Returns the positions of the parts in the order that they have in the SSZ.
    fn part_ranges(&self) -> impl Iterator<Item = Range<usize>> + Clone + '_ {
        self.0
            .iter()
            .map(|part| part.start as usize..part.end as usize)
    }

    /// Returns the range of the buffer that all parts occupy together.
    fn combined_part_range(&self) -> Range<usize> {
        let begin = self.part_ranges().map(|part| part.start).min().unwrap_or(0);
        let end = self.part_ranges().map(|part| part.end).max().unwrap_or(0);
        begin..end
    }

    fn longest_part(&self) -> Range<usize> {
        self.part_ranges().max_by_key(Range::len).unwrap_or(0..0)
    }

    /// Returns the length of all parts but the longest, in bytes: they are copied twice.
    fn shorter_parts_length(&self) -> usize {
        self.combined_part_range().len() - self.longest_part().len()
    }

    /// Moves the parts into order: copies all but the longest to `room`, moves the longest one, and
    /// copies the others back.
    fn apply_deferred_move(&self, bytes: &mut [u8], room: &mut Vec<u8>) {
        let longest = self.longest_part();
        room.clear();
        for part in self.part_ranges().filter(|part| *part != longest) {
            room.extend_from_slice(&bytes[part]);
        }
        let before = self.part_ranges().take_while(|part| *part != longest);
        let mut to = self.combined_part_range().start;
        bytes.copy_within(
            longest.clone(),
            to + before.map(|part| part.len()).sum::<usize>(),
        );
        let mut away = &room[..];
        for part in self.part_ranges() {
            let next = to + part.len();
            if part != longest {
                let (first, rest) = away.split_at(part.len());
                bytes[to..next].copy_from_slice(first);
                away = rest;
            }
            to = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DeferredSszReordering, UnorderedSszParts};

    /// Nested moves, empty parts, and moves of the whole buffer.
    #[test]
    fn pieces_equal_the_bytes_in_order() {
        /// The buffer, its moves, and the SSZ in order.
        type MoveCase = (&'static str, &'static [&'static [(u32, u32)]], &'static str);
        let cases: [MoveCase; 5] = [
            ("", &[], ""),
            ("abc", &[], "abc"),
            ("abcd", &[&[(3, 4), (0, 3)]], "dabc"),
            (
                "0abcT1xyU2",
                &[
                    &[(4, 5), (1, 4)],
                    &[(8, 9), (6, 8)],
                    &[(5, 9), (5, 5), (1, 5)],
                ],
                "01UxyTabc2",
            ),
            (
                "abcTdefU",
                &[&[(3, 4), (0, 3)], &[(7, 8), (4, 7)], &[(4, 8), (0, 4)]],
                "UdefTabc",
            ),
        ];
        for (lies, moves, expected) in cases {
            let moves = moves
                .iter()
                .map(|parts| DeferredSszReordering(parts.iter().map(|it| it.0..it.1).collect()));
            let parts =
                || UnorderedSszParts::from_buffer_and_moves(lies.into(), moves.clone().collect());
            let mut all = parts();
            assert_eq!(all.move_parts_into_order().unwrap(), expected.as_bytes());
            assert!(all.is_in_order());
            let (bytes, order) = parts().into_buffer_with_order();
            assert!(order.iter().all(|part| !part.is_empty()));
            let pieces: Vec<u8> = order
                .into_iter()
                .flat_map(|it| bytes[it].to_vec())
                .collect();
            assert_eq!(pieces, expected.as_bytes());
        }
    }
}
