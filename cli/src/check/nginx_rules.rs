//! Rules for nginx configurations.

use sszip_core::config::setting_error::replace_setting_names_by_directives;
use sszip_core::config::validated::{HostRouteDeclaration, ValidatedConfig};

use super::findings::Finding;
use super::nginx_include::NginxConfig;
use super::nginx_routes::{routes, validate_settings, Route};
use super::nginx_scope::{parse_size, HttpScope, Location};
use super::nginx_syntax::Directive;
use super::nginx_upstreams::{check_keepalive, check_namespaces_of_upstreams};

/// Default of `client_body_buffer_size`: two memory pages.
const DEFAULT_BODY_BUFFER: u64 = 8 << 10;

const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";

/// Directives that remove a header of the node.
const HIDE_DIRECTIVES: [&str; 5] = [
    "proxy_hide_header",
    "grpc_hide_header",
    "fastcgi_hide_header",
    "uwsgi_hide_header",
    "scgi_hide_header",
];

/// An nginx configuration, as the rules read it.
pub struct NginxView<'c> {
    /// The context `http`.
    pub scope: HttpScope<'c>,
    routes: Vec<Route<'c>>,
    validated: ValidatedConfig,
    /// Whether all included files have been read.
    is_complete: bool,
}

/// A rule, which returns its findings.
type Rule = fn(&NginxView<'_>) -> Vec<Finding>;

const RULES: [Rule; 10] = [
    check_presence,
    check_routes_by_core,
    check_store,
    check_administrative_locations,
    check_cors_headers,
    check_compression_behind_proxies,
    check_keepalive,
    check_namespaces_of_upstreams,
    check_other_caches,
    check_buffering,
];

/// Returns the findings of a configuration.
pub fn check_nginx_config(config: NginxConfig) -> Vec<Finding> {
    let is_complete = config.findings.is_empty();
    let mut findings = config.findings;
    let validated = validate_settings(&config.directives, &mut findings);
    let scope = HttpScope::from_directives(&config.directives);
    let view = NginxView {
        routes: routes(&scope),
        scope,
        validated,
        is_complete,
    };
    findings.extend(RULES.iter().flat_map(|rule| rule(&view)));
    findings
}

impl<'c> NginxView<'c> {
    /// Returns the routes whose responses are cached.
    pub fn cached_routes<'v>(&'v self) -> impl Iterator<Item = &'v Route<'c>> + 'v {
        self.routes.iter().filter(|route| route.is_cached())
    }
}

/// Rule `no-effect`: returns the warning about a configuration without directives of sszip.
fn check_presence(view: &NginxView<'_>) -> Vec<Finding> {
    let is_present = view.scope.directives.iter().any(|http| has_setting(http));
    let is_known = view.scope.is_whole && view.is_complete;
    let first = view.routes.first();
    let first = first.filter(|_| is_known && !is_present);
    let finding = first.map(|route| {
        Finding::warning(
            "no-effect",
            route.location.at,
            "the configuration has no directive of sszip",
            "set \"sszip on\" in http, a server or a location",
        )
    });
    finding.into_iter().collect()
}

/// Whether a directive of sszip is among these directives or in their blocks.
fn has_setting(directives: &[Directive]) -> bool {
    let mut settings = directives.iter().filter(|it| !it.has_data());
    settings.any(|it| it.name.starts_with("sszip") || has_setting(it.inner()))
}

/// Rules `settings`, `no-effect`, `body-buffer`, `http-1.0` and `head`: what the core reports about
/// locations, in the words of `nginx -t`.
fn check_routes_by_core(view: &NginxView<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut validated = view.validated.clone();
    for route in &view.routes {
        let at = route.location.at;
        let declared = route.declaration();
        if let Err(text) = validated.validate_and_add_route(&route.config, declared) {
            let text = replace_setting_names_by_directives(&text);
            findings.push(Finding::error("settings", at, text, ""));
        }
        let properties = match route.is_cached() {
            true => vec![
                (
                    "body-buffer",
                    HostRouteDeclaration {
                        body_buffer: Some(body_buffer(route)),
                        ..declared
                    },
                ),
                (
                    "http-1.0",
                    HostRouteDeclaration {
                        is_http_1_0: uses_http_1_0(route),
                        ..declared
                    },
                ),
            ],
            false => vec![("no-effect", declared)],
        };
        for (rule, declared) in properties {
            let mut alone = ValidatedConfig::default();
            // errors have been reported above
            let warning = alone.validate_and_add_route(&route.config, declared);
            if let Some(text) = warning.ok().flatten() {
                let text = replace_setting_names_by_directives(&text);
                findings.push(Finding::warning(rule, at, text, ""));
            }
        }
    }
    for text in validated.cross_route_warnings() {
        // the name of a location may begin with another location's name
        let named = view.routes.iter();
        let named = named.filter(|route| text.starts_with(&route.location.name));
        if let Some(route) = named.max_by_key(|route| route.location.name.len()) {
            let text = replace_setting_names_by_directives(&text);
            findings.push(Finding::warning("head", route.location.at, text, ""));
        }
    }
    findings.extend(missing_store(view, &validated));
    findings
}

/// Returns the error of a configuration that needs a store and has none.
fn missing_store(view: &NginxView<'_>, validated: &ValidatedConfig) -> Option<Finding> {
    let text = validated.check_across_routes().err()?;
    let names = ["sszip_cache_purge", "sszip_cache_head"];
    let mut using = view.routes.iter().filter_map(|route| {
        let mut effective = names
            .iter()
            .filter_map(|name| route.location.effective(name));
        effective.next()
    });
    let at = &using.next()?.at;
    view.scope.is_whole.then(|| {
        Finding::error(
            "no-store",
            at,
            replace_setting_names_by_directives(&text),
            "",
        )
    })
}

fn body_buffer(route: &Route<'_>) -> u64 {
    let size = route.location.effective_word("client_body_buffer_size");
    parse_size(size).unwrap_or(DEFAULT_BODY_BUFFER)
}

fn uses_http_1_0(route: &Route<'_>) -> bool {
    let version = route.location.effective_word("proxy_http_version");
    !route.location.proxy_passes().is_empty() && matches!(version, "" | "1.0")
}

/// Rule `no-store`.
fn check_store(view: &NginxView<'_>) -> Vec<Finding> {
    let has_store = !view.scope.is_whole || view.validated.owner_socket().is_some();
    let first = view.cached_routes().next().filter(|_| !has_store);
    let finding = first.map(|route| {
        Finding::warning(
            "no-store",
            route.location.at,
            "the cache has no store: each worker has entries of its own, which a restart loses",
            "set \"sszip_cache_path\" or \"sszip_cache_owner\" in http",
        )
    });
    finding.into_iter().collect()
}

/// Rules `open-purge` and `open-status`.
fn check_administrative_locations(view: &NginxView<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for route in &view.routes {
        let (location, name) = (&route.location, &route.location.name);
        let remedy = "add \"allow\" and \"deny all\", or let the server listen on 127.0.0.1 only";
        if route.purges() && !location.is_restricted("POST") {
            let text = format!("all clients can purge the cache at {name}");
            findings.push(Finding::error("open-purge", location.at, text, remedy));
        }
        if route.reports_status() && !location.is_restricted("GET") {
            let text = format!("all clients can read the status page at {name}");
            findings.push(Finding::warning("open-status", location.at, text, remedy));
        }
    }
    findings
}

/// Whether one of the directives has this name, and this header as its first argument.
fn names_header<'d>(
    directives: impl IntoIterator<Item = &'d Directive>,
    name: &str,
    header: &str,
) -> bool {
    let mut of_name = directives.into_iter().filter(|it| it.name == name);
    of_name.any(|it| it.first_word().eq_ignore_ascii_case(header))
}

/// Whether the location, or an `if` in it that does not respond itself, adds a header to responses
/// of the node that keep theirs.
fn adds_to_header_of_node(location: &Location<'_>, header: &str) -> bool {
    let is_added = |directives: &[Directive]| names_header(directives, "add_header", header);
    let mut conditions = location.conditions().map(Directive::inner);
    let is_added_by_condition =
        conditions.any(|inner| is_added(inner) && !inner.iter().any(|it| it.name == "return"));
    let all = location.effective_all("add_header");
    let is_hidden = HIDE_DIRECTIVES
        .iter()
        .any(|name| names_header(location.effective_all(name), name, header));
    location.passes_requests()
        && !is_hidden
        && (is_added_by_condition || names_header(all, "add_header", header))
}

/// Rule `cors-twice`. Headers of scripts are unknown.
fn check_cors_headers(view: &NginxView<'_>) -> Vec<Finding> {
    let routes = view.routes.iter().filter(|route| route.is_enabled());
    let twice = routes.filter(|route| adds_to_header_of_node(&route.location, ALLOW_ORIGIN));
    let findings = twice.map(|route| {
        Finding::warning(
            "cors-twice",
            route.location.at,
            format!(
                "\"add_header {ALLOW_ORIGIN}\" adds to the node's: browsers reject two of them"
            ),
            "add \"proxy_hide_header Access-Control-Allow-Origin\"",
        )
    });
    findings.collect()
}

/// Rule `via`.
fn check_compression_behind_proxies(view: &NginxView<'_>) -> Vec<Finding> {
    let routes = view.routes.iter().filter(|route| route.is_enabled());
    let behind = routes.filter(|route| {
        let location = &route.location;
        location.effective("set_real_ip_from").is_some()
            && matches!(location.effective_word("gzip_proxied"), "" | "off")
    });
    let findings = behind.map(|route| {
        Finding::warning(
            "via",
            route.location.at,
            "requests come through a proxy (\"set_real_ip_from\"), and responses to requests with \
             a Via header are not compressed",
            "add \"gzip_proxied any\"",
        )
    });
    findings.collect()
}

/// Rule `other-cache`.
fn check_other_caches(view: &NginxView<'_>) -> Vec<Finding> {
    let beside = view.cached_routes().filter(|route| {
        let location = &route.location;
        !matches!(location.effective_word("proxy_cache"), "" | "off")
            && location.effective("sszip_no_cache").is_none()
    });
    let findings = beside.map(|route| {
        Finding::warning(
            "other-cache",
            route.location.at,
            "\"proxy_cache\" and \"sszip_cache\" are both on: nginx sends its entries without their \
             age, so that sszip stores stale responses as fresh",
            "remove one of the two; docs/proxy-cache.md has the settings of both",
        )
    });
    findings.collect()
}

/// Rule `buffering`.
fn check_buffering(view: &NginxView<'_>) -> Vec<Finding> {
    let unbuffered = view
        .cached_routes()
        .filter(|route| route.location.effective_word("proxy_buffering") == "off");
    let findings = unbuffered.map(|route| {
        Finding::warning(
            "buffering",
            route.location.at,
            "with \"proxy_buffering off\" responses are streamed without a length, and the request \
             to the node ends with its client",
            "remove \"proxy_buffering off\" where calls are cached",
        )
    });
    findings.collect()
}
