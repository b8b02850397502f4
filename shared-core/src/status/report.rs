//! The report of all metrics, and the values that are derived from them.

use serde_json::{json, Map, Value};

use super::histogram::estimate_quantile;
use super::key_samples::{SampledKeys, SAMPLE_INTERVAL};
use super::metrics_board::{DurationHistogram, IntervalMetrics, MetricsTotals};
use crate::metrics::{all_counter_names, HitOrMissLatency, GAUGES, OTHER_METHODS_NAME};
use crate::time_constants::history_interval;

/// All metrics that the status location shows, of the workers and the owner.
#[derive(Clone, Debug)]
pub struct StatusPageReport {
    /// The host and its version: `nginx/1.22.1`.
    pub host: String,
    /// Present time in seconds since 1970.
    pub now: u64,
    /// Metrics of all workers.
    pub sums: MetricsTotals,
    /// Metrics of all workers by interval, the oldest first. `None`: they are unknown.
    pub history: Vec<Option<IntervalMetrics>>,
    /// The most frequent keys.
    pub keys: SampledKeys,
    /// The report of the store's owner, or `None` if there is no owner or it does not respond.
    pub owner: Option<Value>,
    /// Whether there is an owner.
    pub has_owner: bool,
}

/// Returns the name of the codec library that compresses at level 1, the default.
pub fn oneshot_library_name() -> &'static str {
    match crate::gzip::has_isal() {
        true => "igzip",
        false => "libdeflate",
    }
}

/// Name and version of this software.
pub const SOFTWARE_VERSION: &str = concat!("sszip/", env!("CARGO_PKG_VERSION"));

/// Splits the name of a counter into its family and its member; the family is empty for single
/// counters.
pub(super) fn split_counter_name(name: &str) -> (&str, Option<&str>) {
    const FAMILIES: [&str; 12] = [
        "verified",
        "derived_logs",
        "log_splits",
        "mode",
        "cache.reason",
        "cache",
        "rpc",
        "rpc_hit",
        "rpc_node",
        "rpc_microseconds",
        "node.status",
        "node.error",
    ];
    let of = |family: &'static str| {
        let which = name.strip_prefix(family)?.strip_prefix('.')?;
        Some((family, which))
    };
    match FAMILIES.into_iter().find_map(of) {
        // totals, and no cache statuses
        Some(("cache", "hit_bytes" | "zstd_hits")) | None => ("", None),
        Some((family, which)) => (family, Some(which)),
    }
}

/// The metrics of one method, as the report shows them.
#[derive(Clone, Copy, Debug, Default)]
struct ReportedMethodMetrics {
    calls: u64,
    hits: u64,
    /// Number of single calls that the node has answered.
    node: u64,
    /// Sum of the times until the heads of these responses, in microseconds.
    microseconds: u64,
}

impl StatusPageReport {
    /// Returns the report as JSON (docs/observability.md).
    pub fn to_json(&self) -> String {
        let names: Vec<_> = all_counter_names().collect();
        let named = names.iter().zip(&self.sums.counters);
        let (mut families, mut totals) = (Map::new(), Map::new());
        let mut methods: Vec<(&str, ReportedMethodMetrics)> = Vec::new();
        for (name, count) in named {
            let Some(name) = name.as_deref() else {
                continue;
            };
            let of_method = |methods: &mut Vec<_>, method| {
                let known = methods.iter().position(|(known, _)| *known == method);
                known.unwrap_or_else(|| {
                    methods.push((method, ReportedMethodMetrics::default()));
                    methods.len() - 1
                })
            };
            match (split_counter_name(name), *count) {
                (("", _), count) => drop(totals.insert(name.into(), count.into())),
                (_, 0) => {}
                (("rpc", Some(method)), count) => {
                    let at = of_method(&mut methods, method);
                    methods[at].1.calls = count;
                }
                (("rpc_hit", Some(method)), count) => {
                    let at = of_method(&mut methods, method);
                    methods[at].1.hits = count;
                }
                (("rpc_node", Some(method)), count) => {
                    let at = of_method(&mut methods, method);
                    methods[at].1.node = count;
                }
                (("rpc_microseconds", Some(method)), count) => {
                    let at = of_method(&mut methods, method);
                    methods[at].1.microseconds = count;
                }
                ((family, which), count) => {
                    let family = families.entry(family).or_insert_with(|| json!({}));
                    family[which.unwrap_or_default()] = count.into();
                }
            }
        }
        methods.sort_by_key(|(_, method)| std::cmp::Reverse(method.calls));
        let total = |name: &str| totals[name].as_u64().unwrap_or(0);
        let of = |family: &str, which: &str| {
            let family: Option<&Value> = families.get(family);
            family.and_then(|it| it[which].as_u64()).unwrap_or(0)
        };
        let hits = of("cache", "hit") + of("cache", "updating") + of("cache", "stale");
        let misses = of("cache", "miss") + of("cache", "revalidated");
        let [_, miss] = &self.sums.times;
        let saved = node_seconds_saved(&methods, miss, total("node.calls_saved"));
        let gauges = GAUGES.iter().zip(self.sums.gauges);
        let gauges: Map<_, _> = gauges
            .map(|(name, now)| ((*name).into(), now.into()))
            .collect();
        let times: Map<_, _> = HitOrMissLatency::ALL
            .iter()
            .zip(&self.sums.times)
            .map(|(time, times)| (time.metrics_name().into(), latency_histogram_json(times)))
            .collect();
        let mut report = json!({
            "software": SOFTWARE_VERSION,
            "host": self.host,
            "encoder": oneshot_library_name(),
            "now": self.now,
            "since": self.sums.since,
            "requests": total("requests"),
            "hits": hits,
            "hit_ratio": rounded_ratio(hits, hits + misses),
            "node": {
                "requests": total("node.requests"),
                "calls_saved": total("node.calls_saved"),
                "seconds_saved": saved,
                "statuses": families.remove("node.status").unwrap_or_else(|| json!({})),
                "errors": families.remove("node.error").unwrap_or_else(|| json!({})),
            },
            "batches": {
                "requests": total("batch.requests"),
                "calls": total("batch.calls"),
                "hits": total("batch.hits"),
            },
            "bytes": {
                "uncompressed": total("response.total_uncompressed_bytes"),
                "compressed": total("response.total_compressed_bytes"),
                "hits": total("cache.hit_bytes"),
            },
            "zstd": {
                "responses": total("response.zstd"),
                "hits": total("cache.zstd_hits"),
            },
            "microseconds": times,
            "hit_age_seconds": entry_ages_json(&self.sums.ages),
            "history": metrics_history_json(&self.history),
            "evicted": total("cache_memory.evicted"),
            "invalid_entries": total("owner.invalid_entries"),
            "verified": families.remove("verified").unwrap_or_else(|| json!({})),
            "derived_logs": families.remove("derived_logs").unwrap_or_else(|| json!({})),
            "log_splits": families.remove("log_splits").unwrap_or_else(|| json!({})),
            "modes": families.remove("mode").unwrap_or_else(|| json!({})),
            "cache": families.remove("cache").unwrap_or_else(|| json!({})),
            "reasons": families.remove("cache.reason").unwrap_or_else(|| json!({})),
            "methods": methods.iter().map(|(name, method)| json!({
                "name": name,
                "calls": method.calls,
                "hits": method.hits,
                "node": method.node,
                "microseconds": method.microseconds,
            })).collect::<Vec<_>>(),
            "workers": gauges,
            "owner": match (&self.owner, self.has_owner) {
                (Some(owner), _) => owner.clone(),
                (None, true) => json!({"error": "the owner does not respond"}),
                (None, false) => Value::Null,
            },
        });
        report["keys"] = sampled_keys_json(&self.keys);
        let mut text = serde_json::to_string_pretty(&report).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// Returns the most frequent keys, and the number of samples.
fn sampled_keys_json(keys: &SampledKeys) -> Value {
    let top = keys.top.iter().map(|top| {
        json!({
            "key": const_hex::encode(top.key),
            "method": top.method,
            "samples": top.samples,
            "hits": top.hits,
        })
    });
    json!({
        "sampled": SAMPLE_INTERVAL,
        "samples": keys.samples,
        "top": top.collect::<Vec<_>>(),
    })
}

/// Returns the series of the history, which have a member for each interval; null: it is unknown.
fn metrics_history_json(history: &[Option<IntervalMetrics>]) -> Value {
    /// Returns the value of each interval as a JSON array; unknown intervals are `null`.
    fn series<V: Into<Value>>(
        history: &[Option<IntervalMetrics>],
        value: impl Fn(&IntervalMetrics) -> V,
    ) -> Value {
        history.iter().map(|it| it.as_ref().map(&value)).collect()
    }
    let times = HitOrMissLatency::ALL.into_iter().enumerate();
    let times: Map<_, _> = times
        .map(|(at, time)| {
            let latency = |part| {
                series(history, move |interval| {
                    estimate_quantile(&interval.times[at].buckets, part)
                })
            };
            let percentiles = json!({ "p50": latency(0.5), "p99": latency(0.99) });
            (time.metrics_name().into(), percentiles)
        })
        .collect();
    json!({
        "interval_seconds": history_interval() as f64 / 1000.0,
        "requests": series(history, |interval| interval.requests),
        "node_requests": series(history, |interval| interval.node_requests),
        "hit_ratio": series(history, |it| rounded_ratio(it.hits, it.hits + it.misses)),
        "microseconds": times,
    })
}

/// Returns the count, sum, p50 and p99 of latencies, in the unit of the histogram.
fn latency_histogram_json(times: &DurationHistogram) -> Value {
    let count: u64 = times.buckets.iter().sum();
    let half = estimate_quantile(&times.buckets, 0.5);
    let most = estimate_quantile(&times.buckets, 0.99);
    json!({ "count": count, "sum": times.sum, "p50": half, "p99": most })
}

/// Returns the count, sum, p50 and p99 of ages, converted from tenths of a second to seconds.
fn entry_ages_json(ages: &DurationHistogram) -> Value {
    let seconds = |tenths: u64| tenths as f64 / 10.0;
    let part = |part: f64| estimate_quantile(&ages.buckets, part).map(seconds);
    let count: u64 = ages.buckets.iter().sum();
    json!({ "count": count, "sum": seconds(ages.sum), "p50": part(0.5), "p99": part(0.99) })
}

/// Returns `part / all` with four decimals, or `None` if `all` is 0.
fn rounded_ratio(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| (part as f64 / all as f64 * 10_000.0).round() / 10_000.0)
}

/// Estimates the node time that the hits have saved, in seconds: by the mean of the method's other
/// calls, or, if there are none, of all misses.
fn node_seconds_saved(
    methods: &[(&str, ReportedMethodMetrics)],
    miss: &DurationHistogram,
    saved: u64,
) -> f64 {
    let mean = |sum: u64, count: u64| match count {
        0 => 0.0,
        count => sum as f64 / count as f64,
    };
    let all = mean(miss.sum, miss.buckets.iter().sum());
    let of_methods = methods.iter().map(|(name, method)| {
        let is_known = *name != OTHER_METHODS_NAME && method.node > 0;
        let each = if is_known {
            mean(method.microseconds, method.node)
        } else {
            all
        };
        each * method.hits as f64
    });
    let of_calls: u64 = methods.iter().map(|(_, method)| method.hits).sum();
    // requests that are no calls
    let others = saved.saturating_sub(of_calls) as f64 * all;
    ((of_methods.sum::<f64>() + others) / 1000.0).round() / 1000.0
}
