//! The properties of its chain that the responses of each namespace (and of each value of the
//! headers in its keys) have shown. Responses of one chain never contradict each other in these
//! properties; where they do, the namespace is *suspended*: none of its responses is stored or sent
//! until it is purged.
//!
//! A gateway may choose the chain by a request header that is in no key. So a request whose headers
//! have not been seen with the namespace gets the responses that identify the chain from the node
//! ([`are_request_headers_verified`](ReportedChainIdentities::are_request_headers_verified)).

use crate::hash_keys::{HashMap, HashSet};
use std::collections::VecDeque;
use std::mem::discriminant;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

use crate::cache::chain::{ChainState, HeightUnit};
use crate::cache::owner_protocol::owner_message::PurgeEventScope;
use crate::cache::vary_key::{truncated_blake3, VaryKey};
use crate::cache::CacheNamespace;
use crate::lock::lock_ignoring_poison;

/// Maximum number of namespaces whose facts are recorded.
const MAX_NAMESPACES: usize = 256;

/// Maximum number of finalized blocks that are recorded per namespace.
const MAX_BLOCKS: usize = 32;

/// Maximum number of sets of request headers that are verified one by one. Beyond it the headers do
/// not choose the chain: they differ by client or by request.
const MAX_SELECTORS: usize = 64;

/// A property of a chain that does not change, in the form in which a node's result reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainIdentityFact {
    /// Chain id, the result of `eth_chainId`.
    ChainId(u64),
    /// Network id, the result of `net_version`.
    NetworkId(u64),
    /// Hash of block 0.
    Genesis([u8; 32]),
    /// Root of the genesis validators, `genesis_validators_root` of the Beacon API.
    ValidatorsRoot([u8; 32]),
    /// Hash of a block that was finalized when the request was sent to the node.
    Final {
        /// Number of the block.
        number: u64,
        /// Hash of the block.
        hash: [u8; 32],
        /// Epoch of the request.
        epoch: u64,
    },
}

impl ChainIdentityFact {
    /// Parses the fact that the `result` of a call without parameters reports, or returns `None` if
    /// it reports none.
    pub fn identity_fact_from_rpc_result(method: &[u8], result: &[u8]) -> Option<Self> {
        let kind = match method {
            b"eth_chainId" => Self::ChainId,
            b"net_version" => Self::NetworkId,
            _ => return None,
        };
        let text = result.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let text = std::str::from_utf8(text).ok()?;
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.ok().map(kind)
    }

    /// Returns the fact's name for log lines.
    pub fn fact_name(&self) -> String {
        match self {
            Self::ChainId(_) => "eth_chainId".into(),
            Self::NetworkId(_) => "net_version".into(),
            Self::Genesis(_) => "block 0".into(),
            Self::ValidatorsRoot(_) => "genesis_validators_root".into(),
            Self::Final { number, .. } => format!("final block {number}"),
        }
    }

    /// Returns the fact's value for log lines.
    fn value_text(&self) -> String {
        match self {
            Self::ChainId(number) | Self::NetworkId(number) => number.to_string(),
            Self::Genesis(hash) | Self::ValidatorsRoot(hash) | Self::Final { hash, .. } => {
                let [a, b, c, d, ..] = hash;
                format!("0x{a:02x}{b:02x}{c:02x}{d:02x}…")
            }
        }
    }

    /// Returns the value of the namespace's followed node and this one, for log lines, if they
    /// differ.
    pub fn contradicting_identity_values(&self, followed: &ChainState) -> Option<(String, String)> {
        let known = match (self, followed.heights) {
            (Self::ChainId(_), _) => Self::ChainId(followed.chain_id?),
            (Self::Genesis(_), HeightUnit::Blocks) => Self::Genesis(followed.genesis?),
            (Self::ValidatorsRoot(_), HeightUnit::Slots) => Self::ValidatorsRoot(followed.genesis?),
            _ => return None,
        };
        (known != *self).then(|| (known.value_text(), self.value_text()))
    }

    /// Whether both facts are about the same property of a chain.
    fn has_same_property(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Final { number, .. }, Self::Final { number: known, .. }) => number == known,
            _ => discriminant(self) == discriminant(other),
        }
    }
}

/// Whether the results of a method identify the chain.
pub fn is_identity_method(method: &[u8]) -> bool {
    matches!(method, b"eth_chainId" | b"net_version")
}

/// The facts that the responses with one vary key have reported, and the request headers with which
/// they were verified.
#[derive(Debug, Default)]
struct ReportedChainFacts {
    /// Namespace of the vary key.
    namespace: CacheNamespace,
    /// Generation of the last purge of the namespace that preceded the facts.
    generation: u64,
    /// Facts about the whole chain.
    properties: VecDeque<ChainIdentityFact>,
    /// Final blocks of the last epoch.
    finals: VecDeque<ChainIdentityFact>,
    selectors: HashSet<u64>,
}

/// Generations of the last purges of whole namespaces. Other purges leave entries of the same chain,
/// so they leave its facts, too.
#[derive(Debug, Default)]
struct NamespacePurges {
    /// Generation of the last purge of any scope.
    newest: u64,
    /// Generation of the last purge of everything.
    everything: u64,
    /// Generations of later purges of one namespace.
    namespaces: HashMap<CacheNamespace, u64>,
}

impl NamespacePurges {
    /// Records a purge.
    fn record_purge(&mut self, scope: &PurgeEventScope, generation: u64) {
        self.newest = generation;
        let is_recorded = match scope {
            PurgeEventScope::MethodOrBlocks | PurgeEventScope::Key(_) => true,
            PurgeEventScope::Everything => false,
            PurgeEventScope::Namespace(namespace) => {
                let has_room = self.namespaces.contains_key(namespace)
                    || self.namespaces.len() < MAX_NAMESPACES
                        && self.namespaces.try_reserve(1).is_ok();
                if has_room {
                    self.namespaces.insert(*namespace, generation);
                }
                has_room
            }
        };
        if !is_recorded {
            // all namespaces forget their facts if one more has no room
            self.everything = generation;
            self.namespaces.clear();
        }
    }

    /// Returns the generation of the last purge of a whole namespace.
    fn last_purge_of_namespace(&self, namespace: &CacheNamespace) -> u64 {
        let namespaces = &self.namespaces;
        let of_namespace = namespaces.get(namespace).copied();
        of_namespace.unwrap_or(self.everything)
    }
}

/// The facts by vary key, and the purges after which they are forgotten.
#[derive(Debug, Default)]
struct ChainFactTable {
    /// Keys are the hashes of the vary keys.
    by_vary_key: HashMap<CacheNamespace, ReportedChainFacts>,
    purges: NamespacePurges,
}

/// The facts that responses have reported about the chain of each namespace, which show whether a
/// node has another chain; and the suspended namespaces.
#[derive(Debug, Default)]
pub struct ReportedChainIdentities {
    facts: Mutex<ChainFactTable>,
    suspended: Mutex<HashSet<CacheNamespace>>,
    has_suspended_namespace: AtomicBool,
}

impl ReportedChainIdentities {
    /// Forgets the facts of the namespaces that a purge removes as a whole: it may precede a change
    /// of their chains. Called before the purge is in effect.
    pub fn forget_purged_chains(&self, scope: &PurgeEventScope, generation: u64) {
        let mut table = lock_ignoring_poison(&self.facts);
        table.purges.record_purge(scope, generation);
    }

    /// Compares a fact with the recorded facts of the namespace and the values of its keyed headers
    /// (`scope`), and records it. A fact of a request from before a purge of the namespace (by
    /// `generation`) is not compared: it may be of the chain before.
    ///
    /// # Errors
    /// Returns a description of the contradiction if the fact contradicts a recorded one.
    pub fn compare_and_record_fact(
        &self,
        scope: &VaryKey,
        generation: u64,
        fact: ChainIdentityFact,
    ) -> Result<(), String> {
        self.update_recorded_facts(scope, generation, |known| known.merge_chain_fact(fact))
            .unwrap_or(Ok(()))
    }

    /// Whether the namespace was purged as a whole after a request with this generation.
    pub fn is_namespace_purged_since(&self, scope: &VaryKey, generation: u64) -> bool {
        self.update_recorded_facts(scope, generation, |_| ())
            .is_none()
    }

    /// Whether a request with these headers may be answered from the cache: the node has answered
    /// one with the same headers.
    pub fn are_request_headers_verified(
        &self,
        scope: &VaryKey,
        generation: u64,
        selector: u64,
    ) -> bool {
        let is_verified = self.update_recorded_facts(scope, generation, |known| {
            known.selectors.len() >= MAX_SELECTORS || known.selectors.contains(&selector)
        });
        is_verified.unwrap_or(false)
    }

    /// Records that the node has answered a request with these headers without a contradiction.
    pub fn mark_request_headers_verified(&self, scope: &VaryKey, generation: u64, selector: u64) {
        self.update_recorded_facts(scope, generation, |known| {
            if known.selectors.len() < MAX_SELECTORS && known.selectors.try_reserve(1).is_ok() {
                known.selectors.insert(selector);
            }
        });
    }

    /// Applies an update to the recorded facts of a vary key, which are cleared first if its
    /// namespace was purged. Returns `None` if it was purged after the request whose response the
    /// update is about.
    fn update_recorded_facts<T>(
        &self,
        scope: &VaryKey,
        generation: u64,
        update: impl FnOnce(&mut ReportedChainFacts) -> T,
    ) -> Option<T> {
        let vary_key = truncated_blake3(scope.vary_key_bytes());
        let mut table = lock_ignoring_poison(&self.facts);
        let ChainFactTable {
            by_vary_key,
            purges,
        } = &mut *table;
        if by_vary_key.len() >= MAX_NAMESPACES && !by_vary_key.contains_key(&vary_key) {
            // clients may invent names of namespaces
            by_vary_key.clear();
        }
        let facts_from = |namespace| ReportedChainFacts {
            namespace,
            generation: purges.last_purge_of_namespace(&namespace),
            ..ReportedChainFacts::default()
        };
        let known = by_vary_key
            .entry(vary_key)
            .or_insert_with(|| facts_from(truncated_blake3(scope.namespace_key_bytes())));
        if known.generation != purges.last_purge_of_namespace(&known.namespace) {
            *known = facts_from(known.namespace);
        }
        // generations of a former owner are not comparable, and may be above all of this one
        let is_current = (known.generation..=purges.newest).contains(&generation);
        is_current.then(|| update(known))
    }

    /// Suspends a namespace: this process does not store or send its responses any more. Returns
    /// `false` if it was suspended already.
    pub fn suspend_namespace(&self, namespace: &CacheNamespace) -> bool {
        let is_news = lock_ignoring_poison(&self.suspended).insert(*namespace);
        self.has_suspended_namespace.store(true, Ordering::Release);
        is_news
    }

    /// Whether the namespace is suspended because its nodes serve different chains.
    pub fn is_namespace_suspended(&self, namespace: &CacheNamespace) -> bool {
        self.has_suspended() && lock_ignoring_poison(&self.suspended).contains(namespace)
    }

    /// Whether any namespace is suspended.
    pub fn has_suspended(&self) -> bool {
        self.has_suspended_namespace.load(Ordering::Acquire)
    }
}

impl ReportedChainFacts {
    /// Records a fact that a node reported. An error names a fact that contradicts an earlier one.
    fn merge_chain_fact(&mut self, fact: ChainIdentityFact) -> Result<(), String> {
        let facts = match fact {
            ChainIdentityFact::Final { epoch, .. } => {
                // blocks from before a reorganisation prove no contradiction
                self.finals.retain(|known| {
                    matches!(known, ChainIdentityFact::Final { epoch: known, .. } if *known == epoch)
                });
                &mut self.finals
            }
            _ => &mut self.properties,
        };
        if let Some(known) = facts.iter().find(|known| known.has_same_property(&fact)) {
            if *known == fact {
                return Ok(());
            }
            let (known, found) = (known.value_text(), fact.value_text());
            return Err(format!("{} was {known}, now {found}", fact.fact_name()));
        }
        if facts.len() == MAX_BLOCKS {
            facts.pop_front();
        }
        facts.push_back(fact);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ChainIdentityFact, ReportedChainIdentities, MAX_BLOCKS, MAX_NAMESPACES, MAX_SELECTORS,
    };
    use crate::cache::chain::{ChainState, HeightUnit};
    use crate::cache::owner_protocol::owner_message::PurgeEventScope;
    use crate::cache::vary_key::{named_cache_namespace, truncated_blake3, VaryKey};

    const MAIN: [u8; 16] = [1; 16];
    const OTHER: [u8; 16] = [2; 16];

    /// The vary key of a namespace without keyed headers.
    fn vary_key(name: &str) -> VaryKey {
        let mut key = VaryKey::new();
        key.push_route_part(name.as_bytes());
        key.mark_namespace_end();
        key
    }

    #[test]
    fn chain_facts_are_read_from_results() {
        for (method, result, expected) in [
            (
                "eth_chainId",
                "\"0x1\"",
                Some(ChainIdentityFact::ChainId(1)),
            ),
            (
                "net_version",
                "\"137\"",
                Some(ChainIdentityFact::NetworkId(137)),
            ),
            (
                "net_version",
                "\"0x89\"",
                Some(ChainIdentityFact::NetworkId(137)),
            ),
            ("eth_chainId", "1", None),
            ("eth_chainId", "\"\"", None),
            ("eth_chainId", "\"0x10000000000000000\"", None),
            ("eth_blockNumber", "\"0x1\"", None),
        ] {
            let fact = ChainIdentityFact::identity_fact_from_rpc_result(
                method.as_bytes(),
                result.as_bytes(),
            );
            assert_eq!(fact, expected, "{method} {result}");
        }
    }

    #[test]
    fn contradictions_are_found_within_a_namespace() {
        let identities = ReportedChainIdentities::default();
        let (main, other_namespace) = (vary_key("main"), vary_key("other"));
        let observe = |scope, fact| {
            let observed = identities.compare_and_record_fact(scope, 0, fact);
            observed.err().unwrap_or_default()
        };
        for (one, other, text) in [
            (
                ChainIdentityFact::ChainId(1),
                ChainIdentityFact::ChainId(137),
                "eth_chainId was 1, now 137",
            ),
            (
                ChainIdentityFact::NetworkId(1),
                ChainIdentityFact::NetworkId(5),
                "net_version was 1, now 5",
            ),
            (
                ChainIdentityFact::Genesis([1; 32]),
                ChainIdentityFact::Genesis([2; 32]),
                "block 0 was 0x01010101…, now 0x02020202…",
            ),
            (
                ChainIdentityFact::ValidatorsRoot([1; 32]),
                ChainIdentityFact::ValidatorsRoot([2; 32]),
                "genesis_validators_root was 0x01010101…, now 0x02020202…",
            ),
        ] {
            assert_eq!(observe(&main, one), "");
            assert_eq!(observe(&main, one), "");
            assert_eq!(observe(&other_namespace, other), "");
            assert_eq!(observe(&main, other), text);
        }
    }

    #[test]
    fn facts_are_forgotten_by_a_purge_of_their_namespace_only() {
        let namespace =
            |name: &str| PurgeEventScope::Namespace(named_cache_namespace(name.as_bytes()));
        for (purge, is_forgotten) in [
            (PurgeEventScope::Everything, true),
            (namespace("main"), true),
            (namespace("other"), false),
            (PurgeEventScope::MethodOrBlocks, false),
            (PurgeEventScope::Key([1; 32]), false),
        ] {
            let identities = ReportedChainIdentities::default();
            let main = vary_key("main");
            let observe = |generation, id| {
                let fact = ChainIdentityFact::ChainId(id);
                identities
                    .compare_and_record_fact(&main, generation, fact)
                    .is_ok()
            };
            assert!(observe(0, 1) && !observe(0, 2));
            identities.mark_request_headers_verified(&main, 0, 5);
            identities.forget_purged_chains(&purge, 7);
            assert_eq!(
                identities.are_request_headers_verified(&main, 7, 5),
                !is_forgotten,
                "{purge:?}"
            );
            // a response from before the purge is compared with nothing then, and not recorded
            assert_eq!(identities.is_namespace_purged_since(&main, 0), is_forgotten);
            assert_eq!(observe(0, 3), is_forgotten, "{purge:?}");
            assert_eq!(observe(7, 2), is_forgotten, "{purge:?}");
            assert_eq!(observe(7, 1), !is_forgotten, "{purge:?}");
        }
    }

    #[test]
    fn responses_from_before_a_purge_are_not_recorded_for_a_new_namespace() {
        let identities = ReportedChainIdentities::default();
        let main = vary_key("main");
        let observe = |generation, id| {
            let fact = ChainIdentityFact::ChainId(id);
            identities
                .compare_and_record_fact(&main, generation, fact)
                .is_ok()
        };
        let purge = PurgeEventScope::Namespace(truncated_blake3(main.namespace_key_bytes()));
        identities.forget_purged_chains(&purge, 7);
        assert!(observe(6, 1) && observe(7, 2) && !observe(7, 1));
        // another owner may have lower generations
        identities.forget_purged_chains(&PurgeEventScope::Everything, 3);
        assert!(observe(7, 2) && observe(3, 1) && !observe(3, 2));
    }

    #[test]
    fn more_purged_namespaces_than_are_recorded_are_a_purge_of_everything() {
        let identities = ReportedChainIdentities::default();
        let main = vary_key("main");
        let fact = ChainIdentityFact::ChainId(1);
        identities.compare_and_record_fact(&main, 0, fact).unwrap();
        for n in 1..=MAX_NAMESPACES as u64 {
            let name = named_cache_namespace(&n.to_le_bytes());
            identities.forget_purged_chains(&PurgeEventScope::Namespace(name), n);
            assert!(!identities.is_namespace_purged_since(&main, 0));
        }
        let again = named_cache_namespace(&1_u64.to_le_bytes());
        identities.forget_purged_chains(&PurgeEventScope::Namespace(again), 999);
        assert!(!identities.is_namespace_purged_since(&main, 0));
        identities.forget_purged_chains(&PurgeEventScope::Namespace(OTHER), 1_000);
        assert!(identities.is_namespace_purged_since(&main, 999));
    }

    #[test]
    fn final_blocks_are_compared_until_a_reorganisation() {
        let identities = ReportedChainIdentities::default();
        let main = vary_key("main");
        let observe = |number, hash, epoch| {
            let fact = ChainIdentityFact::Final {
                number,
                hash: [hash; 32],
                epoch,
            };
            identities.compare_and_record_fact(&main, 0, fact).is_ok()
        };
        assert!(observe(5, 1, 1) && observe(6, 2, 1) && observe(5, 1, 1));
        assert!(!observe(5, 2, 1));
        assert!(observe(5, 2, 2) && !observe(5, 1, 2));
        for number in 0..=MAX_BLOCKS as u64 {
            assert!(observe(100 + number, 3, 2));
        }
        assert!(observe(5, 1, 2), "the oldest is forgotten");
    }

    #[test]
    fn chain_facts_are_compared_with_the_facts_of_the_followed_node() {
        let followed = |heights, chain_id, genesis| {
            let mut state = ChainState::new_without_blocks(heights, 0);
            state.chain_id = chain_id;
            state.genesis = genesis;
            state
        };
        let execution = followed(HeightUnit::Blocks, Some(1), Some([1; 32]));
        let beacon = followed(HeightUnit::Slots, None, Some([1; 32]));
        let unknown = followed(HeightUnit::Blocks, None, None);
        for (fact, is_compared_by) in [
            (ChainIdentityFact::ChainId(2), [true, false, false]),
            (ChainIdentityFact::NetworkId(2), [false; 3]),
            (ChainIdentityFact::Genesis([2; 32]), [true, false, false]),
            (
                ChainIdentityFact::ValidatorsRoot([2; 32]),
                [false, true, false],
            ),
        ] {
            let found = [&execution, &beacon, &unknown]
                .map(|it| fact.contradicting_identity_values(it).is_some());
            assert_eq!(found, is_compared_by, "{fact:?}");
        }
        for same in [
            ChainIdentityFact::ChainId(1),
            ChainIdentityFact::Genesis([1; 32]),
        ] {
            assert_eq!(same.contradicting_identity_values(&execution), None);
        }
        let same = ChainIdentityFact::ValidatorsRoot([1; 32]);
        assert_eq!(same.contradicting_identity_values(&beacon), None);
    }

    #[test]
    fn headers_are_verified_one_by_one_up_to_a_limit() {
        let identities = ReportedChainIdentities::default();
        let (main, other) = (vary_key("main"), vary_key("other"));
        for selector in 0..MAX_SELECTORS as u64 {
            assert!(!identities.are_request_headers_verified(&main, 0, selector));
            identities.mark_request_headers_verified(&main, 0, selector);
            assert!(identities.are_request_headers_verified(&main, 0, selector));
        }
        assert!(identities.are_request_headers_verified(&main, 0, 1_000));
        assert!(!identities.are_request_headers_verified(&other, 0, 1));
    }

    #[test]
    fn namespace_is_suspended_once() {
        let identities = ReportedChainIdentities::default();
        assert!(!identities.has_suspended() && !identities.is_namespace_suspended(&MAIN));
        assert!(identities.suspend_namespace(&MAIN) && !identities.suspend_namespace(&MAIN));
        assert!(
            identities.is_namespace_suspended(&MAIN) && !identities.is_namespace_suspended(&OTHER)
        );
    }
}
