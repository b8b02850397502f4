//! Tests that metrics are reported in each format.

use std::sync::Barrier;

use serde_json::{json, Value};

use super::metrics_board::MetricsBoard;
use super::report::StatusPageReport;
use super::StatusReportFormat;
use crate::cache::process::upstream_errors::UpstreamErrorKind;
use crate::cache::process::{ProcessCacheState, ProcessResources};
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::metrics::{BatchCallOutcome, ExchangeMetrics, ExchangeMetricsTally, GAUGES};
use crate::request_coding::SupportedContentCoding;
use crate::response_mode::ResponseMode;
use crate::time_constants::history_interval;

/// Milliseconds of the monotonic clock at which the board starts.
const NOW: u64 = 77_000;

fn new_test_board() -> MetricsBoard {
    let numbers = (0..MetricsBoard::LENGTH)
        .map(|_| Default::default())
        .collect::<Vec<_>>();
    MetricsBoard::init_shared_board(Vec::leak(numbers), 5, NOW).unwrap()
}

fn answered_exchange(method: &[u8], status: CacheStatus) -> ExchangeMetrics<'_> {
    let is_forwarded = status == CacheStatus::Miss;
    ExchangeMetrics {
        mode: if is_forwarded {
            ResponseMode::Oneshot
        } else {
            ResponseMode::Hit
        },
        is_compressed: true,
        coding: Some(SupportedContentCoding::Gzip),
        received: 30_000,
        sent: 6_000,
        status,
        reason: Reason::None,
        method,
        calls: None,
        hits: 0,
        each: &[],
        is_forwarded,
        node_status: is_forwarded.then_some(200),
        node_elapsed: is_forwarded.then_some(3000),
        is_cut: false,
        elapsed: Some(if is_forwarded { 4000 } else { 40 }),
        age: (!is_forwarded).then_some(30_000),
        key: None,
    }
}

fn report(board: MetricsBoard, owner: Option<Value>) -> StatusPageReport {
    StatusPageReport {
        host: "test/1".into(),
        now: 10,
        sums: board.sum_over_workers(),
        history: board.interval_history(NOW),
        keys: board.sampled_keys(),
        has_owner: owner.is_some(),
        owner,
    }
}

fn board_with_counts() -> MetricsBoard {
    let board = new_test_board();
    for worker in 0..100 {
        board.add_exchange(
            worker,
            &ExchangeMetricsTally::from_exchange(&answered_exchange(
                b"eth_call",
                CacheStatus::Miss,
            )),
            NOW,
        );
        for _ in 0..3 {
            board.add_exchange(
                worker,
                &ExchangeMetricsTally::from_exchange(&answered_exchange(
                    b"eth_call",
                    CacheStatus::Hit,
                )),
                NOW,
            );
        }
        let mut tally =
            ExchangeMetricsTally::from_exchange(&answered_exchange(b"\"><b>\n", CacheStatus::Miss));
        tally.add_eviction_count(2);
        board.add_exchange(worker, &tally, NOW);
        let each = [
            BatchCallOutcome::new(b"eth_chainId", true),
            BatchCallOutcome::new(b"eth_call", false),
        ];
        board.add_exchange(
            worker,
            &ExchangeMetricsTally::from_exchange(&ExchangeMetrics {
                calls: Some(2),
                hits: 1,
                each: &each,
                ..answered_exchange(b"", CacheStatus::Miss)
            }),
            NOW,
        );
        board.set_gauges(worker, [1; 8]);
    }
    board
}

#[test]
fn report_sums_the_counters_of_all_workers() {
    let written: Value =
        serde_json::from_str(&report(board_with_counts(), None).to_json()).unwrap();
    assert_eq!(written["requests"], 600);
    assert_eq!(written["hits"], 300);
    assert_eq!(written["hit_ratio"], 0.5);
    assert_eq!(written["node"]["requests"], 300);
    assert_eq!(written["node"]["calls_saved"], 400);
    assert_eq!(
        written["methods"],
        json!([
            {"name": "eth_call", "calls": 500, "hits": 300, "node": 100, "microseconds": 300_000},
            {"name": "eth_chainId", "calls": 100, "hits": 100, "node": 0, "microseconds": 0},
            {"name": "other", "calls": 100, "hits": 0, "node": 100, "microseconds": 300_000},
        ])
    );
    // 300 calls of eth_call at 3 ms, and 100 calls at the mean of all misses
    assert_eq!(written["node"]["seconds_saved"], 1.3);
    assert_eq!(written["node"]["statuses"], json!({"2xx": 300}));
    assert_eq!(written["microseconds"]["hit"]["count"], 300);
    assert_eq!(written["microseconds"]["miss"]["sum"], 1_200_000);
    assert_eq!(written["workers"]["memory.bytes"], 64);
    assert_eq!(written["evicted"], 200);
    let ages = &written["hit_age_seconds"];
    assert_eq!(
        (&ages["count"], &ages["sum"]),
        (&json!(300), &json!(9000.0))
    );
    let half = ages["p50"].as_f64().unwrap();
    assert!((25.6..=38.4).contains(&half), "{half}");
    assert_eq!(written["owner"], Value::Null);
}

/// Counts one exchange, which the node has answered or the cache.
fn count_test_exchange(board: MetricsBoard, worker: usize, status: CacheStatus, now: u64) {
    let exchange = answered_exchange(b"eth_call", status);
    board.add_exchange(worker, &ExchangeMetricsTally::from_exchange(&exchange), now);
}

#[test]
fn history_has_the_rates_hit_ratio_and_latency_of_all_workers_by_interval() {
    use CacheStatus::{Hit, Miss};
    let (board, every) = (new_test_board(), history_interval());
    // the first interval, and one after two intervals without requests; a hundred workers
    for (now, hits) in [(NOW, 1), (NOW + 3 * every, 3)] {
        for worker in 0..100 {
            count_test_exchange(board, worker, Miss, now);
            for _ in 0..hits {
                count_test_exchange(board, worker, Hit, now + every / 2);
            }
        }
    }
    let history = |now| {
        let report = StatusPageReport {
            history: board.interval_history(now),
            ..report(board, None)
        };
        let written: Value = serde_json::from_str(&report.to_json()).unwrap();
        written["history"].clone()
    };
    let last = |series: &Value, number: usize| {
        let series = series.as_array().unwrap();
        assert_eq!(series.len(), 60);
        let (unknown, known) = series.split_at(60 - number);
        assert!(unknown.iter().all(Value::is_null), "{series:?}");
        Value::from(known)
    };
    let written = history(NOW + 4 * every);
    assert_eq!(written["interval_seconds"], 15.0);
    assert_eq!(last(&written["requests"], 4), json!([200, 0, 0, 400]));
    assert_eq!(last(&written["node_requests"], 4), json!([100, 0, 0, 100]));
    // no ratio and no latency without requests
    let ratios = last(&written["hit_ratio"], 4);
    assert_eq!(ratios, json!([0.5, null, null, 0.75]));
    for (kind, [lowest, highest]) in [("hit", [32, 48]), ("miss", [3072, 4096])] {
        for part in ["p50", "p99"] {
            let latency = last(&written["microseconds"][kind][part], 4);
            assert_eq!((&latency[1], &latency[2]), (&Value::Null, &Value::Null));
            for interval in [0, 3] {
                let latency = latency[interval].as_u64().unwrap();
                assert!((lowest..=highest).contains(&latency), "{kind} {latency}");
            }
        }
    }
    // the present interval is not complete
    let written = history(NOW + 4 * every - 1);
    assert_eq!(last(&written["requests"], 3), json!([200, 0, 0]));
    // an hour later
    let written = history(NOW + 3_600_000);
    assert_eq!(written["requests"], json!(vec![0; 60]));
}

#[test]
fn report_has_the_most_frequent_keys_of_single_requests() {
    let board = new_test_board();
    let keys = [[1; 32], [2; 32], [3; 32]];
    for number in 0..8_000 {
        let (key, method, status): (_, &[u8], _) = match number % 8 {
            0 => (&keys[1], b"", CacheStatus::Miss),
            _ => (&keys[0], b"eth_call", CacheStatus::Hit),
        };
        let single = ExchangeMetrics {
            key: Some(key),
            ..answered_exchange(method, status)
        };
        // a batch, and a request whose response is never stored
        let batch = ExchangeMetrics {
            key: Some(&keys[2]),
            calls: Some(2),
            ..answered_exchange(b"", CacheStatus::Miss)
        };
        let others = answered_exchange(b"eth_syncing", CacheStatus::Miss);
        for answered in [single, batch, others] {
            let tally = ExchangeMetricsTally::from_exchange(&answered);
            board.add_exchange(number % 2, &tally, NOW);
        }
    }
    let written: Value = serde_json::from_str(&report(board, None).to_json()).unwrap();
    let written = &written["keys"];
    assert_eq!(written["sampled"], 16);
    let top = written["top"].as_array().unwrap();
    let known: Vec<_> = top.iter().map(|it| (&it["key"], &it["method"])).collect();
    let [first, second] = [1_u8, 2].map(|byte| json!(const_hex::encode([byte; 32])));
    let (call, get) = (json!("eth_call"), json!("GET"));
    assert_eq!(known, [(&first, &call), (&second, &get)]);
    let counts = |name: &str| [0, 1].map(|at| top[at][name].as_u64().unwrap());
    let [calls, gets] = counts("samples");
    assert_eq!(written["samples"], calls + gets);
    assert!((350..650).contains(&(calls + gets)), "{calls} {gets}");
    assert!((5 * gets..9 * gets).contains(&calls), "{calls} {gets}");
    assert_eq!(counts("hits"), [calls, 0]);
}

#[test]
fn history_starts_again_if_another_version_wrote_the_board() {
    let (board, every) = (new_test_board(), history_interval());
    count_test_exchange(board, 0, CacheStatus::Miss, NOW + every);
    let known = |board: MetricsBoard, now| board.interval_history(now).iter().flatten().count();
    let again = MetricsBoard::init_shared_board(board.board_numbers(), 7, NOW + 2 * every).unwrap();
    assert_eq!(known(again, NOW + 2 * every), 2);
    board.board_numbers()[0].store(1, std::sync::atomic::Ordering::Relaxed);
    let reset = MetricsBoard::init_shared_board(board.board_numbers(), 7, NOW + 2 * every).unwrap();
    assert_eq!(known(reset, NOW + 2 * every), 0);
    assert_eq!(known(reset, NOW + 3 * every), 1);
    let sums = reset.interval_history(NOW + 3 * every);
    let last = sums.last().unwrap().unwrap();
    assert_eq!(last.requests, 0);
}

#[test]
fn samples_of_concurrent_workers_lose_no_request() {
    let (board, every) = (new_test_board(), history_interval());
    // two workers that have a part each, and two that share one
    let workers = [0, 1, 70, 71];
    let barrier = Barrier::new(workers.len());
    std::thread::scope(|scope| {
        for worker in workers {
            let barrier = &barrier;
            scope.spawn(move || {
                for interval in 0..50 {
                    barrier.wait();
                    for _ in 0..40 {
                        count_test_exchange(
                            board,
                            worker,
                            CacheStatus::Miss,
                            NOW + interval * every,
                        );
                    }
                }
            });
        }
    });
    let history = board.interval_history(NOW + 50 * every);
    let counts: Vec<_> = history.iter().flatten().map(|it| it.requests).collect();
    assert_eq!((counts.len(), counts.iter().sum()), (50, 50 * 4 * 40u64));
}

#[test]
fn request_gauges_are_set_under_their_names() {
    let (board, process) = (new_test_board(), ProcessResources::default());
    let _first = process.budget.reserve_bytes(700, 1_000).unwrap();
    let _second = process.budget.reserve_bytes(7, 1_000).unwrap();
    let _transcoded = process.transcodings.reserve_bytes(3, 8).unwrap();
    board.set_request_gauges(1, &process);
    let shown = GAUGES.iter().zip(board.sum_over_workers().gauges);
    let shown: Vec<_> = shown.filter(|(_, now)| *now > 0).collect();
    let expected = [
        (&"memory.bytes", 707),
        (&"memory.held", 2),
        (&"ssz.running", 3),
    ];
    assert_eq!(shown, expected);
    assert_eq!(GAUGES[GAUGES.len() - 1], "cache.waiting");
}

#[test]
fn counts_are_kept_unless_another_version_wrote_them() {
    let board = board_with_counts();
    let before = board.sum_over_workers();
    let again = MetricsBoard::init_shared_board(board.board_numbers(), 7, NOW).unwrap();
    assert_eq!(again.sum_over_workers().counters, before.counters);
    // written by another version
    board.board_numbers()[0].store(1, std::sync::atomic::Ordering::Relaxed);
    let reset = MetricsBoard::init_shared_board(board.board_numbers(), 7, NOW).unwrap();
    assert!(reset
        .sum_over_workers()
        .counters
        .iter()
        .all(|count| *count == 0));
    assert_eq!((before.since, reset.sum_over_workers().since), (5, 7));
}

#[test]
fn openmetrics_contains_counters_with_bounded_labels() {
    let owner = json!({
        "leases": 3,
        "memory": {"entries": 5, "bytes": 6, "capacity": 7, "evicted": 4},
        "store": {"entries": 1, "bytes": 2, "memory": 0, "busy": 0, "off": null},
        "chains": [
            {"name": "a\"b\\c\nd", "state": "following", "head": 9, "final": null, "reorgs": 2},
        ],
    });
    let text = StatusReportFormat::OpenMetrics
        .format_status_report(|| report(board_with_counts(), Some(owner)));
    for line in [
        r#"sszip_rpc_calls_total{method="eth_call"} 500"#,
        r#"sszip_rpc_calls_total{method="other"} 100"#,
        r#"sszip_rpc_hits_total{method="eth_chainId"} 100"#,
        r#"sszip_cache_requests_total{status="hit"} 300"#,
        r#"sszip_node_rpc_requests_total{method="eth_call"} 100"#,
        r#"sszip_node_rpc_seconds_total{method="eth_call"} 0.3"#,
        r#"sszip_node_responses_total{status="2xx"} 300"#,
        "sszip_requests_total 600",
        "sszip_compressed_bytes_total 1800000",
        r#"sszip_request_duration_seconds_bucket{le="0.000048",cache="hit"} 300"#,
        r#"sszip_request_duration_seconds_count{cache="miss"} 300"#,
        "sszip_memory_bytes 64.0",
        r#"sszip_hit_age_seconds_bucket{le="25.6"} 0"#,
        r#"sszip_hit_age_seconds_bucket{le="38.4"} 300"#,
        "sszip_hit_age_seconds_sum 9000.0",
        "sszip_cache_memory_evictions_total 200",
        "sszip_owner_memory_evictions_total 4",
        "sszip_owner_leases 3.0",
        r#"sszip_chain_head{chain="a\"b\\c\nd"} 9.0"#,
        r#"sszip_chain_reorgs_total{chain="a\"b\\c\nd"} 2"#,
        "sszip_owner_up 1.0",
    ] {
        assert!(text.lines().any(|known| known == line), "{line} in {text}");
    }
    assert!(text.ends_with("# EOF\n") && !text.contains("<b>"));
    assert!(!text.contains("sszip_chain_final{"));
}

#[test]
fn openmetrics_contains_the_fleet_of_an_owner() {
    let fleet = json!({
        "up": true,
        "lookups": {"hit": 5, "miss": 2},
        "lookup_seconds": {
            "count": 7, "sum": 0.5,
            "buckets": [{"le": 0.001, "count": 4}, {"le": 0.01, "count": 6}],
        },
        "rejected": {"tag": 1},
        "not_servable": {"not_final": 3},
        "stores": {"done": 4},
        "leases": {"leased": 11},
        "queue_bytes": 8,
        "bytes": {"received": 10, "sent": 9},
        "stream": {
            "age_seconds": 0.2, "fences": 1, "purges": {"fleet": 2}, "unreadable": 4, "pending": 6,
            "owners": 3, "position": 7,
        },
    });
    let of = |owner| StatusReportFormat::OpenMetrics.format_owner_report(owner);
    let text = of(json!({ "fleet": fleet }));
    for line in [
        "sszip_fleet_up 1.0",
        r#"sszip_fleet_lookups_total{result="hit"} 5"#,
        r#"sszip_fleet_lookup_seconds_bucket{le="0.001"} 4"#,
        r#"sszip_fleet_lookup_seconds_bucket{le="0.01"} 6"#,
        r#"sszip_fleet_lookup_seconds_bucket{le="+Inf"} 7"#,
        "sszip_fleet_lookup_seconds_count 7",
        "sszip_fleet_lookup_seconds_sum 0.5",
        r#"sszip_fleet_rejected_total{reason="tag"} 1"#,
        r#"sszip_fleet_not_servable_total{reason="not_final"} 3"#,
        r#"sszip_fleet_stores_total{result="done"} 4"#,
        r#"sszip_fleet_leases_total{result="leased"} 11"#,
        "sszip_fleet_queue_bytes 8.0",
        r#"sszip_fleet_bytes_total{direction="received"} 10"#,
        "sszip_fleet_stream_age_seconds 0.2",
        "sszip_fleet_fences_total 1",
        "sszip_fleet_unreadable_records_total 4",
        "sszip_fleet_pending_purges 6.0",
        r#"sszip_fleet_purges_total{origin="fleet"} 2"#,
        "sszip_fleet_owners 3.0",
        "sszip_fleet_position 7.0",
    ] {
        assert!(text.lines().any(|known| known == line), "{line} in {text}");
    }
    assert!(!of(json!({ "fleet": null })).contains("fleet"));
    // the dashboard, the alerts and the page name metrics that exist
    for (name, file) in [
        (
            "dashboard",
            include_str!("../../../configs/grafana/sszip.json"),
        ),
        (
            "alerts",
            include_str!("../../../configs/prometheus/alerts.yml"),
        ),
        ("page", include_str!("../../../docs/fleet.md")),
    ] {
        let mut count = 0;
        for rest in file.split("sszip_fleet_").skip(1) {
            let is_name = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'_';
            let length = rest.bytes().take_while(|byte| is_name(byte)).count();
            let metric = format!("sszip_fleet_{}", &rest[..length]);
            // "sszip_fleet_*"
            assert!(length == 0 || text.contains(&metric), "{name}: {metric}");
            count += usize::from(length > 0);
        }
        assert!(count > 2, "{name}");
    }
}

#[test]
fn format_is_read_from_the_query() {
    assert_eq!(
        StatusReportFormat::from_format_query(b""),
        Ok(StatusReportFormat::Page)
    );
    assert_eq!(
        StatusReportFormat::from_format_query(b"format=json"),
        Ok(StatusReportFormat::Json)
    );
    assert_eq!(
        StatusReportFormat::from_format_query(b"format=prometheus"),
        Ok(StatusReportFormat::OpenMetrics)
    );
    let error = StatusReportFormat::from_format_query(b"format=xml").unwrap_err();
    assert_eq!(error, "format must be html, json or prometheus");
    assert!(StatusReportFormat::from_format_query(b"a=b")
        .unwrap_err()
        .contains("\"a\""));
    let page = StatusReportFormat::Page
        .format_status_report(|| unreachable!("the page asks for it itself"));
    assert!(page.contains("format=json") && !page.contains("http"));
}

#[test]
fn zstd_responses_and_zstd_hits_are_counted_apart() {
    let board = new_test_board();
    let codings = [
        Some(SupportedContentCoding::Zstd),
        Some(SupportedContentCoding::Gzip),
        None,
    ];
    for coding in codings {
        for status in [CacheStatus::Miss, CacheStatus::Hit, CacheStatus::Stale] {
            let answered = ExchangeMetrics {
                coding,
                is_compressed: coding.is_some(),
                ..answered_exchange(b"eth_call", status)
            };
            board.add_exchange(0, &ExchangeMetricsTally::from_exchange(&answered), NOW);
        }
    }
    let written: Value = serde_json::from_str(&report(board, None).to_json()).unwrap();
    assert_eq!(written["zstd"], json!({"responses": 1, "hits": 2}));
    assert_eq!(written["cache"], json!({"miss": 3, "hit": 3, "stale": 3}));
    let text = StatusReportFormat::OpenMetrics.format_status_report(|| report(board, None));
    for line in ["sszip_zstd_responses_total 1", "sszip_zstd_hits_total 2"] {
        assert!(text.lines().any(|known| known == line), "{line} in {text}");
    }
}

#[test]
fn upstream_failures_are_counted_by_kind_and_not_as_responses() {
    let board = new_test_board();
    let shared = ProcessCacheState::default();
    for kind in [
        UpstreamErrorKind::Timeout,
        UpstreamErrorKind::RpcMethodNotFound,
    ] {
        shared.upstream_errors.count_event(kind as usize);
    }
    let failed = ExchangeMetrics {
        node_status: None,
        is_cut: false,
        ..answered_exchange(b"eth_call", CacheStatus::Miss)
    };
    let mut tally = ExchangeMetricsTally::from_exchange(&failed);
    tally.add_counts_outside_exchanges(&shared);
    board.add_exchange(0, &tally, NOW);
    for (status, is_cut) in [(503, false), (200, true)] {
        let answered = ExchangeMetrics {
            node_status: Some(status),
            is_cut,
            ..answered_exchange(b"eth_call", CacheStatus::Miss)
        };
        board.add_exchange(1, &ExchangeMetricsTally::from_exchange(&answered), NOW);
    }
    assert!(ExchangeMetricsTally::take_process_tally(&shared).is_none());
    let written: Value = serde_json::from_str(&report(board, None).to_json()).unwrap();
    assert_eq!(
        (&written["requests"], &written["node"]["requests"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(written["node"]["statuses"], json!({"2xx": 1, "5xx": 1}));
    let errors = json!({"timeout": 1, "rpc-method-not-found": 1, "cut": 1});
    assert_eq!(written["node"]["errors"], errors);
    assert_eq!(written["methods"][0]["node"], 1);
    let text = StatusReportFormat::OpenMetrics.format_status_report(|| report(board, None));
    assert!(text.contains("sszip_node_errors_total{kind=\"rpc-method-not-found\"} 1\n"));
}
