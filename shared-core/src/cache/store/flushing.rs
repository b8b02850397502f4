//! What lies in memory goes to the disk, and a full disk is tried again.

use std::sync::atomic::Ordering;

use super::config::{Room, Tables};
use super::entries::{Store, StoreError};
use super::rocks::{self, Failure};
use super::storing::Reason;
use crate::faults::{injected_once, Fault};
use crate::lock::locked;

/// What a row of a memtable takes beside its key and value, in bytes.
const ROW: u64 = 64;

/// What RocksDB writes beside tables, in bytes: neither is a join begun with less,
/// nor a full disk tried again.
const BESIDE: u64 = 8 << 20;

/// What it writes when it is told how to go on, in bytes, and much more.
const CHANGE: u64 = 1 << 20;

impl Store {
    /// Makes room in memory for a row of `length` bytes. To be called before the
    /// write, and [`flush_if_full`](Self::flush_if_full) after it.
    ///
    /// # Errors
    /// [`StoreError::Busy`]: the disk is behind.
    pub(super) fn take(&self, length: u64) -> Result<(), StoreError> {
        let length = length + ROW;
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
        Err(StoreError::Busy)
    }

    /// Begins a flush when a write buffer is full, if none is on its way: RocksDB
    /// does not by itself.
    pub(super) fn flush_if_full(&self) {
        if self.in_memory.load(Ordering::Relaxed) >= self.config.write_buffer {
            // what keeps it from flushing, the next write meets too
            let _ = self.begin_flush();
        }
    }

    /// `false`: one is on its way.
    fn begin_flush(&self) -> Result<bool, StoreError> {
        let begun = self.rocks.begin_flush();
        self.judge(begun.clone().map(drop))?;
        let begun = begun == Ok(true);
        if begun {
            self.in_memory.store(0, Ordering::Relaxed);
            self.look_over();
        }
        Ok(begun)
    }

    /// To be called now and then, and more often while nothing is stored: writes
    /// what is in memory onto the disk, and tries again what could not be written.
    pub fn flush(&self) -> Result<(), StoreError> {
        if let Some(failure) = self.rocks.background_error() {
            self.resume(&failure)?;
        }
        if locked(&self.storing).off.is_some() {
            self.unflushed.store(true, Ordering::SeqCst);
        }
        self.flush_entries()?;
        self.look_over();
        let mut lasting = locked(&self.lasting);
        if !lasting.rows.is_empty() {
            self.write_lasting(&mut lasting)?;
        }
        Ok(())
    }

    /// Tries to write again.
    fn resume(&self, failure: &Failure) -> Result<(), StoreError> {
        let reason = Reason::from(failure);
        locked(&self.storing).off = Some(reason.clone());
        // a try would fill the disk, for a moment, for all who share it
        if failure.is_no_space() && self.free() < self.memtables() + BESIDE {
            return Err(StoreError::Off(reason));
        }
        self.judge(self.rocks.resume())
    }

    /// Writes what is in memory onto the disk, unless nothing is.
    pub(super) fn flush_entries(&self) -> Result<(), StoreError> {
        // whoever comes while others flush must not go on before they are done
        let _flushing = locked(&self.flushing);
        if !self.unflushed.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        self.in_memory.store(0, Ordering::Relaxed);
        let sequence = self.rocks.sequence();
        let flushed = if injected_once(Fault::FailFlush) {
            Err(Failure::other("injected fault"))
        } else {
            self.rocks.flush()
        };
        match flushed {
            Ok(()) => self.note_flush(sequence),
            Err(_) => self.unflushed.store(true, Ordering::SeqCst),
        }
        self.judge(flushed)
    }

    /// Bytes in memtables.
    pub(super) fn memtables(&self) -> u64 {
        (0..self.config.families().len())
            .map(|family| self.rocks.property(family, "rocksdb.size-all-mem-tables"))
            .sum()
    }

    /// Bytes that are free on the disk, for those who are not root.
    fn free(&self) -> u64 {
        rustix::fs::statvfs(&self.config.path)
            .map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Looks what tables there are, shares their room out again, and sees
    /// which of them a quarter more of their class would drive out. Tables are
    /// joined as long as there is room for the longest.
    pub(super) fn look_over(&self) {
        let tables = Tables::ALL.map(|tables| self.rocks.tables(tables.family()));
        let used = tables
            .each_ref()
            .map(|tables| tables.iter().map(|table| table.size).sum());
        let wanted = self.config.share_out(used);
        let free = self.free();
        let joins = free >= 2 * self.config.joined() + BESIDE;
        let mut room = locked(&self.room);
        let differs = |n: usize| wanted[n].abs_diff(room.sizes[n]) >= self.config.write_buffer;
        // a change is a file that RocksDB writes
        if free >= CHANGE && (differs(0) || differs(1) || joins != room.joins) {
            let set = |n: usize| {
                let family = Tables::ALL[n].family();
                self.rocks.set_fifo(family, wanted[n], joins)
            };
            if set(0).is_ok() && set(1).is_ok() {
                *room = Room {
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
            self.old[n].store(first_young(tables, size / 4 * 3), Ordering::Relaxed);
        }
    }
}

/// The oldest write in the newest tables that make up `young` bytes; 0 if that
/// is all of them.
fn first_young(tables: &[rocks::Table], young: u64) -> u64 {
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
