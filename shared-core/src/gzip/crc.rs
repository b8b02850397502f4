//! CRC-32 (RFC 1952, section 8) of a body that is assembled from parts with known checksums:
//! combining two takes well under a microsecond, whatever their lengths.

#[cfg(target_arch = "x86_64")]
use super::clmul;
use crc32fast::Hasher;

/// Returns the CRC-32 of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// The factor that shifts a CRC-32 by the length of the bytes appended after it: x to the power of
/// eight times that length, modulo the polynomial of CRC-32, as in zlib's `crc32_combine_gen`.
/// Computing it takes as long as combining by length; using it takes a tenth of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrcShift(u32);

/// Polynomial of CRC-32 with reflected coefficients: the highest bit is the coefficient of 1.
const REFLECTED_POLYNOMIAL: u32 = 0xEDB8_8320;
const POLYNOMIAL_ONE: u32 = 1 << 31;

/// Squares of x: x to the power of 1, 2, 4 and so on; the 32nd is the first again.
const SQUARES_OF_X: [u32; 32] = {
    let mut squares = [POLYNOMIAL_ONE >> 1; 32];
    let mut n = 1;
    while n < squares.len() {
        squares[n] = crc_product_bitwise(squares[n - 1], squares[n - 1]);
        n += 1;
    }
    squares
};

/// Returns the product of two polynomials modulo the polynomial of CRC-32: a tenth of a
/// microsecond if the processor can't multiply them.
fn crc_product(a: u32, b: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(product) = clmul::clmul_crc_product(a, b) {
        return product;
    }
    crc_product_bitwise(a, b)
}

/// Returns the product of two polynomials, computed bit by bit.
const fn crc_product_bitwise(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    let mut bit = POLYNOMIAL_ONE;
    while bit != 0 {
        if a & bit != 0 {
            sum ^= b;
        }
        b = if b & 1 == 0 {
            b >> 1
        } else {
            b >> 1 ^ REFLECTED_POLYNOMIAL
        };
        bit >>= 1;
    }
    sum
}

impl CrcShift {
    /// Computes the factor for `length` bytes that follow a checksum.
    pub fn for_appended_bytes(length: u64) -> Self {
        let mut power = POLYNOMIAL_ONE;
        // x to the power of 2^3 is a byte
        let mut square = 3;
        let mut rest = length;
        while rest != 0 {
            if rest & 1 == 1 {
                power = crc_product(SQUARES_OF_X[square % SQUARES_OF_X.len()], power);
            }
            rest >>= 1;
            square += 1;
        }
        Self(power)
    }
}

/// The CRC-32 and the length of a body that is assembled from appended parts.
#[derive(Clone, Debug, Default)]
pub struct RunningCrc {
    crc_value: u32,
    byte_count: u64,
}

impl RunningCrc {
    /// Returns the checksum of no bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `bytes` to the CRC-32 and to the number of bytes.
    pub fn update_checksum(&mut self, bytes: &[u8]) {
        let mut hasher = Hasher::new_with_initial(self.crc_value);
        hasher.update(bytes);
        self.crc_value = hasher.finalize();
        self.byte_count = self.byte_count.wrapping_add(bytes.len() as u64);
    }

    /// Appends `length` bytes with the checksum `crc`; `shift` is [`CrcShift::for_appended_bytes`] of that
    /// length.
    pub fn combine_crc(&mut self, crc: u32, length: u64, shift: CrcShift) {
        self.crc_value = crc_product(shift.0, self.crc_value) ^ crc;
        self.byte_count = self.byte_count.wrapping_add(length);
    }

    /// Returns the CRC-32 of all appended bytes.
    pub fn crc_value(&self) -> u32 {
        self.crc_value
    }

    /// Returns the number of bytes that were appended.
    pub fn byte_count(&self) -> u64 {
        self.byte_count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        crc32, crc_product, crc_product_bitwise, CrcShift, RunningCrc, POLYNOMIAL_ONE,
        REFLECTED_POLYNOMIAL,
    };

    #[test]
    fn checksum_equals_the_check_value_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(RunningCrc::new().crc_value(), 0);
    }

    #[test]
    fn checksums_of_more_than_32_bits_of_length_are_combined() {
        // 2^32 + 1 zero bytes, in parts and by doubling
        let mut doubled = RunningCrc::new();
        doubled.update_checksum(&[0]);
        for _ in 0..32 {
            let (sum, length) = (doubled.crc_value(), doubled.byte_count());
            doubled.combine_crc(sum, length, CrcShift::for_appended_bytes(length));
        }
        let mut parts = RunningCrc::new();
        parts.update_checksum(&[0; 1 << 12]);
        let page = parts.clone();
        let shift = CrcShift::for_appended_bytes(page.byte_count());
        for _ in 1..1 << 20 {
            parts.combine_crc(page.crc_value(), page.byte_count(), shift);
        }
        assert_eq!(doubled.byte_count(), 1 << 32);
        assert_eq!(parts.byte_count(), 1 << 32);
        assert_eq!(doubled.crc_value(), parts.crc_value());
    }

    #[test]
    fn products_of_edge_values_are_equal_in_both_implementations() {
        let edges = [
            0,
            1,
            2,
            POLYNOMIAL_ONE,
            POLYNOMIAL_ONE >> 1,
            REFLECTED_POLYNOMIAL,
            u32::MAX,
            u32::MAX >> 1,
        ];
        for a in edges {
            for b in edges {
                assert_eq!(crc_product(a, b), crc_product_bitwise(a, b), "{a:x} {b:x}");
            }
            assert_eq!(crc_product(a, POLYNOMIAL_ONE), a);
        }
    }

    proptest! {
        #[test]
        fn products_are_equal_in_both_implementations(a: u32, b: u32) {
            prop_assert_eq!(crc_product(a, b), crc_product_bitwise(a, b));
        }

        #[test]
        fn combined_checksum_of_parts_equals_the_checksum_of_the_whole(
            parts: Vec<(bool, Vec<u8>)>,
        ) {
            let mut crc = RunningCrc::new();
            for (is_known, part) in &parts {
                if *is_known {
                    let length = part.len() as u64;
                    crc.combine_crc(crc32(part), length, CrcShift::for_appended_bytes(length));
                } else {
                    crc.update_checksum(part);
                }
            }
            let whole: Vec<u8> = parts.into_iter().flat_map(|(_, part)| part).collect();
            let mut oracle = flate2::Crc::new();
            oracle.update(&whole);
            prop_assert_eq!(crc.crc_value(), oracle.sum());
            prop_assert_eq!(crc.byte_count(), whole.len() as u64);
        }
    }
}
