//! The conversion of a response to another format, while its body arrives.

use std::borrow::Cow;

use crate::config::RouteConfig;
use crate::exchange::machine::message_head::HeadEdit;
use crate::memory::MemoryReservation;
use crate::request_coding::SupportedContentCoding;
use crate::transcode::engine::problem;
use crate::transcode::{TranscodeError, Transcoder};

/// Length beyond which a response counts as long: more than a block with its blobs has, and the
/// default of the bytes that are buffered of an original. Bytes.
const LONG_RESPONSE_BYTES: u64 = 4 << 20;

/// Reserves a slot for the transcoding of a long response; the number of slots of a process is
/// limited. `None` if a response of this length needs none. The slot is released when it is
/// dropped.
pub(in crate::exchange) fn reserve_transcoding_slot(
    config: &RouteConfig,
    length: u64,
) -> Result<Option<MemoryReservation>, TranscodeError> {
    if length <= LONG_RESPONSE_BYTES {
        return Ok(None);
    }
    let transcodings = &config.process.transcodings;
    let place = transcodings.reserve_bytes(1, config.ssz.concurrency);
    place.map(Some).ok_or(TranscodeError::Busy)
}

/// The conversion of one response body between JSON and SSZ, with its transcoder and the state of
/// the original.
#[derive(Debug)]
pub(in crate::exchange) struct ResponseFormatConversion {
    pub(in crate::exchange) stage: Result<Transcoder, TranscodeError>,
    /// Whether the client accepts the original, too.
    pub(in crate::exchange) takes_original: bool,
    /// Source of the request, which determines the response if the conversion fails.
    pub(in crate::exchange) of: ConvertedResponseKind,
    /// Coding in which the body arrives, if it is decompressed.
    pub(in crate::exchange) coding: Option<SupportedContentCoding>,
    /// Whether no header declares the format of the body.
    pub(in crate::exchange) is_unlabelled: bool,
    /// Whether the original was too long to be buffered.
    pub(in crate::exchange) is_original_lost: bool,
    /// Number of bytes of the body that were received.
    pub(in crate::exchange) received: u64,
    /// Slot of this conversion, if the response is long.
    pub(in crate::exchange) place: Option<MemoryReservation>,
    /// Edits of the head that apply if an error is sent instead.
    pub(in crate::exchange) refused_edits: Vec<HeadEdit>,
}

/// The kind of request whose response is converted, which determines the response if the conversion
/// fails.
#[derive(Debug)]
pub(in crate::exchange) enum ConvertedResponseKind {
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

impl ResponseFormatConversion {
    /// Number of bytes of the output that were written.
    pub(in crate::exchange) fn written_bytes(&self) -> usize {
        self.stage.as_ref().map_or(0, Transcoder::written_bytes)
    }

    /// Whether the original can be sent: the client accepts it, and it is buffered as a whole.
    pub(in crate::exchange) fn can_send_original(&self) -> bool {
        self.takes_original && !self.is_original_lost
    }

    /// Whether an error is sent if the conversion fails.
    pub(in crate::exchange) fn sends_error_on_failure(&self) -> bool {
        !self.takes_original
            || matches!(self.of, ConvertedResponseKind::Call) && self.is_original_lost
    }

    /// Maximum length in bytes to which a body may be decompressed. It is higher for the response to
    /// a call that replaces a route's, which cannot be sent as it is.
    pub(in crate::exchange) fn max_decompressed_length(&self, config: &RouteConfig) -> u64 {
        let most = config.ssz.max_size;
        match self.of {
            ConvertedResponseKind::Route | ConvertedResponseKind::Call => config.max_oneshot,
            // the JSON form, with members that SSZ does not have
            ConvertedResponseKind::Payload(_) => most.saturating_mul(4).max(config.max_oneshot),
            ConvertedResponseKind::Reply(_) => most.max(config.max_oneshot),
        }
    }

    /// Appends a piece to the beginning of the response, if that may be an error.
    pub(in crate::exchange) fn collect_possible_error_prefix(&mut self, piece: &[u8]) {
        if let ConvertedResponseKind::Payload(prefix) | ConvertedResponseKind::Reply(prefix) =
            &mut self.of
        {
            let more = piece.len().min(problem::MAX_ERROR_BYTES - prefix.len());
            if prefix.try_reserve(more).is_ok() {
                prefix.extend_from_slice(&piece[..more]);
            }
        }
    }

    /// Reserves a slot, if a response of this length needs one and has none.
    pub(in crate::exchange) fn ensure_transcoding_slot(
        &mut self,
        config: &RouteConfig,
        length: u64,
    ) -> Result<(), TranscodeError> {
        if self.place.is_none() {
            self.place = reserve_transcoding_slot(config, length)?;
        }
        Ok(())
    }

    /// Beginning of the response to a bridged request, decompressed; empty for other requests, or if
    /// it cannot be decompressed.
    pub(in crate::exchange) fn decompressed_response_prefix(&self) -> Cow<'_, [u8]> {
        let (ConvertedResponseKind::Payload(prefix) | ConvertedResponseKind::Reply(prefix)) =
            &self.of
        else {
            return Cow::Borrowed(&[]);
        };
        match self.coding {
            Some(coding) => coding
                .decompress_body(prefix, problem::MAX_ERROR_BYTES, |_| true)
                .unwrap_or_default()
                .into(),
            None => Cow::Borrowed(prefix),
        }
    }

    /// Records why the conversion failed, and releases its output and slot.
    pub(in crate::exchange) fn record_conversion_failure(&mut self, why: TranscodeError) {
        if self.stage.is_ok() {
            self.stage = Err(why);
        }
        self.place = None;
    }
}
