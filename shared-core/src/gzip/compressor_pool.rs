//! A pool of compressors, because making one takes longer than compressing a small body.
//!
//! One pool serves the process instead of one per thread: nginx's thread pools have 32 threads;
//! few of them compress at a time, but all of them in turn, and 32 compressors of level 12 are
//! 280 MiB. Idle compressors are limited by their size and freed beyond it at once; a pool that
//! the garbage collector empties has leaked gigabytes a day in another implementation.

use std::sync::{Mutex, MutexGuard};

use super::libdeflate::LibdeflateCompressor;
use crate::lock::lock_ignoring_poison;

/// Maximum number of bytes of idle compressors: one of the largest.
const MAX_IDLE_BYTES: usize = 10 << 20;

static COMPRESSOR_POOL: Mutex<Vec<(u8, LibdeflateCompressor)>> = Mutex::new(Vec::new());

/// Runs `code` with a compressor of `level` from the pool, or a new one; `None` if there is no
/// memory for one, or no such level. A compressor that panicked is not returned to the pool.
pub(super) fn run_with_pooled_compressor<T>(
    level: u8,
    code: impl FnOnce(&mut LibdeflateCompressor) -> T,
) -> Option<T> {
    let mut compressor = match take_compressor(level) {
        Some(compressor) => compressor,
        None => LibdeflateCompressor::new(level)?,
    };
    let result = code(&mut compressor);
    drop(return_compressor(level, compressor));
    Some(result)
}

/// Takes an idle compressor of the level from the pool, if there is one.
fn take_compressor(level: u8) -> Option<LibdeflateCompressor> {
    let mut pool = lock_compressor_pool();
    let at = pool.iter().rposition(|(pooled, _)| *pooled == level)?;
    Some(pool.remove(at).1)
}

/// Returns a compressor to the pool, from which the latest is taken first. The result is the
/// compressors without room, to be freed outside the lock.
fn return_compressor(
    level: u8,
    compressor: LibdeflateCompressor,
) -> Vec<(u8, LibdeflateCompressor)> {
    let mut pool = lock_compressor_pool();
    pool.push((level, compressor));
    let mut room = MAX_IDLE_BYTES;
    let remaining = pool
        .iter()
        .rev()
        .take_while(
            |(level, _)| match room.checked_sub(compressor_size(*level)) {
                Some(rest) => {
                    room = rest;
                    true
                }
                None => false,
            },
        )
        .count();
    let beyond = pool.len() - remaining;
    pool.drain(..beyond).collect()
}

/// Locks the pool. A panic never leaves the list half-changed.
fn lock_compressor_pool() -> MutexGuard<'static, Vec<(u8, LibdeflateCompressor)>> {
    lock_ignoring_poison(&COMPRESSOR_POOL)
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
    use super::{
        compressor_size, lock_compressor_pool, run_with_pooled_compressor, MAX_IDLE_BYTES,
    };

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
        let idle: usize = lock_compressor_pool()
            .iter()
            .map(|(level, _)| compressor_size(*level))
            .sum();
        assert!(idle <= MAX_IDLE_BYTES, "{idle} bytes idle");
        assert!(idle > 0);
    }

    #[test]
    fn compressor_of_an_unknown_level_is_none() {
        assert!(run_with_pooled_compressor(13, |_| ()).is_none());
    }
}
