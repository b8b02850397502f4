//! Creation of entries from a response body.

use std::sync::Arc;

use super::target::FillTarget;
use super::CacheFill;
use crate::cache::entry::CacheEntry;
use crate::cache::reason::Reason;
use crate::cache::resource::other_format_key;
use crate::cache::CacheKey;
use crate::exchange::cache::format_pair::have_equal_entry_values;
use crate::exchange::machine::message_head::{is_byte_dependent_header, ResponseContentCoding};
use crate::gzip::inflate::{decompressed_length_from_trailer, InflateError};
use crate::gzip::oneshot::off_loop_min_length;
use crate::memory;
use crate::request_coding::SupportedContentCoding;
use crate::transcode::{TranscodeError, TranscodedBody, Transcoder, CONSENSUS_VERSION_HEADER};

/// Bytes of a body that are transcoded between two updates of the reservation.
const TRANSCODE_PIECE_BYTES: usize = 64 << 10;

impl CacheFill {
    /// Creates entries from the collected body. May take milliseconds for each megabyte.
    pub fn build_collected_entries(&mut self) {
        if !self.built && memory::is_memory_short() {
            self.refused = Some(Reason::Memory);
        } else if !self.built {
            let mut body = std::mem::take(&mut self.collected);
            if let Some(coding) = self.coding.supported_coding() {
                let Some(plain) = self.decompress_collected_body(coding, &body) else {
                    return;
                };
                body = plain;
                self.mark_response_decoded();
            }
            // the encoder's output is allocated in addition to the body
            match self.reserve_build_memory(body.capacity(), body.len()) {
                true => self.transcode_and_build(&body, &mut Vec::new()),
                false => self.refused = Some(Reason::Memory),
            }
        }
        self.compare_with_hit();
        self.compare_with_receipts();
    }

    /// Creates entries from the node's body, after its conversion if another format is stored.
    fn transcode_and_build(&mut self, body: &[u8], room: &mut Vec<u8>) {
        let transcoder = match &mut self.target {
            FillTarget::Resource(resource) => resource.transcoder.take(),
            FillTarget::Call(_) | FillTarget::Batch(_) => None,
        };
        let Some(transcoder) = transcoder else {
            self.build_from_body(body, room);
            return;
        };
        match self.transcode_collected_body(*transcoder, body) {
            Ok(mut made) => self.build_transcoded_entry(&mut made, room),
            Err(why) => {
                self.built = true;
                self.refused = Some(why.not_cached_reason());
            }
        }
    }

    /// Converts a complete body to the format that is stored. Memory is reserved before it is
    /// allocated.
    fn transcode_collected_body(
        &mut self,
        mut transcoder: Transcoder,
        body: &[u8],
    ) -> Result<TranscodedBody, TranscodeError> {
        for piece in body.chunks(TRANSCODE_PIECE_BYTES) {
            transcoder.feed_body_piece(piece)?;
            if !self.reserve_build_memory(body.len(), transcoder.occupied_output_memory()) {
                return Err(TranscodeError::Memory);
            }
        }
        transcoder.finish_conversion(body, &mut |room| {
            self.reserve_build_memory(body.len(), room)
        })
    }

    /// Builds the entry of a transcoded resource with its headers, or records the reason why the
    /// body must not be stored.
    pub(in crate::exchange) fn build_transcoded_entry(
        &mut self,
        made: &mut TranscodedBody,
        room: &mut Vec<u8>,
    ) {
        let FillTarget::Resource(resource) = &mut self.target else {
            return;
        };
        resource.transcoder = None;
        resource.transcoded = Some((made.flags, made.body.is_empty()));
        resource.compresses = true;
        resource.undelimited = false;
        self.coding = ResponseContentCoding::Identity;
        self.fields.retain(|(name, _)| {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            !is_byte_dependent_header(name)
                && !is("etag")
                && !is("content-type")
                && !is("content-encoding")
        });
        let mut set = |name: &str, value: &[u8]| self.fields.push((name.into(), value.to_vec()));
        set("Content-Type", made.format.media_type());
        if let Some(fork) = made.fork {
            set(CONSENSUS_VERSION_HEADER, fork.as_bytes());
        }
        let format = made.format;
        let refused = match format {
            _ if made.body.len() > self.settings.max_entry => Some(Reason::Length),
            _ if made.body.move_parts_into_order().is_none() => Some(Reason::Memory),
            _ if !resource.has_requested_root(made) => Some(Reason::SszRoot),
            _ => None,
        };
        match made.body.move_parts_into_order() {
            Some(body) if refused.is_none() => self.build_entries(body, room),
            _ => {
                self.built = true;
                self.refused = refused;
            }
        }
    }

    /// Decompresses the compressed body that was copied on its way to the client.
    pub(in crate::exchange) fn decompress_collected_body(
        &mut self,
        coding: SupportedContentCoding,
        coded: &[u8],
    ) -> Option<Vec<u8>> {
        let max_entry = self.settings.max_entry;
        let length = match coding {
            // a body of several members may be longer, and is not worth a second pass
            SupportedContentCoding::Gzip => decompressed_length_from_trailer(coded),
            SupportedContentCoding::Zstd => max_entry,
        };
        if length > max_entry {
            self.refused = Some(Reason::Length);
            return None;
        }
        let decoded = coding.decompress_body(coded, length, |room| {
            self.reserve_build_memory(coded.len(), room)
        });
        match decoded {
            Ok(plain) => return Some(plain),
            Err(InflateError::OutOfMemory) => self.refused = Some(Reason::Memory),
            Err(InflateError::TooLarge) if coding == SupportedContentCoding::Zstd => {
                self.refused = Some(Reason::Length);
            }
            Err(InflateError::TooLarge | InflateError::Bad) => {}
        }
        None
    }

    /// Creates entries from `body`, unless that was tried before.
    pub(in crate::exchange) fn build_entries_once(&mut self, body: &[u8]) {
        if !self.built {
            self.transcode_and_build(body, &mut Vec::new());
        }
    }

    /// Whether [`CacheFill::build_collected_entries`] takes too long for an event loop.
    pub fn needs_build_job(&self) -> bool {
        let length = match self.coding.supported_coding() {
            Some(coding) => coding.estimate_decompressed_length(&self.collected),
            None => self.collected.len(),
        };
        let level = self.settings.gate.level;
        let compared = self.receipts.as_ref();
        length > off_loop_min_length(level) || compared.is_some_and(|it| it.needs_job(level))
    }

    /// Creates entries from a body, unless it was transcoded and stored already. Returns the entry
    /// of the whole body, if there is one, and the id under which it is sent. `room` is a buffer
    /// for the encoder.
    pub(in crate::exchange) fn build_from_body(
        &mut self,
        body: &[u8],
        room: &mut Vec<u8>,
    ) -> Option<(&CacheEntry, Vec<u8>)> {
        let is_done = match &self.target {
            FillTarget::Resource(resource) => resource.transcoded.is_some(),
            FillTarget::Call(_) | FillTarget::Batch(_) => false,
        };
        if !is_done {
            self.build_entries(body, room);
        }
        let id = match &self.target {
            FillTarget::Batch(_) => return None,
            FillTarget::Call(wanted) => wanted.id.clone(),
            FillTarget::Resource(_) => Vec::new(),
        };
        let built = self.entries.first()?;
        Some((&built.entry, id))
    }

    /// Creates the entries of the call, batch or resource from `body`, in the stored format.
    fn build_entries(&mut self, body: &[u8], room: &mut Vec<u8>) {
        self.built = true;
        if self.coding.supported_coding().is_some() {
            // the body could not be decoded
            return;
        }
        if let FillTarget::Resource(resource) = &self.target {
            let is_plain =
                self.coding == ResponseContentCoding::Identity && resource.transcoded.is_none();
            self.refused = is_plain
                .then(|| resource.ssz_rejection_reason(body))
                .flatten();
            if self.refused.is_some() {
                return;
            }
        }
        self.entries = match &self.target {
            FillTarget::Batch(wanted) => self.build_batch_entries(wanted, body, room),
            FillTarget::Call(wanted) => self
                .build_single_call_entry(wanted, body, room)
                .into_iter()
                .collect(),
            FillTarget::Resource(resource) => {
                let built = self.build_resource_entry(resource, body, room);
                built.into_iter().collect()
            }
        };
        self.suspend_if_wrong_chain();
        if self.refused.is_some() {
            return;
        }
        self.contradicts = self.find_contradicting_format();
        let has_nothing = self
            .entries
            .iter()
            .all(|built| built.entry.is_empty_result());
        self.denied =
            has_nothing && self.updates.is_some() && self.is_proven_unstorable(body, true);
        if let (true, Some(compared)) = (has_nothing, &self.compared) {
            let is_nothing =
                compared.is_comparison_pending() && self.is_proven_unstorable(body, false);
            if let (true, Some(compared)) = (is_nothing, &mut self.compared) {
                compared.record_absent_result();
            }
        }
        if has_nothing {
            let reason = self.unstored_response_reason(body);
            if reason == Reason::OtherApi {
                self.log_other_api_once();
            }
            self.refused = Some(reason);
        }
    }

    /// Returns the hot entry of the resource in its other format, if its value is different.
    fn find_contradicting_format(&self) -> Option<(CacheKey, Arc<CacheEntry>)> {
        let FillTarget::Resource(resource) = &self.target else {
            return None;
        };
        let negotiated = resource.ssz.filter(|ssz| ssz.client_format().is_some())?;
        let built = self
            .entries
            .first()
            .filter(|it| !it.entry.is_empty_result())?;
        let other_key = other_format_key(&resource.key);
        let other = self.shared.hot_tier()?.get_fresh_or_stale(&other_key)?;
        let (chain, max_ssz) = (&self.settings.chain, self.settings.max_ssz);
        let mut memory = None;
        let may_take = |bytes| match &self.reservation {
            Some(reservation) => {
                memory = reservation.memory_budget().reserve_bytes(bytes, self.limit);
                memory.is_some()
            }
            None => true,
        };
        let one = &built.entry;
        let is_one_value =
            have_equal_entry_values(negotiated, chain, max_ssz, one, &other, may_take);
        (!is_one_value).then_some((other_key, other))
    }
}
