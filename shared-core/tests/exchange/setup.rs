//! Configurations, heads and requests that tests of the exchange begin with.

use std::sync::Arc;

use sszip_core::cache::process::wake::WokenRequestQueue;
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::{RouteConfig, RouteConfigBlock};
use sszip_core::exchange::drive::{BodyLength, ExchangeDriver, HostStep, RequestBodyAvailability};
use sszip_core::exchange::{Exchange, Header, LookupRequest, RequestHead, ResponseHead};

use crate::driver_host::run_job;

pub const JSON: Header<'static> = (b"Content-Type", b"application/json");

/// Creates a configuration of `process` with `enable on` and these directives, each a line of its
/// name and words.
pub fn config_of_process(process: impl Into<ProcessResources>, lines: &[&str]) -> Arc<RouteConfig> {
    let mut directives = RouteConfigBlock::default();
    for line in ["enable on"].iter().chain(lines) {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        let values: Vec<&[u8]> = words.map(str::as_bytes).collect();
        directives.set_directive(name, &values).unwrap();
    }
    Arc::new(directives.resolve_route_config(process))
}

/// Creates the configuration of a new process that stores up to 1 MiB, and the queue of its event
/// loop.
pub fn config_and_queue(lines: &[&str]) -> (Arc<RouteConfig>, Arc<WokenRequestQueue>) {
    let config = config_of_process(ProcessResources::default(), lines);
    config.process.shared.start_hot_tier(1 << 20, 1 << 20, 1);
    let queue = Arc::new(WokenRequestQueue::default());
    config.process.shared.add_event_loop(queue.clone());
    (config, queue)
}

/// Creates the configuration of a new process that stores up to 1 MiB.
pub fn config(lines: &[&str]) -> Arc<RouteConfig> {
    config_and_queue(lines).0
}

/// Returns the request head of a method without a target.
pub fn request_head<'a>(
    method: &'a [u8],
    fields: &'a [Header<'a>],
) -> RequestHead<'a, impl Iterator<Item = Header<'a>> + Clone> {
    RequestHead {
        method,
        target: b"/",
        fields: fields.iter().copied(),
    }
}

/// Returns a response head that a host forwards unchanged.
pub fn response_head<'a>(
    status: u16,
    content_length: Option<u64>,
    fields: &'a [Header<'a>],
) -> ResponseHead<impl Iterator<Item = Header<'a>> + Clone + 'a> {
    ResponseHead {
        status,
        content_length,
        fields: fields.iter().copied(),
        delimited: true,
        now: 0,
        unbuffered: false,
        subrequest: false,
        coding_allowed: true,
        host_writes_vary: false,
    }
}

/// Starts the exchange of a POST with these headers.
pub fn posted(config: &Arc<RouteConfig>, fields: &[Header<'_>]) -> Exchange {
    let mut exchange = Exchange::new(Arc::clone(config));
    exchange
        .read_request_head(request_head(b"POST", fields))
        .unwrap();
    exchange
}

/// Looks up a request whose client accepts these codings, and returns its driver with the next
/// step.
pub fn look_up(config: &Arc<RouteConfig>, body: &str, accepts: &str) -> (ExchangeDriver, HostStep) {
    let fields = [JSON, (&b"Accept-Encoding"[..], accepts.as_bytes())];
    look_up_with_headers(config, body, &fields)
}

/// Looks up a POST with these headers, and returns its driver with the next step.
pub fn look_up_with_headers(
    config: &Arc<RouteConfig>,
    body: &str,
    fields: &[Header<'_>],
) -> (ExchangeDriver, HostStep) {
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    driver
        .handle_request_head(request_head(b"POST", fields))
        .unwrap();
    driver.required_body(BodyLength::Known(body.len() as u64));
    let lookup_request = LookupRequest {
        now: 1,
        coding_allowed: true,
        ..LookupRequest::default()
    };
    let step = driver
        .lookup_under_policy(
            RequestBodyAvailability::Whole(body.as_bytes()),
            lookup_request,
        )
        .unwrap();
    let step = run_job(&mut driver, step);
    (driver, step)
}

/// Encodes a JSON-RPC call that names a block by its hash.
pub fn call(id: u32, method: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":["0x{:064x}",true]}}"#,
        7
    )
}

/// Returns the body that is sent to the client, in one piece.
pub fn body(exchange: &Exchange) -> Vec<u8> {
    exchange.body_slices().flatten().copied().collect()
}
