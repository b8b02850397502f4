//! Tests of lookups of one entry, with and without a result.

use super::*;

#[test]
fn found_entry_is_returned_to_the_waiting_request() {
    let mut host = CalloutTestHost::new();
    assert_eq!(host.look_up_for_waiter(1), [LOOK_UP]);
    assert_eq!(host.field("sszip-namespace"), Some(&*"ab".repeat(16)));
    assert_eq!(host.field("sszip-chain-known"), None);
    assert_eq!(host.made.first_key_value().unwrap().1.timeout, 20);
    assert!(host.answer_oldest_callout(found(&entry("1"))).is_empty());
    assert_eq!(
        (host.woken(), host.received_response_text(1)),
        (vec![1], Some("1".into()))
    );
    assert_eq!(
        (
            host.shared.flights.flight_count(),
            host.calls().purge_generation()
        ),
        (0, 5)
    );
    assert!(
        !host.calls().permits_sending_from_memory(0)
            && host.calls().ms_until_next_tick(host.now).is_some()
    );
}

#[test]
fn missing_entry_is_fetched_under_a_lease_and_stored() {
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    assert!(host.answer_oldest_callout(missing(true)).is_empty());
    let token = host.lead(1).unwrap();
    assert_eq!(host.publish_fetched_response(token, entry("1"), 5), [STORE]);
    assert_eq!(host.field("sszip-generation"), Some("5"));
    assert_eq!(host.field("sszip-process"), Some("w-1"));
    assert!(host
        .answer_oldest_callout(reply_without_chain(201))
        .is_empty());
    assert_eq!(host.shared.flights.flight_count(), 0);
}

#[test]
fn lease_is_returned_if_the_fetch_has_no_result() {
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    host.answer_oldest_callout(missing(true));
    let token = host.lead(1).unwrap();
    host.shared.hand_over_flight(token);
    assert_eq!(host.send_due_callouts(), [GIVE_BACK]);
    assert!(host
        .answer_oldest_callout(reply_without_chain(204))
        .is_empty());
    // also if it is unknown whether the lease was granted
    host.look_up_for_waiter(2);
    host.fail();
    let token = host.lead(2).unwrap();
    host.shared
        .finish_flight_and_wake(token, FlightOutcome::NotShareable);
    assert_eq!(host.send_due_callouts(), [GIVE_BACK]);
}

#[test]
fn lookup_without_a_lease_is_woken_to_fetch_alone() {
    let mut host = CalloutTestHost::new();
    host.look_up_or_follow(KEY, 1, false);
    assert_eq!(host.send_due_callouts(), ["GET /v1/entries/KEY"]);
    host.answer_oldest_callout(reply_without_chain(404));
    assert!(host.is_alone(1));
}

#[test]
fn lookup_waits_for_another_process_in_long_polls() {
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    assert_eq!(host.answer_oldest_callout(missing(false)), [LONG]);
    assert_eq!(host.made.first_key_value().unwrap().1.timeout, 1_500);
    assert!(host.pass(999).is_empty() && host.woken().is_empty());
    host.pass(1);
    assert_eq!(host.answer_oldest_callout(missing(false)), [LONG]);
    host.pass(300);
    host.answer_oldest_callout(found(&entry("1")));
    assert_eq!(host.received_response_text(1), Some("1".into()));
}

#[test]
fn lookup_does_not_wait_again_after_a_released_lease() {
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    host.answer_oldest_callout(missing(false));
    host.pass(300);
    // the lease was released, and another process was faster
    assert!(host.answer_oldest_callout(missing(false)).is_empty());
    assert!(host.lead(1).is_some());
}

#[test]
fn long_poll_is_not_repeated_without_a_waiting_request() {
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    host.answer_oldest_callout(missing(false));
    host.shared.leave_flight(&KEY, test_waiter(1));
    host.pass(1_000);
    assert!(host.answer_oldest_callout(missing(false)).is_empty());
    assert_eq!(host.shared.flights.flight_count(), 0);
    // the lease may also have been granted
    host.look_up_for_waiter(2);
    host.answer_oldest_callout(missing(false));
    host.shared.leave_flight(&KEY, test_waiter(2));
    host.pass(10);
    assert_eq!(host.answer_oldest_callout(missing(true)), [GIVE_BACK]);
}

#[test]
fn reply_from_before_a_known_purge_is_not_used() {
    let mut host = CalloutTestHost::new();
    // two replies that cross
    host.look_up_or_follow([1; 32], 1, true);
    host.look_up_for_waiter(2);
    let (first, second) = {
        let mut tickets = host.made.keys().copied();
        (tickets.next().unwrap(), tickets.next().unwrap())
    };
    let newer = OwnerReply {
        generation: Some(6),
        ..missing(true)
    };
    host.calls()
        .callout_answered(&host.shared, first, newer, host.now);
    host.calls()
        .callout_answered(&host.shared, second, found(&entry("old")), host.now);
    assert_eq!(host.woken(), [1]);
    assert_eq!(host.send_due_callouts(), [LOOK_UP]);
    host.made.retain(|ticket, _| *ticket > second);
    let now = OwnerReply {
        generation: Some(6),
        ..found(&entry("new"))
    };
    host.answer_oldest_callout(now);
    assert_eq!(host.received_response_text(2), Some("new".into()));
    assert_eq!(host.calls().purge_generation(), 6);
}

#[test]
fn lower_generation_of_another_owner_is_accepted() {
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    host.answer_oldest_callout(missing(true));
    let token = host.lead(1).unwrap();
    host.shared
        .finish_flight_and_wake(token, FlightOutcome::NotShareable);
    host.send_due_callouts();
    host.answer_oldest_callout(reply_without_chain(204));
    host.look_up_for_waiter(2);
    let older = OwnerReply {
        generation: Some(3),
        ..found(&entry("1"))
    };
    host.answer_oldest_callout(older);
    assert_eq!(
        (
            host.calls().purge_generation(),
            host.received_response_text(2)
        ),
        (3, Some("1".into()))
    );
}

#[test]
fn batch_lookup_returns_the_found_entries() {
    let mut host = CalloutTestHost::new();
    let calls = Arc::clone(&host.calls);
    assert!(calls.lookup_batch_at_owner(vec![[1; 32], [2; 32]], &SPACE, test_waiter(9), host.now));
    assert_eq!(host.send_due_callouts(), ["POST /v1/lookups"]);
    let one = EncodedEntry::from_entry(&entry("1")).unwrap().to_vec();
    let length = (one.len() as u64).to_be_bytes();
    let body = [&[1; 32][..], &500u64.to_be_bytes(), &length, &one].concat();
    host.answer_oldest_callout(OwnerReply {
        body,
        ..reply_without_chain(200)
    });
    assert_eq!(host.woken(), [9]);
    let found = calls.take_batch_entries(test_waiter(9));
    assert!(found.len() == 1 && found[0].0 == [1; 32]);
    assert!(calls.take_batch_entries(test_waiter(9)).is_empty());
    // a waiter that has left is not woken
    assert!(calls.lookup_batch_at_owner(vec![[1; 32]], &SPACE, test_waiter(8), host.now));
    assert!(calls.take_batch_entries(test_waiter(8)).is_empty());
    assert!(host.send_due_callouts().is_empty());
}

#[test]
fn purge_is_sent_and_its_reply_claimed() {
    let mut host = CalloutTestHost::new();
    let calls = Arc::clone(&host.calls);
    let bad = calls.purge_at_owner(b"all", None, test_waiter(1), host.now);
    assert_eq!(bad.unwrap().0, 400);
    assert!(calls
        .purge_at_owner(b"everything", None, test_waiter(1), host.now)
        .is_none());
    assert_eq!(host.send_due_callouts(), ["POST /v1/purges"]);
    assert_eq!(host.made.first_key_value().unwrap().1.timeout, 10_000);
    let answer = OwnerReply {
        status: 200,
        generation: Some(9),
        body: b"{}".to_vec(),
        ..OwnerReply::default()
    };
    host.answer_oldest_callout(answer);
    assert_eq!((host.woken(), calls.purge_generation()), (vec![1], 9));
    assert_eq!(
        calls.claim_admin_reply(test_waiter(1)),
        Some((200, b"{}".to_vec()))
    );
    // it is unknown whether the purge is in effect
    assert!(calls
        .purge_at_owner(b"everything", None, test_waiter(2), host.now)
        .is_none());
    host.send_due_callouts();
    host.fail();
    assert_eq!(
        (host.woken(), calls.claim_admin_reply(test_waiter(2))),
        (vec![2], None)
    );
}

#[test]
fn purge_that_was_not_sent_is_reported_as_failed() {
    let mut host = CalloutTestHost::new();
    let calls = Arc::clone(&host.calls);
    assert!(calls
        .purge_at_owner(b"everything", None, test_waiter(1), host.now)
        .is_none());
    host.send_due_callouts();
    let (ticket, _) = host.made.pop_first().unwrap();
    calls.callout_rejected(&host.shared, ticket, host.now);
    assert_eq!(host.woken(), [1]);
    let (status, problem) = calls.claim_admin_reply(test_waiter(1)).unwrap();
    let problem = String::from_utf8(problem).unwrap();
    assert_eq!(status, 503, "{problem}");
    assert!(problem.contains("nothing was purged"), "{problem}");
}

#[test]
fn greeting_sets_the_generation_before_the_first_lookup() {
    let mut host = CalloutTestHost::new();
    host.calls().enqueue_generation_query();
    let lease = format!("DELETE /v1/leases/{}?process=w-1", "00".repeat(32));
    assert_eq!(host.send_due_callouts(), [lease]);
    assert!(host
        .answer_oldest_callout(reply_without_chain(204))
        .is_empty());
    assert_eq!(host.calls().purge_generation(), 5);
    assert_eq!(host.look_up_for_waiter(1), [LOOK_UP]);
}

#[test]
fn follower_from_before_the_first_reply_may_receive_an_entry() {
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    let shared = &host.shared;
    assert!(shared.is_unpurged_since(0) && !shared.is_unpurged_since(5));
    host.answer_oldest_callout(found(&entry("1")));
    let shared = &host.shared;
    assert_eq!((host.woken(), shared.purge_generation()), (vec![1], 5));
    assert!(
        shared.is_unpurged_since(0) && shared.is_unpurged_since(5) && !shared.is_unpurged_since(4)
    );
}
