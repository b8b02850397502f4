//! Ends of the process at each step of a durable write and of opening, by the fault injection of
//! the feature `faults`.

use std::path::Path;

use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::store::StoreOpenOutcome;

use super::child::{report, start};
use super::support::{config, count, folder, has, key, open, put, reopen};

/// The child process: stores entries, and purges one of them.
pub fn purge_once(folder: &Path) {
    let (store, _) = open(&config(folder));
    for n in 0..100 {
        put(&store, n, 1000);
    }
    report(format_args!("put"));
    store.purge_entries(&PurgeScope::Key(key(7))).unwrap();
    report(format_args!("purged"));
}

/// Ends the child by the fault; returns how the store is opened then, the number of its entries,
/// and whether entry 7 is found.
fn found_after_fault(fault: &str) -> (StoreOpenOutcome, u64, bool) {
    let folder = folder();
    let child = start("purge-once", folder.path(), 0, &[("SSZIP_FAULT", fault)]);
    let (good, reports) = child.wait();
    assert!(
        !good && !reports.contains(&"purged".to_owned()),
        "{reports:?}"
    );
    let (store, opening) = open(&config(folder.path()));
    let found = (opening, count(&store, 100), has(&store, 7));
    store.purge_entries(&PurgeScope::Key(key(8))).unwrap();
    put(&store, 7, 1000);
    store.flush_and_close().unwrap();
    let store = reopen(&config(folder.path()));
    assert!(has(&store, 7) && !has(&store, 8));
    found
}

#[test]
fn purge_is_in_effect_when_the_process_ends_before_its_flush() {
    assert_eq!(
        found_after_fault("die-unflushed"),
        (StoreOpenOutcome::Reopened, 0, false)
    );
}

#[test]
fn purge_is_in_effect_when_the_process_ends_before_its_marker() {
    assert_eq!(
        found_after_fault("die-written"),
        (StoreOpenOutcome::Reopened, 99, false)
    );
}

#[test]
fn store_is_set_aside_when_the_process_ends_during_its_creation() {
    let (opening, found, _) = found_after_fault("die-made");
    assert!(
        matches!(opening, StoreOpenOutcome::SetAside { .. }),
        "{opening:?}"
    );
    assert_eq!(found, 0);
}

/// The child process: a purge whose flush fails, a second one that must flush, and an abort.
pub fn purge_twice(folder: &Path) {
    let (store, _) = open(&config(folder));
    for n in 0..100 {
        put(&store, n, 1000);
    }
    assert!(store.purge_entries(&PurgeScope::Key(key(7))).is_err());
    store.purge_entries(&PurgeScope::Key(key(8))).unwrap();
    std::process::abort();
}

/// A database that ends the process while it is opened is set aside after a number of attempts.
#[test]
fn database_that_ends_the_process_repeatedly_is_replaced() {
    let folder = folder();
    let config = config(folder.path());
    open(&config).0.flush_and_close().unwrap();
    let die = || {
        let fault = [("SSZIP_FAULT", "die-opening")];
        start("purge-once", folder.path(), 0, &fault).wait()
    };
    // few failures have no effect, and a successful start resets their number
    for _ in 0..2 {
        for _ in 0..4 {
            assert!(!die().0);
        }
        reopen(&config).flush_and_close().unwrap();
    }
    for _ in 0..5 {
        assert!(!die().0);
    }
    let (good, reports) = die();
    assert!(good, "{reports:?}");
    reopen(&config);
}

#[test]
fn next_flush_writes_the_rows_of_a_failed_flush() {
    let folder = folder();
    let fault = [("SSZIP_FAULT", "fail-flush")];
    let (_, reports) = start("purge-twice", folder.path(), 0, &fault).wait();
    assert!(reports.is_empty());
    let store = reopen(&config(folder.path()));
    assert_eq!(count(&store, 100), 98);
    // the write of the first purge was only deferred
    assert!(!has(&store, 7) && !has(&store, 8));
}
