//! Purge requests: the query specifies the purge scope, the owner purges, and the response is
//! sent when the purge is in effect in all processes.

use std::sync::Arc;

use super::waiting::{AwaitedResult, WaitingRequest};
use crate::cache::process::wake::WaitingRequestId;
use crate::exchange::cache::lookup::request::LookupAction;
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::machine::message_head::HeadEdit;
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::exchange::response::ready_response::ReadyResponse;
use crate::time_constants::purge_timeout;

/// Milliseconds for which a request waits; longer than the owner client waits for the owner.
pub(super) fn admin_timeout_ms() -> u64 {
    purge_timeout() + 5_000
}

const NO_OWNER_ERROR: &str =
    r#"{"detail":"this process has no link to a cache's owner: nothing is purged","status":503}"#;

const NO_OWNER_REPLY_ERROR: &str =
    r#"{"detail":"the cache's owner has not answered: the purge may hold or not","status":504}"#;

const METHOD_ERROR: &str = r#"{"detail":"POST and PURGE purge","status":405}"#;

/// A request to purge entries, as the host passes it to [`Exchange::handle_purge_request`].
#[derive(Clone, Copy, Debug)]
pub struct PurgeHttpRequest<'a> {
    /// Method of the request.
    pub method: &'a [u8],
    /// Query of the request (docs/caching.md, Purging).
    pub query: &'a [u8],
    /// Name of the namespace where the query names none; `None`: the namespace of the route.
    pub namespace: Option<&'a [u8]>,
    /// Identity under which the request is woken, as in
    /// [`LookupRequest`](crate::exchange::cache::lookup::request::LookupRequest).
    pub waiter: WaitingRequestId,
    /// Milliseconds of the lookup clock, as in
    /// [`LookupRequest`](crate::exchange::cache::lookup::request::LookupRequest).
    pub now: u64,
}

impl Exchange {
    /// Purges the scope that the request's query names, in place of a lookup. The host calls it
    /// again once the request was woken, or its wait has timed out.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a response head is awaited.
    pub fn handle_purge_request(
        &mut self,
        purge: &PurgeHttpRequest<'_>,
    ) -> Result<LookupAction, HostMisuse> {
        self.is_administrative = true;
        let waited = self.end_lookup_wait();
        let ExchangePhase::AwaitingHead = self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Miss));
        };
        let shared = Arc::clone(&self.route_config.process.shared);
        let (status, mut body) = match (waited, shared.owner_client()) {
            _ if !matches!(purge.method, b"POST" | b"PURGE") => (405, METHOD_ERROR.into()),
            (_, None) => (503, NO_OWNER_ERROR.into()),
            (Some(waits), Some(owner)) => {
                let reply = owner.claim_admin_reply(purge.waiter);
                drop(waits);
                reply.unwrap_or_else(|| (504, NO_OWNER_REPLY_ERROR.into()))
            }
            (None, Some(owner)) => {
                let PurgeHttpRequest { query, waiter, .. } = *purge;
                let of_place = || self.route_config.cache.namespace.as_deref();
                let namespace = purge.namespace.or_else(of_place);
                match owner.purge_at_owner(query, namespace, waiter, purge.now) {
                    Some(reply) => reply,
                    None => {
                        let waits = WaitingRequest::new(&shared, waiter, AwaitedResult::AdminReply);
                        self.apply_transition(ExchangeEvent::Wait, |_| {
                            ExchangePhase::Waiting(waits)
                        })?;
                        return Ok(LookupAction::Wait);
                    }
                }
            }
        };
        body.truncate(body.trim_ascii_end().len());
        body.push(b'\n');
        let media_type = match status {
            200 => "application/json",
            _ => "application/problem+json",
        };
        let allow = (status == 405).then(|| HeadEdit::set_header("Allow", b"POST, PURGE"));
        self.respond_with_local_body(status, media_type, body, allow)
    }

    /// Responds with a body that the proxy itself makes, and its media type.
    pub(in crate::exchange) fn respond_with_local_body(
        &mut self,
        status: u16,
        media_type: &'static str,
        body: Vec<u8>,
        more: impl IntoIterator<Item = HeadEdit>,
    ) -> Result<LookupAction, HostMisuse> {
        let length = body.len().to_string().into_bytes();
        self.head_edits = vec![
            HeadEdit::set_header("Content-Type", media_type.as_bytes()),
            HeadEdit::set_header("Content-Length", length),
        ];
        self.head_edits.extend(more);
        let answer = Box::new(ReadyResponse {
            status,
            is_ours: true,
            body,
            ..ReadyResponse::default()
        });
        self.apply_transition(ExchangeEvent::Hit, |_| ExchangePhase::Ready(answer))?;
        Ok(LookupAction::Respond)
    }
}
