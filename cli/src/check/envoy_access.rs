//! Rules for Envoy about the clients that reach sszip, and the filters around it.

use super::envoy_document::Node;
use super::envoy_filters::{nodes_where, HttpFilter, Route, API_LISTENER};
use super::envoy_rules::{route_name, EnvoyView};
use super::findings::Finding;

/// Parts of the names of filters that authorize requests.
const AUTHORIZATION_FILTERS: [&str; 6] = [
    "rbac",
    "ext_authz",
    "jwt_authn",
    "basic_auth",
    "oauth2",
    "api_key_auth",
];

impl HttpFilter<'_> {
    /// The filters before sszip, and those behind it without the router.
    fn other_filters(&self) -> (&[Node], &[Node]) {
        let filters = self.manager.items("http_filters");
        let at = filters
            .iter()
            .position(|filter| std::ptr::eq(filter, self.filter))
            .unwrap_or(0);
        let behind = filters.get(at + 1..).unwrap_or_default();
        let end = match behind.last() {
            Some(last) if names_filter(last, "router") => behind.len() - 1,
            _ => behind.len(),
        };
        (&filters[..at], &behind[..end])
    }

    /// Whether only some clients reach the listener: clients of this machine or in this process, with
    /// a certificate, or with a permitted address.
    fn is_listener_restricted(&self) -> bool {
        let is_local = |node: &Node| {
            let host = node.text("address/socket_address/address");
            host.starts_with("127.") || host == "::1" || node.get("address/pipe").is_some()
        };
        let mut others = self.listener.items("additional_addresses").iter();
        let listens_locally = is_local(self.listener) && others.all(is_local);
        let restrictions = nodes_where(self.listener, |node| {
            node.is_true("require_client_certificate")
                || node.text("name") == "envoy.filters.network.rbac"
        });
        let has_no_socket = self.listener.get(API_LISTENER).is_some();
        listens_locally || has_no_socket || !restrictions.is_empty()
    }

    /// Whether a filter before sszip authorizes the requests of a route.
    fn authorizes(&self, route: &Route<'_>) -> bool {
        let (before, _) = self.other_filters();
        let mut in_effect = before.iter().filter(|filter| {
            let own = route.filter_config(filter.text("name"));
            !own.unwrap_or(filter).is_true("disabled")
        });
        in_effect.any(authorizes_requests)
    }
}

/// Whether a filter's name or type contains a text.
fn names_filter(filter: &Node, text: &str) -> bool {
    filter.text("name").contains(text) || filter.text("typed_config/@type").contains(text)
}

/// Whether a filter authorizes requests.
fn authorizes_requests(filter: &Node) -> bool {
    let mut names = AUTHORIZATION_FILTERS.iter();
    names.any(|name| names_filter(filter, name))
}

/// Rule `filter-order`.
pub fn check_filter_order(view: &EnvoyView<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for filter in &view.filters {
        let (_, behind) = filter.other_filters();
        for other in behind {
            let name = other.text("name");
            let remedy = "move sszip behind it: last before the router";
            let at = view.position(other);
            if authorizes_requests(other) || names_filter(other, "ratelimit") {
                let text = format!("cache hits bypass the filter \"{name}\" behind sszip");
                findings.push(Finding::error("filter-order", &at, text, remedy));
            } else if !names_filter(other, "decompressor") {
                let text = format!("the filter \"{name}\" does not receive requests that are hits");
                findings.push(Finding::warning("filter-order", &at, text, remedy));
            }
        }
    }
    findings
}

/// Rules `open-purge` and `open-status`.
pub fn check_administrative_routes(view: &EnvoyView<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let open = view
        .filters
        .iter()
        .filter(|it| !it.is_listener_restricted());
    for filter in open {
        for route in filter.routes.iter().filter(|it| !filter.authorizes(it)) {
            let Some(settings) = &route.settings else {
                continue;
            };
            let (at, name) = (view.position(route.node), route_name(route.node));
            let remedy = "move the route to a listener on 127.0.0.1, or restrict it by a filter \
                          such as envoy.filters.http.rbac";
            if settings.purges {
                let text = format!("all clients can purge the cache at {name}");
                findings.push(Finding::error("open-purge", &at, text, remedy));
            }
            if settings.reports_status {
                let text = format!("all clients can read the status page at {name}");
                findings.push(Finding::warning("open-status", &at, text, remedy));
            }
        }
    }
    findings
}
