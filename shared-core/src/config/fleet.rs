//! The fleet tier (`cache_fleet`): the Redis or Valkey servers through which the owners of several
//! machines share entries.
//!
//! Passwords and keys are read from files when the configuration is parsed, because the owner may
//! not have the rights to read them later. [`Secret`] excludes them from `Debug`; errors name
//! files, and contain no contents.

pub mod directive;
mod fleet_endpoint;
#[cfg(unix)]
mod fleet_files;
mod json;
#[cfg(unix)]
mod pem;

use std::fmt;

pub use self::fleet_endpoint::{FleetEndpoint, FleetNode, FleetTopology};
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

/// The settings of the fleet tier, with the contents of their files. Times are in milliseconds,
/// sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// The servers.
    pub endpoint: FleetEndpoint,
    /// Name of the user of the server's ACL, or `None` for the default user.
    pub user: Option<String>,
    /// Password of the user, UTF-8; `None`: connections are not authenticated.
    pub password: Option<Secret>,
    /// Name of the user of the Sentinels' ACL, or `None` for their default user.
    pub sentinel_user: Option<String>,
    /// Password of the Sentinels' user, UTF-8; `None`: connections to them are not authenticated.
    pub sentinel_password: Option<Secret>,
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
    /// Maximum time for which requests wait for the fetch of another machine; 0: they don't.
    pub lease_wait_ms: u64,
}

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
const LEASE_WAIT_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: 60_000,
    unit: DirectiveValueUnit::Time,
};

impl FleetSettings {
    /// Creates the settings of a server with default parameters.
    pub fn new(endpoint: FleetEndpoint) -> Self {
        Self {
            endpoint,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
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
            lease_wait_ms: 10_000,
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
        let secure = endpoint.secure_url_scheme();
        let mut texts = Vec::new();
        if self.password.is_some() || self.sentinel_password.is_some() {
            texts.push(format!(
                "sends its password to {endpoint} without encryption; use a \"{secure}\" URL"
            ));
        }
        if self.key_files.is_empty() {
            texts.push(format!(
                "shares entries through {endpoint} without encryption and without a key: other \
                 hosts of the network can forge them; use a \"{secure}\" URL, or set \
                 \"key_file=FILE\""
            ));
        }
        texts
    }
}

#[cfg(test)]
mod tests;
