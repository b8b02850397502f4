//! The link to the owner, through a cluster whose endpoint is the owner's socket. The core decides
//! about requests and replies; this module makes the callouts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proxy_wasm::hostcalls::dispatch_http_call;
use proxy_wasm::types::{BufferType, MapType};
use sszip_core::cache::link::callouts::{CalloutId, OwnerCallout};
use sszip_core::cache::link::OwnerLink;
use sszip_core::cache::owner_protocol::client_name::OwnerClientName;
use sszip_core::cache::process::owner_client::OwnerClient;
use sszip_core::cache::process::ProcessResources;
use sszip_core::cache::tip_floor::SharedTipFloorBackend;
use sszip_core::config::sandbox::MAX_SANDBOX_ENTRY;
use sszip_envoy_carrier::head::{parse_decimal, HostMessageHead};

use crate::abi::{self, LogLevel, SerializedMessageHead};
use crate::shared_floors::SharedDataTipFloors;

/// The link of a sandbox, which has no sockets, to the owner of the store: the proxy sends its messages
/// as HTTP callouts.
#[derive(Debug)]
pub struct SandboxOwnerLink {
    cluster: String,
    /// The client of the owner.
    pub link: Arc<OwnerLink>,
    /// Callouts in flight by the proxy's tokens.
    in_flight: RefCell<HashMap<u32, CalloutId>>,
}

impl SandboxOwnerLink {
    /// Creates the link to the owner behind this cluster; lookups wait up to `deadline`
    /// milliseconds. Returns `None` if the proxy has no name for the sandbox.
    pub fn new(cluster: &str, deadline: u64, process: &ProcessResources) -> Option<Self> {
        let name = OwnerClientName::new(&abi::unique_wasm_sandbox_name())?;
        let link = Arc::new(OwnerLink::new(name, MAX_SANDBOX_ENTRY));
        link.set_lookup_timeout(deadline);
        link.chains
            .set_shared_tip_floors(SharedTipFloorBackend::Hosted(Arc::new(SharedDataTipFloors)));
        process
            .shared
            .set_owner_client(Arc::clone(&link) as Arc<dyn OwnerClient>);
        Some(Self {
            cluster: cluster.to_owned(),
            link,
            in_flight: RefCell::default(),
        })
    }

    /// Ends the session: the proxy deletes the root.
    pub fn end(&self, process: &ProcessResources) {
        self.link.end_callouts(&process.shared);
        self.in_flight.borrow_mut().clear();
    }

    /// Makes the callouts that are due. The root must be the called and the effective context.
    pub fn make_due_callouts(&self, process: &ProcessResources, now: u64) {
        while let Some(callout) = self.link.next_callout(&process.shared, now) {
            match self.make_callout(&callout) {
                Some(token) => {
                    self.in_flight.borrow_mut().insert(token, callout.id);
                }
                None => {
                    self.link
                        .handle_callout_result(&process.shared, callout.id, None, now);
                }
            }
        }
        self.log_health_change(now);
    }

    /// Sends a request to the owner's cluster, and returns the id of the callout. `None`: the proxy
    /// refuses it.
    fn make_callout(&self, callout: &OwnerCallout) -> Option<u32> {
        let headers = vec![
            (":method", "POST"),
            (":path", OwnerLink::CALLOUT_PATH),
            (":authority", "sszip"),
            ("content-type", OwnerLink::CALLOUT_MEDIA_TYPE),
        ];
        let timeout = Duration::from_millis(callout.timeout);
        let body = Some(&*callout.body);
        dispatch_http_call(&self.cluster, headers, body, Vec::new(), timeout).ok()
    }

    /// Handles the response to a callout; without headers, it failed. Returns whether the response
    /// came from the owner: a local response of the proxy may be nested in another call.
    pub fn handle_callout_response(
        &self,
        token: u32,
        header_count: usize,
        length: usize,
        process: &ProcessResources,
    ) -> bool {
        let Some(id) = self.in_flight.borrow_mut().remove(&token) else {
            return false;
        };
        let response = (header_count > 0).then(|| read_response(length)).flatten();
        let received = response.as_ref().map(|(status, body)| (*status, &**body));
        self.link
            .handle_callout_result(&process.shared, id, received, abi::monotonic_ms());
        matches!(response, Some((200, _)))
    }

    /// Logs a change of the owner's health, if there is one.
    fn log_health_change(&self, now: u64) {
        let Some(change) = self.link.take_owner_health_change(now) else {
            return;
        };
        let line = format!(
            "sszip: the cache's owner in the cluster \"{}\" {}",
            self.cluster,
            change.owner_health_log_text()
        );
        let level = match change.is_owner_outage() {
            true => LogLevel::Error,
            false => LogLevel::Info,
        };
        abi::write_proxy_log(level, &line);
    }
}

/// Reads the response to a callout: its status and its body. Returns `None` if it is incomplete.
fn read_response(length: usize) -> Option<(u16, Vec<u8>)> {
    let head = SerializedMessageHead::from_proxy(MapType::HttpCallResponseHeaders);
    let status = head.header_value(":status").and_then(parse_decimal)?;
    let body = abi::copy_buffer(BufferType::HttpCallResponseBody, length)?;
    (body.len() == length).then_some((u16::try_from(status).ok()?, body))
}
