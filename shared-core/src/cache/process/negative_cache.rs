//! Negative cache: keys whose last response was not stored.
//!
//! Waiting for the response to another request is useful if that can be shared, and querying other
//! processes is useful if it may be stored. Where the last response was neither, the next one
//! rarely is: for a second no request waits for that key. (Varnish calls this hit-for-miss.) The
//! memory costs or saves time and decides nothing else, so that few bits of a key suffice.
//!
//! A second table has the keys of entries that were stored unchecked and failed the strict check.
//! The node's next response for such a key is checked strictly before it is stored, as it may be
//! the same.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::CacheKey;

/// Maximum number of remembered keys; a later key may replace an earlier one.
const MAX_KEYS: usize = 1024;

/// The requests to which a response that was not stored may be sent: the one that fetched it, or
/// its followers too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UncacheableSharing {
    /// The request that fetched the response.
    RequesterOnly,
    /// The request that fetched it, and its followers in the same process.
    Shareable,
}

/// A table of fixed size of the keys whose last response was not stored, each remembered for
/// `RETENTION_MS` milliseconds. Any number of threads may use it.
#[derive(Debug)]
pub struct NegativeCache<const RETENTION_MS: u32> {
    /// Slots of 31 bits of a key, one bit of the kind, and 32 bits of the time of expiry.
    places: Box<[AtomicU64]>,
    clock: AtomicU64,
}

impl<const RETENTION_MS: u32> Default for NegativeCache<RETENTION_MS> {
    fn default() -> Self {
        Self {
            places: (0..MAX_KEYS).map(|_| AtomicU64::new(0)).collect(),
            clock: AtomicU64::new(0),
        }
    }
}

impl<const RETENTION_MS: u32> NegativeCache<RETENTION_MS> {
    /// Advances the clock to `now`, in milliseconds of the lookups' clock.
    pub fn advance_clock_to(&self, now: u64) {
        // all event loops call this at each lookup: most calls only read the clock
        if now > self.clock.load(Ordering::Relaxed) {
            self.clock.fetch_max(now, Ordering::Relaxed);
        }
    }

    /// Records that the last response to `key` was not stored, and which requests could use it.
    pub fn remember_uncacheable_key(&self, key: &CacheKey, sharing: UncacheableSharing) {
        let now = self.clock.load(Ordering::Relaxed);
        let (place, tag) = self.slot_for_key(key);
        let until = u64::from(lower_time_bits(now).wrapping_add(RETENTION_MS));
        let kind = u64::from(sharing == UncacheableSharing::Shareable) << 32;
        place.store(tag << 33 | kind | until, Ordering::Relaxed);
    }

    /// Returns the remembered kind of `key`, if its last response was not stored a moment ago.
    pub fn uncacheable_sharing_of_key(
        &self,
        key: &CacheKey,
        now: u64,
    ) -> Option<UncacheableSharing> {
        let (place, tag) = self.slot_for_key(key);
        let known = place.load(Ordering::Relaxed);
        let left = lower_time_bits(known).wrapping_sub(lower_time_bits(now));
        let is_known = known >> 33 == tag && (1..=RETENTION_MS).contains(&left);
        is_known.then_some(match known >> 32 & 1 {
            0 => UncacheableSharing::RequesterOnly,
            _ => UncacheableSharing::Shareable,
        })
    }

    /// Returns the slot that `key` shares with other keys, and the tag of 31 bits that
    /// distinguishes them.
    fn slot_for_key(&self, key: &CacheKey) -> (&AtomicU64, u64) {
        let [one, two, a, b, c, d, ..] = *key;
        let place = usize::from(u16::from_le_bytes([one, two])) % self.places.len();
        let tag = u64::from(u32::from_le_bytes([a, b, c, d]) >> 1);
        (&self.places[place], tag)
    }
}

/// Returns the lower half of a time; times are compared modulo 2^32.
fn lower_time_bits(number: u64) -> u32 {
    (number & u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::{NegativeCache, UncacheableSharing};

    #[test]
    fn key_is_remembered_for_the_time_of_its_table() {
        check_retention::<1_000>();
        check_retention::<600_000>();
    }

    fn check_retention<const RETENTION_MS: u32>() {
        let retention = u64::from(RETENTION_MS);
        for start in [1, 5_000, u64::from(u32::MAX) - 500, u64::MAX - retention] {
            let keys = NegativeCache::<RETENTION_MS>::default();
            let (one, two, other) = ([1; 32], [2; 32], [3; 32]);
            keys.advance_clock_to(start);
            keys.remember_uncacheable_key(&one, UncacheableSharing::RequesterOnly);
            keys.remember_uncacheable_key(&two, UncacheableSharing::Shareable);
            for now in [start, start + retention - 1] {
                assert_eq!(
                    keys.uncacheable_sharing_of_key(&one, now),
                    Some(UncacheableSharing::RequesterOnly),
                    "{start} {now}"
                );
                assert_eq!(
                    keys.uncacheable_sharing_of_key(&two, now),
                    Some(UncacheableSharing::Shareable)
                );
                assert_eq!(keys.uncacheable_sharing_of_key(&other, now), None);
            }
            let end = start + retention;
            assert_eq!(keys.uncacheable_sharing_of_key(&one, end), None);
        }
    }

    #[test]
    fn key_in_the_same_slot_is_not_confused_with_the_remembered_one() {
        let keys = NegativeCache::<1_000>::default();
        let mut other = [1; 32];
        other[5] = 2;
        keys.remember_uncacheable_key(&[1; 32], UncacheableSharing::RequesterOnly);
        assert_eq!(keys.uncacheable_sharing_of_key(&other, 0), None);
        keys.remember_uncacheable_key(&other, UncacheableSharing::Shareable);
        assert_eq!(keys.uncacheable_sharing_of_key(&[1; 32], 0), None);
        assert_eq!(
            keys.uncacheable_sharing_of_key(&other, 0),
            Some(UncacheableSharing::Shareable)
        );
    }
}
