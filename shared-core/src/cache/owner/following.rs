//! Publication of the states of followed chains to the processes; they decide which entries are
//! valid.

use super::now::Now;
use super::state::Owner;
use super::state::Shared;
use super::tracker::Identity;
use crate::cache::chain::{Heights, Move, Sighting, State};
use crate::cache::entry::about::Scope;
use crate::cache::told::Event;
use crate::cache::Namespace;
use crate::lock::locked;

impl Owner {
    /// Starts following the chain of a namespace: none of its blocks counts as final, and no entry
    /// outlives a reorganisation, except as [`moved`](Self::moved) reports.
    pub fn follow(&self, namespace: Namespace, heights: Heights, now: Now) {
        let unknown = || State::unknown(heights, now.unix);
        self.chains.get_or_add(namespace, unknown);
        self.announce_chain(&mut locked(&self.shared), &namespace);
    }

    /// Sets whether the stored entries of a followed chain wait for a check of its node, which may
    /// have another chain than under the last owner.
    pub fn set_unchecked(&self, namespace: &Namespace, is_unchecked: bool) {
        if let Some(chain) = self.chains.get(namespace) {
            chain.set_unchecked(is_unchecked);
        }
    }

    /// Applies a change to a followed chain, and notifies all processes.
    pub fn moved(&self, namespace: &Namespace, by: Move) {
        self.changed(namespace, |state| state.moved(by));
    }

    /// Changes the state of a chain, and notifies all processes if it differs.
    fn changed(&self, namespace: &Namespace, change: impl FnOnce(&mut State)) {
        let Some(chain) = self.chains.get(namespace) else {
            return;
        };
        // serialized: no process receives the older state last
        let mut shared = locked(&self.shared);
        let is_news = chain.change(|state| {
            let before = state.clone();
            change(state);
            *state != before
        });
        if is_news {
            self.announce_chain(&mut shared, namespace);
        }
    }

    /// Suspends a namespace because a response was of another chain: nothing of it is stored or
    /// sent until it is [resumed](Self::resume). Notifies all processes.
    pub fn suspend(&self, namespace: Namespace, now: Now) {
        let is_followed = self.chains.get(&namespace).is_some();
        if locked(&self.suspended)
            .insert(namespace, is_followed)
            .is_none()
        {
            let unknown = || State::unknown(Heights::Blocks, now.unix);
            self.chains.get_or_add(namespace, unknown);
            self.moved(&namespace, Move::Wrong(true));
        }
    }

    /// Resumes the suspended namespaces that a purge covers.
    pub fn resume(&self, scope: &Scope) {
        let mut suspended = locked(&self.suspended);
        let covered: Vec<_> = match scope {
            Scope::Everything => suspended.drain().collect(),
            Scope::Namespace(namespace) => suspended.remove_entry(namespace).into_iter().collect(),
            _ => Vec::new(),
        };
        drop(suspended);
        for (namespace, is_followed) in covered {
            if let (Some(chain), false) = (self.chains.get(&namespace), is_followed) {
                // as before: nothing reports another chain
                chain.change(|state| state.known = true);
            }
            self.moved(&namespace, Move::Wrong(false));
        }
    }

    /// Records that a process has shown a block to a client. If it is above the head, responses
    /// about older heads expire, and all processes are notified.
    pub fn shows(&self, namespace: &Namespace, sighting: Sighting) {
        let Some(chain) = self.chains.get(namespace) else {
            return;
        };
        let mut shared = locked(&self.shared);
        if chain.is_told_of(sighting) {
            self.announce_chain(&mut shared, namespace);
        }
    }

    /// Sets the newest blocks of a chain, the newest first; they are published with the next
    /// [change](Self::moved).
    pub fn knows(&self, namespace: &Namespace, blocks: impl Iterator<Item = (u64, [u8; 32])>) {
        if let Some(chain) = self.chains.get(namespace) {
            chain.change(|state| state.knows(blocks));
        }
    }

    /// Records that the node of a chain has the chain of the namespace, with this identity;
    /// `None` if that is unknown. Notifies all processes.
    pub fn identified(&self, namespace: &Namespace, identity: Option<Identity>) {
        self.changed(namespace, |state| {
            state.known = identity.is_some();
            state.chain_id = identity.and_then(|identity| identity.chain_id);
            state.genesis = identity.map(|identity| identity.genesis);
        });
    }

    /// Clears the chain identities that a purge of `scope` covers, when it begins: the namespaces
    /// may have other chains after it, and processes must not compare responses with the old
    /// identities.
    pub fn forget_identities(&self, scope: &Scope) {
        let namespaces = match scope {
            Scope::Everything => self.chains.all().into_iter().map(|(it, _)| it).collect(),
            Scope::Namespace(namespace) => vec![*namespace],
            _ => Vec::new(),
        };
        for namespace in namespaces {
            self.changed(&namespace, |state| {
                state.chain_id = None;
                state.genesis = None;
            });
        }
    }

    /// The last published state of a chain, and its number, which grows with each publication and
    /// beyond the numbers of an earlier owner. `None` if the chain is not followed.
    pub fn told(&self, namespace: &Namespace) -> Option<(u64, State)> {
        let chain = self.chains.get(namespace)?;
        // first: a change in the meantime has another number
        let number = locked(&self.shared).told.get(namespace).copied()?;
        Some((number, chain.state()))
    }

    /// The highest head of a chain that its node or a response has shown.
    pub fn seen(&self, namespace: &Namespace) -> Option<u64> {
        Some(self.chains.get(namespace)?.state().seen)
    }

    /// Publishes the state of a chain to all processes.
    pub(super) fn announce_chain(&self, shared: &mut Shared, namespace: &Namespace) {
        if let Some(chain) = self.chains.get(namespace) {
            let state = Box::new(chain.state());
            // epochs of owners differ, and count microseconds
            let number = shared.told.entry(*namespace).or_insert(state.epoch);
            *number += 1;
            shared.processes.tell_all(&Event::Chain {
                namespace: *namespace,
                state,
            });
        }
    }
}
