//! `Vary` (RFC 9110, section 12.5.5).

use super::list_header::trim;

/// Whether `name` is among the members of the header lines. `*` matches every name.
pub fn covers<'a>(lines: impl Iterator<Item = &'a [u8]>, name: &str) -> bool {
    let mut lines = lines;
    lines.any(|line| {
        members(line).any(|member| member == b"*" || member.eq_ignore_ascii_case(name.as_bytes()))
    })
}

/// Returns one line with the members of `lines` and `name`, which is not among them.
pub fn add_name<'a>(lines: impl Iterator<Item = &'a [u8]>, name: &str) -> Vec<u8> {
    let mut value = joined(lines, |_| true);
    if !value.is_empty() {
        value.extend_from_slice(b", ");
    }
    value.extend_from_slice(name.as_bytes());
    value
}

/// Returns one line with the members of `lines` except `name`; empty if none is left.
pub fn remove_name<'a>(lines: impl Iterator<Item = &'a [u8]>, name: &str) -> Vec<u8> {
    joined(lines, |member| {
        !member.eq_ignore_ascii_case(name.as_bytes())
    })
}

/// Returns the members of a line, which are tokens: a quote has no meaning here, and an unclosed
/// one must not hide the members after it.
fn members(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',')
        .map(trim)
        .filter(|member| !member.is_empty())
}

/// Returns one line with those members of `lines` that `keep` accepts.
fn joined<'a>(lines: impl Iterator<Item = &'a [u8]>, keep: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut value = Vec::new();
    for member in lines.flat_map(members).filter(|member| keep(member)) {
        if !value.is_empty() {
            value.extend_from_slice(b", ");
        }
        value.extend_from_slice(member);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::{add_name, covers, remove_name};

    fn lines<'a>(values: &'a [&str]) -> impl Iterator<Item = &'a [u8]> + Clone {
        values.iter().map(|value| value.as_bytes())
    }

    #[test]
    fn name_is_found_in_any_case_line_and_position() {
        let name = "Accept-Encoding";
        assert!(covers(lines(&["Origin, ACCEPT-encoding"]), name));
        assert!(covers(lines(&["Origin", "Accept-Encoding"]), name));
        assert!(covers(lines(&["*"]), name));
        assert!(!covers(lines(&["Accept, X-Accept-Encoding"]), name));
        assert!(!covers(lines(&[]), name));
    }

    /// Regression test: the name was added again at each hop.
    #[test]
    fn unclosed_quote_does_not_hide_a_name() {
        let value = add_name(lines(&["\"x"]), "X");
        assert_eq!(value, b"\"x, X");
        assert!(covers([&value[..]].into_iter(), "X"));
        assert_eq!(remove_name(lines(&["\"a, X", "\"b"]), "X"), b"\"a, \"b");
    }

    #[test]
    fn header_lines_are_merged_into_one() {
        assert_eq!(
            add_name(lines(&["Origin", " Accept ,"]), "X"),
            b"Origin, Accept, X"
        );
        assert_eq!(add_name(lines(&[]), "X"), b"X");
        assert_eq!(remove_name(lines(&["A, x", "B"]), "X"), b"A, B");
        assert_eq!(remove_name(lines(&["x"]), "X"), b"");
    }
}
