use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::{About, Link, Need, Settings, RETRY, SILENCE};
use crate::cache::entry::{Entry, Envelope, Meta, Payload};
use crate::cache::flights::{Outcome, Role, Token, Turn, Waiter};
use crate::cache::process::Tier;
use crate::cache::wire::Encoded;
use crate::cache::Key;

mod chains;
mod purging;
mod together;

const KEY: Key = [7; 32];

/// A host that carries bytes between a link and a script.
struct Host {
    tier: Tier,
    now: u64,
    open: BTreeSet<usize>,
    /// Requests that were written, and on which connection.
    sent: Vec<(usize, String)>,
    refuses: bool,
}

impl Host {
    fn new() -> Self {
        let tier = Tier::default();
        tier.start(1 << 20, 1);
        let settings = Settings {
            connections: 2,
            deadline: 20,
            max_body: 10_000,
        };
        tier.join(|| Link::new("w-1".into(), settings));
        Self {
            tier,
            now: 1000,
            open: BTreeSet::new(),
            sent: Vec::new(),
            refuses: false,
        }
    }

    /// The same, after the owner has said hello.
    fn up() -> Self {
        let mut host = Self::new();
        host.run();
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        host.receive(0, head.as_bytes());
        host.event("hello", "{\"version\":1,\"generation\":0,\"until\":5000}");
        host.sent.clear();
        host
    }

    fn link(&self) -> &Link {
        self.tier.link().unwrap()
    }

    fn run(&mut self) {
        for _ in 0..1000 {
            match self.link().need() {
                None => return,
                Some(Need::Tick) => {
                    self.link().tick(&self.tier, self.now);
                }
                Some(Need::Close(slot)) => {
                    self.open.remove(&slot);
                }
                Some(Need::Connect(slot)) => {
                    if !self.refuses {
                        assert!(self.open.insert(slot), "{slot} is open");
                    }
                    self.link()
                        .connected(&self.tier, slot, !self.refuses, self.now);
                }
                Some(Need::Write(slot)) => {
                    let mut bytes = Vec::new();
                    let mut more = true;
                    while more {
                        self.link().write(slot, |pieces| {
                            let before = bytes.len();
                            bytes.extend(pieces.flatten().take(30));
                            more = bytes.len() > before;
                            bytes.len() - before
                        });
                    }
                    if !bytes.is_empty() {
                        let text = String::from_utf8_lossy(&bytes).into_owned();
                        self.sent.push((slot, text));
                    }
                }
            }
        }
        panic!("the link never rests");
    }

    #[allow(unsafe_code)]
    fn receive(&mut self, slot: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut taken = 0;
            let is_open = self.link().room(slot, |room| {
                taken = room.len().min(bytes.len()).min(70);
                for (to, from) in room.iter_mut().zip(&bytes[..taken]) {
                    to.write(*from);
                }
            });
            if !is_open {
                break;
            }
            // SAFETY: just written.
            unsafe { self.link().filled(&self.tier, slot, taken, self.now) };
            bytes = &bytes[taken..];
        }
        self.run();
    }

    fn event(&mut self, name: &str, data: &str) {
        let event = format!("event: {name}\ndata: {data}\n\n");
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        self.receive(0, chunk.as_bytes());
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        self.link().tick(&self.tier, self.now);
        self.run();
    }

    /// A request that wants `KEY`.
    fn want(&mut self, waiter: Waiter, leases: bool) {
        match self.tier.flights.begin(KEY, waiter).unwrap() {
            Role::Follower => {}
            Role::Leader(token) => {
                self.tier.flights.follow(&token, waiter).unwrap();
                if let Err(token) = self.link().ask(KEY, token, leases, self.now) {
                    self.tier.hand_on(token);
                }
            }
        }
        self.run();
    }

    fn lead(&self, waiter: Waiter) -> Option<Token> {
        match self.tier.flights.claim(waiter) {
            Some(Turn::Lead(token)) => Some(token),
            _ => None,
        }
    }

    fn woken(&self) -> Vec<Waiter> {
        std::iter::from_fn(|| self.tier.next_woken()).collect()
    }

    fn answer(&self, waiter: Waiter) -> Option<Arc<Entry>> {
        match self.tier.flights.claim(waiter) {
            Some(Turn::Landed(Outcome::Answer(entry))) => Some(entry),
            _ => None,
        }
    }

    /// The requests since the last call.
    fn requests(&mut self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.sent)
            .into_iter()
            .flat_map(|(slot, text)| {
                let lines = text.lines().filter(|line| line.ends_with(" HTTP/1.1"));
                let lines: Vec<String> = lines.map(Into::into).collect();
                lines.into_iter().map(move |line| (slot, line))
            })
            .collect()
    }
}

fn entry() -> Entry {
    Entry::new(
        Envelope::none(),
        Payload::Raw(b"true".to_vec().into()),
        Meta::default(),
    )
}

fn bytes_of(entry: &Entry) -> Vec<u8> {
    let encoded = Encoded::of(entry).unwrap();
    [&encoded.head[..], &encoded.payload].concat()
}

fn found() -> Vec<u8> {
    let body = bytes_of(&entry());
    let head = format!(
        "HTTP/1.1 200 OK\r\nsszip-fresh: 500\r\nage: 2\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

fn missing(lease: &str) -> Vec<u8> {
    format!("HTTP/1.1 404 Not Found\r\nsszip-lease: {lease}\r\ncontent-length: 0\r\n\r\n").into()
}

const DONE: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

fn path() -> String {
    format!("/v1/entries/{}", "07".repeat(32))
}

#[test]
fn what_the_owner_has_goes_to_all_who_want_it() {
    let mut host = Host::up();
    host.want(1, true);
    host.want(2, true);
    let sent = host.requests();
    assert_eq!(
        sent,
        [(1, format!("GET {}?lease=w-1&for=60000 HTTP/1.1", path()))]
    );
    host.receive(1, &found());
    assert_eq!(host.woken(), [1, 2]);
    let answer = host.answer(1).unwrap();
    assert_eq!(answer.meta().expires_at, host.now + 500);
    assert_eq!(answer.meta().stored_at, host.now.saturating_sub(2000));
    assert!(host.answer(2).is_some());
    assert!(host.tier.hot().unwrap().get(&KEY, host.now).is_some());
    assert!(host.tier.flights.is_empty());
}

#[test]
fn the_lease_is_for_one_and_is_given_back() {
    let mut host = Host::up();
    host.want(1, true);
    host.want(2, true);
    host.receive(1, &missing("granted"));
    assert_eq!(host.woken(), [1]);
    let token = host.lead(1).unwrap();
    // the one that leads fails: the other leads under the same lease
    host.tier.hand_on(token);
    let token = host.lead(2).unwrap();
    host.requests();
    host.tier.finish(token, Outcome::Alone);
    host.run();
    let expected = format!("DELETE /v1/leases/{}?process=w-1 HTTP/1.1", "07".repeat(32));
    assert_eq!(host.requests(), [(1, expected)]);
}

#[test]
fn a_lease_that_nobody_wants_any_more_is_given_back() {
    let mut host = Host::up();
    host.want(1, true);
    host.tier.leave(&KEY, 1);
    host.requests();
    host.receive(1, &missing("granted"));
    let sent = host.requests();
    assert!(sent[0].1.starts_with("DELETE /v1/leases/"), "{sent:?}");
    assert!(host.tier.flights.is_empty());
}

#[test]
fn what_another_process_fetches_is_waited_for() {
    for order in ["answer first", "event first"] {
        let mut host = Host::up();
        host.want(1, true);
        host.want(2, true);
        let key = "07".repeat(32);
        if order == "answer first" {
            host.receive(1, &missing("pending"));
            host.event("filled", &key);
        } else {
            host.event("filled", &key);
            host.receive(1, &missing("pending"));
        }
        let sent = host.requests();
        assert_eq!(sent.len(), 2, "{order}: {sent:?}");
        assert!(host.woken().is_empty());
        host.receive(1, &found());
        assert_eq!(host.woken(), [1, 2]);
        assert!(host.answer(1).is_some() && host.answer(2).is_some());
    }
}

#[test]
fn an_owner_that_is_slow_is_not_waited_for() {
    let mut host = Host::up();
    host.want(1, true);
    host.pass(19);
    assert!(host.woken().is_empty());
    host.pass(1);
    assert_eq!(host.woken(), [1]);
    let token = host.lead(1).unwrap();
    // its answer comes all the same: the lease is the flight's
    host.receive(1, &missing("granted"));
    host.requests();
    host.tier.finish(token, Outcome::Alone);
    host.run();
    let sent = host.requests();
    assert!(sent[0].1.starts_with("DELETE"), "{sent:?}");
}

#[test]
fn an_answer_that_comes_is_waited_for_while_it_does() {
    let mut host = Host::up();
    host.want(1, true);
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
fn look_ups_wait_for_a_connection_and_not_for_ever() {
    let mut host = Host::up();
    for n in 0..4 {
        let key = [n; 32];
        let Some(Role::Leader(token)) = host.tier.flights.begin(key, 10) else {
            panic!()
        };
        host.tier.flights.follow(&token, usize::from(n)).unwrap();
        host.link().ask(key, token, true, host.now).unwrap();
    }
    host.run();
    assert_eq!(host.requests().len(), 2);
    host.receive(1, &missing("granted"));
    assert_eq!(host.requests().len(), 2);
    host.pass(20);
    let mut woken = host.woken();
    woken.sort_unstable();
    assert_eq!(woken, [0, 1, 2, 3]);
}

#[test]
fn a_purge_empties_memory_and_is_acknowledged() {
    let mut host = Host::up();
    let hot = |host: &Host| host.tier.hot().unwrap().len();
    for n in 0..3 {
        host.tier
            .hot()
            .unwrap()
            .insert([n; 32], Arc::new(entry().stored(0, 10_000)));
    }
    let key = "01".repeat(32);
    host.event("purge", &format!("{{\"generation\":1,\"key\":\"{key}\"}}"));
    assert_eq!((hot(&host), host.link().generation()), (2, 1));
    let sent = &host.sent[0].1;
    assert!(
        sent.starts_with("POST /v1/acknowledgements?process=w-1") && sent.ends_with("\r\n1"),
        "{sent}"
    );
    host.event("purge", "{\"generation\":2}");
    assert_eq!((hot(&host), host.link().generation()), (0, 2));
}

#[test]
fn an_answer_from_before_a_purge_is_asked_for_again() {
    let mut host = Host::up();
    host.want(1, true);
    host.requests();
    host.event("purge", "{\"generation\":1}");
    host.receive(1, &found());
    assert!(host.woken().is_empty());
    assert!(host.tier.hot().unwrap().is_empty());
    let sent = host.requests();
    assert!(
        sent.iter().any(|(_, line)| line.starts_with("GET")),
        "{sent:?}"
    );
}

#[test]
fn memory_is_used_for_as_long_as_the_owner_allows() {
    let mut host = Host::up();
    assert!(host.link().may_send(4999) && !host.link().may_send(5000));
    host.event("lease", "{\"generation\":0,\"until\":6000}");
    assert!(host.link().may_send(5999));
    // the owner is gone: what it allowed last holds
    host.link().closed(&host.tier, 0, host.now);
    assert!(host.link().may_send(5999) && !host.link().is_up());
}

#[test]
fn another_owner_with_other_purges_is_believed() {
    let mut host = Host::up();
    let hot = |host: &Host| host.tier.hot().unwrap().len();
    host.tier
        .hot()
        .unwrap()
        .insert(KEY, Arc::new(entry().stored(0, 10_000)));
    for (generation, left) in [(0, 1), (3, 0)] {
        host.open.remove(&0);
        host.link().closed(&host.tier, 0, host.now);
        host.pass(RETRY);
        host.receive(0, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        let hello = format!("{{\"version\":1,\"generation\":{generation},\"until\":9000}}");
        host.event("hello", &hello);
        assert_eq!((hot(&host), host.link().generation()), (left, generation));
    }
}

#[test]
fn whoever_waits_goes_on_when_the_owner_is_gone() {
    let mut host = Host::up();
    host.want(1, true);
    host.receive(1, &missing("pending"));
    host.refuses = true;
    host.open.remove(&0);
    host.link().closed(&host.tier, 0, host.now);
    host.run();
    assert_eq!(host.woken(), [1]);
    let token = host.lead(1).unwrap();
    host.tier.finish(token, Outcome::Alone);
    // nobody is asked now
    host.want(2, true);
    assert!(host.lead(2).is_some());
    host.requests();
    // and it is tried again
    host.refuses = false;
    host.pass(RETRY);
    assert_eq!(host.requests().len(), 1);
}

#[test]
fn an_owner_that_never_comes_is_looked_for_now_and_then() {
    let mut host = Host::new();
    let (mut tries, mut next) = (0, 0);
    while host.now < 61_000 {
        match host.link().need() {
            Some(Need::Tick) => next = host.link().tick(&host.tier, host.now),
            Some(Need::Connect(slot)) => {
                tries += 1;
                host.link().connected(&host.tier, slot, false, host.now);
            }
            Some(need) => panic!("{need:?}"),
            None => {
                host.now += next;
                next = host.link().tick(&host.tier, host.now);
            }
        }
    }
    // 20 ms at first, for a second
    assert!((250..320).contains(&tries), "{tries}");
}

#[test]
fn a_silent_owner_is_gone() {
    let mut host = Host::up();
    host.pass(SILENCE);
    assert!(!host.link().is_up());
    assert!(host.open.contains(&0) || host.requests().is_empty());
}

#[test]
fn a_broken_answer_fails_open() {
    for bytes in [
        &b"HTTP/1.1 500 x\r\ncontent-length: 0\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n",
        b"nonsense\r\n\r\n",
    ] {
        let mut host = Host::up();
        host.want(1, true);
        host.receive(1, bytes);
        assert_eq!(host.woken(), [1], "{}", bytes.escape_ascii());
        assert!(host.lead(1).is_some());
    }
}

#[test]
fn those_who_would_not_share_an_answer_go_alone() {
    let mut host = Host::up();
    host.want(1, false);
    host.want(2, false);
    assert_eq!(host.requests()[0].1, format!("GET {} HTTP/1.1", path()));
    host.receive(1, b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(host.woken(), [1, 2]);
    for waiter in [1, 2] {
        let turn = host.tier.flights.claim(waiter);
        assert!(matches!(turn, Some(Turn::Landed(Outcome::Alone))));
    }
}

#[test]
fn several_are_looked_up_at_once() {
    let mut host = Host::up();
    assert!(host.link().ask_for_all(vec![[1; 32], [2; 32]], 5, host.now));
    host.run();
    let sent = &host.sent[0].1;
    let keys = format!("{}\n{}\n", "01".repeat(32), "02".repeat(32));
    assert!(sent.starts_with("POST /v1/lookups ") && sent.ends_with(&keys));
    let one = bytes_of(&entry());
    let mut body = vec![2; 32];
    body.extend_from_slice(&500u64.to_be_bytes());
    body.extend_from_slice(&(one.len() as u64).to_be_bytes());
    body.extend_from_slice(&one);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    host.receive(1, &[head.into_bytes(), body].concat());
    assert_eq!(host.woken(), [5]);
    let hot = host.tier.hot().unwrap();
    assert!(hot.get(&[2; 32], host.now).is_some() && hot.len() == 1);
    // one that has gone is not woken
    host.link().ask_for_all(vec![[3; 32]], 6, host.now);
    host.run();
    host.link().forget(6);
    host.receive(1, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert!(host.woken().is_empty());
}

#[test]
fn entries_are_stored_when_nobody_waits() {
    let mut host = Host::up();
    let about = About {
        class: "immutable",
        namespace: [0; 16],
        method: None,
        generation: 0,
        if_final: None,
    };
    for n in 0..3 {
        let entry = Arc::new(entry().stored(host.now, 10_000));
        host.link().store([n; 32], entry, about.clone());
    }
    host.want(1, true);
    // those who wait come first, and the last connection is theirs
    let sent = host.requests();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].1.starts_with("GET"));
    host.receive(1, DONE);
    let sent = host.requests();
    assert_eq!(sent.len(), 3, "{sent:?}");
    // the first line follows the entry before it
    let is_put = |(slot, line): &(usize, String)| *slot == 1 && line.contains("PUT /v1/entries");
    assert!(sent.iter().all(is_put), "{sent:?}");
}

/// Look-ups of these keys, asked at once.
fn want_all(host: &mut Host, keys: std::ops::Range<u8>) {
    for n in keys {
        let Some(Role::Leader(token)) = host.tier.flights.begin([n; 32], 10) else {
            panic!()
        };
        host.tier.flights.follow(&token, usize::from(n)).unwrap();
        host.link().ask([n; 32], token, true, host.now).unwrap();
    }
    host.run();
}

#[test]
fn what_is_asked_at_once_is_sent_together() {
    let mut host = Host::up();
    // the first of them opens the connection
    want_all(&mut host, 1..2);
    host.receive(1, &missing("granted"));
    assert_eq!(host.woken(), [1]);
    host.sent.clear();
    want_all(&mut host, 2..5);
    assert_eq!(host.sent.len(), 1);
    let sent = host.requests();
    assert_eq!(sent.len(), 3, "{sent:?}");
    assert!((2..5u8).zip(&sent).all(|(n, (slot, line))| {
        *slot == 1 && line.starts_with(&format!("GET /v1/entries/{n:02x}{n:02x}"))
    }));
    // in their order, wherever what comes is cut
    let answers = [missing("granted"), found(), missing("granted")].concat();
    host.receive(1, &answers);
    assert_eq!(host.woken(), [2, 3, 4]);
    assert!(host.lead(2).is_some() && host.answer(3).is_some() && host.lead(4).is_some());
    // more than that go over another one
    want_all(&mut host, 20..31);
    let slots: Vec<usize> = host.requests().iter().map(|(slot, _)| *slot).collect();
    assert_eq!(
        slots,
        [[1; super::sending::TOGETHER].as_slice(), &[2]].concat()
    );
}

#[test]
fn of_those_that_were_sent_together_each_has_its_time() {
    let mut host = Host::up();
    want_all(&mut host, 1..2);
    host.receive(1, &missing("granted"));
    host.woken();
    want_all(&mut host, 2..4);
    let answer = found();
    let (begun, rest) = answer.split_at(answer.len() - 3);
    host.pass(19);
    host.receive(1, begun);
    host.pass(1);
    // the one behind it goes to the node, and its answer is still its own
    assert_eq!(host.woken(), [3]);
    host.receive(1, rest);
    assert_eq!(host.woken(), [2]);
    assert!(host.answer(2).is_some());
    let token = host.lead(3).unwrap();
    host.receive(1, &missing("granted"));
    host.requests();
    host.tier.finish(token, Outcome::Alone);
    host.run();
    let sent = host.requests();
    assert!(sent[0].1.starts_with("DELETE /v1/leases/0303"), "{sent:?}");
}

#[test]
fn all_that_were_sent_together_fail_with_their_connection() {
    let mut host = Host::up();
    want_all(&mut host, 1..2);
    host.receive(1, &missing("granted"));
    host.woken();
    want_all(&mut host, 2..5);
    host.open.remove(&1);
    host.link().closed(&host.tier, 1, host.now);
    host.run();
    assert_eq!(host.woken(), [2, 3, 4]);
    assert!((2..5).all(|waiter| host.lead(waiter).is_some()));
}

#[derive(Clone, Debug)]
enum Step {
    Want(bool),
    Leave(usize),
    Reply(usize, usize),
    Event(usize),
    Close(usize),
    Pass(u64),
    Claim(usize),
    Refuse(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<bool>().prop_map(Step::Want),
        1 => any::<usize>().prop_map(Step::Leave),
        4 => (1usize..3, 0usize..6).prop_map(|(slot, what)| Step::Reply(slot, what)),
        2 => (0usize..5).prop_map(Step::Event),
        1 => (0usize..3).prop_map(Step::Close),
        2 => (1u64..30).prop_map(Step::Pass),
        3 => any::<usize>().prop_map(Step::Claim),
        1 => any::<bool>().prop_map(Step::Refuse),
    ]
}

proptest! {
    /// Whatever an owner does, all who wait go on, within the deadline if no
    /// other process fetches, and at once when the owner is gone.
    #[test]
    fn nobody_waits_for_ever(steps in prop::collection::vec(step(), 0..80)) {
        let mut host = Host::up();
        let mut waiting: BTreeSet<Waiter> = BTreeSet::new();
        let mut tokens = Vec::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Want(leases) => {
                    waiting.insert(n + 1);
                    host.want(n + 1, leases);
                }
                Step::Leave(which) => {
                    let gone = waiting.iter().nth(which % waiting.len().max(1)).copied();
                    if let Some(gone) = gone {
                        waiting.remove(&gone);
                        host.tier.forget(gone);
                        host.tier.leave(&KEY, gone);
                        host.run();
                    }
                }
                Step::Reply(slot, what) => {
                    if !host.open.contains(&slot) {
                        continue;
                    }
                    let reply = [
                        found(),
                        missing("granted"),
                        missing("pending"),
                        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
                        b"rubbish\r\n\r\n".to_vec(),
                        DONE.to_vec(),
                    ];
                    host.receive(slot, &reply[what]);
                }
                Step::Event(what) => {
                    if !host.link().is_up() {
                        continue;
                    }
                    let key = "07".repeat(32);
                    match what {
                        0 => host.event("filled", &key),
                        1 => host.event("given-up", &key),
                        2 => host.event("purge", &format!("{{\"generation\":{n}}}")),
                        3 => host.event("lease", "{\"until\":9999}"),
                        _ => host.event("hello", "nonsense"),
                    }
                }
                Step::Close(slot) => {
                    if host.open.remove(&slot) {
                        host.link().closed(&host.tier, slot, host.now);
                        host.run();
                    }
                }
                Step::Pass(milliseconds) => host.pass(milliseconds),
                Step::Claim(which) => {
                    let who = waiting.iter().nth(which % waiting.len().max(1)).copied();
                    if let Some(turn) = who.and_then(|who| host.tier.flights.claim(who)) {
                        waiting.remove(&who.unwrap());
                        if let Turn::Lead(token) = turn {
                            tokens.push(token);
                        }
                    } else if let Some(token) = tokens.pop() {
                        host.tier.finish(token, Outcome::Alone);
                        host.run();
                    }
                }
                Step::Refuse(refuses) => host.refuses = refuses,
            }
            let leads = host.tier.flights.len();
            prop_assert!(tokens.len() <= leads);
        }
        // the owner dies for good: all go on
        host.refuses = true;
        for slot in host.open.clone() {
            host.open.remove(&slot);
            host.link().closed(&host.tier, slot, host.now);
        }
        host.run();
        host.pass(25);
        for token in tokens {
            host.tier.finish(token, Outcome::Alone);
        }
        for _ in 0..waiting.len() {
            for waiter in waiting.clone() {
                if let Some(turn) = host.tier.flights.claim(waiter) {
                    waiting.remove(&waiter);
                    if let Turn::Lead(token) = turn {
                        host.tier.hand_on(token);
                    }
                }
            }
        }
        prop_assert!(waiting.is_empty(), "{:?} wait", waiting);
        prop_assert!(host.tier.flights.is_empty());
    }
}

#[cfg(all(feature = "ffi", feature = "faults"))]
mod refused {
    //! Memory that is refused to what is as long as a batch or an entry.

    use super::{bytes_of, entry, Host};
    use crate::allocator::faulty::{refusing, Refusals};
    use crate::allocator::SMALL;
    use crate::cache::entry::{Entry, Envelope, Meta, Payload};
    use crate::cache::wire::{decode, Encoded};

    /// Runs `run` with each long allocation refused in turn, until none is.
    fn each(mut run: impl FnMut(&mut dyn FnMut(&mut dyn FnMut()) -> Refusals)) {
        for passed in 0.. {
            let mut all = Refusals::default();
            run(&mut |step| {
                let ((), refusals) = refusing(SMALL + 1, passed, step);
                all += refusals;
                refusals
            });
            if all.all == 0 {
                assert!(passed > 0, "nothing was long");
                return;
            }
        }
    }

    #[test]
    fn a_batch_that_cannot_be_written_is_not_waited_for() {
        let keys: Vec<_> = (0..2000u64)
            .map(|n| *blake3::hash(&n.to_le_bytes()).as_bytes())
            .collect();
        each(|step| {
            let mut host = Host::up();
            let asks = host.link().ask_for_all(keys.clone(), 5, host.now);
            assert!(asks);
            // the connection is there: it sends at once
            host.run();
            host.receive(1, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            assert_eq!(host.woken(), [5]);
            host.sent.clear();
            assert!(host.link().ask_for_all(keys.clone(), 6, host.now));
            let (tier, link, now) = (&host.tier, host.link(), host.now);
            let refusals = step(&mut || {
                link.tick(tier, now);
            });
            if refusals.all > 0 {
                assert_eq!(host.woken(), [6]);
            } else {
                host.run();
                assert_eq!(host.sent.len(), 1);
            }
        });
    }

    #[test]
    fn an_entry_that_cannot_be_copied_is_none() {
        let part = |byte: u8| vec![byte; 2 * SMALL].into_boxed_slice();
        let envelope = Envelope {
            before: part(b'b'),
            between: part(b'c'),
            after: part(b'd'),
            ..entry().envelope().clone()
        };
        let payload = Payload::Raw(vec![b'p'; 2 * SMALL].into());
        let long = Entry::new(envelope, payload, Meta::default());
        let bytes = bytes_of(&long);
        each(|step| {
            let mut read = None;
            let refusals = step(&mut || read = decode(&bytes, 0, 0, 0));
            assert_eq!(read.is_none(), refusals.all > 0);
            let mut written = None;
            let refusals = step(&mut || written = Encoded::of(&long));
            assert_eq!(written.is_none(), refusals.all > 0);
            let same = written.is_none_or(|written| bytes.starts_with(&written.head));
            assert!(same);
        });
    }
}
