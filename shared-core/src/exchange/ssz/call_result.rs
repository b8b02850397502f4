//! JSON-RPC calls whose results clients request as SSZ. The request's body names the method, so
//! it is read even if nothing is cached.

use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::exchange::cache::lookup::request::{BodyLength, LookupRequest};
use crate::exchange::machine::transitions::ExchangeState;
use crate::exchange::machine::Exchange;
use crate::gzip::inflate::InflateError;
use crate::jsonrpc::request::{parse_jsonrpc_request, read_call_prefix, JsonRpcRequestBody};
use crate::negotiate::accept::FormatPreference;
use crate::response_mode::ResponseMode;
use crate::transcode::engine::rpc_request::NewPayloadWitnessCall;
use crate::transcode::{call_types, TranscodeError, TranscodeRequest};

impl Exchange {
    /// Whether a request with a body of this length may be a call whose result is to be SSZ.
    pub(in crate::exchange) fn may_have_ssz_result(&self, length: BodyLength) -> bool {
        self.ssz_result_preference().is_some() && length != BodyLength::Known(0)
    }

    /// Returns the format preference of a request whose call has a result in SSZ, or `None` after
    /// the request phase or if the client prefers JSON.
    fn ssz_result_preference(&self) -> Option<FormatPreference> {
        let is_request_phase = matches!(
            self.exchange_state(),
            ExchangeState::AwaitingHead | ExchangeState::Rewriting
        );
        let preference = self.request.call.filter(|_| is_request_phase);
        preference.filter(|preference| {
            matches!(
                preference,
                FormatPreference::Ssz | FormatPreference::SszOnly
            )
        })
    }

    /// Whether the call was not read yet, and its result may have to be SSZ.
    pub(in crate::exchange) fn awaits_result_format_negotiation(&self) -> bool {
        self.ssz_result_preference().is_some() && self.request.ssz.is_none()
    }

    /// Whether only others than the cache need the request's body.
    pub(in crate::exchange) fn cache_needs_no_body(&self) -> bool {
        self.lookup_findings.cache_skips_body
    }

    /// Negotiates SSZ if the body (`None` if there is no memory for it) is a call whose result is
    /// to be SSZ. Returns whether the request is forwarded without a lookup.
    pub(in crate::exchange) fn negotiate_before_lookup(&mut self, body: Option<&[u8]>) -> bool {
        let cache_skips_body = self.lookup_findings.cache_skips_body;
        if !self.awaits_result_format_negotiation() {
            return cache_skips_body;
        }
        let Some(body) = body else {
            self.not_ssz = Some(ResponseMode::Memory);
            return cache_skips_body;
        };
        if self.request.coding.supported_coding().is_none() {
            self.negotiate_result_format(body);
            return cache_skips_body;
        }
        if cache_skips_body {
            // a job decompresses it
            return true;
        }
        let cap = usize::try_from(self.route_config.cache.max_request).unwrap_or(usize::MAX);
        match self.decompress_request_within(body, cap, None) {
            Ok(decoded) => {
                self.lookup_findings.was_decoded = Some(true);
                self.negotiate_result_format(&decoded.body);
            }
            Err(InflateError::OutOfMemory) => self.not_ssz = Some(ResponseMode::Memory),
            Err(_) => {}
        }
        false
    }

    /// Whether a request with a body of this length may be a witness call, which becomes a request
    /// to the node's REST route.
    pub(in crate::exchange) fn may_be_engine_witness_call(&self, length: BodyLength) -> bool {
        self.request.route.is_some() && length != BodyLength::Known(0)
    }

    /// Whether the request's body is a witness call for the node's REST route, or may be one: a
    /// compressed body that is too long for an event loop is left to a job. Without memory to read
    /// the body, its beginning decides: the node would not know the method.
    pub(in crate::exchange) fn is_engine_witness_call(
        &mut self,
        body: Option<&[u8]>,
        lookup: &LookupRequest<'_>,
    ) -> bool {
        if self.exchange_state() != ExchangeState::AwaitingHead {
            return false;
        }
        let Some(body) = body else {
            let begins = read_call_prefix(lookup.body);
            return begins.is_some_and(|(method, id)| {
                self.select_witness_call(method, id.unwrap_or(b"null"))
            });
        };
        if self.request.route.is_none() || self.request.coding.supported_coding().is_none() {
            return self.detect_engine_witness_call(body);
        }
        if self.lookup_findings.cache_skips_body {
            return true;
        }
        let cap = usize::try_from(self.route_config.cache.max_request).unwrap_or(usize::MAX);
        match self.decompress_request_within(body, cap, None) {
            Ok(decoded) => self.detect_engine_witness_call(&decoded.body),
            Err(InflateError::TooLarge) => {
                self.cache_reason = Reason::RequestLength;
                self.record_invalidating_request(lookup);
                true
            }
            Err(_) => false,
        }
    }

    /// Detects whether the body is a witness call for the node's REST route. If it is not, no later
    /// call reads it again.
    pub(in crate::exchange) fn detect_engine_witness_call(&mut self, body: &[u8]) -> bool {
        if self.request.called.is_some() {
            return true;
        }
        let is_called = self.parse_witness_call(body);
        if !is_called {
            self.request.route = None;
        }
        is_called
    }

    /// Whether the body is a single call of a method with a witness on a route that has one; the
    /// call is recorded then.
    fn parse_witness_call(&mut self, body: &[u8]) -> bool {
        if self.request.route.is_none() {
            return false;
        }
        match parse_jsonrpc_request(body, 0) {
            Ok(JsonRpcRequestBody::Single(call)) => {
                let id = call.id;
                id.is_some_and(|id| self.select_witness_call(call.method, id))
            }
            _ => false,
        }
    }

    /// Records the call for the witness bridge if its method belongs to the fork of the route.
    /// Returns whether it does.
    fn select_witness_call(&mut self, method: &[u8], id: &[u8]) -> bool {
        let Some((_, fork)) = &self.request.route else {
            return false;
        };
        let Some(called) = NewPayloadWitnessCall::for_witness_method(method, *fork) else {
            return false;
        };
        self.request.called = Some(called);
        self.lookup_findings.rpc_method = method.to_vec();
        self.lookup_findings.rpc_id = id.to_vec();
        if self.route_config.is_cache_enabled() {
            self.cache_status = CacheStatus::Bypass;
            self.cache_reason = Reason::Ssz;
        }
        true
    }

    /// Reads a body, and negotiates SSZ if it is a call whose result is to be SSZ.
    pub(in crate::exchange) fn negotiate_result_format(&mut self, body: &[u8]) {
        let Some(preference) = self.ssz_result_preference() else {
            return;
        };
        // not even the second call of a batch is read
        let Ok(JsonRpcRequestBody::Single(call)) = parse_jsonrpc_request(body, 0) else {
            return;
        };
        let (Some(gives), Some(id)) = (call_types::ssz_result_type(call.method), call.id) else {
            return;
        };
        self.lookup_findings.rpc_method = call.method.to_vec();
        self.lookup_findings.rpc_id = id.to_vec();
        self.set_negotiated_format(Some(TranscodeRequest { gives, preference }));
    }
}

/// Returns the JSON-RPC error for a call whose result can't be sent.
pub(in crate::exchange) fn ssz_unavailable_rpc_error(id: &[u8], why: &TranscodeError) -> Vec<u8> {
    const INTERNAL: i32 = -32603;
    let message = format!("the result is not available as SSZ: {why}");
    let error = serde_json::json!({ "code": INTERNAL, "message": message });
    let mut body = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    body.extend_from_slice(id);
    body.extend_from_slice(b",\"error\":");
    body.extend_from_slice(error.to_string().as_bytes());
    body.push(b'}');
    body
}
