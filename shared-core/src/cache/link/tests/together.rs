//! Entries wait for those that are under way, and go with what is asked.

use super::*;

/// How many entries were sent, and over which connections.
fn stored(host: &mut Host) -> (usize, Vec<usize>) {
    let text: Vec<_> = std::mem::take(&mut host.sent);
    let puts = text.iter().map(|(_, text)| text.matches("PUT /").count());
    let mut slots: Vec<usize> = text.iter().map(|(slot, _)| *slot).collect();
    let puts = puts.sum();
    slots.dedup();
    (puts, slots)
}

#[test]
fn one_after_the_other_they_go_together() {
    let mut host = Host::up();
    // the first opens the connection
    host.store(1..2);
    assert_eq!(stored(&mut host), (1, vec![1]));
    for n in 2..5 {
        host.store(n..n + 1);
        assert_eq!(stored(&mut host).0, 0, "{n}");
    }
    host.receive(1, DONE);
    assert_eq!(stored(&mut host), (3, vec![1]));
}

#[test]
fn what_is_asked_takes_them_along() {
    let mut host = Host::up();
    host.store(1..2);
    // the other connection is kept for those who wait
    host.store(2..3);
    stored(&mut host);
    host.want(1, true);
    let sent = std::mem::take(&mut host.sent);
    assert!(
        sent.iter()
            .all(|(slot, text)| *slot == 2 && !text.contains("PUT")),
        "{sent:?}"
    );
    host.receive(2, &missing("granted"));
    host.receive(1, DONE);
    assert_eq!(stored(&mut host), (1, vec![1]));
    host.store(3..4);
    want_all(&mut host, 10..12);
    host.sent.clear();
    host.receive(1, DONE);
    let (puts, slots) = stored(&mut host);
    assert_eq!((puts, slots), (1, vec![1]));
}

#[test]
fn they_wait_though_other_connections_are_free() {
    let mut host = Host::with_connections(3);
    host.greet();
    for n in 1..4 {
        host.store(n..n + 1);
    }
    assert_eq!(stored(&mut host), (1, vec![1]));
    host.receive(1, DONE);
    assert_eq!(stored(&mut host), (2, vec![1]));
}

#[test]
fn one_whose_connection_breaks_holds_no_lease() {
    let mut host = Host::up();
    host.store(1..2);
    host.lose(1);
    host.requests();
    host.pass(RETRY);
    let sent = host.requests();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].1.starts_with("DELETE /v1/leases/0101"), "{sent:?}");
}
