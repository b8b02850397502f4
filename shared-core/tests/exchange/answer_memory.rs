//! Memory that is reserved for the node's responses: for received bytes, never for announced
//! ones.

use std::io::Read;
use std::sync::Arc;

use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{BodyLength, ExchangeDriver, HostStep, RequestBodyAvailability};
use sszip_core::exchange::LookupRequest;
use sszip_core::memory::MemoryBudget;
use sszip_core::response_mode::ResponseMode;

use crate::driver_host::{body_to_send, client_body, run_job, BodyEnd};
use crate::setup::{self, request_head, response_head, JSON};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Bytes reserved for a response without received bytes, and for its compressed form.
const FIRST: usize = 2 * 64 * KIB;

fn config(lines: &[&str]) -> (Arc<RouteConfig>, MemoryBudget) {
    let config = setup::config(&[&["comp_level 1"], lines].concat());
    let budget = config.process.budget.clone();
    (config, budget)
}

fn requested(config: &Arc<RouteConfig>, method: &[u8]) -> ExchangeDriver {
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    let fields = [JSON, (b"Accept-Encoding", b"gzip")];
    driver
        .handle_request_head(request_head(method, &fields))
        .unwrap();
    driver
}

/// Reads a head in which the node announces `length` bytes.
fn announced(driver: &mut ExchangeDriver, length: usize, coding: Option<&[u8]>) -> HostStep {
    let coding = coding.map(|coding| (&b"Content-Encoding"[..], coding));
    let fields: Vec<_> = [JSON].into_iter().chain(coding).collect();
    let head = response_head(200, Some(length as u64), &fields);
    driver.handle_response_head(head).unwrap()
}

fn body(length: usize) -> Vec<u8> {
    let digits = |n: usize| b"0123456789abcdef"[n * n / 7 % 16];
    (0..length).map(digits).collect()
}

fn gunzipped(coded: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(coded);
    decoder.read_to_end(&mut plain).unwrap();
    plain
}

#[test]
fn announced_lengths_reserve_no_memory() {
    let (config, budget) = config(&["memory 64m"]);
    let mut drivers = Vec::new();
    for _ in 0..100 {
        let mut driver = requested(&config, b"GET");
        assert!(matches!(
            announced(&mut driver, 16 * MIB, None),
            HostStep::Buffer
        ));
        assert!(matches!(
            driver.handle_body_piece(b"{").unwrap(),
            HostStep::Await
        ));
        drivers.push(driver);
    }
    assert!(
        budget.reserved_bytes() <= 100 * FIRST,
        "{}",
        budget.reserved_bytes()
    );
    // memory is left for other responses
    let whole = body(8 * MIB);
    let mut driver = requested(&config, b"GET");
    let step = announced(&mut driver, whole.len(), None);
    let got = client_body(&mut driver, step, whole.chunks(16 * KIB), BodyEnd::Whole);
    assert!(gunzipped(&got.unwrap().unwrap()) == whole);
    assert_eq!(
        driver.available_exchange().unwrap().response_mode(),
        ResponseMode::Oneshot
    );
    drop((driver, drivers));
    assert_eq!(budget.reserved_bytes(), 0);
}

#[test]
fn reserved_memory_grows_with_the_received_bytes() {
    let (config, budget) = config(&["memory 64m"]);
    let whole = body(5 * MIB);
    let mut driver = requested(&config, b"GET");
    assert!(matches!(
        announced(&mut driver, whole.len(), None),
        HostStep::Buffer
    ));
    let mut received = 0;
    for piece in whole.chunks(10_000) {
        assert!(matches!(
            driver.handle_body_piece(piece).unwrap(),
            HostStep::Await
        ));
        received += piece.len();
        let most = (4 * received).max(FIRST).min(2 * whole.len());
        assert!(
            budget.reserved_bytes() <= most,
            "{} of {received}",
            budget.reserved_bytes()
        );
    }
    // including the compressed form
    assert_eq!(budget.reserved_bytes(), 2 * whole.len());
    let step = driver.handle_body_end().unwrap();
    assert!(matches!(run_job(&mut driver, step), HostStep::Send));
    assert!(gunzipped(&body_to_send(&driver)) == whole);
}

#[test]
fn response_is_streamed_when_its_memory_is_refused() {
    let (config, budget) = config(&["memory 8m"]);
    let whole = body(3 * MIB);
    for taken in [0, 2, 4, 6, 7] {
        let others = budget.reserve_bytes(taken * MIB, 8 * MIB).unwrap();
        let mut driver = requested(&config, b"GET");
        let step = announced(&mut driver, whole.len(), None);
        let got = client_body(&mut driver, step, whole.chunks(10_000), BodyEnd::Whole);
        assert!(gunzipped(&got.unwrap().unwrap()) == whole);
        let expected = match taken {
            0 | 2 => ResponseMode::Oneshot,
            _ => ResponseMode::Stream,
        };
        assert_eq!(
            driver.available_exchange().unwrap().response_mode(),
            expected,
            "{taken}"
        );
        drop((driver, others));
        assert_eq!(budget.reserved_bytes(), 0);
    }
}

#[test]
fn compressed_response_passes_unchanged_when_its_memory_is_refused() {
    let (config, budget) = config(&["memory 2m"]);
    let mut driver = ExchangeDriver::new(Arc::clone(&config));
    driver
        .handle_request_head(request_head(b"GET", &[]))
        .unwrap();
    let whole = body(MIB);
    let others = budget.reserve_bytes(MIB, 2 * MIB).unwrap();
    let step = announced(&mut driver, whole.len(), Some(b"gzip"));
    let got = client_body(&mut driver, step, whole.chunks(10_000), BodyEnd::Whole);
    assert!(got.unwrap().unwrap() == whole);
    assert_eq!(
        driver.available_exchange().unwrap().response_mode(),
        ResponseMode::Memory
    );
    drop((driver, others));
    assert_eq!(budget.reserved_bytes(), 0);
}

#[test]
fn announced_length_of_a_split_batch_reserves_no_memory() {
    let (config, budget) = config(&["memory 64m", "cache on", "method deny debug_*"]);
    let mut driver = requested(&config, b"POST");
    let batch = br#"[{"jsonrpc":"2.0","id":1,"method":"debug_x"},{"jsonrpc":"2.0","id":2,"method":"eth_x"}]"#;
    driver.required_body(BodyLength::Known(batch.len() as u64));
    let lookup_request = LookupRequest {
        now: 1,
        coding_allowed: true,
        ..LookupRequest::default()
    };
    let step = driver
        .lookup_under_policy(RequestBodyAvailability::Whole(batch), lookup_request)
        .unwrap();
    assert!(matches!(step, HostStep::ForwardRewritten));
    let before = budget.reserved_bytes();
    assert!(matches!(
        announced(&mut driver, 16 * MIB, None),
        HostStep::Buffer
    ));
    assert!(matches!(
        driver.handle_body_piece(b"[").unwrap(),
        HostStep::Await
    ));
    assert!(
        budget.reserved_bytes() <= before + FIRST,
        "{}",
        budget.reserved_bytes()
    );
}
