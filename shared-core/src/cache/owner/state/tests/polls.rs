//! Sessions that poll: late replies among the events, lost and overtaken callouts.

use super::sessions::{decode_frame, lookup_key, missing, request, MAX_ENTRY};
use super::*;
use crate::cache::owner::session::{OwnerSession, SessionEnded};
use crate::cache::owner::session_tasks::FleetWait;
use crate::cache::owner::session_tasks::{OwnerTask, SessionLookup};
use crate::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use crate::cache::owner_protocol::owner_message::{
    LeaseReply, OwnerMessage, RefusalReason, SessionEvent,
};
use crate::cache::owner_protocol::process_message::{ProcessMessage, SessionRequest};

fn open(owner: &Owner, attempt: u32) -> Result<OwnerSession, RefusalReason> {
    let request = SessionRequest {
        polls: true,
        ..request("a", attempt, 0)
    };
    owner.open_session(&request, MAX_ENTRY, at(0))
}

fn answer_data(
    owner: &Owner,
    session: &mut OwnerSession,
) -> Result<Vec<OwnerMessage>, SessionEnded> {
    let frame = OutgoingFrame::for_callout().unwrap();
    owner
        .take_data_answer(session, frame, at(0))
        .map(|frame| decode_frame(&frame))
}

fn answer_poll(owner: &Owner, session: &mut OwnerSession, applied: u64) -> Vec<OwnerMessage> {
    let frame = OutgoingFrame::for_callout().unwrap();
    let frame = owner.take_poll_answer(session, applied, frame, at(0));
    decode_frame(&frame.unwrap())
}

/// A polling session, whose first answer was taken.
fn opened(owner: &Owner) -> OwnerSession {
    let mut session = open(owner, 1).unwrap();
    assert_eq!(answer_data(owner, &mut session).unwrap().len(), 2);
    session
}

fn receive(owner: &Owner, session: &mut OwnerSession, message: ProcessMessage) -> Vec<OwnerTask> {
    owner.receive_message(session, message, at(0)).unwrap()
}

/// Looks a key up that the store may have.
fn look_up_on_disk(owner: &Owner, session: &mut OwnerSession, id: u32) -> SessionLookup {
    match receive(owner, session, lookup_key(id, KEY)).pop() {
        Some(OwnerTask::ReadStore(lookup)) => lookup,
        other => panic!("{other:?}"),
    }
}

fn send_lease(after: u64) -> OwnerMessage {
    OwnerMessage::SendLease {
        until: 1_000,
        after,
        generation: 5,
    }
}

fn late_reply(number: u64, messages: u16) -> OwnerMessage {
    let event = SessionEvent::LateReply { messages };
    OwnerMessage::Event { number, event }
}

#[test]
fn late_reply_is_repeated_among_the_events_until_it_is_acknowledged() {
    let (owner, _model) = owner();
    owner
        .write_to_store(&KEY, &immutable_entry(5), at(0))
        .unwrap();
    let mut session = opened(&owner);
    let task = look_up_on_disk(&owner, &mut session, 1);
    assert_eq!(answer_data(&owner, &mut session).unwrap(), [send_lease(0)]);
    assert!(!owner.has_output_after(&session, 0));
    assert!(owner.take_notified_sessions().is_empty());
    assert!(owner
        .complete_lookup(&mut session, task, None, at(0))
        .is_none());
    assert_eq!(owner.take_notified_sessions(), [session.id()]);
    owner
        .purge_entries(&PurgeScope::Key([1; 32]), || at(0))
        .unwrap();
    for _ in 0..2 {
        let messages = answer_poll(&owner, &mut session, 0);
        assert_eq!(
            messages[1..3],
            [late_reply(1, 1), missing(1, LeaseReply::Granted)]
        );
        assert!(matches!(
            messages[3],
            OwnerMessage::Event {
                number: 2,
                event: SessionEvent::Purge { generation: 6, .. }
            }
        ));
        assert_eq!(messages.len(), 4);
    }
    // a data answer has no event, and its lease waits for both
    let messages = answer_data(&owner, &mut session).unwrap();
    assert!(matches!(
        messages[..],
        [OwnerMessage::SendLease { after: 2, .. }]
    ));
    owner.acknowledge_session_events(&mut session, 1).unwrap();
    assert_eq!(answer_poll(&owner, &mut session, 0).len(), 2);
    assert!(owner.is_purge_incomplete(6));
    // the acknowledgement of the event is the purge's
    owner.acknowledge_session_events(&mut session, 2).unwrap();
    assert_eq!(owner.end_leases_and_complete_purges(at(1_001)), [6]);
    assert!(!owner.has_output_after(&session, 2));
    assert!(owner.acknowledge_session_events(&mut session, 3).is_err());
}

#[test]
fn late_reply_with_a_long_body_is_complete_in_one_answer() {
    let (owner, _model) = owner_with_memory(8 << 20);
    let mut session = opened(&owner);
    let task = SessionLookup {
        id: 1,
        key: KEY,
        lease: None,
        generation: 5,
        fleet_wait: FleetWait::default(),
        call_kind: 0,
    };
    let hit = OwnerHit {
        kept: entry_of_class(LifetimeClass::Immutable, 5, 600_000),
        is_to_be_stored: false,
    };
    for _ in 0..60 {
        let hit = Some(hit.clone());
        owner.complete_lookup(&mut session, task, hit, at(0));
    }
    // as many as fit into one frame
    let mut applied = 0;
    for expected in [54, 6] {
        let messages = answer_poll(&owner, &mut session, applied);
        let mut messages = messages.into_iter().skip(1).peekable();
        let mut count = 0;
        while let Some(OwnerMessage::Event { number, event }) = messages.next() {
            let SessionEvent::LateReply { messages: 3 } = event else {
                panic!("{event:?}");
            };
            let parts: Vec<_> = messages.by_ref().take(3).collect();
            assert!(matches!(
                &parts[..],
                [
                    OwnerMessage::Found { .. },
                    OwnerMessage::Chunk { .. },
                    OwnerMessage::Chunk { .. }
                ]
            ));
            applied = number;
            count += 1;
        }
        assert_eq!(count, expected);
        owner
            .acknowledge_session_events(&mut session, applied)
            .unwrap();
    }
    assert_eq!((applied, session.queued_output_bytes()), (60, 0));
}

#[test]
fn replies_that_do_not_fit_into_a_data_answer_become_late() {
    let (owner, _model) = owner();
    let mut session = opened(&owner);
    for id in 0..600 {
        let mut key = KEY;
        key[..4].copy_from_slice(&u32::to_be_bytes(id));
        receive(&owner, &mut session, lookup_key(id, key));
    }
    let messages = answer_data(&owner, &mut session).unwrap();
    let at_once = messages.len() - 1;
    assert!(at_once < 512);
    let messages = answer_poll(&owner, &mut session, 0);
    let rest: Vec<_> = (at_once..600)
        .map(|id| missing(u32::try_from(id).unwrap(), LeaseReply::Granted))
        .collect();
    let replies = messages
        .iter()
        .skip(1)
        .filter(|message| !matches!(message, OwnerMessage::Event { .. }));
    assert!(replies.eq(&rest));
}

#[test]
fn replaced_session_gets_no_lease_and_ends_none() {
    let (owner, _model) = owner();
    owner
        .write_to_store(&KEY, &immutable_entry(5), at(0))
        .unwrap();
    let mut session = opened(&owner);
    let task = look_up_on_disk(&owner, &mut session, 1);
    let newer = open(&owner, 2).unwrap();
    owner.complete_lookup(&mut session, task, None, at(0));
    assert_eq!(answer_data(&owner, &mut session), Err(SessionEnded));
    assert!(owner.has_output_after(&session, 0));
    assert!(granted(&owner, "b"));
    owner.release_lease(&KEY, &name("b"), at(0));
    assert!(granted(&owner, "a"));
    receive(&owner, &mut session, ProcessMessage::Release(KEY));
    owner.close_session(&session, at(0));
    assert!(!granted(&owner, "b"));
    owner.close_session(&newer, at(0));
    assert!(granted(&owner, "c"));
}

mod sequences {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    #[derive(Clone, Debug)]
    enum PollStep {
        /// A data callout with a lookup: of a key that the store may have, or of another. Its answer
        /// may be lost.
        Lookup {
            is_on_disk: bool,
            key: u8,
            is_lost: bool,
        },
        /// A task is complete.
        Complete(Index),
        /// A poll; its answer arrives later.
        Poll,
        /// An answer to a poll arrives, perhaps after later ones.
        Arrive(Index),
        /// An answer to a poll is lost.
        Lose(Index),
    }

    fn step() -> impl Strategy<Value = PollStep> {
        prop_oneof![
            3 => (any::<bool>(), 0..6_u8, any::<bool>())
                .prop_map(|(is_on_disk, key, is_lost)| PollStep::Lookup { is_on_disk, key, is_lost }),
            3 => any::<Index>().prop_map(PollStep::Complete),
            2 => Just(PollStep::Poll),
            2 => any::<Index>().prop_map(PollStep::Arrive),
            1 => any::<Index>().prop_map(PollStep::Lose),
        ]
    }

    /// A process that polls. A lookup whose answer was lost is expired: the lease is released, and
    /// again if it is granted late.
    #[derive(Default)]
    struct PollingProcess {
        applied: u64,
        leases: BTreeSet<CacheKey>,
        expired: BTreeSet<u32>,
        /// Keys of lookups that have no reply.
        open: HashMap<u32, CacheKey>,
        releases: Vec<CacheKey>,
    }

    impl PollingProcess {
        fn receive_reply(&mut self, message: &OwnerMessage) {
            let OwnerMessage::Missing { id, lease, .. } = message else {
                panic!("{message:?}");
            };
            let key = self.open.remove(id).expect("one reply for each lookup");
            if *lease == LeaseReply::Granted {
                match self.expired.contains(id) {
                    true => self.releases.push(key),
                    false => drop(self.leases.insert(key)),
                }
            }
        }

        fn receive_poll(&mut self, messages: &[OwnerMessage]) {
            let mut messages = messages.iter();
            while let Some(message) = messages.next() {
                let OwnerMessage::Event { number, event } = message else {
                    assert!(matches!(message, OwnerMessage::SendLease { .. }));
                    continue;
                };
                let SessionEvent::LateReply { messages: count } = event else {
                    panic!("{event:?}");
                };
                let replies: Vec<_> = messages.by_ref().take(usize::from(*count)).collect();
                if *number == self.applied + 1 {
                    self.applied = *number;
                    for reply in replies {
                        self.receive_reply(reply);
                    }
                }
            }
        }
    }

    proptest! {
        /// Whatever callouts are lost or overtake each other: each lookup has one reply, unless the
        /// answer to its own callout was lost, and no lease is left that the process does not know.
        #[test]
        fn lost_and_overtaken_callouts_lose_no_reply_and_no_lease(steps in prop::collection::vec(step(), 0..60)) {
            let (owner, _model) = owner();
            let on_disk = |key: u8| [key + 100; 32];
            for key in 0..6 {
                owner.write_to_store(&on_disk(key), &immutable_entry(5), at(0)).unwrap();
            }
            let mut session = opened(&owner);
            let mut process = PollingProcess::default();
            let mut tasks = Vec::new();
            let mut polls: Vec<Vec<OwnerMessage>> = Vec::new();
            let mut id = 0;
            for step in steps {
                match step {
                    PollStep::Lookup { is_on_disk, key, is_lost } => {
                        id += 1;
                        let key = if is_on_disk { on_disk(key) } else { [key; 32] };
                        owner.acknowledge_session_events(&mut session, process.applied).unwrap();
                        for key in process.releases.drain(..) {
                            receive(&owner, &mut session, ProcessMessage::Release(key));
                        }
                        for task in receive(&owner, &mut session, lookup_key(id, key)) {
                            match task {
                                OwnerTask::ReadStore(lookup) => tasks.push(lookup),
                                other => panic!("{other:?}"),
                            }
                        }
                        let answer = answer_data(&owner, &mut session).unwrap();
                        process.open.insert(id, key);
                        if is_lost {
                            process.expired.insert(id);
                            process.leases.remove(&key);
                            process.releases.push(key);
                        } else {
                            answer[1..].iter().for_each(|reply| process.receive_reply(reply));
                        }
                    }
                    PollStep::Complete(index) => {
                        if !tasks.is_empty() {
                            let lookup = tasks.swap_remove(index.index(tasks.len()));
                            owner.complete_lookup(&mut session, lookup, None, at(0));
                        }
                    }
                    PollStep::Poll => {
                        owner.acknowledge_session_events(&mut session, process.applied).unwrap();
                        polls.push(answer_poll(&owner, &mut session, process.applied));
                    }
                    PollStep::Arrive(index) => {
                        if !polls.is_empty() {
                            process.receive_poll(&polls.swap_remove(index.index(polls.len())));
                        }
                    }
                    PollStep::Lose(index) => {
                        if !polls.is_empty() {
                            polls.swap_remove(index.index(polls.len()));
                        }
                    }
                }
            }
            for lookup in tasks {
                owner.complete_lookup(&mut session, lookup, None, at(0));
            }
            let answer = answer_poll(&owner, &mut session, process.applied);
            process.receive_poll(&answer);
            // lost with the answer to their callout
            prop_assert!(process.open.keys().all(|id| process.expired.contains(id)));
            for key in process.releases.drain(..).chain(process.leases) {
                receive(&owner, &mut session, ProcessMessage::Release(key));
            }
            prop_assert_eq!(&owner.owner_status_json()["leases"], 0);
        }
    }
}
