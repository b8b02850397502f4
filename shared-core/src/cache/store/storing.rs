//! Health of the store: whether the disk accepts writes, and the events for the log.
//!
//! A full disk fails thousands of writes per second; the log gets one line when that begins and one
//! when it ends.

use serde::Serialize;

use super::rocks::Failure;

/// The reason why nothing is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(into = "String")]
pub enum Reason {
    /// No space is left on the device.
    #[error("the disk is full")]
    DiskFull,
    /// RocksDB failed; with its message.
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

/// A change to be logged once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Entries are not stored any more; stored ones are still read.
    StoringOff(Reason),
    /// The disk accepts writes again.
    StoringOn,
}

/// The health of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Storing {
    /// Reason why nothing is stored; `None` while entries are stored.
    pub(super) off: Option<Reason>,
    /// Whether the failure was logged.
    is_told: bool,
}

impl Storing {
    /// Returns the change that was not logged yet. A failure that has ended before is not reported.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        if self.is_told == self.off.is_some() {
            return None;
        }
        self.is_told = self.off.is_some();
        Some(match &self.off {
            Some(reason) => Event::StoringOff(reason.clone()),
            None => Event::StoringOn,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Reason, Storing};

    #[test]
    fn health_change_is_reported_once() {
        let mut storing = Storing::default();
        assert_eq!(storing.next_event(), None);
        storing.off = Some(Reason::DiskFull);
        storing.off = Some(Reason::Failed("bad sector".into()));
        let said = Event::StoringOff(Reason::Failed("bad sector".into()));
        assert_eq!(storing.next_event(), Some(said));
        storing.off = Some(Reason::DiskFull);
        assert_eq!(storing.next_event(), None);
        storing.off = None;
        assert_eq!(storing.next_event(), Some(Event::StoringOn));
        assert_eq!(storing.next_event(), None);
        storing.off = Some(Reason::DiskFull);
        storing.off = None;
        assert_eq!(storing.next_event(), None);
    }
}
