//! A probe in flight, with its response as far as it was received.

use super::head::Coding;
use crate::config::node_capabilities::ProbeKind;
use crate::memory;

/// Maximum length of a response. Bytes. The constants of mainnet have 10 KB.
pub(super) const MAX_RESPONSE_LENGTH: usize = 128 << 10;

/// A background request for one capability of a node, with its response as far as it was received.
#[derive(Debug)]
pub(super) struct Probe {
    /// Name of the node within its route.
    pub(super) name: Vec<u8>,
    pub(super) question: ProbeKind,
    pub(super) coding: Coding,
    /// Response as far as it was received; `None` if it is unusable or too long.
    pub(super) body: Option<Vec<u8>>,
}

impl Probe {
    /// Appends a piece of the response.
    pub(super) fn append(&mut self, piece: &[u8]) {
        let Some(body) = &mut self.body else {
            return;
        };
        let is_answer = body.len() + piece.len() <= MAX_RESPONSE_LENGTH && !memory::is_short();
        if is_answer && body.try_reserve(piece.len()).is_ok() {
            body.extend_from_slice(piece);
        } else {
            self.body = None;
        }
    }
}
