//! `cache::store` behind the store interface of the owner.

use std::sync::{Arc, Mutex};

use serde::de::DeserializeOwned;

use super::clock::CallTime;
use super::disk::{DiskEntry, EntryBytes, OwnerStore, RecordHeader, WouldBlock};
use super::record;
use super::tracker::{self, ChainIdentity, FinalityMark};
use crate::cache::entry::store_attributes::{PurgeScope, StoreAttributes};
use crate::cache::store::{
    self, AdmissionFilter, Store, StoreError, StoreHealthChange, StoreStatus, WriteError,
};
use crate::cache::{Key, Namespace};
use crate::lock::lock_ignoring_poison;

/// Maximum number of keys that are remembered as filled once, and their maximum age in
/// milliseconds.
const ADMISSION_KEYS: usize = 1 << 20;
const ADMISSION_AGE: u64 = 24 * 3_600_000;

/// The owner's store on disk: a RocksDB store, and the filter that admits entries on their second
/// fill.
pub struct StoreDisk {
    store: Store,
    admission: Mutex<AdmissionFilter>,
}

impl StoreDisk {
    /// Creates the owner's interface to an open store, with an empty admission filter from `now`
    /// on.
    pub fn new(store: Store, now: CallTime) -> Self {
        Self {
            store,
            admission: Mutex::new(AdmissionFilter::new(
                ADMISSION_KEYS,
                ADMISSION_AGE,
                now.monotonic,
            )),
        }
    }

    /// The row keys of all chain records, and a failure if some may be missing.
    fn record_keys(&self) -> (Vec<Vec<u8>>, Option<store::rocks::RocksError>) {
        let mut keys = Vec::new();
        for prefix in record::ROW_PREFIXES {
            match self.store.control_keys(prefix) {
                Ok(found) => keys.extend(found),
                Err(failure) => return (keys, Some(failure)),
            }
        }
        (keys, None)
    }

    /// The record under the row key `key`, if any.
    fn read_record<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>, StoreError> {
        let row = self.store.control_get(key);
        let row = row.map_err(|failure| StoreError::Off(WriteError::from(&failure)))?;
        let unreadable = || {
            let text = "the chain's record in the store is damaged";
            StoreError::Off(WriteError::Failed(text.into()))
        };
        row.map(|row| record::parse_row(&row).ok_or_else(unreadable))
            .transpose()
    }
}

/// A stored entry whose bytes stay pinned in the store.
fn pin_entry(stored: store::StoredEntry) -> DiskEntry {
    DiskEntry {
        header: stored.header.clone(),
        is_old: stored.is_old,
        body: EntryBytes::Pinned(Arc::new(stored)),
    }
}

impl OwnerStore for StoreDisk {
    fn purge_generation(&self) -> u64 {
        self.store.purge_generation()
    }

    fn get(&self, key: &Key, now: CallTime) -> Option<DiskEntry> {
        self.store.get(key, now.unix).map(pin_entry)
    }

    fn get_ready(&self, key: &Key, now: CallTime) -> Result<Option<DiskEntry>, WouldBlock> {
        let stored = self.store.get_nonblocking(key, now.unix);
        Ok(stored?.map(pin_entry))
    }

    fn may_have(&self, key: &Key) -> bool {
        self.store.may_contain(key)
    }

    fn put_entry(&self, key: &Key, header: &RecordHeader, body: &[u8]) -> Result<(), StoreError> {
        self.store.put_entry(key, header, body)
    }

    fn purge_entries(&self, scope: &PurgeScope) -> Result<u64, StoreError> {
        let (keys, unread) = match scope {
            PurgeScope::Namespace(namespace) => (record::row_keys(namespace).into(), None),
            PurgeScope::Everything => self.record_keys(),
            _ => (Vec::new(), None),
        };
        // the purge is in effect, whatever could not be read
        let purged = self.store.purge_with_owner_rows(scope, keys)?;
        match unread {
            Some(failure) => Err(StoreError::Off(WriteError::from(&failure))),
            None => Ok(purged),
        }
    }

    fn read_chain_record(&self, namespace: &Namespace) -> Result<tracker::ChainRecord, StoreError> {
        let [chain, last] = record::row_keys(namespace);
        Ok(tracker::ChainRecord {
            identity: self.read_record(&chain)?,
            mark: self.read_record(&last)?,
        })
    }

    fn record_identity(
        &self,
        namespace: &Namespace,
        identity: &ChainIdentity,
    ) -> Result<(), StoreError> {
        let [chain, last] = record::row_keys(namespace);
        let row = record::serialize_row(identity);
        self.store
            .put_durable(&[(&chain, Some(&row)), (&last, None)])
    }

    fn record_mark(
        &self,
        namespace: &Namespace,
        mark: Option<&FinalityMark>,
    ) -> Result<(), StoreError> {
        let [_, last] = record::row_keys(namespace);
        let row = mark.map(record::serialize_row);
        self.store.put_with_next_flush(&last, row.as_deref())
    }

    fn is_purged(&self, key: &Key, about: &StoreAttributes) -> bool {
        self.store.is_entry_purged(key, about)
    }

    fn record_fill(&self, key: &Key, now: CallTime) -> bool {
        lock_ignoring_poison(&self.admission).record_request(key, now.monotonic)
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.store.flush()
    }

    fn drop_older_than(&self, goes: u64, renews: u64, now: CallTime) {
        // an event reports the failure, and the removal is tried again
        drop(self.store.drop_expired_files(goes, renews, now.unix));
    }

    fn next_log_line(&self) -> Option<String> {
        Some(match self.store.next_health_change()? {
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
    use crate::cache::class::Class;
    use crate::cache::owner::tracker::BlockHash;
    use crate::cache::store::StoreConfig;

    const NOW: CallTime = CallTime {
        monotonic: 10,
        unix: 1_000_000,
    };

    fn key(n: u64) -> Key {
        *blake3::hash(&n.to_be_bytes()).as_bytes()
    }

    fn open(config: &StoreConfig) -> StoreDisk {
        let (store, _) = Store::open_store(config, NOW.unix).unwrap();
        StoreDisk::new(store, NOW)
    }

    fn put_test_entry(disk: &StoreDisk, n: u64) {
        let header = RecordHeader {
            about: StoreAttributes {
                class: Class::Immutable,
                namespace: [1; 16],
                generation: NOW.unix,
                ..StoreAttributes::default()
            },
            stored_at: NOW.unix,
            expires_at: NOW.unix + 1_000,
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
            assert!((0..1_000).all(|n| disk.may_have(&key(n))));
            disk.flush().unwrap();
            assert!((0..1_000).all(|n| disk.may_have(&key(n))));
            let mistaken = (1_000..2_000).filter(|n| disk.may_have(&key(*n)));
            assert!(mistaken.count() < 20);
            drop(disk);
            disk = open(&config);
            assert!((0..1_000).all(|n| disk.may_have(&key(n))));
        }
    }

    #[test]
    fn entry_is_read_back_with_its_header_until_it_is_purged() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(&StoreConfig::new(folder.path(), 64 << 20));
        let about = StoreAttributes {
            class: Class::Resource,
            namespace: [1; 16],
            method: Some("eth_call".into()),
            block: Some(7),
            generation: disk.purge_generation(),
            ..StoreAttributes::default()
        };
        let header = RecordHeader {
            about: about.clone(),
            stored_at: NOW.unix,
            expires_at: NOW.unix + 1_000,
        };
        disk.put_entry(&key(1), &header, b"body").unwrap();
        let found = disk.get(&key(1), NOW).unwrap();
        assert_eq!(
            (found.header, found.body.as_ref()),
            (header.clone(), &b"body"[..])
        );
        assert!(!disk.is_purged(&key(1), &about));
        let scope = PurgeScope::Method {
            namespace: None,
            method: "eth_call".into(),
        };
        assert_eq!(disk.purge_entries(&scope), Ok(about.generation + 1));
        assert!(disk.is_purged(&key(1), &about));
        assert_eq!(disk.get(&key(1), NOW), None);
        let again = disk.put_entry(&key(1), &header, b"body");
        assert_eq!(again, Err(StoreError::Purged));
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
        let keep = |disk: &StoreDisk, namespace, record: &tracker::ChainRecord| {
            disk.record_identity(&namespace, &record.identity.unwrap())
                .unwrap();
            assert_eq!(disk.read_chain_record(&namespace).unwrap().mark, None);
            disk.record_mark(&namespace, record.mark.as_ref()).unwrap();
        };
        keep(&disk, one, &record([7; 32]));
        keep(&disk, other, &record([8; 32]));
        // a mark is not flushed on its own; an entry flushes it too
        put_test_entry(&disk, 1);
        disk.flush().unwrap();
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
        disk.record_mark(&one, None).unwrap();
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
