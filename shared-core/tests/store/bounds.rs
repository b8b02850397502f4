//! Size limits of the store: it stays within its bytes, and keeps requested entries.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::store::{DiskEntryStore, StoreConfig, StoredEntry};

use super::support::{config, folder, header, key, open, put, reopen, NOW};

/// Returns the bytes of all files below `path`. Files may be created and removed meanwhile.
fn du(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => du(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Returns a body of `length` bytes from a fast generator.
fn noise(n: u64, length: usize) -> Vec<u8> {
    let mut state = n | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let mut body: Vec<u8> = words.take(length.div_ceil(8)).flatten().collect();
    body.truncate(length);
    body
}

/// Waits until the files below `path` have at most `most` bytes, and returns how many they had at
/// first: RocksDB removes replaced files in the background.
fn wait_until_small(path: &Path, most: u64) -> u64 {
    let began = Instant::now();
    let first = du(path);
    let mut used = first;
    while used > most {
        assert!(began.elapsed() < Duration::from_secs(300), "{used} bytes");
        std::thread::sleep(Duration::from_millis(1));
        used = du(path);
    }
    first
}

/// Asserts that the store stays within its size. `written` is for the message.
fn assert_within_size(config: &StoreConfig, written: u64) {
    // includes the bytes that are being written while the replaced files still exist
    let most = config.max_size / 4 * 5 + config.max_memtable_memory();
    let used = wait_until_small(&config.path, most);
    // what a busy machine removes late is little
    assert!(
        used <= most + config.max_size / 4,
        "{used} bytes after {written}"
    );
}

fn put_noise(store: &DiskEntryStore, n: u64, length: usize, class: LifetimeClass) {
    let body = noise(n, length);
    let mut header = header(store, n);
    header.about.class = class;
    let began = Instant::now();
    // the store refuses while its flushes are behind, which on a busy machine takes long
    while store.put_entry(&key(n), &header, &body).is_err() {
        assert!(
            began.elapsed() < Duration::from_secs(300),
            "nothing is stored"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the entries with the numbers below `count`. They are looked up from the newest on: files that
/// are dropped meanwhile, the oldest first, leave no gap between entries.
fn get_each(store: &DiskEntryStore, count: u64) -> Vec<Option<StoredEntry>> {
    let mut found: Vec<_> = (0..count).rev().map(|n| store.get(&key(n), NOW)).collect();
    found.reverse();
    found
}

/// Stores ten times the capacity in entries of `lengths`, and requests the first entry again and
/// again.
fn overfill(lengths: [usize; 3], class: fn(u64) -> LifetimeClass) {
    let folder = folder();
    let config = StoreConfig::new(folder.path().join("store"), 32 << 20);
    let (store, _) = open(&config);
    let (mut written, mut n) = (0, 0);
    let mut again = 0;
    put_noise(&store, 1_000_000, 5000, class(0));
    while written < config.max_size * 10 {
        let length = lengths[n as usize % 3];
        put_noise(&store, n, length, class(n));
        written += length as u64;
        n += 1;
        if n.is_multiple_of(8) {
            assert_within_size(&config, written);
            let hot = store.get(&key(1_000_000), NOW);
            let hot = hot.unwrap_or_else(|| panic!("gone after {written}"));
            assert_eq!(hot[..], noise(1_000_000, 5000));
            if hot.is_old {
                put_noise(&store, 1_000_000, 5000, class(0));
                again += 1;
            }
        }
    }
    // now and then, not each time
    assert!((3..100).contains(&again), "put again {again} times");
    store.flush().unwrap();

    let found = get_each(&store, n);
    let remaining_bytes: u64 = found
        .iter()
        .flatten()
        .map(|stored| stored.len() as u64)
        .sum();
    // one class alone uses nearly all of the capacity
    assert!(
        remaining_bytes > config.max_size / 100 * 65,
        "{remaining_bytes} bytes are kept"
    );
    let written = store.store_status().written;
    assert!(written.compaction < written.flush / 4, "{written:?}");
    // entries are evicted in the order of storage, and reported as old before
    let of_class: Vec<_> = (0..n)
        .filter(|n| class(*n) == LifetimeClass::Immutable)
        .map(|n| found[n as usize].as_ref())
        .collect();
    let first = of_class.iter().position(Option::is_some).unwrap();
    let last = of_class.iter().rposition(Option::is_some).unwrap();
    assert!(first > of_class.len() / 2 && last == of_class.len() - 1);
    assert!(of_class[first..].iter().all(Option::is_some));
    assert!(of_class[first].unwrap().is_old && !of_class[last].unwrap().is_old);
    let old = of_class.iter().flatten().filter(|stored| stored.is_old);
    let share = old.count() as f64 / (of_class.len() - first) as f64;
    assert!((0.05..0.5).contains(&share), "{share} of it is old");

    // a store with a smaller capacity shrinks
    drop(found);
    store.flush_and_close().unwrap();
    let smaller = StoreConfig {
        max_size: config.max_size / 2,
        ..config.clone()
    };
    let store = reopen(&smaller);
    for n in 0..200 {
        put_noise(&store, 2_000_000 + n, 20_000, class(n));
    }
    store.flush().unwrap();
    wait_until_small(&config.path, smaller.max_size / 4 * 5);
}

#[test]
fn store_stays_within_its_size_with_entries_of_one_class() {
    overfill([1000, 30_000, 300_000], |_| LifetimeClass::Immutable);
}

#[test]
fn store_stays_within_its_size_with_small_entries_of_two_classes() {
    let either = |n: u64| match n % 4 {
        1 => LifetimeClass::Resource,
        _ => LifetimeClass::Immutable,
    };
    overfill([3000, 10_000, 20_000], either);
}

#[test]
fn growing_class_regains_its_share() {
    let folder = folder();
    let config = StoreConfig::new(folder.path().join("store"), 32 << 20);
    let (store, _) = open(&config);
    let fill = |first: u64, class| {
        for n in first..first + 3200 {
            put_noise(&store, n, 20_000, class);
            if n.is_multiple_of(16) {
                assert_within_size(&config, (n - first) * 20_000);
            }
        }
        store.flush().unwrap();
    };
    let bytes = |first: u64| {
        let found = (first..first + 3200).filter_map(|n| store.get(&key(n), NOW));
        found.map(|stored| stored.len() as u64).sum::<u64>()
    };
    fill(0, LifetimeClass::Immutable);
    assert!(bytes(0) > config.max_size / 100 * 65, "{}", bytes(0));
    fill(10_000, LifetimeClass::Resource);
    assert!(
        bytes(10_000) > config.max_size / 100 * 15,
        "{}",
        bytes(10_000)
    );
    assert!(bytes(0) > config.max_size / 100 * 50, "{}", bytes(0));
    // entries of one class do not evict all of the other
    fill(20_000, LifetimeClass::Resource);
    assert!(bytes(0) > config.max_size / 100 * 50, "{}", bytes(0));
}

#[test]
fn small_flushes_do_not_leave_many_files() {
    let folder = folder();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let mut most = 0;
    for n in 0..600 {
        put(&store, n, 500);
        store.flush().unwrap();
        let files = fs::read_dir(config.path.join("db")).unwrap();
        most = files.count().max(most);
    }
    assert!(most < 100, "{most} files");
    assert!((0..600).all(|n| store.get(&key(n), NOW).is_some()));
    let written = store.store_status().written;
    // each entry is rewritten some times, not some hundreds of times
    assert!(written.compaction < 600 * 1000 * 20, "{written:?}");
}

#[test]
fn empty_flush_writes_no_bytes() {
    let folder = folder();
    let (store, _) = open(&config(folder.path()));
    put(&store, 1, 500);
    store.flush().unwrap();
    let before = store.store_status().written;
    for _ in 0..10 {
        store.flush().unwrap();
    }
    assert_eq!(store.store_status().written, before);
}

/// SST files stay few in any way of filling: a look-up reads each of them, and each is an open
/// file.
#[test]
fn large_store_has_few_sst_files() {
    // by full write buffers, and by flushes so small that eight of them are longer than one
    for (is_flushed, bytes) in [(false, 80 << 20), (true, 16 << 20)] {
        let folder = folder();
        let config = StoreConfig {
            write_buffer: 64 << 10,
            ..StoreConfig::new(folder.path().join("store"), 64 << 20)
        };
        let (store, _) = open(&config);
        let count = bytes / 20_000_u64;
        for n in 0..count {
            put_noise(&store, n, 20_000, LifetimeClass::Immutable);
            if is_flushed {
                store.flush().unwrap();
            }
        }
        store.flush().unwrap();
        let files = fs::read_dir(config.path.join("db")).unwrap();
        let tables = files
            .flatten()
            .filter(|file| file.path().extension().is_some_and(|kind| kind == "sst"))
            .count();
        assert!(tables < 320, "{tables} tables");
        let written = store.store_status().written;
        assert!(written.compaction < 3 * written.flush, "{written:?}");
        let found = get_each(&store, count);
        let first = found.iter().position(Option::is_some).unwrap();
        let remaining: Vec<_> = found[first..]
            .iter()
            .map(|it| it.as_ref().unwrap())
            .collect();
        // whole SST files are dropped, and no more of them than necessary
        let remaining_bytes = remaining.len() as u64 * 20_000;
        let least = config.max_size.min(bytes) / 100 * 80;
        assert!(remaining_bytes > least, "{remaining_bytes} bytes are kept");
        let old = remaining.iter().filter(|stored| stored.is_old).count();
        let share = old as f64 / remaining.len() as f64;
        match is_flushed {
            // the store is not full yet
            true => assert!(first == 0 && old == 0, "{old} of it are old"),
            false => assert!((0.05..0.5).contains(&share), "{share} of it is old"),
        }
        assert!(remaining.iter().take(old).all(|stored| stored.is_old));
    }
}
