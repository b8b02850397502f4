//! Open streams, the gzip members spliced of them, and responses and batches under any id:
//! zlib-rs and libdeflate decompress each to its input. zstd frames, spliced of open blocks.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod batches;
mod entries;
mod open_streams;
mod properties;
mod reopened;
#[path = "../support/unzstd.rs"]
mod unzstd;
mod zstd_batches;
mod zstd_blocks;
mod zstd_entries;

use std::io::Read;
use std::io::Write;

use flate2::read::{DeflateDecoder, GzDecoder};
use flate2::write::DeflateEncoder;
use flate2::Compression;
use sszip_core::cache::entry::{CompressionGate, EnvelopeBytes, ResponseIdPosition};
use sszip_core::gzip::crc::crc32;
use sszip_core::gzip::inflate::gunzip_reserved;
use sszip_core::gzip::oneshot;
use sszip_core::gzip::open_stream::{
    compress_to_open_stream, convert_to_open_stream, OpenDeflateStream,
};
use sszip_core::gzip::splice::SlicedBody;
use sszip_core::request_coding::SupportedContentCoding;
use sszip_core::zstd::decompress_zstd;
use unzstd::unzstd;

/// Ids that a client may send, raw, of each kind.
const IDS: [&str; 12] = [
    "1",
    "\"\"",
    "\"req-1\"",
    "null",
    "1.5",
    "-0",
    "1e3",
    "9007199254740993",
    "123456789012345678901234567890",
    "\"a\\\"b\\\\c\\u00e9\\n\"",
    "\"\u{e9}\u{1f600}\"",
    " 7",
];

const EMPTY_LAST: [u8; 2] = [0x03, 0x00];

/// Returns a text like JSON, of exactly `length` bytes.
fn json(length: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(length + 64);
    for n in 0u64.. {
        if body.len() >= length {
            break;
        }
        let word = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        body.extend(format!("{{\"hash\":\"{word:#018x}\",\"index\":\"{n:#x}\"}},").bytes());
    }
    body.truncate(length);
    body
}

/// Returns bytes that no encoder shortens.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(length)
    .collect()
}

/// Returns the plain bytes of exactly one member, after two decoders have agreed on them.
fn decoded(body: &SlicedBody) -> Vec<u8> {
    assert!(body.is_gzip());
    let member = body.to_vec();
    assert_eq!(member.len() as u64, body.byte_length());
    assert!(body.body_slices().all(|slice| !slice.is_empty()));
    let mut plain = Vec::new();
    let mut decoder = GzDecoder::new(&member[..]);
    decoder.read_to_end(&mut plain).unwrap();
    assert!(decoder.into_inner().is_empty(), "bytes after the member");
    assert!(gunzip_reserved(&member, plain.len()).unwrap() == plain);
    plain
}

/// Returns the plain bytes of exactly one zstd frame that declares their length, after two decoders
/// have agreed on them.
fn decoded_zstd(body: &SlicedBody) -> Vec<u8> {
    assert_eq!(body.content_coding(), Some(SupportedContentCoding::Zstd));
    let frame = body.to_vec();
    assert_eq!(frame.len() as u64, body.byte_length());
    assert!(body.body_slices().all(|slice| !slice.is_empty()));
    let plain = unzstd(&frame).unwrap();
    // a window descriptor, and a content size of four bytes (RFC 8878, 3.1.1.1)
    assert_eq!(frame[..5], [0x28, 0xB5, 0x2F, 0xFD, 0x80]);
    assert_eq!(frame[6..10], (plain.len() as u32).to_le_bytes());
    assert_eq!(body.plain_length(), plain.len() as u64);
    assert!(decompress_zstd(&frame, plain.len() + 1, |_| true).unwrap() == plain);
    plain
}

/// Returns the plain bytes of an open stream, which must not have a final block.
fn inflated(stream: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let finished = [stream, &EMPTY_LAST].concat();
    let mut decoder = DeflateDecoder::new(&finished[..]);
    decoder.read_to_end(&mut plain).unwrap();
    assert_eq!(decoder.total_in(), finished.len() as u64, "it ends early");
    plain
}

/// Compresses to a finished stream of libdeflate.
fn libdeflate(plain: &[u8], level: u8) -> Vec<u8> {
    let member =
        oneshot::gzip_oneshot(plain, level, oneshot::compressed_bound(plain.len())).unwrap();
    member[10..member.len() - 8].to_vec()
}

/// Compresses to a finished stream of zlib with one block or more per piece.
fn zlib(pieces: &[&[u8]], level: u32) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(level));
    for piece in pieces {
        encoder.write_all(piece).unwrap();
        encoder.flush().unwrap();
    }
    encoder.finish().unwrap()
}

/// Compresses a body to open streams, by each available library and level.
fn open_streams_of(plain: &[u8]) -> Vec<OpenDeflateStream> {
    let few = plain.len() > 1 << 20;
    let levels = (0..=12).filter(|level| !few || *level == 1);
    let mut opens: Vec<OpenDeflateStream> = levels
        .map(|level| compress_to_open_stream(plain, level).unwrap())
        .collect();
    // the lowest levels of libdeflate too, where igzip replaces it if it is installed
    for level in (1..=3).filter(|level| !few || *level == 1) {
        let stream = convert_to_open_stream(libdeflate(plain, level)).unwrap();
        let (crc, length) = (crc32(plain), plain.len() as u64);
        opens.push(OpenDeflateStream::new(stream.into(), crc, length));
    }
    opens
}

fn envelope(id: ResponseIdPosition, end: &str) -> EnvelopeBytes {
    let (before, between) = match id {
        ResponseIdPosition::BeforeResult => ("{\"jsonrpc\":\"2.0\",\"id\":", ",\"result\":"),
        ResponseIdPosition::AfterResult => ("{\"jsonrpc\":\"2.0\",\"result\":", ",\"id\":"),
        ResponseIdPosition::None => return EnvelopeBytes::envelope_without_bytes(),
    };
    EnvelopeBytes {
        id,
        before: before.as_bytes().into(),
        between: between.as_bytes().into(),
        after: format!("}}{end}").as_bytes().into(),
    }
}

/// Assembles the response in the obvious way.
fn answer(envelope: &EnvelopeBytes, result: &[u8], id: &str) -> Vec<u8> {
    let (first, second): (&[u8], &[u8]) = match envelope.id {
        ResponseIdPosition::BeforeResult => (id.as_bytes(), result),
        ResponseIdPosition::AfterResult => (result, id.as_bytes()),
        ResponseIdPosition::None => (b"", result),
    };
    [
        &envelope.before,
        first,
        &envelope.between,
        second,
        &envelope.after,
    ]
    .concat()
}

const ANY: CompressionGate = CompressionGate {
    min_length: 0,
    level: 1,
};
