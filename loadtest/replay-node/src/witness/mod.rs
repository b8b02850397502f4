//! Execution witnesses of any size, made while they are sent: as
//! `debug_executionWitness` gives them, and in RLP, as
//! `engine_newPayloadWithWitness` does; in SSZ, as that has it over REST.
//!
//! All is taken from a pool of nodes, codes, keys and headers that a seed
//! makes once; which comes where, and digits that make each one of its own,
//! derive from its number. So a witness is known by its size, its length can
//! be told beforehand, and no more of it is in memory than a piece.

mod pieces;
mod pool;

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

pub use self::pieces::Pieces;
use self::pool::Pool;
use crate::page::Form;
use crate::payload::Payload;

/// The lists of a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    State,
    Codes,
    Keys,
    Headers,
}

const LISTS: [List; 4] = [List::State, List::Codes, List::Keys, List::Headers];

impl List {
    fn name(self) -> &'static str {
        match self {
            List::State => "state",
            List::Codes => "codes",
            List::Keys => "keys",
            List::Headers => "headers",
        }
    }

    /// One comes with every so many nodes: the shares of recorded witnesses.
    fn every(self) -> u64 {
        match self {
            List::State => 1,
            List::Codes => 77,
            List::Keys => 5,
            List::Headers => 500,
        }
    }

    fn most(self) -> u64 {
        match self {
            List::Headers => 256,
            _ => u64::MAX,
        }
    }
}

/// What a method gives of a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An object of lists.
    Object,
    /// One string, in RLP: `[headers, codes, state, keys]`.
    Rlp,
    /// None: the payload's status alone.
    Status,
    /// A status and a witness beside it, without keys, as the route has them: SSZ.
    Ssz,
    /// The same as JSON.
    Nested,
}

/// What the methods give.
const METHODS: [(&str, Shape); 12] = [
    ("debug_executionWitness", Shape::Object),
    ("debug_executionWitnessByBlockHash", Shape::Object),
    ("engine_newPayloadV1", Shape::Status),
    ("engine_newPayloadV2", Shape::Status),
    ("engine_newPayloadV3", Shape::Status),
    ("engine_newPayloadV4", Shape::Status),
    ("engine_newPayloadV5", Shape::Status),
    ("engine_newPayloadWithWitnessV1", Shape::Rlp),
    ("engine_newPayloadWithWitnessV2", Shape::Rlp),
    ("engine_newPayloadWithWitnessV3", Shape::Rlp),
    ("engine_newPayloadWithWitnessV4", Shape::Rlp),
    ("engine_newPayloadWithWitnessV5", Shape::Rlp),
];

impl Shape {
    /// Of a method; `None`: it has nothing to do with witnesses.
    pub fn of(method: &str) -> Option<Self> {
        let known = METHODS.iter().find(|(name, _)| *name == method);
        known.map(|(_, shape)| *shape)
    }

    /// What the route gives.
    pub fn of_route(form: Form) -> Self {
        match form {
            Form::Json => Shape::Nested,
            Form::Ssz => Shape::Ssz,
        }
    }

    pub fn form(self) -> Form {
        match self {
            Shape::Ssz => Form::Ssz,
            _ => Form::Json,
        }
    }
}

/// Bytes of a witness' JSON, about: `1500000`, `500M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl Size {
    const MOST: u64 = 8_000_000_000;
}

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "bytes, or with k, M or G, at most 8G";
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

/// Where witnesses come from.
#[derive(Clone, Debug)]
pub struct Witness {
    pool: Arc<Pool>,
    size: Size,
    /// Calls of each of [`METHODS`].
    calls: Arc<[AtomicU64; METHODS.len()]>,
}

impl Witness {
    pub fn new(seed: u64, size: Size) -> Self {
        Self {
            pool: Arc::new(Pool::new(seed)),
            size,
            calls: Arc::default(),
        }
    }

    /// Counts a call.
    pub fn called(&self, method: &str) {
        let methods = METHODS.iter().zip(self.calls.iter());
        for (_, calls) in methods.filter(|((name, _), _)| *name == method) {
            calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn calls(&self) -> impl Iterator<Item = (&str, u64)> {
        let methods = METHODS.iter().zip(self.calls.iter());
        methods.map(|((name, _), calls)| (*name, calls.load(Ordering::Relaxed)))
    }

    /// The same of another size.
    pub fn of_size(&self, size: Size) -> Self {
        Self {
            size,
            ..self.clone()
        }
    }

    /// The answer to a call in pieces of so many bytes.
    pub fn pieces(&self, shape: Shape, id: &str, piece: usize) -> Pieces {
        Pieces::new(self, shape, id, piece)
    }

    /// The answer to a call, whole.
    pub fn payload(&self, shape: Shape, id: &str) -> Payload {
        let mut pieces = self.pieces(shape, id, usize::MAX);
        Payload::from(pieces.next().unwrap_or_default())
    }
}

/// How long a witness is.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Of each of [`LISTS`].
    items: [u64; 4],
    digits: [u64; 4],
    /// Bytes of its items in RLP, with what precedes each.
    rlp: [u64; 4],
}

impl Counts {
    fn of(witness: &Witness) -> Self {
        let mut counts = Self::default();
        let mut nodes = 0;
        let mut json = 0;
        while nodes == 0 || json < witness.size.0 {
            for (at, list) in LISTS.into_iter().enumerate() {
                let number = counts.items[at];
                if nodes % list.every() == 0 && number < list.most() {
                    let digits = witness.pool.item(list, number).len() as u64;
                    counts.items[at] += 1;
                    counts.digits[at] += digits;
                    counts.rlp[at] += digits / 2 + rlp_prefix(list, digits / 2);
                    // with `"0x",`
                    json += digits + 5;
                }
            }
            nodes += 1;
        }
        counts
    }
}

/// How much precedes an item: headers are lists already.
fn rlp_prefix(list: List, len: u64) -> u64 {
    match list {
        List::Headers => 0,
        _ => rlp_head(0x80, len).len() as u64,
    }
}

/// What precedes a string (0x80) or a list (0xc0) of a length in RLP; a string
/// of one byte has another form, and none here is as short.
fn rlp_head(kind: u8, len: u64) -> Vec<u8> {
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
    fn sizes() {
        let read = |text: &str| text.parse::<Size>().ok().map(|size| size.0);
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
    fn heads_of_rlp() {
        assert_eq!(rlp_head(0x80, 55), [0xb7]);
        assert_eq!(rlp_head(0x80, 56), [0xb8, 56]);
        assert_eq!(rlp_head(0xc0, 0), [0xc0]);
        assert_eq!(rlp_head(0xc0, 256), [0xf9, 1, 0]);
        assert_eq!(rlp_head(0xc0, 0x0102_0304), [0xfb, 1, 2, 3, 4]);
    }
}
