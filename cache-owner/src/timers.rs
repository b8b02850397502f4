//! Periodic work of the owner.

use std::time::Duration;

use tokio::time::{sleep, Instant};

use crate::clock::read_clocks;
use crate::engine::OwnerRequestExecutor;
use crate::log::{LogFunction, LogLevel};

/// Interval between checks for log lines of the store.
const EVENT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between attempts to write to a disk that was full or failed.
const WRITE_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Minimum and maximum interval between removals of inactive entries, which otherwise is a
/// sixteenth of the inactivity period. Milliseconds.
const MIN_EXPIRY_INTERVAL: u64 = 50;
const MAX_EXPIRY_INTERVAL: u64 = 60_000;

impl OwnerRequestExecutor {
    /// Expires leases and completes purges whenever they are due. Never returns.
    pub async fn run_lease_and_purge_timer(&self) {
        loop {
            self.alarm
                .wait(|| self.owner.next_lease_or_purge_deadline())
                .await;
            self.process_due_leases_and_purges();
        }
    }

    /// Flushes the store at the interval `every`, and logs its events. Never returns.
    pub async fn run_store_flushes(&self, every: Duration, log: &LogFunction) {
        let log_events = || {
            while let Some(event) = self.owner.owner_store().next_log_line() {
                log(LogLevel::Error, &event);
            }
        };
        let mut flushed_at = Instant::now();
        loop {
            sleep(every.min(EVENT_CHECK_INTERVAL)).await;
            // before a flush succeeds and clears the state
            log_events();
            let is_off = self.owner.owner_store().store_status().off.is_some();
            if flushed_at.elapsed()
                >= if is_off {
                    every.min(WRITE_RETRY_PAUSE)
                } else {
                    every
                }
            {
                flushed_at = Instant::now();
                // an event reports the cause, and the next flush tries again
                drop(
                    self.run_blocking_write(|owner| owner.owner_store().flush_memtables())
                        .await,
                );
            }
            log_events();
        }
    }

    /// Removes entries that no process has requested for `inactive` milliseconds, at intervals.
    /// Never returns.
    pub async fn run_inactivity_expiry(&self, inactive: u64) {
        let every =
            Duration::from_millis((inactive / 16).clamp(MIN_EXPIRY_INTERVAL, MAX_EXPIRY_INTERVAL));
        loop {
            sleep(every).await;
            // it is tried again
            drop(
                self.run_blocking_write(|owner| owner.expire_inactive_entries(read_clocks()))
                    .await,
            );
        }
    }
}
