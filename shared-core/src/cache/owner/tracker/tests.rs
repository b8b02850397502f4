//! Scripts of a node's chain and the expected moves, one per rule.

use crate::hash_keys::HashMap;

use super::{
    BlockHash, ChainChange, ChainIdentity, ChainRecord, ChainTracker, FinalityMark, NodeBlock,
    NodeQuery, NodeResult, State, TrackerAction,
};
use crate::config::head_source::FinalizedBlockRule;

mod backfill;
mod block_time;
mod chains;
mod finality;

/// A node with one chain.
#[derive(Clone, Debug)]
pub(super) struct SingleChainNode {
    pub(super) chain: Vec<NodeBlock>,
    /// All blocks that the node has ever had.
    known: HashMap<BlockHash, NodeBlock>,
    finalized: Result<Option<FinalityMark>, String>,
    pub(super) syncing: Result<bool, String>,
    pub(super) chain_id: u64,
    /// Number of its last blocks that the node does not show.
    pub(super) lag: usize,
    queries: Vec<NodeQuery>,
    /// Returns the timestamp of a block by its number; `None`: blocks have no timestamps.
    block_times: Option<fn(u64) -> u64>,
}

fn hash(branch: u8, number: u64) -> BlockHash {
    let mut hash = [branch; 32];
    hash[..8].copy_from_slice(&number.to_be_bytes());
    hash
}

impl SingleChainNode {
    fn new(length: u64) -> Self {
        Self::node_with_chain_id(1, 0, length)
    }

    /// A node with this chain id.
    pub(super) fn node_with_chain_id(chain_id: u64, branch: u8, length: u64) -> Self {
        let mut node = Self {
            chain: Vec::new(),
            known: HashMap::default(),
            finalized: Ok(None),
            syncing: Ok(false),
            chain_id,
            lag: 0,
            queries: Vec::new(),
            block_times: None,
        };
        node.extend(branch, length);
        node
    }

    fn push(&mut self, branch: u8, number: u64) {
        let block = NodeBlock {
            number,
            hash: hash(branch, number),
            parent: self.chain.last().map_or([0; 32], |last| last.hash),
            timestamp: self.block_times.map(|timestamp| timestamp(number)),
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
        self.finalized = Ok(Some(FinalityMark {
            number,
            hash: block.hash,
        }));
    }

    /// The blocks that the node shows.
    pub(super) fn visible_blocks(&self) -> &[NodeBlock] {
        &self.chain[..self.chain.len().saturating_sub(self.lag).max(1)]
    }

    fn at(&self, number: u64) -> Option<NodeBlock> {
        let view = self.visible_blocks();
        let at = view.binary_search_by_key(&number, |block| block.number);
        Some(view[at.ok()?])
    }

    pub(super) fn answer(&mut self, query: NodeQuery) -> NodeResult {
        self.queries.push(query);
        match query {
            NodeQuery::Latest => NodeResult::Block(self.visible_blocks().last().copied()),
            NodeQuery::Finalized => match &self.finalized {
                Ok(mark) => NodeResult::Block(mark.map(|mark| NodeBlock {
                    number: mark.number,
                    hash: mark.hash,
                    parent: [0; 32],
                    timestamp: None,
                })),
                Err(error) => NodeResult::Failed(error.clone()),
            },
            NodeQuery::Syncing => match &self.syncing {
                Ok(syncing) => NodeResult::Syncing(*syncing),
                Err(error) => NodeResult::Failed(error.clone()),
            },
            NodeQuery::ByHash(hash) => NodeResult::Block(self.known.get(&hash).copied()),
            NodeQuery::ByNumber(number) | NodeQuery::Recheck(number) => {
                NodeResult::Block(self.at(number))
            }
            NodeQuery::ChainId => NodeResult::ChainId(Some(self.chain_id)),
            NodeQuery::Genesis => NodeResult::Genesis(self.chain[0].hash),
        }
    }
}

/// A tracker with its node and a clock.
struct ScriptedTracker {
    tracker: ChainTracker,
    node: SingleChainNode,
    now: u64,
    log_lines: Vec<String>,
    record: ChainRecord,
    /// Queries to which the node gives another result than its chain has.
    overrides: Vec<(NodeQuery, NodeResult)>,
}

pub(super) const INTERVAL: u64 = 1_000;

impl ScriptedTracker {
    fn new(node: SingleChainNode, finality: FinalizedBlockRule) -> Self {
        Self::restored_from_record(node, finality, ChainRecord::default())
    }

    fn restored_from_record(
        node: SingleChainNode,
        finality: FinalizedBlockRule,
        record: ChainRecord,
    ) -> Self {
        Self {
            tracker: ChainTracker::new(finality, INTERVAL, record, 0),
            node,
            now: 0,
            log_lines: Vec::new(),
            record,
            overrides: Vec::new(),
        }
    }

    /// A script whose node is followed up to block 100, where block 90 is final.
    fn following_to_block_100() -> Self {
        let mut node = SingleChainNode::new(101);
        node.finalize(90);
        let mut script = Self::new(node, FinalizedBlockRule::Tag);
        let moves = script.poll();
        assert_eq!(moves, "reorg 0, head 100, final 90");
        script
    }

    /// Extends the chain by `count` blocks, with a poll after each.
    fn extend_and_poll(&mut self, count: u64) {
        for _ in 0..count {
            self.node.extend(0, 1);
            self.poll();
        }
    }

    /// The moves as text.
    fn steps_as_text(&mut self) -> String {
        let mut moves = Vec::new();
        while let Some(step) = self.tracker.take_next_tracker_step() {
            match step {
                TrackerAction::ChainChange(change) => {
                    if let ChainChange::Final(Some(number)) = change {
                        // recorded before it is reported
                        assert_eq!(self.record.mark.unwrap().number, number);
                    }
                    moves.push(match change {
                        ChainChange::Head(number) => format!("head {number}"),
                        ChainChange::Reorg { from } => format!("reorg {from}"),
                        ChainChange::FinalityReverted { from } => format!("broken {from}"),
                        ChainChange::Final(Some(number)) => format!("final {number}"),
                        ChainChange::Final(None) => "final none".into(),
                        ChainChange::Wrong(is_wrong) => format!("wrong {is_wrong}"),
                        ChainChange::ChainVerified(_) => {
                            unreachable!("it is told by whoever records")
                        }
                    });
                }
                TrackerAction::RecordIdentity(identity) => {
                    self.record = ChainRecord {
                        identity: Some(identity),
                        mark: None,
                    };
                }
                TrackerAction::RecordMark(mark) => self.record.mark = mark,
                TrackerAction::Log { text, .. } => self.log_lines.push(text),
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
        self.tracker.begin_poll(self.now);
        loop {
            let queries = self.tracker.next_queries();
            if queries.is_empty() {
                return self.steps_as_text();
            }
            for query in queries {
                let fixed = self.overrides.iter().find(|(about, _)| *about == query);
                let answer = match fixed {
                    Some((_, fixed)) => fixed.clone(),
                    None => self.node.answer(query),
                };
                self.tracker.handle_query_result(query, answer);
            }
        }
    }

    fn fail(&mut self) -> String {
        self.now += INTERVAL;
        self.tracker.begin_poll(self.now);
        self.tracker.next_queries();
        self.tracker.fail_poll("connection refused", self.now);
        self.steps_as_text()
    }
}

/// The moves when blocks from `from` on were final and are replaced.
fn broken_finality_steps(from: u64, head: u64, last: u64) -> String {
    format!("final none, broken {from}, reorg {from}, head {head}, final {last}")
}
