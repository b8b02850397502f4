//! Purges that an operator asks for.

use super::*;
use crate::cache::link::{PURGE, PURGE_PATIENCE, PURGE_SENT};

const WAITER: usize = 9;

fn asked(host: &mut Host) {
    let body = "{\"everything\":true}".into();
    assert!(host.link().purge(body, at(WAITER), host.now));
    host.run();
}

fn purges(host: &mut Host) -> usize {
    let requests = host.requests();
    let is_purge = |(_, line): &&(usize, String)| line.starts_with("POST /v1/purges");
    requests.iter().filter(is_purge).count()
}

fn status(host: &Host) -> Option<u16> {
    host.link().claim(at(WAITER)).map(|(status, _)| status)
}

const DONE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

#[test]
fn one_that_comes_before_the_link_waits_for_it() {
    let mut host = Host::new();
    host.run();
    asked(&mut host);
    host.pass(1000);
    assert!(host.woken().is_empty() && purges(&mut host) == 0);
    host.hello(0, 5000);
    assert_eq!(purges(&mut host), 1);
    // and now it has the owner's time
    host.pass(1200);
    host.receive(1, DONE);
    assert_eq!((host.woken(), status(&host)), (vec![WAITER], Some(200)));
}

#[test]
fn one_whose_client_has_gone_is_done() {
    let mut host = Host::new();
    host.run();
    asked(&mut host);
    host.link().forget(at(WAITER));
    host.hello(0, 5000);
    assert_eq!(purges(&mut host), 1);
    host.receive(1, DONE);
    assert_eq!((host.woken(), status(&host)), (vec![], None));
    // and the next one is like any
    asked(&mut host);
    assert_eq!(purges(&mut host), 1);
}

#[test]
fn many_leave_connections_to_others() {
    let mut host = Host::up();
    for waiter in 0..5 {
        let body = "{\"everything\":true}".into();
        assert!(host.link().purge(body, at(20 + waiter), host.now));
    }
    host.run();
    assert_eq!(purges(&mut host), 1);
    // what it takes for the first to hold, and what others want
    host.event("purge", "{\"generation\":1}");
    let sent = host.requests();
    assert!(sent[0].1.contains("/v1/acknowledgements"), "{sent:?}");
    host.receive(2, super::DONE);
    host.want(1, true);
    let sent = host.requests();
    assert!(sent[0].1.contains("/v1/entries/"), "{sent:?}");
    // and they follow one another
    for waiter in 0..5 {
        host.receive(1, DONE);
        assert_eq!(host.woken(), [20 + waiter]);
        assert_eq!(purges(&mut host), usize::from(waiter < 4));
    }
}

#[test]
fn without_an_owner_nothing_is_purged_and_that_is_said() {
    let mut host = Host::new();
    host.refuses = true;
    host.run();
    asked(&mut host);
    for _ in 0..PURGE_PATIENCE / 10 - 1 {
        host.pass(10);
    }
    assert!(host.woken().is_empty());
    host.pass(10);
    assert_eq!((host.woken(), status(&host)), (vec![WAITER], Some(503)));
}

#[test]
fn one_whose_owner_ends_is_sent_to_the_next() {
    let mut host = Host::up();
    asked(&mut host);
    assert_eq!(purges(&mut host), 1);
    host.lose(0);
    host.lose(1);
    host.pass(RETRY);
    assert!(host.woken().is_empty() && purges(&mut host) == 0);
    host.hello(0, 5000);
    assert_eq!(purges(&mut host), 1);
    host.receive(1, DONE);
    assert_eq!((host.woken(), status(&host)), (vec![WAITER], Some(200)));
}

#[test]
fn one_that_ends_each_owner_is_given_up() {
    let mut host = Host::up();
    asked(&mut host);
    for times in 1..=PURGE_SENT {
        assert!(host.woken().is_empty());
        let sent = host.requests();
        assert!(sent.len() == 1, "{times}: {sent:?}");
        let slot = sent[0].0;
        host.lose(slot);
        host.pass(RETRY);
    }
    // nobody knows whether it holds
    assert_eq!((host.woken(), status(&host)), (vec![WAITER], None));
    assert_eq!(purges(&mut host), 0);
}

#[test]
fn one_that_takes_too_long_is_given_up_and_never_sent_again() {
    let mut host = Host::up();
    asked(&mut host);
    host.event("lease", "{\"generation\":0,\"until\":60000}");
    for _ in 0..PURGE / 1000 {
        host.pass(1000);
        host.event("lease", "{\"generation\":0,\"until\":60000}");
    }
    assert_eq!((host.woken(), status(&host)), (vec![WAITER], None));
    assert_eq!(purges(&mut host), 1);
}
