//! Requests whose bodies are compressed.

use super::refused::Refused;

/// Which of them are decoded, to be looked up, and for whom else.
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
    /// The node has said that it takes none.
    refused: Refused,
}

/// They are all of one kind.
const CODED: usize = 0;

impl CodedRequests {
    pub(super) fn new(decoding: RequestDecoding) -> Self {
        Self {
            decoding,
            refused: Refused::default(),
        }
    }

    /// Whether they are decoded to be looked up.
    pub fn are_read(&self) -> bool {
        self.decoding != RequestDecoding::Off
    }

    /// Whether the node gets them decoded.
    pub fn go_decoded(&self) -> bool {
        match self.decoding {
            RequestDecoding::Off => false,
            RequestDecoding::Auto => self.refused.has(CODED),
            RequestDecoding::Always => true,
        }
    }

    /// The node has answered one with 415 (RFC 9110, 15.5.16).
    pub fn saw_refusal(&self) {
        self.refused.learn(CODED);
    }
}

#[cfg(test)]
mod tests {
    use super::{CodedRequests, RequestDecoding};

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
            assert_eq!(requests.go_decoded(), before);
            shared.saw_refusal();
            assert_eq!(requests.go_decoded(), after);
        }
    }
}
