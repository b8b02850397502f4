//! Requests with `Cache-Control: only-if-cached` (RFC 9111, 5.2.1.7), which the node must not receive:
//! the response is a stored one, or a 504. They show an operator what the cache would do with the
//! request, on its own route and with its policy.
//!
//! The requests that a lookup sends in the background are requests to the node, too, and are not made
//! for them.

use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::cache::CacheKey;
use crate::exchange::cache::lookup::request::{BodyLength, LookupAction, RequiredBody};
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::machine::message_head::HeadEdit;
use crate::exchange::machine::Exchange;

const NOT_CACHED_PROBLEM: &[u8] = br#"{"status":504,"detail":"not cached: only-if-cached"}"#;

/// Detail of a response that was looked up, could be stored, and is not.
const MISS_DETAIL: &str = "miss";

impl Exchange {
    /// Whether the request must not reach the node. `false` on routes without a cache.
    pub(in crate::exchange) fn answers_only_from_cache(&self) -> bool {
        self.request.cache.only_if_cached
    }

    /// Returns the part of the request that a lookup needs, as [`Exchange::required_body`] does; but
    /// the host forwards no request without a lookup that the node must not receive.
    pub(in crate::exchange) fn body_required_before_response(
        &mut self,
        length: BodyLength,
    ) -> RequiredBody {
        match self.required_body(length) {
            RequiredBody::Nothing if self.answers_only_from_cache() => {
                self.lookup_findings.cache_skips_body = true;
                RequiredBody::LookUp
            }
            need => need,
        }
    }

    /// Responds with 504 and the reason, in place of a request to the node. A flight and a lease that
    /// the lookup has taken go to the next request for the key.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a response head is awaited, or a stored response is being decoded.
    pub(in crate::exchange) fn respond_not_cached(&mut self) -> Result<LookupAction, HostMisuse> {
        self.is_administrative = true;
        self.stop_waiting();
        self.release_permits();
        let (mut status, mut reason) = (self.cache_status, self.cache_reason);
        if status == CacheStatus::None {
            // the request was not looked up
            status = CacheStatus::Bypass;
            if reason == Reason::None {
                reason = self.bypass_reason();
            }
        }
        self.reset_failed_lookup();
        (self.cache_status, self.cache_reason) = (status, reason);
        let mut cache_status = b"sszip; detail=".to_vec();
        cache_status.extend_from_slice(match reason {
            Reason::None => MISS_DETAIL.as_bytes(),
            reason => reason.name().as_bytes(),
        });
        if let Some(key) = &self.lookup_findings.key {
            append_key_parameter(&mut cache_status, key);
        }
        let edits = [
            HeadEdit::set_header("Cache-Control", b"no-store"),
            HeadEdit::set_header("Cache-Status", cache_status),
        ];
        let body = NOT_CACHED_PROBLEM.to_vec();
        let action = self.respond_with_local_body(504, "application/problem+json", body, edits)?;
        self.complete_query_head(true);
        if self.request.head {
            if let Some(answer) = self.response_body_mut() {
                answer.body.clear();
            }
        }
        Ok(action)
    }
}

/// Appends the parameter `key` (RFC 9211, 2.7) to a member of `Cache-Status`.
pub(in crate::exchange) fn append_key_parameter(cache_status: &mut Vec<u8>, key: &CacheKey) {
    cache_status.extend_from_slice(b"; key=\"");
    cache_status.extend_from_slice(const_hex::encode(key).as_bytes());
    cache_status.push(b'"');
}
