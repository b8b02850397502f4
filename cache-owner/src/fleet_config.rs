//! The table `[fleet]` of the daemon's configuration. The core checks its values
//! (`sszip_core::config::fleet`) and reads its files, as for the directive of nginx.

use serde::de::Deserializer;
use serde::Deserialize;
use sszip_core::config::fleet::FleetSettings;

use crate::config_values::deserialize_optional_text;

/// The table `[fleet]`: the server through which the owners of several machines share entries.
#[derive(Deserialize)]
#[serde(try_from = "RawFleet")]
struct FleetTable(FleetSettings);

/// A table `[fleet]` as it is written, before the core parses its values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFleet {
    url: String,
    user: Option<String>,
    password_file: Option<String>,
    sentinel_user: Option<String>,
    sentinel_password_file: Option<String>,
    key_file: Option<String>,
    ca: Option<String>,
    cert: Option<String>,
    cert_key: Option<String>,
    #[serde(default, deserialize_with = "deserialize_optional_text")]
    timeout: Option<String>,
    #[serde(default, deserialize_with = "deserialize_optional_text")]
    connect_timeout: Option<String>,
    #[serde(default, deserialize_with = "deserialize_optional_text")]
    max_entry: Option<String>,
    prefix: Option<String>,
    #[serde(default, deserialize_with = "deserialize_optional_text")]
    ttl: Option<String>,
    #[serde(default, deserialize_with = "deserialize_optional_text")]
    cost: Option<String>,
    #[serde(default, deserialize_with = "deserialize_optional_text")]
    purge_wait: Option<String>,
    #[serde(default, deserialize_with = "deserialize_optional_text")]
    lease_wait: Option<String>,
}

impl TryFrom<RawFleet> for FleetTable {
    type Error = String;

    fn try_from(table: RawFleet) -> Result<Self, String> {
        let named = [
            ("user", table.user),
            ("password_file", table.password_file),
            ("sentinel_user", table.sentinel_user),
            ("sentinel_password_file", table.sentinel_password_file),
            ("key_file", table.key_file),
            ("ca", table.ca),
            ("cert", table.cert),
            ("cert_key", table.cert_key),
            ("timeout", table.timeout),
            ("connect_timeout", table.connect_timeout),
            ("max_entry", table.max_entry),
            ("prefix", table.prefix),
            ("ttl", table.ttl),
            ("cost", table.cost),
            ("purge_wait", table.purge_wait),
            ("lease_wait", table.lease_wait),
        ];
        let named = named.into_iter();
        let named = named.filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        let words: Vec<String> = [table.url].into_iter().chain(named).collect();
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        // no base: paths must not depend on the working directory of the daemon
        match FleetSettings::read_fleet_directive(&words, "") {
            Ok(settings) => Ok(Self(settings)),
            Err(error) => Err(format!("[fleet] {error}")),
        }
    }
}

/// Deserializes the table `[fleet]`, and reads the files that it names.
pub(crate) fn deserialize_fleet_table<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<FleetSettings>, D::Error> {
    FleetTable::deserialize(from).map(|table| Some(table.0))
}

/// Returns the warnings about a fleet that is allowed but suspicious, for the daemon's log.
pub(crate) fn fleet_table_warnings(fleet: &FleetSettings, has_heads: bool) -> Vec<String> {
    let mut texts = fleet.transport_warnings();
    if !has_heads {
        texts.push("shares no entries: there is no [[head]]; add one".into());
    }
    let texts = texts.into_iter();
    texts.map(|text| format!("[fleet] {text}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use sszip_core::config::fleet::{FleetEndpoint, Secret};

    use super::*;
    use crate::config::OwnerConfig;

    /// Parses a file whose table `[fleet]` begins on line 4.
    fn parse_fleet_table(lines: &str) -> Result<OwnerConfig, String> {
        let text = format!("socket = \"/run/s\"\npath = \"/var/s\"\n\n[fleet]\n{lines}");
        OwnerConfig::parse_owner_config(&text, "cached.toml").map_err(|error| error.to_string())
    }

    fn default_settings(url: &str) -> FleetSettings {
        FleetSettings::new(FleetEndpoint::parse_url(url).unwrap())
    }

    #[test]
    fn minimal_fleet_is_a_url() {
        let config = parse_fleet_table("url = \"redis://h\"\n").unwrap();
        assert_eq!(config.fleet, Some(default_settings("redis://h")));
    }

    #[test]
    fn fleet_with_every_setting_is_parsed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let certificate = "-----BEGIN CERTIFICATE-----\nMAMCAQU=\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN PRIVATE KEY-----\nMAMCAQU=\n-----END PRIVATE KEY-----\n";
        for (name, contents) in [
            ("pw", "secret\n"),
            ("a", "first key, which has 32 bytes...!"),
            ("b", "the former key, with 32 bytes...!"),
            ("ca.pem", certificate),
            ("cert.pem", certificate),
            ("cert.key", key),
        ] {
            let path = folder.join(name);
            fs::write(&path, contents).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        }
        let lines = "url = \"rediss://h:1/2\"\nuser = \"u\"\npassword_file = \"@/pw\"\n\
                     key_file = \"@/a,@/b\"\nca = \"@/ca.pem\"\ncert = \"@/cert.pem\"\n\
                     cert_key = \"@/cert.key\"\ntimeout = \"5ms\"\nconnect_timeout = \"1s\"\n\
                     max_entry = 65536\nprefix = \"p\"\nttl = \"1d\"\ncost = 0\npurge_wait = \"1s\"\n\
                     lease_wait = \"3s\"\n";
        let lines = lines.replace('@', &folder.display().to_string());
        let expected = FleetSettings {
            user: Some("u".into()),
            password: Some(Secret::new("secret")),
            key_files: vec![
                Secret::new("first key, which has 32 bytes...!"),
                Secret::new("the former key, with 32 bytes...!"),
            ],
            ca: Some(certificate.into()),
            client_cert: Some((certificate.into(), Secret::new(key))),
            timeout_ms: 5,
            connect_timeout_ms: 1_000,
            max_entry: 65_536,
            prefix: "p".into(),
            ttl_ms: 86_400_000,
            cost_ms: 0,
            purge_wait_ms: 1_000,
            lease_wait_ms: 3_000,
            ..default_settings("rediss://h:1/2")
        };
        let config = parse_fleet_table(&lines).unwrap();
        assert_eq!(config.fleet, Some(expected));
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn invalid_fleets_are_rejected_with_the_line_and_the_allowed_values() {
        for (lines, expected) in [
            ("", "cached.toml:4: missing field `url`"),
            ("url = 5", "cached.toml:5: invalid type: integer `5`, expected a string"),
            (
                "url = \"redis+clustr://h\"",
                "cached.toml:4: [fleet] has an invalid value \"redis+clustr://h\": it must be a \
                 URL that begins with \"redis://\", \"rediss://\", \"redis+cluster://\",",
            ),
            (
                "url = \"redis://:secret@h\"",
                "cached.toml:4: [fleet] has an invalid value \"redis://...@h\": it must be without \
                 user and password; set",
            ),
            (
                "url = \"redis://h\"\ntimeout = 5",
                "cached.toml:4: [fleet] has an invalid value \"timeout=5\": it must be a time with",
            ),
            (
                "url = \"redis://h\"\nmax_entry = \"1g\"",
                "cached.toml:4: [fleet] has an invalid value \"max_entry=1g\": it must be a size",
            ),
            (
                "url = \"redis://h\"\nttl = true",
                "cached.toml:6: invalid type: boolean `true`, expected a string or a number",
            ),
            (
                "url = \"redis://h\"\nkey_file = \"key\"",
                "cached.toml:4: [fleet] has an invalid value \"key_file=key\": it must be a file \
                 with an absolute path",
            ),
            (
                "url = \"redis://h\"\nkey_file = \"/no/such/key\"",
                "cached.toml:4: [fleet] cannot read the key file \"/no/such/key\" (2: No such",
            ),
            (
                "url = \"redis://h\"\nca = \"/ca.pem\"",
                "cached.toml:4: [fleet] has an invalid value \"ca=/ca.pem\": it must be used with",
            ),
            (
                "url = \"redis://h\"\npassword = \"secret\"",
                "cached.toml:6: unknown field `password`, expected one of `url`, `user`, \
                 `password_file`",
            ),
        ] {
            let error = parse_fleet_table(&format!("{lines}\n")).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let two = "url = \"redis://a\"\n\n[fleet]\nurl = \"redis://b\"\n";
        let error = parse_fleet_table(two).unwrap_err();
        assert!(error.contains("duplicate key"), "{error}");
    }

    #[test]
    fn warnings_name_the_table() {
        let local = default_settings("redis://localhost");
        assert!(fleet_table_warnings(&local, true).is_empty());
        let heads = "[fleet] shares no entries: there is no [[head]]; add one";
        assert_eq!(fleet_table_warnings(&local, false), [heads]);
        let remote = fleet_table_warnings(&default_settings("redis://h"), true);
        assert_eq!(remote.len(), 1);
        assert!(remote[0].starts_with("[fleet] shares entries through redis://h:6379 without"));
    }
}
