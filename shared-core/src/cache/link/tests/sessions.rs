//! Tests of the begin and the end of sessions, send leases, and the order of events.

use super::*;
use crate::cache::link::{OwnerHealthChange, OwnerOutage};
use crate::cache::owner_protocol::owner_message::RefusalReason;
use crate::cache::owner_protocol::process_message::SessionRequest;
use crate::cache::process::chain_identities::ChainIdentityFact;
use crate::cache::vary_key::{truncated_blake3, VaryKey};

/// Returns the number of entries that the process may still use.
fn usable(host: &LinkTestHost) -> usize {
    let keys = (0..3).map(|n| [n; 32]).chain([KEY]);
    keys.filter(|key| host.is_hot(*key)).count()
}

#[test]
fn connections_begin_with_session_requests_of_rising_numbers() {
    let mut host = LinkTestHost::new();
    for attempt in 1..4 {
        host.run();
        let expected = SessionRequest {
            process: OwnerClientName::new("w-1").unwrap(),
            attempt,
            clock: host.now,
            polls: false,
        };
        assert_eq!(host.take_messages(), [ProcessMessage::Hello(expected)]);
        host.reconnect();
    }
}

#[test]
fn lookups_are_sent_while_the_first_session_is_requested() {
    let mut host = LinkTestHost::new();
    host.run();
    host.look_up_for_waiter(1, true);
    let [hello, lookup] = &host.take_messages()[..] else {
        panic!("two messages are expected");
    };
    assert!(matches!(hello, ProcessMessage::Hello(_)));
    let id = request_id(lookup).unwrap();
    host.send_together(&[welcome(1, 9), found_under(id, 9, &entry())]);
    assert_eq!(host.woken(), [1]);
    assert!(host.answer(1).is_some() && host.is_hot(KEY));
    // after a failure an owner is expected only when it has opened a session
    host.reconnect();
    host.look_up_for_waiter(2, true);
    assert!(host.lead(2).is_some());
}

#[test]
fn purge_empties_the_memory_and_is_acknowledged() {
    let mut host = LinkTestHost::connected();
    for n in 0..3 {
        host.insert_fresh_entry([n; 32]);
    }
    host.purge_event(1, PurgeEventScope::Key([1; 32]));
    assert_eq!((usable(&host), host.link().purge_generation()), (2, 1));
    let applied = |event, generation| ProcessMessage::Applied { event, generation };
    assert_eq!(host.take_messages(), [applied(1, 1)]);
    host.purge_event(2, PurgeEventScope::Everything);
    assert_eq!((usable(&host), host.link().purge_generation()), (0, 2));
    assert_eq!(host.take_messages(), [applied(2, 2)]);
}

#[test]
fn chain_is_forgotten_with_purges_of_its_namespace_and_with_missed_ones() {
    let mut host = LinkTestHost::connected();
    let main = VaryKey::new();
    let records_chain_id = |host: &LinkTestHost, id| {
        let generation = host.link().purge_generation();
        let fact = ChainIdentityFact::ChainId(id);
        let identities = &host.shared.identities;
        identities
            .compare_and_record_fact(&main, generation, fact)
            .is_ok()
    };
    assert!(records_chain_id(&host, 1) && !records_chain_id(&host, 2));
    host.purge_event(1, PurgeEventScope::MethodOrBlocks);
    host.purge_event(2, PurgeEventScope::Key(KEY));
    host.purge_event(3, PurgeEventScope::Namespace(SPACE));
    assert!(!records_chain_id(&host, 2));
    let namespace = truncated_blake3(main.namespace_key_bytes());
    host.purge_event(4, PurgeEventScope::Namespace(namespace));
    assert!(records_chain_id(&host, 2) && !records_chain_id(&host, 1));
    host.purge_event(5, PurgeEventScope::Everything);
    assert!(records_chain_id(&host, 1));
    // the next session begins with the generation of a purge that this process has not heard of
    host.reconnect();
    host.send_together(&[welcome(2, 5)]);
    assert!(!records_chain_id(&host, 2));
    host.reconnect();
    host.send_together(&[welcome(3, 6)]);
    assert!(records_chain_id(&host, 2));
    // a purge of an owner that may have existed meanwhile
    host.refuses = true;
    host.break_connection();
    host.link().handle_connection_refused(&host.shared, 1 << 40);
    assert!(records_chain_id(&host, 1));
}

#[test]
fn other_events_are_acknowledged_with_the_next_message_or_in_time() {
    let mut host = LinkTestHost::connected();
    host.event(SessionEvent::Filled([1; 32]));
    assert!(host.take_messages().is_empty());
    host.look_up_for_waiter(1, true);
    let expected = ProcessMessage::Applied {
        event: 1,
        generation: 0,
    };
    assert_eq!(host.take_messages()[0], expected);
    for _ in 0..1_000 {
        host.event(SessionEvent::Filled([1; 32]));
    }
    let expected = ProcessMessage::Applied {
        event: 1_001,
        generation: 0,
    };
    assert_eq!(host.take_messages(), [expected]);
}

#[test]
fn repeated_and_early_events_have_no_effect() {
    let mut host = LinkTestHost::connected();
    host.purge_event(1, PurgeEventScope::Everything);
    host.insert_fresh_entry(KEY);
    for number in [1, 3] {
        host.send(purge_event(number, number, PurgeEventScope::Everything));
        assert!(host.is_hot(KEY), "{number}");
    }
    host.purge_event(2, PurgeEventScope::Everything);
    assert!(!host.is_hot(KEY));
}

#[test]
fn memory_is_used_until_the_send_lease_ends() {
    let mut host = LinkTestHost::connected();
    let permits = |host: &LinkTestHost, at| host.link().permits_sending_from_memory(at);
    assert!(permits(&host, 4999) && !permits(&host, 5000));
    host.send_lease(6000);
    assert!(permits(&host, 5999));
    // the session has ended: its last lease remains valid
    host.refuses = true;
    host.break_connection();
    assert!(permits(&host, 5999) && !host.link().is_owner_reachable());
}

#[test]
fn send_lease_is_used_after_the_events_before_it() {
    let mut host = LinkTestHost::connected();
    host.send(send_lease(6000, 1));
    assert!(!host.link().permits_sending_from_memory(5000));
    host.purge_event(1, PurgeEventScope::Everything);
    assert!(host.link().permits_sending_from_memory(5999));
}

#[test]
fn memory_is_used_while_no_owner_listens() {
    let mut host = LinkTestHost::new();
    host.refuses = true;
    host.run();
    assert!(!host.link().permits_sending_from_memory(7_000));
    host.link().handle_connection_refused(&host.shared, 7_000);
    assert!(
        host.link().permits_sending_from_memory(7_999)
            && !host.link().permits_sending_from_memory(8_000)
    );
    let generation = host.link().purge_generation();
    host.insert_into_hot_tier(KEY, entry().with_lifetime(0, 1 << 40));
    host.link().handle_connection_refused(&host.shared, 7_900);
    assert!(host.link().permits_sending_from_memory(8_899));
    assert_eq!(
        (usable(&host), host.link().purge_generation()),
        (1, generation)
    );
    // for a moment no connection was attempted: an owner may have existed, and purged
    host.link().handle_connection_refused(&host.shared, 8_900);
    assert!(host.link().permits_sending_from_memory(9_899));
    assert_eq!(usable(&host), 0);
    // earlier responses are not stored, neither here nor by the owner
    assert!(host.link().purge_generation() > generation);
}

#[test]
fn refused_connection_has_no_effect_while_a_session_is_open() {
    let host = LinkTestHost::connected();
    host.insert_fresh_entry(KEY);
    host.link().handle_connection_refused(&host.shared, 9_000);
    assert!(host.is_hot(KEY) && host.link().purge_generation() == 0);
    assert!(!host.link().permits_sending_from_memory(5_000));
}

#[test]
fn memory_is_used_after_the_owner_has_ended() {
    let mut host = LinkTestHost::connected();
    chains::send_chain_event(&mut host, 100);
    host.insert_into_hot_tier(KEY, entry().with_lifetime(0, 1 << 40));
    host.insert_into_hot_tier([1; 32], chains::tip(&host, 5000, 100));
    assert_eq!(usable(&host), 2);
    host.refuses = true;
    host.break_connection();
    host.link().handle_connection_refused(&host.shared, 4_500);
    // the state of the chain is not known any more
    assert_eq!(usable(&host), 1);
    assert!(host.link().permits_sending_from_memory(5_400));
    let chain = || host.link().chains.get(&SPACE).unwrap();
    let mark = chain().chain_mark_at_dispatch();
    assert!(!mark.is_known && mark.last_final.is_none());
    // once, and not at each refused connection
    host.link().handle_connection_refused(&host.shared, 4_700);
    assert_eq!(chain().chain_mark_at_dispatch().epoch, mark.epoch);
}

#[test]
fn generation_of_another_owner_replaces_the_known_one() {
    let mut host = LinkTestHost::connected();
    host.insert_fresh_entry(KEY);
    for (generation, left) in [(0, 1), (3, 0)] {
        host.reconnect();
        host.open_session(generation, 9000);
        assert_eq!(
            (usable(&host), host.link().purge_generation()),
            (left, generation)
        );
    }
}

#[test]
fn connection_to_an_absent_owner_is_retried_at_intervals() {
    let host = LinkTestHost::new();
    let (mut tries, mut now, mut next) = (0, 1_000, 0);
    while now < 61_000 {
        match host.link().next_action() {
            Some(LinkAction::Tick) => next = host.link().tick(&host.shared, now),
            Some(LinkAction::Connect) => {
                tries += 1;
                host.link()
                    .handle_connection_opened(&host.shared, false, now);
            }
            Some(action) => panic!("{action:?}"),
            None => {
                now += next;
                next = host.link().tick(&host.shared, now);
            }
        }
    }
    // after 20 ms at first, for a second
    assert!((250..320).contains(&tries), "{tries}");
}

#[test]
fn silent_session_is_closed_after_a_timeout() {
    let mut host = LinkTestHost::connected();
    host.pass(1_499);
    assert!(host.link().is_owner_reachable());
    host.refuses = true;
    host.pass(1);
    assert!(!host.link().is_owner_reachable() && !host.is_open);
}

#[test]
fn bytes_of_another_protocol_or_version_close_the_connection_and_are_reported() {
    for bytes in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"SZL\x04"] {
        let mut host = LinkTestHost::new();
        host.run();
        for _ in 0..4 {
            host.receive(bytes);
            assert!(!host.is_open && !host.link().is_owner_reachable());
            assert_eq!(host.link().take_owner_health_change(host.now), None);
            host.pass(RETRY);
        }
        let change = host.link().take_owner_health_change(host.now + 3_000);
        let replaced = OwnerHealthChange::Down(OwnerOutage::OtherVersion);
        assert_eq!(change, Some(replaced));
        host.open_session(0, 5000);
        let change = host.link().take_owner_health_change(host.now);
        assert_eq!(change, Some(OwnerHealthChange::Up));
    }
}

#[test]
fn refusals_close_the_connection_and_other_clocks_are_reported() {
    let changes = [
        (RefusalReason::ClockDiffers, OwnerOutage::OtherClock),
        (RefusalReason::TooManyProcesses, OwnerOutage::Silent),
    ];
    for (reason, expected) in changes {
        let mut host = LinkTestHost::new();
        host.run();
        host.send(OwnerMessage::Refused(reason));
        assert!(!host.is_open);
        assert_eq!(host.link().take_owner_health_change(host.now), None);
        let change = host.link().take_owner_health_change(host.now + 3_000);
        assert_eq!(change, Some(OwnerHealthChange::Down(expected)));
    }
}

#[test]
fn refusal_of_a_request_that_may_have_been_late_does_not_prove_another_clock() {
    for (delay, expected) in [
        (250, OwnerOutage::OtherClock),
        (251, OwnerOutage::Silent),
        (1_400, OwnerOutage::Silent),
    ] {
        let mut host = LinkTestHost::new();
        host.run();
        host.pass(delay);
        host.send(OwnerMessage::Refused(RefusalReason::ClockDiffers));
        assert!(!host.is_open);
        // the next request has a new clock
        host.take_messages();
        host.pass(RETRY);
        let [ProcessMessage::Hello(request)] = &host.take_messages()[..] else {
            panic!("a session request is expected");
        };
        assert_eq!((request.attempt, request.clock), (2, host.now));
        assert_eq!(host.link().take_owner_health_change(host.now), None);
        let change = host.link().take_owner_health_change(host.now + 3_000);
        assert_eq!(change, Some(OwnerHealthChange::Down(expected)), "{delay}");
        host.send_together(&[welcome(1, 0), send_lease(9_000, 0)]);
        let change = host.link().take_owner_health_change(host.now);
        assert_eq!(change, Some(OwnerHealthChange::Up));
    }
}

#[test]
fn another_clock_is_reported_although_the_first_refusal_was_late() {
    let mut host = LinkTestHost::new();
    host.run();
    host.pass(251);
    let refusal = || OwnerMessage::Refused(RefusalReason::ClockDiffers);
    host.send(refusal());
    let report = |host: &LinkTestHost, after: u64| {
        let now = host.now + after;
        host.link().take_owner_health_change(now)
    };
    assert_eq!(report(&host, 0), None);
    let silent = OwnerHealthChange::Down(OwnerOutage::Silent);
    assert_eq!(report(&host, 3_000), Some(silent));
    // the next request is refused at once
    host.pass(RETRY);
    host.pass(10);
    host.send(refusal());
    let other_clock = OwnerHealthChange::Down(OwnerOutage::OtherClock);
    assert_eq!(report(&host, 3_000), Some(other_clock));
    assert_eq!(report(&host, 3_000), None);
}

#[test]
fn messages_out_of_place_close_the_connection() {
    // before the session is open
    for message in [
        found(1),
        OwnerMessage::BatchEnd {
            id: 1,
            generation: 0,
        },
    ] {
        let mut host = LinkTestHost::new();
        host.run();
        host.send(message);
        assert!(!host.is_open);
    }
    let mut host = LinkTestHost::connected();
    host.send(welcome(2, 0));
    assert!(!host.is_open);
    // messages before invalid bytes are in effect
    let mut host = LinkTestHost::connected();
    let mut bytes = host.frame_of(&[purge_event(1, 4, PurgeEventScope::Everything)]);
    bytes.extend([0xff; 8]);
    host.receive(&bytes);
    assert!(!host.is_open && host.link().purge_generation() == 4);
}

#[test]
fn driver_is_woken_once_for_several_requests() {
    let driver = Arc::new(WokenRequestQueue::default());
    let shared = ProcessCacheState::default();
    let name = OwnerClientName::new("w-1").unwrap();
    let link = OwnerLink::new(name, 1 << 20);
    let link = link.attach_driver_waker(driver.clone(), 5);
    // the first tick needs no waker
    let first = (link.next_action(), driver.next_woken_id());
    assert_eq!(first, (Some(LinkAction::Tick), None));
    link.tick(&shared, 0);
    assert_eq!(link.next_action(), Some(LinkAction::Connect));
    link.handle_connection_opened(&shared, true, 0);
    assert_eq!(link.next_action(), Some(LinkAction::Write));
    assert_eq!(link.next_action(), None);
    for waiter in [1, 2] {
        assert!(link.queue_purge("{}".into(), test_waiter(waiter), 0));
    }
    let woken = (driver.next_woken_id(), driver.next_woken_id());
    assert_eq!(woken, (Some(5), None));
    assert_eq!(link.next_action(), None);
    assert!(link.queue_purge("{}".into(), test_waiter(3), 0));
    assert_eq!(driver.next_woken_id(), Some(5));
}
