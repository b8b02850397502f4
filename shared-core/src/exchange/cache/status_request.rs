//! Status requests: reports of the workers' counters, and of the owner's state, for which the
//! request may have to wait.

use std::sync::Arc;

use super::waiting::{AwaitedResult, WaitingRequest};
use crate::cache::process::wake::WaitingRequestId;
use crate::exchange::cache::lookup::request::LookupAction;
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::machine::message_head::HeadEdit;
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::status::metrics_board::MetricsBoard;
use crate::status::report::StatusPageReport;
use crate::status::StatusReportFormat;

/// A request to the status page, with the host's counters, as the host passes it to
/// [`Exchange::respond_with_status_page`].
#[derive(Clone, Copy, Debug)]
pub struct StatusPageRequest<'a> {
    /// Method of the request.
    pub method: &'a [u8],
    /// Query of the request (docs/observability.md).
    pub query: &'a [u8],
    /// Name and version of the host.
    pub host: &'a str,
    /// Counters of the host's workers.
    pub board: MetricsBoard,
    /// Identity under which the request is woken, as in
    /// [`LookupRequest`](crate::exchange::cache::lookup::request::LookupRequest); without one the owner is not
    /// queried.
    pub waiter: Option<WaitingRequestId>,
    /// Milliseconds of the lookup clock, as in
    /// [`LookupRequest`](crate::exchange::cache::lookup::request::LookupRequest). It is the clock of the board, too.
    pub now: u64,
    /// Seconds since 1970.
    pub wall: u64,
}

const PLAIN_TEXT_TYPE: &str = "text/plain; charset=utf-8";

impl Exchange {
    /// Responds with the status page in place of a lookup. The host calls it again once the request
    /// was woken, or its wait has timed out.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a response head is awaited.
    pub fn respond_with_status_page(
        &mut self,
        request: &StatusPageRequest<'_>,
    ) -> Result<LookupAction, HostMisuse> {
        self.is_administrative = true;
        let waited = self.end_lookup_wait();
        let ExchangePhase::AwaitingHead = self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Miss));
        };
        if !matches!(request.method, b"GET" | b"HEAD") {
            let allow = HeadEdit::set_header("Allow", b"GET, HEAD");
            return self.respond_with_local_body(
                405,
                PLAIN_TEXT_TYPE,
                b"method not allowed: use GET\n".to_vec(),
                [allow],
            );
        }
        let format = match StatusReportFormat::from_format_query(request.query) {
            Ok(format) => format,
            Err(error) => {
                return self.respond_with_local_body(
                    400,
                    PLAIN_TEXT_TYPE,
                    (error + "\n").into_bytes(),
                    None,
                )
            }
        };
        let shared = Arc::clone(&self.route_config.process.shared);
        let owner = shared.owner_client();
        if let (None, Some(owner), Some(waiter), true) = (
            &waited,
            owner,
            request.waiter,
            format.includes_owner_report(),
        ) {
            if owner.query_owner_status(waiter, request.now) {
                let waits = WaitingRequest::new(&shared, waiter, AwaitedResult::AdminReply);
                self.apply_transition(ExchangeEvent::Wait, |_| ExchangePhase::Waiting(waits))?;
                return Ok(LookupAction::Wait);
            }
        }
        let reply = owner.zip(request.waiter).filter(|_| waited.is_some());
        let reply = reply.and_then(|(owner, waiter)| owner.claim_admin_reply(waiter));
        drop(waited);
        let reply = reply.filter(|(status, _)| *status == 200);
        let body = format.format_status_report(|| StatusPageReport {
            host: request.host.to_owned(),
            now: request.wall,
            sums: request.board.sum_over_workers(),
            history: request.board.interval_history(request.now),
            keys: request.board.sampled_keys(),
            owner: reply.and_then(|(_, json)| serde_json::from_slice(&json).ok()),
            has_owner: owner.is_some(),
        });
        let no_store = HeadEdit::set_header("Cache-Control", b"no-store");
        self.respond_with_local_body(
            200,
            format.report_media_type(),
            body.into_bytes(),
            [no_store],
        )
    }
}
