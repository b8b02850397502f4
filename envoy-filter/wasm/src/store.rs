//! Callouts to the owner, through a cluster whose endpoint is the owner's
//! socket. The core decides about requests and replies.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proxy_wasm::hostcalls::dispatch_http_call;
use proxy_wasm::types::{BufferType, MapType};
use sszip_core::cache::link::callout::{
    CalloutId, CalloutLimits, OwnerCallout, OwnerCalloutClient,
};
use sszip_core::cache::link::{OwnerHealthChange, OwnerReply};
use sszip_core::cache::process::owner_client::OwnerClient;
use sszip_core::cache::process::wake::WaitingRequestId;
use sszip_core::cache::process::ProcessResources;
use sszip_core::cache::tip_floor::SharedTipFloorBackend;
use sszip_envoy_carrier::head::{parse_decimal, HostMessageHead};

use crate::abi::{self, LogLevel, SerializedMessageHead};
use crate::shared_floors::SharedDataTipFloors;

/// The callouts of a filter to the owner of the store: those that are due, and those in flight.
#[derive(Debug)]
pub struct FilterOwnerCallouts {
    cluster: String,
    calls: Arc<OwnerCalloutClient>,
    /// Callouts in flight by the proxy's tokens, with the context that sent
    /// them.
    under_way: RefCell<HashMap<u32, (CalloutId, u32)>>,
    /// Whether callouts are due that were not sent.
    has_due: Cell<bool>,
}

impl FilterOwnerCallouts {
    /// Creates the client of the owner behind this cluster; lookups wait up to `deadline`
    /// milliseconds.
    pub fn new(cluster: &str, deadline: u64, process: &ProcessResources) -> Self {
        let bounds = CalloutLimits {
            deadline,
            ..CalloutLimits::default()
        };
        let calls = Arc::new(OwnerCalloutClient::new(
            abi::unique_wasm_sandbox_name(),
            bounds,
        ));
        calls
            .followed_chains()
            .set_shared_tip_floors(SharedTipFloorBackend::Hosted(Arc::new(SharedDataTipFloors)));
        process
            .shared
            .set_owner_client(Arc::clone(&calls) as Arc<dyn OwnerClient>);
        calls.enqueue_generation_query();
        Self {
            cluster: cluster.to_owned(),
            calls,
            under_way: RefCell::default(),
            has_due: Cell::new(true),
        }
    }

    /// Sends all callouts that are due on behalf of the root, which must be the effective context.
    pub fn send_due_root_callouts(&self, root: u32, process: &ProcessResources) {
        self.has_due.set(false);
        while let Some(call) = self
            .calls
            .next_callout(&process.shared, abi::monotonic_ms())
        {
            self.start_callout(&call, root, process);
        }
        self.log_health_change();
    }

    /// Sends the callouts that a stream waits for on its behalf. The stream must be the called
    /// context, and its callouts end with it: requests that only other streams wait for are not
    /// sent here.
    pub fn send_stream_callouts(
        &self,
        stream: u32,
        waiter: WaitingRequestId,
        process: &ProcessResources,
    ) {
        while let Some(call) =
            self.calls
                .next_callout_for_stream(&process.shared, waiter, abi::monotonic_ms())
        {
            self.start_callout(&call, stream, process);
        }
    }

    fn start_callout(&self, call: &OwnerCallout, context: u32, process: &ProcessResources) {
        match self.send_callout(call) {
            Some(token) => {
                let pending = (call.ticket, context);
                self.under_way.borrow_mut().insert(token, pending);
            }
            None => {
                let now = abi::monotonic_ms();
                self.calls
                    .callout_rejected(&process.shared, call.ticket, now);
                // the root logs the failure
                self.has_due.set(true);
            }
        }
    }

    fn send_callout(&self, call: &OwnerCallout) -> Option<u32> {
        let message = &call.message;
        let body = match message.has_body() {
            true => Some(message.whole_body()?),
            false => None,
        };
        let mut fields = vec![
            (":method", message.method),
            (":path", &*message.target),
            (":authority", "sszip"),
        ];
        fields.extend(message.fields.iter().map(|(name, value)| (*name, &**value)));
        let timeout = Duration::from_millis(call.timeout);
        dispatch_http_call(&self.cluster, fields, body.as_deref(), Vec::new(), timeout).ok()
    }

    /// Handles the response to a callout; no fields: it failed. Returns whether
    /// the response is an owner's, and not a local reply of the proxy, which
    /// may be nested in another call.
    pub fn handle_owner_response(
        &self,
        token: u32,
        fields: usize,
        length: usize,
        process: &ProcessResources,
    ) -> bool {
        let pending = self.under_way.borrow_mut().remove(&token);
        let Some((ticket, _)) = pending else {
            return false;
        };
        let answer = (fields > 0).then(|| read_owner_reply(length)).flatten();
        let now = abi::monotonic_ms();
        let is_of_owner = answer.as_ref().is_some_and(|it| it.generation.is_some());
        match answer {
            Some(answer) if is_owner_unreachable_reply(&answer) => {
                self.calls.callout_rejected(&process.shared, ticket, now);
            }
            Some(answer) => self
                .calls
                .callout_answered(&process.shared, ticket, answer, now),
            None => self.calls.callout_failed(&process.shared, ticket, now),
        }
        self.has_due.set(true);
        is_of_owner
    }

    /// Ends the callouts of a context, which the proxy cancels when the context
    /// ends.
    pub fn end_context_callouts(&self, context: u32, process: &ProcessResources) {
        let mut under_way = self.under_way.borrow_mut();
        if under_way.is_empty() {
            return;
        }
        let its = under_way.extract_if(|_, (_, of)| *of == context);
        let its: Vec<_> = its.map(|(_, (ticket, _))| ticket).collect();
        drop(under_way);
        let now = abi::monotonic_ms();
        for ticket in its {
            self.calls.abandon_callout(&process.shared, ticket, now);
            self.has_due.set(true);
        }
    }

    /// Lets the root send the callouts that no stream sends itself.
    pub fn hand_callouts_to_root(&self) {
        self.calls.assign_queries_to_root();
        self.has_due.set(true);
    }

    /// Whether more callouts are due.
    pub fn has_due_callouts(&self) -> bool {
        self.has_due.get()
    }

    /// Returns the milliseconds after which callouts are due at the latest.
    pub fn next_callout_delay_ms(&self) -> Option<u64> {
        self.calls.ms_until_next_tick(abi::monotonic_ms())
    }

    fn log_health_change(&self) {
        let Some(news) = self.calls.take_owner_health_change(abi::monotonic_ms()) else {
            return;
        };
        let line = format!(
            "sszip: the cache's owner in the cluster \"{}\" {}",
            self.cluster,
            news.owner_health_log_text()
        );
        match news {
            OwnerHealthChange::Down
            | OwnerHealthChange::Replaced
            | OwnerHealthChange::OtherClock => {
                abi::write_proxy_log(LogLevel::Error, &line);
            }
            OwnerHealthChange::Up => abi::write_proxy_log(LogLevel::Info, &line),
        }
    }
}

/// Whether the proxy itself responded because no owner is reachable.
fn is_owner_unreachable_reply(answer: &OwnerReply) -> bool {
    let contains = |text: &[u8]| answer.body.windows(text.len()).any(|it| it == text);
    answer.status == 503
        && answer.generation.is_none()
        && (contains(b"connection failure") || contains(b"no healthy upstream"))
}

/// Reads the owner's reply from the response that the proxy has received; `None`: it is not an
/// owner's.
fn read_owner_reply(length: usize) -> Option<OwnerReply> {
    let head = SerializedMessageHead::from_proxy(MapType::HttpCallResponseHeaders);
    let mut answer = OwnerReply {
        status: head.header_value(":status").and_then(parse_decimal)? as u16,
        ..OwnerReply::default()
    };
    for (name, value) in head.regular_headers() {
        let name = std::str::from_utf8(name).ok()?;
        answer.parse_reply_header(name, value).ok()?;
    }
    answer.body = abi::copy_buffer(BufferType::HttpCallResponseBody, length)?;
    // `None` if the body is truncated
    (answer.body.len() == length).then_some(answer)
}
