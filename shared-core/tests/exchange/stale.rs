//! Expired answers that are sent all the same: when, for how long, and in which
//! order.

use std::sync::Arc;

use proptest::prelude::*;
use sszip_core::cache::process::wake::EventLoop;
use sszip_core::cache::process::Process;
use sszip_core::cache::stale::Failure;
use sszip_core::cache::status::CacheStatus;
use sszip_core::config::Config;
use sszip_core::exchange::{Asked, EndAction, Exchange, HeadAction, LookUp};

use crate::setup::{body, config, posted, response_head, JSON};

/// For how long after it has expired an answer may be sent, in milliseconds (docs/directives.md).
const MOST: u64 = 600_000;

/// For how long answers are fresh here, in milliseconds.
const VALID: u64 = 1000;

struct Host {
    config: Arc<Config>,
    process: Process,
}

impl Host {
    fn new(words: &str) -> Self {
        let lines = ["cache on", "cache_valid tip 1s"].into_iter();
        let lines: Vec<_> = lines.chain(words.split("; ")).collect();
        let config = config(&lines);
        let process = config.process.clone();
        Self { config, process }
    }

    fn ask(&self, now: u64, waiter: usize) -> (Exchange, LookUp) {
        self.look_up(now, waiter, false)
    }

    fn look_up(&self, now: u64, waiter: usize, bypass: bool) -> (Exchange, LookUp) {
        self.asks(now, waiter, bypass, false)
    }

    fn asks(&self, now: u64, waiter: usize, bypass: bool, never_anew: bool) -> (Exchange, LookUp) {
        let mut exchange = posted(&self.config, &[JSON]);
        let found = exchange
            .look_up(Asked {
                body: br#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#,
                now,
                waiter: Some(EventLoop::default().waiter(waiter)),
                bypass,
                never_anew,
                coding_allowed: true,
                ..Asked::default()
            })
            .unwrap();
        (exchange, found)
    }
}

fn head(exchange: &mut Exchange, status: u16) -> HeadAction {
    exchange
        .response_head(response_head(status, None, &[JSON]))
        .unwrap()
}

fn answer(exchange: Exchange, number: u64, now: u64) {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{number}}}"#);
    publish(exchange, &body, now);
}

fn publish(mut exchange: Exchange, body: &str, now: u64) {
    assert_eq!(head(&mut exchange, 200), HeadAction::Tee);
    exchange.observe(body.as_bytes()).unwrap();
    let mut fill = exchange.take_fill().unwrap();
    fill.build();
    fill.publish(now);
}

/// The result in a stored answer.
fn given(exchange: &Exchange) -> u64 {
    let text = String::from_utf8(body(exchange)).unwrap();
    let (_, result) = text.split_once(r#""result":"#).unwrap();
    result.trim_end_matches('}').parse().unwrap()
}

/// What a client gets whose request the node fails; `None`: the failure.
fn failed(mut exchange: Exchange, failure: Failure, now: u64) -> Option<u64> {
    let stands_in = exchange.would_stand_in(failure, now);
    assert_eq!(exchange.fails(failure, now), stands_in);
    let status = match failure {
        Failure::Status(status) => status,
        Failure::Timeout => 504,
        _ => 502,
    };
    let action = head(&mut exchange, status);
    assert_eq!(action == HeadAction::Hold, stands_in);
    if !stands_in {
        return None;
    }
    exchange.piece(b"the failure").unwrap();
    assert_eq!(exchange.end().unwrap(), EndAction::Send);
    assert_eq!(exchange.status(), 200);
    assert_eq!(exchange.cache_status(), CacheStatus::Stale);
    Some(given(&exchange))
}

#[test]
fn it_stands_in_until_its_time_is_over_and_is_then_forgotten() {
    let host = Host::new("cache_use_stale error");
    answer(host.ask(0, 1).0, 7, 0);
    let last = VALID + MOST - 1;
    for now in [VALID, VALID + 1, last] {
        let (exchange, found) = host.ask(now, 1);
        assert_eq!(found, LookUp::Forward);
        assert_eq!(failed(exchange, Failure::Error, now), Some(7), "{now}");
    }
    // the node's failure may come later than the question
    let (exchange, _) = host.ask(last, 1);
    assert_eq!(failed(exchange, Failure::Error, last + 1), None);
    let (exchange, _) = host.ask(last + 1, 1);
    assert_eq!(failed(exchange, Failure::Error, last + 1), None);
    assert!(host.process.shared.hot().unwrap().count() == 0);
}

#[test]
fn without_the_directive_nothing_expired_is_kept() {
    let host = Host::new("cache_use_stale off");
    answer(host.ask(0, 1).0, 7, 0);
    let (exchange, _) = host.ask(VALID, 1);
    assert!(host.process.shared.hot().unwrap().count() == 0);
    assert_eq!(failed(exchange, Failure::Error, VALID), None);
}

#[test]
fn what_was_driven_out_of_memory_stands_in_for_nothing() {
    let host = Host::new("cache_use_stale error");
    answer(host.ask(0, 1).0, 7, 0);
    host.process.shared.hot().unwrap().clear();
    let (exchange, _) = host.ask(VALID, 1);
    assert_eq!(failed(exchange, Failure::Error, VALID), None);
}

#[test]
fn an_answer_of_the_node_is_never_replaced() {
    let host = Host::new("cache_use_stale error http_503");
    answer(host.ask(0, 1).0, 7, 0);
    let (mut exchange, _) = host.ask(VALID, 1);
    assert!(exchange.would_stand_in(Failure::Error, VALID));
    assert_eq!(head(&mut exchange, 200), HeadAction::Tee);
    assert_eq!(exchange.cache_status(), CacheStatus::Miss);
}

#[test]
fn a_new_answer_that_has_expired_on_its_way_is_kept_for_that() {
    let host = Host::new("cache_use_stale error");
    answer(host.ask(0, 1).0, 7, 5 * VALID);
    let (exchange, _) = host.ask(5 * VALID, 1);
    assert_eq!(failed(exchange, Failure::Error, 5 * VALID), Some(7));
}

const BACKGROUND: &str = "cache_use_stale updating error http_503; cache_background_update on";

/// What is fetched while the client has got the expired answer.
fn update(host: &Host, now: u64, waiter: usize, given_is: u64) -> Exchange {
    let (mut exchange, found) = host.ask(now, waiter);
    assert_eq!(found, LookUp::Respond);
    assert_eq!(exchange.cache_status(), CacheStatus::Stale);
    assert_eq!(given(&exchange), given_is);
    let update = exchange.take_update().unwrap();
    assert!(exchange.take_update().is_none(), "it can be taken once");
    update
}

#[test]
fn who_would_fetch_gets_the_expired_one_and_one_update_is_made() {
    let host = Host::new(BACKGROUND);
    answer(host.ask(0, 1).0, 7, 0);
    let first = update(&host, VALID, 1, 7);
    for waiter in 2..5 {
        let (mut other, found) = host.ask(VALID, waiter);
        assert_eq!(
            (found, other.cache_status()),
            (LookUp::Respond, CacheStatus::Updating)
        );
        assert!(other.take_update().is_none() && given(&other) == 7);
    }
    answer(first, 8, VALID);
    let (mut exchange, found) = host.ask(VALID + 1, 6);
    assert_eq!(
        (found, exchange.cache_status()),
        (LookUp::Respond, CacheStatus::Hit)
    );
    assert!(exchange.take_update().is_none() && given(&exchange) == 8);
}

/// Its host can't make the request anew: it makes it for the client.
#[test]
fn without_a_host_that_can_there_is_no_update() {
    let host = Host::new(BACKGROUND);
    answer(host.ask(0, 1).0, 7, 0);
    let asked = |waiter, never_anew| host.asks(VALID, waiter, false, never_anew);
    let (mut exchange, found) = asked(1, true);
    assert_eq!(found, LookUp::Forward);
    assert!(exchange.take_update().is_none());
    // others get what has expired meanwhile
    assert_eq!(asked(2, true).1, LookUp::Respond);
    answer(exchange, 8, VALID);
    assert_eq!(given(&host.ask(VALID + 1, 3).0), 8);
}

#[test]
fn nobody_waits_for_an_update_that_fails() {
    let host = Host::new(BACKGROUND);
    answer(host.ask(0, 1).0, 7, 0);
    // the host drops it
    drop(update(&host, VALID, 1, 7));
    for status in [502, 503, 404] {
        let mut failing = update(&host, VALID, 1, 7);
        failing.fails(Failure::Status(status), VALID);
        assert_eq!(head(&mut failing, status), HeadAction::Pass);
        assert!(failing.take_fill().is_none());
    }
    // it stays with what was stored for as long as that may be sent
    let (exchange, found) = host.ask(VALID + MOST, 1);
    assert_eq!(found, LookUp::Forward);
    drop(exchange);
}

#[test]
fn what_the_node_denies_is_not_sent_any_more() {
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":3,"message":"reverted"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}"#,
    ] {
        let host = Host::new(BACKGROUND);
        answer(host.ask(0, 1).0, 7, 0);
        publish(update(&host, VALID, 1, 7), body, VALID);
        // that there is nothing is known for as long as that may be, and is
        // never sent when it has expired
        let (exchange, found) = host.ask(VALID, 1);
        match body.contains("-32000") {
            true => assert_eq!(found, LookUp::Forward, "{body}"),
            false => assert_eq!(found, LookUp::Respond, "{body}"),
        }
        drop(exchange);
        let (exchange, found) = host.ask(2 * VALID, 1);
        assert_eq!(found, LookUp::Forward, "{body}");
        assert_eq!(failed(exchange, Failure::Error, 2 * VALID), None);
    }
}

#[test]
fn what_is_no_answer_denies_nothing() {
    for body in [
        "",
        r#"{"jsonrpc":"2.0","id":1,"result":"#,
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"no"}}"#,
        "<html>",
    ] {
        let host = Host::new(BACKGROUND);
        answer(host.ask(0, 1).0, 7, 0);
        publish(update(&host, VALID, 1, 7), body, VALID);
        drop(update(&host, VALID, 1, 7));
    }
}

#[test]
fn an_update_that_was_overtaken_denies_nothing_newer() {
    let host = Host::new(&format!("{BACKGROUND}; cache_lock off"));
    answer(host.ask(0, 1).0, 7, 0);
    let slow = update(&host, VALID, 1, 7);
    // one that need not wait for it
    let (bypassing, _) = host.look_up(VALID + 1, 2, true);
    answer(bypassing, 8, VALID + 1);
    publish(slow, r#"{"jsonrpc":"2.0","id":1,"result":null}"#, VALID + 2);
    let (exchange, found) = host.ask(VALID + 2, 3);
    assert_eq!((found, given(&exchange)), (LookUp::Respond, 8));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask,
    Answer(usize),
    Fail(usize, Failure),
    Leave(usize),
    Pause(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let failure = prop_oneof![
        Just(Failure::Error),
        Just(Failure::Timeout),
        Just(Failure::Status(503)),
        Just(Failure::Status(500)),
    ];
    prop_oneof![
        4 => Just(Step::Ask),
        3 => (0..8usize).prop_map(Step::Answer),
        2 => (0..8usize, failure).prop_map(|(n, failure)| Step::Fail(n, failure)),
        1 => (0..8usize).prop_map(Step::Leave),
        2 => prop_oneof![0..3 * VALID, Just(MOST / 2), Just(MOST + VALID)].prop_map(Step::Pause),
    ]
}

proptest! {
    /// The node's answer is the time at which it was asked. Whatever happens,
    /// no stored answer is older than it may be, only one request at a time
    /// asks the node while there is one to send, and no client gets an older
    /// stored answer than one before it did.
    #[test]
    fn no_answer_is_too_old_and_none_goes_back(
        background: bool,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let host = Host::new(if background {
            BACKGROUND
        } else {
            "cache_use_stale updating error http_503"
        });
        let mut now = 0;
        let mut waiter = 0;
        // when the node was asked, by whom, and whether a client waits for it
        let mut asking: Vec<(u64, Exchange, bool)> = Vec::new();
        let mut newest = 0;
        let mut seen = |asked_at: u64, now: u64| {
            assert!(now < asked_at + VALID + MOST, "of {asked_at} at {now}");
            assert!(asked_at >= newest, "{asked_at} after {newest}");
            newest = asked_at;
        };
        for step in steps {
            match step {
                Step::Ask => {
                    waiter += 1;
                    let (mut exchange, found) = host.ask(now, waiter);
                    match found {
                        LookUp::Respond => {
                            seen(given(&exchange), now);
                            if exchange.cache_status() == CacheStatus::Updating {
                                prop_assert!(!asking.is_empty());
                            }
                            let update = exchange.take_update();
                            let is_stale = exchange.cache_status() == CacheStatus::Stale;
                            prop_assert_eq!(update.is_some(), is_stale);
                            if let Some(update) = update {
                                prop_assert!(background && asking.iter().all(|(_, _, waits)| *waits));
                                asking.push((now, update, false));
                            }
                        }
                        LookUp::Forward => asking.push((now, exchange, true)),
                        // it leaves: there is nothing to send yet
                        other => prop_assert_eq!(other, LookUp::Wait),
                    }
                }
                Step::Answer(n) if !asking.is_empty() => {
                    let (asked_at, exchange, _) = asking.remove(n % asking.len());
                    answer(exchange, asked_at, now);
                }
                Step::Fail(n, failure) if !asking.is_empty() => {
                    let (_, mut exchange, waits) = asking.remove(n % asking.len());
                    if !waits {
                        exchange.fails(failure, now);
                        prop_assert_eq!(head(&mut exchange, 503), HeadAction::Pass);
                        continue;
                    }
                    let covered = !matches!(failure, Failure::Timeout | Failure::Status(500));
                    if let Some(asked_at) = failed(exchange, failure, now) {
                        prop_assert!(covered);
                        seen(asked_at, now);
                    }
                }
                Step::Leave(n) if !asking.is_empty() => {
                    drop(asking.remove(n % asking.len()));
                }
                Step::Pause(time) => now += time,
                _ => {}
            }
        }
    }
}
