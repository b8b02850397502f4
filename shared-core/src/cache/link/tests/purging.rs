//! Tests of purges of an operator.

use super::*;
use crate::cache::link::{PURGE, PURGE_PATIENCE, PURGE_SENT};

const WAITER: usize = 9;

fn send_purge(host: &mut LinkTestHost) {
    let body = "{\"everything\":true}".into();
    assert!(host.link().queue_purge(body, test_waiter(WAITER), host.now));
    host.run();
}

fn purges(host: &mut LinkTestHost) -> usize {
    let requests = host.take_sent_requests();
    let is_purge = |(_, line): &&(usize, String)| line.starts_with("POST /v1/purges");
    requests.iter().filter(is_purge).count()
}

fn status(host: &LinkTestHost) -> Option<u16> {
    host.link()
        .take_admin_reply(test_waiter(WAITER))
        .map(|(status, _)| status)
}

const DONE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

#[test]
fn purge_waits_until_the_link_is_connected() {
    let mut host = LinkTestHost::new();
    host.run();
    send_purge(&mut host);
    host.pass(1000);
    assert!(host.woken().is_empty() && purges(&mut host) == 0);
    host.receive_hello_event(0, 5000);
    assert_eq!(purges(&mut host), 1);
    // the timeout of a connected owner applies now
    host.pass(1200);
    host.receive(1, DONE);
    assert_eq!((host.woken(), status(&host)), (vec![WAITER], Some(200)));
}

#[test]
fn purge_is_sent_although_its_client_has_gone() {
    let mut host = LinkTestHost::new();
    host.run();
    send_purge(&mut host);
    host.link().forget_waiter(test_waiter(WAITER));
    host.receive_hello_event(0, 5000);
    assert_eq!(purges(&mut host), 1);
    host.receive(1, DONE);
    assert_eq!((host.woken(), status(&host)), (vec![], None));
    // the next purge is not affected
    send_purge(&mut host);
    assert_eq!(purges(&mut host), 1);
}

#[test]
fn purges_leave_connections_to_other_requests() {
    let mut host = LinkTestHost::with_greeted_owner();
    for waiter in 0..5 {
        let body = "{\"everything\":true}".into();
        assert!(host
            .link()
            .queue_purge(body, test_waiter(20 + waiter), host.now));
    }
    host.run();
    assert_eq!(purges(&mut host), 1);
    // the acknowledgement of the first purge, and other requests
    host.event("purge", "{\"generation\":1}");
    let sent = host.take_sent_requests();
    assert!(sent[0].1.contains("/v1/acknowledgements"), "{sent:?}");
    host.receive(2, super::DONE);
    host.look_up_for_waiter(1, true);
    let sent = host.take_sent_requests();
    assert!(sent[0].1.contains("/v1/entries/"), "{sent:?}");
    // purges are sent one after another
    for waiter in 0..5 {
        host.receive(1, DONE);
        assert_eq!(host.woken(), [20 + waiter]);
        assert_eq!(purges(&mut host), usize::from(waiter < 4));
    }
}

#[test]
fn purge_fails_with_503_without_an_owner() {
    let mut host = LinkTestHost::new();
    host.refuses = true;
    host.run();
    send_purge(&mut host);
    for _ in 0..PURGE_PATIENCE / 10 - 1 {
        host.pass(10);
    }
    assert!(host.woken().is_empty());
    host.pass(10);
    assert_eq!((host.woken(), status(&host)), (vec![WAITER], Some(503)));
}

#[test]
fn purge_is_sent_again_to_the_next_owner() {
    let mut host = LinkTestHost::with_greeted_owner();
    send_purge(&mut host);
    assert_eq!(purges(&mut host), 1);
    host.break_connection(0);
    host.break_connection(1);
    host.pass(RETRY);
    assert!(host.woken().is_empty() && purges(&mut host) == 0);
    host.receive_hello_event(0, 5000);
    assert_eq!(purges(&mut host), 1);
    host.receive(1, DONE);
    assert_eq!((host.woken(), status(&host)), (vec![WAITER], Some(200)));
}

#[test]
fn purge_is_abandoned_after_repeated_connection_losses() {
    let mut host = LinkTestHost::with_greeted_owner();
    send_purge(&mut host);
    for times in 1..=PURGE_SENT {
        assert!(host.woken().is_empty());
        let sent = host.take_sent_requests();
        assert!(sent.len() == 1, "{times}: {sent:?}");
        let slot = sent[0].0;
        host.break_connection(slot);
        host.pass(RETRY);
    }
    // it is unknown whether the purge is in effect
    assert_eq!((host.woken(), status(&host)), (vec![WAITER], None));
    assert_eq!(purges(&mut host), 0);
}

#[test]
fn purge_is_abandoned_after_its_timeout_and_not_sent_again() {
    let mut host = LinkTestHost::with_greeted_owner();
    send_purge(&mut host);
    host.event("lease", "{\"generation\":0,\"until\":60000}");
    for _ in 0..PURGE / 1000 {
        host.pass(1000);
        host.event("lease", "{\"generation\":0,\"until\":60000}");
    }
    assert_eq!((host.woken(), status(&host)), (vec![WAITER], None));
    assert_eq!(purges(&mut host), 1);
}
