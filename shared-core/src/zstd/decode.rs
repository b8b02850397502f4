//! Decompression of complete zstd bodies (RFC 8878) into a limited output, with the C library.
//!
//! The output has room for the whole body, so that it is its own window: a frame takes the
//! memory of its decompressed length and no more. Windows beyond 8 MiB are refused all the same:
//! RFC 9659 allows none in a content coding, and other decoders could not read what a proxy passed
//! on.
//!
//! Dictionaries are not supported: the content coding `zstd` has none.

use zstd_safe::zstd_sys::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall;
use zstd_safe::{
    decompress_bound, find_decompressed_size, find_frame_compressed_size, DCtx, DParameter,
    ErrorCode, InBuffer, OutBuffer,
};

use super::context::read_frame_header;
use super::limits::MAX_WINDOW_LOG;
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
    check_window_lengths(compressed)?;
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

/// Maximum memory of the library for a truncated stream in bytes: the longest window, and its own
/// buffers.
const STREAM_MEMORY_BYTES: usize = (1 << MAX_WINDOW_LOG) + (512 << 10);

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
    // the library limits only windows that it has to allocate
    check_window_lengths(compressed)?;
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

/// Returns [`InflateError::Bad`] if a frame requires a longer window than RFC 9659 allows. The
/// check ends at the first damaged or truncated frame, which decompression reports.
fn check_window_lengths(compressed: &[u8]) -> Result<(), InflateError> {
    let mut rest = compressed;
    while let Some(header) = read_frame_header(rest) {
        if !header.is_skippable && header.window_length > 1 << MAX_WINDOW_LOG {
            return Err(InflateError::Bad);
        }
        let Some(following) = find_frame_compressed_size(rest)
            .ok()
            .and_then(|length| rest.get(length..))
        else {
            break;
        };
        rest = following;
    }
    Ok(())
}

/// Highest ratio of decompressed to compressed bytes: a block of 128 KiB that repeats one byte
/// takes four bytes.
const MAX_RATIO: usize = (128 << 10) / 4;

/// Returns the sum of the lengths that the frames declare for their content, limited to the highest
/// ratio of the format. `None` if a frame declares none or is damaged. Decompression may disprove
/// it.
pub fn declared_content_length(compressed: &[u8]) -> Option<usize> {
    let claimed = find_decompressed_size(compressed).ok()??;
    let most = compressed.len().saturating_mul(MAX_RATIO);
    Some(usize::try_from(claimed).map_or(most, |claimed| claimed.min(most)))
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
        declared_content_length, decompress_truncated_zstd, decompress_zstd, DCtx, InflateError,
        CONTEXT_MEMORY_BYTES, MAX_RATIO,
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
    fn declared_lengths_allocate_nothing() {
        let block = [(3 << 3) | 1, 0, 0, b'a', b'b', b'c'];
        // a window of 8 MiB, which the output replaces
        let small = [&[0x28, 0xB5, 0x2F, 0xFD, 0x00, 13 << 3], &block[..]].concat();
        // a window of 1 MiB and a length of 16 TB
        let long = [0, 0, 0, 0, 0, 0x10, 0, 0];
        let long = [&[0x28, 0xB5, 0x2F, 0xFD, 0xC0, 10 << 3], &long[..], &block].concat();
        for (compressed, expected) in [(small, Ok(b"abc".to_vec())), (long, Err(InflateError::Bad))]
        {
            let mut most = 0;
            let decoded = decompress_zstd(&compressed, CAP, |length| {
                most = most.max(length);
                true
            });
            assert_eq!(decoded, expected);
            assert!(most <= 1000 + CONTEXT_MEMORY_BYTES, "{most}");
        }
    }

    /// Returns a frame of `abc` with this descriptor and the fields that it announces.
    fn frame_with_fields(descriptor: u8, fields: &[u8]) -> Vec<u8> {
        let block = [(3 << 3) | 1, 0, 0, b'a', b'b', b'c'];
        [&[0x28, 0xB5, 0x2F, 0xFD, descriptor], fields, &block[..]].concat()
    }

    #[test]
    fn windows_beyond_eight_mebibytes_are_an_error() {
        let window = |descriptor: u8| frame_with_fields(0x00, &[descriptor]);
        let abc = Ok(b"abc".to_vec());
        let truncated = |compressed: &[u8]| decompress_truncated_zstd(compressed, CAP, |_| true);
        for allowed in [0, 7 << 3, (12 << 3) | 7, 13 << 3] {
            assert_eq!(decode(&window(allowed)), abc, "{allowed}");
            assert_eq!(truncated(&window(allowed)), abc, "{allowed}");
        }
        // 9 MiB, 16 MiB, 2 GiB less an eighth, and more than the library can address
        for refused in [(13 << 3) | 1, 14 << 3, 0xA7, 0xFF] {
            let alone = window(refused);
            let behind = [&compress(b"first", true)[..], &window(refused)].concat();
            let skipped = [0x50, 0x2A, 0x4D, 0x18, 1, 0, 0, 0, b'x'];
            let behind_skipped = [&skipped[..], &window(refused)].concat();
            for compressed in [&alone, &behind, &behind_skipped] {
                assert_eq!(decode(compressed), Err(InflateError::Bad), "{refused}");
                for cut in [compressed.len(), compressed.len() - 3] {
                    assert_eq!(
                        truncated(&compressed[..cut]),
                        Err(InflateError::Bad),
                        "{refused}"
                    );
                }
            }
        }
    }

    #[test]
    fn single_segment_is_its_window() {
        for (length, is_allowed) in [(9 << 20, false), ((8 << 20) + 1, false), (8 << 20, true)] {
            let body = vec![b'0'; length];
            let frame = zstd::bulk::compress(&body, 1).unwrap();
            // the length in four bytes behind a window, which is removed
            assert_eq!(frame[4], 0x80);
            let frame = [&frame[..4], &[0x80 | 0x20], &frame[6..]].concat();
            let truncated = decompress_truncated_zstd(&frame, 10 << 20, |_| true);
            let whole = decompress_zstd(&frame, 10 << 20, |_| true);
            match is_allowed {
                true => assert!(whole.as_ref() == Ok(&body) && truncated == Ok(body)),
                false => {
                    assert!(whole == Err(InflateError::Bad));
                    assert!(truncated == Err(InflateError::Bad));
                }
            }
        }
    }

    #[test]
    fn declared_length_is_the_sum_of_all_frames() {
        let skipped = [0x50, 0x2A, 0x4D, 0x18, 1, 0, 0, 0, b'x'];
        let sized = compress(&[b'a'; 1000], true);
        let unsized_frame = compress(&[b'a'; 1000], false);
        let three = [&sized[..], &skipped, &sized, &sized].concat();
        assert_eq!(declared_content_length(&sized), Some(1000));
        assert_eq!(declared_content_length(&three), Some(3000));
        for none in [
            &unsized_frame[..],
            &[&sized[..], &unsized_frame].concat(),
            &sized[..sized.len() - 1],
            b"{\"jsonrpc\"",
        ] {
            assert_eq!(declared_content_length(none), None);
        }
        // 16 TB in three bytes
        let long = frame_with_fields(0xE0, &[0, 0, 0, 0, 0, 0x10, 0, 0]);
        assert_eq!(declared_content_length(&long), Some(long.len() * MAX_RATIO));
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
