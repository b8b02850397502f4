//! The marker file, which records what the database must contain.
//!
//! RocksDB opens with the files that it finds: after a truncated MANIFEST or a lost log the
//! database has fewer rows, without an error. So this file has the name of the database, which the
//! database contains too, and counts the durable writes. It is replaced and synced after each of
//! them, before the write is acknowledged: a database with a lower count has lost a write.
//!
//! ```text
//! sszip-store 3
//! name 6f0c...
//! serial 12
//! crc32 89abcdef
//! ```
//!
//! The first and the last line have the same meaning in every version.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Format of the store, including the database.
pub(super) const STORE_FORMAT: u64 = 3;

pub(super) const MARKER_FILE: &str = "sszip-store";
const NEW_MARKER_FILE: &str = "sszip-store.new";
const MARKER_TITLE: &str = "sszip-store ";

/// Mode of files of the store, which other users must not read. nginx sets no umask.
pub(super) const PRIVATE_MODE: u32 = 0o600;

/// The content of the marker file, which records what the database must contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoreMarkerFile {
    /// Name of the database, which the database contains too.
    pub(super) name: [u8; 16],
    /// Number of durable writes.
    pub(super) serial: u64,
}

/// The reason why the marker file can't be used: it is unreadable, invalid, or of another format.
#[derive(Debug)]
pub(super) enum StoreMarkerError {
    /// The file was created by a later version.
    Newer(u64),
    /// The file was created by an earlier version.
    Older(u64),
    /// The file was created by no version.
    Damaged,
    /// The file can't be read.
    Io(io::Error),
}

impl StoreMarkerFile {
    /// Reads the marker in `folder`; returns `None` if there is none.
    pub(super) fn read_marker_file(folder: &Path) -> Result<Option<Self>, StoreMarkerError> {
        let text = match fs::read(folder.join(MARKER_FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreMarkerError::Io(error)),
        };
        let text = str::from_utf8(&text).map_err(|_| StoreMarkerError::Damaged)?;
        Self::parse_marker_text(text).map(Some)
    }

    /// Parses the text of a marker file, whose last line is the CRC-32 of the lines before it. A
    /// text that is cut or changed is reported as damaged.
    fn parse_marker_text(text: &str) -> Result<Self, StoreMarkerError> {
        let damaged = StoreMarkerError::Damaged;
        let checked = || {
            let (content, last) = text.strip_suffix('\n')?.rsplit_once('\n')?;
            let (_, content) = (last, &text[..=content.len()]);
            let crc = last.strip_prefix("crc32 ")?;
            (crc == format!("{:08x}", crc32fast::hash(content.as_bytes()))).then_some(content)
        };
        let Some(content) = checked() else {
            return Err(damaged);
        };
        let mut lines = content.lines();
        let mut line = |title: &str| lines.next()?.strip_prefix(title);
        let format = line(MARKER_TITLE).and_then(|format| format.parse().ok());
        match format {
            Some(STORE_FORMAT) => {}
            Some(format) if format > STORE_FORMAT => return Err(StoreMarkerError::Newer(format)),
            Some(format) => return Err(StoreMarkerError::Older(format)),
            None => return Err(damaged),
        }
        let name = line("name ").filter(|name| name.len() == 32);
        let name = name.and_then(|name| u128::from_str_radix(name, 16).ok());
        let serial = line("serial ").and_then(|serial| serial.parse().ok());
        match (name, serial) {
            (Some(name), Some(serial)) => Ok(Self {
                name: name.to_be_bytes(),
                serial,
            }),
            _ => Err(damaged),
        }
    }

    /// Returns the text of the marker file, whose last line is the CRC-32 of the lines before it.
    fn format_marker_text(self) -> String {
        let name = u128::from_be_bytes(self.name);
        let content = format!(
            "{MARKER_TITLE}{STORE_FORMAT}\nname {name:032x}\nserial {}\n",
            self.serial
        );
        let crc = crc32fast::hash(content.as_bytes());
        format!("{content}crc32 {crc:08x}\n")
    }

    /// Replaces the marker file in `folder` atomically. It is on disk when this returns.
    pub(super) fn write_marker_file(&self, folder: &Path) -> io::Result<()> {
        let new = folder.join(NEW_MARKER_FILE);
        let mut file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(PRIVATE_MODE)
            .open(&new)?;
        // a file that an earlier attempt has left keeps its own mode
        file.set_permissions(Permissions::from_mode(PRIVATE_MODE))?;
        file.write_all(self.format_marker_text().as_bytes())?;
        file.sync_all()?;
        drop(file);
        fs::rename(&new, folder.join(MARKER_FILE))?;
        sync_folder(folder)
    }

    /// Removes the marker in `folder`, if there is one. The removal is on disk when this returns.
    pub(super) fn remove_marker_file(folder: &Path) -> io::Result<()> {
        for file in [MARKER_FILE, NEW_MARKER_FILE] {
            match fs::remove_file(folder.join(file)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        sync_folder(folder)
    }
}

/// Syncs the names of files in `folder`.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Copies the marker of one directory to another.
#[cfg(feature = "faults")]
pub(super) fn copy_marker_file(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from.join(MARKER_FILE), to.join(MARKER_FILE)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::{StoreMarkerError, StoreMarkerFile, STORE_FORMAT};

    const MARKER: StoreMarkerFile = StoreMarkerFile {
        name: [0xa7; 16],
        serial: 12,
    };

    #[test]
    fn serialized_marker_is_parsed_unchanged() {
        let text = MARKER.format_marker_text();
        assert_eq!(StoreMarkerFile::parse_marker_text(&text).unwrap(), MARKER);
        assert!(text.starts_with("sszip-store 3\nname a7a7"));
    }

    #[test]
    fn changed_marker_is_reported_as_damaged() {
        let text = MARKER.format_marker_text();
        for length in 0..text.len() {
            assert!(matches!(
                StoreMarkerFile::parse_marker_text(&text[..length]),
                Err(StoreMarkerError::Damaged)
            ));
        }
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] ^= 1;
            let parsed = StoreMarkerFile::parse_marker_text(str::from_utf8(&other).unwrap());
            assert!(matches!(parsed, Err(StoreMarkerError::Damaged)), "{at}");
        }
    }

    #[test]
    fn marker_of_another_format_is_reported_as_newer_or_older() {
        let parse = |format: u64| {
            let content = format!("sszip-store {format}\nwhatever else\n");
            let crc = crc32fast::hash(content.as_bytes());
            StoreMarkerFile::parse_marker_text(&format!("{content}crc32 {crc:08x}\n"))
        };
        let newer = parse(STORE_FORMAT + 1);
        assert!(
            matches!(newer, Err(StoreMarkerError::Newer(format)) if format == STORE_FORMAT + 1)
        );
        let older = parse(STORE_FORMAT - 1);
        assert!(
            matches!(older, Err(StoreMarkerError::Older(format)) if format == STORE_FORMAT - 1)
        );
    }
}
