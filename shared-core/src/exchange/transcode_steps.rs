//! Responses that are converted to another format.
//!
//! While the body arrives it is fed to the [`Transcoder`], and up to `sszip_ssz_hold` bytes of
//! the original are buffered: a body that is not available as SSZ is sent unchanged to a client
//! that accepts it; if it was longer, the response is a 502. A client that accepts no other
//! format gets a 406.

use super::actions::{Misuse, PieceAction};
use super::buffered::{BodyPipeline, BodyStages, BufferedBody, CompressionSettings};
use super::conversion::{reserve_slot, Conversion, ConversionSource};
use super::head::{Coding, HeadEdit, Header, Response, ResponseHead};
use super::machine::Exchange;
use super::phase::Phase;
use super::response_plan::ResponsePlan;
use super::result_as_ssz;
use super::transitions::Event;
use crate::cache::reason::Reason;
use crate::config::RouteConfig;
use crate::faults::{panic_if, Fault};
use crate::gzip::inflate;
use crate::memory;
use crate::memory::Reservation;
use crate::mode::Mode;
use crate::negotiate::{etag, media_type, vary};
use crate::transcode::engine::{problem, Problem};
use crate::transcode::transcoder::estimated_ssz_length;
use crate::transcode::{
    Format, TranscodeError, TranscodeRequest, Transcoded, Transcoder, JSON, TYPE, VERSION,
};

/// Length in bytes of an output that is compressed in parts, rather than in one piece.
const LONG: usize = 8 << 20;

/// Length in bytes of the pieces in which a decompressed body is fed to the transcoder.
const PIECE: usize = 256 << 10;

impl Exchange {
    /// Returns the negotiation and the target format, if the response with this head is to be
    /// converted.
    pub(super) fn conversion_for<'a, I>(
        &self,
        response: &Response<'_>,
        head: &ResponseHead<I>,
    ) -> Option<(TranscodeRequest, Format)>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let negotiated = self.request.ssz.or(self.request.untyped)?;
        let content_type = response.content_type;
        let is_problem = || content_type.is_some_and(media_type::is_problem);
        let format = match head.status {
            200 | 203 => negotiated.target_format(content_type)?,
            201..=299 if negotiated.accepts_one_format_only() => {
                negotiated.target_format(content_type)?
            }
            _ if negotiated.is_reply() && is_problem() => Format::Json,
            _ => return None,
        };
        // a response without a body has no format
        let is_unlabelled = content_type.is_none_or(<[u8]>::is_empty);
        let has_none = head.content_length == Some(0) || self.request.head;
        let is_empty = has_none && (is_unlabelled || !negotiated.is_typed() && !self.request.head);
        (!is_empty).then_some((negotiated, format))
    }

    /// Returns the plan for a response that is to be converted, or the reason why it is sent in
    /// its own format.
    pub(super) fn plan_conversion<'a, I>(
        &mut self,
        negotiated: TranscodeRequest,
        format: Format,
        response: &Response<'_>,
        head: &ResponseHead<I>,
    ) -> Result<Result<ResponsePlan, Mode>, TranscodeError>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let mut buffered = BufferedBody::for_head(head);
        let stage = match response.coding {
            _ if response.no_transform => Err(TranscodeError::NoTransform),
            _ if !negotiated.is_typed() => Err(TranscodeError::Untyped),
            _ if negotiated.is_reply() && head.status != 200 => Err(TranscodeError::NoValue),
            _ if !matches!(head.status, 200 | 203) => Err(TranscodeError::Status(head.status)),
            Coding::Other => Err(TranscodeError::Coding),
            _ => self.open_transcoder(negotiated, format, head, &mut buffered),
        };
        let (stage, place) = match stage {
            Err(why) if negotiated.accepts_other_format() => return Err(why),
            Err(why) => (Err(why), None),
            Ok((stage, place)) => (Ok(stage), place),
        };
        self.request.ssz = Some(negotiated);
        self.varies = true;
        response.vary_accept_encoding_edits(head.host_writes_vary, &mut self.head_edits);
        response.edits_for_format(format, &mut buffered.recoded_edits);
        if self.request.head && stage.is_ok() {
            self.head_edits.push(HeadEdit::remove("Content-Length"));
            self.head_edits.append(&mut buffered.recoded_edits);
            return Ok(Err(Mode::Head));
        }
        if self.request.head {
            // the declared body is not sent
            buffered.declared = None;
        }
        let accept = self.request.accept_encoding;
        let gzip = (accept.prefers_gzip() && head.coding_allowed).then_some(CompressionSettings {
            at_any_length: accept.refuses_identity(),
        });
        let mut refused_edits = Vec::new();
        response.edits_for_error(&mut refused_edits);
        let transcoding = Box::new(Conversion {
            stage,
            takes_original: negotiated.accepts_other_format(),
            of: match () {
                () if negotiated.is_bridged() => ConversionSource::Payload(Vec::new()),
                () if negotiated.is_reply() => ConversionSource::Reply(Vec::new()),
                () if negotiated.is_call() => ConversionSource::Call,
                () => ConversionSource::Route,
            },
            is_gzip: response.coding == Coding::Gzip,
            is_unlabelled: negotiated.accepts_one_format_only()
                && response.content_type.is_none_or(<[u8]>::is_empty)
                && response.coding == Coding::Identity,
            is_original_lost: false,
            received: 0,
            place,
            refused_edits,
        });
        let stages = BodyStages {
            inflates: response.coding == Coding::Gzip && transcoding.stage.is_ok(),
            transcoding: Some(transcoding),
            gzip,
        };
        Ok(Ok(ResponsePlan::Buffer(Box::new(BodyPipeline::new(
            stages, buffered,
        )))))
    }

    /// Returns the transcoder, with the memory that it is expected to need, and its slot if the
    /// response is long.
    fn open_transcoder<'a, I>(
        &self,
        negotiated: TranscodeRequest,
        format: Format,
        head: &ResponseHead<I>,
        buffered: &mut BufferedBody,
    ) -> Result<(Transcoder, Option<Reservation>), TranscodeError>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        if memory::is_short() {
            return Err(TranscodeError::Memory);
        }
        let config = &self.config;
        let (chain, max_size) = (self.known_chain(), config.ssz.max_size);
        let fields = head.fields.clone();
        let transcoder = Transcoder::new(*negotiated.gives, format, &chain, max_size, fields)?;
        let root = self.storing.fill.as_ref().and_then(|fill| fill.root());
        let transcoder = transcoder.with_requested_root(*negotiated.gives, root);
        let mut transcoder = transcoder.for_call(&self.looked.rpc_id);
        let declared = buffered.declared.unwrap_or(0);
        let place = reserve_slot(config, declared as u64)?;
        let original = declared.min(usize::try_from(config.ssz.hold).unwrap_or(usize::MAX));
        let (original, made) = match format {
            Format::Ssz => (original, estimated_ssz_length(declared)),
            Format::Json => (declared, declared.saturating_mul(2)),
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
    pub(super) fn add_vary_accept<'a, I>(&mut self, head: &ResponseHead<I>)
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
        if !vary::covers(lines.iter().copied(), MEMBER) {
            let value = vary::add_name(lines.iter().copied(), MEMBER);
            self.head_edits.push(HeadEdit::set(NAME, value));
        }
    }

    /// Feeds a piece of the body to the transcoder, and decides whether the conversion continues.
    pub(super) fn piece_to_transcode(&mut self, piece: &[u8]) -> Result<PieceAction, Misuse> {
        let Phase::Collecting(whole) = &mut self.phase else {
            return Err(self.misuse(Event::Piece));
        };
        panic_if(Fault::PanicBody);
        if self.request.ssz.is_some_and(TranscodeRequest::is_call) {
            // the entry is stored as JSON
            self.storing
                .copy_sent_bytes(&self.config, &mut self.reason, piece);
        }
        let format = self.request.ssz.and_then(TranscodeRequest::format);
        if whole.has_target_format(format, piece) {
            self.not_stored(Reason::Type);
            self.send_original(Mode::Type)?;
            return Ok(PieceAction::SendOriginal);
        }
        let taken = whole.transcode_piece(&self.config, piece);
        match (taken, whole.stages.transcoding.as_deref_mut()) {
            (Ok(()), _) => {
                self.received += piece.len() as u64;
                Ok(PieceAction::Buffered)
            }
            // the client gets an error at the end
            (Err(why), Some(transcoding)) if transcoding.sends_error() => {
                transcoding.fail(why);
                transcoding.received += piece.len() as u64;
                whole.buffered.body = Vec::new();
                self.received += piece.len() as u64;
                Ok(PieceAction::Buffered)
            }
            (Err(why), _) => {
                self.not_stored(why.reason());
                self.detail_edit();
                self.send_original(why.mode())?;
                Ok(PieceAction::SendOriginal)
            }
        }
    }

    /// Finishes the conversion, and continues with its output or with its failure.
    pub(super) fn transcode(&mut self) -> Result<(), Misuse> {
        let Phase::Coding(whole) = &mut self.phase else {
            return Err(self.misuse(Event::Compressed));
        };
        let Some(mut transcoding) = whole.stages.transcoding.take() else {
            return Err(self.misuse(Event::Compressed));
        };
        let stage = std::mem::replace(&mut transcoding.stage, Err(TranscodeError::Failed));
        let most = transcoding.max_decompressed_length(&self.config);
        let made = stage.and_then(|stage| {
            if whole.stages.inflates {
                // the decompressed length is known now
                let claimed = inflate::trailer_length(&whole.buffered.body);
                transcoding.ensure_slot(&self.config, claimed as u64)?;
            }
            whole.finish(&self.config, stage, most)
        });
        match made {
            Ok(made) => self.finish_converted(made),
            Err(why) => self.finish_unconverted(*transcoding, &why),
        }
    }

    /// Completes the response with the output of the conversion, compressed if the client accepts
    /// it.
    fn finish_converted(&mut self, mut made: Transcoded) -> Result<(), Misuse> {
        let Phase::Coding(whole) = &mut self.phase else {
            return Err(self.misuse(Event::Compressed));
        };
        let buffered = &mut whole.buffered;
        self.head_edits.append(&mut buffered.recoded_edits);
        if let Some(fork) = made.fork {
            self.head_edits
                .push(HeadEdit::set(VERSION, fork.as_bytes()));
        }
        let label = self.request.ssz.and_then(TranscodeRequest::ssz_type_header);
        if let Some(label) = label.filter(|_| made.format == Format::Ssz) {
            self.head_edits
                .push(HeadEdit::set(TYPE, label.into_bytes()));
        }
        let length = made.body.len();
        self.head_edits.push(HeadEdit::content_length(length));
        let format = made.format;
        let is_call = self.request.ssz.is_some_and(TranscodeRequest::is_call);
        let of_json = self.storing.fill.take_if(|_| is_call);
        if let Some(fill) = self.storing.uses_sent_bytes() {
            fill.build_transcoded(&mut made, &mut whole.room);
        }
        buffered.declared = None;
        buffered.delimited = true;
        let refused = self
            .storing
            .fill
            .as_ref()
            .and_then(|fill| fill.rejection_reason());
        if let Some(reason) = refused {
            // followers send their own requests
            self.reject_and_remember(reason);
            self.detail_edit();
        }
        let tag = self
            .storing
            .fill
            .as_ref()
            .and_then(|fill| fill.entity_tag());
        let is_long = length > LONG && tag.is_none();
        if is_long || !made.body.is_in_order() {
            self.compress_parts(made.body)?;
        } else {
            if let Phase::Coding(whole) = &mut self.phase {
                whole.buffered.body = made.body.into_pieces().0;
            }
            self.compress_whole()?;
        }
        if of_json.is_some() {
            self.storing.fill = of_json;
        }
        if let Some(tag) = tag {
            // the entity tag that hits of this entry will have
            let weak = etag::weakened(&tag).filter(|_| self.mode == Mode::Oneshot);
            self.head_edits
                .push(HeadEdit::set("ETag", weak.unwrap_or(tag)));
        }
        self.mode = match format {
            Format::Ssz => Mode::Ssz,
            Format::Json => Mode::Json,
        };
        Ok(())
    }

    /// Completes the response of a failed conversion with the original or an error.
    fn finish_unconverted(
        &mut self,
        mut transcoding: Conversion,
        why: &TranscodeError,
    ) -> Result<(), Misuse> {
        // an empty body has no format
        let is_empty = transcoding.received == 0 && !self.request.head;
        transcoding.takes_original |= is_empty && transcoding.is_unlabelled;
        self.not_stored(why.reason());
        self.detail_edit();
        let Phase::Coding(whole) = &mut self.phase else {
            return Err(self.misuse(Event::Compressed));
        };
        if transcoding.keeps_original() {
            // unchanged, if the client accepts its coding
            whole.stages.inflates &= !self.request.accept_encoding.allows_gzip();
            whole.stages.gzip = None;
            whole.buffered.recoded_edits.clear();
            self.compress_whole()?;
        } else if !transcoding.sends_error() {
            return self.fail(why.mode());
        } else {
            self.head_edits
                .extend_from_slice(&transcoding.refused_edits);
            let (status, body) = match &transcoding.of {
                ConversionSource::Call => (
                    502,
                    result_as_ssz::transcode_error_response(&self.looked.rpc_id, why),
                ),
                ConversionSource::Route => {
                    let status = if why.is_temporary() { 503 } else { 406 };
                    let format = self.request.ssz.and_then(TranscodeRequest::format);
                    (status, beacon_error(status, why, format))
                }
                ConversionSource::Reply(_) => {
                    match Problem::from_route_response(&transcoding.error_prefix()) {
                        Some(problem) if *why == TranscodeError::NoValue => {
                            (200, problem.to_call(&self.looked.rpc_id))
                        }
                        _ => (
                            502,
                            result_as_ssz::transcode_error_response(&self.looked.rpc_id, why),
                        ),
                    }
                }
                ConversionSource::Payload(_) => {
                    let media_type = HeadEdit::set("Content-Type", problem::MEDIA_TYPE);
                    self.head_edits.push(media_type);
                    let problem = Problem::from_rpc_response(&transcoding.error_prefix(), why);
                    (problem.status(), problem.body())
                }
            };
            self.head_edits.push(HeadEdit::content_length(body.len()));
            whole.buffered.body = match self.request.head {
                true => Vec::new(),
                false => body,
            };
            self.transition(Event::Compressed, |phase| phase.into_ready(None))?;
            if let Some(answer) = self.response_body_mut() {
                answer.status = status;
            }
        }
        self.mode = why.mode();
        Ok(())
    }

    /// Whether a response whose head was not evaluated may be in a format that the client does
    /// not accept: the request to the node allowed both formats.
    pub(super) fn may_be_unacceptable(&self) -> bool {
        let is_awaited = matches!(self.phase, Phase::AwaitingHead);
        let must_be_made = |ssz: TranscodeRequest| ssz.accepts_ssz_only() || ssz.is_reply();
        let negotiated = self.request.ssz.or(self.request.untyped);
        is_awaited && negotiated.is_some_and(must_be_made)
    }

    /// Whether the buffered body can't be sent unchanged.
    pub(super) fn has_lost_original(&self) -> bool {
        match &self.phase {
            Phase::Collecting(whole) | Phase::Coding(whole) => {
                let transcoding = whole.stages.transcoding.as_ref();
                transcoding.is_some_and(|it| !it.keeps_original())
            }
            _ => false,
        }
    }

    /// Aborts the response with this mode, because there is nothing to send.
    pub(super) fn fail(&mut self, reason: Mode) -> Result<(), Misuse> {
        self.abort()?;
        self.mode = reason;
        Ok(())
    }
}

impl BodyPipeline {
    /// Whether the first piece of a body without a `Content-Type` shows that it has this format
    /// already. If so, the body can be sent unchanged from then on.
    fn has_target_format(&mut self, format: Option<Format>, piece: &[u8]) -> bool {
        let Some(transcoding) = &mut self.stages.transcoding else {
            return false;
        };
        let Some(first) = piece.first().filter(|_| transcoding.received == 0) else {
            return false;
        };
        let is_json = first.is_ascii_whitespace() || matches!(first, b'{' | b'[');
        let is_it = transcoding.is_unlabelled && is_json == (format == Some(Format::Json));
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
        let inflates = self.stages.inflates;
        let Some(transcoding) = &mut self.stages.transcoding else {
            return Err(TranscodeError::Failed);
        };
        let buffered = &mut self.buffered;
        transcoding.append_error_prefix(piece);
        let length = transcoding.received.saturating_add(piece.len() as u64);
        if buffered.declared.is_some_and(|it| length > it as u64) {
            // the upstream sent more than it declared: pass it on unchanged
            return Err(TranscodeError::Failed);
        }
        if memory::is_short() {
            return Err(TranscodeError::Memory);
        }
        if transcoding.stage.is_ok() {
            // before any of the original is released
            transcoding.ensure_slot(config, length)?;
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
            stage.feed(piece)?;
        }
        let mut made = stage.room();
        let is_of_use = transcoding.takes_original && length <= config.ssz.hold;
        let keeps = inflates || stage.needs_original() || is_of_use;
        if !keeps && !transcoding.is_original_lost && transcoding.takes_original {
            // After this piece the original is lost: memory is reserved now, while a refusal
            // loses nothing.
            let announced = buffered.declared.unwrap_or(0);
            made = made.max(estimated_ssz_length(announced));
            buffered
                .claim_memory(config, 0, made)
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
            .claim_memory(config, buffered.body.capacity(), made)
            .map_err(|_| TranscodeError::Memory)?;
        if !transcoding.is_original_lost {
            buffered.body.extend_from_slice(piece);
        }
        transcoding.received = length;
        Ok(())
    }

    /// Returns the output of the conversion; at most `most` bytes are decompressed.
    fn finish(
        &mut self,
        config: &RouteConfig,
        mut stage: Transcoder,
        most: u64,
    ) -> Result<Transcoded, TranscodeError> {
        if memory::is_short() {
            return Err(TranscodeError::Memory);
        }
        let buffered = &mut self.buffered;
        if !self.stages.inflates {
            let body = std::mem::take(&mut buffered.body);
            let made = stage.finish(&body, &mut |room| {
                buffered.claim_memory(config, body.capacity(), room).is_ok()
            });
            buffered.body = body;
            return made;
        }
        let original = buffered.gunzip(config, most).map_err(|mode| match mode {
            Mode::Memory => TranscodeError::Memory,
            _ => TranscodeError::Coding,
        })?;
        for piece in original.chunks(PIECE) {
            stage.feed(piece)?;
            // the compressed body is still in memory
            let all = original.capacity() + buffered.body.capacity();
            buffered
                .claim_memory(config, all, stage.room())
                .map_err(|_| TranscodeError::Memory)?;
        }
        let all = original.capacity() + buffered.body.capacity();
        let made = stage.finish(&original, &mut |room| {
            buffered.claim_memory(config, all, room).is_ok()
        })?;
        self.stages.inflates = false;
        Ok(made)
    }
}

impl Response<'_> {
    /// Adds the edits of the head for the same value in this format.
    fn edits_for_format(&self, format: Format, edits: &mut Vec<HeadEdit>) {
        edits.push(HeadEdit::set("Content-Type", format.media_type()));
        if self.coding != Coding::Identity {
            edits.push(HeadEdit::remove("Content-Encoding"));
        }
        self.edits_for_changed_body(edits);
    }

    /// Adds the edits of the head for an error in place of the value.
    fn edits_for_error(&self, edits: &mut Vec<HeadEdit>) {
        edits.push(HeadEdit::set("Content-Type", JSON));
        for name in [
            "Content-Encoding",
            "Cache-Control",
            "Expires",
            "Last-Modified",
            VERSION,
        ] {
            edits.push(HeadEdit::remove(name));
        }
        self.edits_for_changed_body(edits);
    }
}

/// Returns an error in the form of the Beacon API.
fn beacon_error(status: u16, why: &TranscodeError, format: Option<Format>) -> Vec<u8> {
    let format = match format {
        Some(Format::Json) => "JSON",
        _ => "SSZ",
    };
    let message = format!("the response is not available as {format}: {why}");
    let error = serde_json::json!({ "code": status, "message": message });
    error.to_string().into_bytes()
}
