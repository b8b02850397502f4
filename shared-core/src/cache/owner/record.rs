//! Rows of the store that record a namespace's chain.
//!
//! | row           | value                                                    |
//! |---------------|----------------------------------------------------------|
//! | `chain/` + ns | version of the layout, the [`ChainIdentity`]             |
//! | `final/` + ns | version, the [`FinalityMark`] of the newest final block  |
//!
//! [`ChainIdentity`]: super::tracker::ChainIdentity
//! [`FinalityMark`]: super::tracker::FinalityMark
//!
//! The values are in postcard's format. There are two rows because the second changes often and
//! is written without the write-ahead log (docs/decisions/022).

use serde::de::DeserializeOwned;
use serde::Serialize;

use crate::cache::CacheNamespace;

/// Prefixes of the row keys: the identity's and the mark's.
pub(super) const ROW_PREFIXES: [&[u8]; 2] = [b"chain/", b"final/"];

const ROW_VERSION: u8 = 2;

/// Returns the store's row keys of a namespace's chain identity and finality mark.
pub(super) fn chain_row_keys(namespace: &CacheNamespace) -> [Vec<u8>; 2] {
    ROW_PREFIXES.map(|prefix| [prefix, namespace].concat())
}

/// Serializes a chain identity or a finality mark as the value of its row.
pub(super) fn serialize_chain_row(record: &impl Serialize) -> Vec<u8> {
    // numbers and hashes can always be serialized
    postcard::to_extend(record, vec![ROW_VERSION]).unwrap_or_default()
}

/// Parses the chain identity or the finality mark in the value of a row, or returns `None` if the
/// row has another version or is malformed.
pub(super) fn parse_chain_row<T: DeserializeOwned>(row: &[u8]) -> Option<T> {
    let (record, rest) = postcard::take_from_bytes(row.strip_prefix(&[ROW_VERSION])?).ok()?;
    rest.is_empty().then_some(record)
}

#[cfg(test)]
mod tests {
    use super::super::tracker::{ChainIdentity, FinalityMark};
    use super::{parse_chain_row, serialize_chain_row};

    #[test]
    fn record_is_read_back_and_malformed_rows_are_rejected() {
        let mark = FinalityMark {
            number: 0x0102_0304_0506_0708,
            hash: [9; 32],
        };
        let row = serialize_chain_row(&mark);
        assert_eq!(parse_chain_row(&row), Some(mark));
        for length in 0..row.len() {
            assert_eq!(parse_chain_row::<FinalityMark>(&row[..length]), None);
        }
        assert_eq!(
            parse_chain_row::<FinalityMark>(&[&row[..], &[0]].concat()),
            None
        );
        assert_eq!(
            parse_chain_row::<FinalityMark>(&[&[1], &row[1..]].concat()),
            None
        );
        for chain_id in [None, Some(17_000)] {
            let genesis = [7; 32];
            let identity = ChainIdentity { chain_id, genesis };
            assert_eq!(
                parse_chain_row(&serialize_chain_row(&identity)),
                Some(identity)
            );
        }
    }
}
