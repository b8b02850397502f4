//! Upstream errors for the counters: the status of the response, connection failures, and the
//! JSON-RPC errors of responses that are not stored.

use crate::cache::process::event_counts::EventCounts;
use crate::cache::process::upstream_errors::{UpstreamErrorKind, ERROR_KINDS};
use crate::cache::reason::Reason;
use crate::cache::use_stale::UpstreamFailure;
use crate::exchange::machine::message_head::CacheRequestKind;
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::upstream_outcome::MAX_WATCHED_LENGTH;
use crate::exchange::machine::Exchange;
use crate::jsonrpc::response::{parse_batch_responses, parse_jsonrpc_response, CallOutcomeSpan};
use crate::response_mode::ResponseMode;

impl Exchange {
    /// Counts a failed upstream request, once.
    pub(in crate::exchange) fn record_upstream_failure(&mut self, failure: UpstreamFailure) {
        if matches!(failure, UpstreamFailure::Status(_)) || !self.is_first_upstream_outcome() {
            // a status is counted with its head
            return;
        }
        self.upstream.has_failed = true;
        self.count_upstream_error(UpstreamErrorKind::error_kind_of_failure(failure));
    }

    /// Counts the status of the node's response, once.
    pub(in crate::exchange) fn record_upstream_status(&mut self, status: u16) {
        if self.is_first_upstream_outcome() {
            self.upstream.upstream_status = Some(status);
            self.count_upstream_error(UpstreamErrorKind::error_kind_of_failure(
                UpstreamFailure::Status(status),
            ));
        }
    }

    /// Whether this is the first response of the upstream to a client's request.
    fn is_first_upstream_outcome(&self) -> bool {
        let is_own = self.probe.is_some() || matches!(self.phase, ExchangePhase::AwaitingUpdate);
        let is_known = self.upstream.has_failed || self.upstream.upstream_status.is_some();
        !is_own && !is_known && self.cache_reason != Reason::Local
    }

    fn count_upstream_error(&self, error: Option<UpstreamErrorKind>) {
        if let Some(error) = error {
            self.upstream_errors().count_event(error as usize);
        }
    }

    fn upstream_errors(&self) -> &EventCounts<ERROR_KINDS> {
        &self.route_config.process.shared.upstream_errors
    }

    /// Whether the upstream truncated its response.
    pub(in crate::exchange) fn is_truncated_by_upstream(&self) -> bool {
        self.response_mode == ResponseMode::Cut || self.cache_reason == Reason::Cut
    }

    /// Whether a response that is passed and not stored may be a JSON-RPC error, and is to be
    /// read.
    pub(in crate::exchange) fn start_watching_rpc_errors(&mut self) -> bool {
        let ExchangePhase::Passing(buffered) = &self.phase else {
            return false;
        };
        let is_short = buffered
            .declared
            .is_some_and(|length| (1..=MAX_WATCHED_LENGTH).contains(&length));
        let is_watched = is_short && self.is_unstored_call_response();
        self.upstream.watched = is_watched.then(Vec::new);
        is_watched
    }

    /// Whether this is the response to a JSON-RPC request, and is not stored.
    fn is_unstored_call_response(&self) -> bool {
        self.request.cache.kind == CacheRequestKind::Call
            && self.storing.fill.is_none()
            && !matches!(
                self.response_mode,
                ResponseMode::Encoded | ResponseMode::Upgrade
            )
    }

    /// Counts the JSON-RPC errors of a response that was passed.
    pub(in crate::exchange) fn record_passed_errors(&mut self) {
        if let Some(watched) = self.upstream.watched.take() {
            record_rpc_errors(&watched, self.upstream_errors());
        }
    }

    /// Counts the JSON-RPC errors of a buffered response.
    pub(in crate::exchange) fn record_buffered_errors(&self) {
        let ExchangePhase::Compressing(whole) = &self.phase else {
            return;
        };
        let body = &whole.buffered.body;
        if body.len() <= MAX_WATCHED_LENGTH
            && whole.stages.inflates.is_none()
            && self.is_unstored_call_response()
        {
            record_rpc_errors(body, self.upstream_errors());
        }
    }
}

/// Counts the JSON-RPC errors of a response, or of a batch of them.
fn record_rpc_errors(body: &[u8], errors: &EventCounts<ERROR_KINDS>) {
    const NAME: &[u8] = b"\"error\"";
    if !body.windows(NAME.len()).any(|part| part == NAME) {
        return;
    }
    let is_batch = body.trim_ascii_start().starts_with(b"[");
    let responses = match is_batch {
        true => parse_batch_responses(body),
        false => parse_jsonrpc_response(body).map(|response| vec![response]),
    };
    for response in responses.unwrap_or_default() {
        if let CallOutcomeSpan::Error(error) = response.outcome {
            let kind = UpstreamErrorKind::kind_of_rpc_error(&body[error]);
            errors.count_event(kind as usize);
        }
    }
}
