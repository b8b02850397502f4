//! A node with a log in each block, and the calls of clients.

use serde_json::Value;

/// The only address that has logs.
const ADDRESS: &str = "0x00000000000000000000000000000000000000aa";

/// Blocks before this one have short logs.
pub const FIRST_LONG_BLOCK: u64 = 800;

/// Length in bytes of the data of a short log.
const SHORT_LOG: usize = 20;

/// A node whose logs have this number of bytes of data.
pub struct Node {
    pub log_length: usize,
}

impl Node {
    /// Returns the response to a call or to a batch.
    pub fn respond(&self, body: &[u8]) -> String {
        let request: Value = serde_json::from_slice(body).unwrap();
        match &request {
            Value::Array(calls) => {
                let responses: Vec<String> = calls.iter().map(|it| self.answer_call(it)).collect();
                format!("[{}]", responses.join(","))
            }
            call => self.answer_call(call),
        }
    }

    fn answer_call(&self, call: &Value) -> String {
        let first_param = &call["params"][0];
        let result = match call["method"].as_str().unwrap() {
            "eth_chainId" | "eth_getBlockTransactionCountByNumber" => "\"0x1\"".to_owned(),
            "eth_getBlockReceipts" => self.receipts(number(first_param)),
            "eth_getLogs" => match &first_param["blockHash"] {
                Value::Null => {
                    let (from, to) = (&first_param["fromBlock"], &first_param["toBlock"]);
                    self.logs(number(from)..=number(to))
                }
                hash => self.logs(number(hash)..=number(hash)),
            },
            other => panic!("{other}"),
        };
        format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
            call["id"]
        )
    }

    fn logs(&self, blocks: std::ops::RangeInclusive<u64>) -> String {
        let logs: Vec<String> = blocks.map(|block| self.log(block)).collect();
        format!("[{}]", logs.join(","))
    }

    fn log(&self, block: u64) -> String {
        let length = match block {
            FIRST_LONG_BLOCK.. => self.log_length,
            _ => SHORT_LOG,
        };
        format!(
            r#"{{"address":"{ADDRESS}","topics":["{}"],"data":"0x{}","blockNumber":"0x{block:x}","blockHash":"{}","logIndex":"0x0","removed":false}}"#,
            hash(7),
            random_digits(length, block),
            hash(block)
        )
    }

    /// Returns the receipts of a block: the first one has the log, the second one has none.
    fn receipts(&self, block: u64) -> String {
        let receipt = |index: usize, logs: &str| {
            format!(
                r#"{{"blockNumber":"0x{block:x}","blockHash":"{}","transactionIndex":"0x{index:x}","status":"0x1","logs":[{logs}]}}"#,
                hash(block)
            )
        };
        format!("[{},{}]", receipt(0, &self.log(block)), receipt(1, ""))
    }
}

/// Returns the number in a quantity or in the hash of a block.
fn number(value: &Value) -> u64 {
    let digits = value.as_str().unwrap().trim_start_matches("0x");
    u64::from_str_radix(digits, 16).unwrap()
}

fn hash(block: u64) -> String {
    format!("0x{block:064x}")
}

/// Returns hexadecimal digits that compress to about half of their `length`.
fn random_digits(length: usize, seed: u64) -> String {
    let mut state = seed * 2 + 1;
    let digits = (0..length).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b"0123456789abcdef"[(state >> 60) as usize])
    });
    digits.collect()
}

fn call(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":[{params}]}}"#)
}

/// Returns the call for the logs of a range.
pub fn logs_of_range(first: u64, last: u64) -> String {
    let filter =
        format!(r#"{{"fromBlock":"0x{first:x}","toBlock":"0x{last:x}","address":"{ADDRESS}"}}"#);
    call("eth_getLogs", &filter)
}

/// Returns the call for the logs of a block, by its hash.
pub fn logs_of_block(block: u64) -> String {
    let filter = format!(r#"{{"blockHash":"{}","address":"{ADDRESS}"}}"#, hash(block));
    call("eth_getLogs", &filter)
}

/// Returns the call for the receipts of a block, by its hash.
pub fn receipts_of_block(block: u64) -> String {
    call("eth_getBlockReceipts", &format!("\"{}\"", hash(block)))
}
