//! The report as OpenMetrics. Clients do not choose labels: methods that are in no table share one,
//! `other`.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{text, DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use serde_json::Value;

use super::fleet_metrics::write_fleet_metrics;
use super::histogram::bucket_upper_bound;
use super::metric_writers::{escape_label, write_count, write_gauge};
use super::metrics_board::DurationHistogram;
use super::report::{oneshot_library_name, split_counter_name, StatusPageReport, SOFTWARE_VERSION};
use crate::metrics::{all_counter_names, HitOrMissLatency, GAUGES};

/// Families of counters: name, metric, help and label.
const COUNTER_FAMILIES: [(&str, &str, &str, &str); 11] = [
    (
        "verified",
        "verified_hits",
        "Hits that were compared with the node, by verdict",
        "verdict",
    ),
    (
        "derived_logs",
        "derived_logs",
        "Lists of logs that were derived from receipts, or compared with the node's",
        "event",
    ),
    (
        "log_splits",
        "log_splits",
        "Calls for logs that were split into pieces, by event",
        "event",
    ),
    ("mode", "responses", "Responses, by mode", "mode"),
    (
        "cache",
        "cache_requests",
        "Requests that were looked up, by cache status",
        "status",
    ),
    (
        "cache.reason",
        "cache_reasons",
        "Responses that were no hits or were not stored, by reason",
        "reason",
    ),
    (
        "rpc",
        "rpc_calls",
        "JSON-RPC calls, including calls of batches",
        "method",
    ),
    (
        "rpc_hit",
        "rpc_hits",
        "JSON-RPC calls that were cache hits",
        "method",
    ),
    (
        "rpc_node",
        "node_rpc_requests",
        "Single JSON-RPC calls that were sent to the node",
        "method",
    ),
    (
        "node.status",
        "node_responses",
        "Upstream responses, by class of status",
        "status",
    ),
    (
        "node.error",
        "node_errors",
        "Failed upstream requests and JSON-RPC errors, by kind",
        "kind",
    ),
];

/// Single counters: name, metric, help and unit.
const SINGLE_COUNTERS: [(&str, &str, &str, Option<Unit>); 16] = [
    ("requests", "requests", "Requests", None),
    (
        "node.requests",
        "node_requests",
        "Upstream requests with a response, with status below 500",
        None,
    ),
    (
        "node.calls_saved",
        "node_calls_saved",
        "Upstream requests saved: calls that were answered without the node",
        None,
    ),
    (
        "cache_memory.evicted",
        "cache_memory_evictions",
        "Entries evicted from the workers' memory",
        None,
    ),
    (
        "owner.invalid_entries",
        "owner_invalid_entries",
        "Entries received from the owner that can't be sent",
        None,
    ),
    (
        "batch.requests",
        "batches",
        "Batches that were looked up",
        None,
    ),
    (
        "batch.calls",
        "batch_calls",
        "Calls of batches that were looked up",
        None,
    ),
    (
        "batch.hits",
        "batch_hits",
        "Calls of batches that were cache hits",
        None,
    ),
    (
        "response.compressed",
        "compressed_responses",
        "Responses that were compressed",
        None,
    ),
    (
        "response.not_compressed",
        "uncompressed_responses",
        "Responses that were not compressed",
        None,
    ),
    (
        "response.content_length_too_small",
        "short_responses",
        "Responses below min_length",
        None,
    ),
    (
        "response.total_uncompressed_bytes",
        "uncompressed",
        "Bytes of compressed responses before compression",
        Some(Unit::Bytes),
    ),
    (
        "response.total_compressed_bytes",
        "compressed",
        "Bytes of compressed responses after compression",
        Some(Unit::Bytes),
    ),
    (
        "cache.hit_bytes",
        "hit",
        "Bytes of the bodies of hits, as sent",
        Some(Unit::Bytes),
    ),
    (
        "response.zstd",
        "zstd_responses",
        "Responses that were compressed with zstd, except hits",
        None,
    ),
    (
        "cache.zstd_hits",
        "zstd_hits",
        "Hits that were sent with zstd",
        None,
    ),
];

/// Formats the report of the workers and the owner as OpenMetrics.
pub fn write_openmetrics(report: StatusPageReport) -> String {
    encode_collector(report)
}

/// Formats the report of an owner alone as OpenMetrics.
pub fn format_owner_openmetrics(owner: Value) -> String {
    encode_collector(OwnerCollector(owner))
}

/// Returns the metrics of the collector in the OpenMetrics text format, with the prefix `sszip_`.
fn encode_collector(collector: impl Collector) -> String {
    let mut registry = Registry::with_prefix("sszip");
    registry.register_collector(Box::new(collector));
    let mut written = String::new();
    // writes to a String do not fail
    let _ = text::encode(&mut written, &registry);
    written
}

/// The JSON of an owner's report, from which the metrics library collects the owner's metrics.
#[derive(Debug)]
struct OwnerCollector(Value);

impl Collector for OwnerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let up = "Whether the owner of the store responds";
        write_gauge(&mut encoder, "owner_up", up, 1.0)?;
        write_owner_metrics(&mut encoder, &self.0)
    }
}

impl Collector for StatusPageReport {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let to = &mut encoder;
        self.write_build_info(to)?;
        let names: Vec<_> = all_counter_names().map(Option::unwrap_or_default).collect();
        let counts = || names.iter().map(String::as_str).zip(&self.sums.counters);
        for (name, metric, help, unit) in SINGLE_COUNTERS {
            let count = counts().find_map(|(known, count)| (known == name).then_some(*count));
            let mut metric =
                to.encode_descriptor(metric, help, unit.as_ref(), MetricType::Counter)?;
            write_count(&mut metric, count.unwrap_or(0))?;
        }
        for (family, metric, help, label) in COUNTER_FAMILIES {
            let mut metric = to.encode_descriptor(metric, help, None, MetricType::Counter)?;
            for (name, count) in counts().filter(|(_, count)| **count > 0) {
                if let (known, Some(which)) = split_counter_name(name) {
                    if known == family {
                        write_count(&mut metric.encode_family(&[(label, which)])?, *count)?;
                    }
                }
            }
        }
        let help = "Time until the heads of the node's responses, for single calls";
        let unit = Some(&Unit::Seconds);
        let mut metric = to.encode_descriptor("node_rpc", help, unit, MetricType::Counter)?;
        for (name, count) in counts().filter(|(_, count)| **count > 0) {
            if let ("rpc_microseconds", Some(method)) = split_counter_name(name) {
                let seconds = *count as f64 / 1e6;
                metric
                    .encode_family(&[("method", method)])?
                    .encode_counter::<NoLabelSet, _, u64>(&seconds, None)?;
            }
        }
        self.write_latency_histograms(to)?;
        for (name, now) in GAUGES.iter().zip(self.sums.gauges) {
            let name = name.replace('.', "_");
            let help = "Sum over all workers (docs/observability.md)";
            write_gauge(to, &name, help, now as f64)?;
        }
        match &self.owner {
            Some(owner) => write_owner_metrics(to, owner),
            None => Ok(()),
        }
    }
}

impl StatusPageReport {
    fn write_build_info(&self, to: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let version = SOFTWARE_VERSION.trim_start_matches("sszip/");
        let host = escape_label(&self.host);
        let labels = [
            ("version", version),
            ("host", &host),
            ("encoder", oneshot_library_name()),
        ];
        let help = "Version, host and encoder";
        let mut metric = to.encode_descriptor("build", help, None, MetricType::Info)?;
        metric.encode_info(&labels)?;
        let help = "Whether the owner of the store responds";
        let is_up = f64::from(u8::from(self.owner.is_some()));
        match self.has_owner {
            true => write_gauge(to, "owner_up", help, is_up),
            false => Ok(()),
        }
    }

    fn write_latency_histograms(&self, to: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Time from a request's head to the end of its response";
        let unit = Some(&Unit::Seconds);
        let mut metric =
            to.encode_descriptor("request_duration", help, unit, MetricType::Histogram)?;
        for (time, times) in HitOrMissLatency::ALL.iter().zip(&self.sums.times) {
            let label = [("cache", time.metrics_name())];
            write_histogram(&mut metric.encode_family(&label)?, times, 1e6)?;
        }
        let help = "Age of the entries of hits";
        let mut metric = to.encode_descriptor("hit_age", help, unit, MetricType::Histogram)?;
        write_histogram(&mut metric, &self.sums.ages, 10.0)
    }
}

/// Writes a histogram, whose values count `of_a_second` units per second.
fn write_histogram(
    metric: &mut MetricEncoder<'_>,
    times: &DurationHistogram,
    of_a_second: f64,
) -> Result<(), Error> {
    let seconds =
        |bucket| bucket_upper_bound(bucket).map_or(f64::MAX, |it| it as f64 / of_a_second);
    let buckets = times.buckets.iter().enumerate();
    let buckets: Vec<_> = buckets.map(|(at, count)| (seconds(at), *count)).collect();
    let count = times.buckets.iter().sum();
    let sum = times.sum as f64 / of_a_second;
    metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

/// Writes the metrics in the JSON of an owner's report (docs/owner-protocol.md).
fn write_owner_metrics(to: &mut DescriptorEncoder<'_>, owner: &Value) -> Result<(), Error> {
    const GAUGES: [(&str, &str, &str); 11] = [
        (
            "/suspended",
            "owner_suspended_namespaces",
            "Namespaces whose cache is off, because a node had another chain",
        ),
        (
            "/leases",
            "owner_leases",
            "Leases: keys that are being fetched",
        ),
        (
            "/connections",
            "owner_connections",
            "Connections of processes to the owner",
        ),
        (
            "/purges_waiting",
            "owner_purges_waiting",
            "Purges that not all processes have acknowledged yet",
        ),
        (
            "/memory/entries",
            "owner_memory_entries",
            "Entries in the owner's memory",
        ),
        (
            "/memory/bytes",
            "owner_memory_bytes",
            "Bytes of the entries in the owner's memory",
        ),
        (
            "/memory/capacity",
            "owner_memory_capacity_bytes",
            "Limit of the owner's memory",
        ),
        (
            "/store/entries",
            "store_entries",
            "Entries on the disk (estimate)",
        ),
        (
            "/store/bytes",
            "store_disk_bytes",
            "Bytes of the store on the disk",
        ),
        (
            "/store/memory",
            "store_memory_bytes",
            "Bytes that are not written to the disk yet",
        ),
        (
            "/store/busy",
            "store_busy",
            "Entries that were not stored because the memtables were full",
        ),
    ];
    const COUNTERS: [(&str, &str, &str); 8] = [
        (
            "/lookups/memory",
            "owner_memory_hits",
            "Lookups that were hits in the owner's memory",
        ),
        (
            "/lookups/store",
            "owner_store_hits",
            "Lookups that were hits on the disk",
        ),
        (
            "/lookups/missed",
            "owner_misses",
            "Lookups that were misses",
        ),
        (
            "/fills/kept",
            "owner_fills",
            "Entries that the owner accepted",
        ),
        (
            "/fills/refused",
            "owner_refused_fills",
            "Entries that the owner rejected",
        ),
        (
            "/memory/evicted",
            "owner_memory_evictions",
            "Entries evicted from the owner's memory",
        ),
        (
            "/stores/done",
            "store_writes",
            "Entries written to the disk",
        ),
        (
            "/stores/failed",
            "store_failed_writes",
            "Entries that could not be written to the disk",
        ),
    ];
    for (pointer, name, help) in GAUGES {
        if let Some(now) = owner.pointer(pointer).and_then(Value::as_f64) {
            write_gauge(to, name, help, now)?;
        }
    }
    for (pointer, name, help) in COUNTERS {
        if let Some(count) = owner.pointer(pointer).and_then(Value::as_u64) {
            let mut metric = to.encode_descriptor(name, help, None, MetricType::Counter)?;
            write_count(&mut metric, count)?;
        }
    }
    let off = owner
        .pointer("/store/off")
        .is_some_and(|off| !off.is_null());
    write_gauge(
        to,
        "store_off",
        "Whether the store accepts no writes",
        f64::from(u8::from(off)),
    )?;
    let chains = owner["chains"].as_array().map_or(&[][..], Vec::as_slice);
    write_chain_gauge(
        to,
        chains,
        "chain_head",
        "Number of the head block, or its slot",
        |chain| chain["head"].as_f64(),
    )?;
    write_chain_gauge(
        to,
        chains,
        "chain_final",
        "Number of the newest finalized block, or its slot",
        |chain| chain["final"].as_f64(),
    )?;
    write_chain_gauge(
        to,
        chains,
        "chain_head_age_seconds",
        "Seconds since the last new head",
        |chain| chain["head_age"].as_f64(),
    )?;
    write_chain_gauge(
        to,
        chains,
        "chain_up",
        "Whether the chain's node is followed",
        |chain| Some(f64::from(u8::from(chain["state"] == "following"))),
    )?;
    let help = "Reorganisations";
    let mut metric = to.encode_descriptor("chain_reorgs", help, None, MetricType::Counter)?;
    for chain in chains {
        if let (Some(name), Some(reorgs)) = (chain["name"].as_str(), chain["reorgs"].as_u64()) {
            write_count(
                &mut metric.encode_family(&[("chain", escape_label(name))])?,
                reorgs,
            )?;
        }
    }
    write_fleet_metrics(to, &owner["fleet"])
}

/// Writes a gauge with one value per chain; chains for which `of` returns `None` have none.
fn write_chain_gauge(
    to: &mut DescriptorEncoder<'_>,
    chains: &[Value],
    name: &str,
    help: &str,
    of: impl Fn(&Value) -> Option<f64>,
) -> Result<(), Error> {
    let mut metric = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for chain in chains {
        if let (Some(name), Some(now)) = (chain["name"].as_str(), of(chain)) {
            let label = [("chain", escape_label(name))];
            metric.encode_family(&label)?.encode_gauge(&now)?;
        }
    }
    Ok(())
}
