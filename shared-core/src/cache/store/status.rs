//! Status of the store, for metrics and the status page.

use std::sync::atomic::Ordering;

use serde::Serialize;

use super::config::LifetimeColumnFamily;
use super::entries::DiskEntryStore;
use super::rocks::RocksWrittenBytes;
use super::store_health::StoreWriteOutageReason;
use crate::lock::lock_ignoring_poison;

/// The sizes, counts and health of the store at one moment, as the owner's status reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreStatus {
    /// Approximate number of entries. Entries that were stored twice count twice until their SST
    /// files are compacted, purged ones until they are removed.
    pub entries: u64,
    /// Bytes of SST files on disk.
    #[serde(rename = "bytes")]
    pub disk: u64,
    /// Bytes in memtables.
    pub memory: u64,
    /// Bytes written since the database was opened.
    #[serde(flatten)]
    pub written: RocksWrittenBytes,
    /// Number of lookups that found an unreadable or invalid record.
    pub read_errors: u64,
    /// Number of lookups that found a purged entry.
    pub refused: u64,
    /// Number of entries that were not stored because the memtables were full.
    pub busy: u64,
    /// Reason why nothing is stored; `None` while entries are stored.
    pub off: Option<StoreWriteOutageReason>,
}

impl DiskEntryStore {
    /// Reads the sizes, counts and health of the store. It is cheap enough for one call per second.
    pub fn store_status(&self) -> StoreStatus {
        let sum = |property: &str, families: &[usize]| {
            let of = |family: &usize| self.rocks.rocks_family_property(*family, property);
            families.iter().map(of).sum()
        };
        let all: Vec<_> = (0..self.config.family_options().len()).collect();
        let off = lock_ignoring_poison(&self.storing).off.clone();
        StoreStatus {
            entries: sum(
                "rocksdb.estimate-num-keys",
                &LifetimeColumnFamily::ALL.map(LifetimeColumnFamily::column_family_number),
            ),
            disk: sum("rocksdb.total-sst-files-size", &all),
            memory: self.memtable_bytes(),
            written: self.rocks.rocks_written_bytes(),
            read_errors: self.read_errors.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            busy: self.busy.load(Ordering::Relaxed),
            off: off.or_else(|| {
                self.rocks
                    .background_error()
                    .as_ref()
                    .map(StoreWriteOutageReason::from)
            }),
        }
    }
}
