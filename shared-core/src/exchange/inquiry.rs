//! A probe in flight, with its response as far as it was received.

use super::head::Coding;
use crate::config::learnt::Question;
use crate::memory;

/// Maximum length of a response. Bytes. The constants of mainnet have 10 KB.
pub(super) const MOST: usize = 128 << 10;

/// A probe in flight.
#[derive(Debug)]
pub(super) struct Inquiry {
    /// Name of the node within its route.
    pub(super) name: Vec<u8>,
    pub(super) question: Question,
    pub(super) coding: Coding,
    /// Response as far as it was received; `None` if it is unusable or too long.
    pub(super) body: Option<Vec<u8>>,
}

impl Inquiry {
    /// Appends a piece of the response.
    pub(super) fn take(&mut self, piece: &[u8]) {
        let Some(body) = &mut self.body else {
            return;
        };
        let is_answer = body.len() + piece.len() <= MOST && !memory::is_short();
        if is_answer && body.try_reserve(piece.len()).is_ok() {
            body.extend_from_slice(piece);
        } else {
            self.body = None;
        }
    }
}
