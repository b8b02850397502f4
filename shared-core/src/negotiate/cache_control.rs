//! Directives of `Cache-Control` that forbid transformations, and requests to the node.

use super::list_header::list_header_members;

/// Whether a `Cache-Control` value contains `no-transform` (RFC 9111, sections 5.2.1.6 and
/// 5.2.2.6). An argument of the directive is ignored.
pub fn has_no_transform(value: &[u8]) -> bool {
    list_header_members(value).any(|member| {
        let name = member.split(|&byte| byte == b'=').next().unwrap_or(member);
        name.eq_ignore_ascii_case(b"no-transform")
    })
}

/// Whether a `Cache-Control` value of a request contains `only-if-cached` (RFC 9111, 5.2.1.7): the node
/// must not receive it. Allocates nothing.
pub fn has_only_if_cached(value: &[u8]) -> bool {
    list_header_members(value).any(|member| member.eq_ignore_ascii_case(b"only-if-cached"))
}

#[cfg(test)]
mod tests {
    use super::{has_no_transform, has_only_if_cached};

    #[test]
    fn only_if_cached_is_one_of_the_members() {
        assert!(has_only_if_cached(b"max-age=60, Only-If-Cached"));
        assert!(!has_only_if_cached(
            b"x-only-if-cached, a=\"b, only-if-cached\""
        ));
    }

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
