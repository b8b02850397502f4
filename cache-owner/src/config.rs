//! Configuration of an owner: the daemon's file (`configs/cached.toml`), or the settings of a
//! host.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use sszip_core::config::fleet::FleetSettings;
use sszip_core::config::head_source::HeadSource;

use crate::config_values::{
    deserialize_absolute_path, deserialize_duration, deserialize_optional_duration,
    deserialize_size, deserialize_thread_count, deserialize_user_and_group,
};
use crate::fleet_config::{deserialize_fleet_table, fleet_table_warnings};
use crate::head_config::deserialize_head_source_tables;

/// Settings of an owner, from the daemon's file or from a host. Sizes are in bytes, times in
/// milliseconds.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct OwnerConfig {
    /// Path of the socket to listen on.
    #[serde(deserialize_with = "deserialize_absolute_path")]
    pub socket: PathBuf,
    /// User and group that own the socket.
    #[serde(deserialize_with = "deserialize_user_and_group")]
    pub socket_user: Option<(u32, u32)>,
    /// Directory of the store.
    #[serde(deserialize_with = "deserialize_absolute_path")]
    pub path: PathBuf,
    /// Maximum size of the store on disk.
    #[serde(deserialize_with = "deserialize_size")]
    pub max_size: u64,
    /// Maximum size of the entries in memory.
    #[serde(deserialize_with = "deserialize_size")]
    pub memory: u64,
    /// Maximum length of an entry.
    #[serde(deserialize_with = "deserialize_size")]
    pub max_entry: u64,
    /// Number of threads that serve; one serves some 50,000 lookups a second.
    #[serde(deserialize_with = "deserialize_thread_count")]
    pub threads: usize,
    /// Idle timeout of a connection, and timeout of a request.
    #[serde(deserialize_with = "deserialize_duration")]
    pub idle_timeout: u64,
    /// Interval between flushes of the store's memtables.
    #[serde(deserialize_with = "deserialize_duration")]
    pub flush_interval: u64,
    /// Whether immutable entries are recompressed before they are written to disk.
    pub recompress: bool,
    /// Inactivity period after which entries are removed; without it they stay as long as there
    /// is space.
    #[serde(deserialize_with = "deserialize_optional_duration")]
    pub inactive: Option<u64>,
    /// The followed nodes, with the names of their namespaces.
    #[serde(rename = "head", deserialize_with = "deserialize_head_source_tables")]
    pub follows: Vec<(String, HeadSource)>,
    /// The fleet through which entries are shared with the owners of other machines.
    #[serde(deserialize_with = "deserialize_fleet_table")]
    pub fleet: Option<FleetSettings>,
}

impl Default for OwnerConfig {
    fn default() -> Self {
        Self {
            socket: PathBuf::new(),
            socket_user: None,
            path: PathBuf::new(),
            max_size: 10 << 30,
            memory: 256 << 20,
            max_entry: 64 << 20,
            threads: 1,
            idle_timeout: 60_000,
            flush_interval: 60_000,
            recompress: true,
            inactive: None,
            follows: Vec::new(),
            fleet: None,
        }
    }
}

/// An error in a configuration, with the file and the line.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The file has an invalid setting.
    #[error("{path}:{line}: {message}")]
    Wrong {
        /// The file.
        path: String,
        /// Line number, from 1.
        line: usize,
        /// The error, and the allowed values.
        message: String,
    },
}

impl OwnerConfig {
    /// Creates the configuration with this socket and this folder of the store, and the defaults.
    pub fn from_socket_and_store_paths(socket: PathBuf, path: PathBuf) -> Self {
        Self {
            socket,
            path,
            ..Self::default()
        }
    }

    /// Reads the daemon's configuration from a file.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn read_owner_config(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse_owner_config(&text, &name),
            Err(error) => Err(ConfigError::Unreadable { path: name, error }),
        }
    }

    /// Parses the daemon's configuration, which errors attribute to the file `name`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn parse_owner_config(text: &str, name: &str) -> Result<Self, ConfigError> {
        let wrong = |start: usize, message: &str| ConfigError::Wrong {
            path: name.to_owned(),
            line: text[..start].matches('\n').count() + 1,
            message: message.replace('\n', " "),
        };
        let config: Self = toml::from_str(text).map_err(|error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start);
            wrong(start.min(text.len()), error.message())
        })?;
        for (path, field) in [(&config.socket, "socket"), (&config.path, "path")] {
            if path.as_os_str().is_empty() {
                return Err(wrong(0, &format!("missing field `{field}`")));
            }
        }
        Ok(config)
    }

    /// Returns warnings about settings that are allowed but suspicious.
    pub fn config_warnings(&self) -> Vec<String> {
        let fleet = self.fleet.as_ref();
        fleet.map_or_else(Vec::new, |fleet| {
            fleet_table_warnings(fleet, !self.follows.is_empty())
        })
    }
}

#[cfg(test)]
mod tests {
    use sszip_core::config::fleet::FleetEndpoint;

    use super::*;

    fn config_error_text(text: &str) -> String {
        OwnerConfig::parse_owner_config(text, "cached.toml")
            .unwrap_err()
            .to_string()
    }

    const LEAST: &str = "socket = \"/run/s\"\npath = \"/var/s\"\n";

    #[test]
    fn minimal_config_is_a_socket_and_a_path() {
        let config = OwnerConfig::parse_owner_config(LEAST, "").unwrap();
        assert_eq!(
            config,
            OwnerConfig::from_socket_and_store_paths("/run/s".into(), "/var/s".into())
        );
        assert_eq!(config.max_size, 10 << 30);
        assert_eq!(config.memory, 256 << 20);
        assert_eq!(config.idle_timeout, 60_000);
        assert_eq!((config.threads, config.socket_user), (1, None));
    }

    #[test]
    fn example_config_equals_the_defaults() {
        let example = include_str!("../../configs/cached.toml");
        let config = OwnerConfig::parse_owner_config(example, "").unwrap();
        let least = OwnerConfig {
            socket: config.socket.clone(),
            path: config.path.clone(),
            ..OwnerConfig::parse_owner_config(LEAST, "").unwrap()
        };
        assert_eq!(config, least);
        // the settings that are commented out are valid too
        let all: String = example
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(setting)
                    if setting
                        .split_once(" = ")
                        .is_some_and(|(name, _)| !name.contains(' ')) =>
                {
                    setting
                }
                Some(table) if table.starts_with('[') => table,
                _ => line,
            })
            .fold(String::new(), |all, line| all + line + "\n");
        assert_ne!(all, example);
        let all = all.replace("www-data", "root");
        let all = OwnerConfig::parse_owner_config(&all, "").unwrap();
        assert_eq!(all.follows.len(), 1);
        let endpoint = FleetEndpoint::parse_url("redis://127.0.0.1").unwrap();
        assert_eq!(all.fleet, Some(FleetSettings::new(endpoint)));
        assert!(all.config_warnings().is_empty());
    }

    #[test]
    fn values_with_units_are_parsed() {
        let with =
            |line: &str| OwnerConfig::parse_owner_config(&format!("{LEAST}{line}"), "").unwrap();
        assert_eq!(with("max_size = 65536").max_size, 65_536);
        assert_eq!(with("max_size = \"3M\"").max_size, 3 << 20);
        assert_eq!(with("idle_timeout = \"500ms\"").idle_timeout, 500);
        assert_eq!(with("threads = 4").threads, 4);
        assert!(with("").recompress && !with("recompress = false").recompress);
        assert_eq!(with("").inactive, None);
        let week = with("inactive = \"7d\"").inactive;
        assert_eq!(week, Some(7 * 86_400_000));
        for root in ["root", "root:root"] {
            let config = with(&format!("socket_user = \"{root}\""));
            assert_eq!(config.socket_user, Some((0, 0)));
        }
    }

    #[test]
    fn errors_name_the_line_and_the_allowed_values() {
        for (line, expected) in [
            ("max_size = \"10x\"", "cached.toml:3: invalid value: string \"10x\", expected a size in bytes, such as"),
            ("max_size = -1", "cached.toml:3: invalid value: integer `-1`, expected a size"),
            ("memory = true", "cached.toml:3: invalid type: boolean `true`, expected a size"),
            ("idle_timeout = 5", "cached.toml:3: invalid value: integer `5`, expected a time"),
            ("idle_timeout = \"0s\"", "cached.toml:3: invalid value: string \"0s\", expected a time"),
            ("recompress = \"on\"", "cached.toml:3: invalid type: string \"on\", expected a boolean"),
            ("inactive = 0", "cached.toml:3: invalid value: integer `0`, expected a time"),
            ("threads = 0", "cached.toml:3: invalid value: integer `0`, expected a number from 1 to 64"),
            ("socket_user = \"nobody-of-that-name\"", "cached.toml:3: invalid value: string \"nobody-of-that-name\", expected a user of this system"),
            ("sokcet = \"/x\"", "cached.toml:3: unknown field `sokcet`, expected one of `socket`, `socket_user`, `path`"),
            ("memory = ", "cached.toml:3: "),
        ] {
            let text = config_error_text(&format!("{LEAST}{line}\n"));
            assert!(text.starts_with(expected), "{text}");
        }
        assert!(config_error_text("path = \"/x\"").contains("missing field `socket`"));
        let relative = config_error_text("socket = \"s\"\npath = \"/x\"");
        assert_eq!(relative, "cached.toml:1: \"s\" is not an absolute path");
        let missing = OwnerConfig::read_owner_config(Path::new("/no/such/file")).unwrap_err();
        assert!(missing
            .to_string()
            .starts_with("cannot read /no/such/file: "));
    }
}
