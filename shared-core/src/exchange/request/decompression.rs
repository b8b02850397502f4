//! Compressed request bodies.
//!
//! They are decompressed where their contents matter. The node gets them unchanged or, if it
//! does not accept the coding, decompressed. A body that can't be decompressed, or would be too
//! long, is forwarded unchanged.

use crate::exchange::cache::lookup::request::BodyLength;
use crate::exchange::machine::message_head::HeadEdit;
use crate::exchange::machine::transitions::ExchangeState;
use crate::exchange::machine::Exchange;
use crate::gzip::inflate::InflateError;
use crate::memory;
use crate::memory::MemoryReservation;
use crate::request_coding::BodyContentCoding;

/// A request body after decompression, with the reservation of its memory.
pub(in crate::exchange) struct DecompressedRequestBody {
    pub(in crate::exchange) body: Vec<u8>,
    pub(in crate::exchange) memory: MemoryReservation,
}

impl Exchange {
    /// Whether the node receives the request's compressed body decompressed, if that is possible.
    pub(in crate::exchange) fn is_request_sent_decoded(&self) -> bool {
        let coded = self.request.coding.supported_coding();
        coded.is_some_and(|coded| {
            self.route_config
                .coded_requests
                .is_request_coding_decoded(coded)
        }) && !self.request.no_transform
    }

    /// Whether a body of this length has to be read only to decompress it for the node.
    pub(in crate::exchange) fn is_body_read_to_decompress(&self, length: BodyLength) -> bool {
        let fits = match length {
            BodyLength::Known(length) => (1..=self.route_config.max_oneshot).contains(&length),
            BodyLength::Unknown => true,
        };
        fits && self.exchange_state() == ExchangeState::AwaitingHead
            && self.is_request_sent_decoded()
    }

    /// Whether the request waits until a job has decompressed the body: a short body may be long
    /// when it is decompressed.
    pub(in crate::exchange) fn is_decoded_off_loop(&self) -> bool {
        if self.request.coding.supported_coding().is_none() || self.is_request_rewritten() {
            return false;
        }
        match self.lookup_findings.was_decoded {
            Some(is_sound) => is_sound && self.is_request_sent_decoded(),
            None => self.is_request_sent_decoded() || self.awaits_result_format_negotiation(),
        }
    }

    /// Decompresses the body into at most `cap` bytes of reserved memory. An existing
    /// reservation is extended.
    pub(in crate::exchange) fn decompress_request_within(
        &self,
        coded: &[u8],
        cap: usize,
        reserved: Option<MemoryReservation>,
    ) -> Result<DecompressedRequestBody, InflateError> {
        let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
        let refused = InflateError::OutOfMemory;
        let coding = self
            .request
            .coding
            .supported_coding()
            .ok_or(InflateError::Bad)?;
        if memory::is_memory_short() {
            return Err(refused);
        }
        let budget = &self.route_config.process.budget;
        let mut memory = reserved
            .or_else(|| budget.reserve_bytes(0, limit))
            .ok_or(refused)?;
        let before = memory.reserved_bytes();
        let body = coding.decompress_body(coded, cap, |length| {
            memory.grow_reservation_to(before.saturating_add(length), limit)
        })?;
        memory.shrink_reservation_to(before.saturating_add(body.capacity()));
        Ok(DecompressedRequestBody { body, memory })
    }

    /// Forwards the decompressed body in place of the compressed one.
    pub(in crate::exchange) fn forward_decoded_request(
        &mut self,
        decoded: DecompressedRequestBody,
    ) {
        self.request_body = decoded.body;
        self.request_memory = Some(decoded.memory);
        self.remove_request_coding();
    }

    /// Removes the content coding from the upstream request's head.
    pub(in crate::exchange) fn remove_request_coding(&mut self) {
        if self.request.coding != BodyContentCoding::None {
            self.request.coding = BodyContentCoding::None;
            self.upstream_edits
                .push(HeadEdit::remove_header("Content-Encoding"));
        }
    }
}
