//! Metrics by the proxy's ids. The core defines them and their conditions
//! (`sszip_core::metrics`).

use std::cell::RefCell;

use sszip_core::metrics::{self, ExchangeMetricsTally, GAUGES, HISTOGRAMS};

use crate::abi::{self, MetricType};

/// The ids under which the proxy knows the metrics of a filter, each defined when it is first used.
#[derive(Debug, Default)]
pub struct WasmFilterMetrics(RefCell<MetricIds>);

/// The ids of the defined metrics, the increments that the proxy has not received, and the gauge
/// values that were reported.
#[derive(Debug, Default)]
struct MetricIds {
    names: Vec<Option<String>>,
    counters: Vec<Option<u32>>,
    /// Increments of each counter since the last flush.
    unflushed: Vec<u64>,
    /// Numbers of the counters with such increments.
    changed: Vec<usize>,
    histograms: [Option<u32>; HISTOGRAMS.len()],
    gauges: [Option<u32>; GAUGES.len()],
    /// Values of the gauges at the last update: each sandbox adds its changes
    /// to the sum of all.
    reported: [u64; GAUGES.len()],
}

impl WasmFilterMetrics {
    /// Adds a finished exchange to the histograms, and to the counters at the next flush. Returns
    /// whether a flush must be scheduled: no other increments wait for one.
    pub fn count_exchange(&self, tally: &ExchangeMetricsTally) -> bool {
        let known = &mut *self.0.borrow_mut();
        if known.names.is_empty() {
            known.names = metrics::exported_counter_names().collect();
            known.counters = vec![None; known.names.len()];
            known.unflushed = vec![0; known.names.len()];
        }
        let is_first = known.changed.is_empty();
        for (counter, by) in tally.counter_increments().filter(|(_, by)| *by > 0) {
            let unflushed = &mut known.unflushed[counter];
            if *unflushed == 0 {
                known.changed.push(counter);
            }
            *unflushed = unflushed.saturating_add(by);
        }
        let histograms = known.histograms.iter_mut().zip(HISTOGRAMS);
        for ((id, name), value) in histograms.zip(tally.histogram_observations()) {
            if let Some(value) = value {
                *id = id.or_else(|| define_named_metric(MetricType::Histogram, name));
                id.inspect(|id| abi::record_histogram(*id, value));
            }
        }
        is_first && !known.changed.is_empty()
    }

    /// Adds the increments since the last flush to the proxy's counters.
    pub fn flush_counters(&self) {
        let known = &mut *self.0.borrow_mut();
        for counter in known.changed.drain(..) {
            let by = std::mem::take(&mut known.unflushed[counter]);
            let id = &mut known.counters[counter];
            let name = known.names[counter].as_deref();
            *id = id.or_else(|| define_named_metric(MetricType::Counter, name?));
            id.inspect(|id| abi::increment_counter(*id, by));
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
