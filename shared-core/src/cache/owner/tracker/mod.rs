//! Tracking of a chain by the responses of its node.
//!
//! Sans-I/O: no socket, no clock. The host [begins](ChainTracker::begin_poll) a poll at intervals, sends
//! the queries that [`next_queries`](ChainTracker::next_queries) returns to the node,
//! [passes](ChainTracker::handle_query_result) the results back, and repeats this until there are no more
//! queries; then it carries out the resulting [steps](ChainTracker::take_next_tracker_step) in their order. A poll
//! changes nothing until all that it needs is known: it is evaluated again with each result, from
//! the results so far. Between the polls the host sends the queries of
//! [`next_backfill_query`](ChainTracker::next_backfill_query), which extend the window to older
//! blocks.
//!
//! ```text
//!            the window: blocks of one chain, the newest last
//!   final ··· ┌────┬────┬────┬────┐
//!             │ 97 │ 98 │ 99 │100 │ head
//!             └────┴────┴──┬─┴────┘
//!                          └─ 100' ── 101'   the node's present chain, walked
//!                                            back by parents to the ancestor
//! ```
//!
//! | module       | concern                                         |
//! |--------------|-------------------------------------------------|
//! | `types`      | queries, results and steps                      |
//! | `window`     | the known blocks                                |
//! | `poll`       | the queries and results of a poll               |
//! | `attachment` | the attachment of the node's head to the window |
//! | `finality`   | the final blocks, and the check of the mark     |
//! | `evaluate`   | the evaluation of a poll                        |
//! | `backfill`   | older blocks than the first poll's              |
//!
//! The tracker does not detect a chain that moves to another branch and back between two polls.
//! It trusts its node: a node that responds from several chains at a time looks like one whose
//! chain is replaced all the time.

mod attachment;
mod backfill;
mod backfill_progress;
mod evaluate;
mod finality;
mod poll;
mod types;
mod window;

use std::collections::VecDeque;

use backfill_progress::WindowBackfill;
use poll::{IncompleteNodePoll, NodePoll};
pub use types::{
    BlockHash, ChainIdentity, ChainRecord, FinalityMark, NodeBlock, NodeQuery, NodeResult, State,
    TrackerAction,
};
use window::BlockWindow;

pub use crate::cache::chain::ChainChange;
use crate::config::head_source::FinalizedBlockRule;

/// Time without a successful poll after which no block is final any more: the longer one of a
/// number of intervals and of milliseconds.
const FAILURE_INTERVALS: u64 = 3;
const FAILURE_MS: u64 = 5_000;

/// Interval between queries for the chain identity, in milliseconds.
const IDENTITY_INTERVAL_MS: u64 = 60_000;

/// Minimum and maximum block time that is published, in milliseconds. A chain with longer pauses has
/// no block time: it makes blocks on demand, or its timestamps are not seconds.
const MIN_BLOCK_TIME_MS: u64 = 100;
const MAX_BLOCK_TIME_MS: u64 = 60_000;

/// A head of the node that is lower than an earlier one, on the same chain as far as is known: the
/// node lags, or its chain was cut.
#[derive(Clone, Copy, Debug)]
struct LaggingHead {
    /// Time of the first poll with the lower head, in milliseconds.
    since: u64,
    /// Number of polls in a row with a lower head.
    polls: u32,
    /// The first block that the node lacked in the last of these polls.
    from: u64,
    /// Whether it is unknown if the chain is the same.
    is_unknown: bool,
}

/// The evaluation of the polls of one followed chain, without I/O: it finds new heads,
/// reorganisations and final blocks.
#[derive(Debug, Default)]
pub struct ChainTracker {
    finality: FinalizedBlockRule,
    /// Poll interval in milliseconds.
    interval: u64,
    /// Time of the present or the last poll, in milliseconds.
    now: u64,
    /// Time of the last successful poll, or of the start, in milliseconds.
    heard: u64,
    /// Time when the identity was last confirmed, in milliseconds.
    identified: Option<u64>,
    poll: Option<NodePoll>,
    /// Number of polls in a row with inconsistent results.
    confused: u32,
    window: BlockWindow,
    /// Duration of a slot in milliseconds, if the node's API reports it.
    slot_time: Option<u64>,
    backfill: WindowBackfill,
    behind: Option<LaggingHead>,
    is_syncing: bool,
    is_wrong: bool,
    is_silent: bool,
    confirmed_identity: Option<ChainIdentity>,
    mark: Option<FinalityMark>,
    /// The lowest block that may have been replaced since the mark was made.
    doubt: Option<u64>,
    /// Number of polls in a row in which the node had no block with the mark's number.
    absent: u32,
    /// Returns the newest final block as last published.
    published_final: Option<u64>,
    steps: VecDeque<TrackerAction>,
    tracker_state: State,
    reorg_count: u64,
    /// How the chain of the node differs from the recorded one.
    wrong: Option<String>,
    /// Time of the last log line about a reorganisation in milliseconds; and the number of
    /// reorganisations since.
    logged: Option<u64>,
    not_logged: u64,
    error: Option<String>,
}

impl ChainTracker {
    /// Creates a tracker of a chain with this record, polled every `interval` milliseconds. `now`
    /// is in milliseconds of any clock that is never set back.
    pub fn new(finality: FinalizedBlockRule, interval: u64, record: ChainRecord, now: u64) -> Self {
        // a mark belongs to a chain
        let mark = record.mark.filter(|_| record.identity.is_some());
        Self {
            finality,
            interval,
            now,
            heard: now,
            confirmed_identity: record.identity,
            mark,
            // any block may have been replaced while no tracker ran
            doubt: mark.map(|_| 0),
            ..Self::default()
        }
    }

    /// Begins a poll; one that is in progress is aborted.
    pub fn begin_poll(&mut self, now: u64) {
        self.now = now;
        self.backfill.stop_until_next_poll();
        let mut queries = vec![NodeQuery::Latest, NodeQuery::Syncing];
        if self.finality == FinalizedBlockRule::Tag {
            queries.push(NodeQuery::Finalized);
        }
        let is_due = match self.identified {
            Some(identified) => now.saturating_sub(identified) >= IDENTITY_INTERVAL_MS,
            None => true,
        };
        self.poll = Some(NodePoll::new(queries, is_due));
    }

    /// Returns the queries to send to the node now, all at once; an empty list ends the poll. A
    /// query that has no result yet is not returned again.
    pub fn next_queries(&mut self) -> Vec<NodeQuery> {
        let Some(poll) = &mut self.poll else {
            return Vec::new();
        };
        if let Some(queries) = poll.take_first_queries() {
            return queries;
        }
        match self.evaluate_poll() {
            Ok(()) => {
                self.poll = None;
                Vec::new()
            }
            Err(IncompleteNodePoll::NeedsQuery(mut queries)) => {
                if let Some(poll) = &mut self.poll {
                    queries.retain(|query| poll.mark_node_query_sent(*query));
                }
                queries
            }
            Err(IncompleteNodePoll::Failed(error)) => {
                self.fail_poll(&error, self.now);
                Vec::new()
            }
            Err(IncompleteNodePoll::Confused) => {
                self.confused += 1;
                self.fail_poll("its chain changed during the poll", self.now);
                Vec::new()
            }
        }
    }

    /// Records the node's result of a query that [`next_queries`](Self::next_queries) has returned.
    pub fn handle_query_result(&mut self, query: NodeQuery, answer: NodeResult) {
        if let Some(poll) = &mut self.poll {
            poll.record_query_result(query, answer);
        }
    }

    /// Ends the present poll because the node did not respond; `error` is for operators.
    pub fn fail_poll(&mut self, error: &str, now: u64) {
        self.poll = None;
        self.backfill.stop_until_next_poll();
        self.error = Some(error.to_owned());
        // the node that comes back may be another one
        self.identified = None;
        self.withdraw_finality_if_silent(now);
    }

    /// Withdraws finality if no poll has succeeded for too long at `now`.
    pub fn withdraw_finality_if_silent(&mut self, now: u64) {
        let limit = self
            .interval
            .saturating_mul(FAILURE_INTERVALS)
            .max(FAILURE_MS);
        if now.saturating_sub(self.heard) > limit && !self.is_silent {
            self.is_silent = true;
            self.push_finality(None);
            self.update_tracker_state();
        }
    }

    /// Resets the tracker after a purge of the namespace, which may have another chain from now on.
    pub fn reset_tracker_after_purge(&mut self, now: u64) {
        self.push_finality(None);
        if self.is_wrong {
            self.push_chain_change(ChainChange::Wrong(false));
        }
        let new = Self::new(self.finality, self.interval, ChainRecord::default(), now);
        let new = Self {
            steps: std::mem::take(&mut self.steps),
            reorg_count: self.reorg_count,
            logged: self.logged,
            not_logged: self.not_logged,
            heard: self.heard,
            is_silent: self.is_silent,
            ..new
        };
        *self = new;
        self.update_tracker_state();
    }

    /// Takes the next step that the host has to carry out, or returns `None` if there is none.
    pub fn take_next_tracker_step(&mut self) -> Option<TrackerAction> {
        self.steps.pop_front()
    }

    /// Returns the chain identity of the node, which is the recorded one; `None` if it was not
    /// queried yet, or a poll has failed since.
    pub fn confirmed_identity(&self) -> Option<ChainIdentity> {
        self.confirmed_identity
            .filter(|_| self.identified.is_some())
    }

    /// Returns the known blocks, the newest first.
    pub fn window_blocks(&self) -> impl Iterator<Item = FinalityMark> + '_ {
        self.window.blocks_newest_first()
    }

    /// Returns the newest block of the window, which is the node's head unless the node lags;
    /// `None` if no block is known.
    pub fn newest_known_block(&self) -> Option<FinalityMark> {
        self.window.newest_block()
    }

    /// Sets the duration of a slot in milliseconds, for a node whose blocks have no timestamps.
    pub fn set_slot_time(&mut self, milliseconds: Option<u64>) {
        self.slot_time = milliseconds;
    }

    /// Returns the time between two blocks of the chain in milliseconds: the duration of a slot, or
    /// the average of the known blocks; `None` if it is not known, or not between 100 ms and a
    /// minute, where shorter times count as 100 ms.
    pub fn block_time(&self) -> Option<u64> {
        let time = self
            .slot_time
            .or_else(|| self.window.average_block_time())?;
        (time <= MAX_BLOCK_TIME_MS).then_some(time.max(MIN_BLOCK_TIME_MS))
    }

    /// Returns the newest final block as last published.
    pub fn last_published_final(&self) -> Option<u64> {
        self.published_final
    }

    /// Returns the condition of the node and its chain as the last polls have shown it.
    pub fn tracker_state(&self) -> State {
        self.tracker_state
    }

    /// Number of reorganisations that were found since the tracker was created.
    pub fn reorg_count(&self) -> u64 {
        self.reorg_count
    }

    /// Returns the error of the last poll for operators, or `None` if it succeeded.
    pub fn last_poll_error(&self) -> Option<&str> {
        match &self.wrong {
            // later errors are of another node, or of none
            Some(wrong) => Some(wrong),
            None => self.error.as_deref(),
        }
    }

    fn push_chain_change(&mut self, change: ChainChange) {
        self.steps.push_back(TrackerAction::ChainChange(change));
    }

    fn push_finality(&mut self, number: Option<u64>) {
        if self.published_final != number {
            self.published_final = number;
            self.push_chain_change(ChainChange::Final(number));
        }
    }

    fn push_log_line(&mut self, is_error: bool, text: String) {
        self.steps.push_back(TrackerAction::Log { is_error, text });
    }

    /// Updates the state, and logs it if it has changed.
    fn update_tracker_state(&mut self) {
        let state = if self.is_wrong {
            State::WrongChain
        } else if self.is_silent {
            State::Unreachable
        } else if self.window.newest_block().is_none() {
            State::Starting
        } else if self.is_syncing {
            State::Syncing
        } else if self.behind.is_some_and(|behind| behind.polls > 1) {
            // a single lower head is normal behind a load balancer
            State::Lagging
        } else {
            State::Following
        };
        if state == self.tracker_state {
            return;
        }
        self.tracker_state = state;
        let head = self.window.newest_block().map_or(0, |top| top.number);
        let text = match state {
            // a wrong chain is logged where it is found
            State::WrongChain | State::Starting => return,
            State::Following => match self.published_final {
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
        self.push_log_line(state == State::Unreachable, text);
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
