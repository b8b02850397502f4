//! zstd frames of texts and open blocks: several decoders agree on their content, whatever precedes
//! the blocks.

use proptest::prelude::*;
use sszip_core::gzip::splice::SlicedBody;
use sszip_core::zstd::open_blocks::{compress_to_open_blocks, OpenZstdBlocks};
use sszip_core::zstd::splice::{assemble_zstd_frame, ZstdFrameInput};
use sszip_core::zstd::{ZstdLevel, MAX_WINDOW_LOG, MAX_ZSTD_LEVEL};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::{decoded_zstd, json, noise};

/// Levels of each strategy of the library.
const STRATEGIES: [ZstdLevel; 11] = [1, 2, 3, 5, 7, 9, 12, 13, 16, 18, 19];

/// Distances of the matches at the start of texts: the offsets that the library assumes at the
/// start of a frame, and another one.
const DISTANCES: [usize; 4] = [1, 4, 8, 5];

/// Returns a text of exactly `length` bytes, whose first ones repeat at this distance.
fn repeating_start(distance: usize, length: usize) -> Vec<u8> {
    let mut text = b"abcdefgh"[..distance].repeat(64 / distance);
    text.extend(json(length));
    text.truncate(length);
    text
}

fn assemble(parts: &[ZstdFrameInput]) -> SlicedBody {
    assemble_zstd_frame(parts.iter().copied()).unwrap()
}

/// Returns the plain bytes of exactly one frame, after a decoder that receives it in pieces has
/// agreed on them.
fn decoded(body: &SlicedBody) -> Vec<u8> {
    let plain = decoded_zstd(body);
    let frame = body.to_vec();
    let window_log = 10 + u32::from(frame[5] >> 3);
    assert!((17..=MAX_WINDOW_LOG).contains(&window_log) && frame[5] & 7 == 0);
    let length = if frame.len() < 100_000 { 1 } else { 10_007 };
    assert!(decoded_in_pieces(&frame, length) == plain);
    plain
}

/// Decompresses one frame that arrives in pieces of `length` bytes.
fn decoded_in_pieces(frame: &[u8], length: usize) -> Vec<u8> {
    let mut context = DCtx::create();
    context
        .set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG))
        .unwrap();
    let (mut plain, mut buffer) = (Vec::new(), [0_u8; 8192]);
    let mut is_ended = false;
    for piece in frame.chunks(length) {
        assert!(!is_ended, "bytes after the frame");
        let mut input = InBuffer::around(piece);
        loop {
            let mut output = OutBuffer::around(&mut buffer[..]);
            let missing = context.decompress_stream(&mut output, &mut input).unwrap();
            let written = output.pos();
            plain.extend_from_slice(&buffer[..written]);
            is_ended = missing == 0;
            if is_ended || (written < buffer.len() && input.pos() == piece.len()) {
                break;
            }
        }
        assert_eq!(input.pos(), piece.len());
    }
    assert!(is_ended, "it ends early");
    plain
}

/// Asserts that blocks of both texts can precede and follow each other in any order.
fn check_movability(first: &[u8], second: &[u8], level: ZstdLevel) {
    let open = |text: &[u8]| compress_to_open_blocks(text, level).unwrap();
    let (a, b) = (open(first), open(second));
    assert_eq!(
        (a.length, b.length),
        (first.len() as u64, second.len() as u64)
    );
    let (before, between, after) = (&b"{\"id\":1,"[..], noise(300), &b"}"[..]);
    let (open_a, open_b) = (ZstdFrameInput::Open(&a), ZstdFrameInput::Open(&b));
    for (parts, expected) in [
        (vec![open_a], first.to_vec()),
        (
            vec![
                ZstdFrameInput::Text(before),
                open_a,
                ZstdFrameInput::Text(after),
            ],
            [before, first, after].concat(),
        ),
        (
            vec![
                open_a,
                open_b,
                open_b,
                ZstdFrameInput::Text(&between),
                open_a,
                open_b,
            ],
            [first, second, second, &between, first, second].concat(),
        ),
    ] {
        let (count, lengths) = (parts.len(), (first.len(), second.len()));
        assert!(
            decoded(&assemble(&parts)) == expected,
            "{count} parts of {lengths:?} bytes at level {level}"
        );
    }
}

#[test]
fn blocks_of_short_texts_can_follow_each_other_at_every_level() {
    for length in [0, 1, 7, 100, 2000, 70_000] {
        for (n, distance) in DISTANCES.into_iter().enumerate() {
            let first = repeating_start(distance, length);
            let second = repeating_start(DISTANCES[(n + 1) % DISTANCES.len()], length);
            for level in 1..=MAX_ZSTD_LEVEL {
                check_movability(&first, &second, level);
            }
        }
    }
}

#[test]
fn blocks_of_long_texts_can_follow_each_other_at_every_strategy() {
    for length in [131_071, 131_072, 131_073, 400_000] {
        for (n, level) in STRATEGIES.into_iter().enumerate() {
            let distance = |n: usize| DISTANCES[n % DISTANCES.len()];
            check_movability(
                &repeating_start(distance(n), length),
                &repeating_start(distance(n + 1), 3000),
                level,
            );
        }
    }
}

#[test]
fn blocks_with_long_windows_can_follow_others() {
    let long = repeating_start(4, 9 << 20);
    let text = repeating_start(1, 3000);
    for level in [1, 6, 17] {
        check_movability(&long, &text, level);
    }
}

#[test]
fn incompressible_blocks_can_follow_others() {
    for length in [1, 100, 131_071, 131_072, 131_073, 400_000] {
        for level in [1, 3, 9, 19] {
            let noise = noise(length);
            let open = compress_to_open_blocks(&noise, level).unwrap();
            assert!(open.bytes.len() <= length + length / 1000 + 16);
            check_movability(&noise, &repeating_start(1, 3000), level);
        }
    }
}

#[test]
fn text_of_any_length_becomes_raw_blocks() {
    for length in [
        1, 2, 65_536, 131_071, 131_072, 131_073, 262_144, 262_145, 400_000,
    ] {
        let (text, open) = (
            noise(length),
            compress_to_open_blocks(b"\"open\"", 1).unwrap(),
        );
        let body = assemble(&[ZstdFrameInput::Text(&text)]);
        assert_eq!(
            body.byte_length() as usize,
            10 + length + 3 * length.div_ceil(128 << 10)
        );
        assert!(decoded(&body) == text);
        let halves = text.split_at(length / 2);
        let body = assemble(&[
            ZstdFrameInput::Text(halves.0),
            ZstdFrameInput::Text(halves.1),
            ZstdFrameInput::Open(&open),
            ZstdFrameInput::Text(&text),
        ]);
        assert!(decoded(&body) == [&text[..], b"\"open\"", &text].concat());
    }
}

#[test]
fn frame_without_parts_is_a_header_and_an_empty_block() {
    let expected = [0x28, 0xB5, 0x2F, 0xFD, 0x80, 7 << 3, 0, 0, 0, 0, 1, 0, 0];
    let empty = compress_to_open_blocks(b"", 19).unwrap();
    for parts in [
        &[][..],
        &[ZstdFrameInput::Text(b"")],
        &[ZstdFrameInput::Open(&empty), ZstdFrameInput::Text(b"")],
    ] {
        let body = assemble(parts);
        assert_eq!(body.to_vec(), expected);
        assert!(decoded(&body).is_empty());
    }
}

#[test]
fn bytes_of_long_blocks_are_shared_with_the_frame() {
    let long = compress_to_open_blocks(&noise(20_000), 1).unwrap();
    let short = compress_to_open_blocks(&json(2000), 1).unwrap();
    let body = assemble(&[
        ZstdFrameInput::Text(b"["),
        ZstdFrameInput::Open(&long),
        ZstdFrameInput::Open(&short),
    ]);
    let is_shared = |open: &OpenZstdBlocks| {
        let start = open.bytes.as_ptr();
        body.body_slices().any(|slice| slice.as_ptr() == start)
    };
    assert!(is_shared(&long) && !is_shared(&short));
    assert_eq!(body.body_slices().count(), 3);
}

#[test]
fn unknown_levels_compress_no_blocks() {
    for level in [0, MAX_ZSTD_LEVEL + 1, 22, 255] {
        assert!(compress_to_open_blocks(b"text", level).is_none());
    }
}

/// A part of a frame: a text, or one that is compressed at a level.
#[derive(Clone, Debug)]
enum Part {
    Text(Vec<u8>),
    Open(Vec<u8>, ZstdLevel),
}

fn contents() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        "[0-9a-f\",:{}\\[\\] ]{0,2000}".prop_map(String::into_bytes),
        (1..9_usize, 0..5000_usize)
            .prop_map(|(distance, length)| repeating_start(distance, length)),
        (any::<u8>(), 0..140_000_usize).prop_map(|(byte, length)| vec![byte; length]),
        (0..30_000_usize).prop_map(json),
        (0..140_000_usize).prop_map(noise),
    ]
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let part = prop_oneof![
        contents().prop_map(Part::Text),
        (contents(), 1..=MAX_ZSTD_LEVEL).prop_map(|(text, level)| Part::Open(text, level)),
    ];
    prop::collection::vec(part, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn parts_in_any_order_become_one_frame(parts in parts()) {
        let opens: Vec<Option<OpenZstdBlocks>> = parts
            .iter()
            .map(|part| match part {
                Part::Text(_) => None,
                Part::Open(text, level) => Some(compress_to_open_blocks(text, *level).unwrap()),
            })
            .collect();
        let inputs: Vec<ZstdFrameInput> = parts
            .iter()
            .zip(&opens)
            .map(|(part, open)| match (part, open) {
                (_, Some(open)) => ZstdFrameInput::Open(open),
                (Part::Text(text) | Part::Open(text, _), None) => ZstdFrameInput::Text(text),
            })
            .collect();
        let expected: Vec<u8> = parts
            .iter()
            .flat_map(|part| match part {
                Part::Text(text) | Part::Open(text, _) => text.clone(),
            })
            .collect();
        prop_assert!(decoded(&assemble(&inputs)) == expected);
    }
}
