//! Metrics by Envoy's ids. The core defines them and their conditions
//! (`sszip_core::metrics`).

use std::sync::Arc;

use sszip_core::metrics::{self, ExchangeTally, GAUGES, HISTOGRAMS};

use crate::envoy::{FilterConfig, Scheduler, Stream};
use crate::process::PROCESS;
use crate::{thread_pool, timers};

/// The ids of a filter's metrics in Envoy. Filters with one `metrics_namespace` share them.
#[derive(Debug)]
pub struct Metrics {
    /// Ids of the counters; 0: the counter is not defined.
    counters: Box<[usize]>,
    histograms: [usize; HISTOGRAMS.len()],
    gauges: [usize; GAUGES.len()],
    /// Scheduler that notifies the main thread when the gauges are due.
    scheduler: Option<Arc<Scheduler>>,
}

/// Maximum age of the gauges, in milliseconds.
const EVERY: u64 = 1000;
/// Event of the timer for the gauges.
pub const SHOW: u64 = 1;

impl Metrics {
    /// Defines the metrics while a filter's configuration is read; none can be
    /// defined later. The gauges are updated only if the filter `is_used`.
    pub fn new(filter: FilterConfig, is_used: bool) -> Self {
        let counters = metrics::counters();
        let id = |name: Option<String>| name.map_or(0, |name| filter.counter(&name));
        let made = Self {
            counters: counters.map(id).collect(),
            histograms: HISTOGRAMS.map(|name| filter.histogram(name)),
            gauges: GAUGES.map(|name| filter.gauge(name)),
            scheduler: is_used.then(|| filter.scheduler()),
        };
        made.schedule_update();
        made
    }

    /// Adds a finished exchange to the counters and histograms.
    pub fn count(&self, stream: Stream, tally: &ExchangeTally) {
        for (counter, count) in tally.counts() {
            stream.count(self.counters[counter], count);
        }
        for (histogram, value) in self.histograms.iter().zip(tally.histogram_values()) {
            if let Some(value) = value {
                stream.record(*histogram, value);
            }
        }
    }

    /// Sets the gauges to their present values. On the main thread.
    pub fn set_gauges(&self, filter: FilterConfig) {
        let now = metrics::gauges(&PROCESS, thread_pool::waiting());
        for (gauge, value) in self.gauges.iter().zip(now) {
            filter.set_gauge(*gauge, value);
        }
        self.schedule_update();
    }

    fn schedule_update(&self) {
        if let Some(scheduler) = &self.scheduler {
            timers::set(scheduler, SHOW, EVERY);
        }
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        if let Some(scheduler) = &self.scheduler {
            // the scheduler's main thread may end before the timers
            scheduler.close();
        }
    }
}
