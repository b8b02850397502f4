//! Flushes of memtables, and retries after a full disk.

use std::sync::atomic::Ordering;

use super::config::{ColumnFamilySizeLimits, LifetimeColumnFamily};
use super::entries::{DiskEntryStore, StoreWriteRejection};
use super::rocks::{self, RocksError};
use super::store_health::StoreWriteOutageReason;
use crate::faults::{is_fault_injected_once, InjectedTestFault};
use crate::lock::lock_ignoring_poison;

/// Overhead of a memtable row besides key and value, in bytes.
const ROW_OVERHEAD: u64 = 64;

/// Bytes that RocksDB writes besides SST files: with less free space no compaction begins, and a
/// full disk is not tried again.
const MIN_FREE_SPACE: u64 = 8 << 20;

/// Upper bound of the bytes that RocksDB writes when its options are changed.
const MAX_OPTIONS_FILE: u64 = 1 << 20;

impl DiskEntryStore {
    /// Reserves space in the memtables for a row of `length` bytes. It is called before the write,
    /// and [`flush_full_memtable`](Self::flush_full_memtable) after it.
    ///
    /// # Errors
    /// Returns [`StoreWriteRejection::Busy`] if the disk is too slow.
    pub(super) fn reserve_memtable_space(&self, length: u64) -> Result<(), StoreWriteRejection> {
        let length = length + ROW_OVERHEAD;
        let before = self.in_memory.fetch_add(length, Ordering::Relaxed);
        if before < 2 * self.config.write_buffer {
            return Ok(());
        }
        let begun = self.begin_flush();
        if begun == Ok(true) {
            return Ok(());
        }
        let less = |all: u64| Some(all.saturating_sub(length));
        let _ = self
            .in_memory
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        begun?;
        self.busy.fetch_add(1, Ordering::Relaxed);
        Err(StoreWriteRejection::Busy)
    }

    /// Begins a flush when a write buffer is full, if none is in progress. RocksDB does not flush
    /// by itself.
    pub(super) fn flush_full_memtable(&self) {
        if self.in_memory.load(Ordering::Relaxed) >= self.config.write_buffer {
            // the next write reports the same error
            let _ = self.begin_flush();
        }
    }

    /// Begins a flush. Returns `false` if one is in progress.
    fn begin_flush(&self) -> Result<bool, StoreWriteRejection> {
        let begun = self.rocks.begin_flush();
        self.record_write_result(begun.clone().map(drop))?;
        let begun = begun == Ok(true);
        if begun {
            self.in_memory.store(0, Ordering::Relaxed);
            self.update_family_limits();
        }
        Ok(begun)
    }

    /// Writes the memtables to disk, and retries failed writes. The owner calls it periodically,
    /// and more often while nothing is stored.
    pub fn flush(&self) -> Result<(), StoreWriteRejection> {
        if let Some(failure) = self.rocks.background_error() {
            self.resume_failed_writes(&failure)?;
        }
        if lock_ignoring_poison(&self.storing).off.is_some() {
            self.unflushed.store(true, Ordering::SeqCst);
        }
        self.flush_unwritten_entries()?;
        self.update_family_limits();
        let mut lasting = lock_ignoring_poison(&self.lasting);
        if !lasting.rows.is_empty() {
            self.write_durable_rows(&mut lasting)?;
        }
        Ok(())
    }

    /// Resumes writing after a background error.
    fn resume_failed_writes(&self, failure: &RocksError) -> Result<(), StoreWriteRejection> {
        let reason = StoreWriteOutageReason::from(failure);
        lock_ignoring_poison(&self.storing).off = Some(reason.clone());
        // a retry would fill the disk for a moment, for all its users
        if failure.is_no_space() && self.free_disk_space() < self.memtable_bytes() + MIN_FREE_SPACE
        {
            return Err(StoreWriteRejection::Off(reason));
        }
        self.record_write_result(self.rocks.resume_database_writes())
    }

    /// Writes the memtables to disk if they have entries.
    pub(super) fn flush_unwritten_entries(&self) -> Result<(), StoreWriteRejection> {
        // callers that arrive during a flush wait until it is done
        let _flushing = lock_ignoring_poison(&self.flushing);
        if !self.unflushed.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        self.in_memory.store(0, Ordering::Relaxed);
        let sequence = self.rocks.newest_write_sequence();
        let flushed = if is_fault_injected_once(InjectedTestFault::FailFlush) {
            Err(RocksError::from_message("injected fault"))
        } else {
            self.rocks.flush()
        };
        match flushed {
            Ok(()) => self.record_flushed_sequence(sequence),
            Err(_) => self.unflushed.store(true, Ordering::SeqCst),
        }
        self.record_write_result(flushed)
    }

    /// Bytes of the memtables of all column families, including those that are being flushed.
    pub(super) fn memtable_bytes(&self) -> u64 {
        (0..self.config.family_options().len())
            .map(|family| {
                self.rocks
                    .rocks_family_property(family, "rocksdb.size-all-mem-tables")
            })
            .sum()
    }

    /// Bytes that are free on the disk for users other than root.
    fn free_disk_space(&self) -> u64 {
        rustix::fs::statvfs(&self.config.path)
            .map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Reads the list of SST files, updates the limits of the families, and determines the files
    /// that a quarter more of their class would evict. SST files are compacted as long as there is
    /// space for the longest one.
    pub(super) fn update_family_limits(&self) {
        let tables = LifetimeColumnFamily::ALL
            .map(|tables| self.rocks.sst_files(tables.column_family_number()));
        let used = tables
            .each_ref()
            .map(|tables| tables.iter().map(|table| table.size).sum());
        let wanted = self.config.allocate_family_space(used);
        let free = self.free_disk_space();
        let joins = free >= 2 * self.config.max_compacted_file() + MIN_FREE_SPACE;
        let mut room = lock_ignoring_poison(&self.room);
        let differs = |n: usize| wanted[n].abs_diff(room.sizes[n]) >= self.config.write_buffer;
        // RocksDB writes a file for each change of options
        if free >= MAX_OPTIONS_FILE && (differs(0) || differs(1) || joins != room.joins) {
            let set = |n: usize| {
                let family = LifetimeColumnFamily::ALL[n].column_family_number();
                self.rocks
                    .set_fifo_compaction_options(family, wanted[n], joins)
            };
            if set(0).is_ok() && set(1).is_ok() {
                *room = ColumnFamilySizeLimits {
                    sizes: wanted,
                    joins,
                };
            }
        }
        for (n, tables) in tables.iter().enumerate() {
            let size = if room.sizes[n] == 0 {
                u64::MAX
            } else {
                room.sizes[n]
            };
            self.old[n].store(
                first_young_sequence(tables, size / 4 * 3),
                Ordering::Relaxed,
            );
        }
    }
}

/// Returns the sequence number of the oldest write in the newest SST files with `young` bytes in
/// total; 0 if these are all files.
fn first_young_sequence(tables: &[rocks::SstFile], young: u64) -> u64 {
    let mut bytes = 0;
    let mut first = u64::MAX;
    for table in tables {
        if bytes >= young {
            return first;
        }
        bytes += table.size;
        first = first.min(table.smallest_sequence);
    }
    0
}
