//! A question on its way to a node, as far as its answer has come.

use super::head::Coding;
use crate::config::learnt::Question;
use crate::memory;

/// No answer is longer: mainnet's constants have 10 KB. Bytes.
pub(super) const MOST: usize = 128 << 10;

/// A question on its way to a node.
#[derive(Debug)]
pub(super) struct Inquiry {
    /// The node's name at its place.
    pub(super) name: Vec<u8>,
    pub(super) question: Question,
    pub(super) coding: Coding,
    /// What came of the answer; `None`: it is none, or too long for one.
    pub(super) body: Option<Vec<u8>>,
}

impl Inquiry {
    /// A piece of the answer.
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
