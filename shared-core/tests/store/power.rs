//! Power cuts: bytes and file names that were not synced are lost.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::store::{DiskEntryStore, StoreConfig, StoreOpenOutcome};

use super::child::{report, start};
use super::support::{config, count, folder, has, key, open, put};
use super::tier::times;

/// Maximum number of entries that are stored between two cuts.
const AHEAD: u64 = 300;

/// The child process: cuts the power `cuts` times while entries are stored and purged, and checks
/// the remains of each cut.
pub fn write(folder: &Path, cuts: u64) {
    let config = StoreConfig {
        write_buffer: 256 << 10,
        ..config(folder)
    };
    let (store, _) = open(&config);
    // entry n, for each n % 10 == 0, is purged when `acknowledged` is above n
    let acknowledged = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    // bounded by the capacity of the store, for a cut of any duration
    let may_write = AtomicU64::new(AHEAD);
    let mut surviving = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                while n >= may_write.load(Ordering::SeqCst) && done.load(Ordering::SeqCst) == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                put(&store, n, 3000);
                if n % 10 == 9 {
                    store.purge_entries(&PurgeScope::Key(key(n - 9))).unwrap();
                    acknowledged.store(n, Ordering::SeqCst);
                }
                if n % 10 == 4 {
                    put(&store, 1_000_000 + n, 3000);
                }
                if done.load(Ordering::SeqCst) > 0 {
                    break;
                }
            }
        });
        // ends the writer when a check below fails
        let _end = FinishOnDrop(&done);
        for cut in 0..cuts {
            while acknowledged.load(Ordering::SeqCst) <= cut * 20 {
                std::thread::yield_now();
            }
            let purged = acknowledged.load(Ordering::SeqCst);
            surviving += check_cut(&store, &folder.join(format!("cut-{cut}")), cut, purged);
            may_write.fetch_add(AHEAD, Ordering::SeqCst);
        }
    });
    report(format_args!("kept {surviving}"));
}

struct FinishOnDrop<'a>(&'a AtomicU64);

impl Drop for FinishOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::SeqCst);
    }
}

/// Cuts the power, and returns the number of entries below `purged` that are found.
fn check_cut(store: &DiskEntryStore, to: &Path, cut: u64, purged: u64) -> u64 {
    let left = config(to);
    store.power_cut(&left.path, cut.is_multiple_of(2)).unwrap();
    let (store, opening) = open(&left);
    assert_eq!(opening, StoreOpenOutcome::Reopened, "cut {cut}");
    for n in (0..purged).step_by(10) {
        assert!(!has(&store, n), "{n} of {purged} came back, cut {cut}");
    }
    let surviving = count(&store, purged);
    // each purge flushes the entries that were stored before it
    assert!(
        surviving >= purged / 10 * 9,
        "{surviving} of {purged}, cut {cut}"
    );
    store.flush_and_close().unwrap();
    std::fs::remove_dir_all(to).unwrap();
    surviving
}

#[test]
fn purges_survive_power_cuts() {
    let folder = folder();
    let child = start(
        "power",
        folder.path(),
        times(10, 30),
        &[("SSZIP_POWER_CUTS", "1")],
    );
    let (good, reports) = child.wait();
    assert!(good, "{reports:?}");
    let surviving: u64 = reports[0].strip_prefix("kept ").unwrap().parse().unwrap();
    assert!(surviving > times(100, 500), "{reports:?}");
}
