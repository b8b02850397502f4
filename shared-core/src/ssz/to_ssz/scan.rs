//! Scanner of JSON tokens (RFC 8259). The functions return `Ok(None)` if a piece of the input
//! contains only a part of a token.

/// The error of an invalid JSON token: the reason, and its position in the bytes that are read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JsonTokenError {
    pub(super) at: usize,
    /// Number of bytes by which the error precedes the bytes that are being read.
    pub(super) back: usize,
    pub(super) why: String,
}

impl JsonTokenError {
    pub(super) fn new(at: usize, why: impl Into<String>) -> Self {
        Self {
            at,
            back: 0,
            why: why.into(),
        }
    }
}

/// Returns the end of the white space at `at`.
#[inline(always)]
pub(super) fn skip_white_space(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        // most nodes write none
        Some(byte) if *byte > b' ' => at,
        _ => skip_long_white_space(bytes, at),
    }
}

/// A word of eight spaces.
const EIGHT_SPACES: u64 = u64::from_ne_bytes([b' '; 8]);

/// Returns the position of the first byte from `at` on that is no white space.
fn skip_long_white_space(bytes: &[u8], mut at: usize) -> usize {
    loop {
        while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            if u64::from_ne_bytes(*word) != EIGHT_SPACES {
                break;
            }
            at += 8;
        }
        match bytes.get(at) {
            Some(b' ' | b'\n' | b'\r' | b'\t') => at += 1,
            _ => return at,
        }
    }
}

/// Reads a string of decimal digits that fits 64 bits (beacon-APIs, `Uint64`: no sign, no leading
/// zero). Returns the number and the length of the token.
#[inline(always)]
pub(super) fn read_quoted_u64(bytes: &[u8]) -> Result<Option<(u64, usize)>, JsonTokenError> {
    match quoted_u64_fast(bytes) {
        Some(read) => Ok(Some(read)),
        None => quoted_u64_slow(bytes),
    }
}

/// Reads a complete quoted number, if it is in the usual notation with some bytes after it. Returns
/// `None` if the slow path must read it.
#[inline(always)]
fn quoted_u64_fast(bytes: &[u8]) -> Option<(u64, usize)> {
    let inner = bytes.strip_prefix(b"\"")?;
    let (value, count) = read_u64_digits(inner)?;
    (inner.get(count) == Some(&b'"')).then_some((value, count + 2))
}

/// Reads the digits of a 64-bit number, with some bytes after them. Returns the number and the
/// count of digits, or `None` if there are none or if the slow path must read them.
#[inline(always)]
pub(super) fn read_u64_digits(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let (first, mut count) = number_in_leading_digits(word(0)?);
    let mut value = first;
    if count == 0 {
        return None;
    }
    if count == 8 {
        let (second, more) = number_in_leading_digits(word(8)?);
        value = value * POWERS_OF_TEN[more] + second;
        count += more;
        if more == 8 {
            let (third, more) = number_in_leading_digits(word(16)?);
            // 20 digits may exceed 64 bits
            let high = value.checked_mul(*POWERS_OF_TEN.get(more).filter(|_| more <= 4)?)?;
            value = high.checked_add(third)?;
            count += more;
        }
    }
    // zero is the only number with a leading zero
    (count == 1 || bytes[0] != b'0').then_some((value, count))
}

/// Powers of ten, by exponent.
const POWERS_OF_TEN: [u64; 9] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// Returns the number in the leading digits of eight bytes, and the count of digits.
#[inline(always)]
fn number_in_leading_digits(word: u64) -> (u64, usize) {
    let digits = word ^ 0x3030_3030_3030_3030;
    // bytes above nine: their highest bit is set. No carry crosses a byte below the first one that
    // is no digit.
    let others = (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & 0x8080_8080_8080_8080;
    let count = (others.trailing_zeros() / 8) as usize;
    if count == 0 {
        return (0, 0);
    }
    // the first digit has the highest place value, with zeros before it
    let digits = digits << (64 - 8 * count);
    let pairs = (digits.wrapping_mul(10) + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    let value = (fours.wrapping_mul(10_000) + (fours >> 32)) & 0xffff_ffff;
    (value, count)
}

/// Reads a number of up to 20 digits in quotes, and returns it with the length of the token.
/// `None`: the bytes end within the token.
fn quoted_u64_slow(bytes: &[u8]) -> Result<Option<(u64, usize)>, JsonTokenError> {
    let Some(digits) = read_quoted_digits(bytes, 20)? else {
        return Ok(None);
    };
    let mut value: u64 = 0;
    for digit in digits {
        value = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u64::from(digit - b'0')))
            .ok_or_else(|| JsonTokenError::new(0, "more than 64 bits"))?;
    }
    Ok(Some((value, digits.len() + 2)))
}

/// Reads a string of decimal digits that fits 256 bits. The number is little-endian.
pub(super) fn read_quoted_u256(bytes: &[u8]) -> Result<Option<([u8; 32], usize)>, JsonTokenError> {
    let Some(digits) = read_quoted_digits(bytes, 78)? else {
        return Ok(None);
    };
    let mut limbs = [0_u64; 4];
    for digit in digits {
        let mut carry = u128::from(digit - b'0');
        for limb in &mut limbs {
            carry += u128::from(*limb) * 10;
            *limb = carry as u64;
            carry >>= 64;
        }
        if carry > 0 {
            return Err(JsonTokenError::new(0, "more than 256 bits"));
        }
    }
    let mut value = [0; 32];
    for (to, limb) in value.chunks_exact_mut(8).zip(limbs) {
        to.copy_from_slice(&limb.to_le_bytes());
    }
    Ok(Some((value, digits.len() + 2)))
}

/// Parses a quantity of JSON-RPC that fits 256 bits: `0x` and hex without leading zeros. The number
/// is little-endian.
pub(super) fn parse_quantity(text: &str) -> Result<[u8; 32], &'static str> {
    let digits = text
        .strip_prefix("0x")
        .ok_or("0x is missing before the quantity")?;
    if digits.len() > 1 && digits.starts_with('0') {
        return Err("a leading zero");
    }
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err("hexadecimal digits are missing");
    }
    let mut value = [0; 32];
    let digits = digits.chars().rev().filter_map(|digit| digit.to_digit(16));
    for (n, digit) in digits.enumerate() {
        let byte = value.get_mut(n / 2).ok_or("more than 256 bits")?;
        *byte |= (digit as u8) << (4 * (n % 2));
    }
    Ok(value)
}

/// Returns the digits of a JSON string of at most `most` decimal digits; `None` if the text ends
/// within it.
fn read_quoted_digits(bytes: &[u8], most: usize) -> Result<Option<&[u8]>, JsonTokenError> {
    match bytes.first() {
        None => return Ok(None),
        Some(b'"') => {}
        Some(other) => return Err(JsonTokenError::new(0, not_a_string_error(*other))),
    }
    let inner = &bytes[1..];
    let count = inner
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let digits = &inner[..count];
    match inner.get(count) {
        _ if count > most => Err(JsonTokenError::new(
            0,
            format!("a number of more than {most} digits"),
        )),
        None => Ok(None),
        Some(b'"') if count == 0 => Err(JsonTokenError::new(0, "digits are missing")),
        Some(b'"') if count > 1 && digits[0] == b'0' => {
            Err(JsonTokenError::new(1, "a leading zero"))
        }
        Some(b'"') => Ok(Some(digits)),
        Some(_) => Err(JsonTokenError::new(1 + count, "not a decimal digit")),
    }
}

/// Returns the text of the error for a token that begins with `first`, where a string is required.
pub(super) fn not_a_string_error(first: u8) -> String {
    format!("{}, not a string", json_token_kind(first))
}

/// Describes the kind of a JSON value by its first byte, for error texts.
pub(super) fn json_token_kind(first: u8) -> &'static str {
    match first {
        b'"' => "a string",
        b'{' => "an object",
        b'[' => "an array",
        b'-' | b'0'..=b'9' => "a number",
        b't' | b'f' => "a boolean",
        b'n' => "null",
        _ => "invalid JSON",
    }
}

/// Returns the end of the string at the beginning of `bytes`, after its closing quote, and whether
/// it contains escapes.
pub(super) fn json_string_end(bytes: &[u8]) -> Option<(usize, bool)> {
    let mut at = 1;
    let mut escapes = false;
    loop {
        let found = memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        at += found + 1;
        if bytes[at - 1] == b'"' {
            return Some((at, escapes));
        }
        escapes = true;
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_strings_of_64_and_256_bits_are_read() {
        for n in [
            0,
            1,
            9,
            10,
            99,
            1234567,
            12345678,
            123456789,
            1 << 53,
            u64::MAX - 1,
            u64::MAX,
        ] {
            for pad in ["", ",", "          "] {
                let text = format!("\"{n}\"{pad}");
                let len = text.len() - pad.len();
                assert_eq!(
                    read_quoted_u64(text.as_bytes()),
                    Ok(Some((n, len))),
                    "{text}"
                );
                let mut wide = [0; 32];
                wide[..8].copy_from_slice(&n.to_le_bytes());
                assert_eq!(
                    read_quoted_u256(text.as_bytes()),
                    Ok(Some((wide, len))),
                    "{text}"
                );
                for cut in 0..len {
                    assert_eq!(
                        read_quoted_u64(&text.as_bytes()[..cut]),
                        Ok(None),
                        "{text} {cut}"
                    );
                }
            }
        }
    }

    #[test]
    fn quantities_are_read_without_leading_zeros() {
        for n in [0, 1, 15, 16, 0xabcd, u128::MAX] {
            let mut wide = [0; 32];
            wide[..16].copy_from_slice(&n.to_le_bytes());
            for text in [format!("{n:#x}"), format!("0x{n:X}")] {
                assert_eq!(parse_quantity(&text), Ok(wide));
            }
        }
        assert_eq!(
            parse_quantity(&format!("0x{}", "f".repeat(64))),
            Ok([255; 32])
        );
        let long = format!("0x1{}", "0".repeat(64));
        for text in [
            "",
            "0x",
            "0x01",
            "0x00",
            "0X1",
            "1",
            "0x+1",
            "0xg",
            " 0x1",
            "0x1 ",
            "-0x1",
            "0x\u{665}",
            &long,
        ] {
            assert!(parse_quantity(text).is_err(), "{text}");
        }
    }

    #[test]
    fn invalid_decimal_strings_are_rejected() {
        let all = [
            "1",
            "null",
            "\"\"",
            "\"01\"",
            "\"00\"",
            "\"+1\"",
            "\"-1\"",
            "\"1.8e19\"",
            "\" 1\"",
            "\"1 \"",
            "\"0x1\"",
            "\"1a\"",
            "\"123456a\"",
            "\"1234567a\"",
            "\"12345678a\"",
            "\"18446744073709551616\"",
            "\"99999999999999999999\"",
            "\"100000000000000000000\"",
            "\"\u{665}\"",
            "\"1234\\u0035\"",
        ];
        for text in all {
            let text = format!("{text}         ");
            assert!(read_quoted_u64(text.as_bytes()).is_err(), "{text}");
        }
        let most = "115792089237316195423570985008687907853269984665640564039457584007913129639935";
        assert_eq!(
            read_quoted_u256(format!("\"{most}\"").as_bytes()),
            Ok(Some(([255; 32], 80)))
        );
        assert!(read_quoted_u256(format!("\"{}6\"", &most[..77]).as_bytes()).is_err());
    }

    #[test]
    fn non_digits_are_detected_after_any_count_of_digits() {
        for count in 1..=7 {
            for next in 0..=255_u8 {
                if next.is_ascii_digit() {
                    continue;
                }
                let mut text = b"\"1234567".to_vec();
                text.truncate(1 + count);
                text.push(next);
                text.extend([b'9'; 8]);
                let expected: u64 = "1234567"[..count].parse().unwrap();
                match next {
                    b'"' => assert_eq!(read_quoted_u64(&text), Ok(Some((expected, count + 2)))),
                    _ => assert!(read_quoted_u64(&text).is_err(), "{text:?}"),
                }
            }
        }
    }

    #[test]
    fn white_space_is_skipped_in_any_length() {
        for run in 0..30 {
            let text = format!("x\n{}\t\r\ny", " ".repeat(run));
            assert_eq!(skip_white_space(text.as_bytes(), 1), run + 5);
            assert_eq!(skip_white_space(&text.as_bytes()[..run], run.min(1)), run);
        }
    }
}
