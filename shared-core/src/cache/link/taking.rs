//! Decoding of the owner's entries.

use std::sync::Arc;

use super::claims::Entries;
use super::favours::Favours;
use super::job::{Job, LookUp};
use super::message::Answer;
use crate::bytes::push;
use crate::cache::chain::Chains;
use crate::cache::entry::Entry;
use crate::cache::process::flights::Outcome;
use crate::cache::process::Shared;
use crate::cache::resource::other_form;
use crate::cache::Key;
use crate::memory;

/// The entry of an answer; `None`: it is none, or does not hold any more, or
/// memory is short.
pub(super) fn take(
    shared: &Shared,
    chains: &Chains,
    key: &Key,
    answer: Answer,
    now: u64,
) -> Option<Arc<Entry>> {
    // while memory is short nothing is stored
    if memory::is_short() {
        return None;
    }
    let Some(entry) = answer.entry(now) else {
        shared.saw_invalid();
        return None;
    };
    let entry = tells(entry, chains)?;
    // what was seen here may be on its way to the owner
    let entry = Some(entry).filter(Entry::holds)?;
    let hot = shared.hot();
    let entry = match hot.and_then(|hot| hot.stale(&other_form(key))) {
        Some(_) => entry.uncompared(),
        None => entry,
    };
    let entry = Arc::new(entry);
    if let Some(hot) = hot {
        hot.insert(*key, Arc::clone(&entry));
    }
    Some(entry)
}

/// The entries of an answer to several look-ups.
pub(super) fn take_all(shared: &Shared, chains: &Chains, answer: &Answer, now: u64) -> Entries {
    let mut entries = Vec::new();
    for (key, entry) in answer.entries(now) {
        let Some(entry) = entry else {
            shared.saw_invalid();
            continue;
        };
        let Some(entry) = tells(entry, chains) else {
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
fn tells(entry: Entry, chains: &Chains) -> Option<Entry> {
    let entry = entry.of_owner(chains)?;
    if let Some(stamp) = entry.stamp() {
        stamp.tell_of_owner();
    }
    Some(entry)
}

/// The node is to be asked.
pub(super) fn fail_open(favours: &mut Favours, shared: &Shared, look_up: LookUp) {
    if look_up.leases {
        shared.wake(shared.flights.hand_on(look_up.token));
        shared.wake(shared.flights.released());
    } else {
        shared.wake(shared.flights.finish(look_up.token, Outcome::Alone));
    }
    // if nobody is left who wants it
    for key in shared.flights.over() {
        favours.push(Job::GiveBack(key));
    }
}

/// A lease came after whoever asked for it had gone on.
pub(super) fn granted_late(favours: &mut Favours, shared: &Shared, key: Key) {
    // perhaps to fetch it
    if !shared.flights.lease(&key) {
        favours.push(Job::GiveBack(key));
    }
}
