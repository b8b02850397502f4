//! Memory that is reserved for the node's responses: for received bytes, never for announced
//! ones.

use std::io::Read;
use std::sync::Arc;

use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{BodyLength, Driver, RequestBody, Step};
use sszip_core::exchange::LookupRequest;
use sszip_core::memory::Budget;
use sszip_core::mode::Mode;

use crate::driven::{client_body, run_job, sent, End};
use crate::setup::{self, request_head, response_head, JSON};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Bytes reserved for a response without received bytes, and for its compressed form.
const FIRST: usize = 2 * 64 * KIB;

fn config(lines: &[&str]) -> (Arc<RouteConfig>, Budget) {
    let config = setup::config(&[&["comp_level 1"], lines].concat());
    let budget = config.process.budget.clone();
    (config, budget)
}

fn requested(config: &Arc<RouteConfig>, method: &[u8]) -> Driver {
    let mut driver = Driver::new(Arc::clone(config));
    let fields = [JSON, (b"Accept-Encoding", b"gzip")];
    driver.request_head(request_head(method, &fields)).unwrap();
    driver
}

/// Reads a head in which the node announces `length` bytes.
fn announced(driver: &mut Driver, length: usize, coding: Option<&[u8]>) -> Step {
    let coding = coding.map(|coding| (&b"Content-Encoding"[..], coding));
    let fields: Vec<_> = [JSON].into_iter().chain(coding).collect();
    let head = response_head(200, Some(length as u64), &fields);
    driver.response_head(head).unwrap()
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
            Step::Buffer
        ));
        assert!(matches!(driver.piece(b"{").unwrap(), Step::Await));
        drivers.push(driver);
    }
    assert!(budget.used() <= 100 * FIRST, "{}", budget.used());
    // memory is left for other responses
    let whole = body(8 * MIB);
    let mut driver = requested(&config, b"GET");
    let step = announced(&mut driver, whole.len(), None);
    let got = client_body(&mut driver, step, whole.chunks(16 * KIB), End::Whole);
    assert!(gunzipped(&got.unwrap().unwrap()) == whole);
    assert_eq!(driver.exchange().unwrap().mode(), Mode::Oneshot);
    drop((driver, drivers));
    assert_eq!(budget.used(), 0);
}

#[test]
fn reserved_memory_grows_with_the_received_bytes() {
    let (config, budget) = config(&["memory 64m"]);
    let whole = body(5 * MIB);
    let mut driver = requested(&config, b"GET");
    assert!(matches!(
        announced(&mut driver, whole.len(), None),
        Step::Buffer
    ));
    let mut received = 0;
    for piece in whole.chunks(10_000) {
        assert!(matches!(driver.piece(piece).unwrap(), Step::Await));
        received += piece.len();
        let most = (4 * received).max(FIRST).min(2 * whole.len());
        assert!(budget.used() <= most, "{} of {received}", budget.used());
    }
    // including the compressed form
    assert_eq!(budget.used(), 2 * whole.len());
    let step = driver.end().unwrap();
    assert!(matches!(run_job(&mut driver, step), Step::Send));
    assert!(gunzipped(&sent(&driver)) == whole);
}

#[test]
fn response_is_streamed_when_its_memory_is_refused() {
    let (config, budget) = config(&["memory 8m"]);
    let whole = body(3 * MIB);
    for taken in [0, 2, 4, 6, 7] {
        let others = budget.reserve(taken * MIB, 8 * MIB).unwrap();
        let mut driver = requested(&config, b"GET");
        let step = announced(&mut driver, whole.len(), None);
        let got = client_body(&mut driver, step, whole.chunks(10_000), End::Whole);
        assert!(gunzipped(&got.unwrap().unwrap()) == whole);
        let expected = match taken {
            0 | 2 => Mode::Oneshot,
            _ => Mode::Stream,
        };
        assert_eq!(driver.exchange().unwrap().mode(), expected, "{taken}");
        drop((driver, others));
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn compressed_response_passes_unchanged_when_its_memory_is_refused() {
    let (config, budget) = config(&["memory 2m"]);
    let mut driver = Driver::new(Arc::clone(&config));
    driver.request_head(request_head(b"GET", &[])).unwrap();
    let whole = body(MIB);
    let others = budget.reserve(MIB, 2 * MIB).unwrap();
    let step = announced(&mut driver, whole.len(), Some(b"gzip"));
    let got = client_body(&mut driver, step, whole.chunks(10_000), End::Whole);
    assert!(got.unwrap().unwrap() == whole);
    assert_eq!(driver.exchange().unwrap().mode(), Mode::Memory);
    drop((driver, others));
    assert_eq!(budget.used(), 0);
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
        .lookup(RequestBody::Whole(batch), lookup_request)
        .unwrap();
    assert!(matches!(step, Step::ForwardRewritten));
    let before = budget.used();
    assert!(matches!(
        announced(&mut driver, 16 * MIB, None),
        Step::Buffer
    ));
    assert!(matches!(driver.piece(b"[").unwrap(), Step::Await));
    assert!(budget.used() <= before + FIRST, "{}", budget.used());
}
