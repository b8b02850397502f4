//! Results of calls as SSZ, which are converted from the stored JSON for each hit.

use crate::cache::entry::CacheEntry;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::machine::message_head::{is_byte_dependent_header, HeadEdit};
use crate::exchange::machine::Exchange;
use crate::exchange::response::pipeline::{EntryReservations, SentEntryReservation};
use crate::exchange::response::ready_response::ReadyResponse;
use crate::exchange::ssz::conversion::reserve_transcoding_slot;
use crate::gzip::open_stream::compress_to_open_stream;
use crate::gzip::splice::{assemble_gzip_member, GzipMemberInput, SlicedBody};
use crate::memory;
use crate::memory::MemoryReservation;
use crate::request_coding::SupportedContentCoding;
use crate::transcode::{
    BodyFormat, TranscodeError, TranscodeRequest, Transcoder, SSZ_MEDIA_TYPE, SSZ_TYPE_HEADER,
};
use crate::zstd::open_blocks::compress_to_open_blocks;
use crate::zstd::splice::{assemble_zstd_frame, ZstdFrameInput};

/// Bytes of JSON that are read between two updates of the reservation.
const JSON_PIECE_BYTES: usize = 256 << 10;

impl Exchange {
    /// Whether the client requested the result of a call as SSZ.
    pub(in crate::exchange) fn wants_ssz_result(&self) -> bool {
        self.ssz_result_negotiation().is_some()
    }

    /// Returns the negotiation of the format of a call's result, if it is SSZ.
    fn ssz_result_negotiation(&self) -> Option<TranscodeRequest> {
        let ssz = self.request.ssz;
        ssz.filter(|ssz| ssz.is_rpc_call() && ssz.client_format() == Some(BodyFormat::Ssz))
    }

    /// Responds with the result of an entry as SSZ or, where it has none, with the JSON under its
    /// id. Returns `None` if memory is short.
    pub(super) fn respond_with_ssz_result(
        &mut self,
        entry: &CacheEntry,
        id: &[u8],
        lookup: &LookupRequest<'_>,
        mut borrowed: EntryReservations,
    ) -> Option<Box<ReadyResponse>> {
        let ssz = self.ssz_result_negotiation()?;
        if !self.reserve_entry_decode(entry, &mut borrowed) {
            return None;
        }
        let json = entry.response_for_identity_client(id)?;
        // reserved until the result is compressed
        let place = reserve_transcoding_slot(&self.route_config, json.byte_length());
        let made = place.and_then(|place| Ok((place, self.convert_result_to_ssz(ssz, &json)?)));
        let (_place, (result, memory)) = match made {
            Ok(made) => made,
            Err(TranscodeError::Memory) => return None,
            // errors, results of another type and results beyond a limit: the node's JSON
            Err(why) => {
                self.not_ssz = Some(why.error_response_mode());
                let level = self.route_config.zstd_level;
                let body = match self.hit_coding(Some(entry), lookup) {
                    Some(coding) => entry.response_for_coding(id, coding, level, false)?,
                    None => json,
                };
                return Some(self.respond_with_entry_body(entry, Some(body), lookup, borrowed));
            }
        };
        borrowed.push(SentEntryReservation::Assembled { _memory: memory });
        let body = self.compress_ssz_result(result, lookup)?;
        let answer = self.respond_with_entry_body(entry, Some(body), lookup, borrowed);
        self.head_edits.retain(|edit| {
            let is = |name: &str| edit.name.eq_ignore_ascii_case(name);
            !is("content-type") && !is("etag") && !is_byte_dependent_header(edit.name.as_bytes())
        });
        self.head_edits
            .push(HeadEdit::set_header("Content-Type", SSZ_MEDIA_TYPE));
        if let Some(label) = ssz.ssz_type_header() {
            self.head_edits
                .push(HeadEdit::set_header(SSZ_TYPE_HEADER, label.into_bytes()));
        }
        Some(answer)
    }

    /// Converts the JSON result to SSZ. Returns the SSZ with the reservation of its memory, which
    /// must live as long.
    fn convert_result_to_ssz(
        &self,
        ssz: TranscodeRequest,
        json: &SlicedBody,
    ) -> Result<(Vec<u8>, MemoryReservation), TranscodeError> {
        let config = &self.route_config;
        let limit = usize::try_from(config.memory).unwrap_or(usize::MAX);
        let mut memory = config
            .process
            .budget
            .reserve_bytes(0, limit)
            .ok_or(TranscodeError::Memory)?;
        let (chain, most) = (self.route_chain_parameters(), config.ssz.max_size);
        let none = std::iter::empty();
        let mut stage = Transcoder::new(*ssz.gives, BodyFormat::Ssz, &chain, most, none)?;
        for piece in json
            .body_slices()
            .flat_map(|slice| slice.chunks(JSON_PIECE_BYTES))
        {
            if memory::is_memory_short() {
                return Err(TranscodeError::Memory);
            }
            stage.feed_body_piece(piece)?;
            if !memory.grow_reservation_to(stage.occupied_output_memory(), limit) {
                return Err(TranscodeError::Memory);
            }
        }
        let mut result = stage
            .finish_conversion(&[], &mut |room| memory.grow_reservation_to(room, limit))?
            .body;
        result
            .move_parts_into_order()
            .ok_or(TranscodeError::Memory)?;
        Ok((result.into_buffer_with_order().0, memory))
    }

    /// Compresses the result where the client prefers a content coding, and it saves bytes or
    /// identity is refused.
    fn compress_ssz_result(
        &self,
        result: Vec<u8>,
        lookup: &LookupRequest<'_>,
    ) -> Option<SlicedBody> {
        let is_long = result.len() as u64 >= self.route_config.min_length;
        let refuses = self.request.accept_encoding.refuses_identity();
        let coding = self.hit_coding(None, lookup);
        if let Some(coding) = coding.filter(|_| is_long || refuses) {
            let coded = match coding {
                SupportedContentCoding::Gzip => {
                    compress_to_open_stream(&result, self.route_config.comp_level)
                        .and_then(|coded| assemble_gzip_member([GzipMemberInput::Open(&coded)]))
                }
                SupportedContentCoding::Zstd => {
                    compress_to_open_blocks(&result, self.route_config.zstd_level)
                        .and_then(|coded| assemble_zstd_frame([ZstdFrameInput::Open(&coded)]))
                }
            };
            let is_shorter = |coded: &SlicedBody| coded.byte_length() < result.len() as u64;
            if let Some(coded) = coded.filter(|coded| refuses || is_shorter(coded)) {
                return Some(coded);
            }
        }
        let mut body = SlicedBody::empty_identity_body();
        body.append_owned(result)?;
        Some(body)
    }
}
