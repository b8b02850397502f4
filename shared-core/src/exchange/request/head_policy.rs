//! Policy decisions that depend on a head alone: about a request before its body is received,
//! and about a response that switches protocols.

use crate::exchange::cache::lookup::request::BodyLength;
use crate::exchange::machine::message_head::{Header, ResponseHead, UpgradeProtocol};
use crate::exchange::machine::Exchange;
use crate::exchange::request::unverifiable::UnverifiableRequestReason;
use crate::request_coding::BodyContentCoding;

impl Exchange {
    /// Returns the reason to reject a request with a body of this length, if its head alone
    /// gives one.
    pub(in crate::exchange) fn request_rejection_by_head(
        &self,
        length: BodyLength,
    ) -> Option<UnverifiableRequestReason> {
        let by_query = self.query_rejection_by_head(length);
        if by_query.is_some() {
            return by_query;
        }
        let policy = self.route_config.active_call_policy();
        let allows_websocket = policy.is_some_and(|policy| policy.allows_websocket());
        match self.request.upgrade {
            UpgradeProtocol::None => {}
            // a QUERY without a policy
            _ if policy.is_none() => {}
            UpgradeProtocol::WebSocket if allows_websocket => {}
            UpgradeProtocol::WebSocket | UpgradeProtocol::Other => {
                return Some(UnverifiableRequestReason::Upgrade)
            }
        }
        if length == BodyLength::Known(0) {
            if self.request.calls_by_query {
                return Some(UnverifiableRequestReason::Method);
            }
            let is_denied = self.request.is_denied_engine_target;
            return is_denied.then_some(UnverifiableRequestReason::EngineApi);
        }
        if !self.request.post {
            // a body of unknown length may be empty
            let has_body = length != BodyLength::Unknown;
            return has_body.then_some(UnverifiableRequestReason::Method);
        }
        let longest = self.max_buffered_request_length(true);
        if matches!(length, BodyLength::Known(length) if length > longest) {
            return Some(UnverifiableRequestReason::Length);
        }
        let is_coded = self.request.coding == BodyContentCoding::Other;
        (is_coded || self.request.text.is_other).then_some(UnverifiableRequestReason::Coding)
    }

    /// Whether the connection is to become a WebSocket.
    pub(in crate::exchange) fn becomes_websocket(&self) -> bool {
        self.request.upgrade == UpgradeProtocol::WebSocket
    }

    /// Whether a node may switch protocols (101): under a policy only to the protocol that the
    /// client has requested and the operator allows.
    pub(in crate::exchange) fn may_upstream_switch_protocol<'a, I>(
        &self,
        head: &ResponseHead<I>,
    ) -> bool
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let Some(policy) = self.route_config.active_call_policy() else {
            return true;
        };
        let mut switches_to = UpgradeProtocol::None;
        for (name, value) in head.fields.clone() {
            if name.eq_ignore_ascii_case(b"upgrade") {
                switches_to.update_from_upgrade_header(value);
            }
        }
        policy.allows_websocket()
            && self.becomes_websocket()
            && switches_to == UpgradeProtocol::WebSocket
    }
}
