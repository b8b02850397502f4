//! Entity tags (RFC 9110, section 8.8.3).

use super::list_header::list_header_members;

/// Returns the weak form of a strong entity tag, because a compressed body is not byte-identical
/// to the tagged one. `None` if the tag is weak already, or is no entity tag.
pub fn weaken_entity_tag(value: &[u8]) -> Option<Vec<u8>> {
    match value {
        [b'"', .., b'"'] => Some([b"W/", value].concat()),
        _ => None,
    }
}

/// Whether a line of `If-None-Match` names this entity tag or all tags, by weak comparison (RFC
/// 9110, 8.8.3.2).
pub fn names_entity_tag(line: &[u8], own: &[u8]) -> bool {
    line == b"*"
        || list_header_members(line).any(|tag| strip_weak_prefix(tag) == strip_weak_prefix(own))
}

/// Returns an entity tag without the mark of a weak one.
fn strip_weak_prefix(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::{names_entity_tag, weaken_entity_tag};

    #[test]
    fn tags_are_compared_weakly() {
        for line in ["*", "\"a\"", "W/\"a\"", "\"b\", W/\"a\""] {
            assert!(names_entity_tag(line.as_bytes(), b"W/\"a\""), "{line}");
            assert!(names_entity_tag(line.as_bytes(), b"\"a\""), "{line}");
        }
        for line in ["", "\"b\"", "W/\"aa\"", "a", "\"*\""] {
            assert!(!names_entity_tag(line.as_bytes(), b"W/\"a\""), "{line}");
        }
    }

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
