//! A body through the exchange, as a correct host sends it: the client decompresses what the node
//! sent, and a length is exact.
#![no_main]

use std::io::{Read, Write};

use arbitrary::Arbitrary;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flate2::Compression;
use libfuzzer_sys::fuzz_target;
use sszip_core::exchange::transitions::ExchangeState;
use sszip_core::exchange::{
    BodyEndAction, BodyPieceAction, Exchange, RequestHead, ResponseHead, ResponseHeadAction,
};
use sszip_core::gzip::stream::FlushMode;
use sszip_core::memory::MemoryBudget;
use sszip_core::request_coding::SupportedContentCoding::{self, Gzip, Zstd};
use sszip_fuzz::{compress_piece_as_host, DecompressingClient, FuzzBodyPiece, FuzzRouteSettings};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    place: FuzzRouteSettings,
    accept: Accept,
    /// Whether the node sends gzip, requested or not.
    node_codes: bool,
    declared: bool,
    delimited: bool,
    unbuffered: bool,
    event_stream: bool,
    release_before: Option<u8>,
    pieces: Vec<FuzzBodyPiece<'a>>,
    last_room: u16,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Accept {
    Gzip,
    GzipOnly,
    Zstd,
    ZstdOnly,
    Identity,
}

impl Accept {
    fn value(self) -> &'static [u8] {
        match self {
            Accept::Gzip => b"gzip",
            Accept::GzipOnly => b"identity;q=0, gzip",
            Accept::Zstd => b"gzip, zstd",
            Accept::ZstdOnly => b"identity;q=0, zstd",
            Accept::Identity => b"identity",
        }
    }

    fn prefers_zstd(self) -> bool {
        matches!(self, Accept::Zstd | Accept::ZstdOnly)
    }
}

/// The way in which the response leaves the host.
#[derive(PartialEq)]
enum BodyDeliveryMode {
    Buffered,
    Streamed,
    /// Unchanged, after the buffered part.
    Unchanged,
}

/// The bytes that a client receives, and the content that it decompresses from a stream at once.
struct ReceivedResponseBytes {
    bytes: Vec<u8>,
    stream: DecompressingClient,
}

fuzz_target!(|input: Input| {
    if input.pieces.is_empty() {
        return;
    }
    let budget = MemoryBudget::new();
    let mut exchange = Exchange::new(input.place.enabled_route_config(&budget));
    let body = input
        .pieces
        .iter()
        .map(FuzzBodyPiece::piece_bytes)
        .collect::<Vec<_>>();
    let body = body.concat();
    let wire = if input.node_codes {
        gzip(&body)
    } else {
        body.clone()
    };
    let sent = carry(&mut exchange, &input, &wire);

    let mut coding = input.node_codes.then_some(Gzip);
    let mut length = input.declared.then_some(wire.len());
    for edit in exchange.head_edits() {
        let value = edit.value.as_deref();
        match &*edit.name {
            "Content-Encoding" => coding = value.map(sent_coding),
            "Content-Length" => {
                length = value.map(|value| String::from_utf8_lossy(value).parse().expect("length"));
            }
            _ => {}
        }
    }
    let count = sent.bytes.len() + sent.stream.received;
    assert!(length.is_none_or(|length| length == count), "{length:?}");
    if matches!(
        exchange.exchange_state(),
        ExchangeState::Ready | ExchangeState::Finished
    ) {
        assert_eq!(exchange.received_body_bytes(), wire.len() as u64);
        assert_eq!(exchange.sent_body_bytes(), count as u64);
    }
    assert!(coding != Some(Zstd) || input.place.zstd && input.accept.prefers_zstd());
    if exchange.exchange_state() == ExchangeState::Finished {
        assert!(coding == Some(stream_coding(&input)) && length.is_none() && sent.bytes.is_empty());
        assert!(sent.stream.is_body_complete() && sent.stream.decoded == body);
    } else {
        match coding {
            Some(Gzip) => assert!(gunzip(&sent.bytes) == body),
            Some(Zstd) => assert!(decompress_frame(&sent.bytes) == body),
            None => assert!(sent.bytes == body),
        }
    }
    drop(exchange);
    assert_eq!(budget.reserved_bytes(), 0);
});

/// The coding of a compressed stream.
fn stream_coding(input: &Input) -> SupportedContentCoding {
    match input.place.zstd && input.accept.prefers_zstd() {
        true => Zstd,
        false => Gzip,
    }
}

fn sent_coding(value: &[u8]) -> SupportedContentCoding {
    [Gzip, Zstd]
        .into_iter()
        .find(|coding| coding.coding_name().as_bytes() == value)
        .expect("a coding that sszip makes")
}

fn carry(exchange: &mut Exchange, input: &Input, wire: &[u8]) -> ReceivedResponseBytes {
    let mut sent = ReceivedResponseBytes {
        bytes: Vec::new(),
        stream: DecompressingClient::new(stream_coding(input)),
    };
    let mut way = heads(exchange, input, wire.len());
    let mut rest = wire;
    for (n, piece) in input.pieces.iter().enumerate() {
        let bytes;
        let length = if n + 1 == input.pieces.len() {
            rest.len()
        } else {
            piece.piece_bytes().len().min(rest.len())
        };
        (bytes, rest) = rest.split_at(length);
        if way == BodyDeliveryMode::Buffered && input.release_before.map(usize::from) == Some(n) {
            way = after(exchange.end_buffering().expect("held"), exchange, &mut sent);
        }
        if way == BodyDeliveryMode::Buffered {
            let action = exchange.buffer_body_piece(bytes).expect("held");
            way = after(action, exchange, &mut sent);
            if way == BodyDeliveryMode::Buffered {
                continue;
            }
        }
        if way == BodyDeliveryMode::Unchanged {
            sent.bytes.extend_from_slice(bytes);
            continue;
        }
        stream(exchange, bytes, piece.flush_mode(), piece.room, &mut sent);
        if piece.flush {
            let taken = wire.len() - rest.len();
            assert!(sent.stream.decoded == wire[..taken], "after a flush");
        }
    }
    if way == BodyDeliveryMode::Buffered {
        match exchange.complete_buffered_body().expect("held") {
            BodyEndAction::Code { .. } => {
                exchange.run_pending_stages().expect("whole");
                sent.bytes.extend(exchange.body_slices().flatten());
            }
            BodyEndAction::Send => sent.bytes.extend(exchange.body_slices().flatten()),
            BodyEndAction::Stream => way = BodyDeliveryMode::Streamed,
            BodyEndAction::Fail => panic!("it is whole"),
        }
    }
    if way == BodyDeliveryMode::Streamed {
        stream(exchange, b"", FlushMode::Finish, input.last_room, &mut sent);
        assert_eq!(exchange.exchange_state(), ExchangeState::Finished);
    }
    sent
}

fn heads(exchange: &mut Exchange, input: &Input, length: usize) -> BodyDeliveryMode {
    let accept = (&b"Accept-Encoding"[..], input.accept.value());
    exchange
        .read_request_head(RequestHead {
            method: b"POST",
            target: b"/",
            fields: [accept].into_iter(),
        })
        .expect("the first call");
    let content_type: &[u8] = if input.event_stream {
        b"text/event-stream"
    } else {
        b"application/json"
    };
    let coding = (&b"Content-Encoding"[..], &b"gzip"[..]);
    let action = exchange
        .evaluate_response_head(ResponseHead {
            status: 200,
            content_length: input.declared.then_some(length as u64),
            fields: [(&b"Content-Type"[..], content_type)]
                .into_iter()
                .chain(input.node_codes.then_some(coding)),
            delimited: input.delimited,
            unbuffered: input.unbuffered,
            subrequest: false,
            coding_allowed: true,
            host_writes_vary: false,
            now: 0,
        })
        .expect("after the request");
    match action {
        ResponseHeadAction::Buffer => BodyDeliveryMode::Buffered,
        ResponseHeadAction::Stream => BodyDeliveryMode::Streamed,
        ResponseHeadAction::Pass | ResponseHeadAction::Tee => BodyDeliveryMode::Unchanged,
        ResponseHeadAction::Fail => {
            unreachable!("no rule is in force, and nothing is to be upgraded")
        }
    }
}

fn after(
    action: BodyPieceAction,
    exchange: &Exchange,
    sent: &mut ReceivedResponseBytes,
) -> BodyDeliveryMode {
    match action {
        BodyPieceAction::Buffered => BodyDeliveryMode::Buffered,
        BodyPieceAction::Stream => BodyDeliveryMode::Streamed,
        BodyPieceAction::SendOriginal => {
            sent.bytes.extend(exchange.body_slices().flatten());
            BodyDeliveryMode::Unchanged
        }
    }
}

fn stream(
    exchange: &mut Exchange,
    piece: &[u8],
    flush: FlushMode,
    room: u16,
    sent: &mut ReceivedResponseBytes,
) {
    compress_piece_as_host(
        piece,
        flush,
        room,
        &mut sent.stream,
        |input, flush, output| {
            exchange
                .encode_stream_piece(input, flush, output)
                .expect("it streams")
        },
    );
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).expect("it codes");
    encoder.finish().expect("it codes")
}

fn gunzip(coded: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut decoder = GzDecoder::new(coded);
    decoder.read_to_end(&mut body).expect("it decodes");
    assert!(decoder.into_inner().is_empty(), "bytes after the member");
    body
}

fn decompress_frame(coded: &[u8]) -> Vec<u8> {
    let length = zstd::zstd_safe::find_frame_compressed_size(coded).expect("a frame");
    assert_eq!(length, coded.len(), "bytes after the frame");
    zstd::decode_all(coded).expect("it decodes")
}
