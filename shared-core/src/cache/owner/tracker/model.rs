//! A chain that is obviously right, and a cache that does what it is told: at
//! each poll that saw what the node has, the cache has nothing else.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::tests::{Node, INTERVAL};
use super::{Answer, Ask, Block, Hash, Mark, Move, Record, State, Step, Tracker};
use crate::config::follow::Finality;

/// What happens to a chain, or between it and who follows it.
#[derive(Clone, Debug)]
enum Event {
    Extend(u8),
    /// The last of them are replaced by so many.
    Reorg(u8, u8),
    /// The last of them go.
    Rollback(u8),
    /// What is final lies so many below the head.
    Finalize(u8),
    /// What is final goes back by so many.
    Unfinalize(u8),
    /// It answers as if the last ones were not there.
    Lag(u8),
    Syncing(bool),
    Down(bool),
    /// Another chain is there, or the first one again.
    Swap,
    /// It remembers the branch that it has.
    Remember,
    /// It is on that branch again, and remembers the one that it had.
    Return,
    /// It is asked, so many milliseconds later.
    Poll(u16),
    /// The same, and something happens between two of the answers.
    PollDuring(u16, Box<Event>),
    /// The follower is another one, which knows what was recorded.
    Restart,
    /// The same, and what was not lasting is as it once was.
    Crash,
    /// The state that a crash would leave is this one.
    Flush,
}

/// A node whose chain changes.
struct Peer {
    node: Node,
    remembered: Vec<Block>,
    finalized: usize,
    is_down: bool,
    /// The last that it has begun.
    branch: u8,
}

impl Peer {
    fn new(id: u8) -> Self {
        let node = Node::of(id.into(), id * 100 - 99, 20);
        Self {
            remembered: node.chain.clone(),
            node,
            finalized: 0,
            is_down: false,
            branch: id * 100 - 99,
        }
    }

    fn cut(&mut self, count: usize) {
        let left = self.node.chain.len().saturating_sub(count).max(1);
        self.node.cut(left as u64 - 1);
        self.finalized = self.finalized.min(left - 1);
        self.branch += 1;
    }

    fn extend(&mut self, count: u64) {
        self.node.extend(self.branch, count);
    }

    fn answer(&mut self, ask: Ask) -> Answer {
        if ask == Ask::Finalized {
            let view = self.node.view();
            return Answer::Block(view.get(self.finalized.min(view.len() - 1)).copied());
        }
        self.node.answer(ask)
    }
}

/// Entries: one of each block.
type Entries = BTreeMap<u64, Hash>;

struct World {
    finality: Finality,
    node: Peer,
    other: Peer,
    tracker: Tracker,
    now: u64,
    /// What is not final.
    memory: Entries,
    /// What is, and the record.
    disk: (Entries, Record),
    /// What a crash leaves of it.
    lasting: (Entries, Record),
    last: Option<u64>,
    is_wrong: bool,
}

impl World {
    fn new(finality: Finality) -> Self {
        Self {
            finality,
            node: Peer::new(1),
            other: Peer::new(2),
            tracker: Tracker::new(finality, INTERVAL, Record::default(), 0),
            now: 0,
            memory: Entries::new(),
            disk: Default::default(),
            lasting: Default::default(),
            last: None,
            is_wrong: false,
        }
    }

    fn happens(&mut self, event: &Event) {
        let node = &mut self.node;
        match event {
            Event::Extend(count) => node.extend((*count).into()),
            Event::Reorg(depth, length) => {
                node.cut(*depth as usize);
                node.extend((*length).into());
            }
            Event::Rollback(depth) => node.cut(*depth as usize),
            Event::Finalize(depth) => {
                let number = node.node.chain.len().saturating_sub(1 + *depth as usize);
                node.finalized = node.finalized.max(number);
            }
            Event::Unfinalize(by) => node.finalized = node.finalized.saturating_sub(*by as usize),
            Event::Lag(by) => node.node.lag = *by as usize,
            Event::Syncing(is_syncing) => node.node.syncing = Ok(*is_syncing),
            Event::Down(is_down) => node.is_down = *is_down,
            Event::Remember => node.remembered.clone_from(&node.node.chain),
            Event::Return => {
                std::mem::swap(&mut node.node.chain, &mut node.remembered);
                node.finalized = node.finalized.min(node.node.chain.len() - 1);
                node.branch += 1;
            }
            Event::Swap => std::mem::swap(&mut self.node, &mut self.other),
            Event::Poll(wait) => self.poll(u64::from(*wait), None),
            Event::PollDuring(wait, event) => self.poll(u64::from(*wait), Some(event)),
            Event::Flush => self.lasting = self.disk.clone(),
            Event::Restart => self.restart(),
            Event::Crash => {
                self.disk = self.lasting.clone();
                self.restart();
            }
        }
    }

    fn restart(&mut self) {
        self.tracker = Tracker::new(self.finality, INTERVAL, self.disk.1, self.now);
        (self.last, self.is_wrong) = (None, false);
    }

    fn poll(&mut self, wait: u64, mut during: Option<&Event>) {
        self.now += wait;
        self.tracker.begin(self.now);
        let is_calm = during.is_none();
        let mut asked = 0;
        loop {
            let asks = self.tracker.asks();
            if asks.is_empty() {
                break;
            }
            asked += asks.len();
            assert!(asked < 200);
            if self.node.is_down {
                self.tracker.fail("down", self.now);
                break;
            }
            for ask in asks {
                let answer = self.node.answer(ask);
                self.tracker.answer(ask, answer);
                if ask != Ask::Latest {
                    if let Some(event) = during.take() {
                        self.happens(event);
                    }
                }
            }
        }
        self.obey();
        if is_calm && !self.node.is_down && self.tracker.last_error().is_none() {
            self.check();
            self.fill();
        }
    }

    fn obey(&mut self) {
        while let Some(step) = self.tracker.next_step() {
            let told = match step {
                Step::Move(told) => told,
                Step::KeepIdentity(identity) => {
                    self.disk.1 = Record {
                        identity: Some(identity),
                        mark: None,
                    };
                    self.lasting = self.disk.clone();
                    continue;
                }
                Step::KeepMark(mark) => {
                    self.disk.1.mark = mark;
                    continue;
                }
                Step::Say { .. } => continue,
            };
            assert!(!self.is_wrong || told == Move::Wrong(false), "{told:?}");
            match told {
                Move::Head(number) => assert_eq!(self.tracker.head().unwrap().number, number),
                Move::Reorg { from } => drop(self.memory.split_off(&from)),
                Move::Final(number) => self.last = number,
                Move::Broken { from } => {
                    assert_eq!(self.last, None);
                    drop(self.memory.split_off(&from));
                    drop(self.disk.0.split_off(&from));
                    self.lasting = self.disk.clone();
                }
                Move::Known(_) => unreachable!("it is told by whoever records"),
                Move::Wrong(is_wrong) => self.is_wrong = is_wrong,
            }
        }
    }

    /// The poll saw what the node has.
    fn check(&self) {
        let view = self.node.node.view();
        let head = view.last().unwrap();
        let recorded = self.disk.1.identity.unwrap();
        assert_eq!(
            self.is_wrong,
            recorded.chain_id != Some(self.node.node.chain_id)
        );
        assert_eq!(self.is_wrong, self.tracker.state() == State::WrongChain);
        if self.is_wrong {
            assert_eq!(self.last, None);
            return;
        }
        let has = |number: &u64, hash: &Hash| {
            view.get(*number as usize)
                .is_some_and(|block| block.hash == *hash)
        };
        for (number, hash) in &self.memory {
            assert!(has(number, hash), "{number} was replaced");
        }
        let known = self.tracker.head().unwrap();
        assert!(known.number >= head.number);
        let is_behind = known.number > head.number;
        if !is_behind {
            assert_eq!(known.hash, head.hash);
            for number in 0..=head.number {
                if let Some(Mark { number, hash }) = self.tracker.window.at(number) {
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

    /// Everything that the node has now is cached.
    fn fill(&mut self) {
        if self.is_wrong {
            return;
        }
        for block in self.node.node.view() {
            let is_final = self.last.is_some_and(|last| block.number <= last);
            let tier = match is_final {
                true => &mut self.disk.0,
                false => &mut self.memory,
            };
            tier.insert(block.number, block.hash);
        }
    }

    /// Nothing happens any more, for long.
    fn settle(&mut self) {
        let recorded = self.disk.1.identity.and_then(|identity| identity.chain_id);
        if recorded.is_some_and(|recorded| recorded != self.node.node.chain_id) {
            self.happens(&Event::Swap);
        }
        // behind what was once final nothing is final
        let mark = self.disk.1.mark.map_or(0, |mark| mark.number);
        let missing = (mark + 100).saturating_sub(self.node.node.chain.len() as u64);
        self.node.extend(missing);
        (self.node.is_down, self.node.node.lag) = (false, 0);
        self.node.node.syncing = Ok(false);
        self.happens(&Event::Finalize(10));
        for _ in 0..5 {
            self.poll(INTERVAL, None);
        }
        assert_eq!(self.tracker.state(), State::Following);
        let head = self.node.node.chain.last().unwrap().number;
        let wanted = match self.finality {
            Finality::Tag => self.node.finalized as u64,
            Finality::Depth(depth) => head - depth,
        };
        assert_eq!(self.last, Some(wanted));
        self.check();
    }
}

fn wait() -> impl Strategy<Value = u16> {
    prop_oneof![5 => 50..1_500u16, 1 => 1_500..20_000u16]
}

fn change() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1..6u8).prop_map(Event::Extend),
        1 => (60..200u8).prop_map(Event::Extend),
        6 => (1..6u8, 0..8u8).prop_map(|(depth, length)| Event::Reorg(depth, length)),
        1 => (1..120u8, 0..200u8).prop_map(|(depth, length)| Event::Reorg(depth, length)),
        2 => (1..8u8).prop_map(Event::Rollback),
        1 => (1..100u8).prop_map(Event::Rollback),
        4 => (0..12u8).prop_map(Event::Finalize),
        1 => (0..12u8).prop_map(Event::Unfinalize),
        2 => (0..4u8).prop_map(Event::Lag),
        2 => Just(Event::Lag(0)),
        1 => any::<bool>().prop_map(Event::Syncing),
        1 => any::<bool>().prop_map(Event::Down),
        2 => Just(Event::Down(false)),
        1 => Just(Event::Swap),
        1 => Just(Event::Remember),
        2 => Just(Event::Return),
        1 => Just(Event::Restart),
        1 => Just(Event::Crash),
        1 => Just(Event::Flush),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let during = (wait(), change().prop_filter("no follower", is_of_the_chain));
    prop_oneof![
        6 => change(),
        8 => wait().prop_map(Event::Poll),
        1 => during.prop_map(|(wait, event)| Event::PollDuring(wait, Box::new(event))),
    ]
}

/// It happens to the chain, not to who follows it.
fn is_of_the_chain(event: &Event) -> bool {
    !matches!(event, Event::Restart | Event::Crash | Event::Flush)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_cache_has_what_the_node_has(
        depth in proptest::option::of(1..40u64),
        events in proptest::collection::vec(event(), 1..80),
    ) {
        let mut world = World::new(depth.map_or(Finality::Tag, Finality::Depth));
        for event in &events {
            world.happens(event);
        }
        world.settle();
    }
}
