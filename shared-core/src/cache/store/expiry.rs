//! Expiry of SST files.
//!
//! An entry is as old as its SST file, which is created by a flush or by the last compaction of
//! smaller files. So no entry is removed before its time. It may be removed later, with the
//! youngest entry of the compacted file; but compactions of large files are rare: they need seven
//! more files of that size.

use std::sync::atomic::Ordering;

use super::config::LifetimeColumnFamily;
use super::entries::{DiskEntryStore, StoreWriteRejection};
use super::rocks::SstFile;

impl DiskEntryStore {
    /// Drops the SST files that were created more than `goes` milliseconds ago, from the oldest on,
    /// and returns their number. From now on entries of files that are older than `renews`
    /// milliseconds [are old](super::StoredEntry::is_old). `now` is in milliseconds since 1970; SST
    /// files are dated in seconds. The owner calls it periodically: files in a compaction stay
    /// until the next call.
    pub fn drop_expired_sst_files(
        &self,
        goes: u64,
        renews: u64,
        now: u64,
    ) -> Result<usize, StoreWriteRejection> {
        let mut count = 0;
        for (place, family) in LifetimeColumnFamily::ALL
            .map(LifetimeColumnFamily::column_family_number)
            .into_iter()
            .enumerate()
        {
            let before = now.saturating_sub(goes) / 1_000;
            let dropped = self.rocks.drop_sst_files_before(family, before);
            count += *dropped.as_ref().unwrap_or(&0);
            self.record_write_result(dropped.map(drop))?;
            let tables = self.rocks.sst_files(family);
            let young = now.saturating_sub(renews) / 1_000;
            let first =
                first_entry_sequence_since(&tables, young, self.flushed.load(Ordering::Relaxed));
            self.aged[place].store(first, Ordering::Relaxed);
        }
        Ok(count)
    }

    /// Records that the writes up to `sequence` are in SST files.
    pub(super) fn record_flushed_sequence(&self, sequence: u64) {
        self.flushed.store(sequence, Ordering::Relaxed);
    }
}

/// Returns the sequence number of the first entry in an SST file that was created at `young`
/// (seconds since 1970) or later, or in a memtable, which has the entries from `flushed` on at
/// least. An entry has the sequence number of the write before it.
fn first_entry_sequence_since(tables: &[SstFile], young: u64, flushed: u64) -> u64 {
    let young = tables.iter().filter(|table| table.made >= young);
    let first = young
        .map(|table| table.smallest_sequence.saturating_sub(1))
        .min();
    first.map_or(flushed, |first| first.min(flushed))
}

#[cfg(test)]
mod tests {
    use super::{first_entry_sequence_since, SstFile};

    #[test]
    fn entry_in_a_young_file_or_in_memory_is_not_old() {
        let table = |made, first| SstFile {
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
            // the flush of the newest file is not recorded yet
            (31, 190, 190),
        ] {
            assert_eq!(
                first_entry_sequence_since(&tables, young, flushed),
                first,
                "{young}"
            );
        }
        // a compaction with the oldest file: its sequence numbers are 0
        let joined = [table(30, 0), table(10, 0)];
        assert_eq!(first_entry_sequence_since(&joined, 20, 300), 0);
        assert_eq!(first_entry_sequence_since(&joined, 31, 300), 300);
        assert_eq!(first_entry_sequence_since(&[], 0, 7), 7);
    }
}
