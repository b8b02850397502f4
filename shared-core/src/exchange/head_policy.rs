//! Policy decisions that depend on a head alone: about a request before its body is received,
//! and about a response that switches protocols.

use super::cache::lookup_request::BodyLength;
use super::head::{Header, ResponseHead, Upgrade};
use super::machine::Exchange;
use super::unverifiable::Unverifiable;
use crate::request_coding::BodyCoding;

impl Exchange {
    /// Returns the reason to reject a request with a body of this length, if its head alone
    /// gives one.
    pub(super) fn rejection_by_head(&self, length: BodyLength) -> Option<Unverifiable> {
        let allows_websocket = self
            .config
            .policy()
            .is_some_and(|policy| policy.allows_websocket());
        match self.request.upgrade {
            Upgrade::None => {}
            Upgrade::WebSocket if allows_websocket => {}
            Upgrade::WebSocket | Upgrade::Other => return Some(Unverifiable::Upgrade),
        }
        if length == BodyLength::Known(0) {
            return self.request.calls_by_query.then_some(Unverifiable::Method);
        }
        if !self.request.post {
            // a body of unknown length may be empty
            let has_body = length != BodyLength::Unknown;
            return has_body.then_some(Unverifiable::Method);
        }
        let longest = self.max_request_length(true);
        if matches!(length, BodyLength::Known(length) if length > longest) {
            return Some(Unverifiable::Length);
        }
        let is_coded = self.request.coding == BodyCoding::Other;
        (is_coded || self.request.text.is_other).then_some(Unverifiable::Coding)
    }

    /// Whether the connection is to become a WebSocket.
    pub(super) fn becomes_websocket(&self) -> bool {
        self.request.upgrade == Upgrade::WebSocket
    }

    /// Whether a node may switch protocols (101): under a policy only to the protocol that the
    /// client has requested and the operator allows.
    pub(super) fn may_switch_protocol<'a, I>(&self, head: &ResponseHead<I>) -> bool
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let Some(policy) = self.config.policy() else {
            return true;
        };
        let mut switches_to = Upgrade::None;
        for (name, value) in head.fields.clone() {
            if name.eq_ignore_ascii_case(b"upgrade") {
                switches_to.read(value);
            }
        }
        policy.allows_websocket() && self.becomes_websocket() && switches_to == Upgrade::WebSocket
    }
}
