//! Results that are cached after the node has returned them twice.
//!
//! A lagging node does not reject a range of blocks that ends beyond its head. It returns the
//! blocks that it has, and the response does not show that it is incomplete. Which blocks are
//! finalized may have been reported by another node. So the first such result is cached for a short
//! time only, and its digest is recorded here. If a later fetch returns the same bytes, the result
//! counts as complete: a lagging node catches up meanwhile, or another one responds.
//!
//! The table has a fixed size: two results share each bucket, and the newer one replaces the older.
//! A replaced result costs one more fetch.

use std::sync::Mutex;

use crate::cache::CacheKey;
use crate::lock::lock_ignoring_poison;
use crate::time_constants::confirmation_delay;

/// Number of buckets; a power of two. With [`BUCKET_SIZE`] the table takes about 330 KiB.
const BUCKETS: usize = 2048;

/// Number of results in a bucket.
const BUCKET_SIZE: usize = 2;

/// The digest of a result that a node has returned, with the state at the time of its request.
#[derive(Clone, Copy, Debug)]
pub struct FetchedResultDigest {
    /// Digest of the result.
    digest: [u8; 16],
    /// Time at which the request was sent to the node, in milliseconds.
    requested_at: u64,
    /// Purge generation at that time.
    generation: u64,
    /// Epoch at that time.
    epoch: u64,
}

impl FetchedResultDigest {
    /// Hashes `result`, whose request was sent to the node at `requested_at` in milliseconds, under
    /// this purge generation and epoch.
    pub fn new(result: &[u8], requested_at: u64, generation: u64, epoch: u64) -> Self {
        let mut digest = [0; 16];
        blake3::Hasher::new()
            .update(result)
            .finalize_xof()
            .fill(&mut digest);
        Self {
            digest,
            requested_at,
            generation,
            epoch,
        }
    }

    /// Whether both results are equal, with no purge and no reorganisation between them.
    fn confirms_result(&self, other: &Self) -> bool {
        self.digest == other.digest
            && self.generation == other.generation
            && self.epoch == other.epoch
    }
}

/// The keys and results of one bucket of the table; a later key may replace an earlier one.
type ResultBucket = [Option<(CacheKey, FetchedResultDigest)>; BUCKET_SIZE];

/// A table of a bounded number of keys, each with the first result of a node that has to be
/// confirmed by a second fetch.
#[derive(Debug, Default)]
pub struct UnconfirmedResultTable(Mutex<Vec<ResultBucket>>);

impl UnconfirmedResultTable {
    /// Whether the node returned the same result for `key` some time before. If it returned another
    /// one or none is recorded, `reported` is recorded as the first.
    pub fn is_result_confirmed(&self, key: &CacheKey, reported: FetchedResultDigest) -> bool {
        let mut places = lock_ignoring_poison(&self.0);
        if places.is_empty() {
            if places.try_reserve_exact(BUCKETS).is_err() {
                return false;
            }
            places.resize_with(BUCKETS, || [None; BUCKET_SIZE]);
        }
        let number = usize::from(u16::from_le_bytes([key[0], key[1]]));
        let Some(place) = places.get_mut(number % BUCKETS) else {
            return false;
        };
        match place.iter_mut().flatten().find(|(known, _)| known == key) {
            Some((_, first)) if first.confirms_result(&reported) => {
                if reported.requested_at < first.requested_at {
                    first.requested_at = reported.requested_at;
                }
                reported.requested_at - first.requested_at >= confirmation_delay()
            }
            Some((_, first)) => {
                // an earlier request may be answered later, and confirms nothing
                if reported.requested_at >= first.requested_at {
                    *first = reported;
                }
                false
            }
            None => {
                let [newer, older] = place;
                *older = newer.replace((*key, reported));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FetchedResultDigest, UnconfirmedResultTable, BUCKETS, BUCKET_SIZE};

    const LATER: u64 = 10_000;

    fn reported(result: &str, requested_at: u64) -> FetchedResultDigest {
        FetchedResultDigest::new(result.as_bytes(), requested_at, 1, 1)
    }

    #[test]
    fn result_is_confirmed_by_the_same_result_after_a_delay() {
        let repeated = UnconfirmedResultTable::default();
        let key = [7; 32];
        assert!(!repeated.is_result_confirmed(&key, reported("a", 1_000)));
        assert!(!repeated.is_result_confirmed(&key, reported("a", 999 + LATER)));
        assert!(repeated.is_result_confirmed(&key, reported("a", 1_000 + LATER)));
        // after the entry has expired too
        assert!(repeated.is_result_confirmed(&key, reported("a", 1_001 + LATER)));
        assert!(!repeated.is_result_confirmed(&[8; 32], reported("a", 1_000 + 2 * LATER)));
    }

    #[test]
    fn different_result_restarts_the_confirmation() {
        let repeated = UnconfirmedResultTable::default();
        let key = [7; 32];
        assert!(!repeated.is_result_confirmed(&key, reported("a", 0)));
        assert!(!repeated.is_result_confirmed(&key, reported("b", LATER)));
        assert!(!repeated.is_result_confirmed(&key, reported("a", LATER + 1)));
        assert!(!repeated.is_result_confirmed(&key, reported("a", 2 * LATER)));
        // requested earlier and answered later
        assert!(!repeated.is_result_confirmed(&key, reported("b", 5)));
        assert!(repeated.is_result_confirmed(&key, reported("a", 2 * LATER + 1)));
    }

    #[test]
    fn purge_or_reorganisation_restarts_the_confirmation() {
        let repeated = UnconfirmedResultTable::default();
        let key = [7; 32];
        let mut now = 0;
        for (generation, epoch) in [(1, 1), (2, 1), (2, 2)] {
            let reported = |at| FetchedResultDigest::new(b"a", at, generation, epoch);
            assert!(!repeated.is_result_confirmed(&key, reported(now)));
            now += LATER;
            assert!(repeated.is_result_confirmed(&key, reported(now)));
            now += LATER;
        }
    }

    #[test]
    fn table_does_not_grow_with_more_keys() {
        let repeated = UnconfirmedResultTable::default();
        let mut key = [0; 32];
        for n in 0..4 * BUCKETS as u64 {
            key[2..10].copy_from_slice(&n.to_le_bytes());
            assert!(!repeated.is_result_confirmed(&key, reported("a", n)));
        }
        let places = repeated.0.lock().unwrap();
        assert_eq!(places.len(), BUCKETS);
        assert_eq!(places[0].iter().flatten().count(), BUCKET_SIZE);
        assert!(places[1..].iter().flatten().flatten().next().is_none());
    }
}
