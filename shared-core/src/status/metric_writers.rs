//! Values and labels of OpenMetrics.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

pub(super) fn write_count(metric: &mut MetricEncoder<'_>, count: u64) -> Result<(), Error> {
    metric.encode_counter::<NoLabelSet, _, u64>(&count, None)
}

pub(super) fn write_gauge(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    now: f64,
) -> Result<(), Error> {
    to.encode_descriptor(name, help, None, MetricType::Gauge)?
        .encode_gauge(&now)
}

/// Escapes the value of a label, which the library does not (OpenMetrics, ABNF).
pub(super) fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
