//! Sessions over callouts: which callouts are made, and the effect of their results.

use proptest::prelude::*;

use super::*;
use crate::cache::link::callouts::CalloutId;
use crate::cache::link::{OwnerHealthChange, OwnerOutage};
use crate::cache::owner_protocol::callout_envelope::{
    encode_callout_answer, CalloutEnvelope, CalloutRole,
};
use crate::cache::owner_protocol::owner_message::RefusalReason;

/// Number of the session that the tests open.
const SESSION: u64 = 9;

/// A callout that the link has made.
#[derive(Debug)]
struct MadeCallout {
    id: CalloutId,
    role: CalloutRole,
    session: u64,
    applied: u64,
    messages: Vec<ProcessMessage>,
}

impl LinkTestProcess {
    /// Creates a process that makes callouts, which the tests answer.
    fn new_without_session() -> Self {
        let process = Self::new_attached(|link, _| link);
        process.start_hot_tier();
        process.link.start_callouts();
        process
    }

    /// Creates a process with an open session and a poll in flight.
    fn new_in_session() -> (Self, MadeCallout) {
        let host = Self::new_without_session();
        let mut callouts = host.made_callouts();
        host.answer_callout(callouts.remove(0).id, &open_session(0));
        let mut callouts = host.made_callouts();
        assert_eq!(callouts.len(), 1, "{callouts:?}");
        (host, callouts.remove(0))
    }

    /// Returns the callouts that the link makes now.
    fn made_callouts(&self) -> Vec<MadeCallout> {
        let made = std::iter::from_fn(|| {
            let callout = self.link.next_callout(&self.shared, self.now)?;
            let envelope = CalloutEnvelope::decode_body(&callout.body).unwrap();
            assert_eq!(envelope.process.as_str(), "w-1");
            let messages = envelope.messages.into_iter().flatten();
            let messages = messages.map(|raw| {
                ProcessMessage::decode_message(&raw.unwrap())
                    .unwrap()
                    .unwrap()
            });
            Some(MadeCallout {
                id: callout.id,
                role: envelope.role,
                session: envelope.session,
                applied: envelope.applied,
                messages: messages.collect(),
            })
        });
        made.collect()
    }

    /// Returns the only callout that the link makes now.
    fn made_callout(&self) -> MadeCallout {
        let mut made = self.made_callouts();
        assert_eq!(made.len(), 1, "{made:?}");
        made.remove(0)
    }

    fn answer_callout(&self, id: CalloutId, messages: &[OwnerMessage]) {
        let mut frame = OutgoingFrame::for_callout().unwrap();
        for message in messages {
            message.append_to_frame(&mut frame).unwrap();
        }
        let frame = Some(&frame).filter(|frame| frame.message_count() > 0);
        self.respond(id, 200, &encode_callout_answer(frame).unwrap());
    }

    fn respond(&self, id: CalloutId, status: u16, body: &[u8]) {
        let response = Some((status, body));
        self.link
            .handle_callout_result(&self.shared, id, response, self.now);
    }

    fn fail(&self, id: CalloutId) {
        self.link
            .handle_callout_result(&self.shared, id, None, self.now);
    }

    /// Whether a waiter was woken, and has a response; one that was woken to lead ends the flight.
    fn claim_response(&self, waiter: usize) -> Option<bool> {
        match self.claim_wakeup(waiter)? {
            FlightFollowerWakeup::Lead(token) => {
                self.shared
                    .finish_flight_and_wake(token, FlightOutcome::NotShareable);
                Some(false)
            }
            FlightFollowerWakeup::Response(outcome) => {
                Some(matches!(outcome, FlightOutcome::Answer(_)))
            }
        }
    }
}

/// Returns the messages that open a session.
fn open_session(generation: u64) -> [OwnerMessage; 2] {
    [welcome(SESSION, generation), send_lease(2000, 0)]
}

#[test]
fn session_is_requested_with_the_first_lookup() {
    let host = LinkTestProcess::new_without_session();
    let hello = host.made_callout();
    let number = CalloutRole::Data { number: 1 };
    assert_eq!((hello.role, hello.session), (number, 0));
    let ProcessMessage::Hello(request) = &hello.messages[0] else {
        panic!("{hello:?}");
    };
    assert!(request.polls && request.attempt == 1 && request.clock == host.now);
    // the session opens within moments
    host.look_up_key(KEY, 1, true);
    assert!(host.made_callouts().is_empty());
    host.answer_callout(hello.id, &open_session(0));
    let made = host.made_callouts();
    let roles: Vec<_> = made.iter().map(|it| (it.role, it.session)).collect();
    let poll = CalloutRole::Poll { wait: 500 };
    let data = CalloutRole::Data { number: 2 };
    assert_eq!(roles, [(poll, SESSION), (data, SESSION)]);
}

#[test]
fn requests_from_before_the_first_session_may_have_its_entries_until_a_purge() {
    let host = LinkTestProcess::new_without_session();
    assert_eq!(host.link.purge_generation(), 0);
    let hello = host.made_callout();
    host.answer_callout(hello.id, &open_session(5));
    let is_unpurged = || [0, 5].map(|since| host.link.is_unpurged_since(since));
    assert_eq!(is_unpurged(), [true, true]);
    let poll = host.made_callout();
    host.answer_callout(poll.id, &[purge_event(1, 6, PurgeEventScope::Everything)]);
    assert_eq!(is_unpurged(), [false, false]);
}

#[test]
fn messages_gather_while_a_data_callout_is_in_flight() {
    let (host, _) = LinkTestProcess::new_in_session();
    host.look_up_key([1; 32], 1, true);
    let first = host.made_callout();
    host.look_up_key([2; 32], 2, true);
    host.look_up_key([3; 32], 3, true);
    assert!(host.made_callouts().is_empty());
    let granted = missing(request_id(&first.messages[0]).unwrap(), LeaseReply::Granted);
    host.answer_callout(first.id, &[granted]);
    assert_eq!(host.claim_response(1), Some(false));
    let second = host.made_callout();
    // the lease of the first one is returned, too
    let kinds: Vec<_> = second.messages.iter().map(std::mem::discriminant).collect();
    assert_eq!(kinds.len(), 3, "{second:?}");
    assert_eq!(second.messages[0], ProcessMessage::Release([1; 32]));
}

#[test]
fn purge_is_in_effect_before_it_is_acknowledged() {
    let (host, poll) = LinkTestProcess::new_in_session();
    host.insert_fresh_entry(KEY);
    host.answer_callout(
        poll.id,
        &[
            send_lease(2500, 0),
            purge_event(1, 1, PurgeEventScope::Key(KEY)),
        ],
    );
    assert!(!host.is_hot(KEY));
    // the next poll acknowledges it, without a data callout
    let next = host.made_callout();
    assert_eq!(
        (next.role, next.applied),
        (CalloutRole::Poll { wait: 500 }, 1)
    );
    // a repeated event has no effect
    host.insert_fresh_entry(KEY);
    host.answer_callout(
        next.id,
        &[
            purge_event(1, 1, PurgeEventScope::Key(KEY)),
            send_lease(3000, 1),
        ],
    );
    assert!(host.is_hot(KEY) && host.link.permits_sending_from_memory(2999));
}

#[test]
fn send_lease_is_not_shortened_by_an_earlier_answer() {
    let (host, poll) = LinkTestProcess::new_in_session();
    host.look_up_key(KEY, 1, true);
    let data = host.made_callout();
    host.answer_callout(poll.id, &[send_lease(2500, 0)]);
    host.answer_callout(data.id, &[send_lease(2200, 0)]);
    assert!(host.link.permits_sending_from_memory(2499));
}

#[test]
fn failed_callout_ends_the_session_and_its_lookups() {
    for fails_poll in [false, true] {
        let (mut host, poll) = LinkTestProcess::new_in_session();
        host.look_up_key(KEY, 1, true);
        let data = host.made_callout();
        host.fail(if fails_poll { poll.id } else { data.id });
        assert_eq!(host.claim_response(1), Some(false));
        assert!(host.made_callouts().is_empty());
        host.now += RETRY;
        let hello = host.made_callout();
        let ProcessMessage::Hello(request) = &hello.messages[0] else {
            panic!("{hello:?}");
        };
        assert_eq!((request.attempt, hello.session), (2, 0));
        // answers for the lost session have no effect
        let late = found(request_id(&data.messages[0]).unwrap());
        host.answer_callout(data.id, std::slice::from_ref(&late));
        host.answer_callout(poll.id, &[send_lease(9000, 0), late]);
        assert!(!host.link.permits_sending_from_memory(2000));
        host.answer_callout(hello.id, &open_session(0));
        assert_eq!(host.made_callout().role, CalloutRole::Poll { wait: 500 });
    }
}

#[test]
fn refused_session_is_requested_again() {
    let (mut host, poll) = LinkTestProcess::new_in_session();
    let refused = OwnerMessage::Refused(RefusalReason::UnknownSession);
    host.answer_callout(poll.id, &[refused]);
    assert!(host.made_callouts().is_empty());
    assert_eq!(host.link.ms_until_next_callout(host.now), Some(RETRY));
    host.now += RETRY;
    assert_eq!(host.link.ms_until_next_callout(host.now), Some(0));
    let hello = host.made_callout();
    // the purges since then are unknown
    host.insert_fresh_entry(KEY);
    host.answer_callout(hello.id, &open_session(3));
    assert!(!host.is_hot(KEY));
}

#[test]
fn owner_without_these_callouts_is_reported() {
    let mut host = LinkTestProcess::new_without_session();
    for _ in 0..200 {
        for callout in host.made_callouts() {
            host.respond(callout.id, 404, b"{}");
        }
        host.now += 20;
        let change = host.link.take_owner_health_change(host.now);
        if change.is_some() {
            let replaced = OwnerHealthChange::Down(OwnerOutage::OtherVersion);
            assert_eq!(change, Some(replaced));
            return;
        }
    }
    panic!("nothing is reported");
}

#[test]
fn stored_entry_waits_for_a_callout_that_is_made_anyway() {
    let (mut host, _) = LinkTestProcess::new_in_session();
    host.store_at_owner(1, b"1".to_vec());
    assert!(host.made_callouts().is_empty());
    assert_eq!(host.link.ms_until_next_callout(host.now), Some(2));
    host.look_up_key(KEY, 1, true);
    let callout = host.made_callout();
    assert_eq!(callout.messages.len(), 2, "{callout:?}");
    host.answer_callout(
        callout.id,
        &[missing(
            request_id(&callout.messages[0]).unwrap(),
            LeaseReply::NoLease,
        )],
    );
    // but not for long
    host.store_at_owner(2, b"1".to_vec());
    assert!(host.made_callouts().is_empty());
    host.now += 2;
    let callout = host.made_callout();
    assert!(matches!(callout.messages[..], [ProcessMessage::Store(_)]));
}

#[test]
fn long_entry_is_sent_in_parts_with_the_messages_that_gather_meanwhile() {
    let (mut host, _) = LinkTestProcess::new_in_session();
    host.store_at_owner(7, vec![b'1'; 600 << 10]);
    assert!(host.made_callouts().is_empty());
    host.now += 2;
    let first = host.made_callout();
    assert!(matches!(first.messages[..], [ProcessMessage::Store(_)]));
    host.look_up_key([1; 32], 1, true);
    host.store_at_owner(2, b"1".to_vec());
    host.answer_callout(first.id, &[send_lease(2000, 0)]);
    let second = host.made_callout();
    assert!(
        matches!(
            second.messages[..],
            [ProcessMessage::Lookup { .. }, ProcessMessage::Chunk { .. }]
        ),
        "{second:?}"
    );
    host.answer_callout(second.id, &[send_lease(2000, 0)]);
    let third = host.made_callout();
    assert!(matches!(third.messages[..], [ProcessMessage::Chunk { .. }]));
    host.answer_callout(third.id, &[send_lease(2000, 0)]);
    assert!(host.made_callouts().is_empty());
    host.now += 2;
    let last = host.made_callout();
    assert!(matches!(last.messages[..], [ProcessMessage::Store(_)]));
}

#[test]
fn late_reply_is_used_once() {
    let (host, poll) = LinkTestProcess::new_in_session();
    host.look_up_key(KEY, 1, true);
    let data = host.made_callout();
    let id = request_id(&data.messages[0]).unwrap();
    host.answer_callout(data.id, &[send_lease(2000, 0)]);
    let late = |number| {
        let event = SessionEvent::LateReply { messages: 1 };
        OwnerMessage::Event { number, event }
    };
    // an event of a lost poll is missing
    host.answer_callout(poll.id, &[late(2), found(id)]);
    assert_eq!(host.claim_response(1), None);
    let poll = host.made_callout();
    host.answer_callout(poll.id, &[late(1), found(id)]);
    assert_eq!(host.claim_response(1), Some(true));
    let poll = host.made_callout();
    assert_eq!(poll.applied, 1);
    // the owner had not received the acknowledgement; a reply and an event follow
    host.look_up_key([8; 32], 2, true);
    let other = request_id(&host.made_callout().messages[0]).unwrap();
    let repeated = [
        late(1),
        found(id),
        found(other),
        purge_event(2, 2, PurgeEventScope::Key(KEY)),
    ];
    host.answer_callout(poll.id, &repeated);
    assert_eq!(host.claim_response(2), Some(true));
    assert!(!host.is_hot(KEY) && host.is_hot([8; 32]));
    assert_eq!(host.made_callout().applied, 2);
}

#[test]
fn end_of_callouts_fails_lookups_and_purges() {
    let (host, _) = LinkTestProcess::new_in_session();
    host.insert_fresh_entry(KEY);
    host.look_up_key([1; 32], 1, true);
    let purge = host
        .link
        .queue_purge("{\"everything\":true}".into(), test_waiter(2), host.now);
    assert!(purge);
    host.link.end_callouts(&host.shared);
    assert_eq!(host.claim_response(1), Some(false));
    let reply = host.link.claim_admin_reply(test_waiter(2));
    assert_eq!(reply.map(|(status, _)| status), Some(503));
    assert!(!host.link.permits_sending_from_memory(host.now));
    assert!(!host.link.is_owner_reachable() && host.made_callouts().is_empty());
    // nothing is left to be done
    assert_eq!(host.link.ms_until_next_callout(host.now), None);
}

#[test]
fn answer_without_a_frame_ends_the_session() {
    let (host, _) = LinkTestProcess::new_in_session();
    host.look_up_key(KEY, 1, true);
    let data = host.made_callout();
    host.answer_callout(data.id, &[]);
    assert_eq!(host.claim_response(1), Some(false));
    assert!(host.made_callouts().is_empty());
}

proptest! {
    #[test]
    fn damaged_answers_never_panic(
        at in 0..200usize,
        byte: u8,
        cut in 0..200usize,
        noise in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        for damages in 0..3 {
            let (mut host, poll) = LinkTestProcess::new_in_session();
            host.look_up_key(KEY, 1, true);
            let data = host.made_callout();
            let mut frame = OutgoingFrame::for_callout().unwrap();
            for message in [send_lease(2000, 0), found(request_id(&data.messages[0]).unwrap())] {
                message.append_to_frame(&mut frame).unwrap();
            }
            let mut body = encode_callout_answer(Some(&frame)).unwrap();
            let length = body.len();
            match damages {
                0 => body[at % length] = byte,
                1 => body.truncate(cut % length),
                _ => body = noise.clone(),
            }
            host.respond(data.id, 200, &body);
            host.respond(poll.id, 200, &body);
            // the lookup waits for its deadline at most
            host.now += 21;
            host.made_callouts();
            prop_assert!(host.claim_response(1).is_some());
            prop_assert_eq!(host.shared.flights.flight_count(), 0);
        }
    }
}
