//! JSON-RPC methods about the chain, its blocks and its transactions, and the table of all
//! methods.

use serde_json::{json, Value};

use crate::rpc::Failure;
use crate::sample::traces;
use crate::sample::values::Quantity;

use super::logs;
use super::params::{Params, Reference};
use super::state;
use super::view::{ResolvedBlock, View};

type Answer = Result<Value, Failure>;

/// A function that responds to the calls of one JSON-RPC method.
pub type Handler = fn(&View<'_>, &Params) -> Answer;

/// The table of all supported methods with their handlers.
pub const METHODS: &[(&str, Handler)] = &[
    // a method of no API: operators configure whether its responses are cached
    ("acme_blockAt", |view, params| {
        block(view, params.number(1)?, false)
    }),
    ("acme_headNumber", |view, _| quantity(view.head().number)),
    ("acme_logs", logs::logs),
    ("acme_price", state::gas_price),
    ("acme_receiptOf", |view, params| {
        Ok(json!({ "receipt": receipt(view, params)? }))
    }),
    ("debug_traceBlockByHash", trace_block_by_hash),
    ("debug_traceBlockByNumber", trace_block_by_number),
    ("debug_traceTransaction", trace_transaction),
    ("eth_blobBaseFee", state::blob_base_fee),
    ("eth_blockNumber", |view, _| quantity(view.head().number)),
    ("eth_call", state::call),
    ("eth_chainId", |view, _| {
        quantity(view.chain.genesis.chain_id)
    }),
    ("eth_feeHistory", state::fee_history),
    ("eth_gasPrice", state::gas_price),
    ("eth_getBalance", state::balance),
    ("eth_getBlockByHash", |view, params| {
        block(view, by_hash(params)?, params.flag(1)?)
    }),
    ("eth_getBlockByNumber", |view, params| {
        block(view, params.number(0)?, params.flag(1)?)
    }),
    ("eth_getBlockReceipts", block_receipts),
    ("eth_getBlockTransactionCountByHash", |view, params| {
        transaction_count(view, by_hash(params)?)
    }),
    ("eth_getBlockTransactionCountByNumber", |view, params| {
        transaction_count(view, params.number(0)?)
    }),
    ("eth_getCode", state::code),
    ("eth_getLogs", logs::logs),
    ("eth_getStorageAt", state::storage),
    ("eth_getTransactionByBlockHashAndIndex", |view, params| {
        transaction_at(view, by_hash(params)?, params.quantity(1)?)
    }),
    ("eth_getTransactionByBlockNumberAndIndex", |view, params| {
        transaction_at(view, params.number(0)?, params.quantity(1)?)
    }),
    ("eth_getTransactionByHash", transaction),
    ("eth_getTransactionCount", state::nonce),
    ("eth_getTransactionReceipt", receipt),
    ("eth_getUncleCountByBlockHash", |view, params| {
        uncle_count(view, by_hash(params)?)
    }),
    ("eth_getUncleCountByBlockNumber", |view, params| {
        uncle_count(view, params.number(0)?)
    }),
    ("eth_maxPriorityFeePerGas", |_, _| quantity(1_000_000_000)),
    (SUBSCRIBE, |_, _| Err(no_notifications())),
    ("eth_syncing", syncing),
    (UNSUBSCRIBE, |_, _| Err(no_notifications())),
    ("net_version", |view, _| {
        Ok(json!(view.chain.genesis.chain_id.to_string()))
    }),
    ("trace_block", flat_block),
    ("trace_transaction", flat_transaction),
    ("web3_clientVersion", |_, _| {
        let version = env!("CARGO_PKG_VERSION");
        Ok(json!(format!("replay-node/v{version}/chain")))
    }),
];

/// Methods that are available over WebSocket only.
pub const SUBSCRIBE: &str = "eth_subscribe";
pub const UNSUBSCRIBE: &str = "eth_unsubscribe";

fn no_notifications() -> Failure {
    Failure::new(-32601, "notifications not supported")
}

pub fn quantity(number: u64) -> Answer {
    Ok(json!(Quantity(number)))
}

fn by_hash(params: &Params) -> Result<Reference, Failure> {
    let hash = params.fixed(0)?;
    let canonical = false;
    Ok(Reference::Hash { hash, canonical })
}

fn syncing(view: &View<'_>, _: &Params) -> Answer {
    if !view.syncing {
        return Ok(json!(false));
    }
    Ok(json!({
        "startingBlock": "0x0",
        "currentBlock": Quantity(view.head().number),
        "highestBlock": Quantity(view.chain.head_number() + 1),
    }))
}

fn block(view: &View<'_>, reference: Reference, full: bool) -> Answer {
    let Some(at) = view.find(reference)? else {
        return Ok(Value::Null);
    };
    let block = view.block(at);
    let mut shown = match full {
        true => json!(block.with_transactions()),
        false => json!(block.with_hashes()),
    };
    if at == ResolvedBlock::Pending {
        for name in ["hash", "miner", "nonce"] {
            shown[name] = Value::Null;
        }
    }
    Ok(shown)
}

fn block_receipts(view: &View<'_>, params: &Params) -> Answer {
    params.required(0)?;
    match view.find(params.block(0)?)? {
        Some(at @ ResolvedBlock::Block(_)) => Ok(json!(view.block(at).receipts)),
        Some(ResolvedBlock::Pending) | None => Ok(Value::Null),
    }
}

fn transaction_count(view: &View<'_>, reference: Reference) -> Answer {
    match view.find(reference)? {
        Some(at) => quantity(view.transactions(at).len() as u64),
        None => Ok(Value::Null),
    }
}

fn uncle_count(view: &View<'_>, reference: Reference) -> Answer {
    match view.find(reference)? {
        Some(_) => quantity(0),
        None => Ok(Value::Null),
    }
}

fn transaction_at(view: &View<'_>, reference: Reference, index: u64) -> Answer {
    let Some(at) = view.find(reference)? else {
        return Ok(Value::Null);
    };
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    match (at, view.transactions(at).get(index)) {
        (_, None) => Ok(Value::Null),
        (ResolvedBlock::Pending, Some(hash)) => Ok(view.contents.waiting(hash)),
        (ResolvedBlock::Block(_), Some(_)) => Ok(json!(view.block(at).transactions[index])),
    }
}

fn transaction(view: &View<'_>, params: &Params) -> Answer {
    let hash = params.fixed(0)?;
    if let Some((block, index)) = view.place(&hash) {
        return Ok(json!(
            view.block(ResolvedBlock::Block(block)).transactions[index]
        ));
    }
    match view.chain.pool().contains(&hash) {
        true => Ok(view.contents.waiting(&hash)),
        false => Ok(Value::Null),
    }
}

fn receipt(view: &View<'_>, params: &Params) -> Answer {
    match view.place(&params.fixed(0)?) {
        Some((block, index)) => Ok(json!(
            view.block(ResolvedBlock::Block(block)).receipts[index]
        )),
        None => Ok(Value::Null),
    }
}

/// Returns the traceable block of a reference.
fn traceable(view: &View<'_>, reference: Reference) -> Result<ResolvedBlock, Failure> {
    match view.find(reference)? {
        Some(ResolvedBlock::Block(index)) if view.chain.block(index).number == 0 => {
            Err(Failure::server("genesis is not traceable"))
        }
        Some(at) => Ok(at),
        None => Err(Failure::server(&match reference {
            Reference::Number(number) => format!("block #{number} not found"),
            Reference::Hash { hash, .. } => format!("block {hash} not found"),
            _ => "block not found".to_owned(),
        })),
    }
}

fn traced(view: &View<'_>, reference: Reference) -> Answer {
    let block = view.block(traceable(view, reference)?);
    Ok(json!(view.contents.traces(&block)))
}

fn trace_block_by_number(view: &View<'_>, params: &Params) -> Answer {
    traced(view, params.number(0)?)
}

fn trace_block_by_hash(view: &View<'_>, params: &Params) -> Answer {
    traced(view, by_hash(params)?)
}

fn trace_transaction(view: &View<'_>, params: &Params) -> Answer {
    let Some((block, index)) = view.place(&params.fixed(0)?) else {
        return Err(Failure::server("transaction not found"));
    };
    let block = view.block(ResolvedBlock::Block(block));
    Ok(json!(view.contents.traces(&block)[index].result))
}

fn flat_block(view: &View<'_>, params: &Params) -> Answer {
    params.required(0)?;
    let block = view.block(traceable(view, params.block(0)?)?);
    let traces = view.contents.traces(&block);
    Ok(json!(traces::flatten(&block, &traces)))
}

fn flat_transaction(view: &View<'_>, params: &Params) -> Answer {
    let Some((block, index)) = view.place(&params.fixed(0)?) else {
        return Ok(Value::Null);
    };
    let block = view.block(ResolvedBlock::Block(block));
    let traces = view.contents.traces(&block);
    let mut flat = traces::flatten(&block, &traces);
    flat.retain(|trace| trace.transaction_position == index);
    Ok(json!(flat))
}
