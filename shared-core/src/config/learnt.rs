//! Capabilities of a route's nodes that probes detect: the preset of their chain, and its forks.
//!
//! No request waits for a probe, and no result is discarded: an old result is probed again, and is
//! used until the new response arrives. A node that does not respond, or not in time, is probed
//! again after growing pauses.

use std::sync::{Arc, Mutex};

use crate::lock::locked;
use crate::ssz::Preset;
use crate::transcode::chain::{genesis_root, Digests, Forks, Spec};

/// Milliseconds for which a result is not probed again.
pub const FRESH: u64 = 10 * 60 * 1_000;
/// Milliseconds before the first repetition of a probe without a usable response; each pause is
/// twice the last.
const PAUSE: u64 = 5_000;
/// Minimum milliseconds between the first probes of unknown nodes: clients may invent names.
const PACE: u64 = 1_000;
/// Maximum number of nodes of a route. Routes with more are rare.
const MOST: usize = 16;

/// The kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The specification of the chain.
    Spec,
    /// The genesis of the chain, with its validators root.
    Genesis,
}

impl Question {
    /// The route below `/eth/` that returns it.
    pub fn route(self) -> &'static str {
        match self {
            Question::Spec => "v1/config/spec",
            Question::Genesis => "v1/beacon/genesis",
        }
    }
}

/// Capabilities that a request requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Whether the preset is required, because it is not configured.
    pub preset: bool,
    /// Whether the fork digests are required.
    pub digests: bool,
}

/// Known properties of a node's chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The preset.
    pub preset: Option<Preset>,
    /// The fork digests.
    pub digests: Option<Arc<Digests>>,
}

/// Capabilities of a route's nodes, by the name of the node. All settings that are cloned from one
/// share it.
#[derive(Clone, Debug, Default)]
pub struct Learnt(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    nodes: Vec<Node>,
    /// Time from which the next node may be added. All times are milliseconds.
    next: u64,
}

#[derive(Debug)]
struct Node {
    name: Vec<u8>,
    known: Known,
    forks: Option<Forks>,
    genesis_root: Option<[u8; 32]>,
    spec: Due,
    genesis: Due,
    /// Time of the last request that required a capability.
    wanted: u64,
}

/// Time of the next probe, and the number of probes without a usable response.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    at: u64,
    in_vain: u32,
}

impl Learnt {
    /// Returns the known properties of a node's chain.
    pub fn of(&self, name: &[u8]) -> Known {
        self.table(|table| {
            let node = table.find(name);
            node.map(|node| node.known.clone()).unwrap_or_default()
        })
    }

    /// Returns the probe that the caller must send now, if one is due. Other callers don't receive
    /// the same probe until it is due again.
    pub fn question(&self, name: &[u8], needs: Needs, now: u64) -> Option<Question> {
        self.table(|table| table.question(name, needs, now))
    }

    /// Records the body of a node's response. Returns whether it was usable.
    pub fn learn(&self, name: &[u8], question: Question, body: &[u8], now: u64) -> bool {
        // parsed before the table is locked
        let (spec, root) = match question {
            Question::Spec => (Spec::read(body), None),
            Question::Genesis => (None, genesis_root(body)),
        };
        self.table(|table| {
            let Some(node) = table.find(name) else {
                return false;
            };
            let due = Due {
                at: now.saturating_add(FRESH),
                in_vain: 0,
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
                .and_then(|(forks, root)| forks.digests(root));
            node.known.digests = digests.map(Arc::new);
            true
        })
    }

    fn table<T>(&self, what: impl FnOnce(&mut Table) -> T) -> T {
        what(&mut locked(&self.0))
    }
}

impl Table {
    fn find(&mut self, name: &[u8]) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.name == name)
    }

    fn question(&mut self, name: &[u8], needs: Needs, now: u64) -> Option<Question> {
        if self.find(name).is_none() {
            if now < self.next || !self.make_room(now) {
                return None;
            }
            self.next = now.saturating_add(PACE);
            self.nodes.push(Node::new(name.to_vec()));
        }
        let node = self.find(name)?;
        node.wanted = now;
        node.question(needs, now)
    }

    /// Makes room for another node. Returns whether there is any.
    fn make_room(&mut self, now: u64) -> bool {
        if self.nodes.len() < MOST {
            return true;
        }
        let is_idle = |node: &Node| !node.is_known() || node.wanted.saturating_add(FRESH) <= now;
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

impl Node {
    fn new(name: Vec<u8>) -> Self {
        Self {
            name,
            known: Known::default(),
            forks: None,
            genesis_root: None,
            spec: Due::default(),
            genesis: Due::default(),
            wanted: 0,
        }
    }

    fn is_known(&self) -> bool {
        self.known.preset.is_some() || self.genesis_root.is_some()
    }

    fn question(&mut self, needs: Needs, now: u64) -> Option<Question> {
        if self.spec.is_due(now) {
            self.spec.put_off(now);
            return Some(Question::Spec);
        }
        if needs.digests && self.genesis.is_due(now) {
            self.genesis.put_off(now);
            return Some(Question::Genesis);
        }
        None
    }
}

impl Due {
    fn is_due(self, now: u64) -> bool {
        self.at <= now
    }

    /// Schedules the next probe in case this one has no usable response.
    fn put_off(&mut self, now: u64) {
        let pause = PAUSE.saturating_mul(1 << self.in_vain.min(16)).min(FRESH);
        self.at = now.saturating_add(pause);
        self.in_vain = self.in_vain.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Learnt, Needs, Question, FRESH, MOST, PACE, PAUSE};
    use crate::ssz::{Fork, Preset};

    const PRESET: Needs = Needs {
        preset: true,
        digests: false,
    };
    const DIGESTS: Needs = Needs {
        preset: false,
        digests: true,
    };
    const GNOSIS: &[u8] =
        br#"{"data":{"PRESET_BASE":"gnosis","GENESIS_FORK_VERSION":"0x00000064"}}"#;
    const GENESIS: &[u8] = br#"{"data":{"genesis_validators_root":
        "0xf5dcb5564e829aab27264b9becd5dfaa017085611224cb3036f573368dbb9d47"}}"#;

    #[test]
    fn old_capability_is_probed_again_and_kept_until_the_response() {
        let learnt = Learnt::default();
        let shared = learnt.clone();
        assert_eq!(learnt.question(b"a", PRESET, 7), Some(Question::Spec));
        assert_eq!(shared.question(b"a", PRESET, 8), None);
        assert_eq!(learnt.of(b"a"), Known::default());
        assert!(shared.learn(b"a", Question::Spec, GNOSIS, 9));
        assert_eq!(learnt.of(b"a").preset, Some(Preset::Gnosis));
        assert_eq!(learnt.of(b"b"), Known::default());
        assert_eq!(learnt.question(b"a", PRESET, 8 + FRESH), None);
        assert_eq!(
            learnt.question(b"a", PRESET, 9 + FRESH),
            Some(Question::Spec)
        );
        // the old value is used until a response arrives
        assert_eq!(learnt.of(b"a").preset, Some(Preset::Gnosis));
        assert!(!learnt.learn(b"a", Question::Spec, b"<html>", 10 + FRESH));
        assert_eq!(learnt.of(b"a").preset, Some(Preset::Gnosis));
    }

    #[test]
    fn fork_digests_are_known_after_both_responses_in_any_order() {
        for questions in [
            [Question::Spec, Question::Genesis],
            [Question::Genesis, Question::Spec],
        ] {
            let learnt = Learnt::default();
            assert_eq!(learnt.question(b"", DIGESTS, 0), Some(Question::Spec));
            assert_eq!(learnt.question(b"", DIGESTS, 0), Some(Question::Genesis));
            assert_eq!(learnt.question(b"", DIGESTS, 0), None);
            for question in questions {
                assert_eq!(learnt.of(b"").digests, None);
                let body = match question {
                    Question::Spec => GNOSIS,
                    Question::Genesis => GENESIS,
                };
                assert!(learnt.learn(b"", question, body, 1));
            }
            let digests = learnt.of(b"").digests.unwrap();
            assert_eq!(digests.at_slot(5).unwrap().0, Fork::Phase0);
        }
    }

    #[test]
    fn pause_between_probes_doubles_while_the_node_fails() {
        let learnt = Learnt::default();
        let mut now = 0;
        for pause in [PAUSE, 2 * PAUSE, 4 * PAUSE] {
            assert_eq!(learnt.question(b"", PRESET, now), Some(Question::Spec));
            assert_eq!(learnt.question(b"", PRESET, now + pause - 1), None);
            now += pause;
        }
        for _ in 0..100 {
            assert_eq!(learnt.question(b"", PRESET, now), Some(Question::Spec));
            now += FRESH;
        }
        // pauses start again after a response
        assert!(learnt.learn(b"", Question::Spec, GNOSIS, now));
        now += FRESH;
        assert_eq!(learnt.question(b"", PRESET, now), Some(Question::Spec));
        assert_eq!(
            learnt.question(b"", PRESET, now + PAUSE),
            Some(Question::Spec)
        );
    }

    #[test]
    fn invented_node_names_are_rate_limited_and_evict_no_known_node() {
        let learnt = Learnt::default();
        let name = |number: u64| number.to_string().into_bytes();
        assert!(learnt.question(b"real", PRESET, 0).is_some());
        assert!(learnt.learn(b"real", Question::Spec, GNOSIS, 0));
        let mut probes = 0;
        for number in 0..100 * MOST as u64 {
            let now = PACE + number * PACE / 10;
            probes += u64::from(learnt.question(&name(number), PRESET, now).is_some());
            assert_eq!(learnt.of(b"real").preset, Some(Preset::Gnosis));
        }
        assert_eq!(probes, 10 * MOST as u64);
        assert!(learnt.0.lock().unwrap().nodes.len() <= MOST);
        // known nodes that were used recently are not replaced
        let learnt = Learnt::default();
        for number in 0..=MOST as u64 {
            let now = number * PACE;
            let is_probed = learnt.question(&name(number), PRESET, now).is_some();
            assert_eq!(is_probed, number < MOST as u64);
            assert_eq!(
                learnt.learn(&name(number), Question::Spec, GNOSIS, now),
                is_probed
            );
        }
        assert!(learnt.question(b"late", PRESET, FRESH).is_some());
        assert_eq!(learnt.of(&name(0)), Known::default());
        assert_eq!(learnt.of(&name(1)).preset, Some(Preset::Gnosis));
    }
}
