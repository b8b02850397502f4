//! Resident memory of the process after more responses than any pool could hide. This is a test
//! binary of its own, because other tests would change the figures.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::sync::Arc;

use sszip_core::config::RouteConfigBlock;
use sszip_core::exchange::{Exchange, RequestHead, ResponseHead};
use sszip_core::memory::MemoryBudget;
use sszip_core::response_mode::ResponseMode;

#[path = "support/tier.rs"]
mod tier;
use tier::times;

/// Resident memory of this process in bytes, from proc(5).
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn respond(config: &Arc<sszip_core::config::RouteConfig>, body: &[u8]) {
    let mut exchange = Exchange::new(Arc::clone(config));
    exchange
        .read_request_head(RequestHead {
            method: b"GET",
            target: b"/",
            fields: [(&b"Accept-Encoding"[..], &b"gzip"[..])].into_iter(),
        })
        .unwrap();
    exchange
        .evaluate_response_head(ResponseHead {
            status: 200,
            content_length: Some(body.len() as u64),
            fields: [(&b"Content-Type"[..], &b"application/json"[..])].into_iter(),
            delimited: true,
            unbuffered: false,
            subrequest: false,
            coding_allowed: true,
            host_writes_vary: false,
            now: 0,
        })
        .unwrap();
    exchange.buffer_body_piece(body).unwrap();
    exchange.complete_buffered_body().unwrap();
    exchange.run_pending_stages().unwrap();
    assert_eq!(exchange.response_mode(), ResponseMode::Oneshot);
}

#[test]
fn resident_memory_is_stable_after_hundreds_of_thousands_of_responses() {
    let budget = MemoryBudget::new();
    let configs: Vec<_> = [b"1", b"6", b"9"]
        .iter()
        .map(|level| {
            let mut directives = RouteConfigBlock::default();
            directives.set_directive("enable", &[b"on"]).unwrap();
            directives
                .set_directive("comp_level", &[&level[..]])
                .unwrap();
            Arc::new(directives.resolve_route_config(budget.clone()))
        })
        .collect();
    let body = [&[b'{'; 700][..], &[b'}'; 500]].concat();

    // threads that start and end, as a pool's do: their compressors are freed with them
    let round = |responses: usize| {
        std::thread::scope(|scope| {
            for config in &configs[1..] {
                scope.spawn(|| (0..responses / 100).for_each(|_| respond(config, &body)));
            }
        });
        (0..responses).for_each(|_| respond(&configs[0], &body));
    };
    round(10_000);
    let before = resident();
    // a million, or 300,000: a leak of eight bytes per response would exceed the limit
    (0..times(3, 10)).for_each(|_| round(100_000));
    let grown = resident().saturating_sub(before);
    assert!(grown < 2 << 20, "{grown} bytes more after the responses");
    assert_eq!(budget.reserved_bytes(), 0);
}
