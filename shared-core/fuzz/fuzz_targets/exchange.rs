//! Any calls in any order, with any bytes in the heads.
//!
//! The exchange does not panic; each call is accepted in its states only; a refused call changes
//! neither state nor mode; buffered bytes are reserved, within the limit, and released.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sszip_core::exchange::transitions::ExchangeState;
use sszip_core::exchange::{BodyStreamError, Exchange, Header, RequestHead, ResponseHead};
use sszip_core::gzip::stream::FlushMode;
use sszip_core::memory::MemoryBudget;
use sszip_core::response_mode::ResponseMode;
use sszip_fuzz::{FuzzBodyPiece, FuzzRouteSettings};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    place: FuzzRouteSettings,
    /// Whether the exchange starts with ordinary heads, and with which length.
    begun: Option<Option<u32>>,
    events: Vec<Event<'a>>,
}

#[derive(Arbitrary, Debug)]
enum Event<'a> {
    RequestHead(&'a [u8], Vec<(Name<'a>, &'a [u8])>),
    ResponseHead(Head<'a>),
    FuzzBodyPiece(FuzzBodyPiece<'a>),
    End,
    Release,
    Stream(FuzzBodyPiece<'a>, bool),
    CutShort,
    Code,
    GiveUp,
}

#[derive(Arbitrary, Debug)]
struct Head<'a> {
    status: Option<u16>,
    content_length: Option<u64>,
    is_json: bool,
    fields: Vec<(Name<'a>, &'a [u8])>,
    delimited: bool,
    unbuffered: bool,
    subrequest: bool,
    coding_allowed: bool,
    host_writes_vary: bool,
}

#[derive(Arbitrary, Debug)]
enum Name<'a> {
    Known(u8),
    Any(&'a [u8]),
}

const KNOWN: [&str; 11] = [
    "accept-encoding",
    "Cache-Control",
    "Upgrade",
    "Content-Type",
    "Content-Encoding",
    "ETag",
    "Vary",
    "Accept-Ranges",
    "Content-Length",
    "Digest",
    "Trailer",
];

fn fields<'a>(fields: &'a [(Name<'a>, &'a [u8])]) -> impl Iterator<Item = Header<'a>> + Clone {
    fields.iter().map(|(name, value)| {
        let name = match name {
            Name::Known(n) => KNOWN[usize::from(*n) % KNOWN.len()].as_bytes(),
            Name::Any(name) => name,
        };
        (name, *value)
    })
}

fuzz_target!(|input: Input| {
    let budget = MemoryBudget::new();
    let config = input.place.enabled_route_config(&budget);
    let memory = config.memory as usize;
    let mut exchange = Exchange::new(config);
    if let Some(content_length) = input.begun {
        begin(&mut exchange, content_length.map(u64::from));
    }
    for event in &input.events {
        let (state, mode) = (exchange.exchange_state(), exchange.response_mode());
        let (taken, possible) = apply_exchange_event(&mut exchange, event);
        assert_eq!(taken, possible, "{event:?} in {state:?}");
        if !taken {
            assert_eq!(
                (exchange.exchange_state(), exchange.response_mode()),
                (state, mode)
            );
        }
        assert!(budget.reserved_bytes() <= memory);
        // a body of a few bytes is shorter than the header and trailer of gzip
        assert!(exchange.body_slices().flatten().count() <= budget.reserved_bytes() + 64);
    }
    drop(exchange);
    assert_eq!(budget.reserved_bytes(), 0);
});

fn begin(exchange: &mut Exchange, content_length: Option<u64>) {
    let accept = (&b"Accept-Encoding"[..], &b"gzip"[..]);
    exchange
        .read_request_head(RequestHead {
            method: b"GET",
            target: b"/",
            fields: [accept].into_iter(),
        })
        .expect("the first call");
    let head = Head {
        status: None,
        content_length,
        is_json: true,
        fields: Vec::new(),
        delimited: true,
        unbuffered: false,
        subrequest: false,
        coding_allowed: true,
        host_writes_vary: false,
    };
    apply_exchange_event(exchange, &Event::ResponseHead(head));
}

/// Applies an event, and returns whether the call was accepted, and whether it should have been.
fn apply_exchange_event(exchange: &mut Exchange, event: &Event) -> (bool, bool) {
    use ExchangeState::{AwaitingHead, Buffering, Compressing, Start, Streaming};
    let state = exchange.exchange_state();
    match event {
        Event::RequestHead(method, list) => (
            exchange
                .read_request_head(RequestHead {
                    method,
                    target: b"/",
                    fields: fields(list),
                })
                .is_ok(),
            state == Start,
        ),
        Event::ResponseHead(head) => (response_head(exchange, head), state == AwaitingHead),
        Event::FuzzBodyPiece(piece) => (
            exchange.buffer_body_piece(&piece.piece_bytes()).is_ok(),
            state == Buffering,
        ),
        Event::End => (
            exchange.complete_buffered_body().is_ok(),
            state == Buffering,
        ),
        Event::Release => (exchange.end_buffering().is_ok(), state == Buffering),
        Event::Stream(piece, finish) => {
            let flush = if *finish {
                FlushMode::Finish
            } else {
                piece.flush_mode()
            };
            let mut output = vec![0; usize::from(piece.room)];
            let taken = match exchange.encode_stream_piece(&piece.piece_bytes(), flush, &mut output)
            {
                Ok(_) => true,
                Err(BodyStreamError::Misuse(_)) => false,
                Err(failure) => {
                    assert_eq!(failure, BodyStreamError::Short);
                    assert!(*finish && exchange.exchange_state() == ExchangeState::Aborted);
                    true
                }
            };
            (taken, state == Streaming)
        }
        Event::CutShort => (
            exchange.abort_response().is_ok(),
            matches!(state, Buffering | Compressing | Streaming),
        ),
        Event::Code => (exchange.run_pending_stages().is_ok(), state == Compressing),
        Event::GiveUp => (
            exchange
                .send_original_response(ResponseMode::Failed)
                .is_ok(),
            matches!(state, AwaitingHead | Buffering | Compressing),
        ),
    }
}

fn response_head(exchange: &mut Exchange, head: &Head) -> bool {
    let json = (&b"Content-Type"[..], &b"application/json"[..]);
    exchange
        .evaluate_response_head(ResponseHead {
            status: head.status.unwrap_or(200),
            content_length: head.content_length,
            fields: head
                .is_json
                .then_some(json)
                .into_iter()
                .chain(fields(&head.fields)),
            delimited: head.delimited,
            unbuffered: head.unbuffered,
            subrequest: head.subrequest,
            coding_allowed: head.coding_allowed,
            host_writes_vary: head.host_writes_vary,
            now: 0,
        })
        .is_ok()
}
