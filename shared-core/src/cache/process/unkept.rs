//! Keys of which the last answer was nothing to keep.
//!
//! To wait for another request's answer is worth it if that can be shared, and
//! to ask other processes for it if it may be kept. Where the last answer was
//! neither the next one rarely is: for a second nobody waits for it in vain.
//! (Varnish calls that hit-for-miss.) What is remembered costs or saves time
//! and decides nothing else, so that few bits of a key will do.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::Key;

/// Remembered at a time; later ones take the places of others.
const PLACES: usize = 1024;

/// For how long, unless [`Keys::lasting`] says otherwise. Milliseconds.
const FOR: u32 = 1_000;

/// What the last answer was good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unkept {
    /// For the request that it was an answer to.
    One,
    /// For those, too, who were waiting for it in the same process.
    Waiters,
}

/// The keys. Any number of threads may use it.
#[derive(Debug)]
pub struct Keys {
    /// Each 31 bits of a key, one of the kind, and until when, in 32.
    places: Box<[AtomicU64]>,
    clock: AtomicU64,
    /// For how long they are remembered, in milliseconds.
    lasts: u32,
}

impl Default for Keys {
    fn default() -> Self {
        Self::lasting(FOR)
    }
}

impl Keys {
    /// Of which each is remembered for so many milliseconds.
    pub fn lasting(lasts: u32) -> Self {
        Self {
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            clock: AtomicU64::new(0),
            lasts,
        }
    }

    /// The time is `now`, in milliseconds of the look-ups' clock, or later.
    pub fn saw(&self, now: u64) {
        // all event loops say so at each look-up: most often only to read it
        if now > self.clock.load(Ordering::Relaxed) {
            self.clock.fetch_max(now, Ordering::Relaxed);
        }
    }

    /// Of what is under `key` nothing is kept for now.
    pub fn remember(&self, key: &Key, unkept: Unkept) {
        let now = self.clock.load(Ordering::Relaxed);
        let (place, tag) = self.place(key);
        let until = u64::from(low(now).wrapping_add(self.lasts));
        let kind = u64::from(unkept == Unkept::Waiters) << 32;
        place.store(tag << 33 | kind | until, Ordering::Relaxed);
    }

    /// Whether there was nothing to keep under `key` a moment ago.
    pub fn get(&self, key: &Key, now: u64) -> Option<Unkept> {
        let (place, tag) = self.place(key);
        let known = place.load(Ordering::Relaxed);
        let left = low(known).wrapping_sub(low(now));
        let is_known = known >> 33 == tag && (1..=self.lasts).contains(&left);
        is_known.then_some(match known >> 32 & 1 {
            0 => Unkept::One,
            _ => Unkept::Waiters,
        })
    }

    fn place(&self, key: &Key) -> (&AtomicU64, u64) {
        let [one, two, a, b, c, d, ..] = *key;
        let place = usize::from(u16::from_le_bytes([one, two])) % self.places.len();
        let tag = u64::from(u32::from_le_bytes([a, b, c, d]) >> 1);
        (&self.places[place], tag)
    }
}

/// The lower half; times are compared modulo 2^32.
fn low(number: u64) -> u32 {
    (number & u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::{Keys, Unkept};

    #[test]
    fn a_key_is_known_for_a_second() {
        for start in [1, 5_000, u64::from(u32::MAX) - 500, u64::MAX - 5_000] {
            let keys = Keys::default();
            let (one, two, other) = ([1; 32], [2; 32], [3; 32]);
            keys.saw(start);
            keys.remember(&one, Unkept::One);
            keys.remember(&two, Unkept::Waiters);
            for now in [start, start + 999] {
                assert_eq!(keys.get(&one, now), Some(Unkept::One), "{start} {now}");
                assert_eq!(keys.get(&two, now), Some(Unkept::Waiters));
                assert_eq!(keys.get(&other, now), None);
            }
            assert_eq!(keys.get(&one, start + 1_000), None);
        }
    }

    #[test]
    fn what_shares_a_place_is_another_key() {
        let keys = Keys::default();
        let mut other = [1; 32];
        other[5] = 2;
        keys.remember(&[1; 32], Unkept::One);
        assert_eq!(keys.get(&other, 0), None);
        keys.remember(&other, Unkept::Waiters);
        assert_eq!(keys.get(&[1; 32], 0), None);
        assert_eq!(keys.get(&other, 0), Some(Unkept::Waiters));
    }
}
