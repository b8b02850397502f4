//! Response limits: a response that is longer than its method permits is an error for its client,
//! in any framing and content coding.

use std::io::{Read, Write};
use std::sync::Arc;

use proptest::prelude::*;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_core::exchange::ResponseHead;
use sszip_core::response_mode::ResponseMode;

use crate::driver_host::{body_to_send, client_body, store_sent_response, BodyEnd};
use crate::setup::{self, call, config_of_process, look_up, response_head, JSON};
use crate::tier::times;

fn config(lines: &[&str]) -> Arc<RouteConfig> {
    let all = ["min_length 0", "max_answer eth_getLogs 1k"];
    setup::config(&[&all, lines].concat())
}

fn result(id: u32, length: usize) -> String {
    let text = "ab".repeat(length / 2);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{text}"}}"#)
}

/// Encodes a response of exactly `length` bytes.
fn response_of_length(id: u32, length: usize) -> String {
    let least = result(id, 0).len();
    let text = result(id, 0).replace("\"\"}", &format!("\"{}\"}}", "x".repeat(length - least)));
    assert_eq!(text.len(), length);
    text
}

/// Encodes a response of exactly `length` bytes that compression shortens little.
fn noise_of_length(id: u32, length: usize) -> String {
    let mut state = 7_u64;
    let noise = response_of_length(id, length).replace('x', "\0");
    let noise = noise.chars().map(|letter| match letter {
        '\0' => {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            char::from(b'#' + (state >> 58) as u8 % 57)
        }
        letter => letter,
    });
    noise.map(|it| if it == '\\' { '~' } else { it }).collect()
}

fn too_long(id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32005,"message":"the response is longer than the limit of its method"}}}}"#
    )
}

fn no_answer(id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"message":"the node sent no valid response to this call"}}}}"#
    )
}

#[derive(Clone, Copy, Debug)]
struct NodeFraming {
    /// Whether the node sends `Content-Length`.
    length: bool,
    /// Whether the node compresses the response.
    coded: bool,
    piece: usize,
    status: u16,
}

const PLAIN: NodeFraming = NodeFraming {
    length: true,
    coded: false,
    piece: 4096,
    status: 200,
};

/// Returns the response that the client receives after the node has sent `body`, decompressed.
fn answer(driver: &mut ExchangeDriver, body: &str, how: NodeFraming) -> Option<String> {
    let body = match how.coded {
        true => gzip(body.as_bytes()),
        false => body.as_bytes().to_vec(),
    };
    let mut fields = vec![JSON];
    if how.coded {
        fields.push((b"Content-Encoding", b"gzip"));
    }
    let head = response_head(how.status, how.length.then_some(body.len() as u64), &fields);
    let step = driver.handle_response_head(head).unwrap();
    let got = client_body(driver, step, body.chunks(how.piece), BodyEnd::Whole).unwrap()?;
    store_sent_response(driver, 1);
    let edits = driver.available_exchange().unwrap().head_edits();
    let coding = edits.iter().rfind(|edit| edit.name == "Content-Encoding");
    let is_coded = match coding {
        Some(edit) => edit.value.is_some(),
        None => how.coded,
    };
    Some(match is_coded {
        true => gunzip(&got),
        false => String::from_utf8(got).unwrap(),
    })
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    coder.write_all(body).unwrap();
    coder.finish().unwrap()
}

fn gunzip(body: &[u8]) -> String {
    let mut text = String::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(body);
    decoder.read_to_string(&mut text).unwrap();
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: times(500, 2_000), max_global_rejects: 10_000, ..ProptestConfig::default() })]

    /// Each content coding that the client accepts, and each way in which the node sends.
    #[test]
    fn response_longer_than_the_limit_is_an_error(
        bytes in prop::sample::select(vec![60_usize, 1000, 1023, 1024, 1025, 1500, 9000, 200_000]),
        accepts in prop::sample::select(vec!["gzip", "", "identity", "br"]),
        piece in prop::sample::select(vec![1_usize, 100, 1024, 1025, 100_000]),
        length in any::<bool>(),
        coded in any::<bool>(),
        status in prop::sample::select(vec![200_u16, 200, 200, 206, 404, 500]),
        lines in prop::sample::select(vec![
            &[][..], &["cache on"], &["hold 0"], &["max_oneshot 1k"], &["memory 1k"], &["types text/plain"],
        ]),
    ) {
        let config = config(lines);
        let text = match coded && bytes < 9000 {
            // the compressed body is about as long
            true => noise_of_length(1, bytes),
            false => response_of_length(1, bytes),
        };
        let (mut driver, step) = look_up(&config, &call(1, "eth_getLogs"), accepts);
        prop_assert!(matches!(step, HostStep::Forward));
        let how = NodeFraming { length, coded, piece, status };
        let got = answer(&mut driver, &text, how).unwrap();
        let is_short = bytes <= 1024;
        let has_memory = length && !coded || lines != ["memory 1k"] || bytes < 400;
        if is_short && has_memory {
            prop_assert_eq!(got, text);
        } else {
            prop_assert!(got == too_long(1) || is_short && got == text, "{}", got);
        }
        let exchange = driver.available_exchange().unwrap();
        prop_assert_eq!(exchange.denied_call_count() == 1, exchange.response_mode() == ResponseMode::Denied);
        drop(driver);
        prop_assert_eq!(config.process.budget.reserved_bytes(), 0);
    }

    /// Each response of a batch is limited by itself, and keeps its position.
    #[test]
    fn responses_of_a_batch_are_limited_one_by_one(
        lengths in prop::collection::vec(prop::sample::select(vec![60_usize, 1024, 1025, 5000]), 1..5),
        bounded in prop::collection::vec(any::<bool>(), 5),
        accepts in prop::sample::select(vec!["gzip", ""]),
        how in (any::<bool>(), any::<bool>(), 1..3000_usize),
        cache in prop::sample::select(vec!["cache on", "cache off"]),
        reversed in any::<bool>(),
        has_stored in any::<bool>(),
    ) {
        let config = config(&[cache, "method deny debug_*"]);
        if has_stored {
            let (mut driver, _) = look_up(&config, &call(1, "eth_getBlockByHash"), "gzip");
            answer(&mut driver, &response_of_length(1, 300), PLAIN);
        }
        let (mut calls, mut answers, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for (id, (length, bounded)) in (1_u32..).zip(lengths.iter().zip(&bounded)) {
            let method = if *bounded { "eth_getLogs" } else { "eth_call" };
            calls.push(call(id, method));
            answers.push(response_of_length(id, *length));
            expected.push(match *bounded && *length > 1024 {
                true => too_long(id),
                false => response_of_length(id, *length),
            });
        }
        if has_stored {
            calls.push(call(9, "eth_getBlockByHash"));
            expected.push(response_of_length(1, 300).replace("\"id\":1", "\"id\":9"));
        }
        let (mut driver, step) = look_up(&config, &format!("[{}]", calls.join(",")), accepts);
        let gets_block = has_stored && cache == "cache off";
        if gets_block {
            answers.push(expected.last().unwrap().clone());
        }
        prop_assert!(matches!(step, HostStep::Forward | HostStep::ForwardRewritten));
        let is_judged = bounded.iter().take(lengths.len()).any(|it| *it);
        if reversed && is_judged {
            answers.reverse();
        }
        let (length, coded, piece) = how;
        let how = NodeFraming { length, coded, piece, status: 200 };
        let got = answer(&mut driver, &format!("[{}]", answers.join(",")), how).unwrap();
        prop_assert_eq!(got, format!("[{}]", expected.join(",")));
    }
}

#[test]
fn batch_that_cannot_be_buffered_or_read_has_an_error_per_call() {
    let calls = format!("[{},{}]", call(1, "eth_getLogs"), call(2, "eth_call"));
    let both = format!("[{},{}]", too_long(1), no_answer(2));
    let long = format!(
        "[{},{}]",
        response_of_length(1, 60),
        response_of_length(2, 5000)
    );
    let broken = format!("[{},", response_of_length(1, 2000));
    let single = response_of_length(1, 4000);
    for (lines, answers) in [
        (&["max_oneshot 2k", "memory 6k"][..], &long),
        (&["memory 1k"], &long),
        (&[], &broken),
        (&[], &single),
    ] {
        for length in [true, false] {
            let config = config(lines);
            let (mut driver, _) = look_up(&config, &calls, "");
            let how = NodeFraming { length, ..PLAIN };
            let got = answer(&mut driver, answers, how);
            if lines == ["memory 1k"] && got.is_none() {
                // no memory to assemble the errors either: 502
                continue;
            }
            assert_eq!(got.unwrap(), both, "{lines:?} {answers}");
        }
    }
    // a short error of the node for the whole batch is forwarded
    let config = config(&[]);
    let (mut driver, _) = look_up(&config, &calls, "");
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}"#;
    assert_eq!(answer(&mut driver, error, PLAIN).unwrap(), error);
}

#[test]
fn response_limit_applies_to_hits() {
    let long = response_of_length(1, 3000);
    let open = config(&["cache on", "cache_valid immutable 1h"]);
    let block = |id| call(id, "eth_getBlockByHash");
    let (mut driver, _) = look_up(&open, &block(1), "gzip");
    assert_eq!(answer(&mut driver, &long, PLAIN).unwrap(), long);
    // another route of the same process
    let lines = ["cache on", "max_answer eth_getBlock* 2k"];
    let bounded = config_of_process(open.process.clone(), &lines);
    for accepts in ["gzip", ""] {
        let (driver, step) = look_up(&bounded, &block(2), accepts);
        assert!(matches!(step, HostStep::Respond));
        assert_eq!(
            String::from_utf8(body_to_send(&driver)).unwrap(),
            too_long(2)
        );
        let exchange = driver.available_exchange().unwrap();
        assert_eq!(
            (exchange.stored_response_status(), exchange.response_mode()),
            (200, ResponseMode::Denied)
        );
        // a batch forwards the call, and receives the error from the node's response
        let (mut driver, step) = look_up(&bounded, &format!("[{}]", block(3)), accepts);
        assert!(matches!(step, HostStep::ForwardRewritten));
        let answers = format!("[{}]", response_of_length(3, 3000));
        let got = answer(&mut driver, &answers, PLAIN).unwrap();
        assert_eq!(got, format!("[{}]", too_long(3)));
    }
    let (driver, _) = look_up(&open, &block(4), "");
    assert_eq!(
        String::from_utf8(body_to_send(&driver)).unwrap(),
        response_of_length(4, 3000)
    );
}

#[test]
fn notification_has_no_response_under_a_response_limit() {
    let config = config(&[]);
    let notification = r#"{"jsonrpc":"2.0","method":"eth_getLogs"}"#;
    for body in [notification.to_owned(), format!("[{notification}]")] {
        let (mut driver, step) = look_up(&config, &body, "");
        assert!(matches!(step, HostStep::Forward));
        assert_eq!(answer(&mut driver, "", PLAIN).unwrap(), "");
    }
}

#[test]
fn truncated_response_is_not_reported_as_too_long() {
    let config = config(&[]);
    let (mut driver, _) = look_up(&config, &call(1, "eth_getLogs"), "gzip");
    let head = ResponseHead {
        unbuffered: true,
        ..response_head(200, None, &[JSON])
    };
    let step = driver.handle_response_head(head).unwrap();
    assert!(matches!(step, HostStep::Buffer) && driver.next_timeout_ms().is_none());
    let got = client_body(&mut driver, step, [&b"{\"jsonrpc\""[..]], BodyEnd::Cut);
    assert_eq!(
        (
            got.unwrap(),
            driver.available_exchange().unwrap().response_mode()
        ),
        (None, ResponseMode::Cut)
    );
}

#[test]
fn compressed_response_that_there_is_no_memory_to_measure_is_an_error() {
    let text = response_of_length(1, 5000);
    for (memory, expected) in [("memory 1m", text.clone()), ("memory 4k", too_long(1))] {
        let config = config(&["max_answer eth_call 6k", memory]);
        let (mut driver, _) = look_up(&config, &call(1, "eth_call"), "gzip");
        let how = NodeFraming {
            coded: true,
            ..PLAIN
        };
        assert_eq!(answer(&mut driver, &text, how).unwrap(), expected);
        drop(driver);
        assert_eq!(config.process.budget.reserved_bytes(), 0);
    }
}

#[test]
fn response_within_the_limit_is_stored() {
    let short = response_of_length(1, 900);
    for accepts in ["gzip", ""] {
        for (length, coded) in [(true, false), (false, false), (true, true), (false, true)] {
            let config = config(&["cache on", "max_answer eth_getBlock* 1k"]);
            let block = |id| call(id, "eth_getBlockByHash");
            let how = NodeFraming {
                length,
                coded,
                ..PLAIN
            };
            let (mut driver, _) = look_up(&config, &block(1), accepts);
            assert_eq!(answer(&mut driver, &short, how).unwrap(), short);
            let (driver, step) = look_up(&config, &block(2), "");
            assert!(matches!(step, HostStep::Respond), "{accepts} {how:?}");
            assert_eq!(
                String::from_utf8(body_to_send(&driver)).unwrap(),
                response_of_length(2, 900)
            );
        }
    }
}
