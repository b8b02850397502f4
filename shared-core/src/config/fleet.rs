//! The fleet tier (`cache_fleet`): the Redis or Valkey server through which the owners of several
//! machines share entries.
//!
//! Passwords and keys are read from files when the configuration is parsed, because the owner may
//! not have the rights to read them later. [`Secret`] excludes them from `Debug`; errors name
//! files, and contain no contents.

pub mod directive;
#[cfg(unix)]
mod fleet_files;
mod json;
#[cfg(unix)]
mod pem;

use std::fmt;
use std::net::IpAddr;

use super::endpoint::parse_url_host;
use super::values::{DirectiveValueRange, DirectiveValueUnit, KIB, MIB};
#[cfg(unix)]
use super::DirectiveError;

/// The contents of a file that must not be logged: a password or a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Creates a secret from its bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes of the secret.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the secret as text, or `None` if it is not UTF-8. Passwords and PEM are UTF-8.
    pub fn as_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(...)")
    }
}

/// The server of a fleet, as its URL names it. `Display` writes the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetEndpoint {
    /// A host name, or an address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether connections use TLS.
    pub is_secure: bool,
    /// Number of the database.
    pub database: u32,
}

/// The settings of the fleet tier, with the contents of their files. Times are in milliseconds,
/// sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// The server.
    pub endpoint: FleetEndpoint,
    /// Name of the user of the server's ACL, or `None` for the default user.
    pub user: Option<String>,
    /// Password of the user, UTF-8; `None`: connections are not authenticated.
    pub password: Option<Secret>,
    /// Keys of shared values, at most two: the first authenticates new values, and both verify.
    /// Without a key, values have a checksum only.
    pub key_files: Vec<Secret>,
    /// Trusted CA certificates in PEM, or `None` for the system's certificates.
    pub ca: Option<String>,
    /// Client certificate and its private key, in PEM.
    pub client_cert: Option<(String, Secret)>,
    /// Timeout of a lookup.
    pub timeout_ms: u64,
    /// Timeout of an attempt to connect.
    pub connect_timeout_ms: u64,
    /// Maximum length of an entry that is shared.
    pub max_entry: u64,
    /// Prefix of all keys on the server.
    pub prefix: String,
    /// Maximum lifetime of a shared value.
    pub ttl_ms: u64,
    /// Node time from which an entry is shared at its first fill.
    pub cost_ms: u64,
    /// Time for which a purge waits for the confirmations of other owners.
    pub purge_wait_ms: u64,
}

/// Default port of the protocol.
const DEFAULT_PORT: u16 = 6379;

const PORT_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: 65_535,
    unit: DirectiveValueUnit::Number,
};
const DATABASE_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: 65_535,
    unit: DirectiveValueUnit::Number,
};
const TIMEOUT_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: 1_000,
    unit: DirectiveValueUnit::Time,
};
const CONNECT_TIMEOUT_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 10,
    most: 10_000,
    unit: DirectiveValueUnit::Time,
};
const MAX_ENTRY_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 4 * KIB,
    most: 16 * MIB,
    unit: DirectiveValueUnit::Bytes,
};
const TTL_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 60_000,
    most: 365 * 86_400_000,
    unit: DirectiveValueUnit::Time,
};
const COST_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: 3_600_000,
    unit: DirectiveValueUnit::Time,
};
/// Proxies wait 10 seconds for a purge; its local part takes some of them.
const PURGE_WAIT_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: 5_000,
    unit: DirectiveValueUnit::Time,
};

impl FleetEndpoint {
    /// Parses `redis://HOST[:PORT][/DATABASE]`, or the same with `rediss`, which uses TLS. Returns
    /// `None` for any other URL, also if it has a user or a password.
    pub fn parse_url(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let is_secure = match &*scheme.to_ascii_lowercase() {
            "redis" => false,
            "rediss" => true,
            _ => return None,
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let database = match path {
            "" => 0,
            number => DATABASE_RANGE.parse_in_range(number.as_bytes()).ok()?,
        };
        let (host, port) = match authority.rsplit_once(':') {
            // the colons of an IPv6 address are in brackets
            Some((host, port)) if !port.ends_with(']') => {
                (host, PORT_RANGE.parse_in_range(port.as_bytes()).ok()?)
            }
            _ => (authority, DEFAULT_PORT.into()),
        };
        Some(Self {
            host: parse_url_host(host)?.to_owned(),
            port: u16::try_from(port).ok()?,
            is_secure,
            database: u32::try_from(database).ok()?,
        })
    }

    /// Whether the server is on this machine, so that connections to it cross no network.
    pub fn is_loopback(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.host.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for FleetEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        f.write_str(if self.is_secure {
            "rediss://"
        } else {
            "redis://"
        })?;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}")?,
            false => write!(f, "{host}:{port}")?,
        }
        match self.database {
            0 => Ok(()),
            number => write!(f, "/{number}"),
        }
    }
}

impl FleetSettings {
    /// Creates the settings of a server with default parameters.
    pub fn new(endpoint: FleetEndpoint) -> Self {
        Self {
            endpoint,
            user: None,
            password: None,
            key_files: Vec::new(),
            ca: None,
            client_cert: None,
            timeout_ms: 10,
            connect_timeout_ms: 500,
            max_entry: MIB,
            prefix: "sszip".into(),
            ttl_ms: 7 * 86_400_000,
            cost_ms: 100,
            purge_wait_ms: 2_000,
        }
    }

    /// Parses the words of the directive, and reads the files that they name. Relative paths are
    /// resolved against `base`.
    ///
    /// # Errors
    /// The [`DirectiveError`] contains the allowed values, or names the file that is not usable.
    #[cfg(unix)]
    pub fn read_fleet_directive(words: &[&[u8]], base: &str) -> Result<Self, DirectiveError> {
        let (mut settings, names) = Self::parse_fleet_directive(words, base)?;
        names
            .read_files_into(&mut settings)
            .map_err(|text| DirectiveError::File { text })?;
        Ok(settings)
    }

    /// Whether two settings use the same values on the same server, so that one may replace the
    /// other while owners are running.
    pub fn has_same_values(&self, other: &Self) -> bool {
        self.endpoint == other.endpoint && self.prefix == other.prefix
    }

    /// Returns the warnings about connections over a network without TLS. The texts continue a
    /// sentence that begins with the name of the setting.
    pub fn transport_warnings(&self) -> Vec<String> {
        let endpoint = &self.endpoint;
        if endpoint.is_secure || endpoint.is_loopback() {
            return Vec::new();
        }
        let mut texts = Vec::new();
        if self.password.is_some() {
            texts.push(format!(
                "sends its password to {endpoint} without encryption; use a \"rediss://\" URL"
            ));
        }
        if self.key_files.is_empty() {
            texts.push(format!(
                "shares entries through {endpoint} without encryption and without a key: other \
                 hosts of the network can forge them; use a \"rediss://\" URL, or set \
                 \"key_file=FILE\""
            ));
        }
        texts
    }
}

#[cfg(test)]
mod tests;
