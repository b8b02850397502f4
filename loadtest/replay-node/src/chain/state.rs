//! JSON-RPC methods about the state after a block, and about fees.

use serde_json::{json, Value};

use crate::canonical;
use crate::rpc::Failure;
use crate::sample::values::{prefixed, Quantity};

use super::contents;
use super::methods::quantity;
use super::params::Params;
use super::view::{ResolvedBlock, View};

type Answer = Result<Value, Failure>;

/// Maximum number of blocks of `eth_feeHistory`.
const MOST_HISTORY: u64 = 1024;
/// Prefix of the data of calls that revert.
const REVERTED: &str = "0xdeadbeef";

pub fn balance(view: &View<'_>, params: &Params) -> Answer {
    let address = params.fixed(0)?;
    let block = view.state(params.block(1)?)?;
    Ok(json!(Quantity(contents::balance(&block, &address))))
}

pub fn nonce(view: &View<'_>, params: &Params) -> Answer {
    let address = params.fixed(0)?;
    let block = view.state(params.block(1)?)?;
    quantity(contents::nonce(&block, &address))
}

pub fn code(view: &View<'_>, params: &Params) -> Answer {
    let address = params.fixed(0)?;
    let block = view.state(params.block(1)?)?;
    Ok(json!(prefixed(&contents::code(&block, &address))))
}

pub fn storage(view: &View<'_>, params: &Params) -> Answer {
    let (address, slot) = (params.fixed(0)?, params.slot(1)?);
    let block = view.state(params.block(2)?)?;
    Ok(json!(contents::storage(&block, &address, &slot)))
}

pub fn call(view: &View<'_>, params: &Params) -> Answer {
    let call = params.required(0)?;
    if !call.is_object() {
        return Err(Failure::params("invalid argument 0: not an object"));
    }
    let block = view.state(params.block(1)?)?;
    let data = call.get("input").or_else(|| call.get("data"));
    let data = data.and_then(Value::as_str).unwrap_or_default();
    if data.starts_with(REVERTED) {
        let revert = Failure::new(3, "execution reverted");
        return Err(revert.with_data(contents::call_result(&block, REVERTED.as_bytes())));
    }
    let call = canonical::compact(&call.to_string());
    Ok(json!(contents::call_result(&block, &call)))
}

pub fn gas_price(view: &View<'_>, _: &Params) -> Answer {
    // The head's base fee and a common tip.
    quantity(contents::base_fee(&view.head().hash) + 1_000_000_000)
}

pub fn blob_base_fee(view: &View<'_>, _: &Params) -> Answer {
    quantity(contents::blob_base_fee(&view.head().hash))
}

pub fn fee_history(view: &View<'_>, params: &Params) -> Answer {
    let count = params.quantity(0)?.min(MOST_HISTORY);
    let newest = match view.find(params.number(1)?)? {
        Some(ResolvedBlock::Block(index)) => view.chain.block(index).number,
        Some(ResolvedBlock::Pending) => view.head().number,
        None => return Err(Failure::server("request beyond head block")),
    };
    let percentiles = params.get(2).and_then(Value::as_array).map_or(0, Vec::len);
    if count == 0 {
        return Ok(json!({"oldestBlock": "0x0", "gasUsedRatio": null}));
    }
    let oldest = (newest + 1).saturating_sub(count);
    let indices = (oldest..=newest).filter_map(|number| view.canonical(number));
    let blocks: Vec<_> = indices
        .map(|index| view.block(ResolvedBlock::Block(index)))
        .collect();
    let hashes: Vec<_> = blocks.iter().map(|block| block.header.hash).collect();
    let next = hashes.last().copied().unwrap_or_default();
    let with_next = || hashes.iter().chain([&next]);
    let base_fees = with_next().map(|hash| Quantity(contents::base_fee(hash)));
    let blob_fees = with_next().map(|hash| Quantity(contents::blob_base_fee(hash)));
    let ratio = |used: u64, limit: u64| used as f64 / limit as f64;
    let ratios = blocks
        .iter()
        .map(|block| ratio(block.header.gas_used.0, block.header.gas_limit.0));
    let blob_ratios = blocks
        .iter()
        .map(|block| ratio(block.header.blob_gas_used.0, 6 * 131_072));
    let mut history = json!({
        "oldestBlock": Quantity(oldest),
        "baseFeePerGas": base_fees.collect::<Vec<_>>(),
        "gasUsedRatio": ratios.collect::<Vec<_>>(),
        "baseFeePerBlobGas": blob_fees.collect::<Vec<_>>(),
        "blobGasUsedRatio": blob_ratios.collect::<Vec<_>>(),
    });
    if percentiles > 0 {
        let rewards = hashes.iter().map(|hash| {
            let tip = 1 + contents::blob_base_fee(hash);
            let paid = (1..=percentiles as u64).map(|rank| Quantity(tip * rank));
            paid.collect::<Vec<_>>()
        });
        history["reward"] = json!(rewards.collect::<Vec<_>>());
    }
    Ok(history)
}
