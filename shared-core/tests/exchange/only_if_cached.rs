//! Requests with `Cache-Control: only-if-cached`: they receive a stored response or a 504, and the node
//! receives nothing.

use std::sync::Arc;

use sszip_core::cache::process::wake::EventLoopId;
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{
    BodyLength, ExchangeDriver, HostStep, RequestBodyAvailability, RequiredBody,
};
use sszip_core::exchange::{Header, LookupAction, LookupRequest, RequestHead};
use sszip_core::response_mode::ResponseMode;

use crate::driver_host::{body_to_send, client_body, run_job, store_sent_response, BodyEnd};
use crate::log_splits::Host as SplittingHost;
use crate::setup::{
    config, config_and_queue, config_of_process, posted, request_head, response_head, JSON,
};

const ONLY_IF_CACHED: Header<'static> = (b"Cache-Control", b"max-age=5, Only-If-Cached");

/// A header of a request that bypasses the cache.
const PRIVATE: Header<'static> = (b"Authorization", b"Bearer a");

const CHAIN_ID: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
const CHAIN_ID_RESPONSE: &str = r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#;
const HEAD: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#;
const NOT_CACHED: &str = r#"{"status":504,"detail":"not cached: only-if-cached"}"#;

/// The client of a request: its lookups wait under an id of their own.
struct Client<'a> {
    config: &'a Arc<RouteConfig>,
    waiter: usize,
    now: u64,
}

impl Client<'_> {
    /// Sends a POST, and looks it up.
    fn send(&self, fields: &[Header<'_>], body: &str) -> (ExchangeDriver, HostStep) {
        let mut driver = ExchangeDriver::new(Arc::clone(self.config));
        let fields = [&[JSON][..], fields].concat();
        driver
            .handle_request_head(request_head(b"POST", &fields))
            .unwrap();
        let body = match driver.required_body(BodyLength::Known(body.len() as u64)) {
            RequiredBody::Nothing => return (driver, HostStep::Forward),
            // the host has not read the body
            RequiredBody::LookUp => "",
            RequiredBody::Body | RequiredBody::WholeBody => body,
        };
        let step = self.look_up(&mut driver, body);
        (driver, step)
    }

    fn look_up(&self, driver: &mut ExchangeDriver, body: &str) -> HostStep {
        let lookup = LookupRequest {
            now: self.now,
            coding_allowed: true,
            waiter: Some(EventLoopId::default().waiter_of_request(self.waiter)),
            ..LookupRequest::default()
        };
        let step = driver
            .lookup_under_policy(RequestBodyAvailability::Whole(body.as_bytes()), lookup)
            .unwrap();
        run_job(driver, step)
    }

    /// Sends a POST that is forwarded, and stores the node's response.
    fn fetch(&self, body: &str, response: &str) {
        let (driver, step) = self.send(&[], body);
        assert!(matches!(step, HostStep::Forward), "{step:?}");
        self.store(driver, response);
    }

    /// Sends the node's response to a forwarded request, and stores it.
    fn store(&self, mut driver: ExchangeDriver, response: &str) {
        let head = response_head(200, Some(response.len() as u64), &[JSON]);
        let step = driver.handle_response_head(head).unwrap();
        client_body(&mut driver, step, [response.as_bytes()], BodyEnd::Whole).unwrap();
        store_sent_response(&mut driver, self.now);
    }
}

fn client(config: &Arc<RouteConfig>) -> Client<'_> {
    Client {
        config,
        waiter: 1,
        now: 1,
    }
}

fn header_value(driver: &ExchangeDriver, name: &str) -> String {
    let edits = driver.available_exchange().unwrap().head_edits();
    let mut edits = edits.iter().filter(|edit| edit.name == name);
    let edit = edits.next().unwrap();
    assert!(edits.next().is_none(), "{name}");
    String::from_utf8(edit.value.as_deref().unwrap().to_vec()).unwrap()
}

/// Checks that the client receives the 504 with this detail, and that the request is not counted.
fn check_not_cached(mut driver: ExchangeDriver, step: &HostStep, detail: &str) {
    assert!(matches!(step, HostStep::Respond), "{step:?}");
    assert!(driver.take_background_update().is_none());
    assert!(driver.take_exchange_tally(None).is_none());
    let exchange = driver.available_exchange().unwrap();
    assert_eq!(exchange.stored_response_status(), 504);
    let key = exchange.cache_key().map(const_hex::encode);
    let key = key.map_or(String::new(), |key| format!("; key=\"{key}\""));
    assert_eq!(
        header_value(&driver, "Cache-Status"),
        format!("sszip; detail={detail}{key}")
    );
    assert_eq!(header_value(&driver, "Cache-Control"), "no-store");
    assert_eq!(body_to_send(&driver), NOT_CACHED.as_bytes());
}

/// Checks that the client receives this stored response. Returns its `Cache-Status`.
fn check_hit(driver: &ExchangeDriver, step: &HostStep, body: &str) -> String {
    assert!(matches!(step, HostStep::Respond), "{step:?}");
    let exchange = driver.available_exchange().unwrap();
    assert_eq!(exchange.stored_response_status(), 200);
    assert_eq!(String::from_utf8(body_to_send(driver)).unwrap(), body);
    header_value(driver, "Cache-Status")
}

#[test]
fn stored_response_to_only_if_cached_has_its_key() {
    let config = config(&["cache on"]);
    let client = client(&config);
    client.fetch(CHAIN_ID, CHAIN_ID_RESPONSE);
    let (driver, step) = client.send(&[ONLY_IF_CACHED], CHAIN_ID);
    let status = check_hit(&driver, &step, CHAIN_ID_RESPONSE);
    let key = driver.available_exchange().unwrap().cache_key().unwrap();
    let key = format!("; key=\"{}\"", const_hex::encode(key));
    assert!(status.starts_with("sszip; hit; ttl="), "{status}");
    assert!(status.ends_with(&key), "{status}");
    let (mut driver, step) = client.send(&[], CHAIN_ID);
    let status = check_hit(&driver, &step, CHAIN_ID_RESPONSE);
    assert!(!status.contains("key"), "{status}");
    assert!(driver.take_exchange_tally(None).is_some());
    // a batch has no key of its own
    let batch = format!("[{CHAIN_ID}]");
    let (driver, step) = client.send(&[ONLY_IF_CACHED], &batch);
    let status = check_hit(&driver, &step, &format!("[{CHAIN_ID_RESPONSE}]"));
    assert!(!status.contains("key"), "{status}");
}

#[test]
fn request_that_is_not_cached_leads_no_flight() {
    let config = config(&["cache on"]);
    let client = client(&config);
    let batch = format!("[{CHAIN_ID},{HEAD}]");
    for body in [CHAIN_ID, &batch] {
        let (driver, step) = client.send(&[ONLY_IF_CACHED], body);
        check_not_cached(driver, &step, "miss");
        assert_eq!(config.process.shared.flights.flight_count(), 0);
    }
    client.fetch(CHAIN_ID, CHAIN_ID_RESPONSE);
    // one of its calls is missing
    let (driver, step) = client.send(&[ONLY_IF_CACHED], &batch);
    check_not_cached(driver, &step, "miss");
    assert_eq!(config.process.shared.flights.flight_count(), 0);
}

#[test]
fn reason_is_the_detail_of_a_request_that_is_not_looked_up() {
    let config = config(&["cache on", "cache_max_request 1k"]);
    let client = client(&config);
    client.fetch(CHAIN_ID, CHAIN_ID_RESPONSE);
    let long = format!("{CHAIN_ID}{}", " ".repeat(1 << 10));
    let no_store: Header<'_> = (b"Cache-Control", b"no-store");
    let syncing = CHAIN_ID.replace("eth_chainId", "eth_syncing");
    for (field, body, detail) in [
        (PRIVATE, CHAIN_ID, "credentials"),
        (no_store, HEAD, "request-no-store"),
        (JSON, &*long, "request-length"),
        (JSON, "[", "malformed"),
        (JSON, "", "request-length"),
        (JSON, &*syncing, "rpc-method"),
    ] {
        let (driver, step) = client.send(&[field, ONLY_IF_CACHED], body);
        check_not_cached(driver, &step, detail);
    }
}

#[test]
fn request_of_any_kind_is_answered_without_the_node() {
    let lines = [
        "cache on",
        "query on",
        "ssz on",
        "ssz_request always",
        "ssz_witness rest",
    ];
    let config = config(&lines);
    let octets: Header<'_> = (b"Content-Type", b"application/octet-stream");
    let accept: Header<'_> = (b"Accept", b"application/octet-stream");
    let coding: Header<'_> = (b"Content-Encoding", b"br");
    let upgrade: Header<'_> = (b"Upgrade", b"websocket");
    let witness = CHAIN_ID.replace("eth_chainId", "engine_newPayloadWithWitnessV5");
    let requests: [(&str, &str, &[Header<'_>], &str); 10] = [
        ("QUERY", "/", &[JSON], CHAIN_ID),
        ("POST", "/", &[JSON, accept], CHAIN_ID),
        ("POST", "/", &[JSON, coding], CHAIN_ID),
        ("POST", "/", &[JSON], &witness),
        (
            "POST",
            "/eth/v1/validator/register_validator",
            &[octets],
            "a",
        ),
        ("GET", "/eth/v2/beacon/blocks/head", &[accept], ""),
        ("HEAD", "/eth/v2/beacon/blocks/head", &[], ""),
        ("GET", "/", &[upgrade], ""),
        ("OPTIONS", "/", &[], ""),
        ("DELETE", "/a", &[], ""),
    ];
    for (method, target, fields, body) in requests {
        let mut driver = ExchangeDriver::new(Arc::clone(&config));
        let fields = [fields, &[ONLY_IF_CACHED]].concat();
        let head = RequestHead {
            method: method.as_bytes(),
            target: target.as_bytes(),
            fields: fields.iter().copied(),
        };
        driver.handle_request_head(head).unwrap();
        let need = driver.required_body(BodyLength::Known(body.len() as u64));
        assert_ne!(need, RequiredBody::Nothing, "{method} {target}");
        let body = RequestBodyAvailability::Whole(body.as_bytes());
        let lookup = LookupRequest::default();
        let step = driver.lookup_under_policy(body, lookup).unwrap();
        let step = run_job(&mut driver, step);
        let is_response = matches!(step, HostStep::Respond);
        assert!(is_response, "{method} {target}: {step:?}");
        let status = driver
            .available_exchange()
            .unwrap()
            .stored_response_status();
        assert_eq!(status, 504, "{method} {target}");
    }
}

#[test]
fn route_without_a_cache_or_a_node_handles_only_if_cached_as_any_request() {
    let without_cache = config(&[]);
    let (_, step) = client(&without_cache).send(&[ONLY_IF_CACHED], CHAIN_ID);
    assert!(matches!(step, HostStep::Forward), "{step:?}");
    let config = config(&["cache on"]);
    for field in [JSON, PRIVATE] {
        let mut driver = ExchangeDriver::new(Arc::clone(&config));
        let fields = [JSON, field, ONLY_IF_CACHED];
        driver
            .handle_request_head(request_head(b"POST", &fields))
            .unwrap();
        driver.required_body(BodyLength::Known(CHAIN_ID.len() as u64));
        let lookup = LookupRequest {
            local: true,
            ..LookupRequest::default()
        };
        let body = RequestBodyAvailability::Whole(CHAIN_ID.as_bytes());
        let step = driver.lookup_under_policy(body, lookup).unwrap();
        assert!(matches!(step, HostStep::Forward), "{step:?}");
    }
}

#[test]
fn follower_receives_the_response_of_its_leader_and_hands_over_a_leadership() {
    let (config, woken) = config_and_queue(&["cache on"]);
    let clients = [1, 2, 3].map(|waiter| Client {
        config: &config,
        waiter,
        now: 1,
    });
    let [first, second, third] = &clients;
    let (leader, step) = first.send(&[], CHAIN_ID);
    assert!(matches!(step, HostStep::Forward), "{step:?}");
    let (mut follower, step) = second.send(&[ONLY_IF_CACHED], CHAIN_ID);
    assert!(matches!(step, HostStep::Wait), "{step:?}");
    let (mut last, step) = third.send(&[], CHAIN_ID);
    assert!(matches!(step, HostStep::Wait), "{step:?}");
    drop(leader);
    assert_eq!(woken.next_woken_id(), Some(2));
    let step = second.look_up(&mut follower, CHAIN_ID);
    check_not_cached(follower, &step, "miss");
    assert_eq!(woken.next_woken_id(), Some(3));
    let step = third.look_up(&mut last, CHAIN_ID);
    assert!(matches!(step, HostStep::Forward), "{step:?}");
    let (mut follower, step) = second.send(&[ONLY_IF_CACHED], CHAIN_ID);
    assert!(matches!(step, HostStep::Wait), "{step:?}");
    third.store(last, CHAIN_ID_RESPONSE);
    assert_eq!(woken.next_woken_id(), Some(2));
    let step = second.look_up(&mut follower, CHAIN_ID);
    check_hit(&follower, &step, CHAIN_ID_RESPONSE);
}

#[test]
fn stale_response_is_sent_only_while_another_request_fetches_a_new_one() {
    let lines = [
        "cache on",
        "cache_valid tip 1s",
        "cache_use_stale updating",
        "cache_background_update on",
    ];
    let config = config(&lines);
    client(&config).fetch(HEAD, CHAIN_ID_RESPONSE);
    let late = Client {
        now: 1_500,
        ..client(&config)
    };
    let (driver, step) = late.send(&[ONLY_IF_CACHED], HEAD);
    check_not_cached(driver, &step, "miss");
    let (mut driver, step) = late.send(&[], HEAD);
    check_hit(&driver, &step, CHAIN_ID_RESPONSE);
    let update = driver.take_background_update();
    assert!(update.is_some());
    let (mut driver, step) = late.send(&[ONLY_IF_CACHED], HEAD);
    check_hit(&driver, &step, CHAIN_ID_RESPONSE);
    assert!(driver.take_background_update().is_none());
}

#[test]
fn hits_of_only_if_cached_are_not_verified_at_the_node() {
    let config = config(&["cache on", "verify 100%"]);
    let client = client(&config);
    client.fetch(CHAIN_ID, CHAIN_ID_RESPONSE);
    for body in [CHAIN_ID, &format!("[{CHAIN_ID}]")] {
        let (mut driver, step) = client.send(&[ONLY_IF_CACHED], body);
        assert!(matches!(step, HostStep::Respond), "{step:?}");
        assert!(driver.take_background_update().is_none());
        let (mut driver, _) = client.send(&[], body);
        assert!(driver.take_background_update().is_some());
    }
}

#[test]
fn wide_calls_for_logs_are_not_split() {
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"eth_getLogs","params":[{"fromBlock":"0x0","toBlock":"0xc7"}]}"#;
    for body in [call, &format!("[{call}]")] {
        let host = SplittingHost::new(&["logs_split 10 concurrent=4"]);
        let mut driver = ExchangeDriver::new(Arc::clone(&host.config));
        let fields = [JSON, ONLY_IF_CACHED];
        driver
            .handle_request_head(request_head(b"POST", &fields))
            .unwrap();
        let mut step = host.look_up(&mut driver, body);
        while let HostStep::Wait = step {
            // a batch waits for the owner's reply
            assert!(driver.take_background_update().is_none());
            step = host.look_up(&mut driver, body);
        }
        check_not_cached(driver, &step, "miss");
        assert_eq!(host.config.process.shared.flights.flight_count(), 0);
    }
}

#[test]
fn denied_calls_stay_denied_and_the_allowed_ones_are_not_forwarded() {
    let config = config(&["cache on", "method deny debug_*"]);
    let client = client(&config);
    let denied = r#"{"jsonrpc":"2.0","id":2,"method":"debug_traceCall"}"#;
    let (driver, step) = client.send(&[ONLY_IF_CACHED], denied);
    assert!(matches!(step, HostStep::Respond), "{step:?}");
    let error = String::from_utf8(body_to_send(&driver)).unwrap();
    assert!(error.contains("-32601"), "{error}");
    assert_eq!(
        header_value(&driver, "Cache-Status"),
        "sszip; detail=denied"
    );
    let batch = format!("[{denied},{CHAIN_ID}]");
    for (field, detail) in [(JSON, "miss"), (PRIVATE, "credentials")] {
        let (driver, step) = client.send(&[field, ONLY_IF_CACHED], &batch);
        check_not_cached(driver, &step, detail);
    }
    client.fetch(CHAIN_ID, CHAIN_ID_RESPONSE);
    let (driver, step) = client.send(&[ONLY_IF_CACHED], &batch);
    check_hit(&driver, &step, &format!("[{error},{CHAIN_ID_RESPONSE}]"));
}

/// Returns the configuration of a process that has stored a long response, an array with this first
/// value, and its call. It is stored before its strict check, which a job makes at the first hit.
fn config_with_long_response(first_value: &str) -> (Arc<RouteConfig>, String) {
    let process = ProcessResources::default();
    process.shared.start_hot_tier(32 << 20, 32 << 20, 1);
    let config = config_of_process(process, &["cache on"]);
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByHash","params":["0x{}",true]}}"#,
        "ab".repeat(32)
    );
    let result = "\"9e3779b97f4a7c15\",".repeat(21_000);
    let response = format!(r#"{{"jsonrpc":"2.0","id":1,"result":[{first_value},{result}{{}}]}}"#);
    client(&config).fetch(&call, &response);
    (config, call)
}

#[test]
fn entry_that_a_job_finds_damaged_is_not_fetched_again() {
    let (config, call) = config_with_long_response("01");
    let client = client(&config);
    let (driver, step) = client.send(&[ONLY_IF_CACHED], &call);
    check_not_cached(driver, &step, "malformed");
    let (_, step) = client.send(&[], &call);
    assert!(matches!(step, HostStep::Forward), "{step:?}");
}

#[test]
fn entry_whose_job_panics_is_not_fetched_again() {
    let (config, call) = config_with_long_response("1");
    for (field, expected) in [(ONLY_IF_CACHED, 504), (JSON, 0)] {
        let mut exchange = posted(&config, &[JSON, field]);
        let lookup = LookupRequest {
            body: call.as_bytes(),
            now: 1,
            coding_allowed: true,
            ..LookupRequest::default()
        };
        let found = exchange.lookup_in_cache(lookup).unwrap();
        assert_eq!(found, LookupAction::RespondOffLoop);
        // as after a panic
        exchange
            .send_original_response(ResponseMode::Failed)
            .unwrap();
        assert_eq!(exchange.stored_response_status(), expected);
    }
}

#[test]
fn node_is_not_probed_for_only_if_cached() {
    let config = config(&["cache on", "ssz on"]);
    for (field, is_probed) in [(ONLY_IF_CACHED, false), (JSON, true)] {
        let mut driver = ExchangeDriver::new(Arc::clone(&config));
        let fields: [Header<'_>; 2] = [(b"Accept", b"application/octet-stream"), field];
        let head = RequestHead {
            method: b"GET",
            target: b"/eth/v1/beacon/states/head/proposer_lookahead",
            fields: fields.into_iter(),
        };
        driver.handle_request_head(head).unwrap();
        assert_eq!(driver.take_node_probe(None, 5).is_some(), is_probed);
    }
}
