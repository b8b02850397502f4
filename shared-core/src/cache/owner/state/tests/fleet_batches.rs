//! Lookups of batches that continue in the fleet.

use super::fleet::{open_fleet_session, owner_in_fleet, value_of_result};
use super::sessions::take_messages;
use super::*;
use crate::cache::owner::session_tasks::{FleetBatchLookup, OwnerTask, ShareableCall};
use crate::cache::owner_protocol::owner_message::OwnerMessage;
use crate::cache::owner_protocol::process_message::ProcessMessage;

#[test]
fn batch_queries_the_fleet_for_its_shareable_keys_only() {
    let (owner, _, _) = owner_in_fleet();
    let mut session = open_fleet_session(&owner, "a");
    let keys: Vec<CacheKey> = (1..=3).map(|n| [n; 32]).collect();
    let batch = query_fleet_for_batch(&owner, &mut session, 1);
    let call = |key: CacheKey| ShareableCall { key, call_kind: 7 };
    assert_eq!(batch.calls, [call(keys[0]), call(keys[1])]);
    let values = vec![(keys[1], value_of_result("null"))];
    owner.complete_fleet_batch_lookup(&mut session, batch, values, Vec::new(), at(1));
    assert_eq!(take_batch_reply(&owner, &mut session, 1), [keys[1]]);
}

/// Looks three keys up. The first two may be shared. Returns the lookup in the fleet.
fn query_fleet_for_batch(owner: &Owner, session: &mut OwnerSession, id: u32) -> FleetBatchLookup {
    let message = ProcessMessage::BatchLookup {
        id,
        keys: (1..=3).map(|n| [n; 32]).collect(),
        call_kinds: vec![7; 2],
        fleet_wait: 20,
        lease_wait: 500,
    };
    let tasks = owner.receive_message(session, message, at(0)).unwrap();
    match <[_; 1]>::try_from(tasks) {
        Ok([OwnerTask::QueryFleetBatch(batch)]) => batch,
        other => panic!("{other:?}"),
    }
}

/// Returns the keys of the entries in the complete reply to a batch lookup.
fn take_batch_reply(owner: &Owner, session: &mut OwnerSession, time: u64) -> Vec<CacheKey> {
    let mut messages = take_messages(owner, session, time);
    let end = messages.pop();
    assert!(
        matches!(end, Some(OwnerMessage::BatchEnd { .. })),
        "{end:?}"
    );
    let found = messages.into_iter().map(|message| match message {
        OwnerMessage::BatchFound { key, .. } => key,
        other => panic!("{other:?}"),
    });
    found.collect()
}

/// Completes a lookup with a value of its second key; it waits for its first one.
fn begin_batch_wait(
    owner: &Owner,
    session: &mut OwnerSession,
    batch: FleetBatchLookup,
) -> Vec<OwnerTask> {
    let values = vec![([2; 32], value_of_result("null"))];
    owner.complete_fleet_batch_lookup(session, batch, values, vec![[1; 32]], at(1))
}

#[test]
fn batch_that_waits_for_another_machine_is_replied_to_at_the_end_of_its_wait() {
    let (owner, _, _) = owner_in_fleet();
    let mut session = open_fleet_session(&owner, "a");
    let batch = query_fleet_for_batch(&owner, &mut session, 1);
    let tasks = begin_batch_wait(&owner, &mut session, batch);
    assert_eq!(
        take_messages(&owner, &mut session, 1),
        [OwnerMessage::BatchWait { id: 1 }]
    );
    let Ok([OwnerTask::AwaitFleetBatch(batch, awaited)]) = <[_; 1]>::try_from(tasks) else {
        panic!("the lookup has to wait");
    };
    assert_eq!(awaited, [[1; 32]]);
    let missing = batch.missing_calls(&[]);
    assert_eq!(
        missing.iter().map(|call| call.key).collect::<Vec<_>>(),
        [[1; 32]]
    );
    let generation = owner.owner_store().purge_generation();
    let value = Some((generation, value_of_result("null")));
    let hit = owner.end_fleet_wait(&[1; 32], value, at(200)).unwrap();
    let received = vec![([1; 32], hit)];
    assert!(batch.missing_calls(&received).is_empty());
    owner.complete_fleet_batch_wait(&mut session, batch, received, at(200));
    let mut found = take_batch_reply(&owner, &mut session, 200);
    found.sort_unstable();
    assert_eq!(found, [[1; 32], [2; 32]]);
}

#[test]
fn number_of_waiting_batches_of_a_session_is_limited() {
    let (owner, _, _) = owner_in_fleet();
    let mut session = open_fleet_session(&owner, "a");
    let mut waiting = Vec::new();
    // the second key is found on the machine from the second lookup on
    for id in 1..=64 {
        let batch = query_fleet_for_batch(&owner, &mut session, id);
        let tasks = begin_batch_wait(&owner, &mut session, batch);
        waiting.extend(tasks.into_iter().filter_map(|task| match task {
            OwnerTask::AwaitFleetBatch(batch, _) => Some(batch),
            _ => None,
        }));
        take_messages(&owner, &mut session, 1);
    }
    assert_eq!(waiting.len(), 64);
    let batch = query_fleet_for_batch(&owner, &mut session, 65);
    begin_batch_wait(&owner, &mut session, batch);
    assert!(take_batch_reply(&owner, &mut session, 1).contains(&[2; 32]));
    let ended = waiting.pop().unwrap();
    owner.complete_fleet_batch_wait(&mut session, ended, Vec::new(), at(2));
    take_messages(&owner, &mut session, 2);
    let batch = query_fleet_for_batch(&owner, &mut session, 66);
    begin_batch_wait(&owner, &mut session, batch);
    assert_eq!(
        take_messages(&owner, &mut session, 2),
        [OwnerMessage::BatchWait { id: 66 }]
    );
}
