//! Tests of coalesced requests: each follower receives a reply to a lookup that was sent after it
//! had joined.

use super::*;

#[test]
fn lookup_is_shared_by_followers_that_joined_before_it_was_sent() {
    let mut host = Host::new();
    host.look_up(KEY, 1, true);
    host.look_up(KEY, 2, true);
    assert_eq!(host.run(), [LOOK_UP]);
    // joined too late for that reply
    assert!(host.want(3).is_empty());
    assert_eq!(host.answer(found(&entry("old"))), [LOOK_UP]);
    assert_eq!(host.woken(), [1, 2]);
    // meanwhile the entry was purged and stored again
    let new = OwnerReply {
        generation: Some(6),
        ..found(&entry("new"))
    };
    host.want(4);
    assert_eq!(host.answer(new.clone()), [LOOK_UP]);
    host.answer(new);
    let received = [1, 2, 3, 4].map(|waiter| host.received(waiter).unwrap());
    assert_eq!(received, ["old", "old", "new", "new"]);
    assert_eq!(host.shared.flights.flight_count(), 0);
}

#[test]
fn coalesced_lookup_is_sent_by_the_root_context() {
    let mut host = Host::new();
    host.look_up(KEY, 1, true);
    assert_eq!(host.run_own(1).len(), 1);
    host.look_up(KEY, 2, true);
    assert!(host.run_own(2).is_empty());
    let (ticket, _) = host.made.pop_first().unwrap();
    let answer = found(&entry("1"));
    host.calls()
        .callout_answered(&host.shared, ticket, answer, host.now);
    // the lookup of the second one, and of another one, which leaves
    host.look_up([8; 32], 3, true);
    host.calls().release_lease([9; 32]);
    let third = host.run_own(3);
    assert_eq!(third.len(), 1);
    host.end(&third);
    assert_eq!(host.run()[0], LOOK_UP);
    assert_eq!(host.lead(3).map(|token| *token.flight_key()), Some([8; 32]));
    host.answer(found(&entry("1")));
    assert_eq!(host.received(2), Some("1".into()));
    // without a present exchange the callout is made by the root context
    host.look_up(KEY, 4, true);
    host.calls().detach_from_stream();
    assert!(host.run_own(5).is_empty());
    assert_eq!(host.run(), [LOOK_UP]);
}

#[test]
fn late_follower_is_served_by_the_lookup_of_the_next_one() {
    let mut host = Host::new();
    host.look_up(KEY, 1, true);
    host.run_own(1);
    host.look_up(KEY, 2, true);
    let (ticket, _) = host.made.pop_first().unwrap();
    let answer = found(&entry("1"));
    host.calls()
        .callout_answered(&host.shared, ticket, answer, host.now);
    host.look_up(KEY, 3, true);
    // the second one is not called any more
    assert!(host.run_own(2).is_empty());
    assert_eq!(host.run_own(3).len(), 1);
    host.answer(found(&entry("1")));
    assert_eq!(
        [2, 3].map(|waiter| host.received(waiter)),
        [Some("1".into()), Some("1".into())]
    );
    assert_eq!(host.shared.flights.flight_count(), 0);
}

#[test]
fn ended_callout_does_not_count_as_a_failure_of_the_owner() {
    let mut host = Host::new();
    for name in 1..20 {
        host.look_up([name; 32], usize::from(name), true);
        let own = host.run_own(usize::from(name));
        host.end(&own);
        assert!(host.calls().is_owner_reachable() && host.lead(usize::from(name)).is_some());
    }
    // nor does it remain the probe of the circuit breaker
    for name in 20..23 {
        host.look_up([name; 32], usize::from(name), true);
        host.run();
        host.fail();
    }
    assert!(!host.calls().is_owner_reachable());
    host.now += 250;
    host.look_up([23; 32], 23, true);
    let own = host.run_own(23);
    assert!(!host.calls().is_owner_reachable());
    host.end(&own);
    assert!(host.calls().is_owner_reachable());
}

#[test]
fn fetched_response_is_shared_after_the_owner_has_stored_it() {
    let mut host = Host::new();
    host.want(1);
    host.want(2);
    host.answer(missing(true));
    let token = host.lead(1).unwrap();
    host.want(3);
    assert_eq!(host.publish(token, entry("1"), 5), [STORE]);
    assert_eq!(host.woken(), [1]);
    host.want(4);
    // it joined later: another lookup is sent
    assert_eq!(host.answer(reply(201)), [LOOK_UP]);
    assert_eq!(host.woken(), [2, 3]);
    host.answer(found(&entry("1")));
    for waiter in [2, 3, 4] {
        assert_eq!(host.received(waiter), Some("1".into()), "{waiter}");
    }
}

#[test]
fn fetched_response_is_not_shared_if_it_was_purged_meanwhile() {
    for (status, generation) in [(409, 6), (201, 6), (413, 6), (507, 6)] {
        let mut host = Host::new();
        host.want(1);
        host.want(2);
        host.answer(missing(true));
        let token = host.lead(1).unwrap();
        host.publish(token, entry("old"), 5);
        host.woken();
        let answer = OwnerReply {
            generation: Some(generation),
            ..reply(status)
        };
        assert_eq!(host.answer(answer), [LOOK_UP], "{status}");
        let granted = OwnerReply {
            generation: Some(6),
            ..missing(true)
        };
        host.answer(granted);
        assert!(host.lead(2).is_some(), "{status}");
    }
}

#[test]
fn fetched_response_is_shared_if_the_owner_has_no_space_for_it() {
    for status in [413, 507, 503] {
        let mut host = Host::new();
        host.want(1);
        host.want(2);
        host.answer(missing(true));
        let token = host.lead(1).unwrap();
        host.publish(token, entry("1"), 5);
        host.answer(reply(status));
        assert_eq!(host.received(2), Some("1".into()));
    }
    // and a response that is not stored at all
    let mut host = Host::new();
    host.want(1);
    host.want(2);
    host.answer(missing(true));
    let token = host.lead(1).unwrap();
    host.calls().release_lease(KEY);
    host.shared.publish_to_followers(PendingFlightPublish {
        token,
        entry: Arc::new(entry("1")),
        generation: 5,
    });
    assert_eq!(host.run(), [GIVE_BACK]);
    host.answer(reply(204));
    assert_eq!(host.received(2), Some("1".into()));
}

#[test]
fn batch_receives_the_reply_to_a_lookup_sent_after_it_joined() {
    let mut host = Host::new();
    host.want(1);
    assert!(host.shared.flights.follow_flights(vec![KEY], at(9)));
    assert_eq!(host.answer(found(&entry("1"))), [LOOK_UP]);
    assert_eq!(host.woken(), [1]);
    host.answer(found(&entry("2")));
    assert_eq!(host.woken(), [9]);
    let landed = host.shared.flights.claim_batch_responses(at(9));
    assert_eq!(text_of(&landed[0].1), "2");
}

#[test]
fn followers_fetch_alone_if_the_owner_does_not_store_in_time() {
    let mut host = Host::new();
    host.want(1);
    host.want(2);
    host.answer(missing(true));
    let token = host.lead(1).unwrap();
    host.publish(token, entry("1"), 5);
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
    let mut host = Host::new();
    for waiter in 1..5 {
        host.want(waiter);
    }
    host.shared.leave_flight(&KEY, at(1));
    host.shared.leave_flight(&KEY, at(3));
    assert_eq!(host.answer(found(&entry("1"))), [LOOK_UP]);
    assert!(host.woken().is_empty());
    host.answer(found(&entry("2")));
    assert_eq!(host.woken(), [2, 4]);
}
