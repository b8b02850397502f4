//! Files and folders that a configuration names.

use std::borrow::Cow;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};

use super::store::{DATA_FOLDER_NAME, OWNER_SOCKET_NAME};

/// Mode of the folders that are created above a store's. Other users may traverse them, as they may
/// their neighbours.
const PARENT_MODE: u32 = 0o755;
const FOLDER_MODE: u32 = 0o700;

/// Returns the words of a directive with a relative `ca=FILE` resolved against `base`. The file
/// must be readable.
///
/// # Errors
/// The file can't be read.
pub fn resolve_ca_files<'a>(
    directive: &str,
    words: &[&'a [u8]],
    base: &[u8],
) -> Result<Vec<Cow<'a, [u8]>>, String> {
    let words = words.iter().map(|word| match word.strip_prefix(b"ca=") {
        Some(file @ [first, ..]) if directive == "cache_head" => {
            let base = if *first == b'/' { b"" } else { base };
            let word = [b"ca=", base, file].concat();
            let name = String::from_utf8_lossy(&word[3..]);
            match File::open(&*name) {
                Ok(_) => Ok(word.into()),
                Err(error) => Err(format!(
                    "cannot read the certificates in \"{name}\" {}; check the path and its \
                     permissions",
                    format_system_error(&error)
                )),
            }
        }
        _ => Ok((*word).into()),
    });
    words.collect()
}

/// Checks that a folder may become a store's, and creates it if it is missing. The host transfers
/// the folder to the user of its workers, whatever it contains: files of others must be rejected
/// before.
///
/// # Errors
/// The path is not a folder, contains files that are not the store's, or can't be created.
pub fn validate_store_folder(path: &str) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => check_store_contents(path),
        Ok(_) => Err(format!(
            "has an invalid value \"{path}\": it must be a folder of its own, and this is not a \
             folder"
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => create_store_folder(path),
        Err(error) => Err(format!(
            "cannot use the folder \"{path}\" {}; check its permissions, or choose another folder",
            format_system_error(&error)
        )),
    }
}

/// Creates a folder and its missing parents, with modes that do not depend on the umask.
fn create_store_folder(path: &str) -> Result<(), String> {
    let above = path.match_indices('/').map(|(end, _)| end);
    for end in above.filter(|end| *end > 0).chain([path.len()]) {
        let (folder, is_above) = (&path[..end], end < path.len());
        let mode = if is_above { PARENT_MODE } else { FOLDER_MODE };
        let made = DirBuilder::new()
            .mode(mode)
            .create(folder)
            .and_then(|()| fs::set_permissions(folder, Permissions::from_mode(mode)));
        match made {
            Err(error) if is_above && error.kind() == ErrorKind::AlreadyExists => (),
            Err(error) => {
                return Err(format!(
                    "cannot create the folder \"{folder}\" {}; create it, or choose another folder",
                    format_system_error(&error)
                ))
            }
            Ok(()) => (),
        }
    }
    Ok(())
}

/// Returns an error if the folder of the store contains files that are not the store's, or cannot
/// be read for another reason than its permissions.
fn check_store_contents(path: &str) -> Result<(), String> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        // a user who can't list the folder can't transfer it either
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => {
            return Err(format!(
                "cannot use the folder \"{path}\" {}; check its \
                 permissions, or choose another folder",
                format_system_error(&error)
            ))
        }
    };
    match entries.flatten().find(|entry| !is_store_file(entry)) {
        Some(other) => Err(format!(
            "has an invalid value \"{path}\": it must be a folder of its own, and it contains \
             \"{}\", which is not part of a store; choose an empty or a new folder",
            other.file_name().to_string_lossy()
        )),
        None => Ok(()),
    }
}

/// Whether a file in the store's folder belongs to the store, or to the file system that is mounted
/// there.
fn is_store_file(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    match entry.file_type() {
        // belongs to the file system that is mounted here
        Ok(_) if name == "lost+found" => true,
        Ok(kind) if name == DATA_FOLDER_NAME => kind.is_dir() || kind.is_symlink(),
        // a socket has a longer name with this prefix until it is bound
        Ok(kind) => name.starts_with(OWNER_SOCKET_NAME) && kind.is_socket(),
        // a socket that was replaced just now
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Formats an error of the system as nginx does.
pub(super) fn format_system_error(error: &Error) -> String {
    let code = error.raw_os_error().unwrap_or(0);
    let text = error.to_string();
    let text = text
        .strip_suffix(&format!(" (os error {code})"))
        .unwrap_or(&text);
    format!("({code}: {text})")
}
