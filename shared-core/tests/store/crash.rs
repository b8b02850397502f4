//! `kill -9` at any moment: what was acknowledged as lasting lasts, and of the
//! rest a beginning is kept, never an entry without its row.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use sszip_core::cache::store::rocks::{Family, Rocks};
use sszip_core::cache::store::{Config, Opening, Scope};

use super::child::{say, start};
use super::support::{config, count, folder, has, key, open, put, reopen};

/// The child: writes entries from `base` on, flushes and purges now and then,
/// for ever. Memtables are small, so that RocksDB flushes by itself too.
pub fn write(folder: &Path, base: u64) {
    let store = reopen(&small(folder));
    for n in base.. {
        put(&store, n, 100 + (n * 7919 % 9000) as usize);
        if n % 97 == 50 {
            store.flush().unwrap();
            say(format_args!("flushed {n}"));
        }
        if n % 61 == 30 && n > base + 5 {
            let purged = n - 5;
            store.purge(&Scope::Key(key(purged))).unwrap();
            say(format_args!("purged {purged}"));
        }
        say(format_args!("put {n}"));
    }
}

fn small(folder: &Path) -> Config {
    Config {
        write_buffer: 256 << 10,
        ..config(folder)
    }
}

/// The keys in the family of entries, and those in the block index.
fn keys(config: &Config) -> [BTreeSet<Vec<u8>>; 2] {
    let family = |name| Family {
        name,
        fifo_size: 1 << 40,
        write_buffer: 1 << 20,
    };
    let mut families = ["default", "blocks", "immutable", "aging"].map(family);
    families[0].fifo_size = 0;
    let rocks = Rocks::open(&config.path.join("db"), &families, 1 << 20, false).unwrap();
    let keys = |family| {
        let mut keys = BTreeSet::new();
        let mut rows = rocks.rows(family, &[], &[0xff; 100]).unwrap();
        while let Some((key, _)) = rows.next_row().unwrap() {
            keys.insert(key[key.len() - 32..].to_vec());
        }
        keys
    };
    [keys(2), keys(1)]
}

/// Numbers said with this word.
fn numbers(said: &[String], word: &str) -> Vec<u64> {
    let number = |line: &String| line.strip_prefix(word)?.trim().parse().ok();
    said.iter().filter_map(number).collect()
}

#[test]
fn killed_at_any_moment() {
    let folder = folder();
    let config = small(folder.path());
    open(&config).0.close().unwrap();
    let mut purged = BTreeSet::new();
    let (mut survived, mut lost) = (0, 0);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..60 {
        let base = round * 1_000_000;
        let child = start("write", folder.path(), base, &[]);
        // any time after it has begun
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut said = Vec::new();
        for _ in 0..=random % 300 {
            said.push(child.said.recv_timeout(Duration::from_secs(60)).unwrap());
        }
        said.extend(child.kill());
        let store = reopen(&config);

        // what was purged, in any round, is not found
        let now_purged = numbers(&said, "purged");
        purged.extend(&now_purged);
        for n in &purged {
            assert!(!has(&store, *n), "{n} was purged");
        }
        store.close().unwrap();

        // though it is there, for a purge deletes nothing
        let [entries, rows] = keys(&config);
        assert_eq!(entries, rows, "round {round}");
        let there = |n: &u64| entries.contains(&key(*n)[..]);
        assert!(purged.iter().all(there));

        // of this round a beginning is kept: all that was flushed, at least
        let written = numbers(&said, "put").into_iter().max().unwrap() + 1;
        let kept = (base..).take_while(there).count() as u64;
        let later = (base + kept..written + 100).filter(there).count();
        assert_eq!(later, 0, "{kept} of {written}, round {round}");
        let flushed = numbers(&said, "flushed").into_iter();
        let flushed = flushed.chain(now_purged.iter().map(|n| n + 5)).max();
        if let Some(flushed) = flushed {
            assert!(kept > flushed - base, "{kept} of {flushed}, round {round}");
        }
        survived += kept;
        lost += written.saturating_sub(base + kept);
    }
    println!("{survived} survived, {lost} lost, {} purged", purged.len());
    // the rounds were worth something
    assert!(survived > 1000 && lost > 100 && purged.len() > 20);
}

/// The child: some entries, and a purge of one of them.
pub fn purge_once(folder: &Path) {
    let (store, _) = open(&config(folder));
    for n in 0..100 {
        put(&store, n, 1000);
    }
    say(format_args!("put"));
    store.purge(&Scope::Key(key(7))).unwrap();
    say(format_args!("purged"));
}

/// Dies at the named place; gives what is then found of a hundred entries.
#[cfg(feature = "faults")]
fn dies(fault: &str) -> (Opening, u64, bool) {
    let folder = folder();
    let child = start("purge-once", folder.path(), 0, &[("SSZIP_FAULT", fault)]);
    let (good, said) = child.wait();
    assert!(!good && !said.contains(&"purged".to_owned()), "{said:?}");
    let (store, opening) = open(&config(folder.path()));
    let found = (opening, count(&store, 100), has(&store, 7));
    store.purge(&Scope::Key(key(8))).unwrap();
    put(&store, 7, 1000);
    store.close().unwrap();
    let store = reopen(&config(folder.path()));
    assert!(has(&store, 7) && !has(&store, 8));
    found
}

#[test]
#[cfg(feature = "faults")]
fn killed_between_the_flush_and_the_purge() {
    assert_eq!(dies("die-flushed"), (Opening::Reopened, 100, true));
}

#[test]
#[cfg(feature = "faults")]
fn killed_between_the_purge_and_its_mark() {
    assert_eq!(dies("die-written"), (Opening::Reopened, 99, false));
}

#[test]
#[cfg(feature = "faults")]
fn killed_while_a_store_is_made() {
    let (opening, found, _) = dies("die-made");
    assert!(matches!(opening, Opening::SetAside { .. }), "{opening:?}");
    assert_eq!(found, 0);
}

/// The child: a purge that can't flush, and its second try, which must; then
/// the end of it.
#[cfg(feature = "faults")]
pub fn purge_twice(folder: &Path) {
    let (store, _) = open(&config(folder));
    for n in 0..100 {
        put(&store, n, 1000);
    }
    assert!(store.purge(&Scope::Key(key(7))).is_err());
    store.purge(&Scope::Key(key(8))).unwrap();
    std::process::abort();
}

/// A database over which RocksDB ends the process is not opened for ever.
#[test]
#[cfg(feature = "faults")]
fn a_database_that_ends_the_process_is_given_up() {
    let folder = folder();
    let config = config(folder.path());
    open(&config).0.close().unwrap();
    let die = || {
        let fault = [("SSZIP_FAULT", "die-opening")];
        start("purge-once", folder.path(), 0, &fault).wait()
    };
    // some are no reason, and one that goes well makes them forgotten
    for _ in 0..2 {
        for _ in 0..4 {
            assert!(!die().0);
        }
        reopen(&config).close().unwrap();
    }
    for _ in 0..5 {
        assert!(!die().0);
    }
    let (good, said) = die();
    assert!(good, "{said:?}");
    reopen(&config);
}

#[test]
#[cfg(feature = "faults")]
fn what_a_failed_flush_left_is_flushed_by_the_next() {
    let folder = folder();
    let fault = [("SSZIP_FAULT", "fail-flush")];
    let (_, said) = start("purge-twice", folder.path(), 0, &fault).wait();
    assert!(said.is_empty());
    let store = reopen(&config(folder.path()));
    assert_eq!(count(&store, 100), 98);
    // the first purge was only put off
    assert!(!has(&store, 7) && !has(&store, 8));
}
