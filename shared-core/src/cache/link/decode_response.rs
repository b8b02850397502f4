//! Decoding of the owner's entries.

use std::sync::Arc;

use super::background_queue::BackgroundQueue;
use super::message::OwnerReply;
use super::owner_job::{LookupJob, OwnerJob};
use super::unclaimed_replies::Entries;
use crate::bytes::push;
use crate::cache::chain::Chains;
use crate::cache::entry::CacheEntry;
use crate::cache::process::flights::FlightOutcome;
use crate::cache::process::Shared;
use crate::cache::resource::other_format_key;
use crate::cache::Key;
use crate::memory;

/// The entry of an answer; `None`: it is none, or does not hold any more, or
/// memory is short.
pub(super) fn decode_entry(
    shared: &Shared,
    chains: &Chains,
    key: &Key,
    answer: OwnerReply,
    now: u64,
) -> Option<Arc<CacheEntry>> {
    // while memory is short nothing is stored
    if memory::is_short() {
        return None;
    }
    let Some(entry) = answer.entry(now) else {
        shared.count_invalid_entry();
        return None;
    };
    let entry = observe_entry(entry, chains)?;
    // what was seen here may be on its way to the owner
    let entry = Some(entry).filter(CacheEntry::holds)?;
    let hot = shared.hot();
    let entry = match hot.and_then(|hot| hot.get_any(&other_format_key(key))) {
        Some(_) => entry.mark_format_unchecked(),
        None => entry,
    };
    let entry = Arc::new(entry);
    if let Some(hot) = hot {
        hot.insert(*key, Arc::clone(&entry));
    }
    Some(entry)
}

/// The entries of an answer to several look-ups.
pub(super) fn decode_entries(
    shared: &Shared,
    chains: &Chains,
    answer: &OwnerReply,
    now: u64,
) -> Entries {
    let mut entries = Vec::new();
    for (key, entry) in answer.entries(now) {
        let Some(entry) = entry else {
            shared.count_invalid_entry();
            continue;
        };
        let Some(entry) = observe_entry(entry, chains) else {
            continue;
        };
        if entry.holds() && !memory::is_short() {
            let entry = Arc::new(entry);
            if let Some(hot) = shared.hot() {
                hot.insert(key, Arc::clone(&entry));
            }
            // refused: it is not in hand then
            let _ = push(&mut entries, (key, entry));
        }
    }
    entries
}

/// An entry of the owner's may tell of a head that is news here. `None`: it is about a head
/// that is known here to be over.
fn observe_entry(entry: CacheEntry, chains: &Chains) -> Option<CacheEntry> {
    let entry = entry.from_owner(chains)?;
    if let Some(stamp) = entry.stamp() {
        stamp.observe_owner_dependency();
    }
    Some(entry)
}

/// The node is to be asked.
pub(super) fn report_miss(favours: &mut BackgroundQueue, shared: &Shared, look_up: LookupJob) {
    if look_up.leases {
        shared.wake(shared.flights.hand_over(look_up.token));
        shared.wake(shared.flights.take_released_batches());
    } else {
        shared.wake(
            shared
                .flights
                .finish(look_up.token, FlightOutcome::NotShareable),
        );
    }
    // if nobody is left who wants it
    for key in shared.flights.take_ended_leases() {
        favours.push(OwnerJob::ReleaseLease(key));
    }
}

/// A lease came after whoever asked for it had gone on.
pub(super) fn release_late_lease(favours: &mut BackgroundQueue, shared: &Shared, key: Key) {
    // perhaps to fetch it
    if !shared.flights.lease(&key) {
        favours.push(OwnerJob::ReleaseLease(key));
    }
}
