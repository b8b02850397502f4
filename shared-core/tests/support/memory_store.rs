//! A store of the owner in memory, over a disk that a test simulates.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sszip_core::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use sszip_core::cache::owner::disk::{
    DiskEntry, EntryBytes, EntryRecordAttributes, OwnerStore, ReadWouldBlock, StoreStatus,
    StoreWriteRejection,
};
use sszip_core::cache::owner::tracker::{ChainIdentity, ChainRecord, FinalityMark};
use sszip_core::cache::owner::ClockReading;
use sszip_core::cache::{CacheKey, CacheNamespace};

/// Generation of a store without purges.
const FIRST_GENERATION: u64 = 5;

/// The contents of a store, which outlive the owners that use it.
#[derive(Debug, Default)]
pub struct StoreContents {
    pub entries: Mutex<BTreeMap<CacheKey, DiskEntry>>,
    purges: Mutex<Vec<(u64, PurgeScope)>>,
}

impl StoreContents {
    pub fn contains_key(&self, key: &CacheKey) -> bool {
        self.entries.lock().unwrap().contains_key(key)
    }
}

/// The disk of a store: its delays, its failures, and the entries that are worth a write.
pub trait SimulatedDisk: Send + Sync {
    /// Whether the entry of a key, if there is one, can't be read without waiting.
    fn would_block(&self, key: &CacheKey) -> bool;

    /// Waits until the disk can read or write.
    fn wait(&self) {}

    /// Returns the error of a write of `length` bytes, if the disk rejects it.
    fn check_write(&self, _length: usize) -> Result<(), StoreWriteRejection> {
        Ok(())
    }

    /// Records a fill, and returns whether its entry is worth a write.
    fn record_fill(&self, _key: &CacheKey) -> bool {
        true
    }
}

impl<F: Fn(&CacheKey) -> bool + Send + Sync> SimulatedDisk for F {
    fn would_block(&self, key: &CacheKey) -> bool {
        self(key)
    }
}

/// The store of an owner, over contents that outlive the owner.
pub struct MemoryStore {
    pub contents: Arc<StoreContents>,
    pub disk: Box<dyn SimulatedDisk>,
}

impl MemoryStore {
    fn find_unpurged(&self, key: &CacheKey) -> Option<DiskEntry> {
        let stored = self.contents.entries.lock().unwrap().get(key).cloned()?;
        (!self.is_entry_purged(key, &stored.header.about)).then_some(stored)
    }
}

impl OwnerStore for MemoryStore {
    fn purge_generation(&self) -> u64 {
        FIRST_GENERATION + self.contents.purges.lock().unwrap().len() as u64
    }

    fn read_entry(&self, key: &CacheKey, _: ClockReading) -> Option<DiskEntry> {
        self.disk.wait();
        self.find_unpurged(key)
    }

    fn read_entry_nonblocking(
        &self,
        key: &CacheKey,
        _: ClockReading,
    ) -> Result<Option<DiskEntry>, ReadWouldBlock> {
        match self.may_contain_key(key) && self.disk.would_block(key) {
            true => Err(ReadWouldBlock),
            false => Ok(self.find_unpurged(key)),
        }
    }

    fn may_contain_key(&self, key: &CacheKey) -> bool {
        self.contents.contains_key(key)
    }

    fn put_entry(
        &self,
        key: &CacheKey,
        header: &EntryRecordAttributes,
        body: &[u8],
    ) -> Result<(), StoreWriteRejection> {
        assert!(header.about.class.is_storable_on_disk());
        self.disk.wait();
        self.disk.check_write(body.len())?;
        let stored = DiskEntry {
            header: header.clone(),
            body: EntryBytes::Pinned(Arc::new(body.to_vec())),
            is_old: false,
        };
        self.contents.entries.lock().unwrap().insert(*key, stored);
        Ok(())
    }

    fn purge_entries(&self, scope: &PurgeScope) -> Result<u64, StoreWriteRejection> {
        self.disk.wait();
        let mut purges = self.contents.purges.lock().unwrap();
        let generation = FIRST_GENERATION + purges.len() as u64 + 1;
        purges.push((generation, scope.clone()));
        self.disk.check_write(0).map(|()| generation)
    }

    fn read_chain_record(&self, _: &CacheNamespace) -> Result<ChainRecord, StoreWriteRejection> {
        Ok(ChainRecord::default())
    }

    fn record_chain_identity(
        &self,
        _: &CacheNamespace,
        _: &ChainIdentity,
    ) -> Result<(), StoreWriteRejection> {
        Ok(())
    }

    fn record_finality_mark(
        &self,
        _: &CacheNamespace,
        _: Option<&FinalityMark>,
    ) -> Result<(), StoreWriteRejection> {
        Ok(())
    }

    fn is_entry_purged(&self, key: &CacheKey, about: &StoredEntryAttributes) -> bool {
        let purges = self.contents.purges.lock().unwrap();
        purges.iter().any(|(generation, scope)| {
            about.generation < *generation && scope.covers_entry(key, about)
        })
    }

    fn record_fill_for_admission(&self, key: &CacheKey, _: ClockReading) -> bool {
        self.disk.record_fill(key)
    }

    fn flush_memtables(&self) -> Result<(), StoreWriteRejection> {
        Ok(())
    }

    fn drop_entries_older_than(&self, goes: u64, renews: u64, now: ClockReading) {
        let mut entries = self.contents.entries.lock().unwrap();
        entries.retain(|_, stored| now.unix < stored.header.requested_at + goes);
        for stored in entries.values_mut() {
            stored.is_old = now.unix >= stored.header.requested_at + renews;
        }
    }

    fn next_log_line(&self) -> Option<String> {
        None
    }

    fn store_status(&self) -> StoreStatus {
        StoreStatus::default()
    }
}
