//! The interface of a process to the owner of its machine's entries.
//!
//! The implementation is a [`Link`]: over a connection that a host opens, and by direct calls if the
//! owner runs in this process, or by callouts of a proxy that has no connections of its own. No call
//! blocks. The result of a request is passed to [`ProcessCacheState`] on any thread: it
//! [ends](super::ProcessCacheState::finish_flight_and_wake) the flight of a key, or
//! [hands it over](super::ProcessCacheState::hand_over_flight), and
//! [wakes](super::ProcessCacheState::wake_waiters) the batches that looked up several keys.
//!
//! [`Link`]: crate::cache::link::OwnerLink
//! [`ProcessCacheState`]: super::ProcessCacheState

use std::fmt;
use std::sync::Arc;

use super::flights::{CoalescedFlights, FlightLeadership};
use super::wake::WaitingRequestId;
use crate::cache::chain::{DispatchMark, NamespaceChains, ShownBlock};
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::CacheEntry;
use crate::cache::freshness::{BlockAnchor, FinalityUpgrade};
use crate::cache::{CacheKey, CacheNamespace};

/// The owner's reply to a purge or a status query: an HTTP status and a JSON object.
pub type OwnerAdminReply = (u16, Vec<u8>);

/// The result of a lookup, as far as it is known without a wait for the owner.
#[derive(Debug)]
pub enum OwnerLookup {
    /// The owner has the entry. The flight has ended, and its followers receive the entry.
    Found(Arc<CacheEntry>),
    /// The owner has no entry that can be sent, or is not reachable now: the caller leads the flight.
    /// If the owner has granted a lease, the flight
    /// [has it](CoalescedFlights::record_flight_lease).
    Missing(FlightLeadership),
    /// The owner replies later, and the waiter follows the flight.
    Pending,
}

/// The conditions of a lookup at the owner, apart from its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerLookupOptions {
    /// Whether one follower leads at a time if there is no entry, so that a lease is requested. If
    /// not, all followers send requests of their own.
    pub leases: bool,
    /// Whether the lookup does not wait for a fetch of another process.
    pub skips_wait: bool,
    /// Whether the response may be shared between machines, so that the owner may query the fleet.
    pub is_shareable: bool,
    /// [Kind](crate::cache::owner_protocol::call_kind) of a call whose response may be shared.
    pub call_kind: u32,
}

impl OwnerLookupOptions {
    /// Whether the lookup requests a lease. A lookup that does not wait for a fetch of another
    /// process needs none.
    pub fn requests_lease(self) -> bool {
        self.leases && !self.skips_wait
    }
}

/// The conditions of a lookup of a batch's keys at the owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchLookupOptions {
    /// [Kinds](crate::cache::owner_protocol::call_kind) of the calls of the first keys, whose
    /// responses may be shared between machines.
    pub call_kinds: Vec<u32>,
    /// Maximum time for which the batch waits while other machines fetch, in milliseconds; 0: it
    /// does not wait for them.
    pub max_lease_wait_ms: u64,
}

/// How the owner may use an entry that it stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerStoreOptions {
    /// Conditions under which the owner may make the entry immutable.
    pub if_final: Option<FinalityUpgrade>,
    /// Whether the owner may share the entry with other machines: its key has no header that may
    /// identify the client.
    pub is_shareable: bool,
    /// Block hash by which the owner of another machine can check the entry.
    pub anchor: Option<BlockAnchor>,
}

/// The interface through which the exchanges of a process use the owner: lookups, leases, stores
/// and purges. Any thread may call it.
pub trait OwnerClient: fmt::Debug + Send + Sync {
    /// Whether the owner is reachable as far as is known, so that requests may be sent to it.
    fn is_owner_reachable(&self) -> bool;

    /// Looks up the key of `token`'s flight, one of `flights`, at the owner. An owner that runs in this
    /// process may reply within this call. If it replies later, `waiter` and all other followers of
    /// the flight are woken: with the entry, or to send requests, as the
    /// [options](OwnerLookupOptions::leases) specify. `now` is in milliseconds of the lookups' clock, here
    /// and below.
    ///
    /// An entry that a purge covers must not reach a request that began after the purge came into
    /// effect: no purge comes into effect here between the last comparison of generations and the
    /// end of the flight.
    fn lookup_at_owner(
        &self,
        flights: &CoalescedFlights,
        token: FlightLeadership,
        waiter: WaitingRequestId,
        options: OwnerLookupOptions,
        now: u64,
    ) -> OwnerLookup;

    /// Looks up several keys at the owner for one batch, without a lease of the machine. `waiter` is
    /// woken when it can [claim](Self::take_batch_entries) the entries. Returns `false` if the owner
    /// is not reachable now.
    fn lookup_batch_at_owner(
        &self,
        keys: Vec<CacheKey>,
        options: BatchLookupOptions,
        waiter: WaitingRequestId,
        now: u64,
    ) -> bool;

    /// Takes the entries that [`lookup_batch_at_owner`](Self::lookup_batch_at_owner) has found for
    /// `waiter`, as long as no purge has arrived since; none if it waits no longer.
    fn take_batch_entries(&self, waiter: WaitingRequestId) -> Vec<(CacheKey, Arc<CacheEntry>)>;

    /// Sends an entry to the owner in the background, to be stored for all processes.
    fn store_at_owner(
        &self,
        key: CacheKey,
        entry: Arc<CacheEntry>,
        about: StoredEntryAttributes,
        options: OwnerStoreOptions,
        now: u64,
    );

    /// Returns the lease of a key that this process does not fetch, so that others may.
    fn release_lease(&self, key: CacheKey);

    /// Whether entries in memory may be sent at `monotonic`, in milliseconds of `CLOCK_MONOTONIC`.
    /// They may not while a purge may be in effect in other processes already.
    fn permits_sending_from_memory(&self, monotonic: u64) -> bool;

    /// Generation of the last purge that is in effect here.
    fn purge_generation(&self) -> u64;

    /// Whether no purge has come into effect since `generation` was the result of
    /// [`purge_generation`](Self::purge_generation), so that an entry may be sent to a request that
    /// has waited since then.
    fn is_unpurged_since(&self, generation: u64) -> bool {
        self.purge_generation() == generation
    }

    /// Returns the chains that the owner follows, as far as this process has received their states.
    fn followed_chains(&self) -> &NamespaceChains;

    /// Returns the dispatch mark of a request that is sent to the node, or `None` if the chain of
    /// the namespace is not followed.
    fn dispatch_mark(&self, namespace: &CacheNamespace) -> Option<DispatchMark> {
        Some(
            self.followed_chains()
                .get(namespace)?
                .chain_mark_at_dispatch(),
        )
    }

    /// Reports to the owner a block above the head that is about to be shown to a client; the owner
    /// notifies all processes.
    fn report_shown_block(&self, _namespace: &CacheNamespace, _sighting: ShownBlock) {}

    /// Sends an operator's purge to the owner: `query` has its scope (docs/caching.md, Purging),
    /// and `own` is the namespace if `query` names none. `waiter` is woken when the purge is in
    /// effect everywhere or has failed, and [claims](Self::claim_admin_reply) the reply. A reply
    /// that is known at once is returned.
    fn purge_at_owner(
        &self,
        query: &[u8],
        own: Option<&[u8]>,
        waiter: WaitingRequestId,
        now: u64,
    ) -> Option<OwnerAdminReply>;

    /// Queries the owner's status (docs/owner-protocol.md, HTTP). `waiter` is woken and
    /// [claims](Self::claim_admin_reply) the reply. Returns `false` if the owner is not reachable
    /// now.
    fn query_owner_status(&self, _waiter: WaitingRequestId, _now: u64) -> bool {
        false
    }

    /// Takes the owner's reply to the purge or the status query of `waiter`, which waits no longer,
    /// or returns `None` if there is none.
    fn claim_admin_reply(&self, waiter: WaitingRequestId) -> Option<OwnerAdminReply>;
}
