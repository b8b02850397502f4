//! A body on its way to another format, as far as it has come.

use super::head::HeadEdit;
use crate::transcode::engine::problem;
use crate::transcode::{Transcoder, Why};

/// A body on its way to another format.
#[derive(Debug)]
pub(super) struct Transcoding {
    pub(super) stage: Result<Transcoder, Why>,
    /// The client can do with the original, too.
    pub(super) takes_original: bool,
    /// Who asked, and how that is answered where nothing comes of it.
    pub(super) of: Of,
    /// It was too long to be kept.
    pub(super) is_original_lost: bool,
    /// Bytes of it that came.
    pub(super) came: u64,
    /// Fields that a refusal of ours does not have.
    pub(super) refused_edits: Vec<HeadEdit>,
}

/// Who asked for what is on its way to another format.
#[derive(Debug)]
pub(super) enum Of {
    /// A route of the Beacon API: it can be asked again.
    Route,
    /// A call: what has become of its result is said in any case.
    Call,
    /// A route of the Engine API, which is a call at the node. The beginning of the
    /// answer, for it may be an error.
    Payload(Vec<u8>),
    /// A call, which is a route at the node. The same.
    Reply(Vec<u8>),
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
        !self.takes_original || matches!(self.of, Of::Call) && self.is_original_lost
    }

    /// What came, if that is of use for an error.
    pub(super) fn hear(&mut self, piece: &[u8]) {
        if let Of::Payload(said) | Of::Reply(said) = &mut self.of {
            let more = piece.len().min(problem::LOOKED_AT - said.len());
            if said.try_reserve(more).is_ok() {
                said.extend_from_slice(&piece[..more]);
            }
        }
    }

    /// Nothing comes of it: what was made is freed.
    pub(super) fn fail(&mut self, why: Why) {
        if self.stage.is_ok() {
            self.stage = Err(why);
        }
    }
}
