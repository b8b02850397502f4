//! Answers that are believed when the node has given them twice.
//!
//! A node that is behind does not refuse a range of blocks that ends beyond its
//! head, but answers with what it has, and nothing in the answer says so. Which
//! blocks are final another node may have said. So the first such answer is kept
//! for a short time only, and its digest is remembered here: what is asked for
//! some time later, and answered with the same bytes, is taken for whole. Nodes
//! that are behind catch up meanwhile, or another one answers.
//!
//! In a table of fixed size, where two share each place and the newer one
//! drives out the older; what was driven out is asked for once more.

use std::sync::Mutex;

use crate::cache::Key;
use crate::lock::locked;
use crate::times::confirmation_delay;

/// Places; a power of two. With [`SHARE`] some 330 KiB.
const PLACES: usize = 2048;

/// Answers that share a place.
const SHARE: usize = 2;

/// What a node said.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// Of the answer.
    digest: [u8; 16],
    /// When the node was asked, in milliseconds.
    asked_at: u64,
    /// The last purge that was known then.
    generation: u64,
    /// The last reorganisation that was known then.
    epoch: u64,
}

impl Said {
    /// That `result` was said, by a node that was asked then.
    pub fn new(result: &[u8], asked_at: u64, generation: u64, epoch: u64) -> Self {
        let mut digest = [0; 16];
        blake3::Hasher::new()
            .update(result)
            .finalize_xof()
            .fill(&mut digest);
        Self {
            digest,
            asked_at,
            generation,
            epoch,
        }
    }

    /// Whether both are the same, with nothing between them that could have
    /// made the earlier one wrong.
    fn agrees(&self, other: &Self) -> bool {
        self.digest == other.digest
            && self.generation == other.generation
            && self.epoch == other.epoch
    }
}

type Place = [Option<(Key, Said)>; SHARE];

/// What was said first, of a bounded number of keys.
#[derive(Debug, Default)]
pub struct Repeated(Mutex<Vec<Place>>);

impl Repeated {
    /// Whether the node had said the same of `key` some time before. If it said
    /// something else, or nothing is known, this is what it said first.
    pub fn confirms(&self, key: &Key, said: Said) -> bool {
        let mut places = locked(&self.0);
        if places.is_empty() {
            if places.try_reserve_exact(PLACES).is_err() {
                return false;
            }
            places.resize_with(PLACES, || [None; SHARE]);
        }
        let number = usize::from(u16::from_le_bytes([key[0], key[1]]));
        let Some(place) = places.get_mut(number % PLACES) else {
            return false;
        };
        match place.iter_mut().flatten().find(|(known, _)| known == key) {
            Some((_, first)) if first.agrees(&said) => {
                if said.asked_at < first.asked_at {
                    first.asked_at = said.asked_at;
                }
                said.asked_at - first.asked_at >= confirmation_delay()
            }
            Some((_, first)) => {
                // what was asked earlier may come later, and says no more
                if said.asked_at >= first.asked_at {
                    *first = said;
                }
                false
            }
            None => {
                let [newer, older] = place;
                *older = newer.replace((*key, said));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Repeated, Said, PLACES, SHARE};

    const LATER: u64 = 10_000;

    fn said(result: &str, asked_at: u64) -> Said {
        Said::new(result.as_bytes(), asked_at, 1, 1)
    }

    #[test]
    fn the_same_some_time_later_is_believed() {
        let repeated = Repeated::default();
        let key = [7; 32];
        assert!(!repeated.confirms(&key, said("a", 1_000)));
        assert!(!repeated.confirms(&key, said("a", 999 + LATER)));
        assert!(repeated.confirms(&key, said("a", 1_000 + LATER)));
        // when that has expired, too
        assert!(repeated.confirms(&key, said("a", 1_001 + LATER)));
        assert!(!repeated.confirms(&[8; 32], said("a", 1_000 + 2 * LATER)));
    }

    #[test]
    fn another_answer_begins_anew() {
        let repeated = Repeated::default();
        let key = [7; 32];
        assert!(!repeated.confirms(&key, said("a", 0)));
        assert!(!repeated.confirms(&key, said("b", LATER)));
        assert!(!repeated.confirms(&key, said("a", LATER + 1)));
        assert!(!repeated.confirms(&key, said("a", 2 * LATER)));
        // of before, and late
        assert!(!repeated.confirms(&key, said("b", 5)));
        assert!(repeated.confirms(&key, said("a", 2 * LATER + 1)));
    }

    #[test]
    fn a_purge_and_a_reorganisation_begin_anew() {
        let repeated = Repeated::default();
        let key = [7; 32];
        let mut now = 0;
        for (generation, epoch) in [(1, 1), (2, 1), (2, 2)] {
            let said = |at| Said::new(b"a", at, generation, epoch);
            assert!(!repeated.confirms(&key, said(now)));
            now += LATER;
            assert!(repeated.confirms(&key, said(now)));
            now += LATER;
        }
    }

    #[test]
    fn the_table_does_not_grow() {
        let repeated = Repeated::default();
        let mut key = [0; 32];
        for n in 0..4 * PLACES as u64 {
            key[2..10].copy_from_slice(&n.to_le_bytes());
            assert!(!repeated.confirms(&key, said("a", n)));
        }
        let places = repeated.0.lock().unwrap();
        assert_eq!(places.len(), PLACES);
        assert_eq!(places[0].iter().flatten().count(), SHARE);
        assert!(places[1..].iter().flatten().flatten().next().is_none());
    }
}
