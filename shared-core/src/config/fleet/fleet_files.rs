//! The files that `cache_fleet` names: password, keys and certificates.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::directive::FleetFileNames;
use super::pem::{has_private_key, has_valid_certificates};
use super::{FleetSettings, Secret};
use crate::config::files::format_system_error;
use crate::config::values::{DisplaySize, KIB, MIB};

/// The permission to read a file for users that are neither its owner nor in its group.
const READ_BY_OTHERS: u32 = 0o004;

/// Lengths of a key in bytes.
const MIN_KEY: usize = 32;
const MAX_KEY: usize = 4096;

/// A file of one purpose: its name in messages, its maximum length in bytes, and whether other
/// users must not read it.
struct FilePurpose {
    name: &'static str,
    most: u64,
    is_secret: bool,
}

const PASSWORD_FILE: FilePurpose = FilePurpose {
    name: "password file",
    most: KIB,
    is_secret: true,
};
const KEY_FILE: FilePurpose = FilePurpose {
    name: "key file",
    most: MAX_KEY as u64,
    is_secret: true,
};
const CA_FILE: FilePurpose = FilePurpose {
    name: "CA file",
    most: 4 * MIB,
    is_secret: false,
};
const CERTIFICATE_FILE: FilePurpose = FilePurpose {
    name: "certificate file",
    most: MIB,
    is_secret: false,
};
const CERTIFICATE_KEY_FILE: FilePurpose = FilePurpose {
    name: "certificate key file",
    most: MIB,
    is_secret: true,
};

impl FleetFileNames {
    /// Reads all files into the settings.
    ///
    /// # Errors
    /// The text continues a sentence that begins with the name of the setting, and names the file.
    pub fn read_files_into(&self, settings: &mut FleetSettings) -> Result<(), String> {
        let password = self.password.as_deref().map(read_password);
        settings.password = password.transpose()?;
        let password = self.sentinel_password.as_deref().map(read_password);
        settings.sentinel_password = password.transpose()?;
        let keys = self.keys.iter().map(|path| read_key(path));
        settings.key_files = keys.collect::<Result<_, _>>()?;
        let ca = self.ca.as_deref();
        let ca = ca.map(|path| read_certificates(&CA_FILE, path));
        settings.ca = ca.transpose()?;
        if let (Some(cert), Some(cert_key)) = (&self.cert, &self.cert_key) {
            let cert = read_certificates(&CERTIFICATE_FILE, cert)?;
            settings.client_cert = Some((cert, read_certificate_key(cert_key)?));
        }
        Ok(())
    }
}

impl FilePurpose {
    /// Reads a file up to the maximum length.
    fn read_file(&self, path: &Path) -> Result<Vec<u8>, String> {
        let (name, shown) = (self.name, path.display());
        let unreadable = |error: io::Error| {
            format!(
                "cannot read the {name} \"{shown}\" {}; check the path and its permissions",
                format_system_error(&error)
            )
        };
        // a pipe would be opened only after its writer
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(self.invalid_file_error(path, "be a regular file"));
        }
        let file = File::open(path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.permissions().mode();
        if self.is_secret && mode & READ_BY_OTHERS != 0 {
            return Err(format!(
                "has a {name} that other users can read: \"{shown}\" (mode {:04o}); run chmod \
                 o-rwx on it",
                mode & 0o7777
            ));
        }
        let mut contents = Vec::new();
        file.take(self.most + 1)
            .read_to_end(&mut contents)
            .map_err(unreadable)?;
        match contents.len() as u64 > self.most {
            true => {
                let allowed = format!("be at most {} long", DisplaySize(self.most));
                Err(self.invalid_file_error(path, &allowed))
            }
            false => Ok(contents),
        }
    }

    /// Returns the error of a file whose contents are not usable.
    fn invalid_file_error(&self, path: &Path, allowed: &str) -> String {
        let (name, shown) = (self.name, path.display());
        format!("has an invalid {name} \"{shown}\": it must {allowed}")
    }
}

/// Reads a password: one line, whose end is optional.
fn read_password(path: &Path) -> Result<Secret, String> {
    let contents = PASSWORD_FILE.read_file(path)?;
    let line = contents.strip_suffix(b"\n").unwrap_or(&contents);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match std::str::from_utf8(line) {
        Ok(text) if !text.is_empty() && !text.contains(char::is_control) => Ok(Secret::new(line)),
        _ => Err(PASSWORD_FILE.invalid_file_error(path, "contain one line in UTF-8")),
    }
}

fn read_key(path: &Path) -> Result<Secret, String> {
    let contents = KEY_FILE.read_file(path)?;
    match contents.len() < MIN_KEY {
        true => {
            let allowed = format!("have {MIN_KEY} to {MAX_KEY} bytes");
            Err(KEY_FILE.invalid_file_error(path, &allowed))
        }
        false => Ok(Secret::new(contents)),
    }
}

fn read_certificates(purpose: &FilePurpose, path: &Path) -> Result<String, String> {
    let text = String::from_utf8(purpose.read_file(path)?);
    match text.ok().filter(|text| has_valid_certificates(text)) {
        Some(text) => Ok(text),
        None => Err(purpose.invalid_file_error(path, "contain complete certificates in PEM")),
    }
}

fn read_certificate_key(path: &Path) -> Result<Secret, String> {
    let contents = CERTIFICATE_KEY_FILE.read_file(path)?;
    let text = std::str::from_utf8(&contents).ok();
    match text.is_some_and(has_private_key) {
        true => Ok(Secret::new(contents)),
        false => Err(CERTIFICATE_KEY_FILE
            .invalid_file_error(path, "contain a private key in PEM without a passphrase")),
    }
}
