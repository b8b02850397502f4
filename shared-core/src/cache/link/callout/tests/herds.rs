//! Tests of coalesced requests: each follower receives a reply to a lookup that was sent after it
//! had joined.

use super::*;

#[test]
fn lookup_is_shared_by_followers_that_joined_before_it_was_sent() {
    let mut host = CalloutTestHost::new();
    host.look_up_or_follow(KEY, 1, true);
    host.look_up_or_follow(KEY, 2, true);
    assert_eq!(host.send_due_callouts(), [LOOK_UP]);
    // joined too late for that reply
    assert!(host.look_up_for_waiter(3).is_empty());
    assert_eq!(host.answer_oldest_callout(found(&entry("old"))), [LOOK_UP]);
    assert_eq!(host.woken(), [1, 2]);
    // meanwhile the entry was purged and stored again
    let new = OwnerReply {
        generation: Some(6),
        ..found(&entry("new"))
    };
    host.look_up_for_waiter(4);
    assert_eq!(host.answer_oldest_callout(new.clone()), [LOOK_UP]);
    host.answer_oldest_callout(new);
    let received = [1, 2, 3, 4].map(|waiter| host.received_response_text(waiter).unwrap());
    assert_eq!(received, ["old", "old", "new", "new"]);
    assert_eq!(host.shared.flights.flight_count(), 0);
}

#[test]
fn coalesced_lookup_is_sent_by_the_root_context() {
    let mut host = CalloutTestHost::new();
    host.look_up_or_follow(KEY, 1, true);
    assert_eq!(host.send_own_callouts(1).len(), 1);
    host.look_up_or_follow(KEY, 2, true);
    assert!(host.send_own_callouts(2).is_empty());
    let (ticket, _) = host.made.pop_first().unwrap();
    let answer = found(&entry("1"));
    host.calls()
        .callout_answered(&host.shared, ticket, answer, host.now);
    // the lookup of the second one, and of another one, which leaves
    host.look_up_or_follow([8; 32], 3, true);
    host.calls().release_lease([9; 32]);
    let third = host.send_own_callouts(3);
    assert_eq!(third.len(), 1);
    host.end_callout_context(&third);
    assert_eq!(host.send_due_callouts()[0], LOOK_UP);
    assert_eq!(host.lead(3).map(|token| *token.flight_key()), Some([8; 32]));
    host.answer_oldest_callout(found(&entry("1")));
    assert_eq!(host.received_response_text(2), Some("1".into()));
    // without a present exchange the callout is made by the root context
    host.look_up_or_follow(KEY, 4, true);
    host.calls().assign_queries_to_root();
    assert!(host.send_own_callouts(5).is_empty());
    assert_eq!(host.send_due_callouts(), [LOOK_UP]);
}

#[test]
fn late_follower_is_served_by_the_lookup_of_the_next_one() {
    let mut host = CalloutTestHost::new();
    host.look_up_or_follow(KEY, 1, true);
    host.send_own_callouts(1);
    host.look_up_or_follow(KEY, 2, true);
    let (ticket, _) = host.made.pop_first().unwrap();
    let answer = found(&entry("1"));
    host.calls()
        .callout_answered(&host.shared, ticket, answer, host.now);
    host.look_up_or_follow(KEY, 3, true);
    // the second one is not called any more
    assert!(host.send_own_callouts(2).is_empty());
    assert_eq!(host.send_own_callouts(3).len(), 1);
    host.answer_oldest_callout(found(&entry("1")));
    assert_eq!(
        [2, 3].map(|waiter| host.received_response_text(waiter)),
        [Some("1".into()), Some("1".into())]
    );
    assert_eq!(host.shared.flights.flight_count(), 0);
}

#[test]
fn ended_callout_does_not_count_as_a_failure_of_the_owner() {
    let mut host = CalloutTestHost::new();
    for name in 1..20 {
        host.look_up_or_follow([name; 32], usize::from(name), true);
        let own = host.send_own_callouts(usize::from(name));
        host.end_callout_context(&own);
        assert!(host.calls().is_owner_reachable() && host.lead(usize::from(name)).is_some());
    }
    // nor does it remain the probe of the circuit breaker
    for name in 20..23 {
        host.look_up_or_follow([name; 32], usize::from(name), true);
        host.send_due_callouts();
        host.fail();
    }
    assert!(!host.calls().is_owner_reachable());
    host.now += 250;
    host.look_up_or_follow([23; 32], 23, true);
    let own = host.send_own_callouts(23);
    assert!(!host.calls().is_owner_reachable());
    host.end_callout_context(&own);
    assert!(host.calls().is_owner_reachable());
}

#[test]
fn fetched_response_is_shared_after_the_owner_has_stored_it() {
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    host.look_up_for_waiter(2);
    host.answer_oldest_callout(missing(true));
    let token = host.lead(1).unwrap();
    host.look_up_for_waiter(3);
    assert_eq!(host.publish_fetched_response(token, entry("1"), 5), [STORE]);
    assert_eq!(host.woken(), [1]);
    host.look_up_for_waiter(4);
    // it joined later: another lookup is sent
    assert_eq!(
        host.answer_oldest_callout(reply_without_chain(201)),
        [LOOK_UP]
    );
    assert_eq!(host.woken(), [2, 3]);
    host.answer_oldest_callout(found(&entry("1")));
    for waiter in [2, 3, 4] {
        assert_eq!(
            host.received_response_text(waiter),
            Some("1".into()),
            "{waiter}"
        );
    }
}

#[test]
fn fetched_response_is_not_shared_if_it_was_purged_meanwhile() {
    for (status, generation) in [(409, 6), (201, 6), (413, 6), (507, 6)] {
        let mut host = CalloutTestHost::new();
        host.look_up_for_waiter(1);
        host.look_up_for_waiter(2);
        host.answer_oldest_callout(missing(true));
        let token = host.lead(1).unwrap();
        host.publish_fetched_response(token, entry("old"), 5);
        host.woken();
        let answer = OwnerReply {
            generation: Some(generation),
            ..reply_without_chain(status)
        };
        assert_eq!(host.answer_oldest_callout(answer), [LOOK_UP], "{status}");
        let granted = OwnerReply {
            generation: Some(6),
            ..missing(true)
        };
        host.answer_oldest_callout(granted);
        assert!(host.lead(2).is_some(), "{status}");
    }
}

#[test]
fn fetched_response_is_shared_if_the_owner_has_no_space_for_it() {
    for status in [413, 507, 503] {
        let mut host = CalloutTestHost::new();
        host.look_up_for_waiter(1);
        host.look_up_for_waiter(2);
        host.answer_oldest_callout(missing(true));
        let token = host.lead(1).unwrap();
        host.publish_fetched_response(token, entry("1"), 5);
        host.answer_oldest_callout(reply_without_chain(status));
        assert_eq!(host.received_response_text(2), Some("1".into()));
    }
    // and a response that is not stored at all
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    host.look_up_for_waiter(2);
    host.answer_oldest_callout(missing(true));
    let token = host.lead(1).unwrap();
    host.calls().release_lease(KEY);
    host.shared.publish_to_followers(PendingFlightResponse {
        token,
        entry: Arc::new(entry("1")),
        generation: 5,
    });
    assert_eq!(host.send_due_callouts(), [GIVE_BACK]);
    host.answer_oldest_callout(reply_without_chain(204));
    assert_eq!(host.received_response_text(2), Some("1".into()));
}

#[test]
fn batch_receives_the_reply_to_a_lookup_sent_after_it_joined() {
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    assert!(host
        .shared
        .flights
        .follow_flights(vec![KEY], test_waiter(9)));
    assert_eq!(host.answer_oldest_callout(found(&entry("1"))), [LOOK_UP]);
    assert_eq!(host.woken(), [1]);
    host.answer_oldest_callout(found(&entry("2")));
    assert_eq!(host.woken(), [9]);
    let landed = host.shared.flights.claim_awaited_responses(test_waiter(9));
    assert_eq!(text_of(&landed[0].1), "2");
}

#[test]
fn followers_fetch_alone_if_the_owner_does_not_store_in_time() {
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    host.look_up_for_waiter(2);
    host.answer_oldest_callout(missing(true));
    let token = host.lead(1).unwrap();
    host.publish_fetched_response(token, entry("1"), 5);
    host.woken();
    assert!(host.pass(99).is_empty() && host.woken().is_empty());
    host.pass(1);
    assert_eq!(host.woken(), [2]);
    assert!(host.is_alone(2));
    // the entry may be stored later, or not
    assert!(host.pass(1_000).is_empty());
    assert_eq!(host.made.first_key_value().unwrap().1.timeout, 1_500);
    assert_eq!(host.fail(), [GIVE_BACK]);
}

#[test]
fn remaining_followers_are_served_after_others_have_left() {
    let mut host = CalloutTestHost::new();
    for waiter in 1..5 {
        host.look_up_for_waiter(waiter);
    }
    host.shared.leave_flight(&KEY, test_waiter(1));
    host.shared.leave_flight(&KEY, test_waiter(3));
    assert_eq!(host.answer_oldest_callout(found(&entry("1"))), [LOOK_UP]);
    assert!(host.woken().is_empty());
    host.answer_oldest_callout(found(&entry("2")));
    assert_eq!(host.woken(), [2, 4]);
}
