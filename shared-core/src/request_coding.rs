//! The content codings of bodies that clients or nodes have compressed (RFC 9110, 8.4), and their
//! decompression.

pub use crate::content_coding::SupportedContentCoding;

use crate::gzip::inflate::{
    decompressed_length_from_trailer, gunzip_truncated, gunzip_within, InflateError,
};
use crate::negotiate::list_header::list_header_members;
use crate::zstd::decode::declared_content_length;
use crate::zstd::{decompress_truncated_zstd, decompress_zstd};

/// Number of bytes that a byte of zstd is assumed to decompress to, if the body does not declare
/// its length.
const ASSUMED_ZSTD_RATIO: usize = 5;

impl SupportedContentCoding {
    /// Returns the number of bytes that decompression has to process: an estimate, at least the
    /// length of `body`.
    pub fn estimate_decompressed_length(self, body: &[u8]) -> usize {
        let declared = match self {
            SupportedContentCoding::Gzip => decompressed_length_from_trailer(body),
            SupportedContentCoding::Zstd => declared_content_length(body)
                .unwrap_or(body.len().saturating_mul(ASSUMED_ZSTD_RATIO)),
        };
        declared.max(body.len())
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
    use crate::body_compressor::BodyCompressor;

    #[test]
    fn decompressed_length_is_estimated_from_the_declared_one() {
        let body = b"0123456789".repeat(1000);
        for compressor in [
            BodyCompressor::Gzip {
                level: 6,
                stream_level: 1,
            },
            BodyCompressor::Zstd {
                level: 1,
                stream_level: 1,
            },
        ] {
            let coding = compressor.content_coding();
            let limit = compressor.compressed_bound(body.len());
            let coded = compressor
                .compress_oneshot_into(&body, limit, Vec::new())
                .unwrap();
            assert_eq!(coding.estimate_decompressed_length(&coded), body.len());
            assert_eq!(
                coding.decompress_body(&coded, body.len(), |_| true),
                Ok(body.clone())
            );
            let name = coding.coding_name().as_bytes();
            assert_eq!(SupportedContentCoding::from_coding_name(name), Some(coding));
            // a damaged body
            assert!(coding.estimate_decompressed_length(b"abcdefgh") >= 8);
        }
        let unsized_frame = zstd::encode_all(&body[..], 1).unwrap();
        assert_eq!(
            SupportedContentCoding::Zstd.estimate_decompressed_length(&unsized_frame),
            5 * unsized_frame.len()
        );
    }

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
