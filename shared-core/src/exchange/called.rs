//! Calls of JSON-RPC whose results clients want as SSZ. Which they are is said by
//! the request's body, which is read for that even where nothing is cached.

use super::cache::asked::BodyLength;
use super::machine::Exchange;
use super::transitions::State;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::jsonrpc::request::{parse, Request};
use crate::mode::Mode;
use crate::negotiate::accept::Wish;
use crate::transcode::{call, Negotiated, Why};

impl Exchange {
    /// Whether a request with such a body may be a call whose result is to be SSZ.
    pub(super) fn may_give_result(&self, length: BodyLength) -> bool {
        self.wants_result().is_some() && length != BodyLength::Known(0)
    }

    fn wants_result(&self) -> Option<Wish> {
        let is_asked = self.state() == State::AwaitingHead;
        let wish = self.request.call.filter(|_| is_asked);
        wish.filter(|wish| matches!(wish, Wish::Ssz | Wish::SszOnly))
    }

    /// Whether the request's body (`None`: there is no memory for it) has nothing to do
    /// with the cache: its result is to be SSZ, or the cache never asked for it.
    pub(super) fn is_for_result(&mut self, body: Option<&[u8]>) -> bool {
        let Some(wish) = self.wants_result() else {
            return false;
        };
        let Some(body) = body else {
            self.not_ssz = Some(Mode::Memory);
            return self.looked.is_for_result;
        };
        // of a batch not even the second call is read
        let Ok(Request::Single(call)) = parse(body, 0) else {
            return self.looked.is_for_result;
        };
        let (Some(gives), Some(id)) = (call::gives(call.method), call.id) else {
            return self.looked.is_for_result;
        };
        self.looked.rpc_method = call.method.to_vec();
        self.looked.rpc_id = id.to_vec();
        self.negotiate(Some(Negotiated { gives, wish }));
        if self.config.caches() {
            self.cache_status = CacheStatus::Bypass;
            self.reason = Reason::Ssz;
        }
        true
    }
}

/// What is said where nothing can be sent of the result of such a call.
pub(super) fn error(id: &[u8], why: &Why) -> Vec<u8> {
    const INTERNAL: i32 = -32603;
    let message = format!("this result can't be had as SSZ: {why}");
    let error = serde_json::json!({ "code": INTERNAL, "message": message });
    let mut body = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    body.extend_from_slice(id);
    body.extend_from_slice(b",\"error\":");
    body.extend_from_slice(error.to_string().as_bytes());
    body.push(b'}');
    body
}
