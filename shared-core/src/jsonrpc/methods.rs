//! The method table: the class of each method, and the position of the block on which its
//! response depends.
//!
//! A method without a row is [`Class::Never`]. Whole families need no rows therefore:
//! `personal_`, `admin_`, `miner_`, `engine_`, and methods that a node invents. The rows of
//! class `Never` are methods that look as if they could be stored.

use Class::{ByFinality, Config, Immutable, Never, Tip};
use ResultBlockPath::{Block, First, Item, Itself};

/// The freshness class of a method: the lifetime of its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
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
pub enum BlockParam {
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
pub const ANY: &[&str] = &["*"];

/// The position in a result of the block to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultBlockPath {
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
    Path(&'static Path),
}

/// The path of an operator's method row to a block's number in a result. The hash, if there is one,
/// is in the same object.
#[derive(Debug, PartialEq, Eq)]
pub struct Path {
    /// Steps to the object that contains the number.
    pub steps: Vec<Step>,
    /// Name of the member with the number.
    pub number: String,
    /// Name of the member with the hash; empty if there is none.
    pub hash: String,
}

/// One step of a path into a result.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The step to a member.
    Member(String),
    /// The step to the first element of an array.
    First,
}

/// A row of the method table: the freshness class of a method, and the positions of its block.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    /// Name of the method; empty for methods without a row.
    pub name: &'static str,
    /// Lifetime of the method's responses.
    pub class: Class,
    /// Position of the block reference in the call.
    pub at: BlockParam,
    /// Position of the block in the result.
    pub in_result: ResultBlockPath,
    /// The row was written by an operator.
    pub is_operators: bool,
}

impl Method {
    /// Whether a result is a list of traces of a block's transactions. Each trace may have failed
    /// for a reason within the node.
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
    pub fn finds_pending(&self) -> bool {
        const NAMES: [&str; 5] = [
            "debug_getRawTransaction",
            "eth_getRawTransactionByHash",
            "eth_getTransactionByHash",
            "eth_getTransactionBySenderAndNonce",
            "zks_getTransactionDetails",
        ];
        self.is_operators && self.at == BlockParam::Result || NAMES.contains(&self.name)
    }

    /// Whether a result is an encoding, where `"0x"` is the encoding of nothing, which nodes send
    /// in place of `null`.
    pub fn returns_encoded_bytes(&self) -> bool {
        self.name.contains("_getRaw")
    }
}

/// Returns the row of a method, by its exact name; methods without a row share one whose responses
/// are never stored.
pub fn method(name: &[u8]) -> &'static Method {
    static UNKNOWN: Method = row("", Never, BlockParam::None, ResultBlockPath::None);
    position(name).map_or(&UNKNOWN, |row| &METHODS[row])
}

/// Returns the index in [`all`] of the method's row, or `None` if it has none.
pub fn position(name: &[u8]) -> Option<usize> {
    let found = METHODS.binary_search_by(|row| row.name.as_bytes().cmp(name));
    found.ok()
}

/// Number of rows.
pub const NUMBER: usize = METHODS.len();

/// Returns all rows of the method table, sorted by name.
pub fn all() -> &'static [Method] {
    METHODS
}

/// Creates a row of the method table.
const fn row(
    name: &'static str,
    class: Class,
    at: BlockParam,
    in_result: ResultBlockPath,
) -> Method {
    Method {
        name,
        class,
        at,
        in_result,
        is_operators: false,
    }
}

const NO: ResultBlockPath = ResultBlockPath::None;
const NONE: BlockParam = BlockParam::None;
const RESULT: BlockParam = BlockParam::Result;

const fn hash(n: usize) -> BlockParam {
    BlockParam::Hash(n)
}

const fn number(n: usize) -> BlockParam {
    BlockParam::Number(n)
}

const fn param(n: usize) -> BlockParam {
    BlockParam::Param(n)
}

const CONTEXT: BlockParam = BlockParam::ParamMember(1, "blockNumber", &["transactionIndex"]);
const LOGS: BlockParam = BlockParam::Range(0, &["address", "topics"]);
const TRACES: BlockParam =
    BlockParam::Range(0, &["after", "count", "fromAddress", "mode", "toAddress"]);

/// Rows, sorted by name.
#[rustfmt::skip]
static METHODS: &[Method] = &[
    row("arbtrace_block", ByFinality, number(0), First),
    row("arbtrace_call", ByFinality, param(2), NO),
    row("arbtrace_callMany", ByFinality, param(1), NO),
    row("arbtrace_filter", ByFinality, TRACES, NO),
    row("arbtrace_get", ByFinality, RESULT, Item),
    row("arbtrace_replayBlockTransactions", ByFinality, param(0), NO),
    row("arbtrace_replayTransaction", ByFinality, RESULT, NO),
    row("arbtrace_transaction", ByFinality, RESULT, First),
    row("bor_getAuthor", ByFinality, param(0), NO),
    row("bor_getCurrentProposer", Tip, NONE, NO),
    row("bor_getCurrentValidators", Tip, NONE, NO),
    row("bor_getRootHash", Tip, NONE, NO),
    row("bor_getSigners", ByFinality, number(0), NO),
    row("bor_getSignersAtHash", Immutable, hash(0), NO),
    row("bor_getSnapshot", ByFinality, number(0), NO),
    row("bor_getSnapshotAtHash", Immutable, hash(0), NO),
    row("bor_getSnapshotProposer", ByFinality, param(0), NO),
    row("bor_getSnapshotProposerSequence", ByFinality, param(0), NO),
    // A query for the vote locks the node's chain to it.
    row("bor_getVoteOnHash", Never, NONE, NO),
    row("debug_accountAt", Immutable, hash(0), NO),
    row("debug_accountRange", ByFinality, param(0), NO),
    row("debug_executionWitness", ByFinality, param(0), NO),
    row("debug_executionWitnessByBlockHash", Immutable, hash(0), NO),
    row("debug_getModifiedAccountsByHash", Immutable, hash(0), NO),
    row("debug_getRawBlock", ByFinality, param(0), NO),
    row("debug_getRawBlockAccessList", ByFinality, param(0), NO),
    row("debug_getRawHeader", ByFinality, param(0), NO),
    row("debug_getRawReceipts", ByFinality, param(0), NO),
    row("debug_getRawTransaction", ByFinality, RESULT, NO),
    row("debug_intermediateRoots", Immutable, hash(0), NO),
    row("debug_storageRangeAt", ByFinality, param(0), NO),
    row("debug_traceBlockByHash", ByFinality, hash(0), NO),
    row("debug_traceBlockByNumber", ByFinality, number(0), NO),
    row("debug_traceCall", ByFinality, param(1), NO),
    row("debug_traceCallMany", ByFinality, CONTEXT, NO),
    row("debug_traceTransaction", ByFinality, RESULT, NO),
    row("erigon_blockNumber", Tip, NONE, NO),
    row("erigon_forks", Config, NONE, NO),
    row("erigon_getBalanceChangesInBlock", ByFinality, param(0), NO),
    // p[1] is `fullTx`, not a block, and the last block before a time is undetermined until the
    // next one is final.
    row("erigon_getBlockByTimestamp", Never, NONE, NO),
    row("erigon_getBlockReceiptsByBlockHash", Immutable, hash(0), First),
    row("erigon_getHeaderByHash", Immutable, hash(0), Block),
    row("erigon_getHeaderByNumber", ByFinality, number(0), Block),
    row("erigon_getLatestLogs", ByFinality, LOGS, NO),
    row("erigon_getLogs", ByFinality, LOGS, NO),
    row("erigon_getLogsByHash", Immutable, hash(0), NO),
    row("eth_baseFee", Tip, NONE, NO),
    row("eth_blobBaseFee", Tip, NONE, NO),
    row("eth_blockNumber", Tip, NONE, Itself),
    row("eth_call", ByFinality, param(1), NO),
    row("eth_callMany", ByFinality, CONTEXT, NO),
    // The result names the head.
    row("eth_capabilities", Tip, NONE, NO),
    row("eth_chainId", Immutable, NONE, NO),
    row("eth_config", Config, NONE, NO),
    row("eth_createAccessList", Never, NONE, NO),
    row("eth_estimateGas", Tip, param(1), NO),
    row("eth_feeHistory", ByFinality, number(1), NO),
    row("eth_gasPrice", Tip, NONE, NO),
    row("eth_getAccount", ByFinality, param(1), NO),
    row("eth_getAccountInfo", ByFinality, param(1), NO),
    row("eth_getBalance", ByFinality, param(1), NO),
    row("eth_getBlockAccessList", ByFinality, param(0), NO),
    row("eth_getBlockAccessListByBlockHash", Immutable, hash(0), NO),
    row("eth_getBlockAccessListByBlockNumber", ByFinality, number(0), NO),
    row("eth_getBlockByHash", Immutable, hash(0), Block),
    row("eth_getBlockByNumber", ByFinality, number(0), Block),
    row("eth_getBlockReceipts", ByFinality, param(0), First),
    row("eth_getBlockTransactionCountByHash", Immutable, hash(0), NO),
    row("eth_getBlockTransactionCountByNumber", ByFinality, number(0), NO),
    row("eth_getCode", ByFinality, param(1), NO),
    row("eth_getFilterChanges", Never, NONE, NO),
    row("eth_getFilterLogs", Never, NONE, NO),
    row("eth_getHeaderByHash", Immutable, hash(0), Block),
    row("eth_getHeaderByNumber", ByFinality, number(0), Block),
    row("eth_getLogs", ByFinality, LOGS, NO),
    row("eth_getProof", ByFinality, param(2), NO),
    row("eth_getRawTransactionByBlockHashAndIndex", Immutable, hash(0), NO),
    row("eth_getRawTransactionByBlockNumberAndIndex", ByFinality, number(0), NO),
    row("eth_getRawTransactionByHash", ByFinality, RESULT, NO),
    row("eth_getStorageAt", ByFinality, param(2), NO),
    row("eth_getStorageValues", ByFinality, param(1), NO),
    row("eth_getTransactionByBlockHashAndIndex", Immutable, hash(0), Item),
    row("eth_getTransactionByBlockNumberAndIndex", ByFinality, number(0), Item),
    row("eth_getTransactionByHash", ByFinality, RESULT, Item),
    row("eth_getTransactionBySenderAndNonce", Tip, NONE, NO),
    row("eth_getTransactionCount", ByFinality, param(1), NO),
    row("eth_getTransactionReceipt", ByFinality, RESULT, Item),
    row("eth_getTransactionReceiptsByBlock", ByFinality, param(0), First),
    row("eth_getUncleByBlockHashAndIndex", Immutable, hash(0), NO),
    // An uncle's own number and hash differ from the ones of the block that includes it.
    row("eth_getUncleByBlockNumberAndIndex", ByFinality, number(0), NO),
    row("eth_getUncleCountByBlockHash", Immutable, hash(0), NO),
    row("eth_getUncleCountByBlockNumber", ByFinality, number(0), NO),
    row("eth_hashrate", Never, NONE, NO),
    row("eth_maxPriorityFeePerGas", Tip, NONE, NO),
    row("eth_mining", Never, NONE, NO),
    row("eth_newBlockFilter", Never, NONE, NO),
    row("eth_newFilter", Never, NONE, NO),
    row("eth_newPendingTransactionFilter", Never, NONE, NO),
    row("eth_sendRawTransaction", Never, NONE, NO),
    row("eth_sendTransaction", Never, NONE, NO),
    row("eth_sign", Never, NONE, NO),
    row("eth_signTransaction", Never, NONE, NO),
    row("eth_simulateV1", Tip, param(1), NO),
    row("eth_subscribe", Never, NONE, NO),
    row("eth_syncing", Never, NONE, NO),
    row("eth_uninstallFilter", Never, NONE, NO),
    row("eth_unsubscribe", Never, NONE, NO),
    row("net_listening", Never, NONE, NO),
    row("net_peerCount", Never, NONE, NO),
    row("net_version", Immutable, NONE, NO),
    // The node's progress, which the result contains, changes with each block.
    row("optimism_outputAtBlock", Tip, NONE, NO),
    row("optimism_rollupConfig", Config, NONE, NO),
    row("optimism_safeHeadAtL1Block", Tip, NONE, NO),
    row("ots_getApiLevel", Config, NONE, NO),
    row("ots_getBlockDetails", ByFinality, number(0), NO),
    row("ots_getBlockDetailsByHash", Immutable, hash(0), NO),
    row("ots_getBlockTransactions", ByFinality, number(0), NO),
    row("ots_getContractCreator", Tip, NONE, NO),
    row("ots_getInternalOperations", ByFinality, RESULT, NO),
    row("ots_getTransactionBySenderAndNonce", Tip, NONE, NO),
    row("ots_getTransactionError", ByFinality, RESULT, NO),
    row("ots_hasCode", ByFinality, param(1), NO),
    // The page after or before a block ends where the chain does.
    row("ots_searchTransactionsAfter", Tip, NONE, NO),
    row("ots_searchTransactionsBefore", Tip, NONE, NO),
    row("ots_traceTransaction", ByFinality, RESULT, NO),
    row("parity_getBlockReceipts", ByFinality, param(0), First),
    row("trace_block", ByFinality, number(0), First),
    row("trace_call", ByFinality, param(2), NO),
    row("trace_callMany", ByFinality, param(1), NO),
    row("trace_filter", ByFinality, TRACES, NO),
    row("trace_get", ByFinality, RESULT, Item),
    row("trace_rawTransaction", Never, NONE, NO),
    row("trace_replayBlockTransactions", ByFinality, param(0), NO),
    row("trace_replayTransaction", ByFinality, RESULT, NO),
    row("trace_transaction", ByFinality, RESULT, First),
    row("txpool_content", Never, NONE, NO),
    row("txpool_contentFrom", Never, NONE, NO),
    row("txpool_inspect", Never, NONE, NO),
    row("txpool_status", Never, NONE, NO),
    row("web3_sha3", Immutable, NONE, NO),
    row("zks_L1BatchNumber", Tip, NONE, NO),
    row("zks_L1ChainId", Immutable, NONE, NO),
    row("zks_estimateFee", Tip, NONE, NO),
    row("zks_estimateGasL1ToL2", Tip, NONE, NO),
    row("zks_getAllAccountBalances", Tip, NONE, NO),
    row("zks_getBaseTokenL1Address", Config, NONE, NO),
    row("zks_getBatchFeeInput", Tip, NONE, NO),
    // The results contain the state of a block or a transaction on the other chain.
    row("zks_getBlockDetails", Tip, NONE, NO),
    row("zks_getBridgeContracts", Config, NONE, NO),
    row("zks_getBridgehubContract", Config, NONE, NO),
    row("zks_getBytecodeByHash", Immutable, NONE, NO),
    row("zks_getFeeParams", Tip, NONE, NO),
    row("zks_getL1BatchBlockRange", Tip, NONE, NO),
    row("zks_getL1BatchDetails", Tip, NONE, NO),
    row("zks_getL1GasPrice", Tip, NONE, NO),
    row("zks_getL2DAValidator", Config, NONE, NO),
    row("zks_getL2Multicall3", Config, NONE, NO),
    row("zks_getL2ToL1LogProof", Tip, NONE, NO),
    row("zks_getL2ToL1MsgProof", Tip, NONE, NO),
    row("zks_getMainContract", Config, NONE, NO),
    row("zks_getProof", Tip, NONE, NO),
    row("zks_getProtocolVersion", Config, NONE, NO),
    row("zks_getRawBlockTransactions", Tip, NONE, NO),
    row("zks_getTestnetPaymaster", Config, NONE, NO),
    row("zks_getTimestampAsserter", Config, NONE, NO),
    row("zks_getTransactionDetails", Tip, NONE, NO),
];

#[cfg(test)]
mod tests {
    use super::{method, BlockParam, Class, METHODS};

    #[test]
    fn rows_are_sorted_and_found_by_name() {
        assert!(METHODS.is_sorted_by(|a, b| a.name < b.name));
        for row in METHODS {
            assert_eq!(method(row.name.as_bytes()), row);
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
            let row = method(name.as_bytes());
            assert_eq!(
                (row.class, row.at),
                (Class::Never, BlockParam::None),
                "{name}"
            );
        }
    }

    #[test]
    fn immutable_rows_depend_on_no_block_or_on_a_hash() {
        for row in METHODS.iter().filter(|row| row.class == Class::Immutable) {
            let timeless = matches!(row.at, BlockParam::None | BlockParam::Hash(_));
            assert!(timeless, "{}", row.name);
        }
    }
}
