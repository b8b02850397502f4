//! Decompression of complete zstd bodies (RFC 8878) into a limited output, with the C library.
//!
//! The output has room for the whole body, so that it is its own window: a frame takes the
//! memory of its decompressed length and no more, whatever window it declares.
//!
//! Dictionaries are not supported: the content coding `zstd` has none.

use zstd_safe::zstd_sys::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall;
use zstd_safe::{decompress_bound, DCtx, DParameter, ErrorCode, InBuffer, OutBuffer};

use crate::gzip::inflate::{grow_inflate_output, InflateError};
use crate::memory::release_unused_capacity;

/// Maximum memory of the library in addition to the output: tables, and the literals of one
/// block. Bytes.
const CONTEXT_MEMORY_BYTES: usize = 128 << 10;

/// Decompresses all frames of `compressed` (RFC 8878, section 3.1) into at most `cap` bytes;
/// `may_take` is called with the total length before memory is allocated.
///
/// # Errors
/// [`InflateError`]; the input is unchanged.
pub fn decompress_zstd(
    compressed: &[u8],
    cap: usize,
    mut may_take: impl FnMut(usize) -> bool,
) -> Result<Vec<u8>, InflateError> {
    if compressed.is_empty() {
        return Err(InflateError::Bad);
    }
    // the declared length of the frames, or the maximum length of their blocks
    let claimed = decompress_bound(compressed).map_err(|_| InflateError::Bad)?;
    let claimed = usize::try_from(claimed).unwrap_or(usize::MAX);
    let most = claimed.min(cap);
    let mut may_take = |room: usize| match may_take(room.saturating_add(CONTEXT_MEMORY_BYTES)) {
        true => Ok(()),
        false => Err(InflateError::OutOfMemory),
    };
    // declared lengths are not trusted: a few bytes may declare any length
    let mut room = compressed.len().saturating_mul(8).min(most);
    may_take(room)?;
    let mut context = DCtx::try_create().ok_or(InflateError::OutOfMemory)?;
    loop {
        let mut body = Vec::new();
        body.try_reserve_exact(room)
            .map_err(|_| InflateError::OutOfMemory)?;
        match context.decompress(&mut body, compressed) {
            Ok(_) => {
                release_unused_capacity(&mut body);
                return Ok(body);
            }
            Err(code) if !is_output_too_small(code) => return Err(InflateError::Bad),
            Err(_) if room < most => {
                room = room.saturating_mul(2).min(most);
                may_take(room)?;
            }
            Err(_) if most < claimed => return Err(InflateError::TooLarge),
            Err(_) => return Err(InflateError::Bad),
        }
    }
}

/// Longest window of a truncated stream in bytes. RFC 9659 allows no longer one in a content
/// coding. [`STREAM_MEMORY_BYTES`] adds the library's own buffers.
const MAX_WINDOW_BYTES: usize = 8 << 20;
const MAX_WINDOW_LOG: u32 = 23;
const STREAM_MEMORY_BYTES: usize = MAX_WINDOW_BYTES + (512 << 10);

/// Decompresses the available part of truncated frames into at most `cap` bytes; `may_take` is
/// called with the total length before memory is allocated.
///
/// # Errors
/// The errors of [`decompress_zstd`]; [`InflateError::Bad`] if the body is damaged and not only
/// truncated.
pub fn decompress_truncated_zstd(
    compressed: &[u8],
    cap: usize,
    mut may_take: impl FnMut(usize) -> bool,
) -> Result<Vec<u8>, InflateError> {
    let mut context = DCtx::try_create().ok_or(InflateError::OutOfMemory)?;
    context
        .set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG))
        .map_err(|_| InflateError::Bad)?;
    let mut input = InBuffer::around(compressed);
    let (mut body, mut length) = (Vec::new(), 0);
    loop {
        grow_inflate_output(&mut body, length, compressed.len(), cap, |room| {
            may_take(room.saturating_add(STREAM_MEMORY_BYTES))
        })?;
        let read = input.pos();
        let mut output = OutBuffer::around_pos(&mut body[..], length);
        let done = context.decompress_stream(&mut output, &mut input);
        let wrote = output.pos() - length;
        done.map_err(|_| InflateError::Bad)?;
        length += wrote;
        if length < body.len() && input.pos() == compressed.len() {
            break;
        }
        if length < body.len() && wrote == 0 && input.pos() == read {
            return Err(InflateError::Bad);
        }
    }
    body.truncate(length);
    release_unused_capacity(&mut body);
    Ok(body)
}

/// Whether the output has no room for the decompressed bytes.
fn is_output_too_small(code: ErrorCode) -> bool {
    code.wrapping_neg() == ZSTD_error_dstSize_tooSmall as usize
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use zstd::stream::Encoder;

    use super::{
        decompress_truncated_zstd, decompress_zstd, DCtx, InflateError, CONTEXT_MEMORY_BYTES,
    };

    const CAP: usize = 8 << 20;

    fn decode(compressed: &[u8]) -> Result<Vec<u8>, InflateError> {
        decompress_zstd(compressed, CAP, |_| true)
    }

    /// Compresses a body as clients do that know its length, or as clients that send it in
    /// pieces.
    fn compress(body: &[u8], is_sized: bool) -> Vec<u8> {
        let mut encoder = Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        if is_sized {
            let length = Some(body.len() as u64);
            encoder.set_pledged_src_size(length).unwrap();
        }
        for piece in body.chunks(5000) {
            encoder.write_all(piece).unwrap();
            if !is_sized {
                encoder.flush().unwrap();
            }
        }
        encoder.finish().unwrap()
    }

    #[test]
    fn frames_are_joined_to_one_body_and_skippable_frames_are_ignored() {
        let skipped = |kind: u8, content: &[u8]| {
            let length = (content.len() as u32).to_le_bytes();
            [&[0x50 | kind, 0x2A, 0x4D, 0x18], &length[..], content].concat()
        };
        let compressed = [
            skipped(0, b"anything"),
            compress(b"first ", true),
            compress(b"", true),
            skipped(15, b""),
            // no frame refers to the frame before it
            compress(b"first second", false),
        ]
        .concat();
        assert_eq!(decode(&compressed).unwrap(), b"first first second");
        assert_eq!(decode(&skipped(3, b"x")).unwrap(), b"");
        assert_eq!(decode(&skipped(3, b"x")[..8]), Err(InflateError::Bad));
    }

    #[test]
    fn decompression_allocates_no_more_than_the_caller_allows() {
        for is_sized in [true, false] {
            let compressed = compress(&vec![0; 100_000], is_sized);
            let mut requested = Vec::new();
            let taken = decompress_zstd(&compressed, 1 << 30, |length| {
                requested.push(length);
                true
            });
            assert_eq!(taken.unwrap().len(), 100_000);
            let most = *requested.last().unwrap();
            assert!(
                requested.is_sorted() && most <= 2 * 100_000 + CONTEXT_MEMORY_BYTES,
                "{most}"
            );
            for most in requested {
                let refused = decompress_zstd(&compressed, 1 << 30, |length| length < most);
                assert_eq!(refused, Err(InflateError::OutOfMemory));
            }
        }
        assert!(DCtx::create().sizeof() <= CONTEXT_MEMORY_BYTES);
    }

    #[test]
    fn declared_windows_and_lengths_allocate_nothing() {
        let block = [(3 << 3) | 1, 0, 0, b'a', b'b', b'c'];
        // a window of 2 GB less an eighth
        let small = [&[0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xA7], &block[..]].concat();
        assert_eq!(decode(&small).unwrap(), b"abc");
        // a length of 16 TB
        let long = [0, 0, 0, 0, 0, 0x10, 0, 0];
        let long = [&[0x28, 0xB5, 0x2F, 0xFD, 0xE0], &long[..], &block].concat();
        let mut most = 0;
        let decoded = decompress_zstd(&long, CAP, |length| {
            most = most.max(length);
            true
        });
        assert_eq!(decoded, Err(InflateError::Bad));
        assert!(most <= 1000 + CONTEXT_MEMORY_BYTES, "{most}");
    }

    #[test]
    fn damaged_body_is_an_error() {
        let body: Vec<u8> = (0..2000_u32)
            .map(|n| b"0123456789abcdef"[(n * n / 7 % 16) as usize])
            .collect();
        let compressed = compress(&body, true);
        for none in [&b""[..], b"{\"jsonrpc\"", &compressed[1..]] {
            assert_eq!(decode(none), Err(InflateError::Bad));
        }
        for cut in 0..compressed.len() {
            assert_eq!(decode(&compressed[..cut]), Err(InflateError::Bad), "{cut}");
        }
        for more in [&b"x"[..], b"\0\0\0\0", &compressed[..3]] {
            assert_eq!(
                decode(&[&compressed[..], more].concat()),
                Err(InflateError::Bad)
            );
        }
        for (at, bit) in (0..compressed.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut flipped = compressed.clone();
            flipped[at] ^= 1 << bit;
            if let Ok(decoded) = decode(&flipped) {
                // another window, or no checksum
                assert!(decoded == body, "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn beginning_of_a_truncated_body_is_decompressed() {
        let body: Vec<u8> = (0..20_000_u32).map(|n| (n * n / 7 % 251) as u8).collect();
        for is_sized in [true, false] {
            let compressed = [compress(&body, is_sized), compress(b"end", true)].concat();
            let all = [&body[..], b"end"].concat();
            let mut longest = 0;
            for cut in 0..=compressed.len() {
                let beginning =
                    decompress_truncated_zstd(&compressed[..cut], CAP, |_| true).unwrap();
                assert!(all.starts_with(&beginning), "cut at {cut}");
                longest = longest.max(beginning.len());
            }
            assert_eq!(longest, all.len());
            let of = |compressed: &[u8], cap: usize| {
                decompress_truncated_zstd(compressed, cap, |_| true)
            };
            assert_eq!(of(&compressed, all.len() - 1), Err(InflateError::TooLarge));
            assert_eq!(
                of(&[&compressed[..], b"more"].concat(), CAP),
                Err(InflateError::Bad)
            );
            let refused = decompress_truncated_zstd(&compressed, CAP, |_| false);
            assert_eq!(refused, Err(InflateError::OutOfMemory));
        }
        // a window of 2 GB less an eighth
        let window = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xA7, (3 << 3) | 1, 0, 0, b'a'];
        assert_eq!(
            decompress_truncated_zstd(&window, CAP, |_| true),
            Err(InflateError::Bad)
        );
    }

    #[test]
    fn body_with_a_dictionary_is_an_error() {
        let samples: Vec<Vec<u8>> = (0..200)
            .map(|n| format!("{{\"number\":{n},\"hash\":\"0x{n:064x}\"}}").into_bytes())
            .collect();
        let dictionary = zstd::dict::from_samples(&samples, 2000).unwrap();
        let mut encoder = Encoder::with_dictionary(Vec::new(), 3, &dictionary).unwrap();
        encoder.write_all(&samples[7]).unwrap();
        assert_eq!(decode(&encoder.finish().unwrap()), Err(InflateError::Bad));
    }

    proptest! {
        #[test]
        fn body_is_restored_if_it_fits_into_the_cap(
            part in prop::collection::vec(0..20_u8, 0..3000),
            times in 1..200_usize,
            is_sized: bool,
            cap in 0..400_000_usize,
        ) {
            let body = part.repeat(times);
            let compressed = compress(&body, is_sized);
            prop_assert!(decode(&compressed).as_ref() == Ok(&body));
            let capped = decompress_zstd(&compressed, cap, |_| true);
            match body.len() <= cap {
                true => prop_assert!(capped == Ok(body)),
                false => prop_assert_eq!(capped, Err(InflateError::TooLarge)),
            }
        }
    }
}
