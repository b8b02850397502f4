//! Callouts to the owner, through a cluster whose endpoint is the owner's
//! socket. The core decides about requests and replies.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proxy_wasm::hostcalls::dispatch_http_call;
use proxy_wasm::types::{BufferType, MapType};
use sszip_core::cache::link::callout::{Callout, CalloutClient, CalloutId, CalloutLimits};
use sszip_core::cache::link::{OwnerHealthChange, OwnerReply};
use sszip_core::cache::process::owner_client::OwnerClient;
use sszip_core::cache::process::wake::Waiter;
use sszip_core::cache::process::Process;
use sszip_core::cache::tip_floor::FloorSource;
use sszip_envoy_carrier::head::{parse_number, MessageHead};

use crate::abi::{self, Head, Level};
use crate::shared_floors::SharedDataFloors;

/// The callouts of a filter to the owner: those that are due, and those in flight.
#[derive(Debug)]
pub struct OwnerCallouts {
    cluster: String,
    calls: Arc<CalloutClient>,
    /// Callouts in flight by the proxy's tokens, with the context that sent
    /// them.
    under_way: RefCell<HashMap<u32, (CalloutId, u32)>>,
    /// Whether callouts are due that were not sent.
    waits: Cell<bool>,
}

impl OwnerCallouts {
    /// Joins the process to the owner behind this cluster; lookups wait up to
    /// `deadline` milliseconds.
    pub fn new(cluster: &str, deadline: u64, process: &Process) -> Self {
        let bounds = CalloutLimits {
            deadline,
            ..CalloutLimits::default()
        };
        let calls = Arc::new(CalloutClient::new(abi::random_name(), bounds));
        calls
            .chains()
            .share(FloorSource::Hosted(Arc::new(SharedDataFloors)));
        process
            .shared
            .join(Arc::clone(&calls) as Arc<dyn OwnerClient>);
        calls.query_status_once();
        Self {
            cluster: cluster.to_owned(),
            calls,
            under_way: RefCell::default(),
            waits: Cell::new(true),
        }
    }

    /// Sends all callouts that are due, in the name of the root, which must be
    /// the effective context.
    pub fn call(&self, root: u32, process: &Process) {
        self.waits.set(false);
        while let Some(call) = self.calls.next(&process.shared, abi::monotonic()) {
            self.make(&call, root, process);
        }
        self.log_health_change();
    }

    /// Sends the callouts that a stream waits for, in its own name. The stream
    /// must be the called context, and its callouts end with it: requests that
    /// only other streams wait for are not sent here.
    pub fn send_for_stream(&self, stream: u32, waiter: Waiter, process: &Process) {
        while let Some(call) = self
            .calls
            .next_for_stream(&process.shared, waiter, abi::monotonic())
        {
            self.make(&call, stream, process);
        }
    }

    fn make(&self, call: &Callout, context: u32, process: &Process) {
        match self.send_callout(call) {
            Some(token) => {
                let pending = (call.ticket, context);
                self.under_way.borrow_mut().insert(token, pending);
            }
            None => {
                let now = abi::monotonic();
                self.calls
                    .callout_rejected(&process.shared, call.ticket, now);
                // the root logs the failure
                self.waits.set(true);
            }
        }
    }

    fn send_callout(&self, call: &Callout) -> Option<u32> {
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
    pub fn answered(&self, token: u32, fields: usize, length: usize, process: &Process) -> bool {
        let pending = self.under_way.borrow_mut().remove(&token);
        let Some((ticket, _)) = pending else {
            return false;
        };
        let answer = (fields > 0).then(|| answer(length)).flatten();
        let now = abi::monotonic();
        let is_of_owner = answer.as_ref().is_some_and(|it| it.generation.is_some());
        match answer {
            Some(answer) if is_owner_absent(&answer) => {
                self.calls.callout_rejected(&process.shared, ticket, now);
            }
            Some(answer) => self.calls.answered(&process.shared, ticket, answer, now),
            None => self.calls.failed(&process.shared, ticket, now),
        }
        self.waits.set(true);
        is_of_owner
    }

    /// Ends the callouts of a context, which the proxy cancels when the context
    /// ends.
    pub fn forget(&self, context: u32, process: &Process) {
        let mut under_way = self.under_way.borrow_mut();
        if under_way.is_empty() {
            return;
        }
        let its = under_way.extract_if(|_, (_, of)| *of == context);
        let its: Vec<_> = its.map(|(_, (ticket, _))| ticket).collect();
        drop(under_way);
        let now = abi::monotonic();
        for ticket in its {
            self.calls.ended(&process.shared, ticket, now);
            self.waits.set(true);
        }
    }

    /// Schedules the callouts that no stream sends.
    pub fn schedule_callouts(&self) {
        self.calls.detach_from_stream();
        self.waits.set(true);
    }

    /// Whether more callouts are due.
    pub fn waits(&self) -> bool {
        self.waits.get()
    }

    /// Returns the milliseconds after which callouts are due at the latest.
    pub fn next_tick(&self) -> Option<u64> {
        self.calls.next_tick(abi::monotonic())
    }

    fn log_health_change(&self) {
        let Some(news) = self.calls.take_health_change(abi::monotonic()) else {
            return;
        };
        let line = format!(
            "sszip: the cache's owner in the cluster \"{}\" {}",
            self.cluster,
            news.text()
        );
        match news {
            OwnerHealthChange::Down | OwnerHealthChange::Replaced => abi::log(Level::Error, &line),
            OwnerHealthChange::Up => abi::log(Level::Info, &line),
        }
    }
}

/// Whether the proxy itself responded because no owner is reachable.
fn is_owner_absent(answer: &OwnerReply) -> bool {
    let contains = |text: &[u8]| answer.body.windows(text.len()).any(|it| it == text);
    answer.status == 503
        && answer.generation.is_none()
        && (contains(b"connection failure") || contains(b"no healthy upstream"))
}

/// Reads the owner's reply from the response that the proxy has received; `None`: it is not an
/// owner's.
fn answer(length: usize) -> Option<OwnerReply> {
    let head = Head::from_proxy(MapType::HttpCallResponseHeaders);
    let mut answer = OwnerReply {
        status: head.get(":status").and_then(parse_number)? as u16,
        ..OwnerReply::default()
    };
    for (name, value) in head.plain() {
        let name = std::str::from_utf8(name).ok()?;
        answer.field(name, value).ok()?;
    }
    answer.body = abi::buffer(BufferType::HttpCallResponseBody, length)?;
    // `None` if the body is truncated
    (answer.body.len() == length).then_some(answer)
}
