use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;

use super::directive::FleetFileNames;
use super::{FleetEndpoint, FleetNode, FleetSettings, FleetTopology, Secret};

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
fn urls_of_clusters_and_sentinels_are_parsed_and_displayed() {
    for (url, expected, topology, is_secure, shown) in [
        (
            "redis+cluster://a",
            &[("a", 6379)][..],
            FleetTopology::Cluster,
            false,
            "redis+cluster://a:6379",
        ),
        (
            "REDISS+Cluster://a:1,[::1],b:3/",
            &[("a", 1), ("::1", 6379), ("b", 3)],
            FleetTopology::Cluster,
            true,
            "rediss+cluster://a:1,[::1]:6379,b:3",
        ),
        (
            "redis+sentinel://a,b:7/my-main.1_x",
            &[("a", 26_379), ("b", 7)],
            sentinel("my-main.1_x"),
            false,
            "redis+sentinel://a:26379,b:7/my-main.1_x",
        ),
        (
            "rediss+sentinel://[::1]:9,a:9/0",
            &[("::1", 9), ("a", 9)],
            sentinel("0"),
            true,
            "rediss+sentinel://[::1]:9,a:9/0",
        ),
    ] {
        let expected = FleetEndpoint {
            nodes: nodes(expected),
            topology,
            is_secure,
            database: 0,
        };
        let parsed = FleetEndpoint::parse_url(url);
        assert_eq!(parsed, Some(expected.clone()), "{url}");
        assert_eq!(expected.to_string(), shown);
        assert_eq!(FleetEndpoint::parse_url(shown), Some(expected));
    }
}

#[test]
fn invalid_urls_are_rejected_with_the_allowed_form() {
    let name = ", with the name under which the Sentinels monitor the primary: 1 to 64 letters, \
                digits, \"_\", \"-\" or \".\"";
    for (url, allowed) in [
        ("", SCHEMES.to_owned()),
        ("h", SCHEMES.into()),
        ("h:6379", SCHEMES.into()),
        ("http://h", SCHEMES.into()),
        ("redis:h", SCHEMES.into()),
        (
            "redis+://h",
            format!("{SCHEMES}; did you mean \"redis://\"?"),
        ),
        (
            "redis+clustr://a",
            format!("{SCHEMES}; did you mean \"redis+cluster://\"?"),
        ),
        (
            "rediss+sentinal://a",
            format!("{SCHEMES}; did you mean \"rediss+sentinel://\"?"),
        ),
        ("unix:/run/redis.sock", SCHEMES.into()),
        ("redis://", SERVER.into()),
        ("redis://:6379", SERVER.into()),
        ("redis://h:", SERVER.into()),
        ("redis://h:0", SERVER.into()),
        ("redis://h:65536", SERVER.into()),
        ("redis://h:+1", SERVER.into()),
        ("redis://h/x", SERVER.into()),
        ("redis://h/0/1", SERVER.into()),
        ("redis://h/65536", SERVER.into()),
        ("redis://h/-1", SERVER.into()),
        ("redis://h i", SERVER.into()),
        ("redis://::1", SERVER.into()),
        ("redis://[::1", SERVER.into()),
        ("redis://[h]", SERVER.into()),
        ("redis://h#0", SERVER.into()),
        (
            "redis://a,b",
            "a URL of one server; \"redis+cluster://\" has the nodes of a Redis Cluster, and \
             \"redis+sentinel://\" the Sentinels of a primary"
                .into(),
        ),
        ("redis+cluster://", CLUSTER.into()),
        ("redis+cluster://a,", CLUSTER.into()),
        ("redis+cluster://a,,b", CLUSTER.into()),
        ("redis+cluster://a:0", CLUSTER.into()),
        (
            "redis+cluster://a,b/0",
            format!("{CLUSTER}, without a database: a cluster has database 0 only"),
        ),
        (
            "redis+cluster://a:1,b,A:1",
            "a URL of different servers: \"A:1\" is there twice".into(),
        ),
        ("redis+sentinel://a", format!("{SENTINELS}{name}")),
        ("redis+sentinel://a,b/", format!("{SENTINELS}{name}")),
        ("redis+sentinel://a/main/0", format!("{SENTINELS}{name}")),
        ("redis+sentinel://a/ma in", format!("{SENTINELS}{name}")),
        ("redis+sentinel:///main", SENTINELS.into()),
        (
            "redis+sentinel://a,a:26379/main",
            "a URL of different servers: \"a:26379\" is there twice".into(),
        ),
    ] {
        let expected = format!("has an invalid value \"{url}\": it must be {allowed}");
        assert_eq!(parse(url), Err(expected));
    }
    let empty = FleetSettings::parse_fleet_directive(&[], "").unwrap_err();
    assert!(empty.to_string().ends_with(SCHEMES), "{empty}");
    let hosts: Vec<_> = (0..33).map(|number| format!("h{number}")).collect();
    let url = |count: usize| format!("redis+cluster://{}", hosts[..count].join(","));
    assert!(parse(&url(32)).is_ok());
    let error = parse(&url(33)).unwrap_err();
    assert!(
        error.ends_with("it must be a URL of at most 32 servers"),
        "{error}"
    );
    let name = |length| format!("redis+sentinel://h/{}", "n".repeat(length));
    assert!(parse(&name(64)).is_ok());
    assert!(parse(&name(65)).is_err());
}

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
fn contents_of_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_private(folder, "pw", b"pass word\r\n");
    write_private(folder, "new", &[0xff_u8; 32]);
    write_private(folder, "old", &[7_u8; 4096]);
    write_private(folder, "cert.pem", CERTIFICATE.as_bytes());
    write_private(folder, "cert.key", PRIVATE_KEY.as_bytes());
    // certificates are public
    fs::write(folder.join("ca.pem"), CERTIFICATE.repeat(2)).unwrap();
    fs::set_permissions(folder.join("ca.pem"), Permissions::from_mode(0o644)).unwrap();
    let settings = read(
        "rediss://h|password_file=pw|key_file=new,old|ca=ca.pem|cert=cert.pem|cert_key=cert.key",
        folder,
    )
    .unwrap();
    let expected = FleetSettings {
        password: Some(Secret::new("pass word")),
        key_files: vec![Secret::new([0xff_u8; 32]), Secret::new([7_u8; 4096])],
        ca: Some(CERTIFICATE.repeat(2)),
        client_cert: Some((CERTIFICATE.into(), Secret::new(PRIVATE_KEY))),
        ..FleetSettings::new(endpoint("h", 6379, true, 0))
    };
    assert_eq!(settings, expected);
    let shown = format!("{settings:?}");
    assert!(
        !shown.contains("pass word") && !shown.contains("PRIVATE"),
        "{shown}"
    );
    assert_eq!(settings.password.unwrap().as_text(), Some("pass word"));
    assert_eq!(settings.key_files[0].as_text(), None);
}

#[test]
fn files_that_other_users_can_read_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_private(folder, "cert.pem", CERTIFICATE.as_bytes());
    for (line, name, contents) in [
        ("redis://h|password_file=f", "password file", &b"secret"[..]),
        ("redis://h|key_file=f", "key file", &[7_u8; 32][..]),
        (
            "rediss://h|cert=cert.pem|cert_key=f",
            "certificate key file",
            PRIVATE_KEY.as_bytes(),
        ),
    ] {
        write_private(folder, "f", contents);
        for (mode, is_rejected) in [(0o644, true), (0o604, true), (0o640, false), (0o602, false)] {
            let path = folder.join("f");
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let shown = path.display();
            let expected = format!(
                "has a {name} that other users can read: \"{shown}\" (mode {mode:04o}); run chmod \
                 o-rwx on it"
            );
            let error = read(line, folder).map(|_| ());
            assert_eq!(error, if is_rejected { Err(expected) } else { Ok(()) });
        }
    }
}

#[test]
fn unusable_files_are_rejected_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("folder")).unwrap();
    write_private(folder, "empty", b"");
    write_private(folder, "lines", b"one\ntwo\n");
    write_private(folder, "short", &[7; 31]);
    write_private(folder, "long", &[b'x'; 4097]);
    write_private(folder, "binary", &[0xff; 40]);
    write_private(folder, "text", b"no PEM");
    write_private(folder, "cert.pem", CERTIFICATE.as_bytes());
    write_private(folder, "truncated.pem", &CERTIFICATE.as_bytes()[..40]);
    write_private(folder, "huge.pem", &vec![b' '; (4 << 20) + 1]);
    let line = "contain one line in UTF-8";
    let pem = "contain complete certificates in PEM";
    let private = "contain a private key in PEM without a passphrase";
    for (words, name, file, allowed) in [
        ("password_file=empty", "password file", "empty", line),
        ("password_file=lines", "password file", "lines", line),
        ("password_file=binary", "password file", "binary", line),
        (
            "password_file=long",
            "password file",
            "long",
            "be at most 1k long",
        ),
        (
            "password_file=folder",
            "password file",
            "folder",
            "be a regular file",
        ),
        (
            "key_file=empty",
            "key file",
            "empty",
            "have 32 to 4096 bytes",
        ),
        (
            "key_file=binary,short",
            "key file",
            "short",
            "have 32 to 4096 bytes",
        ),
        ("key_file=long", "key file", "long", "be at most 4k long"),
        ("ca=empty", "CA file", "empty", pem),
        ("ca=text", "CA file", "text", pem),
        ("ca=binary", "CA file", "binary", pem),
        ("ca=truncated.pem", "CA file", "truncated.pem", pem),
        ("ca=huge.pem", "CA file", "huge.pem", "be at most 4m long"),
        ("cert=text|cert_key=text", "certificate file", "text", pem),
        (
            "cert=cert.pem|cert_key=cert.pem",
            "certificate key file",
            "cert.pem",
            private,
        ),
    ] {
        let path = folder.join(file);
        let expected = format!(
            "has an invalid {name} \"{}\": it must {allowed}",
            path.display()
        );
        let error = read(&format!("rediss://h|{words}"), folder).map(|_| ());
        assert_eq!(error, Err(expected));
    }
    for (words, name) in [
        ("password_file=none", "password file"),
        ("key_file=binary,none", "key file"),
        ("ca=none", "CA file"),
        ("cert=none|cert_key=none", "certificate file"),
        ("cert=cert.pem|cert_key=none", "certificate key file"),
    ] {
        let expected = format!(
            "cannot read the {name} \"{}/none\" (2: No such file or directory); check the path \
             and its permissions",
            folder.display()
        );
        let error = read(&format!("rediss://h|{words}"), folder).map(|_| ());
        assert_eq!(error, Err(expected));
    }
}

#[test]
fn warnings_are_returned_for_connections_over_a_network_without_tls() {
    let secret = Some(Secret::new("pw"));
    let keys = vec![Secret::new([7_u8; 32])];
    for (url, password, keys, texts) in [
        ("redis://h", None, vec![], &["and without a key"][..]),
        ("redis://h", None, keys.clone(), &[]),
        (
            "redis://10.0.0.1/1",
            secret.clone(),
            vec![],
            &["its password to redis://10.0.0.1:6379/1", "without a key"],
        ),
        ("redis://h", secret.clone(), keys.clone(), &["its password"]),
        ("rediss://h", secret.clone(), vec![], &[]),
        ("redis://localhost", secret.clone(), vec![], &[]),
        ("redis://127.0.0.2", secret.clone(), vec![], &[]),
        ("redis://[::1]", secret.clone(), vec![], &[]),
        (
            "redis+cluster://localhost,127.0.0.2",
            secret.clone(),
            vec![],
            &[],
        ),
        ("rediss+sentinel://h/main", secret.clone(), vec![], &[]),
    ] {
        let settings = FleetSettings {
            password,
            key_files: keys,
            ..FleetSettings::new(FleetEndpoint::parse_url(url).unwrap())
        };
        let warnings = settings.transport_warnings();
        assert_eq!(warnings.len(), texts.len(), "{url}: {warnings:?}");
        for (warning, text) in warnings.iter().zip(texts) {
            assert!(warning.contains(text), "{warning}");
            assert!(warning.contains("use a \"rediss://\" URL"), "{warning}");
        }
    }
}

#[test]
fn warnings_name_the_scheme_with_tls() {
    for (url, scheme) in [
        (
            "redis+cluster://localhost,h",
            "use a \"rediss+cluster://\" URL",
        ),
        (
            "redis+sentinel://h/main",
            "use a \"rediss+sentinel://\" URL",
        ),
    ] {
        let settings = FleetSettings {
            sentinel_password: Some(Secret::new("pw")),
            ..FleetSettings::new(FleetEndpoint::parse_url(url).unwrap())
        };
        let warnings = settings.transport_warnings();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings.iter().all(|text| text.contains(scheme)),
            "{warnings:?}"
        );
    }
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
