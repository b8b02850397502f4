//! Health of the owner, and its changes for the log.

use crate::time_constants::owner_outage_grace;

/// The reason why the owner can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerOutage {
    /// The owner does not respond, or does not exist.
    Silent,
    /// The owner speaks another version of the protocol, or another protocol.
    OtherVersion,
    /// The monotonic clocks of the owner and the process differ.
    OtherClock,
}

/// The begin or the end of an outage of the owner, to be logged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerHealthChange {
    /// The owner can't be used.
    Down(OwnerOutage),
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
            Self::Down(OwnerOutage::Silent) => {
                "does not respond; requests are sent to the node until it does"
            }
            Self::Down(OwnerOutage::OtherVersion) => {
                "does not speak the protocol of this version; requests are sent to \
                 the node until both have one version"
            }
            Self::Down(OwnerOutage::OtherClock) => {
                "has another monotonic clock, perhaps that of a time namespace; requests are sent to \
                 the node until both have one clock"
            }
            Self::Up => "responds again",
        }
    }
}

/// The health of the owner, and whether its last change was reported to the host.
#[derive(Debug, Default)]
pub(super) struct OwnerHealth {
    /// Time since which the owner is unusable.
    down: Option<u64>,
    is_reported: bool,
}

impl OwnerHealth {
    /// Records whether the owner can be used. Returns a change that has to be logged.
    pub(super) fn record_owner_state(
        &mut self,
        outage: Option<OwnerOutage>,
        now: u64,
    ) -> Option<OwnerHealthChange> {
        let Some(outage) = outage else {
            let was_reported = std::mem::take(self).is_reported;
            return was_reported.then_some(OwnerHealthChange::Up);
        };
        let down = *self.down.get_or_insert(now);
        if self.is_reported || now.saturating_sub(down) < owner_outage_grace() {
            return None;
        }
        self.is_reported = true;
        Some(OwnerHealthChange::Down(outage))
    }
}

#[cfg(test)]
mod tests {
    use super::{OwnerHealth, OwnerHealthChange, OwnerOutage};

    #[test]
    fn outage_is_reported_once_after_a_grace_time() {
        let mut known = OwnerHealth::default();
        let silent = Some(OwnerOutage::Silent);
        let down = Some(OwnerHealthChange::Down(OwnerOutage::Silent));
        for start in [0, 50_000] {
            for (outage, after, expected) in [
                (silent, 0, None),
                (silent, 2_999, None),
                (silent, 3_000, down),
                (silent, 9_000, None),
                (None, 10_000, Some(OwnerHealthChange::Up)),
                (None, 20_000, None),
            ] {
                let change = known.record_owner_state(outage, start + after);
                assert_eq!(change, expected, "{after}");
            }
        }
        // a short outage is not reported
        assert_eq!(known.record_owner_state(silent, 90_000), None);
        assert_eq!(known.record_owner_state(None, 91_000), None);
    }
}
