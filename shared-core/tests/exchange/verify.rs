//! Hit verification: the calls that are compared, the time of the comparison and the effect of
//! its verdict.

use std::io::Write;
use std::sync::Arc;

use sszip_core::cache::process::verification::HitVerificationVerdict;
use sszip_core::cache::process::wake::EventLoopId;
use sszip_core::cache::process::ProcessResources;
use sszip_core::cache::status::CacheStatus;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::{Exchange, HeadEdit, LookupAction, LookupRequest, ResponseHeadAction};

use crate::setup::{config, posted, response_head, JSON};

struct Host {
    config: Arc<RouteConfig>,
    process: ProcessResources,
}

const BLOCK: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByHash","params":["0x00000000000000000000000000000000000000000000000000000000000000aa",true]}"#;
const HEAD: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#;

impl Host {
    fn new(verify: &str) -> Self {
        let config = config(&["cache on", "cache_valid tip 1h", verify]);
        let process = config.process.clone();
        Self { config, process }
    }

    fn request(&self, body: &str, no_background_update: bool) -> (Exchange, LookupAction) {
        self.request_with_coding(body.as_bytes(), None, no_background_update)
    }

    fn request_with_coding(
        &self,
        body: &[u8],
        coding: Option<&str>,
        no_background_update: bool,
    ) -> (Exchange, LookupAction) {
        let mut fields = vec![JSON];
        fields.extend(coding.map(|coding| (&b"Content-Encoding"[..], coding.as_bytes())));
        let mut exchange = posted(&self.config, &fields);
        let found = exchange
            .lookup_in_cache(LookupRequest {
                body,
                now: 0,
                waiter: Some(EventLoopId::default().waiter_of_request(1)),
                no_background_update,
                coding_allowed: true,
                ..LookupRequest::default()
            })
            .unwrap();
        (exchange, found)
    }

    /// Stores a response, and returns the verification of the hit that follows.
    fn hit(&self, body: &str, result: &str) -> Option<Exchange> {
        let (exchange, found) = self.request(body, false);
        assert_eq!(found, LookupAction::Forward);
        answer(exchange, 200, result);
        let (mut exchange, found) = self.request(body, false);
        assert_eq!(
            (found, exchange.cache_status()),
            (LookupAction::Respond, CacheStatus::Hit)
        );
        exchange.take_background_update()
    }

    fn verdict(&self) -> Option<HitVerificationVerdict> {
        let counts = self.process.shared.verified.verdicts.take_event_counts()?;
        assert_eq!(counts.iter().sum::<u64>(), 1);
        let place = counts.iter().position(|count| *count == 1).unwrap();
        Some(HitVerificationVerdict::ALL[place])
    }
}

fn answer(mut exchange: Exchange, status: u16, result: &str) {
    let action = exchange
        .evaluate_response_head(response_head(status, None, &[JSON]))
        .unwrap();
    if action != ResponseHeadAction::Tee {
        return;
    }
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,{result}}}"#);
    exchange.observe_passed_piece(body.as_bytes()).unwrap();
    if let Some(mut fill) = exchange.take_complete_fill() {
        fill.build_collected_entries();
        fill.store_and_publish_entries(0);
    }
}

#[test]
fn verdict_and_purge_follow_the_present_upstream_response() {
    let stored = r#""result":{"number":"0x1","b":[1,2]}"#;
    let long = "x".repeat(20_000);
    let long_error = format!(r#""error":{{"code":-32000,"message":"{long}"}}"#);
    for (status, now, verdict) in [
        (200, stored, HitVerificationVerdict::Same),
        (
            200,
            r#""result":{"b": [1, 2],"number":"0x1"}"#,
            HitVerificationVerdict::Same,
        ),
        (
            200,
            r#""result":{"number":"0x1","b":[2,1]}"#,
            HitVerificationVerdict::Different,
        ),
        (200, r#""result":null"#, HitVerificationVerdict::Different),
        (
            200,
            r#""error":{"code":-32000,"message":"busy"}"#,
            HitVerificationVerdict::Unanswered,
        ),
        (200, &long_error, HitVerificationVerdict::Unanswered),
        (200, r#""result":"#, HitVerificationVerdict::Unanswered),
        (503, stored, HitVerificationVerdict::Unanswered),
    ] {
        for purges in [false, true] {
            let host = Host::new(if purges {
                "verify 100% purge"
            } else {
                "verify 100%"
            });
            let update = host.hit(BLOCK, stored).unwrap();
            assert_eq!(host.verdict(), None);
            answer(update, status, now);
            assert_eq!(host.verdict(), Some(verdict), "{now}");
            let line = host.process.shared.verified.take_log_line();
            let is_wrong = verdict == HitVerificationVerdict::Different;
            assert_eq!(line.is_some(), is_wrong, "{now}");
            assert_eq!(
                line.is_some_and(|line| line.contains(", purged: ")),
                is_wrong && purges
            );
            // the verification's response was not stored
            let (_, found) = host.request(BLOCK, true);
            let expected = if is_wrong && purges {
                LookupAction::Forward
            } else {
                LookupAction::Respond
            };
            assert_eq!(found, expected, "{now}");
        }
    }
}

#[test]
fn different_tip_response_is_changed_and_not_purged() {
    let host = Host::new("verify 100% purge");
    let update = host.hit(HEAD, r#""result":"0x1""#).unwrap();
    answer(update, 200, r#""result":"0x2""#);
    assert_eq!(host.verdict(), Some(HitVerificationVerdict::Changed));
    assert_eq!(host.process.shared.verified.take_log_line(), None);
    let (exchange, found) = host.request(HEAD, true);
    assert_eq!(
        (found, exchange.cache_status()),
        (LookupAction::Respond, CacheStatus::Hit)
    );
}

#[test]
fn entry_removed_during_its_verification_is_changed() {
    let host = Host::new("verify 100% purge");
    let update = host.hit(BLOCK, r#""result":{"number":"0x1"}"#).unwrap();
    host.process.shared.hot_tier().unwrap().clear();
    answer(update, 200, r#""result":{"number":"0x2"}"#);
    assert_eq!(host.verdict(), Some(HitVerificationVerdict::Changed));
}

#[test]
fn aborted_verification_is_unanswered() {
    let host = Host::new("verify 100%");
    drop(host.hit(BLOCK, r#""result":{"number":"0x1"}"#).unwrap());
    assert_eq!(host.verdict(), Some(HitVerificationVerdict::Unanswered));
}

#[test]
fn hit_is_not_verified_when_verification_is_off_or_impossible() {
    for verify in ["verify off", "verify 0.0001%"] {
        let host = Host::new(verify);
        assert!(host.hit(BLOCK, r#""result":{"number":"0x1"}"#).is_none());
    }
    let host = Host::new("verify 100%");
    drop(host.hit(BLOCK, r#""result":{"number":"0x1"}"#));
    host.verdict();
    let (mut exchange, found) = host.request(BLOCK, true);
    assert_eq!(found, LookupAction::Respond);
    assert!(exchange.take_background_update().is_none());
    let (mut exchange, found) = host.request(&format!("[{BLOCK}]"), true);
    assert_eq!(found, LookupAction::Respond);
    assert!(exchange.take_background_update().is_none());
}

/// A batch verifies one of its hits, sent to the node as it is written in the batch.
#[test]
fn batch_verifies_one_of_its_hits() {
    let other = BLOCK.replace("aa", "bb");
    let stored = r#""result":{"number":"0x1"}"#;
    for (batch, expected) in [
        (format!("[{BLOCK}]"), LookupAction::Respond),
        // the hit need not be first, and a missing call is not verified
        (
            format!("[{other}, {BLOCK}]"),
            LookupAction::ForwardRewritten,
        ),
        (
            format!("[{HEAD}, {BLOCK}, {other}]"),
            LookupAction::ForwardRewritten,
        ),
    ] {
        let batch = batch.replace(
            r#""id":1,"method":"eth_blockNumber""#,
            r#""id":2,"method":"eth_blockNumber""#,
        );
        let batch = batch.replace(&other, &other.replace(r#""id":1"#, r#""id":3"#));
        for (now, verdict) in [
            (stored, HitVerificationVerdict::Same),
            (
                r#""result":{"number":"0x2"}"#,
                HitVerificationVerdict::Different,
            ),
            (
                r#""error":{"code":1,"message":"busy"}"#,
                HitVerificationVerdict::Unanswered,
            ),
        ] {
            let host = Host::new("verify 100% purge");
            drop(host.hit(BLOCK, stored));
            host.verdict();
            let (mut exchange, found) = host.request(&batch, false);
            assert_eq!(found, expected, "{batch}");
            let update = exchange.take_background_update().unwrap();
            assert_eq!(update.upstream_request_body(), BLOCK.as_bytes());
            assert_eq!(update.rpc_method(), b"eth_getBlockByHash");
            assert!(exchange.take_background_update().is_none());
            answer(update, 200, now);
            assert_eq!(host.verdict(), Some(verdict), "{batch} {now}");
            let line = host.process.shared.verified.take_log_line();
            assert_eq!(line.is_some(), verdict == HitVerificationVerdict::Different);
            // purged, or unchanged
            let (_, found) = host.request(BLOCK, true);
            assert_eq!(
                found == LookupAction::Forward,
                verdict == HitVerificationVerdict::Different
            );
        }
    }
}

#[test]
fn batch_without_a_hit_is_not_verified() {
    let host = Host::new("verify 100%");
    let (mut exchange, found) = host.request(&format!("[{BLOCK}]"), false);
    assert_eq!(found, LookupAction::Forward);
    assert!(exchange.take_background_update().is_none());
}

/// The client's request was compressed; the node receives the call in identity.
#[test]
fn compressed_batch_verifies_one_hit_in_identity() {
    let host = Host::new("verify 100%");
    drop(host.hit(BLOCK, r#""result":{"number":"0x1"}"#));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(format!("[{BLOCK}]").as_bytes()).unwrap();
    let (mut exchange, found) =
        host.request_with_coding(&encoder.finish().unwrap(), Some("gzip"), false);
    assert_eq!(found, LookupAction::Respond);
    let update = exchange.take_background_update().unwrap();
    assert_eq!(update.upstream_request_body(), BLOCK.as_bytes());
    let removes = |edit: &HeadEdit| edit.name == "Content-Encoding" && edit.value.is_none();
    assert_eq!(
        update
            .upstream_edits()
            .iter()
            .filter(|it| removes(it))
            .count(),
        1
    );
}
