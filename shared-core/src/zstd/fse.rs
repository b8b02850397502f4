//! Tables of finite state entropy (RFC 8878, 4.1): a state is a symbol, and how the
//! next state comes of the bits that follow.

use super::bits::{Backward, Forward};
use super::Bad;

/// No table has more states, as a power of two.
const MAX_LOG: u32 = 9;
/// None of those that are kept has more symbols.
const MAX_SYMBOLS: usize = 64;

#[derive(Clone, Copy, Default)]
struct State {
    symbol: u8,
    /// Bits that are added to the base.
    bits: u8,
    base: u16,
}

/// One that is read from its description.
pub(super) struct Table {
    log: u32,
    states: [State; 1 << MAX_LOG],
}

impl Table {
    /// Of how often each symbol comes, in `1 << log` parts; -1: less than once.
    pub(super) fn of(counts: &[i16], log: u32) -> Result<Self, Bad> {
        let size = 1_usize << log;
        let mut table = Self {
            log,
            states: [State::default(); 1 << MAX_LOG],
        };
        let states = &mut table.states[..size];
        let mut next = [0_u16; MAX_SYMBOLS];
        let mut high = size;
        for ((symbol, count), next) in (0..).zip(counts).zip(&mut next) {
            *next = count.unsigned_abs();
            if *count < 0 {
                high = high.checked_sub(1).ok_or(Bad)?;
                states[high].symbol = symbol;
            }
        }
        let (step, mask) = ((size >> 1) + (size >> 3) + 3, size - 1);
        let mut at = 0;
        for (symbol, count) in (0..).zip(counts) {
            for _ in 0..*count {
                states[at].symbol = symbol;
                at = (at + step) & mask;
                while at >= high {
                    at = (at + step) & mask;
                }
            }
        }
        if at != 0 {
            return Err(Bad);
        }
        for state in states {
            let next = &mut next[usize::from(state.symbol)];
            let number = u32::from(*next);
            *next += 1;
            let bits = log - number.ilog2();
            state.bits = bits as u8;
            state.base = ((number << bits) - size as u32) as u16;
        }
        Ok(table)
    }

    /// One state, which gives the same symbol for ever.
    pub(super) fn of_one(symbol: u8) -> Self {
        let mut states = [State::default(); 1 << MAX_LOG];
        states[0].symbol = symbol;
        Self { log: 0, states }
    }

    /// From its description, with symbols below `symbols` and `1 << max_log` states at
    /// most; and how many bytes that has.
    pub(super) fn read(bytes: &[u8], symbols: usize, max_log: u32) -> Result<(Self, usize), Bad> {
        let mut input = Forward::new(bytes);
        let log = input.peek(4) as u32 + 5;
        input.consume(4);
        if log > max_log {
            return Err(Bad);
        }
        let mut counts = [0_i16; MAX_SYMBOLS];
        let mut known = 0;
        let mut left = 1_i32 << log;
        while left > 0 {
            // what is common takes one bit less
            let bits = (left + 1).ilog2() + 1;
            let value = input.peek(bits) as i32;
            let low = value & ((1 << (bits - 1)) - 1);
            let threshold = (1 << bits) - 1 - (left + 1);
            let (value, bits) = match () {
                () if low < threshold => (low, bits - 1),
                () if value >= 1 << (bits - 1) => (value - threshold, bits),
                () => (value, bits),
            };
            input.consume(bits);
            let count = value - 1;
            *counts[..symbols].get_mut(known).ok_or(Bad)? = count as i16;
            known += 1;
            left -= count.abs();
            if count == 0 {
                loop {
                    let zeros = input.peek(2) as usize;
                    input.consume(2);
                    known += zeros;
                    if zeros < 3 {
                        break;
                    }
                    // or it goes on for as long as there are bytes
                    if known > symbols {
                        return Err(Bad);
                    }
                }
            }
        }
        if left != 0 || known > symbols {
            return Err(Bad);
        }
        let taken = input.taken()?;
        Ok((Self::of(&counts[..known], log)?, taken))
    }

    /// The first state.
    pub(super) fn start(&self, input: &mut Backward<'_>) -> usize {
        input.read(self.log) as usize
    }

    #[inline]
    pub(super) fn symbol(&self, state: usize) -> u8 {
        self.states[state].symbol
    }

    #[inline]
    pub(super) fn next(&self, state: usize, input: &mut Backward<'_>) -> usize {
        let state = self.states[state];
        usize::from(state.base) + input.read(u32::from(state.bits)) as usize
    }
}
