//! Writers of numbers.

/// Upper bound of the decimal digits of a 256-bit number.
pub(super) const MAX_U256_DIGITS: usize = 80;

/// Writes a little-endian number in decimal, and returns the number of digits. `to` has room for
/// [`MAX_U256_DIGITS`].
#[inline(always)]
pub(super) fn write_decimal(bytes: &[u8], to: &mut [u8]) -> usize {
    let mut buffer = itoa::Buffer::new();
    let text = match bytes.len() {
        0..=8 => {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            buffer.format(u64::from_le_bytes(word))
        }
        _ => return write_long_decimal(bytes, to),
    };
    to[..text.len()].copy_from_slice(text.as_bytes());
    text.len()
}

/// Writes the hex digits of a quantity from a little-endian number, without leading zeros, and
/// returns the number of digits. The caller writes `0x`.
pub(super) fn write_quantity(bytes: &[u8], to: &mut [u8]) -> usize {
    let digits = bytes.iter().rev().flat_map(|byte| [byte >> 4, byte & 15]);
    let mut digits = digits.skip_while(|digit| *digit == 0);
    // zero has one digit
    let first = digits.next().unwrap_or(0);
    let mut len = 0;
    for (to, digit) in to.iter_mut().zip(std::iter::once(first).chain(digits)) {
        *to = b"0123456789abcdef"[usize::from(digit)];
        len += 1;
    }
    len
}

/// The largest power of ten in a 64-bit word.
const LARGEST_POWER_OF_TEN: u64 = 10_000_000_000_000_000_000;

/// Writes a little-endian number of at most 32 bytes in decimal, and returns the number of digits.
#[cold]
fn write_long_decimal(bytes: &[u8], to: &mut [u8]) -> usize {
    let mut limbs = [0_u64; 4];
    for (limb, bytes) in limbs.iter_mut().zip(bytes.chunks(8)) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        *limb = u64::from_le_bytes(word);
    }
    // groups of nineteen digits, the last group first
    let mut groups = [0_u64; 5];
    let mut count = 0;
    while count == 0 || limbs != [0; 4] {
        let mut rest = 0_u128;
        for limb in limbs.iter_mut().rev() {
            rest = rest << 64 | u128::from(*limb);
            *limb = (rest / u128::from(LARGEST_POWER_OF_TEN)) as u64;
            rest %= u128::from(LARGEST_POWER_OF_TEN);
        }
        groups[count] = rest as u64;
        count += 1;
    }
    let mut text = groups[count - 1].to_string();
    for group in groups[..count - 1].iter().rev() {
        text.push_str(&format!("{group:019}"));
    }
    to[..text.len()].copy_from_slice(text.as_bytes());
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &[u8]) -> String {
        let mut to = [0; MAX_U256_DIGITS];
        let len = write_decimal(bytes, &mut to);
        String::from_utf8(to[..len].to_vec()).unwrap()
    }

    #[test]
    fn quantities_are_written_without_leading_zeros() {
        for n in [0, 1, 15, 16, 255, 256, 0x1_0000, u128::MAX] {
            let mut to = [0; MAX_U256_DIGITS];
            for bytes in [
                n.to_le_bytes().to_vec(),
                [n.to_le_bytes(), [0; 16]].concat(),
            ] {
                let len = write_quantity(&bytes, &mut to);
                assert_eq!(to[..len], *format!("{n:x}").as_bytes());
            }
        }
        let mut to = [0; MAX_U256_DIGITS];
        let len = write_quantity(&[255; 32], &mut to);
        assert_eq!(to[..len], [b'f'; 64]);
    }

    #[test]
    fn decimal_numbers_of_all_widths_are_written() {
        assert_eq!(written(&[7]), "7");
        assert_eq!(written(&[0, 1]), "256");
        assert_eq!(written(&u64::MAX.to_le_bytes()), u64::MAX.to_string());
        for n in [
            0,
            1,
            u128::from(LARGEST_POWER_OF_TEN) - 1,
            LARGEST_POWER_OF_TEN.into(),
            u128::MAX,
        ] {
            assert_eq!(written(&n.to_le_bytes()), n.to_string());
            let wide = [&n.to_le_bytes()[..], &[0; 16]].concat();
            assert_eq!(written(&wide), n.to_string());
        }
        let most = "115792089237316195423570985008687907853269984665640564039457584007913129639935";
        assert_eq!(written(&[255; 32]), most);
    }
}
