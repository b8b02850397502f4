//! JSON-RPC methods about the chain, its blocks and its transactions, and the table of all
//! methods.

use serde_json::{json, Value};

use crate::rpc::RpcError;
use crate::sample::traces;
use crate::sample::values::Quantity;

use super::logs;
use super::params::{CallParams, ParsedBlockParam};
use super::state;
use super::view::{ResolvedBlock, SimulatedNodeView};

/// The result of a method as JSON, or its error.
type MethodResult = Result<Value, RpcError>;

/// A function that responds to the calls of one JSON-RPC method.
pub type MethodHandler = fn(&SimulatedNodeView<'_>, &CallParams) -> MethodResult;

/// The table of all supported methods with their handlers.
pub const METHODS: &[(&str, MethodHandler)] = &[
    // a method of no API: operators configure whether its responses are cached
    ("acme_blockAt", |view, params| {
        block_result(view, params.parse_block_number(1)?, false)
    }),
    ("acme_headNumber", |view, _| {
        quantity_result(view.head_block().number)
    }),
    ("acme_logs", logs::matching_logs),
    ("acme_price", state::gas_price),
    ("acme_receiptOf", |view, params| {
        Ok(json!({ "receipt": receipt_by_hash(view, params)? }))
    }),
    ("debug_traceBlockByHash", trace_block_by_hash),
    ("debug_traceBlockByNumber", trace_block_by_number),
    ("debug_traceTransaction", trace_transaction),
    ("eth_blobBaseFee", state::blob_base_fee),
    ("eth_blockNumber", |view, _| {
        quantity_result(view.head_block().number)
    }),
    ("eth_call", state::call),
    ("eth_chainId", |view, _| {
        quantity_result(view.chain.genesis.chain_id)
    }),
    ("eth_feeHistory", state::fee_history),
    ("eth_gasPrice", state::gas_price),
    ("eth_getBalance", state::balance_result),
    ("eth_getBlockByHash", |view, params| {
        block_result(view, block_hash_param(params)?, params.flag_param(1)?)
    }),
    ("eth_getBlockByNumber", |view, params| {
        block_result(view, params.parse_block_number(0)?, params.flag_param(1)?)
    }),
    ("eth_getBlockReceipts", block_receipts),
    ("eth_getBlockTransactionCountByHash", |view, params| {
        transaction_count(view, block_hash_param(params)?)
    }),
    ("eth_getBlockTransactionCountByNumber", |view, params| {
        transaction_count(view, params.parse_block_number(0)?)
    }),
    ("eth_getCode", state::code_result),
    ("eth_getLogs", logs::matching_logs),
    ("eth_getStorageAt", state::storage_result),
    ("eth_getTransactionByBlockHashAndIndex", |view, params| {
        transaction_at(view, block_hash_param(params)?, params.parse_quantity(1)?)
    }),
    ("eth_getTransactionByBlockNumberAndIndex", |view, params| {
        transaction_at(
            view,
            params.parse_block_number(0)?,
            params.parse_quantity(1)?,
        )
    }),
    ("eth_getTransactionByHash", transaction_by_hash),
    ("eth_getTransactionCount", state::nonce_result),
    ("eth_getTransactionReceipt", receipt_by_hash),
    ("eth_getUncleCountByBlockHash", |view, params| {
        uncle_count(view, block_hash_param(params)?)
    }),
    ("eth_getUncleCountByBlockNumber", |view, params| {
        uncle_count(view, params.parse_block_number(0)?)
    }),
    ("eth_maxPriorityFeePerGas", |_, _| {
        quantity_result(1_000_000_000)
    }),
    (SUBSCRIBE, |_, _| Err(notifications_unsupported_error())),
    ("eth_syncing", syncing_result),
    (UNSUBSCRIBE, |_, _| Err(notifications_unsupported_error())),
    ("net_version", |view, _| {
        Ok(json!(view.chain.genesis.chain_id.to_string()))
    }),
    ("trace_block", flat_block_traces),
    ("trace_transaction", flat_transaction_traces),
    ("web3_clientVersion", |_, _| {
        let version = env!("CARGO_PKG_VERSION");
        Ok(json!(format!("replay-node/v{version}/chain")))
    }),
];

/// Methods that are available over WebSocket only.
pub const SUBSCRIBE: &str = "eth_subscribe";
pub const UNSUBSCRIBE: &str = "eth_unsubscribe";

fn notifications_unsupported_error() -> RpcError {
    RpcError::new(-32601, "notifications not supported")
}

pub fn quantity_result(number: u64) -> MethodResult {
    Ok(json!(Quantity(number)))
}

fn block_hash_param(params: &CallParams) -> Result<ParsedBlockParam, RpcError> {
    let hash = params.parse_fixed_bytes(0)?;
    let canonical = false;
    Ok(ParsedBlockParam::Hash { hash, canonical })
}

/// Returns `false`, or the progress of a node that is one block behind while it syncs.
fn syncing_result(view: &SimulatedNodeView<'_>, _: &CallParams) -> MethodResult {
    if !view.syncing {
        return Ok(json!(false));
    }
    Ok(json!({
        "startingBlock": "0x0",
        "currentBlock": Quantity(view.head_block().number),
        "highestBlock": Quantity(view.chain.head_number() + 1),
    }))
}

/// Returns a block with its transactions (`full`) or their hashes, or `null` if it is unknown. The
/// pending block has no hash, miner and nonce.
fn block_result(
    view: &SimulatedNodeView<'_>,
    reference: ParsedBlockParam,
    full: bool,
) -> MethodResult {
    let Some(at) = view.resolve_block(reference)? else {
        return Ok(Value::Null);
    };
    let block = view.generated_block_contents(at);
    let mut shown = match full {
        true => json!(block.view_with_transactions()),
        false => json!(block.view_with_hashes()),
    };
    if at == ResolvedBlock::Pending {
        for name in ["hash", "miner", "nonce"] {
            shown[name] = Value::Null;
        }
    }
    Ok(shown)
}

/// Returns the receipts of a block; `null` if it is pending or unknown.
fn block_receipts(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    params.required_param(0)?;
    match view.resolve_block(params.block_reference_param(0)?)? {
        Some(at @ ResolvedBlock::Block(_)) => Ok(json!(view.generated_block_contents(at).receipts)),
        Some(ResolvedBlock::Pending) | None => Ok(Value::Null),
    }
}

fn transaction_count(view: &SimulatedNodeView<'_>, reference: ParsedBlockParam) -> MethodResult {
    match view.resolve_block(reference)? {
        Some(at) => quantity_result(view.block_transactions(at).len() as u64),
        None => Ok(Value::Null),
    }
}

/// Returns 0, or `null` if the block is unknown.
fn uncle_count(view: &SimulatedNodeView<'_>, reference: ParsedBlockParam) -> MethodResult {
    match view.resolve_block(reference)? {
        Some(_) => quantity_result(0),
        None => Ok(Value::Null),
    }
}

/// Returns the transaction at an index of a block; `null` if either does not exist.
fn transaction_at(
    view: &SimulatedNodeView<'_>,
    reference: ParsedBlockParam,
    index: u64,
) -> MethodResult {
    let Some(at) = view.resolve_block(reference)? else {
        return Ok(Value::Null);
    };
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    match (at, view.block_transactions(at).get(index)) {
        (_, None) => Ok(Value::Null),
        (ResolvedBlock::Pending, Some(hash)) => Ok(view.contents.pool_transaction(hash)),
        (ResolvedBlock::Block(_), Some(_)) => {
            Ok(json!(view.generated_block_contents(at).transactions[index]))
        }
    }
}

/// Returns a transaction of a canonical block or of the pool; `null` if it is in neither.
fn transaction_by_hash(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    let hash = params.parse_fixed_bytes(0)?;
    if let Some((block, index)) = view.canonical_transaction_position(&hash) {
        return Ok(json!(
            view.generated_block_contents(ResolvedBlock::Block(block))
                .transactions[index]
        ));
    }
    match view.chain.pool_transactions().contains(&hash) {
        true => Ok(view.contents.pool_transaction(&hash)),
        false => Ok(Value::Null),
    }
}

/// Returns the receipt of a transaction in a canonical block, or `null`.
fn receipt_by_hash(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    match view.canonical_transaction_position(&params.parse_fixed_bytes(0)?) {
        Some((block, index)) => Ok(json!(
            view.generated_block_contents(ResolvedBlock::Block(block))
                .receipts[index]
        )),
        None => Ok(Value::Null),
    }
}

/// Resolves a block for tracing; an unknown block and the genesis are errors.
fn resolve_traceable_block(
    view: &SimulatedNodeView<'_>,
    reference: ParsedBlockParam,
) -> Result<ResolvedBlock, RpcError> {
    match view.resolve_block(reference)? {
        Some(ResolvedBlock::Block(index)) if view.chain.block_by_index(index).number == 0 => {
            Err(RpcError::server_error("genesis is not traceable"))
        }
        Some(at) => Ok(at),
        None => Err(RpcError::server_error(&match reference {
            ParsedBlockParam::Number(number) => format!("block #{number} not found"),
            ParsedBlockParam::Hash { hash, .. } => format!("block {hash} not found"),
            _ => "block not found".to_owned(),
        })),
    }
}

fn trace_block(view: &SimulatedNodeView<'_>, reference: ParsedBlockParam) -> MethodResult {
    let block = view.generated_block_contents(resolve_traceable_block(view, reference)?);
    Ok(json!(view.contents.block_traces(&block)))
}

fn trace_block_by_number(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    trace_block(view, params.parse_block_number(0)?)
}

fn trace_block_by_hash(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    trace_block(view, block_hash_param(params)?)
}

/// Returns the call trace of a transaction; an unknown one is an error, as in geth.
fn trace_transaction(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    let Some((block, index)) = view.canonical_transaction_position(&params.parse_fixed_bytes(0)?)
    else {
        return Err(RpcError::server_error("transaction not found"));
    };
    let block = view.generated_block_contents(ResolvedBlock::Block(block));
    Ok(json!(view.contents.block_traces(&block)[index].result))
}

/// Returns the flat traces of a block, as `trace_block` has them.
fn flat_block_traces(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    params.required_param(0)?;
    let block = view.generated_block_contents(resolve_traceable_block(
        view,
        params.block_reference_param(0)?,
    )?);
    let traces = view.contents.block_traces(&block);
    Ok(json!(traces::flatten_traces(&block, &traces)))
}

/// Returns the flat traces of a transaction, or `null` if it is unknown.
fn flat_transaction_traces(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    let Some((block, index)) = view.canonical_transaction_position(&params.parse_fixed_bytes(0)?)
    else {
        return Ok(Value::Null);
    };
    let block = view.generated_block_contents(ResolvedBlock::Block(block));
    let traces = view.contents.block_traces(&block);
    let mut flat = traces::flatten_traces(&block, &traces);
    flat.retain(|trace| trace.transaction_position == index);
    Ok(json!(flat))
}
