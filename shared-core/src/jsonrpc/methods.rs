//! The method table: the class of each method, and the position of the block on which its
//! response depends.
//!
//! A method without a row is [`MethodClass::Never`]. Whole families need no rows therefore:
//! `personal_`, `admin_`, `miner_`, `engine_`, and methods that a node invents. The rows of class
//! `Never` are methods that look as if they could be stored.

use MethodClass::{ByFinality, Config, Immutable, Never, Tip};
use ResultBlockPosition::{Block, First, Item, Itself};

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
        self.name.contains("_getRaw")
    }
}

/// Returns the row of a method, by its exact name; methods without a row share one whose responses
/// are never stored.
pub fn find_method_row(name: &[u8]) -> &'static MethodRow {
    static UNKNOWN: MethodRow = new_method_table_row(
        "",
        Never,
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

/// Creates a row of the method table.
const fn new_method_table_row(
    name: &'static str,
    class: MethodClass,
    at: BlockParamPosition,
    in_result: ResultBlockPosition,
) -> MethodRow {
    MethodRow {
        name,
        class,
        at,
        in_result,
        is_operators: false,
    }
}

const NO_RESULT_BLOCK: ResultBlockPosition = ResultBlockPosition::None;
const NO_BLOCK_PARAM: BlockParamPosition = BlockParamPosition::None;
const BLOCK_IN_RESULT: BlockParamPosition = BlockParamPosition::Result;

/// The block's hash is parameter `n`, counted from 0.
const fn block_hash_in_param(n: usize) -> BlockParamPosition {
    BlockParamPosition::Hash(n)
}

/// The block's number or tag is parameter `n`, counted from 0.
const fn block_number_in_param(n: usize) -> BlockParamPosition {
    BlockParamPosition::Number(n)
}

/// The block's number, tag, hash, or object with one of them (EIP-1898) is parameter `n`, counted
/// from 0.
const fn block_reference_in_param(n: usize) -> BlockParamPosition {
    BlockParamPosition::Param(n)
}

const CONTEXT_PARAM: BlockParamPosition =
    BlockParamPosition::ParamMember(1, "blockNumber", &["transactionIndex"]);
const LOG_FILTER_PARAM: BlockParamPosition = BlockParamPosition::Range(0, &["address", "topics"]);
const TRACE_FILTER_PARAM: BlockParamPosition =
    BlockParamPosition::Range(0, &["after", "count", "fromAddress", "mode", "toAddress"]);

/// Rows, sorted by name.
#[rustfmt::skip]
static METHOD_TABLE: &[MethodRow] = &[
    new_method_table_row("arbtrace_block", ByFinality, block_number_in_param(0), First),
    new_method_table_row("arbtrace_call", ByFinality, block_reference_in_param(2), NO_RESULT_BLOCK),
    new_method_table_row("arbtrace_callMany", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("arbtrace_filter", ByFinality, TRACE_FILTER_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("arbtrace_get", ByFinality, BLOCK_IN_RESULT, Item),
    new_method_table_row("arbtrace_replayBlockTransactions", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("arbtrace_replayTransaction", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("arbtrace_transaction", ByFinality, BLOCK_IN_RESULT, First),
    new_method_table_row("bor_getAuthor", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("bor_getCurrentProposer", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("bor_getCurrentValidators", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("bor_getRootHash", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("bor_getSigners", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("bor_getSignersAtHash", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("bor_getSnapshot", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("bor_getSnapshotAtHash", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("bor_getSnapshotProposer", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("bor_getSnapshotProposerSequence", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    // A query for the vote locks the node's chain to it.
    new_method_table_row("bor_getVoteOnHash", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("debug_accountAt", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_accountRange", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_executionWitness", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_executionWitnessByBlockHash", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getModifiedAccountsByHash", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getRawBlock", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getRawBlockAccessList", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getRawHeader", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getRawReceipts", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getRawTransaction", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("debug_intermediateRoots", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_storageRangeAt", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_traceBlockByHash", ByFinality, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_traceBlockByNumber", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_traceCall", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("debug_traceCallMany", ByFinality, CONTEXT_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("debug_traceTransaction", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("erigon_blockNumber", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("erigon_forks", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("erigon_getBalanceChangesInBlock", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    // p[1] is `fullTx`, not a block, and the last block before a time is undetermined until the
    // next one is final.
    new_method_table_row("erigon_getBlockByTimestamp", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("erigon_getBlockReceiptsByBlockHash", Immutable, block_hash_in_param(0), First),
    new_method_table_row("erigon_getHeaderByHash", Immutable, block_hash_in_param(0), Block),
    new_method_table_row("erigon_getHeaderByNumber", ByFinality, block_number_in_param(0), Block),
    new_method_table_row("erigon_getLatestLogs", ByFinality, LOG_FILTER_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("erigon_getLogs", ByFinality, LOG_FILTER_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("erigon_getLogsByHash", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_baseFee", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_blobBaseFee", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_blockNumber", Tip, NO_BLOCK_PARAM, Itself),
    new_method_table_row("eth_call", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_callMany", ByFinality, CONTEXT_PARAM, NO_RESULT_BLOCK),
    // The result names the head.
    new_method_table_row("eth_capabilities", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_chainId", Immutable, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_config", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_createAccessList", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_estimateGas", Tip, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_feeHistory", ByFinality, block_number_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_gasPrice", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_getAccount", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_getAccountInfo", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_getBalance", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_getBlockAccessList", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_getBlockAccessListByBlockHash", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_getBlockAccessListByBlockNumber", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_getBlockByHash", Immutable, block_hash_in_param(0), Block),
    new_method_table_row("eth_getBlockByNumber", ByFinality, block_number_in_param(0), Block),
    new_method_table_row("eth_getBlockReceipts", ByFinality, block_reference_in_param(0), First),
    new_method_table_row("eth_getBlockTransactionCountByHash", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_getBlockTransactionCountByNumber", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_getCode", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_getFilterChanges", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_getFilterLogs", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_getHeaderByHash", Immutable, block_hash_in_param(0), Block),
    new_method_table_row("eth_getHeaderByNumber", ByFinality, block_number_in_param(0), Block),
    new_method_table_row("eth_getLogs", ByFinality, LOG_FILTER_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_getProof", ByFinality, block_reference_in_param(2), NO_RESULT_BLOCK),
    new_method_table_row("eth_getRawTransactionByBlockHashAndIndex", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_getRawTransactionByBlockNumberAndIndex", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_getRawTransactionByHash", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("eth_getStorageAt", ByFinality, block_reference_in_param(2), NO_RESULT_BLOCK),
    new_method_table_row("eth_getStorageValues", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_getTransactionByBlockHashAndIndex", Immutable, block_hash_in_param(0), Item),
    new_method_table_row("eth_getTransactionByBlockNumberAndIndex", ByFinality, block_number_in_param(0), Item),
    new_method_table_row("eth_getTransactionByHash", ByFinality, BLOCK_IN_RESULT, Item),
    new_method_table_row("eth_getTransactionBySenderAndNonce", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_getTransactionCount", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_getTransactionReceipt", ByFinality, BLOCK_IN_RESULT, Item),
    new_method_table_row("eth_getTransactionReceiptsByBlock", ByFinality, block_reference_in_param(0), First),
    new_method_table_row("eth_getUncleByBlockHashAndIndex", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    // An uncle's own number and hash differ from the ones of the block that includes it.
    new_method_table_row("eth_getUncleByBlockNumberAndIndex", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_getUncleCountByBlockHash", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_getUncleCountByBlockNumber", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_hashrate", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_maxPriorityFeePerGas", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_mining", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_newBlockFilter", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_newFilter", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_newPendingTransactionFilter", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_sendRawTransaction", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_sendTransaction", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_sign", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_signTransaction", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_simulateV1", Tip, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_subscribe", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_syncing", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_uninstallFilter", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_unsubscribe", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("net_listening", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("net_peerCount", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("net_version", Immutable, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    // The node's progress, which the result contains, changes with each block.
    new_method_table_row("optimism_outputAtBlock", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("optimism_rollupConfig", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("optimism_safeHeadAtL1Block", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("ots_getApiLevel", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("ots_getBlockDetails", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("ots_getBlockDetailsByHash", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("ots_getBlockTransactions", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("ots_getContractCreator", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("ots_getInternalOperations", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("ots_getTransactionBySenderAndNonce", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("ots_getTransactionError", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("ots_hasCode", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    // The page after or before a block ends where the chain does.
    new_method_table_row("ots_searchTransactionsAfter", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("ots_searchTransactionsBefore", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("ots_traceTransaction", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("parity_getBlockReceipts", ByFinality, block_reference_in_param(0), First),
    new_method_table_row("trace_block", ByFinality, block_number_in_param(0), First),
    new_method_table_row("trace_call", ByFinality, block_reference_in_param(2), NO_RESULT_BLOCK),
    new_method_table_row("trace_callMany", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("trace_filter", ByFinality, TRACE_FILTER_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("trace_get", ByFinality, BLOCK_IN_RESULT, Item),
    new_method_table_row("trace_rawTransaction", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("trace_replayBlockTransactions", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("trace_replayTransaction", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("trace_transaction", ByFinality, BLOCK_IN_RESULT, First),
    new_method_table_row("txpool_content", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("txpool_contentFrom", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("txpool_inspect", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("txpool_status", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("web3_sha3", Immutable, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_L1BatchNumber", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_L1ChainId", Immutable, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_estimateFee", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_estimateGasL1ToL2", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getAllAccountBalances", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getBaseTokenL1Address", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getBatchFeeInput", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    // The results contain the state of a block or a transaction on the other chain.
    new_method_table_row("zks_getBlockDetails", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getBridgeContracts", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getBridgehubContract", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getBytecodeByHash", Immutable, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getFeeParams", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getL1BatchBlockRange", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getL1BatchDetails", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getL1GasPrice", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getL2DAValidator", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getL2Multicall3", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getL2ToL1LogProof", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getL2ToL1MsgProof", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getMainContract", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getProof", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getProtocolVersion", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getRawBlockTransactions", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getTestnetPaymaster", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getTimestampAsserter", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("zks_getTransactionDetails", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
];

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
