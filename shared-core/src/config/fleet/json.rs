//! The settings of a fleet as JSON, in which a host passes them to its owner. It contains
//! passwords and keys.

use serde::{Deserialize, Serialize};

use super::directive::{parse_endpoint, parse_prefix};
use super::{
    FleetSettings, Secret, CONNECT_TIMEOUT_RANGE, COST_RANGE, LEASE_WAIT_RANGE, MAX_ENTRY_RANGE,
    PURGE_WAIT_RANGE, TIMEOUT_RANGE, TTL_RANGE,
};
use crate::config::values::DirectiveValueRange;

/// The members of the JSON object. Numbers are milliseconds and bytes, keys are hexadecimal; a
/// missing member means the default.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct FleetRecord {
    url: String,
    user: Option<String>,
    password: Option<String>,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    keys: Vec<String>,
    ca: Option<String>,
    cert: Option<String>,
    cert_key: Option<String>,
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
    /// Serializes the settings for the owner, with passwords and keys.
    pub fn to_json(&self) -> String {
        let text = |secret: &Secret| secret.as_text().unwrap_or_default().to_owned();
        let keys = self.key_files.iter().map(Secret::as_bytes);
        let client = self.client_cert.as_ref();
        let record = FleetRecord {
            url: self.endpoint.to_string(),
            user: self.user.clone(),
            password: self.password.as_ref().map(text),
            sentinel_user: self.sentinel_user.clone(),
            sentinel_password: self.sentinel_password.as_ref().map(text),
            keys: keys.map(const_hex::encode).collect(),
            ca: self.ca.clone(),
            cert: client.map(|(cert, _)| cert.clone()),
            cert_key: client.map(|(_, key)| text(key)),
            timeout: Some(self.timeout_ms),
            connect_timeout: Some(self.connect_timeout_ms),
            max_entry: Some(self.max_entry),
            prefix: Some(self.prefix.clone()),
            ttl: Some(self.ttl_ms),
            cost: Some(self.cost_ms),
            purge_wait: Some(self.purge_wait_ms),
            lease_wait: Some(self.lease_wait_ms),
        };
        // fails for no value of these types
        serde_json::to_string(&record).unwrap_or_default()
    }

    /// Reads settings from the JSON that [`to_json`](Self::to_json) writes.
    ///
    /// # Errors
    /// The text describes the problem, and contains no secret.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        let record: FleetRecord =
            serde_json::from_slice(json).map_err(|error| match error.classify() {
                // its message would contain the value
                serde_json::error::Category::Data => {
                    "the settings of the fleet are invalid: a member is unknown, or has another \
                     type"
                        .into()
                }
                _ => format!("the settings of the fleet are not JSON: {error}"),
            })?;
        let endpoint = parse_endpoint(record.url.as_bytes());
        let mut settings = Self::new(endpoint.map_err(|error| format!("the fleet {error}"))?);
        let keys = record.keys.iter().map(const_hex::decode);
        let keys = keys.map(|key| key.map(Secret::new));
        settings.key_files = keys
            .collect::<Result<_, _>>()
            .map_err(|_| "the fleet has a key that is not hexadecimal".to_owned())?;
        settings.user = record.user;
        settings.password = record.password.map(Secret::new);
        settings.sentinel_user = record.sentinel_user;
        settings.sentinel_password = record.sentinel_password.map(Secret::new);
        settings.ca = record.ca;
        settings.client_cert = record.cert.zip(record.cert_key.map(Secret::new));
        if let Some(prefix) = record.prefix {
            let prefix = parse_prefix(prefix.as_bytes());
            settings.prefix = prefix.map_err(|error| format!("the fleet {error}"))?;
        }
        for (name, slot, value, range) in [
            (
                "timeout",
                &mut settings.timeout_ms,
                record.timeout,
                TIMEOUT_RANGE,
            ),
            (
                "connect_timeout",
                &mut settings.connect_timeout_ms,
                record.connect_timeout,
                CONNECT_TIMEOUT_RANGE,
            ),
            (
                "max_entry",
                &mut settings.max_entry,
                record.max_entry,
                MAX_ENTRY_RANGE,
            ),
            ("ttl", &mut settings.ttl_ms, record.ttl, TTL_RANGE),
            ("cost", &mut settings.cost_ms, record.cost, COST_RANGE),
            (
                "purge_wait",
                &mut settings.purge_wait_ms,
                record.purge_wait,
                PURGE_WAIT_RANGE,
            ),
            (
                "lease_wait",
                &mut settings.lease_wait_ms,
                record.lease_wait,
                LEASE_WAIT_RANGE,
            ),
        ] {
            set_number(name, slot, value, range)?;
        }
        Ok(settings)
    }
}

/// Sets a number that is present, and in its range.
fn set_number(
    name: &str,
    slot: &mut u64,
    value: Option<u64>,
    range: DirectiveValueRange,
) -> Result<(), String> {
    match value {
        Some(value) if !(range.least..=range.most).contains(&value) => Err(format!(
            "the fleet has an invalid value \"{name}={value}\": it must be from {} to {}",
            range.least, range.most
        )),
        value => {
            *slot = value.unwrap_or(*slot);
            Ok(())
        }
    }
}
