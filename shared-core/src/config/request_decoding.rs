//! Decompression of request bodies.

use super::rejected_media_types::NodeRejectedBodyKinds;
use crate::request_coding::SupportedContentCoding;

/// The value of `request_decoding`: the compressed requests that are decoded, and the form in which
/// the node receives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestDecompressionMode {
    /// No request is decoded.
    Off,
    /// All requests are decoded; the node receives the compressed body until it refuses one.
    #[default]
    Auto,
    /// All requests are decoded, and the node receives decoded bodies only.
    Always,
}

/// The treatment of compressed requests on a route: the configured mode, and the content codings
/// that the node has refused. Clones share the refusals.
#[derive(Clone, Debug, Default)]
pub struct RequestDecompressionPolicy {
    decoding: RequestDecompressionMode,
    /// Content codings that the node has refused.
    refused: NodeRejectedBodyKinds,
}

impl RequestDecompressionPolicy {
    pub(super) fn new(decoding: RequestDecompressionMode) -> Self {
        Self {
            decoding,
            refused: NodeRejectedBodyKinds::default(),
        }
    }

    /// Whether compressed requests may be decompressed, always or for nodes that refuse them.
    pub fn is_decoding_enabled(&self) -> bool {
        self.decoding != RequestDecompressionMode::Off
    }

    /// Whether the node receives requests with this content coding decoded.
    pub fn is_request_coding_decoded(&self, coded: SupportedContentCoding) -> bool {
        match self.decoding {
            RequestDecompressionMode::Off => false,
            RequestDecompressionMode::Auto => {
                self.refused.has_node_refused_kind(coded.coding_bit_index())
            }
            RequestDecompressionMode::Always => true,
        }
    }

    /// Records that the node has refused the content coding with 415 (RFC 9110, 15.5.16).
    pub fn record_refused_coding(&self, coded: SupportedContentCoding) {
        self.refused.record_node_refusal(coded.coding_bit_index());
    }
}

#[cfg(test)]
mod tests {
    use super::{RequestDecompressionMode, RequestDecompressionPolicy, SupportedContentCoding};

    #[test]
    fn refused_coding_is_forwarded_decoded_in_auto_mode() {
        use RequestDecompressionMode::{Always, Auto, Off};
        for (decoding, reads, before, after) in [
            (Off, false, false, false),
            (Auto, true, false, true),
            (Always, true, true, true),
        ] {
            let requests = RequestDecompressionPolicy::new(decoding);
            assert_eq!(requests.is_decoding_enabled(), reads);
            let shared = requests.clone();
            assert_eq!(
                requests.is_request_coding_decoded(SupportedContentCoding::Gzip),
                before
            );
            shared.record_refused_coding(SupportedContentCoding::Gzip);
            assert_eq!(
                requests.is_request_coding_decoded(SupportedContentCoding::Gzip),
                after
            );
            // the other coding is not refused
            assert_eq!(
                requests.is_request_coding_decoded(SupportedContentCoding::Zstd),
                before
            );
        }
    }
}
