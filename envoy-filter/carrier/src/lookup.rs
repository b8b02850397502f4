//! The properties of a request's route by which stored responses are looked up.

use std::sync::Once;

use sszip_core::cache::process::wake::WaitingRequestId;
use sszip_core::config::upstreams::named_route_destination;
use sszip_core::exchange::{Exchange, LookupRequest};

use crate::head::HostMessageHead;

/// The identity of a route in cache keys: the names of its cluster and of itself, unless the
/// operator sets a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteIdentity {
    destination: Vec<u8>,
    /// The route has no name, and thus can't be distinguished from others.
    is_unnamed: bool,
    /// The route has no cluster: Envoy itself responds.
    is_local: bool,
}

impl RouteIdentity {
    /// Creates the identity of a route. The name of the route is read only if it is needed.
    pub fn new<Name: AsRef<[u8]>>(
        exchange: &Exchange,
        cluster: &[u8],
        route: impl FnOnce() -> Name,
    ) -> Self {
        let is_local = cluster.is_empty();
        if is_local || exchange.route_config().cache.namespace.is_some() {
            return Self {
                is_local,
                ..Self::default()
            };
        }
        let route = route();
        Self {
            destination: named_route_destination(route.as_ref(), cluster),
            is_unnamed: route.as_ref().is_empty(),
            is_local,
        }
    }

    /// Logs a warning if the route has no name, once: it is the same for all requests of a route.
    pub fn warn_unnamed_route(&self, cluster: &[u8], log: impl FnOnce(&str)) {
        static LOGGED: Once = Once::new();
        if self.is_unnamed {
            LOGGED.call_once(|| log(&unnamed_route_warning(cluster)));
        }
    }

    /// Creates the lookup request of a stream on this route; `now` is the monotonic clock in
    /// milliseconds.
    pub fn stream_lookup_request<'a>(
        &'a self,
        head: &'a impl HostMessageHead,
        port: u16,
        now: u64,
        waiter: Option<WaitingRequestId>,
    ) -> LookupRequest<'a> {
        LookupRequest {
            place: &self.destination,
            unnamed: self.is_unnamed,
            local: self.is_local,
            host: head.host(),
            port,
            now,
            coding_allowed: true,
            waiter,
            ..LookupRequest::default()
        }
    }
}

/// Formats the warning about a route without a name.
fn unnamed_route_warning(cluster: &[u8]) -> String {
    let cluster = String::from_utf8_lossy(cluster);
    format!(
        "requests of a route to the cluster \"{cluster}\" are not cached: the route has no name; set \
         its \"name\", or a \"cache_namespace\""
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sszip_core::cache::process::ProcessResources;
    use sszip_core::config::RouteConfigBlock;
    use sszip_core::exchange::drive::ExchangeDriver;

    use super::RouteIdentity;
    use crate::head::tests::HeadLines;
    use crate::request::start_exchange;

    fn driver(namespace: Option<&str>) -> ExchangeDriver {
        let mut directives = RouteConfigBlock::default();
        for name in ["enable", "cache"] {
            directives
                .set_directive(name, &[b"on"])
                .expect("a valid setting");
        }
        if let Some(namespace) = namespace {
            let set = directives.set_directive("cache_namespace", &[namespace.as_bytes()]);
            set.expect("a valid setting");
        }
        let config = Arc::new(directives.resolve_route_config(ProcessResources::default()));
        let head = HeadLines::new(&[(":method", "GET"), (":path", "/"), (":authority", "a")]);
        start_exchange(&config, &head).expect("the head is valid")
    }

    fn identity(namespace: Option<&str>, cluster: &str, route: &str) -> RouteIdentity {
        let driver = driver(namespace);
        let exchange = driver.available_exchange().expect("no job runs");
        RouteIdentity::new(exchange, cluster.as_bytes(), || route)
    }

    #[test]
    fn routes_are_distinguished_by_cluster_and_name() {
        let route = identity(None, "node", "a");
        assert_eq!(route, identity(None, "node", "a"));
        assert_ne!(route, identity(None, "node", "b"));
        assert_ne!(route, identity(None, "other", "a"));
        let head = HeadLines::new(&[(":authority", "host:1")]);
        let lookup = route.stream_lookup_request(&head, 80, 5, None);
        assert_eq!((lookup.host, lookup.port), (&b"host:1"[..], 80));
        assert!(!lookup.place.is_empty() && !lookup.unnamed && !lookup.local);
    }

    #[test]
    fn route_without_a_name_is_not_looked_up_unless_it_has_a_namespace() {
        let head = HeadLines::new(&[]);
        let unnamed = identity(None, "node", "");
        assert!(unnamed.stream_lookup_request(&head, 0, 0, None).unnamed);
        let named = identity(Some("main"), "node", "");
        let lookup = named.stream_lookup_request(&head, 0, 0, None);
        assert!(!lookup.unnamed && lookup.place.is_empty());
    }

    #[test]
    fn route_without_a_cluster_is_local() {
        for namespace in [None, Some("main")] {
            let route = identity(namespace, "", "a");
            assert!(
                route
                    .stream_lookup_request(&HeadLines::new(&[]), 0, 0, None)
                    .local
            );
        }
    }

    #[test]
    fn warning_about_an_unnamed_route_is_logged_once() {
        let mut lines = Vec::new();
        identity(None, "node", "a").warn_unnamed_route(b"node", |line| lines.push(line.to_owned()));
        assert!(lines.is_empty());
        for _ in 0..2 {
            let unnamed = identity(None, "node", "");
            unnamed.warn_unnamed_route(b"node", |line| lines.push(line.to_owned()));
        }
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("requests of a route to the cluster \"node\" are not cached"));
    }
}
