//! Properties of the exchange under any sequence of events, permitted or not.

use std::sync::Arc;

use proptest::prelude::*;
use sszip_core::cache::process::wake::EventLoopId;
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::{RouteConfig, RouteConfigBlock};
use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_core::exchange::transitions::ExchangeState;
use sszip_core::exchange::{
    BodyEndAction, BodyPieceAction, BodyStreamError, Exchange, PurgeHttpRequest, RequestHead,
    ResponseHead, ResponseHeadAction,
};
use sszip_core::gzip::oneshot::gzip_oneshot;
use sszip_core::gzip::stream::FlushMode;
use sszip_core::memory::MemoryBudget;
use sszip_core::request_coding::SupportedContentCoding;
use sszip_core::response_mode::ResponseMode;

use crate::setup::{self, config_of_process, request_head, JSON};
use crate::support::gunzip;
use crate::unzstd::unzstd;

#[derive(Clone, Debug)]
enum Event {
    RequestHead(&'static str),
    ResponseHead {
        status: u16,
        content_length: Option<u64>,
        coding: Option<&'static str>,
    },
    Piece(Vec<u8>),
    End,
    Release,
    Stream(Vec<u8>, FlushMode, usize),
    CutShort,
    Code,
    GiveUp,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        prop::sample::select(vec!["gzip", "", "identity;q=0, gzip", "gzip;q=0", "zstd"])
            .prop_map(Event::RequestHead),
        (
            prop::sample::select(vec![200u16, 204, 206, 404]),
            prop::option::of(0u64..3000),
            prop::sample::select(vec![None, Some("gzip"), Some("zstd"), Some("br")]),
        )
            .prop_map(|(status, content_length, coding)| Event::ResponseHead {
                status,
                content_length,
                coding
            }),
        prop::collection::vec(any::<u8>(), 0..1500).prop_map(Event::Piece),
        Just(Event::End),
        Just(Event::Release),
        (
            prop::collection::vec(any::<u8>(), 0..1500),
            flush(),
            0usize..3000
        )
            .prop_map(|(piece, flush, room)| Event::Stream(piece, flush, room)),
        Just(Event::CutShort),
        Just(Event::Code),
        Just(Event::GiveUp),
    ]
}

fn flush() -> impl Strategy<Value = FlushMode> {
    prop::sample::select(vec![FlushMode::None, FlushMode::Sync, FlushMode::Finish])
}

fn config(budget: &MemoryBudget) -> Arc<RouteConfig> {
    let lines = ["min_length 10", "max_oneshot 2k", "hold 500", "zstd on"];
    config_of_process(budget.clone(), &lines)
}

/// Decompresses a body in the coding that the exchange has given it.
fn decompress(exchange: &Exchange, body: &[u8]) -> Vec<u8> {
    match exchange.response_coding() {
        Some(SupportedContentCoding::Gzip) => gunzip(body).unwrap(),
        Some(SupportedContentCoding::Zstd) => unzstd(body).unwrap(),
        None => body.to_vec(),
    }
}

fn response_head(
    exchange: &mut Exchange,
    status: u16,
    content_length: Option<u64>,
    coding: Option<&str>,
) -> Result<ResponseHeadAction, sszip_core::exchange::HostMisuse> {
    let coding = coding.map(|coding| (&b"Content-Encoding"[..], coding.as_bytes()));
    let fields: Vec<_> = [JSON].into_iter().chain(coding).collect();
    exchange.evaluate_response_head(setup::response_head(status, content_length, &fields))
}

proptest! {
    /// Calls in any order: the exchange does not panic, a refused call changes nothing, and no
    /// memory stays reserved.
    #[test]
    fn calls_in_any_order_leave_a_consistent_exchange(events in prop::collection::vec(event(), 0..30)) {
        let budget = MemoryBudget::new();
        let mut exchange = Exchange::new(config(&budget));
        for event in events {
            let (state, mode) = (exchange.exchange_state(), exchange.response_mode());
            let refused = match event {
                Event::RequestHead(accept) => exchange
                    .read_request_head(request_head(b"GET", &[(b"Accept-Encoding", accept.as_bytes())]))
                    .is_err(),
                Event::ResponseHead { status, content_length, coding } => {
                    response_head(&mut exchange, status, content_length, coding).is_err()
                }
                Event::Piece(piece) => exchange.buffer_body_piece(&piece).is_err(),
                Event::End => exchange.complete_buffered_body().is_err(),
                Event::Release => exchange.end_buffering().is_err(),
                Event::Stream(piece, flush, room) => {
                    // a stream that ends early is truncated, which is not a refusal
                    let step = exchange.encode_stream_piece(&piece, flush, &mut vec![0; room]);
                    matches!(step, Err(BodyStreamError::Misuse(_)))
                }
                Event::CutShort => exchange.abort_response().is_err(),
                Event::Code => exchange.run_pending_stages().is_err(),
                Event::GiveUp => exchange.send_original_response(ResponseMode::Failed).is_err(),
            };
            if refused {
                prop_assert_eq!((exchange.exchange_state(), exchange.response_mode()), (state, mode));
            }
            prop_assert!(budget.reserved_bytes() <= 256 << 20);
        }
        drop(exchange);
        prop_assert_eq!(budget.reserved_bytes(), 0);
    }

    /// A body in any pieces, with buffering ended at any point or not: the client decompresses
    /// what the node sent, and a length is exact.
    #[test]
    fn client_receives_the_upstream_body_for_any_pieces(
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 10..2048),
            (10usize..2048).prop_map(|length| vec![b'a'; length]),
        ],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        give_up_after in prop::option::of(0usize..6),
        accept in prop::sample::select(vec!["gzip", "identity;q=0, gzip", "zstd", "identity;q=0, zstd"]),
    ) {
        let budget = MemoryBudget::new();
        let mut exchange = Exchange::new(config(&budget));
        exchange
            .read_request_head(request_head(b"GET", &[(b"Accept-Encoding", accept.as_bytes())]))
            .unwrap();
        let length = Some(body.len() as u64);
        prop_assert_eq!(response_head(&mut exchange, 200, length, None), Ok(ResponseHeadAction::Buffer));

        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len())).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let mut holding = true;
        let mut sent = Vec::new();
        for (n, pair) in cuts.windows(2).enumerate() {
            let piece = &body[pair[0]..pair[1]];
            if holding && give_up_after == Some(n) {
                exchange.send_original_response(ResponseMode::Failed).unwrap();
                sent.extend(exchange.body_slices().flatten());
                holding = false;
            }
            if holding {
                prop_assert_eq!(exchange.buffer_body_piece(piece), Ok(BodyPieceAction::Buffered));
            } else {
                sent.extend_from_slice(piece);
            }
        }
        if holding {
            prop_assert_eq!(exchange.complete_buffered_body(), Ok(BodyEndAction::Code { off_loop: false }));
            exchange.run_pending_stages().unwrap();
            sent.extend(exchange.body_slices().flatten());
        }

        let edit = |name| exchange.head_edits().iter().find(|edit| edit.name == name);
        if edit("Content-Encoding").is_some() {
            let content_length = edit("Content-Length").and_then(|edit| edit.value.clone());
            prop_assert_eq!(content_length, Some(sent.len().to_string().into_bytes().into()));
            prop_assert_eq!(decompress(&exchange, &sent), body);
        } else {
            prop_assert!(edit("Content-Length").is_none());
            prop_assert_eq!(sent, body);
        }
        drop(exchange);
        prop_assert_eq!(budget.reserved_bytes(), 0);
    }
}

proptest! {
    /// A body of unknown length in any pieces, released at any point and compressed into buffers
    /// of any size: the client decompresses what the node sent.
    #[test]
    fn body_of_unknown_length_arrives_complete(
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..3000),
            (0usize..3000).prop_map(|length| vec![b'a'; length]),
        ],
        cuts in prop::collection::vec((any::<prop::sample::Index>(), flush()), 0..6),
        release_after in prop::option::of(0usize..6),
        room in 20usize..2000,
        delimited in any::<bool>(),
        accept in prop::sample::select(vec!["gzip", "gzip, zstd"]),
    ) {
        let budget = MemoryBudget::new();
        let mut exchange = started_exchange(&budget, accept);
        let mut action = exchange
            .evaluate_response_head(ResponseHead { delimited, ..setup::response_head(200, None, &[JSON]) })
            .unwrap();
        prop_assert_eq!(action, ResponseHeadAction::Buffer);

        let mut cuts: Vec<(usize, FlushMode)> = cuts
            .iter()
            .map(|(cut, flush)| (cut.index(body.len() + 1), *flush))
            .map(|(cut, flush)| (cut, if flush == FlushMode::Finish { FlushMode::None } else { flush }))
            .collect();
        cuts.push((body.len(), FlushMode::None));
        cuts.sort_by_key(|(cut, _)| *cut);
        let mut sent = Vec::new();
        let mut start = 0;
        for (n, (end, flush)) in cuts.into_iter().enumerate() {
            let piece = &body[start..end];
            start = end;
            if action == ResponseHeadAction::Buffer && release_after == Some(n) {
                prop_assert_eq!(exchange.end_buffering(), Ok(BodyPieceAction::Stream));
                action = ResponseHeadAction::Stream;
            }
            if action == ResponseHeadAction::Buffer {
                match exchange.buffer_body_piece(piece).unwrap() {
                    BodyPieceAction::Buffered => continue,
                    BodyPieceAction::Stream => action = ResponseHeadAction::Stream,
                    BodyPieceAction::SendOriginal => prop_assert!(false, "there was memory"),
                }
            }
            stream(&mut exchange, piece, flush, room, &mut sent);
        }
        if action == ResponseHeadAction::Buffer {
            match exchange.complete_buffered_body().unwrap() {
                BodyEndAction::Code { .. } => {
                    exchange.run_pending_stages().unwrap();
                    sent.extend(exchange.body_slices().flatten());
                }
                BodyEndAction::Send => sent.extend(exchange.body_slices().flatten()),
                BodyEndAction::Stream => stream(&mut exchange, b"", FlushMode::Finish, room, &mut sent),
                BodyEndAction::Fail => prop_assert!(false, "it is whole"),
            }
        } else {
            stream(&mut exchange, b"", FlushMode::Finish, room, &mut sent);
            prop_assert_eq!(exchange.exchange_state(), ExchangeState::Finished);
        }

        let edit = |name| exchange.head_edits().iter().find(|edit| edit.name == name);
        if let Some(length) = edit("Content-Length").and_then(|edit| edit.value.clone()) {
            prop_assert_eq!(length, sent.len().to_string().into_bytes());
            prop_assert!(delimited, "random bytes do not close");
        }
        if edit("Content-Encoding").is_some() {
            prop_assert_eq!(decompress(&exchange, &sent), body);
        } else {
            prop_assert_eq!(sent, body);
        }
        drop(exchange);
        prop_assert_eq!(budget.reserved_bytes(), 0);
    }
}

fn stream(
    exchange: &mut Exchange,
    piece: &[u8],
    flush: FlushMode,
    room: usize,
    sent: &mut Vec<u8>,
) {
    let mut rest = piece;
    loop {
        let mut output = vec![0; room];
        let step = exchange
            .encode_stream_piece(rest, flush, &mut output)
            .unwrap();
        sent.extend_from_slice(&output[..step.written]);
        rest = &rest[step.consumed..];
        if step.complete {
            return;
        }
    }
}

/// Creates an exchange whose client accepts these codings.
fn started_exchange(budget: &MemoryBudget, accepts: &str) -> Exchange {
    let mut exchange = Exchange::new(config(budget));
    let fields = [(&b"Accept-Encoding"[..], accepts.as_bytes())];
    exchange
        .read_request_head(request_head(b"GET", &fields))
        .unwrap();
    exchange
}

#[test]
fn truncated_body_is_never_completed() {
    let budget = MemoryBudget::new();
    let mut exchange = started_exchange(&budget, "gzip");
    response_head(&mut exchange, 200, Some(100), None).unwrap();
    exchange.buffer_body_piece(&[b'a'; 99]).unwrap();
    assert_eq!(exchange.complete_buffered_body(), Ok(BodyEndAction::Fail));
    assert_eq!(
        (exchange.exchange_state(), exchange.response_mode()),
        (ExchangeState::Aborted, ResponseMode::Cut)
    );
    assert!(exchange.body_slices().next().is_none() && exchange.run_pending_stages().is_err());
    assert_eq!(budget.reserved_bytes(), 0);
}

/// Found by fuzzing: the end of a stream was taken for the end of a buffered body.
#[test]
fn stream_of_known_length_is_not_completed_early() {
    let mut exchange = started_exchange(&MemoryBudget::new(), "gzip");
    // longer than max_oneshot
    let action = response_head(&mut exchange, 200, Some(5000), None);
    assert_eq!(action, Ok(ResponseHeadAction::Stream));
    assert!(exchange.complete_buffered_body().is_err());
    let mut output = [0; 6000];
    exchange
        .encode_stream_piece(&[b'a'; 4999], FlushMode::None, &mut output)
        .unwrap();
    let end = exchange.encode_stream_piece(b"", FlushMode::Finish, &mut output);
    assert_eq!(end, Err(BodyStreamError::Short));
    assert_eq!(
        (exchange.exchange_state(), exchange.response_mode()),
        (ExchangeState::Aborted, ResponseMode::Cut)
    );
}

#[test]
fn body_longer_than_declared_passes_unchanged() {
    let mut exchange = started_exchange(&MemoryBudget::new(), "gzip");
    response_head(&mut exchange, 200, Some(100), None).unwrap();
    assert_eq!(
        exchange.buffer_body_piece(&[b'a'; 60]),
        Ok(BodyPieceAction::Buffered)
    );
    assert_eq!(
        exchange.buffer_body_piece(&[b'b'; 41]),
        Ok(BodyPieceAction::SendOriginal)
    );
    assert_eq!(exchange.body_slices().collect::<Vec<_>>(), [[b'a'; 60]]);
    assert_eq!(exchange.response_mode(), ResponseMode::Failed);
}

#[test]
fn long_content_is_decompressed_off_the_loop() {
    for (length, expected) in [(100_000, false), (4 << 20, true)] {
        let mut exchange = Exchange::new(config_of_process(MemoryBudget::new(), &[]));
        exchange
            .read_request_head(request_head(b"GET", &[]))
            .unwrap();
        let coded = gzip_oneshot(&vec![b'a'; length], 1, length).unwrap();
        assert!(coded.len() < 100_000);
        let head = response_head(&mut exchange, 200, Some(coded.len() as u64), Some("gzip"));
        assert_eq!(head, Ok(ResponseHeadAction::Buffer));
        exchange.buffer_body_piece(&coded).unwrap();
        let expected = BodyEndAction::Code { off_loop: expected };
        assert_eq!(exchange.complete_buffered_body(), Ok(expected), "{length}");
    }
}

/// Buffers a body of unknown length as long as `memory` permits, in pieces of 4,000 bytes, then
/// streams the rest.
fn buffer_then_stream(memory: usize, body: &[u8]) -> (ResponseMode, Vec<u8>) {
    let budget = MemoryBudget::new();
    let config = config_of_process(budget.clone(), &[&format!("memory {memory}")]);
    let mut exchange = Exchange::new(config);
    exchange
        .read_request_head(request_head(b"GET", &[(b"Accept-Encoding", b"gzip")]))
        .unwrap();
    let action = response_head(&mut exchange, 200, None, None);
    assert_eq!(action, Ok(ResponseHeadAction::Buffer));
    let (mut action, mut sent) = (BodyPieceAction::Buffered, Vec::new());
    for piece in body.chunks(4000) {
        if action == BodyPieceAction::Buffered {
            action = exchange.buffer_body_piece(piece).unwrap();
            assert!(budget.reserved_bytes() <= memory);
            if action == BodyPieceAction::SendOriginal {
                sent.extend(exchange.body_slices().flatten());
            }
        }
        match action {
            BodyPieceAction::Buffered => {}
            BodyPieceAction::SendOriginal => sent.extend_from_slice(piece),
            BodyPieceAction::Stream => {
                stream(&mut exchange, piece, FlushMode::None, 1000, &mut sent);
            }
        }
        assert!(budget.reserved_bytes() <= memory);
    }
    match action {
        BodyPieceAction::Buffered => {
            exchange.complete_buffered_body().unwrap();
            exchange.run_pending_stages().unwrap();
            sent.extend(exchange.body_slices().flatten());
        }
        BodyPieceAction::SendOriginal => {}
        BodyPieceAction::Stream => stream(&mut exchange, b"", FlushMode::Finish, 1000, &mut sent),
    }
    let mode = exchange.response_mode();
    drop(exchange);
    assert_eq!(budget.reserved_bytes(), 0);
    (mode, sent)
}

/// A buffered body used all of the memory, and the response, which could have been streamed from
/// the start, was sent uncompressed.
#[test]
fn buffering_leaves_memory_for_the_encoder() {
    let body: Vec<u8> = (0..9000u32)
        .flat_map(|n| format!("{:08x},", n.wrapping_mul(2_654_435_761)).into_bytes())
        .collect();
    let encoder = sszip_core::gzip::stream::fastest_encoder_size(1);
    for memory in (0..200_000).step_by(5000).map(|more| encoder + more) {
        let (mode, sent) = buffer_then_stream(memory, &body);
        assert_eq!(mode, ResponseMode::Stream, "{memory} bytes of memory");
        assert!(gunzip(&sent).unwrap() == body);
    }
}

#[test]
fn body_is_compressed_oneshot_when_memory_is_too_small_for_an_encoder() {
    let memory = sszip_core::gzip::stream::fastest_encoder_size(1) - 1;
    let body = vec![b'a'; 20_000];
    let (mode, sent) = buffer_then_stream(memory, &body);
    assert_eq!(mode, ResponseMode::Oneshot);
    assert!(sent.len() < 1000);
    let (mode, sent) = buffer_then_stream(memory, &[b'a'; 100_000]);
    assert_eq!((mode, sent.len()), (ResponseMode::Memory, 100_000));
}

/// Returns the driver of a purge with `method` in a process without a link to an owner.
fn purged(method: &[u8]) -> ExchangeDriver {
    let process = ProcessResources::default();
    process.shared.start_hot_tier(1 << 20, 1 << 20, 1);
    let mut driver = ExchangeDriver::new(Arc::new(
        RouteConfigBlock::default().resolve_route_config(process),
    ));
    let head = RequestHead {
        method,
        target: b"/purge?everything",
        fields: std::iter::empty(),
    };
    driver.handle_request_head(head).unwrap();
    let purge = PurgeHttpRequest {
        method,
        query: b"everything",
        namespace: None,
        waiter: EventLoopId::default().waiter_of_request(1),
        now: 0,
    };
    let step = driver.handle_purge_request(&purge).unwrap();
    assert!(matches!(step, HostStep::Respond), "{step:?}");
    driver
}

#[test]
fn purge_that_fails_responds_with_a_problem_document() {
    for (method, status, allow) in [
        (&b"GET"[..], 405, Some(&b"POST, PURGE"[..])),
        (b"DELETE", 405, Some(b"POST, PURGE")),
        (b"POST", 503, None),
        (b"PURGE", 503, None),
    ] {
        let driver = purged(method);
        let exchange = driver.available_exchange().unwrap();
        assert_eq!(exchange.stored_response_status(), status);
        let field = |name| {
            let edit = exchange.head_edits().iter().find(|edit| edit.name == name);
            edit.and_then(|edit| edit.value.as_deref())
        };
        assert_eq!(field("Allow"), allow);
        assert_eq!(
            field("Content-Type"),
            Some(&b"application/problem+json"[..])
        );
        let body = exchange.body_slices().collect::<Vec<_>>().concat();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["status"], status);
        assert_eq!(
            field("Content-Length"),
            Some(body.len().to_string().as_bytes())
        );
    }
}
