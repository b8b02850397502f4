//! One-shot compression of a body to one gzip member.

use super::compressor_pool::run_with_pooled_compressor;
use super::crc::crc32;
use super::format::{EMPTY_FINAL_BLOCK, MEMBER_HEADER, TRAILER_LENGTH};
use super::libdeflate::MAX_LEVEL;
use crate::faults::{is_fault_injected, panic_if_injected, InjectedTestFault};
use crate::memory::release_unused_capacity;

/// The reason why a body was not compressed. The original is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneshotError {
    /// The compressed form would be as long as `limit` or longer.
    NotSmaller,
    /// Memory for the compressor or its output was refused.
    OutOfMemory,
    /// There is no such level.
    Level(u8),
}

/// Length of an empty final block, the checksum and the length field. Bytes.
const MEMBER_TAIL_LENGTH: usize = EMPTY_FINAL_BLOCK.len() + TRAILER_LENGTH;

/// Compresses `body` to a gzip member shorter than `limit` bytes in `output`, which is empty and
/// may have capacity.
///
/// Levels are libdeflate's, 0 (stored) to 12; level 1 is igzip's if that is installed, in a
/// third of the time for about the same size. `output` owns exactly the memory of its length
/// afterwards. The bytes may differ between machines: never compare them with recorded ones.
///
/// # Errors
/// [`OneshotError`]; the body is unchanged.
pub fn gzip_oneshot_into(
    body: &[u8],
    level: u8,
    limit: usize,
    mut output: Vec<u8>,
) -> Result<Vec<u8>, OneshotError> {
    if level > MAX_LEVEL {
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
    if level == 1 && compress_with_igzip(body, room, &mut output) {
        release_unused_capacity(&mut output);
        return Ok(output);
    }
    output.clear();
    let fits = run_with_pooled_compressor(level, |compressor| {
        compressor.compress_gzip_member(body, &mut output)
    })
    .ok_or(OneshotError::OutOfMemory)?;
    if !fits || output.len() > room {
        return Err(OneshotError::NotSmaller);
    }
    release_unused_capacity(&mut output);
    Ok(output)
}

/// Compresses a body with igzip to a member. `false`, with undefined `output`, without the library,
/// or if the member would be longer than `room` bytes.
fn compress_with_igzip(body: &[u8], room: usize, output: &mut Vec<u8>) -> bool {
    // the limit leaves room for the end, because most bodies stay far below it
    output.extend_from_slice(&MEMBER_HEADER);
    if !super::igzip_raw::deflate_with_igzip(body, output)
        || output.len() + MEMBER_TAIL_LENGTH > room
    {
        return false;
    }
    output.extend_from_slice(&EMPTY_FINAL_BLOCK);
    output.extend_from_slice(&crc32(body).to_le_bytes());
    // ISIZE is the length modulo 2^32 (RFC 1952, 2.3.1)
    output.extend_from_slice(&(body.len() as u32).to_le_bytes());
    true
}

/// Compresses `body` as [`gzip_oneshot_into`] does, in a new buffer.
///
/// # Errors
/// The errors of [`gzip_oneshot_into`].
pub fn gzip_oneshot(body: &[u8], level: u8, limit: usize) -> Result<Vec<u8>, OneshotError> {
    gzip_oneshot_into(body, level, limit, Vec::new())
}

/// Returns a `limit` for [`gzip_oneshot`] that every compressed form of `length` bytes stays below:
/// the length of stored blocks (5 bytes for each of at least 5,000) and gzip's header and trailer.
pub fn compressed_bound(length: usize) -> usize {
    length.saturating_add(length / 1000).saturating_add(64)
}

/// Returns the length in bytes beyond which a body is compressed off the event loop: 2 to 3 ms,
/// as 256 KiB take at libdeflate's lower levels.
pub(crate) fn off_loop_min_length(level: u8) -> usize {
    match level {
        0..=6 => 256 << 10,
        7..=9 => 64 << 10,
        _ => 8 << 10,
    }
}

#[cfg(test)]
mod tests {
    use super::{compressed_bound, gzip_oneshot, OneshotError};
    use crate::support::gunzip;

    #[test]
    fn compressed_body_is_restored_at_every_level() {
        let body: Vec<u8> = (0..200_000u32)
            .flat_map(|n| (n / 7).to_be_bytes())
            .collect();
        for level in 0..=12 {
            let coded = gzip_oneshot(&body, level, compressed_bound(body.len())).unwrap();
            assert!(gunzip(&coded).unwrap() == body, "level {level}");
            assert_eq!(coded.capacity(), coded.len(), "level {level}");
        }
    }

    #[test]
    fn body_that_would_not_shrink_is_refused() {
        assert_eq!(gzip_oneshot(b"abc", 6, 3), Err(OneshotError::NotSmaller));
        assert_eq!(gzip_oneshot(b"", 6, 0), Err(OneshotError::NotSmaller));
        let coded = gzip_oneshot(&[b'a'; 1000], 2, 1000).unwrap();
        assert_eq!(
            gzip_oneshot(&[b'a'; 1000], 2, coded.len()),
            Err(OneshotError::NotSmaller)
        );
        assert_eq!(gzip_oneshot(&[b'a'; 1000], 2, coded.len() + 1), Ok(coded));
    }

    #[test]
    fn compressed_body_is_below_its_bound() {
        let mut state = 1u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        for length in (0..300).chain([4999, 5000, 5001, 65_535, 65_536, 1 << 20]) {
            let body: Vec<u8> = std::iter::repeat_with(&mut random).take(length).collect();
            for level in [0, 1, 6, 12] {
                let coded = gzip_oneshot(&body, level, compressed_bound(length)).unwrap();
                assert!(
                    gunzip(&coded).unwrap() == body,
                    "{length} bytes at level {level}"
                );
            }
        }
    }

    #[test]
    fn levels_may_alternate_and_an_unknown_level_is_an_error() {
        for level in [1, 9, 1, 12, 0, 1] {
            let coded = gzip_oneshot(&[7; 5000], level, compressed_bound(5000)).unwrap();
            assert_eq!(gunzip(&coded).unwrap(), [7; 5000]);
        }
        assert_eq!(gzip_oneshot(b"", 13, 100), Err(OneshotError::Level(13)));
    }
}
