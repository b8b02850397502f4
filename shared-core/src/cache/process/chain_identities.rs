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

/// The facts that the responses of one namespace have reported under one purge generation, and the
/// request headers with which they were verified.
#[derive(Debug, Default)]
struct ReportedChainFacts {
    /// Purge generation of the facts.
    generation: u64,
    /// Facts about the whole chain.
    properties: VecDeque<ChainIdentityFact>,
    /// Final blocks of the last epoch.
    finals: VecDeque<ChainIdentityFact>,
    selectors: HashSet<u64>,
}

/// The facts that responses have reported about the chain of each namespace, which show whether a
/// node has another chain; and the suspended namespaces.
#[derive(Debug, Default)]
pub struct ReportedChainIdentities {
    known: Mutex<HashMap<CacheNamespace, ReportedChainFacts>>,
    suspended: Mutex<HashSet<CacheNamespace>>,
    has_suspended_namespace: AtomicBool,
}

impl ReportedChainIdentities {
    /// Compares a fact with the recorded facts of the namespace, and records it.
    ///
    /// # Errors
    /// Returns a description of the contradiction if the fact contradicts a recorded one.
    pub fn compare_and_record_fact(
        &self,
        namespace: &CacheNamespace,
        generation: u64,
        fact: ChainIdentityFact,
    ) -> Result<(), String> {
        self.update_recorded_facts(namespace, generation, |known| known.merge_chain_fact(fact))
    }

    /// Whether a request with these headers may be answered from the cache: the node has answered
    /// one with the same headers.
    pub fn are_request_headers_verified(
        &self,
        namespace: &CacheNamespace,
        generation: u64,
        selector: u64,
    ) -> bool {
        self.update_recorded_facts(namespace, generation, |known| {
            known.selectors.len() >= MAX_SELECTORS || known.selectors.contains(&selector)
        })
    }

    /// Records that the node has answered a request with these headers without a contradiction.
    pub fn mark_request_headers_verified(
        &self,
        namespace: &CacheNamespace,
        generation: u64,
        selector: u64,
    ) {
        self.update_recorded_facts(namespace, generation, |known| {
            if known.selectors.len() < MAX_SELECTORS && known.selectors.try_reserve(1).is_ok() {
                known.selectors.insert(selector);
            }
        });
    }

    /// Applies an update to the recorded facts of a namespace, which are cleared first if they are
    /// of another purge generation.
    fn update_recorded_facts<T>(
        &self,
        namespace: &CacheNamespace,
        generation: u64,
        update: impl FnOnce(&mut ReportedChainFacts) -> T,
    ) -> T {
        let mut all = lock_ignoring_poison(&self.known);
        if all.len() >= MAX_NAMESPACES && !all.contains_key(namespace) {
            // clients may invent names of namespaces
            all.clear();
        }
        let known = all.entry(*namespace).or_default();
        if known.generation != generation {
            // a purge may precede a change of the chain
            *known = ReportedChainFacts {
                generation,
                ..ReportedChainFacts::default()
            };
        }
        update(known)
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
    use super::{ChainIdentityFact, ReportedChainIdentities, MAX_BLOCKS, MAX_SELECTORS};
    use crate::cache::chain::{ChainState, HeightUnit};

    const MAIN: [u8; 16] = [1; 16];
    const OTHER: [u8; 16] = [2; 16];

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
    fn contradictions_are_found_within_a_namespace_and_a_generation() {
        let identities = ReportedChainIdentities::default();
        let observe = |namespace, generation, fact| {
            let observed = identities.compare_and_record_fact(&namespace, generation, fact);
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
            assert_eq!(observe(MAIN, 7, one), "");
            assert_eq!(observe(MAIN, 7, one), "");
            assert_eq!(observe(OTHER, 7, other), "");
            assert_eq!(observe(MAIN, 7, other), text);
        }
        // after a purge the node may have another chain
        assert_eq!(observe(MAIN, 8, ChainIdentityFact::ChainId(137)), "");
    }

    #[test]
    fn final_blocks_are_compared_until_a_reorganisation() {
        let identities = ReportedChainIdentities::default();
        let observe = |number, hash, epoch| {
            let fact = ChainIdentityFact::Final {
                number,
                hash: [hash; 32],
                epoch,
            };
            identities.compare_and_record_fact(&MAIN, 0, fact).is_ok()
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
        for selector in 0..MAX_SELECTORS as u64 {
            assert!(!identities.are_request_headers_verified(&MAIN, 0, selector));
            identities.mark_request_headers_verified(&MAIN, 0, selector);
            assert!(identities.are_request_headers_verified(&MAIN, 0, selector));
        }
        assert!(identities.are_request_headers_verified(&MAIN, 0, 1_000));
        assert!(!identities.are_request_headers_verified(&OTHER, 0, 1));
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
