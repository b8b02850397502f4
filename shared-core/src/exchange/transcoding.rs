//! A body on its way to another format, as far as it has come.

use std::borrow::Cow;

use super::head::HeadEdit;
use crate::config::Config;
use crate::gzip::inflate::gunzip;
use crate::memory::Reservation;
use crate::transcode::engine::problem;
use crate::transcode::{Transcoder, Why};

/// Longer answers of nodes are long: more than a block with its blobs has, and no more
/// than is kept of them by default. Bytes.
const LONG: u64 = 4 << 20;

/// A place among the long answers that the process transcodes at a time, given back when
/// it is dropped; `None`: one of that length needs none.
pub(super) fn place(config: &Config, length: u64) -> Result<Option<Reservation>, Why> {
    if length <= LONG {
        return Ok(None);
    }
    let transcodings = &config.process.transcodings;
    let place = transcodings.reserve(1, config.ssz.concurrency);
    place.map(Some).ok_or(Why::Busy)
}

/// A body on its way to another format.
#[derive(Debug)]
pub(super) struct Transcoding {
    pub(super) stage: Result<Transcoder, Why>,
    /// The client can do with the original, too.
    pub(super) takes_original: bool,
    /// Who asked, and how that is answered where nothing comes of it.
    pub(super) of: Of,
    /// It comes as gzip.
    pub(super) is_gzip: bool,
    /// Nothing says which format it has.
    pub(super) is_unlabelled: bool,
    /// It was too long to be kept.
    pub(super) is_original_lost: bool,
    /// Bytes of it that came.
    pub(super) came: u64,
    /// Its own among those that are long, if it is.
    pub(super) place: Option<Reservation>,
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

    /// No longer body is decoded: there is no other use for what bridges give.
    pub(super) fn most_to_inflate(&self, config: &Config) -> u64 {
        let most = config.ssz.max_size;
        match self.of {
            Of::Route | Of::Call => config.max_oneshot,
            // of JSON, with what SSZ has not
            Of::Payload(_) => most.saturating_mul(4).max(config.max_oneshot),
            Of::Reply(_) => most.max(config.max_oneshot),
        }
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

    /// Takes a place, if it has none, and one of that length needs one.
    pub(super) fn take_place(&mut self, config: &Config, length: u64) -> Result<(), Why> {
        if self.place.is_none() {
            self.place = place(config, length)?;
        }
        Ok(())
    }

    /// What was [heard](Self::hear), as it was before it was coded.
    pub(super) fn said(&self) -> Cow<'_, [u8]> {
        let (Of::Payload(said) | Of::Reply(said)) = &self.of else {
            return Cow::Borrowed(&[]);
        };
        match self.is_gzip {
            true => gunzip(said, problem::LOOKED_AT).unwrap_or_default().into(),
            false => Cow::Borrowed(said),
        }
    }

    /// Nothing comes of it: what was made is freed, and its place.
    pub(super) fn fail(&mut self, why: Why) {
        if self.stage.is_ok() {
            self.stage = Err(why);
        }
        self.place = None;
    }
}
