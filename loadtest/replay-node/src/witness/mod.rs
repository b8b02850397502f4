//! Execution witnesses of any size, generated while they are sent: as JSON for
//! `debug_executionWitness`, in RLP for `engine_newPayloadWithWitness`, and in SSZ for the REST
//! route.
//!
//! Their items come from a pool of nodes, codes, keys and headers that is generated once from a
//! seed; the number of an item determines which pool item it is and the digits that make it
//! unique. So the size determines the witness, its length is known in advance, and no more than
//! one piece of it is in memory.

mod pieces;
mod pool;

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

pub use self::pieces::WitnessPieceIterator;
use self::pool::WitnessItemPool;
use crate::body_slices::SharedBodySlices;
use crate::page::BodyFormat;

/// A list of an execution witness, by its member name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WitnessList {
    State,
    Codes,
    Keys,
    Headers,
}

const LISTS: [WitnessList; 4] = [
    WitnessList::State,
    WitnessList::Codes,
    WitnessList::Keys,
    WitnessList::Headers,
];

impl WitnessList {
    fn member_name(self) -> &'static str {
        match self {
            WitnessList::State => "state",
            WitnessList::Codes => "codes",
            WitnessList::Keys => "keys",
            WitnessList::Headers => "headers",
        }
    }

    /// Returns the number of trie nodes per item of this list: the ratio in recorded witnesses.
    fn trie_nodes_per_item(self) -> u64 {
        match self {
            WitnessList::State => 1,
            WitnessList::Codes => 77,
            WitnessList::Keys => 5,
            WitnessList::Headers => 500,
        }
    }

    /// Returns the maximum number of items in the list.
    fn max_items(self) -> u64 {
        match self {
            WitnessList::Headers => 256,
            _ => u64::MAX,
        }
    }
}

/// The form of a response with a witness, which depends on the method or the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WitnessFormat {
    /// An object with the lists.
    Object,
    /// One string, in RLP: `[headers, codes, state, keys]`.
    Rlp,
    /// The payload's status, without a witness.
    Status,
    /// The status and the witness without keys, as the route returns them in SSZ.
    Ssz,
    /// The status and the witness without keys, in JSON.
    Nested,
}

/// Shape of each method's response.
const METHODS: [(&str, WitnessFormat); 12] = [
    ("debug_executionWitness", WitnessFormat::Object),
    ("debug_executionWitnessByBlockHash", WitnessFormat::Object),
    ("engine_newPayloadV1", WitnessFormat::Status),
    ("engine_newPayloadV2", WitnessFormat::Status),
    ("engine_newPayloadV3", WitnessFormat::Status),
    ("engine_newPayloadV4", WitnessFormat::Status),
    ("engine_newPayloadV5", WitnessFormat::Status),
    ("engine_newPayloadWithWitnessV1", WitnessFormat::Rlp),
    ("engine_newPayloadWithWitnessV2", WitnessFormat::Rlp),
    ("engine_newPayloadWithWitnessV3", WitnessFormat::Rlp),
    ("engine_newPayloadWithWitnessV4", WitnessFormat::Rlp),
    ("engine_newPayloadWithWitnessV5", WitnessFormat::Rlp),
];

impl WitnessFormat {
    /// Returns the form of a method's response, or `None` if the method does not return a witness.
    pub fn from_witness_method(method: &str) -> Option<Self> {
        let known = METHODS.iter().find(|(name, _)| *name == method);
        known.map(|(_, shape)| *shape)
    }

    /// Returns the form of the REST route's response in a format.
    pub fn from_format(form: BodyFormat) -> Self {
        match form {
            BodyFormat::Json => WitnessFormat::Nested,
            BodyFormat::Ssz => WitnessFormat::Ssz,
        }
    }

    pub fn body_format(self) -> BodyFormat {
        match self {
            WitnessFormat::Ssz => BodyFormat::Ssz,
            _ => BodyFormat::Json,
        }
    }
}

/// The approximate bytes of a witness in JSON: `1500000`, `500M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WitnessByteSize(pub u64);

impl WitnessByteSize {
    const MOST: u64 = 8_000_000_000;
}

impl FromStr for WitnessByteSize {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "a number of bytes, or of k, M or G, at most 8G";
        let units = [('k', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)];
        let with_unit = units
            .iter()
            .find_map(|(name, unit)| Some((text.strip_suffix(*name)?, *unit)));
        let (digits, unit) = with_unit.unwrap_or((text, 1));
        let number: u64 = digits.parse().map_err(|_| expected)?;
        let size = number.checked_mul(unit).filter(|size| *size <= Self::MOST);
        size.map(Self).ok_or(expected)
    }
}

/// The generator of execution witnesses of one size, from a pool of items.
#[derive(Clone, Debug)]
pub struct WitnessGenerator {
    pool: Arc<WitnessItemPool>,
    size: WitnessByteSize,
    /// Number of calls of each of [`METHODS`].
    calls_by_method: Arc<[AtomicU64; METHODS.len()]>,
}

impl WitnessGenerator {
    /// Creates the generator with a pool of items from `seed`, and no counted calls.
    pub fn new(seed: u64, size: WitnessByteSize) -> Self {
        Self {
            pool: Arc::new(WitnessItemPool::new(seed)),
            size,
            calls_by_method: Arc::default(),
        }
    }

    /// Counts a call of a method with witnesses; other methods are not counted.
    pub fn count_witness_call(&self, method: &str) {
        let methods = METHODS.iter().zip(self.calls_by_method.iter());
        for (_, calls) in methods.filter(|((name, _), _)| *name == method) {
            calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn calls_by_method(&self) -> impl Iterator<Item = (&str, u64)> {
        let methods = METHODS.iter().zip(self.calls_by_method.iter());
        methods.map(|((name, _), calls)| (*name, calls.load(Ordering::Relaxed)))
    }

    /// Returns a generator of another size that shares the pool.
    pub fn copy_with_size(&self, size: WitnessByteSize) -> Self {
        Self {
            size,
            ..self.clone()
        }
    }

    /// Returns the response to a call in pieces of `piece` bytes.
    pub fn response_pieces(
        &self,
        shape: WitnessFormat,
        id: &str,
        piece: usize,
    ) -> WitnessPieceIterator {
        WitnessPieceIterator::new(self, shape, id, piece)
    }

    /// Returns the response to the call with this `id` in the format `shape`, in one piece.
    pub fn build_complete_response(&self, shape: WitnessFormat, id: &str) -> SharedBodySlices {
        let mut pieces = self.response_pieces(shape, id, usize::MAX);
        SharedBodySlices::from(pieces.next().unwrap_or_default())
    }
}

/// The numbers of items in each list of a witness, and their lengths.
#[derive(Clone, Copy, Debug, Default)]
struct WitnessLengths {
    /// Number of items of each of [`LISTS`].
    items: [u64; 4],
    digits: [u64; 4],
    /// Bytes of the items in RLP, with their prefixes.
    rlp: [u64; 4],
}

impl WitnessLengths {
    /// Adds items to the lists in turn, until their JSON has the witness's size.
    fn from_witness(witness: &WitnessGenerator) -> Self {
        let mut counts = Self::default();
        let mut nodes = 0;
        let mut json = 0;
        while nodes == 0 || json < witness.size.0 {
            for (at, list) in LISTS.into_iter().enumerate() {
                let number = counts.items[at];
                if nodes % list.trie_nodes_per_item() == 0 && number < list.max_items() {
                    let digits = witness.pool.pool_item(list, number).len() as u64;
                    counts.items[at] += 1;
                    counts.digits[at] += digits;
                    counts.rlp[at] += digits / 2 + rlp_prefix_length(list, digits / 2);
                    // with `"0x",`
                    json += digits + 5;
                }
            }
            nodes += 1;
        }
        counts
    }
}

/// Returns the length of an item's RLP prefix: headers are lists already.
fn rlp_prefix_length(list: WitnessList, len: u64) -> u64 {
    match list {
        WitnessList::Headers => 0,
        _ => rlp_length_prefix(0x80, len).len() as u64,
    }
}

/// Returns the RLP prefix of a string (0x80) or a list (0xc0) of this length; a string of one
/// byte has another form, but every string here is longer.
fn rlp_length_prefix(kind: u8, len: u64) -> Vec<u8> {
    if len < 56 {
        return vec![kind + len as u8];
    }
    let bytes = len.to_be_bytes();
    let significant = &bytes[len.leading_zeros() as usize / 8..];
    let mut head = vec![kind + 55 + significant.len() as u8];
    head.extend_from_slice(significant);
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_parsed_with_its_suffix_and_limited() {
        let read = |text: &str| text.parse::<WitnessByteSize>().ok().map(|size| size.0);
        assert_eq!(read("1500"), Some(1500));
        assert_eq!(read("2k"), Some(2000));
        assert_eq!(read("500M"), Some(500_000_000));
        assert_eq!(read("8G"), Some(8_000_000_000));
        for text in [
            "",
            "M",
            "-1",
            "1.5M",
            "9G",
            "1T",
            "5kk",
            "99999999999999999999",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn rlp_prefix_depends_on_kind_and_length() {
        assert_eq!(rlp_length_prefix(0x80, 55), [0xb7]);
        assert_eq!(rlp_length_prefix(0x80, 56), [0xb8, 56]);
        assert_eq!(rlp_length_prefix(0xc0, 0), [0xc0]);
        assert_eq!(rlp_length_prefix(0xc0, 256), [0xf9, 1, 0]);
        assert_eq!(rlp_length_prefix(0xc0, 0x0102_0304), [0xfb, 1, 2, 3, 4]);
    }
}
