//! Tables leave for their age.
//!
//! An entry is as old as its table, and that as its making: by a flush, or by
//! the last join of smaller tables. So nothing leaves before its time. It may
//! leave later, with the youngest of what its table was joined from; but joins
//! of large tables are seldom: it takes seven more of that size.

use std::sync::atomic::Ordering;

use super::config::Tables;
use super::entries::{Store, StoreError};
use super::rocks::Table;

impl Store {
    /// Drops the tables that were made more than `goes` milliseconds ago, from
    /// the oldest on, and gives their number. From now on entries of tables
    /// that are older than `renews` milliseconds [are old](super::Stored::is_old).
    /// `now` in milliseconds since 1970; tables know seconds. To be called now
    /// and then: tables that are being joined stay until the next time.
    pub fn forget(&self, goes: u64, renews: u64, now: u64) -> Result<usize, StoreError> {
        let mut count = 0;
        for (place, family) in Tables::ALL.map(Tables::family).into_iter().enumerate() {
            let before = now.saturating_sub(goes) / 1_000;
            let dropped = self.rocks.drop_before(family, before);
            count += *dropped.as_ref().unwrap_or(&0);
            self.judge(dropped.map(drop))?;
            let tables = self.rocks.tables(family);
            let young = now.saturating_sub(renews) / 1_000;
            let first = first_made(&tables, young, self.flushed.load(Ordering::Relaxed));
            self.aged[place].store(first, Ordering::Relaxed);
        }
        Ok(count)
    }

    /// What was written up to `sequence` lies in tables.
    pub(super) fn note_flush(&self, sequence: u64) {
        self.flushed.store(sequence, Ordering::Relaxed);
    }
}

/// The number that the first entry has which lies in a table made at `young`
/// (seconds since 1970) or later, or in memory, where those from `flushed` on
/// are at least. An entry has the number of the write before it.
fn first_made(tables: &[Table], young: u64, flushed: u64) -> u64 {
    let young = tables.iter().filter(|table| table.made >= young);
    let first = young
        .map(|table| table.smallest_sequence.saturating_sub(1))
        .min();
    first.map_or(flushed, |first| first.min(flushed))
}

#[cfg(test)]
mod tests {
    use super::{first_made, Table};

    #[test]
    fn what_lies_in_a_young_table_or_in_memory_is_not_old() {
        let table = |made, first| Table {
            size: 1,
            smallest_sequence: first,
            largest_sequence: first + 9,
            made,
        };
        let tables = [table(30, 200), table(20, 150), table(10, 100)];
        for (young, flushed, first) in [
            (0, 300, 99),
            (10, 300, 99),
            (11, 300, 149),
            (30, 300, 199),
            (31, 300, 300),
            // the flush of the newest table has not been noted yet
            (31, 190, 190),
        ] {
            assert_eq!(first_made(&tables, young, flushed), first, "{young}");
        }
        // a join that took in the oldest: its numbers are 0
        let joined = [table(30, 0), table(10, 0)];
        assert_eq!(first_made(&joined, 20, 300), 0);
        assert_eq!(first_made(&joined, 31, 300), 300);
        assert_eq!(first_made(&[], 0, 7), 7);
    }
}
