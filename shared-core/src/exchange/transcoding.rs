//! A body on its way to another format, as far as it has come.

use super::head::HeadEdit;
use crate::transcode::{Transcoder, Why};

/// A body on its way to another format.
#[derive(Debug)]
pub(super) struct Transcoding {
    pub(super) stage: Result<Transcoder, Why>,
    /// The client can do with the original, too.
    pub(super) takes_original: bool,
    /// It is the result of a call: what has become of that is said in any case.
    pub(super) is_result: bool,
    /// It was too long to be kept.
    pub(super) is_original_lost: bool,
    /// Bytes of it that came.
    pub(super) came: u64,
    /// Fields that a refusal of ours does not have.
    pub(super) refused_edits: Vec<HeadEdit>,
}

impl Transcoding {
    /// Bytes of what was made so far.
    pub(super) fn written(&self) -> usize {
        self.stage.as_ref().map_or(0, Transcoder::written)
    }

    /// Whether the original can be sent.
    pub(super) fn keeps_original(&self) -> bool {
        self.takes_original && !self.is_original_lost
    }

    /// Whether an answer of ours says why nothing comes of it.
    pub(super) fn refuses(&self) -> bool {
        !self.takes_original || self.is_result && self.is_original_lost
    }

    /// Nothing comes of it: what was made is freed.
    pub(super) fn fail(&mut self, why: Why) {
        if self.stage.is_ok() {
            self.stage = Err(why);
        }
    }
}
