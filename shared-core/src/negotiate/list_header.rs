//! Comma-separated header values (RFC 9110, section 5.6.1).

/// Returns the members of a list, without optional white space around them; empty members are
/// skipped, as 5.6.1.2 requires of recipients. Commas in quoted strings do not separate.
pub fn list_header_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    split_outside_quotes(value, b',').filter(|member| !member.is_empty())
}

/// Returns the parts of a value between `separator`s outside of quoted strings, trimmed.
pub fn split_outside_quotes(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    HeaderValueParts {
        rest: Some(value),
        separator,
    }
}

/// An iterator over the trimmed parts of a header value, between separators outside of quoted
/// strings.
struct HeaderValueParts<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Iterator for HeaderValueParts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let (mut quoted, mut escaped) = (false, false);
        let end = rest.iter().position(|&byte| {
            if escaped {
                escaped = false;
                return false;
            }
            match byte {
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                byte if byte == self.separator && !quoted => return true,
                _ => {}
            }
            false
        });
        let (member, rest) = match end {
            Some(end) => (&rest[..end], Some(&rest[end + 1..])),
            None => (rest, None),
        };
        self.rest = rest;
        Some(trim_header_whitespace(member))
    }
}

/// Returns `value` without optional white space (space, tab) around it.
pub fn trim_header_whitespace(value: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !blank(byte));
    let end = value.iter().rposition(|byte| !blank(byte));
    match (start, end) {
        (Some(start), Some(end)) => &value[start..=end],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::list_header_members;

    fn split(value: &str) -> Vec<String> {
        list_header_members(value.as_bytes())
            .map(|member| String::from_utf8_lossy(member).into_owned())
            .collect()
    }

    #[test]
    fn white_space_and_empty_members_are_removed() {
        assert_eq!(split(" a ,, b\t, "), ["a", "b"]);
        assert_eq!(split(""), Vec::<String>::new());
        assert_eq!(split(" , ,"), Vec::<String>::new());
    }

    #[test]
    fn quoted_comma_does_not_separate() {
        assert_eq!(
            split(r#"a="x,y\",z", no-transform"#),
            [r#"a="x,y\",z""#, "no-transform"]
        );
    }

    #[test]
    fn unclosed_quote_extends_to_the_end() {
        assert_eq!(split(r#"a="b, c"#), [r#"a="b, c"#]);
    }
}
