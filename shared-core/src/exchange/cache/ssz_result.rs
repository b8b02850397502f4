//! Results of calls as SSZ, which are converted from the stored JSON for each hit.

use super::lookup_request::LookupRequest;
use crate::cache::entry::CacheEntry;
use crate::exchange::buffered::{EntryReservation, EntryReservations};
use crate::exchange::conversion::reserve_slot;
use crate::exchange::head::{is_byte_dependent_header, HeadEdit};
use crate::exchange::machine::Exchange;
use crate::exchange::response_body::ResponseBody;
use crate::gzip::open::open;
use crate::gzip::splice::{splice, Body, MemberPart};
use crate::memory;
use crate::memory::Reservation;
use crate::transcode::{Format, TranscodeError, TranscodeRequest, Transcoder, OCTETS, TYPE};

/// Bytes of JSON that are read between two updates of the reservation.
const PIECE: usize = 256 << 10;

impl Exchange {
    /// Whether the client requested the result of a call as SSZ.
    pub(in crate::exchange) fn wants_ssz_result(&self) -> bool {
        self.requested_result_format().is_some()
    }

    /// Returns the negotiation of the format of a call's result, if it is SSZ.
    fn requested_result_format(&self) -> Option<TranscodeRequest> {
        let ssz = self.request.ssz;
        ssz.filter(|ssz| ssz.is_call() && ssz.format() == Some(Format::Ssz))
    }

    /// Responds with the result of an entry as SSZ or, where it has none, with the JSON under its
    /// id. Returns `None` if memory is short.
    pub(super) fn respond_with_ssz_result(
        &mut self,
        entry: &CacheEntry,
        id: &[u8],
        lookup: &LookupRequest<'_>,
        mut borrowed: EntryReservations,
    ) -> Option<Box<ResponseBody>> {
        let ssz = self.requested_result_format()?;
        if !self.reserve_decode(entry, &mut borrowed) {
            return None;
        }
        let json = entry.identity(id)?;
        // reserved until the result is compressed
        let place = reserve_slot(&self.config, json.length());
        let made = place.and_then(|place| Ok((place, self.convert_result(ssz, &json)?)));
        let (_place, (result, memory)) = match made {
            Ok(made) => made,
            Err(TranscodeError::Memory) => return None,
            // errors, results of another type and results beyond a limit: the node's JSON
            Err(why) => {
                self.not_ssz = Some(why.mode());
                let body = match self.may_gzip(lookup) {
                    true => entry.gzip(id)?,
                    false => json,
                };
                return Some(self.respond(entry, Some(body), lookup, borrowed));
            }
        };
        borrowed.push(EntryReservation::Assembled { _memory: memory });
        let body = self.compress_result(result, lookup)?;
        let answer = self.respond(entry, Some(body), lookup, borrowed);
        self.head_edits.retain(|edit| {
            let is = |name: &str| edit.name.eq_ignore_ascii_case(name);
            !is("content-type") && !is("etag") && !is_byte_dependent_header(edit.name.as_bytes())
        });
        self.head_edits.push(HeadEdit::set("Content-Type", OCTETS));
        if let Some(label) = ssz.ssz_type_header() {
            self.head_edits
                .push(HeadEdit::set(TYPE, label.into_bytes()));
        }
        Some(answer)
    }

    /// Converts the result to SSZ. Returns it with its reservation.
    fn convert_result(
        &self,
        ssz: TranscodeRequest,
        json: &Body,
    ) -> Result<(Vec<u8>, Reservation), TranscodeError> {
        let config = &self.config;
        let limit = usize::try_from(config.memory).unwrap_or(usize::MAX);
        let mut memory = config
            .process
            .budget
            .reserve(0, limit)
            .ok_or(TranscodeError::Memory)?;
        let (chain, most) = (self.known_chain(), config.ssz.max_size);
        let none = std::iter::empty();
        let mut stage = Transcoder::new(*ssz.gives, Format::Ssz, &chain, most, none)?;
        for piece in json.slices().flat_map(|slice| slice.chunks(PIECE)) {
            if memory::is_short() {
                return Err(TranscodeError::Memory);
            }
            stage.feed(piece)?;
            if !memory.grow_to(stage.room(), limit) {
                return Err(TranscodeError::Memory);
            }
        }
        let mut result = stage
            .finish(&[], &mut |room| memory.grow_to(room, limit))?
            .body;
        result.in_order().ok_or(TranscodeError::Memory)?;
        Ok((result.into_pieces().0, memory))
    }

    /// Compresses the result where the client accepts gzip, and it saves bytes or identity is
    /// refused.
    fn compress_result(&self, result: Vec<u8>, lookup: &LookupRequest<'_>) -> Option<Body> {
        let is_long = result.len() as u64 >= self.config.min_length;
        if self.may_gzip(lookup) && (is_long || self.request.accept_encoding.refuses_identity()) {
            let coded = open(&result, self.config.comp_level);
            let coded = coded.and_then(|coded| splice([MemberPart::Open(&coded)]));
            let is_shorter = |coded: &Body| coded.length() < result.len() as u64;
            let refuses = self.request.accept_encoding.refuses_identity();
            if let Some(coded) = coded.filter(|coded| refuses || is_shorter(coded)) {
                return Some(coded);
            }
        }
        let mut body = Body::identity();
        body.push(result)?;
        Some(body)
    }
}
