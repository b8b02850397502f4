//! The alarm of the owner's timer task.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::clock::read_clocks;

/// Maximum interval between ticks of the owner, in milliseconds.
pub(crate) const MAX_TICK_MS: u64 = 1_000;

/// The alarm of the task that ends leases and completes purges: it wakes the task at the next
/// deadline, which may become earlier in the meantime.
#[derive(Debug)]
pub(crate) struct DeadlineAlarm {
    changed: Notify,
    /// Time at which the task wakes, in monotonic milliseconds.
    wakes_at: AtomicU64,
    #[cfg(test)]
    pub(crate) wait_count: AtomicU64,
}

impl DeadlineAlarm {
    /// Creates an alarm for a task that does not wait yet.
    pub(crate) fn new() -> Self {
        Self {
            changed: Notify::new(),
            wakes_at: AtomicU64::new(u64::MAX),
            #[cfg(test)]
            wait_count: AtomicU64::new(0),
        }
    }

    /// Wakes the task if it would wake after `deadline`, which was added before this call.
    pub(crate) fn wake_if_later_than(&self, deadline: u64) {
        if deadline < self.wakes_at.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Wakes the task, because any deadline may have changed.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Waits until the deadline that `next_deadline` returns, or until the task is woken.
    pub(crate) async fn wait(&self, next_deadline: impl Fn() -> Option<u64>) {
        // a deadline that is added after `next_deadline` read them is compared with this value, or
        // with the one below
        self.wakes_at.store(u64::MAX, Ordering::Relaxed);
        let next = next_deadline().unwrap_or(u64::MAX);
        let now = read_clocks().monotonic;
        let wait = next.saturating_sub(now).min(MAX_TICK_MS);
        self.wakes_at
            .store(now.saturating_add(wait), Ordering::Relaxed);
        #[cfg(test)]
        self.wait_count.fetch_add(1, Ordering::Relaxed);
        let _ = timeout(Duration::from_millis(wait), self.changed.notified()).await;
    }
}
