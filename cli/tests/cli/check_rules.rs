//! The rules of `sszip check` for nginx: each with a configuration that it reports and one that it
//! does not, and the published configurations.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::run_sszip;

pub const NGINX: &str = "http {
    sszip on;
    sszip_cache_path /s;
    upstream node { server 127.0.0.1:8545; keepalive 8; }
    server {
        listen 80;
        location / {
            sszip_cache on;
            client_body_buffer_size 128k;
            proxy_http_version 1.1;
            proxy_set_header Connection '';
            proxy_pass http://node;
        }
    }
}
";

/// Runs `sszip check --json`. Returns the exit code and the findings.
pub fn check_file(path: &Path) -> (i32, Vec<Value>) {
    let output = run_sszip(&["check", "--json", path.to_str().unwrap()], b"");
    let errors = String::from_utf8_lossy(&output.stderr);
    let findings = serde_json::from_slice(&output.stdout);
    let findings: Vec<Value> = findings.unwrap_or_else(|_| panic!("{errors}"));
    (output.status.code().unwrap(), findings)
}

pub fn check_text(name: &str, text: &str) -> (i32, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    check_file(&path)
}

pub fn rules(findings: &[Value]) -> Vec<&str> {
    let rules = findings.iter();
    rules.map(|it| it["rule"].as_str().unwrap()).collect()
}

/// Checks that a valid configuration has no findings, and that each change has exactly the finding
/// of its rule.
pub fn assert_findings(name: &str, valid: &str, changes: &[(&str, &str, &str, &str)]) {
    let (code, findings) = check_text(name, valid);
    assert_eq!((code, &findings[..]), (0, &[][..]));
    for (rule, level, old, new) in changes {
        let text = valid.replacen(old, new, 1);
        assert_ne!(text, valid, "{old}");
        let (code, findings) = check_text(name, &text);
        assert_eq!(rules(&findings), [*rule], "{new}: {findings:?}");
        assert_eq!(findings[0]["level"], *level, "{new}");
        assert_eq!(code, if *level == "error" { 3 } else { 0 }, "{new}");
        let line = findings[0]["line"].as_u64().unwrap() as usize;
        assert!(line > 0 && line <= text.lines().count(), "{findings:?}");
    }
}

#[test]
fn nginx_rules_report_the_changes_that_break_them() {
    let purge = "listen 80; location = /p { sszip_cache_purge on; }";
    let status = "listen 80; location = /s { sszip_status on; }";
    assert_findings(
        "nginx.conf",
        NGINX,
        &[
            ("settings", "error", "sszip on;", "sszip on; sszip_cach on;"),
            (
                "settings",
                "error",
                "sszip on;",
                "sszip on; sszip_memory x;",
            ),
            (
                "settings",
                "error",
                "sszip on;",
                "sszip on; sszip_cache_owner unix:/o;",
            ),
            (
                "settings",
                "warning",
                "sszip on;",
                "sszip on; sszip_method allow eth_cal;",
            ),
            ("no-effect", "warning", "sszip on;", "sszip off;"),
            ("no-store", "warning", "sszip_cache_path /s;", ""),
            (
                "body-buffer",
                "warning",
                "client_body_buffer_size 128k;",
                "",
            ),
            ("body-buffer", "warning", "_size 128k;", "_size 16k;"),
            ("http-1.0", "warning", "proxy_http_version 1.1;", ""),
            (
                "head",
                "warning",
                "sszip_cache on;",
                "sszip_cache on; sszip_cache_valid tip 1m;",
            ),
            ("open-purge", "error", "listen 80;", purge),
            ("open-status", "warning", "listen 80;", status),
            (
                "cors-twice",
                "warning",
                "listen 80;",
                "add_header access-control-allow-origin *;",
            ),
            (
                "via",
                "warning",
                "listen 80;",
                "set_real_ip_from 192.0.2.0/24;",
            ),
            (
                "cors-twice",
                "warning",
                "sszip_cache on;",
                "if ($request_method = POST) { add_header Access-Control-Allow-Origin *; } \
                 sszip_cache on;",
            ),
            (
                "http-1.0",
                "warning",
                "proxy_http_version 1.1;",
                "proxy_http_version 1.0;",
            ),
            (
                "no-keepalive",
                "warning",
                "Connection '';",
                "Connection close;",
            ),
            ("no-keepalive", "warning", "keepalive 8;", ""),
            ("no-keepalive", "warning", "keepalive 8;", "keepalive 0;"),
            (
                "no-keepalive",
                "warning",
                "proxy_set_header Connection '';",
                "",
            ),
            ("no-keepalive", "warning", "//node;", "//127.0.0.1:8545;"),
            (
                "namespace",
                "warning",
                "proxy_pass http://node;",
                "sszip_cache_namespace a; proxy_pass http://node$http_x;",
            ),
            (
                "namespace",
                "warning",
                "proxy_pass http://node;",
                "sszip_cache_namespace a; set $n eth; if ($arg_c = gno) { set $n gno; } \
                 proxy_pass http://$n;",
            ),
            (
                "namespace",
                "warning",
                "proxy_pass http://node;",
                "sszip_cache_namespace a; if ($http_x) { proxy_pass http://$host; } \
                 proxy_pass http://node;",
            ),
            (
                "namespace",
                "warning",
                "proxy_pass http://node;",
                "sszip_cache_namespace a; if ($arg_c = gno) { proxy_pass http://unix:/gno; } \
                 proxy_pass http://node;",
            ),
            (
                "namespace",
                "warning",
                "proxy_pass http://node;",
                "sszip_cache_namespace a; if ($host ~ ^(?<chain>[a-z]+)[.]) { set $x 1; } \
                 proxy_pass http://$chain;",
            ),
            (
                "namespace",
                "warning",
                "listen 80;",
                "listen 80; server_name ~^(?<chain>[a-z]+)[.]; location /c { \
                 sszip_cache on; sszip_cache_namespace a; client_body_buffer_size 128k; \
                 proxy_http_version 1.1; proxy_pass http://$chain:8545; }",
            ),
            (
                "open-purge",
                "error",
                "listen 80;",
                "deny all; location = /p { sszip_cache_purge on; allow 192.0.2.1; }",
            ),
            (
                "other-cache",
                "warning",
                "sszip_cache on;",
                "sszip_cache on; proxy_cache z;",
            ),
            (
                "buffering",
                "warning",
                "sszip_cache on;",
                "sszip_cache on; proxy_buffering off;",
            ),
            ("include", "warning", "listen 80;", "include /no/such/file;"),
        ],
    );
}

#[test]
fn nginx_rules_accept_the_remedies() {
    for (old, new) in [
        (
            "listen 80;",
            "location = /p { sszip_cache_purge on; allow 127.0.0.1; deny all; }",
        ),
        (
            "listen 80;",
            "listen 127.0.0.1:80; location = /p { sszip_cache_purge on; }",
        ),
        (
            "listen 80;",
            "location = /s { sszip_status on; auth_basic status; }",
        ),
        (
            "listen 80;",
            "location = /s { sszip_status on; limit_except POST { deny all; } }",
        ),
        ("sszip_cache_path /s;", "sszip_cache_owner unix:/o;"),
        (
            "sszip_cache on;",
            "sszip_cache on; sszip_cache_namespace a; sszip_cache_head http://127.0.0.1:8545; \
             sszip_cache_valid tip 12s;",
        ),
        (
            "listen 80;",
            "add_header Access-Control-Allow-Origin *; \
             proxy_hide_header Access-Control-Allow-Origin;",
        ),
        (
            "listen 80;",
            "set_real_ip_from 192.0.2.0/24; gzip_proxied any;",
        ),
        (
            "proxy_pass http://node;",
            "sszip_cache_namespace $http_x; proxy_pass http://node$http_x;",
        ),
        ("proxy_pass http://node;", "proxy_pass http://node$http_x;"),
        (
            "sszip_cache on;",
            "sszip_cache on; proxy_cache z; sszip_no_cache $stale;",
        ),
        (
            "sszip_cache on;",
            "location /events { proxy_buffering off; } sszip_cache on;",
        ),
        ("listen 80;", "include /no/such/*.conf;"),
        ("listen 80;", "listen 80; # }"),
        (
            "listen 80;",
            "if ($request_method = OPTIONS) { return 204; } location /o { \
             if ($request_method = OPTIONS) { add_header Access-Control-Allow-Origin *; return 204; } \
             proxy_http_version 1.1; proxy_set_header Connection ''; proxy_pass http://node; }",
        ),
        (
            "listen 80;",
            "location /l { add_header Access-Control-Allow-Origin *; content_by_lua_block { } }",
        ),
        ("Connection '';", "Connection upgrade;"),
        (
            "proxy_pass http://node;",
            "sszip_cache_namespace a; proxy_pass http://node/$arg_key;",
        ),
        (
            "proxy_pass http://node;",
            "sszip_cache_namespace a; set $n node; proxy_pass http://$n$request_uri;",
        ),
        (
            "proxy_pass http://node;",
            "sszip_cache_namespace a; if ($http_upgrade) { proxy_pass http://unix:/ws; } \
             if ($arg_x) { proxy_pass http://node; } proxy_pass http://node;",
        ),
    ] {
        let (code, findings) = check_text("nginx.conf", &NGINX.replacen(old, new, 1));
        assert_eq!((code, &findings[..]), (0, &[][..]), "{new}");
    }
}

#[test]
fn configuration_without_directives_of_sszip_is_reported() {
    let location = "server { location / { proxy_pass http://node; } }";
    for (text, expected) in [
        (format!("http {{ {location} }}"), &["no-effect"][..]),
        (format!("http {{ sszip off; {location} }}"), &[]),
        (
            format!("http {{ include /no/such/file; {location} }}"),
            &["include"],
        ),
        (
            "http { map $a $b { sszip on; } server { location / {} } }".into(),
            &["no-effect"],
        ),
        ("stream { server { listen 1; } }".into(), &[]),
    ] {
        let (code, findings) = check_text("nginx.conf", &text);
        assert_eq!(
            (code, rules(&findings)),
            (0, expected.to_vec()),
            "{text}: {findings:?}"
        );
    }
}

#[test]
fn file_of_a_site_is_checked_without_http() {
    let site = "server { location / { sszip_cache on; sszip_cache_head http://n; \
                sszip_cache_namespace a; proxy_pass http://node; } }";
    let (code, findings) = check_text("site.conf", site);
    assert_eq!(code, 0);
    assert_eq!(
        rules(&findings),
        ["body-buffer", "http-1.0", "no-keepalive"]
    );
}

#[test]
fn connection_header_of_a_map_closes_connections_if_one_of_its_values_does() {
    let header = "proxy_set_header Connection $upgrade;";
    let text = NGINX.replacen("proxy_set_header Connection '';", header, 1);
    for (value, expected) in [("close", &["no-keepalive"][..]), ("''", &[])] {
        let map =
            format!("map $http_upgrade $upgrade {{ default upgrade; '' {value}; }}\nserver {{");
        let (_, findings) = check_text("nginx.conf", &text.replacen("server {", &map, 1));
        assert_eq!(rules(&findings), expected, "{findings:?}");
    }
}

pub fn published(folder: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    root.join(folder)
}

#[test]
fn published_nginx_configurations_have_no_findings() {
    let (code, findings) = check_file(&published("nginx/sszip.conf"));
    assert_eq!((code, &findings[..]), (0, &[][..]));
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| {
        fs::create_dir_all(folder.path().join(to)).unwrap();
        for entry in fs::read_dir(published(from)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), folder.path().join(to).join(entry.file_name())).unwrap();
            }
        }
    };
    copy("nginx/snippets", "snippets");
    copy("nginx/conf.d", "conf.d");
    copy("nginx/sites", "conf.d");
    copy("openresty", "conf.d");
    let main = folder.path().join("nginx.conf");
    fs::write(&main, "events {}\nhttp { include conf.d/*.conf; }\n").unwrap();
    let (code, findings) = check_file(&main);
    assert_eq!((code, &findings[..]), (0, &[][..]));
}
