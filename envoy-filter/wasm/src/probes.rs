//! Probes of nodes, for which no client waits. The root sends each one as a GET
//! to a path derived from a request's, after that request's response.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use proxy_wasm::hostcalls::dispatch_http_call;
use proxy_wasm::types::{BufferType, MapType};
use sszip_core::exchange::drive::ExchangeDriver;
use sszip_envoy_carrier::background::{pass_background_head_to_driver, BackgroundRequestHeaders};

use crate::abi::{self, SerializedMessageHead};

/// Maximum number of probes at a time. Further ones are dropped; their cause
/// requests them again.
const MAX_PROBES: usize = 16;

/// Default timeout of a probe, in milliseconds.
const PROBE_TIMEOUT_MS: u64 = 60_000;

/// The probes that a filter's root sends to nodes: those in the queue, and those in flight.
#[derive(Debug, Default)]
pub struct ProbeQueue {
    waiting: RefCell<Vec<QueuedProbe>>,
    /// Probes in flight, by the proxy's tokens.
    in_flight: RefCell<HashMap<u32, ExchangeDriver>>,
}

/// A probe in the queue.
#[derive(Debug)]
struct QueuedProbe {
    driver: ExchangeDriver,
    cluster: String,
    headers: BackgroundRequestHeaders,
}

impl ProbeQueue {
    /// Whether the limit of concurrent probes permits another one.
    pub fn has_probe_slot(&self) -> bool {
        self.waiting.borrow().len() + self.in_flight.borrow().len() < MAX_PROBES
    }

    /// Enqueues a probe. `head` is the head of the upstream request.
    pub fn enqueue_probe(
        &self,
        driver: ExchangeDriver,
        cluster: Vec<u8>,
        head: &SerializedMessageHead,
    ) {
        let headers = BackgroundRequestHeaders::for_probe(&driver, head);
        let (Some(headers), Ok(cluster)) = (headers, String::from_utf8(cluster)) else {
            return;
        };
        self.waiting.borrow_mut().push(QueuedProbe {
            driver,
            cluster,
            headers,
        });
    }

    /// Whether there are probes to send.
    pub fn has_queued_probes(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Sends all enqueued probes. The root must be the effective context.
    pub fn send_queued_probes(&self) {
        for probe in self.waiting.take() {
            // the SDK sends only text
            let headers = probe.headers.header_lines().iter();
            let headers = headers.filter_map(|(name, value)| {
                Some((str::from_utf8(name).ok()?, str::from_utf8(value).ok()?))
            });
            let timeout = probe.driver.next_timeout_ms().unwrap_or(PROBE_TIMEOUT_MS);
            let timeout = Duration::from_millis(timeout);
            let callout =
                dispatch_http_call(&probe.cluster, headers.collect(), None, Vec::new(), timeout);
            if let Ok(token) = callout {
                self.in_flight.borrow_mut().insert(token, probe.driver);
            }
        }
    }

    /// Handles the response to a probe; no fields: it failed. Returns whether the token is a
    /// probe's.
    pub fn handle_probe_response(&self, token: u32, fields: usize, length: usize) -> bool {
        let probe = self.in_flight.borrow_mut().remove(&token);
        let Some(mut driver) = probe else {
            return false;
        };
        if fields > 0 {
            read_probe_response(&mut driver, length);
        }
        true
    }
}

/// Passes the head and the body of a callout's response to the driver of a probe.
fn read_probe_response(driver: &mut ExchangeDriver, length: usize) {
    let head = SerializedMessageHead::from_proxy(MapType::HttpCallResponseHeaders);
    let now = abi::read_host_clocks();
    // a callout has a response only if it is complete
    if !pass_background_head_to_driver(driver, &head, true, now) {
        return;
    }
    let body = abi::copy_buffer(BufferType::HttpCallResponseBody, length).unwrap_or_default();
    if body.len() == length && driver.handle_body_piece(&body).is_ok() {
        // the response is not stored, but its facts are recorded
        drop(driver.handle_response_sent(now.monotonic));
    }
}
