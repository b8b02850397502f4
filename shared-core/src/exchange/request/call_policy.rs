//! Enforcement of the operator's policy, and of the rules for QUERY.
//!
//! Each call of a request is evaluated before the request is forwarded: a denied call is
//! answered here, and a batch is forwarded without its denied calls.
//!
//! A request that does not pass the strict reading of [`parse_jsonrpc_request`] may be read differently by
//! a node, and call another method there. It is not forwarded, and neither is a request that can't
//! be read: a body that is too long, or in a content coding that is not decompressed here, or a
//! connection that leaves HTTP.

use std::sync::Arc;

use crate::cache::entry::batch::{assemble_identity_batch, BatchCoding, BatchResponseElement};
use crate::cache::entry::CacheEntry;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::config::CallAccessPolicy;
use crate::exchange::cache::batch::split::{BatchElementSource, SplitBatch};
use crate::exchange::cache::lookup::request::{
    BodyLength, LookupRequest, RequestBodyAvailability, RequiredBody,
};
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::machine::message_head::HeadEdit;
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::{ExchangeEvent, ExchangeState};
use crate::exchange::machine::Exchange;
use crate::exchange::request::unverifiable::UnverifiableRequestReason;
use crate::exchange::response::length_limit::CallResponseLengthLimit;
use crate::exchange::response::ready_response::ReadyResponse;
use crate::gzip::inflate::InflateError;
use crate::jsonrpc::method_rules::MethodAccessDecision;
use crate::jsonrpc::request::{
    parse_jsonrpc_request, required_request_memory, JsonRpcCall, JsonRpcRequestBody,
    RequestParseFailure,
};
use crate::memory;
use crate::request_coding::BodyContentCoding;
use crate::response_mode::ResponseMode;
use crate::transcode::JSON_MEDIA_TYPE;

/// Maximum length in bytes to which a body is decompressed here: an event loop needs 1 ms for
/// it.
const MAX_DECOMPRESSED: u64 = 1 << 20;

/// The decision of the policy about a request: it is forwarded, in whole or in part, or rejected.
#[derive(Debug)]
pub(in crate::exchange) enum CallAccessDecision {
    /// The request is forwarded unchanged.
    Allowed,
    /// The request is forwarded without some of its calls, or its responses are checked one by
    /// one.
    PartlyDenied,
    /// All calls are denied; with the response, which is empty if there are only notifications.
    Denied(Vec<u8>),
    /// The calls of the request can't be verified.
    Refused(UnverifiableRequestReason),
}

impl Exchange {
    /// Whether the request must be evaluated before it is forwarded.
    pub(in crate::exchange) fn is_subject_to_policy(&self) -> bool {
        let is_client = matches!(
            self.exchange_state(),
            ExchangeState::AwaitingHead | ExchangeState::Waiting
        );
        let is_evaluated =
            self.request.query.is_some() || self.route_config.active_call_policy().is_some();
        is_client && is_evaluated
    }

    /// Returns the part of the body that the evaluation needs; `None` if there is nothing to
    /// evaluate.
    pub(in crate::exchange) fn body_required_by_policy(
        &mut self,
        length: BodyLength,
    ) -> Option<RequiredBody> {
        if !self.is_subject_to_policy() {
            return None;
        }
        self.lookup_findings.head_rejection = self.request_rejection_by_head(length);
        if self.lookup_findings.head_rejection.is_some() {
            return Some(RequiredBody::LookUp);
        }
        if length == BodyLength::Known(0) {
            return None;
        }
        if self.becomes_websocket() {
            return Some(RequiredBody::Nothing);
        }
        self.lookup_findings.cache_skips_body =
            self.body_required_by_cache(length) == RequiredBody::Nothing;
        Some(RequiredBody::WholeBody)
    }

    /// Decides by the policy whether the request is forwarded. `is_too_long`: the body was not kept
    /// because of its length.
    pub(in crate::exchange) fn evaluate_call_policy(
        &mut self,
        body: RequestBodyAvailability<'_>,
        is_too_long: bool,
        lookup: &LookupRequest<'_>,
    ) -> CallAccessDecision {
        let policy = self.route_config.active_call_policy().map(Arc::clone);
        if policy.is_none() && self.request.query.is_none() {
            return CallAccessDecision::Allowed;
        }
        if !self.lookup_findings.denial_errors.is_empty() {
            // the request has waited: its first evaluation and its permits remain valid
            return match self.lookup_findings.allowed_part {
                Some(_) => CallAccessDecision::PartlyDenied,
                None => CallAccessDecision::Allowed,
            };
        }
        let length = match body {
            RequestBodyAvailability::Whole(body) => BodyLength::Known(body.len() as u64),
            RequestBodyAvailability::AwaitsContinue | RequestBodyAvailability::Unavailable => {
                BodyLength::Unknown
            }
        };
        let refused = self.lookup_findings.head_rejection.take();
        if let Some(why) = refused.or_else(|| self.request_rejection_by_head(length)) {
            return CallAccessDecision::Refused(why);
        }
        let body = match body {
            RequestBodyAvailability::Whole(b"") => return CallAccessDecision::Allowed,
            RequestBodyAvailability::Whole(body) => body,
            RequestBodyAvailability::AwaitsContinue => {
                return CallAccessDecision::Refused(UnverifiableRequestReason::Expectation)
            }
            RequestBodyAvailability::Unavailable if is_too_long => {
                return CallAccessDecision::Refused(UnverifiableRequestReason::Length)
            }
            RequestBodyAvailability::Unavailable => {
                return CallAccessDecision::Refused(UnverifiableRequestReason::Memory)
            }
        };
        match self.request.coding {
            BodyContentCoding::None => {
                self.evaluate_calls_under_policy(policy.as_deref(), body, lookup)
            }
            BodyContentCoding::Other => {
                CallAccessDecision::Refused(UnverifiableRequestReason::Coding)
            }
            BodyContentCoding::Coded(_) => {
                let cap = self.route_config.cache.max_request.max(MAX_DECOMPRESSED);
                let cap = usize::try_from(cap).unwrap_or(usize::MAX);
                match self.decompress_request_within(body, cap, None) {
                    Ok(decoded) => {
                        self.evaluate_calls_under_policy(policy.as_deref(), &decoded.body, lookup)
                    }
                    Err(InflateError::Bad) => {
                        CallAccessDecision::Refused(UnverifiableRequestReason::Coding)
                    }
                    Err(InflateError::TooLarge) => {
                        CallAccessDecision::Refused(UnverifiableRequestReason::Length)
                    }
                    Err(InflateError::OutOfMemory) => {
                        CallAccessDecision::Refused(UnverifiableRequestReason::Memory)
                    }
                }
            }
        }
    }

    /// Decides about the calls in a body, which is parsed strictly.
    fn evaluate_calls_under_policy(
        &mut self,
        policy: Option<&CallAccessPolicy>,
        body: &[u8],
        lookup: &LookupRequest<'_>,
    ) -> CallAccessDecision {
        if self.request.text.may_be_read_as_other_text_than_utf8(body) {
            return CallAccessDecision::Refused(UnverifiableRequestReason::Coding);
        }
        let is_batch = body.trim_ascii_start().first() == Some(&b'[');
        if memory::is_memory_short()
            || is_batch && !memory::can_allocate_now(required_request_memory(body.len()))
            // a filter within a string is decoded
            || policy.is_some_and(|policy| policy.block_range_limit().is_some())
                && !memory::can_allocate_now(body.len())
        {
            return CallAccessDecision::Refused(UnverifiableRequestReason::Memory);
        }
        let max_calls = policy.map_or(usize::MAX, CallAccessPolicy::max_batch_calls);
        let calls = match parse_jsonrpc_request(body, max_calls) {
            Ok(calls) => calls,
            Err(why) => {
                return CallAccessDecision::Refused(match why {
                    RequestParseFailure::Syntax(_) => UnverifiableRequestReason::Syntax,
                    RequestParseFailure::LongBatch => UnverifiableRequestReason::Batch(max_calls),
                    why => UnverifiableRequestReason::Request(why),
                })
            }
        };
        if self.is_unsafe_query(&calls) {
            return CallAccessDecision::Refused(UnverifiableRequestReason::UnsafeQuery);
        }
        match (policy, calls) {
            (None, _) => CallAccessDecision::Allowed,
            (Some(policy), JsonRpcRequestBody::Single(call)) => {
                self.evaluate_call(policy, &call, lookup)
            }
            (Some(policy), JsonRpcRequestBody::Batch(calls)) => {
                self.evaluate_batch_under_policy(policy, &calls, body, lookup)
            }
        }
    }

    /// Evaluates the policy for one call, and records the method and the decision. The call is
    /// refused if memory for the error response is.
    fn evaluate_call(
        &mut self,
        policy: &CallAccessPolicy,
        call: &JsonRpcCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> CallAccessDecision {
        self.lookup_findings.rpc_method = call.method.to_vec();
        let denied = self.denial_for_call(policy, call, lookup);
        self.lookup_findings.denial_errors.push(denied.clone());
        let Some(denied) = denied else {
            self.lookup_findings.response_limit =
                CallResponseLengthLimit::limit_for_call(policy, call);
            return CallAccessDecision::Allowed;
        };
        self.lookup_findings.denied = 1;
        let answer = match call.id {
            None => Some(Vec::new()),
            Some(id) => {
                let answer = denied.response_for_identity_client(id);
                answer.and_then(|answer| answer.try_to_vec())
            }
        };
        answer.map_or(
            CallAccessDecision::Refused(UnverifiableRequestReason::Memory),
            CallAccessDecision::Denied,
        )
    }

    /// Decides about each call of a batch; a batch with denied calls, or with response limits, is
    /// split.
    fn evaluate_batch_under_policy(
        &mut self,
        policy: &CallAccessPolicy,
        calls: &[JsonRpcCall<'_>],
        body: &[u8],
        lookup: &LookupRequest<'_>,
    ) -> CallAccessDecision {
        self.lookup_findings.batch_size = Some(calls.len());
        self.lookup_findings.record_batch_method_names(calls);
        let denial_errors: Vec<_> = calls
            .iter()
            .map(|call| self.denial_for_call(policy, call, lookup))
            .collect();
        let denied = denial_errors.iter().flatten().count();
        self.lookup_findings.denied = denied;
        let each = || calls.iter().zip(&denial_errors);
        if denied == calls.len() {
            let elements = each().filter_map(|(call, denied)| {
                let denied = denied.as_deref()?;
                Some(BatchResponseElement::Stored(denied, call.id?))
            });
            let elements: Vec<_> = elements.collect();
            let answer = match elements.is_empty() {
                true => Some(Vec::new()),
                false => assemble_identity_batch(&elements).and_then(|answer| answer.try_to_vec()),
            };
            return answer.map_or(
                CallAccessDecision::Refused(UnverifiableRequestReason::Memory),
                CallAccessDecision::Denied,
            );
        }
        let is_bounded = |call: &JsonRpcCall<'_>| {
            call.id.is_some() && policy.method_response_limit(call.method).is_some()
        };
        if denied == 0 && !calls.iter().any(is_bounded) {
            self.lookup_findings.denial_errors = denial_errors;
            return CallAccessDecision::Allowed;
        }
        let mut places = Vec::with_capacity(calls.len());
        let mut request = Vec::with_capacity(body.len());
        for (call, denied) in each() {
            match (denied, call.id) {
                (Some(denied), Some(id)) => {
                    places.push(BatchElementSource::Denied(Arc::clone(denied), id.to_vec()));
                    continue;
                }
                (Some(_), None) => continue,
                (None, Some(id)) => {
                    let most = policy.method_response_limit(call.method);
                    places.push(BatchElementSource::Forwarded(id.to_vec(), most));
                }
                (None, None) => {}
            }
            request.push(if request.is_empty() { b'[' } else { b',' });
            request.extend_from_slice(&body[call.span.clone()]);
        }
        request.push(b']');
        let config = &self.route_config;
        let coding = config
            .preferred_coding(&self.request.accept_encoding)
            .filter(|_| !self.request.no_transform);
        let mixed = SplitBatch {
            places,
            merged_coding: BatchCoding::from_content_coding(coding, config.zstd_level),
            ..SplitBatch::default()
        };
        self.lookup_findings.allowed_part = Some((Box::new(mixed), request));
        self.lookup_findings.denial_errors = denial_errors;
        CallAccessDecision::PartlyDenied
    }

    /// Returns the error for a call that is denied, or over the limit of its block range or its
    /// concurrency limit; `None` if it is allowed.
    fn denial_for_call(
        &mut self,
        policy: &CallAccessPolicy,
        call: &JsonRpcCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> Option<Arc<CacheEntry>> {
        if !call.method.iter().all(u8::is_ascii_graphic) {
            // Nethermind trims the name, and other nodes may change it further
            return Some(Arc::clone(policy.ambiguous_method_name_error()));
        }
        let decision = policy.evaluate_method_rules(call.method);
        if let MethodAccessDecision::Denied = decision {
            return Some(Arc::clone(policy.method_denied_error()));
        }
        let range_error = self.block_range_denial(policy, call, lookup);
        if range_error.is_some() {
            return range_error;
        }
        match decision {
            MethodAccessDecision::Limited(limit) => match limit.try_acquire() {
                Some(permit) => {
                    self.lookup_findings.permits.push(permit);
                    None
                }
                None => Some(Arc::clone(policy.concurrency_limit_error())),
            },
            MethodAccessDecision::Allowed | MethodAccessDecision::Denied => None,
        }
    }

    /// Returns the permits: none of the calls is at the node any more.
    pub(in crate::exchange) fn release_permits(&mut self) {
        self.lookup_findings.permits.clear();
    }

    /// Forwards the allowed calls of a batch with denied calls. `false` if none is denied.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a response head is awaited.
    pub(in crate::exchange) fn forward_allowed_calls(&mut self) -> Result<bool, HostMisuse> {
        let Some((mixed, body)) = self.lookup_findings.allowed_part.take() else {
            return Ok(false);
        };
        self.stop_waiting();
        self.apply_transition(ExchangeEvent::PartialHit, |_| {
            ExchangePhase::AwaitingPart(mixed)
        })?;
        self.request_body = body;
        self.remove_request_coding();
        self.request_identity_coding();
        Ok(true)
    }

    /// Responds with an error in place of the upstream's response.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a response head is awaited.
    pub(in crate::exchange) fn respond_denied(
        &mut self,
        ruling: CallAccessDecision,
    ) -> Result<(), HostMisuse> {
        self.stop_waiting();
        self.release_permits();
        let (status, body, field) = match ruling {
            CallAccessDecision::Denied(body) => (200, body, None),
            CallAccessDecision::Refused(why) => (
                why.rejection_status(self.request.query.is_some()),
                why.rejection_body(),
                why.rejection_header(),
            ),
            // these requests are forwarded
            CallAccessDecision::Allowed | CallAccessDecision::PartlyDenied => {
                return Err(self.misuse_for_event(ExchangeEvent::Refuse))
            }
        };
        if self.route_config.is_cache_enabled() {
            self.cache_status = CacheStatus::Bypass;
        }
        self.cache_reason = Reason::Denied;
        self.response_mode = ResponseMode::Denied;
        self.head_edits = vec![HeadEdit::set_content_length(body.len())];
        if !body.is_empty() {
            self.head_edits
                .push(HeadEdit::set_header("Content-Type", JSON_MEDIA_TYPE));
        }
        self.head_edits.extend(field);
        if self.answers_only_from_cache() {
            let cache_status = format!("sszip; detail={}", Reason::Denied.name()).into_bytes();
            self.head_edits
                .push(HeadEdit::set_header("Cache-Status", cache_status));
        }
        self.complete_query_head(false);
        let answer = Box::new(ReadyResponse {
            status,
            is_ours: true,
            body,
            ..ReadyResponse::default()
        });
        self.apply_transition(ExchangeEvent::Refuse, |_| ExchangePhase::Ready(answer))
    }
}
