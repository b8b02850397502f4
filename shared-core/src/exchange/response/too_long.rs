//! Replacement of a response that is longer than its limit by a JSON-RPC error.
//!
//! Nothing of a response is sent before it is known to be within its limit: by its
//! `Content-Length`, which upstreams mostly send, or when it is complete. A compressed body is
//! buffered and decompressed. In a batch the limits apply to each response
//! ([`merge_batch`](crate::exchange::machine::Exchange::merge_batch)).

use std::sync::Arc;

use crate::cache::entry::CacheEntry;
use crate::cache::reason::Reason;
use crate::config::CallAccessPolicy;
use crate::exchange::machine::actions::{BodyPieceAction, HostMisuse};
use crate::exchange::machine::message_head::{status_has_no_body, HeadEdit, ResponseHead};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::exchange::response::body_stages::BodyStages;
use crate::exchange::response::length_limit::max_compressed_length;
use crate::exchange::response::pipeline::{BufferedBody, BufferedBodyPipeline};
use crate::exchange::response::plan::ResponsePlan;
use crate::exchange::response::ready_response::ReadyResponse;
use crate::memory;
use crate::request_coding::BodyContentCoding;
use crate::response_mode::ResponseMode;
use crate::transcode::JSON_MEDIA_TYPE;

/// Headers that describe the upstream's body, and are removed from an error in its place.
const UPSTREAM_BODY_HEADERS: [&str; 11] = [
    "Content-Encoding",
    "Content-Language",
    "ETag",
    "Last-Modified",
    "Expires",
    "Accept-Ranges",
    "Content-Digest",
    "Repr-Digest",
    "Digest",
    "Content-MD5",
    "Trailer",
];

impl Exchange {
    /// Whether a stored response to a single call exceeds its limit.
    pub(in crate::exchange) fn exceeds_response_limit(
        &self,
        entry: &CacheEntry,
        id: Option<&[u8]>,
    ) -> bool {
        let bound = self.lookup_findings.response_limit.as_ref();
        bound.is_some_and(|bound| entry.response_length(id.unwrap_or_default()) > bound.most)
    }

    /// Returns the JSON-RPC error that replaces a stored response longer than its limit.
    pub(in crate::exchange) fn respond_with_limit_error(&mut self) -> Option<Box<ReadyResponse>> {
        let answer = self.take_limit_error(200)?;
        self.head_edits = Vec::new();
        self.set_error_headers(answer.body.len());
        Some(answer)
    }

    /// Takes the JSON-RPC error of the limit, as a response with this status, and records the
    /// denial.
    fn take_limit_error(&mut self, status: u16) -> Option<Box<ReadyResponse>> {
        let body = self.lookup_findings.response_limit.take()?.error;
        self.cache_reason = Reason::Denied;
        self.response_mode = ResponseMode::Denied;
        self.lookup_findings.denied += 1;
        Some(Box::new(ReadyResponse {
            status,
            is_ours: status != 0,
            body,
            ..ReadyResponse::default()
        }))
    }

    fn set_error_headers(&mut self, length: usize) {
        self.head_edits.push(HeadEdit::set_content_length(length));
        self.head_edits
            .push(HeadEdit::set_header("Content-Type", JSON_MEDIA_TYPE));
    }

    /// Maximum length in bytes of the response with this head, if the request is a single call
    /// with a limit.
    pub(in crate::exchange) fn single_call_response_limit<I>(
        &self,
        head: &ResponseHead<I>,
    ) -> Option<u64> {
        let ExchangePhase::AwaitingHead = self.phase else {
            return None;
        };
        let bound = self.lookup_findings.response_limit.as_ref();
        bound
            .filter(|_| !status_has_no_body(head.status) && !head.subrequest)
            .map(|it| it.most)
    }

    /// Whether the head alone shows that the response exceeds its limit, or that its length
    /// can't be measured.
    pub(in crate::exchange) fn head_shows_limit_exceeded<I>(
        head: &ResponseHead<I>,
        coding: BodyContentCoding,
        most: u64,
    ) -> bool {
        let most = match coding {
            BodyContentCoding::None => most,
            BodyContentCoding::Coded(_) => max_compressed_length(most),
            BodyContentCoding::Other => return true,
        };
        head.content_length.is_some_and(|length| length > most)
    }

    /// Returns the plan for a response with a limit, whose length is not known: it is buffered,
    /// whatever the previous plan. `None` if there is no memory for that.
    pub(in crate::exchange) fn plan_limited_response<I>(
        &self,
        judged: Result<ResponsePlan, ResponseMode>,
        head: &ResponseHead<I>,
        coding: BodyContentCoding,
        most: u64,
    ) -> Option<ResponsePlan> {
        let mut whole = match judged {
            Ok(ResponsePlan::Buffer(whole)) => whole,
            Ok(other) => return Some(other),
            Err(reason) => {
                let mut whole = Box::new(BufferedBodyPipeline::new(
                    BodyStages::default(),
                    BufferedBody::for_response_head(head),
                ));
                whole.left_alone = Some(reason);
                if let Some(declared) = whole.buffered.declared {
                    whole
                        .buffered
                        .reserve_for_length(&self.route_config, declared)
                        .ok()?;
                }
                whole
            }
        };
        whole.most = Some(most);
        whole.measured = coding.supported_coding();
        Some(ResponsePlan::Buffer(whole))
    }

    /// Whether a buffered response is within its limit; a compressed one is decompressed to
    /// measure it. `false` also if there is no memory for that.
    pub(in crate::exchange) fn decoded_body_is_within_limit(&mut self) -> bool {
        let ExchangePhase::Compressing(whole) = &mut self.phase else {
            return true;
        };
        let (Some(coded), Some(most)) = (whole.measured, whole.most) else {
            return true;
        };
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (most, limit) = (size(most), size(self.route_config.memory));
        let budget = &self.route_config.process.budget;
        let Some(mut memory) = budget.reserve_bytes(0, limit) else {
            return false;
        };
        let may_take =
            |length| memory.grow_reservation_to(length, limit) && !memory::is_memory_short();
        let is_short = coded
            .decompress_body(&whole.buffered.body, most, may_take)
            .is_ok();
        if is_short {
            whole.measured = None;
            whole.most = None;
        }
        is_short
    }

    /// Replaces a measured response that exceeds its limit by an error.
    pub(in crate::exchange) fn reject_measured_body(&mut self) -> Result<(), HostMisuse> {
        self.checked_state_after_event(ExchangeEvent::Refuse)?;
        let Some(answer) = self.replace_body_by_error() else {
            return Err(self.misuse_for_event(ExchangeEvent::Refuse));
        };
        self.apply_transition(ExchangeEvent::Refuse, |_| ExchangePhase::Ready(answer))
    }

    /// Discards the upstream's response, which exceeds its limit, and sends an error when the
    /// body ends.
    pub(in crate::exchange) fn discard_overlong_upstream_body(
        &mut self,
    ) -> Result<BodyPieceAction, HostMisuse> {
        self.checked_state_after_event(ExchangeEvent::Replace)?;
        let Some(answer) = self.replace_body_by_error() else {
            return Err(self.misuse_for_event(ExchangeEvent::Replace));
        };
        self.apply_transition(ExchangeEvent::Replace, |_| {
            ExchangePhase::DiscardingUpstream(answer)
        })?;
        Ok(BodyPieceAction::Buffered)
    }

    /// Returns the JSON-RPC error that replaces a response above its limit, sets its headers, and
    /// discards the fill. Returns `None` if the request has no limit.
    fn replace_body_by_error(&mut self) -> Option<Box<ReadyResponse>> {
        let answer = self.take_limit_error(0)?;
        self.head_edits.retain(|edit| {
            let name = &*edit.name;
            // the last two are of QUERY
            matches!(
                name,
                "Vary" | "Cache-Status" | "Cache-Control" | "Accept-Query"
            )
        });
        self.set_error_headers(answer.body.len());
        self.head_edits
            .extend(UPSTREAM_BODY_HEADERS.map(HeadEdit::remove_header));
        self.discard_fill();
        self.not_ssz = None;
        Some(answer)
    }

    /// Returns the maximum length of the response to a call of a batch, in bytes; `None` without a
    /// limit.
    pub(in crate::exchange) fn batch_call_response_limit(
        policy: Option<&Arc<CallAccessPolicy>>,
        method: &[u8],
    ) -> Option<u64> {
        policy.and_then(|policy| policy.method_response_limit(method))
    }
}
