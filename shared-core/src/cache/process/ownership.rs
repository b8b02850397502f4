//! What a process asks of the owner of its machine's entries, and is told.
//!
//! How the owner is reached is the implementation's business: a [`Link`]
//! over connections that a host carries, calls by a proxy that has no connections
//! of its own, or a library in the same process. No call waits. What comes of a
//! question is given to [`Shared`](super::Shared), on any thread: it
//! [`finish`](super::Shared::finish)es the flight of a key that was looked
//! up, or [`hand`](super::Shared::hand_on)s it on, and
//! [`wake`](super::Shared::wake)s who asked for several.
//!
//! [`Link`]: crate::cache::link::Link

use std::fmt;
use std::sync::Arc;

use super::flights::{Outcome, Token};
use super::wake::Waiter;
use crate::cache::chain::{Chains, Mark, Sighting};
use crate::cache::entry::about::About;
use crate::cache::entry::Entry;
use crate::cache::freshness::IfFinal;
use crate::cache::{Key, Namespace};

/// What the owner said, of a purge or of itself: a status, and a JSON object.
pub type Said = (u16, Vec<u8>);

/// What was fetched for all who follow a flight.
#[derive(Debug)]
pub struct Landing {
    /// Its lead.
    pub token: Token,
    /// What they want.
    pub entry: Arc<Entry>,
    /// The last purge that was known when the node was asked.
    pub generation: u64,
}

/// The owner, as the exchanges of a process see it. Any thread may ask.
pub trait Owner: fmt::Debug + Send + Sync {
    /// Whether it can be asked, as far as is known.
    fn is_up(&self) -> bool;

    /// Whether a request may wait for what another one fetches here.
    fn may_wait(&self) -> bool {
        true
    }

    /// Looks a key up, of this namespace. All that follow the flight of `token` are woken: with
    /// the answer, or one of them to lead (if `leases`), or all to ask alone.
    /// `in_vain`: what other processes fetch meanwhile is not waited for. `now`
    /// is in milliseconds of the look-ups' clock, here and below.
    ///
    /// # Errors
    /// The token: the owner can't be asked now.
    fn ask(
        &self,
        key: Key,
        token: Token,
        namespace: &Namespace,
        leases: bool,
        in_vain: bool,
        now: u64,
    ) -> Result<(), Token>;

    /// Looks several keys of a namespace up, without a lease; `waiter` is woken when it can
    /// [claim](Self::claim_all) what is there. `false`: the owner can't be asked
    /// now.
    fn ask_for_all(&self, keys: Vec<Key>, namespace: &Namespace, waiter: Waiter, now: u64) -> bool;

    /// What [`ask_for_all`](Self::ask_for_all) has found, as long as no purge has
    /// come since; nothing where `waiter` waits no longer.
    fn claim_all(&self, waiter: Waiter) -> Vec<(Key, Arc<Entry>)>;

    /// Gives it an entry, in time. It may be kept for longer `if_final`, as only
    /// the owner can tell.
    fn store(&self, key: Key, entry: Arc<Entry>, about: About, if_final: Option<IfFinal>);

    /// What was fetched is here, and was given to [`store`](Self::store) or
    /// [`give_back`](Self::give_back): those who wait for it may have it once it is
    /// known to hold.
    ///
    /// # Errors
    /// The flight is to be finished at once, with that.
    fn lands(&self, landing: Landing) -> Result<(), (Token, Outcome)> {
        Err((landing.token, Outcome::Answer(landing.entry)))
    }

    /// The process does not fetch it after all: others may.
    fn give_back(&self, key: Key);

    /// Whether what is in memory may be sent at `monotonic`, in milliseconds
    /// of `CLOCK_MONOTONIC`: a purge may hold elsewhere already.
    fn may_send(&self, monotonic: u64) -> bool;

    /// The same of what several wait for, and one has fetched.
    fn may_share(&self, monotonic: u64) -> bool {
        self.may_send(monotonic)
    }

    /// The last purge that holds here.
    fn generation(&self) -> u64;

    /// Whether no other one holds since that was the last, so that what was fetched
    /// meanwhile is for who has waited, too.
    fn holds_since(&self, generation: u64) -> bool {
        self.generation() == generation
    }

    /// What it has said of the chains that it follows.
    fn chains(&self) -> &Chains;

    /// What is known of the chain behind a namespace by a request that goes to the
    /// node; `None`: it is not followed.
    fn mark(&self, namespace: &Namespace, _now: u64) -> Option<Mark> {
        Some(self.chains().get(namespace)?.mark())
    }

    /// A block that [is above the head](crate::cache::chain::Chain::shows) is about to be shown
    /// to a client: all processes are to be told.
    fn shows(&self, _namespace: &Namespace, _sighting: Sighting) {}

    /// Asks for a purge: `query` says what of (docs/caching.md, Purging), and `own`
    /// is the namespace where it does not. `waiter` is woken when it holds
    /// everywhere, or has failed, and [claims](Self::claim_said) what came of it,
    /// unless that is known at once.
    fn ask_to_purge(
        &self,
        query: &[u8],
        own: Option<&[u8]>,
        waiter: Waiter,
        now: u64,
    ) -> Option<Said>;

    /// Asks what it knows of itself (docs/owner-protocol.md, `/v1/status`). `waiter` is
    /// woken, and [claims](Self::claim_said) it. `false`: it can't be asked now.
    fn ask_for_status(&self, _waiter: Waiter, _now: u64) -> bool {
        false
    }

    /// What came of a purge, or of asking for its status; `None`: nothing is known of it,
    /// and `waiter` waits no longer.
    fn claim_said(&self, waiter: Waiter) -> Option<Said>;
}
