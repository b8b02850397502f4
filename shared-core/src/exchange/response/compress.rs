//! One-shot compression and decompression of a complete body.

use crate::body_compressor::in_place::CompressInPlaceError;
use crate::config::RouteConfig;
use crate::exchange::cache::store_plan::StorePlan;
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::machine::message_head::HeadEdit;
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::exchange::response::pipeline::BufferedBodyPipeline;
use crate::gzip::oneshot::OneshotError;
use crate::gzip::splice::SlicedBody;
use crate::memory;
use crate::request_coding::SupportedContentCoding;
use crate::response_mode::ResponseMode;
use crate::ssz::UnorderedSszParts;

/// The output of the compression or decompression of one body.
struct RecodedBody {
    body: Vec<u8>,
    /// Body of the entry, which is sent to this client as to later ones.
    stored: Option<SlicedBody>,
    /// Coding of the output; `None` if it is the decompressed body.
    coding: Option<SupportedContentCoding>,
}

impl Exchange {
    /// Runs the pending work: compresses, converts or merges the complete body, decodes a stored
    /// one, or rewrites the request. May take milliseconds per megabyte. In
    /// [`ExchangeState::Aborted`](crate::exchange::machine::transitions::ExchangeState::Aborted)
    /// there is nothing to send.
    ///
    /// # Errors
    /// [`HostMisuse`] unless the body is complete, or a stored one is to be decompressed.
    pub fn run_pending_stages(&mut self) -> Result<(), HostMisuse> {
        if !self.decoded_body_is_within_limit() {
            return self.reject_measured_body();
        }
        match &mut self.phase {
            ExchangePhase::Compressing(whole) if whole.stages.transcoding.is_some() => {
                self.finish_conversion()
            }
            ExchangePhase::Compressing(_) => self.compress_complete_body(),
            ExchangePhase::Merging(_) => self.merge_batch(),
            ExchangePhase::Decoding(_) => self.decode_stored_response(),
            ExchangePhase::Rewriting(_) => self.rewrite_request_body(),
            _ => Err(self.misuse_for_event(ExchangeEvent::Compressed)),
        }
    }

    /// Compresses or decompresses the complete body; it is sent unchanged if that fails or is not
    /// worth it.
    pub(in crate::exchange) fn compress_complete_body(&mut self) -> Result<(), HostMisuse> {
        self.record_buffered_errors();
        let ExchangePhase::Compressing(whole) = &mut self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Compressed));
        };
        let is_there = !memory::is_memory_short();
        let (config, storing) = (&*self.route_config, &mut self.storing);
        let stages = &whole.stages;
        let coded = match (stages.inflates, stages.compression) {
            _ if !is_there => Err(ResponseMode::Memory),
            (Some(coding), _) => whole.decompress_body(coding, config, storing),
            (None, Some(it)) => whole.compress_body(it.coding, config, storing),
            (None, None) => Err(whole.left_alone.unwrap_or(ResponseMode::AcceptEncoding)),
        };
        let buffered = &mut whole.buffered;
        let mut stored = None;
        let length = match coded {
            Ok(coded) => {
                buffered.body = coded.body;
                stored = coded.stored;
                let ready = stored.as_ref().map_or(0, SlicedBody::byte_length);
                let length =
                    usize::try_from(ready).map_or(usize::MAX, |it| it + buffered.body.len());
                let (mode, edit) = match coded.coding {
                    Some(coding) => (
                        ResponseMode::Oneshot,
                        HeadEdit::set_content_encoding(coding),
                    ),
                    None => (
                        ResponseMode::Inflate,
                        HeadEdit::remove_header("Content-Encoding"),
                    ),
                };
                self.response_mode = mode;
                self.head_edits.push(edit);
                self.head_edits.push(HeadEdit::set_content_length(length));
                self.head_edits.append(&mut buffered.recoded_edits);
                length
            }
            Err(reason) => {
                self.response_mode = reason;
                if whole.left_alone.is_some() {
                    // as if the response had been passed unchanged
                    storing.copy_sent_bytes(config, &mut self.cache_reason, &buffered.body);
                } else if let Some(fill) = storing.client_fed_fill().filter(|_| is_there) {
                    // a body that is not worth compressing may be worth storing
                    fill.build_entries_once(&buffered.body);
                }
                let length = buffered.body.len();
                if buffered.declared.is_none() && buffered.is_complete() {
                    self.head_edits.push(HeadEdit::set_content_length(length));
                }
                length
            }
        };
        buffered.shrink_reservation(length);
        self.apply_transition(ExchangeEvent::Compressed, |phase| phase.into_ready(stored))
    }

    /// Compresses a long body, or one in parts, that is not stored. The input is released while
    /// it is compressed.
    pub(in crate::exchange) fn compress_converted_parts(
        &mut self,
        parts: UnorderedSszParts,
    ) -> Result<(), HostMisuse> {
        let ExchangePhase::Compressing(whole) = &mut self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Compressed));
        };
        let buffered = &mut whole.buffered;
        // the upstream's form is not needed any more
        buffered.body = Vec::new();
        let (plain, order) = parts.into_buffer_with_order();
        self.response_mode = ResponseMode::AcceptEncoding;
        let compression = whole.stages.compression;
        let coded = match compression.filter(|_| !memory::is_memory_short()) {
            None => Err(CompressInPlaceError::Plain(plain)),
            Some(it) => {
                let compressor = self.route_config.body_compressor(it.coding);
                let coded = compressor.compress_in_place(plain, &order, it.at_any_length);
                coded.map(|body| (it.coding, body))
            }
        };
        let body = match coded {
            Ok((coding, body)) => {
                self.head_edits.push(HeadEdit::set_content_encoding(coding));
                self.response_mode = ResponseMode::Oneshot;
                Some(body)
            }
            Err(CompressInPlaceError::Plain(plain)) => {
                SlicedBody::from_buffer_ranges(plain, &order, None)
            }
            Err(CompressInPlaceError::Nothing) => None,
        };
        let Some(body) = body else {
            return self.abort_with_mode(ResponseMode::Memory);
        };
        let length = usize::try_from(body.byte_length()).unwrap_or(usize::MAX);
        self.head_edits.push(HeadEdit::set_content_length(length));
        buffered.shrink_reservation(length);
        self.apply_transition(ExchangeEvent::Compressed, |phase| {
            phase.into_ready(Some(body))
        })
    }

    pub(in crate::exchange) fn set_content_length(&mut self, length: usize) {
        self.head_edits.push(HeadEdit::set_content_length(length));
    }
}

impl BufferedBodyPipeline {
    /// Compresses the body, and builds its entry if it is stored; or returns the reason to send it
    /// unchanged. A gzip body is sent in the form of its entry.
    fn compress_body(
        &mut self,
        coding: SupportedContentCoding,
        config: &RouteConfig,
        storing: &mut StorePlan,
    ) -> Result<RecodedBody, ResponseMode> {
        let body = &self.buffered.body;
        if body.is_empty() || self.is_below_compression_gate(config, body.len()) {
            return Err(ResponseMode::TooSmall);
        }
        let limit = self.max_useful_length(config);
        let stored = match coding {
            SupportedContentCoding::Gzip => self.compress_as_entry(storing, limit),
            SupportedContentCoding::Zstd => {
                if let Some(fill) = storing.client_fed_fill() {
                    // both encoders use the same buffer
                    fill.build_from_body(&self.buffered.body, &mut self.room);
                }
                None
            }
        };
        let room = std::mem::take(&mut self.room);
        if stored.is_some() {
            return Ok(RecodedBody {
                body: Vec::new(),
                stored,
                coding: Some(coding),
            });
        }
        let compressor = config.body_compressor(coding);
        match compressor.compress_oneshot_into(&self.buffered.body, limit, room) {
            Ok(body) => Ok(RecodedBody {
                body,
                stored: None,
                coding: Some(coding),
            }),
            Err(OneshotError::NotSmaller) => Err(ResponseMode::NotSmaller),
            Err(_) => Err(ResponseMode::Failed),
        }
    }

    /// Returns the body as the entry will be sent, so that it is compressed once and kept in
    /// memory once.
    fn compress_as_entry(&mut self, storing: &mut StorePlan, limit: usize) -> Option<SlicedBody> {
        // uses the buffer that was allocated for the compressed body
        let fill = storing.client_fed_fill()?;
        let (entry, id) = fill.build_from_body(&self.buffered.body, &mut self.room)?;
        let coded = entry.response_for_gzip_client(&id)?;
        (coded.is_gzip() && coded.byte_length() < limit as u64).then_some(coded)
    }

    /// Decompresses the body, and builds its entry if it is stored.
    fn decompress_body(
        &mut self,
        coding: SupportedContentCoding,
        config: &RouteConfig,
        storing: &mut StorePlan,
    ) -> Result<RecodedBody, ResponseMode> {
        let body = self
            .buffered
            .decompress_buffered(config, coding, config.max_oneshot)?;
        if let Some(fill) = storing.client_fed_fill() {
            fill.mark_response_decoded();
            fill.build_from_body(&body, &mut self.room);
        }
        Ok(RecodedBody {
            body,
            stored: None,
            coding: None,
        })
    }
}
