//! Entries of the store: stored ones are found until they expire or are purged.

use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::store::{
    DiskEntryStore, ReadWouldBlock, StoreConfig, StoreOpenError, StoreOpenOutcome,
    StoreWriteRejection, MIN_SIZE,
};

use super::support::{
    body, config, count, folder, has, header, key, open, put, reopen, CHAIN, NOW, OTHER_CHAIN,
};

#[test]
fn entry_is_found_before_and_after_a_restart() {
    let folder = folder();
    let config = config(folder.path());
    let (store, opening) = open(&config);
    assert_eq!(opening, StoreOpenOutcome::Fresh);
    for (n, length) in [(0, 0), (1, 1), (2, 1000), (3, 30_000), (4, 1_000_000)] {
        put(&store, n, length);
        assert_eq!(store.get(&key(n), NOW).unwrap().len(), length);
    }
    assert_eq!(count(&store, 6), 5);
    store.flush_and_close().unwrap();
    let store = reopen(&config);
    assert_eq!(count(&store, 6), 5);
    let stored = store.get(&key(3), NOW).unwrap();
    assert_eq!(stored.header, header(&store, 3));
    assert_eq!(store.store_status().read_errors, 0);
}

/// Whether the file system of `folder` supports reads without waiting.
fn reads_without_waiting(folder: &std::path::Path) -> bool {
    use rustix::io::ReadWriteFlags;
    let file = folder.join("probe");
    std::fs::write(&file, [1; 100]).unwrap();
    let file = std::fs::File::open(file).unwrap();
    let mut bytes = [0; 100];
    let part = std::io::IoSliceMut::new(&mut bytes);
    rustix::io::preadv2(&file, &mut [part], 0, ReadWriteFlags::NOWAIT) == Ok(100)
}

#[test]
fn cached_entry_is_read_without_waiting_for_the_disk() {
    let folder = folder();
    let (store, _) = open(&config(folder.path()));
    let ready = |n| match store.get_without_disk(&key(n), NOW) {
        Ok(stored) => Ok(stored.map(|stored| stored.to_vec())),
        Err(ReadWouldBlock) => Err(ReadWouldBlock),
    };
    for (n, length) in [(0, 0), (1, 30_000), (2, 1_000_000)] {
        put(&store, n, length);
        assert_eq!(ready(n), Ok(Some(body(n, length))), "in a memtable");
    }
    store.flush().unwrap();
    assert_eq!(
        ready(2),
        Err(ReadWouldBlock),
        "it is too long to be copied meanwhile"
    );
    assert_eq!(store.get(&key(2), NOW).unwrap().len(), 1_000_000);
    // away from the long entry, whose neighbours may not be in the page cache
    for (n, length) in [(0, 0), (1, 30_000)] {
        put(&store, n, length);
    }
    store.flush().unwrap();
    for (n, length) in [(0, 0), (1, 30_000)] {
        if reads_without_waiting(folder.path()) {
            assert_eq!(ready(n), Ok(Some(body(n, length))), "in the page cache");
        }
    }
    assert_eq!(ready(3), Ok(None));
    assert_eq!(store.store_status().read_errors, 0);
}

#[test]
fn newest_entry_of_a_key_is_found_in_any_class() {
    let folder = folder();
    let (store, _) = open(&config(folder.path()));
    let classes = [
        LifetimeClass::Resource,
        LifetimeClass::Immutable,
        LifetimeClass::Resource,
        LifetimeClass::Resource,
    ];
    for (n, class) in classes.into_iter().enumerate() {
        let body = body(n as u64, 100);
        let mut header = header(&store, 7);
        header.about.class = class;
        store.put_entry(&key(7), &header, &body).unwrap();
        if n == 1 {
            store.flush().unwrap();
        }
        assert_eq!(&store.get(&key(7), NOW).unwrap()[..], body);
    }
}

#[test]
fn stale_entry_is_found_only_by_a_stale_lookup() {
    let folder = folder();
    let (store, _) = open(&config(folder.path()));
    let mut header = header(&store, 1);
    header.expires_at = NOW + 1000;
    store.put_entry(&key(1), &header, b"body").unwrap();
    assert!(store.get(&key(1), NOW + 999).is_some());
    assert!(store.get(&key(1), NOW + 1000).is_none());
    assert_eq!(&store.get_fresh_or_stale(&key(1)).unwrap()[..], b"body");
}

#[test]
fn entry_or_store_outside_its_size_limits_is_refused() {
    let folder = folder();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let large = body(1, config.max_entry_length() as usize + 1);
    let mut header = header(&store, 1);
    let refused = store.put_entry(&key(1), &header, &large);
    assert!(matches!(refused, Err(StoreWriteRejection::TooLarge)));
    store.put_entry(&key(1), &header, &large[1..]).unwrap();
    header.about.method = Some("m".repeat(70_000).into());
    let refused = store.put_entry(&key(1), &header, b"");
    assert!(matches!(refused, Err(StoreWriteRejection::TooLarge)));
    let config = StoreConfig {
        max_size: MIN_SIZE - 1,
        ..config
    };
    assert!(matches!(
        DiskEntryStore::open_store(&config, NOW),
        Err(StoreOpenError::TooSmall { .. })
    ));
}

/// The bytes of an entry that is borrowed outlive the store.
#[test]
fn borrowed_value_keeps_the_store_locked() {
    let folder = folder();
    let config = config(folder.path());
    let (store, _) = open(&config);
    put(&store, 1, 30_000);
    store.flush().unwrap();
    let stored = store.get(&key(1), NOW).unwrap();
    store.flush_and_close().unwrap();
    assert!(matches!(
        DiskEntryStore::open_store(&config, NOW),
        Err(StoreOpenError::Locked)
    ));
    assert_eq!(&stored[..], body(1, 30_000));
    drop(stored);
    assert!(has(&reopen(&config), 1));
}

#[test]
fn second_owner_is_locked_out() {
    let folder = folder();
    let config = config(folder.path());
    let (store, _) = open(&config);
    put(&store, 1, 1000);
    for _ in 0..3 {
        assert!(matches!(
            DiskEntryStore::open_store(&config, NOW),
            Err(StoreOpenError::Locked)
        ));
    }
    assert!(has(&store, 1));
    store.flush_and_close().unwrap();
    assert!(has(&reopen(&config), 1));
}

#[test]
fn purged_entries_are_not_found_after_a_restart() {
    let folder = folder();
    let config = config(folder.path());
    let (store, _) = open(&config);
    for n in 0..100 {
        put(&store, n, 500);
    }
    let mut other = header(&store, 200);
    other.about.namespace = OTHER_CHAIN;
    store.put_entry(&key(200), &other, b"other").unwrap();
    let first = store.purge_entries(&PurgeScope::Key(key(0))).unwrap();
    assert_eq!(count(&store, 100), 99);
    let blocks = |from, to| PurgeScope::Blocks {
        namespace: CHAIN,
        from,
        to,
    };
    // entry 0 is purged already
    assert!(store.purge_entries(&blocks(0, 9)).unwrap() > first);
    for (from, to) in [(0, 9), (99, u64::MAX), (9, 0)] {
        store.purge_entries(&blocks(from, to)).unwrap();
    }
    assert_eq!(count(&store, 100), 89);
    // a fill that was in flight during the purge
    let mut late = header(&store, 5);
    late.about.generation = first;
    let refused = store.put_entry(&key(5), &late, b"late");
    assert!(matches!(refused, Err(StoreWriteRejection::Purged)));
    put(&store, 5, 100);
    assert_eq!(count(&store, 100), 90);
    drop(store);
    let store = reopen(&config);
    assert_eq!(count(&store, 100), 90);
    store
        .purge_entries(&PurgeScope::Method {
            namespace: Some(CHAIN),
            method: "eth_getBlockByNumber".into(),
        })
        .unwrap();
    assert_eq!(count(&store, 100), 0);
    assert!(store.get(&key(200), NOW).is_some());
    assert!(store.store_status().refused > 0);
    store
        .purge_entries(&PurgeScope::Namespace(OTHER_CHAIN))
        .unwrap();
    assert!(store.get(&key(200), NOW).is_none());
    put(&store, 1, 100);
    let last = store.purge_entries(&PurgeScope::Everything).unwrap();
    assert_eq!(count(&store, 100), 0);
    put(&store, 1, 100);
    drop(store);
    let store = reopen(&config);
    assert_eq!(store.purge_generation(), last);
    assert_eq!(count(&store, 100), 1);
}

/// A purge consists of the database's row and of the marker file that counts it.
#[test]
fn purge_without_its_marker_is_not_acknowledged() {
    let folder = folder();
    let config = config(folder.path());
    let (store, _) = open(&config);
    put(&store, 1, 100);
    let in_the_way = config.path.join("sszip-store.new");
    std::fs::create_dir(&in_the_way).unwrap();
    let error = store.purge_entries(&PurgeScope::Key(key(1))).unwrap_err();
    assert!(matches!(error, StoreWriteRejection::Marker(_)), "{error}");
    assert!(!has(&store, 1));
    assert_eq!(store.next_store_health_change(), None);
    std::fs::remove_dir(&in_the_way).unwrap();
    // the next flush writes the marker
    store.flush().unwrap();
    drop(store);
    assert!(!has(&reopen(&config), 1));
}

#[test]
fn control_values_survive_a_restart() {
    let folder = folder();
    let config = config(folder.path());
    let (store, _) = open(&config);
    assert_eq!(store.read_owner_value(b"finalized").unwrap(), None);
    store
        .put_durable_rows(&[(b"finalized", Some(b"17"))])
        .unwrap();
    store
        .put_durable_rows(&[(b"finalized", Some(b"18"))])
        .unwrap();
    drop(store);
    let value = reopen(&config).read_owner_value(b"finalized").unwrap();
    assert_eq!(value.as_deref(), Some(&b"18"[..]));
}

#[test]
fn entries_of_concurrent_threads_are_all_found() {
    let folder = folder();
    let (store, _) = open(&config(folder.path()));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for n in (0..400).map(|n| n * 4 + thread) {
                    put(store, n, 2000);
                    assert!(has(store, n));
                    if n % 100 == thread {
                        store.flush().unwrap();
                    }
                    if n == 800 {
                        store
                            .purge_entries(&PurgeScope::Key(key(1_000_000)))
                            .unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(count(&store, 1600), 1600);
}
