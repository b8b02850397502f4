//! Stores, and entries whose bodies identify them.

use std::path::Path;
use std::time::Duration;

use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::StoredEntryAttributes;
use sszip_core::cache::store::{
    DiskEntryStore, EntryRecordAttributes, StoreConfig, StoreOpenError, StoreOpenOutcome,
    StoreWriteRejection,
};
use sszip_core::cache::CacheKey;
use tempfile::TempDir;

/// Time of all operations, in milliseconds since 1970.
pub const NOW: u64 = 1_700_000_000_000;

pub const CHAIN: [u8; 16] = [1; 16];
pub const OTHER_CHAIN: [u8; 16] = [2; 16];

pub fn key(n: u64) -> CacheKey {
    *blake3::hash(&n.to_le_bytes()).as_bytes()
}

/// Returns bytes that no encoder shortens, different for each `n`.
pub fn body(n: u64, length: usize) -> Vec<u8> {
    let mut body = vec![0; length];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&n.to_le_bytes());
    hasher.finalize_xof().fill(&mut body);
    body
}

/// Returns the header of an entry of block `n`, fetched now.
pub fn header(store: &DiskEntryStore, n: u64) -> EntryRecordAttributes {
    EntryRecordAttributes {
        about: StoredEntryAttributes {
            class: LifetimeClass::Immutable,
            namespace: CHAIN,
            method: Some("eth_getBlockByNumber".into()),
            block: Some(n),
            generation: store.purge_generation(),
            epoch: 0,
            height: None,
        },
        requested_at: NOW,
        expires_at: u64::MAX,
        is_shareable: false,
    }
}

/// Stores entry `n`, as soon as the store accepts it.
pub fn put(store: &DiskEntryStore, n: u64, length: usize) {
    let body = body(n, length);
    for _ in 0..120_000 {
        match store.put_entry(&key(n), &header(store, n), &body) {
            Err(StoreWriteRejection::Busy) => std::thread::sleep(Duration::from_millis(1)),
            done => return done.unwrap(),
        }
    }
    panic!("busy for two minutes");
}

/// Returns whether entry `n` is found; if so, its bytes must equal [`body`].
pub fn has(store: &DiskEntryStore, n: u64) -> bool {
    let Some(stored) = store.get(&key(n), NOW) else {
        return false;
    };
    assert_eq!(&stored[..], &body(n, stored.len())[..], "{n}");
    assert_eq!(stored.header.about.block, Some(n));
    true
}

/// Counts the entries of `0..n` that are found.
pub fn count(store: &DiskEntryStore, n: u64) -> u64 {
    (0..n).map(|n| u64::from(has(store, n))).sum()
}

pub fn folder() -> TempDir {
    TempDir::with_prefix("sszip-store-").unwrap()
}

pub fn config(path: &Path) -> StoreConfig {
    StoreConfig::new(path.join("store"), 64 << 20)
}

/// Opens a store that this test has closed. A child process that another test has just forked
/// holds the lock until it executes its program.
pub fn try_open(
    config: &StoreConfig,
    now: u64,
) -> Result<(DiskEntryStore, StoreOpenOutcome), StoreOpenError> {
    for _ in 0..24_000 {
        match DiskEntryStore::open_store(config, now) {
            Err(StoreOpenError::Locked) => std::thread::sleep(Duration::from_millis(5)),
            opened => return opened,
        }
    }
    Err(StoreOpenError::Locked)
}

pub fn open(config: &StoreConfig) -> (DiskEntryStore, StoreOpenOutcome) {
    try_open(config, NOW).unwrap()
}

pub fn reopen(config: &StoreConfig) -> DiskEntryStore {
    let (store, opening) = open(config);
    assert_eq!(opening, StoreOpenOutcome::Reopened);
    store
}
