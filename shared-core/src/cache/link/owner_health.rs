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

/// The health of the owner, and its last change that was reported to the host.
#[derive(Debug, Default)]
pub(super) struct OwnerHealth {
    /// Time since which the owner is unusable.
    down: Option<u64>,
    /// The outage that was reported last, until the owner can be used.
    reported: Option<OwnerOutage>,
}

impl OwnerHealth {
    /// Records whether the owner can be used. Returns a change that has to be logged.
    pub(super) fn record_owner_state(
        &mut self,
        outage: Option<OwnerOutage>,
        now: u64,
    ) -> Option<OwnerHealthChange> {
        let Some(outage) = outage else {
            let reported = std::mem::take(self).reported;
            return reported.map(|_| OwnerHealthChange::Up);
        };
        let down = *self.down.get_or_insert(now);
        // the reason may be found later than the outage: an owner's late refusal does not show it
        let is_reported = self
            .reported
            .is_some_and(|reported| reported != OwnerOutage::Silent || reported == outage);
        if is_reported || now.saturating_sub(down) < owner_outage_grace() {
            return None;
        }
        self.reported = Some(outage);
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

    #[test]
    fn reason_that_is_found_after_the_report_of_silence_is_reported_once() {
        for reason in [OwnerOutage::OtherClock, OwnerOutage::OtherVersion] {
            let mut known = OwnerHealth::default();
            let silent = Some(OwnerOutage::Silent);
            let down = |outage| Some(OwnerHealthChange::Down(outage));
            for (outage, now, expected) in [
                (silent, 0, None),
                (silent, 3_000, down(OwnerOutage::Silent)),
                (Some(reason), 4_000, down(reason)),
                (Some(reason), 5_000, None),
                (silent, 6_000, None),
                (Some(reason), 7_000, None),
                (None, 8_000, Some(OwnerHealthChange::Up)),
            ] {
                assert_eq!(known.record_owner_state(outage, now), expected, "{now}");
            }
        }
    }
}
