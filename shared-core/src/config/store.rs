//! Settings of a store on disk that a process of the host owns.

use super::endpoint::MAX_SOCKET_PATH;
use super::values::{flag, invalid, parse_nginx_time, set_once, DirectiveError, Range, Unit, MIB};

/// Name of the owner's socket in the store's folder.
pub const SOCKET: &str = "owner.sock";
/// Name of the folder with the data in the store's folder.
pub const DATA: &str = "store";

/// The settings of a store's directive, for the process that owns the store; `None` where the
/// owner's default applies.
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

const MAX_SIZES: Range = Range {
    least: 64 * MIB,
    most: 1 << 60,
    unit: Unit::Bytes,
};
const MEMORIES: Range = Range {
    least: MIB,
    most: 1 << 50,
    unit: Unit::Bytes,
};

const PARAMETERS: &str =
    "a path, optionally followed by \"max_size=SIZE\", \"memory=SIZE\", \"inactive=TIME\" or \
     \"recompress=on|off\"";

impl StoreSettings {
    /// Parses `PATH [max_size=SIZE] [memory=SIZE] [inactive=TIME] [recompress=on|off]`. A relative
    /// path is resolved against `base`.
    ///
    /// # Errors
    /// The [`DirectiveError`] contains the allowed values.
    pub fn parse(words: &[&[u8]], base: &str) -> Result<Self, DirectiveError> {
        let Some((path, words)) = words.split_first() else {
            return Err(invalid(b"", PARAMETERS));
        };
        let mut store = StoreSettings {
            folder: folder(path, base)?,
            ..Self::default()
        };
        for word in words {
            let (name, value) = match word.iter().position(|byte| *byte == b'=') {
                Some(at) => (&word[..at], &word[at + 1..]),
                None => return Err(invalid(word, PARAMETERS)),
            };
            match name {
                b"max_size" => set_once(&mut store.max_size, || MAX_SIZES.read(value)),
                b"memory" => set_once(&mut store.memory, || MEMORIES.read(value)),
                b"inactive" => set_once(&mut store.inactive, || parse_nginx_time(value)),
                b"recompress" => set_once(&mut store.recompress, || flag(value)),
                _ => return Err(invalid(word, PARAMETERS)),
            }
            .map_err(|error| error.with_word(word).for_parameter(name))?;
        }
        Ok(store)
    }

    /// Returns the path of the Unix socket at which the owner listens.
    pub fn socket(&self) -> String {
        format!("{}/{SOCKET}", self.folder)
    }

    /// Returns the path of the folder with the data, in the store's folder.
    pub fn data(&self) -> String {
        format!("{}/{DATA}", self.folder)
    }
}

fn folder(path: &[u8], base: &str) -> Result<String, DirectiveError> {
    let text = std::str::from_utf8(path).unwrap_or_default();
    let folder = match text.trim_end_matches('/') {
        "" => return Err(invalid(path, "a folder of its own, whose path is UTF-8")),
        folder if folder.starts_with('/') => folder.to_owned(),
        folder => format!("{base}{folder}"),
    };
    let longest = MAX_SOCKET_PATH - "/".len() - SOCKET.len();
    if folder.len() > longest {
        let allowed = format!(
            "a path of at most {longest} bytes: the path of the socket in it would be too long"
        );
        return Err(invalid(folder.as_bytes(), allowed));
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::StoreSettings;

    fn parse(line: &str) -> Result<StoreSettings, String> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        StoreSettings::parse(&words, "/base/").map_err(|error| error.to_string())
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
            (store.socket(), store.data()),
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
