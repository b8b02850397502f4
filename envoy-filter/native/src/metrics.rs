//! Counters and the like, by Envoy's numbers. What they are, and when they count, the core
//! says (`sszip_core::metrics`).

use std::sync::Arc;

use sszip_core::metrics::{self, Tally, GAUGES, HISTOGRAMS};

use crate::config::PROCESS;
use crate::envoy::{FilterConfig, Scheduler, Stream};
use crate::{pool, timers};

/// Those of a filter. Filters of one `metrics_namespace` add to the same.
#[derive(Debug)]
pub struct Metrics {
    /// 0: there is none.
    counters: Box<[usize]>,
    histograms: [usize; HISTOGRAMS.len()],
    gauges: [usize; GAUGES.len()],
    /// By which the main thread is told that it is time for the gauges.
    scheduler: Option<Arc<Scheduler>>,
}

/// Gauges say what was so at most that long ago, in milliseconds.
const EVERY: u64 = 1000;
/// The event of that.
pub const SHOW: u64 = 1;

impl Metrics {
    /// When a filter's configuration is read; no more are made later. The gauges are shown
    /// where it `is_used`.
    pub fn new(filter: FilterConfig, is_used: bool) -> Self {
        let counters = metrics::counters();
        let id = |name: Option<String>| name.map_or(0, |name| filter.counter(&name));
        let made = Self {
            counters: counters.map(id).collect(),
            histograms: HISTOGRAMS.map(|name| filter.histogram(name)),
            gauges: GAUGES.map(|name| filter.gauge(name)),
            scheduler: is_used.then(|| filter.scheduler()),
        };
        made.wait();
        made
    }

    /// What an exchange comes to.
    pub fn count(&self, stream: Stream, tally: &Tally) {
        for (counter, count) in tally.counts() {
            stream.count(self.counters[counter], count);
        }
        for (histogram, value) in self.histograms.iter().zip(tally.measured()) {
            if let Some(value) = value {
                stream.record(*histogram, value);
            }
        }
    }

    /// What there is now. On the main thread.
    pub fn show(&self, filter: FilterConfig) {
        let now = metrics::gauges(&PROCESS, pool::waiting());
        for (gauge, value) in self.gauges.iter().zip(now) {
            filter.set_gauge(*gauge, value);
        }
        self.wait();
    }

    fn wait(&self) {
        if let Some(scheduler) = &self.scheduler {
            timers::set(scheduler, SHOW, EVERY);
        }
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        if let Some(scheduler) = &self.scheduler {
            // its main thread may end before the timers do
            scheduler.close();
        }
    }
}
