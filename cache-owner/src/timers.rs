//! Periodic work of the owner.

use std::time::Duration;

use tokio::time::{sleep, timeout, Instant};

use crate::clock::now;
use crate::engine::Engine;
use crate::log::{Level, Log};

/// Maximum interval between ticks of the owner, in milliseconds.
const TICK: u64 = 1_000;

/// Interval between checks for log lines of the store.
const EVENT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between attempts to write to a disk that was full or failed.
const RETRY: Duration = Duration::from_secs(5);

/// Minimum and maximum interval between removals of inactive entries, which otherwise is a
/// sixteenth of the inactivity period. Milliseconds.
const MIN_EXPIRY_INTERVAL: u64 = 50;
const MAX_EXPIRY_INTERVAL: u64 = 60_000;

impl Engine {
    /// Expires leases and completes purges. Never returns.
    pub async fn run_timer(&self) {
        loop {
            let now = now().monotonic;
            let next = self.owner.next_tick().unwrap_or(u64::MAX);
            let wait = next.saturating_sub(now).min(TICK);
            // sooner, if the next tick may have changed
            let _ = timeout(Duration::from_millis(wait), self.stirred.notified()).await;
            self.tick();
        }
    }

    /// Flushes the store at intervals, and logs its events. Never returns.
    pub async fn run_flushes(&self, every: Duration, log: &Log) {
        let log_events = || {
            while let Some(event) = self.owner.disk().next_event() {
                log(Level::Error, &event);
            }
        };
        let mut flushed_at = Instant::now();
        loop {
            sleep(every.min(EVENT_CHECK_INTERVAL)).await;
            // before a flush succeeds and clears the state
            log_events();
            let is_off = self.owner.disk().status().off.is_some();
            if flushed_at.elapsed() >= if is_off { every.min(RETRY) } else { every } {
                flushed_at = Instant::now();
                // an event reports the cause, and the next flush tries again
                drop(self.run_write(|owner| owner.disk().flush()).await);
            }
            log_events();
        }
    }

    /// Removes entries that no process has requested for `inactive` milliseconds. Never returns.
    pub async fn run_expiry(&self, inactive: u64) {
        let every =
            Duration::from_millis((inactive / 16).clamp(MIN_EXPIRY_INTERVAL, MAX_EXPIRY_INTERVAL));
        loop {
            sleep(every).await;
            // it is tried again
            drop(self.run_write(|owner| owner.expire_inactive(now())).await);
        }
    }
}
