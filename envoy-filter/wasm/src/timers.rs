//! Deadlines. A sandbox has one timer, its root's, which is set to the first of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::abi;

/// What is to be done then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// Calls are to be made, or given up.
    Calls,
    /// A stream, by its context, has its deadline of that number.
    Stream(u32, u64),
    /// Streams that were woken are to go on.
    Woken,
    /// The gauges are shown.
    Gauges,
    /// A stream that has ended does not go on as another one.
    Forgotten,
}

/// Those of a root.
#[derive(Debug, Default)]
pub struct Timers {
    /// The first one first, in milliseconds of the monotonic clock.
    due: BinaryHeap<Reverse<(u64, Due)>>,
    /// When the root is called; 0: it is not.
    at: u64,
}

impl Timers {
    /// In so many milliseconds, 1 at least. Within a call of the root's, or of one of its
    /// streams.
    pub fn set(&mut self, what: Due, milliseconds: u64, now: u64) {
        let at = now.saturating_add(milliseconds.max(1));
        self.due.push(Reverse((at, what)));
        if self.at == 0 || at < self.at {
            self.begin(now);
        }
    }

    /// The next one whose time has come.
    pub fn next(&mut self, now: u64) -> Option<Due> {
        let Reverse((at, _)) = self.due.peek()?;
        if *at > now {
            return None;
        }
        self.due.pop().map(|Reverse((_, what))| what)
    }

    /// Has the root called when the first one is due, if there is one.
    pub fn begin(&mut self, now: u64) {
        let first = self.due.peek().map(|Reverse((at, _))| *at);
        self.at = first.unwrap_or(0);
        abi::tick_in(first.map_or(0, |at| at.saturating_sub(now).max(1)));
    }
}
