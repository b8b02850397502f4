//! Properties of arbitrary members and streams.

use std::io::Read;

use flate2::read::DeflateDecoder;
use proptest::prelude::*;
use sszip_core::gzip::open_stream::{compress_to_open_stream, convert_to_open_stream};
use sszip_core::gzip::splice::{assemble_gzip_member, GzipMemberInput};

use super::{decoded, inflated, json, libdeflate, noise, zlib};

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
        let is_member_complete = decoder.read_to_end(&mut theirs).is_ok()
            && decoder.total_in() == stream.len() as u64;
        match convert_to_open_stream(stream.clone()) {
            Some(opened) => prop_assert!(is_member_complete && inflated(&opened) == theirs),
            None => prop_assert!(!is_member_complete),
        }
    }
}
