//! Entity tags (RFC 9110, section 8.8.3).

/// Returns the weak form of a strong entity tag, because a compressed body is not byte-identical
/// to the tagged one. `None` if the tag is weak already, or is no entity tag.
pub fn weaken_entity_tag(value: &[u8]) -> Option<Vec<u8>> {
    match value {
        [b'"', .., b'"'] => Some([b"W/", value].concat()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::weaken_entity_tag;

    #[test]
    fn strong_tags_are_weakened_and_other_values_are_unchanged() {
        assert_eq!(
            weaken_entity_tag(b"\"a\"").as_deref(),
            Some(&b"W/\"a\""[..])
        );
        assert_eq!(weaken_entity_tag(b"\"\"").as_deref(), Some(&b"W/\"\""[..]));
        for value in [&b"W/\"a\""[..], b"a", b"\"", b""] {
            assert_eq!(weaken_entity_tag(value), None);
        }
    }
}
