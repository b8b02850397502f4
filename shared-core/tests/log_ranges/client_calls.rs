//! Random calls of clients.

use serde_json::{json, Value};

use super::blockchain::{contract_address, hash_text, topic, Blockchain};
use super::node_record::LogCallKey;
use super::random::Random;

/// A request of a client: a single call, or a batch of calls with different ids.
#[derive(Debug)]
pub struct ClientCalls {
    pub all: Vec<LogCall>,
    pub is_batch: bool,
    pub body: Vec<u8>,
}

impl ClientCalls {
    pub fn single(call: LogCall) -> Self {
        Self {
            body: call.body.clone(),
            all: vec![call],
            is_batch: false,
        }
    }

    /// Creates a batch of the first calls with each id.
    pub fn batch(calls: Vec<LogCall>) -> Self {
        let mut all: Vec<LogCall> = Vec::new();
        for call in calls {
            if !all.iter().any(|other| other.id == call.id) {
                all.push(call);
            }
        }
        let bodies: Vec<&[u8]> = all.iter().map(|call| &call.body[..]).collect();
        Self {
            body: [&b"["[..], &bodies.join(&b","[..]), b"]"].concat(),
            all,
            is_batch: true,
        }
    }
}

/// One call of a client for logs or receipts.
#[derive(Debug)]
pub struct LogCall {
    pub key: LogCallKey,
    /// The filter, without the ends of the range.
    pub filter: Value,
    /// The only block that the call names, by its number or its hash.
    pub block: Option<String>,
    /// The id in JSON.
    pub id: String,
    pub body: Vec<u8>,
}

impl LogCall {
    /// Creates the call of a range, whose ends are members in JSON or absent.
    pub fn new(from: Option<&str>, to: Option<&str>, filter: &Value, id: String) -> Self {
        let members = filter.as_object().unwrap().iter();
        let mut members: Vec<_> = members
            .map(|(name, value)| format!("\"{name}\":{value}"))
            .collect();
        members.extend(from.map(|from| format!("\"fromBlock\":{from}")));
        // the ends may be in any position
        if let Some(to) = to {
            members.insert(0, format!("\"toBlock\":{to}"));
        }
        let text = format!("{{{}}}", members.join(","));
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getLogs","params":[{text}]}}"#);
        Self {
            key: LogCallKey::from_filter(&serde_json::from_str(&text).unwrap()),
            filter: filter.clone(),
            block: None,
            id,
            body: body.into_bytes(),
        }
    }

    /// Creates a random call about one of the last final blocks up to `last`: for its receipts, or
    /// for its logs.
    pub fn random_of_block(random: &mut Random, chain: &Blockchain, last: u64) -> Self {
        let last = chain.last_final.min(last);
        let number = last.saturating_sub(random.number_below(4));
        let id = random.number_below(100_000).to_string();
        let (number, hash) = match chain.view.block(number) {
            Some(block) => (format!("0x{number:x}"), hash_text(&block.hash)),
            None => (format!("0x{number:x}"), format!("0x{number:064x}")),
        };
        let by_hash = random.happens_once_in(2);
        let block = if by_hash { hash } else { number };
        if random.happens_once_in(4) {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getBlockReceipts","params":["{block}"]}}"#
            );
            return Self {
                key: LogCallKey::for_receipts(&block),
                filter: Value::Null,
                block: None,
                id,
                body: body.into_bytes(),
            };
        }
        // calls are compared, and then derived, only until all their responses are stored
        let mut filter = random_filter(random, 2);
        let end = format!("\"{block}\"");
        let call = match by_hash {
            true => {
                filter["blockHash"] = json!(block);
                Self::new(None, None, &filter, id)
            }
            false => Self::new(Some(&end), Some(&end), &filter, id),
        };
        Self {
            block: Some(block),
            ..call
        }
    }

    /// Creates a random call about a chain with this head, whose ranges are split into pieces of
    /// `piece` blocks.
    pub fn random(random: &mut Random, head: u64, piece: u64) -> Self {
        let id = match random.happens_once_in(3) {
            true => "\"a\"".into(),
            false => random.number_below(100_000).to_string(),
        };
        let filter = random_filter(random, 10);
        let number = |number: u64| format!("\"0x{number:x}\"");
        let from = random.number_below(head + 3);
        let (from, to) = match random.number_below(12) {
            // one piece exactly, as a split requests it
            0 => {
                let first = from / piece * piece;
                (number(first), Some(number(first + piece - 1)))
            }
            1 | 2 => (
                number(from),
                Some(number(from + random.number_below(3 * piece))),
            ),
            3 | 4 => (number(from), Some("\"latest\"".into())),
            5 => (number(from), None),
            6 => (number(from), Some("null".into())),
            7 => odd_ends(random, head),
            _ => (
                number(from / 2),
                Some(number(from / 2 + random.number_below(head + 8))),
            ),
        };
        Self::new(Some(&from), to.as_deref(), &filter, id)
    }
}

/// Returns ends that are no numbers, reversed, or beyond 2^64.
fn odd_ends(random: &mut Random, head: u64) -> (String, Option<String>) {
    let ends = [
        (format!("\"0x{head:x}\""), "\"0x1\""),
        ("\"0x1\"".into(), "\"0x10000000000000000\""),
        ("\"0x10000000000000000\"".into(), "\"0x10000000000000001\""),
        ("\"0x1\"".into(), "\"newest\""),
        ("\"1\"".into(), "\"20\""),
        ("1".into(), "20"),
        ("\"0x\"".into(), "\"0x14\""),
        ("[]".into(), "{}"),
        ("\"0x1\"".into(), "\"0xffffffffffffffff\""),
    ];
    let at = random.index(ends.len());
    let (from, to) = &ends[at];
    (from.clone(), Some((*to).to_owned()))
}

/// Returns the members of a filter besides the ends of its range. It has topics once in
/// `topics_once_in` calls; filters without topics are few, as most clients request the same ones.
fn random_filter(random: &mut Random, topics_once_in: u64) -> Value {
    let mut filter = json!({});
    let address = contract_address(random.number_below(3));
    match random.number_below(4) {
        0 => {}
        1 => filter["address"] = json!(address),
        2 => filter["address"] = json!([address, contract_address(4)]),
        _ => filter["address"] = json!([]),
    }
    if random.happens_once_in(topics_once_in) {
        let count = random.number_below(3);
        filter["topics"] = (0..count).map(|_| random_topics(random)).collect();
    }
    filter
}

/// Returns the topics that a filter permits in one position.
fn random_topics(random: &mut Random) -> Value {
    match random.number_below(4) {
        0 => Value::Null,
        1 => json!([topic(random.number_below(6)), topic(random.number_below(6))]),
        2 => json!([]),
        _ => json!(topic(random.number_below(6))),
    }
}
