//! Requests whose bodies are compressed.

use super::refused::Refused;
use crate::coded::Coded;

/// Which of them are decoded, to be read, and for whom else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestDecoding {
    /// None.
    Off,
    /// All; the node gets what the client sent, as long as it takes that.
    #[default]
    Auto,
    /// All, and the node gets none that is coded.
    Always,
}

/// What is done with them at a place. Shared by all settings that are made of one.
#[derive(Clone, Debug, Default)]
pub struct CodedRequests {
    decoding: RequestDecoding,
    /// What the node has said that it does not take.
    refused: Refused,
}

impl CodedRequests {
    pub(super) fn new(decoding: RequestDecoding) -> Self {
        Self {
            decoding,
            refused: Refused::default(),
        }
    }

    /// Whether they are decoded to be read.
    pub fn are_read(&self) -> bool {
        self.decoding != RequestDecoding::Off
    }

    /// Whether the node gets those decoded that are coded like that.
    pub fn go_decoded(&self, coded: Coded) -> bool {
        match self.decoding {
            RequestDecoding::Off => false,
            RequestDecoding::Auto => self.refused.has(coded.number()),
            RequestDecoding::Always => true,
        }
    }

    /// The node has answered one with 415 (RFC 9110, 15.5.16).
    pub fn saw_refusal(&self, coded: Coded) {
        self.refused.learn(coded.number());
    }
}

#[cfg(test)]
mod tests {
    use super::{Coded, CodedRequests, RequestDecoding};

    #[test]
    fn a_refusal_is_remembered_where_it_matters() {
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
            // of another coding it has said nothing
            assert_eq!(requests.go_decoded(Coded::Zstd), before);
        }
    }
}
