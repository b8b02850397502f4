//! Clients of a process with several event loops, which request the same entries, leave and purge
//! in any order.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use serde_json::Value;
use sszip_core::config::{RouteConfig, RouteConfigBlock};

use super::driver_host::BodyEnd;
use super::event_loops::{EventLoopsHost, HostOptions};
use super::fields::{decode_body, joined_header_values};
use super::host::{ClientResponse, HostRequest, NodeFunction, NodeResponse};
use super::owner::OwnerReplies;

/// Number of different calls.
const THINGS: u64 = 6;

/// `Accept-Encoding` of clients that receive identity, gzip and zstd.
const ACCEPTED: [&str; 3] = ["identity", "gzip", "gzip, zstd"];

/// The configuration of a route that compresses most responses of [`VersionedNode`].
pub fn config(host: &EventLoopsHost) -> Arc<RouteConfig> {
    let mut directives = RouteConfigBlock::default();
    for (name, value) in [
        ("enable", "on"),
        ("cache", "on"),
        ("zstd", "on"),
        ("min_length", "64"),
    ] {
        directives.set_directive(name, &[value.as_bytes()]).unwrap();
    }
    Arc::new(directives.resolve_route_config(host.process.clone()))
}

/// A simulated node, whose responses all change when its version does.
#[derive(Default)]
struct VersionedNode {
    version: AtomicU64,
    requests: AtomicUsize,
}

impl VersionedNode {
    /// Returns the response to a call or to a batch.
    fn respond_to_calls(&self, body: &[u8]) -> Value {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let version = self.version.load(Ordering::SeqCst);
        let answer = |call: &Value| {
            let hash = call["params"][0].as_str().unwrap();
            let result = format!("{hash}{version:08x}");
            serde_json::json!({"jsonrpc": "2.0", "id": call["id"], "result": result})
        };
        match serde_json::from_slice(body).unwrap() {
            Value::Array(calls) => calls.iter().map(answer).collect(),
            call => answer(&call),
        }
    }
}

fn call(thing: u64, id: usize) -> Value {
    serde_json::json!({
        "jsonrpc": "2.0", "id": id, "method": "eth_getBlockByHash",
        "params": [format!("0x{thing:064x}"), true],
    })
}

pub fn request(
    config: &Arc<RouteConfig>,
    calls: &Value,
    accept: &str,
    at_node: NodeFunction,
    purged: &Arc<AtomicU64>,
) -> HostRequest {
    HostRequest {
        config: Arc::clone(config),
        method: "POST".into(),
        target: "/".into(),
        headers: vec![
            ("Content-Type".into(), "application/json".into()),
            ("Accept-Encoding".into(), accept.into()),
        ],
        body: calls.to_string().into(),
        coding_allowed: true,
        place: b"0".to_vec(),
        now: 1000,
        at_node,
        purged: Arc::clone(purged),
    }
}

pub fn node_response(status: u16, answer: &Value) -> NodeResponse {
    let body = answer.to_string().into_bytes();
    NodeResponse {
        status,
        headers: vec![("Content-Type".into(), "application/json".into())],
        content_length: Some(body.len() as u64),
        delimited: true,
        ends: vec![body.len()],
        body,
        end: BodyEnd::Whole,
    }
}

/// Checks the response to the calls: it has one result per call, in their order, with the id and
/// the hash of the call, and of a version that is not older than `oldest`.
fn check_client_response(calls: &Value, answer: &ClientResponse, oldest: u64) {
    // a stored result is not older than a purge that was in effect at its look-up
    let oldest = oldest.max(answer.purged);
    let coding = joined_header_values(&answer.fields, "Content-Encoding");
    let body = decode_body(coding.as_deref(), &answer.body, true).unwrap();
    let answers: Value = serde_json::from_slice(&body).unwrap();
    let pairs: Vec<(&Value, &Value)> = match (calls, &answers) {
        (Value::Array(calls), Value::Array(answers)) => {
            assert_eq!(calls.len(), answers.len());
            calls.iter().zip(answers).collect()
        }
        one => vec![one],
    };
    for (call, answer) in pairs {
        assert_eq!(call["id"], answer["id"]);
        let result = answer["result"].as_str().unwrap();
        let (hash, version) = result.split_at(66);
        assert_eq!(call["params"][0], hash);
        let version = u64::from_str_radix(version, 16).unwrap();
        assert!(
            version >= oldest,
            "of {version}, though {oldest} was purged"
        );
    }
}

/// Hosts with and without a hot tier and an owner.
const HOSTS: [HostOptions; 4] = [
    HostOptions {
        event_loops: 4,
        memory: Some(1 << 20),
        owner: Some(OwnerReplies::Direct),
    },
    HostOptions {
        event_loops: 4,
        memory: Some(1 << 20),
        owner: Some(OwnerReplies::Later),
    },
    HostOptions {
        event_loops: 4,
        memory: None,
        owner: Some(OwnerReplies::Later),
    },
    HostOptions {
        event_loops: 4,
        memory: Some(1 << 20),
        owner: None,
    },
];

#[test]
fn coalesced_requests_on_all_event_loops_reach_the_node_once() {
    for has in HOSTS {
        for _ in 0..20 {
            let host = EventLoopsHost::new(has);
            let (config, chain) = (config(&host), Arc::new(VersionedNode::default()));
            let calls = call(1, 7);
            let clients: Vec<_> = (0..40)
                .map(|number| {
                    let chain = Arc::clone(&chain);
                    let at_node =
                        move |body: &[u8]| Some(node_response(200, &chain.respond_to_calls(body)));
                    host.start_request(request(
                        &config,
                        &calls,
                        ACCEPTED[number % ACCEPTED.len()],
                        Box::new(at_node),
                        &Arc::default(),
                    ))
                })
                .collect();
            for client in clients {
                check_client_response(&calls, &client.answer().unwrap(), 0);
            }
            assert_eq!(chain.requests.load(Ordering::Relaxed), 1);
        }
    }
}

/// A generator of pseudorandom numbers from a seed.
struct Random(u64);

impl Random {
    fn number_below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Runs the consecutive requests of one client.
fn run_client(
    host: &EventLoopsHost,
    config: &Arc<RouteConfig>,
    chain: &Arc<VersionedNode>,
    purged: &Arc<AtomicU64>,
    seed: u64,
) {
    let mut random = Random(seed);
    for number in 0..120 {
        let calls = match random.number_below(3) {
            0 => (0..2 + random.number_below(4))
                .map(|n| call(random.number_below(THINGS), number * 10 + n as usize))
                .collect(),
            _ => call(random.number_below(THINGS), number),
        };
        let fails = random.number_below(12) == 0;
        let at_node = {
            let chain = Arc::clone(chain);
            move |body: &[u8]| {
                let answer = chain.respond_to_calls(body);
                std::thread::yield_now();
                Some(node_response(if fails { 503 } else { 200 }, &answer))
            }
        };
        let oldest = purged.load(Ordering::SeqCst);
        let accept = ACCEPTED[random.number_below(ACCEPTED.len() as u64) as usize];
        let at_node = Box::new(at_node);
        let pending = host.start_request(request(config, &calls, accept, at_node, purged));
        match (random.number_below(40), &host.owner) {
            (0, Some(owner)) => {
                let version = chain.version.fetch_add(1, Ordering::SeqCst) + 1;
                owner.owned.purge_at_owner();
                purged.fetch_max(version, Ordering::SeqCst);
            }
            (1..=3, _) => {
                pending.abort();
                continue;
            }
            _ => {}
        }
        let answer = pending.answer().unwrap();
        if answer.status == 200 {
            check_client_response(&calls, &answer, oldest);
        } else {
            assert!(fails && answer.forwarded.is_some(), "{}", answer.status);
        }
    }
}

/// Each client is woken, and receives its own response, not older than a purge that was in effect
/// at its request; no flight and no memory is left.
#[test]
fn clients_on_any_event_loop_receive_their_own_responses() {
    for has in HOSTS {
        for seed in 0..6 {
            let host = EventLoopsHost::new(has);
            let process = host.process.clone();
            let (config, chain) = (config(&host), Arc::new(VersionedNode::default()));
            let purged = Arc::new(AtomicU64::new(0));
            std::thread::scope(|scope| {
                for thread in 0..8 {
                    let (host, config, chain, purged) = (&host, &config, &chain, &purged);
                    scope.spawn(move || run_client(host, config, chain, purged, seed * 8 + thread));
                }
            });
            drop(host);
            assert!(process.shared.flights.flight_count() == 0, "{seed}");
            assert_eq!(process.budget.reserved_bytes(), 0);
        }
    }
}
