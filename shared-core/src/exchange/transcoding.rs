//! The conversion of a response to another format, while its body arrives.

use std::borrow::Cow;

use super::head::HeadEdit;
use crate::config::Config;
use crate::gzip::inflate::gunzip;
use crate::memory::Reservation;
use crate::transcode::engine::problem;
use crate::transcode::{Transcoder, Why};

/// Length beyond which a response counts as long: more than a block with its blobs has, and the
/// default of the bytes that are buffered of an original. Bytes.
const LONG: u64 = 4 << 20;

/// Returns a slot among the long responses that the process transcodes at a time, which is
/// released when it is dropped; `None` if a response of this length needs none.
pub(super) fn place(config: &Config, length: u64) -> Result<Option<Reservation>, Why> {
    if length <= LONG {
        return Ok(None);
    }
    let transcodings = &config.process.transcodings;
    let place = transcodings.reserve(1, config.ssz.concurrency);
    place.map(Some).ok_or(Why::Busy)
}

/// The conversion of one body.
#[derive(Debug)]
pub(super) struct Transcoding {
    pub(super) stage: Result<Transcoder, Why>,
    /// Whether the client accepts the original, too.
    pub(super) takes_original: bool,
    /// Source of the request, which determines the response if the conversion fails.
    pub(super) of: Of,
    /// Whether the body arrives as gzip.
    pub(super) is_gzip: bool,
    /// Whether no header declares the format of the body.
    pub(super) is_unlabelled: bool,
    /// Whether the original was too long to be buffered.
    pub(super) is_original_lost: bool,
    /// Number of bytes of the body that were received.
    pub(super) came: u64,
    /// Slot of this conversion, if the response is long.
    pub(super) place: Option<Reservation>,
    /// Edits of the head that apply if an error is sent instead.
    pub(super) refused_edits: Vec<HeadEdit>,
}

/// The kind of request whose response is converted.
#[derive(Debug)]
pub(super) enum Of {
    /// A route of the Beacon API, which can be requested again.
    Route,
    /// A call, whose client is informed of its result in any case.
    Call,
    /// A route of the Engine API, which is a call at the node; with the beginning of the
    /// response, which may be an error.
    Payload(Vec<u8>),
    /// A call, which is a route at the node; with the beginning of the response, which may be an
    /// error.
    Reply(Vec<u8>),
}

impl Transcoding {
    /// Number of bytes of the output that were written.
    pub(super) fn written(&self) -> usize {
        self.stage.as_ref().map_or(0, Transcoder::written)
    }

    /// Whether the original can be sent.
    pub(super) fn keeps_original(&self) -> bool {
        self.takes_original && !self.is_original_lost
    }

    /// Whether an error is sent if the conversion fails.
    pub(super) fn refuses(&self) -> bool {
        !self.takes_original || matches!(self.of, Of::Call) && self.is_original_lost
    }

    /// Maximum length in bytes of a decompressed body: bridged responses have no other use.
    pub(super) fn most_to_inflate(&self, config: &Config) -> u64 {
        let most = config.ssz.max_size;
        match self.of {
            Of::Route | Of::Call => config.max_oneshot,
            // the JSON form, with members that SSZ does not have
            Of::Payload(_) => most.saturating_mul(4).max(config.max_oneshot),
            Of::Reply(_) => most.max(config.max_oneshot),
        }
    }

    /// Appends a piece to the beginning of the response, if that may be an error.
    pub(super) fn hear(&mut self, piece: &[u8]) {
        if let Of::Payload(said) | Of::Reply(said) = &mut self.of {
            let more = piece.len().min(problem::LOOKED_AT - said.len());
            if said.try_reserve(more).is_ok() {
                said.extend_from_slice(&piece[..more]);
            }
        }
    }

    /// Reserves a slot, if a response of this length needs one and has none.
    pub(super) fn take_place(&mut self, config: &Config, length: u64) -> Result<(), Why> {
        if self.place.is_none() {
            self.place = place(config, length)?;
        }
        Ok(())
    }

    /// Beginning of the response, decompressed.
    pub(super) fn said(&self) -> Cow<'_, [u8]> {
        let (Of::Payload(said) | Of::Reply(said)) = &self.of else {
            return Cow::Borrowed(&[]);
        };
        match self.is_gzip {
            true => gunzip(said, problem::LOOKED_AT).unwrap_or_default().into(),
            false => Cow::Borrowed(said),
        }
    }

    /// Records a failure: the output and the slot are released.
    pub(super) fn fail(&mut self, why: Why) {
        if self.stage.is_ok() {
            self.stage = Err(why);
        }
        self.place = None;
    }
}
