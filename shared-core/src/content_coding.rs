//! The content codings of bodies that sszip reads and sends (RFC 9110, 8.4).

/// A content coding that sszip can decompress and compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupportedContentCoding {
    /// gzip (RFC 1952); `x-gzip` is an alias (RFC 9110, 8.4.1.3).
    Gzip,
    /// zstd (RFC 8878).
    Zstd,
}

impl SupportedContentCoding {
    /// Returns the content coding with this name in any case, or `None` if sszip cannot decode it.
    pub(crate) fn from_coding_name(name: &[u8]) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match () {
            () if is("gzip") || is("x-gzip") => Some(SupportedContentCoding::Gzip),
            () if is("zstd") => Some(SupportedContentCoding::Zstd),
            () => None,
        }
    }

    /// Returns the name of the coding in `Content-Encoding`.
    pub fn coding_name(self) -> &'static str {
        match self {
            SupportedContentCoding::Gzip => "gzip",
            SupportedContentCoding::Zstd => "zstd",
        }
    }

    /// Number of the coding, below 32.
    pub fn coding_bit_index(self) -> usize {
        match self {
            SupportedContentCoding::Gzip => 0,
            SupportedContentCoding::Zstd => 1,
        }
    }
}
