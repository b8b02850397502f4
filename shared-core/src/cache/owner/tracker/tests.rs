//! Scripts of a node's chain and the expected moves, one per rule.

use std::collections::HashMap;

use super::{Answer, Ask, Block, Hash, Identity, Mark, Move, Record, State, Step, Tracker};
use crate::config::follow::Finality;

mod chains;
mod finality;

/// A node with one chain.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) chain: Vec<Block>,
    /// All blocks that the node has ever had.
    known: HashMap<Hash, Block>,
    finalized: Result<Option<Mark>, String>,
    pub(super) syncing: Result<bool, String>,
    pub(super) chain_id: u64,
    /// Number of its last blocks that the node does not show.
    pub(super) lag: usize,
    queries: Vec<Ask>,
}

fn hash(branch: u8, number: u64) -> Hash {
    let mut hash = [branch; 32];
    hash[..8].copy_from_slice(&number.to_be_bytes());
    hash
}

impl Node {
    fn new(length: u64) -> Self {
        Self::with_chain_id(1, 0, length)
    }

    /// A node with this chain id.
    pub(super) fn with_chain_id(chain_id: u64, branch: u8, length: u64) -> Self {
        let mut node = Self {
            chain: Vec::new(),
            known: HashMap::new(),
            finalized: Ok(None),
            syncing: Ok(false),
            chain_id,
            lag: 0,
            queries: Vec::new(),
        };
        node.extend(branch, length);
        node
    }

    fn push(&mut self, branch: u8, number: u64) {
        let block = Block {
            number,
            hash: hash(branch, number),
            parent: self.chain.last().map_or([0; 32], |last| last.hash),
        };
        self.known.insert(block.hash, block);
        self.chain.push(block);
    }

    pub(super) fn extend(&mut self, branch: u8, count: u64) {
        for _ in 0..count {
            let number = self.chain.last().map_or(0, |last| last.number + 1);
            self.push(branch, number);
        }
    }

    pub(super) fn cut(&mut self, head: u64) {
        let at = self.chain.partition_point(|block| block.number <= head);
        self.chain.truncate(at);
    }

    /// Replaces the blocks above `at` by `count` others.
    fn branch_off(&mut self, at: u64, branch: u8, count: u64) {
        self.cut(at);
        self.extend(branch, count);
    }

    fn finalize(&mut self, number: u64) {
        let block = self.at(number).unwrap();
        self.finalized = Ok(Some(Mark {
            number,
            hash: block.hash,
        }));
    }

    /// The blocks that the node shows.
    pub(super) fn view(&self) -> &[Block] {
        &self.chain[..self.chain.len().saturating_sub(self.lag).max(1)]
    }

    fn at(&self, number: u64) -> Option<Block> {
        let view = self.view();
        let at = view.binary_search_by_key(&number, |block| block.number);
        Some(view[at.ok()?])
    }

    pub(super) fn answer(&mut self, ask: Ask) -> Answer {
        self.queries.push(ask);
        match ask {
            Ask::Latest => Answer::Block(self.view().last().copied()),
            Ask::Finalized => match &self.finalized {
                Ok(mark) => Answer::Block(mark.map(|mark| Block {
                    number: mark.number,
                    hash: mark.hash,
                    parent: [0; 32],
                })),
                Err(error) => Answer::Failed(error.clone()),
            },
            Ask::Syncing => match &self.syncing {
                Ok(syncing) => Answer::Syncing(*syncing),
                Err(error) => Answer::Failed(error.clone()),
            },
            Ask::ByHash(hash) => Answer::Block(self.known.get(&hash).copied()),
            Ask::ByNumber(number) | Ask::Again(number) => Answer::Block(self.at(number)),
            Ask::ChainId => Answer::ChainId(Some(self.chain_id)),
            Ask::Genesis => Answer::Genesis(self.chain[0].hash),
        }
    }
}

/// A tracker with its node and a clock.
struct Script {
    tracker: Tracker,
    node: Node,
    now: u64,
    log_lines: Vec<String>,
    record: Record,
    /// Queries to which the node gives another result than its chain has.
    overrides: Vec<(Ask, Answer)>,
}

pub(super) const INTERVAL: u64 = 1_000;

impl Script {
    fn new(node: Node, finality: Finality) -> Self {
        Self::with(node, finality, Record::default())
    }

    fn with(node: Node, finality: Finality, record: Record) -> Self {
        Self {
            tracker: Tracker::new(finality, INTERVAL, record, 0),
            node,
            now: 0,
            log_lines: Vec::new(),
            record,
            overrides: Vec::new(),
        }
    }

    /// A script whose node is followed up to block 100, where block 90 is final.
    fn followed() -> Self {
        let mut node = Node::new(101);
        node.finalize(90);
        let mut script = Self::new(node, Finality::Tag);
        let moves = script.poll();
        assert_eq!(moves, "reorg 0, head 100, final 90");
        script
    }

    /// Extends the chain by `count` blocks, with a poll after each.
    fn advance(&mut self, count: u64) {
        for _ in 0..count {
            self.node.extend(0, 1);
            self.poll();
        }
    }

    /// The moves as text.
    fn drain(&mut self) -> String {
        let mut moves = Vec::new();
        while let Some(step) = self.tracker.next_step() {
            match step {
                Step::Move(change) => {
                    if let Move::Final(Some(number)) = change {
                        // recorded before it is reported
                        assert_eq!(self.record.mark.unwrap().number, number);
                    }
                    moves.push(match change {
                        Move::Head(number) => format!("head {number}"),
                        Move::Reorg { from } => format!("reorg {from}"),
                        Move::Broken { from } => format!("broken {from}"),
                        Move::Final(Some(number)) => format!("final {number}"),
                        Move::Final(None) => "final none".into(),
                        Move::Wrong(is_wrong) => format!("wrong {is_wrong}"),
                        Move::Known(_) => unreachable!("it is told by whoever records"),
                    });
                }
                Step::KeepIdentity(identity) => {
                    self.record = Record {
                        identity: Some(identity),
                        mark: None,
                    };
                }
                Step::KeepMark(mark) => self.record.mark = mark,
                Step::Say { text, .. } => self.log_lines.push(text),
            }
        }
        moves.join(", ")
    }

    /// Polls the node after one interval.
    fn poll(&mut self) -> String {
        self.poll_after(INTERVAL)
    }

    fn poll_after(&mut self, wait: u64) -> String {
        self.now += wait;
        self.tracker.begin(self.now);
        loop {
            let asks = self.tracker.asks();
            if asks.is_empty() {
                return self.drain();
            }
            for ask in asks {
                let fixed = self.overrides.iter().find(|(about, _)| *about == ask);
                let answer = match fixed {
                    Some((_, fixed)) => fixed.clone(),
                    None => self.node.answer(ask),
                };
                self.tracker.answer(ask, answer);
            }
        }
    }

    fn fail(&mut self) -> String {
        self.now += INTERVAL;
        self.tracker.begin(self.now);
        self.tracker.asks();
        self.tracker.fail("connection refused", self.now);
        self.drain()
    }
}

/// The moves when blocks from `from` on were final and are replaced.
fn broken(from: u64, head: u64, last: u64) -> String {
    format!("final none, broken {from}, reorg {from}, head {head}, final {last}")
}
