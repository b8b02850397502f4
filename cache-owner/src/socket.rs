//! The Unix socket that the owner listens on.

use std::io;
use std::os::unix::fs::{chown, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{fchmod, Mode};
use rustix::net::SocketType;
use rustix::net::{bind, listen, socket_with, AddressFamily, SocketAddrUnix, SocketFlags};

/// Maximum number of connections that wait to be accepted; further ones are refused.
const BACKLOG: i32 = 1_024;

/// The file of the owner's listening socket, which is removed on drop unless another owner has
/// replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    file: (u64, u64),
}

impl SocketFile {
    /// Listens on `path`, which only `user` (or the user of this process) may open, and replaces
    /// the socket of an earlier owner. Only the process that has opened the store may call this.
    ///
    /// # Errors
    /// The error of the system, with the path; or the path has a file that is no socket, which
    /// is not changed.
    pub fn bind_socket(
        path: &Path,
        user: Option<(u32, u32)>,
    ) -> Result<(Self, UnixListener), io::Error> {
        // bound under another name and then renamed: clients that connect in between reach
        // the old socket or the new one
        let temporary = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
        remove_socket(&temporary)?;
        let listener = bind_private_socket(&temporary)?;
        let placed = replace_socket(&temporary, path, user);
        if placed.is_err() {
            // the error of the rename is the one to report
            let _ = remove_socket(&temporary);
        }
        let socket = Self {
            path: path.to_owned(),
            file: placed?,
        };
        Ok((socket, listener))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if file_identity(&self.path).is_ok_and(|file| file == self.file) {
            // if it is gone already, or cannot be removed, the next owner replaces it
            let _ = remove_socket(&self.path);
        }
    }
}

fn bind_private_socket(path: &Path) -> Result<UnixListener, io::Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Linux creates the file with the mode of the socket: there is no moment at which others may
    // open it
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn replace_socket(
    from: &Path,
    to: &Path,
    user: Option<(u32, u32)>,
) -> Result<(u64, u64), io::Error> {
    if let Some((user, group)) = user {
        chown(from, Some(user), Some(group))?;
    }
    let file = file_identity(from)?;
    reject_non_socket(to)?;
    std::fs::rename(from, to)?;
    Ok(file)
}

fn file_identity(path: &Path) -> Result<(u64, u64), io::Error> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

fn remove_socket(path: &Path) -> Result<(), io::Error> {
    reject_non_socket(path)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Rejects a path with a file that is no socket: an owner leaves only sockets behind.
fn reject_non_socket(path: &Path) -> Result<(), io::Error> {
    match std::fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file is not a socket and is not replaced",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn later_owner_replaces_the_socket_of_an_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (first, _listener) = SocketFile::bind_socket(&path, None).unwrap();
        let mode = std::fs::symlink_metadata(&path)
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let (second, listener) = SocketFile::bind_socket(&path, None).unwrap();
        drop(first);
        listener.set_nonblocking(false).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        drop(second);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn failed_bind_leaves_no_file_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        std::fs::create_dir(&path).unwrap();
        assert!(SocketFile::bind_socket(&path, None).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let path = folder.path().join("file");
        std::fs::write(&path, "precious").unwrap();
        let error = SocketFile::bind_socket(&path, None).unwrap_err();
        assert!(error.to_string().contains("not a socket"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(SocketFile::bind_socket(&folder.path().join("no/such"), None).is_err());
        let long = folder.path().join("x".repeat(120));
        assert!(SocketFile::bind_socket(&long, None).is_err());
    }
}
