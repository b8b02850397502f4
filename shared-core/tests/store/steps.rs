//! Ends at each step of a lasting write, and of opening: at the places that
//! the feature `faults` has for it.

use std::path::Path;

use sszip_core::cache::entry::about::Scope;
use sszip_core::cache::store::Opening;

use super::child::{say, start};
use super::support::{config, count, folder, has, key, open, put, reopen};

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
fn killed_before_a_purge_is_flushed() {
    assert_eq!(dies("die-unflushed"), (Opening::Reopened, 0, false));
}

#[test]
fn killed_between_the_purge_and_its_mark() {
    assert_eq!(dies("die-written"), (Opening::Reopened, 99, false));
}

#[test]
fn killed_while_a_store_is_made() {
    let (opening, found, _) = dies("die-made");
    assert!(matches!(opening, Opening::SetAside { .. }), "{opening:?}");
    assert_eq!(found, 0);
}

/// The child: a purge that can't flush, and its second try, which must; then
/// the end of it.
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
