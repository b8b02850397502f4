//! Open streams of compressed bodies, and the gzip members spliced of them.

use sszip_core::gzip::crc::crc32;
use sszip_core::gzip::open_stream::compress_to_open_stream;
use sszip_core::gzip::splice::{assemble_gzip_member, GzipMemberInput};

use super::{decoded, inflated, json, noise, open_streams_of};

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
