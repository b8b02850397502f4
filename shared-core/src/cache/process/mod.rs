//! State that the exchanges of a process share.
//!
//! [`hot`] stores entries within a number of bytes, [`flights`] coalesces requests, [`wake`]
//! resumes waiting requests, and [`owner_client`] is the interface to the owner. These tables have
//! a fixed size: [`vary_table`] has the headers on which responses depend, [`key_cache`] the keys
//! of calls that were hits, [`confirmations`] the results that need a confirmation,
//! [`invalidations`] the invalidations by requests, and [`negative_cache`] the keys whose responses
//! were not stored. [`upstream_errors`] are counted by kind, [`chain_identities`] identify the
//! chains, and [`derived_logs`] are compared with the node's. [`log_splits`] and other events are
//! counted in [`event_counts`].

pub mod block_sizes;
pub mod chain_identities;
pub mod confirmations;
pub mod derived_logs;
pub mod event_counts;
pub mod flights;
pub mod hot;
pub mod invalidations;
pub mod key_cache;
pub mod log_splits;
pub mod logged_namespaces;
pub mod negative_cache;
pub mod owner_client;
mod per_loop;
pub mod upstream_errors;
pub mod vary_table;
pub mod verification;
pub mod wake;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use self::block_sizes::BlockTransactionCounts;
use self::chain_identities::ReportedChainIdentities;
use self::confirmations::UnconfirmedResultTable;
use self::derived_logs::DerivedLogsTrust;
use self::event_counts::EventCounts;
use self::flights::{CoalescedFlights, FlightChange, FlightLeadership, FlightOutcome};
use self::hot::HotTier;
use self::invalidations::InvalidatedRequestTargets;
use self::key_cache::CallKeyCache;
use self::log_splits::LogSplitEvent;
use self::logged_namespaces::LoggedNamespaces;
use self::negative_cache::NegativeCache;
use self::owner_client::OwnerClient;
use self::upstream_errors::ERROR_KINDS;
use self::vary_table::VaryTable;
use self::verification::HitVerificationTracker;
use self::wake::{EventLoopId, EventLoopWaker, EventLoopWakers, WaitingRequestId};
use super::entry::CacheEntry;
use super::resource::other_format_key;
use super::CacheKey;
use crate::memory::MemoryBudget;

/// A handle to the memory budget and the state that all exchanges of one process share. It is cheap
/// to clone, and any number of threads may use it.
#[derive(Clone, Debug, Default)]
pub struct ProcessResources {
    /// Memory budget of buffered bodies.
    pub budget: MemoryBudget,
    /// Number of long responses that may be transcoded at a time; not bytes.
    pub transcodings: MemoryBudget,
    /// The cache and the flights.
    pub shared: Arc<ProcessCacheState>,
}

impl From<MemoryBudget> for ProcessResources {
    fn from(budget: MemoryBudget) -> Self {
        Self {
            budget,
            ..Self::default()
        }
    }
}

/// The cache state that all exchanges of one process share: the hot tier, the flights, and what is
/// known of keys, chains and nodes.
#[derive(Debug, Default)]
pub struct ProcessCacheState {
    hot_tier: OnceLock<HotTier>,
    owner_client: OnceLock<Arc<dyn OwnerClient>>,
    /// Coalesced requests.
    pub flights: CoalescedFlights,
    /// Headers on which responses depend.
    pub vary_table: VaryTable,
    /// Invalidations by requests.
    pub changes: InvalidatedRequestTargets,
    /// Keys of calls that were hits.
    pub call_keys: CallKeyCache,
    /// Results that are cached after a confirmation only.
    pub unconfirmed_results: UnconfirmedResultTable,
    /// Keys whose last response was not stored, for which no request waits for a second.
    pub negative_cache: NegativeCache<1_000>,
    /// Keys of entries that were stored and failed the strict check, for ten minutes.
    pub strict_check_keys: NegativeCache<600_000>,
    /// Results of hit verification.
    pub verified: HitVerificationTracker,
    /// Numbers of transactions of the blocks that were seen.
    pub block_sizes: BlockTransactionCounts,
    /// Comparisons of logs that are derived from receipts with the node's.
    pub derived_logs: DerivedLogsTrust,
    /// Calls for logs that were split.
    pub log_splits: EventCounts<{ LogSplitEvent::ALL.len() }>,
    /// Properties of chains that responses have shown.
    pub identities: ReportedChainIdentities,
    /// Namespaces that receive requests of an API whose chain they do not follow.
    pub other_api: LoggedNamespaces,
    /// Failed upstream requests and JSON-RPC errors.
    pub upstream_errors: EventCounts<ERROR_KINDS>,
    wakers: EventLoopWakers,
    /// Number of the last request to a node.
    last_dispatch_number: AtomicU64,
    /// Number of the owner's entries that can't be sent and were not counted yet.
    invalid: AtomicU64,
}

impl ProcessCacheState {
    /// Returns the number of a request that is about to be sent to a node: the number of a later
    /// request of this process is greater.
    pub fn next_dispatch_number(&self) -> u64 {
        self.last_dispatch_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts an entry that the owner sent and that can't be sent to a client.
    pub fn count_invalid_entry(&self) {
        self.invalid.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the number of invalid entries of the owner that were counted since the last call.
    pub fn take_invalid_count(&self) -> u64 {
        match self.invalid.load(Ordering::Relaxed) {
            // the usual case
            0 => 0,
            _ => self.invalid.swap(0, Ordering::Relaxed),
        }
    }

    /// Creates the hot tier, of at most `bytes`, with entries of at most `max_entry` bytes, for
    /// `event_loops` event loops; a larger `max_entry` leads to fewer shards. A host that forks
    /// calls it after the fork. Only the first call has an effect.
    pub fn start_hot_tier(&self, bytes: u64, max_entry: u64, event_loops: usize) {
        self.hot_tier
            .get_or_init(|| HotTier::new(bytes, max_entry, event_loops));
        self.split_tables_by_loop(event_loops);
    }

    /// Gives each event loop, which runs on a thread of its own, its own copy of the tables that
    /// nearly all requests read and few change. Only the first call has an effect.
    pub fn split_tables_by_loop(&self, event_loops: usize) {
        self.call_keys.create_loop_tables(event_loops);
        self.vary_table.create_loop_tables(event_loops);
    }

    /// Returns the hot tier, or `None` before [`start_hot_tier`](Self::start_hot_tier). A host
    /// without a cache has none.
    pub fn hot_tier(&self) -> Option<&HotTier> {
        self.hot_tier.get()
    }

    /// Whether responses are stored anywhere: here, or by an owner.
    pub fn has_response_storage(&self) -> bool {
        self.hot_tier().is_some() || self.owner_client().is_some()
    }

    /// Connects the process to an owner, whose client is used by all exchanges from then on. Only
    /// the first call has an effect.
    pub fn set_owner_client(&self, owner: Arc<dyn OwnerClient>) {
        // a second call does not replace the owner
        let _ = self.owner_client.set(owner);
    }

    /// Returns the client of the owner, or `None` if the process has not [joined](Self::set_owner_client)
    /// one.
    pub fn owner_client(&self) -> Option<&dyn OwnerClient> {
        self.owner_client.get().map(|owner| &**owner)
    }

    /// Whether entries in memory may be sent at `monotonic`, in milliseconds of `CLOCK_MONOTONIC`.
    /// They may not while a purge may be in effect in other processes already.
    pub fn may_send_from_memory(&self, monotonic: u64) -> bool {
        self.owner_client()
            .is_none_or(|owner| owner.permits_sending_from_memory(monotonic))
    }

    /// Whether a response that is fetched now can probably be sent to other requests: without an owner
    /// that permits it, each request fetches its own.
    pub fn may_coalesce(&self, monotonic: u64) -> bool {
        self.owner_client().is_none_or(|owner| {
            owner.is_owner_reachable() || owner.permits_sending_from_memory(monotonic)
        })
    }

    /// Generation of the last purge that is in effect here.
    pub fn purge_generation(&self) -> u64 {
        self.owner_client().map_or(0, OwnerClient::purge_generation)
    }

    /// Whether no purge has come into effect since `generation`, see
    /// [`OwnerClient::is_unpurged_since`].
    pub fn is_unpurged_since(&self, generation: u64) -> bool {
        self.owner_client()
            .is_none_or(|owner| owner.is_unpurged_since(generation))
    }

    /// Ends a flight with [`CoalescedFlights::finish_flight`], and wakes its followers.
    pub fn finish_flight_and_wake(&self, token: FlightLeadership, outcome: FlightOutcome) {
        self.apply_flight_change(self.flights.finish_flight(token, outcome));
    }

    /// Sends a fetched response to the followers of its flight, unless a purge came into effect after
    /// `generation`, the purge generation when the request was sent to the node.
    pub fn publish_to_followers(
        &self,
        token: FlightLeadership,
        entry: Arc<CacheEntry>,
        generation: u64,
    ) {
        // a purge may come into effect on another thread, and a request may follow after it
        let change = self.flights.finish_flight_with(token, || {
            match self.purge_generation() == generation {
                true => FlightOutcome::Answer(entry),
                false => FlightOutcome::NotShareable,
            }
        });
        self.apply_flight_change(change);
    }

    /// Hands a flight over with [`CoalescedFlights::hand_over_leadership`], and wakes the next leader.
    pub fn hand_over_flight(&self, token: FlightLeadership) {
        self.apply_flight_change(self.flights.hand_over_leadership(token));
    }

    /// Removes a follower that waits no longer with [`CoalescedFlights::remove_follower`], and wakes the
    /// next leader.
    pub fn leave_flight(&self, key: &CacheKey, waiter: WaitingRequestId) {
        self.apply_flight_change(self.flights.remove_follower(key, waiter));
    }

    fn apply_flight_change(&self, change: FlightChange) {
        let ended_lease = self.wake_flight_waiters(change);
        if let (Some(key), Some(owner)) = (ended_lease, self.owner_client()) {
            owner.release_lease(key);
        }
    }

    /// Wakes the next leader and the released requests. Returns the key of a lease to be returned.
    pub fn wake_flight_waiters(&self, change: FlightChange) -> Option<CacheKey> {
        self.wake_waiters(change.next_leader.into_iter().chain(change.released));
        change.ended_lease
    }

    /// Removes purged entries: both formats of `key`, or all entries if there is no key.
    pub fn purge_hot_tier(&self, key: Option<CacheKey>) {
        match (self.hot_tier(), key) {
            (Some(hot), Some(key)) => {
                for key in [key, other_format_key(&key)] {
                    drop(hot.remove(&key));
                }
            }
            // entries in memory have no purge scope; valid ones return from the owner. They are not
            // searched or freed here, as the event loop has other requests to serve
            (Some(hot), None) => hot.invalidate_all_entries(),
            (None, _) => {}
        }
    }

    /// Registers an event loop of the host, whose waiting requests `waker` resumes.
    pub fn add_event_loop(&self, waker: Arc<dyn EventLoopWaker>) -> EventLoopId {
        self.wakers.add_event_loop(waker)
    }

    /// Wakes waiting requests, which look up again: their response has arrived, or will not arrive.
    pub fn wake_waiters(&self, waiters: impl IntoIterator<Item = WaitingRequestId>) {
        self.wakers.wake(waiters);
    }

    /// Removes a waiter that no longer waits and must not be woken.
    pub fn forget_waiter(&self, waiter: WaitingRequestId) {
        self.wakers.cancel_wakeup(waiter);
    }
}
