//! The formats of a value, and the headers that describe them.

use crate::negotiate::media_type;

/// Media type of SSZ.
pub const OCTETS: &[u8] = b"application/octet-stream";

/// Header that names a fork of the consensus layer.
pub const VERSION: &str = "Eth-Consensus-Version";

/// Header that names the type of a result. It is this project's own (docs/transcoding.md).
pub const TYPE: &str = "Sszip-Type";

/// Media type of JSON.
pub const JSON: &[u8] = b"application/json";

/// The format of a value in a body: JSON or SSZ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The value in an envelope.
    Json,
    /// The value alone.
    Ssz,
}

impl Format {
    /// Returns the format that a `Content-Type` declares, or `None` if it is neither.
    pub fn from_content_type(content_type: &[u8]) -> Option<Self> {
        match () {
            () if media_type::names_json(content_type) => Some(Format::Json),
            () if media_type::is_octets(content_type) => Some(Format::Ssz),
            () => None,
        }
    }

    /// Returns the media type of the format, for `Content-Type` and `Accept`.
    pub fn media_type(self) -> &'static [u8] {
        match self {
            Format::Json => JSON,
            Format::Ssz => OCTETS,
        }
    }
}
