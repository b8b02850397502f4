//! The types of a row of the [method table](super::methods).

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
