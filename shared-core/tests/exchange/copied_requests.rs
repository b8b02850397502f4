//! Memory of the copy that a host makes of a request's body: it is counted until the look-up, and
//! a request without that memory is forwarded or rejected.

use std::sync::Arc;

use sszip_core::cache::reason::Reason;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{
    BodyLength, ExchangeDriver, HostStep, RequestBodyAvailability, RequiredBody,
};
use sszip_core::exchange::{LookupRequest, RequestHead};
use sszip_core::response_mode::ResponseMode;

use crate::driver_host::{body_to_send, run_job};
use crate::setup;

const OCTETS: &str = "application/octet-stream";
const JSON: &str = "application/json";
const SHORT: usize = 64 << 10;

fn config(lines: &[&str]) -> Arc<RouteConfig> {
    setup::config(&[&["ssz on", "ssz_preset mainnet"], lines].concat())
}

/// Returns the driver of a POST whose body the core must read.
fn posted(config: &Arc<RouteConfig>, target: &str, fields: &[(&str, &str)]) -> ExchangeDriver {
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    let fields = fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let head = RequestHead {
        method: b"POST",
        target: target.as_bytes(),
        fields,
    };
    driver.handle_request_head(head).unwrap();
    assert_ne!(
        driver.required_body(BodyLength::Unknown),
        RequiredBody::Nothing
    );
    driver
}

/// Looks up a body that is not contiguous and for which memory is refused.
fn refused(driver: &mut ExchangeDriver, body: &[u8]) -> HostStep {
    assert!(!driver.reserve_body_copy(body.len()));
    let lookup_request = LookupRequest {
        body: &body[..body.len().min(1000)],
        ..LookupRequest::default()
    };
    let step = driver
        .lookup_under_policy(RequestBodyAvailability::Unavailable, lookup_request)
        .unwrap();
    run_job(driver, step)
}

fn call(method: &str, length: usize) -> Vec<u8> {
    let params = "a".repeat(length);
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":["{params}"]}}"#).into_bytes()
}

#[test]
fn copied_request_body_is_counted_until_the_lookup() {
    let config = config(&["cache on", "memory 150k"]);
    let used = || config.process.budget.reserved_bytes();
    let body = call("eth_chainId", 100_000);
    let mut first = posted(&config, "/", &[("Content-Type", JSON)]);
    assert!(first.reserve_body_copy(body.len()));
    assert_eq!(used(), body.len());
    // the memory does not suffice for another copy, unless it is short
    let mut second = posted(&config, "/", &[("Content-Type", JSON)]);
    assert!(!second.reserve_body_copy(body.len()));
    assert!(second.reserve_body_copy(SHORT));
    assert_eq!(used(), body.len());
    let step = first
        .lookup_under_policy(
            RequestBodyAvailability::Whole(&body),
            LookupRequest::default(),
        )
        .unwrap();
    assert!(matches!(step, HostStep::Forward));
    assert_eq!(used(), 0);
    // a request that is never looked up releases its memory too
    let mut third = posted(&config, "/", &[("Content-Type", JSON)]);
    assert!(third.reserve_body_copy(body.len()));
    drop(third);
    assert_eq!(used(), 0);
}

#[test]
fn buffered_request_body_is_bounded_and_counted() {
    let config = config(&["cache on", "cache_max_request 200k", "memory 500k"]);
    let used = || config.process.budget.reserved_bytes();
    let request = || posted(&config, "/", &[("Content-Type", JSON)]);
    let mut first = request();
    // the capacity doubles, up to the maximum length of a look-up
    let unknown = BodyLength::Unknown;
    assert_eq!(first.request_buffer_allowance(1000, unknown), Some(2000));
    assert_eq!(used(), 1000);
    assert_eq!(
        first.request_buffer_allowance(80 << 10, unknown),
        Some(160 << 10)
    );
    assert_eq!(
        first.request_buffer_allowance(160 << 10, unknown),
        Some(200 << 10)
    );
    assert_eq!(used(), 160 << 10);
    assert_eq!(
        first.request_buffer_allowance((200 << 10) + 1, unknown),
        None
    );
    let mut second = request();
    assert_eq!(
        second.request_buffer_allowance(150 << 10, BodyLength::Known(200 << 10)),
        Some(200 << 10)
    );
    assert_eq!(used(), 310 << 10);
    // the copy would leave less memory than it uses itself
    let mut third = request();
    assert_eq!(third.request_buffer_allowance(100 << 10, unknown), None);
    let whys = [Reason::RequestLength, Reason::Memory];
    for (driver, why) in [&mut first, &mut third].into_iter().zip(whys) {
        let step = driver
            .lookup_under_policy(
                RequestBodyAvailability::Unavailable,
                LookupRequest::default(),
            )
            .unwrap();
        assert!(matches!(step, HostStep::Forward));
        assert_eq!(driver.available_exchange().unwrap().cache_reason(), why);
    }
    assert_eq!(used(), 150 << 10);
    let body = call("eth_chainId", 100_000);
    assert!(second
        .lookup_under_policy(
            RequestBodyAvailability::Whole(&body),
            LookupRequest::default()
        )
        .is_ok());
    assert_eq!(used(), 0);
}

#[test]
fn announced_request_lengths_reserve_no_memory() {
    let config = config(&["cache on", "cache_max_request 16m", "memory 16m"]);
    let request = || posted(&config, "/", &[("Content-Type", JSON)]);
    let announced = BodyLength::Known(16 << 20);
    let mut stalled: Vec<ExchangeDriver> = (0..17).map(|_| request()).collect();
    for driver in &mut stalled {
        assert_eq!(
            driver.request_buffer_allowance(0, announced),
            Some(16 << 20)
        );
        assert_eq!(
            driver.request_buffer_allowance(1, announced),
            Some(16 << 20)
        );
    }
    assert_eq!(config.process.budget.reserved_bytes(), 17);
    let mut other = request();
    let length = BodyLength::Known(300_000);
    assert_eq!(
        other.request_buffer_allowance(200_000, length),
        Some(300_000)
    );
    assert!(other.reserve_body_copy(300_000));
    // a body that is too long for a look-up is known by its head
    let mut longer = request();
    assert_eq!(
        longer.request_buffer_allowance(0, BodyLength::Known((16 << 20) + 1)),
        None
    );
}

#[test]
fn requests_in_flight_leave_memory_for_another_request() {
    let config = config(&["cache on", "cache_max_request 16m", "memory 16m"]);
    let request = || posted(&config, "/", &[("Content-Type", JSON)]);
    let mut senders: Vec<ExchangeDriver> = (0..40).map(|_| request()).collect();
    let mut refused = 0;
    for received in (1_u64..=150).map(|piece| piece * 100_000) {
        senders.retain_mut(|driver| {
            let keeps = driver
                .request_buffer_allowance(received, BodyLength::Unknown)
                .is_some();
            refused += usize::from(!keeps);
            keeps
        });
        assert!(config.process.budget.reserved_bytes() <= 16 << 20);
        let mut other = request();
        assert!(
            other
                .request_buffer_allowance(200_000, BodyLength::Unknown)
                .is_some(),
            "{received}"
        );
        assert!(other.reserve_body_copy(200_000), "{received}");
    }
    assert!(refused > 30);
}

#[test]
fn request_that_cannot_be_copied_is_forwarded_unchanged() {
    let config = config(&[
        "cache on",
        "memory 64k",
        "ssz_request always",
        "ssz_witness rest",
    ]);
    let body = call("eth_call", 70_000);
    let json = ("Content-Type", JSON);
    for fields in [&[json][..], &[json, ("Accept", OCTETS)]] {
        let mut driver = posted(&config, "/", fields);
        let step = refused(&mut driver, &body);
        assert!(matches!(step, HostStep::Forward), "{step:?}");
        assert_eq!(
            driver.available_exchange().unwrap().cache_reason(),
            Reason::Memory
        );
    }
    let path = "/eth/v1/validator/register_validator";
    let mut driver = posted(&config, path, &[("Content-Type", OCTETS)]);
    let step = refused(&mut driver, &[b'a'; 180 * 400]);
    assert!(matches!(step, HostStep::Forward), "{step:?}");
    assert!(driver
        .available_exchange()
        .unwrap()
        .upstream_request_body()
        .is_empty());
}

#[test]
fn request_that_the_node_does_not_support_is_rejected_when_it_cannot_be_copied() {
    let route = config(&["memory 64k", "ssz_witness rpc"]);
    let fields = [
        ("Content-Type", OCTETS),
        ("Accept", OCTETS),
        ("Eth-Execution-Version", "amsterdam"),
    ];
    let mut driver = posted(&route, "/engine/v1/payloads/witness", &fields);
    let step = refused(&mut driver, &[0; 70_000]);
    assert!(matches!(step, HostStep::Respond), "{step:?}");
    let exchange = driver.available_exchange().unwrap();
    assert_eq!(
        (exchange.stored_response_status(), exchange.response_mode()),
        (503, ResponseMode::Memory)
    );
    // a call is recognised by the beginning of its body
    let method = config(&["memory 64k", "ssz_witness rest"]);
    let mut driver = posted(&method, "/", &[("Content-Type", JSON)]);
    let step = refused(&mut driver, &call("engine_newPayloadWithWitnessV5", 70_000));
    assert!(matches!(step, HostStep::Respond), "{step:?}");
    let error: serde_json::Value = serde_json::from_slice(&body_to_send(&driver)).unwrap();
    assert_eq!(
        (&error["id"], &error["error"]["code"]),
        (&7.into(), &(-32603).into())
    );
    assert_eq!(
        driver.available_exchange().unwrap().response_mode(),
        ResponseMode::Memory
    );
    // all other bodies are forwarded
    for body in [
        call("engine_newPayloadV5", 70_000),
        [b"[", &call("engine_newPayloadWithWitnessV5", 70_000)[..]].concat(),
        vec![b' '; 70_000],
    ] {
        let mut driver = posted(&method, "/", &[("Content-Type", JSON)]);
        let step = refused(&mut driver, &body);
        assert!(matches!(step, HostStep::Forward), "{step:?}");
    }
}
