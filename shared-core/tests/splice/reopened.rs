//! Finished deflate streams that become open streams.

use std::io::Read;

use flate2::read::DeflateDecoder;
use sszip_core::gzip::open_stream::convert_to_open_stream;

use super::{inflated, json, libdeflate, noise, zlib, EMPTY_LAST};

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
