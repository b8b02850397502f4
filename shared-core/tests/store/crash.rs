//! `kill -9` at any moment: each acknowledged durable write survives, and the other entries
//! survive up to some point, never an entry without the mark that was recorded before it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::store::rocks::{FamilyOptions, RocksDatabase};
use sszip_core::cache::store::{DiskEntryStore, StoreConfig, StoreWriteRejection};

use super::child::{report, start, StoreProcess};
use super::support::{config, folder, has, key, open, put, reopen};
use super::tier::times;

/// The child process: stores entries from `base` on, with flushes and purges in between, until it
/// is killed. Memtables are small, so that RocksDB flushes by itself too.
pub fn write(folder: &Path, base: u64) {
    let store = reopen(&small(folder));
    for n in base.. {
        put(&store, n, 100 + (n * 7919 % 9000) as usize);
        if n % 97 == 50 {
            store.flush().unwrap();
            report(format_args!("flushed {n}"));
        }
        if n % 61 == 30 && n > base + 5 {
            let purged = n - 5;
            store.purge_entries(&PurgeScope::Key(key(purged))).unwrap();
            report(format_args!("purged {purged}"));
        }
        report(format_args!("put {n}"));
    }
}

fn small(folder: &Path) -> StoreConfig {
    StoreConfig {
        write_buffer: 256 << 10,
        ..config(folder)
    }
}

/// Returns the keys of the column family of entries.
fn keys(config: &StoreConfig) -> BTreeSet<Vec<u8>> {
    let family = |name| FamilyOptions {
        name,
        fifo_size: 1 << 40,
        write_buffer: 1 << 20,
        memtable: 4 << 20,
        joined: 1 << 20,
    };
    let mut families = ["default", "immutable", "aging"].map(family);
    families[0].fifo_size = 0;
    let rocks =
        RocksDatabase::open_database(&config.path.join("db"), &families, 1 << 20, false).unwrap();
    let mut keys = BTreeSet::new();
    let mut rows = rocks.iterate_key_range(1, &[], &[0xff; 100]).unwrap();
    while let Some((key, _)) = rows.next_row().unwrap() {
        keys.insert(key.to_vec());
    }
    keys
}

/// Returns the numbers of the reports that begin with `word`.
fn numbers(reports: &[String], word: &str) -> Vec<u64> {
    let number = |line: &String| line.strip_prefix(word)?.trim().parse().ok();
    reports.iter().filter_map(number).collect()
}

/// Kills the child after a random number of reports, and returns all of them.
fn kill_after_random_reports(child: StoreProcess, random: &mut u64) -> Vec<String> {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let mut reports = Vec::new();
    for _ in 0..=*random % 300 {
        reports.push(child.reports.recv_timeout(Duration::from_secs(60)).unwrap());
    }
    reports.extend(child.kill());
    reports
}

#[test]
fn durable_writes_survive_a_kill_at_any_moment() {
    let folder = folder();
    let config = small(folder.path());
    open(&config).0.flush_and_close().unwrap();
    let mut purged = BTreeSet::new();
    let (mut survived, mut lost) = (0, 0);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..times(20, 60) {
        let base = round * 1_000_000;
        let child = start("write", folder.path(), base, &[]);
        let reports = kill_after_random_reports(child, &mut random);
        let store = reopen(&config);

        // an entry that was purged in any round is not found
        let now_purged = numbers(&reports, "purged");
        purged.extend(&now_purged);
        for n in &purged {
            assert!(!has(&store, *n), "{n} was purged");
        }
        store.flush_and_close().unwrap();

        // its row still exists: a purge deletes no row
        let entries = keys(&config);
        let there = |n: &u64| entries.contains(&key(*n)[..]);
        assert!(purged.iter().all(there));

        // the entries of this round survive up to some point, at least the last flush
        let written = numbers(&reports, "put").into_iter().max().unwrap() + 1;
        let surviving = (base..).take_while(there).count() as u64;
        let later = (base + surviving..written + 100).filter(there).count();
        assert_eq!(later, 0, "{surviving} of {written}, round {round}");
        let flushed = numbers(&reports, "flushed").into_iter();
        let flushed = flushed.chain(now_purged.iter().map(|n| n + 5)).max();
        if let Some(flushed) = flushed {
            assert!(
                surviving > flushed - base,
                "{surviving} of {flushed}, round {round}"
            );
        }
        survived += surviving;
        lost += written.saturating_sub(base + surviving);
    }
    println!("{survived} survived, {lost} lost, {} purged", purged.len());
    // the rounds had all three outcomes
    assert!(survived > times(300, 1000) && lost > times(30, 100) && purged.len() > 20);
}

/// The child process: records marks, each followed by entries that it made final, until it is
/// killed.
pub fn mark(folder: &Path, base: u64) {
    let store = reopen(&small(folder));
    for n in base.. {
        if n % 7 == 0 {
            record_mark(&store, n);
        }
        put(&store, n, 100 + (n * 7919 % 9000) as usize);
        if n % 97 == 50 {
            store.flush().unwrap();
        }
        if n % 61 == 30 {
            store.purge_entries(&PurgeScope::Key(key(n / 2))).unwrap();
        }
        report(format_args!("put {n}"));
    }
}

/// Records the mark `n`, as soon as the store accepts it.
fn record_mark(store: &DiskEntryStore, n: u64) {
    for _ in 0..120_000 {
        match store.put_row_without_flush(b"mark", Some(&n.to_be_bytes())) {
            Err(StoreWriteRejection::Busy) => std::thread::sleep(Duration::from_millis(1)),
            done => return done.unwrap(),
        }
    }
    panic!("busy for two minutes");
}

/// An entry never survives without the mark that was recorded before it.
#[test]
fn entry_never_survives_without_its_finality_mark() {
    let folder = folder();
    let config = small(folder.path());
    open(&config).0.flush_and_close().unwrap();
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let (mut behind, mut marks) = (0, BTreeSet::new());
    for round in 0..times(16, 40) {
        let base = round * 1_000_006;
        let child = start("mark", folder.path(), base, &[]);
        let reports = kill_after_random_reports(child, &mut random);
        let store = reopen(&config);
        let mark = store.read_owner_value(b"mark").unwrap();
        let mark = mark.map_or(0, |mark| u64::from_be_bytes(mark.try_into().unwrap()));
        store.flush_and_close().unwrap();
        let entries = keys(&config);
        let written = numbers(&reports, "put").into_iter().max().unwrap() + 1;
        let there = (base..written + 100).filter(|n| entries.contains(&key(*n)[..]));
        let newest = there.max();
        // entries below the base have another mark, or this one
        assert!(
            newest.is_none_or(|newest| mark >= newest / 7 * 7),
            "{mark} {newest:?}"
        );
        behind += u64::from(newest.is_some_and(|newest| newest + 1 < written));
        marks.insert(mark);
    }
    // entries were lost, and marks with them
    let few = times(4, 10);
    assert!(
        behind > few && marks.len() as u64 > few,
        "{behind} {}",
        marks.len()
    );
}
