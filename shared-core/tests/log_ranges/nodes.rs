//! Simulated nodes: their views of the chain, and their responses to calls and batches.

use serde_json::{json, Value};

use super::blockchain::{hash_text, Block, ChainView};
use super::driver_host::BodyEnd;
use super::node_record::{LogCallKey, NodeRecord, RangeEnd, RecordedLogs};
use super::random::Random;

/// The way in which a node differs from one that follows the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    Following,
    /// The head is behind, and ranges are clipped to it.
    Lagging(u64),
    /// Blocks below a height are missing. Silent nodes respond with the logs of the other blocks, and
    /// the others with an error.
    Pruned {
        below: u64,
        is_silent: bool,
    },
    /// Batches are errors.
    Batchless,
    /// One body in three is truncated.
    Truncating,
    /// The blocks belong to another chain.
    OtherChain,
}

/// A node behind the route.
#[derive(Debug)]
pub struct Node {
    pub kind: NodeKind,
    pub view: ChainView,
    /// White space that the node writes between the brackets of a list and its elements.
    padding: &'static str,
    /// Whether some responses are errors of HTTP.
    fails: bool,
}

/// A response of a node, as the host receives it.
#[derive(Debug)]
pub struct NodeReply {
    pub status: u16,
    pub content_length: Option<u64>,
    /// Whether the end of the body is distinct from an abort.
    pub delimited: bool,
    pub body: Vec<u8>,
    pub end: BodyEnd,
}

impl NodeReply {
    fn whole(status: u16, body: Vec<u8>) -> Self {
        Self {
            status,
            content_length: Some(body.len() as u64),
            delimited: true,
            body,
            end: BodyEnd::Whole,
        }
    }

    /// Cuts the body, so that the host detects it, or so that only the JSON shows it.
    fn truncated(mut self, random: &mut Random) -> Self {
        let length = random.index(self.body.len());
        self.body.truncate(length);
        match random.happens_once_in(2) {
            true => self.end = BodyEnd::Cut,
            false => (self.content_length, self.delimited) = (None, false),
        }
        self
    }
}

impl Node {
    pub fn new(kind: NodeKind, view: ChainView, random: &mut Random) -> Self {
        let padding = if random.happens_once_in(4) { " " } else { "" };
        Self {
            kind,
            view,
            padding,
            fails: true,
        }
    }

    /// Creates a node that follows the chain and never fails.
    pub fn reliable(view: ChainView) -> Self {
        Self {
            kind: NodeKind::Following,
            view,
            padding: "",
            fails: false,
        }
    }

    /// Adopts a view of the chain; nodes of other chains and lagging ones have views of their own.
    pub fn adopt_view(&mut self, view: &ChainView) {
        match self.kind {
            NodeKind::OtherChain => {}
            NodeKind::Lagging(blocks) => self.view = view.lagging_view(blocks),
            _ => self.view = view.clone(),
        }
    }

    /// Returns the response to a request body, and records the responses to calls of `eth_getLogs`
    /// in it, if it arrives whole.
    pub fn respond(
        &self,
        body: &[u8],
        step: u64,
        record: &mut NodeRecord,
        random: &mut Random,
    ) -> NodeReply {
        if self.fails && random.happens_once_in(150) {
            return NodeReply::whole(503, b"<html>busy</html>".to_vec());
        }
        let is_cut = self.kind == NodeKind::Truncating && random.happens_once_in(3);
        let mut observed = Vec::new();
        let text = match serde_json::from_slice(body).unwrap() {
            Value::Array(_) if self.kind == NodeKind::Batchless => {
                let error = json!({"code": -32600, "message": "batches are not supported"});
                let error = json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string();
                return match random.happens_once_in(2) {
                    true => NodeReply::whole(200, error.into_bytes()),
                    false => NodeReply::whole(400, error.into_bytes()),
                };
            }
            Value::Array(calls) => {
                let mut texts: Vec<_> = calls
                    .iter()
                    .map(|call| self.message(call, step, &mut observed))
                    .collect();
                if random.happens_once_in(3) {
                    texts.reverse();
                }
                format!("[{}]", texts.join(","))
            }
            call => self.message(&call, step, &mut observed),
        };
        record.log_calls += observed.len() as u64;
        let reply = NodeReply::whole(200, text.into_bytes());
        if is_cut {
            return reply.truncated(random);
        }
        for (key, logs) in observed {
            record.record(key, logs);
        }
        reply
    }

    /// Returns the response message of a call.
    fn message(
        &self,
        call: &Value,
        step: u64,
        observed: &mut Vec<(LogCallKey, RecordedLogs)>,
    ) -> String {
        let first = &call["params"][0];
        let member = match call["method"].as_str().unwrap() {
            "eth_getLogs" => {
                let (key, logs) = self.logs(first, step);
                let member = logs.member.clone();
                observed.push((key, logs));
                member
            }
            "eth_getBlockReceipts" => {
                let receipts = self.receipts(first, step);
                let member = receipts.member.clone();
                let block = first.as_str().unwrap_or_default();
                observed.push((LogCallKey::for_receipts(block), receipts));
                member
            }
            method => self.member_of_block(method, first),
        };
        format!(r#"{{"jsonrpc":"2.0","id":{},{member}}}"#, call["id"])
    }

    /// Returns the member of the response about a block, or about the chain.
    fn member_of_block(&self, method: &str, first: &Value) -> String {
        let id = if self.kind == NodeKind::OtherChain {
            2
        } else {
            1
        };
        let digits = first.as_str().and_then(|text| text.strip_prefix("0x"));
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let block = number.filter(|number| !self.is_pruned(*number));
        let block = block.and_then(|number| Some((number, self.view.block(number)?)));
        let result = match (method, block) {
            ("eth_chainId", _) => json!(format!("0x{id:x}")),
            ("eth_getBlockTransactionCountByNumber", Some((_, block))) => {
                json!(format!("0x{:x}", block.transaction_count()))
            }
            ("eth_getBlockByNumber", Some((number, block))) => {
                json!({"number": format!("0x{number:x}"), "hash": hash_text(&block.hash)})
            }
            ("eth_getBlockTransactionCountByNumber" | "eth_getBlockByNumber", None) => Value::Null,
            _ => return r#""error":{"code":-32601,"message":"the method does not exist"}"#.into(),
        };
        format!(r#""result":{result}"#)
    }

    fn is_pruned(&self, number: u64) -> bool {
        matches!(self.kind, NodeKind::Pruned { below, .. } if number < below)
    }

    /// Returns the response to a call for the receipts of a block.
    fn receipts(&self, block: &Value, step: u64) -> RecordedLogs {
        let block = block
            .as_str()
            .and_then(|it| self.view.block_of_parameter(it));
        let block = block.filter(|block| !self.is_pruned(block.number));
        let receipts = block.map_or("null".into(), Block::receipts);
        RecordedLogs {
            member: format!(r#""result":{receipts}"#),
            logs: None,
            step,
            view: self.view.clone(),
            has_first: block.is_some(),
            has_last: block.is_some(),
            is_own_chain: self.kind != NodeKind::OtherChain,
        }
    }

    /// Returns the logs of the block with a hash.
    fn logs_of_hash(&self, hash: &Value, filter: &Value) -> Result<String, &'static str> {
        let block = hash
            .as_str()
            .and_then(|it| self.view.block_of_parameter(it));
        let block = block.filter(|block| !self.is_pruned(block.number));
        block
            .map(|block| block.selected_logs(filter))
            .ok_or(r#"{"code":-32000,"message":"unknown block"}"#)
    }

    /// Returns the response to a call of `eth_getLogs`.
    fn logs(&self, filter: &Value, step: u64) -> (LogCallKey, RecordedLogs) {
        let key = LogCallKey::from_filter(filter);
        let head = self.view.head();
        let end = |end: &RangeEnd| match end.is_latest() {
            true => Some(head),
            false => end.number(),
        };
        let result = match (end(&key.from), end(&key.to)) {
            _ if filter["blockHash"].is_string() => self.logs_of_hash(&filter["blockHash"], filter),
            (Some(from), Some(to)) if from > to && !key.to.is_latest() => {
                Err(r#"{"code":-32000,"message":"invalid block range params"}"#)
            }
            (Some(from), Some(to)) => self.logs_of_range(from, to, filter),
            _ => Err(r#"{"code":-32602,"message":"invalid argument 0: hex string"}"#),
        };
        let has = |end: Option<u64>| {
            end.is_some_and(|number| self.view.has_block(number) && !self.is_pruned(number))
        };
        let padding = self.padding;
        let member = match &result {
            Ok(logs) => format!(r#""result":[{padding}{logs}{padding}]"#),
            Err(error) => format!(r#""error":{error}"#),
        };
        let logs = result.ok();
        let recorded = RecordedLogs {
            member,
            logs,
            step,
            view: self.view.clone(),
            has_first: has(key.from.number()),
            has_last: has(key.to.number()),
            is_own_chain: self.kind != NodeKind::OtherChain,
        };
        (key, recorded)
    }

    /// Returns the logs of a range as far as the node has its blocks.
    fn logs_of_range(&self, from: u64, to: u64, filter: &Value) -> Result<String, &'static str> {
        let from = match self.kind {
            NodeKind::Pruned { below, is_silent } if from < below => match is_silent {
                true => below,
                false => return Err(r#"{"code":4444,"message":"pruned history unavailable"}"#),
            },
            _ => from,
        };
        Ok(self.view.logs_of_range(from, to, filter))
    }
}
