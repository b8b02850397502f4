//! The nodes' responses to calls for logs and receipts, by the call.

use std::collections::BTreeMap;

use serde_json::Value;

use super::blockchain::ChainView;

/// An end of the range of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeEnd {
    Number(u64),
    /// Any other value in JSON; an absent end and null are `latest`.
    Other(String),
}

impl RangeEnd {
    fn from_json(value: Option<&Value>) -> Self {
        let latest = || Self::Other("\"latest\"".into());
        let Some(value) = value.filter(|value| !value.is_null()) else {
            return latest();
        };
        let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.map_or_else(|| Self::Other(value.to_string()), Self::Number)
    }

    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Other(_) => None,
        }
    }

    pub fn is_latest(&self) -> bool {
        *self == Self::Other("\"latest\"".into())
    }
}

/// A call of `eth_getLogs`, or of `eth_getBlockReceipts`: the ends of its range, and the other members of its filter in JSON.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogCallKey {
    pub from: RangeEnd,
    pub to: RangeEnd,
    pub rest: String,
}

impl LogCallKey {
    pub fn from_filter(filter: &Value) -> Self {
        let mut rest = filter.clone();
        if let Some(members) = rest.as_object_mut() {
            members.remove("fromBlock");
            members.remove("toBlock");
        }
        Self {
            from: RangeEnd::from_json(filter.get("fromBlock")),
            to: RangeEnd::from_json(filter.get("toBlock")),
            rest: rest.to_string(),
        }
    }

    /// Returns the key of the call for the receipts of a block.
    pub fn for_receipts(block: &str) -> Self {
        Self {
            from: RangeEnd::Other("receipts".into()),
            to: RangeEnd::Other(block.into()),
            rest: String::new(),
        }
    }
}

/// The response of a node to a call for logs or receipts.
#[derive(Debug)]
pub struct RecordedLogs {
    /// The member `result` or `error` in JSON.
    pub member: String,
    /// The logs, joined by commas; `None` for an error and for receipts.
    pub logs: Option<String>,
    pub step: u64,
    /// The view of the node.
    pub view: ChainView,
    /// Whether the node has the blocks at the ends of the range.
    pub has_first: bool,
    pub has_last: bool,
    /// Whether the node is one of the route's chain.
    pub is_own_chain: bool,
}

/// All responses of the nodes of a world.
#[derive(Debug, Default)]
pub struct NodeRecord {
    by_call: BTreeMap<LogCallKey, Vec<RecordedLogs>>,
    pub log_calls: u64,
}

impl NodeRecord {
    pub fn record(&mut self, key: LogCallKey, logs: RecordedLogs) {
        self.by_call.entry(key).or_default().push(logs);
    }

    pub fn responses(&self, key: &LogCallKey) -> &[RecordedLogs] {
        self.by_call.get(key).map_or(&[], Vec::as_slice)
    }
}
