//! `eth_getLogs`.

use serde_json::{json, Value};

use crate::rpc::RpcError;
use crate::sample::receipts::ReceiptLog;
use crate::sample::values::{Address, FixedBytes, Word};

use super::model::BlockIndex;
use super::params::{self, CallParams, ParsedBlockParam};
use super::view::{ResolvedBlock, SimulatedNodeView};

/// The addresses and topics of an `eth_getLogs` filter; an empty list matches any.
#[derive(Debug, Default)]
struct GetLogsFilter {
    addresses: Vec<Address>,
    topics: Vec<Vec<Word>>,
}

impl GetLogsFilter {
    /// Parses the addresses and topics of the parameter of `eth_getLogs`.
    fn new(filter: &Value) -> Result<Self, RpcError> {
        let invalid = |why: String| RpcError::invalid_params(&format!("invalid argument 0: {why}"));
        let topics = match &filter["topics"] {
            Value::Null => Vec::new(),
            Value::Array(positions) => positions
                .iter()
                .map(parse_one_or_more)
                .collect::<Result<_, _>>()
                .map_err(invalid)?,
            _ => return Err(invalid("invalid topics".to_owned())),
        };
        Ok(Self {
            addresses: parse_one_or_more(&filter["address"]).map_err(invalid)?,
            topics,
        })
    }

    /// Whether the log has one of the addresses, and at each position one of its topics. An empty
    /// list matches all.
    fn matches_log(&self, log: &ReceiptLog) -> bool {
        let address = self.addresses.is_empty() || self.addresses.contains(&log.address);
        address
            && self.topics.len() <= log.topics.len()
            && self
                .topics
                .iter()
                .zip(&log.topics)
                .all(|(any_of, topic)| any_of.is_empty() || any_of.contains(topic))
    }
}

/// Parses a value or an array of values; `null` is an empty list, which matches all.
fn parse_one_or_more<const N: usize>(value: &Value) -> Result<Vec<FixedBytes<N>>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(values) => values.iter().map(params::parse_fixed_bytes).collect(),
        value => Ok(vec![params::parse_fixed_bytes(value)?]),
    }
}

/// Returns the logs of one block, or of a range. As in most nodes, a range is clipped to the
/// head; a range that ends before it begins is empty.
pub fn matching_logs(view: &SimulatedNodeView<'_>, params: &CallParams) -> Result<Value, RpcError> {
    let query = params.required_param(0)?;
    let filter = GetLogsFilter::new(query)?;
    let blocks = match (&query["blockHash"], &query["fromBlock"], &query["toBlock"]) {
        (Value::Null, from, to) => range_blocks(view, from, to)?,
        (hash, Value::Null, Value::Null) => {
            let hash = params::parse_fixed_bytes(hash)
                .map_err(|why| RpcError::invalid_params(&format!("invalid argument 0: {why}")))?;
            let block = view.by_hash(&hash);
            vec![block.ok_or_else(|| RpcError::server_error("unknown block"))?]
        }
        _ => {
            let why =
                "cannot specify both BlockHash and FromBlock/ToBlock, choose one or the other";
            return Err(RpcError::invalid_params(&format!(
                "invalid argument 0: {why}"
            )));
        }
    };
    let mut taken = Vec::new();
    for index in blocks {
        let block = view.generated_block_contents(ResolvedBlock::Block(index));
        let logs = block.receipts.iter().flat_map(|receipt| &receipt.logs);
        taken.extend(
            logs.filter(|log| filter.matches_log(log))
                .map(|log| json!(log)),
        );
    }
    Ok(Value::Array(taken))
}

/// Returns the canonical blocks of a range, clipped to the head.
fn range_blocks(
    view: &SimulatedNodeView<'_>,
    from: &Value,
    to: &Value,
) -> Result<Vec<BlockIndex>, RpcError> {
    let (from, to) = (parse_range_end(view, from)?, parse_range_end(view, to)?);
    let last = to.min(view.head_block().number);
    let numbers = from..=last;
    Ok(numbers
        .filter_map(|number| view.canonical_at_number(number))
        .collect())
}

/// Returns the block number of one end of a range; an absent end is `latest`.
fn parse_range_end(view: &SimulatedNodeView<'_>, value: &Value) -> Result<u64, RpcError> {
    if value.is_null() {
        return Ok(view.head_block().number);
    }
    let reference = params::parse_block_number(value)
        .map_err(|why| RpcError::invalid_params(&format!("invalid argument 0: {why}")))?;
    match reference {
        ParsedBlockParam::Number(number) => Ok(number),
        reference => match view.resolve_block(reference)? {
            Some(ResolvedBlock::Block(index)) => Ok(view.chain.block_by_index(index).number),
            Some(ResolvedBlock::Pending) => {
                Err(RpcError::server_error("pending logs are not supported"))
            }
            None => Err(RpcError::server_error("unknown block")),
        },
    }
}
