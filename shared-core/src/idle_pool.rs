//! Pools of idle compressors, because making one takes longer than compressing a small body.
//!
//! One pool serves the process instead of one per thread: nginx's thread pools have 32 threads;
//! few of them compress at a time, but all of them in turn, and 32 compressors of gzip's level 12
//! are 280 MiB. Idle compressors are limited by their size and freed beyond it at once; a pool that
//! the garbage collector empties has leaked gigabytes a day in another implementation.

use std::sync::{Mutex, MutexGuard};

use crate::lock::lock_ignoring_poison;

/// Idle compressors of one codec. The latest is taken first.
pub(crate) struct IdlePool<T> {
    /// Maximum number of bytes of the idle compressors.
    max_bytes: usize,
    idle: Mutex<Vec<IdleCompressor<T>>>,
}

struct IdleCompressor<T> {
    compressor: T,
    /// Memory of the compressor in bytes.
    size: usize,
}

impl<T> IdlePool<T> {
    /// Creates an empty pool.
    pub(crate) const fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Takes an idle compressor that is suitable, if there is one.
    pub(crate) fn take_idle(&self, is_suitable: impl Fn(&T) -> bool) -> Option<T> {
        let mut pool = self.lock_pool();
        let at = pool
            .iter()
            .rposition(|idle| is_suitable(&idle.compressor))?;
        Some(pool.remove(at).compressor)
    }

    /// Returns a compressor of `size` bytes to the pool, and frees those without room.
    pub(crate) fn return_idle(&self, compressor: T, size: usize) {
        // freed outside the lock
        drop(self.push_and_remove_excess(IdleCompressor { compressor, size }));
    }

    /// Adds a compressor, and removes the earlier ones for which there is no room any more.
    fn push_and_remove_excess(&self, latest: IdleCompressor<T>) -> Vec<IdleCompressor<T>> {
        let mut pool = self.lock_pool();
        pool.push(latest);
        let mut room = self.max_bytes;
        let remaining = pool
            .iter()
            .rev()
            .take_while(|idle| match room.checked_sub(idle.size) {
                Some(rest) => {
                    room = rest;
                    true
                }
                None => false,
            })
            .count();
        let beyond = pool.len() - remaining;
        pool.drain(..beyond).collect()
    }

    /// Locks the pool. A panic never leaves the list half-changed.
    fn lock_pool(&self) -> MutexGuard<'_, Vec<IdleCompressor<T>>> {
        lock_ignoring_poison(&self.idle)
    }

    /// Returns the number of bytes of the idle compressors.
    #[cfg(test)]
    pub(crate) fn idle_bytes(&self) -> usize {
        self.lock_pool().iter().map(|idle| idle.size).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::IdlePool;

    #[test]
    fn latest_suitable_compressor_is_taken_first() {
        let pool = IdlePool::new(100);
        for (name, size) in [("a1", 10), ("b1", 20), ("a2", 30), ("b2", 40)] {
            pool.return_idle(name, size);
        }
        assert_eq!(pool.idle_bytes(), 100);
        let is_a = |name: &&str| name.starts_with('a');
        assert_eq!(pool.take_idle(is_a), Some("a2"));
        assert_eq!(pool.take_idle(is_a), Some("a1"));
        assert_eq!(pool.take_idle(is_a), None);
        assert_eq!(pool.take_idle(|_| true), Some("b2"));
        assert_eq!(pool.idle_bytes(), 20);
    }

    #[test]
    fn compressors_without_room_are_freed_and_the_latest_remain() {
        let pool = IdlePool::new(100);
        for (name, size, idle_bytes) in [
            ("a", 60, 60),
            ("b", 30, 90),
            // no room for `a` any more
            ("c", 20, 50),
            // longer than the pool
            ("d", 101, 0),
            ("e", 100, 100),
        ] {
            pool.return_idle(name, size);
            assert_eq!(pool.idle_bytes(), idle_bytes, "{name}");
        }
        assert_eq!(pool.take_idle(|_| true), Some("e"));
    }
}
