//! Expiry of SST files by age: old files are dropped, and entries that are requested are stored
//! again in time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::store::DiskEntryStore;

use super::support::{body, config, count, folder, has, header, key, open, put, reopen, NOW};

/// Reads the system clock in milliseconds, by which RocksDB records the creation of an SST file.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn is_old(store: &DiskEntryStore, n: u64) -> bool {
    store.get(&key(n), NOW).unwrap().is_old
}

const HOUR: u64 = 3_600_000;

#[test]
fn sst_file_is_dropped_by_its_creation_time() {
    let folder = folder();
    let (store, _) = open(&config(folder.path()));
    put(&store, 1, 1000);
    // entries in memtables stay
    assert_eq!(
        store
            .drop_expired_sst_files(HOUR, HOUR, now() + 3 * HOUR)
            .unwrap(),
        0
    );
    store.flush().unwrap();
    put(&store, 2, 1000);
    let made = now();
    assert_eq!(
        store
            .drop_expired_sst_files(HOUR, HOUR, made + HOUR - 3_000)
            .unwrap(),
        0
    );
    assert_eq!(count(&store, 3), 2);
    assert_eq!(
        store
            .drop_expired_sst_files(HOUR, HOUR, made + HOUR + 3_000)
            .unwrap(),
        1
    );
    assert!(!has(&store, 1));
    assert!(has(&store, 2));
    // a dropped file does not come back
    store.flush_and_close().unwrap();
    let store = reopen(&config(folder.path()));
    assert_eq!(count(&store, 3), 1);
    assert_eq!(store.store_status().read_errors, 0);
}

#[test]
fn classes_have_sst_files_of_their_own() {
    let folder = folder();
    let (store, _) = open(&config(folder.path()));
    let mut aging = header(&store, 1);
    aging.about.class = LifetimeClass::Resource;
    store.put_entry(&key(1), &aging, &body(1, 100)).unwrap();
    put(&store, 2, 100);
    store.flush().unwrap();
    assert_eq!(
        store
            .drop_expired_sst_files(HOUR, HOUR, now() + 2 * HOUR)
            .unwrap(),
        2
    );
    assert_eq!(count(&store, 3), 0);
}

#[test]
fn old_entry_is_reported_and_stays_when_it_is_stored_again() {
    let folder = folder();
    let (store, _) = open(&config(folder.path()));
    for n in 0..4 {
        put(&store, n, 1000);
    }
    store.flush().unwrap();
    let made = now();
    let quarter = HOUR / 4;
    store
        .drop_expired_sst_files(6 * quarter, quarter, made)
        .unwrap();
    assert!(!is_old(&store, 0));
    store
        .drop_expired_sst_files(6 * quarter, quarter, made + quarter + 3_000)
        .unwrap();
    for n in 0..4 {
        assert!(is_old(&store, n), "{n}");
    }
    // the entry is requested and stored again, in a memtable
    put(&store, 0, 1000);
    assert!(!is_old(&store, 0));
    assert!(is_old(&store, 1));
    store
        .drop_expired_sst_files(HOUR, quarter, made + 2 * HOUR)
        .unwrap();
    assert!(has(&store, 0) && !is_old(&store, 0));
    assert_eq!(count(&store, 4), 1);
}

#[test]
fn entries_keep_their_age_across_a_restart() {
    let folder = folder();
    let config = config(folder.path());
    let (store, _) = open(&config);
    put(&store, 1, 1000);
    store.flush_and_close().unwrap();
    let store = reopen(&config);
    store.drop_expired_sst_files(6 * HOUR, HOUR, now()).unwrap();
    assert!(!is_old(&store, 1));
    store
        .drop_expired_sst_files(6 * HOUR, HOUR, now() + 2 * HOUR)
        .unwrap();
    assert!(is_old(&store, 1));
    assert_eq!(
        store
            .drop_expired_sst_files(HOUR, HOUR, now() + 2 * HOUR)
            .unwrap(),
        1
    );
}

/// RocksDB's own `ttl` drops a file whose oldest entry is too old, together with its newest.
#[test]
fn compaction_drops_no_entry_early() {
    let folder = folder();
    let (store, _) = open(&config(folder.path()));
    let first = now();
    for n in 0..8 {
        put(&store, n, 1000);
        store.flush().unwrap();
        if n == 0 {
            // RocksDB's times are in seconds; a longer pause changes nothing
            std::thread::sleep(Duration::from_millis(2_500));
        }
    }
    let joined = now();
    let end = Instant::now() + Duration::from_secs(120);
    // compaction runs in the background
    let tables = || {
        let files = std::fs::read_dir(folder.path().join("store/db")).unwrap();
        files
            .filter(|file| {
                let path = file.as_ref().unwrap().path();
                path.extension().is_some_and(|kind| kind == "sst")
            })
            .count()
    };
    while tables() > 4 {
        assert!(Instant::now() < end, "nothing is joined");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(joined - first >= 2_500);
    // too old for the first entry only
    assert_eq!(
        store
            .drop_expired_sst_files(HOUR, HOUR, first + HOUR + 1_500)
            .unwrap(),
        0
    );
    assert_eq!(count(&store, 8), 8);
    let dropped = store
        .drop_expired_sst_files(HOUR, HOUR, now() + HOUR + 3_000)
        .unwrap();
    assert!(dropped > 0);
    assert_eq!(count(&store, 8), 0);
}

#[test]
fn sst_files_are_dropped_while_others_are_written() {
    let folder = folder();
    let (store, _) = open(&config(folder.path()));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..400 {
                put(&store, n, 20_000);
                if n % 20 == 0 {
                    store.flush().unwrap();
                }
            }
        });
        while !writer.is_finished() {
            // drops each SST file, except those in a compaction
            store.drop_expired_sst_files(1, 1, now() + HOUR).unwrap();
        }
    });
    store.flush().unwrap();
    let end = Instant::now() + Duration::from_secs(120);
    while count(&store, 400) > 0 {
        store.drop_expired_sst_files(1, 1, now() + HOUR).unwrap();
        assert!(Instant::now() < end, "{} are left", count(&store, 400));
    }
    put(&store, 1, 100);
    assert!(has(&store, 1));
    assert_eq!(store.next_store_health_change(), None);
    store.flush_and_close().unwrap();
    assert_eq!(count(&reopen(&config(folder.path())), 400), 1);
}
