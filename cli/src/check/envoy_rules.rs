//! Rules for Envoy configurations.

use std::rc::Rc;

use sszip_core::config::validated::ValidatedConfig;

use super::envoy_access::{check_administrative_routes, check_filter_order};
use super::envoy_document::Node;
use super::envoy_filters::{find_filters, nodes_where, FilterKind, HttpFilter, Route};
use super::findings::{Finding, Position};

/// Envoy's default of `per_connection_buffer_limit_bytes`.
const DEFAULT_BUFFER_LIMIT: u64 = 1 << 20;

const ALLOW_ORIGIN: &str = "access-control-allow-origin";

/// An Envoy configuration, as the rules read it.
pub struct EnvoyView<'n> {
    file: &'n Rc<str>,
    /// The filters of sszip.
    pub filters: Vec<HttpFilter<'n>>,
    /// Names of the static clusters; `None` if clusters are configured elsewhere too.
    clusters: Option<Vec<&'n str>>,
}

/// A rule, which returns its findings.
type Rule = fn(&EnvoyView<'_>) -> Vec<Finding>;

const RULES: [Rule; 8] = [
    check_filter_order,
    check_administrative_routes,
    check_cors_headers,
    check_namespaces,
    check_stores,
    check_heads,
    check_timeouts,
    check_buffer_limits,
];

/// Returns the findings of the documents of a file.
pub fn check_envoy_documents(file: &Rc<str>, documents: &[Node]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut has_filter = false;
    for document in documents {
        let view = EnvoyView {
            file,
            filters: find_filters(file, document, &mut findings),
            clusters: static_clusters(document),
        };
        findings.extend(RULES.iter().flat_map(|rule| rule(&view)));
        has_filter |= !view.filters.is_empty();
    }
    if !has_filter {
        findings.extend(missing_filter(file, documents));
    }
    findings
}

/// Rule `no-effect`: returns the warning about a file whose connection managers lack the filter.
/// Filters that Envoy fetches are unknown.
fn missing_filter(file: &Rc<str>, documents: &[Node]) -> Option<Finding> {
    let is_manager = |node: &Node| node.is_of_type("HttpConnectionManager");
    let managers: Vec<_> = documents
        .iter()
        .flat_map(|document| nodes_where(document, is_manager))
        .collect();
    let mut filters = managers
        .iter()
        .flat_map(|manager| manager.items("http_filters"));
    if filters.any(|filter| filter.get("config_discovery").is_some()) {
        return None;
    }
    let at = Position {
        file: Rc::clone(file),
        line: managers.first()?.line,
    };
    Some(Finding::warning(
        "no-effect",
        &at,
        "the \"http_filters\" of this file have no filter of sszip",
        "add the filter; proxy-wasm needs \"name: sszip\" in its configuration to be recognized",
    ))
}

fn static_clusters(document: &Node) -> Option<Vec<&str>> {
    let resources = document.get("static_resources")?;
    let clusters = resources.items("clusters").iter();
    let names = clusters.map(|cluster| cluster.text("name")).collect();
    let is_dynamic = document.get("dynamic_resources/cds_config").is_some();
    (!is_dynamic).then_some(names)
}

impl EnvoyView<'_> {
    /// Returns the position of a node.
    pub fn position(&self, node: &Node) -> Position {
        Position {
            file: Rc::clone(self.file),
            line: node.line,
        }
    }
}

impl<'n> HttpFilter<'n> {
    /// The routes to a cluster whose responses are cached.
    fn cached_routes<'v>(&'v self) -> impl Iterator<Item = &'v Route<'n>> + 'v {
        self.routes.iter().filter(|route| {
            let settings = route.settings.as_ref();
            let is_cached = settings.is_some_and(|it| it.core.is_cache_enabled());
            is_cached && route.node.get("route").is_some()
        })
    }
}

/// Returns the name of a route for messages.
pub fn route_name(route: &Node) -> String {
    let path = ["match/path", "match/prefix"].map(|at| route.text(at));
    match (route.text("name"), path) {
        ("", ["", ""]) => "a route without a name".into(),
        ("", [path, prefix]) => format!("the route of \"{path}{prefix}\""),
        (name, _) => format!("the route \"{name}\""),
    }
}

/// Rule `cors-twice`. The CORS filter replaces the node's header, and is no problem.
fn check_cors_headers(view: &EnvoyView<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for route in view.filters.iter().flat_map(|filter| &filter.routes) {
        let removes = route.levels.iter().any(|level| {
            let mut removed = level.items("response_headers_to_remove").iter();
            removed.any(|name| {
                let name = name.to_json();
                name.as_str().is_some_and(is_allow_origin)
            })
        });
        let headers = route.levels.iter();
        let headers = headers.flat_map(|level| level.items("response_headers_to_add"));
        for header in headers.filter(|it| is_allow_origin(it.text("header/key"))) {
            // a name, or its number
            let action = header.text("append_action");
            let appends = matches!(action, "" | "APPEND_IF_EXISTS_OR_ADD")
                && matches!(header.number("append_action"), None | Some(0));
            // the field that append_action has replaced
            let replaces = header.get("append").is_some() && !header.is_true("append");
            if appends && !replaces && !removes {
                findings.push(Finding::warning(
                    "cors-twice",
                    &view.position(header),
                    format!(
                        "\"{ALLOW_ORIGIN}\" is added to the node's: browsers reject two of them"
                    ),
                    "set append_action: OVERWRITE_IF_EXISTS_OR_ADD, or use the filter \
                     envoy.filters.http.cors",
                ));
            }
        }
    }
    findings
}

fn is_allow_origin(name: &str) -> bool {
    name.eq_ignore_ascii_case(ALLOW_ORIGIN)
}

/// Rule `namespace`.
fn check_namespaces(view: &EnvoyView<'_>) -> Vec<Finding> {
    let routes = view.filters.iter().flat_map(HttpFilter::cached_routes);
    let unnamed = routes.filter(|route| {
        let settings = route.settings.as_ref();
        let has_namespace = settings.is_some_and(|it| it.core.cache.namespace.is_some());
        !has_namespace && route.node.text("name").is_empty()
    });
    let findings = unnamed.map(|route| {
        let name = route_name(route.node);
        Finding::warning(
            "namespace",
            &view.position(route.node),
            format!("requests on {name} are not looked up (reason namespace)"),
            "set \"name\" of the route, or \"cache_namespace\"",
        )
    });
    findings.collect()
}

/// Rule `no-store`.
fn check_stores(view: &EnvoyView<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for filter in &view.filters {
        let caches = filter.settings.requests.core.is_cache_enabled();
        if !caches && filter.cached_routes().next().is_none() {
            continue;
        }
        let at = view.position(filter.filter);
        match (filter.kind, filter.settings.sandbox.owner_cluster()) {
            (FilterKind::Module, _) if filter.settings.validated.owner_socket().is_none() => {
                findings.push(Finding::warning(
                    "no-store",
                    &at,
                    "the cache has no store: a restart loses all entries",
                    "set \"cache_path\" or \"cache_owner\" in the filter_config",
                ));
            }
            (FilterKind::Wasm, None) => findings.push(Finding::error(
                "no-store",
                &at,
                "the cache has no store: Envoy rejects the filter",
                "set \"cache_owner\": \"cluster:NAME\", the cluster of sszip-cached",
            )),
            (FilterKind::Wasm, Some(cluster))
                if view
                    .clusters
                    .as_ref()
                    .is_some_and(|it| !it.contains(&cluster)) =>
            {
                findings.push(Finding::error(
                    "no-store",
                    &at,
                    format!(
                        "\"cache_owner\" names the cluster \"{cluster}\", which does not exist"
                    ),
                    "add a cluster of that name with the socket of sszip-cached",
                ));
            }
            _ => {}
        }
    }
    findings
}

/// Rules `head` and `no-store` of what the core checks across all routes of the module.
fn check_heads(view: &EnvoyView<'_>) -> Vec<Finding> {
    let modules = view.filters.iter();
    let modules: Vec<_> = modules.filter(|it| it.kind == FilterKind::Module).collect();
    let Some(first) = modules.first() else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    // the store is a setting of the process: any filter may have it
    let mut with_store = modules.iter().map(|filter| &filter.settings.validated);
    let with_store = with_store.find(|it| it.owner_socket().is_some());
    let mut validated = with_store.map_or_else(ValidatedConfig::default, ValidatedConfig::clone);
    let routes: Vec<_> = modules.iter().flat_map(|filter| &filter.routes).collect();
    for route in &routes {
        let Some(settings) = &route.settings else {
            continue;
        };
        let name = route_name(route.node);
        let declared = settings.describe_route_for_validation(&name);
        if let Err(text) = validated.validate_and_add_route(&settings.core, declared) {
            let at = view.position(route.node);
            findings.push(Finding::error("settings", &at, text, ""));
        }
    }
    for text in validated.cross_route_warnings() {
        let mut named = routes.iter();
        let route = named.find(|route| text.starts_with(&route_name(route.node)));
        let at = view.position(route.map_or(first.filter, |route| route.node));
        findings.push(Finding::warning("head", &at, text, ""));
    }
    if let Err(text) = validated.check_across_routes() {
        let at = view.position(first.filter);
        findings.push(Finding::error("no-store", &at, text, ""));
    }
    findings
}

/// Rule `route-timeout`.
fn check_timeouts(view: &EnvoyView<'_>) -> Vec<Finding> {
    let routes = view.filters.iter().flat_map(HttpFilter::cached_routes);
    let without = routes.filter(|route| route.node.get("route/timeout").is_none());
    let findings = without.map(|route| {
        let name = route_name(route.node);
        Finding::warning(
            "route-timeout",
            &view.position(route.node),
            format!(
                "{name} has Envoy's default timeout of 15 s: debug_ and trace_ calls take longer"
            ),
            "set \"timeout\" of the route, 120s for example",
        )
    });
    findings.collect()
}

/// Rule `buffer-limit`.
fn check_buffer_limits(view: &EnvoyView<'_>) -> Vec<Finding> {
    let filters = view.filters.iter().filter(|it| it.kind == FilterKind::Wasm);
    let short = filters.filter_map(|filter| {
        let limit = filter.listener.number("per_connection_buffer_limit_bytes");
        let (limit, own) = (
            limit.unwrap_or(DEFAULT_BUFFER_LIMIT),
            filter.settings.sandbox.buffer_limit(),
        );
        (limit < own).then(|| {
            Finding::warning(
                "buffer-limit",
                &view.position(filter.filter),
                format!(
                    "the filter's \"buffer_limit\" of {own} bytes is above the listener's \
                     per_connection_buffer_limit_bytes of {limit}: Envoy ends longer bodies with an \
                     error"
                ),
                "set both to the same value",
            )
        })
    });
    short.collect()
}
