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

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::Arc;

    use sszip_core::cache::owner::leases::LeaseDecision;
    use sszip_core::cache::owner::processes::OwnerClientName;
    use sszip_core::cache::owner::Owner;
    use tokio::task::yield_now;

    use super::*;
    use crate::deadline_alarm::MAX_TICK_MS;
    use crate::open_store::create_store_opener;
    use crate::request::LeaseRequest;

    #[test]
    fn timer_task_waits_on_while_leases_with_later_ends_are_granted() {
        let folder = tempfile::tempdir().unwrap();
        let log: LogFunction = Arc::new(|_, _| {});
        let mut open = create_store_opener(&folder.path().join("store"), 64 << 20, log);
        let owner = Owner::new(open(read_clocks()).unwrap(), 1 << 20, read_clocks());
        let engine = Arc::new(OwnerRequestExecutor::new(Arc::new(owner), Vec::new(), None));
        let lease = |time| LeaseRequest {
            process: OwnerClientName::new("a").unwrap(),
            time,
            wait: 0,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let timed = Arc::clone(&engine);
            tokio::spawn(async move { timed.run_lease_and_purge_timer().await });
            yield_now().await;
            let started = Instant::now();
            for n in 0..1_000_u32 {
                let mut key = [0; 32];
                key[..4].copy_from_slice(&n.to_le_bytes());
                let reply = engine.lookup_and_wait(key, Some(&lease(60_000))).await;
                assert!(matches!(
                    reply.unwrap().1,
                    Err(Some(LeaseDecision::Granted))
                ));
                yield_now().await;
            }
            let ticks = started.elapsed().as_millis() / u128::from(MAX_TICK_MS) + 1;
            let waits = engine.alarm.wait_count.load(Ordering::Relaxed);
            assert!(u128::from(waits) <= 1 + ticks, "{waits} waits");
            // an earlier end wakes the task
            let reply = engine.lookup_and_wait([7; 32], Some(&lease(1))).await;
            assert!(reply.is_ok());
            yield_now().await;
            assert!(engine.alarm.wait_count.load(Ordering::Relaxed) > waits);
        });
    }
}
