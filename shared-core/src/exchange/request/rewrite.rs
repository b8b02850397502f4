//! Request bodies that are rewritten: compressed bodies are decompressed, and SSZ is converted
//! to JSON for a node that accepts JSON only.
//!
//! With `sszip_ssz_request auto` a node that has rejected SSZ once (415) gets JSON from then on.
//! A body that is no value of its type is rejected before the node receives it: nothing was
//! published. No request is sent twice.
//!
//! A payload that is submitted over REST becomes a call, if the node has the method only
//! (`sszip_ssz_witness rpc`). The node can't use the original, so a payload that can't become a
//! call is rejected, for whatever reason. A call for a witness that can't become such a payload
//! is rejected in the same way, if the node has the route only (`sszip_ssz_witness rest`).

use crate::bytes::try_copy_bytes;
use crate::config::{SszRequestMode, UpstreamAcceptEncoding};
use crate::exchange::cache::lookup::request::BodyLength;
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::machine::message_head::{HeadEdit, Header};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::{ExchangeEvent, ExchangeState};
use crate::exchange::machine::Exchange;
use crate::exchange::request::decompression::DecompressedRequestBody;
use crate::exchange::response::ready_response::ReadyResponse;
use crate::faults::{is_fault_injected, panic_if_injected, InjectedTestFault};
use crate::gzip::inflate::InflateError;
use crate::memory;
use crate::memory::MemoryReservation;
use crate::negotiate::accept::FormatPreference;
use crate::response_mode::ResponseMode;
use crate::ssz::Preset;
use crate::transcode::engine::rpc_request::{RestPayloadSubmission, WitnessCallRefusal};
use crate::transcode::engine::{self, problem, status};
use crate::transcode::{
    SszSubmission, TranscodeError, TranscodeRequest, JSON_MEDIA_TYPE, SSZ_MEDIA_TYPE,
};

/// Reserves `room` bytes in addition to the `used` bytes that are reserved already. `false` if the
/// total would exceed `limit`.
fn reserve_additional_bytes(
    memory: &mut Option<MemoryReservation>,
    used: usize,
    room: usize,
    limit: usize,
) -> bool {
    let needed = used.saturating_add(room);
    memory
        .as_mut()
        .is_some_and(|it| it.grow_reservation_to(needed, limit))
}

/// Estimate of the memory for SSZ and its JSON, in lengths of the SSZ.
const MEMORY_FACTOR: usize = 4;

/// Length in bytes beyond which SSZ is not converted on an event loop: 2 to 3 ms, and more than
/// a block with its blobs has.
const OFF_LOOP_LENGTH: usize = 4 << 20;

impl Exchange {
    /// Whether the request's body has to be rewritten to another format for the node.
    pub(in crate::exchange) fn requires_request_rewrite(&self) -> bool {
        let is_to_be = self.submission_for_json_node().is_some() || self.request.payload.is_some();
        is_to_be
            && self.request_body.is_empty()
            && self.exchange_state() == ExchangeState::AwaitingHead
    }

    /// Returns the SSZ submission if it is to be converted: always, or because the node has refused
    /// SSZ of this route.
    fn submission_for_json_node(&self) -> Option<SszSubmission> {
        let ssz = &self.route_config.ssz;
        let submitted = self.request.submitted;
        submitted.filter(|it| {
            ssz.request == SszRequestMode::Always
                || ssz.refused.has_node_refused_kind(it.route_index())
        })
    }

    /// Whether the node gets the body in the other format.
    fn converts_request_body(&self) -> bool {
        let is_payload = self.request.payload.is_some() || self.request.called.is_some();
        is_payload || self.submission_for_json_node().is_some()
    }

    /// Maximum length in bytes of a body that is read or decompressed for a rewrite.
    fn max_rewritable_length(&self) -> u64 {
        let (in_other, in_same) = (
            self.route_config.ssz.max_size,
            self.route_config.max_oneshot,
        );
        match self.converts_request_body() {
            true => in_other,
            // the body may be a call for a route of the node
            false if self.request.route.is_some() => in_other.max(in_same),
            false => in_same,
        }
    }

    /// Maximum length in bytes of a body that is kept in memory for a lookup or, with `whole`,
    /// for a rewrite.
    pub(in crate::exchange) fn max_buffered_request_length(&self, whole: bool) -> u64 {
        let max_lookup = self.route_config.cache.max_request;
        match whole {
            true => self.max_rewritable_length().max(max_lookup),
            false => max_lookup,
        }
    }

    /// Whether a body of this length can be rewritten.
    pub(in crate::exchange) fn is_rewritable_body_length(&self, length: BodyLength) -> bool {
        match length {
            _ if self.request.payload.is_some() => true,
            BodyLength::Known(length) => {
                let memory = match self.request.coding.supported_coding() {
                    // the decompressed length is not known
                    Some(_) => length,
                    None => length.saturating_mul(MEMORY_FACTOR as u64),
                };
                length <= self.route_config.ssz.max_size && memory <= self.route_config.memory
            }
            BodyLength::Unknown => true,
        }
    }

    /// Copies the body, to be processed by [`run_pending_stages`](Self::run_pending_stages). `body`
    /// is `None` if there is no memory to read it or it `is_too_long`. `false` if the body goes to
    /// the node unchanged.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a response head is awaited.
    pub(in crate::exchange) fn begin_request_body_rewrite(
        &mut self,
        body: Option<&[u8]>,
        is_too_long: bool,
    ) -> Result<bool, HostMisuse> {
        self.checked_state_after_event(ExchangeEvent::Rewrite)?;
        let longest = self.max_rewritable_length();
        let is_long = is_too_long || body.is_some_and(|body| body.len() as u64 > longest);
        let is_short = memory::is_memory_short() || is_fault_injected(InjectedTestFault::FailAlloc);
        let lengths = match self.request.coding.supported_coding() {
            Some(_) => 1,
            None => MEMORY_FACTOR,
        };
        let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
        let budget = &self.route_config.process.budget;
        let body = body.filter(|_| !is_long && !is_short);
        let copied = body.and_then(|body| {
            let reserved = budget.reserve_bytes(body.len().saturating_mul(lengths), limit)?;
            Some((reserved, try_copy_bytes(body)?))
        });
        let why = match is_long {
            true => TranscodeError::Length(self.route_config.ssz.max_size),
            false => TranscodeError::Memory,
        };
        let body = match copied {
            Some((reserved, body)) => {
                self.request_memory = Some(reserved);
                body
            }
            None if self.reject_unrewritable_request(why) => Vec::new(),
            None => return Ok(false),
        };
        self.apply_transition(ExchangeEvent::Rewrite, |_| ExchangePhase::Rewriting(body))?;
        Ok(true)
    }

    /// Rejects the request if a body that can't be rewritten must not be forwarded. Returns
    /// whether it was rejected.
    fn reject_unrewritable_request(&mut self, why: TranscodeError) -> bool {
        match (&mut self.request.payload, &mut self.request.called) {
            (Some(payload), _) => payload.mark_request_unusable(why),
            (None, Some(called)) => called.mark_call_unconvertible(why),
            (None, None) => return false,
        }
        true
    }

    /// Whether the rewrite takes too long for an event loop.
    pub(in crate::exchange) fn needs_rewrite_job(&self) -> bool {
        match &self.phase {
            ExchangePhase::Rewriting(_) if self.request.coding.supported_coding().is_some() => true,
            ExchangePhase::Rewriting(body) => body.len() > OFF_LOOP_LENGTH,
            _ => false,
        }
    }

    /// Decompresses the body and converts it to JSON, or responds with an error.
    pub(in crate::exchange) fn rewrite_request_body(&mut self) -> Result<(), HostMisuse> {
        let ExchangePhase::Rewriting(body) = &mut self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Rewritten));
        };
        let body = std::mem::take(body);
        panic_if_injected(InjectedTestFault::PanicCompress);
        let body = match self.decompress_request_body(body) {
            Ok(body) => body,
            Err(why) if self.reject_unrewritable_request(why.clone()) => Vec::new(),
            // the body goes to the node unchanged
            Err(_) => return self.forward_original_request(),
        };
        if let Some(payload) = &self.request.payload {
            let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
            let mut memory = self.request_memory.take();
            let made =
                payload.to_rpc_call(self.route_chain_parameters().preset, &body, &mut |room| {
                    reserve_additional_bytes(&mut memory, body.capacity(), room, limit)
                });
            self.request_memory = memory;
            return match made {
                Ok(call) => self.forward_as_rpc_call(call),
                Err((problem, mode)) => {
                    let refused = (
                        problem.http_status(),
                        problem::PROBLEM_MEDIA_TYPE,
                        problem.http_problem_body(),
                    );
                    self.respond_with_local_error(mode, refused)
                }
            };
        }
        if let Some(called) = &self.request.called {
            let id = &self.lookup_findings.rpc_id;
            let (mode, refused) =
                match called.to_rest_submission(self.route_chain_parameters().preset, &body) {
                    Ok(submission) => return self.forward_to_rest_route(submission),
                    Err(WitnessCallRefusal::Wrong(problem, mode)) => {
                        (mode, problem.to_rpc_error_response(id))
                    }
                    Err(WitnessCallRefusal::OtherBlobs) => {
                        (ResponseMode::SszInvalid, status::blob_mismatch_result(id))
                    }
                };
            return self.respond_with_local_error(mode, (200, JSON_MEDIA_TYPE, refused));
        }
        match self.submission_for_json_node() {
            Some(submitted) => self.forward_as_json(submitted, &body),
            None => self.forward_decompressed_rewrite(body),
        }
    }

    /// Forwards the body that the client sent.
    fn forward_original_request(&mut self) -> Result<(), HostMisuse> {
        self.request_memory = None;
        self.apply_transition(
            ExchangeEvent::SendOriginal,
            ExchangePhase::into_sending_original,
        )
    }

    /// Decompresses the body, and reads it if it may be a witness call for the node's REST route.
    fn decompress_request_body(&mut self, body: Vec<u8>) -> Result<Vec<u8>, TranscodeError> {
        if self.request.coding.supported_coding().is_none() {
            return Ok(body);
        }
        let reserved = self.request_memory.take();
        let cap = usize::try_from(self.max_rewritable_length()).unwrap_or(usize::MAX);
        let decoded = self.decompress_request_within(&body, cap, reserved);
        drop(body);
        let DecompressedRequestBody { body, mut memory } = decoded.map_err(|why| match why {
            InflateError::Bad => TranscodeError::Coding,
            InflateError::TooLarge => TranscodeError::Length(self.route_config.ssz.max_size),
            InflateError::OutOfMemory => TranscodeError::Memory,
        })?;
        if self.request.route.is_some() {
            self.detect_engine_witness_call(&body);
        }
        if body.len() as u64 > self.max_rewritable_length() {
            return Err(TranscodeError::Length(self.route_config.ssz.max_size));
        }
        let lengths = match self.converts_request_body() {
            true => MEMORY_FACTOR,
            false => 1,
        };
        let needed = body.capacity().saturating_mul(lengths);
        memory.shrink_reservation_to(needed);
        let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
        if !memory.grow_reservation_to(needed, limit) {
            return Err(TranscodeError::Memory);
        }
        self.request_memory = Some(memory);
        Ok(body)
    }

    /// Forwards the decompressed body, if the node accepts nothing else.
    fn forward_decompressed_rewrite(&mut self, body: Vec<u8>) -> Result<(), HostMisuse> {
        if self.awaits_result_format_negotiation() {
            self.negotiate_result_format(&body);
        }
        if body.is_empty() || !self.is_request_sent_decoded() {
            return self.forward_original_request();
        }
        self.request_body = body;
        self.remove_request_coding();
        self.apply_transition(ExchangeEvent::Rewritten, |_| ExchangePhase::AwaitingHead)
    }

    /// Forwards the submission as JSON; SSZ that is no value of its type is rejected with a 400.
    fn forward_as_json(&mut self, submitted: SszSubmission, ssz: &[u8]) -> Result<(), HostMisuse> {
        match self.submission_to_json(submitted, ssz) {
            Ok(json) => {
                self.request_body = json;
                self.remove_request_coding();
                self.request.submitted = None;
                self.upstream_edits
                    .push(HeadEdit::set_header("Content-Type", JSON_MEDIA_TYPE));
                self.apply_transition(ExchangeEvent::Rewritten, |_| ExchangePhase::AwaitingHead)
            }
            Err(why @ TranscodeError::Invalid(_)) => {
                let body = submission_error_body(submitted.type_name(), &why);
                self.respond_with_local_error(
                    why.error_response_mode(),
                    (400, JSON_MEDIA_TYPE, body),
                )
            }
            // the node is to report the error
            Err(_) => self.forward_original_request(),
        }
    }

    /// Forwards the JSON-RPC call that was made of a payload in place of the REST request.
    fn forward_as_rpc_call(&mut self, call: Vec<u8>) -> Result<(), HostMisuse> {
        self.request_body = call;
        self.remove_request_coding();
        self.set_negotiated_format(Some(TranscodeRequest {
            gives: &engine::STATUS_RESPONSE_TYPE,
            preference: FormatPreference::SszOnly,
        }));
        let edits = &mut self.upstream_edits;
        edits.push(HeadEdit::set_header("Content-Type", JSON_MEDIA_TYPE));
        if self.route_config.upstream_encoding != UpstreamAcceptEncoding::Identity {
            // an error is read before it is decompressed
            edits.push(HeadEdit::set_header("Accept-Encoding", b"identity"));
        }
        self.apply_transition(ExchangeEvent::Rewritten, |_| ExchangePhase::AwaitingHead)
    }

    /// Forwards the submission that was made of a call to the node's REST route in place of the
    /// call.
    fn forward_to_rest_route(
        &mut self,
        submission: RestPayloadSubmission,
    ) -> Result<(), HostMisuse> {
        self.request_body = submission.ssz;
        self.remove_request_coding();
        self.request_target = self.request.route.take().unwrap_or_default().0;
        self.set_negotiated_format(Some(TranscodeRequest {
            gives: &engine::REPLY_RESPONSE_TYPE,
            preference: self.request.call.unwrap_or(FormatPreference::Json),
        }));
        let edits = &mut self.upstream_edits;
        edits.push(HeadEdit::set_header("Content-Type", SSZ_MEDIA_TYPE));
        edits.push(HeadEdit::set_header(
            engine::EXECUTION_VERSION_HEADER,
            submission.fork,
        ));
        if self.route_config.upstream_encoding != UpstreamAcceptEncoding::Identity {
            edits.push(HeadEdit::set_header("Accept-Encoding", b"identity"));
        }
        self.apply_transition(ExchangeEvent::Rewritten, |_| ExchangePhase::AwaitingHead)
    }

    /// Responds with an error without a request to the node.
    fn respond_with_local_error(
        &mut self,
        mode: ResponseMode,
        (status, media_type, body): (u16, &'static [u8], Vec<u8>),
    ) -> Result<(), HostMisuse> {
        self.response_mode = mode;
        self.head_edits = vec![
            HeadEdit::set_header("Content-Type", media_type),
            HeadEdit::set_content_length(body.len()),
        ];
        let answer = Box::new(ReadyResponse {
            status,
            is_ours: true,
            body,
            ..ReadyResponse::default()
        });
        self.apply_transition(ExchangeEvent::Refuse, |_| ExchangePhase::Ready(answer))
    }

    /// Converts a body to JSON. If no preset is known, the presets are tried until the body is a
    /// value of one: types that presets share are written alike.
    fn submission_to_json(
        &mut self,
        submitted: SszSubmission,
        body: &[u8],
    ) -> Result<Vec<u8>, TranscodeError> {
        let preset = self.route_chain_parameters().preset;
        let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
        let mut memory = self.request_memory.take();
        let mut in_preset = |preset: Preset| {
            submitted.to_json(preset, body, &mut |room| {
                reserve_additional_bytes(&mut memory, body.len(), room, limit)
            })
        };
        let made = in_preset(preset);
        let mut others = Preset::ALL.iter().filter(|other| **other != preset);
        let made = match &made {
            Err(TranscodeError::Invalid(_)) if !self.has_known_preset() => others
                .find_map(|other| in_preset(*other).ok())
                .map_or(made, Ok),
            _ => made,
        };
        self.request_memory = memory;
        made
    }

    /// Whether the body of the upstream request differs from the client's.
    pub(in crate::exchange) fn is_request_rewritten(&self) -> bool {
        !self.request_body.is_empty()
    }

    /// Whether the response was made by sszip.
    pub(in crate::exchange) fn is_local_response(&self) -> bool {
        self.ready_response().is_some_and(|answer| answer.is_ours)
    }

    /// Records whether the node rejects SSZ or a content coding, from its status. A 415 that may
    /// mean either is taken for both, unless `Accept-Encoding` shows that it means the coding
    /// (RFC 9110, 15.5.16): every node accepts the body that it gets instead.
    pub(in crate::exchange) fn record_rejected_formats<'a>(
        &self,
        status: u16,
        mut fields: impl Iterator<Item = Header<'a>>,
    ) {
        if status != 415 {
            return;
        }
        let coded = self.request.coding.supported_coding();
        if let Some(coded) = coded {
            self.route_config
                .coded_requests
                .record_refused_coding(coded);
        }
        let is_coding = |(name, _): Header<'_>| name.eq_ignore_ascii_case(b"accept-encoding");
        if coded.is_some() && fields.any(is_coding) {
            return;
        }
        if let Some(submitted) = self.request.submitted {
            self.route_config
                .ssz
                .refused
                .record_node_refusal(submitted.route_index());
        }
    }
}

/// Returns an error in the form of the Beacon API.
fn submission_error_body(type_name: &str, why: &TranscodeError) -> Vec<u8> {
    let message = format!("the body is not a valid {type_name}: {why}");
    let error = serde_json::json!({ "code": 400, "message": message });
    error.to_string().into_bytes()
}
