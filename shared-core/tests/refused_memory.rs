//! Memory that is refused, at every place where it can be: an answer is right,
//! or the host is told that there is none. (An allocation that can't report a
//! refusal would end this process.)

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use flate2::write::GzEncoder;
use flate2::Compression;
use sszip_core::allocator::faulty::{left, most_of, refusing, Refusals};
use sszip_core::allocator::{self, Allocator, SMALL};
use sszip_core::bytes::Bytes;
use sszip_core::cache::entry::{Entry, Envelope, Meta, Payload};
use sszip_core::cache::process::hot::Hot;
use sszip_core::cache::process::Process;
use sszip_core::config::{Config, Directives};
use sszip_core::exchange::drive::{BodyLength, Driver, Lack, Need, Step};
use sszip_core::exchange::transitions::State;
use sszip_core::exchange::{
    Asked, EndAction, Exchange, HeadAction, LookUp, PieceAction, RequestHead, ResponseHead,
};
use sszip_core::gzip::stream::Flush;
use sszip_core::memory;
use sszip_core::mode::Mode;

mod support;
use support::gunzip;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// A shortage is the process's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn config(settings: &[(&str, &str)]) -> Arc<Config> {
    let mut directives = Directives::default();
    for (name, value) in [("enable", "on"), ("cache", "on"), ("cache_valid", "tip 1h")]
        .iter()
        .chain(settings)
    {
        let values: Vec<&[u8]> = value.split(' ').map(str::as_bytes).collect();
        directives.set(name, &values).unwrap();
    }
    let process = Process::default();
    process.shared.start(64 << 20, 64 << 20, 1);
    sszip_core::exchange::prepare();
    Arc::new(directives.resolve(process))
}

/// What does not compress to nothing, of so many bytes.
fn hex(length: usize, seed: u64) -> String {
    let mut state = seed * 2 + 1;
    let digits = (0..length).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b"0123456789abcdef"[(state >> 60) as usize])
    });
    digits.collect()
}

fn call(id: usize, block: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getBlockByHash","params":["0x{block:064x}",true]}}"#
    )
}

/// What the node says of a block.
fn said(id: usize, block: usize, length: usize) -> String {
    let result = hex(length, block as u64);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"0x{result}"}}"#)
}

/// How a request is asked and answered.
#[derive(Clone, Debug)]
struct Case {
    blocks: Vec<usize>,
    length: usize,
    gzip: bool,
    declared: bool,
    /// The node gzips, though nobody asked for it.
    coded: bool,
}

impl Case {
    fn request(&self) -> String {
        let calls: Vec<String> = (1..)
            .zip(&self.blocks)
            .map(|(id, n)| call(id, *n))
            .collect();
        match &calls[..] {
            [one] => one.clone(),
            _ => format!("[{}]", calls.join(",")),
        }
    }

    fn answers(&self) -> Vec<String> {
        (1..)
            .zip(&self.blocks)
            .map(|(id, block)| said(id, *block, self.length))
            .collect()
    }

    /// The node's answer to what it was asked.
    fn node(&self, request: &str) -> Vec<u8> {
        let answers: Vec<String> = (1..)
            .zip(&self.blocks)
            .filter(|(id, _)| request.contains(&format!("\"id\":{id},")))
            .map(|(id, block)| said(id, *block, self.length))
            .collect();
        let body = match &answers[..] {
            [one] if !request.starts_with('[') => one.clone(),
            _ => format!("[{}]", answers.join(",")),
        };
        if self.coded {
            gzip(body.as_bytes())
        } else {
            body.into_bytes()
        }
    }
}

/// What the client gets.
#[derive(Debug)]
enum Got {
    /// All of a body, in identity.
    Whole(Vec<u8>),
    /// The end of it is missing, and it sees that.
    Failure,
}

/// One request through the cache; all that a host would do. `node` is called
/// outside of what is refused.
fn exchange(config: &Arc<Config>, case: &Case, refused: (usize, usize)) -> (Got, Refusals) {
    let request = case.request();
    let mut refusals = Refusals::default();
    let mut passed = refused.1;
    let mut client: Vec<u8> = Vec::with_capacity(16 << 20);
    let mut exchange = Exchange::new(Arc::clone(config));
    // the count goes on from one step to the next
    macro_rules! step {
        ($step:expr) => {{
            let (done, left, more) = refusing_from(refused.0, passed, || $step);
            passed = left;
            refusals += more;
            done
        }};
    }
    let mut fields: Vec<(&[u8], &[u8])> = vec![(b"Content-Type", b"application/json")];
    if case.gzip {
        fields.push((b"Accept-Encoding", b"gzip"));
    }
    step!(exchange.request_head(RequestHead {
        method: b"POST",
        target: b"/",
        fields: fields.into_iter(),
    }))
    .unwrap();
    assert_eq!(exchange.need(BodyLength::Unknown), Need::Body);
    let asked = Asked {
        namespace: Some(b"n"),
        body: request.as_bytes(),
        now: 1000,
        coding_allowed: true,
        ..Asked::default()
    };
    let mut forwarded = request.clone();
    let mut found = step!(exchange.look_up(asked)).unwrap();
    if found == LookUp::RespondOffLoop {
        step!(exchange.code()).unwrap();
        if exchange.status() == 0 {
            found = LookUp::Forward;
            // nginx begins the request to the node with the same exchange
            if exchange.state() != State::AwaitingHead {
                return (Got::Whole(whole(case)), refusals);
            }
        }
    }
    match found {
        LookUp::Respond | LookUp::RespondOffLoop => {
            return (Got::Whole(sent(&exchange, Vec::new())), refusals);
        }
        LookUp::ForwardRewritten => {
            forwarded = String::from_utf8(exchange.request_body().to_vec()).unwrap();
        }
        LookUp::Forward => {}
        LookUp::Wait => panic!("it is alone"),
    }
    let body = case.node(&forwarded);
    let mut head: Vec<(&[u8], &[u8])> = vec![(b"Content-Type", b"application/json")];
    if case.coded {
        head.push((b"Content-Encoding", b"gzip"));
    }
    let action = step!(exchange.response_head(ResponseHead {
        status: 200,
        content_length: case.declared.then_some(body.len() as u64),
        fields: head.iter().copied(),
        delimited: true,
        unbuffered: false,
        subrequest: false,
        coding_allowed: true,
        host_writes_vary: false,
        now: 0,
    }))
    .unwrap();
    let mut pieces = body.chunks(50_000).peekable();
    let mut streams = action == HeadAction::Stream;
    let mut passes = matches!(action, HeadAction::Pass | HeadAction::Tee);
    let tees = action == HeadAction::Tee;
    let mut room = vec![0; 60_000];
    while let Some(piece) = pieces.next() {
        if !streams && !passes {
            match step!(exchange.piece(piece)).unwrap() {
                PieceAction::Taken => continue,
                _ if exchange.state() == State::Cut => return (Got::Failure, refusals),
                PieceAction::GiveUp => {
                    client = exchange.body().flatten().copied().collect();
                    passes = true;
                }
                PieceAction::Stream => streams = true,
            }
        }
        if passes {
            if tees {
                step!(exchange.observe(piece)).unwrap();
            }
            client.extend_from_slice(piece);
            continue;
        }
        let flush = match pieces.peek() {
            None => Flush::Finish,
            Some(_) => Flush::None,
        };
        let mut rest = piece;
        loop {
            let Ok(progress) = step!(exchange.stream(rest, flush, &mut room)) else {
                return (Got::Failure, refusals);
            };
            rest = &rest[progress.consumed..];
            client.extend_from_slice(&room[..progress.written]);
            if progress.complete {
                break;
            }
        }
    }
    if !streams && !passes {
        match step!(exchange.end()).unwrap() {
            EndAction::Code { .. } => {
                step!(exchange.code()).unwrap();
                if exchange.state() == State::Cut {
                    return (Got::Failure, refusals);
                }
                client = exchange.body().flatten().copied().collect();
            }
            EndAction::Send if exchange.state() != State::Cut => {
                client = exchange.body().flatten().copied().collect();
            }
            other => panic!("{other:?} at the end of what is whole"),
        }
    }
    let got = Got::Whole(sent(&exchange, client));
    let now = 2000;
    step!({
        if let Some(mut fill) = exchange.take_fill() {
            fill.build();
            fill.publish(now);
        }
    });
    let _ = passed;
    drop(exchange);
    (got, refusals)
}

/// As [`refusing`], and how many are left to be passed.
fn refusing_from<T>(from: usize, passed: usize, run: impl FnOnce() -> T) -> (T, usize, Refusals) {
    let ((done, left), refusals) = refusing(from, passed, || {
        let done = run();
        (done, left())
    });
    (done, left, refusals)
}

/// What the client makes of it: `client` is what was sent; if that is nothing,
/// what the exchange has.
fn sent(exchange: &Exchange, client: Vec<u8>) -> Vec<u8> {
    let body = if client.is_empty() {
        exchange.body().flatten().copied().collect()
    } else {
        client
    };
    let edits = exchange.head_edits();
    let value = |name: &str| {
        let edit = edits.iter().rfind(|edit| edit.name == name);
        edit.and_then(|edit| edit.value.clone())
    };
    if let Some(length) = value("Content-Length") {
        assert_eq!(length, body.len().to_string().into_bytes());
    }
    if body.starts_with(&[0x1F, 0x8B]) {
        gunzip(&body).unwrap()
    } else {
        assert_eq!(value("Content-Encoding"), None);
        body
    }
}

fn whole(case: &Case) -> Vec<u8> {
    let answers = case.answers();
    match &answers[..] {
        [one] => one.clone().into_bytes(),
        _ => format!("[{}]", answers.join(",")).into_bytes(),
    }
}

/// Answers of a batch come in any order.
fn is_right(case: &Case, body: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(body) else {
        return false;
    };
    let answers = case.answers();
    match &answers[..] {
        [one] => text == one,
        _ => {
            let all: Result<Vec<serde_json::Value>, _> = serde_json::from_str(text);
            all.is_ok_and(|all| all.len() == answers.len())
                && answers.iter().all(|answer| text.contains(answer.as_str()))
        }
    }
}

fn cases(lengths: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    for blocks in [vec![1], vec![2, 3], vec![1, 4, 2]] {
        for length in lengths.iter().copied() {
            for (gzip, declared, coded) in [
                (true, true, false),
                (true, false, false),
                (false, true, false),
                (false, true, true),
            ] {
                cases.push(Case {
                    blocks: blocks.clone(),
                    length,
                    gzip,
                    declared,
                    coded,
                });
            }
        }
    }
    cases
}

/// `from` bytes and more are refused, from each allocation on in turn.
fn every_place(settings: &[(&str, &str)], lengths: &[usize], from: usize) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for case in cases(lengths) {
        for warm in [vec![], vec![1], vec![1, 2, 3, 4]] {
            for passed in 0.. {
                let config = config(settings);
                for block in &warm {
                    let ask = Case {
                        blocks: vec![*block],
                        coded: false,
                        ..case.clone()
                    };
                    exchange(&config, &ask, (usize::MAX, 0));
                }
                let (got, refusals) = exchange(&config, &case, (from, passed));
                match got {
                    Got::Whole(body) => assert!(
                        is_right(&case, &body),
                        "{case:?} {warm:?}, refused after {passed}: {:.200}",
                        String::from_utf8_lossy(&body)
                    ),
                    // only a part of it is with the node: nothing to fall back on
                    Got::Failure => assert!(case.blocks.len() > 1 && !warm.is_empty()),
                }
                assert_eq!(
                    memory::is_short(),
                    refusals.small > 0,
                    "{case:?} {warm:?}, refused after {passed}"
                );
                assert!(allocator::is_over(|| {}));
                assert_eq!(config.process.budget.used(), 0);
                // there is memory again
                let (got, _) = exchange(&config, &case, (usize::MAX, 0));
                match got {
                    Got::Whole(body) => assert!(is_right(&case, &body)),
                    // coded, nothing can be put in front of it
                    Got::Failure => assert!(case.coded && !settings.is_empty()),
                }
                if refusals.all == 0 {
                    break;
                }
            }
        }
    }
}

#[test]
fn what_is_long_is_refused() {
    every_place(&[], &[100, 80_000], SMALL + 1);
}

#[test]
fn streams_are_refused() {
    every_place(&[("max_oneshot", "1k")], &[80_000], SMALL + 1);
}

#[test]
fn all_is_refused() {
    every_place(&[], &[2_000], 1);
}

/// The tier's tables grow in a library that can't be refused anything: what
/// they need was allocated before.
#[test]
fn the_tables_of_the_tier_grow_in_what_was_put_aside() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let hot = Hot::new(64 << 20, 1 << 20, 1);
    let mut grown = 0;
    for n in 0..20_000u64 {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.to_le_bytes());
        let payload = Payload::Raw(Bytes::from(vec![b'1'; 10]));
        let entry = Arc::new(Entry::new(Envelope::none(), payload, Meta::default()));
        // two are put aside, and all that follow are refused
        let (inserted, refusals) = refusing(SMALL + 1, 2, || hot.insert(key, Arc::clone(&entry)));
        assert!(inserted);
        grown += refusals.all;
        // nothing can be put aside: nothing is stored, and nothing breaks
        if n % 10 == 0 {
            let (inserted, refusals) = refusing(SMALL + 1, 0, || hot.insert(key, entry));
            assert_eq!(inserted, refusals.all == 0);
            assert!(inserted || hot.remove(&key).is_none());
        }
    }
    assert!(grown > 0, "no table has grown");
}

/// A hit is compared with what the node says now, or there is no verdict.
#[test]
fn what_a_hit_is_compared_with_is_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for length in [2_000, 80_000, 300_000] {
        for same in [true, false] {
            for passed in 0.. {
                let config = config(&[("verify", "100%"), ("max_oneshot", "16m")]);
                let body = said(1, 1, length);
                // the same value, in other words, or another one
                let now = match same {
                    true => body.replace(r#""result":"#, r#""result": "#),
                    false => said(1, 2, length),
                };
                let mut update = None;
                for expected in [LookUp::Forward, LookUp::Respond] {
                    let (mut exchange, found) = verified(&config);
                    assert_eq!(found == LookUp::Forward, expected == LookUp::Forward);
                    if expected == LookUp::Forward {
                        answered(exchange, body.as_bytes());
                    } else {
                        update = exchange.take_update();
                    }
                }
                let update = update.unwrap();
                let (_, refusals) = refusing(SMALL + 1, passed, || {
                    answered(update, now.as_bytes());
                });
                let counts = config.process.shared.verified.take_counts().unwrap();
                let [same_now, changed, different, unanswered] = counts;
                let said = if same { same_now } else { different };
                assert_eq!((changed, said + unanswered), (0, 1), "{length} {passed}");
                assert_eq!(config.process.budget.used(), 0);
                if refusals.all == 0 {
                    assert_eq!(said, 1);
                    break;
                }
            }
        }
    }
}

/// A look-up of what a case asks for first.
fn verified(config: &Arc<Config>) -> (Exchange, LookUp) {
    let mut exchange = Exchange::new(Arc::clone(config));
    let fields = [(&b"Content-Type"[..], &b"application/json"[..])];
    let head = RequestHead {
        method: b"POST",
        target: b"/",
        fields: fields.into_iter(),
    };
    exchange.request_head(head).unwrap();
    let asked = Asked {
        namespace: Some(b"n"),
        body: &call(1, 1).into_bytes(),
        now: 1000,
        ..Asked::default()
    };
    let found = exchange.look_up(asked).unwrap();
    (exchange, found)
}

/// The node's answer, as far as it is kept.
fn answered(mut exchange: Exchange, body: &[u8]) {
    let fields = [(&b"Content-Type"[..], &b"application/json"[..])];
    let action = exchange
        .response_head(ResponseHead {
            status: 200,
            content_length: Some(body.len() as u64),
            fields: fields.into_iter(),
            delimited: true,
            unbuffered: false,
            subrequest: false,
            coding_allowed: false,
            host_writes_vary: false,
            now: 0,
        })
        .unwrap();
    assert_eq!(action, HeadAction::Tee);
    for piece in body.chunks(16 << 10) {
        exchange.observe(piece).unwrap();
    }
    if let Some(mut fill) = exchange.take_fill() {
        fill.build();
        fill.publish(1000);
    }
}

/// What a look-up makes of a batch is long only in all, and can't be refused:
/// sixteen times the request has to be there, so it must never take more.
#[test]
fn a_batch_takes_no_more_than_had_to_be_there() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // the shortest call that may be stored
    let call = |id: usize| format!(r#"{{"id":{id},"method":"eth_chainId","jsonrpc":"2.0"}}"#);
    let calls: Vec<String> = (10_000..15_000).map(call).collect();
    let batch = format!("[{}]", calls.join(","));
    for stored in [false, true] {
        let config = config(&[("batch_max", "10000")]);
        let look_up = |body: &str| {
            let mut exchange = Exchange::new(Arc::clone(&config));
            let fields = [(&b"Content-Type"[..], &b"application/json"[..])];
            let head = RequestHead {
                method: b"POST",
                target: b"/",
                fields: fields.into_iter(),
            };
            exchange.request_head(head).unwrap();
            let asked = Asked {
                namespace: Some(b"n"),
                body: body.as_bytes(),
                now: 1000,
                ..Asked::default()
            };
            let found = exchange.look_up(asked).unwrap();
            (exchange, found)
        };
        // the table of flights stays as long as it was
        drop(look_up(&format!("[{}]", call(1))));
        if stored {
            let (mut exchange, _) = look_up(&call(1));
            let body = br#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#;
            let fields = [(&b"Content-Type"[..], &b"application/json"[..])];
            exchange
                .response_head(ResponseHead {
                    status: 200,
                    content_length: Some(body.len() as u64),
                    fields: fields.into_iter(),
                    delimited: true,
                    unbuffered: false,
                    subrequest: false,
                    coding_allowed: true,
                    host_writes_vary: false,
                    now: 0,
                })
                .unwrap();
            exchange.observe(body).unwrap();
            let mut fill = exchange.take_fill().unwrap();
            fill.build();
            fill.publish(1000);
            // what is remembered for ever
            assert_eq!(look_up(&batch).1, LookUp::Respond);
        }
        let took = most_of(|| {
            let (_, found) = look_up(&batch);
            assert_eq!(found == LookUp::Respond, stored, "{found:?}");
        });
        // beside an exchange's own; the look-up tries whether all of it is there
        let most = 16 * batch.len() + 1024;
        assert!((most - 2048..=most).contains(&took), "{took} of {most}");
    }
}

/// Where the head can't even be shown, the answer may be JSON, which the node was
/// asked for too: that is no answer to who takes SSZ only.
#[test]
fn what_was_not_judged_passes_but_to_who_takes_ssz_only() {
    const ONLY: &str = "application/octet-stream";
    const EITHER: &str = "application/octet-stream;q=1.0,application/json;q=0.9";
    const STATE: &str = "/eth/v2/debug/beacon/states/head";
    let (on, off) = (config(&[("ssz", "on")]), config(&[]));
    for (config, target, accept, is_sent) in [
        (&on, STATE, ONLY, false),
        (&on, STATE, EITHER, true),
        (&on, STATE, "application/json", true),
        (&on, STATE, "*/*", true),
        // where there is no SSZ of it, either
        (&on, "/eth/v1/node/version", ONLY, false),
        (&off, STATE, ONLY, true),
    ] {
        let mut driver = Driver::new(Arc::clone(config));
        let fields = [(&b"Accept"[..], accept.as_bytes())];
        let asked = driver.request_head(RequestHead {
            method: b"GET",
            target: target.as_bytes(),
            fields: fields.into_iter(),
        });
        asked.unwrap();
        let step = driver.no_response_head().unwrap();
        let exchange = driver.exchange().unwrap();
        assert_eq!(exchange.mode(), Mode::Memory);
        assert!(exchange.head_edits().is_empty());
        match step {
            Step::Pass => assert!(is_sent, "{target} {accept}"),
            Step::Fail(Lack::Judgement) => {
                assert!(!is_sent, "{target} {accept}");
                assert_eq!(exchange.state(), State::Cut);
                assert!(exchange.body().next().is_none());
                assert!(driver.piece(b"{}").is_err() && driver.end().is_err());
            }
            other => panic!("{other:?}"),
        }
    }
}
