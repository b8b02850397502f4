//! Growth of a chain by itself: random blocks, missed slots and reorgs.

use crate::sample::world::SeededGenerator;

use super::digest::derive_generator;
use super::model::SimulatedChain;

/// The random source of new blocks, missed slots and reorgs by which a chain grows on its own.
#[derive(Debug)]
pub struct RandomChainGrowth {
    dice: SeededGenerator,
    reorgs: f64,
    missed: f64,
}

impl RandomChainGrowth {
    /// Creates the source; `reorgs` and `missed` are the probabilities that a slot has a reorg and
    /// that it is missed.
    pub fn new(seed: u64, reorgs: f64, missed: f64) -> Self {
        Self {
            dice: derive_generator("driver", &[&seed.to_be_bytes()]),
            reorgs,
            missed,
        }
    }

    /// Lets one slot pass, with a block, a reorg or neither. Finalized blocks are not reorganised.
    pub fn pass_slot(&mut self, chain: &mut SimulatedChain) {
        let deepest = chain.head_number() - chain.finality_numbers().finalized;
        if self.random_bool(self.missed) {
            chain.miss_slots(1);
        } else if self.random_bool(self.reorgs) && deepest > 0 {
            self.reorg_randomly(chain, deepest);
        } else {
            chain.add_blocks(1);
        }
        chain.update_finality_by_slots();
    }

    /// Reorganises the chain; each further block of depth is half as likely. The new branch is
    /// usually as long as the old one, or longer by the block of this slot.
    fn reorg_randomly(&mut self, chain: &mut SimulatedChain, deepest: u64) {
        let mut depth = 1;
        while depth < deepest && self.dice.is_within_percent(50) {
            depth += 1;
        }
        let length = match self.dice.number_below(10) {
            0 => (depth - 1).max(1),
            1..=4 => depth,
            _ => depth + 1,
        };
        let done = chain.reorg_blocks(depth, length);
        debug_assert_eq!(done, Ok(()), "depth and length are in range");
    }

    /// Returns `true` with the given probability, from 0 to 1.
    fn random_bool(&mut self, probability: f64) -> bool {
        const UNIT: u64 = 1 << 32;
        (self.dice.number_below(UNIT) as f64) < probability * UNIT as f64
    }
}
