//! Whether opening the store is what kills its owners.
//!
//! A database can be damaged so that reading it crashes the process, and a
//! host would start the next one at once, for ever. So each attempt leaves a
//! file beside the database, locked while its process lives, and takes it away
//! when it has come well through. Files that nobody has locked any more are
//! attempts that ended in between; after [`MOST`] of them in a row the store
//! begins anew.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Attempts in a row after which the store is not trusted any more.
pub const MOST: usize = 10;

const PREFIX: &str = "attempt-";

/// An attempt to open a store. It counts as failed until it is
/// [over](Self::is_over).
#[derive(Debug)]
pub struct Attempt {
    folder: PathBuf,
    path: PathBuf,
    /// Locked until the process ends.
    _file: File,
    before: usize,
}

impl Attempt {
    /// Begins one on the store in `folder`; `None` while another process has
    /// the store, or where there is no such folder to write in yet.
    pub fn begin(folder: &Path) -> Option<Self> {
        if is_locked(&folder.join("LOCK")) {
            return None;
        }
        let before = crashed(folder).ok()?.len();
        let path = folder.join(format!("{PREFIX}{}", std::process::id()));
        let file = File::create(&path).ok()?;
        file.try_lock().ok()?;
        Some(Self {
            folder: folder.to_owned(),
            path,
            _file: file,
            before,
        })
    }

    /// Whether too many before it have crashed.
    pub fn is_one_too_many(&self) -> bool {
        self.before >= MOST
    }

    /// Nothing came of it, but that is not the database's fault.
    pub fn does_not_count(self) {
        // a file that stays counts once more than it should
        let _ = fs::remove_file(&self.path);
    }

    /// It went well: those before it are forgotten.
    pub fn is_over(self) {
        for path in crashed(&self.folder).unwrap_or_default() {
            // as above
            let _ = fs::remove_file(path);
        }
        self.does_not_count();
    }
}

/// Whether a process has locked a file, which need not be there.
fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_err())
}

/// The files of attempts whose processes are gone.
fn crashed(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_attempt = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX));
        if is_attempt && !is_locked(&entry.path()) {
            all.push(entry.path());
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_in_a_row_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for n in 0..MOST {
            let attempt = Attempt::begin(path).unwrap();
            assert!(!attempt.is_one_too_many());
            // a process that is gone: another number, and no lock
            fs::rename(&attempt.path, path.join(format!("{PREFIX}gone-{n}"))).unwrap();
        }
        let attempt = Attempt::begin(path).unwrap();
        assert!(attempt.is_one_too_many());
        // the attempts of living processes are none
        assert!(Attempt::begin(path).is_none());
        attempt.is_over();
        assert_eq!(fs::read_dir(path).unwrap().count(), 0);
        assert!(!Attempt::begin(path).unwrap().is_one_too_many());
    }

    #[test]
    fn what_does_not_count_leaves_those_before() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("attempt-gone"), "").unwrap();
        Attempt::begin(folder.path()).unwrap().does_not_count();
        assert_eq!(Attempt::begin(folder.path()).unwrap().before, 1);
        assert!(Attempt::begin(&folder.path().join("no/such")).is_none());
    }

    #[test]
    fn a_store_that_somebody_has_is_not_attempted() {
        let folder = tempfile::tempdir().unwrap();
        let lock = File::create(folder.path().join("LOCK")).unwrap();
        lock.lock().unwrap();
        assert!(Attempt::begin(folder.path()).is_none());
    }
}
