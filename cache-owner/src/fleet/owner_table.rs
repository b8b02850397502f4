//! The owners of the fleet, with the positions that they have confirmed in `<prefix>:owners`.
//!
//! The table is on the server, which may lose it: an owner that was seen within an hour counts as
//! an owner until then. No clocks of machines are compared: an owner is alive if its counter moves.

use std::collections::HashMap;

use super::stream_replies::OwnerConfirmation;

/// Time without a confirmation after which an owner is removed from the table, in milliseconds.
const REMOVAL_PERIOD_MS: u64 = 3_600_000;

/// Maximum number of owners that are remembered.
const MAX_OWNERS: usize = 4_096;

#[derive(Clone, Copy, Debug)]
struct KnownOwner {
    position: u64,
    counter: u64,
    /// Number of the update that has changed it, and the time of that update.
    changed_in: u64,
    changed_at: u64,
}

/// The number of owners, by their confirmation of a purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConfirmationCount {
    pub(super) owners: u64,
    pub(super) confirmed: u64,
    /// Owners that have not confirmed the purge, and have confirmed no other position meanwhile.
    pub(super) silent: u64,
}

/// The owners that were seen in the table.
#[derive(Debug, Default)]
pub(super) struct OwnerTable {
    known: HashMap<Vec<u8>, KnownOwner>,
    updates: u64,
    /// Time of the last update.
    updated_at: Option<u64>,
}

impl OwnerTable {
    /// Records the content of the table on the server.
    pub(super) fn update(&mut self, confirmations: Vec<OwnerConfirmation>, now: u64) {
        self.updates += 1;
        self.updated_at = Some(now);
        for OwnerConfirmation {
            owner,
            position,
            counter,
        } in confirmations
        {
            let changed = KnownOwner {
                position,
                counter,
                changed_in: self.updates,
                changed_at: now,
            };
            let is_full = self.known.len() >= MAX_OWNERS || self.known.try_reserve(1).is_err();
            let is_changed =
                |known: &KnownOwner| known.counter != counter || known.position != position;
            match self.known.get_mut(&owner) {
                Some(known) if is_changed(known) => *known = changed,
                Some(_) => {}
                None if is_full => {}
                None => {
                    self.known.insert(owner, changed);
                }
            }
        }
    }

    /// Removes the owners that have not confirmed a position for an hour, and returns their names.
    pub(super) fn take_absent_owners(&mut self, now: u64) -> Vec<Vec<u8>> {
        let absent = |known: &KnownOwner| now.saturating_sub(known.changed_at) >= REMOVAL_PERIOD_MS;
        let names: Vec<_> = self
            .known
            .iter()
            .filter(|(_, known)| absent(known))
            .map(|(name, _)| name.clone())
            .collect();
        self.known.retain(|_, known| !absent(known));
        names
    }

    /// Returns the number of known owners; `None` if the table was not read at `complete_from` or
    /// later, when it has all live owners.
    pub(super) fn owner_count(&self, complete_from: u64) -> Option<u64> {
        let is_complete = self.updated_at.is_some_and(|at| at >= complete_from);
        is_complete.then_some(self.known.len() as u64)
    }

    /// Returns the number of updates, before the publication of a purge.
    pub(super) fn update_count(&self) -> u64 {
        self.updates
    }

    /// Whether an owner has confirmed the position after the update `since`. A position from before
    /// may be of another stream, which the server has lost.
    pub(super) fn has_confirmed(&self, owner: &[u8], position: u64, since: u64) -> bool {
        let known = self.known.get(owner);
        known.is_some_and(|known| known.position >= position && known.changed_in > since)
    }

    /// Counts the owners that have confirmed the position of a purge that was published after the
    /// update `since`.
    pub(super) fn count_confirmations(&self, position: u64, since: u64) -> ConfirmationCount {
        let mut count = ConfirmationCount::default();
        for known in self.known.values() {
            let is_changed = known.changed_in > since;
            count.owners += 1;
            count.confirmed += u64::from(is_changed && known.position >= position);
            count.silent += u64::from(!is_changed);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn confirmation(owner: u8, position: u64, counter: u64) -> OwnerConfirmation {
        OwnerConfirmation {
            owner: vec![owner],
            position,
            counter,
        }
    }

    #[test]
    fn owners_are_counted_by_their_confirmation() {
        let mut table = OwnerTable::default();
        let all = [1, 2, 3].map(|owner| confirmation(owner, 10, 1));
        table.update(all.to_vec(), 100);
        let since = table.update_count();
        let later = vec![confirmation(1, 20, 2), confirmation(2, 10, 2)];
        table.update(later, 100);
        let count = table.count_confirmations(20, since);
        let expected = ConfirmationCount {
            owners: 3,
            confirmed: 1,
            silent: 1,
        };
        assert_eq!(count, expected);
        assert!(table.has_confirmed(&[1], 20, since));
        assert!(!table.has_confirmed(&[2], 20, since));
    }

    #[test]
    fn position_from_before_the_publication_confirms_nothing() {
        let mut table = OwnerTable::default();
        table.update(vec![confirmation(1, 50, 1)], 100);
        let since = table.update_count();
        table.update(vec![confirmation(1, 50, 1)], 200);
        assert!(!table.has_confirmed(&[1], 20, since));
        assert_eq!(table.count_confirmations(20, since).confirmed, 0);
        table.update(vec![confirmation(1, 50, 2)], 300);
        assert!(table.has_confirmed(&[1], 20, since));
    }

    #[test]
    fn owner_is_counted_for_an_hour_after_the_server_has_lost_it() {
        let mut table = OwnerTable::default();
        table.update(vec![confirmation(1, 10, 1), confirmation(2, 10, 1)], 0);
        table.update(vec![confirmation(1, 10, 2)], REMOVAL_PERIOD_MS - 1);
        assert!(table.take_absent_owners(REMOVAL_PERIOD_MS - 1).is_empty());
        assert_eq!(table.owner_count(0), Some(2));
        assert_eq!(table.take_absent_owners(REMOVAL_PERIOD_MS), [vec![2]]);
        assert_eq!(table.owner_count(0), Some(1));
    }

    #[test]
    fn owners_are_not_counted_before_the_table_is_complete() {
        let mut table = OwnerTable::default();
        assert_eq!(table.owner_count(0), None);
        table.update(vec![confirmation(1, 10, 1)], 99);
        assert_eq!(table.owner_count(100), None);
        table.update(vec![confirmation(1, 10, 2), confirmation(2, 10, 1)], 100);
        assert_eq!(table.owner_count(100), Some(2));
        // lost again
        assert_eq!(table.owner_count(101), None);
    }
}
