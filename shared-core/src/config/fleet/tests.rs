use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;

use super::directive::FleetFileNames;
use super::{FleetEndpoint, FleetNode, FleetSettings, FleetTopology, Secret};

mod files;
mod urls;

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMAMCAQU=\n-----END CERTIFICATE-----\n";
const PRIVATE_KEY: &str = "-----BEGIN PRIVATE KEY-----\nMAMCAQU=\n-----END PRIVATE KEY-----\n";

fn words(line: &str) -> Vec<&[u8]> {
    line.split('|').map(str::as_bytes).collect()
}

fn parse(line: &str) -> Result<(FleetSettings, FleetFileNames), String> {
    FleetSettings::parse_fleet_directive(&words(line), "/base/").map_err(|error| error.to_string())
}

fn read(line: &str, folder: &Path) -> Result<FleetSettings, String> {
    let base = format!("{}/", folder.display());
    FleetSettings::read_fleet_directive(&words(line), &base).map_err(|error| error.to_string())
}

fn endpoint(host: &str, port: u16, is_secure: bool, database: u32) -> FleetEndpoint {
    FleetEndpoint {
        nodes: nodes(&[(host, port)]),
        topology: FleetTopology::Server,
        is_secure,
        database,
    }
}

fn nodes(addresses: &[(&str, u16)]) -> Vec<FleetNode> {
    let node = |&(host, port): &(&str, u16)| FleetNode {
        host: host.into(),
        port,
    };
    addresses.iter().map(node).collect()
}

fn sentinel(primary_name: &str) -> FleetTopology {
    FleetTopology::Sentinel {
        primary_name: primary_name.into(),
    }
}

/// Writes a file that only its owner may read.
fn write_private(folder: &Path, name: &str, contents: &[u8]) {
    let path = folder.join(name);
    fs::write(&path, contents).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn urls_are_parsed_and_displayed_with_their_port() {
    for (url, expected, shown) in [
        ("redis://h", endpoint("h", 6379, false, 0), "redis://h:6379"),
        (
            "REDIS://valkey.example:1/",
            endpoint("valkey.example", 1, false, 0),
            "redis://valkey.example:1",
        ),
        (
            "rediss://10.0.0.1:65535/15",
            endpoint("10.0.0.1", 65_535, true, 15),
            "rediss://10.0.0.1:65535/15",
        ),
        (
            "rediss://[::1]",
            endpoint("::1", 6379, true, 0),
            "rediss://[::1]:6379",
        ),
        (
            "redis://[fe80::1]:7000/1",
            endpoint("fe80::1", 7_000, false, 1),
            "redis://[fe80::1]:7000/1",
        ),
    ] {
        assert_eq!(
            FleetEndpoint::parse_url(url),
            Some(expected.clone()),
            "{url}"
        );
        assert_eq!(expected.to_string(), shown);
        assert_eq!(FleetEndpoint::parse_url(shown), Some(expected));
    }
}

#[test]
fn parameters_have_defaults_when_only_the_url_is_set() {
    let expected = FleetSettings {
        endpoint: endpoint("h", 6379, false, 0),
        user: None,
        password: None,
        sentinel_user: None,
        sentinel_password: None,
        key_files: vec![],
        ca: None,
        client_cert: None,
        timeout_ms: 10,
        connect_timeout_ms: 500,
        max_entry: 1 << 20,
        prefix: "sszip".into(),
        ttl_ms: 7 * 86_400_000,
        cost_ms: 100,
        purge_wait_ms: 2_000,
        lease_wait_ms: 10_000,
    };
    assert_eq!(
        parse("redis://h"),
        Ok((expected, FleetFileNames::default()))
    );
}

#[test]
fn fleet_parameters_are_parsed() {
    let (settings, names) = parse(
        "rediss://h|user=sszip|password_file=pw|key_file=/k/new,old|ca=/ca.pem|cert=c.pem|\
         cert_key=k.pem|timeout=1s|connect_timeout=10ms|max_entry=16m|prefix=eth:main.1-a_b|\
         ttl=365d|cost=0|purge_wait=5s|lease_wait=1m",
    )
    .unwrap();
    let expected = FleetSettings {
        user: Some("sszip".into()),
        timeout_ms: 1_000,
        connect_timeout_ms: 10,
        max_entry: 16 << 20,
        prefix: "eth:main.1-a_b".into(),
        ttl_ms: 365 * 86_400_000,
        cost_ms: 0,
        purge_wait_ms: 5_000,
        lease_wait_ms: 60_000,
        ..FleetSettings::new(endpoint("h", 6379, true, 0))
    };
    assert_eq!(settings, expected);
    let expected = FleetFileNames {
        password: Some("/base/pw".into()),
        sentinel_password: None,
        keys: vec!["/k/new".into(), "/base/old".into()],
        ca: Some("/ca.pem".into()),
        cert: Some("/base/c.pem".into()),
        cert_key: Some("/base/k.pem".into()),
    };
    assert_eq!(names, expected);
    let least = parse("redis://h|timeout=1ms|connect_timeout=10s|max_entry=4k|ttl=1m|cost=1h");
    let least = least.unwrap().0;
    assert_eq!((least.timeout_ms, least.connect_timeout_ms), (1, 10_000));
    assert_eq!((least.max_entry, least.ttl_ms), (4 << 10, 60_000));
    assert_eq!(least.cost_ms, 3_600_000);
}

const SCHEMES: &str = "a URL that begins with \"redis://\", \"rediss://\", \"redis+cluster://\", \
                       \"rediss+cluster://\", \"redis+sentinel://\" or \"rediss+sentinel://\"";

const SERVER: &str = "\"redis://HOST[:PORT][/DATABASE]\"";
const CLUSTER: &str = "\"redis+cluster://HOST[:PORT],HOST[:PORT],...\"";
const SENTINELS: &str = "\"redis+sentinel://HOST[:PORT],HOST[:PORT],.../NAME\"";

#[test]
fn parameters_of_sentinels_require_sentinels_and_each_other() {
    let scheme = "used with a \"redis+sentinel://\" or \"rediss+sentinel://\" URL";
    let password = "used together with \"sentinel_password_file=FILE\"";
    for (line, word, allowed) in [
        ("redis://h|sentinel_user=s", "sentinel_user=s", scheme),
        (
            "redis+cluster://h|sentinel_password_file=f",
            "sentinel_password_file=/base/f",
            scheme,
        ),
        (
            "redis+sentinel://h/m|sentinel_user=s",
            "sentinel_user=s",
            password,
        ),
    ] {
        let expected = format!("has an invalid value \"{word}\": it must be {allowed}");
        assert_eq!(parse(line), Err(expected));
    }
    let line = "redis+sentinel://h/m|sentinel_user=s|sentinel_password_file=f";
    let (settings, names) = parse(line).unwrap();
    assert_eq!(settings.sentinel_user.as_deref(), Some("s"));
    assert_eq!(names.sentinel_password, Some("/base/f".into()));
    let folder = tempfile::tempdir().unwrap();
    write_private(folder.path(), "f", b"secret\n");
    let settings = read(line, folder.path()).unwrap();
    assert_eq!(settings.sentinel_password, Some(Secret::new("secret")));
    assert_eq!(settings.password, None);
}

#[test]
fn passwords_in_urls_are_rejected_and_not_reported() {
    let credentials = "without user and password; set \"user=NAME\" and \"password_file=FILE\" \
                       instead";
    for (url, shown, allowed) in [
        ("redis://:secret@h:1/2", "redis://...@h:1/2", credentials),
        ("rediss://me:secret@h", "rediss://...@h", credentials),
        ("redis://me:sec/secret@h", "redis://...@h", credentials),
        ("redis://secret@secret@h", "redis://...@h", credentials),
        ("me:secret@h", "...@h", credentials),
        (
            "redis://h@h?password=secret",
            "redis://...@h?...",
            credentials,
        ),
        ("redis://h?password=secret", "redis://h?...", SERVER),
    ] {
        let expected = format!("has an invalid value \"{shown}\": it must be {allowed}");
        assert_eq!(parse(url), Err(expected), "{url}");
    }
    let bytes: &[u8] = b"redis://:secret\xff@h";
    let error = FleetSettings::parse_fleet_directive(&[bytes], "").unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn invalid_parameters_are_rejected_with_the_allowed_values() {
    let file = "a file with an absolute path in UTF-8";
    let keys = "one or two files with a comma between them: the key of new values, and the \
                previous key";
    let time = |least: &str, most: &str| {
        format!("a time with its unit (ms, s, m, h or d), from {least} to {most}")
    };
    for (word, allowed) in [
        ("timeout=0ms", time("1ms", "1s")),
        ("timeout=1001ms", time("1ms", "1s")),
        ("timeout=10", time("1ms", "1s")),
        ("timeout=", time("1ms", "1s")),
        (
            "timeout=10msec",
            time("1ms", "1s") + "; did you mean \"10ms\"?",
        ),
        ("connect_timeout=9ms", time("10ms", "10s")),
        ("connect_timeout=11s", time("10ms", "10s")),
        ("max_entry=4095", "a size from 4k to 16m".into()),
        ("max_entry=17m", "a size from 4k to 16m".into()),
        (
            "max_entry=1mb",
            "a size from 4k to 16m; did you mean \"1m\"?".into(),
        ),
        ("ttl=59s", time("1m", "365d")),
        ("ttl=366d", time("1m", "365d")),
        (
            "cost=61m",
            "a time with its unit (ms, s, m, h or d), at most 1h".into(),
        ),
        (
            "purge_wait=6s",
            "a time with its unit (ms, s, m, h or d), at most 5s".into(),
        ),
        (
            "lease_wait=61s",
            "a time with its unit (ms, s, m, h or d), at most 1m".into(),
        ),
        (
            "prefix=",
            "1 to 64 letters, digits, \"_\", \"-\", \".\" or \":\"".into(),
        ),
        (
            "prefix={a}",
            "1 to 64 letters, digits, \"_\", \"-\", \".\" or \":\"".into(),
        ),
        (
            "user=",
            "a name of 1 to 128 bytes in UTF-8, without spaces".into(),
        ),
        (
            "user=a b",
            "a name of 1 to 128 bytes in UTF-8, without spaces".into(),
        ),
        ("password_file=", file.into()),
        ("ca=/a\0", file.into()),
        ("key_file=/a,", file.into()),
        ("key_file=/a,/b,/c", keys.into()),
        ("user=u", "used together with \"password_file=FILE\"".into()),
    ] {
        let expected = format!("has an invalid value \"{word}\": it must be {allowed}");
        assert_eq!(parse(&format!("redis://h|{word}")), Err(expected));
    }
    let long = format!("redis://h|prefix={}", "a".repeat(65));
    assert!(parse(&long).is_err());
    let relative = FleetSettings::parse_fleet_directive(&words("redis://h|key_file=k"), "");
    assert_eq!(
        relative.unwrap_err().to_string(),
        format!("has an invalid value \"key_file=k\": it must be {file}")
    );
}

#[test]
fn unknown_parameters_are_rejected_with_the_nearest_one() {
    let forms = "\"user=NAME\", \"password_file=FILE\", \"sentinel_user=NAME\", \
                 \"sentinel_password_file=FILE\", \"key_file=FILE[,FILE]\", \"ca=FILE\", \
                 \"cert=FILE\", \"cert_key=FILE\", \"timeout=TIME\", \"connect_timeout=TIME\", \
                 \"max_entry=SIZE\", \"prefix=TEXT\", \"ttl=TIME\", \"cost=TIME\", \
                 \"purge_wait=TIME\" or \"lease_wait=TIME\"";
    for (word, shown, suggestion) in [
        ("timout=1ms", "timout=...", Some("timeout")),
        (
            "conect_timeout=1s",
            "conect_timeout=...",
            Some("connect_timeout"),
        ),
        ("keyfile=/k", "keyfile=...", Some("key_file")),
        ("passwordfile=/k", "passwordfile=...", Some("password_file")),
        ("password=secret", "password=...", Some("password_file")),
        ("timeout", "timeout", Some("timeout")),
        ("herd=500ms", "herd=...", None),
        ("leasewait=500ms", "leasewait=...", Some("lease_wait")),
        ("db=1", "db=...", None),
        ("=secret", "=...", None),
        ("", "", None),
    ] {
        let suggestion = suggestion.map(|name| format!("; did you mean \"{name}=\"?"));
        let suggestion = suggestion.unwrap_or_default();
        let expected = format!("has an invalid value \"{shown}\": it must be {forms}{suggestion}");
        assert_eq!(parse(&format!("redis://h|{word}")), Err(expected));
    }
}

#[test]
fn duplicate_parameters_are_rejected() {
    for word in [
        "user=a",
        "password_file=/a",
        "sentinel_user=a",
        "sentinel_password_file=/a",
        "key_file=/a",
        "ca=/a",
        "cert=/a",
        "cert_key=/a",
        "timeout=1ms",
        "connect_timeout=1s",
        "max_entry=1m",
        "prefix=a",
        "ttl=1h",
        "cost=1s",
        "purge_wait=1s",
        "lease_wait=1s",
    ] {
        let name = word.split_once('=').unwrap().0;
        assert_eq!(
            parse(&format!("rediss://h|{word}|{word}")),
            Err(format!("has the parameter \"{name}=\" twice"))
        );
    }
}

#[test]
fn certificates_require_tls_and_each_other() {
    for (line, word, allowed) in [
        ("redis://h|ca=/a", "ca=/a", "used with a \"rediss://\" URL"),
        (
            "redis://h|cert=/a|cert_key=/b",
            "cert=/a",
            "used with a \"rediss://\" URL",
        ),
        (
            "redis://h|cert_key=b",
            "cert_key=/base/b",
            "used with a \"rediss://\" URL",
        ),
        (
            "rediss://h|cert=/a",
            "cert=/a",
            "used together with \"cert_key=FILE\"",
        ),
        (
            "rediss://h|ca=/c|cert_key=/b",
            "cert_key=/b",
            "used together with \"cert=FILE\"",
        ),
    ] {
        let expected = format!("has an invalid value \"{word}\": it must be {allowed}");
        assert_eq!(parse(line), Err(expected));
    }
    assert!(parse("rediss://h|ca=/c|cert=/a|cert_key=/b").is_ok());
}

#[test]
fn settings_of_another_server_have_other_values() {
    let settings = |line: &str| parse(line).unwrap().0;
    let first = settings("redis://h");
    for (line, is_same) in [
        ("redis://h:6379/0", true),
        ("redis://h|timeout=5ms|ttl=1h", true),
        ("redis://h/1", false),
        ("redis://g", false),
        ("rediss://h", false),
        ("redis://h|prefix=a", false),
        ("redis+cluster://h", false),
        ("redis+sentinel://h:6379/main", false),
    ] {
        assert_eq!(first.has_same_values(&settings(line)), is_same, "{line}");
    }
}

#[test]
fn settings_are_unchanged_after_json_round_trip() {
    let all = FleetSettings {
        user: Some("u\"".into()),
        password: Some(Secret::new("p\\w\u{e9}")),
        sentinel_user: Some("s".into()),
        sentinel_password: Some(Secret::new("\u{e9}")),
        key_files: vec![Secret::new([0xff_u8; 32]), Secret::new([0_u8; 33])],
        ca: Some(CERTIFICATE.into()),
        client_cert: Some((CERTIFICATE.into(), Secret::new(PRIVATE_KEY))),
        timeout_ms: 7,
        connect_timeout_ms: 70,
        max_entry: 7_000,
        prefix: "a:b".into(),
        ttl_ms: 70_000,
        cost_ms: 0,
        purge_wait_ms: 0,
        lease_wait_ms: 0,
        ..FleetSettings::new(endpoint("::1", 7, true, 7))
    };
    let url = "rediss+sentinel://a,[::1]:7/main";
    let sentinels = FleetSettings::new(FleetEndpoint::parse_url(url).unwrap());
    for settings in [
        all,
        sentinels,
        FleetSettings::new(endpoint("h", 6379, false, 0)),
    ] {
        let json = settings.to_json();
        assert_eq!(FleetSettings::from_json(json.as_bytes()), Ok(settings));
    }
    let least = FleetSettings::from_json(br#"{"url": "redis://h"}"#);
    assert_eq!(least, Ok(parse("redis://h").unwrap().0));
}

#[test]
fn invalid_json_is_rejected_without_its_secrets() {
    let types = "the settings of the fleet are invalid: a member is unknown, or has another type";
    for (json, error) in [
        (
            "",
            "the settings of the fleet are not JSON: EOF while parsing",
        ),
        ("\"secret\"", types),
        (r#"{"url": "redis://h", "password": ["secret"]}"#, types),
        (r#"{"url": "redis://h", "pasword": "secret"}"#, types),
        (r#"{"url": "redis://h", "timeout": -1}"#, types),
        (
            "{}",
            "the fleet has an invalid value \"\": it must be a URL",
        ),
        (
            r#"{"url": "redis://:secret@h"}"#,
            "the fleet has an invalid value \"redis://...@h\"",
        ),
        (
            r#"{"url": "redis://h", "keys": ["secret"]}"#,
            "the fleet has a key that is not hexadecimal",
        ),
        (
            r#"{"url": "redis://h", "prefix": "{a}"}"#,
            "the fleet has an invalid value \"{a}\": it must be 1 to 64 letters",
        ),
        (
            r#"{"url": "redis://h", "timeout": 1001}"#,
            "the fleet has an invalid value \"timeout=1001\": it must be from 1 to 1000",
        ),
        (
            r#"{"url": "redis://h", "max_entry": 16777217}"#,
            "the fleet has an invalid value \"max_entry=16777217\": it must be from 4096 to",
        ),
    ] {
        let message = FleetSettings::from_json(json.as_bytes()).unwrap_err();
        assert!(message.starts_with(error), "{json}: {message}");
        assert!(!message.contains("secret"), "{message}");
    }
}

proptest! {
    /// The URL that is displayed denotes the same endpoint, and no other text panics.
    #[test]
    fn accepted_urls_are_equal_after_their_display(url in "rediss?([+](cluster|sentinel))?://[-a-z0-9.:@/,\\[\\]]{0,20}") {
        if let Some(endpoint) = FleetEndpoint::parse_url(&url) {
            prop_assert!(!url.contains('@'));
            prop_assert_eq!(FleetEndpoint::parse_url(&endpoint.to_string()), Some(endpoint));
        }
    }
}
