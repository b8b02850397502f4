//! Publication of the states of followed chains to the processes; they decide which entries are
//! valid.

use super::state::Owner;
use super::state::OwnerTables;
use super::tracker::ChainIdentity;
use crate::cache::chain::{ChainChange, ChainState, HeightUnit, ShownBlock};
use crate::cache::clock::ClockReading;
use crate::cache::entry::store_attributes::PurgeScope;
use crate::cache::owner_protocol::owner_message::SessionEvent;
use crate::cache::CacheNamespace;
use crate::lock::lock_ignoring_poison;

impl Owner {
    /// Starts following the chain of a namespace: none of its blocks counts as final, and no entry
    /// outlives a reorganisation, except as [`apply_chain_change`](Self::apply_chain_change)
    /// reports.
    pub fn start_following_chain(
        &self,
        namespace: CacheNamespace,
        heights: HeightUnit,
        now: ClockReading,
    ) {
        let unknown = || ChainState::new_without_blocks(heights, now.unix);
        self.chains.get_or_add_chain(namespace, unknown);
        self.queue_chain_state_event(&mut lock_ignoring_poison(&self.shared), &namespace);
    }

    /// Sets whether the stored entries of a followed chain wait for a check of its node, which may
    /// have another chain than under the last owner.
    pub fn set_identity_check_pending(&self, namespace: &CacheNamespace, is_unchecked: bool) {
        if let Some(chain) = self.chains.get(namespace) {
            chain.set_identity_check_pending(is_unchecked);
        }
    }

    /// Applies a change that the chain's tracker has found to the published state of the chain, and
    /// notifies all processes.
    pub fn apply_chain_change(&self, namespace: &CacheNamespace, by: ChainChange) {
        self.change_and_publish_chain_state(namespace, |state| state.apply_chain_change(by));
    }

    /// Changes the state of a chain, and notifies all processes if it differs.
    fn change_and_publish_chain_state(
        &self,
        namespace: &CacheNamespace,
        change: impl FnOnce(&mut ChainState),
    ) {
        let Some(chain) = self.chains.get(namespace) else {
            return;
        };
        // serialized: no process receives the older state last
        let mut shared = lock_ignoring_poison(&self.shared);
        let is_news = chain.modify_locked_chain_state(|state| {
            let before = state.clone();
            change(state);
            *state != before
        });
        if is_news {
            self.queue_chain_state_event(&mut shared, namespace);
        }
    }

    /// Suspends a namespace because a response was of another chain: nothing of it is stored or
    /// sent until it is [resumed](Self::resume_namespaces). Notifies all processes.
    pub fn suspend_namespace(&self, namespace: CacheNamespace, now: ClockReading) {
        let is_followed = self.chains.get(&namespace).is_some();
        if lock_ignoring_poison(&self.suspended)
            .insert(namespace, is_followed)
            .is_none()
        {
            let unknown = || ChainState::new_without_blocks(HeightUnit::Blocks, now.unix);
            self.chains.get_or_add_chain(namespace, unknown);
            self.apply_chain_change(&namespace, ChainChange::Wrong(true));
        }
    }

    /// Resumes the suspended namespaces that a purge covers.
    pub fn resume_namespaces(&self, scope: &PurgeScope) {
        let mut suspended = lock_ignoring_poison(&self.suspended);
        let covered: Vec<_> = match scope {
            PurgeScope::Everything => suspended.drain().collect(),
            PurgeScope::Namespace(namespace) => {
                suspended.remove_entry(namespace).into_iter().collect()
            }
            _ => Vec::new(),
        };
        drop(suspended);
        for (namespace, is_followed) in covered {
            if let (Some(chain), false) = (self.chains.get(&namespace), is_followed) {
                // as before: nothing reports another chain
                chain.modify_locked_chain_state(|state| state.known = true);
            }
            self.apply_chain_change(&namespace, ChainChange::Wrong(false));
        }
    }

    /// Records that a process has shown a block to a client. If it is above the head, responses
    /// about older heads expire, and all processes are notified.
    pub fn record_shown_block(&self, namespace: &CacheNamespace, sighting: ShownBlock) {
        let Some(chain) = self.chains.get(namespace) else {
            return;
        };
        let mut shared = lock_ignoring_poison(&self.shared);
        if chain.record_block_from_process(sighting) {
            self.queue_chain_state_event(&mut shared, namespace);
        }
    }

    /// Sets the newest blocks of a chain, the newest first, by which
    /// [`verify_block`](crate::cache::chain::NamespaceChain::verify_block) compares. Some of them
    /// are published with the next [change](Self::apply_chain_change). Called before the changes
    /// that the same poll has found: the blocks may be newer than the epoch, never older.
    pub fn set_recent_blocks(
        &self,
        namespace: &CacheNamespace,
        blocks: impl Iterator<Item = (u64, [u8; 32])>,
    ) {
        if let Some(chain) = self.chains.get(namespace) {
            chain.set_recent_blocks(blocks);
        }
    }

    /// Sets the block time of a chain in milliseconds. It is published with the next
    /// [change](Self::apply_chain_change), as it changes little with each block.
    pub fn set_block_time(&self, namespace: &CacheNamespace, milliseconds: Option<u64>) {
        if let Some(chain) = self.chains.get(namespace) {
            chain.modify_locked_chain_state(|state| state.block_time = milliseconds);
        }
    }

    /// Records that the node of a chain has the chain of the namespace, with this identity;
    /// `None` if that is unknown. Notifies all processes.
    pub fn set_chain_identity(&self, namespace: &CacheNamespace, identity: Option<ChainIdentity>) {
        self.change_and_publish_chain_state(namespace, |state| {
            state.known = identity.is_some();
            state.chain_id = identity.and_then(|identity| identity.chain_id);
            state.genesis = identity.map(|identity| identity.genesis);
        });
    }

    /// Clears the chain identities that a purge of `scope` covers, when it begins: the namespaces
    /// may have other chains after it, and processes must not compare responses with the old
    /// identities.
    pub fn clear_chain_identities(&self, scope: &PurgeScope) {
        let namespaces = match scope {
            PurgeScope::Everything => self
                .chains
                .snapshot_chains()
                .into_iter()
                .map(|(it, _)| it)
                .collect(),
            PurgeScope::Namespace(namespace) => vec![*namespace],
            _ => Vec::new(),
        };
        for namespace in namespaces {
            if let Some(chain) = self.chains.get(&namespace) {
                chain.clear_canonical_blocks();
            }
            self.change_and_publish_chain_state(&namespace, |state| {
                state.chain_id = None;
                state.genesis = None;
            });
        }
    }

    /// Returns the highest head that the node of a chain, or a response to a client, has shown;
    /// `None` if the chain is not followed.
    pub fn highest_head_of_chain(&self, namespace: &CacheNamespace) -> Option<u64> {
        Some(self.chains.get(namespace)?.copy_chain_state().seen)
    }

    /// Queues the present state of a chain for all processes.
    pub(super) fn queue_chain_state_event(
        &self,
        shared: &mut OwnerTables,
        namespace: &CacheNamespace,
    ) {
        if let Some(chain) = self.chains.get(namespace) {
            shared.processes.publish_event_to_all(&SessionEvent::Chain {
                namespace: *namespace,
                state: Box::new(chain.copy_chain_state()),
            });
        }
    }
}
