//! Tests of slow, unreachable and foreign owners, and of limits.

use super::*;

/// Returns a reply of an upstream that is no owner of this version.
fn foreign_reply() -> OwnerReply {
    OwnerReply {
        status: 404,
        ..OwnerReply::default()
    }
}

#[test]
fn reply_without_a_generation_is_not_accepted() {
    let mut host = CalloutTestHost::new();
    for (n, answer) in [
        foreign_reply(),
        OwnerReply {
            generation: None,
            ..found(&entry("1"))
        },
        OwnerReply {
            generation: None,
            ..missing(false)
        },
    ]
    .into_iter()
    .enumerate()
    {
        host.look_up_for_waiter(n + 1);
        assert!(host.answer_oldest_callout(answer).is_empty());
        let token = host.lead(n + 1).unwrap();
        host.shared
            .finish_flight_and_wake(token, FlightOutcome::NotShareable);
        // a lease that may have been granted is returned
        host.send_due_callouts();
        host.made.clear();
    }
    host.calls().take_owner_health_change(host.now);
    assert_eq!(
        host.calls().take_owner_health_change(host.now + 3_000),
        Some(OwnerHealthChange::Replaced)
    );
    // no request is sent to it any more
    assert!(!host.calls().is_owner_reachable() && !host.calls().may_follow_flights());
    assert!(!host.look_up_or_follow(KEY, 9, true));
    assert!(host.send_due_callouts().is_empty());
}

#[test]
fn lookup_at_a_slow_owner_times_out() {
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    assert_eq!(host.calls().ms_until_next_tick(host.now), Some(20));
    host.pass(19);
    assert!(host.woken().is_empty());
    host.pass(1);
    assert_eq!(host.woken(), [1]);
    let token = host.lead(1).unwrap();
    // the late reply is still handled: the lease belongs to the flight
    host.answer_oldest_callout(missing(true));
    host.shared
        .finish_flight_and_wake(token, FlightOutcome::NotShareable);
    assert_eq!(host.send_due_callouts(), [GIVE_BACK]);
    host.answer_oldest_callout(reply_without_chain(204));
    // or to no flight
    host.look_up_for_waiter(2);
    host.pass(20);
    let token = host.lead(2).unwrap();
    host.shared
        .finish_flight_and_wake(token, FlightOutcome::NotShareable);
    assert_eq!(host.send_due_callouts(), [GIVE_BACK]);
    assert_eq!(host.answer_oldest_callout(missing(true)), [GIVE_BACK]);
}

#[test]
fn lost_callout_is_forgotten_after_a_timeout() {
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    host.pass(20);
    let token = host.lead(1).unwrap();
    host.shared
        .finish_flight_and_wake(token, FlightOutcome::NotShareable);
    host.made.clear();
    host.send_due_callouts();
    host.answer_oldest_callout(reply_without_chain(204));
    host.pass(10_000);
    assert_eq!(host.calls().ms_until_next_tick(host.now), None);
}

#[test]
fn unreachable_owner_is_not_queried_after_three_failures() {
    let mut host = CalloutTestHost::new();
    for waiter in 1..4 {
        host.look_up_for_waiter(waiter);
        host.pass(20);
        host.fail();
        let token = host.lead(waiter).unwrap();
        host.shared
            .finish_flight_and_wake(token, FlightOutcome::NotShareable);
        host.send_due_callouts();
        host.made.clear();
    }
    assert!(!host.look_up_or_follow(KEY, 10, true));
    // entries are not stored either
    let about = StoredEntryAttributes::attributes_for_entry(&entry("1"), SPACE, None, 5).unwrap();
    host.calls()
        .store_at_owner(KEY, Arc::new(entry("1")), about, None);
    assert!(host.send_due_callouts().is_empty());
    host.pass(249);
    assert!(!host.look_up_or_follow(KEY, 11, true));
    host.pass(1);
    // one request probes the owner
    assert_eq!(host.look_up_for_waiter(12), [LOOK_UP]);
    assert!(!host.look_up_or_follow([1; 32], 13, true));
    host.fail();
    assert!(!host.look_up_or_follow([1; 32], 14, true));
    assert_eq!(host.calls().take_owner_health_change(host.now), None);
    assert_eq!(
        host.calls().take_owner_health_change(host.now + 3_000),
        Some(OwnerHealthChange::Down)
    );
    host.pass(250);
    assert!(host.look_up_or_follow([1; 32], 15, true));
    host.send_due_callouts();
    host.answer_oldest_callout(reply_without_chain(404));
    assert!(host.look_up_or_follow([2; 32], 16, true));
    assert_eq!(
        host.calls().take_owner_health_change(host.now + 3_000),
        Some(OwnerHealthChange::Up)
    );
}

#[test]
fn lookup_is_refused_at_the_limit_of_callouts() {
    let mut host = CalloutTestHost::within(CalloutLimits {
        most: 2,
        ..CalloutLimits::default()
    });
    assert!(host.look_up_or_follow([1; 32], 1, true) && host.look_up_or_follow([2; 32], 2, true));
    assert!(!host.look_up_or_follow([3; 32], 3, true));
    assert_eq!(host.send_due_callouts().len(), 2);
    assert!(!host.look_up_or_follow([3; 32], 3, true));
    let calls = Arc::clone(&host.calls);
    assert!(!calls.lookup_batch_at_owner(vec![KEY], &SPACE, test_waiter(4), host.now));
    host.answer_oldest_callout(missing(true));
    assert!(host.look_up_or_follow([3; 32], 3, true));
}

#[test]
fn follower_leads_at_the_limit_of_long_polls() {
    let mut host = CalloutTestHost::within(CalloutLimits {
        most_waits: 1,
        ..CalloutLimits::default()
    });
    host.look_up_or_follow([1; 32], 1, true);
    host.look_up_for_waiter(2);
    assert_eq!(host.answer_oldest_callout(missing(false)).len(), 1);
    assert!(host.answer_oldest_callout(missing(false)).is_empty());
    assert!(host.lead(2).is_some());
}

#[test]
fn stores_beyond_the_byte_limit_are_dropped() {
    let mut host = CalloutTestHost::within(CalloutLimits {
        most: 8,
        most_bytes: 3_000,
        ..CalloutLimits::default()
    });
    let text = "1".repeat(1_000);
    for n in 0..20 {
        let entry = Arc::new(entry(&text).with_stored_time_and_ttl(host.now, 10_000));
        let about = StoredEntryAttributes::attributes_for_entry(&entry, SPACE, None, 5).unwrap();
        host.calls().store_at_owner([n; 32], entry, about, None);
    }
    // leases of dropped entries are returned first
    let first = host.send_due_callouts();
    assert!(first.len() == 4 && first.iter().all(|call| call.starts_with("DELETE")));
    let mut stored = 0;
    while !host.made.is_empty() {
        stored += host
            .answer_oldest_callout(reply_without_chain(204))
            .iter()
            .filter(|call| call.starts_with("PUT"))
            .count();
        let bytes: usize = host
            .made
            .values()
            .map(|call| call.message.body_length())
            .sum();
        assert!(bytes < 5_000);
    }
    assert!((1..4).contains(&stored), "{stored}");
}
