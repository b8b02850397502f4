//! The sequences of a block (RFC 8878, 3.1.1.3.2): so many literals, then so many
//! bytes again that were decoded before.

use super::bits::Backward;
use super::fse::Table;
use super::{Bad, Input, Output};
use crate::gzip::inflate::InflateError;

/// A kind of code: how its numbers are made of symbols.
struct Kind {
    /// Of the table that is used where there is none in the block.
    counts: &'static [i16],
    counts_log: u32,
    max_log: u32,
    symbols: usize,
}

const LITERALS: Kind = Kind {
    counts: &[
        4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1,
        1, 1, -1, -1, -1, -1,
    ],
    counts_log: 6,
    max_log: 9,
    symbols: 36,
};

const OFFSETS: Kind = Kind {
    counts: &[
        1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1,
    ],
    counts_log: 5,
    max_log: 8,
    symbols: 32,
};

const MATCHES: Kind = Kind {
    counts: &[
        1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
    ],
    counts_log: 6,
    max_log: 9,
    symbols: 53,
};

/// From the symbol on that is not its own number: the least number, and the bits that
/// are added to it.
const LITERAL_LENGTHS: [(u32, u32); 20] = [
    (16, 1),
    (18, 1),
    (20, 1),
    (22, 1),
    (24, 2),
    (28, 2),
    (32, 3),
    (40, 3),
    (48, 4),
    (64, 6),
    (128, 7),
    (256, 8),
    (512, 9),
    (1024, 10),
    (2048, 11),
    (4096, 12),
    (8192, 13),
    (16384, 14),
    (32768, 15),
    (65536, 16),
];
const MATCH_LENGTHS: [(u32, u32); 21] = [
    (35, 1),
    (37, 1),
    (39, 1),
    (41, 1),
    (43, 2),
    (47, 2),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 5),
    (131, 7),
    (259, 8),
    (515, 9),
    (1027, 10),
    (2051, 11),
    (4099, 12),
    (8195, 13),
    (16387, 14),
    (32771, 15),
    (65539, 16),
];

/// What is carried from block to block of a frame.
pub(super) struct Sequences {
    literals: Option<Table>,
    offsets: Option<Table>,
    matches: Option<Table>,
    /// How far back the last ones were.
    last: [usize; 3],
}

impl Default for Sequences {
    fn default() -> Self {
        Self {
            literals: None,
            offsets: None,
            matches: None,
            last: [1, 4, 8],
        }
    }
}

impl Sequences {
    /// Those of the rest of a block, of at most `most` bytes decoded; the frame's
    /// content begins at `start` of the output.
    pub(super) fn run<F: FnMut(usize) -> bool>(
        &mut self,
        mut block: Input<'_>,
        mut literals: &[u8],
        output: &mut Output<F>,
        start: usize,
        most: usize,
    ) -> Result<(), InflateError> {
        let end = output.body.len() + most;
        let count = match usize::from(block.byte()?) {
            0 if block.0.is_empty() => return output.extend(literals),
            few @ 0..128 => few,
            255 => block.number(2)? as usize + 0x7F00,
            high => ((high - 128) << 8) + usize::from(block.byte()?),
        };
        let modes = block.byte()?;
        if count == 0 || modes & 3 != 0 {
            return Err(InflateError::Bad);
        }
        LITERALS.read(modes >> 6, &mut block, &mut self.literals)?;
        OFFSETS.read(modes >> 4 & 3, &mut block, &mut self.offsets)?;
        MATCHES.read(modes >> 2 & 3, &mut block, &mut self.matches)?;
        let tables = (&self.literals, &self.offsets, &self.matches);
        let (Some(lengths), Some(offsets), Some(matches)) = tables else {
            return Err(InflateError::Bad);
        };
        let mut input = Backward::new(block.0)?;
        let mut length_state = lengths.start(&mut input);
        let mut offset_state = offsets.start(&mut input);
        let mut match_state = matches.start(&mut input);
        for left in (0..count).rev() {
            let code = u32::from(offsets.symbol(offset_state));
            let offset = (1 << code) + input.read(code) as usize;
            let code = matches.symbol(match_state);
            let match_length = match usize::from(code).checked_sub(32) {
                None => usize::from(code) + 3,
                Some(at) => number(&MATCH_LENGTHS, at, &mut input),
            };
            let code = lengths.symbol(length_state);
            let length = match usize::from(code).checked_sub(16) {
                None => usize::from(code),
                Some(at) => number(&LITERAL_LENGTHS, at, &mut input),
            };
            if left > 0 {
                length_state = lengths.next(length_state, &mut input);
                match_state = matches.next(match_state, &mut input);
                offset_state = offsets.next(offset_state, &mut input);
            }
            if input.is_over() {
                return Err(InflateError::Bad);
            }
            let (these, rest) = literals.split_at_checked(length).ok_or(Bad)?;
            literals = rest;
            let back = back(&mut self.last, offset, length == 0).ok_or(Bad)?;
            let length = output.body.len() + length;
            // no block is longer, and nothing before the frame is its own
            if length + match_length > end || back > length - start {
                return Err(InflateError::Bad);
            }
            output.extend(these)?;
            output.repeat(back, match_length)?;
        }
        if !input.is_at_end() || output.body.len() + literals.len() > end {
            return Err(InflateError::Bad);
        }
        output.extend(literals)
    }
}

fn number(numbers: &[(u32, u32)], at: usize, input: &mut Backward<'_>) -> usize {
    let (least, bits) = numbers[at];
    least as usize + input.read(bits) as usize
}

/// How far back that is: one of the last three, or (above 3) by its number. Without
/// literals it is not the last one again. `None`: nowhere.
fn back(last: &mut [usize; 3], offset: usize, no_literals: bool) -> Option<usize> {
    let back = match (offset, no_literals) {
        (1, false) => return Some(last[0]),
        (2, false) | (1, true) => {
            last.swap(0, 1);
            return Some(last[0]);
        }
        (3, false) | (2, true) => last[2],
        (3, true) => last[0].checked_sub(1).filter(|back| *back > 0)?,
        _ => offset - 3,
    };
    *last = [back, last[0], last[1]];
    Some(back)
}

impl Kind {
    /// The table of a block; `None` stays where there is none to go on with.
    fn read(&self, mode: u8, block: &mut Input<'_>, table: &mut Option<Table>) -> Result<(), Bad> {
        match mode {
            0 => *table = Some(Table::of(self.counts, self.counts_log)?),
            1 => {
                let symbol = block.byte()?;
                if usize::from(symbol) >= self.symbols {
                    return Err(Bad);
                }
                *table = Some(Table::of_one(symbol));
            }
            2 => {
                let (read, taken) = Table::read(block.0, self.symbols, self.max_log)?;
                block.take(taken)?;
                *table = Some(read);
            }
            // the one of the block before
            _ => {}
        }
        Ok(())
    }
}
