//! The rules of `sszip check` for Envoy: each with a configuration that it reports and one that it
//! does not, and the published configurations.

use std::fs;

use crate::check_rules::{assert_findings, check_file, check_text, published, rules};

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

/// A route with one setting of sszip, before the route "rpc".
fn route_with_setting(setting: &str) -> String {
    format!(
        "- match: {{ path: /p }}\n                direct_response: {{ status: 404 }}\n                \
         typed_per_filter_config: {{ sszip: {{ filter_config: {{ value: {{ {setting}: true }} }} }} }}\n              \
         - name: rpc"
    )
}

#[test]
fn envoy_rules_report_the_changes_that_break_them() {
    let purge = route_with_setting("cache_purge");
    let status = route_with_setting("status");
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
    for (action, expected) in [
        ("0", &["cors-twice"][..]),
        ("APPEND_IF_EXISTS_OR_ADD", &["cors-twice"]),
        ("2", &[]),
        ("OVERWRITE_IF_EXISTS_OR_ADD", &[]),
    ] {
        let with_action = header.replace("'*' }", &format!("'*' }}, append_action: {action}"));
        let text = MODULE.replacen("timeout: 120s }", &with_action, 1);
        let (_, findings) = check_text("envoy.yaml", &text);
        assert_eq!(rules(&findings), expected, "{action}: {findings:?}");
    }
    let removed = format!(
        "{header}\n                response_headers_to_remove: \
                           [access-control-allow-origin]"
    );
    let text = MODULE.replacen("timeout: 120s }", &removed, 1);
    assert_eq!(check_text("envoy.yaml", &text), (0, vec![]));
}

#[test]
fn purges_are_open_unless_the_listener_or_a_filter_in_effect_restricts_them() {
    let purges = MODULE.replacen("- name: rpc", &route_with_setting("cache_purge"), 1);
    let before =
        |name: &str| format!("- name: envoy.filters.http.{name}\n          - name: sszip\n");
    let disabled = "typed_per_filter_config: { envoy.filters.http.rbac: { disabled: true }, sszip:";
    for (old, new, expected) in [
        (
            "- name: sszip\n",
            &*before("local_ratelimit"),
            &["open-purge"][..],
        ),
        ("- name: sszip\n", &*before("rbac"), &[]),
        ("0.0.0.0", "127.0.0.1", &[]),
        (
            "filter_chains:",
            "name: { require_client_certificate: true }\n    filter_chains:",
            &[],
        ),
    ] {
        let (_, findings) = check_text("envoy.yaml", &purges.replacen(old, new, 1));
        assert_eq!(rules(&findings), expected, "{new}");
    }
    let denied = purges.replacen("- name: sszip\n", &before("rbac"), 1);
    let allowed = denied.replacen("typed_per_filter_config: { sszip:", disabled, 1);
    assert_ne!(allowed, denied);
    let (_, findings) = check_text("envoy.yaml", &allowed);
    assert_eq!(rules(&findings), ["open-purge"]);
}

#[test]
fn file_without_the_filter_is_reported() {
    let text = MODULE.replacen("name: sszip_envoy", "name: other", 1);
    let (_, findings) = check_text("envoy.yaml", &text);
    assert_eq!(rules(&findings), ["no-effect"]);
    let both = format!("{MODULE}---\n{text}");
    let (_, findings) = check_text("envoy.yaml", &both);
    assert!(findings.is_empty(), "{findings:?}");
    // filters of a cluster, and filters that Envoy fetches
    let clusters = "resources: [{ name: node, options: { http_filters: [{ name: a }] } }]\n";
    let router = "- name: envoy.filters.http.router";
    let fetched = text.replacen(router, "- { name: a, config_discovery: {} }", 1);
    assert_ne!(fetched, text);
    for text in [clusters, fetched.as_str()] {
        let (_, findings) = check_text("other.yaml", text);
        assert!(findings.is_empty(), "{findings:?}");
    }
}

#[test]
fn fields_in_camel_case_and_default_filter_chains_are_checked() {
    for changes in [
        &[
            ("filter_chains:", "filterChains:"),
            ("http_filters:", "httpFilters:"),
        ][..],
        &[
            ("typed_config:", "typedConfig:"),
            ("dynamic_module_config:", "dynamicModuleConfig:"),
            ("filter_config:", "filterConfig:"),
            ("route_config:", "routeConfig:"),
            ("virtual_hosts:", "virtualHosts:"),
        ],
        &[(
            "filter_chains:\n    - filters:",
            "default_filter_chain:\n      filters:",
        )],
    ] {
        let text = changes.iter().fold(MODULE.to_owned(), |text, (old, new)| {
            assert!(text.contains(old), "{old}");
            text.replace(old, new)
        });
        let (_, findings) = check_text("envoy.yaml", &text.replacen("timeout: 120s", "", 1));
        assert_eq!(rules(&findings), ["route-timeout"], "{changes:?}");
    }
}

#[test]
fn api_listener_is_checked_and_has_clients_of_its_process_only() {
    let chain = "filter_chains:\n    - filters:\n      - typed_config:\n";
    let api = "api_listener:\n      api_listener:\n";
    assert!(MODULE.contains(chain));
    let text = MODULE.replacen(chain, api, 1);
    let purge = route_with_setting("cache_purge");
    for (old, new, expected) in [
        ("name: sszip_envoy", "name: other", &["no-effect"][..]),
        (", timeout: 120s", "", &["route-timeout"]),
        ("- name: rpc", &*purge, &[]),
    ] {
        let (_, findings) = check_text("envoy.yaml", &text.replacen(old, new, 1));
        assert_eq!(rules(&findings), expected, "{new}: {findings:?}");
    }
}

#[test]
fn listener_with_an_additional_public_address_is_not_restricted() {
    let purge = route_with_setting("cache_purge");
    let text = MODULE.replacen("- name: rpc", &purge, 1);
    let local = text.replacen("0.0.0.0", "127.0.0.1", 1);
    assert_ne!(local, text);
    let other = "additional_addresses: [{ address: { socket_address: { address: '::' } } }]\n    \
                 filter_chains:";
    for (text, expected) in [
        (local.clone(), &[][..]),
        (local.replacen("filter_chains:", other, 1), &["open-purge"]),
    ] {
        let (_, findings) = check_text("envoy.yaml", &text);
        assert_eq!(rules(&findings), expected);
    }
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
