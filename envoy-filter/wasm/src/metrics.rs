//! Metrics by the proxy's ids. The core defines them and their conditions
//! (`sszip_core::metrics`).

use std::cell::RefCell;

use sszip_core::metrics::{self, ExchangeMetricsTally, GAUGES, HISTOGRAMS};

use crate::abi::{self, MetricType};

/// The ids under which the proxy knows the metrics of a filter, each defined when it is first used.
#[derive(Debug, Default)]
pub struct WasmFilterMetrics(RefCell<MetricIds>);

/// The ids of the defined metrics, and the gauge values that were reported.
#[derive(Debug, Default)]
struct MetricIds {
    names: Vec<Option<String>>,
    counters: Vec<Option<u32>>,
    histograms: [Option<u32>; HISTOGRAMS.len()],
    gauges: [Option<u32>; GAUGES.len()],
    /// Values of the gauges at the last update: each sandbox adds its changes
    /// to the sum of all.
    reported: [u64; GAUGES.len()],
}

impl WasmFilterMetrics {
    /// Adds a finished exchange to the counters and histograms.
    pub fn count_exchange(&self, tally: &ExchangeMetricsTally) {
        let known = &mut *self.0.borrow_mut();
        if known.names.is_empty() {
            known.names = metrics::exported_counter_names().collect();
            known.counters = vec![None; known.names.len()];
        }
        for (counter, by) in tally.counter_increments() {
            let of =
                |name: &Option<String>| define_named_metric(MetricType::Counter, name.as_deref()?);
            let id = &mut known.counters[counter];
            *id = id.or_else(|| of(&known.names[counter]));
            if let Some(id) = *id {
                abi::increment_counter(id, by);
            }
        }
        let histograms = known.histograms.iter_mut().zip(HISTOGRAMS);
        for ((id, name), value) in histograms.zip(tally.histogram_observations()) {
            if let Some(value) = value {
                *id = id.or_else(|| define_named_metric(MetricType::Histogram, name));
                id.inspect(|id| abi::record_histogram(*id, value));
            }
        }
    }

    /// Updates the gauges to their present values.
    pub fn update_gauges(&self, now: &[u64]) {
        let known = &mut *self.0.borrow_mut();
        let gauges = known.gauges.iter_mut().zip(GAUGES);
        for (((id, name), value), reported) in gauges.zip(now).zip(&mut known.reported) {
            *id = id.or_else(|| define_named_metric(MetricType::Gauge, name));
            id.inspect(|id| abi::add_to_gauge(*id, value.wrapping_sub(*reported) as i64));
            *reported = *value;
        }
    }
}

/// Defines the metric `sszip.NAME`, and returns its id in the proxy. `None`: the proxy refuses it.
fn define_named_metric(kind: MetricType, name: &str) -> Option<u32> {
    abi::define_metric(kind, &format!("sszip.{name}"))
}
