//! Responses from the cache in zstd: their forms are made once, off the event loop if that takes
//! long, and other codings replace them where they can't be kept.

use std::sync::Arc;

use sszip_core::cache::process::ProcessResources;
use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::{
    BodyEndAction, Exchange, Header, LookupAction, LookupRequest, ResponseHeadAction,
};
use sszip_core::request_coding::SupportedContentCoding::{self, Gzip, Zstd};

use crate::batch_off_loop::{answer, batch, call};
use crate::setup::{body, config_of_process, posted, request_head, response_head, JSON};
use crate::support::gunzip;
use crate::unzstd::unzstd;

fn config_of_tier(capacity: u64, max_entry: u64, lines: &[&str]) -> Arc<RouteConfig> {
    let process = ProcessResources::default();
    process.shared.start_hot_tier(capacity, max_entry, 1);
    let common = ["cache on", "cache_get all", "batch_max 1000", "zstd on"];
    config_of_process(process, &[&common[..], lines].concat())
}

fn config(lines: &[&str]) -> Arc<RouteConfig> {
    config_of_tier(64 << 20, 64 << 20, lines)
}

/// Returns pseudorandom hexadecimal digits, which are half as long in any coding.
fn digits(seed: usize, length: usize) -> String {
    let mut state = seed as u64;
    let digits = (0..length).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(b"0123456789abcdef"[(state >> 60) as usize])
    });
    digits.collect()
}

fn node_response(block: usize, length: usize) -> String {
    let result = digits(block, length);
    format!(r#"{{"jsonrpc":"2.0","id":{block},"result":"0x{result}"}}"#)
}

fn look_up_at(
    config: &Arc<RouteConfig>,
    text: &str,
    accepts: &str,
    now: u64,
) -> (Exchange, LookupAction) {
    let fields = [JSON, (&b"Accept-Encoding"[..], accepts.as_bytes())];
    let mut exchange = posted(config, &fields);
    let lookup_request = LookupRequest {
        namespace: Some(b"n"),
        body: text.as_bytes(),
        now,
        coding_allowed: true,
        ..LookupRequest::default()
    };
    let found = exchange.lookup_in_cache(lookup_request).unwrap();
    (exchange, found)
}

fn look_up(config: &Arc<RouteConfig>, text: &str, accepts: &str) -> (Exchange, LookupAction) {
    look_up_at(config, text, accepts, 1000)
}

/// Stores the response to a request, and checks it strictly.
fn store(config: &Arc<RouteConfig>, request: &str, response: &str) {
    let (mut exchange, found) = look_up(config, request, "gzip");
    assert_eq!(found, LookupAction::Forward);
    answer(&mut exchange, response);
    let (mut exchange, found) = look_up(config, request, "gzip");
    if found == LookupAction::RespondOffLoop {
        exchange.run_pending_stages().unwrap();
    }
    assert_eq!(exchange.stored_response_status(), 200);
}

fn store_blocks(config: &Arc<RouteConfig>, blocks: std::ops::Range<usize>, length: usize) {
    for block in blocks {
        store(config, &call(block), &node_response(block, length));
    }
}

/// Returns the content coding and the plain bytes of the body that is sent.
fn sent(exchange: &Exchange) -> (Option<SupportedContentCoding>, Vec<u8>) {
    let bytes = body(exchange);
    let length = edit(exchange, "Content-Length");
    assert_eq!(length, Some(bytes.len().to_string().into_bytes()));
    let coding = exchange.response_coding();
    let plain = match coding {
        None => bytes,
        Some(Gzip) => gunzip(&bytes).unwrap(),
        Some(Zstd) => unzstd(&bytes).unwrap(),
    };
    (coding, plain)
}

/// Returns the value to which the response's head sets a header.
fn edit(exchange: &Exchange, name: &str) -> Option<Vec<u8>> {
    let mut edits = exchange.head_edits().iter().rev();
    let edit = edits.find(|edit| edit.name.eq_ignore_ascii_case(name))?;
    edit.value.as_deref().map(<[u8]>::to_vec)
}

/// Looks up a request, and returns how its response was prepared and the response itself.
fn hit(
    config: &Arc<RouteConfig>,
    text: &str,
    accepts: &str,
) -> (LookupAction, Option<SupportedContentCoding>, Vec<u8>) {
    let (mut exchange, found) = look_up(config, text, accepts);
    if found == LookupAction::RespondOffLoop {
        exchange.run_pending_stages().unwrap();
    }
    assert_eq!(exchange.stored_response_status(), 200);
    let (coding, plain) = sent(&exchange);
    (found, coding, plain)
}

#[test]
fn long_zstd_form_is_made_off_the_loop_and_sent_from_it_afterwards() {
    for (length, level, first) in [
        (200_000, "zstd_level 1", LookupAction::Respond),
        (300_000, "zstd_level 1", LookupAction::RespondOffLoop),
        (2_000, "zstd_level 19", LookupAction::Respond),
        (100_000, "zstd_level 19", LookupAction::RespondOffLoop),
    ] {
        let config = config(&[level]);
        store_blocks(&config, 1..2, length);
        let expected = node_response(1, length).into_bytes();
        for found in [first, LookupAction::Respond, LookupAction::Respond] {
            let response = hit(&config, &call(1), "gzip, zstd");
            assert!(
                response == (found, Some(Zstd), expected.clone()),
                "{length} {level} {:?}",
                response.0
            );
        }
        let response = hit(&config, &call(1), "gzip");
        assert!(response == (LookupAction::Respond, Some(Gzip), expected));
    }
}

#[test]
fn long_zstd_forms_of_a_batch_are_made_off_the_loop_and_kept() {
    let config = config(&[]);
    store_blocks(&config, 0..3, 100_000);
    let hot = config.process.shared.hot_tier().unwrap();
    let expected = batch((0..3).map(|block| node_response(block, 100_000))).into_bytes();
    let request = batch((0..3).map(call));
    let before = hot.total_entry_weight();
    for found in [LookupAction::RespondOffLoop, LookupAction::Respond] {
        let response = hit(&config, &request, "zstd");
        assert!(
            response == (found, Some(Zstd), expected.clone()),
            "{:?}",
            response.0
        );
        // without another look-up of the entries
        let grown = hot.total_entry_weight() - before;
        assert!((150_000..180_000).contains(&grown), "{grown}");
    }
    let response = hit(&config, &request, "gzip");
    assert!(response == (LookupAction::Respond, Some(Gzip), expected));
}

#[test]
fn merged_batch_is_in_zstd_and_its_long_forms_are_made_off_the_loop() {
    let config = config(&[]);
    store_blocks(&config, 0..2, 140_000);
    for (fetched, is_off_loop) in [(2, true), (3, false)] {
        let blocks = [0, fetched, 1];
        let request = batch(blocks.into_iter().map(call));
        let (mut exchange, found) = look_up(&config, &request, "gzip, zstd");
        assert_eq!(found, LookupAction::ForwardRewritten);
        let node = batch(std::iter::once(node_response(fetched, 100)));
        assert_eq!(answer(&mut exchange, &node), is_off_loop, "{fetched}");
        let texts = [(0, 140_000), (fetched, 100), (1, 140_000)]
            .map(|(block, length)| node_response(block, length));
        let (coding, plain) = sent(&exchange);
        assert_eq!(coding, Some(Zstd));
        assert!(plain == batch(texts.into_iter()).into_bytes(), "{fetched}");
    }
}

#[test]
fn entry_that_keeps_no_zstd_form_is_sent_as_gzip_to_clients_of_both() {
    let config = config_of_tier(1 << 20, 80_000, &[]);
    store_blocks(&config, 1..3, 100_000);
    let expected = |block| node_response(block, 100_000).into_bytes();
    // the first client receives the form that is too large to be kept
    for (accepts, coding) in [
        ("gzip, zstd", Zstd),
        ("gzip, zstd", Gzip),
        ("zstd", Zstd),
        ("gzip;q=0, zstd", Zstd),
    ] {
        let response = hit(&config, &call(1), accepts);
        assert!(
            response == (LookupAction::Respond, Some(coding), expected(1)),
            "{accepts}"
        );
    }
    let request = batch((1..3).map(call));
    let whole = batch((1..3).map(|block| node_response(block, 100_000))).into_bytes();
    for (accepts, coding) in [("gzip, zstd", Gzip), ("zstd", Zstd), ("zstd", Zstd)] {
        let (_, received, plain) = hit(&config, &request, accepts);
        assert_eq!(received, Some(coding), "{accepts}");
        assert!(plain == whole, "{accepts}");
    }
    let hot = config.process.shared.hot_tier().unwrap();
    assert_eq!(hot.entry_count(), 2);
}

#[test]
fn memory_of_each_zstd_body_that_its_entry_does_not_keep_is_reserved() {
    let config = config_of_tier(1 << 20, 80_000, &[]);
    store_blocks(&config, 1..2, 100_000);
    // the first client receives the form that is too large to be kept
    hit(&config, &call(1), "zstd");
    let budget = config.process.budget.clone();
    assert_eq!(budget.reserved_bytes(), 0);
    let mut lengths = Vec::new();
    let clients: Vec<Exchange> = (0..5)
        .map(|_| {
            let (exchange, found) = look_up(&config, &call(1), "zstd");
            assert_eq!(found, LookupAction::Respond);
            assert_eq!(exchange.response_coding(), Some(Zstd));
            lengths.push(body(&exchange).len());
            assert_eq!(budget.reserved_bytes(), lengths.iter().sum::<usize>());
            exchange
        })
        .collect();
    drop(clients);
    assert_eq!(budget.reserved_bytes(), 0);
}

#[test]
fn stale_entry_whose_zstd_form_takes_long_is_sent_as_gzip() {
    let request =
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"0xaa"},"latest"]}"#;
    let response = node_response(1, 100_000);
    for (level, accepts, coding) in [
        ("zstd_level 1", "gzip, zstd", Zstd),
        ("zstd_level 19", "gzip, zstd", Gzip),
        ("zstd_level 19", "zstd", Zstd),
    ] {
        let config = config(&["cache_valid tip 1s", "cache_use_stale error", level]);
        store(&config, request, &response);
        let now = 5000;
        let (mut exchange, found) = look_up_at(&config, request, accepts, now);
        assert_eq!(found, LookupAction::Forward);
        assert!(exchange.handle_upstream_failure(UpstreamFailure::Error, now));
        let head = exchange.evaluate_response_head(response_head(502, None, &[JSON]));
        assert_eq!(head.unwrap(), ResponseHeadAction::Buffer);
        exchange.buffer_body_piece(b"the failure").unwrap();
        let end = exchange.complete_buffered_body().unwrap();
        assert_eq!(end, BodyEndAction::Send);
        let (received, plain) = sent(&exchange);
        assert_eq!(received, Some(coding), "{level} {accepts}");
        assert!(plain == response.as_bytes(), "{level} {accepts}");
    }
}

/// Looks up the resource with this method and condition.
fn look_up_resource(
    config: &Arc<RouteConfig>,
    method: &[u8],
    accepts: &str,
    condition: Option<Header<'_>>,
) -> (Exchange, LookupAction) {
    let accepts = (&b"Accept-Encoding"[..], accepts.as_bytes());
    let fields: Vec<Header<'_>> = condition.into_iter().chain([accepts]).collect();
    let mut exchange = Exchange::new(Arc::clone(config));
    exchange
        .read_request_head(request_head(method, &fields))
        .unwrap();
    let lookup_request = LookupRequest {
        namespace: Some(b"n"),
        now: 1000,
        coding_allowed: true,
        ..LookupRequest::default()
    };
    let found = exchange.lookup_in_cache(lookup_request).unwrap();
    (exchange, found)
}

#[test]
fn head_of_a_resource_has_the_length_of_its_zstd_form_once_that_is_made() {
    let config = config(&[]);
    let text = format!("\"{}\"", digits(1, 5000)).into_bytes();
    let (mut exchange, found) = look_up_resource(&config, b"GET", "", None);
    assert_eq!(found, LookupAction::Forward);
    let fields: [Header<'_>; 3] = [
        JSON,
        (b"Cache-Control", b"max-age=3600"),
        (b"ETag", b"\"v1\""),
    ];
    let head = response_head(200, Some(text.len() as u64), &fields);
    let action = exchange.evaluate_response_head(head).unwrap();
    assert_eq!(action, ResponseHeadAction::Tee);
    exchange.observe_passed_piece(&text).unwrap();
    let mut fill = exchange.take_complete_fill().unwrap();
    fill.build_collected_entries();
    fill.store_and_publish_entries(1000);

    let length_of_head = |accepts: &str, coding: Option<SupportedContentCoding>| {
        let (exchange, found) = look_up_resource(&config, b"HEAD", accepts, None);
        assert_eq!(found, LookupAction::Respond);
        assert_eq!(exchange.response_coding(), coding);
        assert!(body(&exchange).is_empty());
        let tag = edit(&exchange, "ETag").unwrap();
        assert_eq!(tag.starts_with(b"W/"), coding.is_some());
        edit(&exchange, "Content-Length")
    };
    let length_of_get = |accepts: &str, coding: Option<SupportedContentCoding>| {
        let (exchange, found) = look_up_resource(&config, b"GET", accepts, None);
        assert_eq!(found, LookupAction::Respond);
        assert!(sent(&exchange) == (coding, text.clone()));
        edit(&exchange, "Content-Length")
    };
    // a HEAD makes no form
    for _ in 0..2 {
        assert_eq!(length_of_head("gzip, zstd", Some(Zstd)), None);
    }
    for (accepts, coding) in [("zstd", Some(Zstd)), ("gzip", Some(Gzip)), ("", None)] {
        let length = length_of_get(accepts, coding);
        assert_eq!(length_of_head(accepts, coding), length, "{accepts}");
    }
    let condition: Header<'_> = (b"If-None-Match", b"W/\"v1\"");
    let (exchange, found) = look_up_resource(&config, b"GET", "zstd", Some(condition));
    assert_eq!(found, LookupAction::Respond);
    assert_eq!(exchange.stored_response_status(), 304);
    assert_eq!(exchange.response_coding(), None);
    assert_eq!(edit(&exchange, "ETag").unwrap(), b"W/\"v1\"");
}

#[test]
fn zstd_is_sent_only_where_it_is_on_and_the_host_and_the_client_allow_it() {
    let process = config(&[]).process.clone();
    let on = config_of_process(process.clone(), &["cache on", "zstd on"]);
    let off = config_of_process(process, &["cache on"]);
    store_blocks(&on, 1..2, 5000);
    let expected = node_response(1, 5000).into_bytes();
    for (config, accepts, coding) in [
        (&on, "zstd", Some(Zstd)),
        (&on, "*", Some(Gzip)),
        (&on, "zstd;q=0.5, gzip", Some(Gzip)),
        (&on, "zstd;q=0.5, identity", None),
        (&on, "zstd;q=0, gzip;q=0.1", Some(Gzip)),
        (&off, "zstd", None),
        (&off, "gzip, zstd", Some(Gzip)),
    ] {
        let response = hit(config, &call(1), accepts);
        assert!(
            response == (LookupAction::Respond, coding, expected.clone()),
            "{accepts} {:?}",
            response.1
        );
    }
    let fields = [JSON, (&b"Accept-Encoding"[..], &b"zstd"[..])];
    let mut exchange = posted(&on, &fields);
    let text = call(1);
    let lookup_request = LookupRequest {
        namespace: Some(b"n"),
        body: text.as_bytes(),
        now: 1000,
        coding_allowed: false,
        ..LookupRequest::default()
    };
    let found = exchange.lookup_in_cache(lookup_request).unwrap();
    assert_eq!(found, LookupAction::Respond);
    assert!(sent(&exchange) == (None, expected));
}
