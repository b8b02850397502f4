//! Properties of each exchange in which a format is converted.
//!
//! The exchange does not panic. JSON never has the media type of SSZ, or the reverse; a declared
//! length is the length of the body; a converted body is what the reference walkers make of the
//! original, and an unconverted one is the original. A valid value is converted. The cache sends
//! what was sent before. All memory is released.

mod bodies;
mod cached_repeat;
mod node;
mod read;
mod requests;
mod responses;
mod results;

use std::sync::atomic::AtomicU64;
use std::sync::Arc;

use sszip_core::cache::process::ProcessResources;
use sszip_core::config::{RouteConfig, RouteConfigBlock};

use super::fields::Fields;
use super::host::{ClientResponse, HostRequest, NodeResponse, SequentialHost, TestHost};
use super::reference::FuzzedChoices;

const OCTETS: &str = "application/octet-stream";
const JSON: &str = "application/json";
const VERSION: &str = "Eth-Consensus-Version";
/// The content codings that clients accept.
const CODINGS: [&str; 4] = ["", "gzip", "zstd", "gzip, zstd"];

/// Runs one chosen kind of exchange.
pub fn check_exchange(choices: &mut FuzzedChoices<'_>) {
    match choices.below(5) {
        0 | 1 => responses::check_response(choices),
        2 => bodies::check_submission(choices),
        3 => results::check_result(choices),
        _ => cached_repeat::check_repeated_request(choices),
    }
}

fn chosen<T: Copy>(choices: &mut FuzzedChoices<'_>, all: &[T]) -> T {
    all[choices.below(all.len())]
}

fn field(name: &str, value: impl Into<String>) -> (String, String) {
    (name.into(), value.into())
}

/// A route, with or without small limits.
fn place(
    choices: &mut FuzzedChoices<'_>,
    is_roomy: bool,
    more: &[(&str, &str)],
) -> (ProcessResources, Arc<RouteConfig>) {
    let process = ProcessResources::default();
    let mut directives = RouteConfigBlock::default();
    let min_length = chosen(choices, &["0", "1", "300"]);
    let mut set = |name: &str, value: &str| {
        directives.set_directive(name, &[value.as_bytes()]).unwrap();
    };
    for (name, value) in [
        ("enable", "on"),
        ("ssz", "on"),
        ("ssz_preset", "minimal"),
        ("min_length", min_length),
        ("zstd", "on"),
    ] {
        set(name, value);
    }
    if !is_roomy {
        set("ssz_hold", chosen(choices, &["0", "10", "400", "4m"]));
        set("ssz_max_size", chosen(choices, &["10", "500", "4m"]));
        set("memory", chosen(choices, &["1k", "8k", "64k", "256m"]));
        set("max_oneshot", chosen(choices, &["1k", "16m"]));
    }
    for (name, value) in more {
        set(name, value);
    }
    let config = Arc::new(directives.resolve_route_config(process.clone()));
    (process, config)
}

fn send(
    config: &Arc<RouteConfig>,
    method: &str,
    target: &str,
    headers: Fields,
    body: Vec<u8>,
    node: NodeResponse,
) -> ClientResponse {
    let request = HostRequest {
        config: Arc::clone(config),
        method: method.into(),
        target: target.into(),
        headers,
        body,
        coding_allowed: true,
        place: b"here".to_vec(),
        now: 1000,
        at_node: Box::new(move |_| Some(node)),
        purged: Arc::new(AtomicU64::new(0)),
    };
    SequentialHost.request(request).unwrap()
}
