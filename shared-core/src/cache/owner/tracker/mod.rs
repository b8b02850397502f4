//! What becomes of a chain, told from what its node answers.
//!
//! Sans-I/O: no socket, no clock. Once in a while the host
//! [begins](Tracker::begin) a poll, puts the questions that
//! [`asks`](Tracker::asks) gives to the node, [tells](Tracker::answer) what it
//! answered, and goes on until there are none; then it does, in their order,
//! the [steps](Tracker::next_step) that came of it. A poll changes nothing until
//! all that it needs is known: it is judged anew with each answer, from those
//! that have come so far.
//!
//! ```text
//!            the window: blocks that hang together, the newest last
//!   final ··· ┌────┬────┬────┬────┐
//!             │ 97 │ 98 │ 99 │100 │ head
//!             └────┴────┴──┬─┴────┘
//!                          └─ 100' ── 101'   what the node says now: walked
//!                                            back by parents to the ancestor
//! ```
//!
//! | module       | concern                                              |
//! |--------------|------------------------------------------------------|
//! | `terms`      | what is asked, answered and told                     |
//! | `window`     | the blocks that are known                            |
//! | `poll`       | what was asked, and answered                         |
//! | `place`      | where the node's head hangs on the window            |
//! | `finality`   | what is final, and whether it still is what it was   |
//! | `judge`      | what comes of a poll                                 |
//!
//! What it can't see: a chain that goes from one branch to another and back
//! between two polls. And it believes its node: one that answers from several
//! chains at a time looks like one whose chain is being replaced all the time.

mod finality;
mod judge;
mod place;
mod poll;
mod terms;
mod window;

use std::collections::VecDeque;

use poll::{Halt, Poll};
pub use terms::{Answer, Ask, Block, Hash, Identity, Mark, Record, State, Step};
use window::Window;

pub use crate::cache::chain::Move;
use crate::config::follow::Finality;

/// How long a node may be silent until nothing is final any more: so many
/// intervals, and so many milliseconds.
const SILENT_INTERVALS: u64 = 3;
const SILENT: u64 = 5_000;

/// How often it is asked which chain it has. Milliseconds.
const IDENTIFY: u64 = 60_000;

/// The head went back, on the same chain as far as can be told: a node that is
/// behind, or one whose chain was cut.
#[derive(Clone, Copy, Debug)]
struct Behind {
    /// Since when. Milliseconds.
    since: u64,
    /// In how many polls in a row.
    polls: u32,
    /// The first block that it did not have in the last of them.
    from: u64,
    /// Whether it is the same chain could not be told.
    is_unknown: bool,
}

/// Follows a chain.
#[derive(Debug, Default)]
pub struct Tracker {
    finality: Finality,
    /// Milliseconds.
    interval: u64,
    /// Of the poll that is under way, or of the last one. Milliseconds.
    now: u64,
    /// When a poll succeeded, or the start. Milliseconds.
    heard: u64,
    /// When the identity was right.
    identified: Option<u64>,
    poll: Option<Poll>,
    /// Polls in a row whose answers did not fit together.
    confused: u32,
    window: Window,
    behind: Option<Behind>,
    is_syncing: bool,
    is_wrong: bool,
    is_silent: bool,
    identity: Option<Identity>,
    mark: Option<Mark>,
    /// From here on blocks may be others than when the mark was made.
    doubt: Option<u64>,
    /// Polls in a row in which the node had no block with the mark's number.
    absent: u32,
    /// What was told last.
    told: Option<u64>,
    steps: VecDeque<Step>,
    state: State,
    reorgs: u64,
    /// How its node's chain is another one.
    wrong: Option<String>,
    /// When a reorganisation was logged last, and how many were not since. Milliseconds.
    logged: Option<u64>,
    not_logged: u64,
    error: Option<String>,
}

impl Tracker {
    /// Of a chain of which `record` is known, asked every `interval`
    /// milliseconds; at `now`, in milliseconds of any clock that is never put
    /// back.
    pub fn new(finality: Finality, interval: u64, record: Record, now: u64) -> Self {
        // a mark is of a chain
        let mark = record.mark.filter(|_| record.identity.is_some());
        Self {
            finality,
            interval,
            now,
            heard: now,
            identity: record.identity,
            mark,
            // while nobody looked
            doubt: mark.map(|_| 0),
            ..Self::default()
        }
    }

    /// A poll begins; one that is under way is given up.
    pub fn begin(&mut self, now: u64) {
        self.now = now;
        let mut asks = vec![Ask::Latest, Ask::Syncing];
        if self.finality == Finality::Tag {
            asks.push(Ask::Finalized);
        }
        let is_due = match self.identified {
            Some(identified) => now.saturating_sub(identified) >= IDENTIFY,
            None => true,
        };
        self.poll = Some(Poll::new(asks, is_due));
    }

    /// What to ask the node now, all at a time; nothing more: the poll is over.
    /// What was asked for before and not answered yet is not asked for again.
    pub fn asks(&mut self) -> Vec<Ask> {
        let Some(poll) = &mut self.poll else {
            return Vec::new();
        };
        if let Some(asks) = poll.first_asks() {
            return asks;
        }
        match self.judge() {
            Ok(()) => {
                self.poll = None;
                Vec::new()
            }
            Err(Halt::Asks(mut asks)) => {
                if let Some(poll) = &mut self.poll {
                    asks.retain(|ask| poll.note(*ask));
                }
                asks
            }
            Err(Halt::Failed(error)) => {
                self.fail(&error, self.now);
                Vec::new()
            }
            Err(Halt::Confused) => {
                self.confused += 1;
                self.fail("its chain changed while it was asked", self.now);
                Vec::new()
            }
        }
    }

    /// What the node said to a question.
    pub fn answer(&mut self, ask: Ask, answer: Answer) {
        if let Some(poll) = &mut self.poll {
            poll.answer(ask, answer);
        }
    }

    /// The poll has come to nothing.
    pub fn fail(&mut self, error: &str, now: u64) {
        self.poll = None;
        self.error = Some(error.to_owned());
        // whoever comes back may be another one
        self.identified = None;
        self.tick(now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: u64) {
        let limit = self.interval.saturating_mul(SILENT_INTERVALS).max(SILENT);
        if now.saturating_sub(self.heard) > limit && !self.is_silent {
            self.is_silent = true;
            self.tell_final(None);
            self.look();
        }
    }

    /// The namespace was purged: it may have another chain from now on.
    pub fn forget(&mut self, now: u64) {
        self.tell_final(None);
        if self.is_wrong {
            self.tell(Move::Wrong(false));
        }
        let new = Self::new(self.finality, self.interval, Record::default(), now);
        let new = Self {
            steps: std::mem::take(&mut self.steps),
            reorgs: self.reorgs,
            logged: self.logged,
            not_logged: self.not_logged,
            heard: self.heard,
            is_silent: self.is_silent,
            ..new
        };
        *self = new;
        self.look();
    }

    /// The next thing to do.
    pub fn next_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// The chain that the node has, if it was asked for it and has not failed since: it is
    /// the right one.
    pub fn identity(&self) -> Option<Identity> {
        self.identity.filter(|_| self.identified.is_some())
    }

    /// The blocks that are known, the newest first.
    pub fn blocks(&self) -> impl Iterator<Item = Mark> + '_ {
        self.window.newest_first()
    }

    /// The newest block that is known.
    pub fn head(&self) -> Option<Mark> {
        self.window.top()
    }

    /// The newest block that is final, as was told last.
    pub fn last_final(&self) -> Option<u64> {
        self.told
    }

    /// How it goes.
    pub fn state(&self) -> State {
        self.state
    }

    /// How often blocks were replaced.
    pub fn reorgs(&self) -> u64 {
        self.reorgs
    }

    /// What went wrong in the last poll.
    pub fn last_error(&self) -> Option<&str> {
        match &self.wrong {
            // what went wrong since is of another node, or of none
            Some(wrong) => Some(wrong),
            None => self.error.as_deref(),
        }
    }

    fn tell(&mut self, what: Move) {
        self.steps.push_back(Step::Move(what));
    }

    fn tell_final(&mut self, number: Option<u64>) {
        if self.told != number {
            self.told = number;
            self.tell(Move::Final(number));
        }
    }

    fn say(&mut self, is_error: bool, text: String) {
        self.steps.push_back(Step::Say { is_error, text });
    }

    /// Says how it goes, if that has changed.
    fn look(&mut self) {
        let state = if self.is_wrong {
            State::WrongChain
        } else if self.is_silent {
            State::Unreachable
        } else if self.window.top().is_none() {
            State::Starting
        } else if self.is_syncing {
            State::Syncing
        } else if self.behind.is_some_and(|behind| behind.polls > 1) {
            // once is what any balancer of loads does
            State::Lagging
        } else {
            State::Following
        };
        if state == self.state {
            return;
        }
        self.state = state;
        let head = self.window.top().map_or(0, |top| top.number);
        let text = match state {
            // it is said already
            State::WrongChain | State::Starting => return,
            State::Following => match self.told {
                Some(last) => format!("follows the chain: head {head}, final {last}"),
                None => format!("follows the chain: head {head}, none final yet"),
            },
            State::Syncing => "the node is syncing; finality unknown".into(),
            State::Lagging => format!("the node is behind {head}; finality unknown"),
            State::Unreachable => {
                let error = self.error.as_deref().unwrap_or("no response yet");
                format!("cannot follow the node: {error}; finality unknown")
            }
        };
        self.say(state == State::Unreachable, text);
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
