//! The method table: the class of each method, and the position of the block on which its
//! response depends.
//!
//! A method without a row is [`MethodClass::Never`]. Whole families need no rows therefore:
//! `personal_`, `admin_`, `miner_`, `engine_`, and methods that a node invents. The rows of class
//! `Never` are methods that clients call often, or that look as if they could be stored. The rows are
//! in `method_table`.

use super::method_table::{new_method_table_row, METHOD_TABLE};

/// The freshness class of a method: the lifetime of its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MethodClass {
    /// Unlimited, for a result that is not `null` and no error.
    Immutable,
    /// Unlimited once the block is finalized; until then short, and invalidated with the block.
    ByFinality,
    /// Until there is a new head, one slot at the most.
    Tip,
    /// One minute: the response changes when the node is upgraded, which is not announced.
    Config,
    /// The response is not stored.
    Never,
}

/// The position in a call's params of the block reference on which its response depends. Parameters
/// are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockParamPosition {
    /// The call names no block.
    None,
    /// A parameter with the hash of a block.
    Hash(usize),
    /// A parameter with a block's number or tag; the node does not accept a hash.
    Number(usize),
    /// A parameter with a block's number, tag or hash, or an object of EIP-1898.
    Param(usize),
    /// A member with a block as in `Param`, of an object that may have the other members, too.
    ParamMember(usize, &'static str, &'static [&'static str]),
    /// An object with `fromBlock` and `toBlock`, or `blockHash`, that may have the other members,
    /// too.
    Range(usize, &'static [&'static str]),
    /// The result names the block.
    Result,
}

/// List of other members that allows any name, except variants of the known names in another
/// case, which some nodes read as the known ones.
pub const ANY_MEMBER: &[&str] = &["*"];

/// The position in a result of the block to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultBlockPosition {
    /// The result names no block.
    None,
    /// The result is the number of the head.
    Itself,
    /// The result is a block: members `number` and `hash`.
    Block,
    /// The result is a part of a block: members `blockNumber` and `blockHash`.
    Item,
    /// The result is an array of parts of one block.
    First,
    /// The result names the block at the path of an operator's method row.
    Path(&'static BlockNumberPath),
}

/// The path of an operator's method row to a block's number in a result. The hash, if there is one,
/// is in the same object.
#[derive(Debug, PartialEq, Eq)]
pub struct BlockNumberPath {
    /// Steps to the object that contains the number.
    pub steps: Vec<ResultPathStep>,
    /// Name of the member with the number.
    pub number: String,
    /// Name of the member with the hash; empty if there is none.
    pub hash: String,
}

/// One step of a path into a result.
#[derive(Debug, PartialEq, Eq)]
pub enum ResultPathStep {
    /// The step to a member.
    Member(String),
    /// The step to the first element of an array.
    First,
}

/// A row of the method table: the freshness class of a method, and the positions of its block.
#[derive(Debug, PartialEq, Eq)]
pub struct MethodRow {
    /// Name of the method; empty for methods without a row.
    pub name: &'static str,
    /// Lifetime of the method's responses.
    pub class: MethodClass,
    /// Position of the block reference in the call.
    pub at: BlockParamPosition,
    /// Position of the block in the result.
    pub in_result: ResultBlockPosition,
    /// The row was written by an operator.
    pub is_operators: bool,
}

impl MethodRow {
    /// Whether a result is a list of traces of a block's transactions. Each trace may have failed
    /// for a reason within the node. `true` for rows of operators, whose results are not known.
    pub fn is_trace_list(&self) -> bool {
        const NAMES: [&str; 4] = [
            "arbtrace_replayBlockTransactions",
            "debug_traceBlockByHash",
            "debug_traceBlockByNumber",
            "trace_replayBlockTransactions",
        ];
        // unknown for the rows of operators
        self.is_operators || NAMES.contains(&self.name)
    }

    /// Whether the method finds pending transactions, as soon as they are sent.
    pub fn may_return_pending_transaction(&self) -> bool {
        const NAMES: [&str; 5] = [
            "debug_getRawTransaction",
            "eth_getRawTransactionByHash",
            "eth_getTransactionByHash",
            "eth_getTransactionBySenderAndNonce",
            "zks_getTransactionDetails",
        ];
        self.is_operators && self.at == BlockParamPosition::Result || NAMES.contains(&self.name)
    }

    /// Whether a result is an encoding, where `"0x"` is the encoding of nothing, which nodes send
    /// in place of `null`.
    pub fn returns_raw_encoding(&self) -> bool {
        self.name.contains("_getRaw") || self.name.ends_with("Raw")
    }
}

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
