//! Whether the disk takes what is stored, and what the log has to say of it.
//!
//! A full disk fails thousands of writes a second; the log gets one line when
//! that begins and one when it is over.

use std::collections::VecDeque;

use serde::Serialize;

use super::rocks::Failure;

/// Why nothing is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(into = "String")]
pub enum Reason {
    /// No space is left on the device.
    #[error("the disk is full")]
    DiskFull,
    /// RocksDB failed, with its words.
    #[error("{0}")]
    Failed(String),
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.to_string()
    }
}

impl From<&Failure> for Reason {
    fn from(failure: &Failure) -> Self {
        if failure.is_no_space() {
            Self::DiskFull
        } else {
            Self::Failed(failure.to_string())
        }
    }
}

/// Something to be logged, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// From now on nothing is stored; what was stored is still read.
    StoringOff(Reason),
    /// The disk takes writes again.
    StoringOn,
}

/// Events that nobody asked for are forgotten beyond this many, oldest first.
const MAX_EVENTS: usize = 16;

/// On, or off for a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Storing {
    off: Option<Reason>,
    events: VecDeque<Event>,
}

impl Storing {
    /// A write came through.
    pub(super) fn succeeded(&mut self) {
        if self.off.take().is_some() {
            self.push(Event::StoringOn);
        }
    }

    /// A write, or RocksDB in the background, failed.
    pub(super) fn failed(&mut self, reason: Reason) {
        if self.off.is_none() {
            self.push(Event::StoringOff(reason.clone()));
        }
        self.off = Some(reason);
    }

    fn push(&mut self, event: Event) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Why nothing is stored; `None` while it is.
    pub(super) fn off(&self) -> Option<&Reason> {
        self.off.as_ref()
    }

    /// The oldest event that was not taken yet.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Reason, Storing, MAX_EVENTS};

    #[test]
    fn one_transition_is_one_event() {
        let mut storing = Storing::default();
        storing.succeeded();
        assert_eq!(storing.next_event(), None);
        for _ in 0..5 {
            storing.failed(Reason::DiskFull);
        }
        storing.failed(Reason::Failed("bad sector".into()));
        assert_eq!(storing.off(), Some(&Reason::Failed("bad sector".into())));
        storing.succeeded();
        storing.succeeded();
        assert_eq!(storing.off(), None);
        assert_eq!(
            storing.next_event(),
            Some(Event::StoringOff(Reason::DiskFull))
        );
        assert_eq!(storing.next_event(), Some(Event::StoringOn));
        assert_eq!(storing.next_event(), None);
    }

    #[test]
    fn events_that_nobody_takes_are_bounded() {
        let mut storing = Storing::default();
        for _ in 0..100 {
            storing.failed(Reason::DiskFull);
            storing.succeeded();
        }
        let events = std::iter::from_fn(|| storing.next_event());
        assert_eq!(events.count(), MAX_EVENTS);
    }
}
