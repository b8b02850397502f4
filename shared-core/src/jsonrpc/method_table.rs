//! The rows of the [method table](super::methods), and the constructors by which they are written.
//!
//! A row of class `Never` has counters of its own in the metrics; methods without a row share theirs.
//! [`known_methods`](super::known_methods) has the dependencies of both.

use super::method_row::{BlockParamPosition, MethodClass, MethodRow, ResultBlockPosition};
use MethodClass::{ByFinality, Config, Immutable, Never, Tip};
use ResultBlockPosition::{Block, First, Item, Itself};

/// Creates a row of the method table.
pub(super) const fn new_method_table_row(
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
pub(super) static METHOD_TABLE: &[MethodRow] = &[
    new_method_table_row("arbdebug_timeoutQueue", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("arbtrace_block", ByFinality, block_reference_in_param(0), First),
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
    new_method_table_row("debug_accountAt", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_accountInfoAt", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_accountRange", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_chainConfig", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    // The code has the hash, whatever the block in the second parameter.
    new_method_table_row("debug_codeByHash", Immutable, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("debug_dumpBlock", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_executionWitness", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_executionWitnessByBlockHash", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getBlockRlp", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getBlockRlpByHash", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getModifiedAccountsByHash", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getRawBlock", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getRawBlockAccessList", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getRawHeader", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getRawReceipts", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_getRawTransaction", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("debug_getRawTransactions", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_intermediateRoots", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_simulateV1", Tip, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("debug_stateRootWithUpdates", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("debug_storageRangeAt", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_traceBlockByHash", ByFinality, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_traceBlockByNumber", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_traceCall", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("debug_traceCallMany", ByFinality, CONTEXT_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("debug_traceTransaction", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("debug_traceTransactionByBlockAndIndex", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("debug_traceTransactionByBlockhashAndIndex", ByFinality, block_hash_in_param(0), NO_RESULT_BLOCK),
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
    new_method_table_row("eth_accounts", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_baseFee", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_blobBaseFee", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_blockNumber", Tip, NO_BLOCK_PARAM, Itself),
    new_method_table_row("eth_call", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_callBundle", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_callMany", ByFinality, CONTEXT_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_cancelPrivateTransaction", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    // The result names the head.
    new_method_table_row("eth_capabilities", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_chainId", Immutable, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_config", Config, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_createAccessList", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_estimateGas", Tip, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_feeHistory", ByFinality, block_number_in_param(1), NO_RESULT_BLOCK),
    // The nonce and the fees that the node fills in depend on its pending transactions.
    new_method_table_row("eth_fillTransaction", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_gasPrice", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_getAccount", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_getAccountInfo", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_getBalance", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("eth_getBlockAccessList", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_getBlockAccessListByBlockHash", Immutable, block_hash_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_getBlockAccessListByBlockNumber", ByFinality, block_number_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_getBlockAccessListRaw", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
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
    new_method_table_row("eth_getMultiProof", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
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
    new_method_table_row("eth_getWitness", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("eth_hashrate", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_maxPriorityFeePerGas", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_mining", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_newBlockFilter", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_newFilter", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_newPendingTransactionFilter", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_sendBundle", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_sendPrivateRawTransaction", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_sendPrivateTransaction", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_sendRawTransaction", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_sendRawTransactionConditional", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("eth_sendRawTransactionSync", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
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
    new_method_table_row("ots_getHeaderByNumber", ByFinality, block_number_in_param(0), Block),
    new_method_table_row("ots_getInternalOperations", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("ots_getTransactionBySenderAndNonce", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("ots_getTransactionError", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("ots_hasCode", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    // The page after or before a block ends where the chain does.
    new_method_table_row("ots_searchTransactionsAfter", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("ots_searchTransactionsBefore", Tip, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("ots_traceTransaction", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("parity_getBlockReceipts", ByFinality, block_reference_in_param(0), First),
    new_method_table_row("parity_listStorageKeys", ByFinality, block_reference_in_param(3), NO_RESULT_BLOCK),
    new_method_table_row("proof_call", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("proof_getTransactionByHash", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("proof_getTransactionReceipt", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("reth_getBalanceChangesInBlock", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("trace_block", ByFinality, block_reference_in_param(0), First),
    new_method_table_row("trace_blockOpcodeGas", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("trace_call", ByFinality, block_reference_in_param(2), NO_RESULT_BLOCK),
    new_method_table_row("trace_callMany", ByFinality, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("trace_filter", ByFinality, TRACE_FILTER_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("trace_get", ByFinality, BLOCK_IN_RESULT, Item),
    new_method_table_row("trace_rawTransaction", Never, NO_BLOCK_PARAM, NO_RESULT_BLOCK),
    new_method_table_row("trace_replayBlockTransactions", ByFinality, block_reference_in_param(0), NO_RESULT_BLOCK),
    new_method_table_row("trace_replayTransaction", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
    new_method_table_row("trace_simulateV1", Tip, block_reference_in_param(1), NO_RESULT_BLOCK),
    new_method_table_row("trace_transaction", ByFinality, BLOCK_IN_RESULT, First),
    new_method_table_row("trace_transactionOpcodeGas", ByFinality, BLOCK_IN_RESULT, NO_RESULT_BLOCK),
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
