//! The literals of a block (RFC 8878, 3.1.1.3.1).

use super::huffman::Table;
use super::{Bad, Input};
use crate::gzip::inflate::InflateError;

/// Of the block that was read last, and what the next one may go on with.
#[derive(Default)]
pub(super) struct Literals {
    bytes: Vec<u8>,
    table: Option<Table>,
}

impl Literals {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Those at the start of a block, at most `most`.
    pub(super) fn read(&mut self, input: &mut Input<'_>, most: usize) -> Result<(), InflateError> {
        let first = *input.0.first().ok_or(Bad)?;
        let (kind, format) = (first & 3, first >> 2 & 3);
        if kind < 2 {
            let (bytes, shift) = match format {
                0 | 2 => (1, 3),
                1 => (2, 4),
                _ => (3, 4),
            };
            let length = (input.number(bytes)? >> shift) as usize;
            self.make_room(length, most)?;
            match kind {
                0 => self.bytes.copy_from_slice(input.take(length)?),
                _ => self.bytes.fill(input.byte()?),
            }
            return Ok(());
        }
        let (bytes, bits) = match format {
            0 | 1 => (3, 10),
            2 => (4, 14),
            _ => (5, 18),
        };
        let header = input.number(bytes)?;
        let field = |shift| (header >> shift & ((1_u64 << bits) - 1)) as usize;
        let (length, coded) = (field(4), field(4 + bits));
        let mut coded = Input(input.take(coded)?);
        if kind == 2 {
            self.table = Some(Table::read(&mut coded)?);
        }
        self.make_room(length, most)?;
        let table = self.table.as_ref().ok_or(Bad)?;
        match format {
            0 => table.decode(coded.0, &mut self.bytes)?,
            _ => decode_four(table, coded, &mut self.bytes)?,
        }
        Ok(())
    }

    fn make_room(&mut self, length: usize, most: usize) -> Result<(), InflateError> {
        if length > most {
            return Err(InflateError::Bad);
        }
        self.bytes.clear();
        if self.bytes.try_reserve_exact(length).is_err() {
            return Err(InflateError::OutOfMemory);
        }
        self.bytes.resize(length, 0);
        Ok(())
    }
}

/// Four streams, of which three are of the same length when they are decoded.
fn decode_four(table: &Table, mut coded: Input<'_>, mut room: &mut [u8]) -> Result<(), Bad> {
    let each = room.len().div_ceil(4);
    let mut lengths = [0; 3];
    for length in &mut lengths {
        *length = coded.number(2)? as usize;
    }
    for length in lengths {
        let (part, rest) = room.split_at_mut_checked(each).ok_or(Bad)?;
        table.decode(coded.take(length)?, part)?;
        room = rest;
    }
    table.decode(coded.0, room)
}
