//! Entity tags (RFC 9110, section 8.8.3).

/// The weak form of a strong entity tag: a coded body is not byte-identical
/// to the one the tag was made for. `None` if there is nothing to do: the tag
/// is weak already, or no entity tag at all.
pub fn weakened(value: &[u8]) -> Option<Vec<u8>> {
    match value {
        [b'"', .., b'"'] => Some([b"W/", value].concat()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::weakened;

    #[test]
    fn only_strong_tags_change() {
        assert_eq!(weakened(b"\"a\"").as_deref(), Some(&b"W/\"a\""[..]));
        assert_eq!(weakened(b"\"\"").as_deref(), Some(&b"W/\"\""[..]));
        for value in [&b"W/\"a\""[..], b"a", b"\"", b""] {
            assert_eq!(weakened(value), None);
        }
    }
}
