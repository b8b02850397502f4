//! Settings of a store on disk that a process of the host owns.

use super::endpoint::MAX_SOCKET_PATH;
use super::values::{
    invalid_value_error, parse_flag, parse_nginx_time, set_once, DirectiveError,
    DirectiveValueRange, DirectiveValueUnit, MIB,
};

/// Name of the owner's socket in the store's folder.
pub const OWNER_SOCKET_NAME: &str = "owner.sock";
/// Name of the folder with the data in the store's folder.
pub const DATA_FOLDER_NAME: &str = "store";

/// The value of `cache_path`: the folder and the limits of the store that a process of the host
/// owns; `None` where the owner's default applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSettings {
    /// The store's own folder, an absolute path without a slash at its end.
    pub folder: String,
    /// Maximum size on disk in bytes.
    pub max_size: Option<u64>,
    /// Memory limit of the owner in bytes.
    pub memory: Option<u64>,
    /// Milliseconds after which an entry without requests is removed.
    pub inactive: Option<u64>,
    /// Whether entries are recompressed before they are written to disk.
    pub recompress: Option<bool>,
}

const STORE_SIZE_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 64 * MIB,
    most: 1 << 60,
    unit: DirectiveValueUnit::Bytes,
};
const STORE_MEMORY_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: MIB,
    most: 1 << 50,
    unit: DirectiveValueUnit::Bytes,
};

const STORE_PARAMETERS: &str =
    "a path, optionally followed by \"max_size=SIZE\", \"memory=SIZE\", \"inactive=TIME\" or \
     \"recompress=on|off\"";

impl StoreSettings {
    /// Parses `PATH [max_size=SIZE] [memory=SIZE] [inactive=TIME] [recompress=on|off]`. A relative
    /// path is resolved against `base`.
    ///
    /// # Errors
    /// The [`DirectiveError`] contains the allowed values.
    pub fn parse_store_settings(words: &[&[u8]], base: &str) -> Result<Self, DirectiveError> {
        let Some((path, words)) = words.split_first() else {
            return Err(invalid_value_error(b"", STORE_PARAMETERS));
        };
        let mut store = StoreSettings {
            folder: resolve_store_folder(path, base)?,
            ..Self::default()
        };
        for word in words {
            let (name, value) = match word.iter().position(|byte| *byte == b'=') {
                Some(at) => (&word[..at], &word[at + 1..]),
                None => return Err(invalid_value_error(word, STORE_PARAMETERS)),
            };
            match name {
                b"max_size" => set_once(&mut store.max_size, || {
                    STORE_SIZE_RANGE.parse_in_range(value)
                }),
                b"memory" => set_once(&mut store.memory, || {
                    STORE_MEMORY_RANGE.parse_in_range(value)
                }),
                b"inactive" => set_once(&mut store.inactive, || parse_nginx_time(value)),
                b"recompress" => set_once(&mut store.recompress, || parse_flag(value)),
                _ => return Err(invalid_value_error(word, STORE_PARAMETERS)),
            }
            .map_err(|error| {
                error
                    .with_rejected_word(word)
                    .into_duplicate_parameter_error(name)
            })?;
        }
        Ok(store)
    }

    /// Returns the path of the Unix socket at which the owner listens.
    pub fn owner_socket_path(&self) -> String {
        format!("{}/{OWNER_SOCKET_NAME}", self.folder)
    }

    /// Returns the path of the folder with the data, in the store's folder.
    pub fn store_data_folder(&self) -> String {
        format!("{}/{DATA_FOLDER_NAME}", self.folder)
    }
}

/// Returns the path of the store's folder without slashes at its end. A relative path is resolved
/// against `base`; a path that is empty or not UTF-8 is an error.
fn resolve_store_folder(path: &[u8], base: &str) -> Result<String, DirectiveError> {
    let text = std::str::from_utf8(path).unwrap_or_default();
    let folder = match text.trim_end_matches('/') {
        "" => {
            return Err(invalid_value_error(
                path,
                "a folder of its own, whose path is UTF-8",
            ))
        }
        folder if folder.starts_with('/') => folder.to_owned(),
        folder => format!("{base}{folder}"),
    };
    let longest = MAX_SOCKET_PATH - "/".len() - OWNER_SOCKET_NAME.len();
    if folder.len() > longest {
        let allowed = format!(
            "a path of at most {longest} bytes: the path of the socket in it would be too long"
        );
        return Err(invalid_value_error(folder.as_bytes(), allowed));
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::StoreSettings;

    fn parse(line: &str) -> Result<StoreSettings, String> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        StoreSettings::parse_store_settings(&words, "/base/").map_err(|error| error.to_string())
    }

    #[test]
    fn path_and_parameters_of_a_store_are_parsed() {
        let folder = "/var/sszip".to_owned();
        let bare = StoreSettings {
            folder,
            ..StoreSettings::default()
        };
        assert_eq!(parse("/var/sszip"), Ok(bare.clone()));
        assert_eq!(parse("/var/sszip//"), Ok(bare.clone()));
        assert_eq!(parse("var").unwrap().folder, "/base/var");
        let all = parse("/var/sszip max_size=1g memory=1m inactive=1d12h recompress=off");
        let expected = StoreSettings {
            max_size: Some(1 << 30),
            memory: Some(1 << 20),
            inactive: Some(36 * 3_600_000),
            recompress: Some(false),
            ..bare
        };
        assert_eq!(all, Ok(expected));
        let store = parse("/v").unwrap();
        assert_eq!(
            (store.owner_socket_path(), store.store_data_folder()),
            ("/v/owner.sock".into(), "/v/store".into())
        );
    }

    #[test]
    fn invalid_store_is_rejected_with_the_allowed_values() {
        for (line, message) in [
            ("", "it must be a folder of its own"),
            ("/", "it must be a folder of its own"),
            (
                "/v max_size=63m",
                "value \"max_size=63m\": it must be a size of at least 64m",
            ),
            (
                "/v max_size=",
                "value \"max_size=\": it must be a size of at least 64m",
            ),
            (
                "/v memory=1k",
                "value \"memory=1k\": it must be a size of at least 1m",
            ),
            (
                "/v inactive=0",
                "value \"inactive=0\": it must be a time of at least 1ms",
            ),
            (
                "/v recompress=yes",
                "value \"recompress=yes\": it must be \"on\" or \"off\"",
            ),
            ("/v levels=1:2", "\"max_size=SIZE\", \"memory=SIZE\""),
            (
                "/v max_size",
                "value \"max_size\": it must be a path, optionally followed by \"max_size=SIZE\"",
            ),
            (
                "/v memory=1m memory=2m",
                "has the parameter \"memory=\" twice",
            ),
            (&format!("/{}", "v".repeat(96)), "too long"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(message), "{line}: {error}");
        }
    }
}
