//! The words of the directive `cache_fleet`.

use std::fmt::Display;
use std::path::PathBuf;

use super::{
    FleetEndpoint, FleetSettings, FleetTopology, CONNECT_TIMEOUT_RANGE, COST_RANGE,
    LEASE_WAIT_RANGE, MAX_ENTRY_RANGE, PURGE_WAIT_RANGE, TIMEOUT_RANGE, TTL_RANGE,
};
use crate::config::suggest::nearest_word;
use crate::config::values::{invalid_value_error, set_once};
use crate::config::DirectiveError;

/// Parameters with the placeholders of their values.
const PARAMETERS: [(&str, &str); 16] = [
    ("user", "NAME"),
    ("password_file", "FILE"),
    ("sentinel_user", "NAME"),
    ("sentinel_password_file", "FILE"),
    ("key_file", "FILE[,FILE]"),
    ("ca", "FILE"),
    ("cert", "FILE"),
    ("cert_key", "FILE"),
    ("timeout", "TIME"),
    ("connect_timeout", "TIME"),
    ("max_entry", "SIZE"),
    ("prefix", "TEXT"),
    ("ttl", "TIME"),
    ("cost", "TIME"),
    ("purge_wait", "TIME"),
    ("lease_wait", "TIME"),
];

/// Maximum length of a user's name in bytes.
const MAX_USER: usize = 128;
/// Maximum length of the keys' prefix in bytes.
const MAX_PREFIX: usize = 64;

/// Absolute paths of the files that the parameters of a fleet name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetFileNames {
    /// The password file.
    pub password: Option<PathBuf>,
    /// The password file of the Sentinels.
    pub sentinel_password: Option<PathBuf>,
    /// One or two key files, or none.
    pub keys: Vec<PathBuf>,
    /// The file of trusted certificates.
    pub ca: Option<PathBuf>,
    /// The file of the client certificate.
    pub cert: Option<PathBuf>,
    /// The file of the client certificate's private key.
    pub cert_key: Option<PathBuf>,
}

/// The parameters of a directive; `None` where it sets none.
#[derive(Default)]
struct FleetParameters {
    user: Option<String>,
    password_file: Option<PathBuf>,
    sentinel_user: Option<String>,
    sentinel_password_file: Option<PathBuf>,
    key_files: Option<Vec<PathBuf>>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    cert_key: Option<PathBuf>,
    timeout: Option<u64>,
    connect_timeout: Option<u64>,
    max_entry: Option<u64>,
    prefix: Option<String>,
    ttl: Option<u64>,
    cost: Option<u64>,
    purge_wait: Option<u64>,
    lease_wait: Option<u64>,
}

impl FleetSettings {
    /// Parses the words of the directive, without reading the files that they name. Relative paths
    /// are resolved against `base`.
    ///
    /// ```text
    /// URL [user=NAME] [password_file=FILE] [sentinel_user=NAME] [sentinel_password_file=FILE]
    /// [key_file=FILE[,FILE]] [ca=FILE] [cert=FILE cert_key=FILE] [timeout=TIME]
    /// [connect_timeout=TIME] [max_entry=SIZE] [prefix=TEXT] [ttl=TIME] [cost=TIME] [purge_wait=TIME] [lease_wait=TIME]
    /// ```
    ///
    /// # Errors
    /// The [`DirectiveError`] contains the allowed values.
    pub fn parse_fleet_directive(
        words: &[&[u8]],
        base: &str,
    ) -> Result<(Self, FleetFileNames), DirectiveError> {
        let (url, words) = match words.split_first() {
            Some((url, words)) => (*url, words),
            None => (&b""[..], words),
        };
        let mut settings = Self::new(parse_endpoint(url)?);
        let mut parameters = FleetParameters::default();
        for word in words {
            parameters.set_parameter(word, base)?;
        }
        parameters.check_combinations(&settings.endpoint)?;
        settings.user = parameters.user;
        settings.sentinel_user = parameters.sentinel_user;
        let set = |slot: &mut u64, value: Option<u64>| *slot = value.unwrap_or(*slot);
        set(&mut settings.timeout_ms, parameters.timeout);
        set(&mut settings.connect_timeout_ms, parameters.connect_timeout);
        set(&mut settings.max_entry, parameters.max_entry);
        set(&mut settings.ttl_ms, parameters.ttl);
        set(&mut settings.cost_ms, parameters.cost);
        set(&mut settings.purge_wait_ms, parameters.purge_wait);
        set(&mut settings.lease_wait_ms, parameters.lease_wait);
        settings.prefix = parameters.prefix.unwrap_or(settings.prefix);
        let names = FleetFileNames {
            password: parameters.password_file,
            sentinel_password: parameters.sentinel_password_file,
            keys: parameters.key_files.unwrap_or_default(),
            ca: parameters.ca,
            cert: parameters.cert,
            cert_key: parameters.cert_key,
        };
        Ok((settings, names))
    }
}

impl FleetParameters {
    /// Sets the parameter of one word, `NAME=VALUE`.
    fn set_parameter(&mut self, word: &[u8], base: &str) -> Result<(), DirectiveError> {
        let Some(at) = word.iter().position(|byte| *byte == b'=') else {
            return Err(unknown_parameter_error(word));
        };
        let (name, value) = (&word[..at], &word[at + 1..]);
        let file = || resolve_file_path(value, base);
        match name {
            b"user" => set_once(&mut self.user, || parse_user(value)),
            b"password_file" => set_once(&mut self.password_file, file),
            b"sentinel_user" => set_once(&mut self.sentinel_user, || parse_user(value)),
            b"sentinel_password_file" => set_once(&mut self.sentinel_password_file, file),
            b"key_file" => set_once(&mut self.key_files, || parse_key_files(value, base)),
            b"ca" => set_once(&mut self.ca, file),
            b"cert" => set_once(&mut self.cert, file),
            b"cert_key" => set_once(&mut self.cert_key, file),
            b"timeout" => set_once(&mut self.timeout, || TIMEOUT_RANGE.parse_in_range(value)),
            b"connect_timeout" => set_once(&mut self.connect_timeout, || {
                CONNECT_TIMEOUT_RANGE.parse_in_range(value)
            }),
            b"max_entry" => set_once(&mut self.max_entry, || {
                MAX_ENTRY_RANGE.parse_in_range(value)
            }),
            b"prefix" => set_once(&mut self.prefix, || parse_prefix(value)),
            b"ttl" => set_once(&mut self.ttl, || TTL_RANGE.parse_in_range(value)),
            b"cost" => set_once(&mut self.cost, || COST_RANGE.parse_in_range(value)),
            b"purge_wait" => set_once(&mut self.purge_wait, || {
                PURGE_WAIT_RANGE.parse_in_range(value)
            }),
            b"lease_wait" => set_once(&mut self.lease_wait, || {
                LEASE_WAIT_RANGE.parse_in_range(value)
            }),
            _ => return Err(unknown_parameter_error(word)),
        }
        .map_err(|error| {
            error
                .with_rejected_word(word)
                .into_duplicate_parameter_error(name)
        })
    }

    /// Checks that the parameters are compatible with the URL and with each other.
    fn check_combinations(&self, endpoint: &FleetEndpoint) -> Result<(), DirectiveError> {
        let invalid = |name: &str, value: &dyn Display, allowed: &str| {
            let word = format!("{name}={value}");
            Err(invalid_value_error(word.as_bytes(), allowed))
        };
        let files = [
            ("ca", &self.ca),
            ("cert", &self.cert),
            ("cert_key", &self.cert_key),
        ];
        for (name, file) in files {
            if let (Some(file), false) = (file, endpoint.is_secure) {
                let allowed = format!("used with a \"{}\" URL", endpoint.secure_url_scheme());
                return invalid(name, &file.display(), &allowed);
            }
        }
        if !matches!(endpoint.topology, FleetTopology::Sentinel { .. }) {
            let allowed = "used with a \"redis+sentinel://\" or \"rediss+sentinel://\" URL";
            if let Some(user) = &self.sentinel_user {
                return invalid("sentinel_user", user, allowed);
            }
            if let Some(file) = &self.sentinel_password_file {
                return invalid("sentinel_password_file", &file.display(), allowed);
            }
        }
        if let (Some(user), None) = (&self.sentinel_user, &self.sentinel_password_file) {
            let allowed = "used together with \"sentinel_password_file=FILE\"";
            return invalid("sentinel_user", user, allowed);
        }
        match (&self.cert, &self.cert_key, &self.user, &self.password_file) {
            (Some(cert), None, ..) => {
                let allowed = "used together with \"cert_key=FILE\"";
                invalid("cert", &cert.display(), allowed)
            }
            (None, Some(key), ..) => {
                let allowed = "used together with \"cert=FILE\"";
                invalid("cert_key", &key.display(), allowed)
            }
            (.., Some(user), None) => {
                invalid("user", user, "used together with \"password_file=FILE\"")
            }
            _ => Ok(()),
        }
    }
}

/// Parses the URL of a fleet. The error contains no password.
pub(super) fn parse_endpoint(value: &[u8]) -> Result<FleetEndpoint, DirectiveError> {
    let url = String::from_utf8_lossy(value);
    if let Some((before, host)) = url.rsplit_once('@') {
        let scheme = before.split_once("://");
        let scheme = scheme.map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
        return Err(invalid_value_error(
            format!("{scheme}...@{}", without_query(host)).as_bytes(),
            "without user and password; set \"user=NAME\" and \"password_file=FILE\" instead",
        ));
    }
    FleetEndpoint::parse_or_explain_url(&url)
        .map_err(|allowed| invalid_value_error(without_query(&url).as_bytes(), allowed))
}

/// Returns a URL with an ellipsis in place of its query, which may contain a password.
fn without_query(url: &str) -> String {
    match url.split_once('?') {
        Some((url, _)) => format!("{url}?..."),
        None => url.to_owned(),
    }
}

/// Returns the error of a word that is no parameter, with the nearest one. Its value may be a
/// password, and is omitted.
fn unknown_parameter_error(word: &[u8]) -> DirectiveError {
    let text = String::from_utf8_lossy(word);
    let (name, shown) = match text.split_once('=') {
        Some((name, _)) => (name, format!("{name}=...")),
        None => (&*text, text.to_string()),
    };
    let forms: Vec<_> = PARAMETERS
        .iter()
        .map(|(name, value)| format!("\"{name}={value}\""))
        .collect();
    let mut allowed = match forms.split_last() {
        Some((last, forms)) => format!("{} or {last}", forms.join(", ")),
        None => String::new(),
    };
    let suggestion = match name {
        "password" => Some("password_file"),
        name => nearest_word(name, PARAMETERS.iter().map(|(name, _)| *name)),
    };
    if let Some(suggestion) = suggestion {
        allowed += &format!("; did you mean \"{suggestion}=\"?");
    }
    invalid_value_error(shown.as_bytes(), allowed)
}

/// Returns the absolute path of a file that a parameter names.
fn resolve_file_path(value: &[u8], base: &str) -> Result<PathBuf, DirectiveError> {
    let name = std::str::from_utf8(value).ok();
    let name = name.filter(|name| !name.is_empty() && !name.contains('\0'));
    let path = name.map(|name| match name.starts_with('/') {
        true => name.to_owned(),
        false => format!("{base}{name}"),
    });
    match path.filter(|path| path.starts_with('/')) {
        Some(path) => Ok(path.into()),
        None => Err(invalid_value_error(
            value,
            "a file with an absolute path in UTF-8",
        )),
    }
}

fn parse_key_files(value: &[u8], base: &str) -> Result<Vec<PathBuf>, DirectiveError> {
    let files: Vec<_> = value.split(|byte| *byte == b',').collect();
    if files.len() > 2 {
        return Err(invalid_value_error(
            value,
            "one or two files with a comma between them: the key of new values, and the previous \
             key",
        ));
    }
    files
        .into_iter()
        .map(|file| resolve_file_path(file, base))
        .collect()
}

fn parse_user(value: &[u8]) -> Result<String, DirectiveError> {
    let is_valid = |name: &&str| {
        (1..=MAX_USER).contains(&name.len())
            && !name.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    match std::str::from_utf8(value).ok().filter(is_valid) {
        Some(name) => Ok(name.to_owned()),
        None => Err(invalid_value_error(
            value,
            format!("a name of 1 to {MAX_USER} bytes in UTF-8, without spaces"),
        )),
    }
}

/// Parses the prefix of keys. It contains no character that the server's ACL patterns interpret,
/// and no braces, which would store all keys in one slot of a cluster.
pub(super) fn parse_prefix(value: &[u8]) -> Result<String, DirectiveError> {
    let is_letter =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':');
    match std::str::from_utf8(value) {
        Ok(prefix) if (1..=MAX_PREFIX).contains(&prefix.len()) && prefix.bytes().all(is_letter) => {
            Ok(prefix.to_owned())
        }
        _ => Err(invalid_value_error(
            value,
            format!("1 to {MAX_PREFIX} letters, digits, \"_\", \"-\", \".\" or \":\""),
        )),
    }
}
