//! Reads and writes of entries.

use std::collections::BTreeMap;
#[cfg(feature = "faults")]
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use super::config::{ColumnFamilySizeLimits, LifetimeColumnFamily, StoreConfig};
use super::control::DurableWriteQueue;
#[cfg(feature = "faults")]
use super::marker;
use super::open::{StoreOpenError, StoreOpenOutcome};
use super::purges::PurgeRecords;
use super::record::EntryRecordAttributes;
use super::rocks::{PinnedValue, RocksDatabase, RocksError, RowChange};
use super::store_health::{StoreHealth, StoreHealthChange, StoreWriteOutageReason};
use super::{open, record};
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::CacheKey;
use crate::lock::{lock_ignoring_poison, read_ignoring_poison};

/// An open store of cache entries in RocksDB, with its purges, its limits and its health.
#[derive(Debug)]
pub struct DiskEntryStore {
    pub(super) rocks: Arc<RocksDatabase>,
    pub(super) config: StoreConfig,
    pub(super) purges: RwLock<PurgeRecords>,
    pub(super) lasting: Mutex<DurableWriteQueue>,
    pub(super) storing: Mutex<StoreHealth>,
    /// Whether there were writes since the last flush.
    pub(super) unflushed: AtomicBool,
    pub(super) flushing: Mutex<()>,
    /// Sequence numbers below which the entries of [`LifetimeColumnFamily::ALL`] are old: they are removed
    /// with the next SST files (`old`), or have reached their age (`aged`).
    pub(super) old: [AtomicU64; 2],
    pub(super) aged: [AtomicU64; 2],
    /// Sequence number of the newest write before the last flush.
    pub(super) flushed: AtomicU64,
    pub(super) room: Mutex<ColumnFamilySizeLimits>,
    /// Bytes written since the last flush began.
    pub(super) in_memory: AtomicU64,
    pub(super) read_errors: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) busy: AtomicU64,
}

/// The reason why an entry or a purge was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreWriteRejection {
    /// RocksDB can't write. [`DiskEntryStore::next_store_health_change`] reports it once, and the store recovers
    /// by itself.
    #[error("{0}")]
    Off(StoreWriteOutageReason),
    /// The memtables are full because a flush is in progress: a later write may succeed, and none
    /// waits.
    #[error("the disk is too slow: all memtables are full")]
    Busy,
    /// The entry is longer than [`StoreConfig::max_entry_length`], or its header is longer than 64 KiB.
    #[error("the entry is too large")]
    TooLarge,
    /// The entry was purged before it arrived.
    #[error("the entry was purged before it was stored")]
    Purged,
    /// The marker file could not be written; with the error.
    #[error("cannot write the marker file: {0}")]
    Marker(String),
}

/// An entry that a read has found in the store, with its body pinned in RocksDB's memory. It keeps
/// the database open, and the directory locked, until it is dropped.
#[derive(Debug)]
pub struct StoredEntry {
    value: PinnedValue,
    /// Header of the entry.
    pub header: EntryRecordAttributes,
    sequence: u64,
    body: usize,
    /// Whether the entry is in the oldest quarter of a full store, or old by
    /// [`DiskEntryStore::drop_expired_sst_files`]. It is removed soon unless it is stored again.
    pub is_old: bool,
}

impl StoredEntry {
    fn is_fresh(&self, now: u64) -> bool {
        self.header.expires_at > now
    }
}

/// Returns the newer entry; a key may have been stored in both families.
fn newer_entry(one: Option<StoredEntry>, other: Option<StoredEntry>) -> Option<StoredEntry> {
    let (Some(first), Some(second)) = (&one, &other) else {
        return one.or(other);
    };
    if first.sequence >= second.sequence {
        one
    } else {
        other
    }
}

/// The error of a read that has to wait for the disk, and was not permitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadWouldBlock;

/// The body, in RocksDB's memory.
impl AsRef<[u8]> for StoredEntry {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for StoredEntry {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.value[self.body..]
    }
}

impl DiskEntryStore {
    /// Opens the store in `config.path`, and creates one if there is none or the present one is
    /// damaged. `now` is in milliseconds since 1970.
    pub fn open_store(
        config: &StoreConfig,
        now: u64,
    ) -> Result<(Self, StoreOpenOutcome), StoreOpenError> {
        let opened = open::open_database(config, now)?;
        let store = Self {
            rocks: Arc::new(opened.rocks),
            config: config.clone(),
            purges: RwLock::new(opened.purges),
            lasting: Mutex::new(DurableWriteQueue {
                marker: opened.marker,
                rows: BTreeMap::new(),
            }),
            storing: Mutex::default(),
            unflushed: AtomicBool::new(false),
            flushing: Mutex::new(()),
            old: [const { AtomicU64::new(0) }; 2],
            aged: [const { AtomicU64::new(0) }; 2],
            flushed: AtomicU64::new(0),
            room: Mutex::default(),
            in_memory: AtomicU64::new(0),
            read_errors: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            busy: AtomicU64::new(0),
        };
        // all entries are in SST files
        store.record_flushed_sequence(store.rocks.newest_write_sequence());
        store.update_family_limits();
        Ok((store, opened.opening))
    }

    /// Stores `body` under `key`, and replaces the former entry. It can be read at once, and
    /// survives a crash from the next flush on.
    pub fn put_entry(
        &self,
        key: &CacheKey,
        header: &EntryRecordAttributes,
        body: &[u8],
    ) -> Result<(), StoreWriteRejection> {
        if body.len() as u64 > self.config.max_entry_length() {
            return Err(StoreWriteRejection::TooLarge);
        }
        if self.is_entry_purged(key, &header.about) {
            return Err(StoreWriteRejection::Purged);
        }
        let head =
            record::encode_record_head(key, header, self.rocks.newest_write_sequence(), body.len());
        let head = head.ok_or(StoreWriteRejection::TooLarge)?;
        let write = RowChange::Put {
            family: LifetimeColumnFamily::family_for_class(header.about.class)
                .column_family_number(),
            key,
            value: [&head, body],
        };
        let length = (key.len() + head.len() + body.len()) as u64;
        self.reserve_memtable_space(length)?;
        let written = self.rocks.write(&[write], self.config.log_entries);
        if written.is_ok() {
            // after the write: an acknowledged entry is written by the next flush that finds this
            // set
            self.unflushed.store(true, Ordering::SeqCst);
        }
        self.record_write_result(written)?;
        self.flush_full_memtable();
        Ok(())
    }

    /// Returns the entry of `key` if it is fresh at `now` (milliseconds since 1970). An unreadable
    /// entry is a miss, and counted.
    pub fn get(&self, key: &CacheKey, now: u64) -> Option<StoredEntry> {
        self.get_fresh_or_stale(key)
            .filter(|stored| stored.is_fresh(now))
    }

    /// Returns the fresh entry of `key` from memory and the page cache. It never waits for the
    /// disk.
    ///
    /// # Errors
    /// Returns [`ReadWouldBlock`] if [`get`](Self::get) has to read the disk.
    pub fn get_without_disk(
        &self,
        key: &CacheKey,
        now: u64,
    ) -> Result<Option<StoredEntry>, ReadWouldBlock> {
        let [one, other] = LifetimeColumnFamily::ALL.map(|tables| {
            match self.rocks.get(tables.column_family_number(), key, true) {
                // counted by the read that waits
                Err(_) => Err(ReadWouldBlock),
                Ok(value) => Ok(value.and_then(|value| self.decode_entry(key, tables, value))),
            }
        });
        Ok(newer_entry(one?, other?).filter(|stored| stored.is_fresh(now)))
    }

    /// Whether `key` may have an entry. It reads memory only, and never waits for the disk; it
    /// answers most lookups of absent keys.
    pub fn may_contain_key(&self, key: &CacheKey) -> bool {
        let mut families = LifetimeColumnFamily::ALL
            .map(LifetimeColumnFamily::column_family_number)
            .into_iter();
        families.any(|family| self.rocks.may_contain_key(family, key))
    }

    /// Returns the entry of `key`, fresh or stale, unless it was purged.
    pub fn get_fresh_or_stale(&self, key: &CacheKey) -> Option<StoredEntry> {
        let [one, other] = LifetimeColumnFamily::ALL.map(|tables| {
            match self.rocks.get(tables.column_family_number(), key, false) {
                Ok(value) => self.decode_entry(key, tables, value?),
                Err(_) => {
                    self.read_errors.fetch_add(1, Ordering::Relaxed);
                    None
                }
            }
        });
        newer_entry(one, other)
    }

    /// Decodes an entry. Returns `None` if it was purged or is damaged.
    fn decode_entry(
        &self,
        key: &CacheKey,
        tables: LifetimeColumnFamily,
        value: PinnedValue,
    ) -> Option<StoredEntry> {
        let Some((header, sequence, body)) = record::decode_entry_record(key, &value) else {
            self.read_errors.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        if self.is_entry_purged(key, &header.about) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let is_before =
            |old: &[AtomicU64; 2]| sequence < old[tables as usize].load(Ordering::Relaxed);
        Some(StoredEntry {
            is_old: is_before(&self.old) || is_before(&self.aged),
            value,
            header,
            sequence,
            body,
        })
    }

    /// Whether a purge covers the entry with these attributes under `key`.
    pub fn is_entry_purged(&self, key: &CacheKey, about: &StoredEntryAttributes) -> bool {
        read_ignoring_poison(&self.purges).is_entry_purged(key, about)
    }

    /// Returns the [`StoredEntryAttributes::generation`] of a request that is sent to the node now.
    pub fn purge_generation(&self) -> u64 {
        read_ignoring_poison(&self.purges).newest_purge_generation()
    }

    /// Flushes and closes the store. Dropping the last user flushes too, without a report of a
    /// failure.
    pub fn flush_and_close(self) -> Result<(), StoreWriteRejection> {
        self.flush()
    }

    /// Creates in the directory `to` the store that a power cut at this moment would leave: with
    /// the file names that were synced or, without `synced_names`, with all names. For tests; the
    /// environment needs `SSZIP_POWER_CUTS` when the store is opened.
    #[cfg(feature = "faults")]
    pub fn power_cut(&self, to: &std::path::Path, synced_names: bool) -> io::Result<()> {
        // copied first: a marker that is newer than the database would count as a loss
        std::fs::create_dir_all(to)?;
        marker::copy_marker_file(&self.config.path, to)?;
        if !self
            .rocks
            .power_cut(&to.join(open::DATABASE_FOLDER), synced_names)
        {
            return Err(io::Error::other("no power cut was prepared, or it failed"));
        }
        Ok(())
    }

    /// Takes the change of the store's health that has to be logged, or returns `None` if there is
    /// none.
    pub fn next_store_health_change(&self) -> Option<StoreHealthChange> {
        lock_ignoring_poison(&self.storing).next_store_health_change()
    }

    /// Translates the result of a write, and updates the health of the store.
    pub(super) fn record_write_result(
        &self,
        written: Result<(), RocksError>,
    ) -> Result<(), StoreWriteRejection> {
        match written {
            Ok(()) => {
                let mut storing = lock_ignoring_poison(&self.storing);
                // a memtable may accept a write that the disk does not yet
                if storing.off.is_some() && self.rocks.background_error().is_none() {
                    storing.off = None;
                }
                Ok(())
            }
            Err(failure) if failure.is_write_stalled() => {
                self.busy.fetch_add(1, Ordering::Relaxed);
                Err(StoreWriteRejection::Busy)
            }
            Err(failure) => {
                let reason = StoreWriteOutageReason::from(&failure);
                lock_ignoring_poison(&self.storing).off = Some(reason.clone());
                Err(StoreWriteRejection::Off(reason))
            }
        }
    }
}
