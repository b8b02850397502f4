//! The values, rates and views of a status.

use std::time::{Duration, Instant};

use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use serde_json::{json, Value};

use super::draw::draw;
use super::poll::PollEvent;
use super::rates::rates_between;
use super::snapshot::{parse_status, StatusSnapshot, StatusSource};
use super::view_state::ViewState;
use super::views::View;
use crate::args::MethodSort;
use crate::target::Target;
use crate::CommandError;

fn parse_at(at: Instant, json: &Value) -> Result<StatusSnapshot, CommandError> {
    let target: Target = "http://proxy/sszip".parse().unwrap();
    parse_status(&target, at, json)
}

fn parse(json: &Value) -> StatusSnapshot {
    parse_at(Instant::now(), json).unwrap()
}

fn proxy_status(requests: u64, hits: u64) -> Value {
    json!({
        "software": "sszip/0.1.0", "host": "nginx/1.22.1", "encoder": "igzip",
        "now": 1_000_000, "since": 1_000_000 - 176_400,
        "requests": requests,
        "node": {"requests": requests - hits, "calls_saved": hits, "errors": {"timeout": 3}},
        "bytes": {"hits": hits * 1000},
        "cache": {"hit": hits, "miss": requests - hits},
        "microseconds": {"hit": {"p50": 90, "p99": 6100}, "miss": {"p50": null, "p99": null}},
        "history": {
            "interval_seconds": 15.0,
            "requests": [null, 10, 20],
            "microseconds": {
                "hit": {"p50": [null, 80, 70], "p99": [null, 900, 800]},
                "miss": {"p50": [null, null, null], "p99": [null, null, null]},
            },
        },
        "reasons": {"rpc-method": 5, "credentials": 9},
        "methods": [
            {"name": "eth_call", "calls": requests, "hits": hits, "node": 2, "microseconds": 3000},
            {"name": "eth_getLogs", "calls": 4, "hits": 4, "node": 0, "microseconds": 0},
        ],
        "workers": {"cache_memory.entries": 12, "cache_memory.bytes": 3400, "cache.waiting": 1},
        "keys": {"sampled": 16, "samples": 40, "top": [
            {"key": "ab".repeat(32), "method": "eth_call", "samples": 10, "hits": 9},
        ]},
        "owner": owner_status(),
    })
}

fn owner_status() -> Value {
    json!({
        "software": "sszip/0.1.0", "generation": 7, "uptime": 90,
        "processes": ["a", "b"], "leases": 3,
        "memory": {"entries": 5, "bytes": 2_000_000, "capacity": 256_000_000, "evicted": 1},
        "lookups": {"memory": 50, "store": 30, "missed": 20},
        "stores": {"done": 11, "failed": 2},
        "store": {"entries": 100, "bytes": 5_000_000_000_u64, "off": null},
        "chains": [{
            "name": "mainnet", "state": "following", "head": 19_000_000, "head_age": 4.25,
            "final": 18_999_936, "reorgs": 2, "error": null,
        }],
        "fleet": {
            "endpoint": "redis://fleet:6379", "up": false,
            "breakers": {"lookups": "open", "stores": "closed"},
            "lookups": {"hit": 5, "miss": 0},
            "stream": {"age_seconds": 0.5, "owners": null, "pending": 1},
        },
    })
}

#[test]
fn status_of_a_proxy_is_parsed() {
    let status = parse(&proxy_status(100, 60));
    assert_eq!(status.source, StatusSource::Proxy);
    assert_eq!(status.uptime, Some(176_400));
    assert_eq!((status.totals.requests, status.totals.hits), (100, 60));
    assert_eq!((status.totals.misses, status.totals.node_errors), (40, 3));
    assert_eq!(status.latency[0].unwrap().p99, 6100);
    assert_eq!(status.latency[1], None);
    assert_eq!(status.methods[0].node_latency, Some(1500));
    assert_eq!(status.methods[1].node_latency, None);
    let history = status.history.unwrap();
    assert_eq!(history.requests, [None, Some(10), Some(20)]);
    assert_eq!(history.latency[0].unwrap().p50, 70);
    let owner = status.owner.unwrap();
    assert_eq!((owner.generation, owner.processes), (7, 2));
    assert_eq!(owner.chains[0].head, Some(19_000_000));
    assert!(!owner.fleet.unwrap().is_up);
}

#[test]
fn status_of_an_owner_counts_lookups() {
    let status = parse(&owner_status());
    assert_eq!(status.source, StatusSource::Owner);
    assert_eq!((status.totals.requests, status.totals.hits), (100, 80));
    assert_eq!(status.uptime, Some(90));
}

#[test]
fn statistics_of_envoy_are_parsed() {
    let stat = |name: &str, value: u64| json!({"name": name, "value": value});
    let status = parse(&json!({"stats": [
        stat("cluster.sszip_owner.upstream_cx_total", 7),
        stat("http.sszip.downstream_rq_total", 7),
        stat("wasmcustom.sszip.requests", 10),
        stat("wasmcustom.sszip.cache.hit", 6),
        stat("wasmcustom.sszip.cache.miss", 4),
        stat("wasmcustom.sszip.cache.hit_bytes", 900),
        stat("wasmcustom.sszip.cache.reason.rpc-method", 2),
        stat("wasmcustom.sszip.node.requests", 4),
        stat("wasmcustom.sszip.node.error.timeout", 1),
        stat("wasmcustom.sszip.rpc.eth_call", 9),
        stat("wasmcustom.sszip.cache_memory.bytes", 77),
        {"histograms": {}},
    ]}));
    assert_eq!(status.source, StatusSource::EnvoyStats);
    let totals = status.totals;
    assert_eq!((totals.requests, totals.hits, totals.misses), (10, 6, 4));
    assert_eq!((totals.node_requests, totals.node_errors), (4, 1));
    assert_eq!(totals.hit_bytes, 900);
    assert_eq!(status.reasons, [("rpc-method".to_owned(), 2)]);
    assert_eq!((status.methods[0].calls, status.methods[0].hits), (9, None));
    let module = parse(&json!({"stats": [stat("sszip.cache.hit", 1)]}));
    assert_eq!(module.totals.hits, 1);
    let others = json!({"stats": [stat("cluster.sszip.upstream_cx_total", 7)]});
    let error = parse_at(Instant::now(), &others).unwrap_err();
    assert!(error.message().unwrap().contains("metrics_namespace"));
}

#[test]
fn other_json_is_reported_and_odd_members_have_no_value() {
    for other in [json!({}), json!([1]), json!(null), json!({"requests": "5"})] {
        let error = parse_at(Instant::now(), &other).unwrap_err();
        assert!(
            error.message().unwrap().contains("is no status page"),
            "{other}"
        );
    }
    let odd = parse(&json!({
        "requests": 1, "node": {"errors": [1]}, "software": 5, "cache": {"hit": -1},
        "methods": {"a": 1}, "history": {"requests": "no"}, "owner": {"error": "the owner\u{1b}"},
        "keys": {"sampled": "x"}, "microseconds": 7, "now": 1, "since": 2,
        "reasons": {"a\u{1b}[2J": 1, "b": "c"},
    }));
    assert_eq!(odd.totals.hits, 0);
    assert_eq!(odd.uptime, Some(0));
    assert!(odd.methods.is_empty() && odd.history.is_none() && odd.keys.is_none());
    assert_eq!(odd.reasons, [("a\\u{1b}[2J".to_owned(), 1)]);
    assert_eq!(odd.owner_error.as_deref(), Some("the owner\\u{1b}"));
    let rows: Vec<_> = (0..20_000)
        .map(|at| json!({"name": at.to_string()}))
        .collect();
    let many = parse(&json!({"requests": 1, "node": {}, "methods": rows}));
    assert_eq!(many.methods.len(), 10_000);
}

#[test]
fn rates_are_those_between_two_snapshots() {
    let begun = Instant::now();
    let old = parse_at(begun, &proxy_status(100, 60)).unwrap();
    let later = begun + Duration::from_secs(2);
    let new = parse_at(later, &proxy_status(120, 75)).unwrap();
    let rates = rates_between(&old, &new).unwrap();
    assert_eq!((rates.requests, rates.node_requests), (10.0, 2.5));
    assert_eq!(rates.hit_ratio, Some(0.75));
    assert_eq!(rates.hit_bytes, 7500.0);
    assert_eq!(rates.methods["eth_call"], 10.0);
    assert_eq!(rates.reasons["credentials"], 0.0);
    let idle = parse_at(later + Duration::from_secs(1), &proxy_status(120, 75)).unwrap();
    assert_eq!(rates_between(&new, &idle).unwrap().hit_ratio, None);
    // a restart
    assert!(rates_between(&new, &parse_at(later, &proxy_status(120, 75)).unwrap()).is_none());
    let restarted = parse_at(later + Duration::from_secs(1), &proxy_status(5, 1)).unwrap();
    assert!(rates_between(&new, &restarted).is_none());
}

fn state() -> ViewState {
    let begun = Instant::now();
    let first = parse_at(begun, &proxy_status(100, 60)).unwrap();
    let next = parse_at(begun + Duration::from_secs(2), &proxy_status(120, 75)).unwrap();
    let second = Duration::from_secs(1);
    let mut state = ViewState::new("http://proxy/sszip".into(), second, View::Overview, first);
    state
        .apply_event(PollEvent::Snapshot(Box::new(next)))
        .unwrap();
    state
}

fn screen(state: &mut ViewState, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let now = state.snapshot.at + Duration::from_secs(3);
    terminal.draw(|frame| draw(frame, state, now)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y: u16| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..height).map(row).collect()
}

fn press(state: &mut ViewState, code: KeyCode) -> bool {
    state
        .handle_key(KeyEvent::new(code, KeyModifiers::NONE))
        .unwrap()
}

#[test]
fn overview_fits_a_terminal_of_80_columns() {
    let lines = screen(&mut state(), 80, 24);
    assert_eq!(
        lines[0],
        "sszip/0.1.0  nginx/1.22.1  igzip  counting for 2 d 1 h"
    );
    assert_eq!(lines[1], "http://proxy/sszip  every 1s");
    for (line, parts) in [
        (2, ["Requests/s", " 10.0  ", "Hit ratio", " 75.0 %"]),
        (
            3,
            [
                "Upstream requests/s",
                " 2.5  ",
                "Upstream requests saved",
                " 75",
            ],
        ),
        (
            4,
            ["Upstream errors/s", " 0.0  ", "Bytes of hits/s", " 7.50 kB"],
        ),
        (
            5,
            [
                "Latency p50/p99 (hit)",
                "70 us / 800 us",
                "Latency p50/p99 (miss)",
                " -",
            ],
        ),
    ] {
        assert!(
            parts.iter().all(|part| lines[line].contains(part)),
            "{}",
            lines[line]
        );
        assert_eq!(lines[line].chars().count(), 80, "{}", lines[line]);
    }
    assert!(lines[6].contains("last 15 minutes"), "{}", lines[6]);
    assert!(lines[8].starts_with(" ██"), "{}", lines[8]);
    assert_eq!(
        lines[9],
        "[1 Overview]  2 Methods   3 Not cached   4 Store   5 Keys"
    );
    assert!(lines[10].starts_with("Chain"), "{}", lines[10]);
    assert!(lines[11].starts_with("mainnet"), "{}", lines[11]);
    assert!(lines.iter().any(|line| line.ends_with("timeout 3")));
    assert!(lines[23].starts_with("q quit"), "{}", lines[23]);
}

#[test]
fn views_are_selected_by_keys() {
    let mut state = state();
    for (key, expected) in [
        ('2', "eth_call"),
        ('3', "credentials"),
        ('4', "NOT IN USE, redis://fleet:6379"),
        ('5', "25.0 %     90.0 %  abab"),
        ('1', "following"),
    ] {
        assert!(!press(&mut state, KeyCode::Char(key)));
        let lines = screen(&mut state, 80, 24);
        let shows = |line: &String| line.contains(expected);
        assert!(lines.iter().any(shows), "{key}: {lines:#?}");
    }
    press(&mut state, KeyCode::Tab);
    assert_eq!(state.view, View::Methods);
    press(&mut state, KeyCode::Char('?'));
    let lines = screen(&mut state, 80, 24);
    assert!(lines.iter().any(|line| line.contains("pause and continue")));
    assert!(!press(&mut state, KeyCode::Esc));
    assert!(press(&mut state, KeyCode::Esc));
    assert!(press(&mut state, KeyCode::Char('q')));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    let end = state.handle_key(interrupt);
    assert!(matches!(end, Err(CommandError::Interrupted(libc::SIGINT))));
}

#[test]
fn methods_are_sorted_and_scrolled() {
    let mut state = state();
    press(&mut state, KeyCode::Char('2'));
    let first = |state: &mut ViewState| state.view_lines(5)[1].clone();
    assert!(first(&mut state).starts_with("eth_call"));
    for expected in [
        MethodSort::Rate,
        MethodSort::Hits,
        MethodSort::Misses,
        MethodSort::Latency,
    ] {
        press(&mut state, KeyCode::Char('s'));
        assert_eq!(state.sort, expected);
    }
    for row in 0..30 {
        let mut method = state.snapshot.methods[1].clone();
        method.name = format!("method_{row}");
        state.snapshot.methods.push(method);
    }
    state.sort = MethodSort::Calls;
    for _ in 0..20 {
        press(&mut state, KeyCode::PageDown);
    }
    let lines = screen(&mut state, 80, 24);
    assert!(lines[10].starts_with("Method "), "{}", lines[10]);
    assert!(lines[22].starts_with("method_9"), "{}", lines[22]);
    press(&mut state, KeyCode::Up);
    assert!(screen(&mut state, 80, 24)[22].starts_with("method_8"));
    press(&mut state, KeyCode::Home);
    assert!(first(&mut state).starts_with("eth_call"));
}

#[test]
fn small_and_large_terminals_are_drawn() {
    let mut state = state();
    let small = screen(&mut state, 79, 24);
    assert_eq!(
        small[0],
        "the terminal is too small (79x24); at least 80x16"
    );
    assert_eq!(screen(&mut state, 20, 5)[0], "the terminal is too");
    for view in View::ALL {
        state.view = view;
        for (width, height) in [(80, 16), (200, 50)] {
            let lines = screen(&mut state, width, height);
            assert!(lines[usize::from(height) - 1].starts_with("q quit"));
        }
    }
}

#[test]
fn failures_pauses_and_restarts_are_shown() {
    let mut state = state();
    let before = state.snapshot.at;
    state
        .apply_event(PollEvent::Failure("refused".into()))
        .unwrap();
    assert_eq!(
        screen(&mut state, 80, 24)[1],
        "NO RESPONSE FOR 3 s: refused"
    );
    let next = || PollEvent::Snapshot(Box::new(parse(&proxy_status(200, 100))));
    press(&mut state, KeyCode::Char('p'));
    state.apply_event(next()).unwrap();
    assert_eq!(state.snapshot.at, before);
    assert_eq!(screen(&mut state, 80, 24)[1], "PAUSED for 3 s");
    press(&mut state, KeyCode::Char('p'));
    let restarted = parse_at(before + Duration::from_secs(1), &proxy_status(2, 1)).unwrap();
    state
        .apply_event(PollEvent::Snapshot(Box::new(restarted)))
        .unwrap();
    let lines = screen(&mut state, 80, 24);
    assert!(lines[1].contains("restarted"), "{}", lines[1]);
    assert!(lines[2].contains("  -  "), "{}", lines[2]);
    let end = PollEvent::End(CommandError::Interrupted(libc::SIGTERM));
    assert!(state.apply_event(end).is_err());
}
