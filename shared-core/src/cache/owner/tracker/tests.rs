//! A script a rule: what the node has, and the moves that come of it.

use super::{Answer, Ask, Block, Hash, Identity, Mark, Move, Record, State, Step, Tracker};
use crate::config::head::Finality;

/// A node: one chain, and what it says of it.
#[derive(Clone)]
struct Node {
    chain: Vec<Block>,
    orphans: Vec<Block>,
    finalized: Result<Option<Mark>, String>,
    syncing: Result<bool, String>,
    chain_id: u64,
    asked: Vec<Ask>,
}

fn hash(branch: u8, number: u64) -> Hash {
    let mut hash = [branch; 32];
    hash[..8].copy_from_slice(&number.to_be_bytes());
    hash
}

impl Node {
    fn new(length: u64) -> Self {
        let mut node = Self {
            chain: Vec::new(),
            orphans: Vec::new(),
            finalized: Ok(None),
            syncing: Ok(false),
            chain_id: 1,
            asked: Vec::new(),
        };
        node.extend(0, length);
        node
    }

    fn extend(&mut self, branch: u8, count: u64) {
        for _ in 0..count {
            let number = self.chain.last().map_or(0, |last| last.number + 1);
            self.chain.push(Block {
                number,
                hash: hash(branch, number),
                parent: self.chain.last().map_or([0; 32], |last| last.hash),
            });
        }
    }

    fn cut(&mut self, head: u64) {
        let at = self.chain.partition_point(|block| block.number <= head);
        self.orphans.extend(self.chain.drain(at..));
    }

    fn finalize(&mut self, number: u64) {
        let block = self.at(number).unwrap();
        self.finalized = Ok(Some(Mark {
            number,
            hash: block.hash,
        }));
    }

    fn at(&self, number: u64) -> Option<Block> {
        self.chain.iter().find(|b| b.number == number).copied()
    }

    fn answer(&mut self, ask: Ask) -> Answer {
        self.asked.push(ask);
        match ask {
            Ask::Latest => Answer::Block(self.chain.last().copied()),
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
            Ask::ByHash(hash) => {
                let mut all = self.chain.iter().chain(&self.orphans);
                Answer::Block(all.find(|block| block.hash == hash).copied())
            }
            Ask::ByNumber(number) | Ask::Again(number) => Answer::Block(self.at(number)),
            Ask::ChainId => Answer::ChainId(Some(self.chain_id)),
            Ask::Genesis => Answer::Genesis(self.chain[0].hash),
        }
    }
}

/// A tracker of a node, and the time.
struct Script {
    tracker: Tracker,
    node: Node,
    now: u64,
    said: Vec<String>,
    kept: Record,
    /// What the node says to these whatever it has.
    lies: Vec<(Ask, Answer)>,
}

const INTERVAL: u64 = 1_000;

impl Script {
    fn new(node: Node, finality: Finality) -> Self {
        Self::with(node, finality, Record::default())
    }

    fn with(node: Node, finality: Finality, record: Record) -> Self {
        Self {
            tracker: Tracker::new(finality, INTERVAL, record, 0),
            node,
            now: 0,
            said: Vec::new(),
            kept: record,
            lies: Vec::new(),
        }
    }

    /// One that has been followed up to block 100, of which 90 are final.
    fn followed() -> Self {
        let mut node = Node::new(101);
        node.finalize(90);
        let mut script = Self::new(node, Finality::Tag);
        let moves = script.poll();
        assert_eq!(
            moves,
            [
                Move::Reorg { from: 0 },
                Move::Head(100),
                Move::Final(Some(90))
            ]
        );
        script
    }

    fn drain(&mut self) -> Vec<Move> {
        let mut moves = Vec::new();
        while let Some(step) = self.tracker.next_step() {
            match step {
                Step::Move(told) => {
                    if let Move::Final(Some(number)) = told {
                        // recorded before it is told
                        assert_eq!(self.kept.mark.unwrap().number, number);
                    }
                    moves.push(told);
                }
                Step::KeepIdentity(identity) => {
                    self.kept = Record {
                        identity: Some(identity),
                        mark: None,
                    };
                }
                Step::KeepMark(mark) => self.kept.mark = mark,
                Step::Say(line) => self.said.push(line.text),
            }
        }
        moves
    }

    /// An interval passes, and the node is asked.
    fn poll(&mut self) -> Vec<Move> {
        self.poll_after(INTERVAL)
    }

    fn poll_after(&mut self, wait: u64) -> Vec<Move> {
        self.now += wait;
        self.tracker.begin(self.now);
        loop {
            let asks = self.tracker.asks();
            if asks.is_empty() {
                return self.drain();
            }
            for ask in asks {
                let lie = self.lies.iter().find(|(about, _)| *about == ask);
                let answer = match lie {
                    Some((_, lie)) => lie.clone(),
                    None => self.node.answer(ask),
                };
                self.tracker.answer(ask, answer);
            }
        }
    }

    fn fail(&mut self) -> Vec<Move> {
        self.now += INTERVAL;
        self.tracker.begin(self.now);
        self.tracker.asks();
        self.tracker.fail("connection refused", self.now);
        self.drain()
    }
}

#[test]
fn a_head_that_grows_is_a_head() {
    let mut script = Script::followed();
    assert_eq!(script.poll(), []);
    for (more, head) in [(1, 101), (2, 103), (40, 143), (500, 643), (2_000, 2_643)] {
        script.node.extend(0, more);
        assert_eq!(script.poll(), [Move::Head(head)]);
    }
    script.node.finalize(640);
    assert_eq!(script.poll(), [Move::Final(Some(640))]);
    assert_eq!(script.said, ["follows the chain: head 100, final 90"]);
    assert_eq!(script.tracker.reorgs(), 0);
}

#[test]
fn a_quiet_poll_asks_three_questions() {
    let mut script = Script::followed();
    script.node.asked.clear();
    script.poll();
    assert_eq!(
        script.node.asked,
        [Ask::Latest, Ask::Syncing, Ask::Finalized]
    );
}

#[test]
fn blocks_that_were_replaced_are_told_from_the_lowest_on() {
    // how deep, how long the new branch is
    for (depth, length) in [(1, 1), (1, 2), (3, 3), (5, 1), (5, 9), (9, 100), (8, 2)] {
        let mut script = Script::followed();
        // the window reaches down far enough
        for number in 101..=110 {
            script.node.extend(0, 1);
            assert_eq!(script.poll(), [Move::Head(number)]);
        }
        script.node.cut(110 - depth);
        script.node.extend(1, length);
        let (from, head) = (111 - depth, 110 - depth + length);
        assert_eq!(
            script.poll(),
            [Move::Reorg { from }, Move::Head(head)],
            "{depth} {length}"
        );
        assert_eq!(script.tracker.reorgs(), 1);
        assert_eq!(script.poll(), []);
    }
}

#[test]
fn a_branch_below_all_that_is_known_spares_what_is_final() {
    let mut script = Script::followed();
    script.node.cut(95);
    script.node.extend(1, 10);
    assert_eq!(script.poll(), [Move::Reorg { from: 91 }, Move::Head(105)]);
    assert_eq!(script.tracker.last_final(), Some(90));
}

#[test]
fn a_branch_far_away_is_found_by_number() {
    let mut script = Script::followed();
    for _ in 0..50 {
        script.node.extend(0, 10);
        script.poll();
    }
    script.node.asked.clear();
    script.node.cut(255);
    script.node.extend(1, 1_000);
    assert_eq!(
        script.poll(),
        [Move::Reorg { from: 256 }, Move::Head(1_255)]
    );
    assert!(script.node.asked.len() < 20, "{:?}", script.node.asked);
}

#[test]
fn what_was_final_and_is_replaced_is_broken() {
    let mut script = Script::followed();
    for _ in 0..20 {
        script.node.extend(0, 1);
        script.poll();
    }
    script.node.finalize(115);
    assert_eq!(script.poll(), [Move::Final(Some(115))]);
    script.node.cut(109);
    script.node.extend(1, 20);
    script.node.finalize(113);
    assert_eq!(
        script.poll(),
        [
            Move::Final(None),
            Move::Broken { from: 110 },
            Move::Reorg { from: 110 },
            Move::Head(129),
            Move::Final(Some(113)),
        ]
    );
    assert!(script.said.last().unwrap().contains("block 115 was final"));
}

#[test]
fn what_was_final_before_a_restart_is_checked() {
    let script = Script::followed();
    let (mut node, record) = (script.node.clone(), script.kept);
    assert_eq!(record.mark.unwrap().number, 90);
    node.extend(0, 100);
    node.finalize(150);
    let mut again = Script::with(node.clone(), Finality::Tag, record);
    assert_eq!(
        again.poll(),
        [
            Move::Reorg { from: 0 },
            Move::Head(200),
            Move::Final(Some(150))
        ]
    );
    node.cut(80);
    node.extend(1, 200);
    node.finalize(160);
    let mut again = Script::with(node, Finality::Tag, record);
    assert_eq!(
        again.poll(),
        [
            Move::Broken { from: 0 },
            Move::Reorg { from: 0 },
            Move::Head(280),
            Move::Final(Some(160))
        ]
    );
}

#[test]
fn a_node_that_is_behind_loses_only_finality() {
    let mut script = Script::followed();
    script.node.extend(0, 1);
    script.poll();
    let full = script.node.clone();
    script.node.cut(100);
    for _ in 0..3 {
        assert_eq!(
            script.poll(),
            [Move::Final(None), Move::Reorg { from: 101 }]
        );
        let behind = std::mem::replace(&mut script.node, full.clone());
        assert_eq!(script.poll(), [Move::Head(101), Move::Final(Some(90))]);
        script.node = behind;
    }
    // once is nothing to talk about
    assert_eq!(script.said.len(), 1);
    assert_eq!(script.tracker.reorgs(), 0);
}

#[test]
fn a_node_that_is_behind_may_be_on_another_branch_then() {
    let mut script = Script::followed();
    for _ in 0..5 {
        script.node.extend(0, 1);
        script.poll();
    }
    script.node.cut(102);
    script.poll();
    script.node.extend(1, 1);
    assert_eq!(
        script.poll(),
        [
            Move::Reorg { from: 103 },
            Move::Head(103),
            Move::Final(Some(90))
        ]
    );
    assert_eq!(script.tracker.reorgs(), 1);
}

#[test]
fn a_short_branch_below_what_is_final_breaks_it_at_once() {
    let mut script = Script::followed();
    for _ in 0..20 {
        script.node.extend(0, 1);
        script.poll();
    }
    script.node.finalize(118);
    script.poll();
    script.node.cut(110);
    script.node.extend(1, 3);
    script.node.finalize(112);
    assert_eq!(
        script.poll(),
        [
            Move::Final(None),
            Move::Broken { from: 111 },
            Move::Reorg { from: 111 },
            Move::Head(113),
            Move::Final(Some(112)),
        ]
    );
}

#[test]
fn a_head_that_stays_back_is_the_head() {
    let mut script = Script::followed();
    script.node.extend(0, 2);
    script.poll();
    script.node.extend(0, 3);
    script.poll();
    script.node.cut(102);
    assert_eq!(
        script.poll(),
        [Move::Final(None), Move::Reorg { from: 103 }]
    );
    assert_eq!(script.poll(), []);
    assert_eq!(script.tracker.state(), State::Lagging);
    assert_eq!(script.poll(), [Move::Head(102), Move::Final(Some(90))]);
    assert_eq!(script.tracker.state(), State::Following);
    // other blocks come
    script.node.extend(1, 1);
    assert_eq!(script.poll(), [Move::Head(103)]);
}

#[test]
fn a_chain_that_is_cut_below_what_was_final_is_found_out_when_it_is_there_again() {
    let mut script = Script::followed();
    for _ in 0..20 {
        script.node.extend(0, 1);
        script.poll();
    }
    script.node.finalize(118);
    script.poll();
    script.node.cut(112);
    script.node.finalize(110);
    assert_eq!(
        script.poll(),
        [Move::Final(None), Move::Reorg { from: 113 }]
    );
    script.poll();
    assert_eq!(script.poll(), [Move::Head(112)]);
    // nothing is final while the recorded block is missing
    script.node.extend(1, 4);
    script.node.finalize(113);
    assert_eq!(script.poll(), [Move::Head(116)]);
    script.node.extend(1, 4);
    assert_eq!(
        script.poll(),
        [
            Move::Broken { from: 113 },
            Move::Reorg { from: 113 },
            Move::Head(120),
            Move::Final(Some(113)),
        ]
    );
}

#[test]
fn nothing_is_final_that_is_not_known_to_be() {
    type Change = fn(&mut Node);
    let changes: [(Change, State); 5] = [
        (|node| node.syncing = Ok(true), State::Syncing),
        (
            |node| node.syncing = Err("no such method".into()),
            State::Following,
        ),
        (
            |node| node.finalized = Err("unknown block".into()),
            State::Following,
        ),
        (|node| node.finalized = Ok(None), State::Following),
        (|node| node.finalize(80), State::Following),
    ];
    for (change, state) in changes {
        let mut script = Script::followed();
        let good = script.node.clone();
        change(&mut script.node);
        assert_eq!(script.poll(), [Move::Final(None)]);
        assert_eq!(script.tracker.state(), state);
        assert_eq!(script.poll(), []);
        script.node = good;
        assert_eq!(script.poll(), [Move::Final(Some(90))]);
    }
}

#[test]
fn a_silent_node_is_believed_for_a_while() {
    let mut script = Script::followed();
    for _ in 0..5 {
        assert_eq!(script.fail(), []);
    }
    assert_eq!(script.fail(), [Move::Final(None)]);
    assert_eq!(script.tracker.state(), State::Unreachable);
    assert_eq!(script.fail(), []);
    assert_eq!(script.said.len(), 2);
    assert!(script.said[1].contains("connection refused"));
    assert_eq!(script.tracker.last_error(), Some("connection refused"));
    script.node.asked.clear();
    assert_eq!(script.poll(), [Move::Final(Some(90))]);
    // it may be another one
    assert!(script.node.asked.contains(&Ask::Genesis));
    assert_eq!(script.tracker.last_error(), None);
    assert_eq!(script.said.len(), 3);
}

#[test]
fn depth_makes_final_what_lies_that_deep() {
    let mut script = Script::new(Node::new(101), Finality::Depth(12));
    let moves = script.poll();
    assert_eq!(moves.last(), Some(&Move::Final(Some(88))));
    for head in 101..=130 {
        script.node.extend(0, 1);
        let told = [Move::Head(head), Move::Final(Some(head - 12))];
        assert_eq!(script.poll(), told);
    }
    assert!(!script.node.asked.contains(&Ask::Finalized));
    // a shorter branch undoes nothing
    script.node.cut(125);
    script.node.extend(1, 3);
    assert_eq!(script.poll(), [Move::Reorg { from: 126 }, Move::Head(128)]);
    assert_eq!(script.tracker.last_final(), Some(118));
    // a deeper one does
    script.node.cut(115);
    script.node.extend(2, 20);
    assert_eq!(
        script.poll(),
        [
            Move::Final(None),
            Move::Broken { from: 116 },
            Move::Reorg { from: 116 },
            Move::Head(135),
            Move::Final(Some(123)),
        ]
    );
    let mut short = Script::new(Node::new(5), Finality::Depth(12));
    assert_eq!(short.poll(), [Move::Reorg { from: 0 }, Move::Head(4)]);
}

#[test]
fn another_chain_is_nothing_of_ours() {
    let mut script = Script::followed();
    let good = script.node.clone();
    let mut other = Node::new(0);
    other.extend(7, 150);
    other.chain_id = 5;
    other.finalize(120);
    script.node = other;
    assert_eq!(script.poll(), [Move::Final(None), Move::Wrong(true)]);
    assert_eq!(script.tracker.state(), State::WrongChain);
    for _ in 0..5 {
        script.node.extend(7, 1);
        assert_eq!(script.poll(), []);
    }
    assert_eq!(script.said.len(), 2);
    assert!(script.said[1].contains("chain 5") && script.said[1].contains("chain 1"));
    let other = std::mem::replace(&mut script.node, good);
    assert_eq!(script.poll(), [Move::Wrong(false), Move::Final(Some(90))]);
    // what was purged may be another chain's
    script.node = other;
    script.poll();
    script.tracker.forget(script.now);
    script.kept = Record::default();
    assert_eq!(script.drain(), [Move::Wrong(false)]);
    assert_eq!(
        script.poll(),
        [
            Move::Reorg { from: 0 },
            Move::Head(154),
            Move::Final(Some(120))
        ]
    );
    assert_eq!(script.kept.identity.unwrap().chain_id, Some(5));
}

#[test]
fn the_identity_is_looked_at_now_and_then() {
    let mut script = Script::followed();
    let mut looked = 0;
    for _ in 0..180 {
        script.node.asked.clear();
        script.poll();
        looked += u32::from(script.node.asked.contains(&Ask::ChainId));
    }
    assert_eq!(looked, 3);
    let one = Identity {
        chain_id: None,
        genesis: [1; 32],
    };
    let other = Identity {
        chain_id: Some(3),
        ..one
    };
    assert!(one.agrees(&other) && other.agrees(&one));
    let text = other.to_string();
    assert!(text.starts_with("chain 3, genesis 0x0101"), "{text}");
}

#[test]
fn skipped_slots_are_no_gaps() {
    let mut node = Node::new(90);
    let skip = |node: &mut Node, branch: u8, number: u64| {
        node.chain.push(Block {
            number,
            hash: hash(branch, number),
            parent: node.chain.last().unwrap().hash,
        });
    };
    skip(&mut node, 0, 95);
    let mut script = Script::new(node, Finality::Tag);
    script.poll();
    for number in [97, 98, 102] {
        skip(&mut script.node, 0, number);
        assert_eq!(script.poll(), [Move::Head(number)]);
    }
    // a block in a slot that was empty
    script.node.cut(98);
    skip(&mut script.node, 1, 100);
    assert_eq!(script.poll(), [Move::Reorg { from: 99 }, Move::Head(100)]);
}

#[test]
fn answers_that_do_not_fit_are_not_believed_at_once() {
    let mut script = Script::followed();
    for _ in 0..20 {
        script.node.extend(0, 1);
        script.poll();
    }
    // its head hangs on a block that it does not know
    let head = Block {
        number: 125,
        hash: [9; 32],
        parent: [8; 32],
    };
    script.node.extend(0, 4);
    script.lies = vec![
        (Ask::Latest, Answer::Block(Some(head))),
        // and is not there any more
        (Ask::Again(125), Answer::Block(None)),
    ];
    for _ in 0..3 {
        assert_eq!(script.poll(), []);
        let error = script.tracker.last_error().unwrap();
        assert!(error.contains("changed while it was asked"), "{error}");
    }
    assert_eq!(script.poll(), [Move::Reorg { from: 91 }, Move::Head(125)]);
}

#[test]
fn a_block_with_another_hash_than_was_asked_for_is_none() {
    let mut script = Script::followed();
    for _ in 0..20 {
        script.node.extend(0, 1);
        script.poll();
    }
    script.node.cut(115);
    script.node.extend(1, 10);
    let other = script.node.at(100).unwrap();
    let asked = Ask::ByHash(hash(1, 124));
    script.lies = vec![(asked, Answer::Block(Some(other)))];
    // it is found by number
    assert_eq!(script.poll(), [Move::Reorg { from: 116 }, Move::Head(125)]);
}

#[test]
fn what_is_final_is_of_the_chain_of_the_head() {
    let mut script = Script::followed();
    for _ in 0..20 {
        script.node.extend(0, 1);
        script.poll();
    }
    script.node.finalized = Ok(Some(Mark {
        number: 110,
        hash: hash(7, 110),
    }));
    assert_eq!(script.poll(), [Move::Final(None)]);
    script.node.finalize(110);
    assert_eq!(script.poll(), [Move::Final(Some(110))]);
    // one that is ahead of the head is waited for
    script.node.finalized = Ok(Some(Mark {
        number: 130,
        hash: hash(0, 130),
    }));
    assert_eq!(script.poll(), []);
}

#[test]
fn a_recorded_block_that_stays_away_was_replaced() {
    let script = Script::followed();
    let (mut node, record) = (script.node.clone(), script.kept);
    node.extend(0, 100);
    let mut again = Script::with(node, Finality::Tag, record);
    again.lies = vec![(Ask::ByNumber(90), Answer::Block(None))];
    assert_eq!(again.poll(), [Move::Reorg { from: 0 }, Move::Head(200)]);
    assert_eq!(again.poll(), []);
    assert_eq!(again.poll(), []);
    assert_eq!(
        again.poll()[..2],
        [Move::Broken { from: 0 }, Move::Reorg { from: 0 }]
    );
    // one that can't be had was not
    let mut again = Script::with(again.node, Finality::Tag, record);
    let error = Answer::Failed("pruned".into());
    again.lies = vec![(Ask::ByNumber(90), error)];
    for round in 0..10 {
        assert_eq!(again.poll().len(), if round == 0 { 2 } else { 0 });
        assert_eq!(
            again.tracker.last_error(),
            Some("block 90, which was final, can't be checked: pruned")
        );
    }
}

#[test]
fn a_head_stays_back_for_three_polls_and_two_seconds() {
    for (wait, polls) in [(100, 21), (500, 5), (1_000, 3), (10_000, 3)] {
        let mut script = Script::followed();
        script.node.extend(0, 1);
        script.poll();
        script.node.cut(100);
        let mut count = 1;
        script.poll_after(wait);
        while script.tracker.head().unwrap().number > 100 {
            script.poll_after(wait);
            count += 1;
        }
        assert_eq!(count, polls, "{wait}");
    }
}
