//! Tests of several lookups at the same time.

use super::*;
use crate::cache::link::dispatch::TOGETHER;

/// Returns a host whose first connection is open.
fn connected() -> LinkTestHost {
    let mut host = LinkTestHost::with_greeted_owner();
    look_up_all_keys(&mut host, 1..2);
    host.receive(1, &missing("granted"));
    assert_eq!(host.woken(), [1]);
    host.sent.clear();
    host
}

#[test]
fn lookups_at_the_same_time_are_sent_together() {
    let mut host = connected();
    look_up_all_keys(&mut host, 2..5);
    assert_eq!(host.sent.len(), 1);
    let sent = host.take_sent_requests();
    assert_eq!(sent.len(), 3, "{sent:?}");
    assert!((2..5u8).zip(&sent).all(|(n, (slot, line))| {
        *slot == 1 && line.starts_with(&format!("GET /v1/entries/{n:02x}{n:02x}"))
    }));
    // in their order, at any position of the cut
    let answers = [missing("granted"), found(), missing("granted")].concat();
    host.receive(1, &answers);
    assert_eq!(host.woken(), [2, 3, 4]);
    assert!(host.lead(2).is_some() && host.answer(3).is_some() && host.lead(4).is_some());
    // more of them are sent over another connection
    look_up_all_keys(&mut host, 20..31);
    let slots: Vec<usize> = host
        .take_sent_requests()
        .iter()
        .map(|(slot, _)| *slot)
        .collect();
    assert_eq!(slots, [[1; TOGETHER].as_slice(), &[2]].concat());
}

#[test]
fn lookups_sent_together_time_out_separately() {
    let mut host = connected();
    look_up_all_keys(&mut host, 2..4);
    let answer = found();
    let (begun, rest) = answer.split_at(answer.len() - 3);
    host.pass(19);
    host.receive(1, begun);
    host.pass(1);
    // the later one is sent to the node, and its reply is still assigned to it
    assert_eq!(host.woken(), [3]);
    host.receive(1, rest);
    assert_eq!(host.woken(), [2]);
    assert!(host.answer(2).is_some());
    let token = host.lead(3).unwrap();
    host.receive(1, &missing("granted"));
    host.take_sent_requests();
    host.shared
        .finish_flight_and_wake(token, FlightOutcome::NotShareable);
    host.run();
    let sent = host.take_sent_requests();
    assert!(sent[0].1.starts_with("DELETE /v1/leases/0303"), "{sent:?}");
}

#[test]
fn lookups_sent_together_fail_with_their_connection() {
    let mut host = connected();
    look_up_all_keys(&mut host, 2..5);
    host.break_connection(1);
    host.run();
    assert_eq!(host.woken(), [2, 3, 4]);
    assert!((2..5).all(|waiter| host.lead(waiter).is_some()));
}
