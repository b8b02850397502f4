//! The prefix of an RLP item: its kind and its length.

/// The decoded prefix of an RLP item: its kind and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ssz) struct RlpPrefix {
    pub(in crate::ssz) is_list: bool,
    /// Length of the content in bytes.
    pub(in crate::ssz) len: u64,
    /// Length of the prefix in bytes. 0: the first byte is the item itself.
    pub(in crate::ssz) size: usize,
}

/// Maximum length of a prefix in bytes.
pub(in crate::ssz) const MAX_RLP_PREFIX: usize = 9;

/// Reads the prefix at the beginning of an RLP item. `Ok(None)`: the prefix continues after
/// `bytes`.
///
/// # Errors
/// The prefix is not the shortest one for its length.
pub(in crate::ssz) fn read_rlp_prefix(bytes: &[u8]) -> Result<Option<RlpPrefix>, &'static str> {
    let Some(first) = bytes.first() else {
        return Ok(None);
    };
    let prefix = |is_list, len, size| Ok(Some(RlpPrefix { is_list, len, size }));
    match *first {
        0..=0x7f => prefix(false, 1, 0),
        // a single byte below 0x80 has no prefix
        0x81 => match bytes.get(1) {
            None => Ok(None),
            Some(0..=0x7f) => Err("a single byte below 0x80 has a prefix"),
            Some(_) => prefix(false, 1, 1),
        },
        short @ 0x80..=0xb7 => prefix(false, u64::from(short - 0x80), 1),
        long @ 0xb8..=0xbf => read_long_prefix(bytes, false, long - 0xb7),
        short @ 0xc0..=0xf7 => prefix(true, u64::from(short - 0xc0), 1),
        long @ 0xf8.. => read_long_prefix(bytes, true, long - 0xf7),
    }
}

/// Reads a prefix whose length takes `of` bytes after the first one.
fn read_long_prefix(
    bytes: &[u8],
    is_list: bool,
    of: u8,
) -> Result<Option<RlpPrefix>, &'static str> {
    let of = usize::from(of);
    let Some(digits) = bytes.get(1..=of) else {
        return Ok(None);
    };
    let len = digits
        .iter()
        .fold(0_u64, |len, digit| len << 8 | u64::from(*digit));
    if digits[0] == 0 || len < 56 {
        return Err("a length has more bytes than necessary");
    }
    Ok(Some(RlpPrefix {
        is_list,
        len,
        size: 1 + of,
    }))
}

/// Appends the prefix of an RLP item, whose content of `len` bytes follows.
pub(in crate::ssz) fn write_rlp_prefix(is_list: bool, len: u64, to: &mut Vec<u8>) {
    let (short, long) = match is_list {
        true => (0xc0, 0xf7),
        false => (0x80, 0xb7),
    };
    if len < 56 {
        to.push(short + len as u8);
        return;
    }
    let digits = len.to_be_bytes();
    let digits = &digits[len.leading_zeros() as usize / 8..];
    to.push(long + digits.len() as u8);
    to.extend_from_slice(digits);
}

/// Returns the RLP prefix of a string of bytes, or `None` for a single byte below 0x80, which has
/// none.
pub(in crate::ssz) fn rlp_string_prefix(bytes: &[u8]) -> Option<Vec<u8>> {
    if let [0..=0x7f] = bytes {
        return None;
    }
    let mut prefix = Vec::with_capacity(MAX_RLP_PREFIX);
    write_rlp_prefix(false, bytes.len() as u64, &mut prefix);
    Some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_prefixes_are_read_back() {
        for is_list in [true, false] {
            for len in [0, 2, 55, 56, 255, 256, 65_535, 65_536, 1 << 24, u64::MAX] {
                let mut bytes = Vec::new();
                write_rlp_prefix(is_list, len, &mut bytes);
                let size = bytes.len();
                for cut in 0..size {
                    assert_eq!(read_rlp_prefix(&bytes[..cut]), Ok(None));
                }
                bytes.push(0xff);
                let expected = RlpPrefix { is_list, len, size };
                assert_eq!(read_rlp_prefix(&bytes), Ok(Some(expected)));
            }
        }
        assert!(read_rlp_prefix(b"\x81\x7f").is_err() && read_rlp_prefix(b"\x81\x80").is_ok());
        assert!(read_rlp_prefix(b"\xb8\x37").is_err() && read_rlp_prefix(b"\xb8\x38").is_ok());
        assert!(read_rlp_prefix(b"\xf9\x00\xff").is_err());
        assert_eq!(rlp_string_prefix(b"\x7f"), None);
        assert_eq!(rlp_string_prefix(b"\x80"), Some(vec![0x81]));
        assert_eq!(rlp_string_prefix(b""), Some(vec![0x80]));
    }
}
