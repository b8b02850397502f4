//! Bitstreams: tables are read from their start, codes from their end.

use super::Bad;

/// Eight bytes from there on, the lowest first; beyond the end there is nothing.
fn load(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|bytes| bytes.first_chunk()) {
        Some(eight) => u64::from_le_bytes(*eight),
        None => {
            let mut eight = [0; 8];
            let rest = bytes.get(at..).unwrap_or_default();
            eight[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(eight)
        }
    }
}

/// One that is read from its start.
pub(super) struct Forward<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Forward<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next bits, at most 56, which stay there.
    pub(super) fn peek(&self, count: u32) -> u64 {
        load(self.bytes, self.at / 8) >> (self.at % 8) & ((1 << count) - 1)
    }

    pub(super) fn consume(&mut self, count: u32) {
        self.at += count as usize;
    }

    /// How many bytes it has taken, the last of them perhaps in part.
    pub(super) fn taken(&self) -> Result<usize, Bad> {
        let taken = self.at.div_ceil(8);
        (taken <= self.bytes.len()).then_some(taken).ok_or(Bad)
    }
}

/// One that is read from its end, where the highest bit that is set is a mark.
pub(super) struct Backward<'a> {
    bytes: &'a [u8],
    /// Bits that are left; less than none: zeros were read instead.
    left: isize,
}

impl<'a> Backward<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Bad> {
        let last = *bytes.last().filter(|last| **last != 0).ok_or(Bad)?;
        let unused = last.leading_zeros() as isize + 1;
        let bits = isize::try_from(bytes.len()).map_err(|_| Bad)? * 8;
        let left = bits - unused;
        Ok(Self { bytes, left })
    }

    /// The next bits, at most 56, which stay there.
    #[inline]
    pub(super) fn peek(&self, count: u32) -> u64 {
        let from = self.left - count as isize;
        let mask = (1 << count) - 1;
        match usize::try_from(from) {
            Ok(from) => load(self.bytes, from / 8) >> (from % 8) & mask,
            // what is beyond the start is zero
            Err(_) if self.left <= 0 => 0,
            Err(_) => load(self.bytes, 0) << -from & mask,
        }
    }

    #[inline]
    pub(super) fn consume(&mut self, count: u32) {
        self.left -= count as isize;
    }

    #[inline]
    pub(super) fn read(&mut self, count: u32) -> u64 {
        let bits = self.peek(count);
        self.consume(count);
        bits
    }

    /// Whether more was read than there was.
    pub(super) fn is_over(&self) -> bool {
        self.left < 0
    }

    /// Whether all was read, and no more.
    pub(super) fn is_at_end(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Backward, Forward};

    #[test]
    fn from_either_end() {
        let bytes = [0b1010_0110, 0b0001_1101];
        let mut forward = Forward::new(&bytes);
        let mut read = |count| {
            let bits = forward.peek(count);
            forward.consume(count);
            bits
        };
        assert_eq!([read(3), read(6), read(7)], [0b110, 0b11_0100, 0b000_1110]);
        assert_eq!(forward.taken().ok(), Some(2));
        forward.consume(1);
        assert!(forward.taken().is_err());

        let mut backward = Backward::new(&bytes).ok().unwrap();
        // after the mark
        assert_eq!(backward.read(4), 0b1101);
        assert_eq!(backward.read(5), 0b10100);
        assert!(!backward.is_at_end() && !backward.is_over());
        assert_eq!(backward.peek(5), 0b11000);
        assert_eq!(backward.read(3), 0b110);
        assert!(backward.is_at_end());
        assert_eq!(backward.read(7), 0);
        assert!(backward.is_over());
        for none in [&[][..], &[1, 0]] {
            assert!(Backward::new(none).is_err());
        }
    }
}
