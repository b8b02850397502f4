//! Health of the store: whether the disk accepts writes, and the events for the log.
//!
//! A full disk fails thousands of writes per second; the log gets one line when that begins and one
//! when it ends.

use serde::Serialize;

use super::rocks::RocksError;

/// The reason why the store writes nothing at present: the disk is full, or RocksDB has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(into = "String")]
pub enum StoreWriteOutageReason {
    /// No space is left on the device.
    #[error("the disk is full")]
    DiskFull,
    /// RocksDB failed; with its message.
    #[error("{0}")]
    Failed(String),
}

impl From<StoreWriteOutageReason> for String {
    fn from(reason: StoreWriteOutageReason) -> Self {
        reason.to_string()
    }
}

impl From<&RocksError> for StoreWriteOutageReason {
    fn from(failure: &RocksError) -> Self {
        if failure.is_no_space() {
            Self::DiskFull
        } else {
            Self::Failed(failure.to_string())
        }
    }
}

/// The begin or the end of a time in which the store writes nothing, to be logged once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreHealthChange {
    /// Entries are not stored any more; stored ones are still read.
    StoringOff(StoreWriteOutageReason),
    /// The disk accepts writes again.
    StoringOn,
}

/// The health of the store: the reason why it writes nothing, if there is one, and whether it was
/// logged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreHealth {
    /// Reason why nothing is stored; `None` while entries are stored.
    pub(super) off: Option<StoreWriteOutageReason>,
    /// Whether the failure was logged.
    is_reported: bool,
}

impl StoreHealth {
    /// Returns the change that was not logged yet. A failure that has ended before is not reported.
    pub(super) fn next_store_health_change(&mut self) -> Option<StoreHealthChange> {
        if self.is_reported == self.off.is_some() {
            return None;
        }
        self.is_reported = self.off.is_some();
        Some(match &self.off {
            Some(reason) => StoreHealthChange::StoringOff(reason.clone()),
            None => StoreHealthChange::StoringOn,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{StoreHealth, StoreHealthChange, StoreWriteOutageReason};

    #[test]
    fn health_change_is_reported_once() {
        let mut storing = StoreHealth::default();
        assert_eq!(storing.next_store_health_change(), None);
        storing.off = Some(StoreWriteOutageReason::DiskFull);
        storing.off = Some(StoreWriteOutageReason::Failed("bad sector".into()));
        let change =
            StoreHealthChange::StoringOff(StoreWriteOutageReason::Failed("bad sector".into()));
        assert_eq!(storing.next_store_health_change(), Some(change));
        storing.off = Some(StoreWriteOutageReason::DiskFull);
        assert_eq!(storing.next_store_health_change(), None);
        storing.off = None;
        assert_eq!(
            storing.next_store_health_change(),
            Some(StoreHealthChange::StoringOn)
        );
        assert_eq!(storing.next_store_health_change(), None);
        storing.off = Some(StoreWriteOutageReason::DiskFull);
        storing.off = None;
        assert_eq!(storing.next_store_health_change(), None);
    }
}
