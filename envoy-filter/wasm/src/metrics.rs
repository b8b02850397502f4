//! Metrics by the proxy's ids. The core defines them and their conditions
//! (`sszip_core::metrics`).

use std::cell::RefCell;

use sszip_core::metrics::{self, ExchangeTally, GAUGES, HISTOGRAMS};

use crate::abi::{self, Metric};

/// The ids of a filter's metrics in the proxy, each defined when it is first used.
#[derive(Debug, Default)]
pub struct Metrics(RefCell<MetricIds>);

#[derive(Debug, Default)]
struct MetricIds {
    names: Vec<Option<String>>,
    counters: Vec<Option<u32>>,
    histograms: [Option<u32>; HISTOGRAMS.len()],
    gauges: [Option<u32>; GAUGES.len()],
    /// Values of the gauges at the last update: each sandbox adds its changes
    /// to the sum of all.
    shown: [u64; GAUGES.len()],
}

impl Metrics {
    /// Adds a finished exchange to the counters and histograms.
    pub fn count(&self, tally: &ExchangeTally) {
        let known = &mut *self.0.borrow_mut();
        if known.names.is_empty() {
            known.names = metrics::counters().collect();
            known.counters = vec![None; known.names.len()];
        }
        for (counter, by) in tally.counts() {
            let of = |name: &Option<String>| named(Metric::Counter, name.as_deref()?);
            let id = &mut known.counters[counter];
            *id = id.or_else(|| of(&known.names[counter]));
            if let Some(id) = *id {
                abi::count(id, by);
            }
        }
        let histograms = known.histograms.iter_mut().zip(HISTOGRAMS);
        for ((id, name), value) in histograms.zip(tally.histogram_values()) {
            if let Some(value) = value {
                *id = id.or_else(|| named(Metric::Histogram, name));
                id.inspect(|id| abi::record(*id, value));
            }
        }
    }

    /// Updates the gauges to their present values.
    pub fn show(&self, now: &[u64]) {
        let known = &mut *self.0.borrow_mut();
        let gauges = known.gauges.iter_mut().zip(GAUGES);
        for (((id, name), value), shown) in gauges.zip(now).zip(&mut known.shown) {
            *id = id.or_else(|| named(Metric::Gauge, name));
            id.inspect(|id| abi::add(*id, value.wrapping_sub(*shown) as i64));
            *shown = *value;
        }
    }
}

fn named(kind: Metric, name: &str) -> Option<u32> {
    abi::metric(kind, &format!("sszip.{name}"))
}
