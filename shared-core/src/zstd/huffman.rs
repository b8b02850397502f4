//! Prefix codes (RFC 8878, 4.2).

use super::bits::Backward;
use super::fse::Table as Fse;
use super::{Bad, Input};

/// No code is longer.
const MAX_BITS: u32 = 11;
/// Of the table that codes the weights.
const WEIGHTS_LOG: u32 = 6;
const WEIGHTS: usize = 13;

/// What each `bits` bits begin with: a symbol, and the length of its code.
pub(super) struct Table {
    bits: u32,
    codes: [(u8, u8); 1 << MAX_BITS],
}

impl Table {
    /// From its description.
    pub(super) fn read(input: &mut Input<'_>) -> Result<Self, Bad> {
        let mut weights = [0_u8; 256];
        let known = match usize::from(input.byte()?) {
            length @ 0..128 => coded_weights(input.take(length)?, &mut weights)?,
            count => {
                let count = count - 127;
                let bytes = input.take(count.div_ceil(2))?;
                let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
                for (weight, nibble) in weights.iter_mut().zip(nibbles.take(count)) {
                    *weight = nibble;
                }
                count
            }
        };
        Self::of(&mut weights, known)
    }

    /// The last weight is what is missing.
    fn of(weights: &mut [u8; 256], known: usize) -> Result<Self, Bad> {
        let share = |weight: u8| (1_u32 << weight) >> 1;
        if weights.iter().any(|weight| u32::from(*weight) > MAX_BITS) {
            return Err(Bad);
        }
        let sum: u32 = weights[..known].iter().map(|weight| share(*weight)).sum();
        let bits = sum.checked_ilog2().ok_or(Bad)? + 1;
        let missing = (1 << bits) - sum;
        if bits > MAX_BITS || !missing.is_power_of_two() {
            return Err(Bad);
        }
        *weights.get_mut(known).ok_or(Bad)? = missing.ilog2() as u8 + 1;
        let mut table = Self {
            bits,
            codes: [(0, 0); 1 << MAX_BITS],
        };
        let mut at = 0;
        // the longest codes come first
        for weight in 1..=bits as u8 {
            for (symbol, of) in (0..=u8::MAX).zip(weights.iter()) {
                if *of == weight {
                    let end = at + share(weight) as usize;
                    let length = bits as u8 + 1 - weight;
                    table
                        .codes
                        .get_mut(at..end)
                        .ok_or(Bad)?
                        .fill((symbol, length));
                    at = end;
                }
            }
        }
        Ok(table)
    }

    /// As many symbols as there is room for, which must be all of the stream.
    pub(super) fn decode(&self, stream: &[u8], room: &mut [u8]) -> Result<(), Bad> {
        let mut input = Backward::new(stream)?;
        for byte in room {
            let (symbol, length) = self.codes[input.peek(self.bits) as usize];
            input.consume(u32::from(length));
            *byte = symbol;
        }
        input.is_at_end().then_some(()).ok_or(Bad)
    }
}

/// Two states take turns until there are no bits left.
fn coded_weights(bytes: &[u8], weights: &mut [u8; 256]) -> Result<usize, Bad> {
    let (table, taken) = Fse::read(bytes, WEIGHTS, WEIGHTS_LOG)?;
    let mut input = Backward::new(&bytes[taken..])?;
    let mut states = [table.start(&mut input), table.start(&mut input)];
    if input.is_over() {
        return Err(Bad);
    }
    // one is for what is missing
    let mut room = weights[..255].iter_mut();
    let mut known = 0;
    let mut put = |symbol| {
        *room.next().ok_or(Bad)? = symbol;
        known += 1;
        Ok(())
    };
    for turn in (0..2).cycle() {
        let state = states[turn];
        put(table.symbol(state))?;
        states[turn] = table.next(state, &mut input);
        if input.is_over() {
            put(table.symbol(states[1 - turn]))?;
            break;
        }
    }
    Ok(known)
}
