//! Peak memory of decompression: a body that claims or has more than `memory` bytes never makes
//! the process allocate more than that, in any framing and content coding.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::io::Write;
use std::sync::Arc;

use sszip_core::allocator::faulty::peak_allocation;
use sszip_core::allocator::ReserveAllocator;
use sszip_core::cache::process::wake::WokenRequestQueue;
use sszip_core::config::{RouteConfig, RouteConfigBlock};
use sszip_core::exchange::drive::{BodyLength, ExchangeDriver, HostStep, RequestBodyAvailability};
use sszip_core::exchange::{LookupRequest, RequestHead, ResponseHead};
use sszip_core::memory::MemoryBudget;

#[path = "support/driver_host.rs"]
mod driver_host;
use driver_host::{client_body, run_job, store_sent_response, BodyEnd};

#[global_allocator]
static ALLOCATOR: ReserveAllocator = ReserveAllocator;

const MIB: usize = 1 << 20;
const MEMORY: usize = 8 * MIB;
/// Bytes for encoders, tables and all other memory that the budget does not count.
const SLACK: usize = 4 * MIB;
/// Length of a decompression bomb's content in bytes, longer than both together.
const BOMB: usize = 24 * MIB;

fn config(lines: &[&str]) -> Arc<RouteConfig> {
    let mut directives = RouteConfigBlock::default();
    let all = [
        "enable on",
        "cache on",
        "memory 8m",
        "max_oneshot 1g",
        "ssz on",
    ];
    for line in all.iter().chain(lines) {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        let values: Vec<&[u8]> = words.map(str::as_bytes).collect();
        directives.set_directive(name, &values).unwrap();
    }
    let config = directives.resolve_route_config(MemoryBudget::new());
    config.process.shared.start_hot_tier(1 << 20, 1 << 20, 1);
    config
        .process
        .shared
        .add_event_loop(Arc::new(WokenRequestQueue::default()));
    Arc::new(config)
}

/// Writes `before`, `zeros` zero digits and `after`.
fn write_bomb(to: &mut impl Write, before: &[u8], zeros: usize, after: &[u8]) {
    to.write_all(before).unwrap();
    let piece = vec![b'0'; MIB];
    for _ in 0..zeros / MIB {
        to.write_all(&piece).unwrap();
    }
    to.write_all(after).unwrap();
}

/// Compresses `before`, `zeros` zero digits and `after` to one gzip member.
fn gzip(before: &[u8], zeros: usize, after: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    write_bomb(&mut coder, before, zeros, after);
    coder.finish().unwrap()
}

/// Compresses `before`, `zeros` zero digits and `after` to one zstd frame, which declares its
/// content size if `is_sized`.
fn zstd(before: &[u8], zeros: usize, after: &[u8], is_sized: bool) -> Vec<u8> {
    let mut coder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    if is_sized {
        let length = (before.len() + zeros + after.len()) as u64;
        coder.set_pledged_src_size(Some(length)).unwrap();
    }
    write_bomb(&mut coder, before, zeros, after);
    coder.finish().unwrap()
}

const ANSWER_BEGINS: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":"0x"#;
const CALL_BEGINS: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"eth_getCode","params":["0x"#;
const CALL: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"eth_getTransactionByHash","params":["0x0000000000000000000000000000000000000000000000000000000000000001"]}"#;

/// Returns decompression bombs as responses, with their codings: one member or frame, several, and
/// trailers with a wrong length.
fn decompression_bombs() -> Vec<(&'static str, Vec<u8>)> {
    let one = gzip(ANSWER_BEGINS, BOMB, b"\"}");
    let several = [gzip(ANSWER_BEGINS, BOMB, b""), gzip(b"\"}", 0, b"")].concat();
    let claims = |bomb: &[u8], length: u32| {
        let (body, _) = bomb.split_last_chunk::<4>().unwrap();
        [body, &length.to_le_bytes()].concat()
    };
    let more = claims(&one, u32::MAX);
    let less = claims(&one, 100);
    let sized = zstd(ANSWER_BEGINS, BOMB, b"\"}", true);
    let frames = [
        zstd(ANSWER_BEGINS, BOMB, b"", false),
        zstd(b"\"}", 0, b"", true),
    ];
    let gzip = [one, several, more, less].map(|bomb| ("gzip", bomb));
    let zstd = [sized, frames.concat()].map(|bomb| ("zstd", bomb));
    gzip.into_iter().chain(zstd).collect()
}

/// Runs an exchange of a client that accepts `accept`, with `answer` as the node's response in this
/// coding.
fn run_exchange(
    config: &Arc<RouteConfig>,
    accept: &str,
    request: &[u8],
    coded: &[u8],
    (coding, answer): (&str, &[u8]),
) {
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    let text = std::str::from_utf8(coded).unwrap();
    let fields = [
        ("Content-Type", "application/json"),
        ("Accept-Encoding", accept),
        ("Content-Encoding", text),
    ];
    let fields = fields.iter().filter(|(_, value)| !value.is_empty());
    let head = RequestHead {
        method: b"POST",
        target: b"/",
        fields: fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())),
    };
    driver.handle_request_head(head).unwrap();
    driver.required_body(BodyLength::Known(request.len() as u64));
    let lookup_request = LookupRequest {
        coding_allowed: true,
        ..LookupRequest::default()
    };
    let step = driver
        .lookup_under_policy(RequestBodyAvailability::Whole(request), lookup_request)
        .unwrap();
    if !matches!(
        run_job(&mut driver, step),
        HostStep::Forward | HostStep::ForwardRewritten
    ) {
        return;
    }
    let fields: [(&[u8], &[u8]); 2] = [
        (b"Content-Type", b"application/json"),
        (b"Content-Encoding", coding.as_bytes()),
    ];
    let step = driver.handle_response_head(ResponseHead {
        status: 200,
        content_length: Some(answer.len() as u64),
        fields: fields.into_iter(),
        delimited: true,
        unbuffered: false,
        subrequest: false,
        coding_allowed: true,
        host_writes_vary: false,
        now: 1,
    });
    // any outcome is accepted
    let _ = client_body(
        &mut driver,
        step.unwrap(),
        answer.chunks(64 << 10),
        BodyEnd::Whole,
    );
    store_sent_response(&mut driver, 1);
    drop(driver);
    assert_eq!(config.process.budget.reserved_bytes(), 0);
}

#[test]
fn compressed_responses_never_allocate_more_than_the_memory_limit() {
    let bombs = decompression_bombs();
    for (bomb, (coding, answer)) in bombs.iter().enumerate() {
        for line in ["cache_max_entry 1m", "cache_max_entry 512m"] {
            for accept in ["gzip", "zstd", "identity", ""] {
                let answer = (*coding, &answer[..]);
                let run = || run_exchange(&config(&[line]), accept, CALL, b"", answer);
                // encoders are created once per thread
                run();
                let peak = peak_allocation(run);
                assert!(
                    peak <= MEMORY + SLACK,
                    "bomb {bomb}, {line}, accepts {accept:?}: {peak} bytes"
                );
            }
        }
    }
}

#[test]
fn compressed_requests_never_allocate_more_than_the_memory_limit() {
    let bombs = [
        ("gzip", gzip(CALL_BEGINS, BOMB, b"\"]}")),
        ("zstd", zstd(CALL_BEGINS, BOMB, b"\"]}", false)),
    ];
    for (coding, request) in &bombs {
        for line in ["cache_max_request 16k", "cache_max_request 64m"] {
            let none = gzip(b"", 0, b"");
            let coding = coding.as_bytes();
            let answer = ("gzip", &none[..]);
            let run = || run_exchange(&config(&[line]), "gzip", request, coding, answer);
            run();
            let peak = peak_allocation(run);
            assert!(peak <= MEMORY + SLACK, "{line}: {peak} bytes");
        }
    }
}
