//! `eth_getLogs`.

use serde_json::{json, Value};

use crate::rpc::Failure;
use crate::sample::receipts::Log;
use crate::sample::values::{Address, Fixed, Word};

use super::model::Index;
use super::params::{self, Params, Reference};
use super::view::{ResolvedBlock, View};

/// The filter of an `eth_getLogs` call; an empty list matches any.
#[derive(Debug, Default)]
struct Filter {
    addresses: Vec<Address>,
    topics: Vec<Vec<Word>>,
}

impl Filter {
    fn new(filter: &Value) -> Result<Self, Failure> {
        let invalid = |why: String| Failure::params(&format!("invalid argument 0: {why}"));
        let topics = match &filter["topics"] {
            Value::Null => Vec::new(),
            Value::Array(positions) => positions
                .iter()
                .map(one_or_more)
                .collect::<Result<_, _>>()
                .map_err(invalid)?,
            _ => return Err(invalid("invalid topics".to_owned())),
        };
        Ok(Self {
            addresses: one_or_more(&filter["address"]).map_err(invalid)?,
            topics,
        })
    }

    fn takes(&self, log: &Log) -> bool {
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

fn one_or_more<const N: usize>(value: &Value) -> Result<Vec<Fixed<N>>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(values) => values.iter().map(params::fixed).collect(),
        value => Ok(vec![params::fixed(value)?]),
    }
}

/// Returns the logs of one block, or of a range. As in most nodes, a range is clipped to the
/// head; a range that ends before it begins is empty.
pub fn logs(view: &View<'_>, params: &Params) -> Result<Value, Failure> {
    let query = params.required(0)?;
    let filter = Filter::new(query)?;
    let blocks = match (&query["blockHash"], &query["fromBlock"], &query["toBlock"]) {
        (Value::Null, from, to) => range(view, from, to)?,
        (hash, Value::Null, Value::Null) => {
            let hash = params::fixed(hash)
                .map_err(|why| Failure::params(&format!("invalid argument 0: {why}")))?;
            let block = view.by_hash(&hash);
            vec![block.ok_or_else(|| Failure::server("unknown block"))?]
        }
        _ => {
            let why =
                "cannot specify both BlockHash and FromBlock/ToBlock, choose one or the other";
            return Err(Failure::params(&format!("invalid argument 0: {why}")));
        }
    };
    let mut taken = Vec::new();
    for index in blocks {
        let block = view.block(ResolvedBlock::Block(index));
        let logs = block.receipts.iter().flat_map(|receipt| &receipt.logs);
        taken.extend(logs.filter(|log| filter.takes(log)).map(|log| json!(log)));
    }
    Ok(Value::Array(taken))
}

fn range(view: &View<'_>, from: &Value, to: &Value) -> Result<Vec<Index>, Failure> {
    let (from, to) = (edge(view, from)?, edge(view, to)?);
    let last = to.min(view.head().number);
    let numbers = from..=last;
    Ok(numbers
        .filter_map(|number| view.canonical(number))
        .collect())
}

/// Returns the block number of one end of a range; an absent end is `latest`.
fn edge(view: &View<'_>, value: &Value) -> Result<u64, Failure> {
    if value.is_null() {
        return Ok(view.head().number);
    }
    let reference = params::number(value)
        .map_err(|why| Failure::params(&format!("invalid argument 0: {why}")))?;
    match reference {
        Reference::Number(number) => Ok(number),
        reference => match view.find(reference)? {
            Some(ResolvedBlock::Block(index)) => Ok(view.chain.block(index).number),
            Some(ResolvedBlock::Pending) => Err(Failure::server("pending logs are not supported")),
            None => Err(Failure::server("unknown block")),
        },
    }
}
