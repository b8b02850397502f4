//! Metrics by Envoy's ids. The core defines them and their conditions
//! (`sszip_core::metrics`).

use std::sync::Arc;

use sszip_core::metrics::{self, ExchangeMetricsTally, GAUGES, HISTOGRAMS};

use crate::envoy::{EnvoyEventScheduler, EnvoyStreamHandle, FilterConfigHandle};
use crate::process::PROCESS;
use crate::{thread_pool, timers};

/// The ids under which Envoy knows the metrics of a filter. Filters with one `metrics_namespace`
/// share them.
#[derive(Debug)]
pub struct EnvoyMetrics {
    /// Ids of the counters; 0: the counter is not defined.
    counters: Box<[usize]>,
    histograms: [usize; HISTOGRAMS.len()],
    gauges: [usize; GAUGES.len()],
    /// Scheduler that notifies the main thread when the gauges are due.
    scheduler: Option<Arc<EnvoyEventScheduler>>,
}

/// Maximum age of the gauges, in milliseconds.
const GAUGE_INTERVAL_MS: u64 = 1000;
/// Event of the timer for the gauges.
pub const UPDATE_GAUGES_EVENT: u64 = 1;

impl EnvoyMetrics {
    /// Defines the metrics while a filter's configuration is read; none can be
    /// defined later. The gauges are updated only if the filter `is_used`.
    pub fn new(filter: FilterConfigHandle, is_used: bool) -> Self {
        let counters = metrics::exported_counter_names();
        let id = |name: Option<String>| name.map_or(0, |name| filter.define_counter(&name));
        let made = Self {
            counters: counters.map(id).collect(),
            histograms: HISTOGRAMS.map(|name| filter.define_histogram(name)),
            gauges: GAUGES.map(|name| filter.define_gauge(name)),
            scheduler: is_used.then(|| filter.create_config_scheduler()),
        };
        made.schedule_gauge_update();
        made
    }

    /// Adds a finished exchange to the counters and histograms.
    pub fn count_exchange(&self, stream: EnvoyStreamHandle, tally: &ExchangeMetricsTally) {
        for (counter, count) in tally.counter_increments() {
            stream.increment_counter(self.counters[counter], count);
        }
        for (histogram, value) in self.histograms.iter().zip(tally.histogram_observations()) {
            if let Some(value) = value {
                stream.record_histogram(*histogram, value);
            }
        }
    }

    /// Sets the gauges to their present values. On the main thread.
    pub fn update_gauges(&self, filter: FilterConfigHandle) {
        let now = metrics::gauge_values(&PROCESS, thread_pool::queued_job_count());
        for (gauge, value) in self.gauges.iter().zip(now) {
            filter.set_gauge(*gauge, value);
        }
        self.schedule_gauge_update();
    }

    /// Schedules the next update of the gauges, if the filter has a scheduler.
    fn schedule_gauge_update(&self) {
        if let Some(scheduler) = &self.scheduler {
            timers::set_stream_timer(scheduler, UPDATE_GAUGES_EVENT, GAUGE_INTERVAL_MS);
        }
    }
}

impl Drop for EnvoyMetrics {
    fn drop(&mut self) {
        if let Some(scheduler) = &self.scheduler {
            // the scheduler's main thread may end before the timers
            scheduler.close_event_scheduler();
        }
    }
}
