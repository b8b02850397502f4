//! Decompression of request bodies.

use super::refused::Refused;
use crate::coded::Coded;

/// The compressed requests that are decoded, and the body that the node receives.
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

/// Treatment of compressed requests on a route. All settings that are cloned from one share it.
#[derive(Clone, Debug, Default)]
pub struct CodedRequests {
    decoding: RequestDecoding,
    /// Content codings that the node has refused.
    refused: Refused,
}

impl CodedRequests {
    pub(super) fn new(decoding: RequestDecoding) -> Self {
        Self {
            decoding,
            refused: Refused::default(),
        }
    }

    /// Whether compressed requests are decoded.
    pub fn are_read(&self) -> bool {
        self.decoding != RequestDecoding::Off
    }

    /// Whether the node receives requests with this content coding decoded.
    pub fn go_decoded(&self, coded: Coded) -> bool {
        match self.decoding {
            RequestDecoding::Off => false,
            RequestDecoding::Auto => self.refused.has(coded.number()),
            RequestDecoding::Always => true,
        }
    }

    /// Records that the node has refused the content coding with 415 (RFC 9110, 15.5.16).
    pub fn saw_refusal(&self, coded: Coded) {
        self.refused.learn(coded.number());
    }
}

#[cfg(test)]
mod tests {
    use super::{Coded, CodedRequests, RequestDecoding};

    #[test]
    fn refused_coding_is_forwarded_decoded_in_auto_mode() {
        use RequestDecoding::{Always, Auto, Off};
        for (decoding, reads, before, after) in [
            (Off, false, false, false),
            (Auto, true, false, true),
            (Always, true, true, true),
        ] {
            let requests = CodedRequests::new(decoding);
            assert_eq!(requests.are_read(), reads);
            let shared = requests.clone();
            assert_eq!(requests.go_decoded(Coded::Gzip), before);
            shared.saw_refusal(Coded::Gzip);
            assert_eq!(requests.go_decoded(Coded::Gzip), after);
            // the other coding is not refused
            assert_eq!(requests.go_decoded(Coded::Zstd), before);
        }
    }
}
