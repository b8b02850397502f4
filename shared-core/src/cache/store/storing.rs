//! Whether the disk takes what is stored, and what the log has to say of it.
//!
//! A full disk fails thousands of writes a second; the log gets one line when
//! that begins and one when it is over.

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

/// On, or off for a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Storing {
    /// Why nothing is stored; `None` while it is.
    pub(super) off: Option<Reason>,
    /// The log has heard that it is off.
    is_told: bool,
}

impl Storing {
    /// What the log has not heard yet. What was over before anybody asked is
    /// nothing to talk of.
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
    fn one_transition_is_one_event() {
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
