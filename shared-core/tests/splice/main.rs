//! Open streams, the gzip members spliced of them, and responses and batches under any id:
//! zlib-rs and libdeflate decompress each to its input.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::io::{Read, Write};
use std::sync::Arc;

use flate2::read::{DeflateDecoder, GzDecoder};
use flate2::write::DeflateEncoder;
use flate2::Compression;
use proptest::prelude::*;
use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::batch::{
    assemble_gzip_batch, assemble_identity_batch, BatchResponseElement,
};
use sszip_core::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EntryPayload, EnvelopeBytes, ResponseIdPosition,
};
use sszip_core::gzip::crc::crc32;
use sszip_core::gzip::inflate::gunzip_reserved;
use sszip_core::gzip::oneshot;
use sszip_core::gzip::open_stream::{
    compress_to_open_stream, convert_to_open_stream, OpenDeflateStream,
};
use sszip_core::gzip::splice::{assemble_gzip_member, GzipMemberInput, SlicedBody};

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

#[test]
fn open_streams_of_0_to_20_mb_are_spliced_and_inflated() {
    let sizes = [
        0, 1, 2, 100, 1023, 1024, 32_767, 32_768, 32_769, 65_535, 65_536, 300_000, 20_000_000,
    ];
    for size in sizes {
        let plain = json(size);
        for open in open_streams_of(&plain) {
            assert_eq!((open.length, open.crc), (size as u64, crc32(&plain)));
            let member = assemble_gzip_member([
                GzipMemberInput::Text(b"[1,"),
                GzipMemberInput::Open(&open),
                GzipMemberInput::Text(b"]\n"),
            ])
            .unwrap();
            assert!(
                decoded(&member) == [b"[1,", &plain[..], b"]\n"].concat(),
                "{size}"
            );
            assert!(open.decompress_open_stream().unwrap() == plain, "{size}");
        }
    }
}

#[test]
fn incompressible_bodies_become_open_streams_of_bounded_length() {
    for size in [1, 1000, 70_000, 1_500_000] {
        let plain = noise(size);
        for open in open_streams_of(&plain) {
            let bound = size + size / 1000 + 64;
            assert!(open.bytes.len() <= bound, "{} of {size}", open.bytes.len());
            assert!(inflated(&open.bytes) == plain, "{size}");
        }
    }
}

#[test]
fn texts_and_streams_are_spliced_in_any_order_and_number() {
    let open = compress_to_open_stream(&json(5000), 6).unwrap();
    let plain = json(5000);
    let (text, stream) = (GzipMemberInput::Text(b"text"), GzipMemberInput::Open(&open));
    let none: [GzipMemberInput; 0] = [];
    assert_eq!(decoded(&assemble_gzip_member(none).unwrap()), b"");
    assert_eq!(
        decoded(&assemble_gzip_member([GzipMemberInput::Text(b"")]).unwrap()),
        b""
    );
    assert_eq!(decoded(&assemble_gzip_member([text]).unwrap()), b"text");
    assert_eq!(
        decoded(&assemble_gzip_member([text, text]).unwrap()),
        b"texttext"
    );
    assert_eq!(decoded(&assemble_gzip_member([stream]).unwrap()), plain);
    assert_eq!(
        decoded(&assemble_gzip_member([stream, stream]).unwrap()),
        [&plain[..], &plain].concat()
    );
    assert_eq!(
        decoded(
            &assemble_gzip_member([stream, text, GzipMemberInput::Text(b""), stream, text])
                .unwrap()
        ),
        [&plain[..], b"text", &plain, b"text"].concat()
    );
}

#[test]
fn texts_are_split_into_full_stored_blocks() {
    let open = compress_to_open_stream(b"", 1).unwrap();
    for length in [65_534, 65_535, 65_536, 131_070, 131_071, 200_000] {
        let text = json(length);
        let (first, second) = text.split_at(length / 3);
        let blocks = length.div_ceil(65_535);
        for end in [&[][..], &[GzipMemberInput::Open(&open)]] {
            let parts = [
                &[GzipMemberInput::Text(first), GzipMemberInput::Text(second)],
                end,
            ]
            .concat();
            let member = assemble_gzip_member(parts).unwrap();
            assert!(decoded(&member) == text, "{length}");
            if end.is_empty() {
                assert_eq!(member.byte_length(), (10 + 5 * blocks + length + 8) as u64);
            }
        }
    }
}

#[test]
fn splice_references_open_streams_without_a_copy() {
    let open = compress_to_open_stream(&json(300_000), 1).unwrap();
    let member = assemble_gzip_member([
        GzipMemberInput::Text(b"a"),
        GzipMemberInput::Open(&open),
        GzipMemberInput::Text(b"b"),
    ])
    .unwrap();
    let slices: Vec<&[u8]> = member.body_slices().collect();
    assert_eq!(slices.len(), 3);
    assert!(std::ptr::eq(slices[1], &*open.bytes));
    let own = slices[0].len() + slices[2].len();
    assert_eq!(own, 10 + 6 + 6 + 8);
}

#[test]
fn open_returns_none_for_an_unknown_level() {
    assert!(compress_to_open_stream(b"abc", 13).is_none());
    assert!(compress_to_open_stream(b"abc", 255).is_none());
}

/// The end of the last block is known only to the bit: a position that was taken from a decoder
/// after the end of the stream damaged one body in four.
#[test]
fn stream_is_reopened_when_its_last_block_ends_at_any_bit() {
    let mut ends = [0; 8];
    for length in 0..400 {
        let plain = json(length);
        for stream in [
            libdeflate(&plain, 1),
            libdeflate(&plain, 9),
            zlib(&[&plain], 6),
        ] {
            // the last bit that matters shows where the stream ends
            let mut longest = 0;
            for bit in 0..8 {
                let mut flipped = stream.clone();
                *flipped.last_mut().unwrap() ^= 1 << bit;
                let mut other = Vec::new();
                let result = DeflateDecoder::new(&flipped[..]).read_to_end(&mut other);
                if result.is_err() || other != plain {
                    longest = bit + 1;
                }
            }
            ends[longest % 8] += 1;
            let mut dirty = stream.clone();
            *dirty.last_mut().unwrap() |= (0xFFu16 << longest) as u8;
            let clean = convert_to_open_stream(stream).unwrap();
            assert_eq!(inflated(&clean), plain);
            assert_eq!(convert_to_open_stream(dirty).unwrap(), clean);
        }
    }
    assert!(ends.iter().all(|count| *count > 0), "{ends:?}");
}

#[test]
fn stored_fixed_and_dynamic_blocks_are_reopened() {
    let (text, noise) = (json(100_000), noise(70_000));
    let streams = [
        (zlib(&[&text], 0), text.clone()),
        (zlib(&[b"a"], 6), b"a".to_vec()),
        (
            zlib(&[&text[..50], b"bc"], 6),
            [&text[..50], b"bc"].concat(),
        ),
        (
            zlib(&[&text, &noise, &text], 6),
            [&text[..], &noise, &text].concat(),
        ),
        (libdeflate(&noise, 6), noise.clone()),
        (libdeflate(&vec![b'a'; 1 << 20], 6), vec![b'a'; 1 << 20]),
        (zlib(&[], 6), Vec::new()),
    ];
    for (stream, plain) in streams {
        assert!(inflated(&convert_to_open_stream(stream).unwrap()) == plain);
    }
}

/// Codes that are longer than the index of the decoding tables.
#[test]
fn stream_with_the_longest_codes_is_reopened() {
    let mut plain = Vec::new();
    let (mut count, mut next) = (1, 1);
    for byte in b'a'..b'a' + 20 {
        plain.extend(std::iter::repeat_n(byte, count));
        (count, next) = (next, count + next);
    }
    let order = noise(2 * plain.len());
    for (n, random) in order.chunks(2).enumerate() {
        let random = usize::from(u16::from_le_bytes([random[0], random[1]]));
        plain.swap(n, random % (n + 1));
    }
    for level in 1..=12 {
        let stream = libdeflate(&plain, level);
        assert!(
            inflated(&convert_to_open_stream(stream).unwrap()) == plain,
            "level {level}"
        );
    }
}

#[test]
fn truncated_extended_and_open_streams_are_refused() {
    let plain = [json(3000), noise(100), json(3000)].concat();
    for stream in [
        libdeflate(&plain, 6),
        libdeflate(&plain, 0),
        zlib(&[b"abc"], 6),
    ] {
        for cut in 0..stream.len() {
            assert!(
                convert_to_open_stream(stream[..cut].to_vec()).is_none(),
                "cut at {cut}"
            );
        }
        for more in [0, 1, 0xFF] {
            let longer = [&stream[..], &[more]].concat();
            assert!(
                convert_to_open_stream(longer).is_none(),
                "followed by {more}"
            );
        }
        let opened = convert_to_open_stream(stream).unwrap();
        assert!(convert_to_open_stream(opened).is_none(), "it has no end");
    }
}

/// A stream that zlib refuses must not become a part of a member, where its distances would reach
/// into the preceding parts.
#[test]
fn stream_with_a_distance_beyond_the_start_is_refused() {
    let refused = |stream: &[u8]| {
        let theirs = DeflateDecoder::new(stream).read_to_end(&mut Vec::new());
        assert!(theirs.is_err(), "a case for this test");
        convert_to_open_stream(stream.to_vec()).is_none()
    };
    // the second half of a stream, whose matches are in the first one
    let plain = json(40_000);
    let (first, second) = plain.split_at(20_000);
    let whole = zlib(&[first, second], 6);
    let start = zlib(&[first], 6).len() - EMPTY_LAST.len();
    assert!(refused(&whole[start..]));
    // fixed codes: copies three bytes from distance one, before any output
    assert!(refused(&[0b0000_0011, 0b0000_0010, 0]));
    // the same copy after one literal
    assert!(
        inflated(&convert_to_open_stream(vec![0b0100_1011, 0b0000_0100, 0b0000_0010, 0]).unwrap())
            == b"aaaa"
    );
}

#[test]
fn response_is_assembled_with_any_id_before_or_after_the_result() {
    let result = json(3000);
    for place in [
        ResponseIdPosition::BeforeResult,
        ResponseIdPosition::AfterResult,
        ResponseIdPosition::None,
    ] {
        for end in ["", "\n", "\r\n", ",\"jsonrpc\":\"2.0\"}\n"] {
            let envelope = envelope(place, end);
            let entry = CacheEntry::from_fetched_result(
                envelope.clone(),
                &result,
                ANY,
                EntryMetadata::default(),
            )
            .unwrap();
            assert!(matches!(entry.stored_payload(), EntryPayload::Open(_)));
            let long = format!("\"{}\"", "x".repeat(100_000));
            for id in IDS.into_iter().chain([&long[..]]) {
                let expected = answer(&envelope, &result, id);
                assert!(
                    decoded(&entry.response_for_gzip_client(id.as_bytes()).unwrap()) == expected,
                    "{id}"
                );
                let identity = entry.response_for_identity_client(id.as_bytes()).unwrap();
                assert!(!identity.is_gzip() && identity.to_vec() == expected, "{id}");
                assert_eq!(identity.byte_length(), expected.len() as u64);
                assert_eq!(entry.response_length(id.as_bytes()), expected.len() as u64);
            }
        }
    }
}

#[test]
fn responses_below_the_gate_are_stored_and_sent_uncompressed() {
    let gate = CompressionGate {
        min_length: 1024,
        level: 1,
    };
    let envelope = envelope(ResponseIdPosition::BeforeResult, "\n");
    let frame = answer(&envelope, b"", "").len();
    for (length, is_coded) in [(0, false), (1023 - frame, false), (1024 - frame, true)] {
        let result = json(length);
        let entry = CacheEntry::from_fetched_result(
            envelope.clone(),
            &result,
            gate,
            EntryMetadata::default(),
        )
        .unwrap();
        assert_eq!(
            matches!(entry.stored_payload(), EntryPayload::Open(_)),
            is_coded
        );
        let body = entry.response_for_gzip_client(b"\"a\"").unwrap();
        assert_eq!(body.is_gzip(), is_coded);
        let expected = answer(&envelope, &result, "\"a\"");
        if !is_coded {
            assert_eq!(body.to_vec(), expected);
        }
        assert_eq!(
            entry
                .response_for_identity_client(b"\"a\"")
                .unwrap()
                .to_vec(),
            expected
        );
    }
}

#[test]
fn result_that_compression_does_not_shorten_is_stored_uncompressed() {
    let result = noise(100_000);
    for level in [0, 1, 6] {
        let gate = CompressionGate {
            min_length: 0,
            level,
        };
        let entry = CacheEntry::from_fetched_result(
            EnvelopeBytes::envelope_without_bytes(),
            &result,
            gate,
            EntryMetadata::default(),
        )
        .unwrap();
        let body = entry.response_for_gzip_client(b"").unwrap();
        assert!(!body.is_gzip() && body.to_vec() == result);
    }
    let gate = CompressionGate {
        min_length: 0,
        level: 13,
    };
    assert!(CacheEntry::from_fetched_result(
        EnvelopeBytes::envelope_without_bytes(),
        &result,
        gate,
        EntryMetadata::default()
    )
    .is_none());
}

#[test]
fn entry_that_is_sent_twice_as_identity_keeps_both_codings() {
    let result = json(50_000);
    let envelope = envelope(ResponseIdPosition::BeforeResult, "");
    let entry =
        CacheEntry::from_fetched_result(envelope.clone(), &result, ANY, EntryMetadata::default())
            .unwrap();
    let weight = entry.memory_weight();
    assert!(weight < 50_000);
    let first = entry.response_for_identity_client(b"1").unwrap();
    assert_eq!(
        (entry.identity_bytes_to_decode(), entry.memory_weight()),
        (50_000, weight)
    );
    let second = entry.response_for_identity_client(b"2").unwrap();
    assert_eq!(
        (entry.identity_bytes_to_decode(), entry.memory_weight()),
        (0, weight + 50_000)
    );
    let third = entry.response_for_identity_client(b"3").unwrap();
    let shared = |body: &SlicedBody| body.body_slices().nth(1).unwrap().as_ptr();
    assert_eq!(shared(&second), shared(&third));
    assert_ne!(shared(&first), shared(&second));
    for (body, id) in [(first, "1"), (second, "2"), (third, "3")] {
        assert!(body.to_vec() == answer(&envelope, &result, id));
    }
    assert!(
        decoded(&entry.response_for_gzip_client(b"4").unwrap()) == answer(&envelope, &result, "4")
    );
}

#[test]
fn damaged_entry_has_no_identity_body() {
    let mut open = compress_to_open_stream(&json(5000), 1).unwrap();
    for (crc, length) in [(open.crc ^ 1, 5000), (open.crc, 4999), (open.crc, 5001)] {
        open.crc = crc;
        open.length = length;
        let payload = EntryPayload::Open(open.clone());
        let entry = CacheEntry::new(
            EnvelopeBytes::envelope_without_bytes(),
            payload,
            EntryMetadata::default(),
        );
        assert!(entry.response_for_identity_client(b"").is_none());
    }
}

#[test]
fn entry_keeps_the_meta_of_its_caller() {
    let meta = EntryMetadata {
        status: 200,
        fields: vec![(b"Content-Type".to_vec(), b"application/json".to_vec())],
        stored_at: 1000,
        expires_at: 2000,
        age: 7,
        class: LifetimeClass::Config,
        block_number: Some(0),
        ..EntryMetadata::default()
    };
    let entry = CacheEntry::from_fetched_result(
        EnvelopeBytes::envelope_without_bytes(),
        b"{}",
        ANY,
        meta.clone(),
    )
    .unwrap();
    assert_eq!(entry.response_metadata(), &meta);
    assert!(entry.is_fresh(0) && entry.is_fresh(1999) && !entry.is_fresh(2000));
    let bare = CacheEntry::from_fetched_result(
        EnvelopeBytes::envelope_without_bytes(),
        b"{}",
        ANY,
        EntryMetadata::default(),
    )
    .unwrap();
    assert!(!bare.is_fresh(0));
    assert!(entry.memory_weight() >= bare.memory_weight() + 28);
}

/// Returns entries of each kind, with their results.
fn stored() -> Vec<(Arc<CacheEntry>, Vec<u8>)> {
    let gate = CompressionGate {
        min_length: 1024,
        level: 4,
    };
    let places = [
        ResponseIdPosition::BeforeResult,
        ResponseIdPosition::AfterResult,
    ];
    let sizes = [0, 5, 3000, 100_000];
    let kinds = sizes.into_iter().flat_map(|size| {
        places
            .into_iter()
            .flat_map(move |place| ["", "\n", " \r\n"].map(|end| (size, place, end)))
    });
    kinds
        .map(|(size, place, end)| {
            let result = json(size);
            let envelope = envelope(place, end);
            let entry =
                CacheEntry::from_fetched_result(envelope, &result, gate, EntryMetadata::default())
                    .unwrap();
            (Arc::new(entry), result)
        })
        .collect()
}

const GATE: CompressionGate = CompressionGate {
    min_length: 1024,
    level: 1,
};

#[test]
fn batch_keeps_the_order_and_drops_newlines() {
    let stored = stored();
    let error = b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1}}\n";
    let mut elements = vec![BatchResponseElement::RawJson(error)];
    let mut expected = vec![error.trim_ascii_end().to_vec()];
    for ((entry, result), id) in stored.iter().zip(IDS.into_iter().cycle()) {
        elements.push((entry, id.as_bytes()).into());
        let answer = answer(entry.response_envelope(), result, id);
        expected.push(answer.trim_ascii_end().to_vec());
    }
    elements.push(BatchResponseElement::RawJson(error));
    expected.push(error.trim_ascii_end().to_vec());
    let expected = [b"[", &expected.join(&b","[..])[..], b"]"].concat();
    assert!(decoded(&assemble_gzip_batch(&elements, GATE).unwrap()) == expected);
    for _ in 0..3 {
        let body = assemble_identity_batch(&elements).unwrap();
        assert!(!body.is_gzip() && body.to_vec() == expected);
    }
}

#[test]
fn batch_copies_short_entries_and_references_long_ones() {
    // short parts are copied, long parts are referenced
    for (n, is_long) in [(6 + 6, false), (6 + 6 + 6, true)] {
        let (entry, result) = &stored()[n];
        let one = answer(entry.response_envelope(), result, "\"x\"");
        let one = one.trim_ascii_end();
        for count in [1, 2, 100] {
            let elements = vec![BatchResponseElement::from((entry, &b"\"x\""[..])); count];
            let expected = [b"[", &vec![one; count].join(&b","[..])[..], b"]"].concat();
            let body = assemble_gzip_batch(&elements, GATE).unwrap();
            assert!(decoded(&body) == expected);
            let slices = if is_long { 2 * count + 1 } else { 1 };
            assert_eq!(body.body_slices().count(), slices);
        }
    }
}

#[test]
fn empty_batch_is_an_empty_array() {
    assert_eq!(assemble_identity_batch(&[]).unwrap().to_vec(), b"[]");
    let body = assemble_gzip_batch(&[], GATE).unwrap();
    assert_eq!((body.is_gzip(), body.to_vec()), (false, b"[]".to_vec()));
}

#[test]
fn batch_of_many_small_responses_is_compressed() {
    let (entry, result) = &stored()[6];
    let ids: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let elements: Vec<BatchResponseElement> =
        ids.iter().map(|id| (entry, id.as_bytes()).into()).collect();
    let answers = ids
        .iter()
        .map(|id| answer(entry.response_envelope(), result, id));
    let expected = [b"[", &answers.collect::<Vec<_>>().join(&b","[..])[..], b"]"].concat();
    let body = assemble_gzip_batch(&elements, GATE).unwrap();
    assert!(decoded(&body) == expected);
    assert!(
        body.byte_length() * 5 < expected.len() as u64,
        "{}",
        body.byte_length()
    );
    // below the gate, or not shortened
    let body = assemble_gzip_batch(&elements[..3], GATE).unwrap();
    assert!(!body.is_gzip());
    let body = assemble_gzip_batch(&elements[..1], ANY).unwrap();
    assert!(!body.is_gzip());
    assert_eq!(
        body.to_vec(),
        [
            b"[",
            &answer(entry.response_envelope(), result, "0")[..],
            b"]"
        ]
        .concat()
    );
}

#[test]
fn incompressible_texts_and_compressed_entries_are_spliced_into_one_batch() {
    let (entry, result) = &stored()[18];
    assert!(entry.is_compressed());
    let coded = answer(entry.response_envelope(), result, "1");
    for length in [10, 65_000, 65_535, 200_000] {
        let text = noise(length);
        let text = text.trim_ascii();
        let elements = [
            BatchResponseElement::RawJson(text),
            (entry, &b"1"[..]).into(),
            BatchResponseElement::RawJson(text),
            BatchResponseElement::RawJson(text),
            (entry, &b"1"[..]).into(),
        ];
        let coded = coded.trim_ascii();
        let expected = [text, coded, text, text, coded].join(&b","[..]);
        let body = assemble_gzip_batch(&elements, GATE).unwrap();
        assert!(body.is_gzip());
        assert!(
            decoded(&body) == [b"[", &expected[..], b"]"].concat(),
            "{length}"
        );
    }
}

#[derive(Clone, Debug)]
enum Piece {
    Text(Vec<u8>),
    Open(Vec<u8>, u8),
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        "[0-9a-f\",:{}\\[\\] ]{0,2000}".prop_map(String::into_bytes),
        (any::<u8>(), 0..70_000usize).prop_map(|(byte, length)| vec![byte; length]),
        (0..70_000usize).prop_map(json),
        (0..70_000usize).prop_map(noise),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_parts_are_spliced_into_one_member(
        pieces in prop::collection::vec(
            prop_oneof![
                bytes().prop_map(Piece::Text),
                (bytes(), 0..=12u8).prop_map(|(plain, level)| Piece::Open(plain, level)),
            ],
            0..8,
        ),
    ) {
        let mut expected = Vec::new();
        let mut streams = Vec::new();
        for piece in &pieces {
            match piece {
                Piece::Text(text) => expected.extend_from_slice(text),
                Piece::Open(plain, level) => {
                    expected.extend_from_slice(plain);
                    streams.push(compress_to_open_stream(plain, *level).unwrap());
                }
            }
        }
        let mut streams = streams.iter();
        let member = assemble_gzip_member(pieces.iter().map(|piece| match piece {
            Piece::Text(text) => GzipMemberInput::Text(text),
            Piece::Open(..) => GzipMemberInput::Open(streams.next().unwrap()),
        }));
        prop_assert!(decoded(&member.unwrap()) == expected);
    }

    #[test]
    fn any_stream_of_libdeflate_and_zlib_is_reopened(
        pieces in prop::collection::vec(bytes(), 1..4),
        level in 0..=12u8,
    ) {
        let plain = pieces.concat();
        let opened = convert_to_open_stream(libdeflate(&plain, level)).unwrap();
        prop_assert!(inflated(&opened) == plain);
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let opened = convert_to_open_stream(zlib(&pieces, u32::from(level).min(9))).unwrap();
        prop_assert!(inflated(&opened) == plain);
    }

    /// A damaged stream is refused if zlib refuses it, and otherwise decoded like zlib decodes
    /// it.
    #[test]
    fn damaged_stream_is_refused_if_and_only_if_zlib_refuses_it(
        plain in bytes(),
        level in 0..=12u8,
        at in any::<prop::sample::Index>(),
        mask in 1..=255u8,
    ) {
        let mut stream = libdeflate(&plain, level);
        let at = at.index(stream.len());
        stream[at] ^= mask;
        let mut theirs = Vec::new();
        let mut decoder = DeflateDecoder::new(&stream[..]);
        let is_whole = decoder.read_to_end(&mut theirs).is_ok()
            && decoder.total_in() == stream.len() as u64;
        match convert_to_open_stream(stream.clone()) {
            Some(opened) => prop_assert!(is_whole && inflated(&opened) == theirs),
            None => prop_assert!(!is_whole),
        }
    }
}
