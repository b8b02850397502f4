//! A chain that goes on by itself: blocks, missed slots and reorgs as the
//! dice fall.

use crate::sample::world::Dice;

use super::digest::dice;
use super::model::Chain;

/// How a chain goes on.
#[derive(Debug)]
pub struct Driver {
    dice: Dice,
    reorgs: f64,
    missed: f64,
}

impl Driver {
    /// `reorgs` and `missed` are the probabilities that a slot brings a reorg
    /// and that it brings nothing.
    pub fn new(seed: u64, reorgs: f64, missed: f64) -> Self {
        Self {
            dice: dice("driver", &[&seed.to_be_bytes()]),
            reorgs,
            missed,
        }
    }

    /// Lets one slot pass. What is final stays.
    pub fn step(&mut self, chain: &mut Chain) {
        let deepest = chain.head_number() - chain.finality().finalized;
        if self.chance(self.missed) {
            chain.miss(1);
        } else if self.chance(self.reorgs) && deepest > 0 {
            self.reorg(chain, deepest);
        } else {
            chain.extend(1);
        }
        chain.finalize_by_slots();
    }

    /// A reorg, each further block of depth half as likely. Usually the new
    /// branch is as long as the old one or longer by this slot's block.
    fn reorg(&mut self, chain: &mut Chain, deepest: u64) {
        let mut depth = 1;
        while depth < deepest && self.dice.percent(50) {
            depth += 1;
        }
        let length = match self.dice.below(10) {
            0 => (depth - 1).max(1),
            1..=4 => depth,
            _ => depth + 1,
        };
        let done = chain.reorg(depth, length);
        debug_assert_eq!(done, Ok(()), "depth and length are in range");
    }

    fn chance(&mut self, probability: f64) -> bool {
        const UNIT: u64 = 1 << 32;
        (self.dice.below(UNIT) as f64) < probability * UNIT as f64
    }
}
