//! JSON-RPC methods about the state after a block, and about fees.

use serde_json::{json, Value};

use crate::canonical;
use crate::rpc::RpcError;
use crate::sample::values::{hex_prefixed, Quantity};

use super::contents;
use super::methods::quantity_result;
use super::params::CallParams;
use super::view::{ResolvedBlock, SimulatedNodeView};

/// The result of a method as JSON, or its error.
type MethodResult = Result<Value, RpcError>;

/// Maximum number of blocks of `eth_feeHistory`.
const MOST_HISTORY: u64 = 1024;
/// Prefix of the data of calls that revert.
const REVERTED: &str = "0xdeadbeef";

pub fn balance_result(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    let address = params.parse_fixed_bytes(0)?;
    let block = view.state_seed_hash(params.block_reference_param(1)?)?;
    Ok(json!(Quantity(contents::balance_after(&block, &address))))
}

pub fn nonce_result(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    let address = params.parse_fixed_bytes(0)?;
    let block = view.state_seed_hash(params.block_reference_param(1)?)?;
    quantity_result(contents::nonce_after(&block, &address))
}

pub fn code_result(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    let address = params.parse_fixed_bytes(0)?;
    let block = view.state_seed_hash(params.block_reference_param(1)?)?;
    Ok(json!(hex_prefixed(&contents::account_code_after(
        &block, &address
    ))))
}

pub fn storage_result(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    let (address, slot) = (params.parse_fixed_bytes(0)?, params.storage_slot_param(1)?);
    let block = view.state_seed_hash(params.block_reference_param(2)?)?;
    Ok(json!(contents::storage_after(&block, &address, &slot)))
}

/// Returns a result that is derived from the block and the call, or an error if the call's data
/// begins with [`REVERTED`].
pub fn call(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    let call = params.required_param(0)?;
    if !call.is_object() {
        return Err(RpcError::invalid_params(
            "invalid argument 0: not an object",
        ));
    }
    let block = view.state_seed_hash(params.block_reference_param(1)?)?;
    let data = call.get("input").or_else(|| call.get("data"));
    let data = data.and_then(Value::as_str).unwrap_or_default();
    if data.starts_with(REVERTED) {
        let revert = RpcError::new(3, "execution reverted");
        return Err(revert.with_data(contents::simulated_call_result(&block, REVERTED.as_bytes())));
    }
    let call = canonical::remove_white_space(&call.to_string());
    Ok(json!(contents::simulated_call_result(&block, &call)))
}

pub fn gas_price(view: &SimulatedNodeView<'_>, _: &CallParams) -> MethodResult {
    // The head's base fee and a common tip.
    quantity_result(contents::base_fee(&view.head_block().hash) + 1_000_000_000)
}

pub fn blob_base_fee(view: &SimulatedNodeView<'_>, _: &CallParams) -> MethodResult {
    quantity_result(contents::blob_base_fee(&view.head_block().hash))
}

/// Returns the fees of up to [`MOST_HISTORY`] blocks; base fees include the block after the newest
/// one.
pub fn fee_history(view: &SimulatedNodeView<'_>, params: &CallParams) -> MethodResult {
    let count = params.parse_quantity(0)?.min(MOST_HISTORY);
    let newest = match view.resolve_block(params.parse_block_number(1)?)? {
        Some(ResolvedBlock::Block(index)) => view.chain.block_by_index(index).number,
        Some(ResolvedBlock::Pending) => view.head_block().number,
        None => return Err(RpcError::server_error("request beyond head block")),
    };
    let percentiles = params
        .optional_param(2)
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    if count == 0 {
        return Ok(json!({"oldestBlock": "0x0", "gasUsedRatio": null}));
    }
    let oldest = (newest + 1).saturating_sub(count);
    let indices = (oldest..=newest).filter_map(|number| view.canonical_at_number(number));
    let blocks: Vec<_> = indices
        .map(|index| view.generated_block_contents(ResolvedBlock::Block(index)))
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
