//! `cache::store` behind the store interface of the owner.

use std::sync::{Arc, Mutex};

use serde::de::DeserializeOwned;

use super::disk::{DiskEntry, EntryBytes, EntryRecordAttributes, OwnerStore, ReadWouldBlock};
use super::record;
use super::tracker::{self, ChainIdentity, FinalityMark};
use crate::cache::clock::ClockReading;
use crate::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use crate::cache::store::{
    self, AdmissionFilter, DiskEntryStore, StoreHealthChange, StoreStatus, StoreWriteOutageReason,
    StoreWriteRejection,
};
use crate::cache::{CacheKey, CacheNamespace};
use crate::lock::lock_ignoring_poison;

/// Maximum number of keys that are remembered as filled once, and their maximum age in
/// milliseconds.
const ADMISSION_KEYS: usize = 1 << 20;
const ADMISSION_AGE: u64 = 24 * 3_600_000;

/// The owner's store on disk: a RocksDB store, and the filter that admits entries on their second
/// fill.
pub struct RocksOwnerStore {
    store: DiskEntryStore,
    admission: Mutex<AdmissionFilter>,
}

impl RocksOwnerStore {
    /// Creates the owner's interface to an open store, with an empty admission filter from `now`
    /// on.
    pub fn new(store: DiskEntryStore, now: ClockReading) -> Self {
        Self {
            store,
            admission: Mutex::new(AdmissionFilter::new(
                ADMISSION_KEYS,
                ADMISSION_AGE,
                now.monotonic,
            )),
        }
    }

    /// Returns the row keys of all chain records, and a failure if some may be missing.
    fn chain_record_keys(&self) -> (Vec<Vec<u8>>, Option<store::rocks::RocksError>) {
        let mut keys = Vec::new();
        for prefix in record::ROW_PREFIXES {
            match self.store.list_owner_keys_with_prefix(prefix) {
                Ok(found) => keys.extend(found),
                Err(failure) => return (keys, Some(failure)),
            }
        }
        (keys, None)
    }

    /// Returns the record under the row key `key`, if any.
    fn read_store_record<T: DeserializeOwned>(
        &self,
        key: &[u8],
    ) -> Result<Option<T>, StoreWriteRejection> {
        let row = self.store.read_owner_value(key);
        let row = row
            .map_err(|failure| StoreWriteRejection::Off(StoreWriteOutageReason::from(&failure)))?;
        let unreadable = || {
            let text = "the chain's record in the store is damaged";
            StoreWriteRejection::Off(StoreWriteOutageReason::Failed(text.into()))
        };
        row.map(|row| record::parse_chain_row(&row).ok_or_else(unreadable))
            .transpose()
    }
}

/// Converts a stored entry, whose bytes stay pinned in the store.
fn pinned_disk_entry(stored: store::StoredEntry) -> DiskEntry {
    DiskEntry {
        header: stored.header.clone(),
        is_old: stored.is_old,
        body: EntryBytes::Pinned(Arc::new(stored)),
    }
}

impl OwnerStore for RocksOwnerStore {
    fn purge_generation(&self) -> u64 {
        self.store.purge_generation()
    }

    fn read_entry(&self, key: &CacheKey, now: ClockReading) -> Option<DiskEntry> {
        self.store.get(key, now.unix).map(pinned_disk_entry)
    }

    fn read_entry_nonblocking(
        &self,
        key: &CacheKey,
        now: ClockReading,
    ) -> Result<Option<DiskEntry>, ReadWouldBlock> {
        let stored = self.store.get_without_disk(key, now.unix);
        Ok(stored?.map(pinned_disk_entry))
    }

    fn may_contain_key(&self, key: &CacheKey) -> bool {
        self.store.may_contain_key(key)
    }

    fn put_entry(
        &self,
        key: &CacheKey,
        header: &EntryRecordAttributes,
        body: &[u8],
    ) -> Result<(), StoreWriteRejection> {
        self.store.put_entry(key, header, body)
    }

    fn purge_entries(&self, scope: &PurgeScope) -> Result<u64, StoreWriteRejection> {
        let (keys, unread) = match scope {
            PurgeScope::Namespace(namespace) => (record::chain_row_keys(namespace).into(), None),
            PurgeScope::Everything => self.chain_record_keys(),
            _ => (Vec::new(), None),
        };
        // the purge is in effect, whatever could not be read
        let purged = self.store.purge_with_owner_rows(scope, keys)?;
        match unread {
            Some(failure) => Err(StoreWriteRejection::Off(StoreWriteOutageReason::from(
                &failure,
            ))),
            None => Ok(purged),
        }
    }

    fn read_chain_record(
        &self,
        namespace: &CacheNamespace,
    ) -> Result<tracker::ChainRecord, StoreWriteRejection> {
        let [chain, last] = record::chain_row_keys(namespace);
        Ok(tracker::ChainRecord {
            identity: self.read_store_record(&chain)?,
            mark: self.read_store_record(&last)?,
        })
    }

    fn record_chain_identity(
        &self,
        namespace: &CacheNamespace,
        identity: &ChainIdentity,
    ) -> Result<(), StoreWriteRejection> {
        let [chain, last] = record::chain_row_keys(namespace);
        let row = record::serialize_chain_row(identity);
        self.store
            .put_durable_rows(&[(&chain, Some(&row)), (&last, None)])
    }

    fn record_finality_mark(
        &self,
        namespace: &CacheNamespace,
        mark: Option<&FinalityMark>,
    ) -> Result<(), StoreWriteRejection> {
        let [_, last] = record::chain_row_keys(namespace);
        let row = mark.map(record::serialize_chain_row);
        self.store.put_row_without_flush(&last, row.as_deref())
    }

    fn is_entry_purged(&self, key: &CacheKey, about: &StoredEntryAttributes) -> bool {
        self.store.is_entry_purged(key, about)
    }

    fn record_fill_for_admission(&self, key: &CacheKey, now: ClockReading) -> bool {
        lock_ignoring_poison(&self.admission).record_key_request(key, now.monotonic)
    }

    fn flush_memtables(&self) -> Result<(), StoreWriteRejection> {
        self.store.flush()
    }

    fn drop_entries_older_than(&self, goes: u64, renews: u64, now: ClockReading) {
        // an event reports the failure, and the removal is tried again
        drop(self.store.drop_expired_sst_files(goes, renews, now.unix));
    }

    fn next_log_line(&self) -> Option<String> {
        Some(match self.store.next_store_health_change()? {
            StoreHealthChange::StoringOff(reason) => format!("disk writes stopped: {reason}"),
            StoreHealthChange::StoringOn => "disk writes resumed".into(),
        })
    }

    fn store_status(&self) -> StoreStatus {
        self.store.store_status()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::class::LifetimeClass;
    use crate::cache::owner::tracker::BlockHash;
    use crate::cache::store::StoreConfig;

    const NOW: ClockReading = ClockReading {
        monotonic: 10,
        unix: 1_000_000,
    };

    fn key(n: u64) -> CacheKey {
        *blake3::hash(&n.to_be_bytes()).as_bytes()
    }

    fn open(config: &StoreConfig) -> RocksOwnerStore {
        let (store, _) = DiskEntryStore::open_store(config, NOW.unix).unwrap();
        RocksOwnerStore::new(store, NOW)
    }

    fn put_test_entry(disk: &RocksOwnerStore, n: u64) {
        let header = EntryRecordAttributes {
            about: StoredEntryAttributes {
                class: LifetimeClass::Immutable,
                namespace: [1; 16],
                generation: NOW.unix,
                ..StoredEntryAttributes::default()
            },
            requested_at: NOW.unix,
            expires_at: NOW.unix + 1_000,
            is_shareable: false,
        };
        disk.put_entry(&key(n), &header, b"body").unwrap();
    }

    #[test]
    fn absent_keys_are_excluded_without_a_disk() {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig::new(folder.path(), 64 << 20);
        let mut disk = open(&config);
        for _ in 0..2 {
            for n in 0..1_000 {
                put_test_entry(&disk, n);
            }
            assert!((0..1_000).all(|n| disk.may_contain_key(&key(n))));
            disk.flush_memtables().unwrap();
            assert!((0..1_000).all(|n| disk.may_contain_key(&key(n))));
            let mistaken = (1_000..2_000).filter(|n| disk.may_contain_key(&key(*n)));
            assert!(mistaken.count() < 20);
            drop(disk);
            disk = open(&config);
            assert!((0..1_000).all(|n| disk.may_contain_key(&key(n))));
        }
    }

    #[test]
    fn entry_is_read_back_with_its_header_until_it_is_purged() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(&StoreConfig::new(folder.path(), 64 << 20));
        let about = StoredEntryAttributes {
            class: LifetimeClass::Resource,
            namespace: [1; 16],
            method: Some("eth_call".into()),
            block: Some(7),
            generation: disk.purge_generation(),
            ..StoredEntryAttributes::default()
        };
        let header = EntryRecordAttributes {
            about: about.clone(),
            requested_at: NOW.unix,
            expires_at: NOW.unix + 1_000,
            is_shareable: true,
        };
        disk.put_entry(&key(1), &header, b"body").unwrap();
        let found = disk.read_entry(&key(1), NOW).unwrap();
        assert_eq!(
            (found.header, found.body.as_ref()),
            (header.clone(), &b"body"[..])
        );
        assert!(!disk.is_entry_purged(&key(1), &about));
        let scope = PurgeScope::Method {
            namespace: None,
            method: "eth_call".into(),
        };
        assert_eq!(disk.purge_entries(&scope), Ok(about.generation + 1));
        assert!(disk.is_entry_purged(&key(1), &about));
        assert_eq!(disk.read_entry(&key(1), NOW), None);
        let again = disk.put_entry(&key(1), &header, b"body");
        assert_eq!(again, Err(StoreWriteRejection::Purged));
    }

    #[test]
    fn chain_record_is_removed_by_a_purge_of_its_namespace() {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig::new(folder.path(), 64 << 20);
        let mut disk = open(&config);
        let (one, other) = ([1; 16], [0xff; 16]);
        let none = tracker::ChainRecord::default();
        assert_eq!(disk.read_chain_record(&one).unwrap(), none);
        let record = |hash: BlockHash| tracker::ChainRecord {
            identity: Some(ChainIdentity {
                chain_id: Some(5),
                genesis: hash,
            }),
            mark: Some(FinalityMark { number: 9, hash }),
        };
        let keep = |disk: &RocksOwnerStore, namespace, record: &tracker::ChainRecord| {
            disk.record_chain_identity(&namespace, &record.identity.unwrap())
                .unwrap();
            assert_eq!(disk.read_chain_record(&namespace).unwrap().mark, None);
            disk.record_finality_mark(&namespace, record.mark.as_ref())
                .unwrap();
        };
        keep(&disk, one, &record([7; 32]));
        keep(&disk, other, &record([8; 32]));
        // a mark is not flushed on its own; an entry flushes it too
        put_test_entry(&disk, 1);
        disk.flush_memtables().unwrap();
        drop(disk);
        disk = open(&config);
        assert_eq!(disk.read_chain_record(&one).unwrap(), record([7; 32]));
        assert_eq!(disk.read_chain_record(&other).unwrap(), record([8; 32]));
        let blocks = PurgeScope::Blocks {
            namespace: one,
            from: 0,
            to: u64::MAX,
        };
        disk.purge_entries(&blocks).unwrap();
        assert_eq!(disk.read_chain_record(&one).unwrap(), record([7; 32]));
        disk.record_finality_mark(&one, None).unwrap();
        assert_eq!(disk.read_chain_record(&one).unwrap().mark, None);
        disk.purge_entries(&PurgeScope::Namespace(one)).unwrap();
        assert_eq!(disk.read_chain_record(&one).unwrap(), none);
        assert_eq!(disk.read_chain_record(&other).unwrap(), record([8; 32]));
        keep(&disk, one, &record([7; 32]));
        disk.purge_entries(&PurgeScope::Everything).unwrap();
        drop(disk);
        disk = open(&config);
        assert_eq!(disk.read_chain_record(&one).unwrap(), none);
        assert_eq!(disk.read_chain_record(&other).unwrap(), none);
    }
}
