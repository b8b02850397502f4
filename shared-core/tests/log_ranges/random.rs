//! Pseudorandom numbers.

/// A generator of pseudorandom numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `limit`, which is at least 1.
    pub fn number_below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    /// Returns an index of a list of this length, which is not empty.
    pub fn index(&mut self, length: usize) -> usize {
        self.number_below(length as u64) as usize
    }

    /// Returns `true` once in `turns` times on average.
    pub fn happens_once_in(&mut self, turns: u64) -> bool {
        self.number_below(turns) == 0
    }
}
