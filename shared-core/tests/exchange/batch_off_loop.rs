//! Batches that take long to assemble are not assembled on an event loop. The limit is the one of
//! single responses: 256 KiB to compress or to decompress.

use std::sync::Arc;

use sszip_core::cache::process::ProcessResources;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::transitions::ExchangeState;
use sszip_core::exchange::{
    BodyEndAction, BodyPieceAction, Exchange, LookupAction, LookupRequest, ResponseHeadAction,
};
use sszip_core::response_mode::ResponseMode;

use crate::setup::{self, config_of_process, posted, response_head, JSON};
use crate::support::gunzip;

pub(crate) fn config() -> Arc<RouteConfig> {
    let process = ProcessResources::default();
    process.shared.start_hot_tier(64 << 20, 64 << 20, 1);
    config_of_process(process, &["cache on"])
}

pub(crate) fn call(block: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{block},"method":"eth_getBlockByHash","params":["0x{block:064x}"]}}"#
    )
}

fn node_response(block: usize, length: usize) -> String {
    let result = "a".repeat(length);
    format!(r#"{{"jsonrpc":"2.0","id":{block},"result":"{result}"}}"#)
}

pub(crate) fn batch(texts: impl Iterator<Item = String>) -> String {
    format!("[{}]", texts.collect::<Vec<_>>().join(","))
}

pub(crate) fn look_up(
    config: &Arc<RouteConfig>,
    body: &str,
    gzip: bool,
) -> (Exchange, LookupAction) {
    let fields = [JSON, (b"Accept-Encoding", b"gzip")];
    let fields = if gzip { &fields[..] } else { &fields[..1] };
    let mut exchange = posted(config, fields);
    let lookup_request = LookupRequest {
        namespace: Some(b"n"),
        body: body.as_bytes(),
        now: 1000,
        coding_allowed: true,
        ..LookupRequest::default()
    };
    let found = exchange.lookup_in_cache(lookup_request).unwrap();
    (exchange, found)
}

/// Reads the node's response, and returns whether its assembly belongs off the event loop.
pub(crate) fn answer(exchange: &mut Exchange, body: &str) -> bool {
    let action = exchange
        .evaluate_response_head(response_head(200, Some(body.len() as u64), &[JSON]))
        .unwrap();
    let off_loop = match action {
        ResponseHeadAction::Buffer => {
            assert_eq!(
                exchange.buffer_body_piece(body.as_bytes()),
                Ok(BodyPieceAction::Buffered)
            );
            let Ok(BodyEndAction::Code { off_loop }) = exchange.complete_buffered_body() else {
                panic!("it is whole");
            };
            exchange.run_pending_stages().unwrap();
            off_loop
        }
        ResponseHeadAction::Tee => {
            exchange.observe_passed_piece(body.as_bytes()).unwrap();
            false
        }
        other => panic!("{other:?}"),
    };
    if let Some(mut fill) = exchange.take_complete_fill() {
        fill.build_collected_entries();
        fill.store_and_publish_entries(1000);
    }
    off_loop
}

fn body(exchange: &Exchange) -> String {
    let bytes = setup::body(exchange);
    let plain = match bytes[..] {
        [0x1F, 0x8B, ..] => gunzip(&bytes).unwrap(),
        _ => bytes,
    };
    String::from_utf8(plain).unwrap()
}

/// Creates a configuration whose cache holds these responses, strictly checked because each was
/// requested twice.
fn stored(blocks: std::ops::Range<usize>, length: usize) -> Arc<RouteConfig> {
    let config = config();
    for block in blocks {
        let (mut exchange, _) = look_up(&config, &call(block), true);
        answer(&mut exchange, &node_response(block, length));
        let (_, found) = look_up(&config, &call(block), true);
        assert_eq!(found, LookupAction::Respond);
    }
    config
}

#[test]
fn long_stored_responses_are_decompressed_off_the_loop() {
    for (count, length, gzip, expected) in [
        (2, 100_000, false, LookupAction::Respond),
        (3, 100_000, false, LookupAction::RespondOffLoop),
        (2, 140_000, false, LookupAction::RespondOffLoop),
        // compressed entries are sent unchanged
        (10, 100_000, true, LookupAction::Respond),
        // entries that are too short to be compressed alone are compressed as a batch
        (50, 900, true, LookupAction::Respond),
        (400, 900, true, LookupAction::RespondOffLoop),
        // uncompressed entries need no decompression
        (400, 900, false, LookupAction::Respond),
    ] {
        let process = stored(0..count, length).process.clone();
        let config = config_of_process(process, &["cache on", "batch_max 1000"]);
        let (mut exchange, found) = look_up(&config, &batch((0..count).map(call)), gzip);
        assert_eq!(found, expected, "{count} of {length}, gzip: {gzip}");
        if found == LookupAction::RespondOffLoop {
            exchange.run_pending_stages().unwrap();
        }
        assert_eq!(exchange.stored_response_status(), 200);
        let whole = batch((0..count).map(|block| node_response(block, length)));
        assert!(body(&exchange) == whole, "{count} of {length}");
    }
}

/// The response of a failed decompression was sent without a status and without a body.
#[test]
fn stored_batch_is_fetched_when_its_decompression_fails() {
    let config = stored(0..3, 140_000);
    let (mut exchange, found) = look_up(&config, &batch((0..3).map(call)), false);
    assert_eq!(found, LookupAction::RespondOffLoop);
    exchange
        .send_original_response(ResponseMode::Failed)
        .unwrap();
    assert_eq!(exchange.exchange_state(), ExchangeState::AwaitingHead);
    assert_eq!(
        (
            exchange.stored_response_status(),
            exchange.body_slices().count()
        ),
        (0, 0)
    );
    assert!(exchange.head_edits().is_empty());
}

#[test]
fn short_fetched_part_with_long_stored_parts_is_merged_off_the_loop() {
    for (length, gzip, expected) in [
        (100_000, false, false),
        (140_000, false, true),
        (140_000, true, false),
    ] {
        let config = stored(0..2, length);
        let (mut exchange, found) = look_up(&config, &batch((0..3).map(call)), gzip);
        assert_eq!(found, LookupAction::ForwardRewritten);
        let off_loop = answer(
            &mut exchange,
            &batch(std::iter::once(node_response(2, 100))),
        );
        assert_eq!(off_loop, expected, "{length}, gzip: {gzip}");
        let all = [
            node_response(0, length),
            node_response(1, length),
            node_response(2, 100),
        ];
        assert!(body(&exchange) == batch(all.into_iter()));
    }
}
