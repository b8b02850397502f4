//! Opening a store: ownership of the directory, and integrity of its content.
//!
//! ```text
//! PATH/LOCK          held by the process that owns the store (flock)
//! PATH/sszip-store   what the database must contain (marker.rs)
//! PATH/db/           RocksDB's files
//! PATH/opening       a byte for each opening that the process did not survive
//! PATH/broken-1/     a database that was set aside, without its SST files
//! ```
//!
//! A database that is damaged, or of an earlier version, is set aside and replaced by a new one: it
//! is a cache. Other failures (a full disk, a directory of another user, the store of a later
//! version) are errors, and no file is changed.

use std::fs::{self, DirBuilder, File, Metadata, Permissions, TryLockError};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{fcntl_lock, FlockOperation};

use crate::faults::{abort_if_injected, InjectedTestFault};

use super::config::{StoreConfig, CONTROL_FAMILY, MIN_SIZE};
use super::control;
use super::marker::{sync_folder, StoreMarkerError, StoreMarkerFile, MARKER_FILE, PRIVATE_MODE};
use super::purges::PurgeRecords;
use super::rocks::{RocksDatabase, RocksError, RowChange};

pub(super) const DATABASE_FOLDER: &str = "db";
const OPENING_FILE: &str = "opening";
const LOCK_FILE: &str = "LOCK";
/// Maximum number of attempts to open a database before it is set aside.
const MAX_OPENINGS: u64 = 5;
/// Bytes that have to be free when it is opened.
const PROBE_LENGTH: usize = 1 << 20;
/// Maximum number of databases that were set aside and are kept.
const MAX_BROKEN: usize = 2;

/// The content with which a store was opened: its former one, or none because it is new or was
/// damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOpenOutcome {
    /// There was no store, and a new one was created.
    Fresh,
    /// The store was reopened with its content.
    Reopened,
    /// The store was damaged or too old, and was replaced by an empty one.
    SetAside {
        /// Damage that was found.
        damage: StoreDamage,
        /// Directory of its remains, if there are any.
        to: Option<PathBuf>,
    },
}

/// The damage, or the older format, that made the process set a store aside and create an empty
/// one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreDamage {
    /// The marker file is missing, or the creation of the store was interrupted.
    #[error("its database has no marker file")]
    NoMarker,
    /// The content of the marker file is invalid.
    #[error("its marker file is damaged")]
    Marker,
    /// The store was created by an earlier version, in this format.
    #[error("it has format {0} of an earlier version")]
    Older(u64),
    /// The database is missing.
    #[error("its database is missing")]
    NoDatabase,
    /// The database is empty, or another one.
    #[error("its database is not the one that its marker file names")]
    OtherDatabase,
    /// The database lacks purges or other durable writes.
    #[error("its database has lost purges: {found} of {wanted} writes are present")]
    LostWrites {
        /// Number of durable writes in the database.
        found: u64,
        /// Number of durable writes in the marker file.
        wanted: u64,
    },
    /// The process ended repeatedly while it opened the database.
    #[error("the process ended several times while it opened the database")]
    CrashedOpening,
    /// RocksDB can't read the database; with its message.
    #[error("{0}")]
    Unreadable(String),
}

/// The reason why a store can't be opened, which is the operator's to resolve. No file was changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// Another process has the store open.
    #[error("another process has it open")]
    Locked,
    /// A later version created the store.
    #[error(
        "it has format {format} of a later version; install that version, or choose another \
             folder"
    )]
    Newer {
        /// Format of the store.
        format: u64,
    },
    /// The directory, or a file in it, belongs to another user.
    #[error("{} belongs to user {owner}, but this process runs as user {user}; chown the folder, \
             or choose another one", path.display())]
    Owner {
        /// Path of the file.
        path: PathBuf,
        /// Owner of the file.
        owner: u32,
        /// User of this process.
        user: u32,
    },
    /// The directory has files, and no store.
    #[error("{} is not part of a store, which needs a folder of its own; choose an empty or a new \
             folder", path.display())]
    Foreign {
        /// Path of the first such file.
        path: PathBuf,
    },
    /// The configured size is less than [`MIN_SIZE`] bytes.
    #[error("its maximum size of {max_size} bytes is too small; set at least {MIN_SIZE}")]
    TooSmall {
        /// Configured size in bytes.
        max_size: u64,
    },
    /// A system call failed.
    #[error("{}: {error}{}", path.display(), io_error_remedy(error))]
    Io {
        /// Path of the failed operation.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// RocksDB could not create a database.
    #[error("{0}")]
    Database(RocksError),
}

/// Returns the remedy that ends the message of a failed system call, if it has one.
fn io_error_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; chown the folder to the user of this process, or choose another one"
        }
        _ => "",
    }
}

/// An open RocksDB database of the store, with the marker and the purges that were read from it.
pub(super) struct OpenStoreDatabase {
    pub(super) rocks: RocksDatabase,
    pub(super) marker: StoreMarkerFile,
    pub(super) purges: PurgeRecords,
    pub(super) opening: StoreOpenOutcome,
}

/// The result of a failed attempt to reopen a database: damage, after which it is replaced, or an
/// error.
enum DatabaseReopenFailure {
    Damaged(StoreDamage),
    Error(StoreOpenError),
}

impl From<RocksError> for DatabaseReopenFailure {
    fn from(failure: RocksError) -> Self {
        Self::Damaged(StoreDamage::Unreadable(failure.to_string()))
    }
}

/// Opens or creates the database. `now` is in milliseconds since 1970: it becomes the generation of
/// a new store, so that entries that were fetched for an earlier one are older.
pub(super) fn open_database(
    config: &StoreConfig,
    now: u64,
) -> Result<OpenStoreDatabase, StoreOpenError> {
    if config.max_size < MIN_SIZE {
        return Err(StoreOpenError::TooSmall {
            max_size: config.max_size,
        });
    }
    let folder = &config.path;
    prepare_store_folder(folder)?;
    let lock = lock_store_folder(folder)?;
    probe_store_folder(folder)?;
    let database = folder.join(DATABASE_FOLDER);
    let exists = path_exists(&database)?;
    let found = match StoreMarkerFile::read_marker_file(folder) {
        Ok(Some(marker)) if exists => reopen_database(config, &database, marker),
        Ok(Some(_)) => Err(DatabaseReopenFailure::Damaged(StoreDamage::NoDatabase)),
        Ok(None) if exists => Err(DatabaseReopenFailure::Damaged(StoreDamage::NoMarker)),
        Ok(None) => create_database(config, &database, now, StoreOpenOutcome::Fresh)
            .map_err(DatabaseReopenFailure::Error),
        Err(StoreMarkerError::Damaged) => Err(DatabaseReopenFailure::Damaged(StoreDamage::Marker)),
        Err(StoreMarkerError::Older(format)) => {
            Err(DatabaseReopenFailure::Damaged(StoreDamage::Older(format)))
        }
        Err(StoreMarkerError::Newer(format)) => {
            Err(DatabaseReopenFailure::Error(StoreOpenError::Newer {
                format,
            }))
        }
        Err(StoreMarkerError::Io(error)) => {
            Err(DatabaseReopenFailure::Error(store_io_error(folder, error)))
        }
    };
    let mut opened = match found {
        Ok(opened) => opened,
        Err(DatabaseReopenFailure::Error(error)) => return Err(error),
        Err(DatabaseReopenFailure::Damaged(damage)) => {
            probe_store_folder(folder)?;
            check_store_file_owners(folder)?;
            let set_aside =
                set_database_aside(folder).map_err(|error| store_io_error(folder, error));
            let opening = StoreOpenOutcome::SetAside {
                damage,
                to: set_aside?,
            };
            create_database(config, &database, now, opening)?
        }
    };
    clear_opening_attempts(folder)?;
    // held until the last user of the database is gone
    opened.rocks.retain_lock_until_close(lock);
    Ok(opened)
}

fn store_io_error(path: &Path, error: io::Error) -> StoreOpenError {
    StoreOpenError::Io {
        path: path.into(),
        error,
    }
}

fn path_exists(path: &Path) -> Result<bool, StoreOpenError> {
    path.try_exists()
        .map_err(|error| store_io_error(path, error))
}

/// Creates the directory if necessary, and checks that it belongs to this user and can be written.
fn prepare_store_folder(folder: &Path) -> Result<(), StoreOpenError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| store_io_error(folder, error))?;
    // of a link its target counts
    check_file_owner(folder, folder.metadata())?;
    refuse_other_files(folder)
}

/// Refuses a directory with other files: a store creates and removes files in its directory, so
/// that it must be a store's, or empty.
fn refuse_other_files(folder: &Path) -> Result<(), StoreOpenError> {
    let io = |error| store_io_error(folder, error);
    let mut first = None;
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name();
        if name == LOCK_FILE || name == MARKER_FILE || name == DATABASE_FOLDER {
            return Ok(());
        }
        // a directory of the file system, if one is mounted here
        if name != "lost+found" {
            first.get_or_insert(entry.path());
        }
    }
    match first {
        Some(path) => Err(StoreOpenError::Foreign { path }),
        None => Ok(()),
    }
}

/// Returns an error if a file belongs to another user than the effective one of this process.
fn check_file_owner(path: &Path, metadata: io::Result<Metadata>) -> Result<(), StoreOpenError> {
    let owner = metadata.map_err(|error| store_io_error(path, error))?.uid();
    let user = rustix::process::geteuid().as_raw();
    if owner == user {
        return Ok(());
    }
    Err(StoreOpenError::Owner {
        path: path.into(),
        owner,
        user,
    })
}

/// Checks that the directory can be written, and has space for the files that RocksDB creates when
/// it opens: without it, a failure is no damage.
fn probe_store_folder(folder: &Path) -> Result<(), StoreOpenError> {
    let probe = folder.join("probe");
    let written = fs::write(&probe, vec![0; PROBE_LENGTH]);
    let removed = fs::remove_file(&probe);
    written
        .and(removed)
        .map_err(|error| store_io_error(&probe, error))
}

/// Refuses files of another user, which are no damage of the database.
fn check_store_file_owners(folder: &Path) -> Result<(), StoreOpenError> {
    for folder in [folder, &folder.join(DATABASE_FOLDER)] {
        match fs::read_dir(folder) {
            Ok(entries) => {
                for entry in entries {
                    let entry = entry.map_err(|error| store_io_error(folder, error))?;
                    check_file_owner(&entry.path(), entry.metadata())?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(store_io_error(folder, error)),
        }
    }
    Ok(())
}

/// Takes the directory's lock, which ends with the process, and checks whether a tool of RocksDB
/// holds the lock of the database.
fn lock_store_folder(folder: &Path) -> Result<File, StoreOpenError> {
    let path = folder.join(LOCK_FILE);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(PRIVATE_MODE)
        .open(&path)
        .map_err(|error| store_io_error(&path, error))?;
    // the file of an earlier version was writable for all users
    file.set_permissions(Permissions::from_mode(PRIVATE_MODE))
        .map_err(|error| store_io_error(&path, error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(StoreOpenError::Locked),
        Err(TryLockError::Error(error)) => return Err(store_io_error(&path, error)),
    }
    let path = folder.join(DATABASE_FOLDER).join(LOCK_FILE);
    match File::options().write(true).open(&path) {
        // released when the file is closed
        Ok(file) => match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {
                return Err(StoreOpenError::Locked)
            }
            Err(error) => return Err(store_io_error(&path, error.into())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(store_io_error(&path, error)),
    }
    Ok(file)
}

/// Counts the times that a process began to open the database and did not survive: RocksDB, with
/// Debian's assertions, may abort the process when it finds damage, and a supervisor would restart
/// it forever.
fn record_opening_attempt(folder: &Path) -> Result<(), DatabaseReopenFailure> {
    let path = folder.join(OPENING_FILE);
    let io = |error| DatabaseReopenFailure::Error(store_io_error(&path, error));
    let mut file = File::options()
        .create(true)
        .append(true)
        .mode(PRIVATE_MODE)
        .open(&path)
        .map_err(io)?;
    if file.metadata().map_err(io)?.len() >= MAX_OPENINGS {
        return Err(DatabaseReopenFailure::Damaged(StoreDamage::CrashedOpening));
    }
    file.write_all(b"x").map_err(io)
}

/// Removes the file that counts attempts to open the database; a missing file is no error.
fn clear_opening_attempts(folder: &Path) -> Result<(), StoreOpenError> {
    match fs::remove_file(folder.join(OPENING_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(store_io_error(&folder.join(OPENING_FILE), error))
        }
        _ => Ok(()),
    }
}

/// Opens the database that `marker` names. Another database, or one that lacks acknowledged writes,
/// is reported as damaged, as is one whose opening crashed too often.
fn reopen_database(
    config: &StoreConfig,
    database: &Path,
    marker: StoreMarkerFile,
) -> Result<OpenStoreDatabase, DatabaseReopenFailure> {
    record_opening_attempt(&config.path)?;
    abort_if_injected(InjectedTestFault::DieOpening);
    let rocks = RocksDatabase::open_database(
        database,
        &config.family_options(),
        config.block_cache,
        false,
    )?;
    let control = control::read_control_rows(&rocks)?;
    if control.name != Some(marker.name) {
        return Err(DatabaseReopenFailure::Damaged(StoreDamage::OtherDatabase));
    }
    // an unacknowledged write may be in the database and not in the marker
    if control.serial < marker.serial {
        return Err(DatabaseReopenFailure::Damaged(StoreDamage::LostWrites {
            found: control.serial,
            wanted: marker.serial,
        }));
    }
    let purges = control.purges.ok_or_else(|| {
        DatabaseReopenFailure::Damaged(StoreDamage::Unreadable(
            "the rows of its purges are invalid".into(),
        ))
    })?;
    Ok(OpenStoreDatabase {
        rocks,
        marker: StoreMarkerFile {
            serial: control.serial,
            ..marker
        },
        purges,
        opening: StoreOpenOutcome::Reopened,
    })
}

/// Creates a database. The marker is written last: an interrupted creation has none.
fn create_database(
    config: &StoreConfig,
    database: &Path,
    now: u64,
    opening: StoreOpenOutcome,
) -> Result<OpenStoreDatabase, StoreOpenError> {
    let folder = &config.path;
    StoreMarkerFile::remove_marker_file(folder).map_err(|error| store_io_error(folder, error))?;
    let rocks =
        RocksDatabase::open_database(database, &config.family_options(), config.block_cache, true)
            .map_err(StoreOpenError::Database)?;
    let name =
        random_database_name().map_err(|error| store_io_error(Path::new(RANDOM_DEVICE), error))?;
    let marker = StoreMarkerFile { name, serial: 0 };
    let purges = PurgeRecords::new(now);
    let rows = control::initial_control_rows(&name, &purges);
    let writes: Vec<_> = rows
        .iter()
        .map(|(key, value)| RowChange::Put {
            family: CONTROL_FAMILY,
            key,
            value: [value, &[]],
        })
        .collect();
    rocks
        .write(&writes, false)
        .and_then(|()| rocks.flush())
        .map_err(StoreOpenError::Database)?;
    abort_if_injected(InjectedTestFault::DieMade);
    sync_folder(folder)
        .and_then(|()| marker.write_marker_file(folder))
        .map_err(|error| store_io_error(folder, error))?;
    Ok(OpenStoreDatabase {
        rocks,
        marker,
        purges,
        opening,
    })
}

const RANDOM_DEVICE: &str = "/dev/urandom";

fn random_database_name() -> io::Result<[u8; 16]> {
    let mut name = [0; 16];
    File::open(RANDOM_DEVICE)?.read_exact(&mut name)?;
    Ok(name)
}

/// Renames the database, if there is one, and keeps the last few of these directories. SST files
/// and logs are removed: they may be as large as the store, and the other files show the cause.
fn set_database_aside(folder: &Path) -> io::Result<Option<PathBuf>> {
    let database = folder.join(DATABASE_FOLDER);
    if !database.try_exists()? {
        return Ok(None);
    }
    let mut broken = list_broken_databases(folder)?;
    let next = broken.last().map_or(1, |(number, _)| number + 1);
    let to = folder.join(format!("broken-{next}"));
    fs::rename(&database, &to)?;
    broken.push((next, to.clone()));
    for (_, old) in broken.iter().rev().skip(MAX_BROKEN) {
        fs::remove_dir_all(old)?;
    }
    for file in fs::read_dir(&to)? {
        let path = file?.path();
        let kind = path.extension().and_then(|kind| kind.to_str());
        if matches!(kind, Some("sst" | "log" | "dbtmp")) {
            fs::remove_file(&path)?;
        }
    }
    Ok(Some(to))
}

/// Returns the databases that were set aside before, the oldest first.
fn list_broken_databases(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix("broken-")?.parse().ok());
        found.extend(number.map(|number: u64| (number, path)));
    }
    found.sort_unstable();
    Ok(found)
}
