//! Waiting for what another request fetches, or for what the owner of a store
//! has.

use std::sync::Arc;

use crate::cache::chain::Mark;
use crate::cache::entry::Entry;
use crate::cache::process::flights::Turn;
use crate::cache::process::ownership::Owner;
use crate::cache::process::wake::Waiter;
use crate::cache::process::Shared;
use crate::cache::scope::Names;
use crate::cache::Key;

/// A request that waits. Dropped, it waits no longer, and what was its turn is
/// another one's.
#[derive(Debug)]
pub(in crate::exchange) struct Waits {
    shared: Arc<Shared>,
    /// Under which name.
    waiter: Waiter,
    awaited: Awaited,
}

/// What it waits for.
#[derive(Debug)]
pub(in crate::exchange) enum Awaited {
    /// One answer, that another request fetches or the owner of a store has.
    Answer(Key, Since),
    /// What the owner of a store has of a batch.
    Stored,
    /// What other requests fetch for a batch, in a scope that varies on these names. What
    /// the owner had of it is kept.
    Flights(Since, Option<Names>, Option<OfOwner>),
    /// What the owner says of a purge, or of itself.
    Said,
    /// Nothing any more.
    Nothing,
}

/// What was known when a request began to wait.
#[derive(Clone, Debug)]
pub(in crate::exchange) struct Since {
    /// The last purge.
    pub(in crate::exchange) generation: u64,
    /// The chain's state.
    pub(in crate::exchange) mark: Option<Mark>,
}

impl Since {
    /// Whether an answer that came meanwhile is one to it: it may have been asked
    /// for before, and with several event loops a purge may hold by the time that
    /// this one goes on.
    pub(in crate::exchange) fn admits(&self, shared: &Shared, entry: &Entry) -> bool {
        shared.holds_since(self.generation) && entry.answers(self.mark.as_ref())
    }
}

/// What the owner of a store has of a batch.
#[derive(Debug)]
pub(in crate::exchange) struct OfOwner {
    pub(in crate::exchange) entries: Vec<(Key, Arc<Entry>)>,
    /// The last purge that was known when it said so.
    pub(in crate::exchange) generation: u64,
}

/// What came of waiting for a batch.
#[derive(Debug, Default)]
pub(in crate::exchange) struct Came {
    /// What others fetched, if that was waited for.
    pub(in crate::exchange) landed: Option<Vec<(Key, Arc<Entry>)>>,
    /// The names that answers varied on when it began to wait for others.
    pub(in crate::exchange) names: Option<Names>,
    /// What the owner had, if it was asked.
    pub(in crate::exchange) of_owner: Option<OfOwner>,
}

impl Waits {
    pub(in crate::exchange) fn new(
        shared: &Arc<Shared>,
        waiter: Waiter,
        awaited: Awaited,
    ) -> Box<Self> {
        Box::new(Self {
            shared: Arc::clone(shared),
            waiter,
            awaited,
        })
    }

    /// The one answer that it waits for.
    pub(in crate::exchange) fn answer(&self) -> Option<(Key, Since)> {
        match &self.awaited {
            Awaited::Answer(key, since) => Some((*key, since.clone())),
            _ => None,
        }
    }

    /// Whether that is what the owner says of a purge, or of itself.
    pub(in crate::exchange) fn is_for_owner(&self) -> bool {
        matches!(self.awaited, Awaited::Said)
    }

    /// What came of that; `None`: nobody woke it.
    pub(in crate::exchange) fn turn(mut self) -> Option<Turn> {
        let turn = self.shared.flights.claim(self.waiter)?;
        self.awaited = Awaited::Nothing;
        Some(turn)
    }

    /// What came of it for a batch.
    pub(in crate::exchange) fn of_batch(mut self) -> Came {
        let shared = Arc::clone(&self.shared);
        match std::mem::replace(&mut self.awaited, Awaited::Nothing) {
            Awaited::Stored => {
                // before: a purge may come between
                let generation = shared.generation();
                let claim = |owner: &dyn Owner| OfOwner {
                    entries: owner.claim_all(self.waiter),
                    generation,
                };
                Came {
                    of_owner: shared.owner().map(claim),
                    ..Came::default()
                }
            }
            Awaited::Flights(since, names, of_owner) => {
                let mut landed = shared.flights.claim_all(self.waiter);
                landed.retain(|(_, entry)| since.admits(&shared, entry));
                Came {
                    landed: Some(landed),
                    names,
                    of_owner,
                }
            }
            awaited => {
                self.awaited = awaited;
                Came::default()
            }
        }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let (shared, waiter) = (&self.shared, self.waiter);
        shared.forget(waiter);
        match &self.awaited {
            Awaited::Answer(key, _) => shared.leave(key, waiter),
            Awaited::Stored => drop(shared.owner().map(|owner| owner.claim_all(waiter))),
            Awaited::Flights(..) => drop(shared.flights.claim_all(waiter)),
            Awaited::Said => drop(shared.owner().map(|owner| owner.claim_said(waiter))),
            Awaited::Nothing => {}
        }
    }
}
