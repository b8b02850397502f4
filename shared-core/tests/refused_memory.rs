//! Allocations that are refused at every point where one can be: the response is right, or the
//! host receives a failure. (An allocation that cannot report a refusal would end this process.)

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use flate2::write::GzEncoder;
use flate2::Compression;
use sszip_core::allocator::faulty::{
    peak_allocation, remaining_allocations, run_with_refused_allocations, RefusedAllocationCounts,
};
use sszip_core::allocator::{self, ReserveAllocator, MAX_RESERVE_ALLOCATION};
use sszip_core::bytes::SharedBytes;
use sszip_core::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
use sszip_core::cache::process::hot::HotTier;
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::{RouteConfig, RouteConfigBlock};
use sszip_core::exchange::drive::{
    BodyLength, ExchangeDriver, ExchangeFailureReason, HostStep, RequiredBody,
};
use sszip_core::exchange::transitions::ExchangeState;
use sszip_core::exchange::{
    BodyEndAction, BodyPieceAction, Exchange, LookupAction, LookupRequest, RequestHead,
    ResponseHead, ResponseHeadAction,
};
use sszip_core::gzip::stream::FlushMode;
use sszip_core::memory;
use sszip_core::response_mode::ResponseMode;

mod support;
#[path = "support/tier.rs"]
mod tier;
#[path = "support/unzstd.rs"]
mod unzstd;
use support::gunzip;
use tier::times;
use unzstd::unzstd;

#[global_allocator]
static ALLOCATOR: ReserveAllocator = ReserveAllocator;

/// Compresses a body of the node in this coding; `""` is identity.
fn encode(coding: &str, body: Vec<u8>) -> Vec<u8> {
    match coding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&body).unwrap();
            encoder.finish().unwrap()
        }
        "zstd" => zstd::bulk::compress(&body, 1).unwrap(),
        _ => body,
    }
}

/// Lock of the tests: a shortage concerns the whole process, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn config(settings: &[(&str, &str)]) -> Arc<RouteConfig> {
    let mut directives = RouteConfigBlock::default();
    let always = [
        ("enable", "on"),
        ("cache", "on"),
        ("cache_valid", "tip 1h"),
        ("zstd", "on"),
    ];
    for (name, value) in always.iter().chain(settings) {
        let values: Vec<&[u8]> = value.split(' ').map(str::as_bytes).collect();
        directives.set_directive(name, &values).unwrap();
    }
    let process = ProcessResources::default();
    process.shared.start_hot_tier(64 << 20, 64 << 20, 1);
    sszip_core::exchange::initialize_process_globals();
    Arc::new(directives.resolve_route_config(process))
}

/// Returns hexadecimal digits that compress to about half of their `length`.
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

/// The node's response to the call for a block.
fn node_response(id: usize, block: usize, length: usize) -> String {
    let result = hex(length, block as u64);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"0x{result}"}}"#)
}

/// A request and the way in which the node responds.
#[derive(Clone, Debug)]
struct Case {
    blocks: Vec<usize>,
    length: usize,
    /// Codings that the client accepts.
    accepts: &'static str,
    declared: bool,
    /// Coding of the node's response, although the request did not accept it.
    coding: &'static str,
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
            .map(|(id, block)| node_response(id, *block, self.length))
            .collect()
    }

    /// Returns the node's response to the calls that `request` still contains.
    fn node(&self, request: &str) -> Vec<u8> {
        let answers: Vec<String> = (1..)
            .zip(&self.blocks)
            .filter(|(id, _)| request.contains(&format!("\"id\":{id},")))
            .map(|(id, block)| node_response(id, *block, self.length))
            .collect();
        let body = match &answers[..] {
            [one] if !request.starts_with('[') => one.clone(),
            _ => format!("[{}]", answers.join(",")),
        };
        encode(self.coding, body.into_bytes())
    }
}

/// The response that the client receives: a complete body, or a detectable failure.
#[derive(Debug)]
enum ClientResult {
    /// A complete body, decompressed.
    Whole(Vec<u8>),
    /// A failure that the client can detect: the end of the body is missing.
    Failure,
}

/// Runs one request through the cache as a host would. The node's response is made outside of the
/// refused allocations.
fn exchange(
    config: &Arc<RouteConfig>,
    case: &Case,
    refused: (usize, usize),
) -> (ClientResult, RefusedAllocationCounts) {
    let request = case.request();
    let mut refusals = RefusedAllocationCounts::default();
    let mut passed = refused.1;
    let mut client: Vec<u8> = Vec::with_capacity(16 << 20);
    let mut exchange = Exchange::new(Arc::clone(config));
    // the count of passed allocations continues from one step to the next
    macro_rules! step {
        ($step:expr) => {{
            let (done, left, more) = refusing_from(refused.0, passed, || $step);
            passed = left;
            refusals += more;
            done
        }};
    }
    let mut fields: Vec<(&[u8], &[u8])> = vec![(b"Content-Type", b"application/json")];
    if !case.accepts.is_empty() {
        fields.push((b"Accept-Encoding", case.accepts.as_bytes()));
    }
    step!(exchange.read_request_head(RequestHead {
        method: b"POST",
        target: b"/",
        fields: fields.into_iter(),
    }))
    .unwrap();
    assert_eq!(
        exchange.required_body(BodyLength::Unknown),
        RequiredBody::Body
    );
    let lookup_request = LookupRequest {
        namespace: Some(b"n"),
        body: request.as_bytes(),
        now: 1000,
        coding_allowed: true,
        ..LookupRequest::default()
    };
    let mut forwarded = request.clone();
    let mut found = step!(exchange.lookup_in_cache(lookup_request)).unwrap();
    if found == LookupAction::RespondOffLoop {
        step!(exchange.run_pending_stages()).unwrap();
        if exchange.stored_response_status() == 0 {
            found = LookupAction::Forward;
            // nginx begins the request to the node with the same exchange
            if exchange.exchange_state() != ExchangeState::AwaitingHead {
                return (ClientResult::Whole(whole(case)), refusals);
            }
        }
    }
    match found {
        LookupAction::Respond | LookupAction::RespondOffLoop => {
            return (ClientResult::Whole(sent(&exchange, Vec::new())), refusals);
        }
        LookupAction::ForwardRewritten => {
            forwarded = String::from_utf8(exchange.upstream_request_body().to_vec()).unwrap();
        }
        LookupAction::Forward => {}
        LookupAction::Wait | LookupAction::AssembleOffLoop => panic!("it is alone"),
    }
    let body = case.node(&forwarded);
    let mut head: Vec<(&[u8], &[u8])> = vec![(b"Content-Type", b"application/json")];
    if !case.coding.is_empty() {
        head.push((b"Content-Encoding", case.coding.as_bytes()));
    }
    let action = step!(exchange.evaluate_response_head(ResponseHead {
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
    let mut streams = action == ResponseHeadAction::Stream;
    let mut passes = matches!(action, ResponseHeadAction::Pass | ResponseHeadAction::Tee);
    let tees = action == ResponseHeadAction::Tee;
    let mut room = vec![0; 60_000];
    while let Some(piece) = pieces.next() {
        if !streams && !passes {
            match step!(exchange.buffer_body_piece(piece)).unwrap() {
                BodyPieceAction::Buffered => continue,
                _ if exchange.exchange_state() == ExchangeState::Aborted => {
                    return (ClientResult::Failure, refusals)
                }
                BodyPieceAction::SendOriginal => {
                    client = exchange.body_slices().flatten().copied().collect();
                    passes = true;
                }
                BodyPieceAction::Stream => streams = true,
            }
        }
        if passes {
            if tees {
                step!(exchange.observe_passed_piece(piece)).unwrap();
            }
            client.extend_from_slice(piece);
            continue;
        }
        let flush = match pieces.peek() {
            None => FlushMode::Finish,
            Some(_) => FlushMode::None,
        };
        let mut rest = piece;
        loop {
            let Ok(progress) = step!(exchange.encode_stream_piece(rest, flush, &mut room)) else {
                return (ClientResult::Failure, refusals);
            };
            rest = &rest[progress.consumed..];
            client.extend_from_slice(&room[..progress.written]);
            if progress.complete {
                break;
            }
        }
    }
    if !streams && !passes {
        match step!(exchange.complete_buffered_body()).unwrap() {
            BodyEndAction::Code { .. } => {
                step!(exchange.run_pending_stages()).unwrap();
                if exchange.exchange_state() == ExchangeState::Aborted {
                    return (ClientResult::Failure, refusals);
                }
                client = exchange.body_slices().flatten().copied().collect();
            }
            BodyEndAction::Send if exchange.exchange_state() != ExchangeState::Aborted => {
                client = exchange.body_slices().flatten().copied().collect();
            }
            other => panic!("{other:?} at the end of what is whole"),
        }
    }
    let got = ClientResult::Whole(sent(&exchange, client));
    let now = 2000;
    step!({
        if let Some(mut fill) = exchange.take_complete_fill() {
            fill.build_collected_entries();
            fill.store_and_publish_entries(now);
        }
    });
    let _ = passed;
    drop(exchange);
    (got, refusals)
}

/// Runs `run` like [`refusing`], and also returns how many allocations are left to be passed.
fn refusing_from<T>(
    from: usize,
    passed: usize,
    run: impl FnOnce() -> T,
) -> (T, usize, RefusedAllocationCounts) {
    let ((done, left), refusals) = run_with_refused_allocations(from, passed, || {
        let done = run();
        (done, remaining_allocations())
    });
    (done, left, refusals)
}

/// Returns the body in identity: `client` if bytes were sent, else the body of the exchange.
fn sent(exchange: &Exchange, client: Vec<u8>) -> Vec<u8> {
    let body = if client.is_empty() {
        exchange.body_slices().flatten().copied().collect()
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
    } else if body.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]) {
        unzstd(&body).unwrap()
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

/// Returns whether the body is the expected response; the responses of a batch may have any order.
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
            for (accepts, declared, coding) in [
                ("gzip", true, ""),
                ("gzip", false, ""),
                ("", true, ""),
                ("", true, "gzip"),
                ("zstd", true, ""),
                ("zstd", false, ""),
                ("", true, "zstd"),
                ("zstd", true, "zstd"),
            ] {
                cases.push(Case {
                    blocks: blocks.clone(),
                    length,
                    accepts,
                    declared,
                    coding,
                });
            }
        }
    }
    cases
}

/// Refuses allocations of `from` bytes and more, beginning at each allocation in turn; in
/// `make quick` and `make test` at the first and at one of three, others in the next case.
fn refuse_each_allocation(settings: &[(&str, &str)], lengths: &[usize], from: usize) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let step: usize = times(3, 1);
    for (number, case) in cases(lengths).into_iter().enumerate() {
        for warm in [vec![], vec![1], vec![1, 2, 3, 4]] {
            // the first one is the only one of many cases
            for passed in (0_usize..).filter(|n| *n == 0 || n % step == number % step) {
                let config = config(settings);
                for block in &warm {
                    let warm_up = Case {
                        blocks: vec![*block],
                        coding: "",
                        ..case.clone()
                    };
                    exchange(&config, &warm_up, (usize::MAX, 0));
                }
                let (got, refusals) = exchange(&config, &case, (from, passed));
                match got {
                    ClientResult::Whole(body) => assert!(
                        is_right(&case, &body),
                        "{case:?} {warm:?}, refused after {passed}: {:.200}",
                        String::from_utf8_lossy(&body)
                    ),
                    // the node has only a part of the batch: there is no response to fall back on
                    ClientResult::Failure => assert!(case.blocks.len() > 1 && !warm.is_empty()),
                }
                assert_eq!(
                    memory::is_memory_short(),
                    refusals.small > 0,
                    "{case:?} {warm:?}, refused after {passed}"
                );
                assert!(allocator::has_memory_for_new_work(|| {}));
                assert_eq!(config.process.budget.reserved_bytes(), 0);
                // memory is available again
                let (got, _) = exchange(&config, &case, (usize::MAX, 0));
                match got {
                    ClientResult::Whole(body) => assert!(is_right(&case, &body)),
                    // stored parts cannot be merged into a body that the node compressed
                    ClientResult::Failure => {
                        assert!(!case.coding.is_empty() && !settings.is_empty());
                    }
                }
                if refusals.all == 0 {
                    break;
                }
            }
        }
    }
}

#[test]
fn responses_are_right_or_fail_when_long_allocations_are_refused() {
    refuse_each_allocation(&[], &[100, 80_000], MAX_RESERVE_ALLOCATION + 1);
}

#[test]
fn streamed_responses_are_right_or_fail_when_long_allocations_are_refused() {
    refuse_each_allocation(
        &[("max_oneshot", "1k")],
        &[80_000],
        MAX_RESERVE_ALLOCATION + 1,
    );
}

#[test]
fn responses_are_right_or_fail_when_all_allocations_are_refused() {
    refuse_each_allocation(&[], &[2_000], 1);
}

/// The tables of the hot tier grow in a library whose allocations cannot be refused, so their
/// memory is allocated beforehand.
#[test]
fn hot_tier_tables_grow_in_preallocated_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let hot = HotTier::new(64 << 20, 1 << 20, 1);
    let mut grown = 0;
    for n in 0..20_000 {
        let (key, entry) = numbered_entry(n);
        // two allocations are made beforehand; all later ones are refused
        let (inserted, refusals) =
            run_with_refused_allocations(MAX_RESERVE_ALLOCATION + 1, 2, || {
                hot.insert(key, Arc::clone(&entry))
            });
        assert!(inserted);
        grown += refusals.all;
        // without memory beforehand no entry is stored, and the tier stays usable
        if n % 10 == 0 {
            let (inserted, refusals) =
                run_with_refused_allocations(MAX_RESERVE_ALLOCATION + 1, 0, || {
                    hot.insert(key, entry)
                });
            assert_eq!(inserted, refusals.all == 0);
            assert!(inserted || hot.remove(&key).is_none());
        }
    }
    assert!(grown > 0, "no table has grown");
}

/// An allocation of twice the tables takes longer than all other work of an insertion.
#[test]
fn few_insertions_into_a_hot_tier_with_long_tables_make_long_allocations() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let hot = HotTier::new(64 << 20, 1 << 20, 1);
    let mut with_long = 0;
    for n in 0..20_000 {
        let (key, entry) = numbered_entry(n);
        let (inserted, _) = run_with_refused_allocations(MAX_RESERVE_ALLOCATION + 1, 0, || {
            hot.insert(key, Arc::clone(&entry))
        });
        if !inserted {
            with_long += 1;
            assert!(hot.insert(key, entry));
        }
    }
    assert_eq!(hot.entry_count(), 20_000);
    assert!((1..=20_000 / 50).contains(&with_long), "{with_long}");
}

/// Returns a key and a short entry.
fn numbered_entry(number: u64) -> ([u8; 32], Arc<CacheEntry>) {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&number.to_le_bytes());
    let payload = EntryPayload::Raw(SharedBytes::from(vec![b'1'; 10]));
    let entry = Arc::new(CacheEntry::new(
        EnvelopeBytes::envelope_without_bytes(),
        payload,
        EntryMetadata::default(),
    ));
    (key, entry)
}

/// Verification of a hit compares it with the node's present response, or gives no verdict.
#[test]
fn hit_verification_is_right_or_unanswered_when_allocations_are_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for length in [2_000, 80_000, 300_000] {
        for same in [true, false] {
            for passed in 0.. {
                let config = config(&[("verify", "100%"), ("max_oneshot", "16m")]);
                let body = node_response(1, 1, length);
                // the same value in another notation, or another value
                let now = match same {
                    true => body.replace(r#""result":"#, r#""result": "#),
                    false => node_response(1, 2, length),
                };
                let mut update = None;
                for expected in [LookupAction::Forward, LookupAction::Respond] {
                    let (mut exchange, found) = look_up(&config, &call(1, 1));
                    assert_eq!(
                        found == LookupAction::Forward,
                        expected == LookupAction::Forward
                    );
                    if expected == LookupAction::Forward {
                        answered(exchange, body.as_bytes());
                    } else {
                        update = exchange.take_background_update();
                    }
                }
                let update = update.unwrap();
                let (_, refusals) =
                    run_with_refused_allocations(MAX_RESERVE_ALLOCATION + 1, passed, || {
                        answered(update, now.as_bytes());
                    });
                let counts = config
                    .process
                    .shared
                    .verified
                    .verdicts
                    .take_event_counts()
                    .unwrap();
                let [same_now, changed, different, unanswered] = counts;
                let settled = if same { same_now } else { different };
                assert_eq!((changed, settled + unanswered), (0, 1), "{length} {passed}");
                assert_eq!(config.process.budget.reserved_bytes(), 0);
                if refusals.all == 0 {
                    assert_eq!(settled, 1);
                    break;
                }
            }
        }
    }
}

/// Looks up the calls of a body.
fn look_up(config: &Arc<RouteConfig>, body: &str) -> (Exchange, LookupAction) {
    let mut exchange = Exchange::new(Arc::clone(config));
    let fields = [(&b"Content-Type"[..], &b"application/json"[..])];
    let head = RequestHead {
        method: b"POST",
        target: b"/",
        fields: fields.into_iter(),
    };
    exchange.read_request_head(head).unwrap();
    let lookup_request = LookupRequest {
        namespace: Some(b"n"),
        body: body.as_bytes(),
        now: 1000,
        ..LookupRequest::default()
    };
    let found = exchange.lookup_in_cache(lookup_request).unwrap();
    (exchange, found)
}

/// Reads the node's response, and publishes its fill.
fn answered(mut exchange: Exchange, body: &[u8]) {
    let fields = [(&b"Content-Type"[..], &b"application/json"[..])];
    let action = exchange
        .evaluate_response_head(ResponseHead {
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
    assert_eq!(action, ResponseHeadAction::Tee);
    for piece in body.chunks(16 << 10) {
        exchange.observe_passed_piece(piece).unwrap();
    }
    if let Some(mut fill) = exchange.take_complete_fill() {
        fill.build_collected_entries();
        fill.store_and_publish_entries(1000);
    }
}

/// The memory of a batch look-up is long only in total and cannot be refused: sixteen times the
/// request must be available, so the look-up must never take more.
#[test]
fn batch_lookup_allocates_at_most_sixteen_times_the_request() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // the shortest call that may be stored
    let call = |id: usize| format!(r#"{{"id":{id},"method":"eth_chainId","jsonrpc":"2.0"}}"#);
    let calls: Vec<String> = (10_000..15_000).map(call).collect();
    let batch = format!("[{}]", calls.join(","));
    for stored in [false, true] {
        let config = config(&[("batch_max", "10000")]);
        let look_up = |body: &str| look_up(&config, body);
        // the table of flights keeps its capacity
        drop(look_up(&format!("[{}]", call(1))));
        if stored {
            let (exchange, _) = look_up(&call(1));
            answered(exchange, br#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#);
            // the permanent entries are allocated
            assert_eq!(look_up(&batch).1, LookupAction::Respond);
        }
        let took = peak_allocation(|| {
            let (_, found) = look_up(&batch);
            assert_eq!(found == LookupAction::Respond, stored, "{found:?}");
        });
        // in addition to an exchange's own memory; the look-up checks that all of it is available
        let most = 16 * batch.len() + 1024;
        assert!((most - 2048..=most).contains(&took), "{took} of {most}");
    }
}

/// A response whose head cannot be read may be JSON, which the node was also sent as acceptable;
/// a client that accepts only SSZ must not receive it.
#[test]
fn unread_response_head_passes_unless_the_client_accepts_only_ssz() {
    const ONLY: &str = "application/octet-stream";
    const EITHER: &str = "application/octet-stream;q=1.0,application/json;q=0.9";
    const STATE: &str = "/eth/v2/debug/beacon/states/head";
    let (on, off) = (config(&[("ssz", "on")]), config(&[]));
    for (config, target, accept, is_sent) in [
        (&on, STATE, ONLY, false),
        (&on, STATE, EITHER, true),
        (&on, STATE, "application/json", true),
        (&on, STATE, "*/*", true),
        // the same holds for a target without SSZ
        (&on, "/eth/v1/node/version", ONLY, false),
        (&off, STATE, ONLY, true),
    ] {
        let mut driver = ExchangeDriver::new(Arc::clone(config));
        let fields = [(&b"Accept"[..], accept.as_bytes())];
        let result = driver.handle_request_head(RequestHead {
            method: b"GET",
            target: target.as_bytes(),
            fields: fields.into_iter(),
        });
        result.unwrap();
        let step = driver.handle_head_without_memory().unwrap();
        let exchange = driver.available_exchange().unwrap();
        assert_eq!(exchange.response_mode(), ResponseMode::Memory);
        assert!(exchange.head_edits().is_empty());
        match step {
            HostStep::Pass => assert!(is_sent, "{target} {accept}"),
            HostStep::Fail(ExchangeFailureReason::Judgement) => {
                assert!(!is_sent, "{target} {accept}");
                assert_eq!(exchange.exchange_state(), ExchangeState::Aborted);
                assert!(exchange.body_slices().next().is_none());
                assert!(
                    driver.handle_body_piece(b"{}").is_err() && driver.handle_body_end().is_err()
                );
            }
            other => panic!("{other:?}"),
        }
    }
}
