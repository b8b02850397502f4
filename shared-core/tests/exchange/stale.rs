//! Stale responses: the conditions, the duration and the order in which they are sent.

use std::sync::Arc;

use proptest::prelude::*;
use sszip_core::cache::process::wake::EventLoopId;
use sszip_core::cache::process::ProcessResources;
use sszip_core::cache::status::CacheStatus;
use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::{
    BodyEndAction, Exchange, LookupAction, LookupRequest, ResponseHeadAction,
};

use crate::setup::{body, config, posted, response_head, JSON};

/// Milliseconds for which an expired response may be sent (docs/directives.md).
const MOST: u64 = 600_000;

/// Milliseconds for which responses are fresh in these tests.
const VALID: u64 = 1000;

struct Host {
    config: Arc<RouteConfig>,
    process: ProcessResources,
}

impl Host {
    fn new(words: &str) -> Self {
        let lines = ["cache on", "cache_valid tip 1s"].into_iter();
        let lines: Vec<_> = lines.chain(words.split("; ")).collect();
        let config = config(&lines);
        let process = config.process.clone();
        Self { config, process }
    }

    fn request(&self, now: u64, waiter: usize) -> (Exchange, LookupAction) {
        self.look_up(now, waiter, false)
    }

    fn look_up(&self, now: u64, waiter: usize, bypass: bool) -> (Exchange, LookupAction) {
        self.look_up_with(now, waiter, bypass, false)
    }

    fn look_up_with(
        &self,
        now: u64,
        waiter: usize,
        bypass: bool,
        no_background_update: bool,
    ) -> (Exchange, LookupAction) {
        let mut exchange = posted(&self.config, &[JSON]);
        let found = exchange
            .lookup_in_cache(LookupRequest {
                body: br#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#,
                now,
                waiter: Some(EventLoopId::default().waiter_of_request(waiter)),
                bypass,
                no_background_update,
                coding_allowed: true,
                ..LookupRequest::default()
            })
            .unwrap();
        (exchange, found)
    }
}

fn head(exchange: &mut Exchange, status: u16) -> ResponseHeadAction {
    exchange
        .evaluate_response_head(response_head(status, None, &[JSON]))
        .unwrap()
}

fn answer(exchange: Exchange, number: u64, now: u64) {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{number}}}"#);
    publish(exchange, &body, now);
}

fn publish(mut exchange: Exchange, body: &str, now: u64) {
    assert_eq!(head(&mut exchange, 200), ResponseHeadAction::Tee);
    exchange.observe_passed_piece(body.as_bytes()).unwrap();
    let mut fill = exchange.take_complete_fill().unwrap();
    fill.build_collected_entries();
    fill.store_and_publish_entries(now);
}

/// Returns the result in a stored response.
fn stored_result(exchange: &Exchange) -> u64 {
    let text = String::from_utf8(body(exchange)).unwrap();
    let (_, result) = text.split_once(r#""result":"#).unwrap();
    result.trim_end_matches('}').parse().unwrap()
}

/// Returns the stale result that the client receives when the node fails; `None` if it receives
/// the failure.
fn failed(mut exchange: Exchange, failure: UpstreamFailure, now: u64) -> Option<u64> {
    let serves_stale = exchange.would_serve_stale(failure, now);
    assert_eq!(exchange.handle_upstream_failure(failure, now), serves_stale);
    let status = match failure {
        UpstreamFailure::Status(status) => status,
        UpstreamFailure::Timeout => 504,
        _ => 502,
    };
    let action = head(&mut exchange, status);
    assert_eq!(action == ResponseHeadAction::Buffer, serves_stale);
    if !serves_stale {
        return None;
    }
    exchange.buffer_body_piece(b"the failure").unwrap();
    assert_eq!(
        exchange.complete_buffered_body().unwrap(),
        BodyEndAction::Send
    );
    assert_eq!(exchange.stored_response_status(), 200);
    assert_eq!(exchange.cache_status(), CacheStatus::Stale);
    Some(stored_result(&exchange))
}

#[test]
fn stale_entry_is_served_on_error_until_its_time_ends_and_then_removed() {
    let host = Host::new("cache_use_stale error");
    answer(host.request(0, 1).0, 7, 0);
    let last = VALID + MOST - 1;
    for now in [VALID, VALID + 1, last] {
        let (exchange, found) = host.request(now, 1);
        assert_eq!(found, LookupAction::Forward);
        assert_eq!(
            failed(exchange, UpstreamFailure::Error, now),
            Some(7),
            "{now}"
        );
    }
    // the failure may occur later than the look-up
    let (exchange, _) = host.request(last, 1);
    assert_eq!(failed(exchange, UpstreamFailure::Error, last + 1), None);
    let (exchange, _) = host.request(last + 1, 1);
    assert_eq!(failed(exchange, UpstreamFailure::Error, last + 1), None);
    assert!(host.process.shared.hot_tier().unwrap().entry_count() == 0);
}

#[test]
fn expired_entry_is_removed_when_use_stale_is_off() {
    let host = Host::new("cache_use_stale off");
    answer(host.request(0, 1).0, 7, 0);
    let (exchange, _) = host.request(VALID, 1);
    assert!(host.process.shared.hot_tier().unwrap().entry_count() == 0);
    assert_eq!(failed(exchange, UpstreamFailure::Error, VALID), None);
}

#[test]
fn evicted_entry_is_not_served_stale() {
    let host = Host::new("cache_use_stale error");
    answer(host.request(0, 1).0, 7, 0);
    host.process.shared.hot_tier().unwrap().clear();
    let (exchange, _) = host.request(VALID, 1);
    assert_eq!(failed(exchange, UpstreamFailure::Error, VALID), None);
}

#[test]
fn successful_response_is_not_replaced_by_a_stale_entry() {
    let host = Host::new("cache_use_stale error http_503");
    answer(host.request(0, 1).0, 7, 0);
    let (mut exchange, _) = host.request(VALID, 1);
    assert!(exchange.would_serve_stale(UpstreamFailure::Error, VALID));
    assert_eq!(head(&mut exchange, 200), ResponseHeadAction::Tee);
    assert_eq!(exchange.cache_status(), CacheStatus::Miss);
}

#[test]
fn response_that_expires_in_flight_is_stored_as_stale() {
    let host = Host::new("cache_use_stale error");
    answer(host.request(0, 1).0, 7, 5 * VALID);
    let (exchange, _) = host.request(5 * VALID, 1);
    assert_eq!(failed(exchange, UpstreamFailure::Error, 5 * VALID), Some(7));
}

const BACKGROUND: &str = "cache_use_stale updating error http_503; cache_background_update on";

/// Returns the background update of a client that has received the stale response.
fn update(host: &Host, now: u64, waiter: usize, expected: u64) -> Exchange {
    let (mut exchange, found) = host.request(now, waiter);
    assert_eq!(found, LookupAction::Respond);
    assert_eq!(exchange.cache_status(), CacheStatus::Stale);
    assert_eq!(stored_result(&exchange), expected);
    let update = exchange.take_background_update().unwrap();
    assert!(
        exchange.take_background_update().is_none(),
        "it can be taken once"
    );
    update
}

#[test]
fn stale_entry_is_sent_while_one_background_update_runs() {
    let host = Host::new(BACKGROUND);
    answer(host.request(0, 1).0, 7, 0);
    let first = update(&host, VALID, 1, 7);
    for waiter in 2..5 {
        let (mut other, found) = host.request(VALID, waiter);
        assert_eq!(
            (found, other.cache_status()),
            (LookupAction::Respond, CacheStatus::Updating)
        );
        assert!(other.take_background_update().is_none() && stored_result(&other) == 7);
    }
    answer(first, 8, VALID);
    let (mut exchange, found) = host.request(VALID + 1, 6);
    assert_eq!(
        (found, exchange.cache_status()),
        (LookupAction::Respond, CacheStatus::Hit)
    );
    assert!(exchange.take_background_update().is_none() && stored_result(&exchange) == 8);
}

/// A host that cannot repeat the request fetches for the client itself.
#[test]
fn request_fetches_itself_when_the_host_cannot_update_in_the_background() {
    let host = Host::new(BACKGROUND);
    answer(host.request(0, 1).0, 7, 0);
    let look_up = |waiter, no_background_update| {
        host.look_up_with(VALID, waiter, false, no_background_update)
    };
    let (mut exchange, found) = look_up(1, true);
    assert_eq!(found, LookupAction::Forward);
    assert!(exchange.take_background_update().is_none());
    // other clients receive the stale response meanwhile
    assert_eq!(look_up(2, true).1, LookupAction::Respond);
    answer(exchange, 8, VALID);
    assert_eq!(stored_result(&host.request(VALID + 1, 3).0), 8);
}

#[test]
fn failed_background_update_blocks_no_client() {
    let host = Host::new(BACKGROUND);
    answer(host.request(0, 1).0, 7, 0);
    // the host drops the update
    drop(update(&host, VALID, 1, 7));
    for status in [502, 503, 404] {
        let mut failing = update(&host, VALID, 1, 7);
        failing.handle_upstream_failure(UpstreamFailure::Status(status), VALID);
        assert_eq!(head(&mut failing, status), ResponseHeadAction::Pass);
        assert!(failing.take_complete_fill().is_none());
    }
    // the stale response is sent until its time is over
    let (exchange, found) = host.request(VALID + MOST, 1);
    assert_eq!(found, LookupAction::Forward);
    drop(exchange);
}

#[test]
fn stale_entry_is_not_served_after_the_node_denied_it() {
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":3,"message":"reverted"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}"#,
    ] {
        let host = Host::new(BACKGROUND);
        answer(host.request(0, 1).0, 7, 0);
        publish(update(&host, VALID, 1, 7), body, VALID);
        // an empty result is stored until its TTL ends, and never sent stale
        let (exchange, found) = host.request(VALID, 1);
        match body.contains("-32000") {
            true => assert_eq!(found, LookupAction::Forward, "{body}"),
            false => assert_eq!(found, LookupAction::Respond, "{body}"),
        }
        drop(exchange);
        let (exchange, found) = host.request(2 * VALID, 1);
        assert_eq!(found, LookupAction::Forward, "{body}");
        assert_eq!(failed(exchange, UpstreamFailure::Error, 2 * VALID), None);
    }
}

#[test]
fn response_sent_for_before_the_entry_was_denied_is_not_stored() {
    let host = Host::new(&format!("{BACKGROUND}; cache_lock off"));
    let (slow, _) = host.look_up(0, 1, true);
    answer(host.look_up(1, 2, true).0, 8, 1);
    let update = update(&host, VALID + 1, 3, 8);
    let body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}"#;
    publish(update, body, VALID + 1);
    // the node was queried before the entry that clients have received
    answer(slow, 7, VALID + 2);
    let (exchange, found) = host.request(VALID + 2, 4);
    assert_eq!(found, LookupAction::Forward);
    answer(exchange, 9, VALID + 2);
    let (exchange, found) = host.request(VALID + 3, 5);
    assert_eq!(
        (found, stored_result(&exchange)),
        (LookupAction::Respond, 9)
    );
}

#[test]
fn response_to_the_later_request_of_a_millisecond_is_kept() {
    let host = Host::new("cache_lock off");
    let (earlier, _) = host.request(0, 1);
    let (later, _) = host.request(0, 2);
    answer(later, 8, 0);
    answer(earlier, 7, 0);
    let (exchange, found) = host.request(0, 3);
    assert_eq!(
        (found, stored_result(&exchange)),
        (LookupAction::Respond, 8)
    );
}

#[test]
fn response_to_an_earlier_request_of_the_millisecond_of_a_denial_is_not_stored() {
    let host = Host::new(&format!("{BACKGROUND}; cache_lock off"));
    answer(host.request(0, 1).0, 7, 0);
    let (earlier, _) = host.look_up(VALID, 2, true);
    let denying = update(&host, VALID, 3, 7);
    let body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}"#;
    publish(denying, body, VALID);
    answer(earlier, 8, VALID);
    assert_eq!(host.request(VALID, 4).1, LookupAction::Forward);
}

#[test]
fn invalid_update_response_keeps_the_stale_entry() {
    for body in [
        "",
        r#"{"jsonrpc":"2.0","id":1,"result":"#,
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"no"}}"#,
        "<html>",
    ] {
        let host = Host::new(BACKGROUND);
        answer(host.request(0, 1).0, 7, 0);
        publish(update(&host, VALID, 1, 7), body, VALID);
        drop(update(&host, VALID, 1, 7));
    }
}

#[test]
fn late_background_update_does_not_remove_a_newer_entry() {
    let host = Host::new(&format!("{BACKGROUND}; cache_lock off"));
    answer(host.request(0, 1).0, 7, 0);
    let slow = update(&host, VALID, 1, 7);
    // a request that does not wait for the update
    let (bypassing, _) = host.look_up(VALID + 1, 2, true);
    answer(bypassing, 8, VALID + 1);
    publish(slow, r#"{"jsonrpc":"2.0","id":1,"result":null}"#, VALID + 2);
    let (exchange, found) = host.request(VALID + 2, 3);
    assert_eq!(
        (found, stored_result(&exchange)),
        (LookupAction::Respond, 8)
    );
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Request,
    Answer(usize),
    Fail(usize, UpstreamFailure),
    Leave(usize),
    Pause(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let failure = prop_oneof![
        Just(UpstreamFailure::Error),
        Just(UpstreamFailure::Timeout),
        Just(UpstreamFailure::Status(503)),
        Just(UpstreamFailure::Status(500)),
    ];
    prop_oneof![
        4 => Just(Step::Request),
        3 => (0..8usize).prop_map(Step::Answer),
        2 => (0..8usize, failure).prop_map(|(n, failure)| Step::Fail(n, failure)),
        1 => (0..8usize).prop_map(Step::Leave),
        2 => prop_oneof![0..3 * VALID, Just(MOST / 2), Just(MOST + VALID)].prop_map(Step::Pause),
    ]
}

proptest! {
    /// The node's response is the time of its request. In any order of events, no stored response
    /// is older than permitted, only one request at a time reaches the node while there is a
    /// response to send, and no client receives an older stored response than a client before it.
    #[test]
    fn stale_responses_are_bounded_in_age_and_never_go_back(
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
        // the time of each request to the node, its exchange, and whether a client waits for it
        let mut at_node: Vec<(u64, Exchange, bool)> = Vec::new();
        let mut newest = 0;
        let mut seen = |requested_at: u64, now: u64| {
            assert!(now < requested_at + VALID + MOST, "of {requested_at} at {now}");
            assert!(requested_at >= newest, "{requested_at} after {newest}");
            newest = requested_at;
        };
        for step in steps {
            match step {
                Step::Request => {
                    waiter += 1;
                    let (mut exchange, found) = host.request(now, waiter);
                    match found {
                        LookupAction::Respond => {
                            seen(stored_result(&exchange), now);
                            if exchange.cache_status() == CacheStatus::Updating {
                                prop_assert!(!at_node.is_empty());
                            }
                            let update = exchange.take_background_update();
                            let is_stale = exchange.cache_status() == CacheStatus::Stale;
                            prop_assert_eq!(update.is_some(), is_stale);
                            if let Some(update) = update {
                                prop_assert!(background);
                                prop_assert!(at_node.iter().all(|(_, _, waits)| *waits));
                                at_node.push((now, update, false));
                            }
                        }
                        LookupAction::Forward => at_node.push((now, exchange, true)),
                        // the client leaves: there is no response to send yet
                        other => prop_assert_eq!(other, LookupAction::Wait),
                    }
                }
                Step::Answer(n) if !at_node.is_empty() => {
                    let (requested_at, exchange, _) = at_node.remove(n % at_node.len());
                    answer(exchange, requested_at, now);
                }
                Step::Fail(n, failure) if !at_node.is_empty() => {
                    let (_, mut exchange, waits) = at_node.remove(n % at_node.len());
                    if !waits {
                        exchange.handle_upstream_failure(failure, now);
                        prop_assert_eq!(head(&mut exchange, 503), ResponseHeadAction::Pass);
                        continue;
                    }
                    let covered = !matches!(failure, UpstreamFailure::Timeout | UpstreamFailure::Status(500));
                    if let Some(requested_at) = failed(exchange, failure, now) {
                        prop_assert!(covered);
                        seen(requested_at, now);
                    }
                }
                Step::Leave(n) if !at_node.is_empty() => {
                    drop(at_node.remove(n % at_node.len()));
                }
                Step::Pause(time) => now += time,
                _ => {}
            }
        }
    }
}
