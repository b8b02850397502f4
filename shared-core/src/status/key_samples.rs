//! Samples of the keys that clients request, for a list of the most frequent ones: a ring in the
//! memory of a metrics board, which all workers fill.
//!
//! A key is no label of a metric: a client could create any number of them. The ring has the last
//! samples only, so that their number is bounded, and the list follows the traffic.

use std::cmp::Reverse;
use std::sync::atomic::{fence, AtomicU64, Ordering};

use crate::cache::CacheKey;
use crate::hash_keys::HashMap;
use crate::jsonrpc::methods;
use crate::metrics::{KeySample, OTHER_METHODS_NAME};

/// Number of single requests for each sample.
pub const SAMPLE_INTERVAL: u64 = 16;

/// Number of samples in the ring.
pub const SAMPLE_COUNT: usize = 1_024;

/// Position of the number of the next sample, and of the first slot.
const NEXT_SAMPLE: usize = 0;
const HEAD: usize = 8;

/// Length of a slot: its stamp, the key, and the method with the outcome.
const SLOT: usize = 8;
const KEY_VALUES: usize = size_of::<CacheKey>() / size_of::<u64>();
const METHOD_AND_HIT: usize = 1 + KEY_VALUES;
const HIT_BIT: u32 = 16;

/// The last samples, as a part of a metrics board. The stamp of a slot is odd while it is written,
/// and 0 before the first use.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeySampleRing(&'static [AtomicU64]);

/// The most frequent keys among the present samples.
#[derive(Clone, Debug, Default)]
pub struct SampledKeys {
    /// Number of samples.
    pub samples: usize,
    /// The most frequent keys, the first one with the most samples.
    pub top: Vec<TopKey>,
}

/// A key of single requests, with the number of its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopKey {
    /// The key.
    pub key: CacheKey,
    /// Method of the calls, `other` if it is in no table, or `GET`.
    pub method: &'static str,
    /// Number of samples.
    pub samples: u32,
    /// Number of samples that were hits.
    pub hits: u32,
}

/// Whether the request that a worker counts as `number` is sampled: one of [`SAMPLE_INTERVAL`], at
/// no regular distance, so that the keys of a client that repeats some requests in turn are sampled
/// alike.
pub(super) fn is_sampled(number: u64) -> bool {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mixed = number.wrapping_mul(FACTOR);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(FACTOR);
    (mixed >> 32).is_multiple_of(SAMPLE_INTERVAL)
}

/// Returns the `most` keys with the most samples.
pub fn count_top_keys(samples: &[KeySample], most: usize) -> Vec<TopKey> {
    let mut counts: HashMap<CacheKey, TopKey> = HashMap::default();
    for sample in samples {
        let count = counts.entry(sample.key).or_insert_with(|| TopKey {
            key: sample.key,
            method: method_name(sample.method),
            samples: 0,
            hits: 0,
        });
        count.samples += 1;
        count.hits += u32::from(sample.is_hit);
    }
    let mut top: Vec<_> = counts.into_values().collect();
    top.sort_unstable_by_key(|count| (Reverse(count.samples), count.key));
    top.truncate(most);
    top
}

/// Returns the name of the method of a sample.
fn method_name(method: u16) -> &'static str {
    let method = usize::from(method);
    match methods::all_method_table_rows().get(method) {
        Some(row) => row.name,
        None if method == methods::METHOD_COUNT => OTHER_METHODS_NAME,
        None => "GET",
    }
}

impl KeySampleRing {
    /// Number of values in the memory of a ring.
    pub(super) const LENGTH: usize = HEAD + SAMPLE_COUNT * SLOT;

    /// Attaches to memory of [`LENGTH`](Self::LENGTH) values, which are 0 before the first use.
    pub(super) fn attach_ring_memory(numbers: &'static [AtomicU64]) -> Self {
        Self(numbers)
    }

    /// Stores a sample in place of the oldest one. A slot that another worker is writing is left
    /// out, also if that worker was killed meanwhile.
    pub(super) fn record(self, sample: &KeySample) {
        let number = self.0[NEXT_SAMPLE].fetch_add(1, Ordering::Relaxed);
        let slot = self.slot(number as usize % SAMPLE_COUNT);
        let stamp = slot[0].load(Ordering::Relaxed);
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        let claim = || slot[0].compare_exchange(stamp, stamp + 1, success, failure);
        if !stamp.is_multiple_of(2) || claim().is_err() {
            return;
        }
        fence(Ordering::Release);
        let key = sample.key.chunks_exact(size_of::<u64>());
        for (value, bytes) in slot[1..METHOD_AND_HIT].iter().zip(key) {
            let bytes = bytes.first_chunk().copied().unwrap_or_default();
            value.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        let method_and_hit = u64::from(sample.method) | (u64::from(sample.is_hit) << HIT_BIT);
        slot[METHOD_AND_HIT].store(method_and_hit, Ordering::Relaxed);
        slot[0].store(stamp + 2, Ordering::Release);
    }

    /// Returns all samples that are complete.
    pub(super) fn read(self) -> Vec<KeySample> {
        let slots = (0..SAMPLE_COUNT).map(|at| self.slot(at));
        slots.filter_map(read_slot).collect()
    }

    fn slot(self, at: usize) -> &'static [AtomicU64] {
        &self.0[HEAD + at * SLOT..][..SLOT]
    }
}

/// Returns the sample in a slot; `None` if there is none, or it is being written.
fn read_slot(slot: &[AtomicU64]) -> Option<KeySample> {
    let stamp = slot[0].load(Ordering::Acquire);
    if stamp == 0 || !stamp.is_multiple_of(2) {
        return None;
    }
    let mut key = CacheKey::default();
    let values = slot[1..METHOD_AND_HIT].iter();
    for (bytes, value) in key.chunks_exact_mut(size_of::<u64>()).zip(values) {
        bytes.copy_from_slice(&value.load(Ordering::Relaxed).to_le_bytes());
    }
    let method_and_hit = slot[METHOD_AND_HIT].load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    let is_complete = slot[0].load(Ordering::Relaxed) == stamp;
    is_complete.then_some(KeySample {
        key,
        method: method_and_hit as u16,
        is_hit: method_and_hit >> HIT_BIT == 1,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::{
        count_top_keys, is_sampled, KeySample, KeySampleRing, HEAD, SAMPLE_COUNT, SAMPLE_INTERVAL,
        SLOT,
    };
    use crate::jsonrpc::methods::{method_table_index, METHOD_COUNT};

    fn ring() -> KeySampleRing {
        let numbers = (0..KeySampleRing::LENGTH).map(|_| AtomicU64::default());
        KeySampleRing::attach_ring_memory(Vec::leak(numbers.collect()))
    }

    fn sample(byte: u8) -> KeySample {
        KeySample {
            key: [byte; 32],
            method: u16::from(byte),
            is_hit: byte % 2 == 1,
        }
    }

    #[test]
    fn requests_at_any_distance_are_sampled_alike() {
        let share = |numbers: &mut dyn Iterator<Item = u64>| {
            let (mut all, mut sampled) = (0_u64, 0_u64);
            for number in numbers {
                all += 1;
                sampled += u64::from(is_sampled(number));
            }
            (sampled * SAMPLE_INTERVAL) as f64 / all as f64
        };
        let all = share(&mut (0..160_000_u64));
        assert!((0.95..1.05).contains(&all), "{all}");
        for distance in 1..=64_u64 {
            for first in 0..distance {
                let part = share(&mut (first..160_000_u64).step_by(distance as usize));
                assert!((0.6..1.5).contains(&part), "{distance} {first}: {part}");
            }
        }
    }

    #[test]
    fn ring_has_the_last_samples() {
        let ring = ring();
        assert!(ring.read().is_empty());
        for byte in 0..100 {
            ring.record(&sample(byte));
        }
        let expected: Vec<_> = (0..100).map(sample).collect();
        assert_eq!(ring.read(), expected);
        for _ in 0..SAMPLE_COUNT {
            ring.record(&sample(200));
        }
        assert_eq!(ring.read(), vec![sample(200); SAMPLE_COUNT]);
    }

    #[test]
    fn slot_that_is_being_written_is_neither_read_nor_written_again() {
        let ring = ring();
        for _ in 0..SAMPLE_COUNT {
            ring.record(&sample(1));
        }
        // its worker was killed
        ring.0[HEAD + 5 * SLOT].fetch_add(1, Ordering::Relaxed);
        assert_eq!(ring.read().len(), SAMPLE_COUNT - 1);
        for _ in 0..SAMPLE_COUNT {
            ring.record(&sample(2));
        }
        assert_eq!(ring.read(), vec![sample(2); SAMPLE_COUNT - 1]);
    }

    #[test]
    fn concurrent_samples_are_never_mixed() {
        let ring = ring();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers = [1, 2, 3].map(|byte| {
                scope.spawn(move || {
                    for _ in 0..50_000 {
                        ring.record(&sample(byte));
                    }
                })
            });
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    for read in ring.read() {
                        assert_eq!(read, sample(read.key[0]));
                    }
                }
            });
            for writer in writers {
                writer.join().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(ring.read().len() > SAMPLE_COUNT / 2);
    }

    #[test]
    fn top_keys_are_the_most_frequent_ones_with_their_methods_and_hits() {
        let of = |byte: u8, method: usize, is_hit| KeySample {
            key: [byte; 32],
            method: method as u16,
            is_hit,
        };
        let chain_id = method_table_index(b"eth_chainId").unwrap();
        let samples = [
            of(1, METHOD_COUNT + 1, false),
            of(2, chain_id, true),
            of(3, METHOD_COUNT, true),
            of(2, chain_id, false),
            of(3, METHOD_COUNT, true),
            of(2, chain_id, true),
        ];
        let top = |most| -> Vec<_> {
            let keys = count_top_keys(&samples, most).into_iter();
            keys.map(|top| (top.key[0], top.method, top.samples, top.hits))
                .collect()
        };
        let all = [
            (2, "eth_chainId", 3, 2),
            (3, "other", 2, 2),
            (1, "GET", 1, 0),
        ];
        assert_eq!(top(50), all);
        assert_eq!(top(1), all[..1]);
    }
}
