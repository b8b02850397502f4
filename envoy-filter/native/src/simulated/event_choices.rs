//! Choices between events that are possible at the same time.

/// The random choices of a simulation, such as the order of events, taken from a fuzzer's bytes or
/// a seed.
pub struct EventChoices<'a> {
    bytes: std::slice::Iter<'a, u8>,
    state: u64,
}

impl<'a> EventChoices<'a> {
    /// Creates choices from a seed alone.
    #[cfg(test)]
    pub fn from_seed(seed: u64) -> Self {
        Self {
            bytes: [].iter(),
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        }
    }

    /// Creates choices from these bytes, and from a generator after their end.
    pub fn from_choice_bytes(bytes: &'a [u8]) -> Self {
        Self {
            bytes: bytes.iter(),
            state: 0x9E37_79B9_7F4A_7C15,
        }
    }

    /// Chooses a number below the limit.
    pub fn choose_below(&mut self, limit: usize) -> usize {
        if let Some(&byte) = self.bytes.next() {
            let more = if limit > 256 { self.bytes.next() } else { None };
            return (usize::from(byte) | usize::from(*more.unwrap_or(&0)) << 8) % limit;
        }
        // xorshift (Marsaglia)
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % limit
    }

    /// Returns `true` once in `times` calls, on average.
    pub fn draw_one_in(&mut self, times: usize) -> bool {
        self.choose_below(times) == times - 1
    }

    /// Chooses one of the values.
    pub fn choose_from<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.choose_below(all.len())]
    }

    /// Splits bytes into a few pieces.
    pub fn split_into_random_pieces(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut rest = bytes;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let most = rest.len().min(1 << 16);
            let length = (1 + self.choose_below(most)).max(rest.len() / 6);
            let (piece, more) = rest.split_at(length);
            pieces.push(piece.to_vec());
            rest = more;
        }
        pieces
    }
}
