//! The method table: for how long an answer may be given again, and where the
//! block is that decides it.
//!
//! A method without a row is [`Class::Never`]. So whole families need none:
//! `personal_`, `admin_`, `miner_`, `engine_`, and whatever a node invents.
//! Those of `Never` that have a row are the ones that look as if they could be
//! stored.

use Class::{ByFinality, Config, Immutable, Never, Tip};
use InResult::{Block, First, Item, Itself};

/// For how long an answer may be given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// For ever, if there is an answer at all: not `null`, no error.
    Immutable,
    /// For ever once its block is final; until then for a short time, and
    /// evicted with its block.
    ByFinality,
    /// Until there is a new head, one slot at the most.
    Tip,
    /// For a minute: until the node is upgraded, and nobody says when.
    Config,
    /// Not at all.
    Never,
}

/// Where a call says which block it is about. Numbers count parameters from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockAt {
    /// It is about none.
    None,
    /// The hash of a block.
    Hash(usize),
    /// A block's number or tag; the node does not take a hash.
    Number(usize),
    /// A block's number, tag or hash, or an object of EIP-1898.
    Param(usize),
    /// The same, as a member of an object that may also have the other ones.
    ParamMember(usize, &'static str, &'static [&'static str]),
    /// An object with `fromBlock` and `toBlock`, or `blockHash`, that may
    /// also have the other members.
    Range(usize, &'static [&'static str]),
    /// Only the result knows.
    Result,
}

/// In place of names of other members: whichever they are, but for those that are known
/// ones in other letters, which some nodes take for these.
pub const ANY: &[&str] = &["*"];

/// Where a result says which block it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InResult {
    /// Nowhere.
    None,
    /// It is the number of the head.
    Itself,
    /// It is a block: members `number` and `hash`.
    Block,
    /// It is a part of a block: members `blockNumber` and `blockHash`.
    Item,
    /// It is an array of parts of one block.
    First,
    /// It says so where an operator knows.
    Path(&'static Path),
}

/// The way to a block's number in a result. Its hash, if there is one, is beside it.
#[derive(Debug, PartialEq, Eq)]
pub struct Path {
    /// To the object that has it.
    pub steps: Vec<Step>,
    /// The member's name.
    pub number: String,
    /// The one of the hash: empty if there is none.
    pub hash: String,
}

/// One step on that way.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// To a member.
    Member(String),
    /// To the first element of an array.
    First,
}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    /// The method's name; empty for those that have no row.
    pub name: &'static str,
    /// For how long its answers may be given again.
    pub class: Class,
    /// Where the call says which block it is about.
    pub at: BlockAt,
    /// Where the result says so.
    pub in_result: InResult,
    /// An operator has written it.
    pub is_operators: bool,
}

impl Method {
    /// Whether a result is a list of what came of a block's transactions, each of
    /// which may have failed for a reason of the node's own.
    pub fn traces_one_by_one(&self) -> bool {
        const NAMES: [&str; 4] = [
            "arbtrace_replayBlockTransactions",
            "debug_traceBlockByHash",
            "debug_traceBlockByNumber",
            "trace_replayBlockTransactions",
        ];
        // of an operator's nobody knows
        self.is_operators || NAMES.contains(&self.name)
    }

    /// Whether it finds what is in no block yet, as soon as that is sent.
    pub fn finds_before_a_block(&self) -> bool {
        const NAMES: [&str; 5] = [
            "debug_getRawTransaction",
            "eth_getRawTransactionByHash",
            "eth_getTransactionByHash",
            "eth_getTransactionBySenderAndNonce",
            "zks_getTransactionDetails",
        ];
        self.is_operators && self.at == BlockAt::Result || NAMES.contains(&self.name)
    }

    /// Whether a result is the encoding of something: `"0x"` is that of nothing,
    /// and what nodes say in place of `null`.
    pub fn gives_encoded(&self) -> bool {
        self.name.contains("_getRaw")
    }
}

/// The row of a method, by its exact name.
pub fn method(name: &[u8]) -> &'static Method {
    static UNKNOWN: Method = row("", Never, BlockAt::None, InResult::None);
    position(name).map_or(&UNKNOWN, |row| &METHODS[row])
}

/// Where [`all`] has it.
pub fn position(name: &[u8]) -> Option<usize> {
    let found = METHODS.binary_search_by(|row| row.name.as_bytes().cmp(name));
    found.ok()
}

/// How many rows there are.
pub const NUMBER: usize = METHODS.len();

/// All rows, by name.
pub fn all() -> &'static [Method] {
    METHODS
}

const fn row(name: &'static str, class: Class, at: BlockAt, in_result: InResult) -> Method {
    Method {
        name,
        class,
        at,
        in_result,
        is_operators: false,
    }
}

const NO: InResult = InResult::None;
const NONE: BlockAt = BlockAt::None;
const RESULT: BlockAt = BlockAt::Result;

const fn hash(n: usize) -> BlockAt {
    BlockAt::Hash(n)
}

const fn number(n: usize) -> BlockAt {
    BlockAt::Number(n)
}

const fn param(n: usize) -> BlockAt {
    BlockAt::Param(n)
}

const CONTEXT: BlockAt = BlockAt::ParamMember(1, "blockNumber", &["transactionIndex"]);
const LOGS: BlockAt = BlockAt::Range(0, &["address", "topics"]);
const TRACES: BlockAt = BlockAt::Range(0, &["after", "count", "fromAddress", "mode", "toAddress"]);

/// Sorted by name.
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
    // To ask for a vote is to lock the node's chain to it.
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
    // p[1] is `fullTx`, not a block, and which block is the last before a time
    // is open until the next one is final.
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
    // It names the head.
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
    // An uncle's own number and hash are not those of the block it is in.
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
    // What it tells of the node's progress changes with each block.
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
    // What becomes of a block or a transaction on the other chain is told in them.
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
    use super::{method, BlockAt, Class, METHODS};

    #[test]
    fn sorted_and_each_row_is_found() {
        assert!(METHODS.is_sorted_by(|a, b| a.name < b.name));
        for row in METHODS {
            assert_eq!(method(row.name.as_bytes()), row);
        }
    }

    #[test]
    fn what_has_no_row_is_never_stored() {
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
            assert_eq!((row.class, row.at), (Class::Never, BlockAt::None), "{name}");
        }
    }

    #[test]
    fn a_block_at_the_tip_is_never_immutable_by_class() {
        for row in METHODS.iter().filter(|row| row.class == Class::Immutable) {
            let timeless = matches!(row.at, BlockAt::None | BlockAt::Hash(_));
            assert!(timeless, "{}", row.name);
        }
    }
}
