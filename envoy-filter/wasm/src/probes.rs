//! Probes of nodes, for which no client waits. The root sends each one as a GET
//! to a path derived from a request's, after that request's response.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use proxy_wasm::hostcalls::dispatch_http_call;
use proxy_wasm::types::{BufferType, MapType};
use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_envoy_carrier::head::HostMessageHead;
use sszip_envoy_carrier::response;

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

/// A probe in the queue, with the cluster and the headers of its request.
#[derive(Debug)]
struct QueuedProbe {
    driver: ExchangeDriver,
    cluster: String,
    fields: Vec<(String, String)>,
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
        let path = driver.probe_path(head.target()).map(String::from_utf8);
        let (Some(Ok(path)), Ok(cluster)) = (path, String::from_utf8(cluster)) else {
            return;
        };
        let edits = driver
            .available_exchange()
            .map_or(&[][..], |it| it.upstream_edits());
        let is_other = |name: &str| {
            matches!(
                name,
                ":method" | ":path" | "content-length" | "transfer-encoding"
            ) || name.starts_with("x-envoy-")
                || edits
                    .iter()
                    .any(|edit| edit.name.eq_ignore_ascii_case(name))
        };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let mut fields = vec![(":method".into(), "GET".into()), (":path".into(), path)];
        for (name, value) in head.iter_headers() {
            match (text(name), text(value)) {
                (Some(name), Some(value)) if !is_other(&name) => fields.push((name, value)),
                _ => {}
            }
        }
        for edit in edits {
            if let Some(value) = edit.value.as_deref().and_then(text) {
                fields.push((edit.name.to_ascii_lowercase(), value));
            }
        }
        self.waiting.borrow_mut().push(QueuedProbe {
            driver,
            cluster,
            fields,
        });
    }

    /// Whether there are probes to send.
    pub fn has_queued_probes(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Sends all enqueued probes. The root must be the effective context.
    pub fn send_queued_probes(&self) {
        for question in self.waiting.take() {
            let fields = question.fields.iter();
            let fields = fields.map(|(name, value)| (&**name, &**value)).collect();
            let patience = question
                .driver
                .next_timeout_ms()
                .unwrap_or(PROBE_TIMEOUT_MS);
            let patience = Duration::from_millis(patience);
            let callout = dispatch_http_call(&question.cluster, fields, None, Vec::new(), patience);
            if let Ok(token) = callout {
                self.in_flight.borrow_mut().insert(token, question.driver);
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

fn read_probe_response(driver: &mut ExchangeDriver, length: usize) {
    let head = SerializedMessageHead::from_proxy(MapType::HttpCallResponseHeaders);
    let response = response::convert_head_for_driver(&head, true, abi::unix_seconds());
    let failure = UpstreamFailure::Status(response.status);
    let now = abi::monotonic_ms();
    let judged = driver.handle_upstream_head(response.clone(), failure, now);
    if judged.is_err() || !matches!(driver.handle_response_head(response), Ok(HostStep::Observe)) {
        return;
    }
    let body = abi::copy_buffer(BufferType::HttpCallResponseBody, length).unwrap_or_default();
    if body.len() == length && driver.handle_body_piece(&body).is_ok() {
        // the response is not stored, but its facts are recorded
        drop(driver.handle_response_sent(now));
    }
}
