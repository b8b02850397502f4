//! Lookups that continue in the fleet.

use super::following::{following, SPACE};
use super::sessions::{missing, take_messages};
use super::unchecked_entries::unread;
use super::*;
use crate::cache::chain::{ChainChange, HeightUnit};
use crate::cache::entry::wire::decode_cache_entry;
use crate::cache::fleet::sharing::{NotServable, ServableValue};
use crate::cache::fleet::value::FleetValue;
use crate::cache::freshness::BlockAnchor;
use crate::cache::owner::fleet_gate::FleetGate;
use crate::cache::owner::session_tasks::FleetLookup;
use crate::cache::owner::session_tasks::OwnerTask;
use crate::cache::owner::tracker::ChainIdentity;
use crate::cache::owner_protocol::owner_message::{LeaseReply, OwnerMessage, SessionEvent};
use crate::cache::owner_protocol::process_message::ProcessMessage;

const IDENTITY: ChainIdentity = ChainIdentity {
    chain_id: Some(1),
    genesis: [1; 32],
};

/// A gate that a test opens and closes.
#[derive(Default)]
pub(super) struct TestGate(AtomicBool);

impl FleetGate for TestGate {
    fn is_open(&self, _: u64) -> bool {
        self.0.load(Relaxed)
    }

    fn offer_disk_entry(&self, _: &CacheKey, _: &Arc<OwnerMemoryEntry>, _: u64) {}
}

/// An owner with an open gate to a fleet, whose store has nothing.
pub(super) fn owner_in_fleet() -> (Owner, ModelStore, Arc<TestGate>) {
    let (owner, model) = owner();
    model.disk.is_ready.store(true, Relaxed);
    let gate = Arc::new(TestGate(true.into()));
    owner.set_fleet_gate(Arc::clone(&gate) as _);
    (owner, model, gate)
}

/// Opens a session, whose first messages are taken.
pub(super) fn open_fleet_session(owner: &Owner, process: &str) -> OwnerSession {
    let mut session = open_session(owner, process);
    take_messages(owner, &mut session, 0);
    session
}

fn shareable_lookup(id: u32) -> ProcessMessage {
    ProcessMessage::Lookup {
        id,
        key: KEY,
        lease: Some(1_000),
        fleet_wait: 20,
        call_kind: 7,
    }
}

fn query_fleet(owner: &Owner, session: &mut OwnerSession, message: ProcessMessage) -> FleetLookup {
    let tasks = owner.receive_message(session, message, at(0)).unwrap();
    match <[_; 1]>::try_from(tasks) {
        Ok([OwnerTask::QueryFleet(lookup)]) => lookup,
        other => panic!("{other:?}"),
    }
}

/// The value of an immutable entry that another machine has stored 10 seconds ago.
pub(super) fn value_of_result(result: &str) -> ServableValue {
    let template = unread(0, result);
    ServableValue {
        about: StoredEntryAttributes {
            namespace: SPACE,
            block: Some(10),
            ..template.entry_store_attributes().clone()
        },
        requested_at: at(0).unix - 10_000,
        expires_at: at(0).unix + 50_000,
        entry: template.encoded_bytes().to_vec(),
    }
}

/// The only message, which has an entry.
fn found_entry(messages: Vec<OwnerMessage>) -> (u64, u64, Vec<u8>) {
    match <[_; 1]>::try_from(messages) {
        Ok([OwnerMessage::Found { entry, .. }]) => (
            entry.fresh,
            entry.age,
            entry.bytes.into_joined_bytes().unwrap(),
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn value_of_the_fleet_is_sent_and_stored_like_a_fetched_entry() {
    let (owner, model, _) = owner_in_fleet();
    let mut first = open_fleet_session(&owner, "a");
    let mut second = open_fleet_session(&owner, "b");
    let lookup = query_fleet(&owner, &mut first, shareable_lookup(1));
    // another process waits for the lease meanwhile, and does not query the fleet
    let tasks = owner.receive_message(&mut second, shareable_lookup(1), at(0));
    assert!(tasks.unwrap().is_empty());
    assert_eq!(
        take_messages(&owner, &mut second, 0),
        [missing(1, LeaseReply::Pending)]
    );
    let value = value_of_result("null");
    let tasks = owner.complete_fleet_lookup(&mut first, lookup, Some(value), at(5));
    assert!(tasks.is_empty(), "{tasks:?}");
    let (fresh, age, bytes) = found_entry(take_messages(&owner, &mut first, 5));
    assert_eq!((fresh, age), (49_995, 10_005));
    assert!(decode_cache_entry(&bytes, 0, age, fresh).is_some());
    let events = take_messages(&owner, &mut second, 5);
    assert!(
        events
            .iter()
            .any(|event| matches!(event, OwnerMessage::Event { event: SessionEvent::Filled(key), .. } if *key == KEY)),
        "{events:?}"
    );
    let hit = found(owner.lookup_without_disk_wait(&KEY, at(6)));
    assert!(!hit.kept.claim_fleet_offer(), "the fleet has it");
    owner.write_to_store(&KEY, &hit.kept, at(6)).unwrap();
    let stored = model.contents.entries.lock().unwrap();
    assert!(!stored[&KEY].header.is_shareable, "the fleet has it");
}

#[test]
fn missing_value_leaves_the_lease_to_the_process() {
    let (owner, _, _) = owner_in_fleet();
    let mut session = open_fleet_session(&owner, "a");
    let lookup = query_fleet(&owner, &mut session, shareable_lookup(1));
    let tasks = owner.complete_fleet_lookup(&mut session, lookup, None, at(5));
    assert!(tasks.is_empty());
    assert_eq!(
        take_messages(&owner, &mut session, 5),
        [missing(1, LeaseReply::Granted)]
    );
}

#[test]
fn fleet_is_not_queried_for_unshared_responses_or_behind_a_closed_gate() {
    let (owner, _, gate) = owner_in_fleet();
    let mut session = open_fleet_session(&owner, "a");
    let unshared = ProcessMessage::Lookup {
        id: 1,
        key: KEY,
        lease: None,
        fleet_wait: 0,
        call_kind: 0,
    };
    let tasks = owner.receive_message(&mut session, unshared, at(0));
    assert!(tasks.unwrap().is_empty());
    gate.0.store(false, Relaxed);
    let tasks = owner.receive_message(&mut session, shareable_lookup(2), at(0));
    assert!(tasks.unwrap().is_empty());
    assert_eq!(
        take_messages(&owner, &mut session, 0),
        [
            missing(1, LeaseReply::NoLease),
            missing(2, LeaseReply::Granted)
        ]
    );
}

#[test]
fn direct_lookup_that_misses_is_left_to_a_message_while_the_gate_is_open() {
    let (owner, _, gate) = owner_in_fleet();
    let session = open_fleet_session(&owner, "a");
    let number = owner.session_number(session.id());
    let look_up = |fleet_wait, lease| {
        let reply = owner.lookup_for_session(number, &KEY, lease, fleet_wait, at(0));
        reply.map(|reply| reply.found.err())
    };
    let leases = || owner.owner_status_json()["leases"].clone();
    for lease in [None, Some(1_000)] {
        assert_eq!(look_up(20, lease), None);
    }
    assert_eq!(leases(), 0);
    // the response is not shared between machines
    assert_eq!(look_up(0, Some(1_000)), Some(Some(LeaseReply::Granted)));
    assert_eq!(leases(), 1);
    assert_eq!(look_up(20, Some(1_000)), None);
    gate.0.store(false, Relaxed);
    let closed = look_up(20, Some(1_000));
    assert!(matches!(closed, Some(Some(_))), "{closed:?}");
    gate.0.store(true, Relaxed);
    let entry = immutable_entry(5);
    owner.put_fetched_entry(&KEY, &entry, None, at(0)).unwrap();
    assert_eq!(look_up(20, Some(1_000)), Some(None));
}

#[test]
fn read_of_the_disk_uses_up_the_wait_for_the_fleet() {
    let (owner, model, _) = owner_in_fleet();
    model.disk.is_ready.store(false, Relaxed);
    let mut session = open_fleet_session(&owner, "a");
    for (id, completed_at, queries) in [(1, 19, true), (2, 20, false)] {
        // an entry that can't be read
        let stored = immutable_entry(5);
        owner
            .write_to_store(&[id as u8; 32], &stored, at(0))
            .unwrap();
        let message = ProcessMessage::Lookup {
            id,
            key: [id as u8; 32],
            lease: None,
            fleet_wait: 20,
            call_kind: 0,
        };
        let tasks = owner.receive_message(&mut session, message, at(0)).unwrap();
        let Ok([OwnerTask::ReadStore(lookup)]) = <[_; 1]>::try_from(tasks) else {
            panic!("the disk has to be read");
        };
        let next = owner.complete_lookup(&mut session, lookup, None, at(completed_at));
        assert_eq!(matches!(next, Some(OwnerTask::QueryFleet(_))), queries);
    }
}

#[test]
fn value_is_rejected_if_a_purge_came_while_the_fleet_was_queried() {
    let (owner, _, _) = owner_in_fleet();
    let mut session = open_fleet_session(&owner, "a");
    let lookup = query_fleet(&owner, &mut session, shareable_lookup(1));
    owner
        .purge_entries(&PurgeScope::Namespace(SPACE), || at(1))
        .unwrap();
    let value = value_of_result("null");
    let tasks = owner.complete_fleet_lookup(&mut session, lookup, Some(value), at(5));
    assert!(tasks.is_empty());
    let messages = take_messages(&owner, &mut session, 5);
    assert!(
        messages
            .iter()
            .all(|message| !matches!(message, OwnerMessage::Found { .. })),
        "{messages:?}"
    );
    assert!(matches!(
        owner.lookup_without_disk_wait(&KEY, at(6)),
        OwnerMemoryLookupResult::Missing
    ));
}

#[test]
fn invalid_long_value_is_looked_up_once() {
    let (owner, _, _) = owner_in_fleet();
    let mut session = open_fleet_session(&owner, "a");
    let lookup = query_fleet(&owner, &mut session, shareable_lookup(1));
    let mut value = value_of_result(&format!("[{}1]", "\"0x00\",".repeat(9_000)));
    let end = value.entry.len() - 1;
    value.entry[end] ^= 0xff;
    let tasks = owner.complete_fleet_lookup(&mut session, lookup, Some(value), at(5));
    let Ok([OwnerTask::CheckEntry(lookup, hit)]) = <[_; 1]>::try_from(tasks) else {
        panic!("the entry has to be checked");
    };
    assert!(owner.check_entry_strictly(&KEY, &hit.kept).is_none());
    assert!(owner
        .complete_lookup(&mut session, lookup, None, at(6))
        .is_none());
    let messages = take_messages(&owner, &mut session, 6);
    assert!(
        matches!(messages[..], [OwnerMessage::Missing { .. }]),
        "{messages:?}"
    );
}

/// An owner in a fleet, whose node has the blocks 90 to 100. Block 90 is final.
fn following_in_fleet() -> (Owner, ModelStore) {
    let (owner, model) = following();
    model.disk.is_ready.store(true, Relaxed);
    owner.set_fleet_gate(Arc::new(TestGate(true.into())));
    owner.set_chain_identity(&SPACE, Some(IDENTITY));
    owner.apply_chain_change(&SPACE, ChainChange::Final(Some(90)));
    let blocks = (90..=100).rev().map(|height| (height, [height as u8; 32]));
    owner.set_recent_blocks(&SPACE, blocks);
    (owner, model)
}

/// An immutable value of another machine about this block.
fn value_of_block(height: u64) -> FleetValue {
    let ServableValue {
        about,
        requested_at,
        expires_at,
        entry,
    } = value_of_result("null");
    FleetValue {
        about: StoredEntryAttributes {
            block: Some(height),
            height: Some(height),
            ..about
        },
        anchor: Some(BlockAnchor::ByResult {
            height,
            hash: [height as u8; 32],
        }),
        identity: IDENTITY,
        heights: HeightUnit::Blocks,
        position: 1,
        requested_at,
        expires_at,
        stored_at: requested_at,
        entry,
    }
}

#[test]
fn entry_of_another_machine_has_the_epoch_and_the_class_of_its_check() {
    for (height, class) in [
        (90, LifetimeClass::Immutable),
        (95, LifetimeClass::Unfinalized),
    ] {
        let (owner, _) = following_in_fleet();
        let mut session = open_fleet_session(&owner, "a");
        let lookup = query_fleet(&owner, &mut session, shareable_lookup(1));
        let epoch = owner.chain_state_of_namespace(&SPACE).unwrap().epoch;
        let value = owner
            .check_fleet_value(value_of_block(height), at(1))
            .unwrap();
        // a reorganisation of later blocks
        owner.apply_chain_change(&SPACE, ChainChange::Reorg { from: 96 });
        owner.complete_fleet_lookup(&mut session, lookup, Some(value), at(1));
        let hit = found(owner.lookup_without_disk_wait(&KEY, at(1)));
        let about = hit.kept.entry_store_attributes();
        assert_eq!((about.epoch, about.class), (epoch, class));
        assert_eq!(about.height, Some(height));
        let decoded = decode_cache_entry(hit.kept.encoded_bytes(), 0, 0, 1).unwrap();
        let meta = decoded.response_metadata();
        assert_eq!((meta.class, meta.follows), (class, Some((SPACE, epoch))));
        owner.apply_chain_change(&SPACE, ChainChange::Reorg { from: 90 });
        let lookup = owner.lookup_without_disk_wait(&KEY, at(1));
        let is_found = matches!(lookup, OwnerMemoryLookupResult::Found(_));
        assert_eq!(is_found, class == LifetimeClass::Immutable);
    }
}

#[test]
fn value_is_rejected_if_its_block_is_replaced_after_its_check() {
    let (owner, _) = following_in_fleet();
    let mut session = open_fleet_session(&owner, "a");
    let lookup = query_fleet(&owner, &mut session, shareable_lookup(1));
    let value = owner.check_fleet_value(value_of_block(95), at(1)).unwrap();
    owner.apply_chain_change(&SPACE, ChainChange::Reorg { from: 95 });
    let tasks = owner.complete_fleet_lookup(&mut session, lookup, Some(value), at(1));
    assert!(tasks.is_empty());
    let messages = take_messages(&owner, &mut session, 1);
    let is_found = |message: &OwnerMessage| matches!(message, OwnerMessage::Found { .. });
    assert!(!messages.iter().any(is_found), "{messages:?}");
    assert!(matches!(
        owner.lookup_without_disk_wait(&KEY, at(1)),
        OwnerMemoryLookupResult::Missing
    ));
}

#[test]
fn value_of_an_unfollowed_namespace_is_not_servable() {
    let (owner, _, _) = owner_in_fleet();
    let result = owner.check_fleet_value(value_of_block(90), at(1));
    assert_eq!(result, Err(NotServable::UnknownChain));
}

/// Passes the lease of a lookup to the owner, and completes the lookup.
fn wait_for_other_machine(owner: &Owner, session: &mut OwnerSession, mut lookup: FleetLookup) {
    let process = session.process().clone();
    assert!(owner.pass_lease_to_owner(&process, &mut lookup));
    assert!(!owner.pass_lease_to_owner(&process, &mut lookup));
    assert!(owner
        .complete_fleet_lookup(session, lookup, None, at(5))
        .is_empty());
    assert_eq!(
        take_messages(owner, session, 5),
        [missing(1, LeaseReply::Pending)]
    );
}

/// The events of a session about the key of the tests.
fn events_of_key(messages: Vec<OwnerMessage>) -> Vec<SessionEvent> {
    let events = messages.into_iter().filter_map(|message| match message {
        OwnerMessage::Event { event, .. } => Some(event),
        _ => None,
    });
    let is_of_key = |event: &SessionEvent| matches!(event, SessionEvent::Filled(key) | SessionEvent::LeaseReleased(key) if *key == KEY);
    events.filter(is_of_key).collect()
}

#[test]
fn processes_wait_for_the_value_of_another_machine_as_for_the_fill_of_a_process() {
    let (owner, _, _) = owner_in_fleet();
    let mut first = open_fleet_session(&owner, "a");
    let mut second = open_fleet_session(&owner, "b");
    let lookup = query_fleet(&owner, &mut first, shareable_lookup(1));
    wait_for_other_machine(&owner, &mut first, lookup);
    // the process that had the lease waits, too
    for (session, id) in [(&mut first, 2), (&mut second, 2)] {
        let tasks = owner.receive_message(session, shareable_lookup(id), at(6));
        assert!(tasks.unwrap().is_empty());
        assert_eq!(
            take_messages(&owner, session, 6),
            [missing(id, LeaseReply::Pending)]
        );
    }
    let generation = owner.owner_store().purge_generation();
    let value = Some((generation, value_of_result("null")));
    assert!(owner.end_fleet_wait(&KEY, value, at(7)).is_some());
    for session in [&mut first, &mut second] {
        let events = events_of_key(take_messages(&owner, session, 7));
        assert_eq!(events, [SessionEvent::Filled(KEY)]);
    }
    found(owner.lookup_without_disk_wait(&KEY, at(8)));
}

#[test]
fn lease_is_granted_to_one_process_when_no_other_machine_has_stored_a_value() {
    let (owner, _, _) = owner_in_fleet();
    let mut first = open_fleet_session(&owner, "a");
    let mut second = open_fleet_session(&owner, "b");
    let lookup = query_fleet(&owner, &mut first, shareable_lookup(1));
    wait_for_other_machine(&owner, &mut first, lookup);
    let tasks = owner.receive_message(&mut second, shareable_lookup(1), at(6));
    assert!(tasks.unwrap().is_empty());
    take_messages(&owner, &mut second, 6);
    assert!(owner.end_fleet_wait(&KEY, None, at(7)).is_none());
    for session in [&mut first, &mut second] {
        // they look the key up again, and wait again
        let events = events_of_key(take_messages(&owner, session, 7));
        assert_eq!(events, [SessionEvent::Filled(KEY)]);
    }
    let lookup = query_fleet(&owner, &mut second, shareable_lookup(2));
    assert!(lookup.has_lease());
    let tasks = owner.receive_message(&mut first, shareable_lookup(2), at(8));
    assert!(tasks.unwrap().is_empty());
    assert_eq!(
        take_messages(&owner, &mut first, 8),
        [missing(2, LeaseReply::Pending)]
    );
}

#[test]
fn value_of_another_machine_that_was_purged_during_the_wait_ends_the_lease() {
    let (owner, _, _) = owner_in_fleet();
    let mut session = open_fleet_session(&owner, "a");
    let lookup = query_fleet(&owner, &mut session, shareable_lookup(1));
    wait_for_other_machine(&owner, &mut session, lookup);
    let generation = owner.owner_store().purge_generation();
    owner
        .purge_entries(&PurgeScope::Key(KEY), || at(6))
        .unwrap();
    let value = Some((generation, value_of_result("null")));
    assert!(owner.end_fleet_wait(&KEY, value, at(7)).is_none());
    let events = events_of_key(take_messages(&owner, &mut session, 7));
    assert_eq!(events, [SessionEvent::Filled(KEY)]);
    let lookup = query_fleet(&owner, &mut session, shareable_lookup(2));
    assert!(lookup.has_lease());
}

#[test]
fn lease_that_has_ended_is_not_passed_to_the_owner() {
    let (owner, _, _) = owner_in_fleet();
    let mut session = open_fleet_session(&owner, "a");
    let process = session.process().clone();
    let mut lookup = query_fleet(&owner, &mut session, shareable_lookup(1));
    owner.close_session(&session, at(1));
    assert!(!owner.pass_lease_to_owner(&process, &mut lookup));
    assert!(lookup.has_lease());
}
