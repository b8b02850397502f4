//! The formats of a value, and the headers that describe them.

use crate::negotiate::media_type;

/// Media type of SSZ.
pub const SSZ_MEDIA_TYPE: &[u8] = b"application/octet-stream";

/// Header that names a fork of the consensus layer.
pub const CONSENSUS_VERSION_HEADER: &str = "Eth-Consensus-Version";

/// Header that names the type of a result. It is this project's own (docs/transcoding.md).
pub const SSZ_TYPE_HEADER: &str = "Sszip-Type";

/// Media type of JSON.
pub const JSON_MEDIA_TYPE: &[u8] = b"application/json";

/// The format of a value in a body: JSON or SSZ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// The value in an envelope.
    Json,
    /// The value alone.
    Ssz,
}

impl BodyFormat {
    /// Returns the format that a `Content-Type` declares, or `None` if it is neither.
    pub fn from_content_type(content_type: &[u8]) -> Option<Self> {
        match () {
            () if media_type::is_json_like_media_type(content_type) => Some(BodyFormat::Json),
            () if media_type::is_octet_stream(content_type) => Some(BodyFormat::Ssz),
            () => None,
        }
    }

    /// Returns the media type of the format, for `Content-Type` and `Accept`.
    pub fn media_type(self) -> &'static [u8] {
        match self {
            BodyFormat::Json => JSON_MEDIA_TYPE,
            BodyFormat::Ssz => SSZ_MEDIA_TYPE,
        }
    }
}
