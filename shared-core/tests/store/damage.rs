//! Damage of each kind to each kind of file: no purged or wrong entry is found, and the store
//! stays usable.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::store::{
    DiskEntryStore, StoreConfig, StoreDamage, StoreOpenError, StoreOpenOutcome,
};
use tempfile::TempDir;

use super::child::{report, start};
use super::support::{config, count, folder, has, header, key, open, put, reopen, try_open, NOW};

/// Entries 1 to 100: 50 is purged before the last flush, 60 and 61 after it.
const ENTRIES: u64 = 101;
const LATER: u64 = NOW + 1000;

fn fill(store: &DiskEntryStore) {
    for n in 1..ENTRIES {
        put(store, n, 3000);
    }
    store.purge_entries(&PurgeScope::Key(key(50))).unwrap();
    store.flush().unwrap();
    for n in [60, 61] {
        store.purge_entries(&PurgeScope::Key(key(n))).unwrap();
    }
}

/// The child process.
pub fn fill_and_wait(folder: &Path) {
    let (store, _) = open(&config(folder));
    fill(&store);
    report(format_args!("filled"));
    // the parent kills it long before
    std::thread::sleep(Duration::from_secs(600));
}

/// Returns the folder of a store whose process was killed.
fn killed() -> TempDir {
    let folder = folder();
    let child = start("fill", folder.path(), 0, &[]);
    child
        .reports
        .recv_timeout(Duration::from_secs(120))
        .unwrap();
    child.kill();
    folder
}

/// Returns the folder of a store that was closed.
fn closed() -> TempDir {
    let folder = folder();
    let (store, _) = open(&config(folder.path()));
    fill(&store);
    store.flush_and_close().unwrap();
    folder
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

/// Returns the files of the store whose name begins or ends with `kind`, the largest first.
fn files(config: &StoreConfig, kind: &str) -> Vec<PathBuf> {
    let folders = [config.path.clone(), config.path.join("db")];
    let mut files: Vec<_> = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            path.is_file() && (name.starts_with(kind) || name.ends_with(kind))
        })
        .collect();
    files.sort_by_key(|path| std::cmp::Reverse(path.metadata().unwrap().len()));
    files
}

#[derive(Clone, Copy, Debug)]
enum DamageKind {
    Empty,
    Half,
    /// Flips a bit at this sixteenth of the length.
    Flip(u64),
    Remove,
}

fn apply_damage(path: &Path, blow: DamageKind) {
    let mut content = fs::read(path).unwrap();
    let length = content.len();
    match blow {
        DamageKind::Empty => fs::write(path, b"").unwrap(),
        DamageKind::Half => fs::write(path, &content[..length / 2]).unwrap(),
        DamageKind::Flip(place) => {
            let at = (length as u64 * place / 16).min(length as u64 - 1);
            content[at as usize] ^= 0x41;
            fs::write(path, &content).unwrap();
        }
        DamageKind::Remove => fs::remove_file(path).unwrap(),
    }
}

/// Opens the damaged store, checks it, and returns how it was opened and the number of entries
/// found.
fn check_reopened(config: &StoreConfig, label: &str) -> (StoreOpenOutcome, u64) {
    let (store, opening) = try_open(config, LATER).unwrap_or_else(|error| {
        panic!("{label}: {error}");
    });
    let found = count(&store, ENTRIES);
    for n in [50, 60, 61] {
        assert!(!has(&store, n), "{label}: {n} came back, {opening:?}");
    }
    if let StoreOpenOutcome::SetAside { to, .. } = &opening {
        assert_eq!(found, 0, "{label}");
        // a fill that was in flight when the store was set aside
        let mut late = header(&store, 60);
        late.about.generation = NOW + 1;
        assert!(
            store.put_entry(&key(60), &late, b"late").is_err(),
            "{label}"
        );
        if let Some(to) = to {
            let tables = fs::read_dir(to).unwrap().map(|entry| entry.unwrap().path());
            let sst = |path: PathBuf| path.extension() == Some("sst".as_ref());
            assert!(!tables.into_iter().any(sst), "{label}");
        }
    }
    put(&store, 200, 1000);
    store.purge_entries(&PurgeScope::Key(key(1))).unwrap();
    assert!(has(&store, 200) && !has(&store, 1), "{label}");
    store.flush_and_close().unwrap();
    let store = reopen(config);
    assert!(has(&store, 200) && !has(&store, 1), "{label}");
    (opening, found)
}

fn damage_each_way(make: fn() -> TempDir, kind: &str) -> Vec<(DamageKind, StoreOpenOutcome, u64)> {
    let flips = [0, 1, 4, 7, 10, 13, 16].map(DamageKind::Flip);
    let blows = [DamageKind::Empty, DamageKind::Half, DamageKind::Remove]
        .into_iter()
        .chain(flips);
    blows
        .map(|blow| {
            let folder = make();
            let config = config(folder.path());
            let file = files(&config, kind).first().cloned();
            apply_damage(&file.unwrap_or_else(|| panic!("no {kind}")), blow);
            let (opening, found) = check_reopened(&config, &format!("{kind} {blow:?}"));
            (blow, opening, found)
        })
        .collect()
}

/// Checks that no loss went undetected.
fn check_all_losses_detected(outcomes: &[(DamageKind, StoreOpenOutcome, u64)]) {
    for (blow, opening, found) in outcomes {
        let whole = *opening == StoreOpenOutcome::Reopened && *found == ENTRIES - 4;
        let noticed = matches!(opening, StoreOpenOutcome::SetAside { .. });
        assert!(whole || noticed, "{blow:?}: {opening:?}, {found} found");
    }
}

#[test]
fn undamaged_store_is_reopened_with_all_entries() {
    for make in [killed, closed] {
        let folder = make();
        let (opening, found) = check_reopened(&config(folder.path()), "nothing");
        assert_eq!((opening, found), (StoreOpenOutcome::Reopened, ENTRIES - 4));
    }
}

#[test]
fn damaged_manifest_is_detected() {
    for make in [killed, closed] {
        check_all_losses_detected(&damage_each_way(make, "MANIFEST"));
    }
}

#[test]
fn damaged_current_file_is_detected() {
    check_all_losses_detected(&damage_each_way(killed, "CURRENT"));
}

/// The write-ahead log is not used, and so cannot be damaged.
#[test]
fn write_ahead_log_is_empty() {
    let folder = killed();
    let logs = files(&config(folder.path()), ".log");
    assert!(!logs.is_empty());
    for log in logs {
        assert_eq!(log.metadata().unwrap().len(), 0, "{log:?}");
    }
}

/// A damaged SST file loses the entries that cannot be read, and no others.
#[test]
fn damaged_sst_file_loses_only_its_unreadable_entries() {
    for (blow, opening, found) in damage_each_way(closed, ".sst") {
        match (blow, opening) {
            (_, StoreOpenOutcome::SetAside { .. }) => {}
            (DamageKind::Flip(_), StoreOpenOutcome::Reopened) => {
                assert!(found >= ENTRIES - 4 - 12, "{blow:?}: {found} found");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The SST files with the purges are among them.
#[test]
fn purged_entries_stay_removed_when_any_sst_file_is_damaged() {
    for blow in [
        DamageKind::Half,
        DamageKind::Remove,
        DamageKind::Flip(1),
        DamageKind::Flip(3),
    ] {
        for table in 0.. {
            let folder = closed();
            let config = config(folder.path());
            // their number depends on the compactions
            let tables = files(&config, ".sst");
            let Some(path) = tables.get(table) else {
                assert!(table > 0, "no table");
                break;
            };
            apply_damage(path, blow);
            check_reopened(&config, &format!("table {table} {blow:?}"));
        }
    }
}

#[test]
fn store_is_reopened_when_options_or_identity_are_damaged() {
    for kind in ["OPTIONS", "IDENTITY"] {
        for (blow, opening, found) in damage_each_way(killed, kind) {
            assert_eq!(
                (opening, found),
                (StoreOpenOutcome::Reopened, ENTRIES - 4),
                "{kind} {blow:?}"
            );
        }
    }
}

#[test]
fn store_is_set_aside_when_its_marker_is_damaged() {
    for (blow, opening, _) in damage_each_way(killed, "sszip-store") {
        assert!(
            matches!(
                opening,
                StoreOpenOutcome::SetAside {
                    damage: StoreDamage::Marker | StoreDamage::NoMarker,
                    to: Some(_)
                }
            ),
            "{blow:?}: {opening:?}"
        );
    }
}

#[test]
fn store_is_replaced_when_its_database_is_missing() {
    let folder = closed();
    let config = config(folder.path());
    fs::remove_dir_all(config.path.join("db")).unwrap();
    let (opening, _) = check_reopened(&config, "no database");
    assert_eq!(
        opening,
        StoreOpenOutcome::SetAside {
            damage: StoreDamage::NoDatabase,
            to: None
        }
    );
}

/// A backup of the database was restored.
#[test]
fn store_is_set_aside_when_its_database_is_older_than_the_marker() {
    let folder = folder();
    let config = config(folder.path());
    let (store, _) = open(&config);
    put(&store, 1, 100);
    store.flush_and_close().unwrap();
    copy(&config.path.join("db"), &folder.path().join("backup"));
    let store = reopen(&config);
    store.purge_entries(&PurgeScope::Key(key(1))).unwrap();
    store.flush_and_close().unwrap();
    fs::remove_dir_all(config.path.join("db")).unwrap();
    fs::rename(folder.path().join("backup"), config.path.join("db")).unwrap();
    let (store, opening) = open(&config);
    assert!(!has(&store, 1));
    assert!(matches!(
        opening,
        StoreOpenOutcome::SetAside {
            damage: StoreDamage::LostWrites {
                found: 0,
                wanted: 1
            },
            ..
        }
    ));
}

#[test]
fn store_is_set_aside_when_its_database_belongs_to_another_store() {
    let (folder, other) = (closed(), closed());
    let config = config(folder.path());
    fs::remove_dir_all(config.path.join("db")).unwrap();
    copy(&other.path().join("store/db"), &config.path.join("db"));
    let (opening, _) = check_reopened(&config, "another's");
    assert!(matches!(
        opening,
        StoreOpenOutcome::SetAside {
            damage: StoreDamage::OtherDatabase,
            ..
        }
    ));
}

#[test]
fn last_two_broken_databases_are_kept() {
    let folder = closed();
    let config = config(folder.path());
    for n in 1..=5 {
        for file in files(&config, "CURRENT") {
            fs::remove_file(file).unwrap();
        }
        let (_, opening) = open(&config);
        let StoreOpenOutcome::SetAside { to: Some(to), .. } = opening else {
            panic!("{opening:?}");
        };
        assert_eq!(to, config.path.join(format!("broken-{n}")));
    }
    let broken = |n: u32| config.path.join(format!("broken-{n}")).exists();
    let there: Vec<_> = (1..=6).filter(|n| broken(*n)).collect();
    assert_eq!(there, [4, 5]);
}

/// The files of a later version are not changed.
#[test]
fn newer_format_is_left_unchanged() {
    let folder = closed();
    let config = config(folder.path());
    let marker = config.path.join("sszip-store");
    let old = fs::read(&marker).unwrap();
    let content = "sszip-store 4\nsomething new\n";
    let crc = crc32fast::hash(content.as_bytes());
    fs::write(&marker, format!("{content}crc32 {crc:08x}\n")).unwrap();
    let error = try_open(&config, NOW).unwrap_err();
    assert!(
        matches!(error, StoreOpenError::Newer { format: 4 }),
        "{error}"
    );
    fs::write(&marker, old).unwrap();
    let (opening, found) = check_reopened(&config, "the old version again");
    assert_eq!((opening, found), (StoreOpenOutcome::Reopened, ENTRIES - 4));
}

/// A store of an earlier version is replaced by an empty one, in which no purged entry is found.
#[test]
fn older_format_is_set_aside() {
    let folder = closed();
    let config = config(folder.path());
    let content = "sszip-store 1\nname and serial\n";
    let crc = crc32fast::hash(content.as_bytes());
    let marker = format!("{content}crc32 {crc:08x}\n");
    fs::write(config.path.join("sszip-store"), marker).unwrap();
    let (opening, found) = check_reopened(&config, "an earlier version's");
    let damage = StoreDamage::Older(1);
    let to = Some(config.path.join("broken-1"));
    assert_eq!(
        (opening, found),
        (StoreOpenOutcome::SetAside { damage, to }, 0)
    );
    reopen(&config);
}

/// Runs only as root, like the tests of the module.
#[test]
fn folder_or_file_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let other_user = Some(65_534);
    let folder = closed();
    let config = config(folder.path());
    std::os::unix::fs::chown(&config.path, other_user, None).unwrap();
    let error = try_open(&config, NOW).unwrap_err();
    assert!(
        matches!(error, StoreOpenError::Owner { owner: 65_534, .. }),
        "{error}"
    );
    std::os::unix::fs::chown(&config.path, Some(0), None).unwrap();
    // damage, with a file whose owner shows that it may belong to another process
    let current = config.path.join("db/CURRENT");
    fs::write(&current, "MANIFEST-nonsense\n").unwrap();
    std::os::unix::fs::chown(&current, other_user, None).unwrap();
    let error = try_open(&config, NOW).unwrap_err();
    assert!(matches!(error, StoreOpenError::Owner { .. }), "{error}");
    assert!(!config.path.join("broken-1").exists());
}

/// A file at the store's path is not overwritten.
#[test]
fn file_instead_of_a_folder_is_refused() {
    let folder = folder();
    let config = config(folder.path());
    fs::write(&config.path, b"something").unwrap();
    let error = try_open(&config, NOW).unwrap_err();
    assert!(matches!(error, StoreOpenError::Io { .. }), "{error}");
    assert_eq!(fs::read(&config.path).unwrap(), b"something");
}

/// A folder with other files is not used as a store.
#[test]
fn folder_with_other_files_is_refused() {
    let folder = folder();
    let config = config(folder.path());
    fs::create_dir(&config.path).unwrap();
    // the directory of a mounted file system
    fs::create_dir(config.path.join("lost+found")).unwrap();
    fs::write(config.path.join("probe"), b"something").unwrap();
    let error = try_open(&config, NOW).unwrap_err();
    assert!(matches!(error, StoreOpenError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("/probe "), "{error}");
    assert_eq!(fs::read(config.path.join("probe")).unwrap(), b"something");
    assert_eq!(fs::read_dir(&config.path).unwrap().count(), 2);
    fs::remove_file(config.path.join("probe")).unwrap();
    try_open(&config, NOW).unwrap();
}

#[test]
fn store_files_are_readable_by_the_owner_only() {
    let folder = closed();
    let path = folder.path().join("store");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for file in ["LOCK", "sszip-store"] {
        assert_eq!(mode(&path.join(file)), 0o600, "{file}");
        // the mode that an earlier version may have left
        let all = fs::Permissions::from_mode(0o666);
        fs::set_permissions(path.join(file), all).unwrap();
    }
    let (store, _) = open(&config(folder.path()));
    store.purge_entries(&PurgeScope::Everything).unwrap();
    for file in ["LOCK", "sszip-store"] {
        assert_eq!(mode(&path.join(file)), 0o600, "{file}");
    }
}
