//! Files and folders that a configuration names.

use std::borrow::Cow;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};

use super::store::{DATA, SOCKET};

/// Folders that are made above a store's are for all to pass, as others' there
/// are.
const ABOVE: u32 = 0o755;
const OWN: u32 = 0o700;

/// The words of a directive, in which a file of certificates, which has to be
/// there, is one in `base` if it is not absolute.
///
/// # Errors
/// It can't be read.
pub fn with_files<'a>(
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
                    "has a file of certificates, \"{name}\", that can't be read {}",
                    reason(&error)
                )),
            }
        }
        _ => Ok((*word).into()),
    });
    words.collect()
}

/// Makes sure that a store may have the folder. A host gives it to the user that
/// serves, whatever it is: what is somebody else's must not get that far.
///
/// # Errors
/// It is none, or has something in it that is no store's, or can't be made.
pub fn take_folder(path: &str) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => look_into(path),
        Ok(_) => Err(format!(
            "has an invalid value \"{path}\": it must be a folder of its own, and this is none"
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => make(path),
        Err(error) => Err(format!("can't use \"{path}\" {}", reason(&error))),
    }
}

/// ... with those above it, whatever the umask is.
fn make(path: &str) -> Result<(), String> {
    let above = path.match_indices('/').map(|(end, _)| end);
    for end in above.filter(|end| *end > 0).chain([path.len()]) {
        let (folder, is_above) = (&path[..end], end < path.len());
        let mode = if is_above { ABOVE } else { OWN };
        let made = DirBuilder::new()
            .mode(mode)
            .create(folder)
            .and_then(|()| fs::set_permissions(folder, Permissions::from_mode(mode)));
        match made {
            Err(error) if is_above && error.kind() == ErrorKind::AlreadyExists => (),
            Err(error) => {
                return Err(format!(
                    "can't make the folder \"{folder}\" {}",
                    reason(&error)
                ))
            }
            Ok(()) => (),
        }
    }
    Ok(())
}

fn look_into(path: &str) -> Result<(), String> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        // nor can whoever may not look into it give it away
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => return Err(format!("can't use \"{path}\" {}", reason(&error))),
    };
    match entries.flatten().find(|entry| !is_stores(entry)) {
        Some(other) => Err(format!(
            "has an invalid value \"{path}\": it must be a folder of its own, and \"{}\" in it is \
             none of the store's",
            other.file_name().to_string_lossy()
        )),
        None => Ok(()),
    }
}

fn is_stores(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    match entry.file_type() {
        // of the file system, where it is mounted here
        Ok(_) if name == "lost+found" => true,
        Ok(kind) if name == DATA => kind.is_dir() || kind.is_symlink(),
        // while it is bound it has another name, which begins with this one
        Ok(kind) => name.starts_with(SOCKET) && kind.is_socket(),
        // a socket that was just replaced
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// The system's, as nginx writes it.
fn reason(error: &Error) -> String {
    let code = error.raw_os_error().unwrap_or(0);
    let text = error.to_string();
    let text = text
        .strip_suffix(&format!(" (os error {code})"))
        .unwrap_or(&text);
    format!("({code}: {text})")
}
