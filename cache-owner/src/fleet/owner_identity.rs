//! The id of this owner in the fleet, and its comparison with the ids of other owners.
//!
//! The id is in the folder of the store, so that a restart adds no owner. A folder that was copied
//! to another machine gives two owners one id: their confirmations replace each other, and a purge
//! seems to be in effect on both machines when it is on one of them.
//!
//! Each owner confirms with a counter that begins at the time of its start and grows more slowly
//! than time. So the owner that has started later finds a lower counter than its own in the table.
//! One such counter may be of an earlier state of the server; two different ones are of a live
//! owner, and this one takes another id. The owner with the lower counter keeps the id.

use sszip_core::cache::fleet::stream_record::FleetOwnerId;

use super::stream_replies::OwnerConfirmation;

/// Maximum time between two counters of another owner, in milliseconds.
const DUPLICATE_PERIOD_MS: u64 = 600_000;

/// The id of this owner.
#[derive(Debug)]
pub(super) struct OwnerIdentity {
    /// Name of the owner in the table.
    name: String,
    /// Counter that this owner has not written, and the time at which it was found.
    foreign: Option<(u64, u64)>,
    is_duplicate: bool,
}

impl OwnerIdentity {
    pub(super) fn new(id: FleetOwnerId) -> Self {
        Self {
            name: hex::encode(id),
            foreign: None,
            is_duplicate: false,
        }
    }

    /// Returns the name of this owner in the table of owners.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Compares the table with the counter that this owner had confirmed before the table was read,
    /// at `now` in monotonic milliseconds.
    pub(super) fn compare_with_table(
        &mut self,
        table: &[OwnerConfirmation],
        confirmed: u64,
        now: u64,
    ) {
        let name = self.name.as_bytes();
        let own = table.iter().find(|owner| owner.owner == name);
        let Some(counter) = own.map(|own| own.counter) else {
            return;
        };
        // a higher one is this owner's, or of an owner that takes another id
        if counter >= confirmed {
            return;
        }
        match self.foreign {
            Some((other, _)) if self.is_suspected(now) => self.is_duplicate |= other != counter,
            _ => self.foreign = Some((counter, now)),
        }
    }

    /// Whether the table should be read again soon: it had a counter that this owner has not
    /// written.
    pub(super) fn is_suspected(&self, now: u64) -> bool {
        self.foreign
            .is_some_and(|(_, at)| now.saturating_sub(at) < DUPLICATE_PERIOD_MS)
    }

    /// Whether another live owner has the same id, and this one has to take another.
    pub(super) fn is_duplicate(&self) -> bool {
        self.is_duplicate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: FleetOwnerId = [0xab; 8];

    /// The counter that this owner had confirmed before each read of the table.
    const CONFIRMED: u64 = 5_000;

    /// Compares an owner with tables that have these counters, one after the other, each `interval`
    /// milliseconds after the one before.
    fn identity_after(counters: &[u64], interval: u64) -> OwnerIdentity {
        let mut identity = OwnerIdentity::new(ID);
        let mut now = 1_000;
        for counter in counters {
            let confirmation = |owner: &str, counter| OwnerConfirmation {
                owner: owner.into(),
                position: 1,
                counter,
            };
            let table = [
                confirmation("0101010101010101", 1),
                confirmation("abababababababab", *counter),
            ];
            identity.compare_with_table(&table, CONFIRMED, now);
            now += interval;
        }
        identity
    }

    #[test]
    fn two_lower_counters_are_of_another_owner() {
        let identity = identity_after(&[CONFIRMED, 90], 1_000);
        assert!(identity.is_suspected(2_000) && !identity.is_duplicate());
        let identity = identity_after(&[90, CONFIRMED + 1, 91], 1_000);
        assert!(identity.is_duplicate());
        assert_eq!(identity.name(), "abababababababab");
    }

    #[test]
    fn counters_of_this_owner_and_higher_ones_leave_the_id() {
        let identity = identity_after(&[CONFIRMED, CONFIRMED + 1, CONFIRMED + 1_000_000], 1_000);
        assert!(!identity.is_suspected(4_000) && !identity.is_duplicate());
    }

    #[test]
    fn earlier_state_of_the_server_leaves_the_id() {
        let identity = identity_after(&[90, 90, CONFIRMED, 90], 1_000);
        assert!(!identity.is_duplicate());
        // two failovers
        let identity = identity_after(&[90, 91], DUPLICATE_PERIOD_MS);
        assert!(!identity.is_duplicate());
        assert!(identity.is_suspected(1_000 + DUPLICATE_PERIOD_MS));
        assert!(!identity.is_suspected(1_000 + 2 * DUPLICATE_PERIOD_MS));
    }

    #[test]
    fn table_without_this_owner_leaves_the_id() {
        let mut identity = OwnerIdentity::new(ID);
        for counter in [90, 91, 92] {
            let other = OwnerConfirmation {
                owner: b"0101010101010101".to_vec(),
                position: 1,
                counter,
            };
            identity.compare_with_table(&[other], CONFIRMED, 1_000);
        }
        assert!(!identity.is_suspected(1_000) && !identity.is_duplicate());
    }
}
