//! Requests of clients and the responses of a node, which are always the same,
//! so that each response identifies its request.

use std::fmt::Display;

use serde_json::Value;

use super::event_choices::EventChoices;
use super::primitives::{first_header_value, make_header_lines, HeaderLines};

/// A request of a simulated client, from which the only right response follows.
pub enum SimulatedRequest {
    Call {
        number: usize,
        id: usize,
    },
    Batch(Vec<usize>),
    Page(usize),
    State(usize),
    Purge(String),
    /// A call for the logs of a contract in a range, both ends included.
    Logs {
        contract: usize,
        range: (u64, u64),
        id: usize,
    },
    /// A batch of calls for the logs of a contract, each in one of these ranges. The ids are their
    /// positions.
    LogsBatch {
        contract: usize,
        ranges: Vec<(u64, u64)>,
    },
}

/// The condition of the simulated node when it receives a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCondition {
    Healthy,
    /// The node responds 503.
    Busy,
    /// The node does not have the blocks of a batch: their numbers of transactions are `null`, and
    /// there are no logs.
    Lagging,
}

/// A response of the simulated node: its status, its headers and its body.
pub struct SimulatedNodeResponse {
    status: &'static str,
    response_headers: HeaderLines,
    pub body: Vec<u8>,
}

fn block_hash_hex(number: usize) -> String {
    format!("0x{number:064x}")
}

fn call_json(number: usize, id: usize) -> String {
    let hash = block_hash_hex(number);
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"eth_getBlockByHash\",\
         \"params\":[\"{hash}\",true]}}"
    )
}

fn response_body(number: usize, id: usize) -> String {
    let x = "0".repeat([10, 3000, 30_000, 300_000][number % 4]);
    let hash = block_hash_hex(number);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"hash\":\"{hash}\",\"x\":\"{x}\"}}}}")
}

fn logs_call_json(contract: usize, (first, last): (u64, u64), id: usize) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"eth_getLogs\",\"params\":[{{\
         \"fromBlock\":\"0x{first:x}\",\"toBlock\":\"0x{last:x}\",\
         \"address\":\"0x{contract:040x}\"}}]}}"
    )
}

/// Returns the logs of a contract, one of each block.
fn logs_json(contract: usize, (first, last): (u64, u64)) -> String {
    let log = |block: u64| {
        let data = "0".repeat([10, 300, 20_000][block as usize % 3]);
        let hash = block_hash_hex(block as usize);
        format!(
            "{{\"address\":\"0x{contract:040x}\",\"topics\":[],\"data\":\"0x{data}\",\
             \"blockNumber\":\"0x{block:x}\",\"blockHash\":\"{hash}\",\"logIndex\":\"0x0\",\
             \"removed\":false}}"
        )
    };
    let logs: Vec<_> = (first..=last).map(log).collect();
    format!("[{}]", logs.join(","))
}

fn result_json(id: impl Display, result: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
}

fn error_page(length: usize) -> String {
    format!("{{\"data\":\"{}\"}}", "ab".repeat(length))
}

fn consolidations_json(number: usize) -> String {
    let one = |at| format!("{{\"source_index\":\"{at}\",\"target_index\":\"{number}\"}}");
    let all: Vec<_> = (0..number).map(one).collect();
    format!("{{\"version\":\"electra\",\"data\":[{}]}}", all.join(","))
}

fn consolidations_ssz(number: usize) -> Vec<u8> {
    let one = |at: usize| [at as u64, number as u64].map(u64::to_le_bytes).concat();
    (0..number).flat_map(one).collect()
}

impl SimulatedRequest {
    pub fn choose_request(chance: &mut EventChoices<'_>, place: &str) -> Self {
        match chance.choose_below(16) {
            0..=5 => Self::Call {
                number: chance.choose_below(4),
                id: chance.choose_below(3),
            },
            6..=8 => Self::Batch(
                (0..=chance.choose_below(3))
                    .map(|_| chance.choose_below(4))
                    .collect(),
            ),
            9..=11 => Self::Page(chance.choose_from(&[10, 400, 3000, 20_000, 160_000])),
            12..=14 => Self::State(chance.choose_from(&[1, 40, 2000])),
            _ => Self::Purge(format!("/purge?namespace={place}")),
        }
    }

    /// Chooses a call for logs, or a batch of such calls. Their pieces have 10 blocks; some ranges
    /// share pieces, one is a piece itself, and one ends after the last final block.
    pub fn choose_log_call(chance: &mut EventChoices<'_>, contract: usize) -> Self {
        const RANGES: [(u64, u64); 6] = [
            (800, 819),
            (800, 839),
            (805, 825),
            (810, 839),
            (830, 839),
            (885, 905),
        ];
        match chance.draw_one_in(2) {
            true => Self::LogsBatch {
                contract,
                ranges: (0..=chance.choose_below(3))
                    .map(|_| chance.choose_from(&RANGES))
                    .collect(),
            },
            false => Self::Logs {
                contract,
                range: chance.choose_from(&RANGES),
                id: chance.choose_below(3),
            },
        }
    }

    pub fn method_and_path(&self) -> (&'static str, String) {
        match self {
            Self::Call { .. } | Self::Batch(_) | Self::Logs { .. } | Self::LogsBatch { .. } => {
                ("POST", "/".into())
            }
            Self::Page(length) => ("GET", format!("/page/{length}")),
            Self::State(number) => {
                let path = format!("/eth/v1/beacon/states/{number}/pending_consolidations");
                ("GET", path)
            }
            Self::Purge(path) => ("POST", path.clone()),
        }
    }

    pub fn request_body(&self) -> String {
        match self {
            Self::Call { number, id } => call_json(*number, *id),
            Self::Batch(all) => {
                let numbered = all.iter().enumerate();
                let all: Vec<_> = numbered
                    .map(|(id, number)| call_json(*number, id))
                    .collect();
                format!("[{}]", all.join(","))
            }
            Self::Logs {
                contract,
                range,
                id,
            } => logs_call_json(*contract, *range, *id),
            Self::LogsBatch { contract, ranges } => {
                let numbered = ranges.iter().enumerate();
                let all: Vec<_> = numbered
                    .map(|(id, range)| logs_call_json(*contract, *range, id))
                    .collect();
                format!("[{}]", all.join(","))
            }
            _ => String::new(),
        }
    }

    /// Asserts that `body` is the simulated node's response to this request.
    pub fn assert_response_matches(&self, head: &HeaderLines, body: &[u8]) {
        match self {
            Self::Call { number, id } => {
                assert_same_body(body, response_body(*number, *id).as_bytes());
            }
            Self::Page(length) => assert_same_body(body, error_page(*length).as_bytes()),
            Self::State(number) => match first_header_value(head, "content-type") {
                Some(b"application/octet-stream") => {
                    assert_same_body(body, &consolidations_ssz(*number));
                }
                _ => assert_same_body(body, consolidations_json(*number).as_bytes()),
            },
            Self::Batch(all) => {
                let answers: Vec<Value> = serde_json::from_slice(body).expect("a batch");
                assert_eq!(answers.len(), all.len());
                for (id, number) in all.iter().enumerate() {
                    let is_it = |one: &&Value| one["id"].as_u64() == Some(id as u64);
                    let one = answers.iter().find(is_it).expect("an answer to each");
                    assert_eq!(one["result"]["hash"], block_hash_hex(*number));
                    let x = one["result"]["x"].as_str().map(str::len);
                    assert!(response_body(*number, id).len() > x.expect("a text"));
                }
            }
            Self::Logs {
                contract,
                range,
                id,
            } => {
                let expected = result_json(id, &logs_json(*contract, *range));
                assert_same_body(body, expected.as_bytes());
            }
            Self::LogsBatch { contract, ranges } => {
                let numbered = ranges.iter().enumerate();
                let all: Vec<_> = numbered
                    .map(|(id, range)| result_json(id, &logs_json(*contract, *range)))
                    .collect();
                assert_same_body(body, format!("[{}]", all.join(",")).as_bytes());
            }
            Self::Purge(_) => unreachable!("nothing is purged"),
        }
    }
}

fn assert_same_body(body: &[u8], expected: &[u8]) {
    assert!(body == expected, "another body, or a part of it");
}

/// Returns the simulated node's response to a request.
pub fn node_response(
    head: &HeaderLines,
    body: &[u8],
    condition: NodeCondition,
) -> SimulatedNodeResponse {
    if condition == NodeCondition::Busy {
        return SimulatedNodeResponse {
            status: "503",
            response_headers: make_header_lines([("content-type", "text/plain")]),
            body: b"busy".to_vec(),
        };
    }
    let path = first_header_value(head, ":path").unwrap_or_default();
    let path = String::from_utf8_lossy(path);
    let parts: Vec<_> = path.split('/').collect();
    let number = |text: &str| text.parse().expect("a number");
    let mut fields = make_header_lines([("content-type", "application/json")]);
    let body = match *parts {
        ["", ""] => respond_to_calls(body, condition),
        ["", "page", length] => error_page(number(length)),
        ["", "eth", "v1", "beacon", "states", state, "pending_consolidations"] => {
            fields.push((b"eth-consensus-version".into(), b"electra".into()));
            consolidations_json(number(state))
        }
        ["", "eth", "v1", "config", "spec"] => {
            "{\"data\":{\"PRESET_BASE\":\"mainnet\",\"GENESIS_FORK_VERSION\":\"0x00000000\"}}"
                .into()
        }
        _ => "{\"data\":{}}".into(),
    };
    let body = body.into_bytes();
    SimulatedNodeResponse {
        status: "200",
        response_headers: fields,
        body,
    }
}

fn respond_to_calls(body: &[u8], condition: NodeCondition) -> String {
    let request: Value = serde_json::from_slice(body).expect("the node gets JSON");
    match &request {
        Value::Array(all) => {
            let is_lagging = condition == NodeCondition::Lagging;
            let all: Vec<_> = all
                .iter()
                .map(|it| respond_to_call(it, is_lagging))
                .collect();
            format!("[{}]", all.join(","))
        }
        other => respond_to_call(other, false),
    }
}

fn respond_to_call(call: &Value, is_lagging: bool) -> String {
    let (id, param) = (&call["id"], &call["params"][0]);
    match (call["method"].as_str(), is_lagging) {
        (Some("eth_getLogs"), true) => result_json(id, "[]"),
        (Some("eth_getLogs"), false) => {
            let range = [&param["fromBlock"], &param["toBlock"]].map(hex_number);
            let contract = hex_number(&param["address"]);
            let logs = logs_json(contract, (range[0] as u64, range[1] as u64));
            result_json(id, &logs)
        }
        (Some("eth_getBlockTransactionCountByNumber"), true) => result_json(id, "null"),
        (Some("eth_getBlockTransactionCountByNumber" | "eth_chainId"), _) => {
            result_json(id, "\"0x1\"")
        }
        _ => response_body(hex_number(param), id.as_u64().expect("an id") as usize),
    }
}

/// Returns the number in a quantity, an address or a hash.
fn hex_number(value: &Value) -> usize {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    usize::from_str_radix(digits.expect("hexadecimal digits"), 16).expect("a number")
}

impl SimulatedNodeResponse {
    /// Returns the response head.
    pub fn response_headers(&self, with_length: bool) -> HeaderLines {
        let length = self.body.len().to_string();
        let framing = match with_length {
            true => ("content-length", &*length),
            false => ("transfer-encoding", "chunked"),
        };
        let mut all = make_header_lines([(":status", self.status), framing]);
        all.extend(self.response_headers.iter().cloned());
        all
    }
}
