//! The Unix socket that the owner listens on.

use std::io;
use std::os::unix::fs::{chown, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{fchmod, Mode};
use rustix::net::SocketType;
use rustix::net::{bind, listen, socket_with, AddressFamily, SocketAddrUnix, SocketFlags};

/// Connections that wait to be accepted; a full queue refuses more.
const BACKLOG: i32 = 1_024;

/// The socket's file. It is removed when this is dropped, unless another owner
/// has put its own in place.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    file: (u64, u64),
}

impl Socket {
    /// Listens on `path`, which only `user` (or this process's) may open, in
    /// place of what an owner before has left there. To be called by who has
    /// the store only.
    ///
    /// # Errors
    /// What the system says, with the path; and there is something else than a
    /// socket, which stays.
    pub fn bind(path: &Path, user: Option<(u32, u32)>) -> Result<(Self, UnixListener), io::Error> {
        // bound under another name, and then renamed: whoever connects in
        // between reaches the old one or the new one
        let temporary = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
        remove(&temporary)?;
        let listener = bind_private(&temporary)?;
        let placed = place(&temporary, path, user);
        if placed.is_err() {
            // the error that counts is the other one
            let _ = remove(&temporary);
        }
        let socket = Self {
            path: path.to_owned(),
            file: placed?,
        };
        Ok((socket, listener))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            // gone already, or not ours to remove any more: the next owner
            // replaces it
            let _ = remove(&self.path);
        }
    }
}

fn bind_private(path: &Path) -> Result<UnixListener, io::Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Linux makes the file with the mode that the socket has: there is no
    // moment at which others may open it
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn place(from: &Path, to: &Path, user: Option<(u32, u32)>) -> Result<(u64, u64), io::Error> {
    if let Some((user, group)) = user {
        chown(from, Some(user), Some(group))?;
    }
    let file = identity(from)?;
    refuse_other(to)?;
    std::fs::rename(from, to)?;
    Ok(file)
}

fn identity(path: &Path) -> Result<(u64, u64), io::Error> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

fn remove(path: &Path) -> Result<(), io::Error> {
    refuse_other(path)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What an owner has left is a socket; anything else is somebody's.
fn refuse_other(path: &Path) -> Result<(), io::Error> {
    match std::fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "this is no socket, and stays as it is",
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
    fn a_later_owner_takes_the_place_of_an_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (first, _listener) = Socket::bind(&path, None).unwrap();
        let mode = std::fs::symlink_metadata(&path)
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let (second, listener) = Socket::bind(&path, None).unwrap();
        drop(first);
        listener.set_nonblocking(false).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        drop(second);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        std::fs::create_dir(&path).unwrap();
        assert!(Socket::bind(&path, None).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let path = folder.path().join("file");
        std::fs::write(&path, "precious").unwrap();
        let error = Socket::bind(&path, None).unwrap_err();
        assert!(error.to_string().contains("no socket"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(Socket::bind(&folder.path().join("no/such"), None).is_err());
        let long = folder.path().join("x".repeat(120));
        assert!(Socket::bind(&long, None).is_err());
    }
}
