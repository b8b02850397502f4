//! A store of the owner in memory, without limits.

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
    entries: Mutex<BTreeMap<CacheKey, DiskEntry>>,
    purges: Mutex<Vec<(u64, PurgeScope)>>,
}

/// The store of an owner, over contents that outlive the owner.
#[derive(Debug)]
pub struct MemoryStore {
    pub contents: Arc<StoreContents>,
    /// Whether the entry of a key, if there is one, can't be read without waiting.
    pub read_waits: fn(&CacheKey) -> bool,
}

impl OwnerStore for MemoryStore {
    fn purge_generation(&self) -> u64 {
        FIRST_GENERATION + self.contents.purges.lock().unwrap().len() as u64
    }

    fn read_entry(&self, key: &CacheKey, _: ClockReading) -> Option<DiskEntry> {
        let stored = self.contents.entries.lock().unwrap().get(key).cloned()?;
        (!self.is_entry_purged(key, &stored.header.about)).then_some(stored)
    }

    fn read_entry_nonblocking(
        &self,
        key: &CacheKey,
        now: ClockReading,
    ) -> Result<Option<DiskEntry>, ReadWouldBlock> {
        match self.may_contain_key(key) && (self.read_waits)(key) {
            true => Err(ReadWouldBlock),
            false => Ok(self.read_entry(key, now)),
        }
    }

    fn may_contain_key(&self, key: &CacheKey) -> bool {
        self.contents.entries.lock().unwrap().contains_key(key)
    }

    fn put_entry(
        &self,
        key: &CacheKey,
        header: &EntryRecordAttributes,
        body: &[u8],
    ) -> Result<(), StoreWriteRejection> {
        assert!(header.about.class.is_storable_on_disk());
        let stored = DiskEntry {
            header: header.clone(),
            body: EntryBytes::Pinned(Arc::new(body.to_vec())),
            is_old: false,
        };
        self.contents.entries.lock().unwrap().insert(*key, stored);
        Ok(())
    }

    fn purge_entries(&self, scope: &PurgeScope) -> Result<u64, StoreWriteRejection> {
        let mut purges = self.contents.purges.lock().unwrap();
        let generation = FIRST_GENERATION + purges.len() as u64 + 1;
        purges.push((generation, scope.clone()));
        Ok(generation)
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

    fn record_fill_for_admission(&self, _: &CacheKey, _: ClockReading) -> bool {
        true
    }

    fn flush_memtables(&self) -> Result<(), StoreWriteRejection> {
        Ok(())
    }

    fn drop_entries_older_than(&self, _: u64, _: u64, _: ClockReading) {}

    fn next_log_line(&self) -> Option<String> {
        None
    }

    fn store_status(&self) -> StoreStatus {
        StoreStatus::default()
    }
}
