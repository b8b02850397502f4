//! Decoding of the owner's entries.

use std::sync::Arc;

use super::background_queue::OwnerBackgroundQueue;
use super::message::OwnerReply;
use super::owner_job::{LookupJob, QueuedOwnerRequest};
use crate::bytes::try_push;
use crate::cache::chain::NamespaceChains;
use crate::cache::entry::CacheEntry;
use crate::cache::link::found_entries::{accept_received_entry, ReceivedEntry};
use crate::cache::link::unclaimed_replies::KeyedEntries;
use crate::cache::process::flights::FlightOutcome;
use crate::cache::process::ProcessCacheState;
use crate::cache::CacheKey;
use crate::memory;

/// Decodes the entry of a reply, and stores it in the hot tier. Returns `None` if it is invalid or
/// does not hold any more, or memory is short.
pub(super) fn decode_entry(
    shared: &ProcessCacheState,
    chains: &NamespaceChains,
    key: &CacheKey,
    answer: OwnerReply,
    now: u64,
) -> Option<Arc<CacheEntry>> {
    let received = ReceivedEntry {
        bytes: answer.body,
        fresh: answer.fresh,
        age: answer.age.saturating_mul(1000),
    };
    accept_received_entry(shared, chains, key, received, now)
}

/// The entries of an answer to several look-ups.
pub(super) fn decode_entries(
    shared: &ProcessCacheState,
    chains: &NamespaceChains,
    answer: &OwnerReply,
    now: u64,
) -> KeyedEntries {
    let mut entries = Vec::new();
    for (key, entry) in answer.decode_entry_list(now) {
        let Some(entry) = entry else {
            shared.count_invalid_entry();
            continue;
        };
        let Some(entry) = connect_entry_with_chain(entry, chains) else {
            continue;
        };
        if entry.is_valid_on_chain() && !memory::is_memory_short() {
            let entry = Arc::new(entry);
            if let Some(hot) = shared.hot_tier() {
                hot.insert_newest(key, &entry);
            }
            // refused: it is not in hand then
            let _ = try_push(&mut entries, (key, entry));
        }
    }
    entries
}

/// An entry of the owner's may tell of a head that is news here. `None`: it is about a head
/// that is known here to be over.
fn connect_entry_with_chain(entry: CacheEntry, chains: &NamespaceChains) -> Option<CacheEntry> {
    let entry = entry.with_owner_chain_dependency(chains)?;
    if let Some(stamp) = entry.chain_dependency() {
        stamp.record_entry_from_owner();
    }
    Some(entry)
}

/// The node is to be asked.
pub(super) fn resolve_lookup_as_miss(
    favours: &mut OwnerBackgroundQueue,
    shared: &ProcessCacheState,
    look_up: LookupJob,
) {
    if look_up.leases {
        shared.wake_waiters(shared.flights.hand_over_leadership(look_up.token));
        shared.wake_waiters(shared.flights.take_released_batches());
    } else {
        shared.wake_waiters(
            shared
                .flights
                .finish_flight(look_up.token, FlightOutcome::NotShareable),
        );
    }
    // if nobody is left who wants it
    for key in shared.flights.take_returnable_leases() {
        favours.push_owner_job(QueuedOwnerRequest::ReleaseLease(key));
    }
}

/// A lease came after whoever asked for it had gone on.
pub(super) fn release_late_lease(
    favours: &mut OwnerBackgroundQueue,
    shared: &ProcessCacheState,
    key: CacheKey,
) {
    // perhaps to fetch it
    if !shared.flights.record_flight_lease(&key) {
        favours.push_owner_job(QueuedOwnerRequest::ReleaseLease(key));
    }
}
