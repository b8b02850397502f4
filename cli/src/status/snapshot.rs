//! The state of a proxy or an owner, from its JSON (docs/observability.md). Members that are absent,
//! or have another type than documented, have no value.

use std::time::Instant;

use serde_json::Value;

use super::envoy_stats::report_of_envoy_stats;
use super::json_members::{parse_counts, rows_of, text_of};
use super::owner_snapshot::{parse_owner, OwnerSnapshot};
use crate::target::Target;
use crate::CommandError;

/// The kind of the server that has sent a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusSource {
    /// nginx, or Envoy with the module: its status page.
    Proxy,
    /// Envoy's statistics. They have no latencies, no history and no hits by method.
    EnvoyStats,
    /// An owner.
    Owner,
}

/// The state of a proxy or an owner at one time. Texts are printable.
#[derive(Clone, Debug)]
pub struct StatusSnapshot {
    /// Time of the response.
    pub at: Instant,
    /// Kind of the server.
    pub source: StatusSource,
    /// Name and version: `sszip/0.1.0`.
    pub software: Option<String>,
    /// The proxy and its version.
    pub host: Option<String>,
    /// The library that compresses at level 1.
    pub encoder: Option<String>,
    /// Seconds since the start of counting.
    pub uptime: Option<u64>,
    /// Counters of all requests.
    pub totals: Totals,
    /// Latency of hits and of misses since the start of counting.
    pub latency: [Option<LatencyQuantiles>; 2],
    /// Counters by method, in the order of the source.
    pub methods: Vec<MethodRow>,
    /// Counters by reason, in the order of the source.
    pub reasons: Vec<(String, u64)>,
    /// Errors of the node by kind.
    pub errors: Vec<(String, u64)>,
    /// The most frequent keys of a sample of the requests.
    pub keys: Option<SampledKeys>,
    /// The last 15 minutes.
    pub history: Option<History>,
    /// Present values of all workers.
    pub workers: Vec<(String, u64)>,
    /// The state of the owner.
    pub owner: Option<OwnerSnapshot>,
    /// The error of the query of the owner.
    pub owner_error: Option<String>,
}

/// Counters of all requests; of all lookups, if the source is an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that were looked up or whose responses were processed.
    pub requests: u64,
    /// Responses from the cache.
    pub hits: u64,
    /// Responses that were looked up and not in the cache.
    pub misses: u64,
    /// Requests to which the node responded.
    pub node_requests: u64,
    /// Failed upstream requests, and JSON-RPC errors.
    pub node_errors: u64,
    /// Bytes of hits.
    pub hit_bytes: u64,
    /// Hits, including cached calls of batches.
    pub calls_saved: u64,
}

/// Percentiles of a latency in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyQuantiles {
    /// The p50.
    pub p50: u64,
    /// The p99.
    pub p99: u64,
}

/// The counters of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodRow {
    /// The name, or `other`.
    pub name: String,
    /// Calls, including calls of batches.
    pub calls: u64,
    /// Hits; `None`: the source has no hits by method.
    pub hits: Option<u64>,
    /// Mean time in microseconds until the head of the node's response.
    pub node_latency: Option<u64>,
}

/// The most frequent keys of a sample of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledKeys {
    /// The sample has one request of this number.
    pub interval: u64,
    /// Number of requests in the sample.
    pub samples: u64,
    /// The most frequent keys first.
    pub top: Vec<KeyRow>,
}

/// The counters of a key in the sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// The key in hex digits.
    pub key: String,
    /// The method of its requests.
    pub method: String,
    /// Number of its requests.
    pub samples: u64,
    /// Number of its hits.
    pub hits: u64,
}

/// The last 15 minutes by interval, the oldest first. `None`: unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Requests of each interval.
    pub requests: Vec<Option<u64>>,
    /// Latency of hits and of misses in the last interval.
    pub latency: [Option<LatencyQuantiles>; 2],
}

/// Parses the status that `target` has sent.
///
/// # Errors
/// The JSON is from another program, or another page.
pub fn parse_status(
    target: &Target,
    at: Instant,
    json: &Value,
) -> Result<StatusSnapshot, CommandError> {
    if json["stats"].is_array() {
        return match report_of_envoy_stats(json) {
            Some(report) => Ok(parse_proxy(at, StatusSource::EnvoyStats, &report)),
            None => Err(CommandError::Data(format!(
                "{target} has no counters of sszip; check that the filter is configured and has \
                 had a request, and that metrics_namespace is or ends with \"sszip\""
            ))),
        };
    }
    if json["requests"].is_u64() && json["node"].is_object() {
        return Ok(parse_proxy(at, StatusSource::Proxy, json));
    }
    if json["generation"].is_u64() && json["memory"].is_object() {
        let owner = parse_owner(json);
        return Ok(StatusSnapshot {
            source: StatusSource::Owner,
            uptime: json["uptime"].as_u64(),
            totals: lookup_totals(&owner),
            owner: Some(owner),
            ..parse_proxy(at, StatusSource::Owner, json)
        });
    }
    Err(CommandError::Data(format!(
        "{target} is no status page of sszip, no owner and no /stats of Envoy; check the path of \
         the URL"
    )))
}

fn parse_proxy(at: Instant, source: StatusSource, json: &Value) -> StatusSnapshot {
    let number = |pointer: &str| json.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let sum = |pointers: &[&str]| {
        let numbers = pointers.iter().map(|pointer| number(pointer));
        numbers.fold(0, u64::saturating_add)
    };
    let errors = parse_counts(&json["node"]["errors"]);
    let latency = |kind: &str| {
        let times = &json["microseconds"][kind];
        parse_quantiles(&times["p50"], &times["p99"])
    };
    let owner = &json["owner"];
    StatusSnapshot {
        at,
        source,
        software: text_of(&json["software"]),
        host: text_of(&json["host"]),
        encoder: text_of(&json["encoder"]),
        uptime: json["now"]
            .as_u64()
            .zip(json["since"].as_u64())
            .map(|(now, since)| now.saturating_sub(since)),
        totals: Totals {
            requests: number("/requests"),
            hits: sum(&["/cache/hit", "/cache/updating", "/cache/stale"]),
            misses: sum(&["/cache/miss", "/cache/revalidated"]),
            node_requests: number("/node/requests"),
            node_errors: errors
                .iter()
                .fold(0, |sum: u64, (_, count)| sum.saturating_add(*count)),
            hit_bytes: number("/bytes/hits"),
            calls_saved: number("/node/calls_saved"),
        },
        latency: [latency("hit"), latency("miss")],
        methods: rows_of(&json["methods"]).map(parse_method).collect(),
        reasons: parse_counts(&json["reasons"]),
        errors,
        keys: parse_keys(&json["keys"]),
        history: parse_history(&json["history"]),
        workers: parse_counts(&json["workers"]),
        owner: owner["generation"].is_u64().then(|| parse_owner(owner)),
        owner_error: text_of(&owner["error"]),
    }
}

/// Returns the counters of an owner's lookups.
fn lookup_totals(owner: &OwnerSnapshot) -> Totals {
    let [memory, disk, missed] = owner.lookups;
    let hits = memory.saturating_add(disk);
    Totals {
        requests: hits.saturating_add(missed),
        hits,
        misses: missed,
        ..Totals::default()
    }
}

fn parse_quantiles(p50: &Value, p99: &Value) -> Option<LatencyQuantiles> {
    Some(LatencyQuantiles {
        p50: p50.as_u64()?,
        p99: p99.as_u64()?,
    })
}

fn parse_method(row: &Value) -> MethodRow {
    let node = row["node"].as_u64().filter(|node| *node > 0);
    let time = row["microseconds"].as_u64();
    MethodRow {
        name: text_of(&row["name"]).unwrap_or_default(),
        calls: row["calls"].as_u64().unwrap_or(0),
        hits: row["hits"].as_u64(),
        node_latency: time.zip(node).map(|(time, node)| time / node),
    }
}

fn parse_keys(keys: &Value) -> Option<SampledKeys> {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    Some(SampledKeys {
        interval: keys["sampled"].as_u64()?,
        samples: keys["samples"].as_u64()?,
        top: rows_of(&keys["top"])
            .map(|row| KeyRow {
                key: text_of(&row["key"]).unwrap_or_default(),
                method: text_of(&row["method"]).unwrap_or_default(),
                samples: number(&row["samples"]),
                hits: number(&row["hits"]),
            })
            .collect(),
    })
}

fn parse_history(history: &Value) -> Option<History> {
    let last = |kind: &str, part: &str| {
        let values = history["microseconds"][kind][part].as_array();
        values
            .and_then(|values| values.last())
            .cloned()
            .unwrap_or(Value::Null)
    };
    let latency = |kind| parse_quantiles(&last(kind, "p50"), &last(kind, "p99"));
    history["requests"].as_array()?;
    Some(History {
        requests: rows_of(&history["requests"]).map(Value::as_u64).collect(),
        latency: [latency("hit"), latency("miss")],
    })
}
