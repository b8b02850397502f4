//! The method table: the class of each method, and the position of the block on which its
//! response depends.
//!
//! A method without a row is [`MethodClass::Never`]. Whole families need no rows therefore:
//! `personal_`, `admin_`, `miner_`, `engine_`, and methods that a node invents. The rows of class
//! `Never` are methods that clients call often, or that look as if they could be stored. The rows are
//! in `method_table`.

use super::method_table::{new_method_table_row, METHOD_TABLE};

pub use super::method_row::{
    BlockNumberPath, BlockParamPosition, MethodClass, MethodRow, ResultBlockPosition,
    ResultPathStep, ANY_MEMBER,
};

/// Returns the row of a method, by its exact name; methods without a row share one whose responses
/// are never stored.
pub fn find_method_row(name: &[u8]) -> &'static MethodRow {
    static UNKNOWN: MethodRow = new_method_table_row(
        "",
        MethodClass::Never,
        BlockParamPosition::None,
        ResultBlockPosition::None,
    );
    method_table_index(name).map_or(&UNKNOWN, |row| &METHOD_TABLE[row])
}

/// Returns the index in [`all_method_table_rows`] of the method's row, or `None` if it has none.
pub fn method_table_index(name: &[u8]) -> Option<usize> {
    let found = METHOD_TABLE.binary_search_by(|row| row.name.as_bytes().cmp(name));
    found.ok()
}

/// Number of rows.
pub const METHOD_COUNT: usize = METHOD_TABLE.len();

/// Returns all rows of the method table, sorted by name.
pub fn all_method_table_rows() -> &'static [MethodRow] {
    METHOD_TABLE
}

#[cfg(test)]
mod tests {
    use super::{find_method_row, BlockParamPosition, MethodClass, METHOD_TABLE};

    #[test]
    fn rows_are_sorted_and_found_by_name() {
        assert!(METHOD_TABLE.is_sorted_by(|a, b| a.name < b.name));
        for row in METHOD_TABLE {
            assert_eq!(find_method_row(row.name.as_bytes()), row);
        }
    }

    #[test]
    fn method_without_a_row_is_never_stored() {
        for name in [
            "",
            "eth_cal",
            "eth_callx",
            "ETH_CALL",
            "eth_getBlockByNumber ",
            "zzz",
            "engine_newPayloadV4",
            "engine_getPayloadV4",
            "personal_sign",
            "admin_peers",
            "miner_start",
            "eth_signTypedData_v4",
            "eth_newLogsFilter",
            "eth_getFilterTraces",
            "txpool_besuTransactions",
        ] {
            let row = find_method_row(name.as_bytes());
            assert_eq!(
                (row.class, row.at),
                (MethodClass::Never, BlockParamPosition::None),
                "{name}"
            );
        }
    }

    #[test]
    fn immutable_rows_depend_on_no_block_or_on_a_hash() {
        for row in METHOD_TABLE
            .iter()
            .filter(|row| row.class == MethodClass::Immutable)
        {
            let timeless = matches!(
                row.at,
                BlockParamPosition::None | BlockParamPosition::Hash(_)
            );
            assert!(timeless, "{}", row.name);
        }
    }
}
