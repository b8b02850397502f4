//! Queries to a node in JSON-RPC (the API of the execution layer).

use hyper::body::Bytes;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use sszip_core::cache::owner::tracker::{BlockHash, NodeBlock, NodeQuery, NodeResult};

use super::http::malformed_response_error;

/// Encodes a query of the tracker as a JSON-RPC request with this id.
pub fn encode_tracker_query(query: NodeQuery, id: u64) -> String {
    let by_number = |number: &str| ("eth_getBlockByNumber", format!("\"{number}\",false"));
    let (method, params) = match query {
        NodeQuery::Latest => by_number("latest"),
        NodeQuery::Finalized => by_number("finalized"),
        NodeQuery::Genesis => by_number("0x0"),
        NodeQuery::ByNumber(number) | NodeQuery::Recheck(number) => {
            by_number(&format!("{number:#x}"))
        }
        NodeQuery::ByHash(hash) => (
            "eth_getBlockByHash",
            format!("\"0x{}\",false", hex::encode(hash)),
        ),
        NodeQuery::Syncing => ("eth_syncing", String::new()),
        NodeQuery::ChainId => ("eth_chainId", String::new()),
    };
    encode_rpc_call(method, &params, id)
}

fn encode_rpc_call(method: &str, params: &str, id: u64) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":[{params}]}}")
}

/// A JSON-RPC response of the node: a result or an error.
#[derive(Deserialize)]
struct NodeRpcResponse<'a> {
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<RpcError>,
}

/// The error object of a JSON-RPC response.
#[derive(Deserialize)]
struct RpcError {
    code: i64,
    #[serde(default)]
    message: String,
}

/// The members of an execution block that identify it and its parent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolledBlockHeader {
    #[serde(deserialize_with = "deserialize_quantity")]
    number: u64,
    #[serde(deserialize_with = "deserialize_hash")]
    hash: BlockHash,
    #[serde(deserialize_with = "deserialize_hash")]
    parent_hash: BlockHash,
    /// Unix seconds in hex digits; a block is followed without them, too.
    #[serde(default)]
    timestamp: Option<serde_json::Value>,
}

impl PolledBlockHeader {
    fn unix_seconds(&self) -> Option<u64> {
        let digits = self.timestamp.as_ref()?.as_str()?.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    }
}

/// Decodes a number in hex digits after `0x`.
fn deserialize_quantity<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    text.strip_prefix("0x")
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or_else(|| D::Error::custom("not a number in hex digits"))
}

/// Decodes 32 bytes in hex digits after `0x`.
pub(super) fn deserialize_hash<'de, D: Deserializer<'de>>(from: D) -> Result<BlockHash, D::Error> {
    let text = String::deserialize(from)?;
    let mut root = BlockHash::default();
    text.strip_prefix("0x")
        .and_then(|digits| hex::decode_to_slice(digits, &mut root).ok())
        .ok_or_else(|| D::Error::custom("not 32 bytes in hex digits"))?;
    Ok(root)
}

/// Decodes the result of a query from the JSON-RPC response.
///
/// # Errors
/// The body is no response in JSON-RPC: the node fails, or the server is no node.
pub fn decode_query_response(query: NodeQuery, body: &Bytes) -> Result<NodeResult, String> {
    let response: NodeRpcResponse<'_> =
        serde_json::from_slice(body).map_err(|error| malformed_response_error(body, &error))?;
    if let Some(RpcError { code, message }) = response.error {
        let message: String = message.chars().take(200).collect();
        return Ok(NodeResult::Failed(format!("error {code}: {message}")));
    }
    let result = response.result.map_or("null", RawValue::get);
    let answer = match query {
        NodeQuery::Syncing => match serde_json::from_str(result) {
            // the progress of syncing
            Err(_) if result.starts_with('{') => Ok(NodeResult::Syncing(true)),
            is_syncing => is_syncing.map(NodeResult::Syncing),
        },
        NodeQuery::ChainId => {
            let mut from = serde_json::Deserializer::from_str(result);
            deserialize_quantity(&mut from).map(|id| NodeResult::ChainId(Some(id)))
        }
        NodeQuery::Genesis => {
            serde_json::from_str(result).map(|block: Option<PolledBlockHeader>| match block {
                Some(block) => NodeResult::Genesis(block.hash),
                None => NodeResult::Failed("the node has no block 0".into()),
            })
        }
        _ => serde_json::from_str(result).map(|block: Option<PolledBlockHeader>| {
            NodeResult::Block(block.map(|block| NodeBlock {
                timestamp: block.unix_seconds(),
                number: block.number,
                hash: block.hash,
                parent: block.parent_hash,
            }))
        }),
    };
    answer.map_err(|error| malformed_response_error(result.as_bytes(), &error))
}

/// Encodes the request for a transaction's receipt, with this id.
pub fn encode_transaction_receipt_request(transaction: &BlockHash, id: u64) -> String {
    let params = format!("\"0x{}\"", hex::encode(transaction));
    encode_rpc_call("eth_getTransactionReceipt", &params, id)
}

/// Decodes the block number in a receipt; `None` if the transaction is in no block.
///
/// # Errors
/// The body is no response in JSON-RPC. The message is for operators.
pub fn decode_receipt_block_number(body: &Bytes) -> Result<Option<u64>, String> {
    /// A JSON-RPC response with a receipt.
    #[derive(Deserialize)]
    struct ReceiptResponse {
        #[serde(default)]
        result: Option<ReceiptBlockNumber>,
    }
    /// The member of a receipt that names its block.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ReceiptBlockNumber {
        #[serde(deserialize_with = "deserialize_quantity")]
        block_number: u64,
    }
    let response: ReceiptResponse =
        serde_json::from_slice(body).map_err(|error| malformed_response_error(body, &error))?;
    Ok(response.result.map(|receipt| receipt.block_number))
}

/// Encodes the subscription to new heads (`eth_subscribe`), with this id.
pub fn encode_head_subscription(id: u64) -> String {
    encode_rpc_call("eth_subscribe", "\"newHeads\"", id)
}

/// The kind of a message that a node sends over a WebSocket: a response, a notification, another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcMessageKind {
    /// The response to the request with this id.
    Answer(u64),
    /// A notification of a new head.
    Notification,
    /// Another message.
    Other,
}

/// Classifies a message of a node by its `id` and `method`.
pub fn classify_websocket_message(text: &str) -> RpcMessageKind {
    /// The members that distinguish a response from a notification.
    #[derive(Deserialize)]
    struct RpcMessageMembers {
        #[serde(default)]
        id: Option<serde_json::Value>,
        #[serde(default)]
        method: Option<String>,
        #[serde(default, rename = "params")]
        _params: Option<IgnoredAny>,
    }
    let Ok(any) = serde_json::from_str::<RpcMessageMembers>(text) else {
        return RpcMessageKind::Other;
    };
    match (any.id.and_then(|id| id.as_u64()), any.method) {
        (Some(id), None) => RpcMessageKind::Answer(id),
        (_, Some(method)) if method == "eth_subscription" => RpcMessageKind::Notification,
        _ => RpcMessageKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_test_response(query: NodeQuery, body: &str) -> Result<NodeResult, String> {
        decode_query_response(query, &Bytes::copy_from_slice(body.as_bytes()))
    }

    #[test]
    fn queries_are_encoded_as_json_rpc_requests() {
        let by_hash = format!("[\"0x{}\",false]", "ab".repeat(32));
        for (query, method, params) in [
            (
                NodeQuery::Latest,
                "eth_getBlockByNumber",
                r#"["latest",false]"#,
            ),
            (
                NodeQuery::ByNumber(255),
                "eth_getBlockByNumber",
                r#"["0xff",false]"#,
            ),
            (
                NodeQuery::ByHash([0xab; 32]),
                "eth_getBlockByHash",
                &by_hash,
            ),
            (NodeQuery::Syncing, "eth_syncing", "[]"),
        ] {
            let expected =
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#);
            assert_eq!(encode_tracker_query(query, 7), expected);
        }
    }

    #[test]
    fn missing_first_block_is_a_failed_query() {
        let read = decode_test_response(
            NodeQuery::Genesis,
            r#"{"jsonrpc":"2.0","result":null,"id":1}"#,
        );
        assert!(matches!(read, Ok(NodeResult::Failed(_))), "{read:?}");
    }

    #[test]
    fn malformed_responses_are_errors() {
        for (query, body) in [
            (NodeQuery::Latest, "<html><body>Bad Gateway</body></html>"),
            (NodeQuery::Latest, ""),
            (NodeQuery::Latest, r#"{"result":{"number":"10"}}"#),
            (
                NodeQuery::Latest,
                r#"{"result":{"number":"0x1","hash":"0x12","parentHash":"0x"}}"#,
            ),
            (NodeQuery::Latest, r#"{"result":"0x1"}"#),
            (NodeQuery::Syncing, r#"{"result":null}"#),
            (NodeQuery::Syncing, r#"{"result":1}"#),
            (NodeQuery::ChainId, r#"{"result":"0x10000000000000000"}"#),
            (NodeQuery::ChainId, r#"{"result":1}"#),
        ] {
            let error = decode_test_response(query, body).unwrap_err();
            assert!(error.starts_with("invalid response"), "{error}");
        }
        let error = decode_test_response(NodeQuery::Latest, "<html>\n\u{7}").unwrap_err();
        assert!(error.ends_with(": <html>  "), "{error}");
    }

    #[test]
    fn messages_are_classified_by_id_and_method() {
        for (text, expected) in [
            (r#"{"id":7,"result":null}"#, RpcMessageKind::Answer(7)),
            (
                r#"{"method":"eth_subscription","params":{"result":{}}}"#,
                RpcMessageKind::Notification,
            ),
            (r#"{"method":"other"}"#, RpcMessageKind::Other),
            (r#"{"id":"x","result":1}"#, RpcMessageKind::Other),
            ("[]", RpcMessageKind::Other),
        ] {
            assert_eq!(classify_websocket_message(text), expected, "{text}");
        }
    }

    #[test]
    fn block_number_is_read_from_a_receipt() {
        let ends = format!("\"params\":[\"0x{}\"]}}", "07".repeat(32));
        assert!(encode_transaction_receipt_request(&[7; 32], 5).ends_with(&ends));
        for (text, expected) in [
            (
                "{\"id\":1,\"result\":{\"blockNumber\":\"0x2a\",\"x\":1}}",
                Some(Some(42)),
            ),
            ("{\"id\":1,\"result\":null}", Some(None)),
            (
                "{\"id\":1,\"error\":{\"code\":1,\"message\":\"\"}}",
                Some(None),
            ),
            ("{\"id\":1,\"result\":{}}", None),
            ("<html>", None),
        ] {
            assert_eq!(
                decode_receipt_block_number(&text.into()).ok(),
                expected,
                "{text}"
            );
        }
    }
}
