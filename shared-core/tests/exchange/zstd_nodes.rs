//! Nodes that send zstd although identity was requested.

use std::io::Write;
use std::sync::Arc;

use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_core::exchange::{BodyEndAction, Exchange, RequestHead, ResponseHeadAction};
use sszip_core::response_mode::ResponseMode;

use crate::setup::{self, call, look_up, request_head, response_head, JSON};
use crate::ssz_concurrency::{self, value, EITHER, OCTETS};
use crate::zstd_bodies::{answer, block, get, hit, result, NodeBody, ReceivedResponse};

const TARGET: &str = "/eth/v1/beacon/states/7/pending_consolidations";

/// Compresses a body to a frame that declares its content size.
fn sized_frame(body: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(body, 3).unwrap()
}

/// Compresses a body while it is made, to a frame without a content size.
fn streamed_frame(body: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
    for piece in body.chunks(5000) {
        encoder.write_all(piece).unwrap();
        encoder.flush().unwrap();
    }
    encoder.finish().unwrap()
}

/// Returns a frame with this descriptor and its fields (RFC 8878, 3.1.1.1), and one raw block.
fn raw_frame(header: &[u8], body: &[u8]) -> Vec<u8> {
    let block = ((body.len() as u32) << 3) | 1;
    let block = &block.to_le_bytes()[..3];
    [&[0x28, 0xB5, 0x2F, 0xFD], header, block, body].concat()
}

fn zstd_body(bytes: &[u8], has_length: bool) -> NodeBody<'_> {
    NodeBody {
        coding: Some("zstd"),
        ..NodeBody::identity(bytes, has_length)
    }
}

#[test]
fn zstd_of_a_node_passes_or_is_decompressed_as_the_client_accepts() {
    let body = result(1, 30_000);
    let frames = [
        ("zstd", sized_frame(&body)),
        ("ZStd", streamed_frame(&body)),
        // the longest window of RFC 9659
        ("zstd", raw_frame(&[0x00, 0x68], &body)),
    ];
    for (coding, frame) in &frames {
        for line in ["zstd off", "zstd on"] {
            let config = setup::config(&[line]);
            for (accepts, passes) in [
                ("zstd", true),
                ("gzip, zstd;q=0.1", true),
                ("*", true),
                ("gzip", false),
                ("zstd;q=0, *", false),
                ("", false),
            ] {
                for (has_length, piece) in [(true, 7000), (false, 100)] {
                    let node = NodeBody {
                        coding: Some(*coding),
                        bytes: frame,
                        has_length,
                        piece,
                    };
                    let got = answer(&mut get(&config, accepts), &node);
                    let (mode, sent, expected) = match passes {
                        true => (ResponseMode::Encoded, Some(*coding), frame),
                        false => (ResponseMode::Inflate, None, &body),
                    };
                    assert_eq!((got.mode, got.coding.as_deref()), (mode, sent), "{accepts}");
                    assert!(got.body == *expected, "{accepts}");
                }
            }
        }
    }
}

#[test]
fn short_zstd_of_a_node_is_decompressed() {
    let config = setup::config(&[]);
    let body = result(1, 10);
    let frame = sized_frame(&body);
    let got = answer(&mut get(&config, "gzip"), &zstd_body(&frame, true));
    assert_eq!((got.mode, got.body), (ResponseMode::Inflate, body));
}

#[test]
fn head_of_a_decompressed_response_names_neither_coding_nor_length() {
    let config = setup::config(&[]);
    for (accepts, mode, removed) in [
        ("gzip", ResponseMode::Head, true),
        ("zstd", ResponseMode::Encoded, false),
    ] {
        let mut driver = ExchangeDriver::new(Arc::clone(&config));
        let fields = [(&b"Accept-Encoding"[..], accepts.as_bytes())];
        driver
            .handle_request_head(request_head(b"HEAD", &fields))
            .unwrap();
        let fields = [JSON, (b"Content-Encoding", b"zstd")];
        let step = driver.handle_response_head(response_head(200, Some(5000), &fields));
        assert!(matches!(step.unwrap(), HostStep::Pass));
        let exchange = driver.available_exchange().unwrap();
        assert_eq!(exchange.response_mode(), mode);
        for name in ["Content-Encoding", "Content-Length"] {
            let mut edits = exchange.head_edits().iter();
            let is_removed = edits.any(|edit| edit.name == name && edit.value.is_none());
            assert_eq!(is_removed, removed, "{accepts} {name}");
        }
    }
}

/// Returns bodies that are called zstd and are not decompressed, with their names.
fn undecodable_bodies() -> Vec<(&'static str, Vec<u8>)> {
    let body = result(1, 3000);
    let frame = sized_frame(&body);
    let mut lying = frame.clone();
    // the content size, after the magic number and the descriptor
    lying[5] ^= 1;
    vec![
        ("cut", frame[..frame.len() - 1].to_vec()),
        ("longer", [&frame[..], b"x"].concat()),
        ("another size", lying),
        ("a window of 9 MiB", raw_frame(&[0x00, 0x69], &body)),
        ("a dictionary", raw_frame(&[0x01, 0x38, 0x07], &body)),
        ("no zstd", body),
    ]
}

#[test]
fn undecodable_zstd_of_a_node_passes_unchanged_and_is_not_stored() {
    for (name, frame) in undecodable_bodies() {
        for (accepts, mode) in [
            ("gzip", ResponseMode::Failed),
            ("", ResponseMode::Failed),
            ("gzip, zstd", ResponseMode::Encoded),
        ] {
            for has_length in [true, false] {
                let config = setup::config(&["zstd on", "cache on"]);
                let (mut driver, step) = look_up(&config, &block(1), accepts);
                assert!(matches!(step, HostStep::Forward));
                let got = answer(&mut driver, &zstd_body(&frame, has_length));
                assert_eq!(
                    (got.mode, got.coding.as_deref()),
                    (mode, Some("zstd")),
                    "{name}, {accepts}"
                );
                assert!(got.body == frame, "{name}, {accepts}");
                drop(driver);
                assert_eq!(config.process.budget.reserved_bytes(), 0);
                let (_, step) = look_up(&config, &block(2), "");
                assert!(matches!(step, HostStep::Forward), "{name}, {accepts}");
            }
        }
    }
}

#[test]
fn zstd_of_a_node_is_stored_without_its_coding() {
    let body = result(1, 5000);
    for frame in [sized_frame(&body), streamed_frame(&body)] {
        for accepts in ["gzip, zstd", "gzip", ""] {
            for has_length in [true, false] {
                let config = setup::config(&["cache on"]);
                let (mut driver, _) = look_up(&config, &block(1), accepts);
                let got = answer(&mut driver, &zstd_body(&frame, has_length));
                assert!(got.decoded() == body, "{accepts}");
                drop(driver);
                for (accepts, coding) in [("gzip", Some("gzip")), ("", None)] {
                    let got = hit(&config, 2, accepts);
                    assert_eq!(got.coding.as_deref(), coding);
                    assert!(got.decoded() == result(2, 5000));
                }
            }
        }
    }
}

#[test]
fn passed_zstd_that_decompresses_to_more_than_an_entry_is_not_stored() {
    for (length, is_stored) in [(10_000, true), (20_000, false)] {
        let config = setup::config(&["cache on", "cache_max_entry 12k"]);
        let (mut driver, _) = look_up(&config, &block(1), "zstd");
        let frame = sized_frame(&result(1, length));
        let got = answer(&mut driver, &zstd_body(&frame, true));
        assert!(got.decoded() == result(1, length), "{length}");
        drop(driver);
        let (_, step) = look_up(&config, &block(2), "");
        assert_eq!(matches!(step, HostStep::Respond), is_stored, "{length}");
    }
}

#[test]
fn long_zstd_of_a_node_is_decompressed_off_the_loop() {
    let config = setup::config(&[]);
    for (length, expected) in [(100_000, false), (4 << 20, true)] {
        let mut exchange = Exchange::new(Arc::clone(&config));
        exchange
            .read_request_head(request_head(b"GET", &[]))
            .unwrap();
        let frame = sized_frame(&vec![b'a'; length]);
        let fields = [JSON, (b"Content-Encoding", b"zstd")];
        let head = response_head(200, Some(frame.len() as u64), &fields);
        assert_eq!(
            exchange.evaluate_response_head(head),
            Ok(ResponseHeadAction::Buffer)
        );
        exchange.buffer_body_piece(&frame).unwrap();
        let expected = BodyEndAction::Code { off_loop: expected };
        assert_eq!(exchange.complete_buffered_body(), Ok(expected), "{length}");
    }
}

#[test]
fn response_limit_applies_to_the_decompressed_body() {
    let config = setup::config(&["zstd on", "max_answer eth_getLogs 1k"]);
    for (length, is_short) in [(800, true), (5000, false)] {
        let body = result(1, length);
        let frame = sized_frame(&body);
        for accepts in ["gzip, zstd", "gzip", ""] {
            for has_length in [true, false] {
                let (mut driver, _) = look_up(&config, &call(1, "eth_getLogs"), accepts);
                let got = answer(&mut driver, &zstd_body(&frame, has_length));
                match is_short {
                    true => assert!(got.decoded() == body, "{accepts}"),
                    false => assert_eq!(
                        (got.mode, got.coding),
                        (ResponseMode::Denied, None),
                        "{accepts}"
                    ),
                }
            }
        }
    }
}

/// Returns the response to a client of [`TARGET`] that accepts these formats and codings.
fn converted(
    config: &Arc<RouteConfig>,
    accept: &str,
    codings: &str,
    node: &NodeBody<'_>,
) -> ReceivedResponse {
    converted_resource(config, TARGET, accept, codings, node)
}

/// Returns the response to a client of this target that accepts these formats and codings.
fn converted_resource(
    config: &Arc<RouteConfig>,
    target: &str,
    accept: &str,
    codings: &str,
    node: &NodeBody<'_>,
) -> ReceivedResponse {
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    let fields = [
        (&b"Accept"[..], accept.as_bytes()),
        (b"Accept-Encoding", codings.as_bytes()),
    ];
    let head = RequestHead {
        target: target.as_bytes(),
        ..request_head(b"GET", &fields)
    };
    driver.handle_request_head(head).unwrap();
    answer(&mut driver, node)
}

/// Returns the SSZ of [`value`].
fn octets(count: usize) -> Vec<u8> {
    let one = [1_u64.to_le_bytes(), 515_u64.to_le_bytes()].concat();
    one.repeat(count)
}

#[test]
fn converted_body_is_compressed_with_zstd() {
    let config = ssz_concurrency::config("8", &["zstd on"]);
    let json = value(200);
    let node = NodeBody::identity(&json, true);
    let got = converted(&config, OCTETS, "gzip, zstd", &node);
    assert_eq!(
        (got.mode, got.coding.as_deref()),
        (ResponseMode::Ssz, Some("zstd"))
    );
    assert!(got.decoded() == octets(200));
}

/// A converted body of more than 8 MiB is compressed in parts.
#[test]
fn long_converted_body_is_compressed_with_zstd() {
    const BLOBS: usize = 65;
    const BLOB_LENGTH: usize = 131_072;
    let config = ssz_concurrency::config("8", &["zstd on"]);
    let blob = format!("\"0x{}\"", "a5".repeat(BLOB_LENGTH));
    let json = format!("{{\"data\":[{}]}}", vec![blob; BLOBS].join(","));
    let node = NodeBody {
        piece: 1 << 20,
        ..NodeBody::identity(json.as_bytes(), true)
    };
    let target = "/eth/v1/beacon/blobs/7";
    let got = converted_resource(&config, target, OCTETS, "gzip, zstd", &node);
    assert_eq!(
        (got.mode, got.coding.as_deref()),
        (ResponseMode::Ssz, Some("zstd"))
    );
    let decoded = got.decoded();
    assert_eq!(decoded.len(), BLOBS * BLOB_LENGTH);
    assert!(decoded.iter().all(|byte| *byte == 0xA5));
}

#[test]
fn zstd_of_a_node_is_converted() {
    let config = ssz_concurrency::config("8", &["zstd on"]);
    let json = value(300);
    for frame in [sized_frame(&json), streamed_frame(&json)] {
        for has_length in [true, false] {
            for (codings, coding) in [("", None), ("gzip", Some("gzip")), ("zstd", Some("zstd"))] {
                let node = zstd_body(&frame, has_length);
                let got = converted(&config, OCTETS, codings, &node);
                assert_eq!(
                    (got.mode, got.coding.as_deref()),
                    (ResponseMode::Ssz, coding)
                );
                assert!(got.decoded() == octets(300), "{codings}");
            }
        }
    }
}

#[test]
fn zstd_of_a_node_that_cannot_be_converted_is_sent_in_an_accepted_coding() {
    let config = ssz_concurrency::config("8", &[]);
    let json = value(300);
    let invalid = [&json[..json.len() - 2], b"x]}"].concat();
    let (frame, cut) = (sized_frame(&invalid), sized_frame(&json));
    let cut = &cut[..cut.len() - 1];
    for (codings, decodes) in [("zstd", false), ("gzip", true)] {
        let got = converted(&config, EITHER, codings, &zstd_body(&frame, true));
        assert_eq!(got.mode, ResponseMode::SszInvalid);
        let (coding, body) = match decodes {
            true => (None, &invalid),
            false => (Some("zstd"), &frame),
        };
        assert_eq!(got.coding.as_deref(), coding);
        assert!(got.body == *body, "{codings}");
        let got = converted(&config, EITHER, codings, &zstd_body(cut, true));
        assert_eq!(
            (got.mode, got.coding.as_deref()),
            (ResponseMode::Encoded, Some("zstd"))
        );
        assert!(got.body == *cut, "{codings}");
    }
    let got = converted(&config, OCTETS, "zstd", &zstd_body(cut, true));
    assert_eq!((got.mode, got.coding), (ResponseMode::Encoded, None));
}
