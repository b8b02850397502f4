//! What is recorded of a chain, as the store's rows have it.
//!
//! | row            | value                                     |
//! |----------------|-------------------------------------------|
//! | `chain/` + ns  | the version of the layout, the [`Identity`](super::tracker::Identity) |
//! | `final/` + ns  | that version, the newest final block's [`Mark`](super::tracker::Mark) |
//!
//! in postcard's format. They are two, because the second changes often and is
//! written without the log (docs/decisions/022).

use serde::de::DeserializeOwned;
use serde::Serialize;

use crate::cache::Namespace;

/// What all keys of rows begin with.
pub(super) const PREFIXES: [&[u8]; 2] = [CHAIN, FINAL];

const CHAIN: &[u8] = b"chain/";
const FINAL: &[u8] = b"final/";
const VERSION: u8 = 2;

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

/// The value of a row.
pub(super) fn write(record: &impl Serialize) -> Vec<u8> {
    // numbers and hashes always can be
    postcard::to_extend(record, vec![VERSION]).unwrap_or_default()
}

/// `None`: it is none.
pub(super) fn read<T: DeserializeOwned>(row: &[u8]) -> Option<T> {
    let (record, rest) = postcard::take_from_bytes(row.strip_prefix(&[VERSION])?).ok()?;
    rest.is_empty().then_some(record)
}

#[cfg(test)]
mod tests {
    use super::super::tracker::{Identity, Mark};
    use super::{read, write};

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        let mark = Mark {
            number: 0x0102_0304_0506_0708,
            hash: [9; 32],
        };
        let row = write(&mark);
        assert_eq!(read(&row), Some(mark));
        for length in 0..row.len() {
            assert_eq!(read::<Mark>(&row[..length]), None);
        }
        assert_eq!(read::<Mark>(&[&row[..], &[0]].concat()), None);
        assert_eq!(read::<Mark>(&[&[1], &row[1..]].concat()), None);
        for chain_id in [None, Some(17_000)] {
            let genesis = [7; 32];
            let identity = Identity { chain_id, genesis };
            assert_eq!(read(&write(&identity)), Some(identity));
        }
    }
}
