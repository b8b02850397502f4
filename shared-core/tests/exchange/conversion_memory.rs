//! Memory of a response during its conversion to SSZ: received bytes are reserved, announced
//! ones are not, and refused memory loses no response.

use std::sync::Arc;

use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::ExchangeDriver;
use sszip_core::memory::MemoryReservation;
use sszip_core::response_mode::ResponseMode;

use crate::ssz_concurrency::{config, rest, start_conversion, value, EITHER, MANY, OCTETS};

const MEMORY: usize = 64 << 20;
const HOLD: usize = 1 << 20;

fn config_with_memory(accepts_at_once: &str) -> Arc<RouteConfig> {
    config(accepts_at_once, &["memory 64m", "ssz_hold 1m"])
}

/// Reserves all of the memory but `free` bytes.
fn use_all_but(config: &RouteConfig, free: usize) -> MemoryReservation {
    let used = MEMORY - config.process.budget.reserved_bytes() - free;
    config.process.budget.reserve_bytes(used, MEMORY).unwrap()
}

fn send(driver: &mut ExchangeDriver, body: &[u8]) {
    for piece in body.chunks(16 << 10) {
        driver.handle_body_piece(piece).unwrap();
    }
}

#[test]
fn announced_length_reserves_no_memory() {
    for accept in [EITHER, OCTETS] {
        let config = config_with_memory("100");
        let in_flight: Vec<_> = (0..50)
            .map(|_| {
                let (mut driver, _) = start_conversion(&config, accept, Some(40 << 20));
                send(&mut driver, b"{");
                driver
            })
            .collect();
        assert!(
            config.process.budget.reserved_bytes() <= 50 * (130 << 10),
            "{accept}"
        );
        drop(in_flight);
        assert_eq!(config.process.budget.reserved_bytes(), 0);
    }
}

#[test]
fn conversion_longer_than_the_memory_is_not_started() {
    let config = config_with_memory("8");
    let (driver, _) = start_conversion(&config, EITHER, Some(200 << 20));
    assert_eq!(
        driver.available_exchange().unwrap().response_mode(),
        ResponseMode::Memory
    );
}

#[test]
fn response_passes_unchanged_if_memory_is_refused_while_the_original_is_buffered() {
    let json = value(MANY);
    // before the first piece, while the original is buffered, and when all of it would be needed
    for sent in [0, HOLD / 2, HOLD - (100 << 10)] {
        let config = config_with_memory("8");
        let (mut driver, step) = start_conversion(&config, EITHER, Some(json.len()));
        send(&mut driver, &json[..sent]);
        let others = use_all_but(&config, 1000);
        let (mode, status, got) = rest(&mut driver, step, &json[sent..]);
        assert_eq!((mode, status), (ResponseMode::Memory, 0), "{sent}");
        assert!(got == json, "{sent}");
        drop((driver, others));
        assert_eq!(config.process.budget.reserved_bytes(), 0);
    }
}

#[test]
fn announced_length_is_reserved_before_the_original_is_dropped() {
    let json = value(MANY);
    let config = config_with_memory("8");
    let (mut driver, step) = start_conversion(&config, EITHER, Some(json.len()));
    send(&mut driver, &json[..HOLD + (32 << 10)]);
    assert!(config.process.budget.reserved_bytes() >= json.len() / 2);
    let others = use_all_but(&config, 0);
    let (mode, _, got) = rest(&mut driver, step, &json[HOLD + (32 << 10)..]);
    assert_eq!((mode, got.len()), (ResponseMode::Ssz, 16 * MANY));
    drop((driver, others));
    assert_eq!(config.process.budget.reserved_bytes(), 0);
}

#[test]
fn client_that_accepts_only_ssz_receives_503_if_memory_is_refused() {
    let json = value(MANY);
    let config = config_with_memory("8");
    let (mut driver, step) = start_conversion(&config, OCTETS, Some(json.len()));
    send(&mut driver, &json[..HOLD]);
    let others = use_all_but(&config, 0);
    let (mode, status, _) = rest(&mut driver, step, &json[HOLD..]);
    assert_eq!((mode, status), (ResponseMode::Memory, 503));
    drop((driver, others));
    assert_eq!(config.process.budget.reserved_bytes(), 0);
}
