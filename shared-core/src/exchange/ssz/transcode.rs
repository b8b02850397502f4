//! Responses that are converted to another format.
//!
//! While the body arrives it is fed to the [`Transcoder`], and up to `sszip_ssz_hold` bytes of
//! the original are buffered: a body that is not available as SSZ is sent unchanged to a client
//! that accepts it; if it was longer, the response is a 502. A client that accepts no other
//! format gets a 406.

use crate::cache::reason::Reason;
use crate::config::RouteConfig;
use crate::exchange::machine::actions::{BodyPieceAction, HostMisuse};
use crate::exchange::machine::message_head::{
    HeadEdit, Header, ResponseContentCoding, ResponseHead, ResponseProperties,
};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::exchange::response::body_stages::{BodyStages, CompressionRequirement};
use crate::exchange::response::pipeline::{BufferedBody, BufferedBodyPipeline};
use crate::exchange::response::plan::ResponsePlan;
use crate::exchange::ssz::call_result;
use crate::exchange::ssz::conversion::{
    reserve_transcoding_slot, ConvertedResponseKind, ResponseFormatConversion,
};
use crate::faults::{panic_if_injected, InjectedTestFault};
use crate::memory;
use crate::memory::MemoryReservation;
use crate::negotiate::{etag, media_type, vary};
use crate::response_mode::ResponseMode;
use crate::transcode::engine::{problem, WitnessBridgeError};
use crate::transcode::transcoder::estimated_ssz_length;
use crate::transcode::{
    BodyFormat, TranscodeError, TranscodeRequest, TranscodedBody, Transcoder,
    CONSENSUS_VERSION_HEADER, JSON_MEDIA_TYPE, SSZ_TYPE_HEADER,
};

/// Length in bytes of an output that is compressed in parts, rather than in one piece.
const PARTED_OUTPUT_BYTES: usize = 8 << 20;

/// Length in bytes of the pieces in which a decompressed body is fed to the transcoder.
const DECOMPRESSED_PIECE_BYTES: usize = 256 << 10;

impl Exchange {
    /// Returns the negotiation and the target format, if the response with this head is to be
    /// converted.
    pub(in crate::exchange) fn negotiated_conversion<'a, I>(
        &self,
        response: &ResponseProperties<'_>,
        head: &ResponseHead<I>,
    ) -> Option<(TranscodeRequest, BodyFormat)>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let negotiated = self.request.ssz.or(self.request.untyped)?;
        let content_type = response.content_type;
        let is_problem = || content_type.is_some_and(media_type::is_problem_json);
        let format = match head.status {
            200 | 203 => negotiated.target_format(content_type)?,
            201..=299 if negotiated.accepts_one_format_only() => {
                negotiated.target_format(content_type)?
            }
            _ if negotiated.is_bridged_to_rest() && is_problem() => BodyFormat::Json,
            _ => return None,
        };
        // a response without a body has no format
        let is_unlabelled = content_type.is_none_or(<[u8]>::is_empty);
        let has_none = head.content_length == Some(0) || self.request.head;
        let is_empty =
            has_none && (is_unlabelled || !negotiated.is_convertible() && !self.request.head);
        (!is_empty).then_some((negotiated, format))
    }

    /// Returns the plan for a response that is to be converted, or the reason why it is sent in
    /// its own format.
    pub(in crate::exchange) fn plan_conversion<'a, I>(
        &mut self,
        negotiated: TranscodeRequest,
        format: BodyFormat,
        response: &ResponseProperties<'_>,
        head: &ResponseHead<I>,
    ) -> Result<Result<ResponsePlan, ResponseMode>, TranscodeError>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let mut buffered = BufferedBody::for_response_head(head);
        let stage = match response.coding {
            _ if response.no_transform => Err(TranscodeError::NoTransform),
            _ if !negotiated.is_convertible() => Err(TranscodeError::Untyped),
            _ if negotiated.is_bridged_to_rest() && head.status != 200 => {
                Err(TranscodeError::NoValue)
            }
            _ if !matches!(head.status, 200 | 203) => Err(TranscodeError::Status(head.status)),
            ResponseContentCoding::Other => Err(TranscodeError::Coding),
            _ => self.open_transcoder(negotiated, format, head, &mut buffered),
        };
        let (stage, place) = match stage {
            Err(why) if negotiated.accepts_other_format() => return Err(why),
            Err(why) => (Err(why), None),
            Ok((stage, place)) => (Ok(stage), place),
        };
        self.request.ssz = Some(negotiated);
        self.varies = true;
        response.add_vary_edits(head.host_writes_vary, &mut self.head_edits);
        response.add_format_edits(format, &mut buffered.recoded_edits);
        if self.request.head && stage.is_ok() {
            self.head_edits
                .push(HeadEdit::remove_header("Content-Length"));
            self.head_edits.append(&mut buffered.recoded_edits);
            return Ok(Err(ResponseMode::Head));
        }
        if self.request.head {
            // the declared body is not sent
            buffered.declared = None;
        }
        let accept = self.request.accept_encoding;
        let preferred = self.route_config.preferred_coding(&accept);
        let compression = preferred.filter(|_| head.coding_allowed);
        let compression = compression.map(|coding| CompressionRequirement {
            coding,
            at_any_length: accept.refuses_identity(),
        });
        let mut refused_edits = Vec::new();
        response.add_error_edits(&mut refused_edits);
        let transcoding = Box::new(ResponseFormatConversion {
            stage,
            takes_original: negotiated.accepts_other_format(),
            of: match () {
                () if negotiated.is_bridged_to_rpc() => ConvertedResponseKind::Payload(Vec::new()),
                () if negotiated.is_bridged_to_rest() => ConvertedResponseKind::Reply(Vec::new()),
                () if negotiated.is_rpc_call() => ConvertedResponseKind::Call,
                () => ConvertedResponseKind::Route,
            },
            coding: response.coding.supported_coding(),
            is_unlabelled: negotiated.accepts_one_format_only()
                && response.content_type.is_none_or(<[u8]>::is_empty)
                && response.coding == ResponseContentCoding::Identity,
            is_original_lost: false,
            received: 0,
            place,
            refused_edits,
        });
        let stages = BodyStages {
            inflates: transcoding.coding.filter(|_| transcoding.stage.is_ok()),
            transcoding: Some(transcoding),
            compression,
        };
        Ok(Ok(ResponsePlan::Buffer(Box::new(
            BufferedBodyPipeline::new(stages, buffered),
        ))))
    }

    /// Returns the transcoder, with the memory that it is expected to need, and its slot if the
    /// response is long.
    fn open_transcoder<'a, I>(
        &self,
        negotiated: TranscodeRequest,
        format: BodyFormat,
        head: &ResponseHead<I>,
        buffered: &mut BufferedBody,
    ) -> Result<(Transcoder, Option<MemoryReservation>), TranscodeError>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        if memory::is_memory_short() {
            return Err(TranscodeError::Memory);
        }
        let config = &self.route_config;
        let (chain, max_size) = (self.route_chain_parameters(), config.ssz.max_size);
        let fields = head.fields.clone();
        let transcoder = Transcoder::new(*negotiated.gives, format, &chain, max_size, fields)?;
        let root = self
            .storing
            .fill
            .as_ref()
            .and_then(|fill| fill.requested_hash_tree_root());
        let transcoder = transcoder.with_requested_root(*negotiated.gives, root);
        let mut transcoder = transcoder.with_call_id(&self.lookup_findings.rpc_id);
        let declared = buffered.declared.unwrap_or(0);
        let place = reserve_transcoding_slot(config, declared as u64)?;
        let original = declared.min(usize::try_from(config.ssz.hold).unwrap_or(usize::MAX));
        let (original, made) = match format {
            BodyFormat::Ssz => (original, estimated_ssz_length(declared)),
            BodyFormat::Json => (declared, declared.saturating_mul(2)),
        };
        buffered
            .reserve_for_conversion(config, original, made)
            .map_err(|_| TranscodeError::Memory)?;
        if cfg!(not(target_family = "wasm")) {
            // pages that were never written take no memory
            transcoder.reserve_output(declared);
        }
        Ok((transcoder, place))
    }

    /// Adds `Accept` to `Vary`, as in all responses of such a route.
    pub(in crate::exchange) fn add_vary_accept<'a, I>(&mut self, head: &ResponseHead<I>)
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        const NAME: &str = "Vary";
        const MEMBER: &str = "Accept";
        if !self.request.varies_on_accept() || head.subrequest {
            return;
        }
        let edit = self.head_edits.iter().rfind(|edit| edit.name == NAME);
        let lines: Vec<&[u8]> = match edit {
            Some(edit) => edit.value.iter().map(|value| &value[..]).collect(),
            None => {
                let fields = head.fields.clone();
                let vary = fields.filter(|(name, _)| name.eq_ignore_ascii_case(NAME.as_bytes()));
                vary.map(|(_, value)| value).collect()
            }
        };
        if !vary::is_named_in_vary(lines.iter().copied(), MEMBER) {
            let value = vary::add_vary_name(lines.iter().copied(), MEMBER);
            self.head_edits.push(HeadEdit::set_header(NAME, value));
        }
    }

    /// Feeds a piece of the body to the transcoder, and decides whether the conversion continues.
    pub(in crate::exchange) fn convert_body_piece(
        &mut self,
        piece: &[u8],
    ) -> Result<BodyPieceAction, HostMisuse> {
        let ExchangePhase::Buffering(whole) = &mut self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Piece));
        };
        panic_if_injected(InjectedTestFault::PanicBody);
        if self.request.ssz.is_some_and(TranscodeRequest::is_rpc_call) {
            // the entry is stored as JSON
            self.storing
                .copy_sent_bytes(&self.route_config, &mut self.cache_reason, piece);
        }
        let format = self.request.ssz.and_then(TranscodeRequest::client_format);
        if whole.detect_unlabelled_target_format(format, piece) {
            self.reject_storage(Reason::Type);
            self.send_original_response(ResponseMode::Type)?;
            return Ok(BodyPieceAction::SendOriginal);
        }
        let taken = whole.transcode_piece(&self.route_config, piece);
        match (taken, whole.stages.transcoding.as_deref_mut()) {
            (Ok(()), _) => {
                self.received += piece.len() as u64;
                Ok(BodyPieceAction::Buffered)
            }
            // the client gets an error at the end
            (Err(why), Some(transcoding)) if transcoding.sends_error_on_failure() => {
                transcoding.record_conversion_failure(why);
                transcoding.received += piece.len() as u64;
                whole.buffered.body = Vec::new();
                self.received += piece.len() as u64;
                Ok(BodyPieceAction::Buffered)
            }
            (Err(why), _) => {
                self.reject_storage(why.not_cached_reason());
                self.add_cache_status_detail();
                self.send_original_response(why.error_response_mode())?;
                Ok(BodyPieceAction::SendOriginal)
            }
        }
    }

    /// Finishes the conversion, and continues with its output or with its failure.
    pub(in crate::exchange) fn finish_conversion(&mut self) -> Result<(), HostMisuse> {
        let ExchangePhase::Compressing(whole) = &mut self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Compressed));
        };
        let Some(mut transcoding) = whole.stages.transcoding.take() else {
            return Err(self.misuse_for_event(ExchangeEvent::Compressed));
        };
        let stage = std::mem::replace(&mut transcoding.stage, Err(TranscodeError::Failed));
        let most = transcoding.max_decompressed_length(&self.route_config);
        let made = stage.and_then(|stage| {
            if let Some(coding) = whole.stages.inflates {
                // the decompressed length can be estimated now
                let claimed = coding.estimate_decompressed_length(&whole.buffered.body);
                transcoding.ensure_transcoding_slot(&self.route_config, claimed as u64)?;
            }
            whole.finish_transcoder(&self.route_config, stage, most)
        });
        match made {
            Ok(made) => self.finish_successful_conversion(made),
            Err(why) => self.finish_failed_conversion(*transcoding, &why),
        }
    }

    /// Completes the response with the output of the conversion, compressed if the client accepts
    /// it.
    fn finish_successful_conversion(&mut self, mut made: TranscodedBody) -> Result<(), HostMisuse> {
        let ExchangePhase::Compressing(whole) = &mut self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Compressed));
        };
        let buffered = &mut whole.buffered;
        self.head_edits.append(&mut buffered.recoded_edits);
        if let Some(fork) = made.fork {
            self.head_edits.push(HeadEdit::set_header(
                CONSENSUS_VERSION_HEADER,
                fork.as_bytes(),
            ));
        }
        let label = self.request.ssz.and_then(TranscodeRequest::ssz_type_header);
        if let Some(label) = label.filter(|_| made.format == BodyFormat::Ssz) {
            self.head_edits
                .push(HeadEdit::set_header(SSZ_TYPE_HEADER, label.into_bytes()));
        }
        let length = made.body.len();
        self.head_edits.push(HeadEdit::set_content_length(length));
        let format = made.format;
        let is_call = self.request.ssz.is_some_and(TranscodeRequest::is_rpc_call);
        let of_json = self.storing.fill.take_if(|_| is_call);
        if let Some(fill) = self.storing.client_fed_fill() {
            fill.build_transcoded_entry(&mut made, &mut whole.room);
        }
        buffered.declared = None;
        buffered.delimited = true;
        let refused = self
            .storing
            .fill
            .as_ref()
            .and_then(|fill| fill.storage_rejection_reason());
        if let Some(reason) = refused {
            // followers send their own requests
            self.reject_as_uncacheable(reason);
            self.add_cache_status_detail();
        }
        let tag = self
            .storing
            .fill
            .as_ref()
            .and_then(|fill| fill.computed_entity_tag());
        let is_long = length > PARTED_OUTPUT_BYTES && tag.is_none();
        if is_long || !made.body.is_in_order() {
            self.compress_converted_parts(made.body)?;
        } else {
            if let ExchangePhase::Compressing(whole) = &mut self.phase {
                whole.buffered.body = made.body.into_buffer_with_order().0;
            }
            self.compress_complete_body()?;
        }
        if of_json.is_some() {
            self.storing.fill = of_json;
        }
        if let Some(tag) = tag {
            // the entity tag that hits of this entry will have
            let weak = etag::weaken_entity_tag(&tag)
                .filter(|_| self.response_mode == ResponseMode::Oneshot);
            self.head_edits
                .push(HeadEdit::set_header("ETag", weak.unwrap_or(tag)));
        }
        self.response_mode = match format {
            BodyFormat::Ssz => ResponseMode::Ssz,
            BodyFormat::Json => ResponseMode::Json,
        };
        Ok(())
    }

    /// Completes the response of a failed conversion with the original or an error.
    fn finish_failed_conversion(
        &mut self,
        mut transcoding: ResponseFormatConversion,
        why: &TranscodeError,
    ) -> Result<(), HostMisuse> {
        // an empty body has no format
        let is_empty = transcoding.received == 0 && !self.request.head;
        transcoding.takes_original |= is_empty && transcoding.is_unlabelled;
        self.reject_storage(why.not_cached_reason());
        self.add_cache_status_detail();
        let ExchangePhase::Compressing(whole) = &mut self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Compressed));
        };
        if transcoding.can_send_original() {
            // unchanged, if the client accepts its coding
            let accept = &self.request.accept_encoding;
            let stages = &mut whole.stages;
            stages.inflates = stages.inflates.filter(|it| !accept.allows_coding(*it));
            stages.compression = None;
            whole.buffered.recoded_edits.clear();
            self.compress_complete_body()?;
        } else if !transcoding.sends_error_on_failure() {
            return self.abort_with_mode(why.error_response_mode());
        } else {
            self.head_edits
                .extend_from_slice(&transcoding.refused_edits);
            let (status, body) = match &transcoding.of {
                ConvertedResponseKind::Call => (
                    502,
                    call_result::ssz_unavailable_rpc_error(&self.lookup_findings.rpc_id, why),
                ),
                ConvertedResponseKind::Route => {
                    let status = if why.is_temporary() { 503 } else { 406 };
                    let format = self.request.ssz.and_then(TranscodeRequest::client_format);
                    (status, format_unavailable_error_body(status, why, format))
                }
                ConvertedResponseKind::Reply(_) => {
                    match WitnessBridgeError::from_rest_error_response(
                        &transcoding.decompressed_response_prefix(),
                    ) {
                        Some(problem) if *why == TranscodeError::NoValue => (
                            200,
                            problem.to_rpc_error_response(&self.lookup_findings.rpc_id),
                        ),
                        _ => (
                            502,
                            call_result::ssz_unavailable_rpc_error(
                                &self.lookup_findings.rpc_id,
                                why,
                            ),
                        ),
                    }
                }
                ConvertedResponseKind::Payload(_) => {
                    let media_type =
                        HeadEdit::set_header("Content-Type", problem::PROBLEM_MEDIA_TYPE);
                    self.head_edits.push(media_type);
                    let problem = WitnessBridgeError::from_rpc_error_response(
                        &transcoding.decompressed_response_prefix(),
                        why,
                    );
                    (problem.http_status(), problem.http_problem_body())
                }
            };
            self.head_edits
                .push(HeadEdit::set_content_length(body.len()));
            whole.buffered.body = match self.request.head {
                true => Vec::new(),
                false => body,
            };
            self.apply_transition(ExchangeEvent::Compressed, |phase| phase.into_ready(None))?;
            if let Some(answer) = self.response_body_mut() {
                answer.status = status;
            }
        }
        self.response_mode = why.error_response_mode();
        Ok(())
    }

    /// Whether a response whose head was not evaluated may be in a format that the client does
    /// not accept: the request to the node allowed both formats.
    pub(in crate::exchange) fn may_have_unacceptable_format(&self) -> bool {
        let is_awaited = matches!(self.phase, ExchangePhase::AwaitingHead);
        let must_be_made =
            |ssz: TranscodeRequest| ssz.accepts_ssz_only() || ssz.is_bridged_to_rest();
        let negotiated = self.request.ssz.or(self.request.untyped);
        is_awaited && negotiated.is_some_and(must_be_made)
    }

    /// Whether the buffered body can't be sent unchanged.
    pub(in crate::exchange) fn has_lost_original(&self) -> bool {
        match &self.phase {
            ExchangePhase::Buffering(whole) | ExchangePhase::Compressing(whole) => {
                let transcoding = whole.stages.transcoding.as_ref();
                transcoding.is_some_and(|it| !it.can_send_original())
            }
            _ => false,
        }
    }

    /// Aborts the response with this mode, because there is nothing to send.
    pub(in crate::exchange) fn abort_with_mode(
        &mut self,
        reason: ResponseMode,
    ) -> Result<(), HostMisuse> {
        self.abort_response()?;
        self.response_mode = reason;
        Ok(())
    }
}

impl BufferedBodyPipeline {
    /// Whether the first piece of a body without a `Content-Type` shows that it has this format
    /// already. If so, the body can be sent unchanged from then on.
    fn detect_unlabelled_target_format(
        &mut self,
        format: Option<BodyFormat>,
        piece: &[u8],
    ) -> bool {
        let Some(transcoding) = &mut self.stages.transcoding else {
            return false;
        };
        let Some(first) = piece.first().filter(|_| transcoding.received == 0) else {
            return false;
        };
        let is_json = first.is_ascii_whitespace() || matches!(first, b'{' | b'[');
        let is_it = transcoding.is_unlabelled && is_json == (format == Some(BodyFormat::Json));
        transcoding.takes_original |= is_it;
        is_it
    }

    /// Feeds a piece of the original to the transcoder, if there is memory for it and for the
    /// output.
    fn transcode_piece(
        &mut self,
        config: &RouteConfig,
        piece: &[u8],
    ) -> Result<(), TranscodeError> {
        let inflates = self.stages.inflates.is_some();
        let Some(transcoding) = &mut self.stages.transcoding else {
            return Err(TranscodeError::Failed);
        };
        let buffered = &mut self.buffered;
        transcoding.collect_possible_error_prefix(piece);
        let length = transcoding.received.saturating_add(piece.len() as u64);
        if buffered.declared.is_some_and(|it| length > it as u64) {
            // the upstream sent more than it declared: pass it on unchanged
            return Err(TranscodeError::Failed);
        }
        if memory::is_memory_short() {
            return Err(TranscodeError::Memory);
        }
        if transcoding.stage.is_ok() {
            // before any of the original is released
            transcoding.ensure_transcoding_slot(config, length)?;
        }
        let most = transcoding.max_decompressed_length(config);
        let Ok(stage) = &mut transcoding.stage else {
            transcoding.received = length;
            return Ok(());
        };
        if inflates {
            // the whole body is fed when it is complete
            if length > most {
                return Err(TranscodeError::Coding);
            }
        } else {
            stage.feed_body_piece(piece)?;
        }
        let mut made = stage.occupied_output_memory();
        let is_of_use = transcoding.takes_original && length <= config.ssz.hold;
        let keeps = inflates || stage.needs_original() || is_of_use;
        if !keeps && !transcoding.is_original_lost && transcoding.takes_original {
            // After this piece the original is lost: memory is reserved now, while a refusal
            // loses nothing.
            let announced = buffered.declared.unwrap_or(0);
            made = made.max(estimated_ssz_length(announced));
            buffered
                .reserve_body_and_output(config, 0, made)
                .map_err(|_| TranscodeError::Memory)?;
            stage.reserve_output(announced);
        }
        if keeps && !transcoding.is_original_lost {
            let body = &mut buffered.body;
            if body.try_reserve(piece.len()).is_err() {
                return Err(TranscodeError::Memory);
            }
        } else {
            buffered.body = Vec::new();
            transcoding.is_original_lost = true;
        }
        buffered
            .reserve_body_and_output(config, buffered.body.capacity(), made)
            .map_err(|_| TranscodeError::Memory)?;
        if !transcoding.is_original_lost {
            buffered.body.extend_from_slice(piece);
        }
        transcoding.received = length;
        Ok(())
    }

    /// Returns the output of the conversion; at most `most` bytes are decompressed.
    fn finish_transcoder(
        &mut self,
        config: &RouteConfig,
        mut stage: Transcoder,
        most: u64,
    ) -> Result<TranscodedBody, TranscodeError> {
        if memory::is_memory_short() {
            return Err(TranscodeError::Memory);
        }
        let buffered = &mut self.buffered;
        let Some(coding) = self.stages.inflates else {
            let body = std::mem::take(&mut buffered.body);
            let made = stage.finish_conversion(&body, &mut |room| {
                buffered
                    .reserve_body_and_output(config, body.capacity(), room)
                    .is_ok()
            });
            buffered.body = body;
            return made;
        };
        let original =
            buffered
                .decompress_buffered(config, coding, most)
                .map_err(|mode| match mode {
                    ResponseMode::Memory => TranscodeError::Memory,
                    _ => TranscodeError::Coding,
                })?;
        for piece in original.chunks(DECOMPRESSED_PIECE_BYTES) {
            stage.feed_body_piece(piece)?;
            // the compressed body is still in memory
            let all = original.capacity() + buffered.body.capacity();
            buffered
                .reserve_body_and_output(config, all, stage.occupied_output_memory())
                .map_err(|_| TranscodeError::Memory)?;
        }
        let all = original.capacity() + buffered.body.capacity();
        let made = stage.finish_conversion(&original, &mut |room| {
            buffered.reserve_body_and_output(config, all, room).is_ok()
        })?;
        self.stages.inflates = None;
        Ok(made)
    }
}

impl ResponseProperties<'_> {
    /// Adds the edits of the head for the same value in this format.
    fn add_format_edits(&self, format: BodyFormat, edits: &mut Vec<HeadEdit>) {
        edits.push(HeadEdit::set_header("Content-Type", format.media_type()));
        if self.coding != ResponseContentCoding::Identity {
            edits.push(HeadEdit::remove_header("Content-Encoding"));
        }
        self.add_changed_body_edits(edits);
    }

    /// Adds the edits of the head for an error in place of the value.
    fn add_error_edits(&self, edits: &mut Vec<HeadEdit>) {
        edits.push(HeadEdit::set_header("Content-Type", JSON_MEDIA_TYPE));
        for name in [
            "Content-Encoding",
            "Cache-Control",
            "Expires",
            "Last-Modified",
            CONSENSUS_VERSION_HEADER,
        ] {
            edits.push(HeadEdit::remove_header(name));
        }
        self.add_changed_body_edits(edits);
    }
}

/// Returns an error in the form of the Beacon API.
fn format_unavailable_error_body(
    status: u16,
    why: &TranscodeError,
    format: Option<BodyFormat>,
) -> Vec<u8> {
    let format = match format {
        Some(BodyFormat::Json) => "JSON",
        _ => "SSZ",
    };
    let message = format!("the response is not available as {format}: {why}");
    let error = serde_json::json!({ "code": status, "message": message });
    error.to_string().into_bytes()
}
