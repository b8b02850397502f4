//! The evaluation of a poll.

use super::finality::{check, newest, Checked};
use super::place::{find, Place, CONFUSED};
use super::poll::{Halt, Poll};
use super::terms::{Ask, Block, Identity, Mark, Step};
use super::window::Window;
use super::{Behind, Tracker};
use crate::cache::chain::Move;
use crate::config::follow::Finality;

/// Number of polls, and milliseconds, after which a lower head is accepted as the head.
const LASTS_POLLS: u32 = 3;
const LASTS: u64 = 2_000;

/// Minimum interval between log lines about reorganisations, in milliseconds.
const REORG_LOG_INTERVAL: u64 = 10_000;

/// The lowest replaced block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Nowhere,
    Number(u64),
    /// An unknown block above the final blocks, if they are still final.
    Final,
}

/// The changes to the state of the chain.
struct Plan {
    /// The chain that the node has now, as far as it is known.
    view: Window,
    /// The blocks to remember: `view`, or the present window while the node may lag.
    kept: Window,
    behind: Option<Behind>,
    from: From,
    /// Whether the node has other blocks, rather than only fewer.
    is_reorg: bool,
    head: Option<u64>,
}

/// The changes to finality.
struct Verdict {
    /// The lowest block that was final and is not any more.
    broken: Option<u64>,
    mark: Option<Mark>,
    doubt: Option<u64>,
    absent: u32,
    /// The newest block that is final now.
    last: Option<u64>,
    /// The lowest replaced block.
    from: Option<u64>,
    error: Option<String>,
}

impl Tracker {
    /// Evaluates the results of the present poll, and applies them.
    pub(super) fn judge(&mut self) -> Result<(), Halt> {
        let Some(poll) = &self.poll else {
            return Ok(());
        };
        let latest = poll.block(Ask::Latest)?;
        let latest = latest.ok_or_else(|| Halt::Failed("it has no head".into()))?;
        let syncing = poll.syncing()?;
        let mut identity = None;
        if poll.is_identity_due || poll.has_identity() {
            identity = Some(self.identify(poll)?);
        }
        if let Some(wrong) = identity.filter(|found| self.is_foreign(found)) {
            self.found_foreign(wrong);
            return Ok(());
        }
        let place = find(&self.window, poll, &latest, self.confused)?;
        if identity.is_none() && matches!(place, Place::Unknown | Place::Nowhere(_)) {
            // queried first; the evaluation is then repeated
            self.identify(poll)?;
        }
        let plan = self.plan(&place, &latest);
        let is_sure = plan.behind.is_none() && syncing == Ok(false);
        let mut verdict = self.verdict(poll, &plan, &latest, is_sure)?;
        if poll.is_loose() && self.confused < CONFUSED {
            // otherwise the responses may be of another chain
            let again = poll.block(Ask::Again(latest.number))?;
            if again.is_none_or(|again| again.hash != latest.hash) {
                return Err(Halt::Confused);
            }
        }
        if let Err(error) = &syncing {
            verdict.error = Some(format!("whether it is syncing: {error}"));
        }
        self.is_syncing = syncing == Ok(true);
        if let Some(identity) = identity {
            self.found(identity);
        }
        self.carry_out(plan, verdict);
        Ok(())
    }

    fn identify(&self, poll: &Poll) -> Result<Identity, Halt> {
        let (chain_id, genesis) = poll.identity()?;
        Ok(Identity { chain_id, genesis })
    }

    fn is_foreign(&self, found: &Identity) -> bool {
        self.identity
            .as_ref()
            .is_some_and(|identity| !identity.agrees(found))
    }

    /// Records that the node has another chain than the recorded one.
    fn found_foreign(&mut self, found: Identity) {
        self.heard = self.now;
        self.is_silent = false;
        // until the node has the recorded chain again
        self.identified = None;
        if !self.is_wrong {
            let was = self.identity.map(|was| was.to_string());
            let was = was.unwrap_or_default();
            self.is_wrong = true;
            self.wrong = Some(format!("the node has {found}, recorded is {was}"));
            self.tell_final(None);
            self.tell(Move::Wrong(true));
            self.say(
                true,
                format!(
                    "the node has another chain ({found}) than the one that was recorded \
                     ({was}): nothing is sent or stored until it is back, or the namespace \
                     is purged"
                ),
            );
        }
        self.look();
    }

    /// Records that the node has the recorded chain, or that its chain is the first one.
    fn found(&mut self, found: Identity) {
        self.identified = Some(self.now);
        if self.identity.is_none() {
            self.identity = Some(found);
            self.steps.push_back(Step::KeepIdentity(found));
        }
        if self.is_wrong {
            self.is_wrong = false;
            self.wrong = None;
            self.tell(Move::Wrong(false));
            self.say(
                false,
                format!("the node has the recorded chain ({found}) again"),
            );
        }
    }

    fn plan(&self, place: &Place, latest: &Block) -> Plan {
        let was_unknown = self.behind.is_some_and(|behind| behind.is_unknown);
        let mut plan = Plan {
            view: self.window.clone(),
            kept: Window::default(),
            behind: None,
            from: From::Nowhere,
            is_reorg: false,
            head: Some(latest.number),
        };
        match place {
            Place::First => {
                plan.view.push(latest);
                // any block may have been replaced before the first poll
                plan.from = From::Final;
            }
            Place::Same => {
                plan.head = self.behind.map(|_| latest.number);
                if let Some(behind) = self.behind {
                    plan.from = From::Number(behind.from);
                }
            }
            Place::Below => {
                plan.view.cut(latest.number);
                plan.from = From::Number(latest.number + 1);
            }
            Place::Unknown => {
                plan.view.clear();
                plan.view.push(latest);
                plan.from = From::Final;
            }
            Place::On(ancestor, blocks) => {
                if self.window.top() != Some(*ancestor) {
                    plan.from = From::Number(ancestor.number + 1);
                    plan.is_reorg = true;
                }
                plan.view.cut(ancestor.number);
                blocks.iter().rev().for_each(|block| plan.view.push(block));
                return self.after_doubt(plan, was_unknown);
            }
            Place::Nowhere(blocks) => {
                plan.view.clear();
                blocks.iter().rev().for_each(|block| plan.view.push(block));
                plan.from = From::Final;
                plan.is_reorg = true;
            }
        }
        if matches!(place, Place::Below | Place::Unknown) {
            let (since, polls) = self
                .behind
                .map_or((self.now, 0), |behind| (behind.since, behind.polls));
            let polls = polls + 1;
            if polls < LASTS_POLLS || self.now.saturating_sub(since) < LASTS {
                plan.head = None;
                plan.behind = Some(Behind {
                    since,
                    polls,
                    from: latest.number + 1,
                    is_unknown: matches!(place, Place::Unknown),
                });
            }
        }
        self.after_doubt(plan, was_unknown)
    }

    /// Completes a plan: a node whose head was below the window may have had any branch then.
    fn after_doubt(&self, mut plan: Plan, was_unknown: bool) -> Plan {
        if was_unknown {
            plan.from = From::Final;
        }
        plan.kept = match plan.behind {
            Some(_) => self.window.clone(),
            None => plan.view.clone(),
        };
        plan
    }

    fn verdict(
        &self,
        poll: &Poll,
        plan: &Plan,
        latest: &Block,
        is_sure: bool,
    ) -> Result<Verdict, Halt> {
        let newest = newest(self.finality, &plan.view, poll, latest)?;
        let from = match plan.from {
            From::Nowhere => None,
            From::Number(number) => Some(number),
            From::Final => Some(0),
        };
        // replaced blocks above the mark do not put it in doubt
        let doubt = [self.doubt, from].into_iter().flatten().min();
        let doubt = doubt.filter(|doubt| self.mark.is_some_and(|mark| *doubt <= mark.number));
        let is_other = |newest: &Mark| {
            self.mark
                .is_some_and(|mark| newest.number >= mark.number && *newest != mark)
        };
        let is_asked = doubt.is_some() || matches!(&newest, Ok(Some(newest)) if is_other(newest));
        let (checked, mut error) = if !is_asked {
            (self.mark.map_or(Checked::None, |_| Checked::Holds), None)
        } else if self.is_cut_off(plan) {
            (Checked::Broken, None)
        } else {
            check(self.mark, &plan.view, poll, latest, self.absent)?
        };
        let broken = (checked == Checked::Broken).then(|| doubt.unwrap_or(0));
        let mark = match broken {
            // the highest of the final blocks that are still in the chain
            Some(from) => from.checked_sub(1).and_then(|below| plan.view.up_to(below)),
            None => self.mark,
        };
        let from = match (plan.from, broken, checked, self.mark) {
            (_, Some(broken), ..) => Some(from.map_or(broken, |from| from.min(broken))),
            // blocks that came while the mark was in doubt may be of another branch
            (From::Final, None, Checked::Holds, Some(mark)) => {
                Some(self.doubt.unwrap_or(mark.number + 1))
            }
            _ => from,
        };
        let is_known = matches!(checked, Checked::None | Checked::Holds | Checked::Broken);
        let mut verdict = Verdict {
            broken,
            mark,
            doubt: doubt.filter(|_| !is_known),
            absent: match checked {
                Checked::Absent => self.absent + 1,
                _ => 0,
            },
            last: None,
            from,
            error: None,
        };
        match newest {
            Ok(Some(newest)) if is_sure && is_known => {
                (verdict.mark, verdict.last) =
                    match self.is_canonical(poll, plan, newest, latest)? {
                        true => self.advance(mark, newest, latest),
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
    fn is_cut_off(&self, plan: &Plan) -> bool {
        let From::Number(from) = plan.from else {
            return false;
        };
        plan.is_reorg
            && self.mark.is_some_and(|mark| {
                from <= mark.number && self.window.at(mark.number) == Some(mark)
            })
    }

    /// Whether the node's finalized block is of the same chain as its head. The node was queried
    /// for both at once.
    fn is_canonical(
        &self,
        poll: &Poll,
        plan: &Plan,
        newest: Mark,
        latest: &Block,
    ) -> Result<bool, Halt> {
        if newest.number > latest.number || Some(newest) == self.mark {
            return Ok(true);
        }
        let hash = match plan.view.at(newest.number) {
            Some(known) => Some(known.hash),
            None => poll
                .block(Ask::ByNumber(newest.number))?
                .map(|block| block.hash),
        };
        Ok(hash == Some(newest.hash))
    }

    /// The mark and the newest final block, where `newest` is the node's finalized block and `mark`
    /// is of its chain.
    fn advance(
        &self,
        mark: Option<Mark>,
        newest: Mark,
        latest: &Block,
    ) -> (Option<Mark>, Option<u64>) {
        if newest.number > latest.number {
            // the chain grew between the two responses
            return (mark, mark.and(self.told));
        }
        match mark {
            Some(mark) if newest.number < mark.number => match self.finality {
                // the head went back, which does not undo finality
                Finality::Depth(_) => (Some(mark), Some(mark.number)),
                Finality::Tag => (Some(mark), None),
            },
            // the mark is of this chain, so the other block is not
            Some(mark) if newest.number == mark.number && newest != mark => (Some(mark), None),
            _ => (Some(newest), Some(newest.number)),
        }
    }

    fn carry_out(&mut self, plan: Plan, verdict: Verdict) {
        self.heard = self.now;
        self.is_silent = false;
        self.confused = 0;
        self.error = verdict.error;
        let is_kept = self.told.is_some() && verdict.last >= self.told;
        if verdict.broken.is_some() || !is_kept {
            self.tell_final(None);
        }
        if let Some(from) = verdict.broken {
            let number = self.mark.map_or(0, |mark| mark.number);
            self.say(
                true,
                format!(
                    "block {number} was final and is not any more: all from block {from} on \
                     is purged"
                ),
            );
            self.tell(Move::Broken { from });
        }
        self.tell_reorg(&plan, verdict.from, verdict.broken.is_some());
        if let Some(head) = plan.head {
            self.tell(Move::Head(head));
        }
        if verdict.mark != self.mark {
            self.steps.push_back(Step::KeepMark(verdict.mark));
        }
        self.mark = verdict.mark;
        self.doubt = verdict.doubt;
        self.absent = verdict.absent;
        self.window = plan.kept;
        self.behind = plan.behind;
        self.tell_final(verdict.last);
        self.look();
    }

    /// Logs a reorganisation, and the number of those before it that were not logged: some chains
    /// have too many in a row for a line each.
    fn say_reorg(&mut self, from: u64, head: Option<u64>) {
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
            .top()
            .map_or(0, |top| (top.number + 1).saturating_sub(from));
        let head = head.map_or_else(String::new, |head| format!(", head now {head}"));
        let more = match std::mem::take(&mut self.not_logged) {
            0 => String::new(),
            more => format!(" ({more} more since the last line)"),
        };
        let text =
            format!("reorganisation: {blocks} blocks from {from} on were replaced{head}{more}");
        self.say(false, text);
    }

    fn tell_reorg(&mut self, plan: &Plan, from: Option<u64>, is_broken: bool) {
        let Some(from) = from else {
            return;
        };
        // published once while the node lags; and again when it is back, since responses about the
        // lower head do not show that
        let is_back = plan.behind.is_none() && plan.head == self.window.top().map(|top| top.number);
        let is_told = self
            .behind
            .is_some_and(|was| !was.is_unknown && was.from <= from)
            && !plan.is_reorg;
        if is_told && !is_back && !is_broken {
            return;
        }
        self.reorgs += u64::from(plan.is_reorg);
        if plan.is_reorg && !is_broken {
            self.say_reorg(from, plan.head);
        }
        self.tell(Move::Reorg { from });
    }
}
