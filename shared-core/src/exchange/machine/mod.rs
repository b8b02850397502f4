//! The exchange: its data, its accessors, and the transition between phases.

pub(super) mod actions;
pub(super) mod message_head;
pub(super) mod phase;
pub(super) mod probe;
pub mod transitions;
pub(super) mod upstream_outcome;

use std::sync::Arc;

use crate::beacon;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::config::node_capabilities::{DetectedPresetAndForks, RouteNodeCapabilities};
use crate::config::{NodeWitnessProtocol, RouteConfig, SszRequestMode, UpstreamAcceptEncoding};
use crate::exchange::cache::batch::split::SplitBatch;
use crate::exchange::cache::lookup::result::LookupFindings;
use crate::exchange::cache::observed_blocks::observer::ResponseBlockObserver;
use crate::exchange::cache::store_plan::StorePlan;
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::machine::message_head::{HeadEdit, Header, RequestHead, RequestProperties};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::probe::NodeProbe;
use crate::exchange::machine::transitions::{ExchangeEvent, ExchangeState};
use crate::exchange::machine::upstream_outcome::UpstreamOutcome;
use crate::exchange::request::{engine_targets, query_calls};
use crate::exchange::response::ready_response::ReadyResponse;
use crate::gzip::splice::SlicedBody;
use crate::memory::{self, MemoryReservation};
use crate::negotiate::query_content::QueryContentType;
use crate::negotiate::vary;
use crate::request_coding::{BodyContentCoding, SupportedContentCoding};
use crate::response_mode::ResponseMode;
use crate::transcode::engine::{
    rest_request, rpc_request, ExecutionFork, RestPayloadWitnessRequest,
};
use crate::transcode::{call_types, BodyFormat, SszSubmission, TranscodeRequest};

const ACCEPT: &str = "Accept";

/// The state machine of one request and its response, without I/O. See the [module](super).
#[derive(Debug)]
pub struct Exchange {
    pub(super) route_config: Arc<RouteConfig>,
    pub(super) phase: ExchangePhase,
    pub(super) response_mode: ResponseMode,
    /// Mode of a response that was requested as SSZ and is not, if the head shows it.
    pub(super) not_ssz: Option<ResponseMode>,
    pub(super) request: RequestProperties,
    pub(super) upstream_edits: Vec<HeadEdit>,
    pub(super) head_edits: Vec<HeadEdit>,
    pub(super) varies: bool,
    /// Bytes of the body that were received.
    pub(super) received: u64,
    /// Bytes of the body that were sent to the client.
    pub(super) sent: u64,
    /// Body of the upstream request, if it is not the client's: a part of a batch, JSON made of
    /// SSZ, or a decompressed body. It lives as long as the exchange.
    pub(super) request_body: Vec<u8>,
    /// Target of the upstream request, if it is not the client's. It lives as long as the
    /// exchange.
    pub(super) request_target: Vec<u8>,
    /// Memory of the request's body, if the body may be long.
    pub(super) request_memory: Option<MemoryReservation>,
    pub(super) cache_status: CacheStatus,
    /// Reason why the response is no hit, or will not be stored.
    pub(super) cache_reason: Reason,
    pub(super) lookup_findings: LookupFindings,
    pub(super) storing: StorePlan,
    /// Search for the blocks that the upstream's response shows.
    pub(super) watched: Option<Box<ResponseBlockObserver>>,
    /// Capabilities of the node that the request goes to.
    pub(super) detected_capabilities: DetectedPresetAndForks,
    /// Source of the capabilities, if not the settings.
    pub(super) nodes: Option<RouteNodeCapabilities>,
    /// The probe, if this exchange is one and has no client.
    pub(super) probe: Option<Box<NodeProbe>>,
    /// Outcome of the upstream request.
    pub(super) upstream: UpstreamOutcome,
    /// Whether the exchange is a purge or a status request, which is not counted.
    pub(super) is_administrative: bool,
}

impl Exchange {
    /// Returns a new exchange at a route with these settings.
    pub fn new(config: Arc<RouteConfig>) -> Self {
        Self {
            route_config: config,
            phase: ExchangePhase::Start,
            response_mode: ResponseMode::Off,
            not_ssz: None,
            request: RequestProperties::default(),
            upstream_edits: Vec::new(),
            head_edits: Vec::new(),
            varies: false,
            received: 0,
            sent: 0,
            request_body: Vec::new(),
            request_target: Vec::new(),
            request_memory: None,
            cache_status: CacheStatus::None,
            cache_reason: Reason::None,
            lookup_findings: LookupFindings::default(),
            storing: StorePlan::default(),
            watched: None,
            detected_capabilities: DetectedPresetAndForks::default(),
            nodes: None,
            probe: None,
            upstream: UpstreamOutcome::default(),
            is_administrative: false,
        }
    }

    /// Settings of the route that received the request.
    pub fn route_config(&self) -> &Arc<RouteConfig> {
        &self.route_config
    }

    /// Position of the exchange in the transition table.
    pub fn exchange_state(&self) -> ExchangeState {
        self.phase.exchange_state()
    }

    /// Treatment of the response's body; final in the states `Ready`, `Passing` and `Aborted`.
    pub fn response_mode(&self) -> ResponseMode {
        self.not_ssz.unwrap_or(self.response_mode)
    }

    /// Reason why the response did not come from the cache, or will not be stored.
    pub fn cache_reason(&self) -> Reason {
        self.cache_reason
    }

    /// Edits of the head of the upstream request.
    pub fn upstream_edits(&self) -> &[HeadEdit] {
        &self.upstream_edits
    }

    /// Edits of the head of the response. Valid once the response is decided.
    pub fn head_edits(&self) -> &[HeadEdit] {
        &self.head_edits
    }

    /// Whether the response depends on `Accept-Encoding`. The head edits set `Vary`, unless the
    /// host writes it.
    pub fn varies_on_accept_encoding(&self) -> bool {
        self.varies
    }

    /// Returns the value of `Vary` for a cache between this exchange and the upstream: the
    /// upstream's `Vary` without the headers that the upstream edits make equal in all requests.
    pub fn vary_without_upstream_edits(&self, vary: &[u8]) -> Vec<u8> {
        self.upstream_edits
            .iter()
            // its edited value is the same for clients with the same preference
            .filter(|edit| edit.name != ACCEPT)
            .fold(vary.to_vec(), |vary, edit| {
                vary::remove_vary_name(std::iter::once(&vary[..]), &edit.name)
            })
    }

    /// Body of the upstream request after `LookupAction::ForwardRewritten`.
    pub fn upstream_request_body(&self) -> &[u8] {
        &self.request_body
    }

    /// Path and query of the upstream request; empty if they are the client's.
    pub fn upstream_request_target(&self) -> &[u8] {
        &self.request_target
    }

    /// Status of a stored response that is to be sent; 0 if the upstream's status is sent.
    pub fn stored_response_status(&self) -> u16 {
        self.ready_response().map_or(0, |answer| answer.status)
    }

    /// Slices of the body to send right after the head: the complete body in `Ready`, the
    /// buffered bytes in `Passing`. They live as long as the exchange.
    pub fn body_slices(&self) -> impl Iterator<Item = &[u8]> {
        let (own, stored): (&[u8], _) = match &self.phase {
            ExchangePhase::Ready(answer) | ExchangePhase::DiscardingUpstream(answer) => {
                (&answer.body, &answer.stored)
            }
            ExchangePhase::Passing(buffered) => (&buffered.body, &None),
            _ => (&[], &None),
        };
        let stored = stored.iter().flat_map(SlicedBody::body_slices);
        std::iter::once(own)
            .chain(stored)
            .filter(|piece| !piece.is_empty())
    }

    /// Passes the slices of the body to a host that copies them. The memory of a long body is
    /// released while it is drained; [`body_slices`](Self::body_slices) must not be used
    /// afterwards.
    pub fn drain_body(&mut self, mut to: impl FnMut(&[u8])) {
        let (own, stored) = match &mut self.phase {
            ExchangePhase::Ready(answer) | ExchangePhase::DiscardingUpstream(answer) => {
                (&mut answer.body, answer.stored.as_mut())
            }
            ExchangePhase::Passing(buffered) => (&mut buffered.body, None),
            _ => return,
        };
        if own.len() >= memory::DRAINED_BODY_BYTES {
            memory::drain_body_to_host(own, &mut to);
        } else if !own.is_empty() {
            to(own);
        }
        if let Some(stored) = stored {
            stored.drain_body_into(to);
        }
    }

    /// Number of bytes of the body before it was compressed, buffered, streamed or stored, for
    /// ratios.
    pub fn received_body_bytes(&self) -> u64 {
        match &self.phase {
            ExchangePhase::Ready(answer) if answer.body.is_empty() => {
                let stored = answer.stored.as_ref();
                stored.map_or(self.received, SlicedBody::plain_length)
            }
            // pieces that the host does not report
            ExchangePhase::Passing(buffered) if self.received == 0 && !self.request.head => {
                buffered.declared.unwrap_or(0) as u64
            }
            _ => self.received,
        }
    }

    /// Number of bytes of the body as it was or will be sent.
    pub fn sent_body_bytes(&self) -> u64 {
        match &self.phase {
            ExchangePhase::Ready(answer) => match &answer.stored {
                Some(body) => body.byte_length(),
                None => answer.body.len() as u64,
            },
            _ => self.sent,
        }
    }

    /// Whether this exchange compressed the body.
    pub fn is_compressed(&self) -> bool {
        self.edited_content_encoding().is_some()
    }

    /// Content coding that this exchange gave the body; `None` for identity, and for a body that
    /// has the node's coding.
    pub fn response_coding(&self) -> Option<SupportedContentCoding> {
        let value = self.edited_content_encoding()?;
        [SupportedContentCoding::Gzip, SupportedContentCoding::Zstd]
            .into_iter()
            .find(|coding| coding.coding_name().as_bytes() == value)
    }

    /// Returns the value that the last head edit of `Content-Encoding` sets.
    fn edited_content_encoding(&self) -> Option<&[u8]> {
        let edits = self.head_edits.iter();
        let mut codings = edits.rev().filter(|edit| edit.name == "Content-Encoding");
        codings.next()?.value.as_deref()
    }

    /// Result of the cache for the response: hit, miss, bypass and the like.
    pub fn cache_status(&self) -> CacheStatus {
        self.cache_status
    }

    /// Method of a single call, as written in the request; empty before the lookup and for
    /// batches.
    pub fn rpc_method(&self) -> &[u8] {
        &self.lookup_findings.rpc_method
    }

    /// Methods of a batch that was read: each once, in the order of the calls, separated by
    /// commas; `*` stands for the methods beyond the maximum.
    pub fn batch_method_names(&self) -> &[u8] {
        &self.lookup_findings.rpc_methods
    }

    /// Number of calls that were denied.
    pub fn denied_call_count(&self) -> usize {
        self.lookup_findings.denied
    }

    /// Key under which the response is stored, after the lookup; `None` for batches and for
    /// responses that are not stored.
    pub fn cache_key(&self) -> Option<&[u8; 32]> {
        self.lookup_findings.key.as_ref()
    }

    /// Number of calls of a batch; `None` for other requests.
    pub fn batch_size(&self) -> Option<usize> {
        self.lookup_findings.batch_size
    }

    /// Number of calls of a batch that were answered from the cache.
    pub fn cached_batch_call_count(&self) -> usize {
        self.lookup_findings.batch_hits
    }

    /// Reads the client's request head, and prepares the head of the upstream request.
    ///
    /// # Errors
    /// [`HostMisuse`] unless it is the first call.
    pub fn read_request_head<'a, I>(&mut self, head: RequestHead<'_, I>) -> Result<(), HostMisuse>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        self.apply_transition(ExchangeEvent::RequestHead, |_| ExchangePhase::AwaitingHead)?;
        let is_query = self.route_config.is_query_enabled() && head.method == b"QUERY";
        let query = is_query.then(|| QueryContentType::from_headers(head.fields.clone()));
        let head = RequestHead {
            // the same call
            method: if is_query { b"POST" } else { head.method },
            ..head
        };
        let target = head.target;
        let (mut ssz, mut submitted, mut call) = (None, None, None);
        let mut untyped = None;
        let (mut payload, mut route) = (None, None);
        if self.route_config.is_transcoding_enabled() {
            ssz = TranscodeRequest::from_head(head.method, head.target, head.fields.clone());
            untyped =
                TranscodeRequest::for_untyped_route(head.method, head.target, head.fields.clone());
            call =
                call_types::call_format_preference(head.method, head.target, head.fields.clone());
            if self.route_config.ssz.request != SszRequestMode::Off {
                submitted = SszSubmission::from_head(head.method, head.target, head.fields.clone());
            }
        }
        let witness = self.route_config.ssz.witness;
        if self.route_config.is_transcoding_enabled() && witness == NodeWitnessProtocol::Rpc {
            let decodes = self.route_config.coded_requests.is_decoding_enabled();
            payload = RestPayloadWitnessRequest::from_head(
                head.method,
                head.target,
                head.fields.clone(),
                decodes,
            );
            if let Some(base) = payload
                .as_ref()
                .and_then(|_| rest_request::rpc_target(head.target))
            {
                self.request_target = base;
            }
        } else if call.is_some() && witness == NodeWitnessProtocol::Rest {
            let fork = ExecutionFork::from_execution_version_header(head.fields.clone());
            route = Some((rpc_request::rest_target(head.target), fork));
        }
        let caches = self
            .route_config
            .is_cache_enabled()
            .then_some(&self.route_config.cache);
        self.request = RequestProperties::from_request_head(
            head,
            caches,
            self.route_config.coded_requests.is_decoding_enabled(),
        );
        if let Some(policy) = self.route_config.active_call_policy() {
            self.request.calls_by_query = query_calls::query_may_contain_call(target);
            self.request.is_denied_engine_target = engine_targets::is_engine_target(target)
                && engine_targets::denies_engine_reads(policy);
        }
        // whether the body can be read
        let is_read = !self.request.untouched && self.request.coding != BodyContentCoding::Other;
        self.request.call = call.filter(|_| is_read);
        self.set_negotiated_format(ssz);
        self.request.untyped = untyped.filter(|_| !self.request.untouched);
        self.request.submitted = submitted.filter(|_| is_read);
        self.request.route = route.filter(|_| self.request.call.is_some());
        self.request.payload = payload.filter(|_| !self.request.untouched);
        if self.request.ssz.is_some() || self.request.submitted.is_some() {
            self.request.prefix = beacon::api_path_prefix(target).map(<[u8]>::to_vec);
        }
        if self.route_config.enable
            && !self.request.untouched
            && self.route_config.upstream_encoding == UpstreamAcceptEncoding::Identity
        {
            self.upstream_edits
                .push(HeadEdit::set_header("Accept-Encoding", b"identity"));
        }
        if let Some(content_type) = query {
            self.prepare_query(content_type);
        }
        Ok(())
    }

    /// Sets the format that was negotiated for the response, and the headers of the upstream
    /// request that follow from it.
    pub(super) fn set_negotiated_format(&mut self, ssz: Option<TranscodeRequest>) {
        let Some(ssz) = ssz.filter(|_| !self.request.untouched) else {
            return;
        };
        self.request.ssz = Some(ssz);
        if let Some(format) = ssz.client_format() {
            // clients that express the same preference differently share entries; calls are
            // stored as JSON
            let accept = match ssz.is_rpc_call() {
                true => BodyFormat::Json.media_type(),
                false => format.media_type(),
            };
            self.request
                .cache
                .fields
                .replace_header(ACCEPT.as_bytes(), accept);
        }
        if let Some(accept) = ssz.upstream_accept() {
            self.upstream_edits
                .push(HeadEdit::set_header(ACCEPT, accept));
        }
        if ssz.client_format() == Some(BodyFormat::Ssz) {
            // validators and ranges refer to the client's bytes, not to the upstream's
            for name in ["If-None-Match", "If-Modified-Since", "Range", "If-Range"] {
                self.upstream_edits.push(HeadEdit::remove_header(name));
            }
        }
    }

    /// Performs a transition; `next` builds the phase from the previous one, and does not fail.
    pub(super) fn apply_transition(
        &mut self,
        event: ExchangeEvent,
        next: impl FnOnce(ExchangePhase) -> ExchangePhase,
    ) -> Result<(), HostMisuse> {
        let state = self.checked_state_after_event(event)?;
        self.phase = next(std::mem::replace(&mut self.phase, ExchangePhase::Aborted));
        debug_assert_eq!(self.exchange_state(), state, "{event:?}");
        Ok(())
    }

    /// Returns the state after `event`, or [`HostMisuse`] if the present state does not allow it.
    pub(super) fn checked_state_after_event(
        &self,
        event: ExchangeEvent,
    ) -> Result<ExchangeState, HostMisuse> {
        self.exchange_state()
            .state_after_event(event)
            .ok_or_else(|| self.misuse_for_event(event))
    }

    /// Returns the error for an event that the present state does not allow.
    pub(super) fn misuse_for_event(&self, event: ExchangeEvent) -> HostMisuse {
        HostMisuse {
            state: self.exchange_state(),
            event,
        }
    }

    /// The response that is ready, or that will be when the upstream's body has ended.
    pub(super) fn ready_response(&self) -> Option<&ReadyResponse> {
        match &self.phase {
            ExchangePhase::Ready(answer) | ExchangePhase::DiscardingUpstream(answer) => {
                Some(answer)
            }
            _ => None,
        }
    }

    /// Returns the response that the exchange itself sends, or `None` if it has none now.
    pub(super) fn response_body_mut(&mut self) -> Option<&mut ReadyResponse> {
        match &mut self.phase {
            ExchangePhase::Ready(answer) | ExchangePhase::DiscardingUpstream(answer) => {
                Some(answer)
            }
            _ => None,
        }
    }

    /// The batch whose missing part is fetched from the node.
    pub(super) fn pending_split_batch(&self) -> Option<&SplitBatch> {
        match &self.phase {
            ExchangePhase::AwaitingPart(mixed)
            | ExchangePhase::BufferingPart(mixed)
            | ExchangePhase::Merging(mixed) => Some(mixed),
            _ => None,
        }
    }
}
