//! Opening: who may use the folder, and whether what lies there is whole.
//!
//! ```text
//! PATH/LOCK          held by the process that owns the store (flock)
//! PATH/sszip-store   what the database has to hold (marker.rs)
//! PATH/db/           RocksDB's files
//! PATH/opening       a byte for each time that opening it was not survived
//! PATH/broken-1/     a database that was set aside, without its tables
//! ```
//!
//! A database that is damaged, or of an earlier version, is set aside, and a new
//! one made: it is a cache.
//! What is not the database's fault (a full disk, a folder of somebody else, a
//! later version's store) is an error, and nothing is touched.

use std::fs::{self, DirBuilder, File, Metadata, Permissions, TryLockError};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{fcntl_lock, FlockOperation};

use crate::faults::{die_if, Fault};

use super::config::{Config, CONTROL, MIN_SIZE};
use super::control;
use super::marker::{sync_folder, Marker, MarkerError, FILE, PRIVATE};
use super::purges::Purges;
use super::rocks::{Failure, Rocks, Write};

pub(super) const DATABASE: &str = "db";
const OPENING: &str = "opening";
const LOCK: &str = "LOCK";
/// Attempts after which a database is given up.
const MAX_OPENINGS: u64 = 5;
/// Bytes that have to be free to open it.
const PROBE: usize = 1 << 20;
/// Databases that were set aside and are kept.
const MAX_BROKEN: usize = 2;

/// What opening the store did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// There was none.
    Fresh,
    /// It holds what it held.
    Reopened,
    /// What was there is damaged, or too old; the store begins anew, empty.
    SetAside {
        /// What was wrong with it.
        damage: Damage,
        /// Where what is left of it lies, if there was anything.
        to: Option<PathBuf>,
    },
}

/// Why a store begins anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file that says what the database has to hold is gone, or its making
    /// was interrupted.
    #[error("a database without its marker file")]
    NoMarker,
    /// That file is not as it was written.
    #[error("the marker file is damaged")]
    Marker,
    /// An earlier version made the store, in this format.
    #[error("an earlier version made it, in format {0}")]
    Older(u64),
    /// The database is gone.
    #[error("the database is gone")]
    NoDatabase,
    /// It is empty, or another one.
    #[error("the database is not the one it was")]
    OtherDatabase,
    /// Purges, or other lasting writes, are missing in it.
    #[error("the database has lost purges: {found} of {wanted} writes")]
    LostWrites {
        /// How many it knows of.
        found: u64,
        /// How many there were.
        wanted: u64,
    },
    /// The process ended while opening it, again and again.
    #[error("opening it ended the process several times")]
    EndsTheProcess,
    /// RocksDB can't read it, and says why.
    #[error("{0}")]
    Unreadable(String),
}

/// Why there is no store. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("another process has the store")]
    Locked,
    /// A later version made it.
    #[error("a later version made the store, in format {format}")]
    Newer {
        /// The format that it has.
        format: u64,
    },
    /// The folder, or something in it, belongs to another user.
    #[error("{} belongs to user {owner}, and this process runs as {user}", path.display())]
    Owner {
        /// Which file.
        path: PathBuf,
        /// Its user.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// There is something in the folder, and no store.
    #[error("{} is none of a store's, which needs a folder of its own", path.display())]
    Foreign {
        /// What, with its folder.
        path: PathBuf,
    },
    /// Fewer bytes than [`MIN_SIZE`] were allowed.
    #[error("{max_size} bytes are too few, {MIN_SIZE} are needed")]
    TooSmall {
        /// How many.
        max_size: u64,
    },
    /// The system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// On what.
        path: PathBuf,
        /// Its reason.
        error: io::Error,
    },
    /// RocksDB could not make a new database.
    #[error("{0}")]
    Database(Failure),
}

/// An open database and what was read of it.
pub(super) struct Opened {
    pub(super) rocks: Rocks,
    pub(super) marker: Marker,
    pub(super) purges: Purges,
    pub(super) opening: Opening,
}

enum Failed {
    Damaged(Damage),
    Error(OpenError),
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self::Damaged(Damage::Unreadable(failure.to_string()))
    }
}

/// `now` in milliseconds since 1970: a new store begins with the time as its
/// generation, so that what was on its way to an older one is older.
pub(super) fn open(config: &Config, now: u64) -> Result<Opened, OpenError> {
    if config.max_size < MIN_SIZE {
        return Err(OpenError::TooSmall {
            max_size: config.max_size,
        });
    }
    let folder = &config.path;
    own_folder(folder)?;
    let lock = lock(folder)?;
    probe(folder)?;
    let database = folder.join(DATABASE);
    let exists = exists(&database)?;
    let found = match Marker::read(folder) {
        Ok(Some(marker)) if exists => reopen(config, &database, marker),
        Ok(Some(_)) => Err(Failed::Damaged(Damage::NoDatabase)),
        Ok(None) if exists => Err(Failed::Damaged(Damage::NoMarker)),
        Ok(None) => create(config, &database, now, Opening::Fresh).map_err(Failed::Error),
        Err(MarkerError::Damaged) => Err(Failed::Damaged(Damage::Marker)),
        Err(MarkerError::Older(format)) => Err(Failed::Damaged(Damage::Older(format))),
        Err(MarkerError::Newer(format)) => Err(Failed::Error(OpenError::Newer { format })),
        Err(MarkerError::Io(error)) => Err(Failed::Error(io_error(folder, error))),
    };
    let mut opened = match found {
        Ok(opened) => opened,
        Err(Failed::Error(error)) => return Err(error),
        Err(Failed::Damaged(damage)) => {
            probe(folder)?;
            refuse_foreign(folder)?;
            let set_aside = set_aside(folder).map_err(|error| io_error(folder, error));
            let opening = Opening::SetAside {
                damage,
                to: set_aside?,
            };
            create(config, &database, now, opening)?
        }
    };
    end_opening(folder)?;
    // held until the last user of the database is gone
    opened.rocks.keep(lock);
    Ok(opened)
}

fn io_error(path: &Path, error: io::Error) -> OpenError {
    OpenError::Io {
        path: path.into(),
        error,
    }
}

fn exists(path: &Path) -> Result<bool, OpenError> {
    path.try_exists().map_err(|error| io_error(path, error))
}

/// The folder is there, ours, and can be written.
fn own_folder(folder: &Path) -> Result<(), OpenError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| io_error(folder, error))?;
    // where a link leads counts, not whose it is
    own(folder, folder.metadata())?;
    refuse_full(folder)
}

/// A store makes and removes files in its folder, so it is a store's, or empty.
fn refuse_full(folder: &Path) -> Result<(), OpenError> {
    let io = |error| io_error(folder, error);
    let mut first = None;
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name();
        if name == LOCK || name == FILE || name == DATABASE {
            return Ok(());
        }
        // of the file system, where it is mounted here
        if name != "lost+found" {
            first.get_or_insert(entry.path());
        }
    }
    match first {
        Some(path) => Err(OpenError::Foreign { path }),
        None => Ok(()),
    }
}

fn own(path: &Path, metadata: io::Result<Metadata>) -> Result<(), OpenError> {
    let owner = metadata.map_err(|error| io_error(path, error))?.uid();
    let user = rustix::process::geteuid().as_raw();
    if owner == user {
        return Ok(());
    }
    Err(OpenError::Owner {
        path: path.into(),
        owner,
        user,
    })
}

/// The folder can be written, and has room for the files that RocksDB makes
/// when it opens: where it has not, nothing that fails is damage.
fn probe(folder: &Path) -> Result<(), OpenError> {
    let probe = folder.join("probe");
    let written = fs::write(&probe, vec![0; PROBE]);
    let removed = fs::remove_file(&probe);
    written
        .and(removed)
        .map_err(|error| io_error(&probe, error))
}

/// Files of another user are not the database's damage.
fn refuse_foreign(folder: &Path) -> Result<(), OpenError> {
    for folder in [folder, &folder.join(DATABASE)] {
        match fs::read_dir(folder) {
            Ok(entries) => {
                for entry in entries {
                    let entry = entry.map_err(|error| io_error(folder, error))?;
                    own(&entry.path(), entry.metadata())?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error(folder, error)),
        }
    }
    Ok(())
}

/// Takes the folder's lock, which ends with the process, and looks whether a
/// tool of RocksDB's has the database's own.
fn lock(folder: &Path) -> Result<File, OpenError> {
    let path = folder.join(LOCK);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(PRIVATE)
        .open(&path)
        .map_err(|error| io_error(&path, error))?;
    // one of an earlier version was for all to write
    file.set_permissions(Permissions::from_mode(PRIVATE))
        .map_err(|error| io_error(&path, error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::Locked),
        Err(TryLockError::Error(error)) => return Err(io_error(&path, error)),
    }
    let path = folder.join(DATABASE).join(LOCK);
    match File::options().write(true).open(&path) {
        // given back when the file is closed
        Ok(file) => match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {
                return Err(OpenError::Locked)
            }
            Err(error) => return Err(io_error(&path, error.into())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error(&path, error)),
    }
    Ok(file)
}

/// Counts the times that a process began to open the database and was not
/// heard of again: RocksDB, with Debian's assertions, may end the process over
/// damage, and whoever starts it again would do so for ever.
fn begin_opening(folder: &Path) -> Result<(), Failed> {
    let path = folder.join(OPENING);
    let io = |error| Failed::Error(io_error(&path, error));
    let mut file = File::options()
        .create(true)
        .append(true)
        .mode(PRIVATE)
        .open(&path)
        .map_err(io)?;
    if file.metadata().map_err(io)?.len() >= MAX_OPENINGS {
        return Err(Failed::Damaged(Damage::EndsTheProcess));
    }
    file.write_all(b"x").map_err(io)
}

fn end_opening(folder: &Path) -> Result<(), OpenError> {
    match fs::remove_file(folder.join(OPENING)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error(&folder.join(OPENING), error))
        }
        _ => Ok(()),
    }
}

fn reopen(config: &Config, database: &Path, marker: Marker) -> Result<Opened, Failed> {
    begin_opening(&config.path)?;
    die_if(Fault::DieOpening);
    let rocks = Rocks::open(database, &config.families(), config.block_cache, false)?;
    let control = control::read(&rocks)?;
    if control.name != Some(marker.name) {
        return Err(Failed::Damaged(Damage::OtherDatabase));
    }
    // a write that was never acknowledged may be there without its mark
    if control.serial < marker.serial {
        return Err(Failed::Damaged(Damage::LostWrites {
            found: control.serial,
            wanted: marker.serial,
        }));
    }
    let purges = control.purges.ok_or_else(|| {
        Failed::Damaged(Damage::Unreadable(
            "rows that no purge can have left".into(),
        ))
    })?;
    Ok(Opened {
        rocks,
        marker: Marker {
            serial: control.serial,
            ..marker
        },
        purges,
        opening: Opening::Reopened,
    })
}

/// Makes a database where there is none. The marker comes last: what is cut
/// short has none.
fn create(
    config: &Config,
    database: &Path,
    now: u64,
    opening: Opening,
) -> Result<Opened, OpenError> {
    let folder = &config.path;
    Marker::remove(folder).map_err(|error| io_error(folder, error))?;
    let rocks = Rocks::open(database, &config.families(), config.block_cache, true)
        .map_err(OpenError::Database)?;
    let name = random_name().map_err(|error| io_error(Path::new(RANDOM), error))?;
    let marker = Marker { name, serial: 0 };
    let purges = Purges::new(now);
    let rows = control::first_rows(&name, &purges);
    let writes: Vec<_> = rows
        .iter()
        .map(|(key, value)| Write::Put {
            family: CONTROL,
            key,
            value: [value, &[]],
        })
        .collect();
    rocks
        .write(&writes, false)
        .and_then(|()| rocks.flush())
        .map_err(OpenError::Database)?;
    die_if(Fault::DieMade);
    sync_folder(folder)
        .and_then(|()| marker.write(folder))
        .map_err(|error| io_error(folder, error))?;
    Ok(Opened {
        rocks,
        marker,
        purges,
        opening,
    })
}

const RANDOM: &str = "/dev/urandom";

fn random_name() -> io::Result<[u8; 16]> {
    let mut name = [0; 16];
    File::open(RANDOM)?.read_exact(&mut name)?;
    Ok(name)
}

/// Renames the database, if there is one, and keeps the last few of those. Its
/// tables and its log go: they may be as large as the store may be, and what
/// the cause was is told by the rest.
fn set_aside(folder: &Path) -> io::Result<Option<PathBuf>> {
    let database = folder.join(DATABASE);
    if !database.try_exists()? {
        return Ok(None);
    }
    let mut broken = numbered(folder)?;
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

/// What was set aside before, the oldest first.
fn numbered(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
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
