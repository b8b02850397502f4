//! Durable writes: purges, and rows of the owner.
//!
//! A durable write is flushed at once, with all writes before it, and is then counted in the marker
//! file.

use std::sync::atomic::Ordering;

use super::config::CONTROL_FAMILY;
use super::control::{self, DurableWriteQueue};
use super::entries::{DiskEntryStore, StoreWriteRejection};
use super::rocks::{RocksError, RowChange};
use crate::cache::entry::store_attributes::PurgeScope;
use crate::faults::{abort_if_injected, InjectedTestFault};
use crate::lock::{lock_ignoring_poison, write_ignoring_poison};

impl DiskEntryStore {
    /// Purges the entries in `scope` that were requested from the node before. From this call on
    /// they are not found. If it returns `Ok`, the purge is durable. After an error it is in effect
    /// until this process ends: it must not be acknowledged, and may be retried. Returns the
    /// generation: matching entries of an older one are purged.
    pub fn purge_entries(&self, scope: &PurgeScope) -> Result<u64, StoreWriteRejection> {
        self.purge_with_owner_rows(scope, Vec::new())
    }

    /// Purges like [`purge_entries`](Self::purge_entries), and removes the owner's rows of `keys`
    /// in the same write.
    pub fn purge_with_owner_rows(
        &self,
        scope: &PurgeScope,
        keys: Vec<Vec<u8>>,
    ) -> Result<u64, StoreWriteRejection> {
        let mut lasting = lock_ignoring_poison(&self.lasting);
        let (generation, changes) = write_ignoring_poison(&self.purges).add_purge(scope);
        for (row, generation) in changes {
            let value = generation.map(|at| at.to_be_bytes().to_vec());
            lasting.rows.insert(control::purge_row_key(&row), value);
        }
        for key in keys {
            lasting.rows.insert(control::owner_row_key(&key), None);
        }
        self.write_durable_rows(&mut lasting)?;
        Ok(generation)
    }

    /// Stores or removes (`None`) values of the owner by key, all or none, and as durable as a
    /// purge.
    pub fn put_durable_rows(
        &self,
        rows: &[(&[u8], Option<&[u8]>)],
    ) -> Result<(), StoreWriteRejection> {
        let mut lasting = lock_ignoring_poison(&self.lasting);
        for (key, value) in rows {
            let value = value.map(<[u8]>::to_vec);
            lasting.rows.insert(control::owner_row_key(key), value);
        }
        self.write_durable_rows(&mut lasting)
    }

    /// Stores or removes a value of the owner, as durable as an entry that is stored next: no crash
    /// keeps that entry and loses this value. It does not flush.
    pub fn put_row_without_flush(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), StoreWriteRejection> {
        let mut lasting = lock_ignoring_poison(&self.lasting);
        let key = control::owner_row_key(key);
        // a waiting older row must not be written later
        lasting.rows.remove(&key);
        let write = match value {
            Some(value) => RowChange::Put {
                family: CONTROL_FAMILY,
                key: &key,
                value: [value, &[]],
            },
            None => RowChange::Remove {
                family: CONTROL_FAMILY,
                key: &key,
            },
        };
        self.reserve_memtable_space((key.len() + value.unwrap_or_default().len()) as u64)?;
        let written = self.rocks.write(&[write], false);
        self.record_write_result(written)?;
        self.flush_full_memtable();
        Ok(())
    }

    /// Reads the value that the owner has stored under `key`; `None` if there is none.
    pub fn read_owner_value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RocksError> {
        let value = self
            .rocks
            .get(CONTROL_FAMILY, &control::owner_row_key(key), false)?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// Returns the owner's keys that begin with `prefix` (not with 255).
    pub fn list_owner_keys_with_prefix(&self, prefix: &[u8]) -> Result<Vec<Vec<u8>>, RocksError> {
        let first = control::owner_row_key(prefix);
        let end = [&first[..], &[0xff; 40]].concat();
        let mut keys = Vec::new();
        let mut rows = self.rocks.iterate_key_range(CONTROL_FAMILY, &first, &end)?;
        while let Some((row, _)) = rows.next_row()? {
            keys.extend(control::owner_key_of_row(row).map(<[u8]>::to_vec));
        }
        Ok(keys)
    }

    /// Writes all waiting rows to disk, with all writes before them: otherwise a crash could keep
    /// later writes and lose earlier ones.
    pub(super) fn write_durable_rows(
        &self,
        lasting: &mut DurableWriteQueue,
    ) -> Result<(), StoreWriteRejection> {
        let serial = lasting.marker.serial + 1;
        let number = serial.to_be_bytes();
        let mut writes = vec![RowChange::Put {
            family: CONTROL_FAMILY,
            key: control::SERIAL_ROW,
            value: [&number, &[]],
        }];
        writes.extend(lasting.rows.iter().map(|(key, value)| match value {
            Some(value) => RowChange::Put {
                family: CONTROL_FAMILY,
                key,
                value: [value, &[]],
            },
            None => RowChange::Remove {
                family: CONTROL_FAMILY,
                key,
            },
        }));
        self.record_write_result(self.rocks.write(&writes, false))?;
        self.unflushed.store(true, Ordering::SeqCst);
        abort_if_injected(InjectedTestFault::DieUnflushed);
        self.flush_unwritten_entries()?;
        abort_if_injected(InjectedTestFault::DieWritten);
        // the database may be one write ahead of its marker, but not behind
        lasting.marker.serial = serial;
        let marker = lasting.marker.write_marker_file(&self.config.path);
        marker.map_err(|error| StoreWriteRejection::Marker(error.to_string()))?;
        lasting.rows.clear();
        Ok(())
    }
}
