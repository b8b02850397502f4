//! Capabilities of a route's nodes that probes detect: the preset of their chain, and its forks.
//!
//! No request waits for a probe, and no result is discarded: an old result is probed again, and is
//! used until the new response arrives. A node that does not respond, or not in time, is probed
//! again after growing pauses.

use std::sync::{Arc, Mutex};

use crate::lock::lock_ignoring_poison;
use crate::ssz::Preset;
use crate::transcode::chain_spec::{
    parse_genesis_response_root, ForkDigests, ForkSchedule, NodeChainSpec,
};

/// Milliseconds for which a result is not probed again.
pub const PROBE_FRESH_MS: u64 = 10 * 60 * 1_000;
/// Milliseconds before the first repetition of a probe without a usable response; each pause is
/// twice the last.
const FIRST_RETRY_MS: u64 = 5_000;
/// Minimum milliseconds between the first probes of unknown nodes: clients may invent names.
const NEW_NODE_INTERVAL_MS: u64 = 1_000;
/// Maximum number of nodes of a route. Routes with more are rare.
const MAX_NODES: usize = 16;

/// The endpoint of the Beacon API that a probe requests: the node's spec, or its genesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeaconProbeEndpoint {
    /// The specification of the chain.
    Spec,
    /// The genesis of the chain, with its validators root.
    Genesis,
}

impl BeaconProbeEndpoint {
    /// Returns the path below `/eth/` that a probe of this kind requests.
    pub fn probe_request_path(self) -> &'static str {
        match self {
            BeaconProbeEndpoint::Spec => "v1/config/spec",
            BeaconProbeEndpoint::Genesis => "v1/beacon/genesis",
        }
    }
}

/// The capabilities of its node that one request depends on, and that probes have to detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredNodeCapabilities {
    /// The preset: the node's spec has it.
    Preset,
    /// The fork digests, and the preset: they depend on the spec and the genesis.
    ForkDigests,
}

/// The preset and the fork digests of a node's chain, as far as probes have detected them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DetectedPresetAndForks {
    /// The preset.
    pub preset: Option<Preset>,
    /// The fork digests.
    pub digests: Option<Arc<ForkDigests>>,
}

/// The capabilities that probes have detected for each node of a route. Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct RouteNodeCapabilities(Arc<Mutex<CapabilityTable>>);

/// The nodes of a route that were probed, and the time from which another one may be added.
#[derive(Debug, Default)]
struct CapabilityTable {
    nodes: Vec<NodeProbeState>,
    /// Time from which the next node may be added. All times are milliseconds.
    next: u64,
}

/// One node of a route: its known capabilities, and the schedules of its probes.
#[derive(Debug)]
struct NodeProbeState {
    name: Vec<u8>,
    known: DetectedPresetAndForks,
    forks: Option<ForkSchedule>,
    genesis_root: Option<[u8; 32]>,
    spec: ProbeSchedule,
    genesis: ProbeSchedule,
    /// Time of the last request that required a capability.
    wanted: u64,
}

/// The time of a node's next probe of one kind, in milliseconds, and the number of probes without a
/// usable response.
#[derive(Clone, Copy, Debug, Default)]
struct ProbeSchedule {
    at: u64,
    failures: u32,
}

impl RouteNodeCapabilities {
    /// Returns the facts about the chain of the named node that probes have detected so far.
    pub fn capabilities_of_node(&self, name: &[u8]) -> DetectedPresetAndForks {
        self.modify_locked_capability_table(|table| {
            let node = table.find_probed_node(name);
            node.map(|node| node.known.clone()).unwrap_or_default()
        })
    }

    /// Returns the probe that the caller must send now, if one is due. Other callers don't receive
    /// the same probe until it is due again.
    pub fn take_due_probe(
        &self,
        name: &[u8],
        needs: RequiredNodeCapabilities,
        now: u64,
    ) -> Option<BeaconProbeEndpoint> {
        self.modify_locked_capability_table(|table| table.take_due_node_probe(name, needs, now))
    }

    /// Records the body of the named node's response to a probe. Returns whether it was usable.
    pub fn record_probe_response(
        &self,
        name: &[u8],
        endpoint: BeaconProbeEndpoint,
        body: &[u8],
        now: u64,
    ) -> bool {
        // parsed before the table is locked
        let (spec, root) = match endpoint {
            BeaconProbeEndpoint::Spec => (NodeChainSpec::parse_spec_body(body), None),
            BeaconProbeEndpoint::Genesis => (None, parse_genesis_response_root(body)),
        };
        self.modify_locked_capability_table(|table| {
            let Some(node) = table.find_probed_node(name) else {
                return false;
            };
            let due = ProbeSchedule {
                at: now.saturating_add(PROBE_FRESH_MS),
                failures: 0,
            };
            match (spec, root) {
                (Some(spec), _) => {
                    node.known.preset = Some(spec.preset);
                    node.forks = spec.forks;
                    node.spec = due;
                }
                (_, Some(root)) => {
                    node.genesis_root = Some(root);
                    node.genesis = due;
                }
                (None, None) => return false,
            }
            let (forks, root) = (node.forks.as_ref(), node.genesis_root.as_ref());
            let digests = forks
                .zip(root)
                .and_then(|(forks, root)| forks.compute_digests(root));
            node.known.digests = digests.map(Arc::new);
            true
        })
    }

    fn modify_locked_capability_table<T>(
        &self,
        action: impl FnOnce(&mut CapabilityTable) -> T,
    ) -> T {
        action(&mut lock_ignoring_poison(&self.0))
    }
}

impl CapabilityTable {
    /// Returns the state of the node with this name, or `None` if it was not probed yet.
    fn find_probed_node(&mut self, name: &[u8]) -> Option<&mut NodeProbeState> {
        self.nodes.iter_mut().find(|node| node.name == name)
    }

    /// Returns the probe that is due for a node, which is added if it is unknown and there is room.
    fn take_due_node_probe(
        &mut self,
        name: &[u8],
        needs: RequiredNodeCapabilities,
        now: u64,
    ) -> Option<BeaconProbeEndpoint> {
        if self.find_probed_node(name).is_none() {
            if now < self.next || !self.evict_idle_node(now) {
                return None;
            }
            self.next = now.saturating_add(NEW_NODE_INTERVAL_MS);
            self.nodes.push(NodeProbeState::new(name.to_vec()));
        }
        let node = self.find_probed_node(name)?;
        node.wanted = now;
        node.take_needed_probe(needs, now)
    }

    /// Removes a node if the table is full. Returns whether another one may be added.
    fn evict_idle_node(&mut self, now: u64) -> bool {
        if self.nodes.len() < MAX_NODES {
            return true;
        }
        let is_idle = |node: &NodeProbeState| {
            !node.has_known_capabilities() || node.wanted.saturating_add(PROBE_FRESH_MS) <= now
        };
        let idle = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| is_idle(node));
        match idle.min_by_key(|(_, node)| node.wanted) {
            Some((at, _)) => {
                self.nodes.swap_remove(at);
                true
            }
            None => false,
        }
    }
}

impl NodeProbeState {
    fn new(name: Vec<u8>) -> Self {
        Self {
            name,
            known: DetectedPresetAndForks::default(),
            forks: None,
            genesis_root: None,
            spec: ProbeSchedule::default(),
            genesis: ProbeSchedule::default(),
            wanted: 0,
        }
    }

    fn has_known_capabilities(&self) -> bool {
        self.known.preset.is_some() || self.genesis_root.is_some()
    }

    /// Returns the probe of this node that is due and needed, and schedules its repetition.
    fn take_needed_probe(
        &mut self,
        needs: RequiredNodeCapabilities,
        now: u64,
    ) -> Option<BeaconProbeEndpoint> {
        if self.spec.is_probe_due(now) {
            self.spec.schedule_probe_retry(now);
            return Some(BeaconProbeEndpoint::Spec);
        }
        if needs == RequiredNodeCapabilities::ForkDigests && self.genesis.is_probe_due(now) {
            self.genesis.schedule_probe_retry(now);
            return Some(BeaconProbeEndpoint::Genesis);
        }
        None
    }
}

impl ProbeSchedule {
    fn is_probe_due(self, now: u64) -> bool {
        self.at <= now
    }

    /// Schedules the next probe in case this one has no usable response.
    fn schedule_probe_retry(&mut self, now: u64) {
        let pause = FIRST_RETRY_MS
            .saturating_mul(1 << self.failures.min(16))
            .min(PROBE_FRESH_MS);
        self.at = now.saturating_add(pause);
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BeaconProbeEndpoint, DetectedPresetAndForks, RequiredNodeCapabilities,
        RouteNodeCapabilities, FIRST_RETRY_MS, MAX_NODES, NEW_NODE_INTERVAL_MS, PROBE_FRESH_MS,
    };
    use crate::ssz::{Fork, Preset};

    const PRESET: RequiredNodeCapabilities = RequiredNodeCapabilities::Preset;
    const DIGESTS: RequiredNodeCapabilities = RequiredNodeCapabilities::ForkDigests;
    const GNOSIS: &[u8] =
        br#"{"data":{"PRESET_BASE":"gnosis","GENESIS_FORK_VERSION":"0x00000064"}}"#;
    const GENESIS: &[u8] = br#"{"data":{"genesis_validators_root":
        "0xf5dcb5564e829aab27264b9becd5dfaa017085611224cb3036f573368dbb9d47"}}"#;

    #[test]
    fn old_capability_is_probed_again_and_kept_until_the_response() {
        let capabilities = RouteNodeCapabilities::default();
        let shared = capabilities.clone();
        assert_eq!(
            capabilities.take_due_probe(b"a", PRESET, 7),
            Some(BeaconProbeEndpoint::Spec)
        );
        assert_eq!(shared.take_due_probe(b"a", PRESET, 8), None);
        assert_eq!(
            capabilities.capabilities_of_node(b"a"),
            DetectedPresetAndForks::default()
        );
        assert!(shared.record_probe_response(b"a", BeaconProbeEndpoint::Spec, GNOSIS, 9));
        assert_eq!(
            capabilities.capabilities_of_node(b"a").preset,
            Some(Preset::Gnosis)
        );
        assert_eq!(
            capabilities.capabilities_of_node(b"b"),
            DetectedPresetAndForks::default()
        );
        assert_eq!(
            capabilities.take_due_probe(b"a", PRESET, 8 + PROBE_FRESH_MS),
            None
        );
        assert_eq!(
            capabilities.take_due_probe(b"a", PRESET, 9 + PROBE_FRESH_MS),
            Some(BeaconProbeEndpoint::Spec)
        );
        // the old value is used until a response arrives
        assert_eq!(
            capabilities.capabilities_of_node(b"a").preset,
            Some(Preset::Gnosis)
        );
        assert!(!capabilities.record_probe_response(
            b"a",
            BeaconProbeEndpoint::Spec,
            b"<html>",
            10 + PROBE_FRESH_MS
        ));
        assert_eq!(
            capabilities.capabilities_of_node(b"a").preset,
            Some(Preset::Gnosis)
        );
    }

    #[test]
    fn fork_digests_are_known_after_both_responses_in_any_order() {
        for endpoints in [
            [BeaconProbeEndpoint::Spec, BeaconProbeEndpoint::Genesis],
            [BeaconProbeEndpoint::Genesis, BeaconProbeEndpoint::Spec],
        ] {
            let capabilities = RouteNodeCapabilities::default();
            assert_eq!(
                capabilities.take_due_probe(b"", DIGESTS, 0),
                Some(BeaconProbeEndpoint::Spec)
            );
            assert_eq!(
                capabilities.take_due_probe(b"", DIGESTS, 0),
                Some(BeaconProbeEndpoint::Genesis)
            );
            assert_eq!(capabilities.take_due_probe(b"", DIGESTS, 0), None);
            for endpoint in endpoints {
                assert_eq!(capabilities.capabilities_of_node(b"").digests, None);
                let body = match endpoint {
                    BeaconProbeEndpoint::Spec => GNOSIS,
                    BeaconProbeEndpoint::Genesis => GENESIS,
                };
                assert!(capabilities.record_probe_response(b"", endpoint, body, 1));
            }
            let digests = capabilities.capabilities_of_node(b"").digests.unwrap();
            assert_eq!(digests.digest_at_slot(5).unwrap().0, Fork::Phase0);
        }
    }

    #[test]
    fn pause_between_probes_doubles_while_the_node_fails() {
        let capabilities = RouteNodeCapabilities::default();
        let mut now = 0;
        for pause in [FIRST_RETRY_MS, 2 * FIRST_RETRY_MS, 4 * FIRST_RETRY_MS] {
            assert_eq!(
                capabilities.take_due_probe(b"", PRESET, now),
                Some(BeaconProbeEndpoint::Spec)
            );
            assert_eq!(
                capabilities.take_due_probe(b"", PRESET, now + pause - 1),
                None
            );
            now += pause;
        }
        for _ in 0..100 {
            assert_eq!(
                capabilities.take_due_probe(b"", PRESET, now),
                Some(BeaconProbeEndpoint::Spec)
            );
            now += PROBE_FRESH_MS;
        }
        // pauses start again after a response
        assert!(capabilities.record_probe_response(b"", BeaconProbeEndpoint::Spec, GNOSIS, now));
        now += PROBE_FRESH_MS;
        assert_eq!(
            capabilities.take_due_probe(b"", PRESET, now),
            Some(BeaconProbeEndpoint::Spec)
        );
        assert_eq!(
            capabilities.take_due_probe(b"", PRESET, now + FIRST_RETRY_MS),
            Some(BeaconProbeEndpoint::Spec)
        );
    }

    #[test]
    fn invented_node_names_are_rate_limited_and_evict_no_known_node() {
        let capabilities = RouteNodeCapabilities::default();
        let name = |number: u64| number.to_string().into_bytes();
        assert!(capabilities.take_due_probe(b"real", PRESET, 0).is_some());
        assert!(capabilities.record_probe_response(b"real", BeaconProbeEndpoint::Spec, GNOSIS, 0));
        let mut probes = 0;
        for number in 0..100 * MAX_NODES as u64 {
            let now = NEW_NODE_INTERVAL_MS + number * NEW_NODE_INTERVAL_MS / 10;
            probes += u64::from(
                capabilities
                    .take_due_probe(&name(number), PRESET, now)
                    .is_some(),
            );
            assert_eq!(
                capabilities.capabilities_of_node(b"real").preset,
                Some(Preset::Gnosis)
            );
        }
        assert_eq!(probes, 10 * MAX_NODES as u64);
        assert!(capabilities.0.lock().unwrap().nodes.len() <= MAX_NODES);
        // known nodes that were used recently are not replaced
        let capabilities = RouteNodeCapabilities::default();
        for number in 0..=MAX_NODES as u64 {
            let now = number * NEW_NODE_INTERVAL_MS;
            let is_probed = capabilities
                .take_due_probe(&name(number), PRESET, now)
                .is_some();
            assert_eq!(is_probed, number < MAX_NODES as u64);
            assert_eq!(
                capabilities.record_probe_response(
                    &name(number),
                    BeaconProbeEndpoint::Spec,
                    GNOSIS,
                    now
                ),
                is_probed
            );
        }
        assert!(capabilities
            .take_due_probe(b"late", PRESET, PROBE_FRESH_MS)
            .is_some());
        assert_eq!(
            capabilities.capabilities_of_node(&name(0)),
            DetectedPresetAndForks::default()
        );
        assert_eq!(
            capabilities.capabilities_of_node(&name(1)).preset,
            Some(Preset::Gnosis)
        );
    }
}
