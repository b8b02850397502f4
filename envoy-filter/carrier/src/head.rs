//! Heads of messages. Envoy's header names are in lower case, and method, target, host and status
//! are pseudo-headers, whatever the protocol.

use sszip_core::exchange::{HeadEdit, Header};

/// A message head that a host has read, pseudo-headers (`:method`, `:status`) included.
pub trait HostMessageHead {
    /// Iterates over all headers.
    fn iter_headers(&self) -> impl Iterator<Item = Header<'_>> + Clone;

    /// Iterates over the headers except the pseudo-headers.
    fn regular_headers(&self) -> impl Iterator<Item = Header<'_>> + Clone {
        self.iter_headers()
            .filter(|(name, _)| !name.starts_with(b":"))
    }

    /// Returns the value of the first line of a header, whose name is in lower case.
    fn header_value(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.iter_headers();
        fields.find_map(|(known, value)| (known == name.as_bytes()).then_some(value))
    }

    /// Returns the length of the body in bytes, if the head contains it.
    fn content_length(&self) -> Option<u64> {
        self.header_value("content-length").and_then(parse_decimal)
    }

    /// Returns the method of a request (`:method`); empty if there is none.
    fn request_method(&self) -> &[u8] {
        self.header_value(":method").unwrap_or_default()
    }

    /// Returns the target of a request: path and query.
    fn target(&self) -> &[u8] {
        self.header_value(":path").unwrap_or_default()
    }

    /// Returns the query of a request without its question mark; empty: it has none.
    fn query(&self) -> &[u8] {
        let target = self.target();
        let mark = target.iter().position(|byte| *byte == b'?');
        mark.map_or(&[], |mark| &target[mark + 1..])
    }

    /// Returns the host of a request (`:authority`); empty if there is none.
    fn host(&self) -> &[u8] {
        self.header_value(":authority").unwrap_or_default()
    }

    /// Returns the status of a response; 0: it has no valid one.
    fn status(&self) -> u16 {
        let status = self.header_value(":status").and_then(parse_decimal);
        status.unwrap_or_default() as u16
    }
}

/// The header map of a message in Envoy, which a filter reads and changes within a hook.
pub trait EnvoyHeaderMap {
    /// The headers as they were when they were read.
    type Head: HostMessageHead;

    /// Copies the present headers.
    fn copy_headers(&self) -> Self::Head;

    /// Sets a header to one line, or removes it.
    fn set_header(&self, name: &str, value: Option<&[u8]>);

    /// Applies edits. Of several edits of one header, the last one is its value.
    fn apply_edits(&self, edits: &[HeadEdit]) {
        for edit in effective_edits(edits) {
            self.set_header(&edit.name, edit.value.as_deref());
        }
    }
}

/// Iterates over the edits of a head without those that a later edit of the same header replaces.
pub fn effective_edits(edits: &[HeadEdit]) -> impl Iterator<Item = &HeadEdit> + Clone {
    edits.iter().enumerate().filter_map(move |(index, edit)| {
        let mut later = edits[index + 1..].iter();
        let is_replaced = later.any(|other| other.name.eq_ignore_ascii_case(&edit.name));
        (!is_replaced).then_some(edit)
    })
}

/// Parses a decimal number.
pub fn parse_decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;

    use super::{EnvoyHeaderMap, HostMessageHead};
    use sszip_core::exchange::{HeadEdit, Header};

    /// A message head of a test, by its header lines.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct HeadLines(pub(crate) Vec<(String, String)>);

    impl HeadLines {
        pub(crate) fn new(lines: &[(&str, &str)]) -> Self {
            let lines = lines.iter();
            Self(
                lines
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
            )
        }
    }

    impl HostMessageHead for HeadLines {
        fn iter_headers(&self) -> impl Iterator<Item = Header<'_>> + Clone {
            self.0
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        }
    }

    /// A header map of a test, in memory.
    pub(crate) struct MemoryHeaders(pub(crate) RefCell<HeadLines>);

    impl EnvoyHeaderMap for MemoryHeaders {
        type Head = HeadLines;

        fn copy_headers(&self) -> HeadLines {
            self.0.borrow().clone()
        }

        fn set_header(&self, name: &str, value: Option<&[u8]>) {
            let name = name.to_ascii_lowercase();
            let lines = &mut self.0.borrow_mut().0;
            lines.retain(|(known, _)| *known != name);
            let value = value.map(|value| String::from_utf8_lossy(value).into_owned());
            lines.extend(value.map(|value| (name, value)));
        }
    }

    #[test]
    fn header_with_several_edits_has_the_last_value() {
        let headers = MemoryHeaders(RefCell::new(HeadLines::new(&[("vary", "Origin")])));
        let edit = |name: &'static str, value: Option<&'static [u8]>| HeadEdit {
            name: name.into(),
            value: value.map(Into::into),
        };
        headers.apply_edits(&[
            edit("Vary", Some(b"Origin, Accept-Encoding")),
            edit("Etag", None),
            edit("vary", Some(b"Origin, Accept-Encoding, Accept")),
        ]);
        let expected = HeadLines::new(&[("vary", "Origin, Accept-Encoding, Accept")]);
        assert_eq!(headers.copy_headers(), expected);
    }

    #[test]
    fn query_is_the_part_of_the_target_after_the_first_question_mark() {
        for (target, query) in [
            ("/", ""),
            ("/?", ""),
            ("/a?b", "b"),
            ("/a?b?c", "b?c"),
            ("", ""),
        ] {
            let head = HeadLines::new(&[(":method", "GET"), (":path", target)]);
            assert_eq!(head.query(), query.as_bytes(), "{target}");
        }
    }

    #[test]
    fn malformed_numbers_of_a_head_are_ignored() {
        let head = HeadLines::new(&[(":status", "2x0"), ("content-length", "-1")]);
        assert_eq!((head.status(), head.content_length()), (0, None));
        let head = HeadLines::new(&[(":status", "206"), ("content-length", "70000")]);
        assert_eq!((head.status(), head.content_length()), (206, Some(70_000)));
    }

    #[test]
    fn pseudo_headers_are_not_plain_headers() {
        let head = HeadLines::new(&[(":status", "200"), ("a", "1"), ("a", "2")]);
        let plain: Vec<_> = head.regular_headers().collect();
        assert_eq!(plain, [(&b"a"[..], &b"1"[..]), (b"a", b"2")]);
        assert_eq!(head.header_value("a"), Some(&b"1"[..]));
    }
}
