//! Keys of entries that were stored unchecked and failed the strict check.
//!
//! The node's next response for such a key is checked strictly before it is stored, as it may be
//! the same.

use super::negative_cache::{NegativeCache, UncacheableSharing};
use crate::cache::CacheKey;

/// Time for which keys are remembered, in milliseconds.
const KEY_DURATION: u32 = 600_000;

/// A table of the keys whose stored entries failed the strict check, and whose next responses are
/// checked strictly before they are stored. Any number of threads may use it.
#[derive(Debug)]
pub struct StrictCheckKeyTable(NegativeCache);

impl Default for StrictCheckKeyTable {
    fn default() -> Self {
        Self(NegativeCache::with_retention_ms(KEY_DURATION))
    }
}

impl StrictCheckKeyTable {
    /// Remembers that the entry of `key` failed the strict check at `now`, in milliseconds of the
    /// lookups' clock.
    pub fn remember_unreadable_entry(&self, key: &CacheKey, now: u64) {
        self.0.advance_clock_to(now);
        self.0
            .remember_uncacheable_key(key, UncacheableSharing::RequesterOnly);
    }

    /// Whether the entry of `key` failed the strict check some time ago.
    pub fn is_entry_unreadable(&self, key: &CacheKey, now: u64) -> bool {
        self.0.uncacheable_sharing_of_key(key, now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{StrictCheckKeyTable, KEY_DURATION};

    #[test]
    fn key_is_forgotten_after_some_time() {
        let unreadable = StrictCheckKeyTable::default();
        let now = 5_000;
        unreadable.remember_unreadable_entry(&[1; 32], now);
        let last = now + u64::from(KEY_DURATION);
        assert!(
            unreadable.is_entry_unreadable(&[1; 32], now)
                && unreadable.is_entry_unreadable(&[1; 32], last - 1)
        );
        assert!(
            !unreadable.is_entry_unreadable(&[1; 32], last)
                && !unreadable.is_entry_unreadable(&[2; 32], now)
        );
    }
}
