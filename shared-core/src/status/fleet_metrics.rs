//! The fleet tier in an owner's OpenMetrics, from the member `fleet` of the owner's status
//! (docs/fleet.md).

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use serde_json::Value;

use super::metric_writers::{escape_label, write_count, write_gauge};

/// Families of counters: member, metric, help and label. The label is the name of a member of the
/// member.
const COUNTER_FAMILIES: [(&str, &str, &str, &str); 6] = [
    (
        "/lookups",
        "fleet_lookups",
        "Lookups in the fleet, by result",
        "result",
    ),
    (
        "/rejected",
        "fleet_rejected",
        "Values of the fleet that are invalid, by reason",
        "reason",
    ),
    (
        "/not_servable",
        "fleet_not_servable",
        "Valid values of the fleet that were not used, by reason",
        "reason",
    ),
    (
        "/stores",
        "fleet_stores",
        "Values that were written to the fleet, or not, by result",
        "result",
    ),
    (
        "/leases",
        "fleet_leases",
        "Leases of this owner in the fleet, and waits for other owners, by result",
        "result",
    ),
    (
        "/stream/purges",
        "fleet_purges",
        "Purges of the fleet, by origin: published by this owner, or by others",
        "origin",
    ),
];

/// Gauges: member, metric and help.
const GAUGES: [(&str, &str, &str); 5] = [
    (
        "/queue_bytes",
        "fleet_queue_bytes",
        "Bytes of values that wait to be written to the fleet",
    ),
    (
        "/stream/age_seconds",
        "fleet_stream_age_seconds",
        "Seconds since the purge stream was read",
    ),
    (
        "/stream/owners",
        "fleet_owners",
        "Owners that use the fleet, this one included",
    ),
    (
        "/stream/pending",
        "fleet_pending_purges",
        "Purges of this owner that are not in the purge stream yet",
    ),
    (
        "/stream/position",
        "fleet_position",
        "Position in the purge stream, in milliseconds since 1970",
    ),
];

/// Single counters: member, metric and help.
const COUNTERS: [(&str, &str, &str); 2] = [
    (
        "/stream/fences",
        "fleet_fences",
        "Fences that this owner has added to the purge stream: all older values are invalid",
    ),
    (
        "/stream/unreadable",
        "fleet_unreadable_records",
        "Records of the purge stream that this owner could not read",
    ),
];

/// Writes the metrics of the fleet. A member that is absent or `null` has none.
pub(super) fn write_fleet_metrics(
    to: &mut DescriptorEncoder<'_>,
    fleet: &Value,
) -> Result<(), Error> {
    let Some(is_up) = fleet["up"].as_bool() else {
        return Ok(());
    };
    let help = "Whether lookups query the fleet";
    write_gauge(to, "fleet_up", help, f64::from(u8::from(is_up)))?;
    for (pointer, name, help) in GAUGES {
        if let Some(now) = fleet.pointer(pointer).and_then(Value::as_f64) {
            write_gauge(to, name, help, now)?;
        }
    }
    for (pointer, name, help, label) in COUNTER_FAMILIES {
        let Some(counters) = fleet.pointer(pointer).and_then(Value::as_object) else {
            continue;
        };
        let mut metric = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (member, count) in counters {
            if let Some(count) = count.as_u64() {
                let label = [(label, escape_label(member))];
                write_count(&mut metric.encode_family(&label)?, count)?;
            }
        }
    }
    if let Some(bytes) = fleet["bytes"].as_object() {
        let help = "Bytes of connections to the fleet";
        let unit = Some(&Unit::Bytes);
        let mut metric = to.encode_descriptor("fleet", help, unit, MetricType::Counter)?;
        for (direction, count) in bytes {
            if let Some(count) = count.as_u64() {
                let label = [("direction", escape_label(direction))];
                write_count(&mut metric.encode_family(&label)?, count)?;
            }
        }
    }
    for (pointer, name, help) in COUNTERS {
        if let Some(count) = fleet.pointer(pointer).and_then(Value::as_u64) {
            let mut metric = to.encode_descriptor(name, help, None, MetricType::Counter)?;
            write_count(&mut metric, count)?;
        }
    }
    write_lookup_histogram(to, &fleet["lookup_seconds"])
}

/// Writes the histogram of lookups: `count`, `sum` in seconds, and `buckets`, each with its upper
/// bound `le` in seconds, and the `count` of lookups up to it, as OpenMetrics has them.
fn write_lookup_histogram(to: &mut DescriptorEncoder<'_>, histogram: &Value) -> Result<(), Error> {
    let (Some(count), Some(sum), Some(buckets)) = (
        histogram["count"].as_u64(),
        histogram["sum"].as_f64(),
        histogram["buckets"].as_array(),
    ) else {
        return Ok(());
    };
    let cumulated = buckets
        .iter()
        .filter_map(|bucket| Some((bucket["le"].as_f64()?, bucket["count"].as_u64()?)));
    // the library cumulates counts itself
    let mut before = 0;
    let buckets: Vec<_> = cumulated
        .chain([(f64::MAX, count)])
        .map(|(bound, up_to)| {
            let within = up_to.saturating_sub(before);
            before = up_to;
            (bound, within)
        })
        .collect();
    let help = "Time of lookups in the fleet";
    to.encode_descriptor(
        "fleet_lookup",
        help,
        Some(&Unit::Seconds),
        MetricType::Histogram,
    )?
    .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}
