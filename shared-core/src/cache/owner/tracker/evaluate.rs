//! The evaluation of a poll.

use super::attachment::{locate_head_in_window, NodeHeadPosition, MAX_INCONSISTENT_POLLS};
use super::finality::{check_mark_on_node_chain, newest_final_block, FinalityMarkCheck};
use super::poll::{IncompleteNodePoll, NodePoll};
use super::types::{ChainIdentity, FinalityMark, NodeBlock, NodeQuery, TrackerAction};
use super::window::BlockWindow;
use super::{ChainTracker, LaggingHead};
use crate::cache::chain::ChainChange;
use crate::config::head_source::FinalizedBlockRule;
use crate::time_constants::lower_head_delay;

/// Number of polls, in addition to a time, after which a lower head is accepted as the head.
const LOWER_HEAD_POLLS: u32 = 3;

/// Minimum interval between log lines about reorganisations, in milliseconds.
const REORG_LOG_INTERVAL: u64 = 10_000;

/// The lowest block that a reorganisation has replaced, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReorgStart {
    None,
    Number(u64),
    /// An unknown block above the final blocks, if they are still final.
    Final,
}

/// The changes of blocks and head that a poll causes in the tracker, before they are applied.
struct PollChainChanges {
    /// The chain that the node has now, as far as it is known.
    view: BlockWindow,
    /// The blocks to remember: `view`, or the present window while the node may lag.
    next_window: BlockWindow,
    behind: Option<LaggingHead>,
    from: ReorgStart,
    /// Whether the node has other blocks, rather than only fewer.
    is_reorg: bool,
    head: Option<u64>,
}

/// The changes of the final blocks and of the finality mark that a poll causes in the tracker,
/// before they are applied.
struct PollFinalityChanges {
    /// The lowest block that was final and is not any more.
    broken: Option<u64>,
    mark: Option<FinalityMark>,
    doubt: Option<u64>,
    absent: u32,
    /// The newest block that is final now.
    last: Option<u64>,
    /// The lowest replaced block.
    from: Option<u64>,
    error: Option<String>,
}

impl ChainTracker {
    /// Evaluates the results of the present poll as far as they suffice, and applies their changes
    /// at the poll's end.
    pub(super) fn evaluate_poll(&mut self) -> Result<(), IncompleteNodePoll> {
        let Some(poll) = &self.poll else {
            return Ok(());
        };
        let latest = poll.polled_block(NodeQuery::Latest)?;
        let latest = latest
            .ok_or_else(|| IncompleteNodePoll::Failed("the node has no head block".into()))?;
        let syncing = poll.syncing_result()?;
        let mut identity = None;
        if poll.is_identity_due || poll.has_identity_query() {
            identity = Some(self.reported_chain_identity(poll)?);
        }
        if let Some(wrong) = identity.filter(|found| self.is_other_chain(found)) {
            self.record_wrong_chain(wrong);
            return Ok(());
        }
        let place = locate_head_in_window(&self.window, poll, &latest, self.confused)?;
        if identity.is_none()
            && matches!(
                place,
                NodeHeadPosition::Unknown | NodeHeadPosition::Detached(_)
            )
        {
            // queried first; the evaluation is then repeated
            self.reported_chain_identity(poll)?;
        }
        let plan = self.plan_chain_changes(&place, &latest);
        let is_sure = plan.behind.is_none() && syncing == Ok(false);
        let mut verdict = self.evaluate_poll_finality(poll, &plan, &latest, is_sure)?;
        if poll.needs_head_recheck() && self.confused < MAX_INCONSISTENT_POLLS {
            // otherwise the responses may be of another chain
            let again = poll.polled_block(NodeQuery::Recheck(latest.number))?;
            if again.is_none_or(|again| again.hash != latest.hash) {
                return Err(IncompleteNodePoll::Confused);
            }
        }
        if let Err(error) = &syncing {
            let error = format!("cannot query whether the node is syncing: {error}");
            verdict.error = Some(match verdict.error {
                Some(finality) => format!("{finality}; {error}"),
                None => error,
            });
        }
        self.is_syncing = syncing == Ok(true);
        if let Some(identity) = identity {
            self.record_matching_identity(identity);
        }
        self.apply_poll_changes(plan, verdict);
        Ok(())
    }

    /// Returns the chain identity that the results of the poll report.
    fn reported_chain_identity(
        &self,
        poll: &NodePoll,
    ) -> Result<ChainIdentity, IncompleteNodePoll> {
        let (chain_id, genesis) = poll.chain_identity_result()?;
        Ok(ChainIdentity { chain_id, genesis })
    }

    /// Whether the node's chain identity contradicts the recorded one.
    fn is_other_chain(&self, found: &ChainIdentity) -> bool {
        self.confirmed_identity
            .as_ref()
            .is_some_and(|identity| !identity.matches_identity(found))
    }

    /// Records that the node has another chain than the recorded one.
    fn record_wrong_chain(&mut self, found: ChainIdentity) {
        self.heard = self.now;
        self.is_silent = false;
        // until the node has the recorded chain again
        self.identified = None;
        if !self.is_wrong {
            let was = self.confirmed_identity.map(|was| was.to_string());
            let was = was.unwrap_or_default();
            self.is_wrong = true;
            self.wrong = Some(format!("the node has {found}, but {was} is recorded"));
            self.push_finality(None);
            self.push_chain_change(ChainChange::Wrong(true));
            self.push_log_line(
                true,
                format!(
                    "the node has another chain ({found}) than the recorded one ({was}): nothing \
                     is stored or sent from the cache; connect the right node, or purge the \
                     namespace"
                ),
            );
        }
        self.update_tracker_state();
    }

    /// Records that the node has the recorded chain, or that its chain is the first one.
    fn record_matching_identity(&mut self, found: ChainIdentity) {
        self.identified = Some(self.now);
        if self.confirmed_identity.is_none() {
            self.confirmed_identity = Some(found);
            self.steps.push_back(TrackerAction::RecordIdentity(found));
        }
        if self.is_wrong {
            self.is_wrong = false;
            self.wrong = None;
            self.push_chain_change(ChainChange::Wrong(false));
            self.push_log_line(
                false,
                format!("the node has the recorded chain ({found}) again"),
            );
        }
    }

    /// Determines from the attachment of the node's head which blocks were replaced, and the new
    /// window.
    fn plan_chain_changes(&self, place: &NodeHeadPosition, latest: &NodeBlock) -> PollChainChanges {
        let was_unknown = self.behind.is_some_and(|behind| behind.is_unknown);
        let mut plan = PollChainChanges {
            view: self.window.clone(),
            next_window: BlockWindow::default(),
            behind: None,
            from: ReorgStart::None,
            is_reorg: false,
            head: Some(latest.number),
        };
        match place {
            NodeHeadPosition::First => {
                plan.view.push_block(latest);
                // any block may have been replaced before the first poll
                plan.from = ReorgStart::Final;
            }
            NodeHeadPosition::Same => {
                plan.head = self.behind.map(|_| latest.number);
                if let Some(behind) = self.behind {
                    plan.from = ReorgStart::Number(behind.from);
                }
            }
            NodeHeadPosition::Below => {
                plan.view.truncate_above(latest.number);
                plan.from = ReorgStart::Number(latest.number + 1);
            }
            NodeHeadPosition::Unknown => {
                plan.view.clear();
                plan.view.push_block(latest);
                plan.from = ReorgStart::Final;
            }
            NodeHeadPosition::Extends(ancestor, blocks) => {
                if self.window.newest_block() != Some(*ancestor) {
                    plan.from = ReorgStart::Number(ancestor.number + 1);
                    plan.is_reorg = true;
                }
                plan.view.truncate_above(ancestor.number);
                blocks
                    .iter()
                    .rev()
                    .for_each(|block| plan.view.push_block(block));
                return self.complete_change_plan(plan, was_unknown);
            }
            NodeHeadPosition::Detached(blocks) => {
                plan.view.clear();
                blocks
                    .iter()
                    .rev()
                    .for_each(|block| plan.view.push_block(block));
                plan.from = ReorgStart::Final;
                plan.is_reorg = true;
            }
        }
        if matches!(place, NodeHeadPosition::Below | NodeHeadPosition::Unknown) {
            let (since, polls) = self
                .behind
                .map_or((self.now, 0), |behind| (behind.since, behind.polls));
            let polls = polls + 1;
            if polls < LOWER_HEAD_POLLS || self.now.saturating_sub(since) < lower_head_delay() {
                plan.head = None;
                plan.behind = Some(LaggingHead {
                    since,
                    polls,
                    from: latest.number + 1,
                    is_unknown: matches!(place, NodeHeadPosition::Unknown),
                });
            }
        }
        self.complete_change_plan(plan, was_unknown)
    }

    /// Completes a plan: a node whose head was below the window may have had any branch then.
    fn complete_change_plan(
        &self,
        mut plan: PollChainChanges,
        was_unknown: bool,
    ) -> PollChainChanges {
        if was_unknown {
            plan.from = ReorgStart::Final;
        }
        plan.next_window = match plan.behind {
            Some(_) => self.window.clone(),
            None => plan.view.clone(),
        };
        plan
    }

    /// Determines from the mark and the node's finalized block which blocks are final after this
    /// poll.
    fn evaluate_poll_finality(
        &self,
        poll: &NodePoll,
        plan: &PollChainChanges,
        latest: &NodeBlock,
        is_sure: bool,
    ) -> Result<PollFinalityChanges, IncompleteNodePoll> {
        let newest = newest_final_block(self.finality, &plan.view, poll, latest)?;
        let from = match plan.from {
            ReorgStart::None => None,
            ReorgStart::Number(number) => Some(number),
            ReorgStart::Final => Some(0),
        };
        // replaced blocks above the mark do not put it in doubt
        let doubt = [self.doubt, from].into_iter().flatten().min();
        let doubt = doubt.filter(|doubt| self.mark.is_some_and(|mark| *doubt <= mark.number));
        let is_other = |newest: &FinalityMark| {
            self.mark
                .is_some_and(|mark| newest.number >= mark.number && *newest != mark)
        };
        let needs_check =
            doubt.is_some() || matches!(&newest, Ok(Some(newest)) if is_other(newest));
        let (checked, mut error) = if !needs_check {
            (
                self.mark
                    .map_or(FinalityMarkCheck::None, |_| FinalityMarkCheck::Holds),
                None,
            )
        } else if self.is_branch_below_mark(plan) {
            (FinalityMarkCheck::Broken, None)
        } else {
            check_mark_on_node_chain(self.mark, &plan.view, poll, latest, self.absent)?
        };
        let broken = (checked == FinalityMarkCheck::Broken).then(|| doubt.unwrap_or(0));
        let mark = match broken {
            // the highest of the final blocks that are still in the chain
            Some(from) => from
                .checked_sub(1)
                .and_then(|below| plan.view.newest_block_up_to(below)),
            None => self.mark,
        };
        let from = match (plan.from, broken, checked, self.mark) {
            (_, Some(broken), ..) => Some(from.map_or(broken, |from| from.min(broken))),
            // blocks that came while the mark was in doubt may be of another branch
            (ReorgStart::Final, None, FinalityMarkCheck::Holds, Some(mark)) => {
                Some(self.doubt.unwrap_or(mark.number + 1))
            }
            _ => from,
        };
        let is_known = matches!(
            checked,
            FinalityMarkCheck::None | FinalityMarkCheck::Holds | FinalityMarkCheck::Broken
        );
        let mut verdict = PollFinalityChanges {
            broken,
            mark,
            doubt: doubt.filter(|_| !is_known),
            absent: match checked {
                FinalityMarkCheck::Absent => self.absent + 1,
                _ => 0,
            },
            last: None,
            from,
            error: None,
        };
        match newest {
            Ok(Some(newest)) if is_sure && is_known => {
                (verdict.mark, verdict.last) =
                    match self.is_finalized_canonical(poll, plan, newest, latest)? {
                        true => self.next_mark_and_final_block(mark, newest, latest),
                        false => (mark, None),
                    }
            }
            Err(text) => {
                error = error.or(Some(format!(
                    "node cannot serve \"finalized\" ({text}); finality unknown"
                )));
            }
            Ok(_) => {}
        }
        verdict.error = error;
        Ok(verdict)
    }

    /// Whether the node's chain branches off below the mark.
    fn is_branch_below_mark(&self, plan: &PollChainChanges) -> bool {
        let ReorgStart::Number(from) = plan.from else {
            return false;
        };
        plan.is_reorg
            && self.mark.is_some_and(|mark| {
                from <= mark.number && self.window.block_at(mark.number) == Some(mark)
            })
    }

    /// Whether the node's finalized block is of the same chain as its head. The node was queried
    /// for both at once.
    fn is_finalized_canonical(
        &self,
        poll: &NodePoll,
        plan: &PollChainChanges,
        newest: FinalityMark,
        latest: &NodeBlock,
    ) -> Result<bool, IncompleteNodePoll> {
        if newest.number > latest.number || Some(newest) == self.mark {
            return Ok(true);
        }
        let hash = match plan.view.block_at(newest.number) {
            Some(known) => Some(known.hash),
            None => poll
                .polled_block(NodeQuery::ByNumber(newest.number))?
                .map(|block| block.hash),
        };
        Ok(hash == Some(newest.hash))
    }

    /// Returns the mark and the newest final block, where `newest` is the node's finalized block
    /// and `mark` is of its chain.
    fn next_mark_and_final_block(
        &self,
        mark: Option<FinalityMark>,
        newest: FinalityMark,
        latest: &NodeBlock,
    ) -> (Option<FinalityMark>, Option<u64>) {
        if newest.number > latest.number {
            // the chain grew between the two responses
            return (mark, mark.and(self.published_final));
        }
        match mark {
            Some(mark) if newest.number < mark.number => match self.finality {
                // the head went back, which does not undo finality
                FinalizedBlockRule::Depth(_) => (Some(mark), Some(mark.number)),
                FinalizedBlockRule::Tag => (Some(mark), None),
            },
            // the mark is of this chain, so the other block is not
            Some(mark) if newest.number == mark.number && newest != mark => (Some(mark), None),
            _ => (Some(newest), Some(newest.number)),
        }
    }

    /// Applies the changes of a poll to the tracker, and queues the steps for the host in a safe
    /// order.
    fn apply_poll_changes(&mut self, plan: PollChainChanges, verdict: PollFinalityChanges) {
        self.heard = self.now;
        self.is_silent = false;
        self.confused = 0;
        self.error = verdict.error;
        let is_still_final = self.published_final.is_some() && verdict.last >= self.published_final;
        if verdict.broken.is_some() || !is_still_final {
            self.push_finality(None);
        }
        if let Some(from) = verdict.broken {
            let number = self.mark.map_or(0, |mark| mark.number);
            self.push_log_line(true, format!("finalized block {number} was replaced"));
            self.push_chain_change(ChainChange::FinalityReverted { from });
        }
        self.publish_reorg(&plan, verdict.from, verdict.broken.is_some());
        if let Some(head) = plan.head {
            self.push_chain_change(ChainChange::Head(head));
        }
        if verdict.mark != self.mark {
            self.steps
                .push_back(TrackerAction::RecordMark(verdict.mark));
        }
        self.mark = verdict.mark;
        self.doubt = verdict.doubt;
        self.absent = verdict.absent;
        self.window = plan.next_window;
        self.behind = plan.behind;
        self.push_finality(verdict.last);
        self.permit_backfill();
        self.update_tracker_state();
    }

    /// Logs a reorganisation, and the number of those before it that were not logged: some chains
    /// have too many in a row for a line each.
    fn log_reorg(&mut self, from: u64, head: Option<u64>) {
        if self
            .logged
            .is_some_and(|at| self.now.saturating_sub(at) < REORG_LOG_INTERVAL)
        {
            self.not_logged += 1;
            return;
        }
        self.logged = Some(self.now);
        let blocks = self
            .window
            .newest_block()
            .map_or(0, |top| (top.number + 1).saturating_sub(from));
        let head = head.map_or_else(String::new, |head| format!(", head now {head}"));
        let more = match std::mem::take(&mut self.not_logged) {
            0 => String::new(),
            more => format!(" ({more} more since the last line)"),
        };
        let text =
            format!("reorganisation: {blocks} blocks from {from} on were replaced{head}{more}");
        self.push_log_line(false, text);
    }

    fn publish_reorg(&mut self, plan: &PollChainChanges, from: Option<u64>, is_broken: bool) {
        let Some(from) = from else {
            return;
        };
        // published once while the node lags; and again when it is back, since responses about the
        // lower head do not show that
        let is_back =
            plan.behind.is_none() && plan.head == self.window.newest_block().map(|top| top.number);
        let is_published = self
            .behind
            .is_some_and(|was| !was.is_unknown && was.from <= from)
            && !plan.is_reorg;
        if is_published && !is_back && !is_broken {
            return;
        }
        self.reorg_count += u64::from(plan.is_reorg);
        if plan.is_reorg && !is_broken {
            self.log_reorg(from, plan.head);
        }
        self.push_chain_change(ChainChange::Reorg { from });
    }
}
