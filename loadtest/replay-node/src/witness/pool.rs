//! Pool of the items of witnesses: trie nodes, codes, keys and headers, in hex.

use bytes::BytesMut;

use super::{rlp_length_prefix, WitnessList};
use crate::sample::chain::random_code;
use crate::sample::world::SeededGenerator;

const NODES: usize = 4096;
const CODES: usize = 64;
const KEYS: usize = 512;
const HEADERS: usize = 64;
/// Maximum bytes of a code that may be deployed.
const MOST_CODE: u64 = 24_576;
/// Position of an item's unique digits: within the first hash of a node or header.
const UNIQUE_DIGITS: std::ops::Range<usize> = 12..28;

/// The pool of items for all witnesses, generated once from a seed.
#[derive(Debug)]
pub struct WitnessItemPool {
    lists: [Vec<String>; 4],
    /// Items of the lists as bytes.
    bytes: [Vec<Vec<u8>>; 4],
    seed: u64,
}

impl WitnessItemPool {
    /// Generates the items from the seed: trie nodes, codes, keys and headers.
    pub fn new(seed: u64) -> Self {
        let mut dice = SeededGenerator::new(seed);
        let mut many = |count: usize, one: fn(&mut SeededGenerator) -> Vec<u8>| -> Vec<Vec<u8>> {
            (0..count).map(|_| one(&mut dice)).collect()
        };
        let bytes = [
            many(NODES, random_trie_node),
            many(CODES, |dice| {
                // equal shares of short and long ones
                let most = MOST_CODE >> dice.number_below(7);
                let len = dice.number_between(most / 2, most);
                let mut code = random_code(dice, len as usize);
                code.truncate(len as usize);
                code
            }),
            many(KEYS, |dice| dice.random_bytes(32)),
            many(HEADERS, random_header),
        ];
        let lists = bytes.each_ref();
        Self {
            lists: lists.map(|list| list.iter().map(hex::encode).collect()),
            bytes,
            seed,
        }
    }

    /// Returns the pool item for this number of a list, without its unique digits.
    pub fn pool_item(&self, list: WitnessList, number: u64) -> &str {
        &self.lists[list as usize][self.pool_item_index(list, number)]
    }

    /// Returns the index of the pool item for this number, which is pseudo-random.
    fn pool_item_index(&self, list: WitnessList, number: u64) -> usize {
        let items = self.lists[list as usize].len() as u64;
        (splitmix_finalize(self.seed ^ (number << 2 | list as u64)) % items) as usize
    }

    /// Returns the unique digits of an item.
    fn digits_unique_to_item(&self, list: WitnessList, number: u64) -> impl Iterator<Item = u8> {
        let own = splitmix_finalize(!self.seed ^ (number << 2 | list as u64));
        (0..UNIQUE_DIGITS.len()).map(move |at| (own >> (4 * at)) as u8 & 15)
    }

    /// Appends the item's bytes with its unique digits.
    pub fn append_pool_item_bytes(&self, list: WitnessList, number: u64, to: &mut BytesMut) {
        let begin = to.len() + UNIQUE_DIGITS.start / 2;
        to.extend_from_slice(&self.bytes[list as usize][self.pool_item_index(list, number)]);
        let own = &mut to[begin..][..UNIQUE_DIGITS.len() / 2];
        own.fill(0);
        for (at, digit) in self.digits_unique_to_item(list, number).enumerate() {
            own[at / 2] = own[at / 2] << 4 | digit;
        }
    }

    /// Appends the item's hex digits with its unique digits.
    pub fn append_pool_item_hex(&self, list: WitnessList, number: u64, to: &mut BytesMut) {
        let item = self.pool_item(list, number).as_bytes();
        let mut digits = [0; UNIQUE_DIGITS.end - UNIQUE_DIGITS.start];
        for (place, digit) in digits
            .iter_mut()
            .zip(self.digits_unique_to_item(list, number))
        {
            *place = b"0123456789abcdef"[usize::from(digit)];
        }
        to.extend_from_slice(&item[..UNIQUE_DIGITS.start]);
        to.extend_from_slice(&digits);
        to.extend_from_slice(&item[UNIQUE_DIGITS.end..]);
    }
}

/// Returns the finalizer of splitmix64: each bit depends on all.
fn splitmix_finalize(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Generates a trie node: mostly full branches, as near the root, otherwise other branches or
/// leaves.
fn random_trie_node(dice: &mut SeededGenerator) -> Vec<u8> {
    let children = match dice.number_below(100) {
        0..=54 => 16,
        55..=74 => dice.number_between(2, 15),
        75..=89 => {
            return rlp_list(&[
                rlp_string(&dice.random_bytes(31)),
                rlp_string(&dice.random_bytes(70)),
            ])
        }
        _ => {
            return rlp_list(&[
                rlp_string(&dice.random_bytes(31)),
                rlp_string(&dice.random_bytes(33)),
            ])
        }
    };
    let hashes = (0..children).map(|_| rlp_string(&dice.random_bytes(32)));
    let mut parts: Vec<Vec<u8>> = hashes.collect();
    parts.resize(17, vec![0x80]);
    rlp_list(&parts)
}

/// Generates a block header: hashes, a bloom, and numbers.
fn random_header(dice: &mut SeededGenerator) -> Vec<u8> {
    let lengths = [
        32, 32, 20, 32, 32, 32, 256, 4, 4, 4, 4, 8, 32, 8, 5, 32, 3, 4, 32, 32,
    ];
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for len in lengths {
        let mut bytes = dice.random_bytes(len);
        // Numbers have no leading zeros.
        bytes[0] |= 1;
        parts.push(rlp_string(&bytes));
    }
    // Difficulty.
    parts.insert(7, vec![0x80]);
    rlp_list(&parts)
}

fn rlp_string(bytes: &[u8]) -> Vec<u8> {
    [&rlp_length_prefix(0x80, bytes.len() as u64), bytes].concat()
}

fn rlp_list(parts: &[Vec<u8>]) -> Vec<u8> {
    let body = parts.concat();
    [rlp_length_prefix(0xc0, body.len() as u64), body].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::witness::LISTS;

    #[test]
    fn pool_items_are_unique_by_number() {
        let pool = WitnessItemPool::new(1);
        let mut seen = HashSet::new();
        for list in LISTS {
            for number in 0..5000 {
                let mut item = BytesMut::new();
                pool.append_pool_item_hex(list, number, &mut item);
                assert_eq!(item.len(), pool.pool_item(list, number).len());
                assert!(seen.insert(item), "{list:?} {number}");
            }
        }
    }

    #[test]
    fn item_lengths_are_within_the_bounds_of_real_witnesses() {
        let pool = WitnessItemPool::new(1);
        let bounds = [(66, 532), (192, 24_576), (32, 32), (560, 640)];
        for (list, (least, most)) in LISTS.into_iter().zip(bounds) {
            let lengths = (0..5000).map(|number| pool.pool_item(list, number).len() / 2);
            let (min, max) = (lengths.clone().min().unwrap(), lengths.max().unwrap());
            assert!(least <= min && max <= most, "{list:?}: {min} to {max}");
        }
        // Branches with all of their children: 0xf90211.
        let full = (0..1000).filter(|number| {
            pool.pool_item(WitnessList::State, *number)
                .starts_with("f90211a0")
        });
        assert!((400..700).contains(&full.count()));
    }
}
