//! The `Cache-Control` directive that forbids transformations.

use super::list_header::list_header_members;

/// Whether a `Cache-Control` value contains `no-transform` (RFC 9111, sections 5.2.1.6 and
/// 5.2.2.6). An argument of the directive is ignored.
pub fn has_no_transform(value: &[u8]) -> bool {
    list_header_members(value).any(|member| {
        let name = member.split(|&byte| byte == b'=').next().unwrap_or(member);
        name.eq_ignore_ascii_case(b"no-transform")
    })
}

#[cfg(test)]
mod tests {
    use super::has_no_transform;

    #[test]
    fn no_transform_is_found_among_others_in_any_case() {
        assert!(has_no_transform(b"no-transform"));
        assert!(has_no_transform(b"max-age=60, No-Transform"));
        assert!(has_no_transform(b"no-transform=1"));
    }

    #[test]
    fn no_transform_is_not_found_inside_other_words() {
        assert!(!has_no_transform(b"x-no-transform, no-transforms"));
        assert!(!has_no_transform(b"private=\"no-transform, x\""));
        assert!(!has_no_transform(b""));
    }
}
