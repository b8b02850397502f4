//! Admission on the second request: an entry that is requested once is not worth a write.
//!
//! Two Bloom filters take turns. Keys are recorded in the younger one; when it is full or old, the
//! elder one is emptied and becomes the younger. So a key is remembered for at least as many other
//! keys as a filter holds, in bounded memory. About one key in a hundred is a false positive and is
//! stored on its first request, which costs a write and nothing else.

use crate::cache::CacheKey;

/// A Bloom filter of recently filled keys, in two generations, which finds the keys that are worth
/// a write to disk.
#[derive(Clone, Debug)]
pub struct AdmissionFilter {
    younger: Box<[u64]>,
    elder: Box<[u64]>,
    /// Number of keys in the younger filter.
    noted: usize,
    keys: usize,
    max_age: u64,
    /// Time at which the younger filter was empty.
    since: u64,
}

/// Bits per key; with [`PROBES`] the filter has 0.8 % false positives.
const BITS_PER_KEY: usize = 10;
const PROBES: usize = 7;

impl AdmissionFilter {
    /// Creates a filter that remembers at least the last `keys` keys (rounded up so that a filter
    /// is a power of two) unless they are older than `max_age` milliseconds, in 2.5 to 5 bytes per
    /// key. `now` is in milliseconds of the caller's clock.
    pub fn new(keys: usize, max_age: u64, now: u64) -> Self {
        let words = keys
            .clamp(64, 1 << 32)
            .saturating_mul(BITS_PER_KEY)
            .div_ceil(64)
            .next_power_of_two();
        Self {
            younger: vec![0; words].into(),
            elder: vec![0; words].into(),
            noted: 0,
            keys: words * 64 / BITS_PER_KEY,
            max_age,
            since: now,
        }
    }

    /// Records `key`, and returns whether it was requested before.
    pub fn record_key_request(&mut self, key: &CacheKey, now: u64) -> bool {
        // if the clock was set back, the filter is not old
        if self.noted >= self.keys || now.saturating_sub(self.since) > self.max_age {
            self.rotate_generations(now);
        }
        let noted = filter_contains_key(&self.younger, key);
        if !noted {
            for (word, bit) in filter_probe_bits(&self.younger, key) {
                self.younger[word] |= bit;
            }
            self.noted += 1;
        }
        noted || filter_contains_key(&self.elder, key)
    }

    /// Makes the younger filter the elder one, and starts an empty younger one at `now`. The elder
    /// one is emptied too if it would be older than twice the maximum age.
    fn rotate_generations(&mut self, now: u64) {
        std::mem::swap(&mut self.younger, &mut self.elder);
        self.younger.fill(0);
        if now.saturating_sub(self.since) > self.max_age.saturating_mul(2) {
            self.elder.fill(0);
        }
        self.noted = 0;
        self.since = now;
    }

    /// Memory of the filters in bytes.
    pub fn admission_filter_bytes(&self) -> usize {
        size_of_val(&*self.younger) + size_of_val(&*self.elder)
    }
}

/// Whether all bits of `key` are set in the filter; false positives are possible.
fn filter_contains_key(filter: &[u64], key: &CacheKey) -> bool {
    filter_probe_bits(filter, key).all(|(word, bit)| filter[word] & bit != 0)
}

/// Returns the probes of a key. Keys are hashes: their bytes are as random as any hash of them.
fn filter_probe_bits(filter: &[u64], key: &CacheKey) -> impl Iterator<Item = (usize, u64)> {
    let half = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&key[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let (start, step) = (half(0), half(8) | 1);
    let mask = filter.len() * 64 - 1;
    (0..PROBES as u64).map(move |n| {
        let place = start.wrapping_add(step.wrapping_mul(n)) as usize & mask;
        (place / 64, 1 << (place % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::AdmissionFilter;
    use crate::cache::CacheKey;

    fn key(n: u64) -> CacheKey {
        *blake3::hash(&n.to_le_bytes()).as_bytes()
    }

    #[test]
    fn key_is_admitted_on_its_second_request() {
        let mut admission = AdmissionFilter::new(1000, 1000, 0);
        assert!(!admission.record_key_request(&key(1), 0));
        assert!(admission.record_key_request(&key(1), 0));
        assert!(admission.record_key_request(&key(1), 1000));
        assert!(!admission.record_key_request(&key(2), 1000));
    }

    #[test]
    fn last_keys_are_remembered_with_few_false_positives() {
        let mut admission = AdmissionFilter::new(10_000, u64::MAX, 0);
        let memory = admission.admission_filter_bytes();
        for round in 0..5u64 {
            let mut mistaken = 0;
            for n in 0..50_000 {
                mistaken += u32::from(admission.record_key_request(&key(round << 32 | n), 0));
            }
            assert!(mistaken < 1000, "{mistaken} of 50000");
            for n in 40_000..50_000 {
                assert!(
                    admission.record_key_request(&key(round << 32 | n), 0),
                    "{n}"
                );
            }
        }
        assert_eq!(admission.admission_filter_bytes(), memory);
        assert!(memory <= 10_000 * 5, "{memory}");
    }

    #[test]
    fn keys_older_than_the_maximum_age_are_forgotten() {
        let mut admission = AdmissionFilter::new(1000, 1000, 0);
        admission.record_key_request(&key(1), 0);
        // a key is remembered for twice the maximum age at most
        assert!(admission.record_key_request(&key(1), 1001));
        let mut admission = AdmissionFilter::new(1000, 1000, 0);
        admission.record_key_request(&key(1), 0);
        admission.record_key_request(&key(2), 1001);
        assert!(!admission.record_key_request(&key(1), 2002));
        let mut admission = AdmissionFilter::new(1000, 1000, 0);
        admission.record_key_request(&key(1), 0);
        assert!(!admission.record_key_request(&key(1), 5000));
    }

    #[test]
    fn filter_without_size_works_when_the_clock_is_set_back() {
        let mut admission = AdmissionFilter::new(0, 1000, 5000);
        assert!(!admission.record_key_request(&key(1), 5000));
        assert!(admission.record_key_request(&key(1), 0));
    }
}
