//! Full disks and read-only disks, as a tmpfs of the child process.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::store::{
    DiskEntryStore, StoreConfig, StoreHealthChange, StoreOpenError, StoreOpenOutcome,
    StoreWriteOutageReason, StoreWriteRejection, MIN_SIZE,
};

use super::child::start_in_mount_namespace;
use super::support::{body, folder, has, header, key, open, reopen, try_open, NOW};

fn mount(options: &str, on: &Path) {
    let status = Command::new("mount")
        .args(["-t", "tmpfs", "-o", options, "none"])
        .arg(on)
        .status()
        .unwrap();
    assert!(status.success(), "mount -o {options}");
}

/// Writes a file of `bytes`, or until the disk is full.
fn fill(path: &Path, bytes: usize) {
    let mut file = File::create(path).unwrap();
    let block = [0xff; 64 << 10];
    for _ in 0..bytes.div_ceil(block.len()) {
        if file.write_all(&block).is_err() {
            return;
        }
    }
}

/// Stores entry `n`, as soon as the store accepts it.
fn try_put(store: &DiskEntryStore, n: u64) -> Result<(), StoreWriteRejection> {
    let body = body(n, 20_000);
    for _ in 0..120_000 {
        match store.put_entry(&key(n), &header(store, n), &body) {
            Err(StoreWriteRejection::Busy) => std::thread::sleep(Duration::from_millis(1)),
            done => return done,
        }
    }
    panic!("busy for two minutes");
}

/// The child process.
pub fn full(folder: &Path) {
    mount("size=48m", folder);
    let filler = folder.join("filler");
    fill(&filler, 24 << 20);
    // RocksDB would flush after sixty times as much; compactions run all the time
    let config = StoreConfig {
        write_buffer: 64 << 10,
        ..StoreConfig::new(folder.join("store"), 1 << 30)
    };
    let (store, _) = open(&config);

    // one event is reported for any number of failures
    let mut memory = 0;
    let failed = (0..10_000).find_map(|n| {
        let put = try_put(&store, n);
        memory = store.store_status().memory.max(memory);
        put.err().map(|error| (n, error))
    });
    assert!(
        memory < 12 * config.write_buffer,
        "{memory} bytes in memory"
    );
    let (stored, error) = failed.expect("40 MB can't fit into 24");
    assert!(
        matches!(
            error,
            StoreWriteRejection::Off(StoreWriteOutageReason::DiskFull)
        ),
        "{error}"
    );
    for n in 0..100 {
        assert!(try_put(&store, stored + n).is_err());
    }
    assert_eq!(
        store.next_store_health_change(),
        Some(StoreHealthChange::StoringOff(
            StoreWriteOutageReason::DiskFull
        ))
    );
    assert_eq!(store.next_store_health_change(), None);
    assert_eq!(
        store.store_status().off,
        Some(StoreWriteOutageReason::DiskFull)
    );
    assert!(store.flush().is_err());

    // all stored entries are found
    for n in 0..stored {
        assert!(has(&store, n), "{n} of {stored}");
    }
    // a purge is not acknowledged, but in effect
    assert!(store.purge_entries(&PurgeScope::Key(key(1))).is_err());
    assert!(!has(&store, 1));
    assert_eq!(store.next_store_health_change(), None);

    // space is free again, and storing continues without a restart
    fs::remove_file(&filler).unwrap();
    let on = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        store.flush().is_ok()
    });
    assert!(on, "nothing was flushed for a minute");
    try_put(&store, stored).unwrap();
    assert_eq!(
        store.next_store_health_change(),
        Some(StoreHealthChange::StoringOn)
    );
    assert_eq!(store.next_store_health_change(), None);
    assert_eq!(store.store_status().off, None);
    store.purge_entries(&PurgeScope::Key(key(2))).unwrap();
    store.flush_and_close().unwrap();

    // a full disk is not damage
    fill(&filler, 1 << 30);
    let error = try_open(&config, NOW).unwrap_err();
    assert!(matches!(error, StoreOpenError::Io { .. }), "{error}");
    let other = StoreConfig::new(folder.join("other"), 64 << 20);
    assert!(try_open(&other, NOW).is_err());
    fs::remove_file(&filler).unwrap();
    let store = reopen(&config);
    let missing: Vec<_> = (0..=stored).filter(|n| !has(&store, *n)).collect();
    assert_eq!(missing, [1, 2], "of {stored}");
    let (_, opening) = open(&other);
    assert!(
        matches!(
            opening,
            StoreOpenOutcome::Fresh | StoreOpenOutcome::SetAside { .. }
        ),
        "{opening:?}"
    );
}

/// The child process: a purge is the first write to the full disk, and the store is closed
/// meanwhile.
pub fn full_at_a_purge(folder: &Path) {
    mount("size=48m", folder);
    let filler = folder.join("filler");
    let config = StoreConfig::new(folder.join("store"), 64 << 20);
    let (store, _) = open(&config);
    for n in 0..10 {
        try_put(&store, n).unwrap();
    }
    store.flush().unwrap();
    fill(&filler, 1 << 30);
    // a log of RocksDB would end the process
    assert!(!config.path.join("db/LOG").exists());
    for n in 0..50 {
        assert!(store.purge_entries(&PurgeScope::Key(key(n % 3))).is_err());
        assert!(store
            .put_durable_rows(&[(b"finalized", Some(&[b'1'; 5000]))])
            .is_err());
        assert!(store.flush().is_err());
        // the entry is stored in memory, or refused
        let _ = try_put(&store, 10 + n);
    }
    let off = StoreHealthChange::StoringOff(StoreWriteOutageReason::DiskFull);
    assert_eq!(store.next_store_health_change(), Some(off));
    for n in 0..10 {
        assert_eq!(has(&store, n), n > 2);
    }
    // no write was acknowledged
    assert!(store.flush_and_close().is_err());
    fs::remove_file(&filler).unwrap();
    let store = reopen(&config);
    assert_eq!((3..10).filter(|n| has(&store, *n)).count(), 7);
    for n in 0..3 {
        store.purge_entries(&PurgeScope::Key(key(n))).unwrap();
    }
    store.flush_and_close().unwrap();
    let store = reopen(&config);
    assert_eq!((0..10).filter(|n| has(&store, *n)).count(), 7);
}

/// The child process: all kinds of writes meet the full disk at any moment, and continue when
/// space is free.
pub fn full_again(folder: &Path) {
    mount("size=40m", folder);
    let filler = folder.join("filler");
    let config = StoreConfig {
        write_buffer: 64 << 10,
        ..StoreConfig::new(folder.join("store"), MIN_SIZE)
    };
    let (store, _) = open(&config);
    let (next, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let put_next = || {
        let n = next.fetch_add(1, Ordering::SeqCst);
        try_put(&store, n).map(|()| n)
    };
    let purged: Vec<u64> = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ends.load(Ordering::SeqCst) {
                    let _ = put_next();
                }
            });
        }
        let purges = scope.spawn(|| {
            let mut purged = Vec::new();
            while !ends.load(Ordering::SeqCst) {
                let put = put_next();
                purged.extend(
                    put.ok()
                        .filter(|n| store.purge_entries(&PurgeScope::Key(key(*n))).is_ok()),
                );
                std::thread::sleep(Duration::from_millis(3));
            }
            purged
        });
        for _ in 0..5 {
            while store.store_status().off.is_none() {
                fill(&filler, 1 << 30);
                std::thread::sleep(Duration::from_millis(5));
            }
            fs::remove_file(&filler).unwrap();
            let on = (0..600).any(|_| {
                std::thread::sleep(Duration::from_millis(100));
                store.flush().is_ok() && put_next().is_ok()
            });
            assert!(on, "nothing was flushed for a minute");
        }
        ends.store(true, Ordering::SeqCst);
        purges.join().unwrap()
    });
    assert!(!purged.is_empty());
    let last = put_next().unwrap();
    store.flush_and_close().unwrap();
    let store = reopen(&config);
    assert!(has(&store, last));
    assert!(purged.iter().all(|n| !has(&store, *n)));
}

/// The child process.
pub fn read_only(folder: &Path) {
    mount("size=48m", folder);
    let config = StoreConfig::new(folder.join("store"), 32 << 20);
    let (store, _) = open(&config);
    try_put(&store, 1).unwrap();
    store.flush_and_close().unwrap();
    mount("remount,ro", folder);
    let error = try_open(&config, NOW).unwrap_err();
    assert!(matches!(error, StoreOpenError::Io { .. }), "{error}");
    mount("remount,rw", folder);
    assert!(has(&reopen(&config), 1));
}

#[test]
fn storing_stops_on_a_full_disk_and_continues_when_space_is_free() {
    let folder = folder();
    let (good, _) = start_in_mount_namespace("full-disk", folder.path()).wait();
    assert!(good);
}

#[test]
fn purge_on_a_full_disk_is_in_effect_and_not_acknowledged() {
    let folder = folder();
    let (good, _) = start_in_mount_namespace("full-at-a-purge", folder.path()).wait();
    assert!(good);
}

#[test]
fn acknowledged_purges_stay_in_effect_when_the_disk_fills_repeatedly() {
    let folder = folder();
    let (good, _) = start_in_mount_namespace("full-again", folder.path()).wait();
    assert!(good);
}

#[test]
fn read_only_disk_is_an_error_and_not_damage() {
    let folder = folder();
    let (good, _) = start_in_mount_namespace("read-only", folder.path()).wait();
    assert!(good);
}
