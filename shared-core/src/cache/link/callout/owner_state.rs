//! State of the owner as its replies have reported it: purge generation and chains.
//!
//! Replies may arrive in another order than they were made in, and an owner may be replaced by
//! another one. Numbers grow, so the highest is kept; a number below the one that was known when
//! the request was sent belongs to another owner, and replaces it.

use crate::cache::chain::{ChainState, DispatchMark, HeightUnit, NamespaceChains};
use crate::cache::link::callout::message::ChainStateNumber;
use crate::cache::CacheNamespace;

/// Namespaces that are known. Of others nothing is taken for final.
const MOST: usize = 64;

/// What an owner has said of a chain's node is believed for so long. Milliseconds.
const BELIEVED: u64 = 1_000;

/// Of a chain of which nothing is known.
const UNKNOWN: DispatchMark = DispatchMark {
    heights: HeightUnit::Blocks,
    // what is asked for now is of before all that an owner will say
    epoch: 1,
    tip_since: 1,
    tip_ends: 0,
    tip_height: 0,
    branch: 1,
    seen: 0,
    head: None,
    last_final: None,
    is_known: false,
    is_wrong: false,
};

/// What was known when a question was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerStateAtQuery {
    pub(super) generation: u64,
    /// `None`: nothing.
    pub(super) chain: Option<ChainStateNumber>,
}

impl OwnerStateAtQuery {
    /// The number of the state that was known.
    pub(super) fn known_chain_state_number(&self) -> Option<u64> {
        match self.chain? {
            ChainStateNumber::Number(number) => Some(number),
            ChainStateNumber::NotFollowed => None,
        }
    }

    /// Returns the generation of the last known purge after a reply with the generation `reported`,
    /// where `known` was the last one before.
    pub(super) fn purge_generation_after_reply(&self, known: u64, reported: u64) -> u64 {
        match reported < self.generation {
            true => reported,
            false => known.max(reported),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct OwnerState(Vec<NamespaceState>);

#[derive(Debug)]
struct NamespaceState {
    namespace: CacheNamespace,
    announcement: ChainStateNumber,
    /// It was so then, or later.
    at: u64,
}

impl OwnerState {
    pub(super) fn get(&self, namespace: &CacheNamespace) -> Option<ChainStateNumber> {
        Some(self.find_namespace(namespace)?.announcement)
    }

    fn find_namespace(&self, namespace: &CacheNamespace) -> Option<&NamespaceState> {
        self.0.iter().find(|space| space.namespace == *namespace)
    }

    /// An answer that was made at that time or later says this to a question that
    /// was asked when that was known.
    pub(super) fn merge_chain_announcement(
        &mut self,
        chains: &NamespaceChains,
        namespace: CacheNamespace,
        (heard, at): (&OwnerStateAtQuery, u64),
        announcement: ChainStateNumber,
        state: Option<Box<ChainState>>,
    ) {
        let known = self.get(&namespace);
        let is_news = match (known, announcement) {
            // one or the other is another owner's
            (known, ChainStateNumber::NotFollowed) => known == heard.chain,
            (Some(ChainStateNumber::Number(known)), ChainStateNumber::Number(number)) => {
                number > known
                    || heard
                        .known_chain_state_number()
                        .is_some_and(|heard| number < heard)
            }
            (_, ChainStateNumber::Number(_)) => true,
        };
        match (announcement, state) {
            (ChainStateNumber::Number(_), Some(state)) if is_news => {
                let unknown = || ChainState::new_without_blocks(state.heights, 0);
                chains
                    .get_or_add_chain(namespace, unknown)
                    .apply_owner_state(*state);
            }
            // it is what is known
            (ChainStateNumber::Number(_), _) if known == Some(announcement) => {}
            (ChainStateNumber::NotFollowed, _) if is_news => {}
            _ => return,
        }
        self.record_namespace(NamespaceState {
            namespace,
            announcement,
            at,
        });
        if is_news {
            let followed: Vec<CacheNamespace> = self.followed_namespaces().collect();
            chains.retain_chains_of_namespaces(&followed);
        }
    }

    fn followed_namespaces(&self) -> impl Iterator<Item = CacheNamespace> + '_ {
        let followed =
            |space: &&NamespaceState| matches!(space.announcement, ChainStateNumber::Number(_));
        self.0.iter().filter(followed).map(|space| space.namespace)
    }

    fn record_namespace(&mut self, space: NamespaceState) {
        let mut all = self.0.iter_mut();
        if let Some(known) = all.find(|known| known.namespace == space.namespace) {
            known.announcement = space.announcement;
            known.at = known.at.max(space.at);
            return;
        }
        if self.0.len() == MOST {
            let oldest = (0..MOST).min_by_key(|at| self.0[*at].at).unwrap_or(0);
            self.0.swap_remove(oldest);
        }
        self.0.push(space);
    }

    /// What a request that goes to the node knows of its chain.
    pub(super) fn dispatch_mark(
        &self,
        chains: &NamespaceChains,
        namespace: &CacheNamespace,
        now: u64,
    ) -> Option<DispatchMark> {
        let Some(space) = self.find_namespace(namespace) else {
            return Some(UNKNOWN);
        };
        let is_recent = now.saturating_sub(space.at) <= BELIEVED;
        match chains
            .get(namespace)
            .map(|chain| chain.chain_mark_at_dispatch())
        {
            Some(mark) if is_recent => Some(mark),
            // its node may be another one by now
            Some(mark) => Some(DispatchMark {
                last_final: None,
                is_known: false,
                // it is heard of by asking
                is_wrong: false,
                ..mark
            }),
            None if is_recent => None,
            None => Some(UNKNOWN),
        }
    }
}
