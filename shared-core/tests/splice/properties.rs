//! Properties of arbitrary members and streams.

use std::io::Read;

use flate2::read::DeflateDecoder;
use proptest::prelude::*;
use sszip_core::cache::entry::batch::{
    assemble_batch_for_gzip_only, assemble_gzip_batch, assemble_identity_batch,
    assemble_zstd_batch, BatchResponseElement,
};
use sszip_core::cache::entry::{CacheEntry, CompressionGate, EntryMetadata, ResponseIdPosition};
use sszip_core::gzip::open_stream::{compress_to_open_stream, convert_to_open_stream};
use sszip_core::gzip::splice::{assemble_gzip_member, GzipMemberInput};

use super::{answer, decoded, decoded_zstd, envelope, inflated, json, libdeflate, noise, zlib};

/// A response of a batch: as text, or stored with a result that is compressed from a length on at a
/// level.
#[derive(Clone, Debug)]
enum BatchResponse {
    Text(Vec<u8>),
    Stored(Vec<u8>, u64, u8, bool),
}

/// Results of small calls, of transactions, of blocks, and incompressible ones.
fn results() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "\"0x[0-9a-f]{0,130}\"".prop_map(String::into_bytes),
        1 => "\"[ -~\u{e9}]{0,200}\"".prop_map(String::into_bytes),
        3 => (900..5000usize).prop_map(json),
        1 => (5000..150_000usize).prop_map(json),
        1 => (0..9000usize).prop_map(noise),
    ]
}

fn batch_responses() -> impl Strategy<Value = Vec<BatchResponse>> {
    let stored = (results(), 0..2000u64, 0..=9u8, any::<bool>());
    let one = prop_oneof![
        1 => results().prop_map(BatchResponse::Text),
        4 => stored.prop_map(|(result, min_length, level, is_first)| {
            BatchResponse::Stored(result, min_length, level, is_first)
        }),
    ];
    prop::collection::vec(one, 0..60)
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

    /// Any batch, inlined, spliced or both, decodes to its joined responses in each coding, at the
    /// first hit and when its payloads are decoded already; its bytes do not change from hit to hit.
    #[test]
    fn any_batch_decodes_to_its_joined_responses(
        responses in batch_responses(),
        min_length in prop_oneof![Just(0u64), Just(1024), Just(1 << 20)],
        level in 0..=9u8,
        zstd_level in 1..=9u8,
    ) {
        let ids: Vec<String> = (0..responses.len()).map(|n| n.to_string()).collect();
        let mut expected = Vec::new();
        let mut stored = Vec::new();
        for (response, id) in responses.iter().zip(&ids) {
            match response {
                BatchResponse::Text(text) => expected.push(text.trim_ascii().to_vec()),
                BatchResponse::Stored(result, min_length, level, is_first) => {
                    let place = match is_first {
                        true => ResponseIdPosition::BeforeResult,
                        false => ResponseIdPosition::AfterResult,
                    };
                    let gate = CompressionGate { min_length: *min_length, level: *level };
                    let envelope = envelope(place, "\n");
                    expected.push(answer(&envelope, result, id).trim_ascii_end().to_vec());
                    let meta = EntryMetadata::default();
                    stored.push(CacheEntry::from_fetched_result(envelope, result, gate, meta).unwrap());
                }
            }
        }
        let mut entries = stored.iter();
        let elements: Vec<BatchResponseElement> = responses
            .iter()
            .zip(&ids)
            .map(|(response, id)| match response {
                BatchResponse::Text(text) => BatchResponseElement::RawJson(text),
                BatchResponse::Stored(..) => {
                    BatchResponseElement::Stored(entries.next().unwrap(), id.as_bytes())
                }
            })
            .collect();
        let expected = [b"[", &expected.join(&b","[..])[..], b"]"].concat();
        let gate = CompressionGate { min_length, level };
        let first = assemble_gzip_batch(&elements, gate).unwrap();
        match first.is_gzip() {
            true => prop_assert!(decoded(&first) == expected),
            false => prop_assert!(first.to_vec() == expected),
        }
        prop_assert!(assemble_identity_batch(&elements).unwrap().to_vec() == expected);
        prop_assert!(decoded(&assemble_batch_for_gzip_only(&elements, gate).unwrap()) == expected);
        let zstd = assemble_zstd_batch(&elements, gate, zstd_level, false).unwrap();
        match zstd.content_coding() {
            Some(_) => prop_assert!(decoded_zstd(&zstd) == expected),
            None => prop_assert!(zstd.to_vec() == expected),
        }
        let zstd_only = assemble_zstd_batch(&elements, gate, zstd_level, true).unwrap();
        prop_assert!(decoded_zstd(&zstd_only) == expected);
        let again = assemble_gzip_batch(&elements, gate).unwrap();
        prop_assert!(again.is_gzip() == first.is_gzip() && again.to_vec() == first.to_vec());
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
        let is_member_complete = decoder.read_to_end(&mut theirs).is_ok()
            && decoder.total_in() == stream.len() as u64;
        match convert_to_open_stream(stream.clone()) {
            Some(opened) => prop_assert!(is_member_complete && inflated(&opened) == theirs),
            None => prop_assert!(!is_member_complete),
        }
    }
}
