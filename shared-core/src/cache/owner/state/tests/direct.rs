//! Direct calls: lookups, stores and releases in place of messages.

use super::sessions::{request, MAX_ENTRY};
use super::unchecked_entries::unread;
use super::*;
use crate::cache::owner::direct_calls::DirectStoreResult;
use crate::cache::owner::session::OwnerSession;
use crate::cache::owner_protocol::message_body::MessageBody;
use crate::cache::owner_protocol::owner_message::LeaseReply;
use crate::cache::owner_protocol::process_message::StoreRequest;

/// Opens a session, and returns it with its number.
fn open(owner: &Owner, process: &str) -> (OwnerSession, u64) {
    let request = request(process, 1, 0);
    let session = owner.open_session(&request, MAX_ENTRY, at(0)).unwrap();
    let number = owner.session_number(session.id());
    (session, number)
}

/// Looks `KEY` up with a lease, and returns the generation with the length of the entry or the lease.
fn look_up(owner: &Owner, session: u64) -> Option<(u64, Result<usize, LeaseReply>)> {
    let reply = owner.lookup_for_session(session, &KEY, Some(1_000), 0, at(0))?;
    let found = reply.found.map(|hit| hit.kept.encoded_bytes().len());
    Some((reply.generation, found))
}

fn store(owner: &Owner, session: u64, generation: u64, length: usize) -> DirectStoreResult {
    let store = StoreRequest {
        id: 0,
        key: KEY,
        about: immutable_entry(generation).entry_store_attributes().clone(),
        fresh: 60_000,
        age: 10,
        if_final: None,
        is_shareable: false,
        anchor: None,
        total: length as u64,
        entry: MessageBody::default(),
    };
    owner.store_for_session(session, store, vec![9; length], at(0))
}

#[test]
fn stored_entry_ends_the_lease_and_is_found() {
    let (owner, _model) = owner();
    let ((_a, one), (other, two)) = (open(&owner, "a"), open(&owner, "b"));
    assert_eq!(look_up(&owner, one), Some((5, Err(LeaseReply::Granted))));
    assert_eq!(look_up(&owner, two), Some((5, Err(LeaseReply::Pending))));
    owner.take_notified_sessions();
    let DirectStoreResult::Stored(stored) = store(&owner, one, 5, 100) else {
        panic!();
    };
    assert!(!stored.is_to_be_stored && stored.entry.age_ms(at(0)) == 10);
    assert_eq!(owner.take_notified_sessions(), [other.id()]);
    assert_eq!(look_up(&owner, two), Some((5, Ok(100))));
    // the second fill is worth a write to the disk
    let DirectStoreResult::Stored(stored) = store(&owner, one, 5, 100) else {
        panic!();
    };
    assert!(stored.is_to_be_stored);
}

#[test]
fn released_or_refused_entry_leaves_the_lease_to_another_process() {
    for is_refused in [false, true] {
        let (owner, _model) = owner();
        let ((_a, one), (other, two)) = (open(&owner, "a"), open(&owner, "b"));
        look_up(&owner, one);
        look_up(&owner, two);
        owner.take_notified_sessions();
        match is_refused {
            // of a generation that does not exist
            true => assert!(matches!(
                store(&owner, one, 6, 100),
                DirectStoreResult::Refused
            )),
            false => assert!(owner.release_for_session(one, &KEY, at(0))),
        }
        assert_eq!(owner.take_notified_sessions(), [other.id()]);
        assert_eq!(look_up(&owner, two), Some((5, Err(LeaseReply::Granted))));
        // it is another process's lease now
        assert!(owner.release_for_session(one, &KEY, at(0)));
        assert_eq!(look_up(&owner, one), Some((5, Err(LeaseReply::Pending))));
    }
}

#[test]
fn calls_of_a_session_that_was_closed_or_replaced_are_not_handled() {
    let (owner, _model) = owner();
    let (session, first) = open(&owner, "a");
    let replacing = request("a", 2, 0);
    let second = owner.open_session(&replacing, MAX_ENTRY, at(0)).unwrap();
    let number = owner.session_number(second.id());
    let is_handled = |number| {
        let is_stored = !matches!(store(&owner, number, 5, 100), DirectStoreResult::NotHandled);
        let handled = [
            look_up(&owner, number).is_some(),
            is_stored,
            owner.release_for_session(number, &KEY, at(0)),
        ];
        assert!(handled.iter().all(|it| *it == handled[0]), "{handled:?}");
        handled[0]
    };
    assert!(!is_handled(first) && !is_handled(0) && !is_handled(u64::MAX));
    assert!(is_handled(number));
    owner.close_session(&session, at(0));
    assert!(is_handled(number));
    owner.close_session(&second, at(0));
    assert!(!is_handled(number));
    assert_eq!(owner.owner_status_json()["leases"], 0);
}

#[test]
fn lookup_that_needs_the_disk_or_a_long_check_is_not_handled() {
    let (owner, model) = owner();
    let (_session, number) = open(&owner, "a");
    owner
        .write_to_store(&KEY, &immutable_entry(5), at(0))
        .unwrap();
    assert_eq!(look_up(&owner, number), None);
    model.disk.is_ready.store(true, Relaxed);
    assert_eq!(look_up(&owner, number), Some((5, Ok(100))));
    let numbers = "1,".repeat(20_000);
    for (result, is_handled) in [("null", true), (&*format!("[{numbers}1]"), false)] {
        let entry = unread(5, result);
        owner.put_fetched_entry(&KEY, &entry, None, at(0)).unwrap();
        entry.mark_store_rejected();
        let reply = owner.lookup_for_session(number, &KEY, Some(1_000), 0, at(0));
        assert_eq!(reply.is_some(), is_handled);
        // an entry that was not returned is offered to the store again
        let hit = match reply {
            Some(reply) => reply.found.unwrap(),
            None => found(owner.lookup_without_disk_wait(&KEY, at(0))),
        };
        assert!(hit.is_to_be_stored);
        assert_eq!(hit.kept.length_if_unchecked().is_none(), is_handled);
    }
}

#[test]
fn entry_too_long_for_memory_is_not_stored_by_a_call() {
    let (owner, _model) = owner();
    let (_session, number) = open(&owner, "a");
    look_up(&owner, number);
    assert!(matches!(
        store(&owner, number, 5, 50_000),
        DirectStoreResult::NotHandled
    ));
    // a message stores it, and ends the lease
    assert_eq!(owner.owner_status_json()["leases"], 1);
}

#[test]
fn reply_has_the_generation_before_the_lookup() {
    let (owner, _model) = owner();
    let (_session, number) = open(&owner, "a");
    store(&owner, number, 5, 100);
    assert_eq!(look_up(&owner, number), Some((5, Ok(100))));
    owner
        .purge_entries(&PurgeScope::Everything, || at(0))
        .unwrap();
    assert_eq!(look_up(&owner, number), Some((6, Err(LeaseReply::Granted))));
    assert!(matches!(
        store(&owner, number, 5, 100),
        DirectStoreResult::Refused
    ));
    let reply = owner.lookup_for_session(number, &KEY, None, 0, at(0));
    assert!(matches!(reply.unwrap().found, Err(LeaseReply::NoLease)));
}
