//! The rules of `sszip check`: each with a configuration that it reports and one that it does not,
//! and the published configurations.

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

const MODULE: &str = r#"
static_resources:
  listeners:
  - address: { socket_address: { address: 0.0.0.0, port_value: 80 } }
    filter_chains:
    - filters:
      - typed_config:
          "@type": type.googleapis.com/envoy.v3.HttpConnectionManager
          route_config:
            virtual_hosts:
            - routes:
              - name: rpc
                match: { prefix: / }
                route: { cluster: node, timeout: 120s }
          http_filters:
          - name: sszip
            typed_config:
              "@type": type.googleapis.com/envoy.v3.DynamicModuleFilter
              dynamic_module_config: { name: sszip_envoy }
              filter_config:
                value: { cache: true, cache_path: /s }
          - name: envoy.filters.http.router
  clusters:
  - name: node
"#;

const WASM: &str = r#"
static_resources:
  listeners:
  - address: { pipe: { path: /s } }
    per_connection_buffer_limit_bytes: 16777216
    filter_chains:
    - filters:
      - typed_config:
          "@type": type.googleapis.com/envoy.v3.HttpConnectionManager
          route_config:
            virtual_hosts:
            - routes:
              - name: rpc
                route: { cluster: node, timeout: 120s }
          http_filters:
          - name: sszip
            typed_config:
              "@type": type.googleapis.com/envoy.v3.Wasm
              config:
                name: sszip
                configuration:
                  value: '{"cache": true, "cache_owner": "cluster:owner", "buffer_limit": "16m"}'
          - name: envoy.filters.http.router
  clusters:
  - name: node
  - name: owner
"#;

/// Runs `sszip check --json`. Returns the exit code and the findings.
fn check_file(path: &Path) -> (i32, Vec<Value>) {
    let output = run_sszip(&["check", "--json", path.to_str().unwrap()], b"");
    let errors = String::from_utf8_lossy(&output.stderr);
    let findings = serde_json::from_slice(&output.stdout);
    let findings: Vec<Value> = findings.unwrap_or_else(|_| panic!("{errors}"));
    (output.status.code().unwrap(), findings)
}

fn check_text(name: &str, text: &str) -> (i32, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    check_file(&path)
}

fn rules(findings: &[Value]) -> Vec<&str> {
    let rules = findings.iter();
    rules.map(|it| it["rule"].as_str().unwrap()).collect()
}

/// Checks that a valid configuration has no findings, and that each change has exactly the finding
/// of its rule.
fn assert_findings(name: &str, valid: &str, changes: &[(&str, &str, &str, &str)]) {
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
            ("no-keepalive", "warning", "keepalive 8;", ""),
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
    ] {
        let (code, findings) = check_text("nginx.conf", &NGINX.replacen(old, new, 1));
        assert_eq!((code, &findings[..]), (0, &[][..]), "{new}");
    }
}

#[test]
fn namespace_is_compared_through_maps() {
    let map = "map $http_x $chain { default a; }\n server {";
    let pass = "proxy_pass http://node$chain;";
    let text = NGINX.replacen("server {", map, 1);
    for (namespace, expected) in [
        ("sszip_cache_namespace a;", &["namespace"][..]),
        ("sszip_cache_namespace $chain;", &[]),
        ("sszip_cache_namespace a-$http_x;", &[]),
    ] {
        let own = format!("{namespace} {pass}");
        let text = text.replacen("proxy_pass http://node;", &own, 1);
        let (_, findings) = check_text("nginx.conf", &text);
        assert_eq!(rules(&findings), expected, "{findings:?}");
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
fn envoy_rules_report_the_changes_that_break_them() {
    let route = |value: &str| {
        format!(
            "- match: {{ path: /p }}\n                direct_response: {{ status: 404 }}\n                \
             typed_per_filter_config: {{ sszip: {{ filter_config: {{ value: {{ {value}: true }} }} }} }}\n              \
             - name: rpc"
        )
    };
    let (purge, status) = (route("cache_purge"), route("status"));
    let router = "- name: envoy.filters.http.router";
    let behind = |name: &str| format!("- name: envoy.filters.http.{name}\n          {router}");
    let (rbac, cors) = (behind("rbac"), behind("cors"));
    let header = "timeout: 120s }\n                response_headers_to_add: \
                  [{ header: { key: Access-Control-Allow-Origin, value: '*' } }]";
    assert_findings(
        "envoy.yaml",
        MODULE,
        &[
            (
                "settings",
                "error",
                "cache: true",
                "cache: true, cach: true",
            ),
            (
                "settings",
                "error",
                "cache: true",
                "cache: true, memory: [x]",
            ),
            (
                "settings",
                "error",
                "cache: true",
                "cache: true, buffer_limit: 1m",
            ),
            ("filter-order", "error", router, &rbac),
            ("filter-order", "warning", router, &cors),
            ("open-purge", "error", "- name: rpc", &purge),
            ("open-status", "warning", "- name: rpc", &status),
            ("cors-twice", "warning", "timeout: 120s }", header),
            (
                "namespace",
                "warning",
                "- name: rpc\n                match",
                "- match",
            ),
            ("no-store", "warning", ", cache_path: /s", ""),
            (
                "head",
                "warning",
                "cache: true",
                "cache: true, cache_valid: tip 1m",
            ),
            ("route-timeout", "warning", ", timeout: 120s", ""),
        ],
    );
    let local = MODULE.replace("0.0.0.0", "127.0.0.1");
    let (code, findings) = check_text("envoy.yaml", &local.replacen("- name: rpc", &purge, 1));
    assert_eq!((code, &findings[..]), (0, &[][..]));
    let removed = format!(
        "{header}\n                response_headers_to_remove: \
                           [access-control-allow-origin]"
    );
    let text = MODULE.replacen("timeout: 120s }", &removed, 1);
    assert_eq!(check_text("envoy.yaml", &text), (0, vec![]));
}

#[test]
fn rules_of_the_sandbox_report_the_changes_that_break_them() {
    assert_findings(
        "envoy.yaml",
        WASM,
        &[
            (
                "settings",
                "error",
                "\"cache\": true",
                "\"cache\": true, \"status\": true",
            ),
            (
                "settings",
                "error",
                "\"cache\": true",
                "\"cache\": true, \"cache_path\": \"/s\"",
            ),
            (
                "no-store",
                "error",
                "\"cache_owner\": \"cluster:owner\", ",
                "",
            ),
            ("no-store", "error", "  - name: owner\n", ""),
            (
                "buffer-limit",
                "warning",
                "per_connection_buffer_limit_bytes: 16777216",
                "name: a",
            ),
        ],
    );
    let (_, findings) = check_text("envoy.yaml", &WASM.replacen("'{", "'", 1));
    assert_eq!(rules(&findings)[0], "settings");
    assert!(findings[0]["text"].as_str().unwrap().contains("not JSON"));
}

fn published(folder: &str) -> PathBuf {
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

#[test]
fn published_envoy_configurations_have_no_findings_but_missing_stores() {
    let mut names = Vec::new();
    for entry in fs::read_dir(published("envoy")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "yaml") {
            let (code, findings) = check_file(&path);
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let expected: &[&str] = match &*name {
                "auth.yaml" | "rpc.yaml" => &["no-store"],
                _ => &[],
            };
            assert_eq!((code, rules(&findings)), (0, expected.to_vec()), "{name}");
            names.push(name);
        }
    }
    assert!(names.len() >= 5, "{names:?}");
}
