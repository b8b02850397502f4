//! Sessions: numbered events, send leases, lookups and stores over frames.

use super::following::{following, SPACE};
use super::*;
use crate::cache::freshness::BlockAnchor;
use crate::cache::owner::session::{OwnerSession, SessionEnded};
use crate::cache::owner::session_tasks::{OwnerTask, SessionEnd};
use crate::cache::owner_protocol::frame::{
    split_first_frame, MAX_BODY_BYTES, MAX_CALLOUT_FRAME_BYTES, MAX_CONNECTION_FRAME_BYTES,
};
use crate::cache::owner_protocol::message_body::MessageBody;
use crate::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use crate::cache::owner_protocol::owner_message::{
    LeaseReply, OwnerMessage, PurgeEventScope, RefusalReason, SessionEvent,
};
use crate::cache::owner_protocol::process_message::{ProcessMessage, SessionRequest, StoreRequest};

pub(super) const MAX_ENTRY: u64 = 1 << 20;

pub(super) fn request(process: &str, attempt: u32, clock: u64) -> SessionRequest {
    SessionRequest {
        process: name(process),
        attempt,
        clock,
        polls: false,
    }
}

/// The messages of the next frame after the events up to `from`.
fn take_messages_after(
    owner: &Owner,
    session: &mut OwnerSession,
    from: u64,
    now: u64,
) -> Result<Vec<OwnerMessage>, SessionEnded> {
    let frame = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES).unwrap();
    let frame = owner.take_session_frame(session, from, false, frame, at(now))?;
    match frame.message_count() {
        0 => Ok(Vec::new()),
        _ => Ok(decode_frame(&frame)),
    }
}

/// The messages of a frame.
pub(super) fn decode_frame(frame: &OutgoingFrame) -> Vec<OwnerMessage> {
    let bytes = frame.try_join_pieces().unwrap();
    let (messages, _) = split_first_frame(&bytes, MAX_CALLOUT_FRAME_BYTES)
        .unwrap()
        .unwrap();
    let decode = |raw| OwnerMessage::decode_message(&raw).unwrap().unwrap();
    messages.map(|raw| decode(raw.unwrap())).collect()
}

/// The messages of the next frame of a connection.
pub(super) fn take_messages(
    owner: &Owner,
    session: &mut OwnerSession,
    now: u64,
) -> Vec<OwnerMessage> {
    let from = session.last_sent_event();
    take_messages_after(owner, session, from, now).unwrap()
}

fn receive(owner: &Owner, session: &mut OwnerSession, message: ProcessMessage) -> Vec<OwnerTask> {
    owner.receive_message(session, message, at(0)).unwrap()
}

fn lookup(id: u32) -> ProcessMessage {
    lookup_key(id, KEY)
}

pub(super) fn lookup_key(id: u32, key: CacheKey) -> ProcessMessage {
    ProcessMessage::Lookup {
        id,
        key,
        lease: Some(1_000),
        fleet_wait: 0,
        call_kind: 0,
    }
}

fn store(id: u32, total: usize, first_part: usize) -> ProcessMessage {
    let template = immutable_entry(5);
    ProcessMessage::Store(Box::new(StoreRequest {
        id,
        key: KEY,
        about: template.entry_store_attributes().clone(),
        fresh: 60_000,
        age: 10,
        if_final: None,
        is_shareable: true,
        anchor: None,
        total: total as u64,
        entry: vec![9_u8; first_part].into(),
    }))
}

pub(super) fn missing(id: u32, lease: LeaseReply) -> OwnerMessage {
    OwnerMessage::Missing {
        id,
        generation: 5,
        lease,
    }
}

fn event(number: u64, event: SessionEvent) -> OwnerMessage {
    OwnerMessage::Event { number, event }
}

#[test]
fn first_frame_has_the_chains_and_a_send_lease_before_replies() {
    let (owner, _model) = following();
    let mut session = open_session(&owner, "a");
    receive(&owner, &mut session, lookup(1));
    let messages = take_messages(&owner, &mut session, 0);
    let welcome = OwnerMessage::Welcome {
        session: owner.session_number(session.id()),
        generation: 5,
        event: 0,
    };
    assert_eq!(messages.len(), 4);
    assert_eq!(messages[0], welcome);
    assert!(matches!(
        &messages[1],
        OwnerMessage::Event { number: 1, event: SessionEvent::Chain { namespace, .. } }
            if *namespace == SPACE
    ));
    let lease = OwnerMessage::SendLease {
        until: 1_000,
        after: 1,
        generation: 5,
    };
    assert_eq!(messages[2], lease);
    assert_eq!(messages[3], missing(1, LeaseReply::Granted));
    assert!(!session.has_replies());
    assert_eq!(owner.next_send_lease_due(&session), Some(250));
    assert!(take_messages(&owner, &mut session, 249).is_empty());
    let lease = OwnerMessage::SendLease {
        until: 1_250,
        after: 1,
        generation: 5,
    };
    assert_eq!(take_messages(&owner, &mut session, 250), [lease]);
}

#[test]
fn delayed_session_request_does_not_end_a_newer_session() {
    let (owner, _model) = owner();
    let open = |attempt| owner.open_session(&request("a", attempt, 0), MAX_ENTRY, at(0));
    let mut first = open(1).unwrap();
    let mut second = open(3).unwrap();
    for delayed in [1, 2, 3] {
        assert_eq!(open(delayed).err(), Some(RefusalReason::UnknownSession));
    }
    assert_eq!(take_messages(&owner, &mut second, 0).len(), 2);
    let ended = take_messages_after(&owner, &mut first, 0, 0);
    assert_eq!(ended, Err(SessionEnded));
    owner.close_session(&first, at(0));
    assert_eq!(take_messages(&owner, &mut second, 250).len(), 1);
}

#[test]
fn session_request_that_is_late_or_of_another_clock_is_refused() {
    let (owner, _model) = owner();
    for (attempt, clock, is_refused) in [
        (1, 10_000, false),
        (2, 9_750, false),
        (3, 9_749, true),
        (4, 10_250, false),
        (5, 10_251, true),
    ] {
        let opened = owner.open_session(&request("a", attempt, clock), MAX_ENTRY, at(10_000));
        let expected = is_refused.then_some(RefusalReason::ClockDiffers);
        assert_eq!(opened.err(), expected, "{clock}");
    }
    // a request before the last accepted one was delayed, whatever its clock
    let delayed = owner.open_session(&request("a", 2, 9_000), MAX_ENTRY, at(10_000));
    assert_eq!(delayed.err(), Some(RefusalReason::UnknownSession));
}

#[test]
fn waiting_process_receives_a_numbered_event_when_the_entry_is_stored() {
    let (owner, _model) = owner();
    let (mut leader, mut follower) = (open_session(&owner, "a"), open_session(&owner, "b"));
    receive(&owner, &mut leader, lookup(1));
    receive(&owner, &mut follower, lookup(2));
    let replies = take_messages(&owner, &mut follower, 0);
    assert_eq!(replies.last(), Some(&missing(2, LeaseReply::Pending)));
    let tasks = receive(&owner, &mut leader, store(0, 100, 100));
    assert!(matches!(&tasks[..], [OwnerTask::FinishStore(stored)] if !stored.is_to_be_stored));
    assert_eq!(
        take_messages(&owner, &mut follower, 0),
        [event(1, SessionEvent::Filled(KEY))]
    );
    receive(&owner, &mut follower, lookup(3));
    let replies = take_messages(&owner, &mut follower, 0);
    let [OwnerMessage::Found { id: 3, entry, .. }] = &replies[..] else {
        panic!("{replies:?}");
    };
    assert_eq!((entry.fresh, entry.age, entry.total), (60_000, 10, 100));
    assert_eq!(entry.bytes, MessageBody::from(vec![9_u8; 100]));
}

#[test]
fn stored_entry_has_the_anchor_of_its_request() {
    let anchored = BlockAnchor::ByResult {
        height: 7,
        hash: [3; 32],
    };
    for anchor in [None, Some(anchored)] {
        let (owner, _model) = owner();
        let mut session = open_session(&owner, "a");
        let ProcessMessage::Store(message) = store(0, 100, 100) else {
            panic!();
        };
        let message = ProcessMessage::Store(Box::new(StoreRequest { anchor, ..*message }));
        let tasks = receive(&owner, &mut session, message);
        let [OwnerTask::FinishStore(stored)] = &tasks[..] else {
            panic!("{tasks:?}");
        };
        assert_eq!(stored.entry.block_anchor(), anchor);
        let hit = found(owner.lookup_without_disk_wait(&KEY, at(0)));
        assert_eq!(hit.kept.block_anchor(), anchor);
    }
}

#[test]
fn events_are_repeated_until_they_are_acknowledged() {
    let (owner, _model) = owner();
    let mut session = open_session(&owner, "a");
    take_messages(&owner, &mut session, 0);
    for _ in 0..2 {
        owner
            .purge_entries(&PurgeScope::Key(KEY), || at(0))
            .unwrap();
    }
    let purge = |number, generation| {
        let scope = PurgeEventScope::Key(KEY);
        event(number, SessionEvent::Purge { generation, scope })
    };
    let both = [purge(1, 6), purge(2, 7)];
    for _ in 0..2 {
        let messages = take_messages_after(&owner, &mut session, 0, 0);
        assert_eq!(messages.unwrap(), both);
    }
    let applied = |event, generation| ProcessMessage::Applied { event, generation };
    receive(&owner, &mut session, applied(1, 6));
    let messages = take_messages_after(&owner, &mut session, 0, 0);
    assert_eq!(messages.unwrap(), both[1..]);
    for unknown in [applied(3, 7), applied(2, 8)] {
        let received = owner.receive_message(&mut session, unknown, at(0));
        assert_eq!(received.err(), Some(SessionEnd::UnknownEvent));
    }
}

#[test]
fn lookup_that_needs_the_disk_is_completed_by_its_task() {
    let (owner, _model) = owner();
    owner
        .write_to_store(&KEY, &immutable_entry(5), at(0))
        .unwrap();
    let mut session = open_session(&owner, "a");
    take_messages(&owner, &mut session, 0);
    let mut tasks = receive(&owner, &mut session, lookup(1));
    let Some(OwnerTask::ReadStore(task)) = tasks.pop() else {
        panic!("{tasks:?}");
    };
    assert!(!session.has_replies());
    let hit = owner.lookup_in_store(&task.key, at(0));
    let next = owner.complete_lookup(&mut session, task, hit, at(0));
    assert!(next.is_none());
    let replies = take_messages(&owner, &mut session, 0);
    assert!(matches!(&replies[..], [OwnerMessage::Found { id: 1, .. }]));
}

#[test]
fn long_entry_arrives_and_leaves_in_chunks() {
    let (owner, _model) = owner_with_memory(8 << 20);
    let mut session = open_session(&owner, "a");
    take_messages(&owner, &mut session, 0);
    let length = 2 * MAX_BODY_BYTES + 1;
    assert!(receive(&owner, &mut session, store(8, length, MAX_BODY_BYTES)).is_empty());
    for part in [MAX_BODY_BYTES, 1] {
        let bytes = vec![9_u8; part].into();
        receive(&owner, &mut session, ProcessMessage::Chunk { id: 8, bytes });
    }
    receive(&owner, &mut session, lookup(1));
    receive(&owner, &mut session, ProcessMessage::Release(KEY));
    let mut lengths = Vec::new();
    for _ in 0..4 {
        for message in take_messages(&owner, &mut session, 0) {
            lengths.push(match message {
                OwnerMessage::Found { id: 1, entry, .. } if entry.total == length as u64 => {
                    entry.bytes.byte_length()
                }
                OwnerMessage::Chunk { id: 1, bytes } => bytes.byte_length(),
                other => panic!("{other:?}"),
            });
        }
    }
    assert_eq!(lengths, [MAX_BODY_BYTES, MAX_BODY_BYTES, 1]);
    assert!(!session.has_replies());
}

#[test]
fn batch_lookup_finds_the_entries_that_are_present() {
    let (owner, _model) = owner();
    let mut session = open_session(&owner, "a");
    receive(&owner, &mut session, store(0, 100, 100));
    take_messages(&owner, &mut session, 0);
    let keys = vec![[1; 32], KEY, [2; 32]];
    let batch = ProcessMessage::BatchLookup {
        id: 4,
        keys,
        call_kinds: Vec::new(),
        fleet_wait: 0,
        lease_wait: 0,
    };
    // on its second request it is written to the store
    let tasks = receive(&owner, &mut session, batch);
    assert!(matches!(&tasks[..], [OwnerTask::WriteEntry(KEY, _)]));
    let replies = take_messages(&owner, &mut session, 0);
    let [OwnerMessage::BatchFound {
        id: 4, key: KEY, ..
    }, end] = &replies[..]
    else {
        panic!("{replies:?}");
    };
    let generation = 5;
    assert_eq!(*end, OwnerMessage::BatchEnd { id: 4, generation });
}

#[test]
fn leases_of_a_session_end_with_it() {
    let (owner, _model) = owner();
    let (mut leader, mut follower) = (open_session(&owner, "a"), open_session(&owner, "b"));
    take_messages(&owner, &mut follower, 0);
    receive(&owner, &mut leader, lookup(1));
    receive(&owner, &mut follower, lookup(2));
    let ended = owner.receive_message(&mut leader, ProcessMessage::Goodbye, at(0));
    assert_eq!(ended.err(), Some(SessionEnd::Goodbye));
    owner.close_session(&leader, at(0));
    let expected = [
        missing(2, LeaseReply::Pending),
        event(1, SessionEvent::LeaseReleased(KEY)),
    ];
    assert_eq!(take_messages(&owner, &mut follower, 0), expected);
}

mod sequences {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum SessionStep {
        /// A session request arrives, a number of milliseconds after the process has sent it.
        Open(u8, u64),
        Close(u8),
        /// The next frame is taken: after the events that the process has applied, as for a poll, or
        /// after the events that were taken, as for a connection.
        Take(u8, bool),
        /// A frame that was taken arrives, perhaps again or after later ones.
        Deliver(u8, prop::sample::Index),
        Acknowledge(u8),
        Purge,
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = SessionStep> {
        let process = 0..3_u8;
        prop_oneof![
            2 => (process.clone(), prop_oneof![3 => 0..=250_u64, 1 => 251..2_000_u64])
                .prop_map(|(process, delay)| SessionStep::Open(process, delay)),
            1 => process.clone().prop_map(SessionStep::Close),
            5 => (process.clone(), any::<bool>())
                .prop_map(|(process, polls)| SessionStep::Take(process, polls)),
            6 => (process.clone(), any::<prop::sample::Index>())
                .prop_map(|(process, frame)| SessionStep::Deliver(process, frame)),
            4 => process.prop_map(SessionStep::Acknowledge),
            2 => Just(SessionStep::Purge),
            3 => (1..400_u64).prop_map(SessionStep::Pass),
        ]
    }

    /// A process that follows the protocol: it applies events in their order, and uses a send lease
    /// only after the events before it.
    #[derive(Default)]
    struct ProcessModel {
        session: Option<OwnerSession>,
        attempt: u32,
        /// Frames of the session that were taken, which the network may still deliver.
        frames: Vec<Vec<OwnerMessage>>,
        has_welcome: bool,
        applied: u64,
        /// Purges up to this generation are in effect.
        knows: u64,
        /// End of the send lease.
        until: u64,
    }

    impl ProcessModel {
        fn apply_frame(&mut self, frame: &[OwnerMessage]) {
            for message in frame {
                match message {
                    OwnerMessage::Welcome { generation, .. } => {
                        self.has_welcome = true;
                        self.knows = self.knows.max(*generation);
                    }
                    // the generation is unknown
                    _ if !self.has_welcome => {}
                    OwnerMessage::Event { number, event } if *number == self.applied + 1 => {
                        self.applied = *number;
                        if let SessionEvent::Purge { generation, .. } = event {
                            self.knows = self.knows.max(*generation);
                        }
                    }
                    OwnerMessage::SendLease { until, after, .. } if *after <= self.applied => {
                        self.until = self.until.max(*until);
                    }
                    _ => {}
                }
            }
        }
    }

    proptest! {
        /// When a purge is complete, no process may send entries from before it, whatever frames are
        /// lost, repeated or overtaken; and it is complete after a send lease at the latest.
        #[test]
        fn purge_is_complete_only_when_no_session_can_send_purged_entries(steps in prop::collection::vec(step(), 0..120)) {
            let (owner, _model) = owner();
            // after the send leases of an earlier owner
            let mut now = 10_000;
            let mut models: [ProcessModel; 3] = Default::default();
            let mut begun: Vec<(u64, u64)> = Vec::new();
            for step in steps {
                match step {
                    SessionStep::Open(n, delay) => {
                        let model = &mut models[usize::from(n)];
                        model.attempt += 1;
                        let request = request(&format!("p{n}"), model.attempt, now - delay);
                        let opened = owner.open_session(&request, MAX_ENTRY, at(now));
                        if delay > 250 {
                            // the present session continues
                            prop_assert_eq!(opened.err(), Some(RefusalReason::ClockDiffers));
                        } else {
                            model.session = Some(opened.unwrap());
                            model.frames.clear();
                            (model.has_welcome, model.applied) = (false, 0);
                        }
                    }
                    SessionStep::Close(n) => {
                        if let Some(session) = models[usize::from(n)].session.take() {
                            owner.close_session(&session, at(now));
                        }
                    }
                    SessionStep::Take(n, polls) => {
                        let model = &mut models[usize::from(n)];
                        let applied = model.applied;
                        if let Some(session) = &mut model.session {
                            let from = if polls { applied } else { session.last_sent_event() };
                            let frame = take_messages_after(&owner, session, from, now);
                            model.frames.push(frame.unwrap());
                        }
                    }
                    SessionStep::Deliver(n, frame) => {
                        let model = &mut models[usize::from(n)];
                        if model.session.is_some() && !model.frames.is_empty() {
                            let frame = model.frames[frame.index(model.frames.len())].clone();
                            model.apply_frame(&frame);
                        }
                    }
                    SessionStep::Acknowledge(n) => {
                        let model = &mut models[usize::from(n)];
                        if let Some(session) = &mut model.session {
                            let applied = ProcessMessage::Applied {
                                event: model.applied,
                                generation: model.knows,
                            };
                            owner.receive_message(session, applied, at(now)).unwrap();
                        }
                    }
                    SessionStep::Purge => {
                        let generation = owner.purge_entries(&PurgeScope::Everything, || at(now)).unwrap();
                        begun.push((generation, now));
                    }
                    SessionStep::Pass(time) => now += time,
                }
                for generation in owner.end_leases_and_complete_purges(at(now)) {
                    for model in &models {
                        prop_assert!(model.knows >= generation || now > model.until);
                    }
                }
                for (generation, start) in &begun {
                    prop_assert!(now <= start + 1_000 || !owner.is_purge_incomplete(*generation));
                }
            }
        }
    }
}
