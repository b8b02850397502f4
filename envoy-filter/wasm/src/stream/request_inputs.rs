//! The inputs of a stream's lookup, which the filter reads from the proxy once: a lookup that waits is
//! repeated, and each call of the proxy costs as much as a small part of a hit.

use proxy_wasm::types::BufferType;
use sszip_core::exchange::Exchange;
use sszip_envoy_carrier::lookup::RouteIdentity;

use crate::abi::{self, LogLevel, SerializedMessageHead, CLUSTER_PROPERTY};

const ROUTE_NAME_PROPERTY: &str = "xds\0route_name";
const PORT_PROPERTY: &str = "destination\0port";

/// Maximum length of a body that is kept for a repeated lookup, in bytes; the proxy has longer ones.
const MAX_KEPT_BODY: usize = 4 << 10;

/// The request head, and the properties of the request and its route that a lookup needs. No filter
/// changes a request that another filter has stopped.
#[derive(Debug, Default)]
pub(super) struct RequestInputs {
    /// The head when the request began.
    pub(super) head: SerializedMessageHead,
    /// Name of the route's cluster.
    cluster: Option<Vec<u8>>,
    /// Identity of the route, and the port at which the request arrived.
    route: Option<(RouteIdentity, u16)>,
    body: Option<Vec<u8>>,
}

impl RequestInputs {
    pub(super) fn new(head: SerializedMessageHead) -> Self {
        Self {
            head,
            ..Self::default()
        }
    }

    /// Returns the name of the route's cluster; empty: it has none.
    pub(super) fn cluster(&mut self) -> &[u8] {
        self.cluster
            .get_or_insert_with(|| abi::proxy_property(CLUSTER_PROPERTY))
    }

    /// Returns the head, the identity of the route of an exchange that uses the cache, and the port if
    /// it is a part of keys; warns of a route without a name.
    pub(super) fn cached_lookup_inputs(
        &mut self,
        exchange: &Exchange,
    ) -> (&SerializedMessageHead, &RouteIdentity, u16) {
        if self.route.is_none() {
            let cluster = self.cluster();
            let route = RouteIdentity::new(exchange, cluster, || {
                abi::proxy_property(ROUTE_NAME_PROPERTY)
            });
            route.warn_unnamed_route(cluster, |line| abi::write_proxy_log(LogLevel::Warn, line));
            let port = match exchange.route_config().cache.namespace {
                Some(_) => 0,
                None => destination_port(),
            };
            self.route = Some((route, port));
        }
        let (route, port) = self.route.get_or_insert_default();
        (&self.head, route, *port)
    }

    /// Takes the kept body, or copies the `length` bytes of the body from the proxy. `None` if memory is
    /// exhausted.
    pub(super) fn take_body(&mut self, length: usize) -> Option<Vec<u8>> {
        match self.body.take() {
            Some(body) => Some(body),
            None => abi::copy_buffer(BufferType::HttpRequestBody, length),
        }
    }

    /// Keeps the body for a repeated lookup.
    pub(super) fn keep_body(&mut self, body: Option<Vec<u8>>) {
        self.body = body.filter(|body| body.len() <= MAX_KEPT_BODY);
    }
}

/// Returns the port at which the request arrived; 0: unknown.
fn destination_port() -> u16 {
    u16::try_from(abi::numeric_property(PORT_PROPERTY)).unwrap_or(0)
}
