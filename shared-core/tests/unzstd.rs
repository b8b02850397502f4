//! What zstd has coded, decoded; and what nobody has.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::io::Write;

use proptest::prelude::*;
use sszip_core::gzip::inflate::InflateError;
use sszip_core::zstd::unzstd;
use zstd::stream::Encoder;

const CAP: usize = 8 << 20;

fn decode(coded: &[u8]) -> Result<Vec<u8>, InflateError> {
    unzstd(coded, CAP, |_| true)
}

/// How a client may code a body.
#[derive(Clone, Copy, Debug)]
struct Settings {
    level: i32,
    checksum: bool,
    /// The frame says how long its content is.
    sized: bool,
    long: bool,
    /// It is flushed after so many bytes, each time.
    flush: usize,
}

const PLAIN: Settings = Settings {
    level: 3,
    checksum: true,
    sized: true,
    long: false,
    flush: usize::MAX,
};

fn code(body: &[u8], settings: Settings) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), settings.level).unwrap();
    encoder.include_checksum(settings.checksum).unwrap();
    if settings.long {
        encoder.long_distance_matching(true).unwrap();
        encoder.window_log(27).unwrap();
    }
    if settings.sized {
        encoder
            .set_pledged_src_size(Some(body.len() as u64))
            .unwrap();
    }
    for piece in body.chunks(settings.flush.min(body.len()).max(1)) {
        encoder.write_all(piece).unwrap();
        if settings.flush < body.len() {
            encoder.flush().unwrap();
        }
    }
    encoder.finish().unwrap()
}

/// The same numbers in every run.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

/// Bodies of each kind: copies near and far, few and many symbols, nothing to gain.
fn bodies() -> Vec<Vec<u8>> {
    let mut next = random(1);
    let hex = |count: usize, next: &mut dyn FnMut() -> u64| {
        (0..count)
            .map(|_| b"0123456789abcdef"[(next() & 15) as usize])
            .collect::<Vec<u8>>()
    };
    let mut json = b"[".to_vec();
    for number in 0..3000 {
        let hash = hex(64, &mut next);
        json.extend_from_slice(format!("{{\"number\":\"0x{number:x}\",\"hash\":\"0x").as_bytes());
        json.extend_from_slice(&hash);
        json.extend_from_slice(b"\"},");
    }
    let noise: Vec<u8> = (0..300_000).map(|_| next() as u8).collect();
    let mut far = noise.clone();
    far.extend_from_slice(&noise);
    let skewed: Vec<u8> = (0..200_000)
        .map(|_| (next() & next() & next() & 0x3F) as u8)
        .collect();
    let mut bodies = vec![
        json,
        far,
        skewed,
        vec![0; 1_000_000],
        b"abcabcabd".repeat(40_000),
        hex(400_000, &mut next),
        (0..=255).cycle().take(70_000).collect(),
        noise[..131_072].to_vec(),
    ];
    // each length of a header, and of a literal section
    for length in (0..40).chain([
        255, 256, 257, 1023, 1024, 1025, 4096, 65_535, 65_792, 131_071,
    ]) {
        bodies.push(bodies[0][..length].to_vec());
    }
    bodies
}

#[test]
fn what_was_coded_comes_back() {
    for body in &bodies() {
        for level in [-7, -1, 1, 2, 3, 5, 7, 9, 12, 15, 17, 19] {
            let settings = Settings { level, ..PLAIN };
            assert!(decode(&code(body, settings)).unwrap() == *body, "{level}");
        }
        for settings in [
            Settings {
                checksum: false,
                ..PLAIN
            },
            Settings {
                sized: false,
                ..PLAIN
            },
            Settings {
                long: true,
                sized: false,
                ..PLAIN
            },
            Settings {
                flush: 5_000,
                ..PLAIN
            },
        ] {
            let coded = code(body, settings);
            assert!(decode(&coded).unwrap() == *body, "{settings:?}");
        }
    }
}

#[test]
fn several_frames_are_one_body_and_some_are_nothing() {
    let skipped = |kind: u8, content: &[u8]| {
        let length = (content.len() as u32).to_le_bytes();
        [&[0x50 | kind, 0x2A, 0x4D, 0x18], &length[..], content].concat()
    };
    let coded = [
        skipped(0, b"anything"),
        code(b"first ", PLAIN),
        code(b"", PLAIN),
        skipped(15, b""),
        // nothing before the frame is its own
        code(b"first second", PLAIN),
    ]
    .concat();
    assert_eq!(decode(&coded).unwrap(), b"first first second");
    assert_eq!(decode(&skipped(3, b"x")).unwrap(), b"");
    assert_eq!(decode(&skipped(3, b"x")[..8]), Err(InflateError::Bad));
}

#[test]
fn the_cap_holds_whatever_the_head_says() {
    for sized in [true, false] {
        let settings = Settings { sized, ..PLAIN };
        let coded = code(&vec![0; 100_000], settings);
        assert_eq!(unzstd(&coded, 100_000, |_| true).unwrap().len(), 100_000);
        assert_eq!(
            unzstd(&coded, 99_999, |_| true),
            Err(InflateError::TooLarge)
        );
        let mut most = 0;
        let all = unzstd(&coded, 1 << 30, |length| {
            most = most.max(length);
            true
        });
        assert_eq!(all.unwrap().len(), 100_000);
        // and the literals of a block
        assert!(most <= 2 * 100_000 + (128 << 10), "{most}");
        for refused in [0, most / 2, most - 1] {
            let taken = unzstd(&coded, 1 << 30, |length| length <= refused);
            assert_eq!(taken, Err(InflateError::OutOfMemory));
        }
    }
    // a window of gigabytes takes nothing
    let mut small = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xA7];
    small.extend_from_slice(&[(3 << 3) | 1, 0, 0, b'a', b'b', b'c']);
    assert_eq!(unzstd(&small, 3, |_| true).unwrap(), b"abc");
    // a length of exabytes
    let mut long = vec![0x28, 0xB5, 0x2F, 0xFD, 0xE0];
    long.extend_from_slice(&[0xFF; 8]);
    long.extend_from_slice(&[(3 << 3) | 1, 0, 0, b'a', b'b', b'c']);
    assert_eq!(unzstd(&long, CAP, |_| true), Err(InflateError::TooLarge));
}

/// A block has 128 KiB at most: what says that it has more takes no more.
#[test]
fn a_block_is_no_bomb() {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x70];
    // 32,000 times a literal and 34 bytes like it: symbols of one table each that take
    // no bits, so that the bitstream is its mark alone
    let block = [
        &(32_000_u32 << 4 | 0b1101).to_le_bytes()[..3],
        b"a",
        &[0x80 | 0x7D, 0x00, 0b0101_0100],
        &[1, 0, 31],
        &[1],
    ]
    .concat();
    let header = ((block.len() as u32) << 3 | 2 << 1 | 1).to_le_bytes();
    frame.extend_from_slice(&header[..3]);
    frame.extend_from_slice(&block);
    let mut most = 0;
    let decoded = unzstd(&frame, 1 << 40, |length| {
        most = most.max(length);
        true
    });
    assert_eq!(decoded, Err(InflateError::Bad));
    assert!(most <= 3 * (128 << 10), "{most}");
}

#[test]
fn damage_is_an_error() {
    let body = &bodies()[0][..20_000];
    let coded = code(body, PLAIN);
    for none in [&b""[..], b"{\"jsonrpc\"", &coded[1..]] {
        assert_eq!(decode(none), Err(InflateError::Bad));
    }
    for cut in 0..coded.len() {
        assert_eq!(decode(&coded[..cut]), Err(InflateError::Bad), "{cut}");
    }
    for more in [&b"x"[..], b"\0\0\0\0", &coded[..3]] {
        assert_eq!(decode(&[&coded[..], more].concat()), Err(InflateError::Bad));
    }
    let short = code(&body[..2_000], PLAIN);
    for (at, bit) in (0..short.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut flipped = short.clone();
        flipped[at] ^= 1 << bit;
        if let Ok(decoded) = decode(&flipped) {
            // another window, or no checksum
            assert!(decoded == body[..2_000], "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn dictionaries_are_not_known() {
    let samples: Vec<Vec<u8>> = (0..200)
        .map(|n| format!("{{\"number\":{n},\"hash\":\"0x{n:064x}\"}}").into_bytes())
        .collect();
    let dictionary = zstd::dict::from_samples(&samples, 2000).unwrap();
    let mut encoder = Encoder::with_dictionary(Vec::new(), 3, &dictionary).unwrap();
    encoder.write_all(&samples[7]).unwrap();
    assert_eq!(decode(&encoder.finish().unwrap()), Err(InflateError::Bad));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_breaks_it(
        body in prop::collection::vec(0..20_u8, 0..3000),
        level in -5..19_i32,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cap in 0..4000_usize,
    ) {
        let settings = Settings { level, checksum: false, ..PLAIN };
        let mut coded = code(&body, settings);
        if edits.is_empty() {
            prop_assert_eq!(decode(&coded), Ok(body.clone()));
        }
        for (at, byte) in edits {
            let at = at.index(coded.len());
            coded[at] = byte;
        }
        let mut ours = unzstd(&coded, cap, |_| true);
        if let Ok(ours) = &ours {
            prop_assert!(ours.len() <= cap);
        }
        // what the other one takes for whole is the same
        if ours == Err(InflateError::TooLarge) {
            ours = decode(&coded);
        }
        if let (Ok(ours), Ok(theirs)) = (ours, zstd::bulk::decompress(&coded, CAP)) {
            prop_assert_eq!(ours, theirs);
        }
    }
}
