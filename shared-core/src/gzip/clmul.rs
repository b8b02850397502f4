//! Products modulo the polynomial of CRC-32, by the processor's carry-less
//! multiplication.
#![allow(unsafe_code)]

use std::arch::x86_64::{_mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_cvtsi64_si128};

/// Polynomial of CRC-32 with reflected coefficients, including the highest one (x^32).
const CRC32_POLYNOMIAL: i64 = 0x1_DB71_0641;

/// The quotient of x^64 by the polynomial, reflected: Barrett's constant, as in Intel's "Fast
/// CRC Computation Using PCLMULQDQ".
const BARRETT_QUOTIENT: i64 = 0x1_F701_1641;

/// Returns the product of two polynomials modulo the polynomial of CRC-32, with reflected
/// coefficients. `None` if the processor can't compute it.
#[inline]
pub(super) fn clmul_crc_product(a: u32, b: u32) -> Option<u32> {
    if !std::arch::is_x86_feature_detected!("pclmulqdq") {
        return None;
    }
    // SAFETY: the processor supports it, as checked above.
    Some(unsafe { multiply_modulo_crc(a, b) })
}

/// Multiplies two polynomials modulo the polynomial of CRC-32, with the instruction PCLMULQDQ.
///
/// # Safety
/// The processor has PCLMULQDQ.
#[target_feature(enable = "pclmulqdq,sse2")]
unsafe fn multiply_modulo_crc(a: u32, b: u32) -> u32 {
    // 63 coefficients, reflected: one bit up they fill a word, with x^0 to x^31 in the upper
    // half
    let full = carryless_product_low(i64::from(a), i64::from(b)) << 1;
    // multiple of the polynomial that clears the lower half
    let quotient = carryless_product_low(low_half(full), BARRETT_QUOTIENT);
    let rest = full ^ carryless_product_low(low_half(quotient), CRC32_POLYNOMIAL);
    (rest as u64 >> 32) as u32
}

/// Returns the lower 64 bits of the carry-less product of two words.
#[target_feature(enable = "pclmulqdq,sse2")]
#[inline]
fn carryless_product_low(a: i64, b: i64) -> i64 {
    let product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(a), _mm_cvtsi64_si128(b), 0);
    _mm_cvtsi128_si64(product)
}

fn low_half(word: i64) -> i64 {
    word & 0xFFFF_FFFF
}
