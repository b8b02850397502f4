//! Deadlines. A sandbox has one timer, its root's, which is set to the first
//! deadline.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::abi;

/// The action that the root performs at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RootTimerAction {
    /// Callouts are sent, or time out.
    Callouts,
    /// The deadline of that number of a stream, named by its context.
    Stream(u32, u64),
    /// Woken streams are resumed.
    WokenStreams,
    /// The gauges are updated.
    Gauges,
    /// The increments of the counters are passed to the proxy.
    CounterFlush,
    /// A driver that was offered to the stream of a redirect, and that no stream has taken, is
    /// dropped.
    OfferedDriver,
}

/// The deadlines of a filter's root and its streams, for the one timer that a sandbox has.
#[derive(Debug, Default)]
pub struct RootTimers {
    /// Deadlines in milliseconds of the monotonic clock, the first one at the
    /// top.
    due: BinaryHeap<Reverse<(u64, RootTimerAction)>>,
    /// Time at which the root is called; 0: never.
    at: u64,
}

impl RootTimers {
    /// Sets a deadline, at least 1 millisecond ahead. Within a call of the root
    /// or of one of its streams.
    pub fn add_deadline(&mut self, kind: RootTimerAction, milliseconds: u64, now: u64) {
        let at = now.saturating_add(milliseconds.max(1));
        self.due.push(Reverse((at, kind)));
        if self.at == 0 || at < self.at {
            self.arm_root_context_timer(now);
        }
    }

    /// Removes and returns the next deadline that has passed.
    pub fn take_due_action(&mut self, now: u64) -> Option<RootTimerAction> {
        let Reverse((at, _)) = self.due.peek()?;
        if *at > now {
            return None;
        }
        self.due.pop().map(|Reverse((_, kind))| kind)
    }

    /// Sets the root's timer to the first deadline, if there is one.
    pub fn arm_root_context_timer(&mut self, now: u64) {
        let first = self.due.peek().map(|Reverse((at, _))| *at);
        self.at = first.unwrap_or(0);
        abi::set_root_tick_period(first.map_or(0, |at| at.saturating_sub(now).max(1)));
    }
}
