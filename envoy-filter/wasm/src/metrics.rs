//! Counters and the like, by the proxy's numbers. What they are, and when they count, the
//! core says (`sszip_core::metrics`).

use std::cell::RefCell;

use sszip_core::metrics::{self, Tally, GAUGES, HISTOGRAMS};

use crate::abi::{self, Metric};

/// Those of a filter, each known to the proxy once there is something to say of it.
#[derive(Debug, Default)]
pub struct Metrics(RefCell<Known>);

#[derive(Debug, Default)]
struct Known {
    names: Vec<Option<String>>,
    counters: Vec<Option<u32>>,
    histograms: [Option<u32>; HISTOGRAMS.len()],
    gauges: [Option<u32>; GAUGES.len()],
    /// As they were shown last: each sandbox adds to what all of them have.
    shown: [u64; GAUGES.len()],
}

impl Metrics {
    /// What an exchange comes to.
    pub fn count(&self, tally: &Tally) {
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
        for ((id, name), value) in histograms.zip(tally.measured()) {
            if let Some(value) = value {
                *id = id.or_else(|| named(Metric::Histogram, name));
                id.inspect(|id| abi::record(*id, value));
            }
        }
    }

    /// What there is now.
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
