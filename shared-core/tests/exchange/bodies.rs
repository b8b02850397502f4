//! Properties of the exchange under any sequence of events, permitted or not.

use std::sync::Arc;

use proptest::prelude::*;
use sszip_core::cache::process::wake::EventLoop;
use sszip_core::cache::process::Process;
use sszip_core::config::{ConfigBlock, RouteConfig};
use sszip_core::exchange::drive::{Driver, Step};
use sszip_core::exchange::transitions::State;
use sszip_core::exchange::{
    BodyStreamError, EndAction, Exchange, HeadAction, PieceAction, PurgeRequest, RequestHead,
    ResponseHead,
};
use sszip_core::gzip::oneshot::gzip;
use sszip_core::gzip::stream::Flush;
use sszip_core::memory::Budget;
use sszip_core::mode::Mode;

use crate::setup::{self, config_of_process, request_head, JSON};
use crate::support::gunzip;

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
    Stream(Vec<u8>, Flush, usize),
    CutShort,
    Code,
    GiveUp,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        prop::sample::select(vec!["gzip", "", "identity;q=0, gzip", "gzip;q=0"])
            .prop_map(Event::RequestHead),
        (
            prop::sample::select(vec![200u16, 204, 206, 404]),
            prop::option::of(0u64..3000),
            prop::sample::select(vec![None, Some("gzip"), Some("br")]),
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

fn flush() -> impl Strategy<Value = Flush> {
    prop::sample::select(vec![Flush::None, Flush::Sync, Flush::Finish])
}

fn config(budget: &Budget) -> Arc<RouteConfig> {
    let lines = ["min_length 10", "max_oneshot 2k", "hold 500"];
    config_of_process(budget.clone(), &lines)
}

fn response_head(
    exchange: &mut Exchange,
    status: u16,
    content_length: Option<u64>,
    coding: Option<&str>,
) -> Result<HeadAction, sszip_core::exchange::Misuse> {
    let coding = coding.map(|coding| (&b"Content-Encoding"[..], coding.as_bytes()));
    let fields: Vec<_> = [JSON].into_iter().chain(coding).collect();
    exchange.response_head(setup::response_head(status, content_length, &fields))
}

proptest! {
    /// Calls in any order: the exchange does not panic, a refused call changes nothing, and no
    /// memory stays reserved.
    #[test]
    fn calls_in_any_order_leave_a_consistent_exchange(events in prop::collection::vec(event(), 0..30)) {
        let budget = Budget::new();
        let mut exchange = Exchange::new(config(&budget));
        for event in events {
            let (state, mode) = (exchange.state(), exchange.mode());
            let refused = match event {
                Event::RequestHead(accept) => exchange
                    .request_head(request_head(b"GET", &[(b"Accept-Encoding", accept.as_bytes())]))
                    .is_err(),
                Event::ResponseHead { status, content_length, coding } => {
                    response_head(&mut exchange, status, content_length, coding).is_err()
                }
                Event::Piece(piece) => exchange.piece(&piece).is_err(),
                Event::End => exchange.end().is_err(),
                Event::Release => exchange.end_buffering().is_err(),
                Event::Stream(piece, flush, room) => {
                    // a stream that ends early is truncated, which is not a refusal
                    let step = exchange.stream(&piece, flush, &mut vec![0; room]);
                    matches!(step, Err(BodyStreamError::Misuse(_)))
                }
                Event::CutShort => exchange.abort().is_err(),
                Event::Code => exchange.compress().is_err(),
                Event::GiveUp => exchange.send_original(Mode::Failed).is_err(),
            };
            if refused {
                prop_assert_eq!((exchange.state(), exchange.mode()), (state, mode));
            }
            prop_assert!(budget.used() <= 256 << 20);
        }
        drop(exchange);
        prop_assert_eq!(budget.used(), 0);
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
        accept in prop::sample::select(vec!["gzip", "identity;q=0, gzip"]),
    ) {
        let budget = Budget::new();
        let mut exchange = Exchange::new(config(&budget));
        exchange
            .request_head(request_head(b"GET", &[(b"Accept-Encoding", accept.as_bytes())]))
            .unwrap();
        let length = Some(body.len() as u64);
        prop_assert_eq!(response_head(&mut exchange, 200, length, None), Ok(HeadAction::Buffer));

        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len())).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let mut holding = true;
        let mut sent = Vec::new();
        for (n, pair) in cuts.windows(2).enumerate() {
            let piece = &body[pair[0]..pair[1]];
            if holding && give_up_after == Some(n) {
                exchange.send_original(Mode::Failed).unwrap();
                sent.extend(exchange.body().flatten());
                holding = false;
            }
            if holding {
                prop_assert_eq!(exchange.piece(piece), Ok(PieceAction::Buffered));
            } else {
                sent.extend_from_slice(piece);
            }
        }
        if holding {
            prop_assert_eq!(exchange.end(), Ok(EndAction::Code { off_loop: false }));
            exchange.compress().unwrap();
            sent.extend(exchange.body().flatten());
        }

        let edit = |name| exchange.head_edits().iter().find(|edit| edit.name == name);
        if edit("Content-Encoding").is_some() {
            let content_length = edit("Content-Length").and_then(|edit| edit.value.clone());
            prop_assert_eq!(content_length, Some(sent.len().to_string().into_bytes().into()));
            prop_assert_eq!(gunzip(&sent).unwrap(), body);
        } else {
            prop_assert!(edit("Content-Length").is_none());
            prop_assert_eq!(sent, body);
        }
        drop(exchange);
        prop_assert_eq!(budget.used(), 0);
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
    ) {
        let budget = Budget::new();
        let mut exchange = started_exchange(&budget);
        let mut action = exchange
            .response_head(ResponseHead { delimited, ..setup::response_head(200, None, &[JSON]) })
            .unwrap();
        prop_assert_eq!(action, HeadAction::Buffer);

        let mut cuts: Vec<(usize, Flush)> = cuts
            .iter()
            .map(|(cut, flush)| (cut.index(body.len() + 1), *flush))
            .map(|(cut, flush)| (cut, if flush == Flush::Finish { Flush::None } else { flush }))
            .collect();
        cuts.push((body.len(), Flush::None));
        cuts.sort_by_key(|(cut, _)| *cut);
        let mut sent = Vec::new();
        let mut start = 0;
        for (n, (end, flush)) in cuts.into_iter().enumerate() {
            let piece = &body[start..end];
            start = end;
            if action == HeadAction::Buffer && release_after == Some(n) {
                prop_assert_eq!(exchange.end_buffering(), Ok(PieceAction::Stream));
                action = HeadAction::Stream;
            }
            if action == HeadAction::Buffer {
                match exchange.piece(piece).unwrap() {
                    PieceAction::Buffered => continue,
                    PieceAction::Stream => action = HeadAction::Stream,
                    PieceAction::SendOriginal => prop_assert!(false, "there was memory"),
                }
            }
            stream(&mut exchange, piece, flush, room, &mut sent);
        }
        if action == HeadAction::Buffer {
            match exchange.end().unwrap() {
                EndAction::Code { .. } => {
                    exchange.compress().unwrap();
                    sent.extend(exchange.body().flatten());
                }
                EndAction::Send => sent.extend(exchange.body().flatten()),
                EndAction::Stream => stream(&mut exchange, b"", Flush::Finish, room, &mut sent),
                EndAction::Fail => prop_assert!(false, "it is whole"),
            }
        } else {
            stream(&mut exchange, b"", Flush::Finish, room, &mut sent);
            prop_assert_eq!(exchange.state(), State::Finished);
        }

        let edit = |name| exchange.head_edits().iter().find(|edit| edit.name == name);
        if let Some(length) = edit("Content-Length").and_then(|edit| edit.value.clone()) {
            prop_assert_eq!(length, sent.len().to_string().into_bytes());
            prop_assert!(delimited, "random bytes do not close");
        }
        if edit("Content-Encoding").is_some() {
            prop_assert_eq!(gunzip(&sent).unwrap(), body);
        } else {
            prop_assert_eq!(sent, body);
        }
        drop(exchange);
        prop_assert_eq!(budget.used(), 0);
    }
}

fn stream(exchange: &mut Exchange, piece: &[u8], flush: Flush, room: usize, sent: &mut Vec<u8>) {
    let mut rest = piece;
    loop {
        let mut output = vec![0; room];
        let step = exchange.stream(rest, flush, &mut output).unwrap();
        sent.extend_from_slice(&output[..step.written]);
        rest = &rest[step.consumed..];
        if step.complete {
            return;
        }
    }
}

/// Creates an exchange whose client accepts gzip.
fn started_exchange(budget: &Budget) -> Exchange {
    let mut exchange = Exchange::new(config(budget));
    exchange
        .request_head(request_head(b"GET", &[(b"Accept-Encoding", b"gzip")]))
        .unwrap();
    exchange
}

#[test]
fn truncated_body_is_never_completed() {
    let budget = Budget::new();
    let mut exchange = started_exchange(&budget);
    response_head(&mut exchange, 200, Some(100), None).unwrap();
    exchange.piece(&[b'a'; 99]).unwrap();
    assert_eq!(exchange.end(), Ok(EndAction::Fail));
    assert_eq!(
        (exchange.state(), exchange.mode()),
        (State::Aborted, Mode::Cut)
    );
    assert!(exchange.body().next().is_none() && exchange.compress().is_err());
    assert_eq!(budget.used(), 0);
}

/// Found by fuzzing: the end of a stream was taken for the end of a buffered body.
#[test]
fn stream_of_known_length_is_not_completed_early() {
    let mut exchange = started_exchange(&Budget::new());
    // longer than max_oneshot
    let action = response_head(&mut exchange, 200, Some(5000), None);
    assert_eq!(action, Ok(HeadAction::Stream));
    assert!(exchange.end().is_err());
    let mut output = [0; 6000];
    exchange
        .stream(&[b'a'; 4999], Flush::None, &mut output)
        .unwrap();
    let end = exchange.stream(b"", Flush::Finish, &mut output);
    assert_eq!(end, Err(BodyStreamError::Short));
    assert_eq!(
        (exchange.state(), exchange.mode()),
        (State::Aborted, Mode::Cut)
    );
}

#[test]
fn body_longer_than_declared_passes_unchanged() {
    let mut exchange = started_exchange(&Budget::new());
    response_head(&mut exchange, 200, Some(100), None).unwrap();
    assert_eq!(exchange.piece(&[b'a'; 60]), Ok(PieceAction::Buffered));
    assert_eq!(exchange.piece(&[b'b'; 41]), Ok(PieceAction::SendOriginal));
    assert_eq!(exchange.body().collect::<Vec<_>>(), [[b'a'; 60]]);
    assert_eq!(exchange.mode(), Mode::Failed);
}

#[test]
fn long_content_is_decompressed_off_the_loop() {
    for (length, expected) in [(100_000, false), (4 << 20, true)] {
        let mut exchange = Exchange::new(config_of_process(Budget::new(), &[]));
        exchange.request_head(request_head(b"GET", &[])).unwrap();
        let coded = gzip(&vec![b'a'; length], 1, length).unwrap();
        assert!(coded.len() < 100_000);
        let head = response_head(&mut exchange, 200, Some(coded.len() as u64), Some("gzip"));
        assert_eq!(head, Ok(HeadAction::Buffer));
        exchange.piece(&coded).unwrap();
        let expected = EndAction::Code { off_loop: expected };
        assert_eq!(exchange.end(), Ok(expected), "{length}");
    }
}

/// Buffers a body of unknown length as long as `memory` permits, in pieces of 4,000 bytes, then
/// streams the rest.
fn buffer_then_stream(memory: usize, body: &[u8]) -> (Mode, Vec<u8>) {
    let budget = Budget::new();
    let config = config_of_process(budget.clone(), &[&format!("memory {memory}")]);
    let mut exchange = Exchange::new(config);
    exchange
        .request_head(request_head(b"GET", &[(b"Accept-Encoding", b"gzip")]))
        .unwrap();
    let action = response_head(&mut exchange, 200, None, None);
    assert_eq!(action, Ok(HeadAction::Buffer));
    let (mut action, mut sent) = (PieceAction::Buffered, Vec::new());
    for piece in body.chunks(4000) {
        if action == PieceAction::Buffered {
            action = exchange.piece(piece).unwrap();
            assert!(budget.used() <= memory);
            if action == PieceAction::SendOriginal {
                sent.extend(exchange.body().flatten());
            }
        }
        match action {
            PieceAction::Buffered => {}
            PieceAction::SendOriginal => sent.extend_from_slice(piece),
            PieceAction::Stream => stream(&mut exchange, piece, Flush::None, 1000, &mut sent),
        }
        assert!(budget.used() <= memory);
    }
    match action {
        PieceAction::Buffered => {
            exchange.end().unwrap();
            exchange.compress().unwrap();
            sent.extend(exchange.body().flatten());
        }
        PieceAction::SendOriginal => {}
        PieceAction::Stream => stream(&mut exchange, b"", Flush::Finish, 1000, &mut sent),
    }
    let mode = exchange.mode();
    drop(exchange);
    assert_eq!(budget.used(), 0);
    (mode, sent)
}

/// A buffered body used all of the memory, and the response, which could have been streamed from
/// the start, was sent uncompressed.
#[test]
fn buffering_leaves_memory_for_the_encoder() {
    let body: Vec<u8> = (0..9000u32)
        .flat_map(|n| format!("{:08x},", n.wrapping_mul(2_654_435_761)).into_bytes())
        .collect();
    let encoder = sszip_core::gzip::stream::size(1);
    for memory in (0..200_000).step_by(5000).map(|more| encoder + more) {
        let (mode, sent) = buffer_then_stream(memory, &body);
        assert_eq!(mode, Mode::Stream, "{memory} bytes of memory");
        assert!(gunzip(&sent).unwrap() == body);
    }
}

#[test]
fn body_is_compressed_oneshot_when_memory_is_too_small_for_an_encoder() {
    let memory = sszip_core::gzip::stream::size(1) - 1;
    let body = vec![b'a'; 20_000];
    let (mode, sent) = buffer_then_stream(memory, &body);
    assert_eq!(mode, Mode::Oneshot);
    assert!(sent.len() < 1000);
    let (mode, sent) = buffer_then_stream(memory, &[b'a'; 100_000]);
    assert_eq!((mode, sent.len()), (Mode::Memory, 100_000));
}

/// Returns the driver of a purge with `method` in a process without a link to an owner.
fn purged(method: &[u8]) -> Driver {
    let process = Process::default();
    process.shared.start(1 << 20, 1 << 20, 1);
    let mut driver = Driver::new(Arc::new(ConfigBlock::default().resolve(process)));
    let head = RequestHead {
        method,
        target: b"/purge?everything",
        fields: std::iter::empty(),
    };
    driver.request_head(head).unwrap();
    let purge = PurgeRequest {
        method,
        query: b"everything",
        namespace: None,
        waiter: EventLoop::default().waiter(1),
        now: 0,
    };
    let step = driver.purge(&purge).unwrap();
    assert!(matches!(step, Step::Respond), "{step:?}");
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
        let exchange = driver.exchange().unwrap();
        assert_eq!(exchange.status(), status);
        let field = |name| {
            let edit = exchange.head_edits().iter().find(|edit| edit.name == name);
            edit.and_then(|edit| edit.value.as_deref())
        };
        assert_eq!(field("Allow"), allow);
        assert_eq!(
            field("Content-Type"),
            Some(&b"application/problem+json"[..])
        );
        let body = exchange.body().collect::<Vec<_>>().concat();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["status"], status);
        assert_eq!(
            field("Content-Length"),
            Some(body.len().to_string().as_bytes())
        );
    }
}
