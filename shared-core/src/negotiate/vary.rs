//! `Vary` (RFC 9110, section 12.5.5).

use std::borrow::Cow;

use super::list_header::trim_header_whitespace;

/// Whether `name` is among the members of the header lines. `*` matches every name.
pub fn is_named_in_vary<'a>(lines: impl Iterator<Item = &'a [u8]>, name: &str) -> bool {
    let mut lines = lines;
    lines.any(|line| {
        vary_members(line)
            .any(|member| member == b"*" || member.eq_ignore_ascii_case(name.as_bytes()))
    })
}

/// Returns one line with the members of `lines` and `name`, which is not among them.
pub fn add_vary_name<'a>(lines: impl Iterator<Item = &'a [u8]>, name: &str) -> Vec<u8> {
    let mut value = join_vary_members(lines, |_| true);
    if !value.is_empty() {
        value.extend_from_slice(b", ");
    }
    value.extend_from_slice(name.as_bytes());
    value
}

/// Returns one line with the members of `lines` except `name`; empty if none is left.
pub fn remove_vary_name<'a>(lines: impl Iterator<Item = &'a [u8]>, name: &str) -> Vec<u8> {
    join_vary_members(lines, |member| {
        !member.eq_ignore_ascii_case(name.as_bytes())
    })
}

/// Returns `Vary` of a response with these lines of `Vary`; `None` if it has none. A response that
/// `varies_on_encoding` names `Accept-Encoding`, unless the host adds the name itself.
pub fn complete_vary_header(
    lines: &[&[u8]],
    varies_on_encoding: bool,
    adds_encoding: bool,
) -> Option<Cow<'static, [u8]>> {
    const NAME: &str = "Accept-Encoding";
    if lines.is_empty() {
        // the usual case
        return adds_encoding.then_some(Cow::Borrowed(NAME.as_bytes()));
    }
    let all = || lines.iter().copied();
    let vary = if varies_on_encoding && !adds_encoding {
        remove_vary_name(all(), NAME)
    } else if !varies_on_encoding || is_named_in_vary(all(), NAME) {
        remove_vary_name(all(), "")
    } else {
        add_vary_name(all(), NAME)
    };
    (!vary.is_empty()).then_some(Cow::Owned(vary))
}

/// Returns the members of a line, which are tokens: a quote has no meaning here, and an unclosed
/// one must not hide the members after it.
fn vary_members(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',')
        .map(trim_header_whitespace)
        .filter(|member| !member.is_empty())
}

/// Returns one line with those members of `lines` that `keep` accepts.
fn join_vary_members<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    keep: impl Fn(&[u8]) -> bool,
) -> Vec<u8> {
    let mut value = Vec::new();
    for member in lines.flat_map(vary_members).filter(|member| keep(member)) {
        if !value.is_empty() {
            value.extend_from_slice(b", ");
        }
        value.extend_from_slice(member);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::{add_vary_name, complete_vary_header, is_named_in_vary, remove_vary_name};

    fn lines<'a>(values: &'a [&str]) -> impl Iterator<Item = &'a [u8]> + Clone {
        values.iter().map(|value| value.as_bytes())
    }

    #[test]
    fn name_is_found_in_any_case_line_and_position() {
        let name = "Accept-Encoding";
        assert!(is_named_in_vary(lines(&["Origin, ACCEPT-encoding"]), name));
        assert!(is_named_in_vary(
            lines(&["Origin", "Accept-Encoding"]),
            name
        ));
        assert!(is_named_in_vary(lines(&["*"]), name));
        assert!(!is_named_in_vary(
            lines(&["Accept, X-Accept-Encoding"]),
            name
        ));
        assert!(!is_named_in_vary(lines(&[]), name));
    }

    /// Regression test: the name was added again at each hop.
    #[test]
    fn unclosed_quote_does_not_hide_a_name() {
        let value = add_vary_name(lines(&["\"x"]), "X");
        assert_eq!(value, b"\"x, X");
        assert!(is_named_in_vary([&value[..]].into_iter(), "X"));
        assert_eq!(
            remove_vary_name(lines(&["\"a, X", "\"b"]), "X"),
            b"\"a, \"b"
        );
    }

    #[test]
    fn header_lines_are_merged_into_one() {
        assert_eq!(
            add_vary_name(lines(&["Origin", " Accept ,"]), "X"),
            b"Origin, Accept, X"
        );
        assert_eq!(add_vary_name(lines(&[]), "X"), b"X");
        assert_eq!(remove_vary_name(lines(&["A, x", "B"]), "X"), b"A, B");
        assert_eq!(remove_vary_name(lines(&["x"]), "X"), b"");
    }

    #[test]
    fn accept_encoding_is_named_once_unless_the_host_adds_it() {
        let vary = |lines: &[&str], varies, adds| {
            let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
            let vary = complete_vary_header(&lines, varies, adds)?;
            Some(String::from_utf8(vary.into_owned()).unwrap())
        };
        for (lines, varies, adds, expected) in [
            (&[][..], false, false, None),
            (&[], true, true, Some("Accept-Encoding")),
            (&[], true, false, None),
            (&["Origin", "Accept"], false, false, Some("Origin, Accept")),
            (&["Origin"], true, true, Some("Origin, Accept-Encoding")),
            (&["accept-encoding"], true, true, Some("accept-encoding")),
            (&["Origin, Accept-Encoding"], true, false, Some("Origin")),
            (&["Accept-Encoding"], true, false, None),
        ] {
            assert_eq!(vary(lines, varies, adds).as_deref(), expected, "{lines:?}");
        }
    }
}
