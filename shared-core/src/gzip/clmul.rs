//! Products modulo the polynomial of CRC-32, by the processor's carry-less
//! multiplication.
#![allow(unsafe_code)]

use std::arch::x86_64::{_mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_cvtsi64_si128};

/// The polynomial, its coefficients reflected, the highest one (x^32) too.
const POLYNOMIAL: i64 = 0x1_DB71_0641;

/// x^64 divided by it, reflected: Barrett's constant, as Intel's "Fast CRC
/// Computation Using PCLMULQDQ" gives it.
const QUOTIENT: i64 = 0x1_F701_1641;

/// The product of two polynomials, their coefficients reflected. `None` if the
/// processor can't.
#[inline]
pub(super) fn product(a: u32, b: u32) -> Option<u32> {
    if !std::arch::is_x86_feature_detected!("pclmulqdq") {
        return None;
    }
    // SAFETY: the processor has it, as was just asked.
    Some(unsafe { multiplied(a, b) })
}

/// # Safety
/// The processor has PCLMULQDQ.
#[target_feature(enable = "pclmulqdq,sse2")]
unsafe fn multiplied(a: u32, b: u32) -> u32 {
    // 63 coefficients, reflected: one bit up they fill a word, those of x^0 to
    // x^31 above
    let full = times(i64::from(a), i64::from(b)) << 1;
    // what of the polynomial is to be taken away to clear the lower half
    let quotient = times(low(full), QUOTIENT);
    let rest = full ^ times(low(quotient), POLYNOMIAL);
    (rest as u64 >> 32) as u32
}

/// The lower 64 bits of a product.
#[target_feature(enable = "pclmulqdq,sse2")]
#[inline]
fn times(a: i64, b: i64) -> i64 {
    let product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(a), _mm_cvtsi64_si128(b), 0);
    _mm_cvtsi128_si64(product)
}

fn low(word: i64) -> i64 {
    word & 0xFFFF_FFFF
}
