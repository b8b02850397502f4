//! The pool of libdeflate's compressors.

use super::libdeflate::LibdeflateCompressor;
use crate::idle_pool::IdlePool;

/// Maximum number of bytes of idle compressors: one of the largest.
const MAX_IDLE_BYTES: usize = 10 << 20;

/// Idle compressors with their levels.
static COMPRESSOR_POOL: IdlePool<(u8, LibdeflateCompressor)> = IdlePool::new(MAX_IDLE_BYTES);

/// Runs `code` with a compressor of `level` from the pool, or a new one; `None` if there is no
/// memory for one, or no such level. A compressor that panicked is not returned to the pool.
pub(super) fn run_with_pooled_compressor<T>(
    level: u8,
    code: impl FnOnce(&mut LibdeflateCompressor) -> T,
) -> Option<T> {
    let mut compressor = match COMPRESSOR_POOL.take_idle(|(pooled, _)| *pooled == level) {
        Some((_, compressor)) => compressor,
        None => LibdeflateCompressor::new(level)?,
    };
    let result = code(&mut compressor);
    COMPRESSOR_POOL.return_idle((level, compressor), compressor_size(level));
    Some(result)
}

/// Returns the number of bytes that libdeflate 1.26 allocates for a compressor, rounded up.
fn compressor_size(level: u8) -> usize {
    match level {
        0..=1 => 200 << 10,
        2..=9 => 660 << 10,
        _ => 9 << 20,
    }
}

#[cfg(test)]
mod tests {
    use super::{run_with_pooled_compressor, COMPRESSOR_POOL, MAX_IDLE_BYTES};

    #[test]
    fn idle_compressors_are_bounded() {
        std::thread::scope(|scope| {
            for level in 0..=12 {
                for _ in 0..8 {
                    scope.spawn(move || {
                        let mut output = Vec::with_capacity(1000);
                        run_with_pooled_compressor(level, |compressor| {
                            assert!(compressor.compress_gzip_member(&[b'a'; 100], &mut output));
                        })
                    });
                }
            }
        });
        let idle = COMPRESSOR_POOL.idle_bytes();
        assert!(idle <= MAX_IDLE_BYTES, "{idle} bytes idle");
        assert!(idle > 0);
    }

    #[test]
    fn compressor_of_an_unknown_level_is_none() {
        assert!(run_with_pooled_compressor(13, |_| ()).is_none());
    }
}
