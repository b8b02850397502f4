//! One-shot compression of a body to one zstd frame.

use super::limits::{ZstdLevel, MAX_ZSTD_LEVEL};
use super::pool::run_with_pooled_context;
use crate::faults::{is_fault_injected, panic_if_injected, InjectedTestFault};
use crate::gzip::oneshot::OneshotError;
use crate::memory::release_unused_capacity;

/// Compresses `body` to a zstd frame shorter than `limit` bytes in `output`, which is empty and may
/// have capacity.
///
/// The header of the frame has the length of the body; there is no checksum. `output` owns exactly
/// the memory of its length afterwards. A frame that would be a few bytes shorter than `limit` may
/// be refused, too.
///
/// # Errors
/// [`OneshotError`]; the body is unchanged.
pub fn zstd_oneshot_into(
    body: &[u8],
    level: ZstdLevel,
    limit: usize,
    mut output: Vec<u8>,
) -> Result<Vec<u8>, OneshotError> {
    if !(1..=MAX_ZSTD_LEVEL).contains(&level) {
        return Err(OneshotError::Level(level));
    }
    panic_if_injected(InjectedTestFault::PanicCompress);
    if is_fault_injected(InjectedTestFault::FailCompress) {
        return Err(OneshotError::OutOfMemory);
    }
    let room = limit.saturating_sub(1);
    output.clear();
    output
        .try_reserve_exact(room)
        .map_err(|_| OneshotError::OutOfMemory)?;
    let fits = run_with_pooled_context(|context| context.compress_frame(body, level, &mut output))
        .ok_or(OneshotError::OutOfMemory)?;
    if !fits || output.len() > room {
        return Err(OneshotError::NotSmaller);
    }
    release_unused_capacity(&mut output);
    Ok(output)
}

/// Returns a `limit` for [`zstd_oneshot_into`] that every compressed form of `length` bytes stays
/// below: more than `ZSTD_compressBound`, which is also the room that open blocks need.
pub fn zstd_compressed_bound(length: usize) -> usize {
    // blocks of 128 KiB, and a margin for shorter bodies
    let margin = (128_usize << 10).saturating_sub(length) >> 11;
    length
        .saturating_add(length >> 8)
        .saturating_add(margin)
        .saturating_add(1)
}

/// Returns the length in bytes beyond which a body is compressed off the event loop: 1 to 3 ms.
pub(crate) fn zstd_off_loop_min_length(level: ZstdLevel) -> usize {
    match level {
        0..=2 => 512 << 10,
        3..=6 => 128 << 10,
        7..=12 => 32 << 10,
        _ => 8 << 10,
    }
}

#[cfg(test)]
mod tests {
    use super::{zstd_compressed_bound, zstd_oneshot_into, OneshotError};
    use crate::zstd::{decompress_zstd, MAX_ZSTD_LEVEL};

    fn compress(body: &[u8], level: u8, limit: usize) -> Result<Vec<u8>, OneshotError> {
        zstd_oneshot_into(body, level, limit, Vec::new())
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let random = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        random.take(length).collect()
    }

    #[test]
    fn compressed_body_is_restored_at_every_level() {
        let body: Vec<u8> = (0..200_000_u32)
            .flat_map(|n| (n / 7).to_be_bytes())
            .collect();
        for level in 1..=MAX_ZSTD_LEVEL {
            let frame = compress(&body, level, zstd_compressed_bound(body.len())).unwrap();
            assert!(frame.len() < body.len() && frame.capacity() == frame.len());
            assert!(
                decompress_zstd(&frame, body.len(), |_| true).unwrap() == body,
                "level {level}"
            );
            assert_eq!(
                zstd_safe::get_frame_content_size(&frame).unwrap(),
                Some(body.len() as u64)
            );
        }
    }

    #[test]
    fn body_that_would_not_shrink_is_refused() {
        assert_eq!(compress(b"abc", 1, 3), Err(OneshotError::NotSmaller));
        assert_eq!(compress(b"", 1, 0), Err(OneshotError::NotSmaller));
        let body = noise(5000);
        assert_eq!(
            compress(&body, 3, body.len()),
            Err(OneshotError::NotSmaller)
        );
        let body: Vec<u8> = (0..20_000_u32)
            .flat_map(|n| (n / 7).to_be_bytes())
            .collect();
        let frame = compress(&body, 1, body.len()).unwrap();
        assert_eq!(
            compress(&body, 1, frame.len()),
            Err(OneshotError::NotSmaller)
        );
        // the library needs some bytes more than it writes
        assert_eq!(compress(&body, 1, frame.len() + 64), Ok(frame));
    }

    #[test]
    fn reused_output_owns_the_memory_of_its_length() {
        let body = b"0123456789".repeat(1000);
        let mut output = Vec::with_capacity(1 << 20);
        output.extend_from_slice(b"of another body");
        let frame = zstd_oneshot_into(&body, 1, body.len(), output).unwrap();
        assert_eq!(frame.capacity(), frame.len());
        assert_eq!(decompress_zstd(&frame, body.len(), |_| true), Ok(body));
    }

    #[test]
    fn compressed_body_is_below_its_bound() {
        for length in (0..300).chain([4999, 65_536, 131_071, 131_072, 131_073, 1 << 20]) {
            let body = noise(length);
            for level in [1, 3, 9, 16, 19] {
                let frame = compress(&body, level, zstd_compressed_bound(length)).unwrap();
                assert!(
                    decompress_zstd(&frame, length, |_| true).unwrap() == body,
                    "{length} bytes at level {level}"
                );
            }
        }
        for length in [0, 1, 100, 131_071, 131_072, 131_073, 9 << 20] {
            let bound = zstd_safe::compress_bound(length);
            assert_eq!(zstd_compressed_bound(length), bound + 1);
        }
        assert_eq!(zstd_compressed_bound(usize::MAX), usize::MAX);
    }

    #[test]
    fn levels_may_alternate_and_an_unknown_level_is_an_error() {
        for level in [1, 9, 1, 19, 3, 1] {
            let frame = compress(&[7; 5000], level, zstd_compressed_bound(5000)).unwrap();
            assert_eq!(decompress_zstd(&frame, 5000, |_| true), Ok(vec![7; 5000]));
        }
        for level in [0, 20, 22, 255] {
            assert_eq!(compress(b"", level, 100), Err(OneshotError::Level(level)));
        }
    }
}
