//! Tests of stores that wait for a store in flight, and are sent with lookups.

use super::*;

/// Returns the number of entries that were sent, and their connections.
fn stored(host: &mut LinkTestHost) -> (usize, Vec<usize>) {
    let text: Vec<_> = std::mem::take(&mut host.sent);
    let puts = text.iter().map(|(_, text)| text.matches("PUT /").count());
    let mut slots: Vec<usize> = text.iter().map(|(slot, _)| *slot).collect();
    let puts = puts.sum();
    slots.dedup();
    (puts, slots)
}

#[test]
fn entries_are_collected_while_a_store_is_in_flight() {
    let mut host = LinkTestHost::with_greeted_owner();
    // the first one opens the connection
    host.store_entries_at_owner(1..2);
    assert_eq!(stored(&mut host), (1, vec![1]));
    for n in 2..5 {
        host.store_entries_at_owner(n..n + 1);
        assert_eq!(stored(&mut host).0, 0, "{n}");
    }
    host.receive(1, DONE);
    assert_eq!(stored(&mut host), (3, vec![1]));
}

#[test]
fn entries_are_stored_over_the_connection_of_earlier_stores() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.store_entries_at_owner(1..2);
    // the other connection is reserved for lookups
    host.store_entries_at_owner(2..3);
    stored(&mut host);
    host.look_up_for_waiter(1, true);
    let sent = std::mem::take(&mut host.sent);
    assert!(
        sent.iter()
            .all(|(slot, text)| *slot == 2 && !text.contains("PUT")),
        "{sent:?}"
    );
    host.receive(2, &missing("granted"));
    host.receive(1, DONE);
    assert_eq!(stored(&mut host), (1, vec![1]));
    host.store_entries_at_owner(3..4);
    look_up_all_keys(&mut host, 10..12);
    host.sent.clear();
    host.receive(1, DONE);
    let (puts, slots) = stored(&mut host);
    assert_eq!((puts, slots), (1, vec![1]));
}

#[test]
fn entries_wait_for_a_store_although_connections_are_free() {
    let mut host = LinkTestHost::with_connections(3);
    host.greet();
    for n in 1..4 {
        host.store_entries_at_owner(n..n + 1);
    }
    assert_eq!(stored(&mut host), (1, vec![1]));
    host.receive(1, DONE);
    assert_eq!(stored(&mut host), (2, vec![1]));
}

#[test]
fn lease_is_returned_if_the_connection_of_a_store_breaks() {
    let mut host = LinkTestHost::with_greeted_owner();
    host.store_entries_at_owner(1..2);
    host.break_connection(1);
    host.take_sent_requests();
    host.pass(RETRY);
    let sent = host.take_sent_requests();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].1.starts_with("DELETE /v1/leases/0101"), "{sent:?}");
}
