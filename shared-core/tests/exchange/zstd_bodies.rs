//! Responses that are compressed with zstd, and the entries of those that are stored.

use std::io::Read;
use std::sync::Arc;

use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_core::exchange::{BodyEndAction, Exchange, Header, ResponseHeadAction};
use sszip_core::gzip::stream::FlushMode;
use sszip_core::request_coding::SupportedContentCoding;
use sszip_core::response_mode::ResponseMode;

use crate::driver_host::{body_to_send, client_body, store_sent_response, BodyEnd};
use crate::setup::{self, call, look_up, request_head, response_head, JSON};
use crate::support::gunzip;
use crate::unzstd::unzstd;

/// The node's body with its content coding, and the way in which it is sent.
pub(crate) struct NodeBody<'a> {
    pub(crate) coding: Option<&'a str>,
    pub(crate) bytes: &'a [u8],
    pub(crate) has_length: bool,
    /// Length of the pieces in bytes.
    pub(crate) piece: usize,
}

impl<'a> NodeBody<'a> {
    /// Returns a body without a content coding.
    pub(crate) fn identity(bytes: &'a [u8], has_length: bool) -> Self {
        Self {
            coding: None,
            bytes,
            has_length,
            piece: 1000,
        }
    }
}

/// The response that the client receives.
#[derive(Debug, PartialEq)]
pub(crate) struct ReceivedResponse {
    pub(crate) mode: ResponseMode,
    pub(crate) coding: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl ReceivedResponse {
    /// Returns the response of an exchange whose node sent this coding.
    fn from_exchange(exchange: &Exchange, node: Option<&str>, body: Vec<u8>) -> Self {
        let edits = exchange.head_edits();
        let edit = |name: &str| edits.iter().rfind(|edit| edit.name == name);
        let coding = match edit("Content-Encoding") {
            Some(edit) => edit.value.as_deref(),
            None => node.map(str::as_bytes),
        };
        let length = edit("Content-Length").and_then(|edit| edit.value.as_deref());
        if let Some(length) = length {
            assert_eq!(length, body.len().to_string().as_bytes());
        }
        Self {
            mode: exchange.response_mode(),
            coding: coding.map(|coding| String::from_utf8(coding.to_vec()).unwrap()),
            body,
        }
    }

    /// Returns the body as a strict client decompresses it.
    pub(crate) fn decoded(&self) -> Vec<u8> {
        match self.coding.as_deref() {
            Some("gzip") => gunzip(&self.body).unwrap(),
            Some("zstd") => unzstd(&self.body).unwrap(),
            _ => self.body.clone(),
        }
    }
}

/// Starts a GET whose client accepts these codings.
pub(crate) fn get(config: &Arc<RouteConfig>, accepts: &str) -> ExchangeDriver {
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    let fields = [(&b"Accept-Encoding"[..], accepts.as_bytes())];
    driver
        .handle_request_head(request_head(b"GET", &fields))
        .unwrap();
    driver
}

/// Returns the client's response after the node has sent `node`, and stores its entry.
pub(crate) fn answer(driver: &mut ExchangeDriver, node: &NodeBody<'_>) -> ReceivedResponse {
    let coding = node.coding.map(str::as_bytes);
    let coding = coding.map(|coding| (&b"Content-Encoding"[..], coding));
    let fields: Vec<Header<'_>> = [JSON].into_iter().chain(coding).collect();
    let length = node.has_length.then_some(node.bytes.len() as u64);
    let step = driver.handle_response_head(response_head(200, length, &fields));
    let pieces = node.bytes.chunks(node.piece);
    let body = client_body(driver, step.unwrap(), pieces, BodyEnd::Whole).unwrap();
    store_sent_response(driver, 1);
    let exchange = driver.available_exchange().unwrap();
    ReceivedResponse::from_exchange(exchange, node.coding, body.unwrap())
}

pub(crate) fn block(id: u32) -> String {
    call(id, "eth_getBlockByHash")
}

/// Returns the response that is stored for the call of a block, as this client receives it.
pub(crate) fn hit(config: &Arc<RouteConfig>, id: u32, accepts: &str) -> ReceivedResponse {
    let (driver, step) = look_up(config, &block(id), accepts);
    assert!(matches!(step, HostStep::Respond), "{step:?}");
    let exchange = driver.available_exchange().unwrap();
    ReceivedResponse::from_exchange(exchange, None, body_to_send(&driver))
}

/// Encodes a response with a result of `length` hexadecimal digits.
pub(crate) fn result(id: u32, length: usize) -> Vec<u8> {
    let digits = (0..length).map(|n| char::from(b"0123456789abcdef"[n * n / 7 % 16]));
    let digits: String = digits.collect();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"0x{digits}"}}"#).into_bytes()
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let random = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    });
    random.take(length).collect()
}

/// Content size that the header of a frame declares.
fn declared_content_size(frame: &[u8]) -> Option<u64> {
    let size = zstd_safe::get_frame_content_size(frame);
    size.ok().flatten()
}

#[test]
fn body_is_compressed_in_the_coding_that_the_client_prefers() {
    let (on, off) = (setup::config(&["zstd on"]), setup::config(&[]));
    let body = result(1, 30_000);
    for (accepts, expected) in [
        ("zstd", Some("zstd")),
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("identity;q=0, zstd", Some("zstd")),
        ("zstd;q=0.5, gzip", Some("gzip")),
        ("gzip", Some("gzip")),
        ("*", Some("gzip")),
        ("zstd;q=0.5, identity", None),
        ("", None),
    ] {
        for has_length in [true, false] {
            let node = NodeBody::identity(&body, has_length);
            let got = answer(&mut get(&on, accepts), &node);
            let mode = match expected {
                Some(_) => ResponseMode::Oneshot,
                None => ResponseMode::AcceptEncoding,
            };
            assert_eq!(
                (got.mode, got.coding.as_deref()),
                (mode, expected),
                "{accepts}"
            );
            assert!(got.decoded() == body, "{accepts}");
            if expected == Some("zstd") {
                let declared = declared_content_size(&got.body);
                assert_eq!(declared, Some(body.len() as u64), "{accepts}");
            }
            let got = answer(&mut get(&off, accepts), &node);
            assert_ne!(got.coding.as_deref(), Some("zstd"), "{accepts}");
            assert!(got.decoded() == body, "{accepts}");
        }
    }
}

#[test]
fn short_or_incompressible_body_is_sent_unchanged_unless_identity_is_refused() {
    let config = setup::config(&["zstd on"]);
    for (body, mode) in [
        (result(1, 100), ResponseMode::TooSmall),
        (noise(3000), ResponseMode::NotSmaller),
    ] {
        let node = NodeBody::identity(&body, true);
        let got = answer(&mut get(&config, "zstd"), &node);
        assert_eq!((got.mode, got.coding, got.body), (mode, None, body.clone()));
        let got = answer(&mut get(&config, "identity;q=0, zstd"), &node);
        assert_eq!(
            (got.mode, got.coding.as_deref()),
            (ResponseMode::Oneshot, Some("zstd"))
        );
        assert_eq!(got.decoded(), body);
    }
}

#[test]
fn flushed_pieces_of_a_zstd_stream_can_be_decompressed() {
    let config = setup::config(&["zstd on", "hold 0"]);
    let budget = config.process.budget.clone();
    let compressor = config.body_compressor(SupportedContentCoding::Zstd);
    let body = result(1, 40_000);
    let mut exchange = Exchange::new(config);
    let fields = [(&b"Accept-Encoding"[..], &b"zstd"[..])];
    exchange
        .read_request_head(request_head(b"GET", &fields))
        .unwrap();
    let head = response_head(200, None, &[JSON]);
    assert_eq!(
        exchange.evaluate_response_head(head),
        Ok(ResponseHeadAction::Stream)
    );
    assert_eq!(budget.reserved_bytes(), compressor.stream_encoder_size());
    let (mut sent, mut received) = (Vec::new(), 0);
    let mut output = [0; 8192];
    for piece in body.chunks(3000) {
        let progress = exchange
            .encode_stream_piece(piece, FlushMode::Sync, &mut output)
            .unwrap();
        assert!(progress.complete);
        sent.extend_from_slice(&output[..progress.written]);
        received += piece.len();
        let mut text = vec![0; received];
        let mut decoder = zstd::stream::read::Decoder::new(&sent[..]).unwrap();
        decoder.read_exact(&mut text).unwrap();
        assert!(text == body[..received]);
    }
    let progress = exchange
        .encode_stream_piece(b"", FlushMode::Finish, &mut output)
        .unwrap();
    assert!(progress.complete);
    sent.extend_from_slice(&output[..progress.written]);
    let got = ReceivedResponse::from_exchange(&exchange, None, sent);
    assert_eq!(
        (got.mode, got.coding.as_deref()),
        (ResponseMode::Stream, Some("zstd"))
    );
    assert!(got.decoded() == body);
    drop(exchange);
    assert_eq!(budget.reserved_bytes(), 0);
}

#[test]
fn buffering_leaves_memory_for_the_zstd_encoder() {
    let compressor = setup::config(&[]).body_compressor(SupportedContentCoding::Zstd);
    let body = result(1, 60_000);
    let node = NodeBody::identity(&body, false);
    for more in [0, 5000, 20_000, 50_000] {
        let memory = format!("memory {}", compressor.stream_encoder_size() + more);
        let config = setup::config(&["zstd on", &memory]);
        let got = answer(&mut get(&config, "zstd"), &node);
        assert_eq!(
            (got.mode, got.coding.as_deref()),
            (ResponseMode::Stream, Some("zstd")),
            "{more} more"
        );
        assert!(got.decoded() == body, "{more} more");
        assert_eq!(config.process.budget.reserved_bytes(), 0);
    }
}

#[test]
fn stream_passes_unchanged_without_memory_for_the_zstd_encoder() {
    let config = setup::config(&["zstd on", "hold 0", "memory 64k"]);
    let body = result(1, 60_000);
    let node = NodeBody::identity(&body, false);
    let got = answer(&mut get(&config, "zstd"), &node);
    assert_eq!((got.mode, got.coding), (ResponseMode::Memory, None));
    assert!(got.body == body);
    assert_eq!(config.process.budget.reserved_bytes(), 0);
}

#[test]
fn entry_of_a_zstd_response_equals_the_entry_of_a_gzip_response() {
    let [of_gzip, of_zstd] = ["gzip", "zstd"].map(|accepts| {
        let config = setup::config(&["zstd on", "cache on"]);
        let (mut driver, _) = look_up(&config, &block(1), accepts);
        let got = answer(&mut driver, &NodeBody::identity(&result(1, 5000), true));
        assert_eq!(
            (got.mode, got.coding.as_deref()),
            (ResponseMode::Oneshot, Some(accepts))
        );
        assert_eq!(got.decoded(), result(1, 5000));
        drop(driver);
        let hot = config.process.shared.hot_tier().unwrap();
        let weight = hot.total_entry_weight();
        let (gzip, plain) = (hit(&config, 2, "gzip"), hit(&config, 3, ""));
        assert_eq!(gzip.coding.as_deref(), Some("gzip"));
        assert_eq!((plain.coding, &plain.body), (None, &result(3, 5000)));
        (weight, gzip.body)
    });
    assert_eq!(of_gzip, of_zstd);
}

#[test]
fn entry_of_a_response_that_is_too_short_for_zstd_is_stored() {
    let config = setup::config(&["zstd on", "cache on"]);
    let (mut driver, _) = look_up(&config, &block(1), "zstd");
    let got = answer(&mut driver, &NodeBody::identity(&result(1, 100), true));
    assert_eq!((got.mode, got.coding), (ResponseMode::TooSmall, None));
    drop(driver);
    assert_eq!(hit(&config, 2, "zstd").decoded(), result(2, 100));
}

#[test]
fn long_body_is_compressed_with_zstd_off_the_loop() {
    let config = setup::config(&["zstd on"]);
    for (length, expected) in [(100_000, false), (4 << 20, true)] {
        let mut exchange = Exchange::new(Arc::clone(&config));
        let fields = [(&b"Accept-Encoding"[..], &b"zstd"[..])];
        exchange
            .read_request_head(request_head(b"GET", &fields))
            .unwrap();
        let head = response_head(200, Some(length as u64), &[JSON]);
        assert_eq!(
            exchange.evaluate_response_head(head),
            Ok(ResponseHeadAction::Buffer)
        );
        exchange.buffer_body_piece(&vec![b'a'; length]).unwrap();
        let expected = BodyEndAction::Code { off_loop: expected };
        assert_eq!(exchange.complete_buffered_body(), Ok(expected), "{length}");
    }
}
