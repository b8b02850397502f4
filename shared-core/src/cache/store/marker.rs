//! The file beside the database that says what the database has to hold.
//!
//! RocksDB opens with what it finds: after a truncated MANIFEST or a lost log
//! that is less than was there, without an error. So this file names the
//! database, which holds the same name, and counts the writes that must never
//! come undone. It is replaced, and synced, after each of them and before it is
//! acknowledged: a database that counts fewer has lost one.
//!
//! ```text
//! sszip-store 3
//! name 6f0c...
//! serial 12
//! crc32 89abcdef
//! ```
//!
//! The first line and the last will mean the same in any version.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The layout of the store, database included.
pub(super) const FORMAT: u64 = 3;

pub(super) const FILE: &str = "sszip-store";
const NEW: &str = "sszip-store.new";
const TITLE: &str = "sszip-store ";

/// Nobody else's business, whatever the umask is: nginx has none.
pub(super) const PRIVATE: u32 = 0o600;

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marker {
    /// Of the database, and in it.
    pub(super) name: [u8; 16],
    /// How many lasting writes there were.
    pub(super) serial: u64,
}

/// Why a file is no marker.
#[derive(Debug)]
pub(super) enum MarkerError {
    /// Made by a later version.
    Newer(u64),
    /// Made by an earlier version.
    Older(u64),
    /// Made by no version.
    Damaged,
    /// It can't be read.
    Io(io::Error),
}

impl Marker {
    /// The marker in `folder`; `None` if there is none.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, MarkerError> {
        let text = match fs::read(folder.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(MarkerError::Io(error)),
        };
        let text = str::from_utf8(&text).map_err(|_| MarkerError::Damaged)?;
        Self::parse(text).map(Some)
    }

    fn parse(text: &str) -> Result<Self, MarkerError> {
        let damaged = MarkerError::Damaged;
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
        let format = line(TITLE).and_then(|format| format.parse().ok());
        match format {
            Some(FORMAT) => {}
            Some(format) if format > FORMAT => return Err(MarkerError::Newer(format)),
            Some(format) => return Err(MarkerError::Older(format)),
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

    fn text(&self) -> String {
        let name = u128::from_be_bytes(self.name);
        let content = format!(
            "{TITLE}{FORMAT}\nname {name:032x}\nserial {}\n",
            self.serial
        );
        let crc = crc32fast::hash(content.as_bytes());
        format!("{content}crc32 {crc:08x}\n")
    }

    /// Puts it into `folder` in place of the one there; on the disk when this
    /// returns.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let new = folder.join(NEW);
        let mut file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(PRIVATE)
            .open(&new)?;
        // what was left of an earlier attempt keeps its own mode
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        drop(file);
        fs::rename(&new, folder.join(FILE))?;
        sync_folder(folder)
    }

    /// Takes the marker out of `folder`, if there is one; out of the disk when
    /// this returns.
    pub(super) fn remove(folder: &Path) -> io::Result<()> {
        for file in [FILE, NEW] {
            match fs::remove_file(folder.join(file)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        sync_folder(folder)
    }
}

/// Names given and taken in `folder` are on the disk when this returns.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Puts the marker of one folder into another.
#[cfg(feature = "faults")]
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from.join(FILE), to.join(FILE)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::{Marker, MarkerError, FORMAT};

    const MARKER: Marker = Marker {
        name: [0xa7; 16],
        serial: 12,
    };

    #[test]
    fn what_was_written_is_read() {
        let text = MARKER.text();
        assert_eq!(Marker::parse(&text).unwrap(), MARKER);
        assert!(text.starts_with("sszip-store 3\nname a7a7"));
    }

    #[test]
    fn any_change_is_damage() {
        let text = MARKER.text();
        for length in 0..text.len() {
            assert!(matches!(
                Marker::parse(&text[..length]),
                Err(MarkerError::Damaged)
            ));
        }
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] ^= 1;
            let parsed = Marker::parse(str::from_utf8(&other).unwrap());
            assert!(matches!(parsed, Err(MarkerError::Damaged)), "{at}");
        }
    }

    #[test]
    fn another_format_is_known_as_one() {
        let parse = |format: u64| {
            let content = format!("sszip-store {format}\nwhatever else\n");
            let crc = crc32fast::hash(content.as_bytes());
            Marker::parse(&format!("{content}crc32 {crc:08x}\n"))
        };
        let newer = parse(FORMAT + 1);
        assert!(matches!(newer, Err(MarkerError::Newer(format)) if format == FORMAT + 1));
        let older = parse(FORMAT - 1);
        assert!(matches!(older, Err(MarkerError::Older(format)) if format == FORMAT - 1));
    }
}
