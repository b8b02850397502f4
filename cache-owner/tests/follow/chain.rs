//! The chain of a scripted node, and its responses.

use serde_json::{json, Value};

/// A block of the test's chain, identified by its number and branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestBlock {
    pub number: u64,
    pub branch: u8,
}

/// The chain of a test's node, which the test extends and reorganises.
#[derive(Clone, Debug)]
pub struct TestChain {
    pub blocks: Vec<TestBlock>,
    pub finalized: Option<u64>,
    pub is_syncing: bool,
    /// No block is found by its hash.
    pub is_pruned: bool,
    pub id: u64,
    /// Removed blocks with their parents, still found by hash.
    pub orphans: Vec<(TestBlock, TestBlock)>,
}

pub fn hash(block: TestBlock) -> String {
    format!("0x{:062x}{:02x}", block.number, block.branch)
}

impl TestChain {
    /// Creates the blocks 0 to 100, where block 90 is final.
    pub fn new() -> Self {
        Self {
            blocks: (0..=100)
                .map(|number| TestBlock { number, branch: 1 })
                .collect(),
            finalized: Some(90),
            is_syncing: false,
            is_pruned: false,
            id: 1,
            orphans: Vec::new(),
        }
    }

    pub fn extend(&mut self, branch: u8, count: u64) {
        for _ in 0..count {
            let number = self.blocks.len() as u64;
            self.blocks.push(TestBlock { number, branch });
        }
    }

    pub fn cut_to_head(&mut self, head: u64) {
        for number in head + 1..self.blocks.len() as u64 {
            let at = usize::try_from(number).unwrap();
            self.orphans.push((self.blocks[at], self.blocks[at - 1]));
        }
        self.blocks.truncate(usize::try_from(head + 1).unwrap());
    }

    pub fn block_at(&self, number: u64) -> Option<TestBlock> {
        self.blocks.get(usize::try_from(number).unwrap()).copied()
    }

    pub fn head(&self) -> TestBlock {
        *self.blocks.last().unwrap()
    }

    /// Returns the block with this hash, and its parent.
    pub fn find_by_hash(&self, wanted: &str) -> Option<(TestBlock, Option<TestBlock>)> {
        let mut all = self.blocks.iter().copied();
        match all.find(|block| hash(*block) == wanted) {
            Some(block) => Some((block, self.parent(block))),
            None => {
                let mut orphans = self.orphans.iter();
                let found = orphans.find(|(block, _)| hash(*block) == wanted);
                found.map(|(block, parent)| (*block, Some(*parent)))
            }
        }
    }

    pub fn parent(&self, block: TestBlock) -> Option<TestBlock> {
        self.block_at(block.number.checked_sub(1)?)
    }

    /// Returns the result of a JSON-RPC call.
    pub fn call(&self, method: &str, params: &Value) -> Result<Value, String> {
        let block = |found: Option<(TestBlock, Option<TestBlock>)>| match found {
            Some((block, parent)) => json!({
                "number": format!("{:#x}", block.number),
                "hash": hash(block),
                "parentHash": parent.map_or("0x".to_owned() + &"0".repeat(64), hash),
                "timestamp": format!("{:#x}", 1_700_000_000 + 2 * block.number),
                "transactions": ["0x1234"],
            }),
            None => Value::Null,
        };
        let canonical = |block: Option<TestBlock>| block.map(|block| (block, self.parent(block)));
        Ok(match method {
            "eth_chainId" => json!(format!("{:#x}", self.id)),
            "eth_syncing" if self.is_syncing => json!({ "currentBlock": "0x1" }),
            "eth_syncing" => json!(false),
            "eth_subscribe" => json!("0xabc"),
            "eth_getBlockByNumber" => match params[0].as_str().unwrap() {
                "latest" => block(canonical(Some(self.head()))),
                "finalized" => match self.finalized {
                    Some(number) => block(canonical(self.block_at(number))),
                    None => return Err("unknown block".into()),
                },
                number => {
                    let digits = number.strip_prefix("0x").unwrap();
                    let number = u64::from_str_radix(digits, 16).unwrap();
                    block(canonical(self.block_at(number)))
                }
            },
            "eth_getBlockByHash" if self.is_pruned => Value::Null,
            "eth_getBlockByHash" => block(self.find_by_hash(params[0].as_str().unwrap())),
            other => panic!("{other}"),
        })
    }

    /// Returns the Beacon API's response for a path. Even slots above 50 are empty.
    pub fn page(&self, path: &str) -> Option<Value> {
        let has_block = |number: u64| number <= 50 || number % 2 == 1;
        let below = |number: u64| (0..=number).rev().find(|number| has_block(*number));
        let header = |block: TestBlock| {
            let parent = block.number.checked_sub(1).and_then(below);
            let parent = parent.and_then(|number| self.block_at(number));
            json!({ "data": {
                "root": hash(block),
                "canonical": true,
                "header": { "message": {
                    "slot": block.number.to_string(),
                    "proposer_index": "1",
                    "parent_root": parent.map_or("0x".to_owned() + &"0".repeat(64), hash),
                } },
            } })
        };
        let (path, _) = path.split_once('?').unwrap_or((path, ""));
        let id = path.strip_prefix("/eth/v1/beacon/headers/");
        Some(match (path, id) {
            ("/eth/v1/beacon/genesis", _) => {
                json!({ "data": { "genesis_validators_root": hash(self.blocks[0]) } })
            }
            ("/eth/v1/config/spec", _) => {
                json!({ "data": {
                    "DEPOSIT_CHAIN_ID": self.id.to_string(),
                    "SECONDS_PER_SLOT": "5",
                } })
            }
            ("/eth/v1/node/syncing", _) => {
                json!({ "data": { "is_syncing": self.is_syncing, "is_optimistic": false } })
            }
            ("/eth/v1/beacon/states/head/finality_checkpoints", _) => {
                let root = match self.finalized.and_then(below) {
                    Some(number) => hash(self.block_at(number).unwrap()),
                    None => "0x".to_owned() + &"0".repeat(64),
                };
                json!({ "data": { "finalized": { "epoch": "1", "root": root } } })
            }
            (_, Some("head")) => header(self.block_at(below(self.head().number)?)?),
            (_, Some(root)) if root.starts_with("0x") => header(self.find_by_hash(root)?.0),
            (_, Some(slot)) => {
                let slot = slot.parse().ok().filter(|slot| has_block(*slot))?;
                header(self.block_at(slot)?)
            }
            _ => return None,
        })
    }
}
