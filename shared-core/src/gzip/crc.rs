//! CRC-32 (RFC 1952, section 8) of a body that is assembled from parts with known checksums:
//! combining two takes well under a microsecond, whatever their lengths.

#[cfg(target_arch = "x86_64")]
use super::clmul;
use crc32fast::Hasher;

/// Returns the CRC-32 of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// The factor by which a CRC-32 is multiplied if a number of bytes follows: x to the power of eight
/// times the number, modulo the polynomial of CRC-32, as in zlib's `crc32_combine_gen`. Computing
/// it takes as long as combining by length; using it takes a tenth of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift(u32);

/// Polynomial of CRC-32 with reflected coefficients: the highest bit is the coefficient of 1.
const POLYNOMIAL: u32 = 0xEDB8_8320;
const ONE: u32 = 1 << 31;

/// Squares of x: x to the power of 1, 2, 4 and so on; the 32nd is the first again.
const SQUARES: [u32; 32] = {
    let mut squares = [ONE >> 1; 32];
    let mut n = 1;
    while n < squares.len() {
        squares[n] = product_by_bits(squares[n - 1], squares[n - 1]);
        n += 1;
    }
    squares
};

/// Returns the product of two polynomials modulo the polynomial of CRC-32: a tenth of a
/// microsecond if the processor can't multiply them.
fn product(a: u32, b: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(product) = clmul::product(a, b) {
        return product;
    }
    product_by_bits(a, b)
}

/// Returns the product of two polynomials, computed bit by bit.
const fn product_by_bits(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    let mut bit = ONE;
    while bit != 0 {
        if a & bit != 0 {
            sum ^= b;
        }
        b = if b & 1 == 0 {
            b >> 1
        } else {
            b >> 1 ^ POLYNOMIAL
        };
        bit >>= 1;
    }
    sum
}

impl Shift {
    /// Computes the factor for `length` bytes that follow a checksum.
    pub fn by(length: u64) -> Self {
        let mut power = ONE;
        // x to the power of 2^3 is a byte
        let mut square = 3;
        let mut rest = length;
        while rest != 0 {
            if rest & 1 == 1 {
                power = product(SQUARES[square % SQUARES.len()], power);
            }
            rest >>= 1;
            square += 1;
        }
        Self(power)
    }
}

/// The CRC-32 and the length of a body that is assembled from appended parts.
#[derive(Clone, Debug, Default)]
pub struct Crc {
    sum: u32,
    length: u64,
}

impl Crc {
    /// Returns the checksum of no bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        let mut hasher = Hasher::new_with_initial(self.sum);
        hasher.update(bytes);
        self.sum = hasher.finalize();
        self.length = self.length.wrapping_add(bytes.len() as u64);
    }

    /// Appends `length` bytes with the checksum `crc`; `shift` is [`Shift::by`] that length.
    pub fn append(&mut self, crc: u32, length: u64, shift: Shift) {
        self.sum = product(shift.0, self.sum) ^ crc;
        self.length = self.length.wrapping_add(length);
    }

    /// Returns the CRC-32 of all appended bytes.
    pub fn sum(&self) -> u32 {
        self.sum
    }

    /// Returns the number of bytes that were appended.
    pub fn length(&self) -> u64 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{crc32, product, product_by_bits, Crc, Shift, ONE, POLYNOMIAL};

    #[test]
    fn checksum_equals_the_check_value_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(Crc::new().sum(), 0);
    }

    #[test]
    fn checksums_of_more_than_32_bits_of_length_are_combined() {
        // 2^32 + 1 zero bytes, in parts and by doubling
        let mut doubled = Crc::new();
        doubled.update(&[0]);
        for _ in 0..32 {
            let (sum, length) = (doubled.sum(), doubled.length());
            doubled.append(sum, length, Shift::by(length));
        }
        let mut parts = Crc::new();
        parts.update(&[0; 1 << 12]);
        let page = parts.clone();
        let shift = Shift::by(page.length());
        for _ in 1..1 << 20 {
            parts.append(page.sum(), page.length(), shift);
        }
        assert_eq!(doubled.length(), 1 << 32);
        assert_eq!(parts.length(), 1 << 32);
        assert_eq!(doubled.sum(), parts.sum());
    }

    #[test]
    fn products_of_edge_values_are_equal_in_both_implementations() {
        let edges = [0, 1, 2, ONE, ONE >> 1, POLYNOMIAL, u32::MAX, u32::MAX >> 1];
        for a in edges {
            for b in edges {
                assert_eq!(product(a, b), product_by_bits(a, b), "{a:x} {b:x}");
            }
            assert_eq!(product(a, ONE), a);
        }
    }

    proptest! {
        #[test]
        fn products_are_equal_in_both_implementations(a: u32, b: u32) {
            prop_assert_eq!(product(a, b), product_by_bits(a, b));
        }

        #[test]
        fn combined_checksum_of_parts_equals_the_checksum_of_the_whole(
            parts: Vec<(bool, Vec<u8>)>,
        ) {
            let mut crc = Crc::new();
            for (is_known, part) in &parts {
                if *is_known {
                    let length = part.len() as u64;
                    crc.append(crc32(part), length, Shift::by(length));
                } else {
                    crc.update(part);
                }
            }
            let whole: Vec<u8> = parts.into_iter().flat_map(|(_, part)| part).collect();
            let mut oracle = flate2::Crc::new();
            oracle.update(&whole);
            prop_assert_eq!(crc.sum(), oracle.sum());
            prop_assert_eq!(crc.length(), whole.len() as u64);
        }
    }
}
