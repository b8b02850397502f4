//! Coalesced requests: the responses that followers share, and the requests that are not
//! coalesced.

use std::sync::Arc;

use sszip_core::cache::process::wake::{EventLoopId, WokenRequestQueue};
use sszip_core::cache::process::ProcessResources;
use sszip_core::cache::status::CacheStatus;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::{Exchange, Header, LookupAction, LookupRequest, ResponseHeadAction};

use crate::setup::{body, config_and_queue, posted, response_head, JSON};

const NULL: &str = r#"{"jsonrpc":"2.0","id":1,"result":null}"#;
const RECEIPT: &str = "eth_getTransactionReceipt";

/// Response time of the node in milliseconds.
const NODE: u64 = 200;

struct Host {
    config: Arc<RouteConfig>,
    process: ProcessResources,
    woken: Arc<WokenRequestQueue>,
}

impl Host {
    fn new(line: &str) -> Self {
        let (config, woken) = config_and_queue(&["cache on", line]);
        let process = config.process.clone();
        Self {
            config,
            process,
            woken,
        }
    }

    /// Looks up the same call `many` times: the first request goes to the node, the others wait
    /// for it.
    fn coalesced_requests(
        &self,
        method: &str,
        many: usize,
        now: u64,
    ) -> (Exchange, Vec<(usize, Exchange)>) {
        let (leader, found) = self.request(method, 1, now);
        assert_eq!(found, LookupAction::Forward);
        let waiting = (2..=many).map(|waiter| {
            let (exchange, found) = self.request(method, waiter, now);
            assert_eq!(found, LookupAction::Wait, "{waiter}");
            (waiter, exchange)
        });
        (leader, waiting.collect())
    }

    fn request(&self, method: &str, waiter: usize, now: u64) -> (Exchange, LookupAction) {
        let mut exchange = posted(&self.config, &[JSON]);
        let found = look_up(&mut exchange, method, waiter, Some(waiter), now);
        (exchange, found)
    }

    fn request_batch(&self, body: &str, waiter: usize, now: u64) -> (Exchange, LookupAction) {
        let mut exchange = posted(&self.config, &[JSON]);
        let found = look_up_all(&mut exchange, body, waiter, now);
        (exchange, found)
    }

    fn woken(&self) -> Vec<usize> {
        std::iter::from_fn(|| self.woken.next_woken_id()).collect()
    }
}

fn look_up(
    exchange: &mut Exchange,
    method: &str,
    id: usize,
    waiter: Option<usize>,
    now: u64,
) -> LookupAction {
    let params = format!("[\"0x{}\"]", "ab".repeat(32));
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    exchange
        .lookup_in_cache(LookupRequest {
            body: body.as_bytes(),
            now,
            waiter: waiter.map(|id| EventLoopId::default().waiter_of_request(id)),
            coding_allowed: true,
            ..LookupRequest::default()
        })
        .unwrap()
}

fn look_up_all(exchange: &mut Exchange, body: &str, waiter: usize, now: u64) -> LookupAction {
    exchange
        .lookup_in_cache(LookupRequest {
            body: body.as_bytes(),
            now,
            waiter: Some(EventLoopId::default().waiter_of_request(waiter)),
            coding_allowed: true,
            ..LookupRequest::default()
        })
        .unwrap()
}

/// Encodes a batch of calls of `methods`, with consecutive ids from `id`.
fn calls(methods: &[&str], id: usize) -> String {
    let params = format!("[\"0x{}\"]", "ab".repeat(32));
    let calls = methods.iter().enumerate().map(|(n, method)| {
        let id = id + n;
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    });
    format!("[{}]", calls.collect::<Vec<_>>().join(","))
}

/// Encodes the node's responses to [`calls`]: `null` for receipts, 7 for others.
fn answers(methods: &[&str], id: usize) -> String {
    let answers = methods.iter().enumerate().map(|(n, method)| {
        let (id, result) = (id + n, if *method == RECEIPT { "null" } else { "7" });
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
    });
    format!("[{}]", answers.collect::<Vec<_>>().join(","))
}

const BOTH: [&str; 2] = [RECEIPT, "eth_gasPrice"];

#[test]
fn coalesced_batches_reach_the_node_once() {
    for valid in ["0", "10s"] {
        let host = Host::new(&format!("cache_valid nothing {valid}"));
        let (leader, found) = host.request_batch(&calls(&BOTH, 1), 1, 0);
        assert_eq!(found, LookupAction::Forward);
        let mut waiting = Vec::new();
        for waiter in 2..20 {
            let (exchange, found) = host.request_batch(&calls(&BOTH, 10 * waiter), waiter, 0);
            assert_eq!(found, LookupAction::Wait);
            waiting.push((waiter, exchange));
        }
        let (mut single, found) = host.request(RECEIPT, 20, 0);
        assert_eq!(found, LookupAction::Wait);
        answer(leader, &answers(&BOTH, 1), NODE);
        let mut woken = host.woken();
        woken.sort_unstable();
        assert_eq!(woken, (2..=20).collect::<Vec<_>>());
        for (waiter, mut exchange) in waiting {
            let found = look_up_all(&mut exchange, &calls(&BOTH, 10 * waiter), waiter, NODE);
            assert_eq!(found, LookupAction::Respond, "{valid} {waiter}");
            assert_eq!(body_of(&exchange), answers(&BOTH, 10 * waiter));
        }
        let found = look_up(&mut single, RECEIPT, 20, None, NODE);
        assert_eq!(found, LookupAction::Respond);
        assert!(host.process.shared.flights.flight_count() == 0);
    }
}

#[test]
fn batch_with_a_call_that_has_no_leader_is_forwarded() {
    let host = Host::new("cache_valid nothing 0");
    let (first, _) = host.request(RECEIPT, 1, 0);
    let (second, found) = host.request_batch(&calls(&BOTH, 1), 2, 0);
    assert_eq!(found, LookupAction::Forward);
    // its own calls have followers of their own
    let (third, found) = host.request("eth_gasPrice", 3, 0);
    assert_eq!(found, LookupAction::Wait);
    let (fourth, found) = host.request_batch(&calls(&BOTH, 1), 4, 0);
    assert_eq!(found, LookupAction::Wait);
    // calls that are never stored must be fetched
    let body = calls(&[RECEIPT, "eth_syncing"], 1);
    assert_eq!(host.request_batch(&body, 5, 0).1, LookupAction::Forward);
    // a failed batch wakes one follower per call, and then batches
    drop(second);
    assert_eq!(host.woken(), [3]);
    drop(third);
    drop(first);
    assert_eq!(host.woken(), [4]);
    let mut fourth = fourth;
    let found = look_up_all(&mut fourth, &calls(&BOTH, 1), 4, NODE);
    assert_eq!(found, LookupAction::Forward);
    answer(fourth, &answers(&BOTH, 1), NODE);
    assert!(host.process.shared.flights.flight_count() == 0);
}

#[test]
fn batch_waits_for_single_calls_until_its_timeout() {
    let host = Host::new("cache_valid nothing 0");
    let (one, _) = host.request(RECEIPT, 1, 0);
    let (two, _) = host.request("eth_gasPrice", 2, 0);
    let (mut batch, found) = host.request_batch(&calls(&BOTH, 1), 3, 0);
    assert_eq!(found, LookupAction::Wait);
    assert_eq!(batch.lookup_wait_ms(), 5_000);
    answer(one, NULL, NODE);
    assert!(host.woken().is_empty());
    // without a wakeup the batch fetches the rest, and the receipt too, which the head of the
    // rest may have changed
    let found = look_up_all(&mut batch, &calls(&BOTH, 1), 3, 5_000);
    assert_eq!(found, LookupAction::Forward);
    drop((two, batch));
    assert!(host.woken().is_empty() && host.process.shared.flights.flight_count() == 0);
}

fn head(exchange: &mut Exchange, status: u16, fields: &[Header<'_>]) -> ResponseHeadAction {
    exchange
        .evaluate_response_head(response_head(status, None, fields))
        .unwrap()
}

fn answer(mut exchange: Exchange, body: &str, now: u64) {
    assert_eq!(head(&mut exchange, 200, &[JSON]), ResponseHeadAction::Tee);
    exchange.observe_passed_piece(body.as_bytes()).unwrap();
    let mut fill = exchange.take_complete_fill().unwrap();
    fill.build_collected_entries();
    fill.store_and_publish_entries(now);
}

fn body_of(exchange: &Exchange) -> String {
    String::from_utf8(body(exchange)).unwrap()
}

#[test]
fn followers_share_any_complete_response() {
    for valid in ["0", "1ms", "10s"] {
        for answered in [
            NULL,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"limit"}}"#,
            // a transaction that is not in a block yet
            r#"{"jsonrpc":"2.0","id":1,"result":{"blockNumber":null}}"#,
            "{\"result\":[],\"id\":1,\"jsonrpc\":\"2.0\"}\n",
        ] {
            let host = Host::new(&format!("cache_valid nothing {valid}"));
            let (leader, waiting) = host.coalesced_requests(RECEIPT, 60, 0);
            answer(leader, answered, NODE);
            assert_eq!(host.woken(), (2..=60).collect::<Vec<_>>());
            for (id, mut exchange) in waiting {
                let found = look_up(&mut exchange, RECEIPT, id, None, NODE);
                assert_eq!(found, LookupAction::Respond, "{valid} {answered}");
                assert_eq!(exchange.cache_status(), CacheStatus::Hit);
                let expected = answered.replace("\"id\":1", &format!("\"id\":{id}"));
                assert_eq!(body_of(&exchange), expected);
            }
        }
    }
}

#[test]
fn empty_result_is_stored_until_its_ttl_ends() {
    let host = Host::new("cache_valid nothing 300ms");
    answer(host.request(RECEIPT, 1, 0).0, NULL, NODE);
    // its age counts from the request to the node
    let (hit, found) = host.request(RECEIPT, 7, 299);
    assert_eq!(found, LookupAction::Respond);
    assert_eq!(body_of(&hit), NULL.replace("\"id\":1", "\"id\":7"));
    assert_eq!(host.request(RECEIPT, 1, 300).1, LookupAction::Forward);
}

#[test]
fn requests_are_coalesced_when_their_response_is_not_stored() {
    let host = Host::new("cache_valid nothing 0");
    answer(host.request(RECEIPT, 1, 0).0, NULL, NODE);
    let (leader, waiting) = host.coalesced_requests(RECEIPT, 5, NODE + 1);
    answer(leader, NULL, 2 * NODE);
    for (id, mut exchange) in waiting {
        let found = look_up(&mut exchange, RECEIPT, id, None, 2 * NODE);
        assert_eq!(found, LookupAction::Respond);
    }
}

#[test]
fn uncacheable_response_is_shared_only_with_followers_that_wait() {
    for is_waited_for in [false, true] {
        let host = Host::new("cache_valid nothing 0");
        let (mut leader, waiting) =
            host.coalesced_requests(RECEIPT, 1 + usize::from(is_waited_for), 0);
        assert_eq!(head(&mut leader, 200, &[JSON]), ResponseHeadAction::Tee);
        leader.observe_passed_piece(NULL.as_bytes()).unwrap();
        let fill = leader.take_complete_fill().unwrap();
        // a request that arrives now shares the response only if it was built for others
        let (mut late, found) = host.request(RECEIPT, 9, 0);
        assert_eq!(found, LookupAction::Wait);
        fill.store_and_publish_entries(NODE);
        let found = look_up(&mut late, RECEIPT, 9, None, NODE);
        assert_eq!(found == LookupAction::Respond, is_waited_for);
        drop(waiting);
    }
}

#[test]
fn private_response_is_not_shared_and_disables_coalescing_for_a_second() {
    let cookie: Header<'_> = (b"Set-Cookie", b"a=b");
    let private: Header<'_> = (b"Cache-Control", b"private");
    let stored: Header<'_> = (b"Cache-Control", b"no-store");
    let any: Header<'_> = (b"Vary", b"*");
    for more in [cookie, private, stored, any] {
        let host = Host::new("cache_valid nothing 10s");
        let (mut leader, waiting) = host.coalesced_requests(RECEIPT, 5, 0);
        assert_eq!(
            head(&mut leader, 200, &[JSON, more]),
            ResponseHeadAction::Pass
        );
        for (id, mut exchange) in waiting {
            let found = look_up(&mut exchange, RECEIPT, id, None, NODE);
            assert_eq!(found, LookupAction::Forward);
        }
        // for a second no later request waits either
        for waiter in 1..5 {
            assert_eq!(host.request(RECEIPT, waiter, 999).1, LookupAction::Forward);
        }
        drop(host.coalesced_requests(RECEIPT, 2, NODE + 1_000));
    }
}

#[test]
fn invalid_or_too_long_response_is_not_shared_and_disables_coalescing() {
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#,
        "a".repeat(2_000)
    );
    for body in ["<html>", r#"{"jsonrpc":"2.0","id":7,"result":null}"#, &long] {
        let host = Host::new("cache_max_entry 1k");
        let (mut leader, waiting) = host.coalesced_requests(RECEIPT, 5, 0);
        assert_eq!(head(&mut leader, 200, &[JSON]), ResponseHeadAction::Tee);
        leader.observe_passed_piece(body.as_bytes()).unwrap();
        if let Some(mut fill) = leader.take_complete_fill() {
            fill.build_collected_entries();
            fill.store_and_publish_entries(NODE);
        }
        for (id, mut exchange) in waiting {
            let found = look_up(&mut exchange, RECEIPT, id, None, NODE);
            assert_eq!(found, LookupAction::Forward);
        }
        for waiter in 1..5 {
            assert_eq!(host.request(RECEIPT, waiter, NODE).1, LookupAction::Forward);
        }
    }
}

#[test]
fn next_follower_leads_when_the_response_is_truncated() {
    let host = Host::new("cache_valid nothing 10s");
    let (mut leader, mut waiting) = host.coalesced_requests(RECEIPT, 5, 0);
    assert_eq!(head(&mut leader, 200, &[JSON]), ResponseHeadAction::Tee);
    leader.observe_passed_piece(b"{\"jsonrpc\"").unwrap();
    drop(leader);
    // the next follower leads
    assert_eq!(host.woken(), [2]);
    let (id, mut next) = waiting.remove(0);
    let found = look_up(&mut next, RECEIPT, id, None, NODE);
    assert_eq!(found, LookupAction::Forward);
    answer(next, &NULL.replace("\"id\":1", "\"id\":2"), NODE);
    assert_eq!(host.woken(), [3, 4, 5]);
    // a failure does not prevent later requests from being coalesced
    let host = Host::new("cache_valid nothing 10s");
    let (mut leader, waiting) = host.coalesced_requests(RECEIPT, 5, 0);
    assert_eq!(head(&mut leader, 503, &[JSON]), ResponseHeadAction::Pass);
    drop((leader, waiting));
    drop(host.coalesced_requests(RECEIPT, 5, NODE));
}
