//! Tests of lookups, with and without a result.

use super::*;

#[test]
fn found_entry_is_shared_with_all_followers() {
    let mut host = LinkTestHost::connected();
    host.look_up_for_waiter(1, true);
    host.look_up_for_waiter(2, true);
    let [ProcessMessage::Lookup { id, key, lease, .. }] = &host.take_messages()[..] else {
        panic!("one lookup is expected");
    };
    assert_eq!((*key, *lease), (KEY, Some(60_000)));
    host.send(found(*id));
    assert_eq!(host.woken(), [1, 2]);
    let answer = host.answer(1).unwrap();
    assert_eq!(answer.response_metadata().expires_at, host.now + 500);
    assert_eq!(answer.response_metadata().requested_at, host.now - 200);
    assert!(host.answer(2).is_some());
    assert!(host.is_hot(KEY));
    assert!(host.shared.flights.flight_count() == 0);
}

#[test]
fn follower_leads_under_the_lease_of_a_failed_leader() {
    let mut host = LinkTestHost::connected();
    host.look_up_for_waiter(1, true);
    host.look_up_for_waiter(2, true);
    let id = host.take_id();
    host.send(missing(id, LeaseReply::Granted));
    assert_eq!(host.woken(), [1]);
    let token = host.lead(1).unwrap();
    // the leader fails: the follower leads under the same lease
    host.shared.hand_over_flight(token);
    let token = host.lead(2).unwrap();
    assert!(host.take_messages().is_empty());
    host.finish_without_response(token);
    assert_eq!(host.take_messages(), [ProcessMessage::Release(KEY)]);
}

#[test]
fn lease_is_returned_if_no_request_waits_for_it() {
    let mut host = LinkTestHost::connected();
    host.look_up_for_waiter(1, true);
    host.shared.leave_flight(&KEY, test_waiter(1));
    let id = host.take_id();
    host.send(missing(id, LeaseReply::Granted));
    assert_eq!(host.take_messages(), [ProcessMessage::Release(KEY)]);
    assert!(host.shared.flights.flight_count() == 0);
}

#[test]
fn lookup_waits_for_the_fetch_of_another_process() {
    for order in ["reply first", "event first"] {
        let mut host = LinkTestHost::connected();
        host.look_up_for_waiter(1, true);
        host.look_up_for_waiter(2, true);
        let id = host.take_id();
        let reply = missing(id, LeaseReply::Pending);
        if order == "reply first" {
            host.send(reply);
            host.pass(200);
            host.event(SessionEvent::Filled(KEY));
        } else {
            host.event(SessionEvent::Filled(KEY));
            host.send(reply);
        }
        let lookups = host.take_lookups();
        assert_eq!(lookups.len(), 1, "{order}: {lookups:?}");
        assert!(host.woken().is_empty());
        host.send(found(lookups[0].0));
        assert_eq!(host.woken(), [1, 2]);
        assert!(host.answer(1).is_some() && host.answer(2).is_some());
    }
}

#[test]
fn lookup_does_not_wait_again_after_a_released_lease() {
    let mut host = LinkTestHost::connected();
    host.look_up_for_waiter(1, true);
    host.look_up_for_waiter(2, true);
    let id = host.take_id();
    host.send(missing(id, LeaseReply::Pending));
    host.event(SessionEvent::LeaseReleased(KEY));
    // an entry that is there now is used, and no lease of another process delays the request
    let lookups = host.take_lookups();
    assert_eq!((lookups[0].1, lookups[0].2), (KEY, false));
    host.send(missing(lookups[0].0, LeaseReply::NoLease));
    assert_eq!(host.woken(), [1]);
    assert!(host.lead(1).is_some());
}

#[test]
fn lookup_without_room_for_a_lease_is_fetched() {
    let mut host = LinkTestHost::connected();
    host.look_up_for_waiter(1, true);
    let id = host.take_id();
    host.send(missing(id, LeaseReply::Full));
    let token = host.lead(1).unwrap();
    host.finish_without_response(token);
    // there is no lease to be released
    assert!(host.take_messages().is_empty());
}

#[test]
fn lookup_at_a_slow_owner_times_out() {
    let mut host = LinkTestHost::connected();
    host.look_up_for_waiter(1, true);
    let id = host.take_id();
    host.pass(19);
    assert!(host.woken().is_empty());
    host.pass(1);
    assert_eq!(host.woken(), [1]);
    let token = host.lead(1).unwrap();
    // the late reply is still handled: the lease belongs to the flight
    host.send(missing(id, LeaseReply::Granted));
    assert!(host.take_messages().is_empty());
    host.finish_without_response(token);
    assert_eq!(host.take_messages(), [ProcessMessage::Release(KEY)]);
}

#[test]
fn lookup_that_times_out_before_it_is_sent_is_not_sent() {
    let mut host = LinkTestHost::connected();
    // the socket takes nothing
    host.store_at_owner(1, b"1".to_vec());
    assert_eq!(host.link().next_action(), Some(LinkAction::Write));
    host.link()
        .pass_unwritten_pieces(&host.shared, host.now, |_| 0);
    host.look_up_keys(2..3);
    host.pass(20);
    assert_eq!(host.woken(), [2]);
    let bytes = host.written_bytes();
    host.receive_from_link(&bytes);
    assert!(host.take_lookups().is_empty());
}

#[test]
fn changed_timeout_applies_to_later_lookups() {
    let mut host = LinkTestHost::connected();
    host.look_up_keys(1..2);
    host.link().set_lookup_timeout(100);
    host.look_up_keys(2..3);
    host.pass(20);
    assert_eq!(host.woken(), [1]);
    host.pass(79);
    assert!(host.woken().is_empty());
    host.pass(1);
    assert_eq!(host.woken(), [2]);
}

#[test]
fn lookups_pause_at_an_owner_that_does_not_reply() {
    let mut host = LinkTestHost::connected();
    for n in 1..4 {
        host.look_up_keys(n..n + 1);
        host.pass(20);
        assert_eq!(host.woken(), [usize::from(n)]);
    }
    host.take_messages();
    host.look_up_for_waiter(9, true);
    assert!(host.lead(9).is_some() && host.take_messages().is_empty());
    host.pass(249);
    let refused = |host: &LinkTestHost| {
        let waiter = test_waiter(11);
        !host
            .link()
            .lookup_batch_at_owner(vec![[9; 32]], shareable_batch(0), waiter, host.now)
    };
    assert!(refused(&host));
    host.pass(1);
    // one more lookup that is late continues the pause, and a reply ends it
    host.look_up_keys(4..5);
    let id = host.take_id();
    host.pass(20);
    assert!(refused(&host));
    host.send(missing(id, LeaseReply::NoLease));
    assert!(!refused(&host));
}

#[test]
fn lookups_beyond_the_limit_are_refused() {
    let mut host = LinkTestHost::connected();
    for n in 0..1_000_u64 {
        let key = *blake3::hash(&n.to_le_bytes()).as_bytes();
        let waiter = test_waiter(500);
        assert!(host
            .link()
            .lookup_batch_at_owner(vec![key], shareable_batch(0), waiter, host.now));
    }
    host.look_up_for_waiter(1, true);
    assert!(host.lead(1).is_some());
}

#[test]
fn lookup_is_repeated_if_a_purge_arrives_before_its_reply() {
    let mut host = LinkTestHost::connected();
    host.look_up_for_waiter(1, true);
    let id = host.take_id();
    host.purge_event(1, PurgeEventScope::Everything);
    host.send(found(id));
    assert!(host.woken().is_empty());
    assert!(host.shared.hot_tier().unwrap().entry_count() == 0);
    let id = host.take_id();
    host.send(found_under(id, 1, &entry()));
    assert_eq!(host.woken(), [1]);
}

#[test]
fn reply_after_a_purge_that_was_not_received_yet_is_used_until_the_event() {
    let mut host = LinkTestHost::connected();
    host.look_up_for_waiter(1, true);
    let id = host.take_id();
    host.send(found_under(id, 1, &entry()));
    assert_eq!(host.woken(), [1]);
    assert!(host.is_hot(KEY));
    host.purge_event(1, PurgeEventScope::Everything);
    assert!(!host.is_hot(KEY));
}

#[test]
fn waiting_lookup_is_woken_when_the_owner_is_gone() {
    let mut host = LinkTestHost::connected();
    host.look_up_for_waiter(1, true);
    let id = host.take_id();
    host.send(missing(id, LeaseReply::Pending));
    host.refuses = true;
    host.break_connection();
    assert_eq!(host.woken(), [1]);
    let token = host.lead(1).unwrap();
    host.finish_without_response(token);
    // lookups are not sent now
    host.look_up_for_waiter(2, true);
    assert!(host.lead(2).is_some());
    assert!(host.take_messages().is_empty());
    // the connection is retried
    host.refuses = false;
    host.pass(RETRY);
    assert_eq!(host.take_messages().len(), 1);
}

#[test]
fn follower_leads_after_an_invalid_reply() {
    let truncated = |id| {
        let bytes = bytes_of(&entry());
        OwnerMessage::Found {
            id,
            generation: 0,
            entry: FoundEntry {
                fresh: 500,
                age: 0,
                total: 3,
                bytes: MessageBody::from(bytes[..3].to_vec()),
            },
        }
    };
    let too_long = |id| OwnerMessage::Found {
        id,
        generation: 0,
        entry: FoundEntry {
            total: 1 << 40,
            ..found_entry(&entry())
        },
    };
    for reply in [&truncated as &dyn Fn(u32) -> OwnerMessage, &too_long] {
        let mut host = LinkTestHost::connected();
        host.look_up_for_waiter(1, true);
        let id = host.take_id();
        host.send(reply(id));
        assert_eq!(host.woken(), [1]);
        assert!(host.lead(1).is_some() && host.is_open);
    }
    let mut host = LinkTestHost::connected();
    host.look_up_for_waiter(1, true);
    host.receive(b"nonsense nonsense");
    assert_eq!(host.woken(), [1]);
    assert!(host.lead(1).is_some());
}

#[test]
fn lookups_without_a_lease_are_woken_to_fetch_alone() {
    let mut host = LinkTestHost::connected();
    host.look_up_for_waiter(1, false);
    host.look_up_for_waiter(2, false);
    let lookups = host.take_lookups();
    assert_eq!((lookups.len(), lookups[0].2), (1, false));
    host.send(missing(lookups[0].0, LeaseReply::NoLease));
    assert_eq!(host.woken(), [1, 2]);
    for waiter in [1, 2] {
        assert!(matches!(
            host.claim_wakeup(waiter),
            Some(FlightFollowerWakeup::Response(FlightOutcome::NotShareable))
        ));
    }
}

#[test]
fn reply_of_another_kind_does_not_end_a_request() {
    let mut host = LinkTestHost::connected();
    host.look_up_for_waiter(1, true);
    let lookup = host.take_id();
    host.look_up_batch(&[[2; 32]], 5);
    let batch = host.take_id();
    host.send_together(&batch_replies(lookup, [2; 32]));
    host.send_together(&[found(batch), missing(batch, LeaseReply::Granted)]);
    assert!(host.woken().is_empty());
    host.send(found(lookup));
    host.send_together(&batch_replies(batch, [2; 32]));
    assert_eq!(host.woken(), [1, 5]);
}

#[test]
fn found_entries_are_returned_without_a_hot_tier() {
    let mut host = LinkTestHost::without_memory();
    host.open_session(0, 5000);
    host.look_up_for_waiter(1, true);
    let id = host.take_id();
    host.send(found(id));
    assert_eq!(host.woken(), [1]);
    assert!(host.answer(1).is_some());
    host.look_up_batch(&[[2; 32]], 5);
    let id = host.take_id();
    host.send_together(&batch_replies(id, [2; 32]));
    assert_eq!(host.woken(), [5]);
    assert_eq!(host.link().take_batch_entries(test_waiter(5)).len(), 1);
}
