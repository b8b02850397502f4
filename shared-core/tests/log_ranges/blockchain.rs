//! A simulated chain, the logs in its blocks, and a slow and obvious log filter.

use std::sync::Arc;

use serde_json::Value;

use super::random::Random;
use super::receipts::bloom_text;

/// Number of contracts whose logs the blocks have.
const CONTRACTS: u64 = 4;

/// Number of different topics.
const TOPICS: u64 = 5;

/// Returns the address of one of the contracts, or of none above their number.
pub fn contract_address(number: u64) -> String {
    format!("0x{:040x}", 0xc0de_0000 + number % (CONTRACTS + 1))
}

/// Returns one of the topics, or a topic of no log.
pub fn topic(number: u64) -> String {
    format!("0x{:064x}", 0x7091_0000 + number % (TOPICS + 1))
}

/// A log: the members by which filters select it, and its bytes.
#[derive(Debug)]
struct Log {
    address: String,
    topics: Vec<String>,
    text: String,
}

impl Log {
    fn new(block: (u64, &[u8; 32]), index: u64, random: &mut Random) -> Self {
        let (number, hash) = block;
        let address = contract_address(random.number_below(CONTRACTS));
        let topics: Vec<_> = (0..random.number_below(4))
            .map(|_| topic(random.number_below(TOPICS)))
            .collect();
        let data = "ab".repeat(random.index(40));
        let text = format!(
            r#"{{"address":"{address}","topics":{},"data":"0x{data}","blockNumber":"0x{number:x}","transactionHash":"{}","transactionIndex":"0x{index:x}","blockHash":"{}","logIndex":"0x{index:x}","removed":false}}"#,
            serde_json::to_string(&topics).unwrap(),
            transaction_hash(hash, index),
            hash_text(hash),
        );
        Self {
            address,
            topics,
            text,
        }
    }

    /// Whether the filter of a call selects the log (Execution API, `Filter`).
    fn matches(&self, filter: &Value) -> bool {
        let is_address = |value: &Value| value.as_str() == Some(&*self.address);
        let by_address = match &filter["address"] {
            Value::Null => true,
            Value::Array(any) => any.is_empty() || any.iter().any(is_address),
            one => is_address(one),
        };
        let none = Vec::new();
        let positions = filter["topics"].as_array().unwrap_or(&none);
        let by_topics = positions.iter().enumerate().all(|(position, wanted)| {
            let present = self.topics.get(position);
            let is_topic = |value: &Value| present.is_some_and(|it| value.as_str() == Some(&**it));
            match wanted {
                Value::Null => present.is_some(),
                Value::Array(any) => is_any(any, present.is_some(), is_topic),
                one => is_topic(one),
            }
        });
        by_address && by_topics
    }
}

/// Whether one of the alternatives is the topic; an empty list permits any topic.
fn is_any(any: &[Value], is_present: bool, is_topic: impl Fn(&Value) -> bool) -> bool {
    match any {
        [] => is_present,
        any => any.iter().any(is_topic),
    }
}

/// Returns the hash of the transaction with this index in a block.
fn transaction_hash(block: &[u8; 32], index: u64) -> String {
    let mut hash = *block;
    hash[0] = index as u8;
    hash_text(&hash)
}

/// A block of a simulated chain. Its transactions emit one log each, but for the last one.
#[derive(Debug)]
pub struct Block {
    pub number: u64,
    pub hash: [u8; 32],
    logs: Vec<Log>,
}

impl Block {
    /// Creates the block of this number on a branch of a chain; no two branches have equal blocks.
    fn new(chain: u64, branch: u64, number: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in [chain, branch, number] {
            hasher.update(&part.to_le_bytes());
        }
        let hash = *hasher.finalize().as_bytes();
        let seed = hash[..8]
            .iter()
            .fold(0, |seed, byte| (seed << 8) | u64::from(*byte));
        let mut random = Random::new(seed);
        let logs = (0..random.number_below(4))
            .map(|index| Log::new((number, &hash), index, &mut random))
            .collect();
        Self { number, hash, logs }
    }

    pub fn transaction_count(&self) -> usize {
        self.logs.len() + 1
    }

    /// Returns the logs that a filter selects, joined by commas.
    pub fn selected_logs(&self, filter: &Value) -> String {
        let logs = self.logs.iter().filter(|log| log.matches(filter));
        let texts: Vec<&str> = logs.map(|log| &*log.text).collect();
        texts.join(",")
    }

    /// Returns the receipts of all transactions in JSON.
    pub fn receipts(&self) -> String {
        let logs = self.logs.iter().map(Some).chain([None]);
        let receipts = (0..).zip(logs).map(|(index, log)| {
            let values = log.into_iter().flat_map(|log| {
                let topics = log.topics.iter().map(String::as_str);
                std::iter::once(&*log.address).chain(topics)
            });
            format!(
                r#"{{"transactionHash":"{}","transactionIndex":"0x{index:x}","blockHash":"{}","blockNumber":"0x{:x}","logs":[{}],"logsBloom":"{}","status":"0x1"}}"#,
                transaction_hash(&self.hash, index),
                hash_text(&self.hash),
                self.number,
                log.map_or("", |log| &*log.text),
                bloom_text(values),
            )
        });
        let receipts: Vec<String> = receipts.collect();
        format!("[{}]", receipts.join(","))
    }
}

pub fn hash_text(hash: &[u8; 32]) -> String {
    hash.iter()
        .fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// The blocks from the first one up to a head. A copy is cheap.
#[derive(Clone, Debug)]
pub struct ChainView(Arc<Vec<Arc<Block>>>);

impl ChainView {
    pub fn head(&self) -> u64 {
        self.0.len() as u64 - 1
    }

    pub fn has_block(&self, number: u64) -> bool {
        number <= self.head()
    }

    pub fn block(&self, number: u64) -> Option<&Block> {
        Some(self.0.get(usize::try_from(number).ok()?)?)
    }

    /// Returns the block that a parameter names by its number or its hash.
    pub fn block_of_parameter(&self, parameter: &str) -> Option<&Block> {
        let digits = parameter.strip_prefix("0x")?;
        match digits.len() {
            64 => {
                let blocks = self.0.iter().map(|block| &**block);
                let mut blocks = blocks.rev();
                blocks.find(|block| hash_text(&block.hash) == parameter)
            }
            _ => self.block(u64::from_str_radix(digits, 16).ok()?),
        }
    }

    /// Returns a view whose head is `blocks` lower.
    pub fn lagging_view(&self, blocks: u64) -> Self {
        let length = self.0.len().saturating_sub(blocks as usize).max(1);
        Self(Arc::new(self.0[..length].to_vec()))
    }

    /// Returns the logs of a range that a filter selects, joined by commas, as far as the view has
    /// the blocks.
    pub fn logs_of_range(&self, from: u64, to: u64, filter: &Value) -> String {
        let to = to.min(self.head());
        let blocks = (from..=to).filter_map(|number| self.block(number));
        let logs = blocks
            .flat_map(|block| &block.logs)
            .filter(|log| log.matches(filter));
        let texts: Vec<&str> = logs.map(|log| &*log.text).collect();
        texts.join(",")
    }

    /// Returns the numbers and hashes of the newest blocks, the newest first.
    pub fn newest_blocks(&self) -> impl Iterator<Item = (u64, [u8; 32])> + '_ {
        let numbered = (0..).zip(self.0.iter());
        let mut newest: Vec<_> = numbered
            .map(|(number, block)| (number, block.hash))
            .collect();
        newest.reverse();
        newest.into_iter().take(64)
    }
}

/// The chain as it really is, which changes.
#[derive(Debug)]
pub struct Blockchain {
    id: u64,
    branches: u64,
    pub view: ChainView,
    pub last_final: u64,
    /// The step in which the present head became the head.
    pub head_step: u64,
    /// The steps of all reorganisations, and the lowest replaced heights.
    pub reorgs: Vec<(u64, u64)>,
}

impl Blockchain {
    /// Creates a chain of blocks up to `head`, which are final up to `last_final`.
    pub fn new(id: u64, head: u64, last_final: u64) -> Self {
        let blocks = (0..=head).map(|number| Arc::new(Block::new(id, 0, number)));
        Self {
            id,
            branches: 0,
            view: ChainView(Arc::new(blocks.collect())),
            last_final,
            head_step: 0,
            reorgs: Vec::new(),
        }
    }

    /// Replaces the last `depth` blocks by `length` others; no final block is replaced.
    pub fn replace_blocks(&mut self, depth: u64, length: u64, step: u64) {
        let head = self.view.head();
        let depth = depth.min(head - self.last_final);
        if depth > 0 {
            self.branches += 1;
            self.reorgs.push((step, head - depth + 1));
        }
        let first = head - depth + 1;
        let mut blocks = self.view.0[..first as usize].to_vec();
        let added =
            (first..first + length).map(|number| Block::new(self.id, self.branches, number));
        blocks.extend(added.map(Arc::new));
        self.view = ChainView(Arc::new(blocks));
        self.head_step = step;
    }

    /// Makes up to `blocks` more blocks final. No view that is no part of the chain has other final
    /// blocks: it belongs to a node that is about to adopt the chain.
    pub fn finalize<'a>(&mut self, blocks: u64, views: impl Iterator<Item = &'a ChainView>) {
        let mut last = (self.last_final + blocks).min(self.view.head());
        for view in views {
            let differs = |number: &u64| {
                let ends = [view, &self.view].map(|view| view.block(*number).map(|it| it.hash));
                ends[0].is_some() && ends[0] != ends[1]
            };
            if let Some(first) = (self.last_final + 1..=last).find(differs) {
                last = first - 1;
            }
        }
        self.last_final = last;
    }
}
