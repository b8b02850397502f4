//! Tests of purges of an operator.

use super::*;
use crate::cache::link::MAX_PURGE_SENDS;
use crate::time_constants::{purge_patience, purge_timeout};

const WAITER: usize = 9;

fn send_purge(host: &mut LinkTestHost, waiter: usize) {
    let scope = "{\"everything\":true}".into();
    assert!(host
        .link()
        .queue_purge(scope, test_waiter(waiter), host.now));
    host.run();
}

/// Returns the numbers of the purges that the owner has received.
fn purges(host: &mut LinkTestHost) -> Vec<u32> {
    let messages = host.take_messages().into_iter();
    let ids = messages.filter_map(|message| match message {
        ProcessMessage::Purge { id, scope } => {
            assert_eq!(scope.into_joined_bytes().unwrap(), b"{\"everything\":true}");
            Some(id)
        }
        _ => None,
    });
    ids.collect()
}

fn done(id: u32) -> OwnerMessage {
    OwnerMessage::AdminReply {
        id,
        status: 200,
        total: 2,
        body: MessageBody::from(b"{}".to_vec()),
    }
}

fn claim_reply(host: &LinkTestHost) -> Option<(u16, Vec<u8>)> {
    host.link().claim_admin_reply(test_waiter(WAITER))
}

fn claim_status(host: &LinkTestHost) -> Option<u16> {
    claim_reply(host).map(|(status, _)| status)
}

#[test]
fn purge_is_sent_when_the_session_is_open() {
    let mut host = LinkTestHost::new();
    host.refuses = true;
    host.run();
    send_purge(&mut host, WAITER);
    host.pass(1000);
    assert!(host.woken().is_empty() && purges(&mut host).is_empty());
    host.refuses = false;
    host.pass(RETRY);
    host.open_session(0, 5000);
    // the timeout of a connected owner applies now
    let id = host.take_id();
    host.pass(1200);
    host.send(done(id));
    assert_eq!(host.woken(), [WAITER]);
    assert_eq!(claim_reply(&host), Some((200, b"{}".to_vec())));
}

#[test]
fn purge_is_sent_although_its_client_has_gone() {
    let mut host = LinkTestHost::new();
    send_purge(&mut host, WAITER);
    assert_eq!(claim_status(&host), None);
    host.open_session(0, 5000);
    let id = host.take_id();
    host.send(done(id));
    assert_eq!((host.woken(), claim_status(&host)), (vec![], None));
    // the next purge is not affected
    send_purge(&mut host, WAITER);
    assert_eq!(purges(&mut host).len(), 1);
}

#[test]
fn purges_do_not_delay_other_requests() {
    let mut host = LinkTestHost::connected();
    for waiter in 20..25 {
        send_purge(&mut host, waiter);
    }
    let ids = purges(&mut host);
    assert_eq!(ids.len(), 5);
    host.purge_event(1, PurgeEventScope::Everything);
    host.look_up_for_waiter(1, true);
    let messages = host.take_messages();
    assert!(matches!(messages[0], ProcessMessage::Applied { .. }));
    assert!(matches!(messages[1], ProcessMessage::Lookup { .. }));
    for (id, waiter) in ids.into_iter().zip(20..) {
        host.send(done(id));
        assert_eq!(host.woken(), [waiter]);
    }
}

#[test]
fn purge_fails_with_503_without_an_owner() {
    let mut host = LinkTestHost::new();
    host.refuses = true;
    host.run();
    send_purge(&mut host, WAITER);
    for _ in 0..purge_patience() / 10 - 1 {
        host.pass(10);
    }
    assert!(host.woken().is_empty());
    host.pass(10);
    assert_eq!(
        (host.woken(), claim_status(&host)),
        (vec![WAITER], Some(503))
    );
}

#[test]
fn purge_is_sent_again_to_the_next_owner() {
    let mut host = LinkTestHost::connected();
    send_purge(&mut host, WAITER);
    assert_eq!(purges(&mut host).len(), 1);
    host.reconnect();
    assert!(host.woken().is_empty());
    host.open_session(0, 5000);
    let id = host.take_id();
    host.send(done(id));
    assert_eq!(
        (host.woken(), claim_status(&host)),
        (vec![WAITER], Some(200))
    );
}

#[test]
fn purge_is_abandoned_after_repeated_connection_losses() {
    let mut host = LinkTestHost::connected();
    send_purge(&mut host, WAITER);
    for times in 1..=MAX_PURGE_SENDS {
        assert!(host.woken().is_empty());
        assert_eq!(purges(&mut host).len(), 1, "{times}");
        host.reconnect();
        host.open_session(0, 5000);
    }
    // it is unknown whether the purge is in effect
    assert_eq!((host.woken(), claim_status(&host)), (vec![WAITER], None));
    assert!(purges(&mut host).is_empty());
}

#[test]
fn purge_is_abandoned_after_its_timeout_and_not_sent_again() {
    let mut host = LinkTestHost::connected();
    send_purge(&mut host, WAITER);
    host.send_lease(60_000);
    for _ in 0..purge_timeout() / 1000 {
        host.pass(1000);
        host.send_lease(60_000);
    }
    assert_eq!((host.woken(), claim_status(&host)), (vec![WAITER], None));
    assert_eq!(purges(&mut host).len(), 1);
}

#[test]
fn status_of_the_owner_is_queried() {
    let mut host = LinkTestHost::new();
    let waiter = test_waiter(WAITER);
    assert!(!host.link().query_owner_status(waiter, host.now));
    host.open_session(0, 5000);
    assert!(host.link().query_owner_status(waiter, host.now));
    host.run();
    let id = host.take_id();
    host.send(done(id));
    assert_eq!(claim_status(&host), Some(200));
    assert!(host.link().query_owner_status(waiter, host.now));
    host.pass(1000);
    assert_eq!(host.woken(), [WAITER, WAITER]);
    assert_eq!(claim_status(&host), None);
}
