//! Health of the owner, and its changes for the log.

use crate::time_constants::owner_outage_grace;

/// The begin or the end of an outage of the owner, to be logged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerHealthChange {
    /// The owner does not respond, and requests are sent to the node.
    Down,
    /// The upstream is no owner of this version, and requests are sent to the node.
    Replaced,
    /// The owner has another monotonic clock, and requests are sent to the node.
    OtherClock,
    /// The owner responds again.
    Up,
}

impl OwnerHealthChange {
    /// Whether the owner has become unusable, so that the change is logged as an error.
    pub fn is_owner_outage(self) -> bool {
        self != Self::Up
    }

    /// Returns the text for the log, which follows the owner's name.
    pub fn owner_health_log_text(self) -> &'static str {
        match self {
            Self::Down => "does not respond; requests are sent to the node until it does",
            Self::Replaced => {
                "does not speak the protocol of this version; requests are sent to \
                 the node until both have one version"
            }
            Self::OtherClock => {
                "has another monotonic clock, perhaps that of a time namespace; requests are sent to \
                 the node until both have one clock"
            }
            Self::Up => "responds again",
        }
    }
}

/// Whether the owner can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerReachability {
    Reachable,
    /// The owner does not respond, or does not exist.
    Silent,
    /// The owner speaks another version of the protocol, or another protocol.
    OtherVersion,
    /// The monotonic clocks of the owner and the process differ.
    OtherClock,
}

/// The state of the owner as the host was told of it.
#[derive(Debug, Default)]
pub(super) struct OwnerHealth {
    /// Time since which the owner is unusable.
    down: Option<u64>,
    is_reported: bool,
}

impl OwnerHealth {
    /// Records whether the owner can be used. Returns a change that has to be logged.
    pub(super) fn record_owner_reachability(
        &mut self,
        reachability: OwnerReachability,
        now: u64,
    ) -> Option<OwnerHealthChange> {
        let change = match reachability {
            OwnerReachability::Reachable => {
                let was_reported = std::mem::take(self).is_reported;
                return was_reported.then_some(OwnerHealthChange::Up);
            }
            OwnerReachability::Silent => OwnerHealthChange::Down,
            OwnerReachability::OtherVersion => OwnerHealthChange::Replaced,
            OwnerReachability::OtherClock => OwnerHealthChange::OtherClock,
        };
        let down = *self.down.get_or_insert(now);
        if self.is_reported || now.saturating_sub(down) < owner_outage_grace() {
            return None;
        }
        self.is_reported = true;
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::{OwnerHealth, OwnerHealthChange, OwnerReachability};

    #[test]
    fn outage_is_reported_once_after_a_grace_time() {
        let mut known = OwnerHealth::default();
        for start in [0, 50_000] {
            assert_eq!(
                known.record_owner_reachability(OwnerReachability::Silent, start),
                None
            );
            assert_eq!(
                known.record_owner_reachability(OwnerReachability::Silent, start + 2_999),
                None
            );
            assert_eq!(
                known.record_owner_reachability(OwnerReachability::Silent, start + 3_000),
                Some(OwnerHealthChange::Down)
            );
            assert_eq!(
                known.record_owner_reachability(OwnerReachability::Silent, start + 9_000),
                None
            );
            assert_eq!(
                known.record_owner_reachability(OwnerReachability::Reachable, start + 10_000),
                Some(OwnerHealthChange::Up)
            );
            assert_eq!(
                known.record_owner_reachability(OwnerReachability::Reachable, start + 20_000),
                None
            );
        }
        // a short outage is not reported
        assert_eq!(
            known.record_owner_reachability(OwnerReachability::Silent, 90_000),
            None
        );
        assert_eq!(
            known.record_owner_reachability(OwnerReachability::Reachable, 91_000),
            None
        );
    }
}
