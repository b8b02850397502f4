//! Entity tags (RFC 9110, section 8.8.3).

/// Returns the weak form of a strong entity tag, because a compressed body is not byte-identical
/// to the tagged one. `None` if the tag is weak already, or is no entity tag.
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
    fn strong_tags_are_weakened_and_other_values_are_unchanged() {
        assert_eq!(weakened(b"\"a\"").as_deref(), Some(&b"W/\"a\""[..]));
        assert_eq!(weakened(b"\"\"").as_deref(), Some(&b"W/\"\""[..]));
        for value in [&b"W/\"a\""[..], b"a", b"\"", b""] {
            assert_eq!(weakened(value), None);
        }
    }
}
