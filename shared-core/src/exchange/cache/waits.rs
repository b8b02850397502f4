//! Waiting for a response that another request fetches, or for entries of the owner.

use std::sync::Arc;

use crate::cache::chain::Mark;
use crate::cache::entry::Entry;
use crate::cache::process::flights::Turn;
use crate::cache::process::ownership::Owner;
use crate::cache::process::wake::Waiter;
use crate::cache::process::Shared;
use crate::cache::scope::Names;
use crate::cache::Key;

/// A request that waits. When it is dropped it leaves its flight, and a leadership that was
/// offered to it is handed over.
#[derive(Debug)]
pub(in crate::exchange) struct Waits {
    shared: Arc<Shared>,
    /// Identity under which the request is woken.
    waiter: Waiter,
    awaited: Awaited,
}

/// The event that a request waits for.
#[derive(Debug)]
pub(in crate::exchange) enum Awaited {
    /// One response, which another request fetches or the owner has.
    Answer(Key, Since),
    /// The owner's entries for a batch.
    Stored,
    /// Responses that other requests fetch for a batch, in a scope with these vary headers, and
    /// the entries that the owner had for it.
    Flights(Since, Option<Names>, Option<OfOwner>),
    /// The owner's reply to a purge or status request.
    Said,
    /// The wait has ended.
    Nothing,
}

/// The state when a request began to wait.
#[derive(Clone, Debug)]
pub(in crate::exchange) struct Since {
    /// Generation of the last purge.
    pub(in crate::exchange) generation: u64,
    /// State of the chain.
    pub(in crate::exchange) mark: Option<Mark>,
}

impl Since {
    /// Whether an entry may be sent to the waiting request: it may have been fetched before the
    /// request began, and with several event loops a purge may be in effect before this one
    /// resumes.
    pub(in crate::exchange) fn admits(&self, shared: &Shared, entry: &Entry) -> bool {
        shared.holds_since(self.generation) && entry.answers(self.mark.as_ref())
    }
}

/// The owner's entries for a batch.
#[derive(Debug)]
pub(in crate::exchange) struct OfOwner {
    pub(in crate::exchange) entries: Vec<(Key, Arc<Entry>)>,
    /// Generation of the last purge that was known before the owner's reply was read.
    pub(in crate::exchange) generation: u64,
}

/// The result of waiting for a batch.
#[derive(Debug, Default)]
pub(in crate::exchange) struct Came {
    /// Responses that other requests fetched, if the batch waited for them.
    pub(in crate::exchange) landed: Option<Vec<(Key, Arc<Entry>)>>,
    /// Vary headers when the batch began to wait for other requests.
    pub(in crate::exchange) names: Option<Names>,
    /// Entries of the owner, if it was queried.
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

    /// Returns the key of the single response that the request waits for, and the state at that
    /// time.
    pub(in crate::exchange) fn answer(&self) -> Option<(Key, Since)> {
        match &self.awaited {
            Awaited::Answer(key, since) => Some((*key, since.clone())),
            _ => None,
        }
    }

    /// Whether the request waits for the owner's reply to a purge or status request.
    pub(in crate::exchange) fn is_for_owner(&self) -> bool {
        matches!(self.awaited, Awaited::Said)
    }

    /// Claims the wakeup; `None` if the request was not woken.
    pub(in crate::exchange) fn turn(mut self) -> Option<Turn> {
        let turn = self.shared.flights.claim(self.waiter)?;
        self.awaited = Awaited::Nothing;
        Some(turn)
    }

    /// Claims the result of waiting for a batch.
    pub(in crate::exchange) fn of_batch(mut self) -> Came {
        let shared = Arc::clone(&self.shared);
        match std::mem::replace(&mut self.awaited, Awaited::Nothing) {
            Awaited::Stored => {
                // read before the entries: a purge may occur meanwhile
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
