//! What is recorded of a chain, as the store's rows have it.
//!
//! | row            | value                                                   |
//! |----------------|---------------------------------------------------------|
//! | `chain/` + ns  | 1, genesis (32 bytes), the chain id if it is known (8)  |
//! | `final/` + ns  | 1, number (8 bytes), hash (32)                          |
//!
//! Numbers are big endian; the 1 is the version of the layout. They are two,
//! because the second changes often and is written without the log
//! (docs/decisions/022).

use super::tracker::{Hash, Identity, Mark};
use crate::cache::Namespace;

/// What all keys of rows begin with.
pub(super) const PREFIXES: [&[u8]; 2] = [CHAIN, FINAL];

const CHAIN: &[u8] = b"chain/";
const FINAL: &[u8] = b"final/";
const VERSION: u8 = 1;

/// The keys of the rows of a namespace.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) chain: Vec<u8>,
    pub(super) last: Vec<u8>,
}

pub(super) fn keys(namespace: &Namespace) -> Keys {
    Keys {
        chain: [CHAIN, namespace].concat(),
        last: [FINAL, namespace].concat(),
    }
}

pub(super) fn write_identity(identity: &Identity) -> Vec<u8> {
    let mut row = vec![VERSION];
    row.extend(identity.genesis);
    row.extend(identity.chain_id.iter().flat_map(|id| id.to_be_bytes()));
    row
}

/// `None`: it is none.
pub(super) fn read_identity(row: &[u8]) -> Option<Identity> {
    let (genesis, rest) = row.strip_prefix(&[VERSION])?.split_first_chunk()?;
    let chain_id = match rest {
        [] => None,
        id => Some(u64::from_be_bytes(id.try_into().ok()?)),
    };
    Some(Identity {
        chain_id,
        genesis: *genesis,
    })
}

pub(super) fn write_mark(mark: &Mark) -> Vec<u8> {
    let mut row = vec![VERSION];
    row.extend(mark.number.to_be_bytes());
    row.extend(mark.hash);
    row
}

/// `None`: it is none.
pub(super) fn read_mark(row: &[u8]) -> Option<Mark> {
    let (number, hash) = row.strip_prefix(&[VERSION])?.split_first_chunk()?;
    let hash: Hash = hash.try_into().ok()?;
    Some(Mark {
        number: u64::from_be_bytes(*number),
        hash,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        let mark = Mark {
            number: 0x0102_0304_0506_0708,
            hash: [9; 32],
        };
        let row = write_mark(&mark);
        assert_eq!(read_mark(&row), Some(mark));
        for chain_id in [None, Some(17_000)] {
            let identity = Identity {
                chain_id,
                genesis: [7; 32],
            };
            let row = write_identity(&identity);
            assert_eq!(read_identity(&row), Some(identity));
            assert_eq!(read_identity(&row[..row.len() - 1]), None);
            assert_eq!(read_identity(&[&row[..], &[0]].concat()), None);
        }
        for length in 0..row.len() {
            assert_eq!(read_mark(&row[..length]), None);
        }
        assert_eq!(read_mark(&[&[2], &row[1..]].concat()), None);
    }
}
