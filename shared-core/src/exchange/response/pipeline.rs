//! Buffered bodies, and the memory that they and their stages reserve.

use std::sync::Arc;

use crate::cache::entry::BorrowedIdentityBytes;
use crate::config::RouteConfig;
use crate::exchange::machine::message_head::{HeadEdit, ResponseHead};
use crate::exchange::response::body_stages::{BodyStages, CompressionRequirement};
use crate::exchange::response::length_limit::max_compressed_length;
use crate::faults::{is_fault_injected, InjectedTestFault};
use crate::gzip::inflate::InflateError;
use crate::memory::MemoryReservation;
use crate::request_coding::SupportedContentCoding;
use crate::response_mode::ResponseMode;
use crate::{json, memory};

/// Bytes that are reserved for a body before its first piece arrives.
const INITIAL_RESERVATION: usize = 64 << 10;

/// The received bytes of an upstream body that an exchange buffers, with their reservation and the
/// properties that the head declares.
#[derive(Debug, Default)]
pub(in crate::exchange) struct BufferedBody {
    /// Bytes that the upstream sent.
    pub(in crate::exchange) body: Vec<u8>,
    pub(in crate::exchange) reservation: Option<MemoryReservation>,
    /// Length of the body in bytes, if the head declares it.
    pub(in crate::exchange) declared: Option<usize>,
    /// Whether the end of a body without a length can be distinguished from a truncation.
    pub(in crate::exchange) delimited: bool,
    /// Edits of the head that apply only if the body is compressed, decompressed or converted.
    pub(in crate::exchange) recoded_edits: Vec<HeadEdit>,
    /// Reservations for the parts of cache entries that are sent with the body.
    pub(in crate::exchange) borrowed: EntryReservations,
}

impl BufferedBody {
    /// Returns a body without bytes, with the length and the delimiter that this head declares.
    pub(in crate::exchange) fn for_response_head<I>(head: &ResponseHead<I>) -> Self {
        // the Content-Length of a 304 describes the body that a 200 would have
        let length = head.content_length.filter(|_| head.status != 304);
        Self {
            // a length beyond the address space is also beyond max_oneshot
            declared: length.map(|length| usize::try_from(length).unwrap_or(usize::MAX)),
            delimited: head.delimited,
            ..Self::default()
        }
    }

    /// Whether fewer bytes were received than the head declared.
    pub(in crate::exchange) fn is_truncated(&self) -> bool {
        self.declared
            .is_some_and(|declared| self.body.len() < declared)
    }

    /// Whether a body of unknown length is known to be complete.
    pub(in crate::exchange) fn is_complete(&self) -> bool {
        self.delimited || json::is_closed_json(&self.body)
    }

    /// Reserves memory for the beginning of a body of known `length`, if the whole body could fit
    /// alone: its own bytes and, during the compression, the output. A declared length alone
    /// reserves nothing.
    pub(in crate::exchange) fn reserve_for_length(
        &mut self,
        config: &RouteConfig,
        length: usize,
    ) -> Result<(), ResponseMode> {
        check_body_memory_limit(config, length, length)?;
        self.reserve_and_grow(config, length.min(INITIAL_RESERVATION), length)
    }

    /// Reserves memory for the beginning of a conversion, if all of it could fit alone: at most
    /// `original` bytes of the original, and an estimated `made` bytes of the other format.
    pub(in crate::exchange) fn reserve_for_conversion(
        &mut self,
        config: &RouteConfig,
        original: usize,
        made: usize,
    ) -> Result<(), ResponseMode> {
        check_body_memory_limit(config, original, made)?;
        self.reserve_body_and_output(
            config,
            original.min(INITIAL_RESERVATION),
            made.min(INITIAL_RESERVATION),
        )
    }

    /// Reserves memory for `length` bytes of a body that may reach `most`. The reservation doubles,
    /// so that it is rarely more than twice the bytes received.
    pub(in crate::exchange) fn grow_reservation(
        &mut self,
        config: &RouteConfig,
        length: usize,
        most: usize,
    ) -> Result<(), ResponseMode> {
        let reserved = self
            .reservation
            .as_ref()
            .map_or(0, |it| it.reserved_bytes() / 2);
        if reserved.min(self.body.capacity()) >= length {
            return Ok(());
        }
        let more = reserved
            .saturating_mul(2)
            .max(INITIAL_RESERVATION)
            .min(most)
            .max(length);
        self.reserve_and_grow(config, more, most)
    }

    /// Reserves memory for `length` bytes of the upstream's part of a split batch, which may reach
    /// `most`.
    pub(in crate::exchange) fn reserve_split_batch_response(
        &mut self,
        config: &RouteConfig,
        length: usize,
        most: u64,
    ) -> Result<(), ResponseMode> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let most = self.declared.unwrap_or(most).min(most).max(length);
        match self.grow_reservation(config, length, most) {
            Ok(()) => Ok(()),
            Err(_) => self.reserve_and_grow(config, length, most),
        }
    }

    /// Reserves memory for `length` bytes of a body that may reach `most`.
    ///
    /// A body of declared length gets its whole buffer at once, so that it is not copied as it
    /// grows: pages that were never written take no memory. In WebAssembly they do take memory of
    /// the sandbox, which is never released; the buffer grows there as needed.
    fn reserve_and_grow(
        &mut self,
        config: &RouteConfig,
        length: usize,
        most: usize,
    ) -> Result<(), ResponseMode> {
        self.reserve_body_and_output(config, length, length)?;
        let is_free = self.declared.is_some() && cfg!(not(target_family = "wasm"));
        self.grow_buffer_capacity(if is_free { most } else { length })
    }

    /// Reserves memory for the body and for the output that is made from it, in bytes.
    pub(in crate::exchange) fn reserve_body_and_output(
        &mut self,
        config: &RouteConfig,
        body: usize,
        output: usize,
    ) -> Result<(), ResponseMode> {
        let limit = usize::try_from(config.memory).unwrap_or(usize::MAX);
        let needed = body.checked_add(output).ok_or(ResponseMode::Memory)?;
        match &mut self.reservation {
            Some(reservation) => reservation.grow_reservation_to(needed, limit).then_some(()),
            None => {
                self.reservation = config.process.budget.reserve_bytes(needed, limit);
                self.reservation.as_ref().map(|_| ())
            }
        }
        .ok_or(ResponseMode::Memory)
    }

    /// Grows the capacity of the buffer to `room` bytes; they are not reserved here.
    fn grow_buffer_capacity(&mut self, room: usize) -> Result<(), ResponseMode> {
        let more = room.saturating_sub(self.body.len());
        if self.body.try_reserve_exact(more).is_err()
            || is_fault_injected(InjectedTestFault::FailAlloc)
        {
            return Err(ResponseMode::Memory);
        }
        Ok(())
    }

    /// Shrinks the reservation for the body to `bytes`.
    pub(in crate::exchange) fn shrink_reservation(&mut self, bytes: usize) {
        if let Some(reservation) = &mut self.reservation {
            reservation.shrink_reservation_to(bytes);
        }
    }

    /// Decompresses the body, which has this coding, into at most `most` bytes, which are reserved
    /// before they are allocated. The compressed body is kept.
    pub(in crate::exchange) fn decompress_buffered(
        &mut self,
        config: &RouteConfig,
        coding: SupportedContentCoding,
        most: u64,
    ) -> Result<Vec<u8>, ResponseMode> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let coded = std::mem::take(&mut self.body);
        let decoded = coding.decompress_body(&coded, most, |length| {
            self.reserve_body_and_output(config, coded.capacity(), length)
                .is_ok()
        });
        self.body = coded;
        decoded.map_err(|error| match error {
            InflateError::TooLarge => ResponseMode::Encoded,
            InflateError::OutOfMemory => ResponseMode::Memory,
            InflateError::Bad => ResponseMode::Failed,
        })
    }
}

/// Returns an error if a body would exceed `sszip_memory` with nothing else reserved.
fn check_body_memory_limit(
    config: &RouteConfig,
    body: usize,
    output: usize,
) -> Result<(), ResponseMode> {
    let limit = usize::try_from(config.memory).unwrap_or(usize::MAX);
    match body.saturating_add(output) > limit {
        true => Err(ResponseMode::Memory),
        false => Ok(()),
    }
}

/// A buffered response body, and the stages that it passes through when it is complete.
#[derive(Debug)]
pub(in crate::exchange) struct BufferedBodyPipeline {
    pub(in crate::exchange) stages: BodyStages,
    pub(in crate::exchange) buffered: BufferedBody,
    /// Buffer for the compressed body. It is allocated by the thread that collected the body:
    /// memory that compression threads allocate stays in their arenas when another thread frees it.
    pub(in crate::exchange) room: Vec<u8>,
    /// Limit of the body's length in bytes, if it is buffered until the length is known.
    pub(in crate::exchange) most: Option<u64>,
    /// Coding of the body, if the limit applies to its length without the coding.
    pub(in crate::exchange) measured: Option<SupportedContentCoding>,
    /// Mode of the response if it is within the limit, where the limit is the only reason for
    /// buffering it.
    pub(in crate::exchange) left_alone: Option<ResponseMode>,
}

impl BufferedBodyPipeline {
    pub(in crate::exchange) fn new(stages: BodyStages, buffered: BufferedBody) -> Self {
        Self {
            stages,
            buffered,
            room: Vec::new(),
            most: None,
            measured: None,
            left_alone: None,
        }
    }

    /// Whether the body ended before the length that its head declared.
    pub(in crate::exchange) fn is_shorter_than_declared(&self) -> bool {
        let received = match &self.stages.transcoding {
            Some(transcoding) => transcoding.received,
            None => self.buffered.body.len() as u64,
        };
        let declared = self.buffered.declared;
        declared.is_some_and(|declared| received < declared as u64)
    }

    /// Whether the body has an unknown length and is buffered until the window ends.
    pub(in crate::exchange) fn is_in_buffering_window(&self) -> bool {
        self.has_streamable_unknown_length() && self.most.is_none()
    }

    /// Whether the body is compressed and not otherwise changed, so that it can be streamed if
    /// there is no memory for all of it.
    pub(in crate::exchange) fn can_compress_as_stream(&self) -> bool {
        let stages = &self.stages;
        let is_only_compressed = stages.inflates.is_none() && stages.transcoding.is_none();
        is_only_compressed && stages.compression.is_some() && self.most.is_none()
    }

    /// Whether the length is unknown and the stages allow the body to be streamed.
    pub(in crate::exchange) fn has_streamable_unknown_length(&self) -> bool {
        let stages = &self.stages;
        let is_unknown = self.buffered.declared.is_none();
        is_unknown && stages.inflates.is_none() && stages.transcoding.is_none()
    }

    /// Maximum number of bytes that may be received, if the response has a limit.
    fn max_received_length(&self) -> Option<u64> {
        let most = self.most?;
        Some(match self.measured {
            Some(_) => max_compressed_length(most),
            None => most,
        })
    }

    /// Whether a body with `length` received bytes exceeds its limit.
    pub(in crate::exchange) fn exceeds_length_limit(&self, length: u64) -> bool {
        self.max_received_length().is_some_and(|most| length > most)
    }

    /// Whether a body of `length` is too short to be compressed.
    pub(in crate::exchange) fn is_below_compression_gate(
        &self,
        config: &RouteConfig,
        length: usize,
    ) -> bool {
        let stages = &self.stages;
        let is_any_length = stages.compression.is_some_and(|it| it.at_any_length);
        stages.inflates.is_none() && !is_any_length && (length as u64) < config.min_length
    }

    /// Number of bytes that the compression thread has to process.
    pub(in crate::exchange) fn compression_work(&self, config: &RouteConfig) -> usize {
        let body = &self.buffered.body;
        match (
            self.measured.or(self.stages.inflates),
            &self.stages.transcoding,
        ) {
            (Some(coding), _) => estimate_decompression_work(coding, body, config),
            (None, Some(transcoding)) => transcoding.written_bytes(),
            (None, None) => body.len(),
        }
    }

    /// Number of bytes beyond which [`compression_work`](Self::compression_work) takes too long
    /// for an event loop. Entries are compressed with gzip, whatever the client receives.
    pub(in crate::exchange) fn off_loop_min_length(
        &self,
        config: &RouteConfig,
        is_stored: bool,
    ) -> usize {
        let most = self.stages.body_compressor(config).off_loop_min_length();
        let gzip = config.body_compressor(SupportedContentCoding::Gzip);
        match is_stored {
            true => most.min(gzip.off_loop_min_length()),
            false => most,
        }
    }

    /// Length in bytes that the compressed body must stay below.
    pub(in crate::exchange) fn max_useful_length(&self, config: &RouteConfig) -> usize {
        let length = self.buffered.body.len();
        match self.stages.compression {
            Some(CompressionRequirement {
                coding,
                at_any_length: true,
            }) => config.body_compressor(coding).compressed_bound(length),
            _ => length,
        }
    }

    /// Allocates the buffer for the compressed body, on the thread that collected the body.
    pub(in crate::exchange) fn allocate_output_buffer(&mut self, config: &RouteConfig) {
        if self.stages.transcoding.is_some() {
            // the length of the output is not known yet
            return;
        }
        // no encoder will be needed
        let buffered = &mut self.buffered;
        buffered.shrink_reservation(buffered.body.capacity() + buffered.body.len());
        if self.stages.compression.is_some() {
            // if the allocation fails, the compression reports it
            let _ = self.room.try_reserve_exact(self.max_useful_length(config));
        }
    }

    /// Grows the buffer for a body of `length` bytes so far, or returns the reason to stop
    /// buffering.
    pub(in crate::exchange) fn reserve_received_length(
        &mut self,
        config: &RouteConfig,
        length: usize,
    ) -> Result<(), ResponseMode> {
        let most = match self.max_received_length() {
            Some(most) => most,
            None if self.is_in_buffering_window() => config.hold.min(config.max_oneshot),
            None => config.max_oneshot,
        };
        if memory::is_memory_short() {
            return Err(ResponseMode::Memory);
        }
        match self.buffered.declared {
            // the upstream sent more than it declared: pass it on unchanged
            Some(declared) if length > declared => Err(ResponseMode::Failed),
            Some(declared) => self.buffered.grow_reservation(config, length, declared),
            None if length as u64 > most => Err(ResponseMode::Encoded),
            None => {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                self.reserve_with_encoder(config, length, most)
            }
        }
    }

    /// Reserves memory for a body that has grown to `length` and may reach `most`. The buffer grows
    /// in steps, so that it is rarely copied.
    ///
    /// A body in the buffering window may have to be streamed, so memory for an encoder is reserved
    /// with it; without that memory the buffering stops.
    fn reserve_with_encoder(
        &mut self,
        config: &RouteConfig,
        length: usize,
        most: usize,
    ) -> Result<(), ResponseMode> {
        let is_in_window = self.is_in_buffering_window();
        let compressor = self.stages.body_compressor(config);
        let buffered = &mut self.buffered;
        let room = match buffered.body.capacity() {
            enough if enough >= length => enough,
            little => length.max(little.saturating_mul(2).min(most)),
        };
        if is_in_window {
            let encoder = compressor.stream_encoder_size();
            match buffered.reserve_body_and_output(config, room, length.max(encoder)) {
                Ok(()) => return buffered.grow_buffer_capacity(room),
                // the bytes buffered so far can be streamed
                Err(reason)
                    if buffered
                        .reserve_body_and_output(config, buffered.body.capacity(), encoder)
                        .is_ok() =>
                {
                    return Err(reason)
                }
                // no memory for an encoder, but one-shot compression may succeed
                Err(_) => {}
            }
        }
        buffered.reserve_body_and_output(config, room, length)?;
        buffered.grow_buffer_capacity(room)
    }
}

/// Returns the number of bytes that the decompression of `compressed` has to process: at least
/// its own length, at most `max_oneshot`.
pub(in crate::exchange) fn estimate_decompression_work(
    coding: SupportedContentCoding,
    compressed: &[u8],
    config: &RouteConfig,
) -> usize {
    let most = usize::try_from(config.max_oneshot).unwrap_or(usize::MAX);
    coding
        .estimate_decompressed_length(compressed)
        .min(most)
        .max(compressed.len())
}

/// The memory reservations for all cache entries whose bytes are sent in one response.
pub(in crate::exchange) type EntryReservations = Vec<SentEntryReservation>;

/// A memory reservation that lasts while bytes of a cache entry are sent.
#[derive(Debug)]
pub(in crate::exchange) enum SentEntryReservation {
    /// Memory of a decompressed entry.
    DecodedEntry(Arc<BorrowedIdentityBytes>),
    /// Memory of a body that was assembled from entries.
    Assembled { _memory: MemoryReservation },
}
