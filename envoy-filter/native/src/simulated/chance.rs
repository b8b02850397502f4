//! What decides where several things can happen.

/// Choices: those that bytes make, and those of a generator from their end on.
pub struct Chance<'a> {
    bytes: std::slice::Iter<'a, u8>,
    state: u64,
}

impl<'a> Chance<'a> {
    /// The generator's alone.
    #[cfg(test)]
    pub fn of_seed(seed: u64) -> Self {
        Self {
            bytes: [].iter(),
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        }
    }

    /// These bytes', as long as there are any.
    pub fn of_bytes(bytes: &'a [u8]) -> Self {
        Self {
            bytes: bytes.iter(),
            state: 0x9E37_79B9_7F4A_7C15,
        }
    }

    /// A number below the limit.
    pub fn below(&mut self, limit: usize) -> usize {
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

    /// Once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    /// One of these.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// In pieces, of which there are not many.
    pub fn split(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut rest = bytes;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let most = rest.len().min(1 << 16);
            let length = (1 + self.below(most)).max(rest.len() / 6);
            let (piece, more) = rest.split_at(length);
            pieces.push(piece.to_vec());
            rest = more;
        }
        pieces
    }
}
