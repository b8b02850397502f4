//! A simple model of a chain, and a cache that applies the tracker's steps: after each poll that
//! saw the node's chain, the cache has no other blocks.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::tests::{SingleChainNode, INTERVAL};
use super::{
    BlockHash, ChainChange, ChainRecord, ChainTracker, FinalityMark, NodeBlock, NodeQuery,
    NodeResult, State, TrackerAction,
};
use crate::cache::chain::{ChainDependency, ChainState, HeightUnit, NamespaceChain};
use crate::cache::class::LifetimeClass;
use crate::config::head_source::FinalizedBlockRule;
use crate::tier::times;

/// One event of a random history: a change of the chain, a poll, or a restart of the tracker.
#[derive(Clone, Debug)]
enum ModelEvent {
    Extend(u8),
    /// The last blocks are replaced by a number of others.
    Reorg(u8, u8),
    /// The last blocks are removed.
    Rollback(u8),
    /// The finalized block is this far below the head.
    Finalize(u8),
    /// The finalized block goes back by a number of blocks.
    Unfinalize(u8),
    /// The node responds as if the last blocks did not exist.
    Lag(u8),
    Syncing(bool),
    Down(bool),
    /// The node has another chain, or the first one again.
    Swap,
    /// The node remembers its present branch.
    Remember,
    /// The node returns to the remembered branch, and remembers the one that it had.
    Return,
    /// The node is polled after a number of milliseconds.
    Poll(u16),
    /// An event occurs between two results of a poll.
    PollDuring(u16, Box<ModelEvent>),
    /// A new tracker starts with the record.
    Restart,
    /// A new tracker starts with the last flushed record and entries.
    Crash,
    /// The present record and entries would survive a crash.
    Flush,
}

/// A simulated node, whose chain the events of the model test change.
struct ModelNode {
    node: SingleChainNode,
    remembered: Vec<NodeBlock>,
    finalized: usize,
    is_down: bool,
    /// The newest branch of the node.
    branch: u8,
}

impl ModelNode {
    fn new(id: u8) -> Self {
        let node = SingleChainNode::node_with_chain_id(id.into(), id * 100 - 99, 20);
        Self {
            remembered: node.chain.clone(),
            node,
            finalized: 0,
            is_down: false,
            branch: id * 100 - 99,
        }
    }

    fn remove_newest_blocks(&mut self, count: usize) {
        let left = self.node.chain.len().saturating_sub(count).max(1);
        self.node.cut(left as u64 - 1);
        self.finalized = self.finalized.min(left - 1);
        self.branch += 1;
    }

    fn extend(&mut self, count: u64) {
        self.node.extend(self.branch, count);
    }

    fn respond_to_query(&mut self, query: NodeQuery) -> NodeResult {
        if query == NodeQuery::Finalized {
            let view = self.node.visible_blocks();
            return NodeResult::Block(view.get(self.finalized.min(view.len() - 1)).copied());
        }
        self.node.answer(query)
    }
}

/// The cached entries of a model: the hash of one block for each number.
type Entries = BTreeMap<u64, BlockHash>;

/// A tracker under test, with two simulated nodes and a cache that carries out the tracker's steps.
struct TrackerUnderTest {
    finality: FinalizedBlockRule,
    node: ModelNode,
    other: ModelNode,
    tracker: ChainTracker,
    now: u64,
    /// Entries that are not final.
    memory: Entries,
    /// Final entries, and the record.
    disk: (Entries, ChainRecord),
    /// The state of the disk after a crash.
    lasting: (Entries, ChainRecord),
    last: Option<u64>,
    is_wrong: bool,
    /// The published state of the owner's chain.
    chain: NamespaceChain,
    /// Blocks of other machines that were compared with the canonical blocks: number, hash and
    /// epoch.
    verified: BTreeSet<(u64, BlockHash, u64)>,
}

/// Returns the chain of an owner that starts at this time in milliseconds.
fn chain_of_new_owner(now: u64) -> NamespaceChain {
    NamespaceChain::new(ChainState::new_without_blocks(HeightUnit::Blocks, now))
}

impl TrackerUnderTest {
    fn new(finality: FinalizedBlockRule) -> Self {
        Self {
            finality,
            node: ModelNode::new(1),
            other: ModelNode::new(2),
            tracker: ChainTracker::new(finality, INTERVAL, ChainRecord::default(), 0),
            now: 0,
            memory: Entries::new(),
            disk: Default::default(),
            lasting: Default::default(),
            last: None,
            is_wrong: false,
            chain: chain_of_new_owner(0),
            verified: BTreeSet::new(),
        }
    }

    fn apply_event(&mut self, event: &ModelEvent) {
        let node = &mut self.node;
        match event {
            ModelEvent::Extend(count) => node.extend((*count).into()),
            ModelEvent::Reorg(depth, length) => {
                node.remove_newest_blocks(*depth as usize);
                node.extend((*length).into());
            }
            ModelEvent::Rollback(depth) => node.remove_newest_blocks(*depth as usize),
            ModelEvent::Finalize(depth) => {
                let number = node.node.chain.len().saturating_sub(1 + *depth as usize);
                node.finalized = node.finalized.max(number);
            }
            ModelEvent::Unfinalize(by) => {
                node.finalized = node.finalized.saturating_sub(*by as usize);
            }
            ModelEvent::Lag(by) => node.node.lag = *by as usize,
            ModelEvent::Syncing(is_syncing) => node.node.syncing = Ok(*is_syncing),
            ModelEvent::Down(is_down) => node.is_down = *is_down,
            ModelEvent::Remember => node.remembered.clone_from(&node.node.chain),
            ModelEvent::Return => {
                std::mem::swap(&mut node.node.chain, &mut node.remembered);
                node.finalized = node.finalized.min(node.node.chain.len() - 1);
                node.branch += 1;
            }
            ModelEvent::Swap => std::mem::swap(&mut self.node, &mut self.other),
            ModelEvent::Poll(wait) => self.poll(u64::from(*wait), None),
            ModelEvent::PollDuring(wait, event) => self.poll(u64::from(*wait), Some(event)),
            ModelEvent::Flush => self.lasting = self.disk.clone(),
            ModelEvent::Restart => {
                // the follower alone starts again, as after a panic
                self.publish_change(ChainChange::Final(None));
                self.publish_change(ChainChange::ChainVerified(false));
                self.publish_change(ChainChange::Wrong(false));
                self.restart_tracker();
            }
            ModelEvent::Crash => {
                self.disk = self.lasting.clone();
                self.chain = chain_of_new_owner(self.now);
                self.verified.clear();
                self.restart_tracker();
            }
        }
    }

    fn restart_tracker(&mut self) {
        self.tracker = ChainTracker::new(self.finality, INTERVAL, self.disk.1, self.now);
        (self.last, self.is_wrong) = (None, false);
    }

    fn publish_change(&self, change: ChainChange) {
        self.chain
            .modify_locked_chain_state(|state| state.apply_chain_change(change));
    }

    fn publish_known_blocks(&self) {
        let blocks = self.tracker.window_blocks();
        self.chain
            .set_recent_blocks(blocks.map(|block| (block.number, block.hash)));
    }

    /// Compares the blocks of all branches that the node has had with the canonical blocks.
    fn verify_blocks(&mut self) {
        let view = self.node.node.visible_blocks();
        let newest =
            |blocks: &[NodeBlock]| blocks.iter().rev().take(40).copied().collect::<Vec<_>>();
        let compared = [newest(view), newest(&self.node.remembered)].concat();
        for block in compared {
            if let Some(epoch) = self.chain.verify_block(block.number, &block.hash) {
                self.verified.insert((block.number, block.hash, epoch));
            }
        }
    }

    /// Whether an entry about a block, valid in that epoch, was not invalidated since.
    fn is_entry_valid(&self, number: u64, epoch: u64) -> bool {
        let class = LifetimeClass::Unfinalized;
        ChainDependency::new(&self.chain, class, epoch, Some(number)).is_entry_valid()
    }

    /// Extends the window as the host does after a poll.
    fn backfill_window(&mut self) {
        while let Some(query) = self.tracker.next_backfill_query() {
            if self.node.is_down {
                return;
            }
            let answer = self.node.respond_to_query(query);
            if self.tracker.handle_backfill_result(&answer) {
                self.publish_known_blocks();
            }
        }
    }

    fn poll(&mut self, wait: u64, mut during: Option<&ModelEvent>) {
        self.now += wait;
        self.tracker.begin_poll(self.now);
        let is_calm = during.is_none();
        let mut queries = 0;
        loop {
            let batch = self.tracker.next_queries();
            if batch.is_empty() {
                break;
            }
            queries += batch.len();
            assert!(queries < 200);
            if self.node.is_down {
                self.tracker.fail_poll("down", self.now);
                break;
            }
            for query in batch {
                let answer = self.node.respond_to_query(query);
                self.tracker.handle_query_result(query, answer);
                if query != NodeQuery::Latest {
                    if let Some(event) = during.take() {
                        self.apply_event(event);
                    }
                }
            }
        }
        self.publish_known_blocks();
        self.verify_blocks();
        self.apply_steps();
        self.verify_blocks();
        if is_calm && !self.node.is_down && self.tracker.last_poll_error().is_none() {
            self.assert_cache_matches_chain();
            self.cache_all_node_blocks();
            let mut verified = std::mem::take(&mut self.verified);
            verified.retain(|(number, _, epoch)| self.is_entry_valid(*number, *epoch));
            self.verified = verified;
        }
        self.backfill_window();
        self.verify_blocks();
    }

    fn apply_steps(&mut self) {
        while let Some(step) = self.tracker.take_next_tracker_step() {
            let change = match step {
                TrackerAction::ChainChange(change) => change,
                TrackerAction::RecordIdentity(identity) => {
                    self.disk.1 = ChainRecord {
                        identity: Some(identity),
                        mark: None,
                    };
                    self.lasting = self.disk.clone();
                    continue;
                }
                TrackerAction::RecordMark(mark) => {
                    self.disk.1.mark = mark;
                    continue;
                }
                TrackerAction::Log { .. } => continue,
            };
            assert!(
                !self.is_wrong || change == ChainChange::Wrong(false),
                "{change:?}"
            );
            self.publish_change(change);
            match change {
                ChainChange::Head(number) => {
                    assert_eq!(self.tracker.newest_known_block().unwrap().number, number);
                }
                ChainChange::Reorg { from } => drop(self.memory.split_off(&from)),
                ChainChange::Final(number) => self.last = number,
                ChainChange::FinalityReverted { from } => {
                    assert_eq!(self.last, None);
                    drop(self.memory.split_off(&from));
                    drop(self.disk.0.split_off(&from));
                    self.lasting = self.disk.clone();
                }
                ChainChange::ChainVerified(_) => unreachable!("it is told by whoever records"),
                ChainChange::Wrong(is_wrong) => self.is_wrong = is_wrong,
            }
        }
        let is_known = self.tracker.confirmed_identity().is_some();
        self.publish_change(ChainChange::ChainVerified(is_known));
    }

    /// Compares the cache with the node's chain after a poll.
    fn assert_cache_matches_chain(&self) {
        let view = self.node.node.visible_blocks();
        let head = view.last().unwrap();
        let recorded = self.disk.1.identity.unwrap();
        assert_eq!(
            self.is_wrong,
            recorded.chain_id != Some(self.node.node.chain_id)
        );
        assert_eq!(
            self.is_wrong,
            self.tracker.tracker_state() == State::WrongChain
        );
        if self.is_wrong {
            assert_eq!(self.last, None);
            return;
        }
        let has = |number: &u64, hash: &BlockHash| {
            view.get(*number as usize)
                .is_some_and(|block| block.hash == *hash)
        };
        for (number, hash) in &self.memory {
            assert!(has(number, hash), "{number} was replaced");
        }
        for (number, hash, epoch) in &self.verified {
            let is_right = !self.is_entry_valid(*number, *epoch) || has(number, hash);
            assert!(is_right, "{number} was verified and replaced");
        }
        let known = self.tracker.newest_known_block().unwrap();
        assert!(known.number >= head.number);
        let is_behind = known.number > head.number;
        if !is_behind {
            assert_eq!(known.hash, head.hash);
            for number in 0..=head.number {
                if let Some(FinalityMark { number, hash }) = self.tracker.window.block_at(number) {
                    assert!(has(&number, &hash));
                }
            }
        }
        let Some(last) = self.last else {
            return;
        };
        assert!(!is_behind && self.node.node.syncing == Ok(false));
        assert!(last <= head.number);
        for (number, hash) in &self.disk.0 {
            assert!(has(number, hash), "{number} was replaced, and on disk");
        }
    }

    /// Caches all blocks that the node has now.
    fn cache_all_node_blocks(&mut self) {
        if self.is_wrong {
            return;
        }
        for block in self.node.node.visible_blocks() {
            let is_final = self.last.is_some_and(|last| block.number <= last);
            let tier = match is_final {
                true => &mut self.disk.0,
                false => &mut self.memory,
            };
            tier.insert(block.number, block.hash);
        }
    }

    /// Polls a healthy node that does not change any more.
    fn poll_until_settled(&mut self) {
        let recorded = self.disk.1.identity.and_then(|identity| identity.chain_id);
        if recorded.is_some_and(|recorded| recorded != self.node.node.chain_id) {
            self.apply_event(&ModelEvent::Swap);
        }
        // no block is final while the head is below the mark
        let mark = self.disk.1.mark.map_or(0, |mark| mark.number);
        let missing = (mark + 100).saturating_sub(self.node.node.chain.len() as u64);
        self.node.extend(missing);
        (self.node.is_down, self.node.node.lag) = (false, 0);
        self.node.node.syncing = Ok(false);
        self.apply_event(&ModelEvent::Finalize(10));
        for _ in 0..5 {
            self.poll(INTERVAL, None);
        }
        assert_eq!(self.tracker.tracker_state(), State::Following);
        let head = self.node.node.chain.last().unwrap().number;
        let wanted = match self.finality {
            FinalizedBlockRule::Tag => self.node.finalized as u64,
            FinalizedBlockRule::Depth(depth) => head - depth,
        };
        assert_eq!(self.last, Some(wanted));
        self.assert_cache_matches_chain();
        let head = self.node.node.chain.last().unwrap();
        assert!(self.chain.verify_block(head.number, &head.hash).is_some());
    }
}

fn any_poll_wait() -> impl Strategy<Value = u16> {
    prop_oneof![5 => 50..1_500u16, 1 => 1_500..20_000u16]
}

fn any_chain_change() -> impl Strategy<Value = ModelEvent> {
    prop_oneof![
        8 => (1..6u8).prop_map(ModelEvent::Extend),
        1 => (60..200u8).prop_map(ModelEvent::Extend),
        6 => (1..6u8, 0..8u8).prop_map(|(depth, length)| ModelEvent::Reorg(depth, length)),
        1 => (1..120u8, 0..200u8).prop_map(|(depth, length)| ModelEvent::Reorg(depth, length)),
        2 => (1..8u8).prop_map(ModelEvent::Rollback),
        1 => (1..100u8).prop_map(ModelEvent::Rollback),
        4 => (0..12u8).prop_map(ModelEvent::Finalize),
        1 => (0..12u8).prop_map(ModelEvent::Unfinalize),
        2 => (0..4u8).prop_map(ModelEvent::Lag),
        2 => Just(ModelEvent::Lag(0)),
        1 => any::<bool>().prop_map(ModelEvent::Syncing),
        1 => any::<bool>().prop_map(ModelEvent::Down),
        2 => Just(ModelEvent::Down(false)),
        1 => Just(ModelEvent::Swap),
        1 => Just(ModelEvent::Remember),
        2 => Just(ModelEvent::Return),
        1 => Just(ModelEvent::Restart),
        1 => Just(ModelEvent::Crash),
        1 => Just(ModelEvent::Flush),
    ]
}

fn any_event() -> impl Strategy<Value = ModelEvent> {
    let during = (
        any_poll_wait(),
        any_chain_change().prop_filter("no follower", is_node_chain_change),
    );
    prop_oneof![
        6 => any_chain_change(),
        8 => any_poll_wait().prop_map(ModelEvent::Poll),
        1 => during.prop_map(|(wait, event)| ModelEvent::PollDuring(wait, Box::new(event))),
    ]
}

/// Whether the event changes the chain and not the tracker.
fn is_node_chain_change(event: &ModelEvent) -> bool {
    !matches!(
        event,
        ModelEvent::Restart | ModelEvent::Crash | ModelEvent::Flush
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: times(300, 1_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cache_has_only_blocks_of_the_node_after_each_poll(
        depth in proptest::option::of(1..40u64),
        events in proptest::collection::vec(any_event(), 1..80),
    ) {
        let mut world = TrackerUnderTest::new(depth.map_or(FinalizedBlockRule::Tag, FinalizedBlockRule::Depth));
        for event in &events {
            world.apply_event(event);
        }
        world.poll_until_settled();
    }
}
