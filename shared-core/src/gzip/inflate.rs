//! Decompression of complete gzip bodies into a limited output.
//!
//! It serves nodes that send gzip although identity was requested, and clients that compress
//! their requests. A thousand bytes of gzip can declare a megabyte, so the limit is not derived
//! from the input's length but from the length that the operator allows for one body.

use std::hint::black_box;
use std::sync::Mutex;

use zlib_rs::{Inflate, InflateFlush, Status};

use super::libdeflate::{GunzipResult, LibdeflateDecompressor};
use crate::lock::lock_ignoring_poison;
use crate::memory::release_unused_capacity;

/// The reason why a gzip body could not be decompressed. The original is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InflateError {
    /// The body is not gzip, damaged, truncated, or followed by other bytes.
    Bad,
    /// The decompressed body is longer than the cap.
    TooLarge,
    /// Memory was refused.
    OutOfMemory,
}

/// Decompresses all gzip members of `compressed` (RFC 1952, section 2.2: a file may have several)
/// into at most `cap` bytes, for callers that have reserved them already; all others use
/// [`gunzip_within`].
///
/// # Errors
/// [`InflateError`]; the input is unchanged.
pub fn gunzip_reserved(compressed: &[u8], cap: usize) -> Result<Vec<u8>, InflateError> {
    gunzip_within(compressed, cap, |_| true)
}

/// Decompresses as [`gunzip_reserved`], within memory that the caller grants. `may_take` is called
/// with the total length before the output is allocated or grows.
///
/// # Errors
/// The errors of [`gunzip_reserved`]; [`InflateError::OutOfMemory`] if `may_take` returns `false`.
pub fn gunzip_within(
    compressed: &[u8],
    cap: usize,
    mut may_take: impl FnMut(usize) -> bool,
) -> Result<Vec<u8>, InflateError> {
    let mut decompressor = LibdeflateDecompressor::new().ok_or(InflateError::OutOfMemory)?;
    let mut body = Vec::new();
    let mut reserve = |body: &mut Vec<u8>, length: usize| {
        let more = length - body.len();
        let taken = may_take(length) && body.try_reserve_exact(more).is_ok();
        taken.then_some(()).ok_or(InflateError::OutOfMemory)
    };
    reserve(
        &mut body,
        decompressed_length_from_trailer(compressed).min(cap),
    )?;
    let mut rest = compressed;
    loop {
        match decompressor.decompress_member(rest, &mut body) {
            GunzipResult::Member(taken) => rest = rest.get(taken..).ok_or(InflateError::Bad)?,
            GunzipResult::Bad => return Err(InflateError::Bad),
            GunzipResult::NoRoom if body.capacity() >= cap => return Err(InflateError::TooLarge),
            GunzipResult::NoRoom => {
                let length = body.capacity().saturating_mul(2).max(1 << 10).min(cap);
                reserve(&mut body, length)?;
                continue;
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    if body.len() > cap {
        return Err(InflateError::TooLarge);
    }
    release_unused_capacity(&mut body);
    Ok(body)
}

/// The idle decompressor; others are freed. Creating one takes as long as decompressing 1 KB.
static IDLE_DECOMPRESSOR: Mutex<Option<LibdeflateDecompressor>> = Mutex::new(None);

/// Decompresses exactly one finished deflate stream of at most `length` bytes, which the caller has
/// reserved. `None` for other bytes, or if memory is refused.
pub(super) fn inflate_reserved(stream: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    plain.try_reserve_exact(length).ok()?;
    let idle = lock_ignoring_poison(&IDLE_DECOMPRESSOR).take();
    let mut decompressor = idle.or_else(LibdeflateDecompressor::new)?;
    let is_stream = decompressor.decompress_stream(stream, length, &mut plain);
    let beyond = lock_ignoring_poison(&IDLE_DECOMPRESSOR).replace(decompressor);
    drop(beyond);
    is_stream.then_some(plain)
}

/// Memory of zlib-rs in addition to the output, in bytes: its state, with a window of 32 KiB.
const INFLATE_STATE_SIZE: usize = 64 << 10;

/// Bits of the window, and the value that selects gzip's header and trailer.
const WINDOW_BITS: u8 = 15 + 16;

/// Decompresses the available part of truncated gzip members into at most `cap` bytes.
/// `may_take` is called with the total length before the output grows.
///
/// # Errors
/// The errors of [`gunzip_within`]; [`InflateError::Bad`] if the body is damaged and not only
/// truncated.
pub fn gunzip_truncated(
    compressed: &[u8],
    cap: usize,
    mut may_take: impl FnMut(usize) -> bool,
) -> Result<Vec<u8>, InflateError> {
    let mut body = Vec::new();
    let mut inflate = None;
    let (mut rest, mut length) = (compressed, 0);
    loop {
        grow_inflate_output(&mut body, length, compressed.len(), cap, |room| {
            may_take(room.saturating_add(INFLATE_STATE_SIZE))
        })?;
        let inflate = match &mut inflate {
            Some(inflate) => inflate,
            none => none.insert(new_inflate_state()?),
        };
        let (read, wrote) = (inflate.total_in(), inflate.total_out());
        let room = body.get_mut(length..).unwrap_or_default();
        let status = inflate.decompress(rest, room, InflateFlush::NoFlush);
        let status = status.map_err(|_| InflateError::Bad)?;
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let read = size(inflate.total_in() - read);
        let wrote = size(inflate.total_out() - wrote);
        rest = rest.get(read..).unwrap_or_default();
        length += wrote;
        match status {
            _ if rest.is_empty() && length < body.len() => break,
            Status::StreamEnd => *inflate = new_inflate_state()?,
            _ if read == 0 && wrote == 0 && length < body.len() => return Err(InflateError::Bad),
            Status::Ok | Status::BufError => {}
        }
    }
    body.truncate(length);
    release_unused_capacity(&mut body);
    Ok(body)
}

/// Creates the state of a decompression. Returns `OutOfMemory` where zlib-rs would panic.
fn new_inflate_state() -> Result<Inflate, InflateError> {
    // zlib-rs would panic: allocate as much first
    let mut room = Vec::<u8>::new();
    black_box(&mut room)
        .try_reserve_exact(INFLATE_STATE_SIZE)
        .map_err(|_| InflateError::OutOfMemory)?;
    drop(black_box(room));
    Ok(Inflate::new(true, WINDOW_BITS))
}

/// Grows the output beyond the `length` bytes that were written, up to `cap`.
pub(crate) fn grow_inflate_output(
    body: &mut Vec<u8>,
    length: usize,
    compressed: usize,
    cap: usize,
    may_take: impl FnOnce(usize) -> bool,
) -> Result<(), InflateError> {
    if length < body.len() {
        return Ok(());
    }
    // one byte more than the cap shows that the body is longer
    let most = cap.saturating_add(1);
    if length >= most {
        return Err(InflateError::TooLarge);
    }
    let first = compressed.saturating_mul(4).max(1 << 10);
    let room = length.saturating_mul(2).max(first).min(most);
    if !may_take(room) || body.try_reserve_exact(room - length).is_err() {
        return Err(InflateError::OutOfMemory);
    }
    body.resize(room, 0);
    Ok(())
}

/// Returns the length that the trailer declares: ISIZE, modulo 2^32, of the last member only,
/// limited to the highest ratio of deflate. It is a first guess that decompression proves or
/// corrects.
pub fn decompressed_length_from_trailer(compressed: &[u8]) -> usize {
    // 258 bytes for two bits
    const MOST: usize = 1032;
    match compressed {
        [.., a, b, c, d] => {
            let claimed = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            claimed.min(compressed.len().saturating_mul(MOST))
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{gunzip_reserved, gunzip_truncated, gunzip_within, InflateError};

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn compressed_body_is_restored() {
        for length in [0, 1, 1000, 100_000] {
            let body = vec![b'x'; length];
            assert_eq!(gunzip_reserved(&gzip(&body), length), Ok(body));
        }
    }

    #[test]
    fn cap_is_enforced_whatever_the_trailer_declares() {
        let compressed = gzip(&vec![0; 10_000]);
        assert_eq!(
            gunzip_reserved(&compressed, 9_999),
            Err(InflateError::TooLarge)
        );
        let mut forged = compressed.clone();
        let isize_at = forged.len() - 4;
        forged[isize_at..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(gunzip_reserved(&forged, 20_000), Err(InflateError::Bad));
        forged[isize_at..].copy_from_slice(&0u32.to_le_bytes());
        assert_eq!(gunzip_reserved(&forged, 20_000), Err(InflateError::Bad));
    }

    #[test]
    fn decompression_allocates_no_more_than_the_caller_allows() {
        // the trailer of the last member declares next to nothing about the first
        let compressed = [gzip(&vec![0; 100_000]), gzip(b"x")].concat();
        let mut requested = Vec::new();
        let taken = gunzip_within(&compressed, 1 << 20, |length| {
            requested.push(length);
            true
        });
        assert_eq!(taken.unwrap().len(), 100_001);
        assert!(requested.is_sorted() && *requested.last().unwrap() >= 100_001);
        for most in requested {
            let refused = gunzip_within(&compressed, 1 << 20, |length| length < most);
            assert_eq!(refused, Err(InflateError::OutOfMemory));
        }
    }

    #[test]
    fn members_are_joined_to_one_body() {
        let compressed = [gzip(b"first "), gzip(&[b'2'; 5000]), gzip(b"")].concat();
        let body = [&b"first "[..], &[b'2'; 5000]].concat();
        assert_eq!(gunzip_reserved(&compressed, 6000), Ok(body));
        assert_eq!(
            gunzip_reserved(&compressed, 5005),
            Err(InflateError::TooLarge)
        );
    }

    #[test]
    fn beginning_of_a_truncated_body_is_decompressed() {
        let first: Vec<u8> = (0..3000_u32).map(|n| (n * n / 7 % 251) as u8).collect();
        let body = [&first[..], &[b'2'; 5000], b"end"].concat();
        let compressed = [gzip(&first), gzip(&[b'2'; 5000]), gzip(b"end")].concat();
        let mut longest = 0;
        for cut in 0..=compressed.len() {
            let beginning = gunzip_truncated(&compressed[..cut], 10_000, |_| true).unwrap();
            assert!(body.starts_with(&beginning), "cut at {cut}");
            assert!(beginning.len() >= longest, "cut at {cut}");
            longest = beginning.len();
        }
        assert_eq!(longest, body.len());
        let of = |compressed: &[u8], cap: usize| gunzip_truncated(compressed, cap, |_| true);
        assert_eq!(of(&compressed, body.len()).unwrap(), body);
        assert_eq!(of(&compressed, body.len() - 1), Err(InflateError::TooLarge));
        assert_eq!(
            of(&[&compressed[..], b"more"].concat(), 10_000),
            Err(InflateError::Bad)
        );
        assert_eq!(of(b"{\"jsonrpc\"", 100), Err(InflateError::Bad));
    }

    #[test]
    fn beginning_allocates_no_more_than_the_caller_allows() {
        let compressed = gzip(&vec![0; 100_000]);
        let compressed = &compressed[..compressed.len() - 1];
        let mut requested = Vec::new();
        let taken = gunzip_truncated(compressed, 1 << 20, |length| {
            requested.push(length);
            true
        });
        assert_eq!(taken.unwrap().len(), 100_000);
        assert!(requested.is_sorted() && *requested.last().unwrap() >= 100_000);
        for most in requested {
            let refused = gunzip_truncated(compressed, 1 << 20, |length| length < most);
            assert_eq!(refused, Err(InflateError::OutOfMemory));
        }
    }

    #[test]
    fn damaged_body_is_an_error() {
        let compressed = gzip(&[b'a'; 1000]);
        assert_eq!(gunzip_reserved(b"", 10), Err(InflateError::Bad));
        assert_eq!(
            gunzip_reserved(b"{\"jsonrpc\"", 100),
            Err(InflateError::Bad)
        );
        for cut in 0..compressed.len() {
            assert!(
                gunzip_reserved(&compressed[..cut], 2000).is_err(),
                "cut at {cut}"
            );
        }
        let trailing = [&compressed[..], b"x"].concat();
        assert_eq!(gunzip_reserved(&trailing, 2000), Err(InflateError::Bad));
        // a flipped bit of padding changes nothing; no flip may change the body
        for (at, bit) in (0..compressed.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut flipped = compressed.clone();
            flipped[at] ^= 1 << bit;
            if let Ok(body) = gunzip_reserved(&flipped, 2000) {
                assert!(body == [b'a'; 1000], "bit {bit} of byte {at}");
            }
        }
    }
}
