//! Background requests that probe the capabilities of a node's chain.
//!
//! The host sends the request like a background update, and no client waits for it: unknown
//! capabilities keep their defaults, and a value that doesn't match its type shows that a default
//! was wrong.

use std::sync::Arc;

use crate::beacon;
use crate::config::node_capabilities::{RequiredNodeCapabilities, RouteNodeCapabilities};
use crate::exchange::machine::message_head::{
    HeadEdit, Header, ResponseContentCoding, ResponseHead, ResponseProperties,
};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::probe::{NodeProbe, MAX_RESPONSE_LENGTH};
use crate::exchange::machine::transitions::{ExchangeEvent, ExchangeState};
use crate::exchange::machine::Exchange;
use crate::memory;
use crate::ssz::Preset;
use crate::time_constants::probe_timeout;
use crate::transcode::chain_spec::PresetAndForkDigests;
use crate::transcode::{TranscodeRequest, JSON_MEDIA_TYPE};

/// Bytes that decoding a response may allocate for a moment, for each byte of its length.
const MEMORY_FACTOR: usize = 48;

/// Maximum length of a node's name. Bytes. Nodes with a longer name are not probed.
const MAX_NODE_NAME: usize = 512;

/// Headers that describe the client's body or its conditions, removed from a probe.
const CLIENT_HEADERS: [&str; 10] = [
    "Content-Type",
    "Content-Encoding",
    "Eth-Consensus-Version",
    "Expect",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Range",
];

impl Exchange {
    /// Returns the parameters of the route's chain: configured, detected or default.
    pub(in crate::exchange) fn route_chain_parameters(&self) -> PresetAndForkDigests {
        let configured = self.route_config.ssz.preset;
        PresetAndForkDigests {
            preset: configured
                .or(self.detected_capabilities.preset)
                .unwrap_or(Preset::Mainnet),
            digests: self.detected_capabilities.digests.clone(),
        }
    }

    /// Whether the preset is configured or was detected.
    pub(in crate::exchange) fn has_known_preset(&self) -> bool {
        self.route_config
            .ssz
            .preset
            .or(self.detected_capabilities.preset)
            .is_some()
    }

    /// Loads the node's capabilities for this request. Returns the capabilities that the request
    /// needs and the name of the node. `url` is the target of the request, where requests differ in
    /// it.
    fn load_node_capabilities(
        &mut self,
        url: Option<&[u8]>,
    ) -> Option<(RequiredNodeCapabilities, Vec<u8>)> {
        let needs = self.required_capabilities()?;
        let name = self.probed_node_name(url.unwrap_or_default())?;
        self.detected_capabilities = self.node_capabilities().capabilities_of_node(&name);
        Some((needs, name))
    }

    /// Loads the capabilities from `nodes`, which are kept apart from the capabilities in the
    /// settings.
    pub(in crate::exchange) fn load_separate_node_capabilities(
        &mut self,
        nodes: &RouteNodeCapabilities,
    ) {
        self.nodes = Some(nodes.clone());
        self.load_node_capabilities(None);
    }

    /// Returns the detected capabilities of all nodes that this exchange may reach.
    fn node_capabilities(&self) -> &RouteNodeCapabilities {
        self.nodes
            .as_ref()
            .unwrap_or(&self.route_config.ssz.node_capabilities)
    }

    /// Returns the exchange for a probe of the node, if a capability is unknown and due to be
    /// probed.
    pub(in crate::exchange) fn create_due_capability_probe(
        &mut self,
        url: Option<&[u8]>,
        now: u64,
    ) -> Option<Self> {
        let (needs, name) = self.load_node_capabilities(url)?;
        if self.answers_only_from_cache() {
            return None;
        }
        let endpoint = self.node_capabilities().take_due_probe(&name, needs, now)?;
        let mut probe_exchange = Self::new(Arc::clone(&self.route_config));
        let moved = probe_exchange
            .apply_transition(ExchangeEvent::Update, |_| ExchangePhase::AwaitingUpdate);
        moved.ok()?;
        let headers = [
            ("Accept", JSON_MEDIA_TYPE),
            ("Accept-Encoding", b"identity"),
        ];
        let set = headers.map(|(name, value)| HeadEdit::set_header(name, value));
        let removed = CLIENT_HEADERS.map(HeadEdit::remove_header);
        probe_exchange.nodes = self.nodes.clone();
        probe_exchange.upstream_edits = set.into_iter().chain(removed).collect();
        probe_exchange.probe = Some(Box::new(NodeProbe {
            name,
            endpoint,
            coding: ResponseContentCoding::Identity,
            body: None,
        }));
        Some(probe_exchange)
    }

    /// Returns the capabilities of the node that the request needs, or `None` if it needs none or
    /// must not be delayed by a probe.
    fn required_capabilities(&self) -> Option<RequiredNodeCapabilities> {
        let request = &self.request;
        let may_probe =
            self.exchange_state() == ExchangeState::AwaitingHead && request.prefix.is_some();
        let needs_digests = request
            .ssz
            .is_some_and(TranscodeRequest::needs_fork_digests);
        if !may_probe {
            None
        } else if needs_digests {
            Some(RequiredNodeCapabilities::ForkDigests)
        } else {
            let is_preset_known = self.route_config.ssz.preset.is_some();
            (!is_preset_known).then_some(RequiredNodeCapabilities::Preset)
        }
    }

    /// Returns the name that distinguishes the nodes of a route: the target of the requests, and
    /// the part of their paths before the Beacon API's route. `None` if no other path can be
    /// requested at this target.
    fn probed_node_name(&self, url: &[u8]) -> Option<Vec<u8>> {
        let scheme = url.windows(3).position(|three| three == b"://");
        let host = scheme.map_or(url, |at| &url[at + 3..]);
        if host.iter().any(|byte| matches!(byte, b'/' | b'?')) {
            // the target contains the path of one request
            return None;
        }
        let prefix = self.request.prefix.as_deref()?;
        let name = [url, b"\n", prefix].concat();
        (name.len() <= MAX_NODE_NAME).then_some(name)
    }

    /// Returns the path of the probe under the same prefix as `path`. `None` if this exchange is no
    /// probe, or `path` is none of the Beacon API.
    pub(in crate::exchange) fn probe_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        let probe = self.probe.as_ref()?;
        beacon::route_under_same_prefix(path, probe.endpoint.probe_request_path())
    }

    /// Time that the host waits for the response to a probe, in milliseconds; `None` if this
    /// exchange is no probe.
    pub(in crate::exchange) fn probe_timeout_ms(&self) -> Option<u64> {
        self.probe.as_ref().map(|_| probe_timeout())
    }

    /// Whether a response with this head can be evaluated as the response to the probe.
    pub(in crate::exchange) fn check_probe_head<'a, I>(&mut self, head: &ResponseHead<I>) -> bool
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let Some(probe) = &mut self.probe else {
            return false;
        };
        probe.coding = ResponseProperties::from_response_headers(head.fields.clone()).coding;
        let length = head.content_length.unwrap_or(0);
        let is_usable = head.status == 200
            && probe.coding != ResponseContentCoding::Other
            && length <= MAX_RESPONSE_LENGTH as u64;
        probe.body = is_usable.then(Vec::new);
        is_usable
    }

    /// Evaluates the complete response to the probe, at the time `now`.
    pub(in crate::exchange) fn evaluate_probe_response(&mut self, now: u64) {
        let ExchangePhase::Passing(buffered) = &self.phase else {
            return;
        };
        let declared = buffered.declared.map(|declared| declared as u64);
        if declared.is_some_and(|declared| declared != self.received) {
            return;
        }
        let Some(probe) = self.probe.take() else {
            return;
        };
        let Some(received) = probe.body else {
            return;
        };
        let body = match probe.coding.supported_coding() {
            Some(coding) => coding
                .decompress_body(&received, MAX_RESPONSE_LENGTH, |_| true)
                .unwrap_or_default(),
            None => received,
        };
        if !memory::is_memory_short() && memory::can_allocate_now(body.len() * MEMORY_FACTOR) {
            let nodes = self.node_capabilities();
            nodes.record_probe_response(&probe.name, probe.endpoint, &body, now);
        }
    }
}
