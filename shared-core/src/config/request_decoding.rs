//! Decompression of request bodies.

use super::rejected_media_types::RejectedMediaTypes;
use crate::request_coding::RequestCoding;

/// The setting that decides which compressed requests are decoded, and which body the node
/// receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestDecoding {
    /// No request is decoded.
    Off,
    /// All requests are decoded; the node receives the compressed body until it refuses one.
    #[default]
    Auto,
    /// All requests are decoded, and the node receives decoded bodies only.
    Always,
}

/// The treatment of compressed requests on a route: its setting, and the content codings that its
/// node has refused. All settings that are cloned from one share it.
#[derive(Clone, Debug, Default)]
pub struct CompressedRequests {
    decoding: RequestDecoding,
    /// Content codings that the node has refused.
    refused: RejectedMediaTypes,
}

impl CompressedRequests {
    pub(super) fn new(decoding: RequestDecoding) -> Self {
        Self {
            decoding,
            refused: RejectedMediaTypes::default(),
        }
    }

    /// Whether compressed requests are decoded.
    pub fn is_enabled(&self) -> bool {
        self.decoding != RequestDecoding::Off
    }

    /// Whether the node receives requests with this content coding decoded.
    pub fn is_forwarded_decoded(&self, coded: RequestCoding) -> bool {
        match self.decoding {
            RequestDecoding::Off => false,
            RequestDecoding::Auto => self.refused.contains(coded.index()),
            RequestDecoding::Always => true,
        }
    }

    /// Records that the node has refused the content coding with 415 (RFC 9110, 15.5.16).
    pub fn record_415(&self, coded: RequestCoding) {
        self.refused.insert(coded.index());
    }
}

#[cfg(test)]
mod tests {
    use super::{CompressedRequests, RequestCoding, RequestDecoding};

    #[test]
    fn refused_coding_is_forwarded_decoded_in_auto_mode() {
        use RequestDecoding::{Always, Auto, Off};
        for (decoding, reads, before, after) in [
            (Off, false, false, false),
            (Auto, true, false, true),
            (Always, true, true, true),
        ] {
            let requests = CompressedRequests::new(decoding);
            assert_eq!(requests.is_enabled(), reads);
            let shared = requests.clone();
            assert_eq!(requests.is_forwarded_decoded(RequestCoding::Gzip), before);
            shared.record_415(RequestCoding::Gzip);
            assert_eq!(requests.is_forwarded_decoded(RequestCoding::Gzip), after);
            // the other coding is not refused
            assert_eq!(requests.is_forwarded_decoded(RequestCoding::Zstd), before);
        }
    }
}
