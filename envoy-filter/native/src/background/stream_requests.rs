//! Background requests of one stream.

use std::sync::Arc;

use sszip_core::exchange::drive::ExchangeDriver;
use sszip_envoy_carrier::background::BackgroundRequestHeaders;
use sszip_envoy_carrier::head::HostMessageHead;

use super::header_rewrite::{self, RouterHeaderRewrite};
use super::requests::{BackgroundRequests, RESPONSE_TIMEOUT_MS};
use crate::abi::HeaderType;
use crate::clock;
use crate::envoy::{EnvoyMessageHead, EnvoyStreamHandle};

/// The access of one stream to its filter's background requests: probes, background updates,
/// rewrites.
#[derive(Debug)]
pub struct StreamBackgroundSender {
    filter_requests: Arc<BackgroundRequests>,
    stream_began: u64,
}

/// The head of a forwarded request before the router, from which the router's rewrite is computed
/// later.
#[derive(Debug)]
pub struct PreRouterRequestHead {
    name: Vec<u8>,
    head: BackgroundRequestHeaders,
}

impl StreamBackgroundSender {
    /// Creates the access of a stream that begins now.
    pub fn new(filter_requests: &Arc<BackgroundRequests>) -> Self {
        Self {
            filter_requests: Arc::clone(filter_requests),
            stream_began: clock::monotonic_ms(),
        }
    }

    /// Enqueues a probe of the node for the driver. `head` is the head of the upstream request.
    pub fn enqueue_probe(&self, driver: ExchangeDriver, cluster: &[u8], head: &EnvoyMessageHead) {
        let Some(head) = BackgroundRequestHeaders::for_probe(&driver, head) else {
            return;
        };
        let timeout_ms = driver.next_timeout_ms().unwrap_or(RESPONSE_TIMEOUT_MS);
        self.enqueue_stream_request(driver, cluster, head, Vec::new(), timeout_ms);
    }

    /// Whether a background update of the request is possible, because the router's rewrite of its
    /// head is recorded.
    pub fn can_update_in_background(
        &self,
        stream: EnvoyStreamHandle,
        head: &EnvoyMessageHead,
        now: u64,
    ) -> bool {
        let known = &self.filter_requests.rewrites;
        self.filter_requests
            .accepts_requests_from_stream(self.stream_began)
            && known
                .find_router_rewrite(&stream_router_rewrite_key(stream, head), now)
                .is_some()
    }

    /// Copies the request head before the router receives it; `None` if its rewrite is recorded
    /// already.
    pub fn copy_head_before_router(
        &self,
        stream: EnvoyStreamHandle,
        now: u64,
    ) -> Option<PreRouterRequestHead> {
        let head = stream.copy_message_head(HeaderType::Request);
        let name = stream_router_rewrite_key(stream, &head);
        let is_fresh = self
            .filter_requests
            .rewrites
            .has_fresh_router_rewrite(&name, now);
        let head = (!is_fresh).then(|| BackgroundRequestHeaders::from_head(&head))?;
        Some(PreRouterRequestHead { name, head })
    }

    /// Records the router's rewrite, after the upstream responded to the request.
    pub fn record_router_rewrite(
        &self,
        stream: EnvoyStreamHandle,
        sent: PreRouterRequestHead,
        now: u64,
    ) {
        let head =
            BackgroundRequestHeaders::from_head(&stream.copy_message_head(HeaderType::Request));
        let rewrite = RouterHeaderRewrite::from_router_head_change(sent.head, head);
        self.filter_requests
            .rewrites
            .record_router_rewrite(sent.name, rewrite, now);
    }

    /// Enqueues a background update of a request whose client receives a stored response, or waits
    /// for its parts. `pieces` is the client's body, which is sent if the driver has none.
    pub fn enqueue_background_update(
        &self,
        mut driver: ExchangeDriver,
        stream: EnvoyStreamHandle,
        pieces: &[&[u8]],
    ) {
        let head = stream.copy_message_head(HeaderType::Request);
        let name = stream_router_rewrite_key(stream, &head);
        let known = &self.filter_requests.rewrites;
        let Some(rewrite) = known.find_router_rewrite(&name, clock::monotonic_ms()) else {
            return;
        };
        let mut head = BackgroundRequestHeaders::from_head(&head);
        if let Some(exchange) = driver.available_exchange() {
            head.apply_head_edits(exchange.upstream_edits());
        }
        let own = driver
            .available_exchange()
            .map_or(0, |it| it.upstream_request_body().len());
        let body = match own {
            0 => driver.copy_request_body(pieces),
            _ => Some(Vec::new()),
        };
        let Some(body) = body else {
            return;
        };
        head.set_body_length(own + body.len());
        rewrite.apply_router_rewrite(&mut head);
        let timeout_ms = rewrite.timeout.unwrap_or(RESPONSE_TIMEOUT_MS);
        self.enqueue_stream_request(driver, stream.cluster_name(), head, body, timeout_ms);
    }

    fn enqueue_stream_request(
        &self,
        driver: ExchangeDriver,
        cluster: &[u8],
        head: BackgroundRequestHeaders,
        body: Vec<u8>,
        timeout_ms: u64,
    ) {
        let all = &self.filter_requests;
        all.enqueue_request(self.stream_began, driver, cluster, head, body, timeout_ms);
    }
}

/// Returns the key under which the rewrite of the stream's request is recorded.
fn stream_router_rewrite_key(stream: EnvoyStreamHandle, head: &EnvoyMessageHead) -> Vec<u8> {
    let (route, cluster) = (stream.xds_route_name(), stream.cluster_name());
    header_rewrite::router_rewrite_key(route, cluster, head.host(), head.target())
}
