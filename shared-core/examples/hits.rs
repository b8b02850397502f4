//! Repeated hits or misses, for an instruction count: the cost of an operator's methods, rules,
//! limits and response limits per request.
//!
//! valgrind --tool=callgrind target/release/hits SETTINGS CALLS TIMES [OUTCOME]
//!
//! SETTINGS is a name of the list below. CALLS is 1 for a single call, or the number of calls in
//! a batch. OUTCOME is `hit`, `counted` (a hit that is also counted in a metrics board, as hosts do
//! for the status page), `small` (a hit of a wallet's responses: an eighth of 1.5 KB, the others
//! of 60 to 130 bytes) or `miss` (CALLS single calls with the node's responses, which are stored).
//! The cost of one request is the difference between two runs divided by the difference of their
//! TIMES.

#![allow(clippy::unwrap_used)] // a failure ends the program

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;

use sszip_core::cache::process::ProcessResources;
use sszip_core::config::{RouteConfig, RouteConfigBlock};
use sszip_core::exchange::drive::{BodyLength, ExchangeDriver, HostStep, RequestBodyAvailability};
use sszip_core::exchange::{LookupRequest, RequestHead, ResponseHead, ResponseHeadAction};
use sszip_core::status::metrics_board::MetricsBoard;

/// Settings of an operator in addition to `cache on`, separated by `;`.
const SETTINGS: &[(&str, &str)] = &[
    ("none", ""),
    // a row for another method, and one for the requested method
    ("row", "cache_method acme_getTrade block=p[1]"),
    ("own-row", "cache_method eth_getBlockByHash class=immutable"),
    ("rule", "method deny debug_*"),
    ("allow", "method allow eth_*"),
    ("limit", "method limit=100 eth_getBlockByHash"),
    ("limit-of-another", "method limit=100 eth_getLogs"),
    ("answer", "max_answer eth_getBlockByHash 1m"),
    ("answer-of-another", "max_answer eth_getLogs 1m"),
    ("verify", "verify 0.0001%"),
    // the client accepts gzip only
    ("zstd", "zstd on"),
];

/// Number of method rows of the setting `rows`.
const ROWS: usize = 20;

fn main() {
    let mut words = std::env::args().skip(1);
    let (name, calls, times) = (words.next(), words.next(), words.next());
    let name = name.unwrap_or_default();
    let settings = match name.as_str() {
        "rows" => {
            let row = |n| format!("cache_method acme_method{n} block=p[1]");
            (0..ROWS).map(row).collect::<Vec<_>>().join(";")
        }
        name => {
            let mut known = SETTINGS.iter().filter(|(known, _)| *known == name);
            known.next().unwrap().1.to_owned()
        }
    };
    let calls = calls.unwrap().parse().unwrap();
    let times = times.unwrap().parse().unwrap();
    let config = config(&settings);
    let outcome = words.next();
    if outcome.as_deref() == Some("miss") {
        return store_responses(&config, 1..=calls * times, repeated_digits);
    }
    let board = (outcome.as_deref() == Some("counted")).then(metrics_board);
    let value = match outcome.as_deref() {
        Some("small") => wallet_value,
        _ => repeated_digits,
    };
    store_responses(&config, 1..=calls, value);
    let body = body(calls);
    let mut sent = 0;
    for _ in 0..times {
        sent += hit(&config, black_box(body.as_bytes()), board);
    }
    println!("{} bytes a response", sent / times.max(1));
}

fn metrics_board() -> MetricsBoard {
    let numbers = (0..MetricsBoard::LENGTH).map(|_| AtomicU64::default());
    MetricsBoard::init_shared_board(Vec::leak(numbers.collect()), 0, 0).unwrap()
}

fn config(settings: &str) -> Arc<RouteConfig> {
    let mut directives = RouteConfigBlock::default();
    let all = "enable on;cache on;cache_namespace main";
    for line in all
        .split(';')
        .chain(settings.split(';'))
        .filter(|line| !line.is_empty())
    {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        let values: Vec<&[u8]> = words.map(str::as_bytes).collect();
        directives.set_directive(name, &values).unwrap();
    }
    let process = ProcessResources::default();
    process.shared.start_hot_tier(64 << 20, 1 << 20, 1);
    Arc::new(directives.resolve_route_config(process))
}

fn call(n: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{n},"method":"eth_getBlockByHash","params":["0x{n:064x}",false]}}"#
    )
}

fn body(calls: usize) -> String {
    match calls {
        1 => call(1),
        calls => format!("[{}]", (1..=calls).map(call).collect::<Vec<_>>().join(",")),
    }
}

fn lookup_call(config: &Arc<RouteConfig>, body: &[u8]) -> (ExchangeDriver, HostStep) {
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    let fields: [(&[u8], &[u8]); 2] = [
        (b"Content-Type", b"application/json"),
        (b"Accept-Encoding", b"gzip"),
    ];
    let head = RequestHead {
        method: b"POST",
        target: b"/",
        fields: fields.into_iter(),
    };
    driver.handle_request_head(head).unwrap();
    driver.required_body(BodyLength::Known(body.len() as u64));
    let lookup = LookupRequest {
        now: 0,
        coding_allowed: true,
        ..LookupRequest::default()
    };
    let step = driver
        .lookup_under_policy(RequestBodyAvailability::Whole(body), lookup)
        .unwrap();
    (driver, step)
}

/// Returns a string of 1,600 digits, which compress to a few bytes.
fn repeated_digits(_: usize) -> String {
    format!("\"{}\"", "0123456789abcdef".repeat(100))
}

/// Returns the value of a wallet's response: an amount, a word, or every eighth a transaction.
fn wallet_value(n: usize) -> String {
    let hash = |salt: usize| {
        let word = (n * 64 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{word:016x}")
    };
    let words = |salt: usize, count: usize| -> String {
        let words = (salt..salt + count).map(|salt| format!("{:0>64}", hash(salt)));
        words.collect()
    };
    match n % 8 {
        0 => {
            let names = ["blockHash", "from", "gas", "hash", "nonce", "r", "s", "to"];
            let member = |(at, name)| format!("\"{name}\":\"0x{}{}\"", hash(at), hash(at + 8));
            let members: Vec<String> = names.iter().enumerate().map(member).collect();
            format!(
                "{{{},\"input\":\"0x{}\"}}",
                members.join(","),
                words(16, 16)
            )
        }
        1..4 => format!("\"0x{}\"", hash(0)),
        _ => format!("\"0x{}\"", words(0, 1)),
    }
}

/// Stores a response to each call; `value` returns a part of it.
fn store_responses(
    config: &Arc<RouteConfig>,
    calls: RangeInclusive<usize>,
    value: fn(usize) -> String,
) {
    for n in calls {
        let (mut driver, step) = lookup_call(config, call(n).as_bytes());
        assert!(matches!(step, HostStep::Forward));
        let fields: [(&[u8], &[u8]); 1] = [(b"Content-Type", b"application/json")];
        let filler = value(n);
        let response =
            format!(r#"{{"jsonrpc":"2.0","id":{n},"result":{{"number":"0x1","x":{filler}}}}}"#);
        let exchange = driver.available_exchange_mut().unwrap();
        let head = ResponseHead {
            status: 200,
            content_length: Some(response.len() as u64),
            fields: fields.into_iter(),
            delimited: true,
            unbuffered: false,
            subrequest: false,
            coding_allowed: false,
            host_writes_vary: false,
            now: 0,
        };
        assert_eq!(
            exchange.evaluate_response_head(head).unwrap(),
            ResponseHeadAction::Tee
        );
        exchange.observe_passed_piece(response.as_bytes()).unwrap();
        let mut fill = exchange.take_complete_fill().unwrap();
        fill.build_collected_entries();
        fill.store_and_publish_entries(0);
    }
}

fn hit(config: &Arc<RouteConfig>, body: &[u8], board: Option<MetricsBoard>) -> usize {
    let (mut driver, step) = lookup_call(config, body);
    assert!(matches!(step, HostStep::Respond));
    let exchange = driver.available_exchange().unwrap();
    let sent = exchange.body_slices().map(<[u8]>::len).sum();
    if let Some(board) = board {
        let tally = driver.take_exchange_tally(Some(100)).unwrap();
        board.add_exchange(0, &tally, black_box(1_000));
    }
    sent
}
