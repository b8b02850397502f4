//! The content type of a QUERY (RFC 10008, 2.1).

use super::media_type;

/// The type of a QUERY's content, as the head declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryContentType {
    /// The head has no type.
    Missing,
    /// JSON.
    Json,
    /// Another type, or several.
    Other,
}

impl QueryContentType {
    /// Reads the type from the headers of a request.
    pub fn from_headers<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let types = fields.filter(|(name, value)| {
            name.eq_ignore_ascii_case(b"content-type") && !value.trim_ascii().is_empty()
        });
        types.fold(
            QueryContentType::Missing,
            |former, (_, value)| match former {
                QueryContentType::Other => QueryContentType::Other,
                _ if media_type::is_json_type(value) => QueryContentType::Json,
                _ => QueryContentType::Other,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::QueryContentType;

    #[test]
    fn content_type_is_json_only_if_all_lines_are() {
        for (lines, expected) in [
            (&[][..], QueryContentType::Missing),
            (&[""], QueryContentType::Missing),
            (&["application/json"], QueryContentType::Json),
            (&["Application/JSON; charset=utf-8"], QueryContentType::Json),
            (
                &["application/json", "application/json"],
                QueryContentType::Json,
            ),
            (&["text/plain"], QueryContentType::Other),
            (&["application/problem+json"], QueryContentType::Other),
            (&["application/json", "text/plain"], QueryContentType::Other),
            (&["text/plain", "application/json"], QueryContentType::Other),
            (&["application/octet-stream"], QueryContentType::Other),
        ] {
            let fields = lines
                .iter()
                .map(|line: &&str| (&b"Content-Type"[..], line.as_bytes()));
            let fields = fields.chain([(&b"Accept"[..], &b"text/plain"[..])]);
            assert_eq!(
                QueryContentType::from_headers(fields),
                expected,
                "{lines:?}"
            );
        }
    }
}
