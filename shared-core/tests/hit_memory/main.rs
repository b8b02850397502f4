//! Memory of responses that are decompressed for clients that read slowly or not at all, or to be
//! compressed with zstd: the process's budget counts it.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::sync::Arc;

use sszip_core::cache::process::ProcessResources;
use sszip_core::cache::reason::Reason;
use sszip_core::config::{RouteConfig, RouteConfigBlock};
use sszip_core::exchange::{
    BodyPieceAction, Exchange, Header, LookupAction, LookupRequest, RequestHead, ResponseHead,
    ResponseHeadAction,
};
use sszip_core::gzip::inflate::gunzip_reserved;
use sszip_core::response_mode::ResponseMode;

#[path = "../support/unzstd.rs"]
mod unzstd;
mod zstd_forms;

const MIB: usize = 1 << 20;
const MEMORY: usize = 4 * MIB;
/// Length of the result of a long response, in bytes.
const LONG: usize = 3 * MIB / 2;

struct Host {
    config: Arc<RouteConfig>,
    process: ProcessResources,
}

impl Host {
    fn new() -> Self {
        Self::with_settings(&[])
    }

    fn with_settings(lines: &[&str]) -> Self {
        let mut directives = RouteConfigBlock::default();
        let common = ["enable on", "cache on", "memory 4m", "hold 0 5ms"];
        for line in common.iter().chain(lines) {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            let values: Vec<&[u8]> = words.map(str::as_bytes).collect();
            directives.set_directive(name, &values).unwrap();
        }
        let process = ProcessResources::default();
        process.shared.start_hot_tier(64 << 20, 64 << 20, 1);
        let config = Arc::new(directives.resolve_route_config(process.clone()));
        Self { config, process }
    }

    /// Stores the node's response to the call for `block`, with a result of `length` bytes.
    fn store(&self, block: usize, length: usize) {
        let (mut exchange, found) = self.request(&call(block), "");
        assert_eq!(found, LookupAction::Forward);
        assert_eq!(head(&mut exchange), ResponseHeadAction::Tee);
        exchange
            .observe_passed_piece(answer(block, length).as_bytes())
            .unwrap();
        let mut fill = exchange.take_complete_fill().unwrap();
        fill.build_collected_entries();
        fill.store_and_publish_entries(0);
    }

    fn request(&self, body: &str, accept: &str) -> (Exchange, LookupAction) {
        let mut exchange = Exchange::new(Arc::clone(&self.config));
        let fields: [Header<'_>; 2] = [JSON, (b"Accept-Encoding", accept.as_bytes())];
        exchange
            .read_request_head(RequestHead {
                method: b"POST",
                target: b"/",
                fields: fields.into_iter().filter(|(_, value)| !value.is_empty()),
            })
            .unwrap();
        let found = exchange
            .lookup_in_cache(LookupRequest {
                body: body.as_bytes(),
                coding_allowed: true,
                ..LookupRequest::default()
            })
            .unwrap();
        if found == LookupAction::RespondOffLoop {
            exchange.run_pending_stages().unwrap();
            assert_eq!(exchange.stored_response_status(), 200);
            return (exchange, LookupAction::Respond);
        }
        (exchange, found)
    }

    fn used(&self) -> usize {
        self.process.budget.reserved_bytes()
    }
}

const JSON: Header<'static> = (b"Content-Type", b"application/json");

fn call(block: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{block},"method":"eth_getBlockByHash","params":["0x{block:064x}",true]}}"#
    )
}

fn answer(block: usize, length: usize) -> String {
    let result = "a".repeat(length);
    format!(r#"{{"jsonrpc":"2.0","id":{block},"result":"{result}"}}"#)
}

fn batch(blocks: std::ops::Range<usize>) -> String {
    let calls: Vec<String> = blocks.map(call).collect();
    format!("[{}]", calls.join(","))
}

fn head(exchange: &mut Exchange) -> ResponseHeadAction {
    exchange
        .evaluate_response_head(ResponseHead {
            status: 200,
            content_length: None,
            fields: [JSON].into_iter(),
            delimited: true,
            unbuffered: false,
            subrequest: false,
            coding_allowed: true,
            host_writes_vary: false,
            now: 0,
        })
        .unwrap()
}

fn body_of(exchange: &Exchange) -> Vec<u8> {
    exchange.body_slices().flatten().copied().collect()
}

fn is_gzip(exchange: &Exchange) -> bool {
    has_coding(exchange, b"gzip")
}

fn has_coding(exchange: &Exchange, coding: &[u8]) -> bool {
    let mut edits = exchange.head_edits().iter();
    edits.any(|edit| edit.name == "Content-Encoding" && edit.value.as_deref() == Some(coding))
}

#[test]
fn clients_of_the_same_entry_share_its_decompressed_body() {
    let host = Host::new();
    host.store(1, LONG);
    let clients: Vec<Exchange> = (0..60)
        .map(|_| {
            let (exchange, found) = host.request(&call(1), "");
            assert_eq!(found, LookupAction::Respond);
            assert_eq!(exchange.sent_body_bytes(), answer(1, LONG).len() as u64);
            exchange
        })
        .collect();
    assert!((LONG..2 * LONG).contains(&host.used()), "{}", host.used());
    assert!(clients
        .iter()
        .all(|client| body_of(client) == answer(1, LONG).as_bytes()));
    // the hot tier may evict the entry: it stays allocated until the last client has it
    host.process.shared.hot_tier().unwrap().clear();
    assert!(host.used() >= LONG);
    drop(clients);
    assert_eq!(host.used(), 0);
}

#[test]
fn hit_is_sent_as_gzip_or_forwarded_when_identity_exceeds_the_budget() {
    let host = Host::new();
    for block in 0..5 {
        host.store(block, LONG);
    }
    let clients: Vec<_> = (0..5).map(|block| host.request(&call(block), "")).collect();
    let found: Vec<LookupAction> = clients.iter().map(|(_, found)| *found).collect();
    let (hits, forwarded) = found.split_at(2);
    assert!(hits.iter().all(|found| *found == LookupAction::Respond));
    assert!(forwarded
        .iter()
        .all(|found| *found == LookupAction::Forward));
    assert!(host.used() <= MEMORY);
    // the client prefers identity, and accepts both
    let (exchange, found) = host.request(&call(4), "gzip;q=0.5, identity");
    assert_eq!(found, LookupAction::Respond);
    assert!(is_gzip(&exchange));
    assert_eq!(
        gunzip_reserved(&body_of(&exchange), 2 * LONG).unwrap(),
        answer(4, LONG).as_bytes()
    );
    // short responses are sent as usual
    host.store(9, 10_000);
    assert_eq!(host.request(&call(9), "").1, LookupAction::Respond);
    drop((clients, exchange));
    assert_eq!(host.used(), 0);
    assert_eq!(host.request(&call(4), "").1, LookupAction::Respond);
}

#[test]
fn stored_entries_are_unchanged_while_the_budget_is_exhausted() {
    let host = Host::new();
    for block in 0..4 {
        host.store(block, LONG);
    }
    let entry = |block: usize| {
        let (exchange, _) = host.request(&call(block), "gzip");
        assert!(is_gzip(&exchange));
        exchange.sent_body_bytes()
    };
    let before = entry(3);
    let clients: Vec<_> = (0..2).map(|block| host.request(&call(block), "")).collect();
    for body in [call(3), batch(2..4)] {
        let (mut exchange, found) = host.request(&body, "");
        assert_eq!(found, LookupAction::Forward);
        // a copy of the response could be neither compressed nor stored
        assert_eq!(head(&mut exchange), ResponseHeadAction::Pass);
        assert!(exchange.head_edits().iter().any(|edit| {
            edit.name == "Cache-Status"
                && edit.value.as_deref() == Some(b"sszip; fwd=miss; detail=memory")
        }));
        assert_eq!(exchange.cache_reason(), Reason::Memory);
    }
    drop(clients);
    assert_eq!(entry(3), before);
    assert_eq!(host.request(&call(3), "").1, LookupAction::Respond);
}

#[test]
fn batch_of_many_hits_stays_within_the_budget() {
    let host = Host::new();
    for block in 0..6 {
        host.store(block, LONG);
    }
    let (two, found) = host.request(&batch(0..2), "");
    assert_eq!(found, LookupAction::Respond);
    let expected = format!("[{},{}]", answer(0, LONG), answer(1, LONG));
    assert!(body_of(&two) == expected.as_bytes());
    let used = host.used();
    assert!((2 * LONG..=MEMORY).contains(&used), "{used}");
    let (six, found) = host.request(&batch(0..6), "");
    assert_eq!((found, host.used()), (LookupAction::Forward, used));
    let (coded, found) = host.request(&batch(0..6), "gzip, identity;q=1");
    assert_eq!(found, LookupAction::Respond);
    assert!(is_gzip(&coded) && coded.sent_body_bytes() < MIB as u64);
    // a repeated call takes no more memory
    let one = call(1);
    let (again, found) = host.request(&format!("[{one},{one},{one},{one}]"), "");
    assert_eq!(found, LookupAction::Respond);
    drop((two, six, coded, again));
    assert_eq!(host.used(), 0);
}

#[test]
fn client_that_refuses_identity_receives_gzip_of_uncompressed_entries() {
    let host = Host::new();
    host.store(1, 10);
    host.store(2, 10);
    for accept in ["gzip, identity;q=0", "gzip, *;q=0"] {
        let (hit, found) = host.request(&call(1), accept);
        assert_eq!(found, LookupAction::Respond);
        assert!(is_gzip(&hit), "{accept}");
        assert_eq!(
            gunzip_reserved(&body_of(&hit), 1000).unwrap(),
            answer(1, 10).as_bytes()
        );
        let (hit, found) = host.request(&batch(1..3), accept);
        assert_eq!(found, LookupAction::Respond);
        assert!(is_gzip(&hit), "{accept}");
        let expected = format!("[{},{}]", answer(1, 10), answer(2, 10));
        assert_eq!(
            gunzip_reserved(&body_of(&hit), 1000).unwrap(),
            expected.as_bytes()
        );
    }
    assert!(!is_gzip(&host.request(&call(1), "gzip").0));
}

#[test]
fn part_of_a_batch_is_never_sent_as_the_whole() {
    let host = Host::new();
    host.store(1, 10);
    let (mut exchange, found) = host.request(&batch(1..3), "");
    assert_eq!(found, LookupAction::ForwardRewritten);
    // the head of the upstream response could not be evaluated
    exchange
        .send_original_response(ResponseMode::Failed)
        .unwrap();
    let part = format!("[{}]", answer(2, 10));
    assert_eq!(
        exchange.buffer_body_piece(part.as_bytes()).unwrap(),
        BodyPieceAction::Buffered
    );
    assert_eq!(
        exchange.complete_buffered_body().unwrap(),
        sszip_core::exchange::BodyEndAction::Fail
    );
    assert_eq!(exchange.body_slices().count(), 0);
}

#[test]
fn upstream_part_of_a_batch_is_not_copied_with_each_piece() {
    let host = Host::new();
    host.store(1, 10);
    let (mut exchange, found) = host.request(&batch(1..3), "");
    assert_eq!(found, LookupAction::ForwardRewritten);
    assert_eq!(head(&mut exchange), ResponseHeadAction::Buffer);
    let part = format!("[{}]", answer(2, LONG));
    let mut grown = 0;
    for piece in part.as_bytes().chunks(1000) {
        let before = host.used();
        assert_eq!(
            exchange.buffer_body_piece(piece).unwrap(),
            BodyPieceAction::Buffered
        );
        grown += usize::from(host.used() > before);
    }
    // the body has about 1,500 pieces
    assert!(grown < 30, "{grown}");
    exchange.complete_buffered_body().unwrap();
    exchange.run_pending_stages().unwrap();
    let expected = format!("[{},{}]", answer(1, 10), answer(2, LONG));
    assert!(body_of(&exchange) == expected.as_bytes());
}
