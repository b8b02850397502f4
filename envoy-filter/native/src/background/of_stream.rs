//! Background requests of one stream.

use std::sync::Arc;

use sszip_core::exchange::drive::Driver;

use super::fields::Fields;
use super::rewriting::{self, Rewriting};
use super::{Background, PATIENCE};
use crate::abi::HeaderType;
use crate::clock;
use crate::envoy::{Head, Stream};

/// Background requests of a stream's filter.
#[derive(Debug)]
pub struct OfStream {
    of_filter: Arc<Background>,
    began: u64,
}

/// A forwarded request, from which the router's changes to its headers are
/// recorded.
#[derive(Debug)]
pub struct OnItsWay {
    name: Vec<u8>,
    head: Fields,
}

impl OfStream {
    /// Creates the background requests of a stream that begins now.
    pub fn new(of_filter: &Arc<Background>) -> Self {
        Self {
            of_filter: Arc::clone(of_filter),
            began: clock::monotonic(),
        }
    }

    /// Starts a probe of the node for the driver. `head` is the head of the
    /// upstream request.
    pub fn inquire(&self, driver: Driver, cluster: &[u8], head: &Head) {
        let path = head.get(":path").unwrap_or_default();
        let Some(path) = driver.path_of_inquiry(path) else {
            return;
        };
        let mut head = Fields::of(head);
        if let Some(exchange) = driver.exchange() {
            head.edit(exchange.upstream_edits());
        }
        head.has_body(0);
        head.set(b":method", b"GET");
        head.set(b":path", &path);
        head.take_timeout();
        let ms = driver.next_timer().unwrap_or(PATIENCE);
        self.leave(driver, cluster, head, Vec::new(), ms);
    }

    /// Whether a background update of the request is possible, because the
    /// router's changes to its head are recorded.
    pub fn can_update(&self, stream: Stream, head: &Head, now: u64) -> bool {
        let known = &self.of_filter.rewritings;
        self.of_filter.asks_for(self.began) && known.get(&name(stream, head), now).is_some()
    }

    /// Copies the request head before the router receives it; `None` if its
    /// changes are recorded already.
    pub fn forwards(&self, stream: Stream, now: u64) -> Option<OnItsWay> {
        let head = stream.head(HeaderType::Request);
        let name = name(stream, &head);
        let is_fresh = self.of_filter.rewritings.is_fresh(&name, now);
        let head = (!is_fresh).then(|| Fields::of(&head))?;
        Some(OnItsWay { name, head })
    }

    /// Records the router's changes, after the upstream responded to the
    /// request.
    pub fn forwarded(&self, stream: Stream, sent: OnItsWay, now: u64) {
        let head = Fields::of(&stream.head(HeaderType::Request));
        let rewriting = Rewriting::between(sent.head, head);
        self.of_filter.rewritings.learn(sent.name, rewriting, now);
    }

    /// Starts a background update of a request whose client receives a stored
    /// response. `pieces` is its body.
    pub fn update(&self, mut driver: Driver, stream: Stream, pieces: &[&[u8]]) {
        let head = stream.head(HeaderType::Request);
        let name = name(stream, &head);
        let known = &self.of_filter.rewritings;
        let Some(rewriting) = known.get(&name, clock::monotonic()) else {
            return;
        };
        let mut head = Fields::of(&head);
        if let Some(exchange) = driver.exchange() {
            head.edit(exchange.upstream_edits());
        }
        let own = driver.exchange().map_or(0, |it| it.request_body().len());
        let body = match own {
            0 => driver.joined(pieces),
            _ => Some(Vec::new()),
        };
        let Some(body) = body else {
            return;
        };
        head.has_body(own + body.len());
        rewriting.apply(&mut head);
        let ms = rewriting.timeout.unwrap_or(PATIENCE);
        self.leave(driver, stream.cluster(), head, body, ms);
    }

    fn leave(&self, driver: Driver, cluster: &[u8], head: Fields, body: Vec<u8>, ms: u64) {
        let all = &self.of_filter;
        all.leave(self.began, driver, cluster, head, body, ms);
    }
}

/// Name under which the router's changes are recorded.
fn name(stream: Stream, head: &Head) -> Vec<u8> {
    let get = |name| head.get(name).unwrap_or_default();
    let (route, cluster) = (stream.route(), stream.cluster());
    rewriting::name(route, cluster, get(":authority"), get(":path"))
}
