//! What the owner knows of the chains that it follows goes to the processes,
//! and decides which entries hold.

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
    /// From now on the chain behind a namespace is followed: nothing of it is
    /// taken for final, nor kept past a reorganisation, but by what
    /// [`moved`](Self::moved) says.
    pub fn follow(&self, namespace: Namespace, heights: Heights, now: Now) {
        let unknown = || State::unknown(heights, now.unix);
        self.chains.get_or_add(namespace, unknown);
        self.announce_chain(&mut locked(&self.shared), &namespace);
    }

    /// Of a chain that is followed: whether what the store has of it waits until
    /// its node has been looked at. It may be another chain since the last owner.
    pub fn set_unchecked(&self, namespace: &Namespace, is_unchecked: bool) {
        if let Some(chain) = self.chains.get(namespace) {
            chain.set_unchecked(is_unchecked);
        }
    }

    /// What has become of a chain that is followed. All processes are told.
    pub fn moved(&self, namespace: &Namespace, by: Move) {
        self.changed(namespace, |state| state.moved(by));
    }

    /// Changes what is known of a chain, and tells all processes if that is news.
    fn changed(&self, namespace: &Namespace, change: impl FnOnce(&mut State)) {
        let Some(chain) = self.chains.get(namespace) else {
            return;
        };
        // one after the other: no process hears of the older state last
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

    /// An answer was of another chain than the namespace's: nothing of it is stored or sent
    /// until it is [resumed](Self::resume). All processes are told.
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

    /// What was suspended and is covered by a purge is not any more.
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
                // as before: nobody says that it is another one
                chain.change(|state| state.known = true);
            }
            self.moved(&namespace, Move::Wrong(false));
        }
    }

    /// A process has shown a block to a client. If it is above the head, what is true of an
    /// older one is over, and all processes are told.
    pub fn shows(&self, namespace: &Namespace, sighting: Sighting) {
        let Some(chain) = self.chains.get(namespace) else {
            return;
        };
        let mut shared = locked(&self.shared);
        if chain.is_told_of(sighting) {
            self.announce_chain(&mut shared, namespace);
        }
    }

    /// The newest blocks of a chain, the newest first: told with the next
    /// [move](Self::moved).
    pub fn knows(&self, namespace: &Namespace, blocks: impl Iterator<Item = (u64, [u8; 32])>) {
        if let Some(chain) = self.chains.get(namespace) {
            chain.change(|state| state.knows(blocks));
        }
    }

    /// The node of a chain is known to have the chain that the namespace is of, with this
    /// identity; `None`: that is not known. All processes are told.
    pub fn identified(&self, namespace: &Namespace, identity: Option<Identity>) {
        self.changed(namespace, |state| {
            state.known = identity.is_some();
            state.chain_id = identity.and_then(|identity| identity.chain_id);
            state.genesis = identity.map(|identity| identity.genesis);
        });
    }

    /// A purge of `scope` begins, after which namespaces may be of other chains: processes
    /// compare no answer with the identity of before.
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

    /// What processes were told of a chain last, and the number of that: it grows
    /// each time, beyond those of an owner before this one. `None`: it is not
    /// followed.
    pub fn told(&self, namespace: &Namespace) -> Option<(u64, State)> {
        let chain = self.chains.get(namespace)?;
        // first: what changes meanwhile has another one
        let number = locked(&self.shared).told.get(namespace).copied()?;
        Some((number, chain.state()))
    }

    /// The highest head that is known of a chain, by its node or by an answer.
    pub fn seen(&self, namespace: &Namespace) -> Option<u64> {
        Some(self.chains.get(namespace)?.state().seen)
    }

    /// Tells all processes what is known of a chain.
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
