//! Request bodies that clients have compressed (RFC 9110, 8.4), and their decompression.

use crate::gzip::inflate::{gunzip_truncated, gunzip_within, InflateError};
use crate::negotiate::list_header::list_header_members;
use crate::zstd::{decompress_truncated_zstd, decompress_zstd};

/// A content coding that sszip can decompress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupportedContentCoding {
    /// gzip (RFC 1952); `x-gzip` is an alias (RFC 9110, 8.4.1.3).
    Gzip,
    /// zstd (RFC 8878).
    Zstd,
}

impl SupportedContentCoding {
    /// Returns the content coding with this name in any case, or `None` if sszip cannot decode it.
    fn from_coding_name(name: &[u8]) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match () {
            () if is("gzip") || is("x-gzip") => Some(SupportedContentCoding::Gzip),
            () if is("zstd") => Some(SupportedContentCoding::Zstd),
            () => None,
        }
    }

    /// Number of the coding, below 32.
    pub fn coding_bit_index(self) -> usize {
        match self {
            SupportedContentCoding::Gzip => 0,
            SupportedContentCoding::Zstd => 1,
        }
    }

    /// Decompresses a complete body into at most `cap` bytes; `may_take` is called with the
    /// total length before memory is allocated.
    ///
    /// # Errors
    /// [`InflateError`].
    pub fn decompress_body(
        self,
        body: &[u8],
        cap: usize,
        may_take: impl FnMut(usize) -> bool,
    ) -> Result<Vec<u8>, InflateError> {
        match self {
            SupportedContentCoding::Gzip => gunzip_within(body, cap, may_take),
            SupportedContentCoding::Zstd => decompress_zstd(body, cap, may_take),
        }
    }

    /// Decompresses as much of a truncated body as was received; no checksum verifies it.
    ///
    /// # Errors
    /// The errors of [`decompress_body`](Self::decompress_body); [`InflateError::Bad`] if the body
    /// contains other data.
    pub fn decompress_truncated_body(
        self,
        body: &[u8],
        cap: usize,
        may_take: impl FnMut(usize) -> bool,
    ) -> Result<Vec<u8>, InflateError> {
        match self {
            SupportedContentCoding::Gzip => gunzip_truncated(body, cap, may_take),
            SupportedContentCoding::Zstd => decompress_truncated_zstd(body, cap, may_take),
        }
    }
}

/// The content coding of a body, as its head declares it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyContentCoding {
    /// No content coding.
    #[default]
    None,
    /// A coding that is decompressed.
    Coded(SupportedContentCoding),
    /// Another coding, or several: the body can't be read.
    Other,
}

impl BodyContentCoding {
    /// Updates the coding with one line of `Content-Encoding`; a second coding makes it `Other`.
    pub fn update_from_coding_line(&mut self, value: &[u8]) {
        for name in list_header_members(value) {
            *self = match (*self, SupportedContentCoding::from_coding_name(name)) {
                (BodyContentCoding::None, Some(coded)) => BodyContentCoding::Coded(coded),
                _ => BodyContentCoding::Other,
            };
        }
    }

    /// Returns the content coding of a response's body; `identity` is ignored.
    pub fn from_response_headers<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut coding = BodyContentCoding::None;
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(b"content-encoding") {
                let names = list_header_members(value);
                let is_coding = |name: &&[u8]| !name.eq_ignore_ascii_case(b"identity");
                names
                    .filter(is_coding)
                    .for_each(|name| coding.update_from_coding_line(name));
            }
        }
        coding
    }

    /// Returns the coding, if it is one that is decompressed.
    pub fn supported_coding(self) -> Option<SupportedContentCoding> {
        match self {
            BodyContentCoding::Coded(coded) => Some(coded),
            BodyContentCoding::None | BodyContentCoding::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BodyContentCoding, SupportedContentCoding};

    #[test]
    fn single_known_coding_is_decompressed() {
        let of = |lines: &[&str]| {
            let mut coding = BodyContentCoding::None;
            lines
                .iter()
                .for_each(|line| coding.update_from_coding_line(line.as_bytes()));
            coding
        };
        for lines in [&[][..], &[""], &[" , "]] {
            assert_eq!(of(lines), BodyContentCoding::None, "{lines:?}");
        }
        for lines in [&["gzip"][..], &["X-GZip"], &["", " gzip ,"]] {
            assert_eq!(
                of(lines),
                BodyContentCoding::Coded(SupportedContentCoding::Gzip),
                "{lines:?}"
            );
        }
        assert_eq!(
            of(&["Zstd"]),
            BodyContentCoding::Coded(SupportedContentCoding::Zstd)
        );
        for lines in [
            &["br"][..],
            &["zstd, gzip"],
            &["identity"],
            &["gzip, gzip"],
            &["gzip", "br"],
            &["identity", "gzip"],
            &["gzi"],
        ] {
            assert_eq!(of(lines), BodyContentCoding::Other, "{lines:?}");
        }
    }
}
