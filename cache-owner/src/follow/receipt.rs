//! Where a transaction is.

use hyper::body::Bytes;
use serde::Deserialize;
use sszip_core::cache::owner::tracker::Hash;

use super::execution::quantity;
use super::http::unreadable;

/// The request for a transaction's receipt, with that id.
pub fn request(transaction: &Hash, id: u64) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"eth_getTransactionReceipt\",\
         \"params\":[\"0x{}\"]}}",
        hex::encode(transaction)
    )
}

#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    result: Option<Receipt>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Receipt {
    #[serde(deserialize_with = "quantity")]
    block_number: u64,
}

/// The number of the block that the answer says; `None`: it is in none.
///
/// # Errors
/// It is no answer in JSON-RPC. For people.
pub fn read(body: &Bytes) -> Result<Option<u64>, String> {
    let response: Response =
        serde_json::from_slice(body).map_err(|error| unreadable(body, &error))?;
    Ok(response.result.map(|receipt| receipt.block_number))
}

#[cfg(test)]
mod tests {
    use super::{read, request};

    #[test]
    fn a_receipt_says_where_its_transaction_is() {
        let ends = format!("\"params\":[\"0x{}\"]}}", "07".repeat(32));
        assert!(request(&[7; 32], 5).ends_with(&ends));
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
            assert_eq!(read(&text.into()).ok(), expected, "{text}");
        }
    }
}
