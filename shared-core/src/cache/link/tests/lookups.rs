//! Tests of lookups of one entry, with and without a result.

use super::chains::{send_chain_event, tip, SPACE};
use super::*;

#[test]
fn found_entry_is_shared_with_all_followers() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.look_up_for_waiter(1, true);
    host.look_up_for_waiter(2, true);
    let sent = host.take_sent_requests();
    assert_eq!(
        sent,
        [(1, format!("GET {}?lease=w-1&for=60000 HTTP/1.1", path()))]
    );
    host.receive(1, &found());
    assert_eq!(host.woken(), [1, 2]);
    let answer = host.answer(1).unwrap();
    assert_eq!(answer.response_metadata().expires_at, host.now + 500);
    assert_eq!(
        answer.response_metadata().stored_at,
        host.now.saturating_sub(2000)
    );
    assert!(host.answer(2).is_some());
    assert!(host.is_hot(KEY));
    assert!(host.shared.flights.flight_count() == 0);
}

#[test]
fn lease_is_granted_to_one_leader_and_returned() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.look_up_for_waiter(1, true);
    host.look_up_for_waiter(2, true);
    host.receive(1, &missing("granted"));
    assert_eq!(host.woken(), [1]);
    let token = host.lead(1).unwrap();
    // the leader fails: the follower leads under the same lease
    host.shared.hand_over_flight(token);
    let token = host.lead(2).unwrap();
    host.take_sent_requests();
    host.shared
        .finish_flight_and_wake(token, FlightOutcome::NotShareable);
    host.run();
    let expected = format!("DELETE /v1/leases/{}?process=w-1 HTTP/1.1", "07".repeat(32));
    assert_eq!(host.take_sent_requests(), [(1, expected)]);
}

#[test]
fn lease_is_returned_if_no_request_waits_for_it() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.look_up_for_waiter(1, true);
    host.shared.leave_flight(&KEY, test_waiter(1));
    host.take_sent_requests();
    host.receive(1, &missing("granted"));
    let sent = host.take_sent_requests();
    assert!(sent[0].1.starts_with("DELETE /v1/leases/"), "{sent:?}");
    assert!(host.shared.flights.flight_count() == 0);
}

#[test]
fn lookup_waits_for_the_fetch_of_another_process() {
    for order in ["answer first", "event first"] {
        let mut host = LinkTestHost::with_greeted_owner();
        host.look_up_for_waiter(1, true);
        host.look_up_for_waiter(2, true);
        let key = "07".repeat(32);
        if order == "answer first" {
            host.receive(1, &missing("pending"));
            host.event("filled", &key);
        } else {
            host.event("filled", &key);
            host.receive(1, &missing("pending"));
        }
        let sent = host.take_sent_requests();
        assert_eq!(sent.len(), 2, "{order}: {sent:?}");
        assert!(host.woken().is_empty());
        host.receive(1, &found());
        assert_eq!(host.woken(), [1, 2]);
        assert!(host.answer(1).is_some() && host.answer(2).is_some());
    }
}

#[test]
fn lookup_does_not_wait_again_after_a_released_lease() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.look_up_for_waiter(1, true);
    host.look_up_for_waiter(2, true);
    host.receive(1, &missing("pending"));
    host.take_sent_requests();
    host.event("given-up", &"07".repeat(32));
    // an entry that is there now is used, and no lease of another process delays the request
    let expected = (1, format!("GET {} HTTP/1.1", path()));
    assert_eq!(host.take_sent_requests(), [expected]);
    host.receive(1, b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(host.woken(), [1]);
    assert!(host.lead(1).is_some());
}

#[test]
fn lookup_at_a_slow_owner_times_out() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.look_up_for_waiter(1, true);
    host.pass(19);
    assert!(host.woken().is_empty());
    host.pass(1);
    assert_eq!(host.woken(), [1]);
    let token = host.lead(1).unwrap();
    // the late reply is still handled: the lease belongs to the flight
    host.receive(1, &missing("granted"));
    host.take_sent_requests();
    host.shared
        .finish_flight_and_wake(token, FlightOutcome::NotShareable);
    host.run();
    let sent = host.take_sent_requests();
    assert!(sent[0].1.starts_with("DELETE"), "{sent:?}");
}

#[test]
fn deadline_is_extended_while_a_reply_arrives() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.look_up_for_waiter(1, true);
    let answer = found();
    let (begun, rest) = answer.split_at(answer.len() - 3);
    host.pass(19);
    host.receive(1, begun);
    host.pass(19);
    host.receive(1, &rest[..1]);
    host.pass(19);
    assert!(host.woken().is_empty());
    host.receive(1, &rest[1..2]);
    host.pass(20);
    assert_eq!(host.woken(), [1]);
    assert!(host.answer(1).is_none());
}

#[test]
fn changed_deadline_applies_to_later_lookups() {
    let mut host = LinkTestHost::with_greeted_owner();
    look_up_all_keys(&mut host, 1..2);
    host.link().set_lookup_timeout(100);
    look_up_all_keys(&mut host, 2..3);
    host.pass(20);
    assert_eq!(host.woken(), [1]);
    host.pass(79);
    assert!(host.woken().is_empty());
    host.pass(1);
    assert_eq!(host.woken(), [2]);
}

#[test]
fn lookups_without_a_connection_time_out() {
    let mut host = LinkTestHost::with_greeted_owner();
    look_up_all_keys(&mut host, 0..4);
    assert_eq!(host.take_sent_requests().len(), 2);
    host.receive(1, &missing("granted"));
    assert_eq!(host.take_sent_requests().len(), 2);
    host.pass(20);
    let mut woken = host.woken();
    woken.sort_unstable();
    assert_eq!(woken, [0, 1, 2, 3]);
}

/// Returns the number of entries that the process may still use.
fn usable(host: &LinkTestHost) -> usize {
    let keys = (0..3).map(|n| [n; 32]).chain([KEY]);
    keys.filter(|key| host.is_hot(*key)).count()
}

#[test]
fn purge_empties_the_memory_and_is_acknowledged() {
    let mut host = LinkTestHost::with_greeted_owner();
    for n in 0..3 {
        host.insert_into_hot_tier([n; 32], entry().with_stored_time_and_ttl(0, 10_000));
    }
    let key = "01".repeat(32);
    host.event("purge", &format!("{{\"generation\":1,\"key\":\"{key}\"}}"));
    assert_eq!((usable(&host), host.link().purge_generation()), (2, 1));
    let sent = &host.sent[0].1;
    assert!(
        sent.starts_with("POST /v1/acknowledgements?process=w-1") && sent.ends_with("\r\n1"),
        "{sent}"
    );
    host.event("purge", "{\"generation\":2}");
    assert_eq!((usable(&host), host.link().purge_generation()), (0, 2));
}

#[test]
fn lookup_is_repeated_if_a_purge_arrives_before_its_reply() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.look_up_for_waiter(1, true);
    host.take_sent_requests();
    host.event("purge", "{\"generation\":1}");
    host.receive(1, &found());
    assert!(host.woken().is_empty());
    assert!(host.shared.hot_tier().unwrap().entry_count() == 0);
    let sent = host.take_sent_requests();
    assert!(
        sent.iter().any(|(_, line)| line.starts_with("GET")),
        "{sent:?}"
    );
}

#[test]
fn memory_is_used_until_the_lease_expires() {
    let mut host = LinkTestHost::with_greeted_owner();
    assert!(
        host.link().permits_sending_from_memory(4999)
            && !host.link().permits_sending_from_memory(5000)
    );
    host.event("lease", "{\"generation\":0,\"until\":6000}");
    assert!(host.link().permits_sending_from_memory(5999));
    // the owner has ended: its last lease remains valid
    host.link().connection_closed(&host.shared, 0, host.now);
    assert!(host.link().permits_sending_from_memory(5999) && !host.link().is_owner_reachable());
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
    host.insert_into_hot_tier(KEY, entry().with_stored_time_and_ttl(0, 1 << 40));
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
fn refused_connection_has_no_effect_while_the_owner_is_up() {
    let host = LinkTestHost::with_greeted_owner();
    host.insert_into_hot_tier(KEY, entry().with_stored_time_and_ttl(host.now, 10_000));
    host.link().handle_connection_refused(&host.shared, 9_000);
    assert!(host.is_hot(KEY) && host.link().purge_generation() == 0);
    assert!(!host.link().permits_sending_from_memory(5_000));
}

#[test]
fn memory_is_used_after_the_owner_has_ended() {
    let mut host = LinkTestHost::with_greeted_owner();
    send_chain_event(&mut host, 100, "");
    host.insert_into_hot_tier(KEY, entry().with_stored_time_and_ttl(0, 1 << 40));
    host.insert_into_hot_tier([1; 32], tip(&host, 5000, 100));
    assert_eq!(usable(&host), 2);
    // as long as it listens it is present
    host.link().handle_connection_refused(&host.shared, 4_000);
    assert!(!host.link().permits_sending_from_memory(5_000));
    host.refuses = true;
    host.break_connection(0);
    host.link().handle_connection_refused(&host.shared, 4_500);
    // the state of the chain is not known any more
    assert_eq!(usable(&host), 1);
    assert!(host.link().permits_sending_from_memory(5_400));
    let mark = host
        .link()
        .chains
        .get(&SPACE)
        .unwrap()
        .chain_mark_at_dispatch();
    assert!(!mark.is_known && mark.last_final.is_none());
    // once, and not at each refused connection
    host.link().handle_connection_refused(&host.shared, 4_700);
    let chain = host.link().chains.get(&SPACE).unwrap();
    assert_eq!(chain.chain_mark_at_dispatch().epoch, mark.epoch);
}

#[test]
fn generation_of_another_owner_replaces_the_known_one() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.insert_into_hot_tier(KEY, entry().with_stored_time_and_ttl(0, 10_000));
    for (generation, left) in [(0, 1), (3, 0)] {
        host.break_connection(0);
        host.pass(RETRY);
        host.receive_hello_event(generation, 9000);
        assert_eq!(
            (usable(&host), host.link().purge_generation()),
            (left, generation)
        );
    }
}

#[test]
fn waiting_lookup_is_woken_when_the_owner_is_gone() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.look_up_for_waiter(1, true);
    host.receive(1, &missing("pending"));
    host.refuses = true;
    host.break_connection(0);
    host.run();
    assert_eq!(host.woken(), [1]);
    let token = host.lead(1).unwrap();
    host.shared
        .finish_flight_and_wake(token, FlightOutcome::NotShareable);
    // lookups are not sent now
    host.look_up_for_waiter(2, true);
    assert!(host.lead(2).is_some());
    host.take_sent_requests();
    // the connection is retried
    host.refuses = false;
    host.pass(RETRY);
    assert_eq!(host.take_sent_requests().len(), 1);
}

#[test]
fn connection_to_an_absent_owner_is_retried_at_intervals() {
    let mut host = LinkTestHost::new();
    let (mut tries, mut next) = (0, 0);
    while host.now < 61_000 {
        match host.link().next_connection_action() {
            Some(LinkConnectionAction::Tick) => {
                next = host.link().send_and_expire_requests(&host.shared, host.now);
            }
            Some(LinkConnectionAction::Connect(slot)) => {
                tries += 1;
                host.link()
                    .handle_connection_opened(&host.shared, slot, false, host.now);
            }
            Some(need) => panic!("{need:?}"),
            None => {
                host.now += next;
                next = host.link().send_and_expire_requests(&host.shared, host.now);
            }
        }
    }
    // after 20 ms at first, for a second
    assert!((250..320).contains(&tries), "{tries}");
}

#[test]
fn silent_owner_is_down_after_a_timeout() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.pass(1_500);
    assert!(!host.link().is_owner_reachable());
    assert!(host.open.contains(&0) || host.take_sent_requests().is_empty());
}

#[test]
fn follower_leads_after_an_invalid_reply() {
    for bytes in [
        &b"HTTP/1.1 500 x\r\ncontent-length: 0\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n",
        b"nonsense\r\n\r\n",
    ] {
        let mut host = LinkTestHost::with_greeted_owner();
        host.look_up_for_waiter(1, true);
        host.receive(1, bytes);
        assert_eq!(host.woken(), [1], "{}", bytes.escape_ascii());
        assert!(host.lead(1).is_some());
    }
}

#[test]
fn lookups_without_a_lease_are_woken_to_fetch_alone() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.look_up_for_waiter(1, false);
    host.look_up_for_waiter(2, false);
    assert_eq!(
        host.take_sent_requests()[0].1,
        format!("GET {} HTTP/1.1", path())
    );
    host.receive(1, b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(host.woken(), [1, 2]);
    for waiter in [1, 2] {
        let turn = host.shared.flights.claim_wakeup(test_waiter(waiter));
        assert!(matches!(
            turn,
            Some(FlightFollowerWakeup::Response(FlightOutcome::NotShareable))
        ));
    }
}

#[test]
fn batch_lookup_returns_the_found_entries() {
    let mut host = LinkTestHost::with_greeted_owner();
    assert!(host.link().lookup_batch_at_owner(
        vec![[1; 32], [2; 32]],
        &SPACE,
        test_waiter(5),
        host.now
    ));
    host.run();
    let sent = &host.sent[0].1;
    let keys = format!("{}\n{}\n", "01".repeat(32), "02".repeat(32));
    assert!(sent.starts_with("POST /v1/lookups ") && sent.ends_with(&keys));
    host.receive(1, &batch_lookup_reply([2; 32]));
    assert_eq!(host.woken(), [5]);
    let hot = host.shared.hot_tier().unwrap();
    assert!(hot.get(&[2; 32], host.now).is_some() && hot.entry_count() == 1);
    let claimed = host.link().take_batch_entries(test_waiter(5));
    assert!(claimed.len() == 1 && claimed[0].0 == [2; 32]);
    assert!(host.link().take_batch_entries(test_waiter(5)).is_empty());
    // a waiter that has left is not woken
    host.link()
        .lookup_batch_at_owner(vec![[3; 32]], &SPACE, test_waiter(6), host.now);
    host.run();
    assert!(host.link().take_batch_entries(test_waiter(6)).is_empty());
    host.receive(1, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert!(host.woken().is_empty());
}

#[test]
fn batch_lookup_result_is_dropped_after_a_purge() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.link()
        .lookup_batch_at_owner(vec![[2; 32]], &SPACE, test_waiter(5), host.now);
    host.run();
    host.event("purge", "{\"generation\":1}");
    host.receive(1, &batch_lookup_reply([2; 32]));
    assert_eq!(host.woken(), [5]);
    assert!(!host.is_hot([2; 32]) && host.link().take_batch_entries(test_waiter(5)).is_empty());
}

#[test]
fn found_entries_are_returned_without_a_hot_tier() {
    let mut host = LinkTestHost::without_memory();
    host.greet();
    host.look_up_for_waiter(1, true);
    host.receive(1, &found());
    assert_eq!(host.woken(), [1]);
    assert!(host.answer(1).is_some());
    let fetch = |host: &mut LinkTestHost| {
        assert!(host
            .link()
            .lookup_batch_at_owner(vec![[2; 32]], &SPACE, test_waiter(5), host.now));
        host.run();
        host.receive(1, &batch_lookup_reply([2; 32]));
        assert_eq!(host.woken(), [5]);
    };
    fetch(&mut host);
    assert_eq!(host.link().take_batch_entries(test_waiter(5)).len(), 1);
    // an entry is not returned after a purge
    fetch(&mut host);
    host.event("purge", "{\"generation\":1}");
    assert!(host.link().take_batch_entries(test_waiter(5)).is_empty());
}

#[test]
fn entries_are_stored_after_waiting_lookups() {
    let mut host = LinkTestHost::with_greeted_owner();
    for n in 0..3 {
        let entry = Arc::new(entry().with_stored_time_and_ttl(host.now, 10_000));
        let about = StoredEntryAttributes::attributes_for_entry(&entry, [0; 16], None, 0).unwrap();
        host.link().store_at_owner([n; 32], entry, about, None);
    }
    host.look_up_for_waiter(1, true);
    // lookups have priority, and the last connection is reserved for them
    let sent = host.take_sent_requests();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].1.starts_with("GET"));
    host.receive(1, DONE);
    let sent = host.take_sent_requests();
    assert_eq!(sent.len(), 3, "{sent:?}");
    // the first line follows the entry before it
    let is_put = |(slot, line): &(usize, String)| *slot == 1 && line.contains("PUT /v1/entries");
    assert!(sent.iter().all(is_put), "{sent:?}");
}

#[test]
fn driver_is_woken_once_for_several_requests() {
    let driver = Arc::new(WokenRequestQueue::default());
    let shared = ProcessCacheState::default();
    let link = OwnerLink::new("w-1".into(), OwnerLinkLimits::default())
        .attach_driver_waker(driver.clone(), 5);
    // the first tick needs no waker
    assert_eq!(
        (link.next_connection_action(), driver.next_woken_id()),
        (Some(LinkConnectionAction::Tick), None)
    );
    link.send_and_expire_requests(&shared, 0);
    for waiter in [1, 2] {
        assert!(link.queue_purge("{}".into(), test_waiter(waiter), 0));
    }
    assert_eq!(
        (driver.next_woken_id(), driver.next_woken_id()),
        (Some(5), None)
    );
    assert_eq!(
        link.next_connection_action(),
        Some(LinkConnectionAction::Tick)
    );
    link.send_and_expire_requests(&shared, 0);
    assert!(link.queue_purge("{}".into(), test_waiter(3), 0));
    assert_eq!(driver.next_woken_id(), Some(5));
}
